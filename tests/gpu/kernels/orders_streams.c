/* orders_streams.c - work of two streams, the second of which waits for the first one's event: with the wait
 * a fake stream orders its work for the thread sanitizer too, and without it (tests/gpu/planted) nothing
 * does, in whatever order the work happens to run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "tests/gpu/kernels/orders.h"

enum { BYTES_MOVED = 4096, VALUE = 0x5a };

static void streams_must(cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return;
    fprintf(stderr, "wrong: %s: %s\n", what, cudaGetErrorString(status));
    exit(1);
}
#define MUST(call) streams_must(call, #call)

static void two_streams(void)
{
    cudaStream_t first, second;
    cudaEvent_t filled;
    char *from, *to, *host;
    MUST(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
    MUST(cudaMalloc((void **)&from, BYTES_MOVED));
    MUST(cudaMalloc((void **)&to, BYTES_MOVED));
    MUST(cudaHostAlloc((void **)&host, BYTES_MOVED, cudaHostAllocPortable));
    MUST(cudaMemsetAsync(from, VALUE, BYTES_MOVED, first));
    MUST(cudaEventRecord(filled, first));
    MUST(cudaStreamWaitEvent(second, filled, cudaEventWaitDefault));
    MUST(cudaMemcpyAsync(to, from, BYTES_MOVED, cudaMemcpyDeviceToDevice, second));
    MUST(cudaMemcpyAsync(host, to, BYTES_MOVED, cudaMemcpyDeviceToHost, second));
    MUST(cudaStreamSynchronize(second));
    int wrong = 0;
    for (int i = 0; i < BYTES_MOVED; i++)
        wrong += host[i] != VALUE;
    MUST(cudaStreamSynchronize(first)); /* both have run then: the sanitizer has seen both */
    if (wrong) {
        fprintf(stderr, "wrong: streams: %d bytes\n", wrong);
        exit(1);
    }
    MUST(cudaFree(from));
    MUST(cudaFree(to));
    MUST(cudaFreeHost(host));
    MUST(cudaEventDestroy(filled));
    MUST(cudaStreamDestroy(first));
    MUST(cudaStreamDestroy(second));
}

void orders_streams(void (*run)(const char *name, void (*test)(void)))
{
    run("streams", two_streams);
}
