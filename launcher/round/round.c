/* round.c - see round.h. */
#include "launcher/round/round.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"

/* Aborts if an invariant is violated. */
static void round_check(const struct round *round)
{
    assert(round->worker_count > 0 && round->alive >= 0 && round->alive <= round->worker_count);
    assert(round->failure_count >= 0 && round->failure_count <= ROUND_FAILURES_KEPT);
    assert(round->dead_count >= 0 && round->dead_count <= round->dead_capacity);
    assert(round->dead_capacity <= ROUND_DEAD_KEPT);
}

int round_init(struct round *round, int worker_count, struct muster_error *err)
{
    *round = (struct round){.worker_count = worker_count};
    round->workers = mem_calloc((size_t)worker_count, sizeof *round->workers);
    round->beats = mem_calloc((size_t)worker_count, sizeof *round->beats);
    round->stopped = mem_calloc(ROUND_STOPPED_KEPT, sizeof *round->stopped);
    round->done = mem_calloc((size_t)worker_count, sizeof *round->done);
    if (!round->workers || !round->beats || !round->stopped || !round->done)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %d workers", worker_count);
    round_end(round);
    round_check(round);
    return 0;
}

static void free_failures(struct round *round)
{
    for (int i = 0; i < round->failure_count; i++)
        observed_failure_free(round->failures[i]);
    round->failure_count = 0;
}

static void free_stopped(struct round *round)
{
    for (int i = 0; round->stopped && i < round->stopped_count && i < ROUND_STOPPED_KEPT; i++)
        mem_free(round->stopped[i].place);
    round->stopped_count = 0;
}

void round_free(struct round *round)
{
    free_failures(round);
    free_stopped(round);
    if (round->workers)
        round_end(round);
    mem_free(round->workers);
    mem_free(round->beats);
    mem_free(round->dead);
    mem_free(round->stopped);
    mem_free(round->done);
    *round = (struct round){0};
}

void round_begin(struct round *round, const struct membership_event *world)
{
    struct round last = *round;
    for (int i = 0; i < last.worker_count; i++)
        assert(!last.workers[i].alive ||
               last.workers[i].kept); /* no member of the last world works any more */
    free_failures(&last);
    free_stopped(&last);
    *round = (struct round){.worker_count = last.worker_count,
                            .workers = last.workers,
                            .beats = last.beats,
                            .alive = last.alive,
                            .world = world->world,
                            .dead = last.dead,
                            .dead_capacity = last.dead_capacity,
                            .stopped = last.stopped,
                            .done = last.done};
    memcpy(round->restart_reason, world->reason, sizeof round->restart_reason);
    for (int i = 0; i < round->worker_count; i++) {
        round->workers[i].rank = round->world.rank_base + i;
        round->workers[i].aborted = false;
    }
    round_check(round);
}

void round_keep_workers(struct round *round, bool keep)
{
    for (int i = 0; i < round->worker_count; i++)
        round->workers[i].kept = keep && round->workers[i].alive;
}

void round_end(struct round *round)
{
    for (int i = 0; i < round->worker_count; i++) {
        struct worker *worker = &round->workers[i];
        if (worker->kept)
            continue;
        assert(!worker->streams[1] && !worker->streams[2]);
        mem_free(worker->stdout_file);
        mem_free(worker->stderr_file);
        mem_free(worker->error_file);
        *worker = (struct worker){.local_rank = i, .rank = worker->rank};
    }
}

void round_take_stop(struct round *round, const struct membership_event *stop)
{
    round->stop = (struct round_stop){.given = true, .change = stop->change, .next_nodes = stop->next_nodes};
    memcpy(round->stop.reason, stop->reason, sizeof round->stop.reason);
}

/* --- workers --- */

void round_worker_started(struct round *round, struct worker *worker, pid_t pid)
{
    assert(!worker->alive && pid > 0);
    worker->pid = pid;
    worker->alive = true;
    worker->begun = clock_now(NULL);
    round->alive++;
    round_check(round);
}

void round_worker_reaped(struct round *round, struct worker *worker, int code, int status)
{
    assert(worker->alive);
    worker->alive = worker->kept = false;
    worker->unhandled = true;
    worker->end_code = code;
    worker->end_status = status;
    worker->ended = clock_now(NULL);
    round->alive--;
    round_check(round);
}

void worker_signal(const struct worker *worker, int signal, enum signal_scope scope)
{
    bool session = scope == SIGNAL_SCOPE_GROUP || signal == SIGKILL || signal == SIGCONT;
    assert(worker->alive); /* it is not reaped: the number is its own */
    (void)kill(session ? -worker->pid : worker->pid, signal);
}

struct worker *round_find_worker(struct round *round, pid_t pid)
{
    for (int i = 0; i < round->worker_count; i++)
        if (round->workers[i].alive && round->workers[i].pid == pid)
            return &round->workers[i];
    return NULL;
}

void round_note_dead(struct round *round, pid_t pid)
{
    if (round->dead_count == round->dead_capacity) {
        int capacity = round->dead_capacity ? 2 * round->dead_capacity : 64;
        capacity = capacity < ROUND_DEAD_KEPT ? capacity : ROUND_DEAD_KEPT;
        pid_t *dead =
            capacity > round->dead_capacity ? mem_realloc(round->dead, (size_t)capacity, sizeof *dead) : NULL;
        if (!dead)
            return;
        round->dead = dead;
        round->dead_capacity = capacity;
    }
    round->dead[round->dead_count++] = pid;
    round_check(round);
}

/* --- outcomes --- */

static int by_key(const void *a, const void *b)
{
    const struct observed_failure *x = *(struct observed_failure *const *)a,
                                  *y = *(struct observed_failure *const *)b;
    struct failure_key x_key = failure_key_of(&x->failure, x->at), y_key = failure_key_of(&y->failure, y->at);
    return failure_key_compare(&x_key, &y_key);
}

void round_keep_failure(struct round *round, struct observed_failure *failure)
{
    if (round->failure_count == ROUND_FAILURES_KEPT) {
        struct observed_failure **worst = &round->failures[ROUND_FAILURES_KEPT - 1];
        if (by_key(&failure, worst) >= 0) {
            observed_failure_free(failure);
            return;
        }
        observed_failure_free(*worst);
        *worst = failure;
    } else {
        round->failures[round->failure_count++] = failure;
    }
    qsort(round->failures, (size_t)round->failure_count, sizeof *round->failures, by_key);
    round_check(round);
}

void round_note_done(struct round *round, const struct worker *worker)
{
    assert(round->done_count < round->worker_count);
    round->done[round->done_count++] =
        (struct report_stopped){.rank = worker->rank, .local_rank = worker->local_rank, .pid = worker->pid};
}

void round_note_stopped(struct round *round, const struct report_stopped *stopped)
{
    if (round->stopped_count < ROUND_STOPPED_KEPT)
        round->stopped[round->stopped_count] = *stopped;
    else
        mem_free(stopped->place);
    round->stopped_count++;
}
