/* product.h - inside kernels/cpu: a matrix product, cut into a part for each thread, by OpenBLAS or oneDNN.
 */
#ifndef MUSTER_KERNELS_CPU_PRODUCT_H
#define MUSTER_KERNELS_CPU_PRODUCT_H

#include <stdbool.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/value.h"

/* out (rows, columns) = a b + bias + beta out; a and b are read transposed where they say so. */
struct product {
    bool a_transposed, b_transposed;
    int rows, columns, depth;
    const VALUE *a, *b;
    int a_stride, b_stride;
    const WEIGHT *bias; /* (columns), added to each row; NULL: none. Of bf16 alone, and with beta 0 */
    float beta;         /* 0 or 1 */
    void *out;          /* float where `gradient`, else VALUE */
    bool gradient;
    int out_stride;
};

#ifdef CPU_VARIANT
void CPU(product)(const struct product *p, enum kernels_products by);
/* The same on the calling thread alone. */
void CPU(product_alone)(const struct product *p, enum kernels_products by);
#endif

#endif
