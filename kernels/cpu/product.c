/* product.c - see product.h.
 *
 * Which library multiplies depends on a part's shape alone, so that two runs never differ. Measured in turns
 * on one thread, by the processor's time, on an EPYC of the fourth generation (AVX-512), OpenBLAS 0.3.21 with
 * its kernels for SkylakeX and Cooperlake, oneDNN 2.6.3: oneDNN is 1.03 to 1.17 times as fast on products of
 * GPT-2 of 64 rows and more, and 2 to 5 times on 1 to 8 rows. It loses where OpenBLAS takes its kernels for
 * small matrices, up to 100^3 multiplications (0.85 at 64^3, 0.3 at 16^3), and with fewer than 16 columns
 * (0.75 to 0.8). Held to AVX2, both are within 2% of each other. BLIS 0.9 was ahead of both nowhere that
 * matters: 0.83 to 1.09 of OpenBLAS on large products, 0.3 to 0.9 on small ones. Products of bf16 are 1.5 to
 * 2 times as fast as OpenBLAS's of fp32 from 16 rows on, and slower than fp32's below 2^19 multiplications.
 *
 * Products of bf16: both factors are rounded to bf16 block by block, into memory of the thread that stays in
 * its second-level cache, and are multiplied there with sums in fp32. A block of the first factor is rounded
 * once for all columns. */
#include "kernels/cpu/product.h"

#include <cblas.h>
#include <stdint.h>

#include "kernels/cpu/onednn/onednn.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/team.h"
#include "kernels/narrow.h"

/* A rectangle of the result: its first row and column, and its size. */
struct rectangle {
    int row, rows, column, columns;
};

static const float *at(const float *matrix, bool transposed, int stride, int row, int column)
{
    return transposed ? matrix + (size_t)column * (size_t)stride + row
                      : matrix + (size_t)row * (size_t)stride + column;
}

/* The share of depth [k, k + depth) in a rectangle. */
static void by_openblas(const struct product *p, const struct rectangle *r, int k, int depth, float beta)
{
    cblas_sgemm(CblasRowMajor, p->a_transposed ? CblasTrans : CblasNoTrans,
                p->b_transposed ? CblasTrans : CblasNoTrans, r->rows, r->columns, depth, 1.0f,
                at(p->a, p->a_transposed, p->a_stride, r->row, k), p->a_stride,
                at(p->b, p->b_transposed, p->b_stride, k, r->column), p->b_stride, beta,
                (float *)p->out + (size_t)r->row * (size_t)p->out_stride + r->column, p->out_stride);
}

static bool by_onednn(const struct product *p, const struct rectangle *r)
{
    return onednn_f32(p->a_transposed, p->b_transposed, r->rows, r->columns, p->depth,
                      at(p->a, p->a_transposed, p->a_stride, r->row, 0), p->a_stride,
                      at(p->b, p->b_transposed, p->b_stride, 0, r->column), p->b_stride, p->beta,
                      (float *)p->out + (size_t)r->row * (size_t)p->out_stride + r->column, p->out_stride);
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
    round_block(to, at(matrix, transposed, stride, row, column), transposed ? columns : rows,
                transposed ? rows : columns, stride);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
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
            float *out = (float *)p->out + (size_t)block.row * (size_t)p->out_stride + block.column;
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

/* ---- parts ---- */

/* Below this many multiplications one thread does a product. */
#define PRODUCT_PARALLEL_MIN 262144.0
enum { PRODUCT_UNIT = 64 }; /* parts begin at multiples: whole tiles of the libraries */

enum { SMALL_OPENBLAS = 1000000, SMALL_BF16 = 1 << 19, NARROW = 16 };

static enum kernels_products chosen(const struct rectangle *r, int depth, enum kernels_products by)
{
    const double multiplications = (double)r->rows * r->columns * depth;
    if (by == KERNELS_BF16 && (r->rows < NARROW || r->columns < NARROW || multiplications < SMALL_BF16))
        by = KERNELS_AUTO;
    if (by != KERNELS_AUTO)
        return by;
    return multiplications > SMALL_OPENBLAS && r->columns >= NARROW ? KERNELS_ONEDNN : KERNELS_OPENBLAS;
}

static void part_of_product(const struct product *p, const struct rectangle *r, enum kernels_products by)
{
    by = chosen(r, p->depth, by);
    if (p->depth && ((by == KERNELS_BF16 && by_bf16(p, r)) || (by == KERNELS_ONEDNN && by_onednn(p, r))))
        return; /* without depth oneDNN leaves the result as it was */
    by_openblas(p, r, 0, p->depth, p->beta);
}

/* A part for each thread, cut along the longer side: each part packs the other factor anew. */
void CPU(product)(const struct product *p, enum kernels_products by)
{
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
        part_of_product(p, &r, by);
    }
}

void CPU(product_alone)(const struct product *p, enum kernels_products by)
{
    part_of_product(p, &(struct rectangle){0, p->rows, 0, p->columns}, by);
}
