/* executor.c - see executor.h. */
#include "runtime/train/executor.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/model/program.h"

/* Input of an operation's function. */
struct op_block {
    struct executor *executor;
    const struct schedule_op *op;
    void (*run)(void *block); /* NULL: a device or comm call, which is not launched */
    void *from, *to;
    int ranks;      /* number of ranks with their own samples */
    int replicas;   /* OP_DECODE: that have sent */
    int64_t stride; /* bytes that each of them has sent under top-k */
    struct comm *comm;
    struct device_event *done;      /* NULL if no operation waits for it */
    struct device_graph *graph;     /* NULL: not launched as a graph yet */
    uint64_t ran;                   /* number of the run in which its function was called last */
    char name[48];                  /* name of a layer's operation: "forward h.0", cut if longer */
    const struct layer_desc *layer; /* from here: of forward and backward */
    bool loss;
    struct layer_context context;
    struct batch batch;
    const void *weight[LAYER_PARAMS];
    void *grad[LAYER_PARAMS];
    const void *in[LAYER_SOURCES];
    void *din[LAYER_SOURCES];
};

struct executor {
    struct executor_parts parts;
    struct op_block *blocks;                   /* [plan.op_count] */
    struct device_event *joined[STREAM_COUNT]; /* the end of a run on each stream */
    struct step_scalars *scalars;
    bool evaluating;                      /* changed only while the compute stream is idle */
    int first_carried;                    /* op; op_count: none */
    bool carried;                         /* the previous run has made this run's first gathers */
    const struct layer_capture *captures; /* by micro-batch; NULL: nothing is copied out; changed only while
                                             idle */
    int *positions;                       /* [micro_batches] T of a run; changed only while idle */
    uint64_t runs;                        /* so far; changed only while idle */
    bool compresses; /* else replicas exchange dense gradients; changed only while idle */
    bool may_be_shorter;
    struct executor_mark *marks; /* marks that the next run writes; NULL: none */
    _Atomic int place;           /* op that the compute stream has begun last; -1: none */
};

void *executor_address(const struct executor_parts *parts, int entry, int64_t offset)
{
    if (entry < 0)
        return NULL;
    assert(entry < parts->plan->entry_count);
    const struct plan_entry *e = &parts->plan->entries[entry];
    assert(offset >= 0 && offset <= e->bytes && e->offset + e->bytes <= parts->arenas[e->memory].bytes);
    return (char *)parts->arenas[e->memory].base + e->offset + offset;
}

/* ---- functions of the compute stream ---- */

static void run_forward(void *argument)
{
    struct op_block *b = argument;
    b->context.mode = b->loss && b->executor->evaluating ? LAYER_EVAL : b->op->mode;
    b->context.evaluates = b->executor->evaluating;
    b->context.shape.T = b->executor->positions[b->op->micro];
    const struct layer_capture *captures = b->executor->captures;
    const bool captured = captures && captures->layer == b->op->layer && captures[b->op->micro].bytes > 0;
    b->context.capture = captured ? &captures[b->op->micro] : NULL;
    b->layer->ops->forward(b->layer->config, &b->context);
}

static void run_backward(void *argument)
{
    struct op_block *b = argument;
    b->context.shape.T = b->executor->positions[b->op->micro];
    b->layer->ops->backward(b->layer->config, &b->context, b->op->parts);
}

static void run_norm(void *argument)
{
    const struct op_block *b = argument;
    const struct kernels *k = b->executor->parts.kernels;
    k->norm_squared(&b->executor->scalars->norm_squared, b->from, b->op->bytes / dtype_size(k->statistic),
                    b->op->beta, b->context.stream);
}

static void run_clip(void *argument)
{
    const struct op_block *b = argument;
    b->executor->parts.kernels->clip_factor(b->executor->scalars, b->context.stream);
}

/* Updates running statistics: the ranks' reduced values are the change. */
static void step_statistics(const struct op_block *b, const struct param_group *group)
{
    const struct executor_parts *parts = &b->executor->parts;
    void *master = executor_address(parts, group->master, 0);
    parts->kernels->batch_norm_step(master ? master : b->to, b->from, group->shard, master ? b->to : NULL,
                                    parts->plan->options.param_dtype, b->executor->scalars,
                                    b->context.stream);
}

/* Steps all of this rank's shard in one pass. If there are masters, they are stepped and `to` gets the
 * rounded values. Else the parameters in `to` are stepped. */
static void run_step(void *argument)
{
    const struct op_block *b = argument;
    const struct executor_parts *parts = &b->executor->parts;
    const struct kernels *k = parts->kernels;
    const struct optimizer_options *o = &parts->plan->options.optimizer;
    const struct step_scalars *scalars = b->executor->scalars;
    const struct param_group *group = &parts->plan->groups[b->op->group];
    const struct optimizer_segment *segments = &parts->plan->segments[group->first_segment];
    const int count = group->segment_count;
    const enum dtype moves = parts->plan->options.param_dtype;
    void *m = executor_address(parts, group->moment1, 0), *v = executor_address(parts, group->moment2, 0);
    void *master = executor_address(parts, group->master, 0);
    void *param = master ? master : b->to, *moved = master ? b->to : NULL;
    if (parts->guard->wait)
        parts->guard->wait(parts->guard->context, b->op->group);
    if (group->statistic) {
        step_statistics(b, group);
        return;
    }
    switch (o->kind) {
    case OPTIMIZER_ADAM:
        k->adam(param, m, v, b->from, segments, count, moved, moves, scalars, b->context.stream);
        break;
    case OPTIMIZER_SGD:
        k->sgd(param, m, b->from, segments, count, o->momentum, o->dampening, o->nesterov, moved, moves,
               scalars, b->context.stream);
        break;
    default: /* OPTIMIZER_ADAMW */
        k->adamw(param, m, v, b->from, segments, count, moved, moves, scalars, b->context.stream);
        break;
    }
}

static void run_average(void *argument)
{
    const struct op_block *b = argument;
    const struct executor *executor = b->executor;
    const struct kernels *k = executor->parts.kernels;
    k->average(b->to, b->from, executor->parts.plan->options.average_decay,
               b->op->bytes / dtype_size(k->statistic), executor->scalars, b->context.stream);
}

/* Adds all ranks' rows that fall into this rank's part of the group, table by table. */
static void run_rows(void *argument)
{
    const struct op_block *b = argument;
    const struct executor_parts *parts = &b->executor->parts;
    const struct plan *plan = parts->plan;
    const struct param_group *group = &plan->groups[b->op->group];
    const struct layer_desc *layer = &parts->model->layers[b->op->layer];
    const int T = plan->options.shape.T, rows = b->ranks * plan->options.shape.B * T;
    const int width = (int)parts->model->params[layer->param[0]].dim[1];
    for (int i = 0; i < layer->param_count; i++) {
        const struct param_place *place = &plan->places[layer->param[i]];
        if (place->group == b->op->group)
            parts->kernels->rows_add(b->to, group->shard_start, group->shard, place->offset, b->from,
                                     i == 0 ? executor_address(parts, b->op->batch, 0) : NULL, rows, T, width,
                                     b->context.stream);
    }
}

static void run_cast(void *argument)
{
    const struct op_block *b = argument;
    const struct kernels *k = b->executor->parts.kernels;
    const struct plan_entry *entries = b->executor->parts.plan->entries;
    const enum dtype from = entries[b->op->from].dtype, to = entries[b->op->to].dtype;
    const int64_t n = b->op->bytes / dtype_size(to);
    if (from == DTYPE_U8) /* units of a group that is held in few bits */
        stored_open(b->executor->parts.plan->groups[b->op->group].stored, b->from, n, b->to, to);
    else if (to == k->statistic)
        k->widen(b->to, b->from, from, b->op->beta, n, b->context.stream);
    else
        k->cast(b->to, to, b->from, from, n, b->context.stream);
}

/* Feedback and factors are changed here, before the group's step: a checkpoint may still be read. */
static void wait_for_readers(const struct op_block *b)
{
    const struct step_guard *guard = b->executor->parts.guard;
    if (guard->wait && (b->op->feedback >= 0 || b->op->kind == OP_DECODE))
        guard->wait(guard->context, b->op->group);
}

static struct compress_call compress_call_of(const struct op_block *b, int gradient)
{
    const struct executor_parts *parts = &b->executor->parts;
    const struct plan *plan = parts->plan;
    const struct param_group *group = &plan->groups[b->op->group];
    struct plan_figures *figures = executor_address(parts, plan->figures, 0);
    return (struct compress_call){.dtype = plan->options.dtype,
                                  .gradient = executor_address(parts, gradient, 0),
                                  .feedback = executor_address(parts, b->op->feedback, 0),
                                  .pieces = &plan->pieces[group->first_piece],
                                  .count = group->piece_count,
                                  .factor = b->executor->scalars->clip,
                                  .skip = b->executor->scalars->skip != 0,
                                  .figures = &figures->left_out,
                                  .wire = plan_topk_wire(plan)};
}

/* On a device the kernels read the scalars. */
static void encode_on_device(const struct op_block *b, const struct kernels_compress *k)
{
    const struct executor_parts *parts = &b->executor->parts;
    const struct plan *plan = parts->plan;
    const struct param_group *group = &plan->groups[b->op->group];
    const struct compress_piece *pieces = &plan->pieces[group->first_piece];
    struct plan_figures *figures = executor_address(parts, plan->figures, 0);
    void *dense = executor_address(parts, b->op->dense, 0),
         *factor = executor_address(parts, b->op->factor, 0),
         *feedback = executor_address(parts, b->op->feedback, 0);
    if (b->op->compress == COMPRESS_TOPK)
        k->topk_encode(b->to, dense, b->from, feedback, pieces, group->piece_count, plan_topk_wire(plan),
                       b->executor->scalars, &figures->left_out, executor_address(parts, b->op->work, 0),
                       b->context.stream);
    else if (b->op->compress == COMPRESS_LEFT)
        k->power_left(b->to, dense, b->from, feedback, factor, pieces, group->piece_count,
                      b->executor->scalars, b->context.stream);
    else
        k->power_right(factor, b->to, b->from, pieces, group->piece_count, b->executor->scalars,
                       b->context.stream);
}

static void decode_on_device(const struct op_block *b, const struct kernels_compress *k)
{
    const struct executor_parts *parts = &b->executor->parts;
    const struct plan *plan = parts->plan;
    const struct param_group *group = &plan->groups[b->op->group];
    const struct compress_piece *pieces = &plan->pieces[group->first_piece];
    struct plan_figures *figures = executor_address(parts, plan->figures, 0);
    const void *dense = executor_address(parts, b->op->dense, 0);
    if (b->op->compress == COMPRESS_TOPK)
        k->topk_decode(b->to, b->from, dense, pieces, group->piece_count, plan_topk_wire(plan), b->replicas,
                       b->stride, b->executor->scalars, b->context.stream);
    else
        k->power_decode(b->to, executor_address(parts, b->op->feedback, 0), b->from,
                        executor_address(parts, b->op->right, 0), executor_address(parts, b->op->factor, 0),
                        dense, pieces, group->piece_count, b->replicas, b->executor->scalars,
                        &figures->left_out, executor_address(parts, b->op->work, 0), b->context.stream);
}

static void run_encode(void *argument)
{
    const struct op_block *b = argument;
    const struct executor_parts *parts = &b->executor->parts;
    if (parts->kernels->compress) {
        wait_for_readers(b);
        encode_on_device(b, parts->kernels->compress);
        return;
    }
    const struct compress_call call = compress_call_of(b, b->op->from);
    void *dense = executor_address(parts, b->op->dense, 0),
         *factor = executor_address(parts, b->op->factor, 0);
    wait_for_readers(b);
    if (b->op->compress == COMPRESS_TOPK)
        compress_topk_encode(&call, b->to, dense);
    else if (b->op->compress == COMPRESS_LEFT)
        compress_left(&call, factor, b->to, dense);
    else
        compress_right(&call, factor, b->to);
}

static void run_decode(void *argument)
{
    const struct op_block *b = argument;
    const struct executor_parts *parts = &b->executor->parts;
    if (parts->kernels->compress) {
        wait_for_readers(b);
        decode_on_device(b, parts->kernels->compress);
        return;
    }
    const struct compress_call call = compress_call_of(b, b->op->to);
    const void *dense = executor_address(parts, b->op->dense, 0);
    wait_for_readers(b);
    if (b->op->compress == COMPRESS_TOPK)
        compress_topk_decode(&call, b->from, b->replicas, b->stride, dense);
    else
        compress_power_decode(&call, b->from, executor_address(parts, b->op->right, 0), b->replicas, dense,
                              executor_address(parts, b->op->factor, 0));
}

/* Collects votes right before they are copied to the memory that the ranks sum. */
static void run_vote(void *argument)
{
    const struct op_block *b = argument;
    const struct step_guard *guard = b->executor->parts.guard;
    memset(b->from, 0, (size_t)b->op->bytes);
    if (guard->vote)
        guard->vote(guard->voter, b->from);
}

static void note_place(const struct op_block *b)
{
    atomic_store_explicit(&b->executor->place, (int)(b - b->executor->blocks), memory_order_relaxed);
}

static void run_block(void *argument)
{
    struct op_block *b = argument;
    note_place(b);
    b->run(argument);
    b->ran = b->executor->runs;
}

/* A layer runs as a graph: it enqueues many kernels, and no step changes their arguments. An optimizer's step
 * is no graph: it is one kernel a group, and may have to wait for a checkpoint's copy. */
static bool runs_as_graph(const struct executor *executor, const struct schedule_op *op)
{
    return executor->parts.graphs && !executor->evaluating && !executor->captures &&
           (op->kind == OP_FORWARD || op->kind == OP_BACKWARD);
}

int executor_marked(const struct executor *executor, enum stream_id stream)
{
    const struct executor_parts *parts = &executor->parts;
    return parts->ops->marked && parts->streams[stream] ? (int)parts->ops->marked(parts->streams[stream]) - 1
                                                        : -1;
}

int executor_place(const struct executor *executor)
{
    if (executor->parts.ops->marked)
        return executor_marked(executor, STREAM_COMPUTE);
    return atomic_load_explicit(&executor->place, memory_order_relaxed);
}

static void (*const runs[OP_KIND_COUNT])(void *) = {
    [OP_FORWARD] = run_forward, [OP_BACKWARD] = run_backward, [OP_NORM] = run_norm,
    [OP_CLIP] = run_clip,       [OP_STEP] = run_step,         [OP_CAST] = run_cast,
    [OP_AVERAGE] = run_average, [OP_ROWS] = run_rows,         [OP_ENCODE] = run_encode,
    [OP_DECODE] = run_decode,
};

/* ---- creation ---- */

/* The index of a parameter's group among the groups that an operation names. */
static int used_index(const struct schedule_op *op, int group)
{
    for (int i = 0; i < op->group_count; i++) {
        if (op->used_group[i] == group)
            return i;
    }
    return -1;
}

static int resolve_params(const struct executor_parts *parts, struct op_block *b, struct muster_error *err)
{
    const struct plan *plan = parts->plan;
    const int weight = dtype_size(plan->options.value_dtype), gradient = dtype_size(plan->options.dtype);
    for (int i = 0; i < b->layer->param_count; i++) {
        int param = b->layer->param[i];
        const struct param_place *place = &plan->places[param];
        int used = used_index(b->op, place->group);
        if (used < 0)
            return error_set(err, MUSTER_E_STATE,
                             "the plan's operation for layer %s does not name the group of %s",
                             b->layer->name, parts->model->params[param].name);
        b->weight[i] = executor_address(parts, b->op->weight[used], place->offset * weight);
        if (b->op->kind == OP_BACKWARD && parts->model->params[param].trainable)
            b->grad[i] = executor_address(parts, b->op->grad[used], place->offset * gradient);
    }
    return 0;
}

static int resolve_layer(const struct executor *executor, struct op_block *b, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    const struct schedule_op *op = b->op;
    const struct mesh_line data = mesh_line(parts->plan->options.mesh, AXIS_DATA, parts->plan->options.rank);
    b->layer = &parts->model->layers[op->layer];
    (void)snprintf(b->name, sizeof b->name, "%s %.32s", op_kind_name(op->kind), b->layer->name);
    if (resolve_params(parts, b, err))
        return -1;
    for (int i = 0; i < b->layer->source_count; i++) {
        b->in[i] = executor_address(parts, op->in[i], 0);
        b->din[i] = op->kind == OP_BACKWARD ? executor_address(parts, op->din[i], 0) : NULL;
    }
    if (op->batch >= 0) {
        const char *batch = executor_address(parts, op->batch, 0);
        for (int i = 0; i < parts->model->input_count; i++)
            b->batch.input[i] = batch + batch_offset(parts->model, parts->plan->options.shape, i);
    }
    b->loss = op->layer == parts->model->layer_count - 1;
    struct plan_loss *loss = b->loss ? executor_address(parts, parts->plan->loss, 0) : NULL;
    b->context = (struct layer_context){
        .kernels = parts->kernels,
        .mode = op->mode,
        .shape = parts->plan->options.shape,
        .weight = b->weight,
        .grad = b->grad,
        .grad_beta = op->grad_beta,
        .in = b->in,
        .out = executor_address(parts, op->out, 0),
        .dout = executor_address(parts, op->dout, 0),
        .din = b->din,
        .din_beta = op->din_beta,
        .saved = executor_address(parts, op->saved, 0),
        .work = executor_address(parts, op->work, 0),
        .batch = &b->batch,
        .scalars = executor->scalars,
        /* first row of the micro-batch in the step's global batch, as config/train_batch.h assigns rows */
        .sample = ((int64_t)op->micro * data.size + data.place) * parts->plan->options.shape.B,
        .own_sample = (int64_t)op->micro * parts->plan->options.shape.B,
        .ranks = data.size,
        .rank = data.place,
        .loss_total = loss ? &loss->total : NULL,
        .loss_count = loss ? &loss->count : NULL,
        .correct_total = loss ? &loss->correct : NULL,
        .chunk_bytes = parts->plan->options.chunk_bytes,
    };
    return 0;
}

static int resolve(struct executor *executor, int index, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    struct op_block *b = &executor->blocks[index];
    const struct schedule_op *op = &parts->plan->ops[index];
    b->executor = executor;
    b->op = op;
    b->run = runs[op->kind];
    b->ranks = mesh_line(parts->plan->options.mesh, AXIS_DATA, parts->plan->options.rank).size;
    if (op->kind == OP_DECODE) {
        const struct plan_wire_shape shape = plan_wire_shape(parts->plan, op->group);
        b->replicas = shape.replicas;
        b->stride = shape.stride;
    }
    b->from = executor_address(parts, op->from, op->from_offset);
    b->to = executor_address(parts, op->to, op->to_offset);
    if ((op->kind == OP_FORWARD || op->kind == OP_BACKWARD) && resolve_layer(executor, b, err))
        return -1;
    b->context.stream = parts->ops->stream_handle(parts->streams[op->stream]);
    if (op->kind == OP_COMM)
        b->comm = op->axis == AXIS_TIED
                      ? parts->comms->tied[plan_tie(parts->plan, &parts->plan->groups[op->group])]
                      : parts->comms->comm[op->axis][op->stream];
    if (op->kind == OP_COMM && !b->comm)
        return error_set(err, MUSTER_E_STATE, "operation %d has no comm for axis %s on stream %s", index,
                         axis_name(op->axis), stream_name(op->stream));
    if (op->signal && !(b->done = parts->ops->event_create(parts->device, err)))
        return -1;
    return 0;
}

/* A wait for a later operation means the previous step's operation, which must be carried. */
static int check_waits(const struct executor *executor, int index, struct muster_error *err)
{
    const struct plan *plan = executor->parts.plan;
    const struct schedule_op *op = &plan->ops[index];
    for (int i = 0; i < op->wait_count; i++) {
        const int wait = op->wait[i];
        if (wait < 0 || wait >= plan->op_count || !executor->blocks[wait].done ||
            (wait >= index && !plan->ops[wait].carried))
            return error_set(err, MUSTER_E_STATE,
                             "operation %d waits for operation %d, which does not signal", index, wait);
    }
    return 0;
}

GUARD_DEFINE(executor, struct executor *, executor_destroy);

struct executor *executor_create(const struct executor_parts *parts, struct muster_error *err)
{
    GUARD(guard_executor) struct executor *executor = mem_calloc(1, sizeof *executor);
    if (executor) {
        executor->parts = *parts;
        executor->place = -1;
        executor->blocks = mem_calloc((size_t)parts->plan->op_count, sizeof *executor->blocks);
        executor->positions =
            mem_calloc((size_t)parts->plan->options.micro_batches, sizeof *executor->positions);
    }
    if (!executor || !executor->blocks || !executor->positions) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a schedule of %d operations",
                        parts->plan->op_count);
        return NULL;
    }
    executor->scalars = executor_address(parts, parts->plan->scalars, 0);
    for (int i = 0; i < parts->plan->options.micro_batches; i++)
        executor->positions[i] = parts->plan->options.shape.T;
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (parts->streams[i] && !(executor->joined[i] = parts->ops->event_create(parts->device, err)))
            return NULL;
    }
    bool rows = false;
    for (int i = 0; i < parts->plan->op_count; i++) {
        if (resolve(executor, i, err))
            return NULL;
        rows |= parts->plan->ops[i].kind == OP_ROWS;
    }
    executor->may_be_shorter = !parts->graphs && !rows && program_ends_with_lengths(parts->model);
    for (int i = 0; i < parts->plan->op_count; i++) {
        if (check_waits(executor, i, err))
            return NULL;
    }
    while (executor->first_carried < parts->plan->op_count &&
           !parts->plan->ops[executor->first_carried].carried)
        executor->first_carried++;
    return take_pointer(&executor);
}

void executor_destroy(struct executor *executor)
{
    if (!executor)
        return;
    const struct device_ops *ops = executor->parts.ops;
    for (int i = 0; executor->blocks && i < executor->parts.plan->op_count; i++) {
        if (executor->blocks[i].done)
            ops->event_destroy(executor->blocks[i].done);
        if (executor->blocks[i].graph)
            ops->graph_destroy(executor->blocks[i].graph);
    }
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (executor->joined[i])
            ops->event_destroy(executor->joined[i]);
    }
    mem_free(executor->blocks);
    mem_free(executor->positions);
    mem_free(executor);
}

/* ---- a run ---- */

int executor_refused(const struct device_ops *ops, struct device *device, struct muster_error *err)
{
    if (ops->poll_error(device, err))
        return -1;
    return error_set(err, MUSTER_E_STATE, "device %s refused work without giving a reason", ops->name);
}

static int enqueue_waits(const struct executor *executor, const struct schedule_op *op,
                         struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    for (int i = 0; i < op->wait_count; i++) {
        if (parts->ops->wait(parts->streams[op->stream], executor->blocks[op->wait[i]].done))
            return executor_refused(parts->ops, parts->device, err);
    }
    return 0;
}

static void mark_begin(void *argument)
{
    struct executor_mark *mark = argument;
    mark->waited_ns = mark->ops->stream_waited_ns(mark->stream);
    mark->begin_ns = clock_now(NULL).ns;
}

static void mark_end(void *argument)
{
    struct executor_mark *mark = argument;
    mark->end_ns = clock_now(NULL).ns;
}

/* An operation for other steps keeps its place: it waits, and its event is recorded. */
static bool is_for_other_steps(const struct executor *executor, const struct schedule_op *op)
{
    return op->when != WHEN_ALWAYS && (op->when == WHEN_COMPRESSED) != executor->compresses;
}

static int enqueue(const struct executor *executor, struct op_block *b, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    const struct schedule_op *op = b->op;
    struct device_stream *stream = parts->streams[op->stream];
    struct executor_mark *mark = executor->marks ? &executor->marks[b - executor->blocks] : NULL;
    int failed = 0;
    if (parts->ops->mark && parts->ops->mark(stream, b - executor->blocks + 1))
        return executor_refused(parts->ops, parts->device, err);
    if (mark && parts->ops->launch(stream, mark_begin, mark))
        return executor_refused(parts->ops, parts->device, err);
    if (is_for_other_steps(executor, op)) { /* nothing */
    } else if (op->kind == OP_COMM) {
        if (parts->comms->ops->issue(b->comm, &op->comm, b->from, b->to, stream, err))
            return -1;
    } else if (op->kind == OP_COPY) {
        failed = (op->votes && parts->ops->launch(stream, run_vote, b)) ||
                 parts->ops->copy(stream, b->to, b->from, op->bytes);
    } else if (op->kind == OP_FILL) {
        failed = parts->ops->fill(stream, b->to, 0, op->bytes);
    } else if (runs_as_graph(executor, op)) {
        note_place(b);
        failed = parts->ops->launch_graph(stream, &b->graph, b->name, run_block, b);
    } else {
        failed = parts->ops->launch(stream, run_block, b);
    }
    if (!failed && mark)
        failed = parts->ops->launch(stream, mark_end, mark);
    if (!failed && b->done)
        failed = parts->ops->record(stream, b->done);
    return failed ? executor_refused(parts->ops, parts->device, err) : 0;
}

bool executor_may_be_shorter(const struct executor *executor)
{
    return executor->may_be_shorter;
}

void executor_positions(struct executor *executor, int micro, int positions)
{
    executor->positions[micro] = positions;
}

void executor_trace(struct executor *executor, struct executor_mark *marks)
{
    executor->marks = marks;
}

void executor_compress(struct executor *executor, bool on)
{
    executor->compresses = on;
}

void executor_capture(struct executor *executor, const struct layer_capture *captures)
{
    executor->captures = captures;
}

/* Makes the gathers that the end of a step would have made. Their input does not change: the compute stream
 * is idle, and the gather stream keeps the order. */
static int gather_first(struct executor *executor, struct muster_error *err)
{
    const struct plan *plan = executor->parts.plan;
    for (int i = 0; i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        bool into_slot = op->carried && plan->entries[op->to].kind == PLAN_GATHER_SLOT;
        if (into_slot && enqueue(executor, &executor->blocks[i], err))
            return -1;
    }
    return 0;
}

int executor_share(struct executor *executor, struct muster_error *err)
{
    const struct plan *plan = executor->parts.plan;
    for (int i = 0; i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        if (op->kind == OP_COMM && op->from == op->to && plan->entries[op->to].kind == PLAN_PARAM_SHARD &&
            enqueue(executor, &executor->blocks[i], err))
            return -1;
    }
    return 0;
}

void executor_forget(struct executor *executor)
{
    executor->carried = false;
}

/* Makes the compute stream wait for all work that another stream has received so far. */
static int record_join(struct executor *executor, enum stream_id stream, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    return executor->joined[stream] && parts->ops->record(parts->streams[stream], executor->joined[stream])
               ? executor_refused(parts->ops, parts->device, err)
               : 0;
}

/* gathered: the gather stream was recorded already, before the carried gathers. */
static int join_compute(struct executor *executor, bool gathered, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (i == STREAM_COMPUTE || !executor->joined[i])
            continue;
        if (!(i == STREAM_GATHER && gathered) && record_join(executor, (enum stream_id)i, err))
            return -1;
        if (parts->ops->wait(parts->streams[STREAM_COMPUTE], executor->joined[i]))
            return executor_refused(parts->ops, parts->device, err);
    }
    return 0;
}

/* micros: of a run of forwards alone; 0: a step. Operations that forwards do not need are left out, but the
 * order that their waits give to the others stays. So buffers are used in the order of a step. */
static bool is_left_out(const struct schedule_op *op, int micros)
{
    return micros > 0 && (op->forward_micro < 0 || op->forward_micro >= micros);
}

static int pass_over(const struct executor *executor, const struct op_block *b, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    if (enqueue_waits(executor, b->op, err))
        return -1;
    return b->done && parts->ops->record(parts->streams[b->op->stream], b->done)
               ? executor_refused(parts->ops, parts->device, err)
               : 0;
}

/* Transfers that begin and end together: all wait before the first one, and signal after the last one. */
static int run_group(struct executor *executor, int first, int last, int micros, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    struct comm_transfer transfers[COMM_TRANSFERS];
    const struct op_block *begin = &executor->blocks[first];
    struct device_stream *stream = parts->streams[begin->op->stream];
    int count = 0;
    if (last - first > COMM_TRANSFERS)
        return error_set(err, MUSTER_E_LIMIT, "%d transfers between stages at once; at most %d", last - first,
                         COMM_TRANSFERS);
    for (int i = first; i < last; i++) {
        const struct op_block *b = &executor->blocks[i];
        if (enqueue_waits(executor, b->op, err))
            return -1;
        if (!is_left_out(b->op, micros))
            transfers[count++] = (struct comm_transfer){.op = b->op->comm, .send = b->from, .recv = b->to};
    }
    if (parts->ops->mark && parts->ops->mark(stream, first + 1))
        return executor_refused(parts->ops, parts->device, err);
    if (count && parts->comms->ops->exchange(begin->comm, transfers, count, stream, err))
        return -1;
    for (int i = first; i < last; i++)
        if (executor->blocks[i].done && parts->ops->record(stream, executor->blocks[i].done))
            return executor_refused(parts->ops, parts->device, err);
    return 0;
}

/* The loss of a micro-batch goes to the host; the next one begins at 0. */
static int take_loss(const struct executor *executor, struct plan_loss *loss, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    void *sum = executor_address(parts, parts->plan->loss, 0);
    return parts->ops->copy(parts->streams[STREAM_COMPUTE], loss, sum, sizeof *loss) ||
                   parts->ops->fill(parts->streams[STREAM_COMPUTE], sum, 0, sizeof *loss)
               ? executor_refused(parts->ops, parts->device, err)
               : 0;
}

/* Operations [0, end). losses: NULL in a step. */
static int run(struct executor *executor, int end, int micros, struct plan_loss *losses,
               struct muster_error *err)
{
    executor->evaluating = micros > 0;
    executor->runs++;
    if (!executor->carried && gather_first(executor, err))
        return -1;
    for (int i = 0; i < end; i++) {
        struct op_block *b = &executor->blocks[i];
        if (b->op->stream == STREAM_TRANSFERS) {
            int last = i + 1;
            while (last < executor->parts.plan->op_count && executor->parts.plan->ops[last].joins)
                last++;
            if (run_group(executor, i, last, micros, err))
                return -1;
            i = last - 1;
            continue;
        }
        if (is_left_out(b->op, micros)) {
            if (pass_over(executor, b, err))
                return -1;
            continue;
        }
        if ((i == executor->first_carried && record_join(executor, STREAM_GATHER, err)) ||
            enqueue_waits(executor, b->op, err) || enqueue(executor, b, err) ||
            (micros > 0 && b->loss && take_loss(executor, &losses[b->op->micro], err)))
            return -1;
    }
    executor->carried = end > executor->first_carried;
    return join_compute(executor, executor->carried, err);
}

int executor_run(struct executor *executor, struct muster_error *err)
{
    return run(executor, executor->parts.plan->op_count, 0, NULL, err);
}

bool executor_ran(const struct executor *executor, int op)
{
    return executor->blocks[op].ran == executor->runs;
}

int executor_repeat(struct executor *executor, int op)
{
    return executor->parts.ops->launch(executor->parts.streams[STREAM_COMPUTE], run_block,
                                       executor->blocks + op);
}

int executor_evaluate(struct executor *executor, int micros, struct plan_loss *losses,
                      struct muster_error *err)
{
    int end = executor->parts.plan->op_count;
    memset(losses, 0, (size_t)micros * sizeof *losses);
    while (end > 0 && is_left_out(&executor->parts.plan->ops[end - 1], micros))
        end--;
    return run(executor, end, micros, losses, err);
}
