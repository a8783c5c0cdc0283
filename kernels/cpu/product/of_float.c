/* of_float.c - part.h of values of float.
 *
 * Which library multiplies depends on a part's shape alone, so that two runs never differ. Measured in turns
 * on one thread, by the processor's time, on an EPYC of the fourth generation (AVX-512), OpenBLAS 0.3.21 with
 * its kernels for SkylakeX and Cooperlake, oneDNN 2.6.3: oneDNN is 1.03 to 1.17 times as fast on products of
 * GPT-2 of 64 rows and more, and 2 to 5 times on 1 to 8 rows. It loses where OpenBLAS takes its kernels for
 * small matrices, up to 100^3 multiplications (0.85 at 64^3, 0.3 at 16^3), and with fewer than 16 columns
 * (0.75 to 0.8). Held to AVX2, both are within 2% of each other. BLIS 0.9 was ahead of both nowhere that
 * matters: 0.83 to 1.09 of OpenBLAS on large products, 0.3 to 0.9 on small ones. libxsmm 1.17 takes 0.8 to 1
 * of OpenBLAS's time up to 64^3 multiplications, 0.55 to 0.9 with ranks 8 and 16 of LoRA (oneDNN there: 0.5
 * to 1.3), and 1.1 to 1.6 with few columns and rows. Debian has it as a static library alone, so it is not
 * taken. Its gain with a transposed second factor is the transposition, which is here. Products of bf16
 * are 1.5 to 2 times as fast as OpenBLAS's of fp32 from 16 rows on, and slower than fp32's below 2^19
 * multiplications.
 *
 * Products of bf16: both factors are rounded to bf16 block by block, into memory of the thread that stays in
 * its second-level cache, and are multiplied there with sums in fp32. A block of the first factor is rounded
 * once for all columns. */
#include "kernels/cpu/product/part.h"

#include <stdint.h>

#include "kernels/cpu/onednn/onednn.h"
#include "kernels/cpu/openblas/openblas.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/transpose.h"
#include "kernels/narrow.h"

enum { SMALL_BF16 = 1 << 19, NARROW = 16 };

/* The second factor of a small product, where it is transposed, is turned first: OpenBLAS's kernels for small
 * matrices on AVX-512 then take 0.75 to 0.95 of the time. Few rows do not pay for the turning (1.1 with 8),
 * and a factor that outgrows the first cache does not gain (1.0 to 1.2 with 128 by 128). */
enum { TURNED_ROWS = 16, TURNED_COLUMNS = 16, TURNED_DEPTH = 100, TURNED_ELEMENTS = 10000, TURN = 4 };

static bool is_worth_turning(const struct product *p, const struct rectangle *r, int depth)
{
    return CPU_LANES == 16 && p->b_transposed && r->rows >= TURNED_ROWS && r->columns >= TURNED_COLUMNS &&
           depth > 0 && depth <= TURNED_DEPTH && (int64_t)r->columns * depth <= TURNED_ELEMENTS &&
           (double)r->rows * r->columns * depth <= ONEDNN_WORTH;
}

/* to (columns, rows) = the transpose of from (rows, columns). */
static void turn(float *restrict to, const float *restrict from, int rows, int columns, int stride)
{
    const int whole_rows = rows / TURN * TURN, whole_columns = columns / TURN * TURN;
    for (int row = 0; row < whole_rows; row += TURN)
        for (int i = 0; i < whole_columns; i += TURN)
            transpose_quad(to + (size_t)i * (size_t)rows + (size_t)row, (size_t)rows,
                           from + (size_t)row * (size_t)stride + (size_t)i, (size_t)stride);
    for (int row = 0; row < rows; row++)
        for (int i = row < whole_rows ? whole_columns : 0; i < columns; i++)
            to[(size_t)i * (size_t)rows + (size_t)row] = from[(size_t)row * (size_t)stride + (size_t)i];
}

/* The share of depth [k, k + depth) in a rectangle. */
static void by_openblas(const struct product *p, const struct rectangle *r, int k, int depth, float beta)
{
    const bool turns = is_worth_turning(p, r, depth);
    const float *b = product_at(p->b, p->b_transposed, p->b_stride, k, r->column);
    float turned[TURNED_ELEMENTS];
    if (turns)
        turn(turned, b, r->columns, depth, p->b_stride);
    openblas_f32(p->a_transposed, p->b_transposed && !turns, r->rows, r->columns, depth,
                 product_at(p->a, p->a_transposed, p->a_stride, r->row, k), p->a_stride, turns ? turned : b,
                 turns ? r->columns : p->b_stride, beta, (float *)p->out + product_place(p, r),
                 p->out_stride);
}

static bool by_onednn(const struct product *p, const struct rectangle *r)
{
    return onednn_f32(p->a_transposed, p->b_transposed, r->rows, r->columns, p->depth,
                      product_at(p->a, p->a_transposed, p->a_stride, r->row, 0), p->a_stride,
                      product_at(p->b, p->b_transposed, p->b_stride, 0, r->column), p->b_stride, p->beta,
                      (float *)p->out + product_place(p, r), p->out_stride);
}

/* ---- bf16 ---- */

enum { ROWS_BLOCK = 1024, COLUMNS_BLOCK = 256, DEPTH_BLOCK = 1024, LINE = 16, AHEAD = 2 };
_Static_assert((ROWS_BLOCK + COLUMNS_BLOCK) * DEPTH_BLOCK <= SCRATCH_ELEMENTS, "both blocks fit");

/* (rows, columns) of a matrix as it is stored. */
static void round_block(uint16_t *to, const float *from, int rows, int columns, int stride)
{
    for (int row = 0; row < rows; row++) {
        const float *values = from + (size_t)row * (size_t)stride;
        uint16_t *rounded = to + (size_t)row * (size_t)columns;
        for (int i = 0; i < columns; i += LINE) /* rows are pages apart: nothing else fetches them */
            __builtin_prefetch(values + (size_t)AHEAD * (size_t)stride + i);
        for (int i = 0; i < columns; i++)
            rounded[i] = narrow_to_bf16(values[i]);
    }
}

/* Rows and columns as the product reads them; the block stays transposed where the matrix is. */
static void take_block(uint16_t *to, const float *matrix, bool transposed, int stride, int row, int rows,
                       int column, int columns)
{
    round_block(to, product_at(matrix, transposed, stride, row, column), transposed ? columns : rows,
                transposed ? rows : columns, stride);
}

/* The rows of one block, over the whole depth and all columns of the part. */
static void rows_by_bf16(const struct product *p, const struct rectangle *r, uint16_t *scratch)
{
    uint16_t *a = scratch, *b = scratch + (size_t)ROWS_BLOCK * DEPTH_BLOCK;
    for (int k = 0; k < p->depth; k += DEPTH_BLOCK) {
        const int depth = smaller(DEPTH_BLOCK, p->depth - k);
        const float beta = k ? 1.0f : p->beta;
        take_block(a, p->a, p->a_transposed, p->a_stride, r->row, r->rows, k, depth);
        for (int c = 0; c < r->columns; c += COLUMNS_BLOCK) {
            const struct rectangle block = {r->row, r->rows, r->column + c,
                                            smaller(COLUMNS_BLOCK, r->columns - c)};
            float *out = (float *)p->out + product_place(p, &block);
            take_block(b, p->b, p->b_transposed, p->b_stride, k, depth, block.column, block.columns);
            const struct onednn_product product = {.a_transposed = p->a_transposed,
                                                   .b_transposed = p->b_transposed,
                                                   .rows = block.rows,
                                                   .columns = block.columns,
                                                   .depth = depth,
                                                   .a = a,
                                                   .b = b,
                                                   .a_stride = p->a_transposed ? block.rows : depth,
                                                   .b_stride = p->b_transposed ? depth : block.columns,
                                                   .adds = beta != 0,
                                                   .out = out,
                                                   .out_stride = p->out_stride};
            if (!onednn_bf16(&product))
                by_openblas(p, &block, k, depth, beta); /* no memory for a primitive */
        }
    }
}

static bool by_bf16(const struct product *p, const struct rectangle *r)
{
    uint16_t *scratch = cpu_scratch();
    for (int row = 0; scratch && row < r->rows; row += ROWS_BLOCK) {
        const struct rectangle rows = {r->row + row, smaller(ROWS_BLOCK, r->rows - row), r->column,
                                       r->columns};
        rows_by_bf16(p, &rows, scratch);
    }
    return scratch != NULL;
}

/* ---- which library ---- */

static enum kernels_products chosen(const struct rectangle *r, int depth, enum kernels_products by)
{
    const double multiplications = (double)r->rows * r->columns * depth;
    if (by == KERNELS_BF16 && (r->rows < NARROW || r->columns < NARROW || multiplications < SMALL_BF16))
        by = KERNELS_AUTO;
    if (by != KERNELS_AUTO)
        return by;
    return multiplications > ONEDNN_WORTH && r->columns >= NARROW ? KERNELS_ONEDNN : KERNELS_OPENBLAS;
}

void CPU(product_part)(const struct product *p, const struct rectangle *r, enum kernels_products by)
{
    by = chosen(r, p->depth, by);
    if (p->depth && ((by == KERNELS_BF16 && by_bf16(p, r)) || (by == KERNELS_ONEDNN && by_onednn(p, r))))
        return; /* without depth oneDNN leaves the result as it was */
    by_openblas(p, r, 0, p->depth, p->beta);
}
