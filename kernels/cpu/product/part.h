/* part.h - inside kernels/cpu/product: what both types of values share, and the part of a product that one
 * thread computes. */
#ifndef MUSTER_KERNELS_CPU_PRODUCT_PART_H
#define MUSTER_KERNELS_CPU_PRODUCT_PART_H

#include <stddef.h>

#include "kernels/cpu/product/product.h"

/* A rectangle of the result: its first row and column, and its size. */
struct rectangle {
    int row, rows, column, columns;
};

enum { PRODUCT_UNIT = 64 }; /* parts begin at multiples: whole tiles of the libraries */

static inline int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Row and column as the product reads the matrix. */
static inline const VALUE *product_at(const VALUE *matrix, bool transposed, int stride, int row, int column)
{
    return transposed ? matrix + (size_t)column * (size_t)stride + row
                      : matrix + (size_t)row * (size_t)stride + column;
}

/* Elements from the result's begin to a rectangle's. */
static inline size_t product_place(const struct product *p, const struct rectangle *r)
{
    return (size_t)r->row * (size_t)p->out_stride + (size_t)r->column;
}

#ifdef CPU_VARIANT
/* On the calling thread. Values of bf16 have one library: `by` is not read. */
void CPU(product_part)(const struct product *p, const struct rectangle *r, enum kernels_products by);
#endif

#endif
