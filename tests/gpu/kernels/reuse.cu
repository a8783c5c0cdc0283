/* reuse.cu - a kernel for the tests alone: device.cuh's sums and maxima of a block, one after the other with
 * the same shared memory, as their contract allows and no operation does yet. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "tests/gpu/kernels/reuse.h"

static __global__ void reuse_kernel(float *sums, float *maxima, const float *in, int rows, int width)
{
    __shared__ float shared[CUDA_BLOCK_LARGEST / CUDA_WARP];
    for (int row = 0; row < rows; row++) {
        float value = (int)threadIdx.x < width ? in[row * width + (int)threadIdx.x] : 0.0f;
        float sum = block_sum(value, shared);
        if (threadIdx.x == 0)
            sums[row] = sum;
    }
    for (int row = 0; row < rows; row++) {
        float value = (int)threadIdx.x < width ? in[row * width + (int)threadIdx.x] : 0.0f;
        float largest = block_max(value, shared);
        if (threadIdx.x == 0)
            maxima[row] = largest;
    }
}

extern "C" int reuse_rows(void *sums, void *maxima, const void *in, int rows, int width,
                          struct muster_error *err)
{
    CUDA_LAUNCH("reuse_rows", err, reuse_kernel, 1, cuda_grid_block_rows(1, width).threads, 0, NULL,
                (float *)sums, (float *)maxima, (const float *)in, rows, width);
    return 0;
}
