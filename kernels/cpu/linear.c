/* linear.c - the dense layer by OpenBLAS: three products, bias and its gradient beside them.
 *
 * The bias costs nothing: OpenBLAS always adds its product to what is there (it clears the output in a pass
 * of its own where beta is 0), so the output is filled with the bias and beta is 1. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

#include <cblas.h>
#include <stdbool.h>
#include <string.h>

/* out (rows, columns) = a b + beta out; a and b are read transposed where they say so. */
struct product {
    CBLAS_TRANSPOSE a_transposed, b_transposed;
    int rows, columns, depth;
    const float *a, *b;
    int a_stride, b_stride;
    float beta;
    float *out;
    int out_stride;
};

static void part_of_product(const struct product *p, int row, int rows, int column, int columns)
{
    size_t r = (size_t)row, c = (size_t)column;
    const float *a = p->a + (p->a_transposed == CblasTrans ? r : r * (size_t)p->a_stride);
    const float *b = p->b + (p->b_transposed == CblasTrans ? c * (size_t)p->b_stride : c);
    cblas_sgemm(CblasRowMajor, p->a_transposed, p->b_transposed, rows, columns, p->depth, 1.0f, a,
                p->a_stride, b, p->b_stride, p->beta, p->out + r * (size_t)p->out_stride + c, p->out_stride);
}

/* Below this many multiplications one thread does a product. */
#define PRODUCT_PARALLEL_MIN 262144.0
enum { PRODUCT_UNIT = 64 }; /* parts begin at multiples: whole tiles of OpenBLAS */

/* A part for each thread, cut along the longer side: each part packs the other factor anew. */
static void product(const struct product *p)
{
    bool by_columns = p->columns >= p->rows;
    int side = by_columns ? p->columns : p->rows, units = (side + PRODUCT_UNIT - 1) / PRODUCT_UNIT;
    bool parallel = (double)p->rows * p->columns * p->depth >= PRODUCT_PARALLEL_MIN;
    int parts = !parallel ? 1 : team_size() < units ? team_size() : units;
    CPU_PARALLEL_FOR(parts > 1)
    for (int part = 0; part < parts; part++) {
        int first = units * part / parts * PRODUCT_UNIT, end = units * (part + 1) / parts * PRODUCT_UNIT;
        int length = (end < side ? end : side) - first;
        if (by_columns)
            part_of_product(p, 0, p->rows, first, length);
        else
            part_of_product(p, first, length, 0, p->columns);
    }
}

void CPU(linear_forward)(void *out_, const void *in, const void *weight, const void *bias, int N, int C,
                         int OC, int row, void *stream)
{
    float *out = out_;
    (void)stream;
    if (bias) {
        CPU_PARALLEL_FOR((int64_t)N * OC >= CPU_PARALLEL_MIN)
        for (int n = 0; n < N; n++)
            memcpy(out + (size_t)n * row, bias, (size_t)OC * sizeof(float));
    }
    product(&(struct product){.a_transposed = CblasNoTrans,
                              .b_transposed = CblasTrans,
                              .rows = N,
                              .columns = OC,
                              .depth = C,
                              .a = in,
                              .b = weight,
                              .a_stride = C,
                              .b_stride = C,
                              .beta = bias ? 1.0f : 0.0f,
                              .out = out,
                              .out_stride = row});
}

void CPU(linear_backward_input)(void *din, const void *dout, const void *weight, int N, int C, int OC,
                                int row, int beta_in, void *stream)
{
    (void)stream;
    if (!din)
        return;
    product(&(struct product){.a_transposed = CblasNoTrans,
                              .b_transposed = CblasNoTrans,
                              .rows = N,
                              .columns = C,
                              .depth = OC,
                              .a = dout,
                              .b = weight,
                              .a_stride = row,
                              .b_stride = C,
                              .beta = beta_in ? 1.0f : 0.0f,
                              .out = din,
                              .out_stride = C});
}

/* Columns are taken in strips of a few cache lines, each strip by one thread from the first row to the last;
 * rows are summed in groups so that the error grows with the root of N and not with N. */
enum { BIAS_STRIP = 64, BIAS_GROUP = 64, BIAS_AHEAD = 24, BIAS_LINE = 16 };

static void bias_gradient_strip(float *dbias, const float *dout, int N, int row, int width, int beta)
{
    float total[BIAS_STRIP];
    for (int i = 0; i < width; i++)
        total[i] = beta ? dbias[i] : 0.0f;
    for (int first = 0; first < N; first += BIAS_GROUP) {
        float group[BIAS_STRIP] = {0};
        int end = first + BIAS_GROUP < N ? first + BIAS_GROUP : N;
        for (int n = first; n < end; n++) {
            const float *values = dout + (size_t)n * row;
            for (int i = 0; i < width; i += BIAS_LINE) /* rows are pages apart: nothing else fetches them */
                __builtin_prefetch(values + (size_t)BIAS_AHEAD * row + i);
            for (int i = 0; i < width; i++)
                group[i] += values[i];
        }
        for (int i = 0; i < width; i++)
            total[i] += group[i];
    }
    memcpy(dbias, total, (size_t)width * sizeof(float));
}

void CPU(linear_backward_weight)(void *dweight, void *dbias_, const void *dout_, const void *in, int N, int C,
                                 int OC, int row, int beta, void *stream)
{
    float *dbias = dbias_;
    const float *dout = dout_;
    (void)stream;
    if (dweight)
        product(&(struct product){.a_transposed = CblasTrans,
                                  .b_transposed = CblasNoTrans,
                                  .rows = OC,
                                  .columns = C,
                                  .depth = N,
                                  .a = dout,
                                  .b = in,
                                  .a_stride = row,
                                  .b_stride = C,
                                  .beta = beta ? 1.0f : 0.0f,
                                  .out = dweight,
                                  .out_stride = C});
    if (!dbias)
        return;
    CPU_PARALLEL_FOR((int64_t)N * OC >= CPU_PARALLEL_MIN)
    for (int strip = 0; strip < OC; strip += BIAS_STRIP) {
        int width = OC - strip < BIAS_STRIP ? OC - strip : BIAS_STRIP;
        bias_gradient_strip(dbias + strip, dout + strip, N, row, width, beta);
    }
}
