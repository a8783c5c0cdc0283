/* plan_edge.c - what crosses the boundary between two pipeline stages.
 *
 * Activations travel on the gather stream, gradients on the reduce stream: each direction has a
 * communicator and a stream of its own, so that a stage never waits in one direction for a peer that waits
 * for it in the other. */
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/plan_internal.h"

static int make_ring(struct plan_builder *b, int layer, int count, struct plan_edge_ring *ring)
{
    ring->count = count;
    for (int i = 0; i < count; i++) {
        int entry = plan_add_buffer(b, PLAN_EDGE, MEMORY_COMM, b->layers[layer].sizes.out);
        if (entry < 0)
            return -1;
        b->plan->entries[entry].layer = layer;
        b->plan->entries[entry].slot = i;
        if (i == 0)
            ring->first = entry;
    }
    return 0;
}

/* Whether a layer of this stage reads a layer of the stage before. */
static bool crosses(const struct plan_builder *b, int source)
{
    return source != SOURCE_BATCH && !b->layers[source].local;
}

int plan_make_edges(struct plan_builder *b)
{
    int m = b->options->micro_batches;
    b->edges = mem_calloc((size_t)b->model->layer_count, sizeof *b->edges);
    if (!b->edges)
        return error_set(b->err, MUSTER_E_NOMEM, "no memory for the edges of %d layers",
                         b->model->layer_count);
    if (b->model->stages == 1)
        return 0;
    int held = b->model->stages - b->place.stage; /* micro-batches between their forward and their backward */
    held = !b->options->train ? 1 : held > m ? m : held;
    int in = held < m ? held + 1 : m, pair = m < 2 ? m : 2;
    int out = b->options->train ? held : pair;
    for (int l = 0; l < b->model->layer_count; l++) {
        const struct plan_layer *layer = &b->layers[l];
        struct plan_edge *edge = &b->edges[l];
        bool back = b->options->train && layer->needs_grad;
        if (layer->local && layer->used_next &&
            (make_ring(b, l, out, &edge->out) < 0 || (back && make_ring(b, l, pair, &edge->grad_in) < 0)))
            return -1;
        if (!layer->local && layer->used_next && layer->consumers > 0 &&
            (make_ring(b, l, in, &edge->in) < 0 || (back && make_ring(b, l, pair, &edge->grad_out) < 0)))
            return -1;
    }
    return 0;
}

static int emit_edge(struct plan_builder *b, enum comm_kind kind, enum stream_id stream, int layer, int micro,
                     int entry, int peer)
{
    struct schedule_op op = plan_op(OP_COMM, stream);
    op.axis = AXIS_PIPELINE;
    op.layer = layer;
    op.micro = micro;
    op.comm.root = peer;
    *(kind == COMM_SEND ? &op.from : &op.to) = entry;
    return plan_emit_comm(b, &op, kind, b->options->dtype, b->layers[layer].sizes.out / b->element) < 0 ? -1
                                                                                                        : 0;
}

static int receive_gradient(struct plan_builder *b, int layer, int micro)
{
    int at = layer * b->options->micro_batches + micro;
    if (!b->layers[layer].local || !b->layers[layer].used_next || b->dout[at] >= 0)
        return 0;
    const struct plan_edge_ring *ring = &b->edges[layer].grad_in;
    b->dout[at] = ring->first + micro % ring->count;
    return emit_edge(b, COMM_RECV, STREAM_REDUCE, layer, micro, b->dout[at], b->place.stage + 1);
}

int plan_receive(struct plan_builder *b, int index)
{
    const struct plan_step *step = &b->steps[index];
    const struct layer_desc *layer = &b->model->layers[step->layer];
    int m = b->options->micro_batches;
    if (step->phase == PHASE_BACKWARD && receive_gradient(b, step->layer, step->micro) < 0)
        return -1;
    for (int i = 0; i < layer->source_count; i++) {
        int source = layer->source[i];
        if (step->phase == PHASE_BACKWARD && source != SOURCE_BATCH && b->layers[source].needs_grad &&
            receive_gradient(b, source, step->micro) < 0)
            return -1;
        if (step->phase != PHASE_FORWARD || !crosses(b, source) || b->out[source * m + step->micro] >= 0)
            continue;
        const struct plan_edge_ring *ring = &b->edges[source].in;
        int entry = b->out[source * m + step->micro] = ring->first + step->micro % ring->count;
        if (emit_edge(b, COMM_RECV, STREAM_GATHER, source, step->micro, entry, b->place.stage - 1) < 0)
            return -1;
    }
    return 0;
}

int plan_send(struct plan_builder *b, int index)
{
    const struct plan_step *step = &b->steps[index];
    const struct layer_desc *layer = &b->model->layers[step->layer];
    int m = b->options->micro_batches;
    if (step->phase == PHASE_FORWARD && b->layers[step->layer].used_next)
        return emit_edge(b, COMM_SEND, STREAM_GATHER, step->layer, step->micro,
                         b->out[step->layer * m + step->micro], b->place.stage + 1);
    for (int i = 0; step->phase == PHASE_BACKWARD && i < layer->source_count; i++) {
        int source = layer->source[i], at = source * m + step->micro;
        if (!crosses(b, source) || !b->layers[source].needs_grad || --b->consumers_left[at] > 0)
            continue;
        if (emit_edge(b, COMM_SEND, STREAM_REDUCE, source, step->micro, b->dout[at], b->place.stage - 1) < 0)
            return -1;
    }
    return 0;
}
