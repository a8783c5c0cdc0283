/* gpu_nccl_failure_test.c - comm_nccl when something goes wrong, ranks as threads: each rank gets one error
 * that names operation, number and rank, and everything ends in seconds. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "proto/base/buffer.h"
#include "rendezvous/failure/failure.h"
#include "tests/gpu/nccl/nccl_test_ranks.h"
#include "tests/support/free_port.h"

enum { RANKS = 3 };
static const struct comm_op add = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 100};

static int rank_that_differs; /* a body's */

/* Until another rank's failure, or its own, has reached this rank's device. */
static void await_failure(struct nccl_rank *r, struct muster_error *err)
{
    while (!r->ops->poll_error(r->device, err))
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
}

/* Work of second, on another stream, waits for work of the rank's comm, which the others may never issue. */
static void issue_one_behind(struct nccl_rank *r, struct comm *second, struct muster_error *err)
{
    float *values = r->arena.base;
    (void)comm_nccl()->issue(r->comm, &add, values, values, r->stream, err);
    (void)comm_nccl()->issue(second, &add, values + 200, values + 200, r->other, err);
}

/* Operations until an error, which is kept. */
static int work_until_error(struct nccl_rank *r, struct nccl_job *job, int count)
{
    struct muster_error *err = &job->errors[r->rank];
    float *values = r->arena.base;
    for (int i = 0; i < count && !err->code; i++) {
        if (comm_nccl()->issue(r->comm, &add, values, values, r->stream, err))
            break;
    }
    if (!err->code)
        (void)nccl_sync(r, r->stream, err);
    struct buffer text = {0};
    if (!comm_nccl()->report(r->comm, &text) && text.data)
        (void)snprintf(job->reports[r->rank], sizeof job->reports[r->rank], "%s", text.data);
    buffer_free(&text);
    return 0;
}

static int five(struct nccl_rank *r, struct nccl_job *job)
{
    return work_until_error(r, job, 5);
}

/* Every rank's error holds the text; returns the seconds that it took. */
static double run_failing(struct nccl_job *job, const char *expected)
{
    struct instant start = clock_now(NULL);
    assert_int_equal(nccl_job_run(job, RANKS), 0);
    for (int rank = 0; rank < RANKS; rank++) {
        if (!strstr(job->errors[rank].text, expected))
            fail_msg("rank %d: \"%s\" without \"%s\"", rank, job->errors[rank].text, expected);
    }
    return (double)instant_diff_ns(clock_now(NULL), start) / (double)NS_PER_S;
}

static void a_device_that_hangs_is_reported(void **state)
{
    (void)state;
    char address[32];
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", test_free_port());
    setenv("NCCL_RAS_ADDR", address, 1);
    setenv("FAKE_NCCL_HANG", "1:3", 1);
    struct nccl_job job = {.body = five, .timeout_ns = 1500 * NS_PER_MS};
    double took =
        run_failing(&job, "all_reduce #3 (all_reduce of 100 f32 by sum) of comm test waited 1.5 s on rank ");
    unsetenv("FAKE_NCCL_HANG");
    unsetenv("NCCL_RAS_ADDR");
    assert_non_null(strstr(job.errors[0].text, "every rank has issued it"));
    int named = 0;
    for (int rank = 0; rank < RANKS; rank++)
        named += strstr(job.reports[rank], "Rank 1 has started 2 operations: fewer than others") != NULL;
    assert_true(named > 0);
    assert_true(took < 10);
}

/* NCCL's call itself does not come back, as where it connects to a peer that never does. */
static void a_call_that_stays_inside_is_reported(void **state)
{
    (void)state;
    setenv("FAKE_NCCL_INSIDE", "0:3", 1);
    struct nccl_job job = {.body = five, .timeout_ns = 1500 * NS_PER_MS};
    struct instant start = clock_now(NULL);
    assert_int_equal(nccl_job_run(&job, 1), 0);
    unsetenv("FAKE_NCCL_INSIDE");
    assert_string_equal(job.errors[0].text,
                        "all_reduce #3 of comm test: NCCL's call did not come back for 1.5 s on rank 0; "
                        "NCCL_DEBUG=INFO shows what NCCL waits for");
    assert_true(instant_diff_ns(clock_now(NULL), start) < 10 * NS_PER_S);
}

/* A peer that does not end its communicator is waited for, but not for ever, and not as a failure. All are
 * aborted then, and further operations refused. */
static int one_ends_late(struct nccl_rank *r, struct nccl_job *job)
{
    struct muster_error *err = &job->errors[r->rank];
    struct nccl_family *family = nccl_comm_of(r->comm)->family;
    struct comm *part = comm_nccl()->split(r->comm, 0, r->rank, "part", err);
    (void)pthread_mutex_lock(&family->lock);
    family->end_ns = NS_PER_S;
    (void)pthread_mutex_unlock(&family->lock);
    if (!part || nccl_do(r, part, &add, r->arena.base, r->arena.base, err) || nccl_job_meet(job, RANKS))
        return -1;
    const struct instant begun = clock_now(NULL);
    if (r->rank == 1)
        clock_sleep_until(instant_add(begun, 4 * NS_PER_S));
    comm_nccl()->destroy(part);
    const int64_t took = instant_diff_ns(clock_now(NULL), begun);
    int failed = err->code || nccl_family_check(family, err) || (r->rank != 1 && took > 3500 * NS_PER_MS);
    if (nccl_job_meet(job, RANKS) || failed)
        return nccl_complain(r, "the end of a part failed, or took too long", err->text);
    if (r->rank == 1 && !job->seed)
        return 0;
    struct comm *another = job->seed ? comm_nccl()->split(r->comm, 0, 0, "another", err) : NULL;
    failed = job->seed ? !another
                       : comm_nccl()->issue(r->comm, &add, r->arena.base, r->arena.base, r->stream, err);
    comm_nccl()->destroy(another);
    return failed && strstr(err->text, "the communicator was aborted, since another one did not end in "
                                       "order: ending comm test/1-part.0: "
                                       "NCCL's call did not come back for 1.0 s")
               ? 0
               : nccl_complain(r, "after an abort", err->text);
}

static void the_end_of_a_part_waits_for_peers_within_bounds(void **state)
{
    (void)state;
    for (uint64_t splits = 0; splits < 2; splits++) {
        struct nccl_job job = {.body = one_ends_late, .seed = splits};
        assert_int_equal(nccl_job_run(&job, RANKS), 0);
    }
}

static int one_issues_less(struct nccl_rank *r, struct nccl_job *job)
{
    if (r->rank != rank_that_differs)
        return work_until_error(r, job, 5);
    (void)work_until_error(r, job, 2);
    while (!r->ops->poll_error(r->device, &job->errors[r->rank])) /* it does other things */
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
    return 0;
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    (void)state;
    for (rank_that_differs = 0; rank_that_differs < RANKS; rank_that_differs += 2) {
        char expected[160];
        struct nccl_job job = {.body = one_issues_less, .timeout_ns = 2 * NS_PER_S};
        (void)snprintf(expected, sizeof expected, " for rank %d", rank_that_differs);
        (void)run_failing(&job, expected);
        assert_non_null(
            strstr(job.errors[1].text, "all_reduce #3 (all_reduce of 100 f32 by sum) of comm test waited"));
        assert_int_equal(job.errors[1].code, MUSTER_E_TIMEOUT);
    }
}

static void an_asynchronous_error_reaches_all(void **state)
{
    (void)state;
    setenv("FAKE_NCCL_ASYNC", "2:4", 1);
    struct nccl_job job = {.body = five};
    (void)run_failing(
        &job,
        "all_reduce #4 (all_reduce of 100 f32 by sum) of comm test on rank 2: NCCL: remote process exited");
    unsetenv("FAKE_NCCL_ASYNC");
}

static int one_differs(struct nccl_rank *r, struct nccl_job *job)
{
    struct comm_op op = add;
    struct muster_error *err = &job->errors[r->rank];
    op.count = r->rank == 1 ? 99 : 100;
    if (!nccl_do(r, r->comm, &add, r->arena.base, r->arena.base, err))
        (void)nccl_do(r, r->comm, &op, r->arena.base, r->arena.base, err);
    return 0;
}

static void another_count_is_an_error_of_both(void **state)
{
    (void)state;
    struct nccl_job job = {.body = one_differs};
    (void)run_failing(&job, "all_reduce #2 (all_reduce of ");
    assert_non_null(strstr(job.errors[0].text, "count 99"));
    assert_non_null(strstr(job.errors[0].text, "count 100"));
}

/* What NCCL cannot see: the same call for another thing. */
static int another_tag(struct nccl_rank *r, struct nccl_job *job)
{
    struct comm_op op = add;
    struct muster_error *err = &job->errors[r->rank];
    op.tag = r->rank == 1 ? 7 : 8;
    if (nccl_do(r, r->comm, &op, r->arena.base, r->arena.base, err))
        return 0;
    if (job->seed && r->rank == 1) /* it leaves, and the others compare */
        (void)error_set(err, MUSTER_E_STATE, "left after #1, with tag 7 as #1");
    else
        await_failure(r, err);
    return 0;
}

static void another_tag_is_found_when_ranks_rest(void **state)
{
    (void)state;
    for (uint64_t leaves = 0; leaves < 2; leaves++) {
        struct nccl_job job = {.body = another_tag, .seed = leaves};
        (void)run_failing(&job, " tag 7 as #1");
        assert_non_null(strstr(job.errors[0].text, "ranks differ in comm test: rank "));
        assert_non_null(strstr(job.errors[0].text, " issued all_reduce of 100 f32 by sum for tag 8 as #1"));
    }
}

static int one_aborts(struct nccl_rank *r, struct nccl_job *job)
{
    if (r->rank != 1)
        return work_until_error(r, job, 1);
    clock_sleep_until(instant_add(clock_now(NULL), 50 * NS_PER_MS));
    comm_nccl()->abort(r->comm);
    (void)comm_nccl()->issue(r->comm, &add, r->arena.base, r->arena.base, r->stream, &job->errors[1]);
    return 0;
}

static void an_abort_ends_all(void **state)
{
    (void)state;
    struct nccl_job job = {.body = one_aborts};
    assert_true(run_failing(&job, "aborted") < 10);
    assert_string_equal(job.errors[0].text, "rank 1 aborted comm test");
    assert_true(failure_says_peer_gone(job.errors[0].text, 0));
}

static int one_leaves(struct nccl_rank *r, struct nccl_job *job)
{
    if (r->rank == 1)
        return work_until_error(r, job, 2);
    return work_until_error(r, job, 3);
}

static void leaving_early_is_reported(void **state)
{
    (void)state;
    struct nccl_job job = {.body = one_leaves};
    assert_int_equal(nccl_job_run(&job, RANKS), 0);
    for (int rank = 0; rank < RANKS; rank += 2) {
        assert_non_null(strstr(job.errors[rank].text, ") had left the comm before all_reduce #3"));
        assert_true(failure_says_peer_gone(job.errors[rank].text, rank));
    }
}

/* Work of one comm waits on the device after that of another, which waits for ever: to be aborted together.
 */
static int one_behind_another(struct nccl_rank *r, struct nccl_job *job)
{
    struct muster_error *err = &job->errors[r->rank];
    struct comm *second = comm_nccl()->split(r->comm, 0, r->rank, "second", err);
    if (!second)
        return -1;
    if (r->rank > 0) {
        issue_one_behind(r, second, err);
        (void)nccl_sync(r, r->other, err);
    } else {
        await_failure(r, err);
    }
    comm_nccl()->destroy(second);
    return 0;
}

static void communicators_are_aborted_together(void **state)
{
    (void)state;
    struct nccl_job job = {.body = one_behind_another, .timeout_ns = NS_PER_S};
    assert_true(
        run_failing(&job, "all_reduce #1 (all_reduce of 100 f32 by sum) of comm test waited 1.0 s on rank ") <
        10);
    assert_non_null(strstr(job.errors[1].text, " for rank 0"));
}

/* The device of a rank fails, and it destroys a comm whose work is after another's while the thread that
 * watches has not looked yet. */
static int fails_and_destroys(struct nccl_rank *r, struct nccl_job *job)
{
    struct muster_error *err = &job->errors[r->rank], failure = {0};
    struct comm *second = comm_nccl()->split(r->comm, 0, r->rank, "second", err);
    if (!second || nccl_job_meet(job, RANKS))
        return -1;
    if (r->rank == 1) {
        nccl_test_device_watched_late_ms = 1000; /* it looks every 100, and is in such a look then */
        clock_sleep_until(instant_add(clock_now(NULL), 300 * NS_PER_MS));
        issue_one_behind(r, second, err);
        (void)error_set(&failure, MUSTER_E_IO, "the test's device failed");
        (r->ops->fail)(r->device, &failure); /* cmocka has a macro of that name */
        (void)r->ops->poll_error(r->device, err);
    } else {
        await_failure(r, err);
    }
    comm_nccl()->destroy(second);
    return 0;
}

static void a_comm_that_is_destroyed_before_the_watch_looks(void **state)
{
    (void)state;
    struct nccl_job job = {.body = fails_and_destroys};
    assert_true(run_failing(&job, "the test's device failed") < 10);
    nccl_test_device_watched_late_ms = 0;
}

/* One rank has voted for a split and then cannot make its part: the others wait in ncclCommSplit by then. */
static int one_cannot_split(struct nccl_rank *r, struct nccl_job *job)
{
    struct muster_error *err = &job->errors[r->rank];
    struct comm *part = comm_nccl()->split(r->comm, 0, r->rank, "part", err);
    comm_nccl()->destroy(part);
    return part ? -1 : 0;
}

static int refuses_then_splits(struct nccl_rank *r, struct nccl_job *job)
{
    if (nccl_job_meet(job, RANKS))
        return -1;
    nccl_test_device_refuses = 1;
    return one_cannot_split(r, job);
}

static void a_split_that_is_given_up_leaves_nothing(void **state)
{
    (void)state;
    struct nccl_job job = {.body = refuses_then_splits};
    assert_true(run_failing(&job, "the test's device refuses an arena") < 10);
    nccl_test_device_refuses = -1;
}

/* A rank that gives up before it votes: nobody waits for its vote for as long as an operation may take. */
static int one_aborts_and_others_split(struct nccl_rank *r, struct nccl_job *job)
{
    if (nccl_job_meet(job, RANKS))
        return -1;
    if (r->rank != 1)
        return one_cannot_split(r, job);
    comm_nccl()->abort(r->comm);
    return r->ops->poll_error(r->device, &job->errors[1]) ? 0 : -1;
}

static void a_vote_is_not_awaited_after_a_failure(void **state)
{
    (void)state;
    struct nccl_job job = {.body = one_aborts_and_others_split, .timeout_ns = 40 * NS_PER_S};
    const struct instant start = clock_now(NULL);
    (void)run_failing(&job, "aborted");
    assert_true(instant_diff_ns(clock_now(NULL), start) < 30 * NS_PER_S);
}

static void *abort_soon(void *context)
{
    struct nccl_rank *r = context;
    clock_sleep_until(instant_add(clock_now(NULL), 150 * NS_PER_MS));
    comm_nccl()->abort(r->comm);
    return NULL;
}

/* The split has made its communicators already, which no comm has yet. */
static int split_and_abort(struct nccl_rank *r, struct nccl_job *job)
{
    pthread_t thread;
    const bool aborts = r->rank == 1;
    if (nccl_job_meet(job, RANKS) || (aborts && pthread_create(&thread, NULL, abort_soon, r)))
        return -1;
    int result = one_cannot_split(r, job);
    return aborts && pthread_join(thread, NULL) ? -1 : result;
}

static void a_split_that_ends_when_it_is_given_up_leaves_nothing(void **state)
{
    (void)state;
    setenv("FAKE_NCCL_SETTLE", "400", 1);
    struct nccl_job job = {.body = split_and_abort};
    assert_true(run_failing(&job, "aborted") < 10);
    unsetenv("FAKE_NCCL_SETTLE");
}

/* Work that is enqueued when a comm fails has copies of the caller's memory in it, which may be gone when it
 * runs. */
static int fail_and_unmap(struct nccl_rank *r, struct nccl_job *job)
{
    const size_t bytes = 1 << 16;
    struct muster_error *err = &job->errors[r->rank];
    float *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED || nccl_job_meet(job, RANKS))
        return -1;
    int failed = comm_nccl()->issue(r->comm, &add, own, own, r->stream, err) || nccl_job_meet(job, RANKS);
    comm_nccl()->abort(r->comm);
    failed = failed || munmap(own, bytes) || nccl_job_meet(job, RANKS);
    (void)nccl_sync(r, r->stream, err); /* the rest of it runs here */
    return failed ? -1 : 0;
}

static void a_hosts_buffer_is_left_alone_after_a_failure(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_SCHEDULE", "late", 1);
    struct nccl_job job = {.body = fail_and_unmap};
    assert_int_equal(nccl_job_run(&job, RANKS), 0);
    unsetenv("FAKE_CUDA_SCHEDULE");
}

/* For two sums of host memory the first is copied when it is issued, the second after the work of the first,
 * for which rank 0 has to wait for the others. */
static int disarm_one_rank(struct nccl_rank *r, struct nccl_job *job)
{
    const struct comm_op one = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 1};
    struct muster_error *err = &job->errors[r->rank];
    float sums[] = {1, 1};
    if (r->rank && nccl_job_meet(job, RANKS))
        return -1;
    for (int i = 0; i < 2; i++) {
        if (comm_nccl()->issue(r->comm, &one, &sums[i], &sums[i], r->stream, err))
            return -1;
        if (r->rank)
            continue;
        struct nccl_comm *comm = nccl_comm_of(r->comm);
        (void)pthread_mutex_lock(&comm->family->lock);
        nccl_stage_disarm(comm);
        (void)pthread_mutex_unlock(&comm->family->lock);
    }
    if ((!r->rank && nccl_job_meet(job, RANKS)) || nccl_sync(r, r->stream, err))
        return -1;
    if (!r->rank)
        return sums[0] == 1 && sums[1] == 1 ? 0 : nccl_complain(r, "disarmed", "its own memory was written");
    if (sums[0] != RANKS)
        return nccl_complain(r, "disarmed", "what was issued before is another sum");
    return isnan(sums[1]) ? 0 : nccl_complain(r, "disarmed", "what was not sent came as a number");
}

static void a_rank_that_fails_sends_what_it_was_given_or_no_number(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_SCHEDULE", "late", 1);
    struct nccl_job job = {.body = disarm_one_rank};
    assert_int_equal(nccl_job_run(&job, RANKS), 0);
    unsetenv("FAKE_CUDA_SCHEDULE");
}

static int one_split_after_another(struct nccl_rank *r, struct nccl_job *job)
{
    struct comm *parts[NEWS_COMMS] = {NULL};
    struct muster_error *err = &job->errors[r->rank];
    int made = 0;
    while (made < NEWS_COMMS && (parts[made] = comm_nccl()->split(r->comm, 0, r->rank, "part", err)))
        made++;
    for (int i = 0; i < made; i++)
        comm_nccl()->destroy(parts[i]);
    return made == NEWS_COMMS - 1 ? 0 : nccl_complain(r, "split", "another number of comms");
}

static void more_comms_than_are_watched_are_refused(void **state)
{
    (void)state;
    struct nccl_job job = {.body = one_split_after_another};
    (void)run_failing(&job, "31 comms were split from test already, and no more can be");
}

/* gpu_nccl_failure [TEST]: all tests, or the named test. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_device_that_hangs_is_reported, no_communicator_is_left),
        cmocka_unit_test_teardown(a_call_that_stays_inside_is_reported, no_communicator_is_left),
        cmocka_unit_test_teardown(the_end_of_a_part_waits_for_peers_within_bounds, no_communicator_is_left),
        cmocka_unit_test_teardown(a_rank_that_does_not_come_is_named, no_communicator_is_left),
        cmocka_unit_test_teardown(an_asynchronous_error_reaches_all, no_communicator_is_left),
        cmocka_unit_test_teardown(another_count_is_an_error_of_both, no_communicator_is_left),
        cmocka_unit_test_teardown(another_tag_is_found_when_ranks_rest, no_communicator_is_left),
        cmocka_unit_test_teardown(an_abort_ends_all, no_communicator_is_left),
        cmocka_unit_test_teardown(leaving_early_is_reported, no_communicator_is_left),
        cmocka_unit_test_teardown(communicators_are_aborted_together, no_communicator_is_left),
        cmocka_unit_test_teardown(a_comm_that_is_destroyed_before_the_watch_looks, no_communicator_is_left),
        cmocka_unit_test_teardown(a_vote_is_not_awaited_after_a_failure, no_communicator_is_left),
        cmocka_unit_test_teardown(a_split_that_is_given_up_leaves_nothing, no_communicator_is_left),
        cmocka_unit_test_teardown(a_split_that_ends_when_it_is_given_up_leaves_nothing,
                                  no_communicator_is_left),
        cmocka_unit_test_teardown(a_hosts_buffer_is_left_alone_after_a_failure, no_communicator_is_left),
        cmocka_unit_test_teardown(a_rank_that_fails_sends_what_it_was_given_or_no_number,
                                  no_communicator_is_left),
        cmocka_unit_test_teardown(more_comms_than_are_watched_are_refused, no_communicator_is_left),
    };
    setenv("FAKE_CUDA_DEVICES", "4", 0); /* one for each rank */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
