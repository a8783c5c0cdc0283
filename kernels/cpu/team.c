/* team.c - see team.h.
 *
 * The compiler makes a function of each parallel loop and calls GOMP_parallel with it. The function asks for
 * its share and for the number of shares. This file defines those three symbols (hidden: OpenBLAS and others
 * in the process keep libgomp's), for two reasons. First, libgomp's threads spin for milliseconds between
 * loops and after the last loop. Second, each of its threads has to do its own share: if another process
 * holds the processor of one thread, all threads wait for it, a time slice for each loop. Here a thread that
 * has done its share takes further shares that no thread has begun, so that a thread without a processor
 * costs its work and no more. The threads also sleep soon. Measured: a step of the demo on two threads of two
 * cores takes 34 ms, and 61 ms with one busy process. With libgomp's threads it took 31 and 750 ms. A thread
 * looks for the next loop for 60 us before it sleeps.
 *
 * No result depends on which thread does a share: loops are cut by number, not by thread. */
#include "kernels/cpu/team.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/futex.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"

struct share {
    _Atomic(uint32_t) job; /* the last in which it was taken */
    char apart[124];       /* no two on the lines that a processor fetches together */
};

struct helper {
    pthread_t thread;
    struct team *team;
    int index;
};

struct team {
    int threads, started; /* the caller's included; helpers that run */
    void (*begin)(void);
    struct futex_word job;          /* a number for each loop */
    struct futex_word done;         /* shares of the loop that are done */
    struct futex_patience patience; /* the caller's */
    _Atomic(bool) ends;
    void (*loop)(void *data);
    void *data;
    struct helper *helpers; /* [threads - 1] */
    struct share *shares;   /* [threads] */
    char *lent;             /* (threads, each) bytes; NULL: none; changed between loops */
    size_t each;
};

/* Answers to the loop's function: its share and the number of shares. */
static _Thread_local struct {
    struct team *team; /* NULL on helpers: loops inside of loops run alone */
    int share, shares; /* shares 0: outside of a loop */
} here;

/* The place in a team, also on helpers. */
static _Thread_local struct {
    const struct team *team; /* NULL: none */
    int index;
} place;

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static int key_error;

/* ---- waiting ---- */

/* Until the word is another one. */
static uint32_t await_change(struct futex_word *word, uint32_t seen, struct futex_patience *patience)
{
    while (!futex_look(word, seen, patience))
        (void)futex_wait(word, seen, INSTANT_NEVER, FUTEX_PRIVATE); /* never late */
    return atomic_load(&word->value);
}

/* ---- a loop ---- */

/* Takes the thread's own share first, which is the same memory from loop to loop; then the shares of threads
 * that have not come. */
static void take_shares(struct team *team, uint32_t job, int own)
{
    for (int i = 0; i < team->threads; i++) {
        int share = (own + i) % team->threads;
        uint32_t before = job - 1;
        if (!atomic_compare_exchange_strong(&team->shares[share].job, &before, job))
            continue; /* taken, or the job is over: all its shares are taken then */
        here.share = share;
        team->loop(team->data);
        if (atomic_fetch_add(&team->done.value, 1) + 1 == (uint32_t)team->threads)
            futex_wake(&team->done, FUTEX_PRIVATE);
    }
}

static void run_loop(struct team *team, void (*loop)(void *data), void *data)
{
    uint32_t job = atomic_load(&team->job.value) + 1;
    team->loop = loop;
    team->data = data;
    atomic_store(&team->done.value, 0);
    atomic_store(&team->job.value, job);
    futex_wake(&team->job, FUTEX_PRIVATE);
    take_shares(team, job, 0);
    for (uint32_t done = atomic_load(&team->done.value); done != (uint32_t)team->threads;)
        done = await_change(&team->done, done, &team->patience);
}

static void *help(void *context)
{
    const struct helper *helper = context;
    struct team *team = helper->team;
    struct futex_patience patience = {0};
    uint32_t job = 0;
    team->begin();
    here.shares = team->threads;
    place.team = team;
    place.index = helper->index;
    for (;;) {
        job = await_change(&team->job, job, &patience);
        if (atomic_load(&team->ends))
            return NULL;
        take_shares(team, job, helper->index);
    }
}

/* ---- functions that the compiler calls ---- */

#define HIDDEN __attribute__((visibility("hidden")))
HIDDEN void GOMP_parallel(void (*loop)(void *data), void *data, unsigned threads, unsigned flags);
HIDDEN int omp_get_num_threads(void);
HIDDEN int omp_get_thread_num(void);

/* threads: 1 where the loop's condition says that it is not worth waking others, else 0. */
void GOMP_parallel(void (*loop)(void *data), void *data, unsigned threads, unsigned flags)
{
    int share = here.share, shares = here.shares;
    (void)flags;
    if (here.team && here.team->threads > 1 && threads != 1 && !shares) {
        here.shares = here.team->threads;
        run_loop(here.team, loop, data);
    } else {
        here.share = 0;
        here.shares = 1;
        loop(data);
    }
    here.share = share;
    here.shares = shares;
}

int omp_get_num_threads(void)
{
    return here.shares ? here.shares : 1;
}

int omp_get_thread_num(void)
{
    return here.share;
}

/* ---- a team ---- */

static void team_destroy(void *context)
{
    struct team *team = context;
    if (!team)
        return;
    atomic_store(&team->ends, true);
    atomic_fetch_add(&team->job.value, 1);
    futex_wake(&team->job, FUTEX_PRIVATE);
    for (int i = 0; i < team->started; i++)
        (void)pthread_join(team->helpers[i].thread, NULL); /* cannot fail: it runs and is ours */
    mem_free(team->helpers);
    mem_free(team->shares);
    mem_free(team);
}
GUARD_DEFINE(team, struct team *, team_destroy);

static void make_key(void)
{
    key_error = pthread_key_create(&key, team_destroy);
}

static struct team *create(int threads, void (*begin)(void), struct muster_error *err)
{
    GUARD(guard_team) struct team *team = mem_calloc(1, sizeof *team);
    if (team) {
        team->helpers = mem_calloc((size_t)threads, sizeof *team->helpers);
        team->shares = mem_calloc((size_t)threads, sizeof *team->shares);
    }
    if (!team || !team->helpers || !team->shares) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a team of %d threads", threads);
        return NULL;
    }
    team->threads = threads;
    team->begin = begin;
    for (; team->started < threads - 1; team->started++) {
        struct helper *helper = &team->helpers[team->started];
        *helper = (struct helper){.team = team, .index = team->started + 1};
        int failed = thread_start(&helper->thread, 0, help, helper);
        if (failed) {
            (void)thread_error(err, failed, "thread %d of %d for the kernels", helper->index + 1, threads);
            return NULL;
        }
    }
    return take_pointer(&team);
}

int team_start(int threads, void (*begin)(void), struct muster_error *err)
{
    (void)pthread_once(&key_once, make_key); /* cannot fail: both arguments are valid */
    if (key_error)
        return error_set(err, MUSTER_E_LIMIT, "no key for the data of a thread: %s", strerror(key_error));
    begin();
    if (here.team && here.team->threads == threads)
        return 0;
    GUARD(guard_team) struct team *team = create(threads, begin, err);
    if (!team)
        return -1;
    int failed = pthread_setspecific(key, team);
    if (failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the data of a thread: %s", strerror(failed));
    team_destroy(here.team);
    here.team = take_pointer(&team);
    place.team = here.team;
    return 0;
}

void team_lend(void *memory, size_t each)
{
    if (!here.team)
        return;
    here.team->lent = memory;
    here.team->each = each;
}

void *team_lent(void)
{
    const struct team *team = place.team;
    return team && team->lent ? team->lent + (size_t)place.index * team->each : NULL;
}

int team_size(void)
{
    return here.team ? here.team->threads : 1;
}
