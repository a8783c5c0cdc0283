/* fake_cublaslt.h - a stand-in for libcublasLt.so.13 that computes with OpenBLAS: shared by its files.
 *
 * The functions are the part of cublasLt.h that runtime/cuda uses, with its binary interface. Stricter than
 * the real library: behaviour that the documents leave undefined, that costs a slow path or that only some
 * GPUs have is refused, with the reason on standard error. Supported: one product of column-major matrices in
 * f32 (compute 32F or FAST_TF32, whose factors are rounded to tf32), f64, f16 and bf16 (added in f32; D as
 * the factors or f32), the epilogues of bias, gelu and bias gradient. Not supported: batches, other orders,
 * scales, integers.
 *
 * Reports (fake_cudart.h) "product_multiprocessors_high_water", the most that a product was planned for, and
 * "odd_products".
 *
 * FAKE_CUBLASLT_COMPUTE=fp32|tf32: a product of f32 that asks for the other compute type is refused.
 *
 * Every function asks fake_refuse (fake_cudart.h) first. A product runs in stream order by
 * fake_cudart_enqueue and writes over all the workspace that its algorithm asked for. */
#ifndef MUSTER_TESTS_GPU_FAKE_CUBLASLT_H
#define MUSTER_TESTS_GPU_FAKE_CUBLASLT_H

#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/gpu/cudart/fake_cudart.h"

enum fake_lt_magic {
    LT_HANDLE = 0x4c48414e,
    LT_DESCRIPTOR = 0x4c444553,
    LT_LAYOUT,
    LT_PREFERENCE,
    LT_ALGORITHM
};

struct cublasLtContext {
    uint32_t magic;
};

/* Contents of the opaque types of cublasLt.h here. */
struct lt_layout {
    uint32_t magic;
    int32_t type; /* cudaDataType */
    uint64_t rows, columns;
    int64_t leading; /* elements between columns */
};
struct lt_descriptor {
    uint32_t magic;
    int32_t compute, scale;
    int32_t transposed_a, transposed_b; /* cublasOperation_t */
    uint32_t epilogue;
    int32_t multiprocessors;     /* 0: all */
    int32_t bias_type, aux_type; /* -1: as D */
    const void *bias;
    void *aux;
    int64_t aux_leading;
};
struct lt_preference {
    uint32_t magic;
    uint32_t alignment[4]; /* for A, B, C, D, bytes */
    uint64_t workspace;
};
/* Fits into cublasLtMatmulAlgo_t. With a byte changed, or for another product, it is refused. */
struct lt_algorithm {
    uint32_t magic;
    uint32_t alignment[4]; /* that the pointers were promised to have */
    uint32_t bias_alignment;
    uint64_t key; /* for shapes, types, transposition and epilogue */
    uint64_t workspace;
};

/* One product: op(A) is m x k, op(B) k x n, D m x n. */
struct lt_product {
    struct lt_descriptor descriptor;
    struct lt_layout a, b, c, d;
    uint64_t m, n, k;
};

/* Prints "fake cuBLASLt: ..." and returns status. */
cublasStatus_t lt_refuse(cublasStatus_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

size_t lt_size_of(int32_t type); /* bytes of an element; 0: a type that is not supported */

/* Fills product from live objects and looks at shapes, types and epilogue. */
cublasStatus_t lt_product_of(cublasLtMatmulDesc_t descriptor, cublasLtMatrixLayout_t a,
                             cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                             struct lt_product *product);
uint64_t lt_product_key(const struct lt_product *product);
uint32_t lt_alignment_of(const void *pointer); /* a power of two, at most 256 */

/* A product's effect on memory with these scalars and pointers (fake_cublaslt_run.c). */
struct lt_work {
    struct lt_product product;
    double alpha, beta;
    const void *a, *b, *c;
    void *d;
    void *workspace;
    size_t workspace_bytes;
};
void lt_work_run(void *work); /* on the stream's thread */

/* How many products since the last call have an m, n, k or leading dimension that is no multiple of 8, or a
 * matrix that does not begin at 16 bytes; the first one's m, n, k and leading dimensions of A, B and D. */
int fake_cublaslt_odd(int64_t sizes[6]);

#endif
