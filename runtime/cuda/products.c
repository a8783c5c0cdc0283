/* products.c - see products.h: the three products of a dense layer, and the sums over rows. */
#include "runtime/cuda/products.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/bias.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/operations.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/cuda/cuda_stream.h"
#include "runtime/cuda/products_internal.h"

/* ---- open and close ---- */

static int products_fill(struct cuda_products *products, bool tf32, struct muster_error *err)
{
    const char *operation = "opening products";
    const uint64_t workspace = (uint64_t)CUDA_PRODUCTS_WORKSPACE;
    cublasStatus_t status;
    products->calls = cublaslt_library(err);
    if (!products->calls)
        return -1;
    products->compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    CUDA_CHECK("cudaMalloc of the workspace of products", cudaMalloc(&products->workspace, workspace), err);
    status = products->calls->create(&products->handle);
    if (status != CUBLAS_STATUS_SUCCESS)
        return cublaslt_error(err, products->calls, status, operation, "cublasLtCreate");
    status = products->calls->preference_create(&products->preference);
    if (status != CUBLAS_STATUS_SUCCESS)
        return cublaslt_error(err, products->calls, status, operation, "cublasLtMatmulPreferenceCreate");
    status = products->calls->preference_set(products->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof workspace);
    if (status != CUBLAS_STATUS_SUCCESS)
        return cublaslt_error(err, products->calls, status, operation,
                              "cublasLtMatmulPreferenceSetAttribute");
    return 0;
}

/* Errors of releases at the end are dropped: there is no work left that they could affect. */
static void products_free(struct cuda_products *products)
{
    product_plans_free(products);
    if (products->preference)
        (void)products->calls->preference_destroy(products->preference);
    if (products->handle)
        (void)products->calls->destroy(products->handle);
    if (products->workspace)
        (void)cudaFree(products->workspace);
    mem_free(products);
}

int cuda_products_open(struct cuda_stream_handle *handle, bool tf32, struct muster_error *err)
{
    struct cuda_products *products = mem_calloc(1, sizeof *products);
    if (!products)
        return error_set(err, MUSTER_E_NOMEM, "%zu bytes for the table of products", sizeof *products);
    if (products_fill(products, tf32, err) != 0) {
        products_free(products);
        return -1;
    }
    handle->products = products;
    return 0;
}

void cuda_products_close(struct cuda_stream_handle *handle)
{
    if (!handle->products)
        return;
    products_free(handle->products);
    handle->products = NULL;
}

int64_t cuda_products_chosen(const struct cuda_stream_handle *handle)
{
    return handle->products ? handle->products->chosen : 0;
}

static struct cuda_products *products_of(const struct cuda_stream_handle *handle, const char *operation,
                                         struct muster_error *err)
{
    if (!handle->products)
        error_set(err, MUSTER_E_STATE, "%s: this stream was not created to compute: it has no workspace",
                  operation);
    return handle->products;
}

void *cuda_products_scratch(const struct cuda_stream_handle *handle, const char *operation,
                            struct muster_error *err)
{
    const struct cuda_products *products = products_of(handle, operation, err);
    return products ? products->workspace : NULL;
}

/* ---- one product ---- */

struct product {
    int m, n, k;      /* as cuBLASLt counts them: products_internal.h */
    int row_b, row_d; /* how far apart our rows of B and D are, elements */
    bool transposed_a, transposed_b, add;
    const void *a, *b, *bias; /* bias NULL: none */
    void *d;
    enum dtype factors, result; /* A and B have the one, D and a bias the other */
};

static cudaDataType type_of(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? CUDA_R_16BF : dtype == DTYPE_F16 ? CUDA_R_16F : CUDA_R_32F;
}

/* What cuBLASLt may assume of the pointers. Few classes, so that a shape is not chosen for again and again:
 * the arenas' parts begin at 256 or somewhere. */
static int32_t alignment_class(const struct product *p)
{
    uintptr_t all = (uintptr_t)p->a | (uintptr_t)p->b | (uintptr_t)p->d;
    return all % 256 == 0             ? 256
           : all % 16 == 0            ? 16
           : all % sizeof(float) == 0 ? sizeof(float)
                                      : sizeof(uint16_t);
}

/* Memory of a lower alignment may fault in cuBLASLt's epilogue: no preference states its alignment. */
static bool bias_by_epilogue(const struct product *p)
{
    return p->bias && (uintptr_t)p->bias % PRODUCT_BIAS_ALIGNMENT == 0;
}

static int multiply(const struct product *p, const struct cuda_stream_handle *handle, const char *operation,
                    struct muster_error *err)
{
    const float one = 1.0f, beta = p->add ? 1.0f : 0.0f;
    const void *bias = bias_by_epilogue(p) ? p->bias : NULL;
    struct cuda_products *products = products_of(handle, operation, err);
    const struct product_shape shape = {.m = p->m,
                                        .n = p->n,
                                        .k = p->k,
                                        .row_b = p->row_b,
                                        .row_d = p->row_d,
                                        .transposed_a = p->transposed_a,
                                        .transposed_b = p->transposed_b,
                                        .epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT,
                                        .multiprocessors =
                                            handle->multiprocessors ? handle->multiprocessors(handle) : 0,
                                        .alignment = alignment_class(p),
                                        .factors = type_of(p->factors),
                                        .result = type_of(p->result)};
    if (!products)
        return -1;
    const struct product_plan *plan = product_plan_of(products, &shape, operation, err);
    if (!plan)
        return -1;
    const struct cublaslt_calls *calls = products->calls;
    const char *function = "cublasLtMatmulDescSetAttribute";
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (bias)
        status = calls->desc_set(plan->descriptor, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (status == CUBLAS_STATUS_SUCCESS) {
        function = "cublasLtMatmul";
        status = calls->matmul(products->handle, plan->descriptor, &one, p->a, plan->a, p->b, plan->b, &beta,
                               p->d, plan->d, p->d, plan->d, &plan->algorithm, products->workspace,
                               (size_t)CUDA_PRODUCTS_WORKSPACE, handle->stream);
    }
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    cublaslt_error(err, calls, status, operation, function);
    return error_wrap(err, "product of %d x %d x %d", p->m, p->n, p->k);
}

/* Nothing is multiplied: the output keeps its value, or is 0. */
static int multiply_nothing(void *out, enum dtype dtype, int64_t elements, bool add,
                            const struct cuda_stream_handle *handle, const char *operation,
                            struct muster_error *err)
{
    if (!add && elements > 0)
        CUDA_CHECK(operation, cudaMemsetAsync(out, 0, (size_t)(elements * dtype_size(dtype)), handle->stream),
                   err);
    return 0;
}

static int check_sizes(const char *operation, int N, int C, int OC, int row, struct muster_error *err)
{
    CUDA_CHECK_SIZE(operation, N, err);
    CUDA_CHECK_SIZE(operation, C, err);
    CUDA_CHECK_SIZE(operation, OC, err);
    CUDA_CHECK_ROW(operation, row, OC, err);
    return 0;
}

/* ---- the slots, for values and weights of a type; gradients of weights are float ---- */

static int linear_forward(enum dtype values, void *out, const void *in, const void *weight, const void *bias,
                          int N, int C, int OC, int row, const struct cuda_stream_handle *handle,
                          struct muster_error *err)
{
    const char *operation = "linear_forward";
    const struct product p = {.m = OC,
                              .n = N,
                              .k = C,
                              .row_b = C,
                              .row_d = row,
                              .transposed_a = true,
                              .a = weight,
                              .b = in,
                              .bias = bias,
                              .d = out,
                              .factors = values,
                              .result = values};
    int status = check_sizes(operation, N, C, OC, row, err);
    if (status != 0 || N == 0 || OC == 0)
        return status;
    if (C > 0)
        status = multiply(&p, handle, operation, err);
    for (int n = 0; C == 0 && n < N && status == 0; n++)
        status = multiply_nothing((char *)out + (int64_t)n * row * dtype_size(values), values, OC, false,
                                  handle, operation, err);
    if (status != 0 || !bias || (C > 0 && bias_by_epilogue(&p)))
        return status;
    return cuda_bias_add(out, bias, values, N, OC, row, handle->stream, err);
}

static int linear_backward_input(enum dtype values, void *din, const void *dout, const void *weight, int N,
                                 int C, int OC, int row, int beta_in, const struct cuda_stream_handle *handle,
                                 struct muster_error *err)
{
    const char *operation = "linear_backward_input";
    const struct product p = {.m = C,
                              .n = N,
                              .k = OC,
                              .row_b = row,
                              .row_d = C,
                              .add = beta_in != 0,
                              .a = weight,
                              .b = dout,
                              .d = din,
                              .factors = values,
                              .result = values};
    if (check_sizes(operation, N, C, OC, row, err) != 0)
        return -1;
    if (!din || N == 0 || C == 0)
        return 0;
    if (OC == 0)
        return multiply_nothing(din, values, (int64_t)N * C, p.add, handle, operation, err);
    return multiply(&p, handle, operation, err);
}

static int activation_forward(enum dtype values, void *out, const void *in, int kind, int64_t n, void *stream,
                              struct muster_error *err)
{
    return (values == DTYPE_BF16  ? cuda_activation_forward_bf16
            : values == DTYPE_F16 ? cuda_activation_forward_f16
                                  : cuda_activation_forward)(out, in, kind, n, stream, err);
}

static int activation_backward(enum dtype values, void *din, const void *in, const void *dout, int kind,
                               int64_t n, void *stream, struct muster_error *err)
{
    return (values == DTYPE_BF16  ? cuda_activation_backward_bf16
            : values == DTYPE_F16 ? cuda_activation_backward_f16
                                  : cuda_activation_backward)(din, in, dout, kind, 0, n, stream, err);
}

static int linear_activation_forward(enum dtype values, void *out, void *pre, const void *in,
                                     const void *weight, const void *bias, int kind, int N, int C, int OC,
                                     const struct cuda_stream_handle *handle, struct muster_error *err)
{
    void *before = pre ? pre : out;
    return linear_forward(values, before, in, weight, bias, N, C, OC, OC, handle, err) ||
                   activation_forward(values, out, before, kind, (int64_t)N * OC, handle->stream, err)
               ? -1
               : 0;
}

/* Sums of a bias go through the workspace: after the product, whose workspace is free again then. */
static int linear_backward_activation(enum dtype values, void *din, void *dbias, const void *dout,
                                      const void *weight, const void *pre, int kind, int N, int C, int OC,
                                      int beta, const struct cuda_stream_handle *handle,
                                      struct muster_error *err)
{
    const int64_t n = (int64_t)N * C;
    if (linear_backward_input(values, din, dout, weight, N, C, OC, OC, 0, handle, err))
        return -1;
    if (!dbias)
        return activation_backward(values, din, pre, din, kind, n, handle->stream, err);
    void *work = cuda_products_scratch(handle, "linear_backward_activation", err);
    return work ? cuda_activation_bias_gradient(din, dbias, pre, values, kind, N, C, beta, work,
                                                (size_t)CUDA_PRODUCTS_WORKSPACE, handle->stream, err)
                : -1;
}

static int bias_gradient(enum dtype values, void *dbias, const void *dout, int N, int OC, int row, int beta,
                         const struct cuda_stream_handle *handle, struct muster_error *err)
{
    void *work = cuda_products_scratch(handle, "linear_backward_weight", err);
    return work ? cuda_bias_gradient(dbias, dout, values, N, OC, row, beta, work,
                                     (size_t)CUDA_PRODUCTS_WORKSPACE, handle->stream, err)
                : -1;
}

static int linear_backward_weight(enum dtype values, void *dweight, void *dbias, const void *dout,
                                  const void *in, int N, int C, int OC, int row, int beta,
                                  const struct cuda_stream_handle *handle, struct muster_error *err)
{
    const char *operation = "linear_backward_weight";
    const struct product p = {.m = C,
                              .n = OC,
                              .k = N,
                              .row_b = row,
                              .row_d = C,
                              .transposed_b = true,
                              .add = beta != 0,
                              .a = in,
                              .b = dout,
                              .d = dweight,
                              .factors = values,
                              .result = DTYPE_F32};
    int status = check_sizes(operation, N, C, OC, row, err);
    if (status == 0 && dweight && C > 0 && OC > 0)
        status = N > 0 ? multiply(&p, handle, operation, err)
                       : multiply_nothing(dweight, DTYPE_F32, (int64_t)OC * C, p.add, handle, operation, err);
    if (status == 0 && dbias)
        status = bias_gradient(values, dbias, dout, N, OC, row, beta, handle, err);
    return status;
}

#define TYPED(symbol, name, values, parameters, arguments)                                                   \
    int symbol(KERNELS_EACH parameters, const struct cuda_stream_handle *handle, struct muster_error *err)   \
    {                                                                                                        \
        return name(values, KERNELS_EACH arguments, handle, err);                                            \
    }
#define TYPED_ALL(name, parameters, arguments)                                                               \
    TYPED(cuda_##name, name, DTYPE_F32, parameters, arguments)                                               \
    TYPED(cuda_##name##_bf16, name, DTYPE_BF16, parameters, arguments)                                       \
    TYPED(cuda_##name##_f16, name, DTYPE_F16, parameters, arguments)
#define OPERATION(name, parameters, arguments)
#define PRODUCT(name, parameters, arguments)                                                                 \
    KERNELS_PICK(CUDA_LIBRARY_##name, TYPED_ALL(name, parameters, arguments), )
#define FUSED PRODUCT
#include "kernels/operations.inc"
