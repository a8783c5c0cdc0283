/* shard_core.h - decisions about the groups of a sharded model: the states of each group's parameters and
 * gradients, which gathers begin ahead, which groups are given up. Pure: calls of the caller go in, actions
 * for the shell come out. */
#ifndef MUSTER_RUNTIME_SHARD_SHARD_CORE_H
#define MUSTER_RUNTIME_SHARD_SHARD_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

/* ---- shard_order.c ---- */

/* The order in which a pass gathers its groups: recorded the first time, followed from then
 * on, recorded anew where it has changed. Pure.
 *
 * Every rank makes the same calls, and nothing here depends on time, so all ranks prefetch alike. */

/* Zeroed: nothing recorded. */
struct shard_order {
    int *recorded, *actual; /* groups, by time; actual: since the pass began */
    int recorded_count, actual_count;
    int recorded_room, actual_room; /* entries allocated */
    int position;                   /* in recorded: the next entry that is expected */
    bool diverged;                  /* actual is not how recorded begins */
};

enum { SHARD_ORDER_MAX = 1 << 22 }; /* gathers of one pass */

/* A pass begins: if the ended pass was no prefix of the record, it becomes the record. */
void shard_order_begin(struct shard_order *order);
/* The caller gathers a group. -1: no memory, or more than SHARD_ORDER_MAX gathers without a new pass. */
int shard_order_demand(struct shard_order *order, int group);
/* The next groups after the last demand, each named once, at most depth; returns how many. */
int shard_order_next(const struct shard_order *order, int depth, int *groups);
void shard_order_free(struct shard_order *order);

/* ---- shard_core.c ---- */

/* A group's parameters. */
enum shard_state {
    SHARD_SHARDED,   /* each rank has its part only */
    SHARD_GATHERING, /* begun ahead, not asked for yet */
    SHARD_HELD,      /* gathered, released, and kept: it is needed again at once */
    SHARD_FULL,      /* the caller uses it */
    SHARD_STATE_COUNT
};

/* Its gradients. */
enum shard_grad {
    SHARD_GRAD_NONE,
    SHARD_GRAD_FILLING,  /* the caller writes them into a gradient slot */
    SHARD_GRAD_REDUCING, /* the slot is being read by the ranks */
    SHARD_GRAD_REDUCED,
    SHARD_GRAD_COUNT
};

enum shard_action_kind {
    SHARD_START,   /* map a slot at the group's address and begin to gather */
    SHARD_WAIT,    /* until its last gather has arrived */
    SHARD_DROP,    /* take the slot away */
    SHARD_TAKE,    /* a gradient slot */
    SHARD_SEND,    /* begin to reduce */
    SHARD_ADD,     /* the same, added to the sums since the last step */
    SHARD_SETTLE,  /* wait until the reduction has ended; the gradient slot is free */
    SHARD_ABANDON, /* the gradient slot is free, its contents are not wanted */
};
struct shard_action {
    enum shard_action_kind kind;
    int group;
};

struct shard_core_group {
    enum shard_state state;
    int uses; /* gathers without release */
    enum shard_grad grad;
    bool reduced; /* something since the last step: a further reduction adds */
};

enum { SHARD_PASSES = 4, SHARD_PREFETCH_MAX = 64 };

struct shard_core {
    int count, depth, pass;
    struct shard_core_group *groups; /* [count] */
    struct shard_order orders[SHARD_PASSES];
    struct shard_action *actions; /* results of the last call, in the order of execution */
    int action_count;
};

/* depth: gathers begun ahead, 0 to SHARD_PREFETCH_MAX. -1: no memory. */
int shard_core_init(struct shard_core *core, int count, int depth);
void shard_core_free(struct shard_core *core);

/* Calls of the caller; actions[0..action_count-1] has the resulting actions in order. -1 changes nothing.
 * names: the groups' names, for errors. */
struct shard_names {
    const char *(*name)(const void *context, int group);
    const void *context;
};
void shard_core_begin(struct shard_core *core, int pass);
int shard_core_gather(struct shard_core *core, int group, struct muster_error *err);
int shard_core_release(struct shard_core *core, int group, const struct shard_names *names,
                       struct muster_error *err);
/* A gradient is about to be written. */
void shard_core_fill(struct shard_core *core, int group);
void shard_core_reduce(struct shard_core *core, int group);
/* The shell has waited for the end of a reduction by itself. */
void shard_core_reduced(struct shard_core *core, int group);
/* Before an update: all reductions end and no copy of a parameter stays. */
int shard_core_settle(struct shard_core *core, const struct shard_names *names, struct muster_error *err);
/* After it: gradients are forgotten, a pass of the same kind is expected, and its first gathers begin. */
void shard_core_updated(struct shard_core *core);
/* Gradients are forgotten. */
void shard_core_discard(struct shard_core *core);

#endif
