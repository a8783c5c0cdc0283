/* kernels_cuda_support.h - shared by the tests of the CUDA operations: device memory of exactly the data's
 * size, for compute-sanitizer, and comparisons with it. */
#ifndef MUSTER_TESTS_KERNELS_CUDA_SUPPORT_H
#define MUSTER_TESTS_KERNELS_CUDA_SUPPORT_H

#include <cuda_runtime_api.h>
#include <stdio.h>

#include "kernels/cuda/operations.h"
#include "tests/support/cmocka_all.h"
#include "tests/unit/kernels/kernels_support.h"

static inline void cuda_ok(cudaError_t status, const char *what)
{
    if (status != cudaSuccess)
        fail_msg("%s: %s: %s", what, cudaGetErrorName(status), cudaGetErrorString(status));
}
#define CUDA_OK(call) cuda_ok((call), #call)

static struct muster_error failed __attribute__((unused));
/* An operation was enqueued: checks its status, then its result on the device. */
#define ENQUEUED(call)                                                                                       \
    do {                                                                                                     \
        if ((call) != 0)                                                                                     \
            fail_msg("%s", failed.text);                                                                     \
        CUDA_OK(cudaDeviceSynchronize());                                                                    \
    } while (0)

static inline void device_free(void *pointer)
{
    CUDA_OK(cudaFree(*(void **)pointer));
}
#define scope_device __attribute__((cleanup(device_free)))

/* A copy of `size` bytes on the device, not NULL even for none. */
static inline void *device_copy(const void *from, size_t size)
{
    void *memory = NULL;
    CUDA_OK(cudaMalloc(&memory, size ? size : 1));
    if (size)
        CUDA_OK(cudaMemcpy(memory, from, size, cudaMemcpyHostToDevice));
    return memory;
}

static inline void *device_floats(const float *from, size_t n)
{
    return device_copy(from, n * sizeof *from);
}

static inline void fetch(void *to, const void *from, size_t size)
{
    if (size)
        CUDA_OK(cudaMemcpy(to, from, size, cudaMemcpyDeviceToHost));
}

/* floats_close for values on the device. */
static inline void assert_close(const char *what, const void *device, const float *expected, size_t n,
                                double absolute, double relative)
{
    scope_memory float *got = floats_new(n, FILL_CONSTANT);
    fetch(got, device, n * sizeof *got);
    assert_true(floats_close(what, got, expected, n, absolute, relative));
}

/* One element more than the grid's cap has threads, so that threads stride. */
static const size_t element_counts[]
    __attribute__((unused)) = {0, 1, 31, 32, 33, 255, 257, 20001, 4096 * 256 + 1};
enum { ELEMENT_COUNTS = sizeof element_counts / sizeof element_counts[0] };

/* Why there is no GPU to test on; NULL: there is one. */
static inline const char *gpu_missing(void)
{
    int devices = 0;
    cudaError_t status = cudaGetDeviceCount(&devices);
    if (status != cudaSuccess)
        return cudaGetErrorString(status);
    return devices == 0 ? "0 devices" : NULL;
}

#endif
