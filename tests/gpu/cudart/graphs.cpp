/* graphs.cpp - the work of one stream recorded and launched again. Stricter than CUDA: what is recorded is
 * kernels, copies and fills of one stream, by its own thread; any other call of that thread, and any call of
 * another one on that stream, breaks the recording. Only thread-local recording is known, and no update. */
#include <cstdio>
#include <cstring>
#include <set>
#include <vector>

#include "tests/gpu/cudart/fake_internal.h"

/* One piece of work that may run many times; its argument is disposed of at the end. */
struct graph_node {
    const char *what;
    void (*run)(void *);
    void (*dispose)(void *);
    void *argument;
    ~graph_node()
    {
        if (dispose)
            dispose(argument);
    }
};

struct CUgraph_st {
    std::vector<std::shared_ptr<struct graph_node>> nodes;
};

struct CUgraphExec_st {
    std::vector<std::shared_ptr<struct graph_node>> nodes;
    int device;
};

/* For a stream while it records. */
struct fake_capture {
    CUgraph_st *graph;
    std::thread::id thread;
    bool broken;
};

static std::set<CUgraph_st *> &graphs()
{
    static auto *const all = new std::set<CUgraph_st *>; /* what is left is not lost at exit */
    return *all;
}
static std::set<CUgraphExec_st *> &executables()
{
    static auto *const all = new std::set<CUgraphExec_st *>;
    return *all;
}
static thread_local CUstream_st *recording; /* by this thread; one at a time */

bool fake_capture_takes(struct CUstream_st *stream, const struct fake_work &work)
{
    if (!stream->capture)
        return false;
    stream->capture->graph->nodes.emplace_back(
        new graph_node{work.what, work.run, work.dispose, work.argument});
    return true;
}

cudaError_t fake_break_capture(struct CUstream_st *stream, const char *function)
{
    if (!stream->capture)
        return cudaSuccess;
    fake_complain("%s on a stream that is recording", function);
    stream->capture->broken = true;
    return fake_cudart_fail(cudaErrorStreamCaptureUnsupported);
}

/* What the thread that records may call in the meantime. */
static bool is_recordable(const char *function)
{
    static const char *const functions[] = {"cudaMemcpyAsync",      "cudaMemsetAsync",
                                            "cudaGetDevice",        "cudaSetDevice",
                                            "cudaStreamEndCapture", "cudaStreamIsCapturing"};
    for (const char *other : functions)
        if (!strcmp(other, function))
            return true;
    return false;
}

cudaError_t fake_check_recording(const char *function)
{
    if (!recording || is_recordable(function))
        return cudaSuccess;
    fake_locked held;
    return fake_break_capture(recording, function);
}

extern "C" int fake_cudart_records(cudaStream_t stream)
{
    fake_locked held;
    const struct CUstream_st *s = stream ? fake_stream(stream) : nullptr;
    return s && s->capture;
}

void fake_graphs_report(FILE *file)
{
    fprintf(file, "leaked_graphs %zu\n", graphs().size() + executables().size());
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    FAKE_ENTER_DEVICE("cudaStreamBeginCapture", cudaErrorIllegalState);
    fake_locked held;
    struct CUstream_st *s = stream ? fake_stream(stream) : nullptr;
    if (!s || s->device != fake_device())
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    if (s->capture || recording)
        return fake_cudart_fail(cudaErrorIllegalState);
    if (mode != cudaStreamCaptureModeThreadLocal) {
        fake_complain("recording of mode %d: another thread's questions would break it", (int)mode);
        return fake_cudart_fail(cudaErrorNotSupported);
    }
    s->capture = new fake_capture{new CUgraph_st, std::this_thread::get_id(), false};
    recording = s;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    FAKE_ENTER("cudaStreamEndCapture", cudaErrorIllegalState);
    *graph = nullptr;
    fake_locked held;
    struct CUstream_st *s = stream ? fake_stream(stream) : nullptr;
    if (!s || !s->capture)
        return fake_cudart_fail(cudaErrorIllegalState);
    if (s->capture->thread != std::this_thread::get_id())
        return fake_cudart_fail(cudaErrorStreamCaptureWrongThread);
    const std::unique_ptr<fake_capture> capture(s->capture);
    s->capture = nullptr;
    recording = nullptr;
    if (capture->broken) {
        delete capture->graph;
        return fake_cudart_fail(cudaErrorStreamCaptureInvalidated);
    }
    *graph = capture->graph;
    graphs().insert(capture->graph);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    FAKE_ENTER("cudaStreamIsCapturing", cudaErrorInvalidResourceHandle);
    *status = fake_cudart_records(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long)
{
    FAKE_ENTER("cudaGraphInstantiate", cudaErrorMemoryAllocation);
    fake_locked held;
    if (!graphs().count(graph))
        return fake_cudart_fail(cudaErrorInvalidValue);
    *executable = new CUgraphExec_st{graph->nodes, fake_device()};
    executables().insert(*executable);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    FAKE_ENTER("cudaGraphLaunch", cudaErrorLaunchFailure);
    fake_locked held;
    struct CUstream_st *s = fake_stream(stream);
    if (!s || !executables().count(executable) || s->device != executable->device)
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return fake_break_capture(s, "cudaGraphLaunch");
    for (const auto &node : executable->nodes)
        fake_push(s, {node->what, node->run, nullptr, node->argument, false, {}, {}, nullptr, node});
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    FAKE_ENTER("cudaGraphDestroy", cudaErrorInvalidValue);
    fake_locked held;
    if (!graphs().erase(graph))
        return fake_cudart_fail(cudaErrorInvalidValue);
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    FAKE_ENTER("cudaGraphExecDestroy", cudaErrorInvalidValue);
    fake_locked held;
    if (!executables().erase(executable))
        return fake_cudart_fail(cudaErrorInvalidValue);
    delete executable;
    return cudaSuccess;
}
}
