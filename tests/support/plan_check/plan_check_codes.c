/* plan_check_codes.c - follows compressed gradients: from a complete gradient through what replicas send to
 * their sum. */
#include "runtime/plan/plan_internal.h"
#include "tests/support/plan_check/plan_check.h"
#include "tests/support/plan_check/plan_check_content.h"

static bool is_power(const struct follower *f)
{
    return f->plan->options.compression.kind == COMPRESSION_POWERSGD;
}

static enum mesh_axis axis_of(const struct follower *f, bool factor)
{
    return factor && f->shard_ranks > 1 ? AXIS_DATA : f->replica_axis;
}

static bool has_state(const struct follower *f, const struct schedule_op *op)
{
    const struct param_group *group = &f->plan->groups[op->group];
    const bool kept = !f->plan->options.compression.forgets;
    return op->feedback == group->feedback && kept == (op->feedback >= 0) && op->factor == group->factor &&
           is_power(f) == (op->factor >= 0);
}

static int encode_right(struct follower *f, const struct schedule_op *op)
{
    const int ranks = mesh_line(f->plan->options.mesh, axis_of(f, true), f->plan->options.rank).size;
    if (!is_power(f) || f->groups[op->group].encoded++ != 1 ||
        follower_expect(f, op->factor, HOLDS_ENCODED, op->group, COMPRESS_LEFT) < 0 ||
        f->content[op->factor].parts != (ranks > 1))
        return WRONG(f, "op %d encodes the second factor of group %d too early", f->op, op->group);
    follower_hold(f, op->to, HOLDS_ENCODED, op->group, COMPRESS_RIGHT);
    return 0;
}

int follower_encode(struct follower *f, const struct schedule_op *op)
{
    const struct plan_options *o = &f->plan->options;
    const struct group_progress *group = &f->groups[op->group];
    if (!is_coded(f, op->group) || op->from != f->plan->groups[op->group].grad)
        return WRONG(f, "op %d encodes buffer %d of group %d", f->op, op->from, op->group);
    if (op->compress == COMPRESS_RIGHT)
        return encode_right(f, op);
    if (op->compress != (is_power(f) ? COMPRESS_LEFT : COMPRESS_TOPK) || !has_state(f, op))
        return WRONG(f, "op %d encodes group %d in mode %d, with feedback %d and factor %d", f->op, op->group,
                     (int)op->compress, op->feedback, op->factor);
    if (f->groups[op->group].encoded++ || group->tied != plan_is_tied(&f->plan->groups[op->group]) ||
        f->clipped != (o->clip || o->check))
        return WRONG(f, "op %d encodes group %d again, before its ties or before the clip", f->op, op->group);
    follower_hold(f, op->to, HOLDS_ENCODED, op->group, (int)op->compress);
    if (op->dense >= 0)
        follower_hold(f, op->dense, HOLDS_ENCODED, op->group, -1);
    return follower_check_scattered(f, op->from, op->group);
}

int follower_transfer(struct follower *f, const struct schedule_op *op)
{
    struct content *c = &f->content[op->to];
    const bool gathers = c->micro == COMPRESS_TOPK,
               factor = c->micro == COMPRESS_LEFT || c->micro == COMPRESS_RIGHT;
    if (op->from != op->to || c->held != HOLDS_ENCODED || c->of != op->group || c->parts++ > 0)
        return WRONG(f, "op %d exchanges buffer %d, which group %d does not send now", f->op, op->to,
                     op->group);
    if ((op->comm.kind == COMM_ALL_GATHER) != gathers || op->axis != axis_of(f, factor))
        return WRONG(f, "op %d exchanges group %d over axis %s", f->op, op->group, axis_name(op->axis));
    const int place = mesh_line(f->plan->options.mesh, op->axis, f->plan->options.rank).place;
    const int64_t bytes = op->comm.count * dtype_size(op->comm.dtype);
    if (op->to_offset != 0 || op->from_offset != (gathers ? bytes * place : 0) || op->bytes != bytes)
        return WRONG(f, "op %d exchanges %lld bytes of group %d at %lld", f->op, (long long)bytes, op->group,
                     (long long)op->from_offset);
    return 0;
}

static int check_arrived(const struct follower *f, int entry, int g, int what, bool factor)
{
    const int ranks = mesh_line(f->plan->options.mesh, axis_of(f, factor), f->plan->options.rank).size;
    if (follower_expect(f, entry, HOLDS_ENCODED, g, what) < 0)
        return -1;
    return f->content[entry].parts == (ranks > 1)
               ? 0
               : WRONG(f, "op %d decodes buffer %d of group %d after %d transfers", f->op, entry, g,
                       f->content[entry].parts);
}

int follower_decode(struct follower *f, const struct schedule_op *op)
{
    struct group_progress *group = &f->groups[op->group];
    const bool power = is_power(f);
    if (group->encoded != 1 + power || group->decoded++ || op->to != f->plan->groups[op->group].grad)
        return WRONG(f, "op %d decodes group %d after %d encodings, into buffer %d", f->op, op->group,
                     group->encoded, op->to);
    if (power ? !has_state(f, op) : op->feedback >= 0 || op->factor >= 0)
        return WRONG(f, "op %d decodes group %d with feedback %d and factor %d", f->op, op->group,
                     op->feedback, op->factor);
    if (check_arrived(f, op->from, op->group, power ? COMPRESS_LEFT : COMPRESS_TOPK, power) < 0 ||
        (power && check_arrived(f, op->right, op->group, COMPRESS_RIGHT, true) < 0) ||
        (op->dense >= 0 && check_arrived(f, op->dense, op->group, -1, false) < 0))
        return -1;
    return follower_check_scattered(f, op->to, op->group);
}
