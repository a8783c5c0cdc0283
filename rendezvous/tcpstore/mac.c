/* mac.c - see mac.h. */
#include "rendezvous/tcpstore/mac.h"

#include <endian.h>
#include <stdint.h>
#include <string.h>

struct sip_state {
    uint64_t v[4];
};

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t read_word(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return le64toh(word);
}

static void sip_rounds(struct sip_state *s, int count)
{
    uint64_t *v = s->v;
    while (count--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32) + v[3];
        v[2] += v[1];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[2] = rotate(v[2], 32);
    }
}

static void sip_word(struct sip_state *s, uint64_t word)
{
    s->v[3] ^= word;
    sip_rounds(s, 2);
    s->v[0] ^= word;
}

static void sip_end(struct sip_state *s, unsigned char *out)
{
    sip_rounds(s, 4);
    const uint64_t word = htole64(s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3]);
    memcpy(out, &word, sizeof word);
}

void mac_make(const unsigned char key[MAC_KEY_SIZE], const void *data, size_t length,
              unsigned char out[MAC_SIZE])
{
    const uint64_t k0 = read_word(key), k1 = read_word(key + 8);
    const unsigned char *at = data;
    unsigned char last[8] = {0};
    struct sip_state s = {{UINT64_C(0x736f6d6570736575) ^ k0, UINT64_C(0x646f72616e646f6d) ^ k1 ^ 0xee,
                           UINT64_C(0x6c7967656e657261) ^ k0, UINT64_C(0x7465646279746573) ^ k1}};
    size_t left = length;
    for (; left >= sizeof last; at += sizeof last, left -= sizeof last)
        sip_word(&s, read_word(at));
    if (left)
        memcpy(last, at, left);
    last[7] = (unsigned char)length;
    sip_word(&s, read_word(last));
    s.v[2] ^= 0xee;
    sip_end(&s, out);
    s.v[1] ^= 0xdd;
    sip_end(&s, out + 8);
}

bool mac_equal(const unsigned char a[MAC_SIZE], const unsigned char b[MAC_SIZE])
{
    unsigned char differs = 0;
    for (int i = 0; i < MAC_SIZE; i++)
        differs |= a[i] ^ b[i];
    return !differs;
}
