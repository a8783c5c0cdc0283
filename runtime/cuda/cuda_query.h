/* cuda_query.h - questions to CUDA whether work is done. "Not yet" (cudaErrorNotReady) is an answer, but CUDA
 * keeps it as the thread's last error too, and the next launch would be blamed for it. */
#ifndef MUSTER_RUNTIME_CUDA_CUDA_QUERY_H
#define MUSTER_RUNTIME_CUDA_CUDA_QUERY_H

#include <cuda_runtime_api.h>

/* status: result of cudaStreamQuery or cudaEventQuery, which is returned. "Not yet" is then no error of the
 * thread any more. */
static inline cudaError_t cuda_query(cudaError_t status)
{
    if (status == cudaErrorNotReady)
        (void)cudaGetLastError(); /* takes "not yet" off the thread */
    return status;
}

#endif
