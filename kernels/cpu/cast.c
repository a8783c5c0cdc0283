/* cast.c - the conversions that training uses every step, float to bf16 and back, as integer operations that
 * vectorise; equal types are copied and every other pair goes to the reference. */
#include "kernels/cpu/cpu.h"

#include <string.h>

static inline uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16; /* nearest, ties to even */
    uint32_t quiet_nan = (bits >> 31 << 15) | 0x7fc0u;               /* the carry could make a NaN infinite */
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

static inline float from_bf16(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static void cast_chunk(void *to, enum dtype dtype_to, const void *from, enum dtype dtype_from, int64_t n)
{
    if (dtype_to == dtype_from) {
        memcpy(to, from, (size_t)n * (size_t)dtype_size(dtype_to));
    } else if (dtype_to == DTYPE_BF16 && dtype_from == DTYPE_F32) {
        uint16_t *restrict out = to;
        const float *restrict in = from;
        for (int64_t i = 0; i < n; i++)
            out[i] = to_bf16(in[i]);
    } else if (dtype_to == DTYPE_F32 && dtype_from == DTYPE_BF16) {
        float *restrict out = to;
        const uint16_t *restrict in = from;
        for (int64_t i = 0; i < n; i++)
            out[i] = from_bf16(in[i]);
    } else {
        kernels_ref_f32()->cast(to, dtype_to, from, dtype_from, n, NULL);
    }
}

void CPU(cast)(void *to, enum dtype dtype_to, const void *from, enum dtype dtype_from, int64_t n,
               void *stream)
{
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t first = chunk * CPU_CHUNK;
        cast_chunk((char *)to + first * dtype_size(dtype_to), dtype_to,
                   (const char *)from + first * dtype_size(dtype_from), dtype_from, cpu_chunk_size(n, chunk));
    }
}
