/* absent.c - graph.h in a build without NVIDIA's frontend: there is no cuDNN. */
#include "runtime/cuda/cudnn/graph.h"

#include "proto/base/error.h"

int cudnn_graph_built(struct muster_error *err)
{
    return error_set(
        err, MUSTER_E_UNSUPPORTED,
        "training.attention: cudnn: this build is without it: build with MUSTER_CUDNN=1 ./dev build "
        "cuda, or use own");
}

struct cudnn_place *cudnn_place_open(void *library, const struct cuda_description *described,
                                     struct muster_error *err)
{
    (void)library, (void)described;
    (void)cudnn_graph_built(err); /* -1: there is none */
    return NULL;
}

void cudnn_place_close(struct cudnn_place *place)
{
    (void)place; /* there is none */
}

struct cudnn_graph *cudnn_graph_make(struct cudnn_place *place, const struct attention *a, enum dtype values,
                                     bool backward, struct muster_error *err)
{
    (void)place, (void)a, (void)values, (void)backward, (void)err;
    return NULL;
}

void cudnn_graph_free(struct cudnn_graph *graph)
{
    (void)graph;
}

size_t cudnn_graph_work(const struct cudnn_graph *graph)
{
    (void)graph;
    return 0;
}

int cudnn_graph_run(struct cudnn_graph *graph, void *const *tensors, void *work, void *stream,
                    struct muster_error *err)
{
    (void)graph, (void)tensors, (void)work, (void)stream;
    return error_set(err, MUSTER_E_UNSUPPORTED, "this build is without cuDNN");
}
