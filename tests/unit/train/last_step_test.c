/* last_step_test.c - ranks that hear of a stop at different steps, and all end after the same one. */
#include "runtime/train/last_step.h"

#include <pthread.h>

#include "tests/support/cmocka_all.h"
#include "tests/support/kv_memory.h"
#include "tests/support/rank_threads.h"

enum { RANKS = 4, STEPS = 50 };

struct job {
    struct kv_store store;
    pthread_barrier_t step_end; /* a step needs all ranks */
    int told_at[RANKS];         /* -1: never */
    int last[RANKS];
};

static int body(int rank, int size, void *context)
{
    struct job *job = context;
    struct last_step last = {.store = &job->store};
    struct muster_error err = {0};
    bool reached = false;
    (void)size;
    for (int step = 0; step < STEPS && !reached; step++) {
        (void)pthread_barrier_wait(&job->step_end);
        bool told = job->told_at[rank] >= 0 && step >= job->told_at[rank];
        if (last_step_reached(&last, step, told, &reached, &err) < 0)
            return -1;
        job->last[rank] = step;
    }
    return 0;
}

static void run(struct job *job)
{
    struct kv_memory *memory = kv_memory_create(NULL);
    assert_non_null(memory);
    job->store = kv_memory_store(memory);
    assert_int_equal(pthread_barrier_init(&job->step_end, NULL, RANKS), 0);
    assert_int_equal(rank_threads_run(RANKS, body, job), 0);
    (void)pthread_barrier_destroy(&job->step_end);
    kv_memory_destroy(memory);
}

/* A rank that ended earlier than another would leave that one at the barrier for ever. */
static void all_end_after_the_same_step(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 500; seed++) {
        struct job job;
        unsigned random = seed * 2654435761u;
        int first = STEPS;
        for (int rank = 0; rank < RANKS; rank++) {
            random = random * 1664525u + 1013904223u;
            job.told_at[rank] = (int)(random >> 16) % 12 - 1; /* a rank may never hear of it */
            if (job.told_at[rank] >= 0 && job.told_at[rank] < first)
                first = job.told_at[rank];
        }
        run(&job);
        for (int rank = 0; rank < RANKS; rank++)
            assert_int_equal(job.last[rank], job.last[0]);
        if (first == STEPS)
            assert_int_equal(job.last[0], STEPS - 1);
        else
            assert_true(job.last[0] == first + 1);
    }
}

static void alone_it_is_this_one(void **state)
{
    (void)state;
    struct last_step last = {0};
    bool reached = true;
    assert_int_equal(last_step_reached(&last, 0, false, &reached, NULL), 0);
    assert_false(reached);
    assert_int_equal(last_step_reached(&last, 1, true, &reached, NULL), 0);
    assert_true(reached);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_end_after_the_same_step),
        cmocka_unit_test(alone_it_is_this_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
