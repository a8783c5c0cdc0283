/* decide_test.c - one decision for all ranks, from each rank's input. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "rendezvous/store/kv_memory.h"
#include "runtime/world/decide.h"
#include "tests/support/rank_threads.h"

enum { RANKS = 3, TEXT = 64 };

struct job {
    struct kv_store store;
    int decisions;
    bool refuses, stays_away; /* the rule, rank 2 */
    int64_t timeout_ns;
    char got[RANKS][TEXT];
    int result[RANKS];
    struct muster_error err[RANKS];
};

static int join(void *context, const char *const *texts, int size, struct buffer *decision,
                struct muster_error *err)
{
    const struct job *job = context;
    if (job->refuses)
        return error_set(err, MUSTER_E_INVALID, "%s and %s differ", texts[0], texts[size - 1]);
    for (int i = 0; i < size; i++)
        buffer_text(decision, texts[i]);
    return 0;
}

static int body(int rank, int size, void *context)
{
    struct job *job = context;
    const struct agree_options options = {
        .store = &job->store, .key = "test", .rank = rank, .size = size, .timeout_ns = job->timeout_ns};
    if (job->stays_away && rank == 2)
        return 0;
    for (int i = 0; i < job->decisions; i++) {
        scope_buffer decision = {0};
        char mine[TEXT];
        (void)snprintf(mine, sizeof mine, "[%d of rank %d]", i, rank); /* fits */
        buffer_text(&decision, "left from before");
        job->result[rank] = decide_together(&options, mine, join, job, &decision, &job->err[rank]);
        (void)snprintf(job->got[rank], TEXT, "%s", job->result[rank] ? "" : decision.data); /* fits */
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

static void all_get_what_follows_from_all(void **state)
{
    (void)state;
    struct job job = {.decisions = 3, .timeout_ns = 60 * NS_PER_S};
    run(&job);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(job.result[rank], 0);
        assert_string_equal(job.got[rank], "[2 of rank 0][2 of rank 1][2 of rank 2]");
    }
}

static void an_error_of_the_rule_is_everybodys(void **state)
{
    (void)state;
    struct job job = {.decisions = 1, .timeout_ns = 3600 * NS_PER_S, .refuses = true};
    run(&job);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(job.result[rank], -1);
        assert_int_equal(job.err[rank].code, MUSTER_E_INVALID);
        assert_string_equal(job.err[rank].text, "[0 of rank 0] and [0 of rank 2] differ");
    }
}

static void who_is_missing_is_named(void **state)
{
    (void)state;
    struct job job = {.decisions = 1, .timeout_ns = 50 * NS_PER_MS, .stays_away = true};
    run(&job);
    assert_int_equal(job.result[0], -1);
    assert_int_equal(job.err[0].code, MUSTER_E_TIMEOUT);
    assert_non_null(strstr(job.err[0].text, "rank 2"));
    assert_int_equal(job.result[1], -1);
    assert_int_equal(job.err[1].code, MUSTER_E_TIMEOUT);
}

static void alone_the_rule_decides_at_once(void **state)
{
    (void)state;
    struct job job = {0};
    const struct agree_options options = {.key = "test", .size = 1};
    scope_buffer decision = {0};
    assert_int_equal(decide_together(&options, "x", join, &job, &decision, NULL), 0);
    assert_string_equal(decision.data, "x");
    job.refuses = true;
    assert_int_equal(decide_together(&options, "x", join, &job, &decision, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_get_what_follows_from_all),
        cmocka_unit_test(an_error_of_the_rule_is_everybodys),
        cmocka_unit_test(who_is_missing_is_named),
        cmocka_unit_test(alone_the_rule_decides_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
