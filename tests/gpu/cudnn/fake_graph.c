/* fake_graph.c - graph.h over kernels/cuda's own attention: a module with it takes the way of cuDNN's calls
 * and has the bits of muster's kernels. A graph spoils its whole workspace first. */
#include "runtime/cuda/cudnn/graph.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/operations.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "tests/gpu/cudart/fake_cudart.h"

struct cudnn_place {
    int unused;
};

struct cudnn_graph {
    struct attention a;
    bool backward;
    enum dtype values;
    size_t work;
};

int cudnn_graph_built(struct muster_error *err)
{
    (void)err;
    return 0;
}

struct cudnn_place *cudnn_place_open(void *library, const struct cuda_description *described,
                                     struct muster_error *err)
{
    (void)library;
    if (described) {
        (void)error_set(err, MUSTER_E_UNSUPPORTED, "the fake of cuDNN plans for a device that is here");
        return NULL;
    }
    return mem_calloc(1, sizeof(struct cudnn_place));
}

void cudnn_place_close(struct cudnn_place *place)
{
    mem_free(place);
}

struct cudnn_graph *cudnn_graph_make(struct cudnn_place *place, const struct attention *a, enum dtype values,
                                     bool backward, struct muster_error *err)
{
    enum { SPOILT = 1 << 14 };
    struct cudnn_graph *graph = mem_calloc(1, sizeof *graph);
    (void)place;
    if (!graph) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a graph");
        return NULL;
    }
    *graph = (struct cudnn_graph){
        .a = *a, .backward = backward, .values = values, .work = cuda_attention_work(a, backward) + SPOILT};
    return graph;
}

void cudnn_graph_free(struct cudnn_graph *graph)
{
    mem_free(graph);
}

size_t cudnn_graph_work(const struct cudnn_graph *graph)
{
    return graph->work;
}

int cudnn_graph_run(struct cudnn_graph *g, void *const *t, void *work, void *stream, struct muster_error *err)
{
    static const int stored[3] = {0};
    const bool bf16 = g->values == DTYPE_BF16;
    if (fake_refuse(g->backward ? "cudnn_attention_backward" : "cudnn_attention_forward"))
        return error_set(err, MUSTER_E_STATE, "attention by cuDNN: refused");
    if (cudaMemsetAsync(work, 0xff, g->work, stream) != cudaSuccess)
        return error_set(err, MUSTER_E_STATE, "attention by cuDNN: its workspace");
    if (!g->backward)
        return (bf16 ? cuda_attention_forward_bf16 : cuda_attention_forward_f16)(
            t[CUDNN_OUT], t[CUDNN_LSE], t[CUDNN_Q], t[CUDNN_K], t[CUDNN_V], &g->a, work, stream, err);
    return (bf16 ? cuda_attention_backward_bf16 : cuda_attention_backward_f16)(
        t[CUDNN_DQ], t[CUDNN_DK], t[CUDNN_DV], t[CUDNN_DOUT], t[CUDNN_Q], t[CUDNN_K], t[CUDNN_V],
        t[CUDNN_OUT], t[CUDNN_LSE], &g->a, stored, work, stream, err);
}
