/* fake_cublaslt_matmul.c - cublasLtMatmul: its arguments are held against those for which the algorithm was
 * chosen for and against the memory that there is; then the product is enqueued. */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/cublaslt/fake_cublaslt.h"

#define LT_INVALID(...) return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, __VA_ARGS__)

static bool uses_aux(uint32_t epilogue)
{
    return epilogue & 128;
}

static bool uses_bias(uint32_t epilogue)
{
    return epilogue & (CUBLASLT_EPILOGUE_BIAS | 16 | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB);
}

struct lt_range {
    const char *name;
    const void *start;
    size_t bytes;
};

static size_t layout_bytes(const struct lt_layout *layout)
{
    return ((layout->columns - 1) * (size_t)layout->leading + layout->rows) * lt_size_of(layout->type);
}

static bool ranges_meet(const struct lt_range *a, const struct lt_range *b)
{
    uintptr_t first = (uintptr_t)a->start, second = (uintptr_t)b->start;
    return a->bytes && b->bytes && first < second + b->bytes && second < first + a->bytes;
}

/* Every range is device memory from end to end, and written ranges overlap no read ones. */
static cublasStatus_t check_memory(const struct lt_work *w)
{
    const struct lt_product *p = &w->product;
    const struct lt_descriptor *d = &p->descriptor;
    size_t size = lt_size_of(p->d.type);
    bool by_columns = d->epilogue == CUBLASLT_EPILOGUE_BGRADB;
    const struct lt_range ranges[] = {
        {"D", w->d, layout_bytes(&p->d)},
        {"the workspace", w->workspace, w->workspace_bytes},
        {"A", w->a, layout_bytes(&p->a)},
        {"B", w->b, layout_bytes(&p->b)},
        {"the bias", d->bias, uses_bias(d->epilogue) ? (by_columns ? p->n : p->m) * size : 0},
        {"the auxiliary matrix", d->aux,
         uses_aux(d->epilogue) ? ((p->n - 1) * (size_t)d->aux_leading + p->m) * size : 0},
    };
    enum { RANGES = sizeof ranges / sizeof ranges[0] };
    for (int i = 0; i < RANGES; i++)
        if (ranges[i].bytes && ranges[i].start &&
            fake_cudart_memory(ranges[i].start, ranges[i].bytes) != FAKE_MEMORY_DEVICE)
            LT_INVALID("%s, %zu bytes at %p, is not device memory from end to end", ranges[i].name,
                       ranges[i].bytes, ranges[i].start);
    for (int i = 0; i < 2; i++)
        for (int j = i + 1; j < RANGES; j++)
            if (ranges[i].start && ranges[j].start && ranges_meet(&ranges[i], &ranges[j]))
                LT_INVALID("%s and %s overlap", ranges[i].name, ranges[j].name);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_algorithm(const struct lt_work *w, const struct lt_algorithm *algorithm)
{
    const void *pointers[] = {w->a, w->b, w->c, w->d};
    const struct lt_descriptor *d = &w->product.descriptor;
    if (!algorithm || algorithm->magic != LT_ALGORITHM)
        LT_INVALID("no algorithm");
    if (algorithm->key != lt_product_key(&w->product))
        LT_INVALID("the algorithm was chosen for another product");
    if (d->multiprocessors < 0 || d->multiprocessors > FAKE_MULTIPROCESSORS)
        LT_INVALID("a product for %d multiprocessors of %d", d->multiprocessors, (int)FAKE_MULTIPROCESSORS);
    for (int i = 0; i < 4; i++)
        if (lt_alignment_of(pointers[i]) < algorithm->alignment[i])
            LT_INVALID("%c at %p is aligned to %u bytes, and the algorithm was promised %u", "ABCD"[i],
                       pointers[i], lt_alignment_of(pointers[i]), algorithm -> alignment[i]);
    if (d->bias && !uses_bias(d->epilogue)) /* which the heuristic does not mind */
        LT_INVALID("there is a bias pointer, and epilogue %u takes none", d->epilogue);
    if (uses_bias(d->epilogue) && lt_alignment_of(d->bias) < algorithm->bias_alignment)
        LT_INVALID("the bias at %p is aligned to %u bytes; when the algorithm was chosen it was %u", d->bias,
                   lt_alignment_of(d->bias), algorithm->bias_alignment);
    if (w->workspace_bytes < algorithm->workspace)
        LT_INVALID("a workspace of %zu bytes; the algorithm wants %llu", w->workspace_bytes,
                   (unsigned long long)algorithm->workspace);
    if (algorithm->workspace && lt_alignment_of(w->workspace) < 256)
        LT_INVALID("the workspace at %p is not aligned to 256 bytes", w->workspace);
    return CUBLAS_STATUS_SUCCESS;
}

static double scalar_of(const void *value, int32_t type)
{
    return type == CUDA_R_64F ? *(const double *)value : *(const float *)value;
}

static _Atomic(int) odd, told;
static int64_t first_odd[6]; /* since the last question */

/* The library's fast kernels are not made for products with a size or a leading dimension that is no multiple
 * of 8, nor for matrices that do not begin at 16 bytes. */
static void count_odd(const struct lt_work *work)
{
    const struct lt_product *p = &work->product;
    const int64_t sizes[] = {(int64_t)p->m, (int64_t)p->n, (int64_t)p->k,
                             p->a.leading,  p->b.leading,  p->d.leading};
    bool is_odd = ((uintptr_t)work->a | (uintptr_t)work->b | (uintptr_t)work->d) % 16 != 0;
    for (int i = 0; i < 6; i++)
        is_odd |= sizes[i] % 8 != 0;
    if (is_odd && odd++ == told)
        memcpy(first_odd, sizes, sizeof first_odd);
}

int fake_cublaslt_odd(int64_t sizes[6])
{
    const int before = told;
    told = odd;
    memcpy(sizes, first_odd, sizeof first_odd);
    return told - before;
}

static _Atomic(int) multiprocessors; /* the most that a product so far was planned for */

static int most_multiprocessors(void)
{
    return multiprocessors;
}

static int odd_products(void)
{
    return odd;
}

__attribute__((constructor)) static void report_odd(void)
{
    fake_cudart_reports("odd_products", odd_products);
    fake_cudart_reports("product_multiprocessors_high_water", most_multiprocessors);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t layout_a, const void *b,
                              cublasLtMatrixLayout_t layout_b, const void *beta, const void *c,
                              cublasLtMatrixLayout_t layout_c, void *d, cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    struct lt_work work = {
        .a = a, .b = b, .c = c, .d = d, .workspace = workspace, .workspace_bytes = workspace_bytes};
    if (!handle || handle->magic != LT_HANDLE)
        LT_INVALID("the handle is not alive");
    cublasStatus_t status = lt_product_of(descriptor, layout_a, layout_b, layout_c, layout_d, &work.product);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    size_t scalar = lt_size_of(work.product.descriptor.scale);
    if (!alpha || !beta || fake_cudart_memory(alpha, scalar) == FAKE_MEMORY_DEVICE ||
        fake_cudart_memory(beta, scalar) == FAKE_MEMORY_DEVICE)
        LT_INVALID("alpha and beta are read from the host");
    work.alpha = scalar_of(alpha, work.product.descriptor.scale);
    work.beta = scalar_of(beta, work.product.descriptor.scale);
    if (c != d)
        return lt_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "C is not D");
    status = check_algorithm(&work, (const struct lt_algorithm *)algorithm);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_memory(&work);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    work.workspace_bytes = ((const struct lt_algorithm *)algorithm)->workspace;
    count_odd(&work);
    const int planned = work.product.descriptor.multiprocessors ? work.product.descriptor.multiprocessors
                                                                : FAKE_MULTIPROCESSORS;
    multiprocessors = planned > multiprocessors ? planned : multiprocessors;
    struct lt_work *kept = malloc(sizeof *kept);
    if (!kept)
        abort();
    *kept = work;
    cudaError_t enqueued = fake_cudart_enqueue(stream, "cublasLtMatmul", lt_work_run, kept, free);
    return enqueued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
