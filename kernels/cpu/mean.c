/* mean.c - the mean over the positions of each sequence (formulas: kernels/ref/mean.c). A thread has whole
 * sequences. Positions after a sequence's length are not read. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/value.h"

#include <string.h>

enum { MEAN_SUM_ROWS = 32 /* positions that are summed apart: bounds the error of long texts */ };

static void add_row(float *restrict to, const VALUE *restrict from, int C)
{
    for (int i = 0; i < C; i++)
        to[i] += LOAD(from[i]);
}

/* Blocks of a column of at most MEAN_PART elements, so that the sum of a block is on the stack. */
enum { MEAN_PART = 256 };

static void mean_part(VALUE *restrict out, const VALUE *in, int length, int C, int width)
{
    float total[MEAN_PART] = {0};
    for (int block = 0; block < length; block += MEAN_SUM_ROWS) {
        const int end = block + MEAN_SUM_ROWS < length ? block + MEAN_SUM_ROWS : length;
        float part[MEAN_PART] = {0};
        for (int t = block; t < end; t++)
            add_row(part, in + (size_t)t * (size_t)C, width);
        for (int i = 0; i < width; i++)
            total[i] += part[i];
    }
    const float inverse = length ? 1.0f / (float)length : 0.0f;
    for (int i = 0; i < width; i++)
        STORE(out[i], total[i] * inverse);
}

void CPU(mean_forward)(void *out, const void *in, const int32_t *lengths, int B, int T, int C, void *stream)
{
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)B * T * C >= CPU_PARALLEL_MIN)
    for (int64_t b = 0; b < B; b++)
        for (int from = 0; from < C; from += MEAN_PART)
            mean_part((VALUE *)out + b * C + from, (const VALUE *)in + b * T * C + from, lengths[b], C,
                      C - from < MEAN_PART ? C - from : MEAN_PART);
}

/* One sequence: each of its positions gets the same share. */
static void share_out(VALUE *din, const VALUE *restrict dout, int length, int T, int C, int beta)
{
    const float inverse = length ? 1.0f / (float)length : 0.0f;
    for (int t = 0; t < length; t++) {
        VALUE *restrict row = din + (size_t)t * (size_t)C;
        if (beta)
            for (int i = 0; i < C; i++)
                STORE(row[i], LOAD(row[i]) + LOAD(dout[i]) * inverse);
        else
            for (int i = 0; i < C; i++)
                STORE(row[i], LOAD(dout[i]) * inverse);
    }
    if (!beta)
        memset(din + (size_t)length * (size_t)C, 0, (size_t)(T - length) * (size_t)C * sizeof *din);
}

void CPU(mean_backward)(void *din, const void *dout, const int32_t *lengths, int B, int T, int C, int beta,
                        void *stream)
{
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)B * T * C >= CPU_PARALLEL_MIN)
    for (int64_t b = 0; b < B; b++)
        share_out((VALUE *)din + b * T * C, (const VALUE *)dout + b * C, lengths[b], T, C, beta);
}
