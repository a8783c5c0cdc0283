/* cublaslt_library.c - see cublaslt_library.h. */
#include "runtime/cuda/cublaslt_library.h"

#include <pthread.h>
#include <stdio.h>

#include "proto/base/error.h"
#include "runtime/cuda/libraries.h"

/* Versions are major*10000 + minor*100 + patch: 130002 is 13.0.2. */
enum { CUBLASLT_OLDEST = 130000 }; /* the soname is CUDA 13's */

static const struct cuda_library_function functions[] = {
#define CUBLASLT_ROW(member, function, since)                                                                \
    CUDA_LIBRARY_ROW(struct cublaslt_calls, member, function, since),
    CUBLASLT_FUNCTIONS(CUBLASLT_ROW)
#undef CUBLASLT_ROW
};

static int cublaslt_version(const void *calls, int *version, struct muster_error *err)
{
    const struct cublaslt_calls *c = calls;
    size_t found = c->get_version();
    if (found == 0 || found > 1000000)
        return error_set(err, MUSTER_E_UNSUPPORTED, "cublasLtGetVersion returned %zu", found);
    *version = (int)found;
    return 0;
}

static void cublaslt_version_text(int version, char *text, size_t size)
{
    (void)snprintf(text, size, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

static const struct cuda_library library = {
    .name = "cuBLASLt",
    .file = "libcublasLt.so.13",
    .from =
        "device cuda needs cuBLASLt for matrix products (of CUDA 13's toolkit, or pip: nvidia-cublas; its "
        "folder on LD_LIBRARY_PATH)",
    .functions = functions,
    .count = sizeof functions / sizeof functions[0],
    .oldest = CUBLASLT_OLDEST,
    .version = cublaslt_version,
    .version_text = cublaslt_version_text,
};

const struct cublaslt_calls *cublaslt_library(struct muster_error *err)
{
    static struct cublaslt_calls calls;
    static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
    int status;
    (void)pthread_mutex_lock(&loading); /* a plain mutex, and locked once: it cannot fail */
    status = cuda_library_open(&library, &calls, sizeof calls, NULL, err);
    (void)pthread_mutex_unlock(&loading);
    return status == 0 ? &calls : NULL;
}

static enum muster_error_code cublaslt_error_code(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
        return MUSTER_E_NOMEM;
    case CUBLAS_STATUS_INVALID_VALUE:
        return MUSTER_E_INVALID;
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return MUSTER_E_UNSUPPORTED;
    default:
        return MUSTER_E_STATE;
    }
}

int cublaslt_error(struct muster_error *err, const struct cublaslt_calls *calls, cublasStatus_t status,
                   const char *operation, const char *function)
{
    return error_set(err, cublaslt_error_code(status), "%s: %s: %s", operation, function,
                     calls->status_name(status));
}
