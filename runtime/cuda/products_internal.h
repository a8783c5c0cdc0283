/* products_internal.h - products.c's state, and what products_choose.c does for it. */
#ifndef MUSTER_RUNTIME_CUDA_PRODUCTS_INTERNAL_H
#define MUSTER_RUNTIME_CUDA_PRODUCTS_INTERNAL_H

#include "runtime/cuda/cublaslt_library.h"
#include "runtime/cuda/products.h"

/* A product in cuBLASLt's words: column-major matrices, D (m,n) = op(A) (m,k) op(B) (k,n) [+ D] [+ bias of
 * m]. Our row-major matrix (rows, columns) is its matrix (columns, rows). */
struct product_shape {
    int32_t m, n, k;
    int32_t row_b, row_d;               /* leading dimensions of B and D; A's rows touch each other */
    int32_t transposed_a, transposed_b; /* not 0: A is stored (k,m), B (n,k) */
    uint32_t epilogue;                  /* cublasLtEpilogue_t */
    int32_t multiprocessors;            /* that the product may count on; 0: all */
    int32_t alignment;                  /* common alignment of A, B and D, bytes; it has only a few classes */
    int32_t factors, result;            /* cudaDataType of A and B, and of D */
};

/* A bias of lower alignment is added by a kernel of ours. The heuristic is asked with a pointer of exactly
 * this alignment: its algorithm then serves the biases of all layers of the shape. */
enum { PRODUCT_BIAS_ALIGNMENT = 16 };
enum { PRODUCT_CHAINS = 2 * CUDA_PRODUCTS_ALGORITHMS }; /* a power of two */

/* The cached plan of a shape: cuBLASLt's objects, and the algorithm. */
struct product_plan {
    struct product_shape shape;
    cublasLtMatmulDesc_t descriptor;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace; /* bytes that the algorithm wants */
    int32_t next;     /* index of the next plan of its chain, plus 1; 0: the last */
};

struct cuda_products {
    const struct cublaslt_calls *calls;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    cublasComputeType_t compute;
    void *workspace; /* CUDA_PRODUCTS_WORKSPACE bytes of device memory */
    struct product_plan plans[CUDA_PRODUCTS_ALGORITHMS];
    int32_t chains[PRODUCT_CHAINS]; /* by hash of the shape: index of the first plan, plus 1; 0: none */
    int count;                      /* plans that are filled */
    int oldest;                     /* index of the plan that is replaced next, once all are filled */
    int64_t chosen;                 /* calls of the heuristic */
};

/* The plan of a shape, made by the first call with it. A shape with a bias has a descriptor whose bias
 * pointer is the caller's to set before each product. NULL with err. */
const struct product_plan *product_plan_of(struct cuda_products *products, const struct product_shape *shape,
                                           const char *operation, struct muster_error *err);
/* Forgets all. Their errors are of objects that are of no more use. */
void product_plans_free(struct cuda_products *products);

#endif
