/* onednn.h - matrix products by oneDNN (libdnnl), which is loaded where it is wanted. */
#ifndef MUSTER_KERNELS_CPU_ONEDNN_ONEDNN_H
#define MUSTER_KERNELS_CPU_ONEDNN_ONEDNN_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

/* Loads the library, once a process. MUSTER_E_NOT_FOUND where it is absent, MUSTER_E_UNSUPPORTED where the
 * build had no header of it. */
int onednn_open(struct muster_error *err);
/* Whether fp32 products run on AVX-512. After onednn_open. */
bool onednn_has_avx512(void);
/* Whether products of bf16 run on instructions of the processor (AVX512-BF16, AMX). After onednn_open. */
bool onednn_has_bf16(void);
/* "oneDNN 2.6.3, avx512_core_amx"; static; "" before onednn_open. */
const char *onednn_text(void);
/* "ONEDNN_MAX_CPU_ISA=AVX2", a variable that bounds its instruction set; static; "": none does. After
 * onednn_open. */
const char *onednn_held(void);
/* The error of onednn_open where a file of that name is there, but cannot be used; static; "": none. After
 * onednn_open. */
const char *onednn_broken(void);

/* out (rows, columns) = a b + beta out, in row-major order; a_transposed: a is (depth, rows). beta is 0 or 1.
 * On the calling thread alone. false: the library refused, and out is as it was. */
bool onednn_f32(bool a_transposed, bool b_transposed, int rows, int columns, int depth, const float *a,
                int a_stride, const float *b, int b_stride, float beta, float *out, int out_stride);

/* Multiplications above which it is faster than OpenBLAS with AVX-512 (product/of_float.c). */
enum { ONEDNN_WORTH = 1000000 };
/* Returns when onednn_f32 has its machine code, which the first product makes for all. After onednn_open. */
void onednn_ready(void);

/* The same of bf16 factors, added up in fp32: a (rows, depth), or (depth, rows) where it is transposed, and b
 * (depth, columns) or (columns, depth). */
struct onednn_product {
    bool a_transposed, b_transposed;
    int rows, columns, depth;
    const void *a, *b; /* bf16 */
    int a_stride, b_stride;
    const void *bias; /* bf16 (columns), added to each row; NULL: none */
    bool adds;        /* to the old values of out; without a bias */
    void *out;        /* bf16 where `narrow`, rounded once; else fp32 */
    bool narrow;
    int out_stride;
};
bool onednn_bf16(const struct onednn_product *product);

#endif
