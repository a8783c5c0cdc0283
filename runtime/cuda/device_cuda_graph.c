/* device_cuda_graph.c - work that a stream records once and launches again as one: CUDA graphs of a layer's
 * operations (device.h). */
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/cuda/device_cuda.h"

struct device_graph {
    struct device *device;
    cudaGraphExec_t launched; /* NULL: not recorded yet */
};

static void set_records_work(struct device_stream *stream, bool records_work)
{
    (void)pthread_mutex_lock(&stream->device->listing); /* cannot fail: our own, never locked twice */
    stream->records_work = records_work;
    (void)pthread_mutex_unlock(&stream->device->listing);
}

/* What fn enqueues, as a graph; NULL: it failed. A refused end would leave the stream recording. */
static cudaGraph_t record_work(struct device_stream *stream, void (*fn)(void *argument), void *argument)
{
    struct device *device = stream->device;
    cudaGraph_t recorded = NULL;
    set_records_work(stream, true);
    if (cuda_device_status(device,
                           cudaStreamBeginCapture(stream->handle.stream, cudaStreamCaptureModeThreadLocal),
                           "cudaStreamBeginCapture", NULL)) {
        set_records_work(stream, false);
        return NULL;
    }
    fn(argument);
    const cudaError_t status = cudaStreamEndCapture(stream->handle.stream, &recorded);
    if (status != cudaSuccess)
        (void)cudaStreamEndCapture(stream->handle.stream, &recorded); /* the first one's status is reported */
    set_records_work(stream, false);
    (void)cuda_device_status(device, status, "cudaStreamEndCapture", NULL); /* the device keeps it */
    if (recorded && cuda_device_failed(device)) {
        (void)cudaGraphDestroy(recorded); /* an earlier error, which was reported */
        return NULL;
    }
    return recorded;
}

static int instantiate(struct device_stream *stream, struct device_graph *graph, cudaGraph_t recorded)
{
    struct device *device = stream->device;
    const int failed = cuda_device_status(device, cudaGraphInstantiate(&graph->launched, recorded, 0),
                                          "cudaGraphInstantiate", NULL);
    return cuda_device_status(device, cudaGraphDestroy(recorded), "cudaGraphDestroy", NULL) || failed ? -1
                                                                                                      : 0;
}

int cuda_stream_launch_graph(struct device_stream *stream, struct device_graph **graph, const char *name,
                             void (*fn)(void *argument), void *argument)
{
    struct device *device = stream->device;
    if (cuda_device_failed(device) || cuda_device_use(device, NULL))
        return -1;
    if (!*graph) { /* its kernels are loaded and its products' algorithms chosen, which is not to be recorded
                    */
        struct muster_error error;
        *graph = mem_calloc(1, sizeof **graph);
        if (*graph) {
            (*graph)->device = device;
            return cuda_stream_launch(stream, fn, argument);
        }
        (void)error_set(&error, MUSTER_E_NOMEM, "no memory for a graph of %s", name);
        cuda_device_fail(device, &error);
        return -1;
    }
    if (!(*graph)->launched) {
        cudaGraph_t recorded = record_work(stream, fn, argument);
        if (!recorded || instantiate(stream, *graph, recorded))
            return -1;
    }
    cuda_stream_note(stream, name);
    return cuda_device_status(device, cudaGraphLaunch((*graph)->launched, stream->handle.stream),
                              "cudaGraphLaunch", NULL);
}

void cuda_graph_destroy(struct device_graph *graph)
{
    if (!graph)
        return;
    if (graph->launched && !cuda_device_use(graph->device, NULL))
        (void)cudaGraphExecDestroy(graph->launched); /* an earlier error, which was reported */
    mem_free(graph);
}
