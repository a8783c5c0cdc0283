/* rates.c - how fast this GPU copies and multiplies: the limits of a step's time.
 *
 *     gpu_rates BYTES SIZE
 *
 * Copies of BYTES (on the device, from and to pinned memory, a fill) and products of two matrices of
 * SIZE x SIZE in every type that products come in. One line of JSON a figure. A product that the library
 * refuses has a line with its reason, which is no failure. Values of factors are random: zeros would run
 * faster. Times are taken by events around ROUNDS of a kind, after two to warm up; the best of TRIES. */
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "runtime/cuda/cublaslt_library.h"

enum { ROUNDS = 10, TRIES = 3, WORKSPACE = 32 << 20, FACTOR_BYTES = 1 << 16 };

static const char operation[] = "rates";

/* In a function with err that returns -1. */
#define CUDA_CHECK(name, call, err)                                                                          \
    do {                                                                                                     \
        const cudaError_t cuda_status = (call);                                                              \
        if (cuda_status != cudaSuccess)                                                                      \
            return error_set(err, MUSTER_E_IO, "%s: %s", name, cudaGetErrorName(cuda_status));               \
    } while (0)

struct rates {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    const struct cublaslt_calls *lt;
    cublasLtHandle_t handle;
    void *workspace;
};

typedef int work_call(const struct rates *rates, void *argument, struct muster_error *err);

/* Seconds of one call of `work`, whose effect is on rates->stream. */
static int timed(const struct rates *rates, work_call *work, void *argument, double *seconds,
                 struct muster_error *err)
{
    float least = 0;
    for (int i = 0; i < 2; i++)
        if (work(rates, argument, err))
            return -1;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        float taken;
        CUDA_CHECK("cudaEventRecord", cudaEventRecord(rates->begin, rates->stream), err);
        for (int i = 0; i < ROUNDS; i++)
            if (work(rates, argument, err))
                return -1;
        CUDA_CHECK("cudaEventRecord", cudaEventRecord(rates->end, rates->stream), err);
        CUDA_CHECK("cudaEventSynchronize", cudaEventSynchronize(rates->end), err);
        CUDA_CHECK("cudaEventElapsedTime", cudaEventElapsedTime(&taken, rates->begin, rates->end), err);
        least = attempt && least < taken ? least : taken;
    }
    *seconds = least * 1e-3 / ROUNDS;
    return 0;
}

static int figure(const char *name, const char *unit, double value, struct muster_error *err)
{
    return printf("{\"kind\": \"figure\", \"figure\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}\n", name,
                  value, unit) < 0 ||
                   fflush(stdout)
               ? error_errno(err, "standard output")
               : 0;
}

/* ---- copies ---- */

struct copy {
    void *to, *from; /* from NULL: a fill */
    size_t bytes;
};

static int copy_once(const struct rates *rates, void *argument, struct muster_error *err)
{
    const struct copy *c = argument;
    if (c->from)
        CUDA_CHECK("cudaMemcpyAsync",
                   cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDefault, rates->stream), err);
    else
        CUDA_CHECK("cudaMemsetAsync", cudaMemsetAsync(c->to, 0, c->bytes, rates->stream), err);
    return 0;
}

static int copies(const struct rates *rates, size_t bytes, struct muster_error *err)
{
    void *one, *other, *host;
    CUDA_CHECK("cudaMalloc", cudaMalloc(&one, bytes), err);
    CUDA_CHECK("cudaMalloc", cudaMalloc(&other, bytes), err);
    CUDA_CHECK("cudaHostAlloc", cudaHostAlloc(&host, bytes, cudaHostAllocDefault), err);
    const struct {
        const char *name;
        struct copy copy;
        int moved; /* times that each byte crosses the memory's wires */
    } rows[] = {{"copy on the device, read and written", {one, other, bytes}, 2},
                {"fill on the device", {one, NULL, bytes}, 1},
                {"copy from pinned memory to the device", {one, host, bytes}, 1},
                {"copy from the device to pinned memory", {host, one, bytes}, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct copy copy = rows[i].copy;
        double seconds;
        if (timed(rates, copy_once, &copy, &seconds, err) ||
            figure(rows[i].name, "GB/s", (double)rows[i].moved * (double)bytes / seconds * 1e-9, err))
            return -1;
    }
    CUDA_CHECK("cudaFree", cudaFree(one), err);
    CUDA_CHECK("cudaFree", cudaFree(other), err);
    CUDA_CHECK("cudaFreeHost", cudaFreeHost(host), err);
    return 0;
}

/* ---- products ---- */

struct product {
    cublasLtMatmulDesc_t descriptor;
    cublasLtMatrixLayout_t layout;
    cublasLtMatmulHeuristicResult_t found;
    void *a, *b, *d;
};

static int product_once(const struct rates *rates, void *argument, struct muster_error *err)
{
    const struct product *p = argument;
    const float one = 1, zero = 0;
    cublasStatus_t status = rates->lt->matmul(rates->handle, p->descriptor, &one, p->a, p->layout, p->b,
                                              p->layout, &zero, p->d, p->layout, p->d, p->layout,
                                              &p->found.algo, rates->workspace, WORKSPACE, rates->stream);
    return status ? cublaslt_error(err, rates->lt, status, operation, "cublasLtMatmul") : 0;
}

/* Random bits with the exponents of small numbers in every type. */
static void fill_factors(uint16_t *values, size_t count, cudaDataType_t type)
{
    uint32_t state = 12345;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223;
        const bool low_half = type == CUDA_R_32F && i % 2 == 0;
        const uint16_t exponent = type == CUDA_R_16F ? 0x2800 : 0x3d00; /* about 2^-5 */
        values[i] = low_half ? (uint16_t)(state >> 16) : (uint16_t)(exponent | (state >> 16 & 0x807f));
    }
}

static int fill_matrix(const struct rates *rates, void *matrix, size_t bytes, cudaDataType_t type,
                       struct muster_error *err)
{
    static uint16_t values[FACTOR_BYTES / 2];
    fill_factors(values, FACTOR_BYTES / 2, type);
    for (size_t at = 0; at < bytes; at += FACTOR_BYTES)
        CUDA_CHECK("cudaMemcpy",
                   cudaMemcpy((char *)matrix + at, values,
                              bytes - at < FACTOR_BYTES ? bytes - at : FACTOR_BYTES, cudaMemcpyHostToDevice),
                   err);
    CUDA_CHECK("cudaStreamSynchronize", cudaStreamSynchronize(rates->stream), err);
    return 0;
}

/* A's transpose times B: the layout of a dense layer's forward product. */
static int product_open(const struct rates *rates, struct product *p, cublasComputeType_t compute,
                        cudaDataType_t type, uint64_t n, struct muster_error *err)
{
    const int32_t transposed = CUBLAS_OP_T;
    const uint64_t workspace = WORKSPACE;
    cublasLtMatmulPreference_t preference;
    int count = 0;
    cublasStatus_t status = rates->lt->desc_create(&p->descriptor, compute, CUDA_R_32F);
    if (!status)
        status =
            rates->lt->desc_set(p->descriptor, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (!status)
        status = rates->lt->layout_create(&p->layout, type, n, n, (int64_t)n);
    if (!status)
        status = rates->lt->preference_create(&preference);
    if (status)
        return cublaslt_error(err, rates->lt, status, operation, "descriptions of a product");
    status = rates->lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                       sizeof workspace);
    if (!status)
        status = rates->lt->heuristic(rates->handle, p->descriptor, p->layout, p->layout, p->layout,
                                      p->layout, preference, 1, &p->found, &count);
    (void)rates->lt->preference_destroy(preference);
    if (status || !count)
        return cublaslt_error(err, rates->lt, status ? status : CUBLAS_STATUS_NOT_SUPPORTED, operation,
                              "cublasLtMatmulAlgoGetHeuristic");
    return 0;
}

static int product_rate(const struct rates *rates, cublasComputeType_t compute, cudaDataType_t type, size_t n,
                        double *rate, struct muster_error *err)
{
    const size_t bytes = n * n * (type == CUDA_R_32F ? 4 : 2);
    struct product p = {0};
    double seconds = 0;
    CUDA_CHECK("cudaMalloc", cudaMalloc(&p.a, bytes), err);
    CUDA_CHECK("cudaMalloc", cudaMalloc(&p.b, bytes), err);
    CUDA_CHECK("cudaMalloc", cudaMalloc(&p.d, bytes), err);
    int failed = fill_matrix(rates, p.a, bytes, type, err) || fill_matrix(rates, p.b, bytes, type, err) ||
                 product_open(rates, &p, compute, type, n, err) ||
                 timed(rates, product_once, &p, &seconds, err);
    if (p.layout)
        (void)rates->lt->layout_destroy(p.layout);
    if (p.descriptor)
        (void)rates->lt->desc_destroy(p.descriptor);
    CUDA_CHECK("cudaFree", cudaFree(p.a), err);
    CUDA_CHECK("cudaFree", cudaFree(p.b), err);
    CUDA_CHECK("cudaFree", cudaFree(p.d), err);
    *rate = failed ? 0 : 2.0 * (double)n * (double)n * (double)n / seconds * 1e-12;
    return failed ? -1 : 0;
}

static int products(const struct rates *rates, size_t n, struct muster_error *err)
{
    const struct {
        const char *name;
        cublasComputeType_t compute;
        cudaDataType_t type;
    } rows[] = {{"products in fp32", CUBLAS_COMPUTE_32F, CUDA_R_32F},
                {"products in tf32", CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F},
                {"products in bf16", CUBLAS_COMPUTE_32F, CUDA_R_16BF},
                {"products in fp16", CUBLAS_COMPUTE_32F, CUDA_R_16F}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct muster_error refused = {0};
        double rate = 0;
        if (product_rate(rates, rows[i].compute, rows[i].type, n, &rate, &refused)) {
            if (printf("{\"kind\": \"note\", \"text\": \"%s: %s\"}\n", rows[i].name, refused.text) < 0)
                return error_errno(err, "standard output");
        } else if (figure(rows[i].name, "TFLOP/s", rate, err)) {
            return -1;
        }
    }
    return 0;
}

static int measure(size_t bytes, size_t n, struct muster_error *err)
{
    struct rates rates = {.lt = cublaslt_library(err)};
    if (!rates.lt)
        return -1;
    CUDA_CHECK("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&rates.stream, cudaStreamNonBlocking),
               err);
    CUDA_CHECK("cudaEventCreate", cudaEventCreateWithFlags(&rates.begin, cudaEventDefault), err);
    CUDA_CHECK("cudaEventCreate", cudaEventCreateWithFlags(&rates.end, cudaEventDefault), err);
    CUDA_CHECK("cudaMalloc", cudaMalloc(&rates.workspace, WORKSPACE), err);
    const cublasStatus_t status = rates.lt->create(&rates.handle);
    if (status)
        return cublaslt_error(err, rates.lt, status, operation, "cublasLtCreate");
    const int failed = copies(&rates, bytes, err) || products(&rates, n, err);
    (void)rates.lt->destroy(rates.handle); /* the rest ends with the process */
    CUDA_CHECK("cudaFree", cudaFree(rates.workspace), err);
    return failed ? -1 : 0;
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    int64_t bytes, n;
    if (argc != 3 || !text_int64(argv[1], &bytes) || !text_int64(argv[2], &n) || bytes < 1 || n < 1) {
        fprintf(stderr, "usage: gpu_rates BYTES SIZE\n");
        return 2;
    }
    if (measure((size_t)bytes, (size_t)n, &err)) {
        fprintf(stderr, "gpu_rates: %s\n", err.text);
        return 1;
    }
    return 0;
}
