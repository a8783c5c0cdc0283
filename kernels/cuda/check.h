/* check.h - CUDA's status codes become our errors here and nowhere else.
 *
 * A status is passed as int (it is a cudaError_t), so that this header needs no CUDA to be read. The macros
 * are for functions that return int and have `err`; they name the operation and return -1 from the function.
 * An asynchronous fault of an earlier kernel is reported by the next call, whichever it is: an error names
 * the operation that met the fault, not the operation that caused it. */
#ifndef MUSTER_KERNELS_CUDA_CHECK_H
#define MUSTER_KERNELS_CUDA_CHECK_H

#include "proto/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pure: which of our codes a status other than cudaSuccess has. */
enum muster_error_code cuda_error_code(int status);

/* Fills err (may be NULL) with "<operation>: <CUDA's name>: <CUDA's text>" and, where known, the way
 * out. Takes the error off the thread, so that the next launch does not report it again. A lasting error,
 * such as a broken context, comes back. Returns -1. */
int cuda_error(struct muster_error *err, int status, const char *operation);

#ifdef __cplusplus
}
#endif

/* Every call of the CUDA runtime is wrapped in CUDA_CHECK. */
#define CUDA_CHECK(operation, call, err)                                                                     \
    do {                                                                                                     \
        int cuda_check_status = (int)(call);                                                                 \
        if (cuda_check_status != 0)                                                                          \
            return cuda_error(err, cuda_check_status, operation);                                            \
    } while (0)

/* Before any launch: a size below 0 would wrap in the grid. */
#define CUDA_CHECK_SIZE(operation, size, err)                                                                \
    do {                                                                                                     \
        if ((size) < 0)                                                                                      \
            return error_set(err, MUSTER_E_INVALID, "%s: " #size " is %lld; it must be 0 or more",           \
                             operation, (long long)(size));                                                  \
    } while (0)

/* Before any launch: rows of `width` elements whose distance is shorter would overlap. */
#define CUDA_CHECK_ROW(operation, row, width, err)                                                           \
    do {                                                                                                     \
        if ((row) < (width))                                                                                 \
            return error_set(err, MUSTER_E_INVALID,                                                          \
                             "%s: rows of %lld elements are %lld apart; it must be %lld or more", operation, \
                             (long long)(width), (long long)(row), (long long)(width));                      \
    } while (0)

/* Before any launch: an optimizer's class is an index into step_scalars. */
#define CUDA_CHECK_CLASS(operation, parameter_class, err)                                                    \
    do {                                                                                                     \
        const int cuda_classes = sizeof(((struct step_scalars *)0)->learning_rate) / sizeof(double);         \
        if ((parameter_class) < 0 || (parameter_class) >= cuda_classes)                                      \
            return error_set(err, MUSTER_E_INVALID, "%s: parameter_class is %d; it must be 0 to %d",         \
                             operation, parameter_class, cuda_classes - 1);                                  \
    } while (0)

#endif
