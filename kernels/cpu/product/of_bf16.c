/* of_bf16.c - part.h of values of bf16: by oneDNN on the arrays as they are, with sums in fp32.
 *
 * Small products are added up by OpenBLAS in blocks of float, on the stack: a primitive of oneDNN takes a
 * millisecond to make and is kept for ever, and small shapes are many.
 *
 * Weights are not packed once a step. Measured with oneDNN 2.6.3 in turns, processor time, GPT-2 124M,
 * forward and gradients of inputs: with packed weights products take 0.89 of the time with 128 rows a thread
 * and 0.93 with 512, which saves 39 and 89 ms a thread. Packing takes 173 to 182 ms in all, and a second copy
 * of the weights. It would pay from the second micro-batch on. */
#include "kernels/cpu/product/part.h"

#include <string.h>

#include "kernels/cpu/onednn/onednn.h"
#include "kernels/cpu/openblas/openblas.h"

static bool by_onednn(const struct product *p, const struct rectangle *r)
{
    return onednn_bf16(
        &(struct onednn_product){.a_transposed = p->a_transposed,
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
                                 .out = p->gradient ? (void *)((float *)p->out + product_place(p, r))
                                                    : (VALUE *)p->out + product_place(p, r),
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
    openblas_f32(p->a_transposed, p->b_transposed, r->rows, r->columns, depth, a,
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
        const size_t first = product_place(p, r) + (size_t)row * (size_t)p->out_stride;
        float *gradient = (float *)p->out + first;
        VALUE *out = (VALUE *)p->out + first;
        for (int i = 0; p->gradient && i < r->columns; i++)
            gradient[i] = p->beta != 0 ? gradient[i] + sum[i] : sum[i];
        for (int i = 0; !p->gradient && i < r->columns; i++)
            STORE(out[i], sum[i] + (p->bias ? LOAD(p->bias[r->column + i]) : 0.0f) +
                              (p->beta != 0 ? LOAD(out[i]) : 0.0f));
    }
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

#define PRODUCT_SMALL 131072.0 /* multiplications, up to which it is blocks of float */

/* A part for which oneDNN wants more memory than there is (SCRATCH_LIBRARY) is cut along its longer side. */
void CPU(product_part)(const struct product *p, const struct rectangle *r, enum kernels_products by)
{
    if ((double)r->rows * r->columns * p->depth <= PRODUCT_SMALL) {
        by_float(p, r);
        return;
    }
    if (by_onednn(p, r))
        return;
    const bool by_columns = r->columns >= r->rows;
    const int units = ((by_columns ? r->columns : r->rows) + PRODUCT_UNIT - 1) / PRODUCT_UNIT;
    if (units < 2) {
        by_float(p, r);
        return;
    }
    struct rectangle first = *r, rest = *r;
    if (by_columns) {
        first.columns = units / 2 * PRODUCT_UNIT;
        rest.column += first.columns, rest.columns -= first.columns;
    } else {
        first.rows = units / 2 * PRODUCT_UNIT;
        rest.row += first.rows, rest.rows -= first.rows;
    }
    CPU(product_part)(p, &first, by);
    CPU(product_part)(p, &rest, by);
}
