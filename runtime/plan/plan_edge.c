/* plan_edge.c - activations and gradients that cross the boundary between two parts of the model on different
 * pipeline stages. Each pair of neighbours has a stream for each direction.
 *
 * A stage receives in the order in which its neighbour sends, as the table of the schedule has it. So a
 * transfer may be received before it is needed. */
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/plan/plan_internal.h"

enum { ACTIVATIONS, GRADIENTS }; /* indices of plan_builder.sent */

/* ---- neighbours ---- */

/* The stream of transfers between a stage and the next one (after the last: the first). */
static enum stream_id stream_of(const struct plan_builder *b, int before, int direction)
{
    if (b->options->grouped)
        return STREAM_TRANSFERS;
    static const enum stream_id streams[][2] = {
        {STREAM_ACTIVATIONS, STREAM_GRADIENTS},
        {STREAM_ACTIVATIONS_ODD, STREAM_GRADIENTS_ODD},
        {STREAM_ACTIVATIONS_LAST, STREAM_GRADIENTS_LAST},
    };
    return streams[before == b->table->ranks - 1 ? 2 : before % 2][direction];
}

static int stage_before(const struct plan_builder *b, int stage)
{
    return (stage + b->table->ranks - 1) % b->table->ranks;
}

static int stage_after(const struct plan_builder *b, int stage)
{
    return (stage + 1) % b->table->ranks;
}

bool plan_sends_to(const struct plan_builder *b, const struct pipe_call *call, int *stage)
{
    const int part = call->part + (call->phase == PIPE_FORWARD ? 1 : -1);
    if (part < 0 || part >= b->table->parts)
        return false;
    *stage = b->table->rank_of[part];
    return true;
}

/* Whether the call of another stage sends to this one. */
static bool sends_here(const struct plan_builder *b, const struct pipe_call *call, int direction)
{
    int stage;
    return (call->phase == PIPE_FORWARD) == (direction == ACTIVATIONS) && plan_sends_to(b, call, &stage) &&
           stage == b->place.at[SIDE_PIPELINE];
}

/* ---- buffers ---- */

static int edge_by_time(const void *left, const void *right)
{
    return (*(const int *)left > *(const int *)right) - (*(const int *)left < *(const int *)right);
}

/* The most micro-batches that are between two calls at a time. Sorts both. */
static int most_between(int *begin, int *end, int count)
{
    int most = 0, ended = 0;
    qsort(begin, (size_t)count, sizeof *begin, edge_by_time);
    qsort(end, (size_t)count, sizeof *end, edge_by_time);
    for (int i = 0; i < count; i++) {
        while (end[ended] <= begin[i])
            ended++;
        most = i + 1 - ended > most ? i + 1 - ended : most;
    }
    return most;
}

/* Ends of the calls of parts, [part * micros + micro], and room for two times micros. */
struct edge_times {
    int *forward, *back, *room;
};

/* Between the calls of two parts. */
static int most_held(const struct plan_builder *b, const struct edge_times *times, const int *begin,
                     const int *end)
{
    const int m = b->table->micros;
    memcpy(times->room, begin, (size_t)m * sizeof *begin);
    memcpy(times->room + m, end, (size_t)m * sizeof *end);
    return most_between(times->room, times->room + m, m);
}

static int add_edge_buffer(struct plan_builder *b, int layer, struct plan_edge_ring *ring)
{
    const int entry = plan_add_buffer(b, PLAN_EDGE, MEMORY_COMM, b->layers[layer].sizes.out);
    int last = ring->first;
    b->plan->entries[entry].layer = layer;
    b->plan->entries[entry].slot = ring->count;
    for (int i = 1; i < ring->count; i++)
        last = b->entry_states[last].next;
    if (ring->count++ == 0)
        ring->first = entry;
    else
        b->entry_states[last].next = entry;
    return entry;
}

static void make_ring(struct plan_builder *b, int layer, int count, struct plan_edge_ring *ring)
{
    const int most = b->table->micros;
    for (int i = 0; i < (count < most ? count : most) && !b->failed; i++)
        (void)add_edge_buffer(b, layer, ring);
}

/* The buffers of one layer. Those for results that are received are enough by the times of the table, with
 * one more than the calls hold themselves. More are added where transfers have to come early. */
static void make_edge(struct plan_builder *b, int l, const struct edge_times *times)
{
    const struct plan_layer *layer = &b->layers[l];
    const int m = b->table->micros, part = b->model->layers[l].part;
    const bool train = b->options->train, back = train && layer->needs_grad;
    const int *forward = times->forward + part * m, *backward = times->back + part * m;
    struct plan_edge *edge = &b->edges[l];
    if (layer->local) {
        make_ring(b, l, train ? most_held(b, times, forward, backward) : 2, &edge->out);
        if (back) {
            const int waiting = most_held(b, times, backward + m, backward);
            make_ring(b, l, waiting > 2 ? waiting : 2, &edge->grad_in);
        }
        return;
    }
    const int held = train ? most_held(b, times, forward + m, backward + m) : 1,
              arrived = train ? most_held(b, times, forward, backward + m) : 1;
    make_ring(b, l, arrived > held + 1 ? arrived : held + 1, &edge->in);
    if (back)
        make_ring(b, l, 2, &edge->grad_out);
}

static void find_times(const struct plan_builder *b, const struct edge_times *times)
{
    const struct pipe_table *t = b->table;
    for (int i = 0; i < t->first[t->ranks]; i++) {
        const struct pipe_call *call = &t->calls[i];
        (call->phase == PIPE_FORWARD ? times->forward : times->back)[call->part * t->micros + call->micro] =
            b->call_end[i];
    }
}

void plan_make_edges(struct plan_builder *b)
{
    const struct pipe_table *t = b->table;
    const size_t cells = (size_t)t->parts * (size_t)t->micros;
    b->edges = mem_calloc((size_t)b->model->layer_count, sizeof *b->edges);
    scope_free int *room = mem_calloc(2 * cells + 2 * (size_t)t->micros, sizeof *room);
    b->call_end = mem_calloc((size_t)t->first[t->ranks], sizeof *b->call_end);
    if (!b->edges || !room || !b->call_end)
        b->failed =
            error_set(b->err, MUSTER_E_NOMEM, "no memory for the edges of %d layers", b->model->layer_count);
    if (b->failed || t->ranks == 1 || (b->failed = pipe_table_times(t, b->call_end, b->err)) < 0)
        return;
    const struct edge_times times = {room, room + cells, room + 2 * cells};
    find_times(b, &times);
    for (int l = 0; l < b->model->layer_count; l++)
        if (b->layers[l].used_next && (b->layers[l].local || b->layers[l].consumers > 0))
            make_edge(b, l, &times);
}

/* The buffer that was released first; another one is added where all are in use. */
int plan_take_edge(struct plan_builder *b, struct plan_edge_ring *ring, int layer)
{
    int best = -1;
    for (int i = 0, e = ring->first; i < ring->count; i++, e = b->entry_states[e].next)
        if (!b->entry_states[e].busy &&
            (best < 0 || b->entry_states[e].released < b->entry_states[best].released))
            best = e;
    if (best < 0)
        best = add_edge_buffer(b, layer, ring);
    b->entry_states[best].busy = true;
    return best;
}

static void free_edge(struct plan_builder *b, int entry)
{
    if (entry < 0 || b->plan->entries[entry].kind != PLAN_EDGE)
        return;
    b->entry_states[entry].busy = false;
    b->entry_states[entry].released = b->plan->op_count;
}

void plan_leave_call(struct plan_builder *b, int index)
{
    const struct pipe_call *call = &plan_calls(b, b->place.at[SIDE_PIPELINE])[index];
    if (b->table->ranks == 1 || (call->phase == PIPE_FORWARD && b->options->train))
        return;
    for (int l = 0; l < b->model->layer_count; l++) {
        const int part = b->model->layers[l].part, at = l * b->options->micro_batches + call->micro;
        const struct plan_edge *edge = &b->edges[l];
        if (part != call->part && (part != call->part - 1 || !edge->in.count))
            continue; /* neither a layer of the part nor a layer that the part reads */
        free_edge(b, b->out[at]);
        free_edge(b, b->dout[at]);
    }
}

/* ---- transfers ---- */

/* before: the first stage of the pair of neighbours. Under options.grouped, transfers of calls that end
 * together are one group. */
static void emit_edge(struct plan_builder *b, enum comm_kind kind, int before, int direction, int layer,
                      int micro, int entry)
{
    struct schedule_op op = plan_op(OP_COMM, stream_of(b, before, direction));
    const bool sends_on = (kind == COMM_SEND) == (direction == ACTIVATIONS);
    op.axis = AXIS_PIPELINE;
    op.back = direction == GRADIENTS;
    op.forward_micro = kind == COMM_SEND && direction == ACTIVATIONS ? micro : -1;
    op.joins = b->options->grouped && b->round_open;
    b->round_open = true;
    op.layer = layer;
    op.micro = micro;
    op.comm.root = sends_on ? stage_after(b, before) : before;
    *(kind == COMM_SEND ? &op.from : &op.to) = entry;
    plan_emit_comm(b, &op, kind, b->options->value_dtype, b->layers[layer].sizes.out / b->value);
}

/* All activations of a part and micro-batch, in the order in which the stage before sends them. */
static void receive_activations(struct plan_builder *b, const struct pipe_call *call)
{
    for (int l = 0; l < b->model->layer_count; l++) {
        struct plan_edge_ring *ring = &b->edges[l].in;
        if (ring->count == 0 || b->model->layers[l].part != call->part)
            continue;
        const int entry = plan_take_edge(b, ring, l);
        b->out[l * b->options->micro_batches + call->micro] = entry;
        emit_edge(b, COMM_RECV, stage_before(b, b->place.at[SIDE_PIPELINE]), ACTIVATIONS, l, call->micro,
                  entry);
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
        for (int j = 0; b->model->layers[l].part == layer->part && j < b->model->layers[l].source_count; j++)
            if (b->model->layers[l].source[j] == source)
                return false;
    return true;
}

/* All gradients that a part of the next stage forms in a micro-batch, in the order in which it completes
 * them. */
static void receive_gradients(struct plan_builder *b, const struct pipe_call *call)
{
    for (int l = b->model->layer_count - 1; l >= 0; l--) {
        const struct layer_desc *layer = &b->model->layers[l];
        for (int i = 0; layer->part == call->part && i < layer->source_count; i++) {
            const int source = layer->source[i];
            if (source == SOURCE_BATCH || b->edges[source].grad_in.count == 0 || !completes(b, l, i))
                continue;
            const int entry = plan_take_edge(b, &b->edges[source].grad_in, source);
            b->dout[source * b->options->micro_batches + call->micro] = entry;
            emit_edge(b, COMM_RECV, b->place.at[SIDE_PIPELINE], GRADIENTS, source, call->micro, entry);
        }
    }
}

/* Whether the call still lacks a result of the neighbour. */
static bool lacks(const struct plan_builder *b, const struct pipe_call *call, bool forward)
{
    const int m = b->options->micro_batches;
    for (int l = 0; l < b->model->layer_count; l++) {
        const struct plan_edge *edge = &b->edges[l];
        const int at = l * m + call->micro, part = b->model->layers[l].part;
        if (forward ? edge->in.count && part == call->part - 1 && b->out[at] < 0
                    : edge->grad_in.count && part == call->part && b->dout[at] < 0)
            return true;
    }
    return false;
}

void plan_receive_results(struct plan_builder *b, const struct pipe_call *call)
{
    if (call->phase == PIPE_FORWARD)
        receive_activations(b, call);
    else
        receive_gradients(b, call);
}

void plan_receive(struct plan_builder *b, int index)
{
    const int stage = b->place.at[SIDE_PIPELINE];
    const struct pipe_call *call = &plan_calls(b, stage)[index];
    const bool forward = call->phase == PIPE_FORWARD;
    const int direction = forward ? ACTIVATIONS : GRADIENTS,
              peer = forward ? stage_before(b, stage) : stage_after(b, stage);
    while (lacks(b, call, forward) && b->sent[direction] < plan_call_count(b, peer)) {
        const struct pipe_call *theirs = &plan_calls(b, peer)[b->sent[direction]++];
        if (!sends_here(b, theirs, direction))
            continue;
        plan_receive_results(b, theirs);
    }
}

void plan_send(struct plan_builder *b, int index)
{
    const struct plan_step *step = &b->steps[index];
    const struct layer_desc *layer = &b->model->layers[step->layer];
    const int m = b->options->micro_batches, stage = b->place.at[SIDE_PIPELINE];
    if (step->phase == PHASE_FORWARD && b->layers[step->layer].used_next)
        emit_edge(b, COMM_SEND, stage, ACTIVATIONS, step->layer, step->micro,
                  b->out[step->layer * m + step->micro]);
    for (int i = 0; step->phase == PHASE_BACKWARD && i < layer->source_count; i++) {
        int source = layer->source[i], at = source * m + step->micro;
        if (source == SOURCE_BATCH || b->edges[source].grad_out.count == 0 || --b->consumers_left[at] > 0)
            continue;
        emit_edge(b, COMM_SEND, stage_before(b, stage), GRADIENTS, source, step->micro, b->dout[at]);
    }
}

/* In the order of receive_activations and receive_gradients of the other stage. */
void plan_send_results(struct plan_builder *b, const struct pipe_call *call)
{
    const int m = b->options->micro_batches, stage = b->place.at[SIDE_PIPELINE],
              count = b->model->layer_count;
    for (int l = 0; call->phase == PIPE_FORWARD && l < count; l++)
        if (b->model->layers[l].part == call->part && b->layers[l].used_next)
            emit_edge(b, COMM_SEND, stage, ACTIVATIONS, l, call->micro, b->out[l * m + call->micro]);
    for (int l = count - 1; call->phase != PIPE_FORWARD && l >= 0; l--) {
        const struct layer_desc *layer = &b->model->layers[l];
        for (int i = 0; layer->part == call->part && i < layer->source_count; i++) {
            const int source = layer->source[i];
            if (source != SOURCE_BATCH && b->edges[source].grad_out.count && completes(b, l, i))
                emit_edge(b, COMM_SEND, stage_before(b, stage), GRADIENTS, source, call->micro,
                          b->dout[source * m + call->micro]);
        }
    }
}
