/* launch.h - how kernels are launched and how they ask for shared memory whose size is known at the launch.
 *
 * One macro for two compilers: nvcc, and a C++ compiler with tests/gpu/emulator/cuda_emulated.h included
 * before every file (CUDA_EMULATED is defined then), which runs the same sources on a CPU. */
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_H
#define MUSTER_KERNELS_CUDA_LAUNCH_H

#include "kernels/cuda/check.h"

/* In a function that returns int and has err: enqueues kernel(arguments...) on `stream` (a void * or
 * cudaStream_t), `grid` blocks of `block` threads (numbers or dim3) with `shared` bytes of dynamic shared
 * memory; a launch that is refused is an error that names the operation, and -1 is returned. Arguments are
 * evaluated now and passed by value. A kernel that is a template with two parameters or more needs a name
 * without a comma: a pointer to it. */
#ifndef CUDA_EMULATED
#define CUDA_LAUNCH(operation, err, kernel, grid, block, shared, stream, ...)                                \
    do {                                                                                                     \
        kernel<<<(grid), (block), (shared), (cudaStream_t)(stream)>>>(__VA_ARGS__);                          \
        CUDA_CHECK(operation, cudaGetLastError(), err);                                                      \
    } while (0)
#else
#define CUDA_LAUNCH(operation, err, kernel, grid, block, shared, stream, ...)                                \
    do {                                                                                                     \
        emu_launch(                                                                                          \
            operation, #kernel, (grid), (block), (shared), (cudaStream_t)(stream),                           \
            [=](auto... argument) { kernel(argument...); }, __VA_ARGS__);                                    \
        CUDA_CHECK(operation, cudaGetLastError(), err);                                                      \
    } while (0)
#endif

/* The same for a kernel that wants more than 48 KiB of dynamic shared memory: it is allowed them first. At
 * most 99 KiB (64 on sm_75). */
#ifndef CUDA_EMULATED
#define CUDA_ALLOW_SHARED(kernel, bytes)                                                                     \
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes))
#else
#define CUDA_ALLOW_SHARED(kernel, bytes) emu_allow_shared(bytes)
#endif
#define CUDA_LAUNCH_LARGE(operation, err, kernel, grid, block, shared, stream, ...)                          \
    do {                                                                                                     \
        CUDA_CHECK(operation, CUDA_ALLOW_SHARED(kernel, shared), err);                                       \
        CUDA_LAUNCH(operation, err, kernel, grid, block, shared, stream, __VA_ARGS__);                       \
    } while (0)

/* In a kernel: `name` is a pointer to the launch's dynamic shared memory, aligned to 16 bytes. */
#ifndef CUDA_EMULATED
#define CUDA_DYNAMIC_SHARED(type, name)                                                                      \
    extern __shared__ __align__(16) unsigned char cuda_dynamic_shared[];                                     \
    type *name = reinterpret_cast<type *>(cuda_dynamic_shared)
#else
#define CUDA_DYNAMIC_SHARED(type, name) type *name = reinterpret_cast<type *>(emu_dynamic_shared())
#endif

#endif
