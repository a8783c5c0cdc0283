/* checksum.c - see checksum.h. */
#include "proto/base/checksum.h"

#include <string.h>

/* ---- by tables ---- */

/* table[0] is the reflected polynomial's table; table[k] advances a byte past k more of zeros. */
void crc32_make_table(struct crc32 *crc, uint32_t polynomial)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? polynomial : 0);
        crc->table[0][i] = value;
    }
    for (int k = 1; k < 8; k++) {
        for (int i = 0; i < 256; i++)
            crc->table[k][i] = crc->table[k - 1][i] >> 8 ^ crc->table[0][crc->table[k - 1][i] & 0xff];
    }
}

void crc32_make(struct crc32 *crc)
{
    crc32_make_table(crc, 0xedb88320u);
}

uint32_t crc32_add(const struct crc32 *crc, uint32_t value, const void *data, int64_t bytes)
{
    const unsigned char *at = data;
    value = ~value;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint32_t low =
            value ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        value = crc->table[7][low & 0xff] ^ crc->table[6][low >> 8 & 0xff] ^ crc->table[5][low >> 16 & 0xff] ^
                crc->table[4][low >> 24] ^ crc->table[3][at[4]] ^ crc->table[2][at[5]] ^
                crc->table[1][at[6]] ^ crc->table[0][at[7]];
    }
    for (; bytes; bytes--)
        value = value >> 8 ^ crc->table[0][(value ^ *at++) & 0xff];
    return ~value;
}

/* ---- CRC-32C ---- */

#define CASTAGNOLI 0x82f63b78u

#ifdef __x86_64__
static bool has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) static uint32_t add_by_instruction(uint32_t value, const unsigned char *at,
                                                                     int64_t bytes)
{
    uint64_t crc = ~value, word;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        memcpy(&word, at, sizeof word);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; bytes; bytes--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at++);
    return ~(uint32_t)crc;
}
#else
static bool has_instruction(void)
{
    return false;
}

static uint32_t add_by_instruction(uint32_t value, const unsigned char *at, int64_t bytes)
{
    (void)at;
    (void)bytes;
    return value; /* never called */
}
#endif

void checksum_make(struct checksum *checksum, bool instruction)
{
    checksum->by_instruction = instruction && has_instruction();
    crc32_make_table(&checksum->table, CASTAGNOLI);
}

uint32_t checksum_add(const struct checksum *checksum, uint32_t value, const void *data, int64_t bytes)
{
    return checksum->by_instruction ? add_by_instruction(value, data, bytes)
                                    : crc32_add(&checksum->table, value, data, bytes);
}
