/* plan_check_rows.c - gradients of lookups that are exchanged as rows: which layers and micro-batches a plan
 * exchanges so is read from its operations, and everything that has to go with it is demanded. */
#include "proto/base/error.h"
#include "runtime/plan/plan_internal.h"
#include "tests/support/plan_check/plan_check_content.h"

enum { OWN_PART, ALL_PARTS };

static int call_of(const struct follower *f, int layer, int micro)
{
    return layer * f->plan->options.micro_batches + micro;
}

int follower_find_rows(struct follower *f)
{
    for (f->op = 0; f->op < f->plan->op_count; f->op++) {
        const struct schedule_op *op = &f->plan->ops[f->op];
        if (op->kind != OP_ROWS)
            continue;
        if (op->layer < 0 || op->layer >= f->model->layer_count || op->micro < 0 ||
            op->micro >= f->plan->options.micro_batches || !f->model->layers[op->layer].lookup)
            return WRONG(f, "op %d adds rows of layer %d, which looks none up", f->op, op->layer);
        f->rows[call_of(f, op->layer, op->micro)] = true;
    }
    return 0;
}

bool follower_sends_rows(const struct follower *f, int layer, int micro)
{
    return f->rows[call_of(f, layer, micro)];
}

static bool trains(const struct follower *f, int layer, int param, int group)
{
    return stage_of(f, layer) == f->stage && f->model->params[param].trainable &&
           f->plan->places[param].group == group;
}

int follower_writers(const struct follower *f, int group, int micro)
{
    int count = 0;
    for (int l = 0; l < f->model->layer_count; l++)
        for (int i = 0; !follower_sends_rows(f, l, micro) && i < f->model->layers[l].param_count; i++)
            count += trains(f, l, f->model->layers[l].param[i], group);
    return count;
}

int follower_written_micros(const struct follower *f, int group)
{
    int count = 0;
    for (int m = 0; m < f->plan->options.micro_batches; m++)
        count += follower_writers(f, group, m) > 0;
    return count;
}

/* Whether a layer writes the parameter's gradient in the micro-batches from first to last. */
static bool written(const struct follower *f, int param, int first, int last)
{
    for (int l = 0; l < f->model->layer_count; l++)
        for (int i = 0; i < f->model->layers[l].param_count; i++)
            for (int m = first; m <= last && f->model->layers[l].param[i] == param; m++)
                if (stage_of(f, l) == f->stage && !follower_sends_rows(f, l, m))
                    return true;
    return false;
}

int64_t follower_unwritten(const struct follower *f, int group, int first, int last)
{
    int64_t elements = 0;
    for (int p = 0; p < f->model->param_count; p++)
        if (f->plan->places[p].group == group && !written(f, p, first, last))
            elements += param_elements(&f->model->params[p]);
    return elements;
}

/* ---- operations ---- */

static int ranks(const struct follower *f)
{
    return f->shard_ranks * f->replicas;
}

static enum mesh_axis axis(const struct follower *f)
{
    return f->shard_ranks > 1 && f->replicas > 1 ? AXIS_WORLD
           : f->shard_ranks > 1                  ? AXIS_SHARD
                                                 : f->replica_axis;
}

static int64_t part_elements(const struct follower *f, int layer, bool index)
{
    const struct plan_options *o = &f->plan->options;
    const int64_t positions = (int64_t)o->shape.B * o->shape.T;
    return index ? positions : positions * f->model->params[f->model->layers[layer].param[0]].dim[1];
}

/* One stage: a rank's place in each of these groups of ranks is its number. */
static int64_t own_offset(const struct follower *f, int64_t part)
{
    return part * f->plan->options.rank;
}

/* This rank's part comes to its place among all of them. */
int follower_copy_part(struct follower *f, const struct schedule_op *op)
{
    const struct plan_options *o = &f->plan->options;
    const bool index = f->plan->entries[op->to].kind == PLAN_ROW_INDEX;
    const struct layer_desc *layer = &f->model->layers[op->layer];
    const int64_t bytes =
        part_elements(f, op->layer, index) * dtype_size(index ? DTYPE_I32 : f->plan->options.value_dtype);
    if (!layer->lookup || !follower_sends_rows(f, op->layer, op->micro))
        return WRONG(f, "op %d copies rows of layer %d, which exchanges none", f->op, op->layer);
    if (index ? follower_expect(f, op->from, HOLDS_BATCH, -1, op->micro) < 0
              : follower_expect(f, op->from, HOLDS_DOUT, op->layer, op->micro) < 0)
        return -1;
    if (!index && f->content[op->from].parts != f->consumers[op->layer])
        return WRONG(f, "op %d copies the output gradient of layer %d after %d of %d parts", f->op, op->layer,
                     f->content[op->from].parts, f->consumers[op->layer]);
    if (op->bytes != bytes || op->to_offset != own_offset(f, bytes) ||
        op->from_offset != (index ? batch_offset(f->model, o->shape, layer->lookup - 1) : 0) ||
        f->plan->entries[op->to].bytes < bytes * ranks(f))
        return WRONG(f, "op %d copies %lld bytes of rows at %lld to %lld", f->op, (long long)op->bytes,
                     (long long)op->from_offset, (long long)op->to_offset);
    if (f->content[op->to].held == HOLDS_GRAD || f->content[op->to].held == HOLDS_ROUNDED)
        return WRONG(f, "op %d copies rows over a gradient of group %d", f->op, f->content[op->to].of);
    follower_hold(f, op->to, index ? HOLDS_ROW_INDEX : HOLDS_ROWS, op->layer, op->micro);
    f->content[op->to].parts = OWN_PART;
    return 0;
}

int follower_gather_parts(struct follower *f, const struct schedule_op *op)
{
    const bool index = f->plan->entries[op->to].kind == PLAN_ROW_INDEX;
    const int64_t count = part_elements(f, op->layer, index);
    if (op->from != op->to ||
        follower_expect(f, op->to, index ? HOLDS_ROW_INDEX : HOLDS_ROWS, op->layer, op->micro) < 0 ||
        f->content[op->to].parts != OWN_PART)
        return WRONG(f, "op %d gathers rows of layer %d, of which this rank's are not there", f->op,
                     op->layer);
    if (op->axis != axis(f) || op->comm.count != count || op->to_offset != 0 ||
        op->from_offset != own_offset(f, count * dtype_size(op->comm.dtype)) ||
        op->comm.dtype != (index ? DTYPE_I32 : f->plan->options.value_dtype))
        return WRONG(f, "op %d gathers %lld rows' elements over axis %s", f->op, (long long)op->comm.count,
                     axis_name(op->axis));
    f->content[op->to].parts = ALL_PARTS;
    return 0;
}

/* To what other layers have written, when it is reduced; to zeroes where no layer writes anything. */
int follower_rows(struct follower *f, const struct schedule_op *op)
{
    const int g = op->group;
    if (g < 0 || !f->plan->groups[g].trainable || op->to != f->plan->groups[g].grad)
        return WRONG(f, "op %d adds rows to buffer %d of group %d", f->op, op->to, g);
    const struct param_group *desc = &f->plan->groups[g];
    struct group_progress *group = &f->groups[g];
    if (follower_expect(f, op->from, HOLDS_ROWS, op->layer, op->micro) < 0 ||
        follower_expect(f, op->batch, HOLDS_ROW_INDEX, op->layer, op->micro) < 0)
        return -1;
    if (f->content[op->from].parts != ALL_PARTS || f->content[op->batch].parts != ALL_PARTS)
        return WRONG(f, "op %d adds rows of layer %d before they are gathered", f->op, op->layer);
    if (desc->shard_start !=
        (desc->shard_size > 1
             ? desc->shard * mesh_place_of(f->plan->options.mesh, f->plan->options.rank).at[SIDE_SHARD]
             : 0))
        return WRONG(f, "op %d: the shard of group %d begins at %lld", f->op, g,
                     (long long)desc->shard_start);
    if (group->normed || group->stepped)
        return WRONG(f, "op %d adds rows to group %d behind its norm or step", f->op, g);
    if (f->calls[2 * call_of(f, op->layer, op->micro) + 1] > 0)
        return WRONG(f, "op %d adds rows of layer %d, whose gradient was written, too", f->op, op->layer);
    if (op->micro < group->rows_next)
        return WRONG(f, "op %d adds rows of micro-batch %d to group %d again", f->op, op->micro, g);
    group->rows_next = op->micro + 1;
    group->rows++;
    return follower_check_reduced(f, op->to, g);
}

/* After the last operation of a step. */
int follower_check_rows(const struct follower *f, int g)
{
    int wanted = 0;
    for (int l = 0; l < f->model->layer_count; l++) {
        bool in_group = false;
        for (int i = 0; i < f->model->layers[l].param_count; i++)
            in_group |= trains(f, l, f->model->layers[l].param[i], g);
        for (int m = 0; in_group && m < f->plan->options.micro_batches; m++)
            wanted += follower_sends_rows(f, l, m);
    }
    if (f->groups[g].rows != wanted)
        return WRONG(f, "op %d uses the gradient of group %d after %d of %d exchanges of rows", f->op, g,
                     f->groups[g].rows, wanted);
    return 0;
}
