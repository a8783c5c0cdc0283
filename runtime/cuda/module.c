/* module.c - what libmuster_cuda.so offers. */
#include "runtime/cuda/module.h"

#include "runtime/cuda/comm_nccl.h"
#include "runtime/cuda/device_cuda.h"
#include "runtime/cuda/kernels_cuda.h"
#include "runtime/cuda/nccl_library.h"

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

const struct muster_cuda_module *muster_cuda_module(void)
{
    static struct muster_cuda_module module = {
        .abi = MUSTER_CUDA_ABI,
        .size = sizeof module,
        .version = TEXT(CUDART_VERSION),
        .probe = device_cuda_probe,
        .locate = device_cuda_locate,
        .facts = device_cuda_facts,
        .probe_nccl = nccl_library_probe,
        .kernels = kernels_described,
    };
    module.device = device_cuda();
    module.comm_nccl = comm_nccl();
    return &module;
}
