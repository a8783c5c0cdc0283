/* plan_carry.c - the edge between two steps: gathers that a step makes for the next one.
 *
 * Gathers at the beginning of a step would have no compute to overlap with. They are moved to the end of the
 * step before, after the optimizer's step of their group. There they overlap the other groups' steps and the
 * next step's first calls. The same holds for parameters that every rank keeps whole and gathers again after
 * their step. */
#include <limits.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/plan/plan_internal.h"

/* A plan that only evaluates has no step at whose end parameters change, and without prefetch nothing runs
 * ahead. Gathers are assigned in the order in which they are issued: gathers that wait for no call come
 * first. */
void plan_choose_carried(struct plan_builder *b)
{
    if (!b->options->train || b->options->prefetch_forward == 0)
        return;
    while (b->gathers_carried < b->gather_count && b->gathers[b->gathers_carried].after_step < 0)
        b->gathers_carried++;
}

void plan_carry(struct plan_builder *b, int group)
{
    for (int i = 0; i < b->gathers_carried; i++) {
        /* A frozen group waits for no step of its own, but would run ahead of calls that are still to come.
         */
        const int last_call = b->steps[b->step_count - 1].op;
        if (b->gathers[i].group == group)
            plan_emit_gather(b, i, last_call, true);
    }
}

/* ---- waits across the edge ---- */

/* The last carried operation that wrote a buffer, and the last that touched it: op indices, -1 none. All
 * carried operations are in one stream, so a wait for one also waits for the earlier operations. */
struct carried {
    int write, access;
};

static bool find_carried(const struct plan *plan, struct carried *entries)
{
    bool any = false;
    for (int e = 0; e < plan->entry_count; e++)
        entries[e] = (struct carried){-1, -1};
    for (int o = 0; o < plan->op_count; o++) {
        struct plan_access accesses[PLAN_ACCESSES];
        int count = plan->ops[o].carried ? plan_op_accesses(plan, &plan->ops[o], accesses) : 0;
        for (int i = 0; i < count; i++) {
            any = true;
            entries[accesses[i].entry].access = o;
            if (accesses[i].write)
                entries[accesses[i].entry].write = o;
        }
    }
    return any;
}

/* The last carried operation of the step before that must be finished before op begins. */
static int carried_need(const struct plan *plan, const struct schedule_op *op, const struct carried *entries)
{
    struct plan_access accesses[PLAN_ACCESSES];
    int count = plan_op_accesses(plan, op, accesses), need = -1;
    for (int i = 0; i < count; i++) {
        const struct carried *c = &entries[accesses[i].entry];
        int last = accesses[i].write ? c->access : c->write;
        need = last > need ? last : need;
    }
    return need;
}

/* known: [op] the last carried operation of the step before that is finished when the op is. */
static void add_carried_waits(struct plan *plan, const struct carried *entries, int *known)
{
    int streams[STREAM_COUNT];
    for (int s = 0; s < STREAM_COUNT; s++)
        streams[s] = -1;
    streams[STREAM_GATHER] = INT_MAX; /* the carried operations' own */
    for (int o = 0; o < plan->op_count; o++) {
        struct schedule_op *op = &plan->ops[o];
        int *reached = &streams[op->stream], need = carried_need(plan, op, entries);
        for (int i = 0; i < op->wait_count; i++)
            *reached = known[op->wait[i]] > *reached ? known[op->wait[i]] : *reached;
        if (need > *reached) {
            op->wait[op->wait_count++] = need; /* a wait a stream at most: OP_WAITS has room */
            plan->ops[need].signal = true;
            *reached = need;
        }
        known[o] = *reached;
    }
}

void plan_wait_for_carried(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    scope_free struct carried *entries = mem_calloc((size_t)plan->entry_count, sizeof *entries);
    scope_free int *known = mem_calloc((size_t)plan->op_count, sizeof *known);
    if (!entries || !known)
        b->failed = error_set(b->err, MUSTER_E_NOMEM,
                              "no memory to join the steps of a plan of %d operations", plan->op_count);
    else if (find_carried(plan, entries))
        add_carried_waits(plan, entries, known);
}
