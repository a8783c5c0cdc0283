/* plan_check_dtypes.c - what a plan has in 16 bits: widened parameters, rounded gradients, and the dtype of
 * every buffer. */
#include "proto/base/error.h"
#include "runtime/plan/plan_internal.h"
#include "tests/support/plan_check/plan_check_content.h"

static int cast_weights(struct follower *f, const struct schedule_op *op)
{
    const struct param_group *group = &f->plan->groups[op->group];
    if (follower_expect(f, op->from, HOLDS_PARAM, op->group, -1) < 0)
        return -1;
    if (op->from_offset || op->to_offset || op->beta ||
        op->bytes != group->padded * dtype_size(f->plan->options.dtype))
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
    if (reshards(f, op->group) && !sum)
        f->content[op->from].held = HOLDS_NOTHING;
    follower_hold(f, op->to, HOLDS_ROUNDED, op->group,
                  reshards(f, op->group) ? op->micro : o->micro_batches - 1);
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
    bool replicates =
        f->replicas > 1 && (sum || (!sums_late(f, op->group) && c->micro == o->micro_batches - 1));
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
        case PLAN_GATHER_SLOT:
            wanted = o->param_dtype;
            break;
        case PLAN_REDUCE:
            wanted = o->reduce_dtype;
            break;
        case PLAN_ROW_INDEX:
            wanted = DTYPE_I32;
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
