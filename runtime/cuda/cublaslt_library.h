/* cublaslt_library.h - the functions of cuBLASLt that products use, loaded at run time. */
#ifndef MUSTER_RUNTIME_CUDA_CUBLASLT_LIBRARY_H
#define MUSTER_RUNTIME_CUDA_CUBLASLT_LIBRARY_H

#include <cublasLt.h>

#include "proto/include/muster_error.h"

/* member of struct cublaslt_calls, the library's function, since which version (0: always) */
#define CUBLASLT_FUNCTIONS(X)                                                                                \
    X(get_version, cublasLtGetVersion, 0)                                                                    \
    X(status_name, cublasLtGetStatusName, 110400)                                                            \
    X(create, cublasLtCreate, 0)                                                                             \
    X(destroy, cublasLtDestroy, 0)                                                                           \
    X(desc_create, cublasLtMatmulDescCreate, 0)                                                              \
    X(desc_destroy, cublasLtMatmulDescDestroy, 0)                                                            \
    X(desc_set, cublasLtMatmulDescSetAttribute, 0)                                                           \
    X(layout_create, cublasLtMatrixLayoutCreate, 0)                                                          \
    X(layout_destroy, cublasLtMatrixLayoutDestroy, 0)                                                        \
    X(preference_create, cublasLtMatmulPreferenceCreate, 0)                                                  \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy, 0)                                                \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute, 0)                                               \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic, 0)                                                          \
    X(matmul, cublasLtMatmul, 0)

struct cublaslt_calls {
#define CUBLASLT_MEMBER(member, function, since) __typeof__(&(function)) member;
    CUBLASLT_FUNCTIONS(CUBLASLT_MEMBER)
#undef CUBLASLT_MEMBER
};

/* The library's functions, loaded by the first call; NULL with err where it is missing or too old. Any thread
 * may call. */
const struct cublaslt_calls *cublaslt_library(struct muster_error *err);

/* err = "<operation>: <function>: <the library's name of status>"; returns -1. */
int cublaslt_error(struct muster_error *err, const struct cublaslt_calls *calls, cublasStatus_t status,
                   const char *operation, const char *function);

#endif
