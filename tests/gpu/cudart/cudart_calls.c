/* cudart_calls.c - see cudart_calls.h. Arguments of a call are made by other functions, whose statuses are of
 * no interest: the call fails then. */
#include "tests/gpu/cudart/cudart_calls.h"

#include <stdlib.h>

enum { BYTES = 256 };

static cudaStream_t stream;
static cudaEvent_t events[2]; /* timed, recorded and reached */
static void *device, *pinned;
static char own[BYTES];
static cudaGraph_t graph;
static cudaGraphExec_t executable;

void cudart_calls_begin(void)
{
    if (cudaStreamCreate(&stream) || cudaEventCreate(&events[0]) || cudaEventCreate(&events[1]) ||
        cudaMalloc(&device, BYTES) || cudaHostAlloc(&pinned, BYTES, cudaHostAllocPortable) ||
        cudaMemset(device, 0, BYTES) || cudaEventRecord(events[0], stream) ||
        cudaEventRecord(events[1], stream) || cudaStreamSynchronize(stream) ||
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) ||
        cudaMemsetAsync(device, 0, BYTES, stream) || cudaStreamEndCapture(stream, &graph) ||
        cudaGraphInstantiate(&executable, graph, 0))
        abort();
}

void *cudart_calls_memory(void)
{
    return device;
}

static void do_nothing(void *argument)
{
    (void)argument;
}

static cudaError_t begin_capture(void)
{
    cudaGraph_t recorded = NULL;
    const cudaError_t status = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (status == cudaSuccess && cudaStreamEndCapture(stream, &recorded) == cudaSuccess)
        (void)cudaGraphDestroy(recorded);
    return status;
}

static cudaError_t end_capture(cudaGraph_t *recorded)
{
    (void)cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    const cudaError_t status = cudaStreamEndCapture(stream, recorded);
    if (status != cudaSuccess)
        (void)cudaStreamEndCapture(stream, recorded);
    return status;
}

static cudaError_t destroy_graph(void)
{
    cudaGraph_t recorded = NULL;
    (void)end_capture(&recorded);
    return cudaGraphDestroy(recorded);
}

static cudaError_t destroy_executable(void)
{
    cudaGraphExec_t made = NULL;
    (void)cudaGraphInstantiate(&made, graph, 0);
    return cudaGraphExecDestroy(made);
}

#define CALL(name, call)                                                                                     \
    static cudaError_t make_##name(void)                                                                     \
    {                                                                                                        \
        int number = 0, other = 0;                                                                           \
        unsigned flags = 0;                                                                                  \
        float ms = 0;                                                                                        \
        size_t bytes = 0, all = 0;                                                                           \
        void *memory = NULL;                                                                                 \
        cudaStream_t made_stream = NULL;                                                                     \
        cudaEvent_t made_event = NULL;                                                                       \
        cudaGraph_t recorded = NULL;                                                                         \
        cudaGraphExec_t made = NULL;                                                                         \
        enum cudaStreamCaptureStatus capture;                                                                \
        struct cudaDeviceProp properties;                                                                    \
        struct cudaPointerAttributes attributes;                                                             \
        (void)number, (void)flags, (void)other, (void)ms, (void)bytes, (void)all, (void)memory,              \
            (void)made_stream;                                                                               \
        (void)made_event, (void)properties, (void)attributes, (void)recorded, (void)made, (void)capture;     \
        return (call);                                                                                       \
    }
/* function, its call */
#define CALLS(X)                                                                                             \
    X(cudaDriverGetVersion, cudaDriverGetVersion(&number))                                                   \
    X(cudaRuntimeGetVersion, cudaRuntimeGetVersion(&number))                                                 \
    X(cudaGetDeviceCount, cudaGetDeviceCount(&number))                                                       \
    X(cudaSetDevice, cudaSetDevice(0))                                                                       \
    X(cudaGetDevice, cudaGetDevice(&number))                                                                 \
    X(cudaGetDeviceProperties, cudaGetDeviceProperties(&properties, 0))                                      \
    X(cudaDeviceGetAttribute, cudaDeviceGetAttribute(&number, cudaDevAttrMultiProcessorCount, 0))            \
    X(cudaDeviceGetStreamPriorityRange, cudaDeviceGetStreamPriorityRange(&number, &other))                   \
    X(cudaDeviceSynchronize, cudaDeviceSynchronize())                                                        \
    X(cudaStreamCreate, cudaStreamCreate(&made_stream))                                                      \
    X(cudaStreamCreateWithFlags, cudaStreamCreateWithFlags(&made_stream, cudaStreamNonBlocking))             \
    X(cudaStreamCreateWithPriority, cudaStreamCreateWithPriority(&made_stream, cudaStreamNonBlocking, 0))    \
    X(cudaStreamDestroy, (cudaStreamCreate(&made_stream), cudaStreamDestroy(made_stream)))                   \
    X(cudaStreamQuery, cudaStreamQuery(stream))                                                              \
    X(cudaStreamGetPriority, cudaStreamGetPriority(stream, &number))                                         \
    X(cudaStreamGetFlags, cudaStreamGetFlags(stream, &flags))                                                \
    X(cudaStreamSynchronize, cudaStreamSynchronize(stream))                                                  \
    X(cudaStreamWaitEvent, cudaStreamWaitEvent(stream, events[0], cudaEventWaitDefault))                     \
    X(cudaLaunchHostFunc, cudaLaunchHostFunc(NULL, do_nothing, NULL))                                        \
    X(cudaEventCreate, cudaEventCreate(&made_event))                                                         \
    X(cudaEventCreateWithFlags, cudaEventCreateWithFlags(&made_event, cudaEventDisableTiming))               \
    X(cudaEventDestroy, (cudaEventCreate(&made_event), cudaEventDestroy(made_event)))                        \
    X(cudaEventRecord, (cudaEventCreate(&made_event), cudaEventRecord(made_event, NULL)))                    \
    X(cudaEventQuery, cudaEventQuery(events[0]))                                                             \
    X(cudaEventSynchronize, cudaEventSynchronize(events[0]))                                                 \
    X(cudaEventElapsedTime, cudaEventElapsedTime(&ms, events[0], events[1]))                                 \
    X(cudaMalloc, cudaMalloc(&memory, BYTES))                                                                \
    X(cudaFree, (cudaMalloc(&memory, BYTES), cudaFree(memory)))                                              \
    X(cudaHostAlloc, cudaHostAlloc(&memory, BYTES, cudaHostAllocPortable))                                   \
    X(cudaMallocHost, cudaMallocHost(&memory, BYTES))                                                        \
    X(cudaFreeHost, (cudaMallocHost(&memory, BYTES), cudaFreeHost(memory)))                                  \
    X(cudaMemGetInfo, cudaMemGetInfo(&bytes, &all))                                                          \
    X(cudaPointerGetAttributes, cudaPointerGetAttributes(&attributes, device))                               \
    X(cudaMemcpyAsync, cudaMemcpyAsync(device, pinned, BYTES, cudaMemcpyHostToDevice, NULL))                 \
    X(cudaMemcpy, cudaMemcpy(device, own, BYTES, cudaMemcpyHostToDevice))                                    \
    X(cudaMemsetAsync, cudaMemsetAsync(device, 0, BYTES, NULL))                                              \
    X(cudaMemset, cudaMemset(device, 0, BYTES))                                                              \
    X(cudaStreamBeginCapture, begin_capture())                                                               \
    X(cudaStreamEndCapture, end_capture(&recorded))                                                          \
    X(cudaStreamIsCapturing, cudaStreamIsCapturing(stream, &capture))                                        \
    X(cudaGraphInstantiate, cudaGraphInstantiate(&made, graph, 0))                                           \
    X(cudaGraphLaunch, cudaGraphLaunch(executable, stream))                                                  \
    X(cudaGraphDestroy, destroy_graph())                                                                     \
    X(cudaGraphExecDestroy, destroy_executable())

CALLS(CALL)

const struct cudart_call cudart_call_rows[] = {
#define ROW(name, call) {#name, make_##name},
    CALLS(ROW)
#undef ROW
};
const int cudart_call_count = sizeof cudart_call_rows / sizeof *cudart_call_rows;
