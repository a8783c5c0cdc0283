/* md5.c - see model_hash_internal.h. Names are the RFC's. By hand: no library that libmuster loads has MD5,
 * and libmd would be a package more in each installation for the eight digits of a script's hash. */
#include "runtime/hash/model_hash_internal.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64, LENGTH_AT = 56, STEPS = 64 };

static uint32_t rotated(uint32_t x, int bits)
{
    return x << bits | x >> (32 - bits);
}

static uint32_t word_at(const uint8_t *block, int index)
{
    const uint8_t *p = block + 4 * index;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void add_block(uint32_t state[4], const uint32_t sine[STEPS], const uint8_t *block)
{
    static const int shifts[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    for (int i = 0; i < STEPS; i++) {
        const int round = i / 16;
        const uint32_t f = round == 0   ? (b & c) | (~b & d)
                           : round == 1 ? (b & d) | (c & ~d)
                           : round == 2 ? b ^ c ^ d
                                        : c ^ (b | ~d);
        const int word = round == 0 ? i : round == 1 ? 5 * i + 1 : round == 2 ? 3 * i + 5 : 7 * i;
        const uint32_t sum = a + f + sine[i] + word_at(block, word % 16);
        a = d, d = c, c = b;
        b += rotated(sum, shifts[round][i % 4]);
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
}

void md5(const void *data, size_t length, uint8_t out[MD5_BYTES])
{
    uint32_t state[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}, sine[STEPS];
    const uint8_t *at = data;
    uint8_t last[2 * BLOCK] = {0};
    for (int i = 0; i < STEPS; i++)
        sine[i] = (uint32_t)(int64_t)floor(fabs(sin(i + 1)) * 4294967296.0);
    size_t left = length;
    for (; left >= BLOCK; left -= BLOCK, at += BLOCK)
        add_block(state, sine, at);
    if (left)
        memcpy(last, at, left);
    last[left] = 0x80;
    const int blocks = left < LENGTH_AT ? 1 : 2;
    for (int i = 0; i < 8; i++)
        last[(blocks - 1) * BLOCK + LENGTH_AT + i] = (uint8_t)((uint64_t)length * 8 >> (8 * i));
    for (int i = 0; i < blocks; i++)
        add_block(state, sine, last + i * BLOCK);
    for (int i = 0; i < MD5_BYTES; i++)
        out[i] = (uint8_t)(state[i / 4] >> (8 * (i % 4)));
}
