/* plan_edge.c - activations and gradients that cross the boundary between two pipeline stages, each direction
 * on a stream of its own. */
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/plan/plan_internal.h"

static void make_ring(struct plan_builder *b, int layer, int count, struct plan_edge_ring *ring)
{
    ring->count = count;
    for (int i = 0; i < count; i++) {
        int entry = plan_add_buffer(b, PLAN_EDGE, MEMORY_COMM, b->layers[layer].sizes.out);
        b->plan->entries[entry].layer = layer;
        b->plan->entries[entry].slot = i;
        if (i == 0)
            ring->first = entry;
    }
}

void plan_make_edges(struct plan_builder *b)
{
    int m = b->options->micro_batches;
    b->edges = mem_calloc((size_t)b->model->layer_count, sizeof *b->edges);
    if (!b->edges)
        b->failed =
            error_set(b->err, MUSTER_E_NOMEM, "no memory for the edges of %d layers", b->model->layer_count);
    if (!b->edges || b->model->stages == 1)
        return;
    int held = b->model->stages -
               b->place.at[SIDE_PIPELINE]; /* micro-batches between their forward and their backward */
    held = !b->options->train ? 1 : held > m || plan_goes_back_from_last(b) ? m : held;
    int in = held < m ? held + 1 : m, pair = m < 2 ? m : 2;
    int out = b->options->train ? held : pair;
    for (int l = 0; l < b->model->layer_count; l++) {
        const struct plan_layer *layer = &b->layers[l];
        struct plan_edge *edge = &b->edges[l];
        bool back = b->options->train && layer->needs_grad;
        if (!layer->used_next || (!layer->local && layer->consumers == 0))
            continue;
        make_ring(b, l, layer->local ? out : in, layer->local ? &edge->out : &edge->in);
        if (back)
            make_ring(b, l, pair, layer->local ? &edge->grad_in : &edge->grad_out);
    }
}

static void emit_edge(struct plan_builder *b, enum comm_kind kind, enum stream_id stream, int layer,
                      int micro, int entry, int peer)
{
    struct schedule_op op = plan_op(OP_COMM, stream);
    op.axis = AXIS_PIPELINE;
    op.layer = layer;
    op.micro = micro;
    op.comm.root = peer;
    *(kind == COMM_SEND ? &op.from : &op.to) = entry;
    plan_emit_comm(b, &op, kind, b->options->dtype, b->layers[layer].sizes.out / b->real);
}

/* All activations of a micro-batch, in the order in which the stage before sends them. */
static void receive_activations(struct plan_builder *b, int micro)
{
    for (int l = 0; l < b->model->layer_count; l++) {
        const struct plan_edge_ring *ring = &b->edges[l].in;
        if (ring->count == 0)
            continue;
        int entry = b->out[l * b->options->micro_batches + micro] = ring->first + micro % ring->count;
        emit_edge(b, COMM_RECV, STREAM_ACTIVATIONS, l, micro, entry, b->place.at[SIDE_PIPELINE] - 1);
    }
}

/* Whether the backward of layer `user` completes the gradient of its i-th source. A gradient is sent back
 * when the first layer that read the activation has added its part. */
static bool completes(const struct plan_builder *b, int user, int i)
{
    const struct layer_desc *layer = &b->model->layers[user];
    int source = layer->source[i];
    for (int j = i + 1; j < layer->source_count; j++)
        if (layer->source[j] == source)
            return false;
    for (int l = source + 1; l < user; l++)
        for (int j = 0; b->model->layers[l].stage == layer->stage && j < b->model->layers[l].source_count;
             j++)
            if (b->model->layers[l].source[j] == source)
                return false;
    return true;
}

/* All gradients of a micro-batch, in the order in which the next stage completes them. */
static void receive_gradients(struct plan_builder *b, int micro)
{
    for (int l = b->model->layer_count - 1; l >= 0; l--) {
        const struct layer_desc *layer = &b->model->layers[l];
        for (int i = 0; layer->stage == b->place.at[SIDE_PIPELINE] + 1 && i < layer->source_count; i++) {
            int source = layer->source[i];
            if (source == SOURCE_BATCH || b->edges[source].grad_in.count == 0 || !completes(b, l, i))
                continue;
            const struct plan_edge_ring *ring = &b->edges[source].grad_in;
            int entry = b->dout[source * b->options->micro_batches + micro] =
                ring->first + micro % ring->count;
            emit_edge(b, COMM_RECV, STREAM_GRADIENTS, source, micro, entry, b->place.at[SIDE_PIPELINE] + 1);
        }
    }
}

void plan_receive(struct plan_builder *b, int index)
{
    const struct plan_step *step = &b->steps[index], *before = index > 0 ? step - 1 : NULL;
    bool forward = step->phase == PHASE_FORWARD;
    if (before && before->micro == step->micro && (before->phase == PHASE_FORWARD) == forward)
        return; /* not the first call of this micro-batch in this direction */
    if (forward)
        receive_activations(b, step->micro);
    else
        receive_gradients(b, step->micro);
}

void plan_send(struct plan_builder *b, int index)
{
    const struct plan_step *step = &b->steps[index];
    const struct layer_desc *layer = &b->model->layers[step->layer];
    int m = b->options->micro_batches;
    if (step->phase == PHASE_FORWARD && b->layers[step->layer].used_next)
        emit_edge(b, COMM_SEND, STREAM_ACTIVATIONS, step->layer, step->micro,
                  b->out[step->layer * m + step->micro], b->place.at[SIDE_PIPELINE] + 1);
    for (int i = 0; step->phase == PHASE_BACKWARD && i < layer->source_count; i++) {
        int source = layer->source[i], at = source * m + step->micro;
        if (source == SOURCE_BATCH || b->edges[source].grad_out.count == 0 || --b->consumers_left[at] > 0)
            continue;
        emit_edge(b, COMM_SEND, STREAM_GRADIENTS, source, step->micro, b->dout[at],
                  b->place.at[SIDE_PIPELINE] - 1);
    }
}
