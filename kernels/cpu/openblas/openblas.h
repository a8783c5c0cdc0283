/* openblas.h - OpenBLAS, which is loaded where the first CPU device is made. */
#ifndef MUSTER_KERNELS_CPU_OPENBLAS_OPENBLAS_H
#define MUSTER_KERNELS_CPU_OPENBLAS_OPENBLAS_H

#include <cblas.h>
#include <stdbool.h>

#include "proto/include/muster_error.h"

/* OpenBLAS's own functions. The last two are there where it is built for many processors (DYNAMIC_ARCH): it
 * forgets its choice of kernels, and chooses, which it does by OPENBLAS_CORETYPE first. */
struct openblas {
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(openblas_get_config) *config;
    __typeof__(openblas_get_corename) *corename;
    __typeof__(openblas_get_parallel) *parallel;
    __typeof__(openblas_set_num_threads) *set_threads;
    void (*forget)(void); /* NULL: built for one processor */
    void (*choose)(void);
};

/* Loads the library, once a process. NULL: MUSTER_E_NOT_FOUND where it is absent or another library has its
 * name, MUSTER_E_NOMEM where a limit of address space (ulimit -v) leaves too little, MUSTER_E_UNSUPPORTED
 * where it is not the OpenMP build. Any thread may call it. */
const struct openblas *openblas_open(struct muster_error *err);

/* Whether a build may be used: parallel is openblas_get_parallel's answer. MUSTER_E_UNSUPPORTED. */
int openblas_check_build(int parallel, const char *config, struct muster_error *err);

/* out (rows, columns) = a b + beta out, in row-major order; a_transposed: a is (depth, rows). On the calling
 * thread alone. In plain loops where the library could not be loaded. */
void openblas_f32(bool a_transposed, bool b_transposed, int rows, int columns, int depth, const float *a,
                  int a_stride, const float *b, int b_stride, float beta, float *out, int out_stride);

#endif
