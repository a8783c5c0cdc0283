/* cudart_calls.h - one call of each function of the CUDA runtime that the fake has and that can fail: for
 * tests of what holds for all of them. */
#ifndef MUSTER_TESTS_GPU_CUDART_CALLS_H
#define MUSTER_TESTS_GPU_CUDART_CALLS_H

#include <cuda_runtime_api.h>

struct cudart_call {
    const char *function;
    cudaError_t (*make)(void); /* its status; succeeds as often as it is called */
};
extern const struct cudart_call cudart_call_rows[];
extern const int cudart_call_count;

/* Makes the calls' arguments: a stream, events, memory. Once, before the first call. */
void cudart_calls_begin(void);
void *cudart_calls_memory(void); /* the device's, some bytes */

#endif
