/* dropout.c - dropout in groups of 64 elements, whose mask is 16 blocks of Philox side by side. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/philox_lanes.h"
#include "kernels/cpu/value.h"

/* `count` elements (at most a group) of a sample, the first of which is number `element`. */
static void dropout_group(VALUE *out, const VALUE *in, int64_t element, int count, int beta,
                          const struct dropout_place *place)
{
    uint32_t word[4][DROPOUT_LANES] __attribute__((aligned(64)));
    const uint32_t *words = word[0], threshold = place->threshold;
    const float factor = (float)place->factor;
    philox_lanes(word, place, (uint32_t)(element / DROPOUT_GROUP * DROPOUT_LANES));
    /* out may be in, at the same index only. A dropped infinity is 0. */
    if (beta) {
#pragma omp simd
        for (int i = 0; i < count; i++)
            STORE(out[i], LOAD(out[i]) + (words[i] >= threshold && factor > 0 ? LOAD(in[i]) * factor : 0.0f));
    } else {
#pragma omp simd
        for (int i = 0; i < count; i++)
            STORE(out[i], words[i] >= threshold && factor > 0 ? LOAD(in[i]) * factor : 0.0f);
    }
}

void CPU(dropout)(void *out_, const void *in_, int64_t rows, int width, int rows_per_sample, int64_t sample,
                  uint32_t layer, double p, int beta, const struct step_scalars *scalars, void *stream)
{
    VALUE *out = out_;
    const VALUE *in = in_;
    const int64_t size = (int64_t)rows_per_sample * width, n = rows * width;
    const int64_t chunks = cpu_chunks(size), samples = size > 0 ? (n + size - 1) / size : 0;
    const uint64_t first_sample = scalars->first_sample + (uint64_t)sample;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t piece = 0; piece < samples * chunks; piece++) {
        int64_t index = piece / chunks, from = piece % chunks * CPU_CHUNK, base = index * size;
        int64_t end = from + cpu_chunk_size(size, piece % chunks);
        struct dropout_place place = dropout_place(scalars->seed, first_sample + (uint64_t)index, layer, p);
        end = end < n - base ? end : n - base; /* the last sample may be cut short */
        for (int64_t at = from; at < end; at += DROPOUT_GROUP) {
            int count = end - at < DROPOUT_GROUP ? (int)(end - at) : (int)DROPOUT_GROUP;
            dropout_group(out + base + at, in + base + at, at, count, beta, &place);
        }
    }
}
