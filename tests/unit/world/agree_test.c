/* agree_test.c - ranks that find out whether all of them can begin. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "rendezvous/store/kv_memory.h"
#include "runtime/world/agree.h"
#include "tests/support/rank_threads.h"

enum { RANKS = 3 };

struct job {
    struct kv_store store;
    int meetings;
    bool fails[RANKS]; /* in the last meeting */
    bool stays_away[RANKS];
    int64_t timeout_ns;
    struct muster_error err[RANKS];
    int result[RANKS];
};

static int body(int rank, int size, void *context)
{
    struct job *job = context;
    const struct agree_options options = {
        .store = &job->store, .key = "test", .rank = rank, .size = size, .timeout_ns = job->timeout_ns};
    if (job->stays_away[rank])
        return 0;
    for (int i = 1; i <= job->meetings; i++) {
        bool fails = i == job->meetings && job->fails[rank];
        if (fails)
            (void)error_set(&job->err[rank], MUSTER_E_LIMIT, "reason of rank %d", rank);
        job->result[rank] = agree(&options, fails ? -1 : 0, &job->err[rank]);
    }
    return 0;
}

static void run(struct job *job)
{
    struct kv_memory *memory = kv_memory_create(NULL);
    assert_non_null(memory);
    job->store = kv_memory_store(memory);
    assert_int_equal(rank_threads_run(RANKS, body, job), 0);
    kv_memory_destroy(memory);
}

static void all_can(void **state)
{
    (void)state;
    struct job job = {.meetings = 3, .timeout_ns = 60 * NS_PER_S};
    run(&job);
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(job.result[rank], 0);
}

/* The time-out is far beyond the test's own: nobody waits for it. */
static void one_cannot_and_all_know_why(void **state)
{
    (void)state;
    struct job job = {.meetings = 2, .timeout_ns = 3600 * NS_PER_S, .fails = {[1] = true}};
    run(&job);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(job.result[rank], -1);
        assert_int_equal(job.err[rank].code, MUSTER_E_LIMIT);
        assert_string_equal(job.err[rank].text,
                            rank == 1 ? "reason of rank 1" : "rank 1 cannot go on: reason of rank 1");
    }
}

static void several_cannot(void **state)
{
    (void)state;
    struct job job = {.meetings = 1, .timeout_ns = 3600 * NS_PER_S, .fails = {true, false, true}};
    run(&job);
    assert_string_equal(job.err[0].text, "reason of rank 0");
    assert_string_equal(job.err[2].text, "reason of rank 2");
    assert_int_equal(job.result[1], -1);
    assert_non_null(strstr(job.err[1].text, " cannot go on: reason of rank "));
}

static void who_is_missing_is_counted(void **state)
{
    (void)state;
    struct job job;
    /* Where the two others do not meet within a short time-out, they get a longer one. */
    for (int64_t timeout_ns = 50 * NS_PER_MS; timeout_ns < 3600 * NS_PER_S; timeout_ns *= 10) {
        job = (struct job){.meetings = 1, .timeout_ns = timeout_ns, .stays_away = {[2] = true}};
        run(&job);
        if (strstr(job.err[0].text, "1 of 3") && strstr(job.err[1].text, "1 of 3"))
            break;
    }
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(job.result[rank], -1);
        assert_int_equal(job.err[rank].code, MUSTER_E_TIMEOUT);
        assert_non_null(strstr(job.err[rank].text, "1 of 3 ranks are missing"));
    }
}

static void alone_there_is_nobody_to_ask(void **state)
{
    (void)state;
    const struct agree_options options = {.key = "test", .size = 1};
    assert_int_equal(agree(&options, 0, NULL), 0);
    assert_int_equal(agree(&options, 1, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_can),
        cmocka_unit_test(one_cannot_and_all_know_why),
        cmocka_unit_test(several_cannot),
        cmocka_unit_test(who_is_missing_is_counted),
        cmocka_unit_test(alone_there_is_nobody_to_ask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
