/* plan_check_content.c - follows the contents of every buffer through the schedule: which group's parameters,
 * which layer's output, which gradients and how complete they are. The required contents are derived from
 * model and options alone.
 *
 * Runs are followed in sequence, as a trainer makes them: a first step, which begins with nothing
 * but the carried gathers made alone; a second step, which begins with the first step's buffers; an
 * evaluation, which does so too; and a step after the evaluation, whose carried gathers are made anew.
 * Parameters have a version, the steps taken: a call has to use the latest version. */
#include <stddef.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/plan/plan_internal.h"
#include "tests/support/plan_check/plan_check.h"
#include "tests/support/plan_check/plan_check_content.h"

static const char *const held_names[] = {
    "nothing",     "parameters",      "output",          "output gradient",  "saved",
    "gradient",    "batch",           "wide parameters", "rounded gradient", "rows",
    "row indices", "encoded gradient"};

/* ---- expectations ---- */

static void expect_layers(struct follower *f)
{
    const struct model *model = f->model;
    for (int l = 0; l < model->layer_count; l++) {
        const struct layer_desc *layer = &model->layers[l];
        for (int i = 0; i < layer->param_count; i++) {
            bool trainable = f->plan->options.train && model->params[layer->param[i]].trainable;
            f->needs_grad[l] |= trainable;
        }
        for (int i = 0; i < layer->source_count; i++)
            if (layer->source[i] != SOURCE_BATCH)
                f->needs_grad[l] |= f->needs_grad[layer->source[i]];
        bool next = false;
        for (int user = l + 1; user < model->layer_count; user++)
            for (int i = 0; i < model->layers[user].source_count; i++) {
                f->consumers[l] += model->layers[user].source[i] == l && stage_of(f, user) == f->stage;
                next |= model->layers[user].source[i] == l && stage_of(f, user) != f->stage;
            }
        f->consumers[l] +=
            next && stage_of(f, l) == f->stage; /* the gradient from the next stage counts as one */
    }
    for (int p = 0; p < model->param_count; p++)
        f->groups[f->plan->places[p].group].used += param_elements(&model->params[p]);
}

static void expect_resident(struct follower *f)
{
    const struct plan *plan = f->plan;
    for (int g = 0; g < plan->group_count; g++)
        if (plan->groups[g].local && plan->groups[g].resident)
            f->content[plan->groups[g].param] = (struct content){.held = HOLDS_PARAM, .of = g, .micro = -1};
}

/* ---- calls ---- */

int follower_expect(const struct follower *f, int entry, enum held held, int of, int micro)
{
    if (entry < 0)
        return WRONG(f, "op %d has no buffer for the %s of %d", f->op, held_names[held], of);
    const struct content *c = &f->content[entry];
    if (c->held != held || c->of != of || c->micro != micro)
        return WRONG(
            f, "op %d wants buffer %d to hold the %s of %d (micro-batch %d) but it holds the %s of %d (%d)",
            f->op, entry, held_names[held], of, micro, held_names[c->held], c->of, c->micro);
    return 0;
}

static int follow_inputs(struct follower *f, const struct schedule_op *op)
{
    const struct layer_desc *layer = &f->model->layers[op->layer];
    for (int i = 0; i < layer->source_count; i++)
        if (layer->source[i] != SOURCE_BATCH &&
            follower_expect(f, op->in[i], HOLDS_OUT, layer->source[i], op->micro) < 0)
            return -1;
    for (int i = 0; i < layer->param_count; i++) {
        int group = f->plan->places[layer->param[i]].group, at = 0;
        while (at < op->group_count && op->used_group[at] != group)
            at++;
        if (at == op->group_count)
            return WRONG(f, "op %d has no weights for group %d", f->op, group);
        if (follower_expect(f, op->weight[at], opens(f, group) ? HOLDS_WIDE : HOLDS_PARAM, group, -1) < 0)
            return -1;
        const int version = f->content[op->weight[at]].parts;
        if (version != (f->plan->groups[group].trainable ? f->steps : 0))
            return WRONG(f, "op %d uses parameters of group %d after %d of %d steps", f->op, group, version,
                         f->steps);
    }
    if (op->batch < 0 && f->model->parts > 1 && !layer->inputs &&
        !(layer->source_count && layer->source[0] == SOURCE_BATCH)) /* this stage reads no batch */
        return 0;
    return follower_expect(f, op->batch, HOLDS_BATCH, -1, op->micro);
}

void follower_hold(struct follower *f, int entry, enum held held, int of, int micro)
{
    if (entry >= 0)
        f->content[entry] = (struct content){.held = held, .of = of, .micro = micro};
}

static int follow_forward(struct follower *f, const struct schedule_op *op)
{
    int at = op->layer * f->plan->options.micro_batches + op->micro;
    if (follow_inputs(f, op) < 0)
        return -1;
    if (op->mode != LAYER_RECOMPUTE && f->calls[2 * at]++ > 0)
        return WRONG(f, "op %d calls layer %d forward again", f->op, op->layer);
    follower_hold(f, op->out, HOLDS_OUT, op->layer, op->micro);
    follower_hold(f, op->saved, HOLDS_SAVED, op->layer, op->micro);
    return 0;
}

static int add_contribution(struct follower *f, int entry, enum held held, int of, int micro, int beta)
{
    struct content *c = &f->content[entry];
    bool begun = c->held == held && c->of == of && c->micro == micro && c->parts > 0;
    if (begun != (beta == 1))
        return WRONG(f, "op %d %s buffer %d, which holds the %s of %d after %d parts", f->op,
                     beta ? "adds to" : "overwrites", entry, held_names[c->held], c->of, c->parts);
    if (!begun)
        follower_hold(f, entry, held, of, micro);
    c->parts++;
    return 0;
}

static int follow_param_gradients(struct follower *f, const struct schedule_op *op)
{
    const struct layer_desc *layer = &f->model->layers[op->layer];
    for (int i = 0; i < layer->param_count; i++) {
        int param = layer->param[i], group = f->plan->places[param].group, at = 0;
        if (!f->model->params[param].trainable)
            continue;
        while (op->used_group[at] != group)
            at++;
        int entry = op->grad[at];
        if (entry < 0 || !(op->parts & LAYER_WEIGHT))
            return WRONG(f, "op %d forms no gradient of trainable parameter %d", f->op, param);
        struct content *c = &f->content[entry];
        int micro = reshards(f, group) ? op->micro : -1;
        bool opened = c->held == HOLDS_GRAD && c->of == group && c->parts == 0; /* its gaps are zeroed */
        if (opened)
            c->micro = micro;
        else if (reshards(f, group) && c->held == HOLDS_GRAD && (c->of != group || c->micro != micro))
            return WRONG(f, "op %d writes gradients of group %d over those of group %d", f->op, group, c->of);
        else if (c->held != HOLDS_GRAD)
            follower_hold(f, entry, HOLDS_GRAD, group, micro);
        if (c->parts == 0) /* a new gradient: none of its parameters is written */
            for (int p = 0; p < f->model->param_count; p++)
                f->written[p] = f->plan->places[p].group == group ? 0 : f->written[p];
        if ((f->written[param]++ > 0) != (op->grad_beta[i] == 1))
            return WRONG(f, "op %d has beta %d for parameter %d after %d writes", f->op, op->grad_beta[i],
                         param, f->written[param] - 1);
        c->parts++;
    }
    return 0;
}

static int follow_backward(struct follower *f, const struct schedule_op *op, bool saved)
{
    const struct layer_desc *layer = &f->model->layers[op->layer];
    int at = op->layer * f->plan->options.micro_batches + op->micro;
    if (follow_inputs(f, op) < 0)
        return -1;
    if (f->calls[2 * at] == 0 || f->calls[2 * at + 1]++ > 0)
        return WRONG(f, "op %d calls layer %d backward before its forward or again", f->op, op->layer);
    if (saved && follower_expect(f, op->saved, HOLDS_SAVED, op->layer, op->micro) < 0)
        return -1;
    if (op->out >= 0) {
        if (follower_expect(f, op->out, HOLDS_OUT, op->layer, op->micro) < 0 ||
            follower_expect(f, op->dout, HOLDS_DOUT, op->layer, op->micro) < 0)
            return -1;
        if (f->content[op->dout].parts != f->consumers[op->layer])
            return WRONG(f, "op %d uses the output gradient of layer %d after %d of %d parts", f->op,
                         op->layer, f->content[op->dout].parts, f->consumers[op->layer]);
    }
    for (int i = 0; i < layer->source_count; i++) {
        int source = layer->source[i];
        bool wanted = source != SOURCE_BATCH && f->needs_grad[source];
        if (wanted != (op->din[i] >= 0))
            return WRONG(f, "op %d: input gradient %d is %s", f->op, i, wanted ? "missing" : "not wanted");
        if (wanted && add_contribution(f, op->din[i], HOLDS_DOUT, source, op->micro, op->din_beta[i]) < 0)
            return -1;
    }
    return f->needs_grad[op->layer] ? follow_param_gradients(f, op)
                                    : WRONG(f, "op %d is a backward that no operation needs", f->op);
}

/* ---- communication ---- */

/* The full gradient has everything that this reduction needs. */
int follower_check_complete(const struct follower *f, int entry, int g, int micro)
{
    const struct group_progress *group = &f->groups[g];
    const struct param_group *desc = &f->plan->groups[g];
    int element = dtype_size(f->plan->options.dtype);
    const int first = reshards(f, g) ? micro : 0,
              last = reshards(f, g) ? micro : f->plan->options.micro_batches - 1;
    int64_t zeroed = follower_unwritten(f, g, first, last);
    int expected = 0;
    for (int m = first; m <= last; m++)
        expected += follower_writers(f, g, m);
    if (follower_expect(f, entry, HOLDS_GRAD, g, reshards(f, g) ? micro : -1) < 0)
        return -1;
    if (f->content[entry].parts != expected)
        return WRONG(f, "op %d reduces group %d after %d of %d contributions", f->op, g,
                     f->content[entry].parts, expected);
    if (reshards(f, g))
        zeroed += desc->padded - group->used;
    if (f->content[entry].filled != zeroed * element)
        return WRONG(f, "op %d reduces group %d with %lld of %lld bytes of gaps zeroed", f->op, g,
                     (long long)f->content[entry].filled, (long long)zeroed * element);
    return 0;
}

/* Bytes from the begin of a full buffer of the group to this rank's shard of it. */
int64_t follower_own_bytes(const struct follower *f, int g, enum dtype dtype)
{
    const struct param_group *group = &f->plan->groups[g];
    const struct plan_options *o = &f->plan->options;
    return group->shard_size > 1
               ? group->shard * mesh_place_of(o->mesh, o->rank).at[SIDE_SHARD] * dtype_size(dtype)
               : 0;
}

/* A reduction in place on a slot that holds the group's rounded gradient. */
static int follow_narrow(struct follower *f, const struct schedule_op *op, enum rounded_part part)
{
    const struct param_group *desc = &f->plan->groups[op->group];
    int64_t own = follower_own_bytes(f, op->group, f->plan->options.reduce_dtype);
    struct content *c = op->from == op->to && op->to >= 0 ? &f->content[op->to] : NULL;
    if (!c || c->held != HOLDS_ROUNDED || c->of != op->group || (c->parts & (int)part))
        return WRONG(f, "op %d reduces buffer %d, which does not hold the rounded gradient of group %d",
                     f->op, op->to, op->group);
    bool scatters = part == ROUNDED_SCATTERED, sum = c->parts & ROUNDED_SUM;
    if (op->comm.accumulate || op->comm.count != desc->shard || op->to_offset != (sum ? 0 : own) ||
        op->from_offset != (scatters || sum ? 0 : own))
        return WRONG(f, "op %d reduces %lld elements of group %d at %lld to %lld", f->op,
                     (long long)op->comm.count, op->group, (long long)op->from_offset,
                     (long long)op->to_offset);
    if (!scatters && !sum && (c->micro != last_back(f) || sums_late(f, op->group)))
        return WRONG(f, "op %d sums micro-batch %d of group %d over replicas", f->op, c->micro, op->group);
    if (!scatters && !sum && desc->shard_size > 1 && !(c->parts & ROUNDED_SCATTERED))
        return WRONG(f, "op %d sums group %d over replicas before its shards", f->op, op->group);
    if (desc->whole && part == ROUNDED_REPLICATED && !(c->parts & ROUNDED_WHOLE))
        return WRONG(f, "op %d sums group %d over replicas before its ranks", f->op, op->group);
    if (!has_right_steps(f, op, part == ROUNDED_REPLICATED))
        return WRONG(f, "op %d reduces group %d in steps of kind %d", f->op, op->group, (int)op->when);
    c->parts |= (int)part;
    (*(scatters ? &f->groups[op->group].scattered : &f->groups[op->group].replicated))++;
    return 0;
}

static int follow_reduce_scatter(struct follower *f, const struct schedule_op *op)
{
    struct group_progress *group = &f->groups[op->group];
    if (f->narrow)
        return follow_narrow(f, op, ROUNDED_SCATTERED);
    if (follower_check_complete(f, op->from, op->group, op->micro) < 0)
        return -1;
    if (op->to != f->plan->groups[op->group].grad || op->comm.count != f->plan->groups[op->group].shard)
        return WRONG(f, "op %d reduces group %d into buffer %d, %lld elements", f->op, op->group, op->to,
                     (long long)op->comm.count);
    if (op->comm.accumulate != (group->scattered++ > 0))
        return WRONG(f, "op %d: reduction %d of group %d %s", f->op, group->scattered, op->group,
                     op->comm.accumulate ? "adds" : "overwrites");
    if (f->reshard)
        f->content[op->from].held = HOLDS_NOTHING;
    return 0;
}

/* The operations on a group's shard before replicas exchange it. */
int follower_check_scattered(const struct follower *f, int entry, int g)
{
    const int micros = follower_written_micros(f, g);
    int scatters = reshards(f, g) ? micros : f->plan->groups[g].whole ? 0 : f->shard_ranks > 1 && micros > 0;
    if (entry != f->plan->groups[g].grad)
        return WRONG(f, "op %d works on buffer %d, not on the gradient of group %d", f->op, entry, g);
    if (f->groups[g].scattered != scatters)
        return WRONG(f, "op %d works on the gradient of group %d after %d of %d reductions", f->op, g,
                     f->groups[g].scattered, scatters);
    const bool rounded = f->narrow && micros && (f->plan->groups[g].shard_size > 1 || goes_dense(f, g));
    const int widened = !rounded ? 0 : reshards(f, g) ? micros + sums_late(f, g) : 1;
    if (f->groups[g].widened != widened)
        return WRONG(f, "op %d works on the gradient of group %d after %d of %d widenings", f->op, g,
                     f->groups[g].widened, widened);
    if (micros == 0) /* all of it comes in rows */
        return follower_expect(f, entry, HOLDS_GRAD, g, -1) < 0 ||
                       f->content[entry].filled !=
                           f->plan->groups[g].shard * dtype_size(f->plan->options.dtype)
                   ? WRONG(f, "op %d adds to a gradient of group %d that is not zeroed", f->op, g)
                   : 0;
    return scatters == 0 ? follower_check_complete(f, entry, g, -1) : 0;
}

static int follow_all_reduce(struct follower *f, const struct schedule_op *op)
{
    struct group_progress *group = &f->groups[op->group];
    bool tied = op->axis == AXIS_TIED;
    const bool whole = f->plan->groups[op->group].whole && group->replicated == 0;
    if (!tied && op->axis != (whole ? AXIS_SHARD : f->replica_axis))
        return WRONG(f, "op %d reduces group %d over axis %s", f->op, op->group, axis_name(op->axis));
    if (f->narrow && !tied)
        return follow_narrow(f, op, whole ? ROUNDED_WHOLE : ROUNDED_REPLICATED);
    if (tied && group->replicated != wanted_sums(f, op->group))
        return WRONG(f, "op %d ties group %d before its replicas are summed", f->op, op->group);
    (*(tied ? &group->tied : &group->replicated))++;
    return follower_check_scattered(f, op->to, op->group);
}

static int follow_all_gather(struct follower *f, const struct schedule_op *op)
{
    if (op->group < 0)
        return op->to < 0 || op->layer < 0 ? WRONG(f, "op %d gathers buffer %d", f->op, op->to)
                                           : follower_gather_parts(f, op);
    struct group_progress *group = &f->groups[op->group];
    enum plan_kind to = f->plan->entries[op->to].kind;
    const struct param_group *desc = &f->plan->groups[op->group];
    if (op->comm.count * dtype_size(op->comm.dtype) != follower_held_bytes(f, op->group, desc->shard) ||
        f->plan->entries[op->to].bytes < follower_held_bytes(f, op->group, desc->padded))
        return WRONG(f, "op %d gathers %lld elements of group %d", f->op, (long long)op->comm.count,
                     op->group);
    if (to == PLAN_PARAM_SHARD)
        group->regathered += group->stepped == 1;
    follower_hold(f, op->to, HOLDS_PARAM, op->group, -1);
    f->content[op->to].parts = group->version;
    return 0;
}

/* Follows the sum of a step's scalars and its loss. */
static int follow_sum(struct follower *f, const struct schedule_op *op)
{
    if (op->to == f->plan->scalars && !f->clipped)
        f->norm_sums[op->axis]++;
    else if (op->to == f->plan->loss)
        f->loss_sums += op->axis == AXIS_WORLD && f->votes == f->plan->options.train &&
                        op->comm.count == 4 + PLAN_VOTES; /* total to votes */
    else if (op->to == f->plan->figures)
        f->figure_sums += op->axis == AXIS_WORLD && op->comm.count == 2;
    return 0;
}

static int follow_comm(struct follower *f, const struct schedule_op *op)
{
    for (int i = 0; i < 2 && op->group >= 0; i++) {
        const struct plan_entry *entry = &f->plan->entries[i ? op->to : op->from];
        if (entry->kind != PLAN_ENCODED && entry->dtype != op->comm.dtype)
            return WRONG(f, "op %d moves %s of a buffer of %s", f->op, dtype_name(op->comm.dtype),
                         dtype_name(entry->dtype));
    }
    if (op->group >= 0 && f->plan->entries[op->to].kind == PLAN_ENCODED)
        return follower_transfer(f, op);
    switch (op->comm.kind) {
    case COMM_ALL_GATHER:
        return follow_all_gather(f, op);
    case COMM_REDUCE_SCATTER:
        return follow_reduce_scatter(f, op);
    case COMM_ALL_REDUCE:
        return op->group < 0 ? follow_sum(f, op) : follow_all_reduce(f, op);
    case COMM_RECV:
        if (stage_of(f, op->layer) != f->stage && !is_gradient(op))
            follower_hold(f, op->to, HOLDS_OUT, op->layer, op->micro);
        else
            return add_contribution(f, op->to, HOLDS_DOUT, op->layer, op->micro, 0);
        return 0;
    case COMM_SEND:
        if (stage_of(f, op->layer) == f->stage && !is_gradient(op))
            return follower_expect(f, op->from, HOLDS_OUT, op->layer, op->micro);
        if (follower_expect(f, op->from, HOLDS_DOUT, op->layer, op->micro) < 0)
            return -1;
        if (f->content[op->from].parts != f->consumers[op->layer])
            return WRONG(f, "op %d sends an incomplete gradient of layer %d", f->op, op->layer);
        return 0;
    default:
        return WRONG(f, "op %d: %d is no communication of a plan", f->op, (int)op->comm.kind);
    }
}

/* ---- update ---- */

/* Whether the gradient that norm and step read is final. */
int follower_check_reduced(const struct follower *f, int entry, int g)
{
    const struct group_progress *group = &f->groups[g];
    if (group->replicated != wanted_sums(f, g) || group->tied != plan_is_tied(&f->plan->groups[g]))
        return WRONG(f, "op %d uses the gradient of group %d after %d sums over replicas and %d over ties",
                     f->op, g, group->replicated, group->tied);
    return follower_check_scattered(f, entry, g);
}

static int check_final(const struct follower *f, const struct schedule_op *op)
{
    const bool coded = is_coded(f, op->group), steps = op->kind == OP_STEP;
    if (f->groups[op->group].decoded != (coded && steps) || (!steps && f->groups[op->group].encoded))
        return WRONG(f, "op %d uses the gradient of group %d after %d encodings and %d decodings", f->op,
                     op->group, f->groups[op->group].encoded, f->groups[op->group].decoded);
    return follower_check_reduced(f, op->from, op->group) < 0 ? -1 : follower_check_rows(f, op->group);
}

/* Every square is counted once over the ranks whose norms are summed. */
static int follow_norm(struct follower *f, const struct schedule_op *op)
{
    const struct param_group *desc = &f->plan->groups[op->group];
    const struct plan_options *o = &f->plan->options;
    const int ranks = desc->whole ? f->shard_ranks : 1,
              part = desc->whole ? mesh_place_of(o->mesh, o->rank).at[SIDE_SHARD] : 0;
    const int64_t bytes = desc->shard * dtype_size(o->dtype);
    if (bytes % ranks || op->bytes != bytes / ranks || op->from_offset != part * op->bytes)
        return WRONG(f, "op %d counts %lld bytes at %lld of group %d", f->op, (long long)op->bytes,
                     (long long)op->from_offset, op->group);
    f->groups[op->group].normed++;
    return check_final(f, op);
}

static int follow_step(struct follower *f, const struct schedule_op *op)
{
    if (check_final(f, op) < 0)
        return -1;
    const struct plan_options *o = &f->plan->options;
    const struct param_group *desc = &f->plan->groups[op->group];
    struct group_progress *group = &f->groups[op->group];
    if (f->clipped != (o->clip || o->check) || group->stepped++ > 0 || op->to != desc->param)
        return WRONG(f, "op %d steps group %d twice, before the clip, or into buffer %d", f->op, op->group,
                     op->to);
    if (op->to_offset != (desc->resident ? follower_own_bytes(f, op->group, o->param_dtype) : 0))
        return WRONG(f, "op %d steps group %d at byte %lld", f->op, op->group, (long long)op->to_offset);
    bool master = desc->master >= 0;
    if (master != (o->param_dtype != o->dtype) ||
        (master && (f->plan->entries[desc->master].kind != PLAN_MASTER ||
                    f->plan->entries[desc->master].bytes < desc->shard * dtype_size(o->dtype))))
        return WRONG(f, "op %d steps group %d with buffer %d as its master", f->op, op->group, desc->master);
    group->version++;
    if (f->plan->groups[op->group].shard_size == 1) /* else it is whole again when it is gathered */
        f->content[op->to].parts = group->version;
    return 0;
}

/* After the group's step, and before anything else writes its parameters. */
static int follow_average(struct follower *f, const struct schedule_op *op)
{
    const struct param_group *desc = &f->plan->groups[op->group];
    struct group_progress *group = &f->groups[op->group];
    const int size = dtype_size(f->plan->options.dtype);
    const bool master = desc->master >= 0;
    const int64_t at =
        !master && desc->resident ? follower_own_bytes(f, op->group, f->plan->options.dtype) : 0;
    if (group->averaged++ > 0 || group->stepped != 1 || group->regathered > 0)
        return WRONG(f, "op %d averages group %d twice, before its step or behind its gather", f->op,
                     op->group);
    if (op->from != (master ? desc->master : desc->param) || op->from_offset != at ||
        op->to != desc->average || f->plan->entries[op->to].kind != PLAN_AVERAGE ||
        op->bytes != desc->shard * size || f->plan->entries[op->to].bytes < op->bytes)
        return WRONG(f, "op %d averages buffer %d of group %d at byte %lld", f->op, op->from, op->group,
                     (long long)op->from_offset);
    return 0;
}

static int follow_copy(struct follower *f, const struct schedule_op *op)
{
    if (op->layer >= 0 && op->to >= 0)
        return follower_copy_part(f, op);
    if (op->to >= 0 && f->plan->entries[op->to].kind == PLAN_BATCH)
        follower_hold(f, op->to, HOLDS_BATCH, -1, op->micro);
    bool input = op->to >= 0 && op->from == f->plan->staging_input;
    f->scalars_in += input && op->to == f->plan->scalars &&
                     op->from_offset == (int64_t)offsetof(struct plan_input, scalars) &&
                     op->bytes == (int64_t)sizeof(struct step_scalars);
    f->loss_begun += input && op->to == f->plan->loss &&
                     op->from_offset == (int64_t)offsetof(struct plan_input, loss) &&
                     op->bytes == (int64_t)sizeof(struct plan_loss);
    f->figures_begun += input && op->to >= 0 && op->to == f->plan->figures &&
                        op->from_offset == (int64_t)offsetof(struct plan_input, figures) &&
                        op->bytes == (int64_t)sizeof(struct plan_figures);
    f->votes += input && op->votes && op->to == f->plan->loss &&
                op->to_offset == (int64_t)offsetof(struct plan_loss, votes) &&
                op->from_offset == (int64_t)offsetof(struct plan_input, votes) &&
                op->bytes == (int64_t)sizeof(double) * PLAN_VOTES;
    const int results[] = {f->plan->scalars, f->plan->loss, f->plan->figures};
    f->results +=
        op->to >= 0 && op->to == f->plan->staging_result && f->results < 3 && op->from == results[f->results];
    return 0;
}

static int follow_fill(struct follower *f, const struct schedule_op *op)
{
    if (op->group < 0)
        return WRONG(f, "op %d zeroes buffer %d of no group", f->op, op->to);
    struct content *c = &f->content[op->to];
    if (c->held == HOLDS_GRAD && c->parts > 0)
        return WRONG(f, "op %d zeroes part of a gradient of group %d that is in use", f->op, c->of);
    if (c->held != HOLDS_GRAD || c->of != op->group)
        follower_hold(f, op->to, HOLDS_GRAD, op->group, -1);
    c->filled += op->bytes;
    return 0;
}

static int follow(struct follower *f, const struct schedule_op *op)
{
    struct layer_sizes sizes = {0};
    const struct plan_options *o = &f->plan->options;
    switch (op->kind) {
    case OP_FORWARD:
        return follow_forward(f, op);
    case OP_BACKWARD:
        f->model->layers[op->layer].ops->sizes(f->model->layers[op->layer].config, o->shape, o->value_dtype,
                                               LAYER_TRAIN, o->kernels, &sizes);
        return follow_backward(f, op, sizes.saved > 0);
    case OP_COMM:
        return follow_comm(f, op);
    case OP_COPY:
        return follow_copy(f, op);
    case OP_ENCODE:
        return follower_encode(f, op);
    case OP_DECODE:
        return follower_decode(f, op);
    case OP_FILL:
        return follow_fill(f, op);
    case OP_NORM:
        return follow_norm(f, op);
    case OP_CLIP:
        f->clipped = true;
        return 0;
    case OP_STEP:
        return follow_step(f, op);
    case OP_CAST:
        return follower_cast(f, op);
    case OP_AVERAGE:
        return follow_average(f, op);
    case OP_ROWS:
        return follower_rows(f, op);
    default:
        return 0;
    }
}

/* ---- the end ---- */

static int check_calls(const struct follower *f)
{
    int m = f->plan->options.micro_batches;
    for (int l = 0; l < f->model->layer_count; l++)
        for (int i = 0; i < m; i++) {
            int at = 2 * (l * m + i), wanted = stage_of(f, l) == f->stage;
            const bool backward = wanted && f->needs_grad[l] && !follower_sends_rows(f, l, i);
            if (f->calls[at] != wanted || f->calls[at + 1] != backward)
                return WRONG(f, "layer %d of micro-batch %d has %d forwards and %d backwards", l, i,
                             f->calls[at], f->calls[at + 1]);
        }
    return 0;
}

/* Norms of a plan: before and after compression begins they are of other gradients. */
static int wanted_norms(const struct plan_options *o)
{
    const bool two = o->compression.kind != COMPRESSION_NONE && o->compression.start > 0;
    return o->train && (o->clip || o->check) ? 1 + two : 0;
}

/* Whether this stage counts squares of a gradient that replicas are still to exchange. */
static bool norms_codes(const struct follower *f)
{
    for (int g = 0; g < f->plan->group_count; g++)
        if (is_coded(f, g) && plan_first_stage(&f->plan->groups[g]) == f->stage)
            return true;
    return false;
}

static int check_frame(const struct follower *f)
{
    const struct plan_options *o = &f->plan->options;
    const int normed = wanted_norms(o);
    const bool codes = o->train && o->compression.kind != COMPRESSION_NONE;
    int sums[AXIS_COUNT] = {0};
    sums[AXIS_SHARD] = f->shard_ranks > 1 ? normed : 0;
    sums[AXIS_PIPELINE] = o->mesh.side[SIDE_PIPELINE] > 1 ? normed : 0;
    sums[f->replica_axis] += normed && f->replicas > 1 && norms_codes(f);
    if (f->scalars_in != 1 || f->loss_begun != 1 || f->figures_begun != codes || f->results != 2 + codes)
        return WRONG(f, "scalars come in %d times, the loss begins %d times, %d results go out",
                     f->scalars_in, f->loss_begun, f->results);
    if (memcmp(sums, f->norm_sums, sizeof sums) != 0)
        return WRONG(f, "the norm is summed %d times over shards and %d times over stages",
                     f->norm_sums[AXIS_SHARD], f->norm_sums[AXIS_PIPELINE]);
    if (f->loss_sums != (mesh_size(o->mesh) > 1) || f->figure_sums != (codes && mesh_size(o->mesh) > 1))
        return WRONG(f, "the loss is summed %d times, figures of compression %d", f->loss_sums,
                     f->figure_sums);
    if (f->votes != o->train)
        return WRONG(f, "the host is asked for votes %d times", f->votes);
    return 0;
}

static int check_groups(const struct follower *f)
{
    const struct plan *plan = f->plan;
    for (int g = 0; plan->options.train && g < plan->group_count; g++) {
        const struct param_group *desc = &plan->groups[g];
        const struct group_progress *group = &f->groups[g];
        bool wanted = desc->local && desc->trainable;
        if (group->stepped != wanted ||
            group->normed != (wanted && !desc->statistic && plan_first_stage(desc) == f->stage
                                  ? wanted_norms(&plan->options)
                                  : 0))
            return WRONG(f, "group %d has %d steps and %d norms", g, group->stepped, group->normed);
        if (group->averaged != (wanted && !desc->statistic && plan->options.average_decay > 0))
            return WRONG(f, "group %d is averaged %d times", g, group->averaged);
        if (group->regathered != (wanted && desc->resident && desc->shard_size > 1))
            return WRONG(f, "group %d is gathered %d times after its step", g, group->regathered);
    }
    return 0;
}

/* ---- runs ---- */

/* The carried gathers into slots, alone. */
static int follow_carried(struct follower *f)
{
    for (f->op = 0; f->op < f->plan->op_count; f->op++) {
        const struct schedule_op *op = &f->plan->ops[f->op];
        if (op->carried && f->plan->entries[op->to].kind == PLAN_GATHER_SLOT && follow_comm(f, op) < 0)
            return -1;
    }
    return 0;
}

/* Resets the counts of a run. */
static void begin_run(struct follower *f)
{
    const size_t calls = 2 * (size_t)f->model->layer_count * (size_t)f->plan->options.micro_batches;
    for (size_t i = 0; i < calls; i++)
        f->calls[i] = 0;
    for (int g = 0; g < f->plan->group_count; g++) {
        const struct group_progress *old = &f->groups[g];
        f->groups[g] = (struct group_progress){.used = old->used, .version = old->version};
    }
    for (int e = 0; e < f->plan->entry_count; e++) {
        struct content *c = &f->content[e];
        /* A slot's gaps are zeroed anew; the gaps of a gradient that stays in place were never written. */
        if (c->held != HOLDS_PARAM)
            *c = (struct content){0};
    }
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        f->norm_sums[axis] = 0;
    f->clipped = false;
    f->scalars_in = f->loss_begun = f->results = f->loss_sums = f->figure_sums = f->figures_begun = f->votes =
        0;
}

static int follow_run(struct follower *f)
{
    begin_run(f);
    for (f->op = 0; f->op < f->plan->op_count; f->op++)
        if (follow(f, &f->plan->ops[f->op]) < 0)
            return -1;
    return 0;
}

/* Forwards alone: each layer of the stage goes forward once for each micro-batch, and nothing else runs. */
static int follow_forwards(struct follower *f, int micros)
{
    int calls = 0, wanted = 0;
    begin_run(f);
    for (f->op = 0; f->op < f->plan->op_count; f->op++) {
        const struct schedule_op *op = &f->plan->ops[f->op];
        if (op->forward_micro < 0 || op->forward_micro >= micros)
            continue;
        if (op->kind != OP_FORWARD && op->kind != OP_COMM && op->kind != OP_COPY && op->kind != OP_CAST)
            return WRONG(f, "operation %s in a run of forwards", op_kind_name(op->kind));
        if (follow(f, op) < 0)
            return -1;
        calls += op->kind == OP_FORWARD;
    }
    for (int l = 0; l < f->model->layer_count; l++)
        wanted += plan_stage_of(f->plan->options.mesh, f->model->layers[l].part) == f->stage;
    return calls == wanted * micros
               ? 0
               : WRONG(f, "%d calls of layers in a run of forwards, not %d", calls, wanted * micros);
}

static int follow_step_run(struct follower *f)
{
    if (follow_run(f) < 0 || check_calls(f) < 0 || check_frame(f) < 0)
        return -1;
    f->steps += f->plan->options.train;
    return check_groups(f);
}

static int follow_all(struct follower *f)
{
    const struct plan_options *o = &f->plan->options;
    f->stage = mesh_place_of(o->mesh, o->rank).at[SIDE_PIPELINE];
    f->shard_ranks = o->strategy == STRATEGY_NO_SHARD ? 1 : o->mesh.side[SIDE_SHARD];
    f->reshard = f->shard_ranks > 1 && o->strategy != STRATEGY_SHARD_OPTIM;
    f->replicas = o->strategy == STRATEGY_NO_SHARD ? o->mesh.side[SIDE_SHARD] * o->mesh.side[SIDE_REPLICATE]
                                                   : o->mesh.side[SIDE_REPLICATE];
    f->replica_axis = f->shard_ranks < o->mesh.side[SIDE_SHARD] ? AXIS_SHARD : AXIS_REPLICATE;
    f->narrow = o->reduce_dtype != o->dtype;
    f->sums = f->narrow && f->reshard && f->replicas > 1 && o->micro_batches > 1;
    expect_layers(f);
    expect_resident(f);
    if (follower_check_dtypes(f) < 0 || follower_check_stored(f) < 0 || follower_find_rows(f) < 0)
        return -1;
    if (follow_carried(f) < 0 || follow_step_run(f) < 0 || follow_step_run(f) < 0)
        return error_wrap(f->err, "after %d steps", f->steps);
    for (int micros = 1; micros <= f->plan->forward_micros; micros = micros * 2 - (micros > 2))
        if (follow_forwards(f, micros) < 0 || follow_carried(f) < 0)
            return error_wrap(f->err, "forwards of %d micro-batches after %d steps", micros, f->steps);
    if (follow_forwards(f, f->plan->forward_micros) < 0 || follow_carried(f) < 0 || follow_step_run(f) < 0)
        return error_wrap(f->err, "evaluation after %d steps, or the step behind it", f->steps);
    return 0;
}

int plan_check_content(const struct model *model, const struct plan *plan, struct muster_error *err)
{
    size_t layers = (size_t)model->layer_count, calls = 2 * layers * (size_t)plan->options.micro_batches;
    size_t params = (size_t)model->param_count;
    scope_free struct content *content = mem_calloc((size_t)plan->entry_count, sizeof *content);
    scope_free struct group_progress *groups = mem_calloc((size_t)plan->group_count, sizeof *groups);
    scope_free int *numbers = mem_calloc(calls + layers + params, sizeof *numbers);
    scope_free bool *needs_grad = mem_calloc(layers + calls / 2, sizeof *needs_grad);
    if (!content || !groups || !numbers || !needs_grad)
        return error_set(err, MUSTER_E_NOMEM, "no memory to check a plan of %d operations", plan->op_count);
    struct follower f = {
        .model = model,
        .plan = plan,
        .content = content,
        .groups = groups,
        .calls = numbers,
        .consumers = numbers + calls,
        .written = numbers + calls + layers,
        .needs_grad = needs_grad,
        .rows = needs_grad + layers,
        .err = err,
    };
    return follow_all(&f);
}
