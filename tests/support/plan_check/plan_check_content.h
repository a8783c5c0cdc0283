/* plan_check_content.h - what plan_check_content.c knows of a plan while it follows it, for its part on other
 * dtypes. */
#ifndef MUSTER_TESTS_PLAN_CHECK_CONTENT_H
#define MUSTER_TESTS_PLAN_CHECK_CONTENT_H

#include "proto/base/error.h"
#include "tests/support/plan_check/plan_check.h"

enum held {
    HOLDS_NOTHING,
    HOLDS_PARAM,
    HOLDS_OUT,
    HOLDS_DOUT,
    HOLDS_SAVED,
    HOLDS_GRAD,
    HOLDS_BATCH,
    HOLDS_WIDE,
    HOLDS_ROUNDED,
    HOLDS_ROWS, /* rows of a lookup: this rank's, then all ranks' */
    HOLDS_ROW_INDEX,
    HOLDS_ENCODED /* what a replica sends; parts: its transfers */
};

struct content {
    enum held held;
    int of, micro; /* group or layer */
    /* HOLDS_DOUT, HOLDS_GRAD: contributions so far; HOLDS_PARAM, HOLDS_WIDE: steps taken; HOLDS_ROUNDED: see
     * rounded_part */
    int parts;
    int64_t filled; /* HOLDS_GRAD: bytes zeroed */
};
enum rounded_part {
    ROUNDED_SCATTERED = 1,
    ROUNDED_REPLICATED = 2,
    ROUNDED_SUM = 4,   /* sum of micro-batches */
    ROUNDED_WHOLE = 8, /* summed over the ranks that shard the other groups */
};
/* The operations on a group so far. */
struct group_progress {
    int64_t used; /* elements of its parameters */
    int scattered, encoded, decoded, replicated, tied, normed, stepped, averaged, regathered;
    int version;         /* steps that this rank's part of its parameters has taken, in all runs */
    int widened;         /* results of 16-bit reductions that are in its gradient */
    int rows, rows_next; /* exchanges of rows that are in it; the next micro-batch that may be */
};
struct follower {
    const struct model *model;
    const struct plan *plan;
    struct content *content; /* [entry] */
    struct group_progress *groups;
    int *calls;     /* [2][layer * micro]: forwards and backwards */
    int *consumers; /* [layer] contributions to its output's gradient */
    int *written;   /* [param] contributions since its gradient began */
    bool *needs_grad;
    bool *rows; /* [layer * micro] its gradient is exchanged as rows */
    int stage, op;
    int steps; /* taken in the runs before */
    bool reshard, clipped;
    bool narrow;                         /* reductions are in another dtype than gradients */
    bool sums;                           /* and replicas exchange sums of several micro-batches */
    int scalars_in, loss_begun, results; /* copies of the step's frame */
    int norm_sums[AXIS_COUNT], loss_sums, figure_sums, figures_begun, votes;
    int replicas, shard_ranks;
    enum mesh_axis replica_axis;
    struct muster_error *err;
};

/* A group that is kept whole is one without shards: its gradient stays where it is, and is summed over the
 * ranks that shard the others, then over the replicas. */
static inline bool reshards(const struct follower *f, int group)
{
    return f->reshard && !f->plan->groups[group].whole;
}

static inline bool is_coded(const struct follower *f, int group)
{
    return f->plan->groups[group].compressed;
}

/* Whether replicas exchange the dense gradient, in some steps at least. */
static inline bool goes_dense(const struct follower *f, int group)
{
    return !is_coded(f, group) || f->plan->options.compression.start > 0;
}

static inline bool sums_late(const struct follower *f, int group)
{
    return f->sums && !f->plan->groups[group].whole && goes_dense(f, group);
}

/* The steps of an operation on a group's rounded gradient. replicas: it is part of their exchange. */
static inline bool has_right_steps(const struct follower *f, const struct schedule_op *op, bool replicas)
{
    const bool dense = is_coded(f, op->group) && (replicas || f->plan->groups[op->group].shard_size == 1);
    return op->when == (dense ? WHEN_DENSE : WHEN_ALWAYS);
}

static inline int stage_of(const struct follower *f, int layer)
{
    return plan_stage_of(f->plan->options.mesh, f->model->layers[layer].part);
}

/* A transfer of a gradient, by its stream where directions have streams of their own. */
static inline bool is_gradient(const struct schedule_op *op)
{
    if (op->stream == STREAM_TRANSFERS)
        return op->back;
    return op->stream == STREAM_GRADIENTS || op->stream == STREAM_GRADIENTS_ODD ||
           op->stream == STREAM_GRADIENTS_LAST;
}

/* plan_check_rows.c */
int follower_find_rows(struct follower *f);
bool follower_sends_rows(const struct follower *f, int layer, int micro);
/* Gradients of parameters that backward calls of a micro-batch write into the group's full gradient; the
 * micro-batches in which there are any; and elements of parameters that none of these micro-batches writes.
 */
int follower_writers(const struct follower *f, int group, int micro);
int follower_written_micros(const struct follower *f, int group);
int64_t follower_unwritten(const struct follower *f, int group, int first, int last);
int follower_copy_part(struct follower *f, const struct schedule_op *op);
int follower_gather_parts(struct follower *f, const struct schedule_op *op);
int follower_rows(struct follower *f, const struct schedule_op *op);
int follower_check_rows(const struct follower *f, int group);

/* Layers read a copy of the group's parameters, in the type of values. */
static inline bool opens(const struct follower *f, int group)
{
    return f->plan->options.param_dtype != f->plan->options.value_dtype ||
           f->plan->groups[group].stored != STORED_PLAIN;
}

/* The micro-batch that goes back last: its gradients end the sums. */
static inline int last_back(const struct follower *f)
{
    const bool first_last = f->plan->options.schedule == PIPE_GPIPE && f->model->parts > 1;
    return first_last ? 0 : f->plan->options.micro_batches - 1;
}

/* Replicas exchange the group compressed, and under compression.start dense at first. */
static inline int wanted_sums(const struct follower *f, int group)
{
    return follower_written_micros(f, group)
               ? f->plan->groups[group].whole + (f->replicas > 1 && goes_dense(f, group))
               : 0;
}

#define WRONG(f, ...) error_set((f)->err, MUSTER_E_STATE, __VA_ARGS__)

/* plan_check_content.c */
int follower_expect(const struct follower *f, int entry, enum held held, int of, int micro);
void follower_hold(struct follower *f, int entry, enum held held, int of, int micro);
int follower_check_complete(const struct follower *f, int entry, int g, int micro);
/* The gradient that norm and step read, but for rows that are still to be added, is final. */
int follower_check_reduced(const struct follower *f, int entry, int g);
int64_t follower_own_bytes(const struct follower *f, int g, enum dtype dtype);

/* The operations on a group's shard before replicas exchange it are done. */
int follower_check_scattered(const struct follower *f, int entry, int g);

/* plan_check_codes.c */
int follower_encode(struct follower *f, const struct schedule_op *op);
int follower_decode(struct follower *f, const struct schedule_op *op);
int follower_transfer(struct follower *f, const struct schedule_op *op);

/* plan_check_dtypes.c */
int follower_cast(struct follower *f, const struct schedule_op *op);
int follower_check_dtypes(const struct follower *f);
/* Checks the part of a group that a rank holds, and gathers: whole units for groups in few bits. */
int follower_check_stored(const struct follower *f);
int64_t follower_held_bytes(const struct follower *f, int group, int64_t elements);

#endif
