/* cuda_stream.h - a CUDA device's stream as kernels see it: the `stream` argument of struct kernels.
 *
 * A slot of struct kernels returns nothing, so an operation that cannot be enqueued calls `fail`, which keeps
 * the device's first error; poll_error and sync of device.h report it. The work of a stream that has failed
 * is lost: later operations may be enqueued and their results mean nothing.
 *
 * The device (device_cuda.c) owns handles: one a stream, at a fixed address from stream_create to
 * stream_destroy, filled before the first kernel. This header needs no CUDA header. */
#ifndef MUSTER_RUNTIME_CUDA_CUDA_STREAM_H
#define MUSTER_RUNTIME_CUDA_CUDA_STREAM_H

#include <stdbool.h>

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct device;
struct cuda_products;

struct cuda_stream_handle {
    struct CUstream_st *stream; /* a cudaStream_t */
    /* Products of a stream that computes, from cuda_products_open (products.h): workspace, algorithms,
     * scratch memory. NULL: copies, casts and sums run here, linear_* and norm_squared are refused. */
    struct cuda_products *products;
    struct device *device;
    void (*fail)(struct device *device, const struct muster_error *error); /* any thread; keeps the first */
    /* Before an operation is enqueued: its name, a text that stays, for errors that come later than their
     * cause. */
    void (*note)(const struct cuda_stream_handle *handle, const char *operation);
    /* How many multiprocessors a product may count on; 0, or NULL: all of them. */
    int (*multiprocessors)(const struct cuda_stream_handle *handle);
};

#ifdef __cplusplus
}
#endif
#endif
