/* kernels_enqueue.h - how a slot of a table of kernels enqueues its operation. */
#ifndef MUSTER_RUNTIME_CUDA_KERNELS_ENQUEUE_H
#define MUSTER_RUNTIME_CUDA_KERNELS_ENQUEUE_H

#include "kernels/kernels.h"
#include "runtime/cuda/cuda_stream.h"

/* In a slot, whose last argument is `stream`: `call` uses handle, the stream's handle, `queue`, its CUDA
 * stream, and err, and returns -1 where it failed. */
#define ENQUEUE(call)                                                                                        \
    do {                                                                                                     \
        const struct cuda_stream_handle *handle = stream;                                                    \
        struct CUstream_st *queue = handle->stream;                                                          \
        struct muster_error enqueue_error;                                                                   \
        struct muster_error *err = &enqueue_error;                                                           \
        (void)queue; /* products do not use it */                                                            \
        if (handle->note)                                                                                    \
            handle->note(handle, __func__ + sizeof "enqueue_" - 1);                                          \
        if ((call) != 0)                                                                                     \
            handle->fail(handle->device, err);                                                               \
    } while (0)

extern const struct kernels_compress kernels_compress_cuda; /* kernels_compress.c */

#endif
