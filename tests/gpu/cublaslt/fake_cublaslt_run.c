/* fake_cublaslt_run.c - the product itself, on the stream's thread: factors are read into plain matrices of
 * double or float, multiplied by OpenBLAS on this thread alone, and the epilogue is a loop. Device memory is
 * read and written here and not by OpenBLAS, so that the thread sanitizer sees who touches it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "tests/gpu/cublaslt/fake_cublaslt.h"

/* OpenMP's, in OpenBLAS's process: how many threads a product of this thread may have. */
extern void omp_set_num_threads(int threads) __attribute__((weak));

static float float_of_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static uint16_t bf16_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 64);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* 10 bits of mantissa, to nearest. The effect of the other 13 in a GPU's tensor cores is not documented. */
static float tf32_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isfinite(value))
        bits = (bits + 0x0fff + (bits >> 13 & 1)) & ~UINT32_C(0x1fff);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double element(const void *matrix, size_t i, int32_t type)
{
    switch (type) {
    case CUDA_R_64F:
        return ((const double *)matrix)[i];
    case CUDA_R_32F:
        return ((const float *)matrix)[i];
    case CUDA_R_16BF:
        return float_of_bf16(((const uint16_t *)matrix)[i]);
    default: {
        _Float16 value;
        memcpy(&value, (const char *)matrix + 2 * i, sizeof value);
        return (double)value;
    }
    }
}

static void element_set(void *matrix, size_t i, int32_t type, double value)
{
    switch (type) {
    case CUDA_R_64F:
        ((double *)matrix)[i] = value;
        break;
    case CUDA_R_32F:
        ((float *)matrix)[i] = (float)value;
        break;
    case CUDA_R_16BF:
        ((uint16_t *)matrix)[i] = bf16_of_float((float)value);
        break;
    default: {
        _Float16 narrow = (_Float16)value;
        memcpy((char *)matrix + 2 * i, &narrow, sizeof narrow);
    }
    }
}

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        abort();
    return memory;
}

/* A dense copy of a factor, column-major, as double (f64) or float. */
static void *factor_of(const void *from, const struct lt_layout *layout, bool tf32)
{
    bool f64 = layout->type == CUDA_R_64F;
    void *dense = zeroed(layout->rows * layout->columns, f64 ? sizeof(double) : sizeof(float));
    for (uint64_t column = 0; column < layout->columns; column++)
        for (uint64_t row = 0; row < layout->rows; row++) {
            double value = element(from, column * (uint64_t)layout->leading + row, layout->type);
            size_t at = column * layout->rows + row;
            if (f64)
                ((double *)dense)[at] = value;
            else
                ((float *)dense)[at] = tf32 ? tf32_of_float((float)value) : (float)value;
        }
    return dense;
}

/* Column sums of op(B) or row sums of op(A), in double: a gradient of the bias. */
static void bias_gradient_of_factor(const struct lt_work *w, const void *factor, bool of_b)
{
    const struct lt_product *p = &w->product;
    const struct lt_layout *layout = of_b ? &p->b : &p->a;
    bool transposed = (of_b ? p->descriptor.transposed_b : p->descriptor.transposed_a) == CUBLAS_OP_T;
    bool along_rows = of_b ? !transposed : transposed; /* k runs along the stored rows */
    uint64_t length = of_b ? p->n : p->m;
    for (uint64_t i = 0; i < length; i++) {
        double sum = 0;
        for (uint64_t k = 0; k < p->k; k++)
            sum += element(factor, along_rows ? i * layout->rows + k : k * layout->rows + i, CUDA_R_32F);
        element_set((void *)p->descriptor.bias, i, p->d.type, sum);
    }
}

#define GELU_ROOT 0.79788456080286535588 /* sqrt(2/pi) */
#define GELU_CUBE 0.044715

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(GELU_ROOT * (x + GELU_CUBE * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(GELU_ROOT * (x + GELU_CUBE * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU_ROOT * (1 + 3 * GELU_CUBE * x * x);
}

/* The epilogue on an element of D before it is stored. */
static double epilogue(const struct lt_work *w, uint64_t row, uint64_t column, double x)
{
    const struct lt_descriptor *d = &w->product.descriptor;
    int32_t type = w->product.d.type;
    size_t at = column * (uint64_t)d->aux_leading + row;
    uint32_t kind = d->epilogue;
    if (kind == CUBLASLT_EPILOGUE_BIAS || kind == CUBLASLT_EPILOGUE_GELU_BIAS ||
        kind == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        x += element(d->bias, row, type);
    if (kind == CUBLASLT_EPILOGUE_GELU_AUX || kind == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        element_set(d->aux, at, type, x);
    if (kind == CUBLASLT_EPILOGUE_DGELU || kind == CUBLASLT_EPILOGUE_DGELU_BGRAD)
        return x * gelu_slope(element(d->aux, at, type));
    return kind & CUBLASLT_EPILOGUE_GELU ? gelu(x) : x;
}

static void *multiply(const struct lt_work *w, const void *a, const void *b)
{
    const struct lt_product *p = &w->product;
    enum CBLAS_TRANSPOSE ta = p->descriptor.transposed_a == CUBLAS_OP_T ? CblasTrans : CblasNoTrans;
    enum CBLAS_TRANSPOSE tb = p->descriptor.transposed_b == CUBLAS_OP_T ? CblasTrans : CblasNoTrans;
    int m = (int)p->m, n = (int)p->n, k = (int)p->k, lda = (int)p->a.rows, ldb = (int)p->b.rows;
    bool f64 = p->a.type == CUDA_R_64F;
    void *result = zeroed(p->m * p->n, f64 ? sizeof(double) : sizeof(float));
    if (omp_set_num_threads)
        omp_set_num_threads(1); /* the same bits on any machine's number of threads */
    if (f64)
        cblas_dgemm(CblasColMajor, ta, tb, m, n, k, w->alpha, a, lda, b, ldb, 0, result, m);
    else
        cblas_sgemm(CblasColMajor, ta, tb, m, n, k, (float)w->alpha, a, lda, b, ldb, 0, result, m);
    return result;
}

static void store(const struct lt_work *w, const void *result)
{
    const struct lt_product *p = &w->product;
    bool gradient = p->descriptor.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD;
    double *sums = zeroed(p->m, sizeof *sums);
    for (uint64_t column = 0; column < p->n; column++)
        for (uint64_t row = 0; row < p->m; row++) {
            size_t at = column * (uint64_t)p->d.leading + row;
            double x =
                element(result, column * p->m + row, p->a.type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F);
            if (w->beta != 0) /* else the old value is not read: it may be anything */
                x += w->beta * element(w->c, at, p->c.type);
            x = epilogue(w, row, column, x);
            sums[row] += x;
            element_set(w->d, at, p->d.type, x);
        }
    for (uint64_t row = 0; gradient && row < p->m; row++)
        element_set((void *)p->descriptor.bias, row, p->d.type, sums[row]);
    free(sums);
}

void lt_work_run(void *argument)
{
    const struct lt_work *w = argument;
    const struct lt_product *p = &w->product;
    bool tf32 = p->descriptor.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    void *a = factor_of(w->a, &p->a, tf32), *b = factor_of(w->b, &p->b, tf32);
    void *result = multiply(w, a, b);
    if (w->workspace_bytes)
        memset(w->workspace, 0xa5, w->workspace_bytes); /* kept values are lost */
    if (p->descriptor.epilogue == CUBLASLT_EPILOGUE_BGRADA ||
        p->descriptor.epilogue == CUBLASLT_EPILOGUE_BGRADB)
        bias_gradient_of_factor(w, p->descriptor.epilogue == CUBLASLT_EPILOGUE_BGRADB ? b : a,
                                p->descriptor.epilogue == CUBLASLT_EPILOGUE_BGRADB);
    store(w, result);
    free(a);
    free(b);
    free(result);
}
