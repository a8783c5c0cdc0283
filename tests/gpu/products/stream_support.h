/* stream_support.h - a stream with products, as the CUDA device makes them, for tests without the device. */
#ifndef MUSTER_TESTS_GPU_STREAM_SUPPORT_H
#define MUSTER_TESTS_GPU_STREAM_SUPPORT_H

#include <string.h>

#include "runtime/cuda/cuda_stream.h"
#include "runtime/cuda/products.h"
#include "tests/unit/kernels/kernels_cuda_support.h"

static struct muster_error stream_failure; /* the first that was passed to fail */

static inline void stream_fail(struct device *device, const struct muster_error *error)
{
    (void)device;
    if (!stream_failure.code)
        stream_failure = *error;
}

/* One for the whole program. */
static inline cudaStream_t stream_of_tests(void)
{
    static cudaStream_t stream;
    if (!stream)
        CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static inline void stream_open(struct cuda_stream_handle *handle, bool products, bool tf32)
{
    struct muster_error err = {0};
    memset(&stream_failure, 0, sizeof stream_failure);
    *handle = (struct cuda_stream_handle){.stream = stream_of_tests(), .fail = stream_fail};
    if (products && cuda_products_open(handle, tf32, &err) != 0)
        fail_msg("%s", err.text);
}

static inline void stream_close(struct cuda_stream_handle *handle)
{
    CUDA_OK(cudaStreamSynchronize(handle->stream));
    cuda_products_close(handle);
}

/* All enqueued work is done, and nothing was refused. */
static inline void stream_done(const struct cuda_stream_handle *handle)
{
    if (stream_failure.code)
        fail_msg("%s", stream_failure.text);
    CUDA_OK(cudaStreamSynchronize(handle->stream));
}

#endif
