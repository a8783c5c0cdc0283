/* kernels_compress.c - struct kernels_compress of a CUDA device. */
#include "kernels/cuda/operations.h"
#include "runtime/cuda/kernels_enqueue.h"

#define COMPRESSION(name, parameters, arguments)                                                             \
    static void enqueue_##name(KERNELS_EACH parameters, void *stream)                                        \
    {                                                                                                        \
        ENQUEUE(cuda_##name(KERNELS_EACH arguments, queue, err));                                            \
    }
#include "kernels/operations.inc"

const struct kernels_compress kernels_compress_cuda = {
#define COMPRESSION(name, parameters, arguments) .name = enqueue_##name,
#define COMPRESSION_WORK(name)                   .name = cuda_##name,
#include "kernels/operations.inc"
};
