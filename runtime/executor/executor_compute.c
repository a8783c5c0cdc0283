/* executor_compute.c - the functions that the compute stream calls: layers, sums, the optimizer, casts, rows
 * and compression. */
#include <string.h>

#include "runtime/executor/executor_internal.h"

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

/* Units of a group that is held in few bits. */
static void open_stored(const struct op_block *b, enum dtype to, int64_t n)
{
    const struct kernels *k = b->executor->parts.kernels;
    const enum stored stored = b->executor->parts.plan->groups[b->op->group].stored;
    if (k->compress)
        k->compress->stored_open(b->to, to, b->from, stored, n, b->context.stream);
    else
        stored_open(stored, b->from, n, b->to, to);
}

static void run_cast(void *argument)
{
    const struct op_block *b = argument;
    const struct kernels *k = b->executor->parts.kernels;
    const struct plan_entry *entries = b->executor->parts.plan->entries;
    const enum dtype from = entries[b->op->from].dtype, to = entries[b->op->to].dtype;
    const int64_t n = b->op->bytes / dtype_size(to);
    if (from == DTYPE_U8)
        open_stored(b, to, n);
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

void executor_run_vote(void *argument)
{
    const struct op_block *b = argument;
    const struct step_guard *guard = b->executor->parts.guard;
    memset(b->from, 0, (size_t)b->op->bytes);
    if (guard->vote)
        guard->vote(guard->voter, b->from);
}

void (*const executor_functions[OP_KIND_COUNT])(void *) = {
    [OP_FORWARD] = run_forward, [OP_BACKWARD] = run_backward, [OP_NORM] = run_norm,
    [OP_CLIP] = run_clip,       [OP_STEP] = run_step,         [OP_CAST] = run_cast,
    [OP_AVERAGE] = run_average, [OP_ROWS] = run_rows,         [OP_ENCODE] = run_encode,
    [OP_DECODE] = run_decode,
};
