/* roster_backoff_ns: at once, doubling, the cap, the jitter; and a roster that waits so before its rounds. */
#include "proto/base/clock.h"
#include "rendezvous/roster/roster.h"
#include "tests/support/cmocka_all.h"

static void waits_double_up_to_the_cap(void **state)
{
    (void)state;
    int64_t plain = 100 * NS_PER_MS;
    for (int64_t streak = 2; streak < 100; streak++) {
        for (uint64_t jitter = 0; jitter < 50; jitter++) {
            int64_t wait = roster_backoff_ns(100 * NS_PER_MS, 60 * NS_PER_S, streak, jitter);
            assert_in_range(wait, plain - plain / 4, plain + plain / 4);
        }
        plain = plain * 2 < 60 * NS_PER_S ? plain * 2 : 60 * NS_PER_S;
    }
    assert_in_range(roster_backoff_ns(5, 3, 2, 0), 1, 3);
    assert_in_range(roster_backoff_ns(INT64_MAX / 4, INT64_MAX / 2, 60, 1), INT64_MAX / 4, INT64_MAX / 4 * 3);
}

/* Small numbers, by hand: the cap, where a doubled wait would be above it, even or odd. */
static void small_waits_are_doubled_or_capped(void **state)
{
    (void)state;
    for (int64_t base = 1; base < 12; base++)
        for (int64_t cap = 1; cap < 40; cap++) {
            int64_t plain = base < cap ? base : cap;
            for (int64_t streak = 2; streak < 8; streak++) {
                for (uint64_t jitter = 0; jitter < 5; jitter++)
                    assert_int_equal(roster_backoff_ns(base, cap, streak, jitter), plain - plain / 4);
                plain = 2 * plain > cap ? cap : 2 * plain;
            }
        }
}

static void the_first_in_a_row_is_at_once(void **state)
{
    (void)state;
    for (uint64_t jitter = 0; jitter < 50; jitter++) {
        assert_int_equal(roster_backoff_ns(NS_PER_S, 60 * NS_PER_S, 1, jitter), 0);
        assert_int_equal(roster_backoff_ns(INT64_MAX / 4, INT64_MAX / 2, 1, jitter), 0);
    }
}

static void jobs_do_not_come_back_at_one_moment(void **state)
{
    (void)state;
    int64_t least = INT64_MAX, most = 0;
    for (uint64_t jitter = 0; jitter < 200; jitter++) {
        int64_t wait = roster_backoff_ns(NS_PER_S, 60 * NS_PER_S, 2, jitter);
        assert_int_equal(wait, roster_backoff_ns(NS_PER_S, 60 * NS_PER_S, 2, jitter));
        least = wait < least ? wait : least;
        most = wait > most ? wait : most;
    }
    assert_true(most - least > 400 * NS_PER_MS);
}

static void nothing_asked_is_nothing_waited(void **state)
{
    (void)state;
    assert_int_equal(roster_backoff_ns(0, 60 * NS_PER_S, 5, 7), 0);
    assert_int_equal(roster_backoff_ns(NS_PER_S, 0, 5, 7), 0);
    assert_int_equal(roster_backoff_ns(NS_PER_S, NS_PER_S, 0, 7), 0);
}

/* --- in a world of one node --- */

struct job {
    struct roster *roster;
    struct roster_actions actions;
    struct instant now;
    uint64_t sequence;
};

static void step(struct job *job, struct roster_event event)
{
    event.session = event.kind == ROSTER_TICK ? 0 : 1;
    assert_int_equal(roster_step(job->roster, &event, job->now, &job->actions, NULL), 0);
}

static void report(struct job *job, enum membership_report_kind kind)
{
    struct worker_failure failure = {.exit_code = 1};
    step(job,
         (struct roster_event){.kind = ROSTER_REPORT,
                               .report = {roster_world_id(job->roster), kind, ++job->sequence, &failure}});
}

/* One round that lasts so long and fails, and whose workers have stopped so long after that. */
static void fail_and_stop(struct job *job, int64_t lasting_ns, int64_t stop_ns)
{
    report(job, MEMBERSHIP_REPORT_RUNNING);
    assert_int_equal(roster_state(job->roster), JOB_RUNNING);
    job->now = instant_add(job->now, lasting_ns);
    report(job, MEMBERSHIP_REPORT_FAILED);
    job->now = instant_add(job->now, stop_ns);
    report(job, MEMBERSHIP_REPORT_STOPPED);
}

static void fail_a_round(struct job *job, int64_t lasting_ns)
{
    fail_and_stop(job, lasting_ns, 0);
}

static void start_job(struct job *job, int64_t restart_count)
{
    struct roster_options options = {.job_id = "job",
                                     .min_nodes = 1,
                                     .max_nodes = 1,
                                     .max_restarts = 6,
                                     .restart_count = restart_count,
                                     .backoff_ns = NS_PER_S,
                                     .backoff_cap_ns = 60 * NS_PER_S,
                                     .epoch = 42,
                                     .join_timeout_ns = NS_PER_MS};
    struct roster_join who = {.protocol_version = ROSTER_PROTOCOL_VERSION,
                              .job_id = "job",
                              .min_nodes = 1,
                              .max_nodes = 1,
                              .agent_name = "a",
                              .incarnation = {1, 1},
                              .local_world_size = 1,
                              .role = "default",
                              .store_addr = "a",
                              .local = true};
    *job = (struct job){.now = {1000 * NS_PER_S}};
    job->roster = roster_create(&options, job->now, NULL);
    assert_non_null(job->roster);
    assert_int_equal(roster_actions_init(&job->actions, 1, NULL), 0);
    step(job, (struct roster_event){.kind = ROSTER_JOIN, .join = &who});
}

static void end_job(struct job *job)
{
    roster_actions_free(&job->actions);
    roster_destroy(job->roster);
}

/* Where the next world goes out at the deadline and not before: how long that takes. */
static int64_t wait_for_world(struct job *job)
{
    struct instant due = roster_deadline(job->roster);
    int64_t wait = instant_diff_ns(due, job->now);
    assert_int_equal(roster_state(job->roster), JOB_FORMING);
    job->now = instant_add(due, -1);
    step(job, (struct roster_event){.kind = ROSTER_TICK});
    assert_int_equal(roster_state(job->roster), JOB_FORMING);
    job->now = due;
    step(job, (struct roster_event){.kind = ROSTER_TICK});
    assert_int_equal(roster_state(job->roster), JOB_STARTING);
    return wait;
}

/* The first failure in a row, which is not held back. */
static void fail_first(struct job *job)
{
    fail_a_round(job, NS_PER_S);
    assert_int_equal(roster_state(job->roster), JOB_STARTING);
}

static void rounds_are_held_back_and_a_long_one_forgives(void **state)
{
    (void)state;
    struct job job;
    start_job(&job, 0);
    fail_first(&job);
    fail_a_round(&job, NS_PER_S);
    assert_in_range(wait_for_world(&job), 750 * NS_PER_MS, 1250 * NS_PER_MS);
    fail_a_round(&job, 60 * NS_PER_S); /* not longer than the cap */
    assert_in_range(wait_for_world(&job), 1500 * NS_PER_MS, 2500 * NS_PER_MS);
    fail_a_round(&job, 60 * NS_PER_S + 1);
    assert_int_equal(roster_state(job.roster), JOB_STARTING); /* at once, as the first of all */
    fail_a_round(&job, NS_PER_S);
    assert_in_range(wait_for_world(&job), 750 * NS_PER_MS, 1250 * NS_PER_MS);
    assert_int_equal(roster_restart_count(job.roster), 5);
    end_job(&job);
}

/* The same wait, less the time of the stop: the next round comes as long after the failure. */
static void the_wait_counts_from_the_failure(void **state)
{
    (void)state;
    int64_t waits[2][2];
    for (int slow = 0; slow < 2; slow++) {
        struct job job;
        start_job(&job, 0);
        fail_first(&job);
        for (int round = 0; round < 2; round++) {
            int64_t stop_ns = slow * 700 * NS_PER_MS;
            fail_and_stop(&job, NS_PER_S, stop_ns);
            waits[slow][round] = stop_ns + wait_for_world(&job);
        }
        end_job(&job);
    }
    assert_int_equal(waits[1][0], waits[0][0]);
    assert_int_equal(waits[1][1], waits[0][1]);
}

/* A second failure during the stop begins no second wait. */
static void the_wait_counts_from_the_first_failure(void **state)
{
    (void)state;
    struct job job;
    start_job(&job, 0);
    fail_first(&job);
    report(&job, MEMBERSHIP_REPORT_RUNNING);
    struct instant failed = job.now;
    report(&job, MEMBERSHIP_REPORT_FAILED);
    job.now = instant_add(job.now, 500 * NS_PER_MS);
    report(&job, MEMBERSHIP_REPORT_FAILED);
    report(&job, MEMBERSHIP_REPORT_STOPPED);
    (void)wait_for_world(&job);
    assert_in_range(instant_diff_ns(job.now, failed), 750 * NS_PER_MS, 1250 * NS_PER_MS);
    end_job(&job);
}

/* It adds nothing to a stop that takes longer; the next ones have doubled all the same, since no round
 * lasted. */
static void a_long_stop_is_waited_for_alone(void **state)
{
    (void)state;
    struct job job;
    start_job(&job, 0);
    for (int round = 0; round < 2; round++) {
        fail_and_stop(&job, NS_PER_S, 61 * NS_PER_S);
        assert_int_equal(roster_state(job.roster), JOB_STARTING);
    }
    fail_a_round(&job, NS_PER_S);
    assert_in_range(wait_for_world(&job), 1500 * NS_PER_MS, 2500 * NS_PER_MS);
    assert_int_equal(roster_restart_count(job.roster), 3);
    end_job(&job);
}

static void restarts_of_a_former_life_count(void **state)
{
    (void)state;
    struct job job;
    start_job(&job, 5);
    assert_int_equal(roster_restart_count(job.roster), 5);
    fail_first(&job); /* those were not in a row with it */
    fail_a_round(&job, NS_PER_S);
    assert_int_equal(roster_state(job.roster), JOB_FINISHED);
    end_job(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_double_up_to_the_cap),
        cmocka_unit_test(small_waits_are_doubled_or_capped),
        cmocka_unit_test(the_first_in_a_row_is_at_once),
        cmocka_unit_test(jobs_do_not_come_back_at_one_moment),
        cmocka_unit_test(nothing_asked_is_nothing_waited),
        cmocka_unit_test(rounds_are_held_back_and_a_long_one_forgives),
        cmocka_unit_test(the_wait_counts_from_the_failure),
        cmocka_unit_test(the_wait_counts_from_the_first_failure),
        cmocka_unit_test(a_long_stop_is_waited_for_alone),
        cmocka_unit_test(restarts_of_a_former_life_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
