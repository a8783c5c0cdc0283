/* next_batch.c - see next_batch.h. */
#include "runtime/app/next_batch.h"

#include <pthread.h>
#include <stdbool.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

enum { BATCHES = 2 };

struct next_batch {
    struct next_batch_options options;
    int32_t *tokens[BATCHES], *targets[BATCHES];
    int64_t counted[BATCHES]; /* targets that count; -1: could not be read */
    struct muster_error failure[BATCHES];
    int64_t waited_ns; /* of the caller */
    int current;       /* the caller's memory; the other one holds the batch made ahead */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int64_t ahead; /* number of that batch; NONE */
    int64_t asked; /* number that the thread is to make; NONE */
    bool making;   /* it does, in the memory that is not current */
    bool running, ends;
};
enum { NONE = -1 };

static void make_batch(struct next_batch *next, int64_t number, int at)
{
    const struct next_batch_options *o = &next->options;
    error_clear(&next->failure[at]);
    next->counted[at] = data_batch(o->data, number, o->rank, o->world_size, o->micro_batches, o->micro_batch,
                                   next->tokens[at], next->targets[at], &next->failure[at]);
}

static void *make_batches(void *argument)
{
    struct next_batch *next = argument;
    (void)pthread_mutex_lock(&next->mutex);
    while (!next->ends) {
        if (next->asked == NONE) {
            (void)pthread_cond_wait(&next->changed, &next->mutex);
            continue;
        }
        const int64_t number = next->asked;
        const int at = !next->current;
        next->asked = NONE;
        next->making = true;
        (void)pthread_mutex_unlock(&next->mutex);
        make_batch(next, number, at);
        (void)pthread_mutex_lock(&next->mutex);
        next->making = false;
        next->ahead = number;
        (void)pthread_cond_broadcast(&next->changed);
    }
    (void)pthread_mutex_unlock(&next->mutex);
    return NULL;
}

GUARD_DEFINE(next_batch, struct next_batch *, next_batch_destroy);

struct next_batch *next_batch_create(const struct next_batch_options *options, struct muster_error *err)
{
    const size_t count =
        (size_t)options->micro_batches * (size_t)options->micro_batch * (size_t)options->positions;
    GUARD(guard_next_batch) struct next_batch *next = mem_calloc(1, sizeof *next);
    bool there = next != NULL;
    if (next) {
        next->options = *options;
        next->ahead = next->asked = NONE;
        (void)pthread_mutex_init(&next->mutex, NULL); /* neither can fail without attributes */
        (void)pthread_cond_init(&next->changed, NULL);
    }
    for (int i = 0; there && i < BATCHES; i++) {
        next->tokens[i] = mem_calloc(count, sizeof *next->tokens[i]);
        next->targets[i] = mem_calloc(count, sizeof *next->targets[i]);
        there = next->tokens[i] && next->targets[i];
    }
    if (!there) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for two batches of %zu tokens", count);
        return NULL;
    }
    if (pthread_create(&next->thread, NULL, make_batches, next)) {
        (void)error_set(err, MUSTER_E_NOMEM, "cannot start a thread that makes batches");
        return NULL;
    }
    next->running = true;
    return take_pointer(&next);
}

void next_batch_destroy(struct next_batch *next)
{
    if (!next)
        return;
    if (next->running) {
        (void)pthread_mutex_lock(&next->mutex);
        next->ends = true;
        (void)pthread_cond_broadcast(&next->changed);
        (void)pthread_mutex_unlock(&next->mutex);
        (void)pthread_join(next->thread, NULL);
    }
    for (int i = 0; i < BATCHES; i++) {
        mem_free(next->tokens[i]);
        mem_free(next->targets[i]);
    }
    (void)pthread_cond_destroy(&next->changed);
    (void)pthread_mutex_destroy(&next->mutex);
    mem_free(next);
}

int64_t next_batch_take(struct next_batch *next, int64_t number, const int32_t **tokens,
                        const int32_t **targets, struct muster_error *err)
{
    const struct instant begun = clock_now(NULL);
    (void)pthread_mutex_lock(&next->mutex);
    while (next->asked != NONE || next->making)
        (void)pthread_cond_wait(&next->changed, &next->mutex);
    next->current = !next->current;
    if (next->ahead != number)
        make_batch(next, number, next->current); /* the thread sleeps */
    next->ahead = NONE;
    next->asked = number + 1;
    (void)pthread_cond_broadcast(&next->changed);
    *tokens = next->tokens[next->current];
    *targets = next->targets[next->current];
    const int64_t counted = next->counted[next->current];
    if (counted < 0 && err)
        *err = next->failure[next->current];
    (void)pthread_mutex_unlock(&next->mutex);
    next->waited_ns += instant_diff_ns(clock_now(NULL), begun);
    return counted;
}

int64_t next_batch_waited_ns(const struct next_batch *next)
{
    return next->waited_ns;
}
