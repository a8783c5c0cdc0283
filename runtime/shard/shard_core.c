/* shard_core.c - see shard_core.h. */
#include "runtime/shard/shard_core.h"

#include "proto/base/error.h"
#include "proto/base/mem.h"

/* ---- the tables ---- */

enum { NO = -1, DO_START = 1, DO_WAIT = 2, DO_DROP = 4 };
struct state_row {
    int next, actions; /* next NO: refused */
};

enum state_event { ON_AHEAD, ON_DEMAND, ON_RELEASE, ON_KEEP, ON_EVICT, STATE_EVENTS };
static const struct state_row state_table[SHARD_STATE_COUNT][STATE_EVENTS] = {
    [SHARD_SHARDED] = {[ON_AHEAD] = {SHARD_GATHERING, DO_START},
                       [ON_DEMAND] = {SHARD_FULL, DO_START | DO_WAIT},
                       [ON_RELEASE] = {NO, 0},
                       [ON_KEEP] = {NO, 0},
                       [ON_EVICT] = {SHARD_SHARDED, 0}},
    [SHARD_GATHERING] = {[ON_AHEAD] = {SHARD_GATHERING, 0},
                         [ON_DEMAND] = {SHARD_FULL, DO_WAIT},
                         [ON_RELEASE] = {NO, 0},
                         [ON_KEEP] = {NO, 0},
                         [ON_EVICT] = {SHARD_SHARDED, DO_WAIT | DO_DROP}},
    [SHARD_HELD] = {[ON_AHEAD] = {SHARD_HELD, 0},
                    [ON_DEMAND] = {SHARD_FULL, 0},
                    [ON_RELEASE] = {NO, 0},
                    [ON_KEEP] = {NO, 0},
                    [ON_EVICT] = {SHARD_SHARDED, DO_DROP}},
    [SHARD_FULL] = {[ON_AHEAD] = {SHARD_FULL, 0},
                    [ON_DEMAND] = {SHARD_FULL, 0},
                    [ON_RELEASE] = {SHARD_SHARDED, DO_DROP},
                    [ON_KEEP] = {SHARD_HELD, 0},
                    [ON_EVICT] = {SHARD_FULL, 0}},
};

enum { DO_TAKE = 1, DO_SEND = 2, DO_SETTLE = 4, DO_ABANDON = 8 };
enum grad_event { ON_FILL, ON_REDUCE, ON_SETTLE, ON_DISCARD, GRAD_EVENTS };
static const struct state_row grad_table[SHARD_GRAD_COUNT][GRAD_EVENTS] = {
    [SHARD_GRAD_NONE] = {[ON_FILL] = {SHARD_GRAD_FILLING, DO_TAKE},
                         [ON_REDUCE] = {SHARD_GRAD_REDUCING, DO_TAKE | DO_SEND},
                         [ON_SETTLE] = {SHARD_GRAD_NONE, 0},
                         [ON_DISCARD] = {SHARD_GRAD_NONE, 0}},
    [SHARD_GRAD_FILLING] = {[ON_FILL] = {SHARD_GRAD_FILLING, 0},
                            [ON_REDUCE] = {SHARD_GRAD_REDUCING, DO_SEND},
                            [ON_SETTLE] = {NO, 0},
                            [ON_DISCARD] = {SHARD_GRAD_NONE, DO_ABANDON}},
    [SHARD_GRAD_REDUCING] = {[ON_FILL] = {SHARD_GRAD_FILLING, DO_SETTLE | DO_TAKE},
                             [ON_REDUCE] = {SHARD_GRAD_REDUCING, DO_SETTLE | DO_TAKE | DO_SEND},
                             [ON_SETTLE] = {SHARD_GRAD_REDUCED, DO_SETTLE},
                             [ON_DISCARD] = {SHARD_GRAD_NONE, DO_SETTLE}},
    [SHARD_GRAD_REDUCED] = {[ON_FILL] = {SHARD_GRAD_FILLING, DO_TAKE},
                            [ON_REDUCE] = {SHARD_GRAD_REDUCING, DO_TAKE | DO_SEND},
                            [ON_SETTLE] = {SHARD_GRAD_REDUCED, 0},
                            [ON_DISCARD] = {SHARD_GRAD_NONE, 0}},
};

/* ---- applying them ---- */

int shard_core_init(struct shard_core *core, int count, int depth)
{
    *core = (struct shard_core){.count = count, .depth = depth};
    core->groups = mem_calloc((size_t)count + 1, sizeof *core->groups);
    /* a call takes each group once, for at most three actions, and waits for one */
    core->actions = mem_calloc(3 * (size_t)count + 8, sizeof *core->actions);
    return core->groups && core->actions ? 0 : -1;
}

void shard_core_free(struct shard_core *core)
{
    for (int i = 0; i < SHARD_PASSES; i++)
        shard_order_free(&core->orders[i]);
    mem_free(core->groups);
    mem_free(core->actions);
    *core = (struct shard_core){0};
}

static void core_act(struct shard_core *core, enum shard_action_kind kind, int group)
{
    core->actions[core->action_count++] = (struct shard_action){kind, group};
}

/* The next state, and what begins the way there; waits are the caller's to add. */
static void to_state(struct shard_core *core, int group, enum state_event event, bool wait)
{
    struct state_row row = state_table[core->groups[group].state][event];
    if (row.actions & DO_START)
        core_act(core, SHARD_START, group);
    if (wait && (row.actions & DO_WAIT))
        core_act(core, SHARD_WAIT, group);
    if (row.actions & DO_DROP)
        core_act(core, SHARD_DROP, group);
    core->groups[group].state = (enum shard_state)row.next;
}

static void to_grad(struct shard_core *core, int group, enum grad_event event)
{
    static const struct {
        int bit;
        enum shard_action_kind kind;
    } order[] = {
        {DO_SETTLE, SHARD_SETTLE}, {DO_TAKE, SHARD_TAKE}, {DO_SEND, SHARD_SEND}, {DO_ABANDON, SHARD_ABANDON}};
    struct state_row row = grad_table[core->groups[group].grad][event];
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        bool adds = order[i].bit == DO_SEND && core->groups[group].reduced;
        if (row.actions & order[i].bit)
            core_act(core, adds ? SHARD_ADD : order[i].kind, group);
    }
    core->groups[group].grad = (enum shard_grad)row.next;
}

/* ---- parameters ---- */

static bool among(const int *list, int count, int group)
{
    for (int i = 0; i < count; i++) {
        if (list[i] == group)
            return true;
    }
    return false;
}

/* Gives up gathered groups that are not used next. spared: a group that stays in any case, or -1. */
static void evict(struct shard_core *core, const int *next, int count, int spared)
{
    for (int g = 0; g < core->count; g++) {
        enum shard_state state = core->groups[g].state;
        if ((state == SHARD_GATHERING || state == SHARD_HELD) && g != spared && !among(next, count, g))
            to_state(core, g, ON_EVICT, true);
    }
}

static void look_ahead(struct shard_core *core, int demanded)
{
    int next[SHARD_PREFETCH_MAX], count = shard_order_next(&core->orders[core->pass], core->depth, next);
    evict(core, next, count, demanded);
    if (demanded >= 0)
        to_state(core, demanded, ON_DEMAND, false);
    for (int i = 0; i < count; i++)
        to_state(core, next[i], ON_AHEAD, false);
}

void shard_core_begin(struct shard_core *core, int pass)
{
    core->action_count = 0;
    core->pass = pass;
    shard_order_begin(&core->orders[pass]);
    look_ahead(core, -1);
}

int shard_core_gather(struct shard_core *core, int group, struct muster_error *err)
{
    core->action_count = 0;
    if (shard_order_demand(&core->orders[core->pass], group))
        return error_set(err, MUSTER_E_NOMEM,
                         "no memory for the order of more than %d gathers: call muster_shard_begin at the "
                         "beginning of each pass",
                         core->orders[core->pass].actual_count);
    bool wait = core->groups[group].state == SHARD_SHARDED || core->groups[group].state == SHARD_GATHERING;
    look_ahead(core, group);
    core->groups[group].uses++;
    if (wait) /* last, so that the gathers ahead run during the wait */
        core_act(core, SHARD_WAIT, group);
    return 0;
}

int shard_core_release(struct shard_core *core, int group, const struct shard_names *names,
                       struct muster_error *err)
{
    struct shard_core_group *g = &core->groups[group];
    int next[SHARD_PREFETCH_MAX];
    core->action_count = 0;
    if (state_table[g->state][ON_RELEASE].next == NO)
        return error_set(err, MUSTER_E_STATE, "group %s is released, but was not gathered",
                         names->name(names->context, group));
    if (--g->uses > 0)
        return 0;
    int count = shard_order_next(&core->orders[core->pass], core->depth, next);
    to_state(core, group, among(next, count, group) ? ON_KEEP : ON_RELEASE, true);
    return 0;
}

/* ---- gradients and steps ---- */

void shard_core_fill(struct shard_core *core, int group)
{
    core->action_count = 0;
    to_grad(core, group, ON_FILL);
}

void shard_core_reduce(struct shard_core *core, int group)
{
    core->action_count = 0;
    to_grad(core, group, ON_REDUCE);
    core->groups[group].reduced = true;
}

void shard_core_reduced(struct shard_core *core, int group)
{
    core->groups[group].grad = (enum shard_grad)grad_table[core->groups[group].grad][ON_SETTLE].next;
}

int shard_core_settle(struct shard_core *core, const struct shard_names *names, struct muster_error *err)
{
    core->action_count = 0;
    for (int g = 0; g < core->count; g++) {
        const char *name = names->name(names->context, g);
        if (core->groups[g].uses > 0)
            return error_set(err, MUSTER_E_STATE,
                             "group %s is gathered during a step: release every group before it", name);
        if (grad_table[core->groups[g].grad][ON_SETTLE].next == NO)
            return error_set(err, MUSTER_E_STATE,
                             "group %s has gradients that were not reduced: reduce or discard them before a "
                             "step",
                             name);
    }
    evict(core, NULL, 0, -1);
    for (int g = 0; g < core->count; g++)
        to_grad(core, g, ON_SETTLE);
    return 0;
}

static void forget(struct shard_core *core, int group)
{
    core->groups[group].grad = SHARD_GRAD_NONE;
    core->groups[group].reduced = false;
}

void shard_core_updated(struct shard_core *core)
{
    core->action_count = 0;
    for (int g = 0; g < core->count; g++)
        forget(core, g);
    shard_order_begin(&core->orders[core->pass]);
    look_ahead(core, -1);
}

void shard_core_discard(struct shard_core *core)
{
    core->action_count = 0;
    for (int g = 0; g < core->count; g++) {
        to_grad(core, g, ON_DISCARD);
        forget(core, g);
    }
}
