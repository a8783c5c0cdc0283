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
    int32_t alignment;                  /* that A, B and D have, bytes: one of a few classes */
};

/* What the epilogue reads or writes beside D; NULL where it does not. */
struct product_beside {
    const void *bias; /* (m) */
    const void *aux;  /* (m,n): what gelu is made of */
};

/* What is known of a shape: cuBLASLt's objects, and the algorithm. */
struct product_plan {
    struct product_shape shape;
    cublasLtMatmulDesc_t descriptor;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace; /* bytes that the algorithm wants */
    bool unsupported; /* cuBLASLt has no algorithm for this epilogue: nothing of the above is there */
};

struct cuda_products {
    const struct cublaslt_calls *calls;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    cublasComputeType_t compute;
    void *workspace; /* CUDA_PRODUCTS_WORKSPACE bytes of device memory */
    struct product_plan plans[CUDA_PRODUCTS_ALGORITHMS];
    int count;      /* of them that are filled */
    int oldest;     /* the one that is forgotten next, once all are filled */
    int64_t chosen; /* calls of the heuristic */
};

/* The plan of a shape, made by the first call with it; beside has the pointers of that call, whose alignment
 * the heuristic looks at. NULL with err. Only a plan with an activation may be unsupported. */
const struct product_plan *product_plan_of(struct cuda_products *products, const struct product_shape *shape,
                                           const struct product_beside *beside, const char *operation,
                                           struct muster_error *err);
bool product_has_activation(const struct product_shape *shape);
/* Forgets all. Their errors are of objects that are of no more use. */
void product_plans_free(struct cuda_products *products);

#endif
