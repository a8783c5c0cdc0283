/* plan_check_dtypes.c - the values of a plan in 16 bits or fewer: parameters that are widened or opened,
 * rounded gradients, units of groups in few bits, and the dtype of every buffer. */
#include "proto/base/error.h"
#include "runtime/plan/plan_internal.h"
#include "tests/support/plan_check/plan_check_content.h"

static int cast_weights(struct follower *f, const struct schedule_op *op)
{
    const struct param_group *group = &f->plan->groups[op->group];
    if (follower_expect(f, op->from, HOLDS_PARAM, op->group, -1) < 0)
        return -1;
    if (op->from_offset || op->to_offset || op->beta ||
        op->bytes != group->padded * dtype_size(f->plan->options.value_dtype))
        return WRONG(f, "op %d widens %lld bytes of group %d", f->op, (long long)op->bytes, op->group);
    follower_hold(f, op->to, HOLDS_WIDE, op->group, -1);
    f->content[op->to].parts = f->content[op->from].parts;
    return 0;
}

/* A full gradient of one micro-batch (of all, where it is not sharded), or the shard's sum over them. */
static int round_gradient(struct follower *f, const struct schedule_op *op)
{
    const struct plan_options *o = &f->plan->options;
    const struct param_group *desc = &f->plan->groups[op->group];
    const struct group_progress *group = &f->groups[op->group];
    bool sum = sums_late(f, op->group) && op->from == desc->grad;
    if (f->content[op->to].held == HOLDS_ROUNDED)
        return WRONG(f, "op %d overwrites a reduction of group %d", f->op, f->content[op->to].of);
    if (!sum && follower_check_complete(f, op->from, op->group, op->micro) < 0)
        return -1;
    if (sum && (group->scattered != o->micro_batches || group->widened != o->micro_batches))
        return WRONG(f, "op %d exchanges group %d after %d reductions", f->op, op->group, group->widened);
    if (op->from_offset || op->to_offset || op->beta ||
        op->bytes != (sum ? desc->shard : desc->padded) * dtype_size(o->reduce_dtype))
        return WRONG(f, "op %d rounds %lld bytes of group %d", f->op, (long long)op->bytes, op->group);
    if (!has_right_steps(f, op, sum))
        return WRONG(f, "op %d rounds group %d in steps of kind %d", f->op, op->group, (int)op->when);
    if (reshards(f, op->group) && !sum)
        f->content[op->from].held = HOLDS_NOTHING;
    follower_hold(f, op->to, HOLDS_ROUNDED, op->group, reshards(f, op->group) ? op->micro : last_back(f));
    f->content[op->to].parts = sum ? ROUNDED_SUM : 0;
    return 0;
}

static int widen_gradient(struct follower *f, const struct schedule_op *op)
{
    const struct plan_options *o = &f->plan->options;
    const struct param_group *desc = &f->plan->groups[op->group];
    struct group_progress *group = &f->groups[op->group];
    struct content *c = &f->content[op->from];
    bool sum = c->parts & ROUNDED_SUM;
    bool replicates = f->replicas > 1 && goes_dense(f, op->group) &&
                      (sum || (!sums_late(f, op->group) && c->micro == last_back(f)));
    if (!has_right_steps(f, op, sum))
        return WRONG(f, "op %d widens group %d in steps of kind %d", f->op, op->group, (int)op->when);
    int wanted = (!sum && desc->shard_size > 1 ? ROUNDED_SCATTERED : 0) |
                 (replicates ? ROUNDED_REPLICATED : 0) | (sum ? ROUNDED_SUM : 0) |
                 (desc->whole ? ROUNDED_WHOLE : 0);
    if (c->held != HOLDS_ROUNDED || c->of != op->group || c->parts != wanted)
        return WRONG(f, "op %d widens buffer %d, which is no finished reduction of group %d", f->op, op->from,
                     op->group);
    bool adds = reshards(f, op->group) && !sum && group->widened > 0;
    if (op->to_offset || op->bytes != desc->shard * dtype_size(o->dtype) || op->beta != adds ||
        op->from_offset != (sum ? 0 : follower_own_bytes(f, op->group, o->reduce_dtype)))
        return WRONG(f, "op %d widens %lld bytes at %lld of group %d%s", f->op, (long long)op->bytes,
                     (long long)op->from_offset, op->group, op->beta ? ", adding" : "");
    c->held = HOLDS_NOTHING;
    group->widened++;
    return 0;
}

int follower_cast(struct follower *f, const struct schedule_op *op)
{
    if (op->group < 0 || op->from < 0 || op->to < 0)
        return WRONG(f, "op %d casts buffer %d to %d of group %d", f->op, op->from, op->to, op->group);
    enum plan_kind to = f->plan->entries[op->to].kind;
    if (to == PLAN_WIDE)
        return cast_weights(f, op);
    if (to == PLAN_REDUCE)
        return round_gradient(f, op);
    if (op->to == f->plan->groups[op->group].grad)
        return widen_gradient(f, op);
    return WRONG(f, "op %d casts into a %s", f->op, plan_kind_name(to));
}

/* What every buffer of a kind is made of. */
int follower_check_dtypes(const struct follower *f)
{
    const struct plan_options *o = &f->plan->options;
    for (int e = 0; e < f->plan->entry_count; e++) {
        const struct plan_entry *entry = &f->plan->entries[e];
        enum dtype wanted = o->dtype;
        switch (entry->kind) {
        case PLAN_PARAM_SHARD:
            wanted = f->plan->groups[entry->group].stored != STORED_PLAIN ? DTYPE_U8 : o->param_dtype;
            break;
        case PLAN_GATHER_SLOT: /* has one dtype for all groups that come into it: see follow_comm */
            wanted = entry->dtype == DTYPE_U8 ? DTYPE_U8 : o->param_dtype;
            break;
        case PLAN_REDUCE:
            wanted = o->reduce_dtype;
            break;
        case PLAN_ROW_INDEX:
            wanted = DTYPE_I32;
            break;
        case PLAN_OUT:
        case PLAN_DOUT:
        case PLAN_EDGE:
        case PLAN_WIDE:
        case PLAN_ROWS:
        case PLAN_SAVED:
        case PLAN_WORK:
            wanted = o->value_dtype;
            break;
        case PLAN_BATCH:
        case PLAN_SCALARS:
        case PLAN_STAGING:
            continue;
        default:
            break;
        }
        if (entry->dtype != wanted)
            return WRONG(f, "buffer %d (%s) is of dtype %s, not %s", e, plan_kind_name(entry->kind),
                         dtype_name(entry->dtype), dtype_name(wanted));
    }
    return 0;
}

int64_t follower_held_bytes(const struct follower *f, int g, int64_t elements)
{
    const enum stored stored = f->plan->groups[g].stored;
    return stored != STORED_PLAIN ? stored_bytes(stored, elements)
                                  : elements * dtype_size(f->plan->options.param_dtype);
}

static int check_members(const struct follower *f, int g)
{
    const struct param_group *group = &f->plan->groups[g];
    for (int i = 0; i < group->param_count; i++) {
        const struct param_desc *param = &f->model->params[f->plan->group_params[group->first_param + i]];
        if (param->stored != group->stored)
            return WRONG(f, "group %d is held as %s, and %s in it is to be held as %s", g,
                         stored_name(group->stored), param->name, stored_name(param->stored));
    }
    return 0;
}

int follower_check_stored(const struct follower *f)
{
    for (int g = 0; g < f->plan->group_count; g++) {
        const struct param_group *group = &f->plan->groups[g];
        const int64_t unit = stored_unit(group->stored),
                      held = group->resident ? group->padded : group->shard;
        if (check_members(f, g) < 0)
            return -1;
        if (!group->local)
            continue;
        if (group->stored != STORED_PLAIN &&
            (group->trainable || group->master >= 0 || group->shard % unit || group->padded % unit))
            return WRONG(f, "group %d of units of %lld elements is trained, or cut at %lld", g,
                         (long long)unit, (long long)group->shard);
        if (f->plan->entries[group->param].bytes < follower_held_bytes(f, g, held))
            return WRONG(f, "group %d has %lld bytes for %lld elements", g,
                         (long long)f->plan->entries[group->param].bytes, (long long)held);
    }
    return 0;
}
