/* checksum.c - see checksum.h. */
#include "runtime/checkpoint/checksum.h"

#include <string.h>

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
