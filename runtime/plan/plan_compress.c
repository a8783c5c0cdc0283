/* plan_compress.c - gradients that replicas exchange in fewer bytes: the pieces of each group, and the
 * operations from a complete gradient to the replicas' sum.
 *
 * Encoding and decoding run on the compute stream, transfers on the reduce stream. With clipping, or with a
 * check for gradients that are not finite, the norm is formed first, of the gradients before compression:
 * then all groups begin after the clip, so that all transfers but the last overlap other groups' encoding.
 * Without either a group begins when its gradient is complete, during the backward pass. */
#include <math.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/plan/plan_internal.h"

enum { PLACE_BYTES = 4 }; /* of an element's place under top-k */

/* ---- pieces ---- */

/* The compressed form of a tensor, of which this rank's shard has `count` elements. */
static struct compress_piece describe(const struct plan_builder *b, int param, int64_t count)
{
    const struct compression_options *o = &b->options->compression;
    const struct param_desc *desc = &b->model->params[param];
    const int64_t elements = param_elements(desc);
    struct compress_piece piece = {.param = param, .count = count};
    if (elements < o->least || elements > UINT32_MAX)
        return piece;
    if (o->kind == COMPRESSION_TOPK) {
        piece.kept = compress_kept(o->ratio, count);
        return piece;
    }
    const int64_t rows = desc->ndim > 1 ? desc->dim[0] : 1, columns = elements / rows;
    int64_t rank = o->rank < rows ? o->rank : rows;
    rank = rank < columns ? rank : columns;
    if (rows > 1 && columns > 1 && (rows + columns) * rank < elements) {
        piece.rows = rows;
        piece.columns = columns;
        piece.rank = (int)rank;
    }
    return piece;
}

static bool is_compressed(const struct plan_builder *b, int param)
{
    const struct compress_piece piece = describe(b, param, param_elements(&b->model->params[param]));
    return piece.kept > 0 || piece.rank > 0;
}

static void list_group(struct plan_builder *b, int g)
{
    struct plan *plan = b->plan;
    struct param_group *group = &plan->groups[g];
    struct compress_sizes at = {0};
    group->first_piece = plan->piece_count;
    for (int i = 0; i < group->param_count; i++)
        group->compressed |= is_compressed(b, plan->group_params[group->first_param + i]);
    for (int i = 0; group->compressed && i < group->param_count; i++) {
        const int param = plan->group_params[group->first_param + i];
        const int64_t start = plan->places[param].offset,
                      end = start + param_elements(&b->model->params[param]),
                      first = start > group->shard_start ? start : group->shard_start,
                      last =
                          end < group->shard_start + group->shard ? end : group->shard_start + group->shard;
        struct compress_piece piece = describe(b, param, last > first ? last - first : 0);
        if (!piece.count && !piece.rank)
            continue;
        piece.at = piece.count ? first - group->shard_start : 0;
        piece.first = piece.count ? first - start : 0;
        piece.left = at.left;
        piece.right = at.right;
        at.left += piece.rows * piece.rank;
        at.right += piece.columns * piece.rank;
        plan->pieces[plan->piece_count++] = piece;
    }
    group->piece_count = plan->piece_count - group->first_piece;
}

void plan_list_pieces(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    for (int g = 0; g < plan->group_count; g++)
        plan->groups[g].feedback = plan->groups[g].factor = -1;
    if (!b->options->train || b->options->compression.kind == COMPRESSION_NONE)
        return;
    plan->pieces = mem_calloc((size_t)b->model->param_count, sizeof *plan->pieces);
    if (!plan->pieces) {
        b->failed =
            error_set(b->err, MUSTER_E_NOMEM, "no memory to compress %d parameters", b->model->param_count);
        return;
    }
    for (int g = 0; g < plan->group_count; g++) {
        const struct param_group *group = &plan->groups[g];
        if (group->local && group->trainable && !group->whole && !group->statistic)
            list_group(b, g);
    }
}

/* ---- buffers ---- */

static struct compress_sizes sizes_of(const struct plan *plan, const struct param_group *group)
{
    return compress_measure(&plan->pieces[group->first_piece], group->piece_count);
}

static int state_buffer(struct plan_builder *b, int g, enum plan_kind kind, int64_t elements)
{
    const int entry = plan_add_buffer(b, kind, MEMORY_DEVICE, elements * b->real);
    b->plan->entries[entry].group = g;
    b->plan->entries[entry].checkpointed = true;
    return entry;
}

void plan_add_feedback(struct plan_builder *b, int g)
{
    struct param_group *group = &b->plan->groups[g];
    if (!plan_compresses(b, g))
        return;
    if (!b->options->compression.forgets)
        group->feedback = state_buffer(b, g, PLAN_ERROR_FEEDBACK, group->shard);
    if (b->options->compression.kind == COMPRESSION_POWERSGD)
        group->factor = state_buffer(b, g, PLAN_FACTOR, sizes_of(b->plan, group).right);
}

static int transit_buffer(struct plan_builder *b, int g, int64_t bytes)
{
    const int entry = plan_add_buffer(b, PLAN_ENCODED, MEMORY_COMM, bytes);
    b->plan->entries[entry].group = g;
    return entry;
}

/* Whether any rank of the stage sends tensors of the group dense: all ranks have the same operations. */
static bool has_dense(const struct plan_builder *b, const struct param_group *group)
{
    for (int i = 0; i < group->param_count; i++)
        if (!is_compressed(b, b->plan->group_params[group->first_param + i]))
            return true;
    return false;
}

/* A rank whose shard has no such element still takes part, with one. */
static int64_t at_least_one(int64_t elements)
{
    return elements > 0 ? elements : 1;
}

/* ---- operations ---- */

/* Work memory on a device; encoding finds the largest elements there, decoding a product's error. */
static int coding_work(struct plan_builder *b, enum op_kind kind)
{
    const struct kernels_compress *k = b->options->kernels ? b->options->kernels->compress : NULL;
    const bool power = b->options->compression.kind == COMPRESSION_POWERSGD;
    if (!k || power != (kind == OP_DECODE))
        return -1;
    return plan_add_transient(b, PLAN_WORK, -1, -1, (int64_t)(power ? k->power_work() : k->topk_work()));
}

static struct schedule_op coding(struct plan_builder *b, enum op_kind kind, int g, int from, int to)
{
    const struct param_group *group = &b->plan->groups[g];
    struct schedule_op op = plan_op(kind, STREAM_COMPUTE);
    op.group = g;
    op.micro = -1;
    op.from = from;
    op.to = to;
    op.bytes = group->shard * b->real;
    op.work = coding_work(b, kind);
    op.compress = COMPRESS_TOPK;
    if (b->options->compression.kind == COMPRESSION_POWERSGD)
        op.compress = COMPRESS_LEFT;
    return op;
}

/* In place. */
static void emit_transfer(struct plan_builder *b, int g, enum comm_kind kind, enum mesh_axis axis, int entry,
                          enum dtype dtype, int64_t offset, int64_t count)
{
    struct schedule_op op = plan_op(OP_COMM, STREAM_REDUCE);
    if (mesh_line(b->options->mesh, axis, b->options->rank).size == 1)
        return;
    op.axis = axis;
    op.group = g;
    op.from = op.to = entry;
    op.from_offset = op.to_offset = offset;
    if (kind == COMM_ALL_GATHER)
        op.to_offset = 0;
    plan_emit_comm(b, &op, kind, dtype, count);
}

/* The ranks whose elements of a matrix add up to its factors. */
static enum mesh_axis factor_axis(const struct plan_builder *b)
{
    return b->shard_ranks > 1 ? AXIS_DATA : b->replica_axis;
}

enum dtype plan_topk_wire(const struct plan *plan)
{
    return plan_is_narrow(plan->options.reduce_dtype) ? plan->options.reduce_dtype : plan->options.dtype;
}

static int64_t topk_bytes(const struct plan *plan, const struct param_group *group)
{
    const int64_t kept = at_least_one(sizes_of(plan, group).kept);
    return compress_values_bytes(kept, dtype_size(plan_topk_wire(plan))) + kept * PLACE_BYTES;
}

static int replica_of(const struct plan_builder *b)
{
    return mesh_line(b->options->mesh, b->replica_axis, b->options->rank).place;
}

void plan_begin_exchange(struct plan_builder *b, int g)
{
    const struct param_group *group = &b->plan->groups[g];
    struct plan_group_state *state = &b->groups[g];
    const struct compress_sizes sizes = sizes_of(b->plan, group);
    const bool power = b->options->compression.kind == COMPRESSION_POWERSGD;
    const int64_t own = power ? at_least_one(sizes.left) * b->real : topk_bytes(b->plan, group),
                  offset = power ? 0 : own * replica_of(b);
    if (state->encoded >= 0)
        return;
    state->encoded = transit_buffer(b, g, power ? own : own * b->replicas);
    if (has_dense(b, group))
        state->dense = transit_buffer(b, g, at_least_one(sizes.dense) * b->real);
    struct schedule_op op = coding(b, OP_ENCODE, g, group->grad, state->encoded);
    op.to_offset = offset;
    op.feedback = group->feedback;
    op.dense = state->dense;
    op.factor = group->factor;
    plan_emit(b, &op, -1);
    if (state->dense >= 0)
        emit_transfer(b, g, COMM_ALL_REDUCE, b->replica_axis, state->dense, b->options->dtype, 0,
                      at_least_one(sizes.dense));
    if (power)
        emit_transfer(b, g, COMM_ALL_REDUCE, factor_axis(b), state->encoded, b->options->dtype, 0,
                      at_least_one(sizes.left));
    else
        emit_transfer(b, g, COMM_ALL_GATHER, b->replica_axis, state->encoded, DTYPE_I32, offset, own / 4);
}

void plan_begin_early(struct plan_builder *b, int g)
{
    if (!b->options->clip && !b->options->check && !plan_is_tied(&b->plan->groups[g]))
        plan_begin_exchange(b, g);
}

/* The second factor of the matrices. */
static void exchange_right(struct plan_builder *b, int g)
{
    const struct param_group *group = &b->plan->groups[g];
    const int64_t elements = at_least_one(sizes_of(b->plan, group).right);
    struct plan_group_state *state = &b->groups[g];
    state->right = transit_buffer(b, g, elements * b->real);
    struct schedule_op op = coding(b, OP_ENCODE, g, group->grad, state->right);
    op.compress = COMPRESS_RIGHT;
    op.factor = state->encoded;
    plan_emit(b, &op, -1);
    emit_transfer(b, g, COMM_ALL_REDUCE, factor_axis(b), state->right, b->options->dtype, 0, elements);
}

static void decode_group(struct plan_builder *b, int g)
{
    const struct param_group *group = &b->plan->groups[g];
    const struct plan_group_state *state = &b->groups[g];
    struct schedule_op op = coding(b, OP_DECODE, g, state->encoded, group->grad);
    op.dense = state->dense;
    op.right = state->right;
    if (op.compress != COMPRESS_TOPK) {
        op.feedback = group->feedback;
        op.factor = group->factor;
    }
    plan_emit(b, &op, -1);
}

void plan_exchange(struct plan_builder *b, const int *order, int count)
{
    for (int i = 0; i < count; i++)
        plan_begin_exchange(b, order[i]);
    for (int i = 0; i < count && b->options->compression.kind == COMPRESSION_POWERSGD; i++)
        exchange_right(b, order[i]);
    for (int i = 0; i < count; i++)
        decode_group(b, order[i]);
}

/* ---- bytes between replicas ---- */

/* Bytes that a rank of a line sends for a sum of so many bytes. */
static int64_t sum_bytes(int64_t bytes, int ranks)
{
    return 2 * bytes * (ranks - 1) / ranks;
}

static enum mesh_axis replica_axis_of(const struct plan_options *o)
{
    return o->strategy == STRATEGY_NO_SHARD && o->mesh.side[SIDE_SHARD] > 1 ? AXIS_SHARD : AXIS_REPLICATE;
}

struct plan_wire_shape plan_wire_shape(const struct plan *plan, int group)
{
    const struct plan_options *o = &plan->options;
    return (struct plan_wire_shape){.replicas = mesh_line(o->mesh, replica_axis_of(o), o->rank).size,
                                    .stride = topk_bytes(plan, &plan->groups[group])};
}

struct plan_wire plan_wire_bytes(const struct plan *plan)
{
    const struct plan_options *o = &plan->options;
    struct plan_wire wire = {0};
    const int replicas = mesh_line(o->mesh, replica_axis_of(o), o->rank).size;
    for (int g = 0; o->train && replicas > 1 && g < plan->group_count; g++) {
        const struct param_group *group = &plan->groups[g];
        const int64_t dense = sum_bytes(group->shard * dtype_size(o->reduce_dtype), replicas);
        if (!group->local || !group->trainable)
            continue;
        wire.dense += dense;
        wire.compressed += group->compressed ? 0 : dense;
    }
    for (int i = 0; i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        if (op->kind != OP_COMM || op->from < 0 || plan->entries[op->from].kind != PLAN_ENCODED)
            continue;
        const int ranks = plan_comm_line(plan, op).size;
        wire.compressed +=
            op->comm.kind == COMM_ALL_GATHER ? op->bytes * (ranks - 1) : sum_bytes(op->bytes, ranks);
    }
    return wire;
}

int plan_topk_border(const struct plan *plan)
{
    const double size = dtype_size(plan_topk_wire(plan));
    const double replicas = 2 * size / (plan->options.compression.ratio * (size + PLACE_BYTES));
    return (int)ceil(replicas - 1e-9);
}
