/* fake_cublaslt_objects.c - handles, descriptors, layouts and preferences: made, filled in, thrown away. An
 * object is a block of its own, so that the address sanitizer sees use after destroy and leaks. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/cublaslt/fake_cublaslt.h"

cublasStatus_t lt_refuse(cublasStatus_t status, const char *format, ...)
{
    va_list arguments;
    flockfile(stderr);
    fputs("fake cuBLASLt: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    funlockfile(stderr);
    return status;
}

/* A function of the library begins with this: it may have been told to fail. */
#define LT_BEGIN(status)                                                                                     \
    do {                                                                                                     \
        if (fake_refuse(__func__))                                                                           \
            return lt_refuse(status, "%s was told to fail", __func__);                                       \
    } while (0)
#define LT_ALIVE(object, kind)                                                                               \
    do {                                                                                                     \
        if (!(object) || (object)->magic != (kind))                                                          \
            return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: an object that is not alive", __func__);      \
    } while (0)

/* The same of a function that destroys: its leaks are visible to a sanitizer that looks for leaks. */
static void *refused[8];
#define LT_BEGIN_DESTROY(object)                                                                             \
    do {                                                                                                     \
        if (fake_refuse(__func__)) {                                                                         \
            refused[living % 8] = (object);                                                                  \
            return lt_refuse(CUBLAS_STATUS_INTERNAL_ERROR, "%s was told to fail", __func__);                 \
        }                                                                                                    \
    } while (0)

static _Atomic(int) living; /* objects of all kinds */

static int objects_living(void)
{
    return living;
}

__attribute__((constructor)) static void report_living(void)
{
    fake_cudart_reports("leaked_products", objects_living);
}

static void *object_new(size_t size)
{
    void *object = calloc(1, size);
    if (!object)
        abort();
    living++;
    return object;
}

static void object_free(void *object)
{
    living--;
    free(object);
}

size_t lt_size_of(int32_t type)
{
    switch (type) {
    case CUDA_R_64F:
        return 8;
    case CUDA_R_32F:
        return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
        return 2;
    default:
        return 0;
    }
}

/* ---- the library ---- */

size_t cublasLtGetVersion(void)
{
    const char *version = getenv("FAKE_CUBLASLT_VERSION"); /* "110803": an old library's answer */
    return version ? (size_t)strtoul(version, NULL, 10) : CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
#define LT_NAME(name)                                                                                        \
    case name:                                                                                               \
        return #name
    switch (status) {
        LT_NAME(CUBLAS_STATUS_SUCCESS);
        LT_NAME(CUBLAS_STATUS_NOT_INITIALIZED);
        LT_NAME(CUBLAS_STATUS_ALLOC_FAILED);
        LT_NAME(CUBLAS_STATUS_INVALID_VALUE);
        LT_NAME(CUBLAS_STATUS_ARCH_MISMATCH);
        LT_NAME(CUBLAS_STATUS_EXECUTION_FAILED);
        LT_NAME(CUBLAS_STATUS_INTERNAL_ERROR);
        LT_NAME(CUBLAS_STATUS_NOT_SUPPORTED);
    default:
        return "CUBLAS_STATUS unknown";
    }
#undef LT_NAME
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    LT_BEGIN(CUBLAS_STATUS_NOT_INITIALIZED);
    if (!handle)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: NULL", __func__);
    *handle = object_new(sizeof **handle);
    (*handle)->magic = LT_HANDLE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    LT_BEGIN_DESTROY(handle);
    LT_ALIVE(handle, LT_HANDLE);
    handle->magic = 0;
    object_free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *descriptor, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    LT_BEGIN(CUBLAS_STATUS_ALLOC_FAILED);
    struct lt_descriptor *made = object_new(sizeof(cublasLtMatmulDescOpaque_t));
    _Static_assert(sizeof *made <= sizeof(cublasLtMatmulDescOpaque_t), "as the library's");
    *made = (struct lt_descriptor){.magic = LT_DESCRIPTOR,
                                   .compute = compute,
                                   .scale = scale,
                                   .transposed_a = CUBLAS_OP_N,
                                   .transposed_b = CUBLAS_OP_N,
                                   .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                                   .bias_type = -1,
                                   .aux_type = -1};
    *descriptor = (cublasLtMatmulDesc_t)made;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor)
{
    struct lt_descriptor *d = (struct lt_descriptor *)descriptor;
    LT_BEGIN_DESTROY(d);
    LT_ALIVE(d, LT_DESCRIPTOR);
    d->magic = 0;
    object_free(d);
    return CUBLAS_STATUS_SUCCESS;
}

struct lt_field {
    const char *name;
    int attribute;
    size_t offset, size;
};
#define LT_FIELD(type, attribute, member)                                                                    \
    {                                                                                                        \
#attribute, attribute, offsetof(type, member), sizeof(((type *)0)->member)                           \
    }

static const struct lt_field descriptor_fields[] = {
    LT_FIELD(struct lt_descriptor, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, compute),
    LT_FIELD(struct lt_descriptor, CUBLASLT_MATMUL_DESC_SCALE_TYPE, scale),
    LT_FIELD(struct lt_descriptor, CUBLASLT_MATMUL_DESC_TRANSA, transposed_a),
    LT_FIELD(struct lt_descriptor, CUBLASLT_MATMUL_DESC_TRANSB, transposed_b),
    LT_FIELD(struct lt_descriptor, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue),
    LT_FIELD(struct lt_descriptor, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, multiprocessors),
    LT_FIELD(struct lt_descriptor, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias),
    LT_FIELD(struct lt_descriptor, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias_type),
    LT_FIELD(struct lt_descriptor, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux),
    LT_FIELD(struct lt_descriptor, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_leading),
    LT_FIELD(struct lt_descriptor, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, aux_type),
};
static const struct lt_field layout_fields[] = {
    LT_FIELD(struct lt_layout, CUBLASLT_MATRIX_LAYOUT_TYPE, type),
    LT_FIELD(struct lt_layout, CUBLASLT_MATRIX_LAYOUT_ROWS, rows),
    LT_FIELD(struct lt_layout, CUBLASLT_MATRIX_LAYOUT_COLS, columns),
    LT_FIELD(struct lt_layout, CUBLASLT_MATRIX_LAYOUT_LD, leading),
};
static const struct lt_field preference_fields[] = {
    LT_FIELD(struct lt_preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace),
    LT_FIELD(struct lt_preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment[0]),
    LT_FIELD(struct lt_preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment[1]),
    LT_FIELD(struct lt_preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment[2]),
    LT_FIELD(struct lt_preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment[3]),
};
#define LT_ROWS(table) (table), sizeof(table) / sizeof(table)[0]

static const struct lt_field *field_of(const struct lt_field *fields, size_t count, int attribute)
{
    for (size_t i = 0; i < count; i++)
        if (fields[i].attribute == attribute)
            return &fields[i];
    return NULL;
}

static cublasStatus_t set_field(void *object, const struct lt_field *fields, size_t count, int attribute,
                                const void *value, size_t size)
{
    const struct lt_field *field = field_of(fields, count, attribute);
    if (!field)
        return lt_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "attribute %d", attribute);
    if (!value || size != field->size)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "%s has %zu bytes, not %zu", field->name, field->size,
                         size);
    memcpy((char *)object + field->offset, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get_field(const void *object, const struct lt_field *fields, size_t count,
                                int attribute, void *value, size_t size, size_t *written)
{
    const struct lt_field *field = field_of(fields, count, attribute);
    if (!field)
        return lt_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "attribute %d", attribute);
    if (size != field->size)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "%s has %zu bytes, not %zu", field->name, field->size,
                         size);
    memcpy(value, (const char *)object + field->offset, size);
    if (written)
        *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t size)
{
    struct lt_descriptor *d = (struct lt_descriptor *)descriptor;
    LT_BEGIN(CUBLAS_STATUS_INVALID_VALUE);
    LT_ALIVE(d, LT_DESCRIPTOR);
    return set_field(d, LT_ROWS(descriptor_fields), attribute, value, size);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatmulDescAttributes_t attribute, void *value,
                                              size_t size, size_t *written)
{
    const struct lt_descriptor *d = (const struct lt_descriptor *)descriptor;
    LT_BEGIN(CUBLAS_STATUS_INVALID_VALUE);
    LT_ALIVE(d, LT_DESCRIPTOR);
    return get_field(d, LT_ROWS(descriptor_fields), attribute, value, size, written);
}

/* ---- layouts ---- */

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading)
{
    LT_BEGIN(CUBLAS_STATUS_ALLOC_FAILED);
    struct lt_layout *made = object_new(sizeof(cublasLtMatrixLayoutOpaque_t));
    _Static_assert(sizeof *made <= sizeof(cublasLtMatrixLayoutOpaque_t), "as the library's");
    *made = (struct lt_layout){LT_LAYOUT, type, rows, columns, leading};
    *layout = (cublasLtMatrixLayout_t)made;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    struct lt_layout *l = (struct lt_layout *)layout;
    LT_BEGIN_DESTROY(l);
    LT_ALIVE(l, LT_LAYOUT);
    l->magic = 0;
    object_free(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, void *value,
                                                size_t size, size_t *written)
{
    const struct lt_layout *l = (const struct lt_layout *)layout;
    LT_BEGIN(CUBLAS_STATUS_INVALID_VALUE);
    LT_ALIVE(l, LT_LAYOUT);
    return get_field(l, LT_ROWS(layout_fields), attribute, value, size, written);
}

/* ---- preferences ---- */

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    LT_BEGIN(CUBLAS_STATUS_ALLOC_FAILED);
    struct lt_preference *made = object_new(sizeof(cublasLtMatmulPreferenceOpaque_t));
    _Static_assert(sizeof *made <= sizeof(cublasLtMatmulPreferenceOpaque_t), "as the library's");
    *made = (struct lt_preference){.magic = LT_PREFERENCE, .alignment = {256, 256, 256, 256}};
    *preference = (cublasLtMatmulPreference_t)made;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    struct lt_preference *p = (struct lt_preference *)preference;
    LT_BEGIN_DESTROY(p);
    LT_ALIVE(p, LT_PREFERENCE);
    p->magic = 0;
    object_free(p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t size)
{
    struct lt_preference *p = (struct lt_preference *)preference;
    LT_BEGIN(CUBLAS_STATUS_INVALID_VALUE);
    LT_ALIVE(p, LT_PREFERENCE);
    return set_field(p, LT_ROWS(preference_fields), attribute, value, size);
}
