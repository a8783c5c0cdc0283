/* checksum.c - see checksum.h. */
#include "proto/base/checksum.h"

#include <string.h>
#ifdef __x86_64__
#include <emmintrin.h> /* every processor of this kind has it */
#endif

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

__attribute__((target("sse4.2"))) static uint64_t add_word(uint64_t crc, const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return __builtin_ia32_crc32di(crc, word);
}

/* As if a lane of zeros had followed. */
static uint64_t past_lane(const struct checksum *checksum, uint64_t crc)
{
    return checksum->past[0][crc & 0xff] ^ checksum->past[1][crc >> 8 & 0xff] ^
           checksum->past[2][crc >> 16 & 0xff] ^ checksum->past[3][crc >> 24 & 0xff];
}

__attribute__((target("sse4.2"))) static uint32_t add_by_instruction(const struct checksum *checksum,
                                                                     uint32_t value, const unsigned char *at,
                                                                     int64_t bytes)
{
    uint64_t crc = (uint32_t)~value;
    for (; bytes >= 3 * CHECKSUM_LANE; bytes -= 3 * CHECKSUM_LANE, at += 2 * CHECKSUM_LANE) {
        uint64_t second = 0, third = 0;
        for (const unsigned char *end = at + CHECKSUM_LANE; at < end; at += 8) {
            crc = add_word(crc, at);
            second = add_word(second, at + CHECKSUM_LANE);
            third = add_word(third, at + 2 * CHECKSUM_LANE);
        }
        crc = past_lane(checksum, past_lane(checksum, crc) ^ second) ^ third;
    }
    for (; bytes >= 8; bytes -= 8, at += 8)
        crc = add_word(crc, at);
    for (; bytes; bytes--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at++);
    return ~(uint32_t)crc;
}

enum { LINE = 64 };

/* A line of a lane: 4 times 16 bytes are copied, 8 times 8 are summed. */
__attribute__((target("sse4.2"))) static uint64_t copy_line(uint64_t crc, char *to, const char *from)
{
    const __m128i *words = (const __m128i *)(const void *)from;
    __m128i *line = (__m128i *)(void *)to;
    for (int i = 0; i < LINE / 16; i++)
        _mm_stream_si128(line + i, _mm_loadu_si128(words + i));
    for (int i = 0; i < LINE; i += 8)
        crc = add_word(crc, (const unsigned char *)from + i);
    return crc;
}

/* to: begins with a line. Returns the sum; it copies whole lanes of `bytes`. */
__attribute__((target("sse4.2"))) static uint64_t copy_lanes(const struct checksum *checksum, uint64_t crc,
                                                             char *to, const char *from, int64_t bytes)
{
    for (; bytes >= 3 * CHECKSUM_LANE; bytes -= 3 * CHECKSUM_LANE) {
        uint64_t second = 0, third = 0;
        for (int i = 0; i < CHECKSUM_LANE; i += LINE, to += LINE, from += LINE) {
            crc = copy_line(crc, to, from);
            second = copy_line(second, to + CHECKSUM_LANE, from + CHECKSUM_LANE);
            third = copy_line(third, to + 2 * CHECKSUM_LANE, from + 2 * CHECKSUM_LANE);
        }
        crc = past_lane(checksum, past_lane(checksum, crc) ^ second) ^ third;
        to += 2 * CHECKSUM_LANE;
        from += 2 * CHECKSUM_LANE;
    }
    _mm_sfence(); /* a thread that is told of the copy finds it */
    return crc;
}

static uint32_t copy_by_instruction(const struct checksum *checksum, uint32_t value, char *to,
                                    const char *from, int64_t bytes)
{
    const int64_t left = (LINE - (int64_t)((uintptr_t)to % LINE)) % LINE, head = left < bytes ? left : bytes;
    const int64_t lanes = (bytes - head) / (3 * CHECKSUM_LANE) * (3 * CHECKSUM_LANE);
    memcpy(to, from, (size_t)head);
    value = add_by_instruction(checksum, value, (const unsigned char *)from, head);
    value = ~(uint32_t)copy_lanes(checksum, (uint32_t)~value, to + head, from + head, lanes);
    const int64_t done = head + lanes;
    memcpy(to + done, from + done, (size_t)(bytes - done));
    return add_by_instruction(checksum, value, (const unsigned char *)from + done, bytes - done);
}
#else
static bool has_instruction(void)
{
    return false;
}

static uint32_t add_by_instruction(const struct checksum *checksum, uint32_t value, const unsigned char *at,
                                   int64_t bytes)
{
    (void)checksum;
    (void)at;
    (void)bytes;
    return value; /* never called */
}

static uint32_t copy_by_instruction(const struct checksum *checksum, uint32_t value, char *to,
                                    const char *from, int64_t bytes)
{
    (void)checksum;
    (void)to;
    (void)from;
    (void)bytes;
    return value; /* a whole lane */
}
#endif

/* A sum is linear in its bits: the sums of single bits give the sums of a byte's values. */
static void make_lane(struct checksum *checksum)
{
    static const unsigned char zeros[CHECKSUM_LANE];
    for (int bit = 0; bit < 32; bit++) {
        const uint32_t alone = ~add_by_instruction(checksum, ~(1u << bit), zeros, CHECKSUM_LANE);
        uint32_t *past = checksum->past[bit / 8];
        const uint32_t low = 1u << bit % 8;
        past[0] = 0;
        for (uint32_t i = 0; i < low; i++)
            past[low + i] = past[i] ^ alone;
    }
}

void checksum_make(struct checksum *checksum, bool instruction)
{
    checksum->by_instruction = instruction && has_instruction();
    crc32_make_table(&checksum->table, CASTAGNOLI);
    if (checksum->by_instruction)
        make_lane(checksum);
}

uint32_t checksum_add(const struct checksum *checksum, uint32_t value, const void *data, int64_t bytes)
{
    return checksum->by_instruction ? add_by_instruction(checksum, value, data, bytes)
                                    : crc32_add(&checksum->table, value, data, bytes);
}

uint32_t checksum_copy(const struct checksum *checksum, uint32_t value, void *to, const void *from,
                       int64_t bytes)
{
    if (checksum->by_instruction)
        return copy_by_instruction(checksum, value, to, from, bytes);
    memcpy(to, from, (size_t)bytes);
    return crc32_add(&checksum->table, value, from, bytes);
}
