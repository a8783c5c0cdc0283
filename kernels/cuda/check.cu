/* check.cu - CUDA's status codes and their codes and hints in struct muster_error. */
#include "kernels/cuda/check.h"

#include <cuda_runtime.h>

struct status_meaning {
    cudaError_t status;
    enum muster_error_code code;
    const char *way_out; /* "" where CUDA's own text says it */
};

static const struct status_meaning meanings[] = {
    {cudaErrorInvalidValue, MUSTER_E_INVALID, ""},
    {cudaErrorInvalidConfiguration, MUSTER_E_INVALID, ""},
    {cudaErrorInvalidResourceHandle, MUSTER_E_INVALID, "; the stream belongs to another device"},
    {cudaErrorMemoryAllocation, MUSTER_E_NOMEM, ""},
    {cudaErrorLaunchOutOfResources, MUSTER_E_NOMEM, ""},
    {cudaErrorNoDevice, MUSTER_E_UNSUPPORTED, "; see nvidia-smi and CUDA_VISIBLE_DEVICES"},
    {cudaErrorInsufficientDriver, MUSTER_E_UNSUPPORTED, "; install or update the NVIDIA driver"},
    {cudaErrorNoKernelImageForDevice, MUSTER_E_UNSUPPORTED,
     "; rebuild with this GPU's architecture in CMAKE_CUDA_ARCHITECTURES"},
    {cudaErrorInitializationError, MUSTER_E_STATE, ""},
    {cudaErrorCudartUnloading, MUSTER_E_STATE, ""},
    {cudaErrorStreamCaptureUnsupported, MUSTER_E_STATE, ""},
    /* After these the process can do nothing more on the device. */
    {cudaErrorIllegalAddress, MUSTER_E_STATE, "; an earlier kernel broke the context, restart the process"},
    {cudaErrorMisalignedAddress, MUSTER_E_STATE,
     "; an earlier kernel broke the context, restart the process"},
    {cudaErrorLaunchFailure, MUSTER_E_STATE, "; an earlier kernel broke the context, restart the process"},
    {cudaErrorAssert, MUSTER_E_STATE, "; an earlier kernel broke the context, restart the process"},
    {cudaErrorLaunchTimeout, MUSTER_E_TIMEOUT,
     "; the display's watchdog ended a kernel, restart the process"},
};

static const struct status_meaning *meaning_of(int status)
{
    for (const struct status_meaning &meaning : meanings)
        if ((int)meaning.status == status)
            return &meaning;
    return nullptr;
}

extern "C" enum muster_error_code cuda_error_code(int status)
{
    const struct status_meaning *meaning = meaning_of(status);
    return meaning ? meaning->code : MUSTER_E_IO;
}

extern "C" int cuda_error(struct muster_error *err, int status, const char *operation)
{
    const struct status_meaning *meaning = meaning_of(status);
    cudaError_t error = (cudaError_t)status;
    (void)cudaGetLastError(); /* else the thread's next launch is blamed for it, where this error is not
                                 passed on */
    return error_set(err, cuda_error_code(status), "%s: %s: %s%s", operation, cudaGetErrorName(error),
                     cudaGetErrorString(error), meaning ? meaning->way_out : "");
}
