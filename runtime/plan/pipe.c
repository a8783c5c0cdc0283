/* pipe.c - tables of schedules.
 *
 * Each rank merges its forwards and its backwards, each in one order, by one number: it goes forward while it
 * holds the activations of less calls than its limit, else back. The limit makes the schedule: gpipe has
 * none, 1f1b as many as there are stages to the end. */
#include "runtime/plan/pipe.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

struct merge {
    enum pipe_schedule schedule;
    int ranks, chunks, micros;
};

/* Micro-batches go through a part in runs, then the run goes through the rank's next part. There are as many
 * runs as have at least `ranks` micro-batches each. The first runs are longer by a micro-batch where the
 * number does not divide. */
static int runs_of(const struct merge *m)
{
    return m->chunks == 1 ? m->micros : m->micros < m->ranks ? 1 : m->micros / m->ranks;
}

/* The rank's n-th forward or backward. */
static struct pipe_call nth_call(const struct merge *m, int rank, enum pipe_phase phase, int n)
{
    const int runs = runs_of(m), size = m->micros / runs, longer = m->micros % runs;
    int first = 0, run = 0, length;
    while (n >= (length = size + (run < longer)) * m->chunks) {
        n -= length * m->chunks;
        first += length;
        run++;
    }
    int chunk = n / length, micro = first + n % length;
    if (phase != PIPE_FORWARD) {
        chunk = m->chunks - 1 - chunk;
        micro = m->schedule == PIPE_GPIPE ? m->micros - 1 - micro : micro;
    }
    return (struct pipe_call){(uint8_t)phase, (uint8_t)(chunk * m->ranks + rank), micro};
}

/* Forwards whose activations a rank may hold. */
static int limit_of(const struct merge *m, int rank)
{
    if (m->schedule == PIPE_GPIPE)
        return m->micros;
    if (m->schedule != PIPE_INTERLEAVED)
        return m->ranks - rank;
    const int runs = runs_of(m), longest = m->chunks == 1 ? 1 : (m->micros + runs - 1) / runs;
    return (m->ranks - rank - 1) * 2 + (m->chunks - 1) * longest + 1;
}

static int merge_rank(const struct merge *m, int rank, bool train, struct pipe_call *calls)
{
    const int total = m->chunks * m->micros, limit = limit_of(m, rank);
    int forwards = 0, backwards = 0, n = 0;
    while (forwards < total || (train && backwards < total)) {
        if (forwards < total && (!train || forwards - backwards < limit))
            calls[n++] = nth_call(m, rank, PIPE_FORWARD, forwards++);
        else
            calls[n++] = nth_call(m, rank, PIPE_BACKWARD, backwards++);
    }
    return n;
}

int pipe_table_make(enum pipe_schedule schedule, int ranks, int chunks, int micros, bool train,
                    struct pipe_table *table, struct muster_error *err)
{
    const struct merge m = {schedule, ranks, chunks, micros};
    const int64_t all = (int64_t)ranks * chunks * micros * (train ? 2 : 1);
    if (all > PIPE_CALLS)
        return error_set(err, MUSTER_E_LIMIT,
                         "%d parts of a model and %d micro-batches are more than %d calls of a schedule",
                         ranks * chunks, micros, PIPE_CALLS);
    *table = (struct pipe_table){
        .ranks = ranks, .parts = ranks * chunks, .micros = micros, .forward_only = !train};
    table->calls = mem_calloc((size_t)all, sizeof *table->calls);
    if (!table->calls)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a schedule of %lld calls", (long long)all);
    for (int part = 0; part < table->parts; part++)
        table->rank_of[part] = (uint8_t)(part % ranks);
    for (int rank = 0; rank < ranks; rank++)
        table->first[rank + 1] =
            table->first[rank] + merge_rank(&m, rank, train, table->calls + table->first[rank]);
    return 0;
}

void pipe_table_free(struct pipe_table *table)
{
    mem_free(table->calls);
    *table = (struct pipe_table){0};
}

bool pipe_is_loop(const struct pipe_table *table)
{
    for (int part = 0; part < table->parts; part++)
        if (table->rank_of[part] != part % table->ranks)
            return false;
    return true;
}

bool pipe_is_split(const struct pipe_table *table)
{
    for (int i = 0; i < table->first[table->ranks]; i++)
        if (table->calls[i].phase == PIPE_INPUT || table->calls[i].phase == PIPE_WEIGHT)
            return true;
    return false;
}

/* ---- a run ---- */

/* When the forward and the gradients of inputs of (part, micro-batch) are there; -1: not yet. */
struct pipe_run {
    const struct pipe_table *table;
    int *forward, *back;                 /* [part * micros + micro] */
    int at[PIPE_PARTS], now[PIPE_PARTS]; /* next call and time of a rank */
};

static int cell_of(const struct pipe_table *t, int part, int micro)
{
    return part * t->micros + micro;
}

/* The call of another part that a call waits for; false: it waits for none. */
static bool needed_call(const struct pipe_table *t, const struct pipe_call *call, struct pipe_call *needed)
{
    const bool forward = call->phase == PIPE_FORWARD;
    const int part = call->part + (forward ? -1 : 1);
    if (call->phase == PIPE_WEIGHT || part < 0 || part >= t->parts)
        return false;
    *needed =
        (struct pipe_call){(uint8_t)(forward ? PIPE_FORWARD : PIPE_BACKWARD), (uint8_t)part, call->micro};
    return true;
}

static int when(const struct pipe_run *run, const struct pipe_call *call)
{
    return (call->phase == PIPE_FORWARD ? run->forward
                                        : run->back)[cell_of(run->table, call->part, call->micro)];
}

int pipe_ticks(enum pipe_phase phase)
{
    static const int ticks[PIPE_PHASES] = {1, 2, 1, 1};
    return ticks[phase];
}

/* Calls of a rank as far as possible. */
static bool advance_rank(struct pipe_run *run, int rank, int *end)
{
    const struct pipe_table *t = run->table;
    bool moved = false;
    for (; run->at[rank] < t->first[rank + 1]; run->at[rank]++, moved = true) {
        const struct pipe_call *call = &t->calls[run->at[rank]];
        struct pipe_call needed;
        if (needed_call(t, call, &needed)) {
            const int there = when(run, &needed);
            if (there < 0)
                break;
            run->now[rank] = there > run->now[rank] ? there : run->now[rank];
        }
        end[run->at[rank]] = run->now[rank] += pipe_ticks((enum pipe_phase)call->phase);
        const int cell = cell_of(t, call->part, call->micro);
        if (call->phase == PIPE_FORWARD)
            run->forward[cell] = run->now[rank];
        else if (call->phase != PIPE_WEIGHT)
            run->back[cell] = run->now[rank];
    }
    return moved;
}

/* Follows the calls that wait for each other, from a rank that waits. */
static int refuse_circle(const struct pipe_run *run, int rank, struct muster_error *err)
{
    enum { SHOWN = 6 };
    const struct pipe_table *t = run->table;
    struct pipe_call needed = {0};
    bool seen[PIPE_PARTS] = {false};
    char text[512];
    while (!seen[rank]) { /* to a rank of the circle itself */
        seen[rank] = true;
        (void)needed_call(t, &t->calls[run->at[rank]], &needed);
        rank = t->rank_of[needed.part];
    }
    const int begin = rank;
    size_t used = 0;
    for (int shown = 0; shown < SHOWN && used < sizeof text; shown++) {
        (void)needed_call(t, &t->calls[run->at[rank]], &needed);
        const int other = t->rank_of[needed.part];
        const struct pipe_call *stuck = &t->calls[run->at[other]];
        if (!shown)
            (void)snprintf(text, sizeof text, "rank %d waits", rank);
        used += strlen(text + used);
        (void)snprintf(text + used, sizeof text - used, " for %d%c%d, which rank %d calls after %d%c%d%s",
                       needed.part, "FBIW"[needed.phase], needed.micro, other, stuck->part,
                       "FBIW"[stuck->phase], stuck -> micro,
                       other == begin      ? ""
                       : shown + 1 < SHOWN ? ", which waits"
                                           : ", and so on");
        used += strlen(text + used);
        if (other == begin)
            break;
        rank = other;
    }
    return error_set(err, MUSTER_E_INVALID, "deadlock: %s", text);
}

int pipe_table_times(const struct pipe_table *t, int *end, struct muster_error *err)
{
    const size_t cells = (size_t)t->parts * (size_t)t->micros;
    struct pipe_run run = {.table = t};
    scope_free int *memory = mem_calloc(2 * cells, sizeof *memory);
    if (!memory)
        return error_set(err, MUSTER_E_NOMEM, "no memory to prove a schedule of %zu calls", 2 * cells);
    for (size_t i = 0; i < 2 * cells; i++)
        memory[i] = -1;
    run.forward = memory;
    run.back = memory + cells;
    for (int rank = 0; rank < t->ranks; rank++)
        run.at[rank] = t->first[rank];
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < t->ranks; rank++)
            moved |= advance_rank(&run, rank, end);
    }
    for (int rank = 0; rank < t->ranks; rank++)
        if (run.at[rank] < t->first[rank + 1])
            return refuse_circle(&run, rank, err);
    return 0;
}
