/* product.c - ../product.h of bf16 values: by oneDNN on the arrays as they are, with sums in fp32.
 *
 * Small products are added up by OpenBLAS in blocks of float, on the stack: a primitive of oneDNN takes a
 * millisecond to make and is kept for ever, and small shapes are many. */
#include "kernels/cpu/product.h"

#include <cblas.h>
#include <string.h>

#include "kernels/cpu/onednn/onednn.h"
#include "kernels/cpu/team.h"

/* A rectangle of the result: its first row and column, and its size. */
struct rectangle {
    int row, rows, column, columns;
};

static const VALUE *product_at(const VALUE *matrix, bool transposed, int stride, int row, int column)
{
    return transposed ? matrix + (size_t)column * (size_t)stride + row
                      : matrix + (size_t)row * (size_t)stride + column;
}

static size_t place(const struct product *p, const struct rectangle *r)
{
    return (size_t)r->row * (size_t)p->out_stride + (size_t)r->column;
}

static bool by_onednn(const struct product *p, const struct rectangle *r)
{
    return onednn_bf16(&(struct onednn_product){
        .a_transposed = p->a_transposed,
        .b_transposed = p->b_transposed,
        .rows = r->rows,
        .columns = r->columns,
        .depth = p->depth,
        .a = product_at(p->a, p->a_transposed, p->a_stride, r->row, 0),
        .b = product_at(p->b, p->b_transposed, p->b_stride, 0, r->column),
        .a_stride = p->a_stride,
        .b_stride = p->b_stride,
        .bias = p->bias ? p->bias + r->column : NULL,
        .adds = p->beta != 0,
        .out = p->gradient ? (void *)((float *)p->out + place(p, r)) : (VALUE *)p->out + place(p, r),
        .narrow = !p->gradient,
        .out_stride = p->out_stride});
}

/* ---- blocks of float ---- */

enum { BLOCK_ROWS = 32, BLOCK_COLUMNS = 64, BLOCK_DEPTH = 64 };

/* (rows, columns) of a matrix as it is stored. */
static void widen_block(float *restrict to, const VALUE *restrict from, int rows, int columns, int stride)
{
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < columns; i++)
            to[(size_t)row * (size_t)columns + (size_t)i] =
                LOAD(from[(size_t)row * (size_t)stride + (size_t)i]);
}

/* sums (rows, columns) of the block += or = the share of depth [k, k + depth). */
static void add_depth(float *sums, const struct product *p, const struct rectangle *r, int k, int depth)
{
    float a[BLOCK_ROWS * BLOCK_DEPTH], b[BLOCK_DEPTH * BLOCK_COLUMNS];
    widen_block(a, product_at(p->a, p->a_transposed, p->a_stride, r->row, k),
                p->a_transposed ? depth : r->rows, p->a_transposed ? r->rows : depth, p->a_stride);
    widen_block(b, product_at(p->b, p->b_transposed, p->b_stride, k, r->column),
                p->b_transposed ? r->columns : depth, p->b_transposed ? depth : r->columns, p->b_stride);
    cblas_sgemm(CblasRowMajor, p->a_transposed ? CblasTrans : CblasNoTrans,
                p->b_transposed ? CblasTrans : CblasNoTrans, r->rows, r->columns, depth, 1.0f, a,
                p->a_transposed ? r->rows : depth, b, p->b_transposed ? depth : r->columns, k ? 1.0f : 0.0f,
                sums, r->columns);
}

static void block_by_float(const struct product *p, const struct rectangle *r)
{
    float sums[BLOCK_ROWS * BLOCK_COLUMNS] = {0};
    for (int k = 0; k < p->depth; k += BLOCK_DEPTH)
        add_depth(sums, p, r, k, p->depth - k < BLOCK_DEPTH ? p->depth - k : (int)BLOCK_DEPTH);
    for (int row = 0; row < r->rows; row++) {
        const float *sum = sums + row * r->columns;
        const size_t first = place(p, r) + (size_t)row * (size_t)p->out_stride;
        float *gradient = (float *)p->out + first;
        VALUE *out = (VALUE *)p->out + first;
        for (int i = 0; p->gradient && i < r->columns; i++)
            gradient[i] = p->beta != 0 ? gradient[i] + sum[i] : sum[i];
        for (int i = 0; !p->gradient && i < r->columns; i++)
            STORE(out[i], sum[i] + (p->bias ? LOAD(p->bias[r->column + i]) : 0.0f) +
                              (p->beta != 0 ? LOAD(out[i]) : 0.0f));
    }
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static void by_float(const struct product *p, const struct rectangle *r)
{
    for (int row = 0; row < r->rows; row += BLOCK_ROWS)
        for (int column = 0; column < r->columns; column += BLOCK_COLUMNS)
            block_by_float(p, &(struct rectangle){r->row + row, smaller(BLOCK_ROWS, r->rows - row),
                                                  r->column + column,
                                                  smaller(BLOCK_COLUMNS, r->columns - column)});
}

/* ---- parts ---- */

#define PRODUCT_SMALL        131072.0 /* multiplications, up to which it is blocks of float */
#define PRODUCT_PARALLEL_MIN 262144.0 /* below this many one thread does a product */
enum { PRODUCT_UNIT = 64 };           /* parts begin at multiples: whole tiles of the library */

static void part_of_product(const struct product *p, const struct rectangle *r)
{
    if ((double)r->rows * r->columns * p->depth <= PRODUCT_SMALL || !by_onednn(p, r))
        by_float(p, r);
}

/* A part for each thread, cut along the longer side. */
void CPU(product)(const struct product *p, enum kernels_products by)
{
    (void)by;
    bool by_columns = p->columns >= p->rows;
    int side = by_columns ? p->columns : p->rows, units = (side + PRODUCT_UNIT - 1) / PRODUCT_UNIT;
    bool parallel = (double)p->rows * p->columns * p->depth >= PRODUCT_PARALLEL_MIN;
    int parts = !parallel ? 1 : team_size() < units ? team_size() : units;
    CPU_PARALLEL_FOR(parts > 1)
    for (int part = 0; part < parts; part++) {
        int first = units * part / parts * PRODUCT_UNIT, end = units * (part + 1) / parts * PRODUCT_UNIT;
        int length = (end < side ? end : side) - first;
        const struct rectangle r = by_columns ? (struct rectangle){0, p->rows, first, length}
                                              : (struct rectangle){first, length, 0, p->columns};
        part_of_product(p, &r);
    }
}
