/* fake_cublaslt_check.c - the products, the key of each, and its algorithm. */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/cublaslt/fake_cublaslt.h"

#define LT_INVALID(...)     return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, __VA_ARGS__)
#define LT_UNSUPPORTED(...) return lt_refuse(CUBLAS_STATUS_NOT_SUPPORTED, __VA_ARGS__)

static cublasStatus_t check_layout(const char *name, const struct lt_layout *layout)
{
    if (!layout || layout->magic != LT_LAYOUT)
        LT_INVALID("the layout of %s is not alive", name);
    if (lt_size_of(layout->type) == 0)
        LT_UNSUPPORTED("%s has elements of type %d", name, layout->type);
    if (layout->rows == 0 || layout->columns == 0)
        LT_INVALID("%s is %llu x %llu: empty", name, (unsigned long long)layout->rows,
                   (unsigned long long)layout->columns);
    if (layout->leading < (int64_t)layout->rows)
        LT_INVALID("%s has columns %lld elements apart and %llu rows", name, (long long)layout->leading,
                   (unsigned long long)layout->rows);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_shapes(struct lt_product *p)
{
    bool ta = p->descriptor.transposed_a == CUBLAS_OP_T, tb = p->descriptor.transposed_b == CUBLAS_OP_T;
    uint64_t k_of_b = tb ? p->b.columns : p->b.rows;
    if ((!ta && p->descriptor.transposed_a != CUBLAS_OP_N) ||
        (!tb && p->descriptor.transposed_b != CUBLAS_OP_N))
        LT_UNSUPPORTED("transposition A %d, B %d", p->descriptor.transposed_a, p->descriptor.transposed_b);
    p->m = ta ? p->a.columns : p->a.rows;
    p->k = ta ? p->a.rows : p->a.columns;
    p->n = tb ? p->b.rows : p->b.columns;
    if (p->k != k_of_b || p->d.rows != p->m || p->d.columns != p->n)
        LT_INVALID("op(A) %llu x %llu, op(B) %llu x %llu, D %llu x %llu", (unsigned long long)p->m,
                   (unsigned long long)p->k, (unsigned long long)k_of_b, (unsigned long long)p->n,
                   (unsigned long long)p->d.rows, (unsigned long long)p->d.columns);
    if (p->c.rows != p->d.rows || p->c.columns != p->d.columns || p->c.leading != p->d.leading)
        LT_INVALID("C is laid out as %llu x %llu by %lld, D as %llu x %llu by %lld",
                   (unsigned long long)p->c.rows, (unsigned long long)p->c.columns, (long long)p->c.leading,
                   (unsigned long long)p->d.rows, (unsigned long long)p->d.columns, (long long)p->d.leading);
    return CUBLAS_STATUS_SUCCESS;
}

/* Whether a product of f32 computes as FAKE_CUBLASLT_COMPUTE has it. */
static bool is_wanted(int32_t compute)
{
    const char *wanted = getenv("FAKE_CUBLASLT_COMPUTE");
    return !wanted || !strcmp(wanted, compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? "tf32" : "fp32");
}

static cublasStatus_t check_types(const struct lt_product *p)
{
    int32_t factor = p->a.type, compute = p->descriptor.compute;
    bool f64 = factor == CUDA_R_64F;
    if (p->b.type != factor || p->c.type != p->d.type)
        LT_UNSUPPORTED("A %d and B %d, C %d and D %d: each pair is of one type", factor, p->b.type, p->c.type,
                       p->d.type);
    if (p->d.type != factor && (f64 || p->d.type != CUDA_R_32F))
        LT_UNSUPPORTED("D of type %d from factors of type %d", p->d.type, factor);
    if (f64 ? compute != CUBLAS_COMPUTE_64F
            : compute != CUBLAS_COMPUTE_32F &&
                  !(compute == CUBLAS_COMPUTE_32F_FAST_TF32 && factor == CUDA_R_32F))
        LT_UNSUPPORTED("compute type %d for factors of type %d", compute, factor);
    if (factor == CUDA_R_32F && !is_wanted(compute))
        LT_INVALID("compute type %d, and FAKE_CUBLASLT_COMPUTE is %s", compute,
                   getenv("FAKE_CUBLASLT_COMPUTE"));
    if (p->descriptor.scale != (f64 ? CUDA_R_64F : CUDA_R_32F))
        LT_UNSUPPORTED("scalars of type %d with compute type %d", p->descriptor.scale, compute);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_bias(const struct lt_product *p)
{
    int32_t type = p->descriptor.bias_type;
    if (!p->descriptor.bias)
        LT_INVALID("epilogue %u without a bias pointer", p->descriptor.epilogue);
    if (lt_alignment_of(p->descriptor.bias) < 16)
        LT_UNSUPPORTED(
            "the bias at %p is not aligned to 16 bytes, which kernels of the library assume and no "
            "preference states",
            p->descriptor.bias);
    if (type != -1 && type != p->d.type)
        LT_UNSUPPORTED("a bias of type %d for D of type %d", type, p->d.type);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_aux(const struct lt_product *p)
{
    const struct lt_descriptor *d = &p->descriptor;
    if (!d->aux)
        LT_INVALID("epilogue %u without an auxiliary pointer", d->epilogue);
    if (d->aux_leading < (int64_t)p->m || d->aux_leading % 8 != 0)
        LT_INVALID(
            "the auxiliary matrix has columns %lld elements apart: it takes %llu or more, a multiple of 8",
            (long long)d->aux_leading, (unsigned long long)p->m);
    if (lt_alignment_of(d->aux) < 16)
        LT_INVALID("the auxiliary matrix at %p is not aligned to 16 bytes", (void *)d->aux);
    if (d->aux_type != -1 && d->aux_type != p->d.type)
        LT_UNSUPPORTED("an auxiliary matrix of type %d for D of type %d", d->aux_type, p->d.type);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_epilogue(const struct lt_product *p)
{
    bool bias = false, aux = false;
    switch (p->descriptor.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_GELU:
        break;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        bias = true;
        break;
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_DGELU:
        aux = true;
        break;
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
        bias = aux = true;
        break;
    default:
        LT_UNSUPPORTED("epilogue %u", p->descriptor.epilogue);
    }
    if (p->descriptor.epilogue != CUBLASLT_EPILOGUE_DEFAULT && p->a.type == CUDA_R_64F)
        LT_UNSUPPORTED("epilogue %u in f64", p->descriptor.epilogue);
    cublasStatus_t status = bias ? check_bias(p) : CUBLAS_STATUS_SUCCESS;
    return status == CUBLAS_STATUS_SUCCESS && aux ? check_aux(p) : status;
}

cublasStatus_t lt_product_of(cublasLtMatmulDesc_t descriptor, cublasLtMatrixLayout_t a,
                             cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                             struct lt_product *product)
{
    const struct {
        const char *name;
        const struct lt_layout *from;
        struct lt_layout *to;
    } layouts[] = {{"A", (const struct lt_layout *)a, &product->a},
                   {"B", (const struct lt_layout *)b, &product->b},
                   {"C", (const struct lt_layout *)c, &product->c},
                   {"D", (const struct lt_layout *)d, &product->d}};
    const struct lt_descriptor *from = (const struct lt_descriptor *)descriptor;
    cublasStatus_t status;
    if (!from || from->magic != LT_DESCRIPTOR)
        LT_INVALID("the descriptor is not alive");
    product->descriptor = *from;
    for (int i = 0; i < 4; i++) {
        status = check_layout(layouts[i].name, layouts[i].from);
        if (status != CUBLAS_STATUS_SUCCESS)
            return status;
        *layouts[i].to = *layouts[i].from;
    }
    status = check_shapes(product);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_types(product);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_epilogue(product);
    return status;
}

/* FNV-1a, 64 bits. */
static uint64_t key_add(uint64_t key, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        key = (key ^ (value >> 8 * i & 0xff)) * UINT64_C(1099511628211);
    return key;
}

uint64_t lt_product_key(const struct lt_product *p)
{
    const struct lt_layout *layouts[] = {&p->a, &p->b, &p->d};
    const struct lt_descriptor *d = &p->descriptor;
    uint64_t key = UINT64_C(14695981039346656037);
    const uint64_t values[] = {(uint64_t)d->compute,        (uint64_t)d->scale, (uint64_t)d->transposed_a,
                               (uint64_t)d->transposed_b,   d->epilogue,        (uint64_t)d->aux_leading,
                               (uint64_t)d->multiprocessors};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        key = key_add(key, values[i]);
    for (int i = 0; i < 3; i++) {
        key = key_add(key, (uint64_t)layouts[i]->type);
        key = key_add(key, layouts[i]->rows);
        key = key_add(key, layouts[i]->columns);
        key = key_add(key, (uint64_t)layouts[i]->leading);
    }
    return key;
}

uint32_t lt_alignment_of(const void *pointer)
{
    uint32_t alignment = 256;
    while ((uintptr_t)pointer % alignment)
        alignment /= 2;
    return alignment;
}

enum {
    LT_WANTED_WORKSPACE = 64 << 10
}; /* an algorithm's, where so much is offered; each product writes it */

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *got)
{
    const struct lt_preference *p = (const struct lt_preference *)preference;
    struct lt_product product;
    struct lt_algorithm algorithm = {.magic = LT_ALGORITHM};
    _Static_assert(sizeof algorithm <= sizeof(cublasLtMatmulAlgo_t), "as the library's");
    if (fake_refuse(__func__))
        return lt_refuse(CUBLAS_STATUS_INTERNAL_ERROR, "%s was told to fail", __func__);
    if (!handle || handle->magic != LT_HANDLE || !p || p->magic != LT_PREFERENCE || !results || !got)
        LT_INVALID("%s: a handle, preference or result that is not there", __func__);
    *got = 0;
    if (wanted < 1)
        LT_INVALID("%s: %d results are wanted", __func__, wanted);
    cublasStatus_t status = lt_product_of(descriptor, a, b, c, d, &product);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    memcpy(algorithm.alignment, p->alignment, sizeof algorithm.alignment);
    algorithm.bias_alignment = product.descriptor.bias ? lt_alignment_of(product.descriptor.bias) : 256;
    algorithm.key = lt_product_key(&product);
    algorithm.workspace = p->workspace < LT_WANTED_WORKSPACE ? p->workspace : LT_WANTED_WORKSPACE;
    memset(&results[0], 0, sizeof results[0]);
    memcpy(&results[0].algo, &algorithm, sizeof algorithm);
    results[0].workspaceSize = algorithm.workspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1.0f;
    *got = 1;
    return CUBLAS_STATUS_SUCCESS;
}
