/* plan.c - plan_build: runs the parts of the builder in order. */
#include <stddef.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "runtime/plan/plan_internal.h"

static void set_traits(struct plan_builder *b)
{
    const struct plan_options *o = b->options;
    b->place = mesh_place_of(o->mesh, o->rank);
    b->real = dtype_size(o->dtype);
    b->param = dtype_size(o->param_dtype);
    b->value = dtype_size(o->value_dtype);
    b->reduce = dtype_size(o->reduce_dtype);
    b->shard_ranks = o->strategy == STRATEGY_NO_SHARD ? 1 : o->mesh.side[SIDE_SHARD];
    b->reshard = b->shard_ranks > 1 && o->strategy != STRATEGY_SHARD_OPTIM;
    b->keep = o->strategy == STRATEGY_SHARD_GRAD_OP;
    b->replica_axis = AXIS_REPLICATE;
    b->replicas = o->mesh.side[SIDE_REPLICATE];
    if (o->strategy == STRATEGY_NO_SHARD && o->mesh.side[SIDE_SHARD] > 1) {
        b->replica_axis = AXIS_SHARD;
        b->replicas = o->mesh.side[SIDE_SHARD];
    }
    const bool both = b->shard_ranks > 1 && b->replicas > 1;
    b->row_ranks = b->shard_ranks * b->replicas;
    b->row_axis = both ? AXIS_WORLD : b->shard_ranks > 1 ? AXIS_SHARD : b->replica_axis;
    b->row_place = mesh_line(o->mesh, b->row_axis, o->rank).place;
    b->stall = -1;
    for (int s = 0; s < STREAM_COUNT; s++)
        for (int other = 0; other < STREAM_COUNT; other++)
            b->stream_clock[s].reached[other] = -1;
}

/* Parts of an evaluation go forward alone. */
static void make_table(struct plan_builder *b)
{
    const struct plan_options *o = b->options;
    b->table = o->table;
    if (o->schedule == PIPE_TABLE && o->train)
        return;
    b->table = &b->made_table;
    const enum pipe_schedule schedule = b->model->parts > 1 ? o->schedule : PIPE_1F1B;
    b->failed = pipe_table_make(schedule, o->mesh.side[SIDE_PIPELINE], o->chunks, o->micro_batches, o->train,
                                &b->made_table, b->err);
}

/* ---- buffers that live for the whole run ---- */

static int add_state(struct plan_builder *b, int g, enum plan_kind kind, enum memory_class memory,
                     int64_t elements)
{
    const struct param_group *group = &b->plan->groups[g];
    const bool stored = kind == PLAN_PARAM_SHARD && group->stored != STORED_PLAIN;
    const enum dtype dtype = stored                     ? DTYPE_U8
                             : kind == PLAN_PARAM_SHARD ? b->options->param_dtype
                                                        : b->options->dtype;
    int entry = plan_add_buffer(
        b, kind, memory, stored ? stored_bytes(group->stored, elements) : elements * dtype_size(dtype));
    b->plan->entries[entry].dtype = dtype;
    b->plan->entries[entry].group = g;
    b->plan->entries[entry].checkpointed = true;
    return entry;
}

static void add_parameters(struct plan_builder *b)
{
    for (int g = 0; g < b->plan->group_count; g++) {
        struct param_group *group = &b->plan->groups[g];
        int64_t held = group->resident ? group->padded : group->shard;
        if (!group->local)
            continue;
        group->param = add_state(b, g, PLAN_PARAM_SHARD, MEMORY_COMM, held);
        if (!plan_narrow_params(b) || !group->trainable || !b->options->train)
            continue;
        group->master = add_state(b, g, PLAN_MASTER, MEMORY_DEVICE, group->shard);
        b->plan->entries[group->param].checkpointed = false; /* the shard is the rounded master */
    }
}

int optimizer_moments(const struct optimizer_options *optimizer)
{
    return optimizer->kind != OPTIMIZER_SGD ? 2 : optimizer->momentum > 0;
}

/* Adds the optimizer's moments and the moving average. */
static void add_moments(struct plan_builder *b)
{
    const int moments = optimizer_moments(&b->options->optimizer);
    const enum memory_class memory = b->options->optimizer_memory;
    for (int g = 0; g < b->plan->group_count; g++) {
        struct param_group *group = &b->plan->groups[g];
        if (!b->options->train || !group->local || !group->trainable || group->statistic)
            continue;
        if (moments > 0)
            group->moment1 = add_state(b, g, PLAN_MOMENT1, memory, group->shard);
        if (moments > 1)
            group->moment2 = add_state(b, g, PLAN_MOMENT2, memory, group->shard);
        if (b->options->average_decay > 0)
            group->average = add_state(b, g, PLAN_AVERAGE, memory, group->shard);
    }
}

static void add_figures(struct plan_builder *b)
{
    if (!b->options->train || b->options->compression.kind == COMPRESSION_NONE)
        return;
    b->plan->figures = plan_add_buffer(b, PLAN_SCALARS, MEMORY_COMM, sizeof(struct plan_figures));
    b->plan->entries[b->plan->figures].dtype = DTYPE_F64;
}

static void add_scalars(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    int64_t batches = batch_bytes(b->model, b->options->shape) * b->options->micro_batches;
    plan->scalars = plan_add_buffer(b, PLAN_SCALARS, MEMORY_COMM, sizeof(struct step_scalars));
    plan->loss = plan_add_buffer(b, PLAN_SCALARS, MEMORY_COMM, sizeof(struct plan_loss));
    plan->figures = -1;
    plan->staging_input = plan_add_buffer(b, PLAN_STAGING, MEMORY_PINNED, sizeof(struct plan_input));
    plan->staging_batch = plan_add_buffer(b, PLAN_STAGING, MEMORY_PINNED, batches);
    plan->staging_result = plan_add_buffer(b, PLAN_STAGING, MEMORY_PINNED, sizeof(struct plan_result));
    plan->checkpoint = b->options->checkpoint_bytes > 0
                           ? plan_add_buffer(b, PLAN_CHECKPOINT, MEMORY_HOST, b->options->checkpoint_bytes)
                           : -1;
    plan->scratch = b->options->scratch_bytes > 0
                        ? plan_add_buffer(b, PLAN_SCRATCH, MEMORY_HOST, b->options->scratch_bytes)
                        : -1;
    const int made[] = {plan->scalars, plan->loss, plan->staging_input, plan->staging_batch,
                        plan->staging_result};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        plan->entries[made[i]].dtype = made[i] == plan->staging_batch ? batch_dtype(b->model) : DTYPE_F64;
}

int plan_state_entries(const struct param_group *group, int entries[PLAN_STATE_ENTRIES])
{
    const int all[PLAN_STATE_ENTRIES] = {group->param,   group->master,   group->moment1, group->moment2,
                                         group->average, group->feedback, group->factor};
    int count = 0;
    for (int i = 0; group->local && i < PLAN_STATE_ENTRIES; i++)
        if (all[i] >= 0)
            entries[count++] = all[i];
    return count;
}

static void add_copies(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    int entries[PLAN_STATE_ENTRIES];
    int64_t bytes = 0;
    plan->copies = -1;
    for (int g = 0; b->options->state_copies && g < plan->group_count; g++)
        for (int i = plan_state_entries(&plan->groups[g], entries) - 1; i >= 0; i--)
            bytes += plan->entries[entries[i]].bytes;
    if (bytes)
        plan->copies = plan_add_buffer(b, PLAN_COPIES, MEMORY_HOST, b->options->state_copies * bytes);
}

/* The comm has one such operation at a time. */
static void add_sums(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    int64_t bytes = 0;
    plan->sums = -1;
    for (int o = 0; b->options->adds_apart && o < plan->op_count; o++) {
        const struct comm_op *op = &plan->ops[o].comm;
        const bool adds = plan->ops[o].kind == OP_COMM && op->accumulate;
        bytes = adds && op->count * dtype_size(op->dtype) > bytes ? op->count * dtype_size(op->dtype) : bytes;
    }
    if (bytes)
        plan->sums = plan_add_buffer(b, PLAN_SUMS, MEMORY_DEVICE, bytes);
}

/* ---- hash ---- */

static uint64_t hash_ints(uint64_t hash, const int *values, size_t count)
{
    return text_hash(hash, values, count * sizeof *values);
}

/* Leaves out fields that differ between the ranks of a stage: offsets into shards. */
enum { HASHED_ALWAYS = 24, HASHED_GROUPS = 4 }; /* parameters of a layer, and groups */

/* A part of this rank's own shard: other ranks of the stage send other numbers of elements. */
static bool sends_own(const struct plan *plan, const struct schedule_op *op)
{
    return op->kind == OP_COMM && op->from >= 0 && plan->entries[op->from].kind == PLAN_ENCODED;
}

static uint64_t hash_op(uint64_t hash, const struct plan *plan, const struct schedule_op *op)
{
    const int fields[] = {
        (int)op->kind,
        (int)op->stream,
        op->carried,
        op->layer,
        op->micro,
        op->group,
        (int)op->mode,
        (int)op->parts,
        (int)op->axis,
        (int)op->comm.kind,
        (int)op->comm.dtype,
        (int)op->comm.reduction,
        op->comm.accumulate,
        op->comm.root,
        op->out,
        op->dout,
        op->saved,
        op->work,
        op->from,
        op->to,
        op->wait_count,
    };
    hash = hash_ints(hash, fields, sizeof fields / sizeof *fields);
    hash = hash_ints(hash, op->wait, (size_t)op->wait_count);
    if (op->kind == OP_CAST)
        hash = hash_ints(hash, (const int[]){op->beta}, 1);
    hash = hash_ints(hash, op->weight, HASHED_GROUPS);
    hash = hash_ints(hash, op->grad, HASHED_GROUPS);
    for (int i = HASHED_GROUPS; i < op->group_count; i++) /* more groups: other hashes do not change */
        hash = hash_ints(hash, (const int[]){op->weight[i], op->grad[i]}, 2);
    hash = text_hash(hash, op->grad_beta, HASHED_ALWAYS);
    for (int i = HASHED_ALWAYS; i < LAYER_PARAMS; i++)
        if (op->grad_beta[i]) /* more parameters: other hashes do not change */
            hash = hash_ints(hash, (const int[]){i}, 1);
    if (op->kind == OP_ENCODE || op->kind == OP_DECODE || op->when != WHEN_ALWAYS)
        hash = hash_ints(
            hash,
            (const int[]){(int)op->when, (int)op->compress, op->feedback, op->dense, op->factor, op->right},
            6);
    if (op->joins)
        hash = hash_ints(hash, (const int[]){op->joins}, 1);
    if (sends_own(plan, op))
        return hash;
    hash = text_hash(hash, &op->comm.count, sizeof op->comm.count);
    return text_hash(hash, &op->bytes, sizeof op->bytes);
}

static uint64_t hash_asked(uint64_t hash, const struct model *model, const struct plan_options *o)
{
    const int fields[] = {
        (int)o->strategy,
        o->mesh.side[SIDE_PIPELINE],
        o->mesh.side[SIDE_REPLICATE],
        o->mesh.side[SIDE_SHARD],
        o->shape.B,
        o->shape.T,
        o->micro_batches,
        (int)o->dtype,
        o->prefetch_forward,
        o->prefetch_backward,
        o->clip,
        o->train,
        (int)o->compression.kind,
        (int)o->optimizer.kind,
        (int)o->optimizer_memory,
        (int)o->recompute.kind,
        o->recompute.every,
        o->optimizer.nesterov,
    };
    if (o->param_dtype != o->dtype || o->reduce_dtype != o->dtype || o->check)
        hash = hash_ints(hash, (const int[]){(int)o->param_dtype, (int)o->reduce_dtype, o->check}, 3);
    if (o->value_dtype != o->dtype)
        hash = hash_ints(hash, (const int[]){(int)o->value_dtype}, 1);
    if (o->schedule != PIPE_1F1B)
        hash = hash_ints(hash, (const int[]){(int)o->schedule}, 1);
    if (o->chunks > 1)
        hash = hash_ints(hash, (const int[]){o->chunks}, 1);
    if (o->grouped)
        hash = hash_ints(hash, (const int[]){o->grouped}, 1);
    for (int i = 0; o->schedule == PIPE_TABLE && i < o->table->first[o->table->ranks]; i++)
        hash = hash_ints(
            hash, (const int[]){o->table->calls[i].phase, o->table->calls[i].part, o->table->calls[i].micro},
            3);
    if (o->chunk_bytes)
        hash = text_hash(hash, &o->chunk_bytes, sizeof o->chunk_bytes);
    if (o->embedding_gradient != EMBEDDING_AUTO)
        hash = hash_ints(hash, (const int[]){(int)o->embedding_gradient}, 1);
    if (o->average_decay > 0)
        hash = text_hash(hash, &o->average_decay, sizeof o->average_decay);
    if (o->keep_whole_bytes)
        hash = text_hash(hash, &o->keep_whole_bytes, sizeof o->keep_whole_bytes);
    const struct compression_options *c = &o->compression;
    if (c->kind != COMPRESSION_NONE) {
        hash = hash_ints(hash, (const int[]){c->rank, c->forgets}, 2);
        hash = text_hash(hash, (const int64_t[]){c->least, c->start}, 2 * sizeof(int64_t));
    }
    const double numbers[] = {c->ratio, o->optimizer.momentum, o->optimizer.dampening};
    hash = hash_ints(hash, fields, sizeof fields / sizeof *fields);
    hash = text_hash(hash, numbers, sizeof numbers);
    for (int p = 0; p < model->param_count; p++) {
        const struct param_desc *param = &model->params[p];
        hash = text_hash(hash, param->name, strlen(param->name));
        hash = text_hash(hash, param->dim, (size_t)param->ndim * sizeof *param->dim);
        hash = hash_ints(hash, (const int[]){param->trainable, param->parameter_class}, 2);
        if (param->statistic)
            hash = hash_ints(hash, (const int[]){(int)param->statistic}, 1);
        if (param->stored)
            hash = hash_ints(hash, (const int[]){(int)param->stored}, 1);
    }
    return hash;
}

static void hash_plan(struct plan_builder *b)
{
    const struct plan *plan = b->plan;
    uint64_t hash = hash_asked(TEXT_HASH_START, b->model, &plan->options);
    b->plan->asked = hash;
    for (int l = 0; l < b->model->layer_count; l++)
        b->plan->asked = hash_ints(b->plan->asked, &b->model->layers[l].part, 1);
    for (int p = 0; p < b->model->param_count; p++) {
        hash = hash_ints(hash, &plan->places[p].group, 1);
        hash = text_hash(hash, &plan->places[p].offset, sizeof plan->places[p].offset);
    }
    for (int o = 0; o < plan->op_count; o++)
        hash = hash_op(hash, plan, &plan->ops[o]);
    b->plan->hash = hash;
}

/* ---- build ---- */

/* Phases run in this order; after a failed phase no other runs. */
/* clang-format off */
static void (*const phases[])(struct plan_builder *b) = {
    /* buffers */
    make_table,
    plan_reserve,
    plan_cut_groups,
    plan_cut_segments,
    plan_list_pieces,
    add_parameters,
    add_scalars,
    add_figures,
    add_moments,
    plan_describe_layers,
    plan_list_steps,
    plan_choose_rows,
    plan_slot_classes,
    plan_make_grad_buffers,
    plan_make_edges,
    plan_assign_gathers,
    add_copies,
    /* operations */
    plan_list_rounds,
    plan_start_schedule,
    plan_emit_calls,
    plan_flush_gradients,
    plan_reduce_tied,
    plan_emit_update,
    plan_wait_for_carried,
    plan_finish_schedule,
    add_sums,
    /* addresses */
    plan_live_intervals,
    plan_place_entries,
    hash_plan,
};
/* clang-format on */

static void free_builder(struct plan_builder *b)
{
    void *const owned[] = {b->layers,         b->groups,   b->classes,      b->steps,  b->gathers,
                           b->edges,          b->out,      b->saved,        b->dout,   b->batch,
                           b->consumers_left, b->written,  b->entry_states, b->clocks, b->writers,
                           b->call_step,      b->call_end, b->rounds};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        mem_free(owned[i]);
    pipe_table_free(&b->made_table);
}

int plan_build(const struct model *model, const struct plan_options *options, struct plan *plan,
               struct muster_error *err)
{
    if (model_check(model, err) < 0 || plan_check_options(model, options, err) < 0)
        return -1;
    struct plan made = {.options = *options};
    made.options.world_size = mesh_size(options->mesh);
    made.options.chunks = options->chunks > 1 ? options->chunks : 1;
    made.options.grouped = options->grouped && options->mesh.side[SIDE_PIPELINE] > 1;
    made.options.param_dtype = plan_is_narrow(options->param_dtype) ? options->param_dtype : options->dtype;
    made.options.value_dtype = plan_is_narrow(options->value_dtype) ? options->value_dtype : options->dtype;
    made.options.reduce_dtype =
        plan_is_narrow(options->reduce_dtype) ? options->reduce_dtype : options->dtype;
    struct plan_builder b = {.model = model, .options = &made.options, .plan = &made, .err = err};
    set_traits(&b);
    for (size_t i = 0; i < sizeof phases / sizeof *phases && !b.failed; i++)
        phases[i](&b);
    free_builder(&b);
    if (b.failed)
        plan_free(&made);
    else
        *plan = made;
    return b.failed;
}

void plan_free(struct plan *plan)
{
    if (!plan)
        return;
    mem_free(plan->groups);
    mem_free(plan->places);
    mem_free(plan->group_params);
    mem_free(plan->segments);
    mem_free(plan->pieces);
    mem_free(plan->entries);
    mem_free(plan->ops);
    *plan = (struct plan){0};
}
