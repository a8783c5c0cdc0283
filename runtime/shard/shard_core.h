/* shard_core.h - decides about the groups of a sharded model: the states of each group's
 * parameters and gradients, the gathers begun ahead, and the groups to release. Pure: calls of the caller go
 * in, actions for the shell come out. */
#ifndef MUSTER_RUNTIME_SHARD_SHARD_CORE_H
#define MUSTER_RUNTIME_SHARD_SHARD_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "runtime/shard/shard_order.h"

/* A group's parameters. */
#define SHARD_STATES(X)                                                                                      \
    X(SHARD_SHARDED, "sharded")     /* each rank has its part only */                                        \
    X(SHARD_GATHERING, "gathering") /* begun ahead, not asked for yet */                                     \
    X(SHARD_HELD, "held")           /* gathered, released, and kept: it is needed again at once */           \
    X(SHARD_FULL, "full")           /* the caller uses it */
enum shard_state {
#define SHARD_STATE_ENUM(symbol, name) symbol,
    SHARD_STATES(SHARD_STATE_ENUM)
#undef SHARD_STATE_ENUM
        SHARD_STATE_COUNT
};
const char *shard_state_name(enum shard_state state);

/* The states of a group's gradients. */
#define SHARD_GRADS(X)                                                                                       \
    X(SHARD_GRAD_NONE, "none")                                                                               \
    X(SHARD_GRAD_FILLING, "filling")   /* the caller writes them into a gradient slot */                     \
    X(SHARD_GRAD_REDUCING, "reducing") /* the slot is being read by the ranks */                             \
    X(SHARD_GRAD_REDUCED, "reduced")
enum shard_grad {
#define SHARD_GRAD_ENUM(symbol, name) symbol,
    SHARD_GRADS(SHARD_GRAD_ENUM)
#undef SHARD_GRAD_ENUM
        SHARD_GRAD_COUNT
};
const char *shard_grad_name(enum shard_grad grad);

enum shard_action_kind {
    SHARD_START,   /* map a slot at the group's address and begin to gather */
    SHARD_WAIT,    /* until its last gather has arrived */
    SHARD_DROP,    /* take the slot away */
    SHARD_TAKE,    /* a gradient slot */
    SHARD_SEND,    /* begin to reduce */
    SHARD_ADD,     /* the same, added to the gradients reduced since the last step */
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
    struct shard_action *actions; /* actions of the last call, in the order in which they are to be done */
    int action_count;
};

/* depth: gathers begun ahead, 0 to SHARD_PREFETCH_MAX. -1: no memory. */
int shard_core_init(struct shard_core *core, int count, int depth);
void shard_core_free(struct shard_core *core);

/* Calls of the caller. actions[0..action_count-1] are then to be done, in this order. -1 changes nothing.
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
