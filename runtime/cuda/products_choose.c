/* products_choose.c - one algorithm a shape: the first that cuBLASLt's heuristic names, remembered. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "runtime/cuda/products_internal.h"

/* In a function with products, operation and err that returns -1: a call of cuBLASLt's function. */
#define CUBLASLT_CHECK(function, call)                                                                       \
    do {                                                                                                     \
        cublasStatus_t cublaslt_status = (call);                                                             \
        if (cublaslt_status != CUBLAS_STATUS_SUCCESS)                                                        \
            return cublaslt_error(err, products->calls, cublaslt_status, operation, function);               \
    } while (0)

/* Clears the plan, whatever of it is there. */
static void plan_free(const struct cublaslt_calls *calls, struct product_plan *plan)
{
    if (plan->descriptor)
        (void)calls->desc_destroy(plan->descriptor);
    if (plan->a)
        (void)calls->layout_destroy(plan->a);
    if (plan->b)
        (void)calls->layout_destroy(plan->b);
    if (plan->d)
        (void)calls->layout_destroy(plan->d);
    memset(plan, 0, sizeof *plan);
}

static int plan_describe(struct cuda_products *products, struct product_plan *plan, const char *operation,
                         struct muster_error *err)
{
    const struct cublaslt_calls *calls = products->calls;
    const struct product_shape *s = &plan->shape;
    int32_t transposed_a = s->transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t transposed_b = s->transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = s->epilogue;
    /* No layer's own pointer: a later layer's bias may be aligned to less. */
    const void *bias = (const char *)products->workspace + PRODUCT_BIAS_ALIGNMENT;
    uint64_t m = (uint64_t)s->m, n = (uint64_t)s->n, k = (uint64_t)s->k;
    uint64_t rows_a = s->transposed_a ? k : m, rows_b = s->transposed_b ? n : k;
    const cudaDataType factors = (cudaDataType)s->factors, result = (cudaDataType)s->result;
    const cublasComputeType_t compute = factors == CUDA_R_32F ? products->compute : CUBLAS_COMPUTE_32F;
    CUBLASLT_CHECK("cublasLtMatmulDescCreate", calls->desc_create(&plan->descriptor, compute, CUDA_R_32F));
    CUBLASLT_CHECK(
        "cublasLtMatmulDescSetAttribute",
        calls->desc_set(plan->descriptor, CUBLASLT_MATMUL_DESC_TRANSA, &transposed_a, sizeof transposed_a));
    CUBLASLT_CHECK(
        "cublasLtMatmulDescSetAttribute",
        calls->desc_set(plan->descriptor, CUBLASLT_MATMUL_DESC_TRANSB, &transposed_b, sizeof transposed_b));
    CUBLASLT_CHECK(
        "cublasLtMatmulDescSetAttribute",
        calls->desc_set(plan->descriptor, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (s->multiprocessors)
        CUBLASLT_CHECK("cublasLtMatmulDescSetAttribute",
                       calls->desc_set(plan->descriptor, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
                                       &s->multiprocessors, sizeof s->multiprocessors));
    if (s->epilogue == CUBLASLT_EPILOGUE_BIAS)
        CUBLASLT_CHECK(
            "cublasLtMatmulDescSetAttribute",
            calls->desc_set(plan->descriptor, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    CUBLASLT_CHECK("cublasLtMatrixLayoutCreate",
                   calls->layout_create(&plan->a, factors, rows_a, s->transposed_a ? m : k, (int64_t)rows_a));
    CUBLASLT_CHECK("cublasLtMatrixLayoutCreate",
                   calls->layout_create(&plan->b, factors, rows_b, s->transposed_b ? k : n, s->row_b));
    CUBLASLT_CHECK("cublasLtMatrixLayoutCreate", calls->layout_create(&plan->d, result, m, n, s->row_d));
    return 0;
}

static int plan_choose(struct cuda_products *products, struct product_plan *plan, const char *operation,
                       struct muster_error *err)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const struct cublaslt_calls *calls = products->calls;
    uint32_t alignment = (uint32_t)plan->shape.alignment;
    cublasLtMatmulHeuristicResult_t result = {0};
    int got = 0;
    for (int i = 0; i < 4; i++)
        CUBLASLT_CHECK(
            "cublasLtMatmulPreferenceSetAttribute",
            calls->preference_set(products->preference, alignments[i], &alignment, sizeof alignment));
    CUBLASLT_CHECK("cublasLtMatmulAlgoGetHeuristic",
                   calls->heuristic(products->handle, plan->descriptor, plan->a, plan->b, plan->d, plan->d,
                                    products->preference, 1, &result, &got));
    if (got < 1 || result.state != CUBLAS_STATUS_SUCCESS)
        return error_set(err, MUSTER_E_UNSUPPORTED, "%s: cuBLASLt has no algorithm for %d x %d x %d",
                         operation, plan->shape.m, plan->shape.n, plan->shape.k);
    if (result.workspaceSize > (size_t)CUDA_PRODUCTS_WORKSPACE)
        return error_set(err, MUSTER_E_LIMIT,
                         "%s: cuBLASLt's algorithm wants a workspace of %zu bytes, and %lld were offered",
                         operation, result.workspaceSize, (long long)CUDA_PRODUCTS_WORKSPACE);
    plan->algorithm = result.algo;
    plan->workspace = result.workspaceSize;
    products->chosen++;
    return 0;
}

static int32_t *chain_of(struct cuda_products *products, const struct product_shape *shape)
{
    const uint64_t hash = text_hash(TEXT_HASH_START, shape, sizeof *shape);
    return &products->chains[(hash ^ hash >> 32) % PRODUCT_CHAINS];
}

/* Takes the plan at this index out of its chain, and frees it. */
static void plan_forget(struct cuda_products *products, int32_t index)
{
    struct product_plan *plan = &products->plans[index];
    int32_t *at = chain_of(products, &plan->shape);
    while (*at != index + 1)
        at = &products->plans[*at - 1].next;
    *at = plan->next;
    plan_free(products->calls, plan);
}

/* The index of an empty place for a new plan: the first free place, else the place of the oldest plan. */
static int32_t plan_place(struct cuda_products *products)
{
    if (products->count < CUDA_PRODUCTS_ALGORITHMS)
        return products->count++;
    const int32_t oldest = products->oldest;
    products->oldest = (oldest + 1) % CUDA_PRODUCTS_ALGORITHMS;
    plan_forget(products, oldest);
    return oldest;
}

const struct product_plan *product_plan_of(struct cuda_products *products, const struct product_shape *shape,
                                           const char *operation, struct muster_error *err)
{
    struct product_plan made = {.shape = *shape};
    int32_t *chain = chain_of(products, shape);
    for (int32_t at = *chain; at; at = products->plans[at - 1].next)
        if (memcmp(&products->plans[at - 1].shape, shape, sizeof *shape) == 0)
            return &products->plans[at - 1];
    if (plan_describe(products, &made, operation, err) != 0 ||
        plan_choose(products, &made, operation, err) != 0) {
        plan_free(products->calls, &made);
        return NULL;
    }
    const int32_t place = plan_place(products); /* may change the chain */
    made.next = *chain;
    products->plans[place] = made;
    *chain = place + 1;
    return &products->plans[place];
}

void product_plans_free(struct cuda_products *products)
{
    for (int i = 0; i < products->count; i++)
        plan_free(products->calls, &products->plans[i]);
    memset(products->chains, 0, sizeof products->chains);
    products->count = 0;
    products->oldest = 0;
}
