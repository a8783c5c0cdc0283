/* plan_round.c - transfers between stages on one stream, for a comm that does one operation at a time.
 *
 * Such a comm makes a transfer wait for everything before it, and a send waits for its receive. So all stages
 * need one order. It is the order in which calls end by the times of the table (pipe.h). The transfers of all
 * calls that end at the same time are a round. Each stage has its transfers of a round as one group, which
 * begins and ends as one operation: two stages that exchange results wait for each other in the same group.
 *
 * No stage waits for ever. A round comes after all calls that begin before it, and before all other calls. A
 * call begins when the rounds with its inputs are over. So the first round that is not over, by time, waits
 * for calls alone whose inputs came in earlier rounds. */
#include <limits.h>
#include <stdlib.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/plan/plan_internal.h"

/* Ends of calls by index, for the order of rounds. */
static int round_by_end(const void *left, const void *right, void *ends)
{
    const int *end = ends, l = *(const int *)left, r = *(const int *)right;
    return end[l] != end[r] ? (end[l] > end[r]) - (end[l] < end[r]) : (l > r) - (l < r);
}

static int rank_of(const struct plan_builder *b, const struct pipe_call *call)
{
    return b->table->rank_of[call->part];
}

void plan_list_rounds(struct plan_builder *b)
{
    const struct pipe_table *t = b->table;
    const int count = t->first[t->ranks], stage = b->place.at[SIDE_PIPELINE];
    if (!b->options->grouped)
        return;
    b->rounds = mem_calloc((size_t)count, sizeof *b->rounds);
    if (!b->rounds) {
        b->failed = error_set(b->err, MUSTER_E_NOMEM, "no memory for the transfers of %d calls", count);
        return;
    }
    for (int i = 0; i < count; i++) {
        int to;
        if (plan_sends_to(b, &t->calls[i], &to) && (to == stage || rank_of(b, &t->calls[i]) == stage))
            b->rounds[b->round_count++] = i;
    }
    qsort_r(b->rounds, (size_t)b->round_count, sizeof *b->rounds, round_by_end, b->call_end);
}

/* Emits the rounds up to a time. */
static void emit_rounds(struct plan_builder *b, int last)
{
    for (; b->round_next < b->round_count; b->round_next++) {
        const int index = b->rounds[b->round_next], end = b->call_end[index];
        const struct pipe_call *call = &b->table->calls[index];
        if (end > last)
            return;
        if (end != b->round_end)
            b->round_open = false;
        b->round_end = end;
        if (rank_of(b, call) == b->place.at[SIDE_PIPELINE])
            plan_send_results(b, call);
        else
            plan_receive_results(b, call);
    }
}

static int round_index(const struct plan_builder *b, int call)
{
    return b->table->first[b->place.at[SIDE_PIPELINE]] + call;
}

void plan_rounds_before(struct plan_builder *b, int call)
{
    const int index = round_index(b, call);
    emit_rounds(b, b->call_end[index] - pipe_ticks((enum pipe_phase)b->table->calls[index].phase));
}

void plan_rounds_after(struct plan_builder *b, int call)
{
    emit_rounds(b, b->call_end[round_index(b, call)]);
}

void plan_last_rounds(struct plan_builder *b)
{
    emit_rounds(b, INT_MAX);
}
