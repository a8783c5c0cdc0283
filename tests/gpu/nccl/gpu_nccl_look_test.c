/* gpu_nccl_look_test.c - conclusions of the thread that watches, from a comm's state at a given time and from
 * its peers' notes: each case sets that state under the family's lock. */
#include <stdlib.h>

#include "tests/support/cmocka_all.h"

#include "tests/gpu/nccl/nccl_test_ranks.h"

static const struct comm_op add = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 100};
static const struct comm_op spread = {.kind = COMM_BROADCAST, .dtype = DTYPE_F32, .root = 1, .count = 7};
static const struct comm_op gather = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_F32, .count = 50};
static const struct comm_op to_one = {.kind = COMM_SEND, .dtype = DTYPE_F32, .root = 1, .count = 10};

enum { PID = 4711 };

/* A case: rank 0 has ended two collectives, and has the third of `third` under way, which rank 1 has not
 * issued, and an all_gather and one all_reduce of the comm `part` after that; without `third` it rests. */
struct look_case {
    const struct comm_op *third;
    int (*check)(struct nccl_comm *comm, struct nccl_comm *part, struct instant now);
};
static struct look_case tried;

static int expect(bool holds, const char *what)
{
    if (!holds)
        fprintf(stderr, "not so: %s\n", what);
    return holds ? 0 : -1;
}

static int expect_text(const char *found, const char *wanted)
{
    if (!strstr(found, wanted))
        fprintf(stderr, "'%s' without '%s'\n", found, wanted);
    return strstr(found, wanted) ? 0 : -1;
}

static struct instant after(struct instant now, int64_t ms)
{
    return instant_add(now, ms * NS_PER_MS);
}

static struct nccl_look look_at(struct nccl_comm *comm, struct instant now)
{
    struct nccl_look look;
    nccl_look_at(comm, now, &look);
    return look;
}

/* Until the device has begun with the oldest operation. */
static void await_begin(struct nccl_comm *comm, int slot)
{
    while (cudaEventQuery(comm->slots[slot].begun) != cudaSuccess)
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
}

static int issue_rest(struct nccl_rank *r, struct comm *part, struct muster_error *err)
{
    struct comm_op third = tried.third ? *tried.third : add;
    float *values = r->arena.base;
    if (comm_is_pair(third.kind) && r->rank == 1)
        third = (struct comm_op){.kind = COMM_RECV, .dtype = third.dtype, .root = 0, .count = third.count};
    if (!tried.third)
        return 0;
    return comm_nccl()->issue(r->comm, &third, values, values, r->stream, err) ||
           comm_nccl()->issue(r->comm, &gather, values + 400, values + 600, r->stream, err) ||
           comm_nccl()->issue(part, &add, values + 200, values + 200, r->stream, err);
}

static int check_locked(struct nccl_comm *comm, struct nccl_comm *part)
{
    struct nccl_family *family = comm->family;
    if (tried.third)
        await_begin(comm, 2);
    (void)pthread_mutex_lock(&family->lock);
    (void)nccl_look_advance(comm, NULL);
    comm->watched = part->watched = (struct nccl_watched){0};
    const int failed = tried.check(comm, part, clock_now(NULL));
    (void)pthread_mutex_unlock(&family->lock);
    return failed;
}

static int stand_still(struct nccl_rank *r, struct nccl_job *job)
{
    struct muster_error err = {0};
    float *values = r->arena.base;
    struct comm *part = comm_nccl()->split(r->comm, 0, r->rank, "part", &err);
    int failed = !part || nccl_do(r, r->comm, &add, values, values, &err) ||
                 nccl_do(r, r->comm, &spread, values, values, &err);
    if (!failed && r->rank == 0)
        failed = issue_rest(r, part, &err) || check_locked(nccl_comm_of(r->comm), nccl_comm_of(part));
    failed |= nccl_job_meet(job, 2);
    if (!failed && r->rank == 1)
        failed = issue_rest(r, part, &err);
    failed |= nccl_sync(r, r->stream, &err);
    comm_nccl()->destroy(part);
    return failed ? nccl_complain(r, "still", err.text) : 0;
}

static void try_case(const struct comm_op *third,
                     int (*check)(struct nccl_comm *, struct nccl_comm *, struct instant))
{
    struct nccl_job job = {.body = stand_still};
    tried = (struct look_case){third, check};
    assert_int_equal(nccl_job_run(&job, 2), 0);
}

/* ---- notes ---- */

static int check_notes(struct nccl_comm *comm, struct nccl_comm *part, struct instant now)
{
    (void)part;
    if (expect(look_at(comm, now).note.kind == NOTE_KIND_COUNT, "nothing at first") ||
        expect(look_at(comm, after(now, 290)).note.kind == NOTE_KIND_COUNT, "nothing within 0.3 s"))
        return -1;
    const struct nccl_note post = look_at(comm, after(now, 310)).note;
    if (expect(post.kind == NOTE_POST && post.at == 3 && post.issued == 4, "a post of #3") ||
        expect(post.op.kind == COMM_ALL_REDUCE && post.op.count == 100, "its operation") ||
        expect(post.chain == comm->chains[2] && post.chain != comm->chain && post.comm == comm->number,
               "its hash and comm"))
        return -1;
    const struct nccl_note ask = look_at(comm, after(now, 400)).note;
    if (expect(ask.kind == NOTE_ASK && ask.issued == 3, "a question about #3, after the post") ||
        expect(look_at(comm, after(now, 890)).note.kind == NOTE_KIND_COUNT, "none within 0.5 s") ||
        expect(look_at(comm, after(now, 910)).note.kind == NOTE_ASK, "the next question"))
        return -1;
    comm->watched.posted_issued = 3;
    if (expect(look_at(comm, after(now, 920)).note.kind == NOTE_POST, "a post, since one more is issued"))
        return -1;
    comm->watched.posted_finished = 1;
    return expect(look_at(comm, after(now, 930)).note.kind == NOTE_POST, "a post, since one more has ended");
}

static void a_wait_is_posted_once_and_asked_about(void **state)
{
    (void)state;
    try_case(&add, check_notes);
}

static int check_short(struct nccl_comm *comm, struct nccl_comm *part, struct instant now)
{
    (void)part;
    comm->comm.timeout_ns = 800 * NS_PER_MS;
    (void)look_at(comm, now);
    const int failed =
        expect(look_at(comm, after(now, 90)).note.kind == NOTE_KIND_COUNT, "nothing within an eighth") ||
        expect(look_at(comm, after(now, 110)).note.kind == NOTE_POST, "a post after an eighth");
    comm->comm.timeout_ns = 60 * NS_PER_S;
    return failed;
}

static void a_short_time_out_is_posted_sooner(void **state)
{
    (void)state;
    try_case(&add, check_short);
}

/* A comm at rest posts the collective that it has issued last, and asks nothing. */
static int check_rest(struct nccl_comm *comm, struct nccl_comm *part, struct instant now)
{
    (void)part;
    (void)look_at(comm, now);
    const struct nccl_note post = look_at(comm, after(now, 400)).note;
    return expect(post.kind == NOTE_POST && post.at == 2, "a post after #2") ||
           expect(comm_fits(&post.op, &spread), "the last collective") ||
           expect(look_at(comm, after(now, 2000)).note.kind == NOTE_KIND_COUNT, "no question");
}

static void a_rest_is_posted_with_the_last_collective(void **state)
{
    (void)state;
    try_case(NULL, check_rest);
}

/* A transfer has no number among the collectives, and the other ranks know nothing of it. */
static int check_transfer(struct nccl_comm *comm, struct nccl_comm *part, struct instant now)
{
    (void)part;
    (void)look_at(comm, now);
    const struct nccl_note post = look_at(comm, after(now, 400)).note;
    return expect(post.kind == NOTE_POST && post.at == 3, "a post after #3") ||
           expect(comm_fits(&post.op, &gather), "the last collective, not the transfer") ||
           expect(look_at(comm, after(now, 2000)).note.kind == NOTE_KIND_COUNT, "no question");
}

static void a_transfer_is_not_asked_about(void **state)
{
    (void)state;
    try_case(&to_one, check_transfer);
}

/* ---- late operations ---- */

static int check_late(struct nccl_comm *comm, struct nccl_comm *part, struct instant now)
{
    (void)part;
    comm->missing[0] = 1, comm->missing_count = 1, comm->missing_for = 2;
    (void)look_at(comm, now);
    (void)look_at(comm, after(now, 400));
    if (expect(!look_at(comm, after(now, 59900)).late, "not late within 60 s"))
        return -1;
    struct nccl_look look = look_at(comm, after(now, 60100));
    if (expect(look.late, "late after 60 s") ||
        expect_text(look.error.text,
                    "all_reduce #3 (all_reduce of 100 f32 by sum) of comm test waited 60.0 s "
                    "on rank 0; every rank has issued it"))
        return -1;
    comm->missing_for = 3;
    look = look_at(comm, after(now, 60200));
    comm->missing_count = 0;
    return expect_text(look.error.text, " on rank 0 for rank 1");
}

static void missing_ranks_are_those_of_the_late_operation(void **state)
{
    (void)state;
    try_case(&add, check_late);
}

static int check_inside(struct nccl_comm *comm, struct nccl_comm *part, struct instant now)
{
    (void)part;
    comm->inside = (struct nccl_inside){.what = "all_reduce", .since = now, .limit_ns = NS_PER_S};
    struct nccl_look look = look_at(comm, after(now, 990));
    int failed = expect(!look.late && !look.given_up, "in time");
    look = look_at(comm, after(now, 1010));
    failed |= expect(look.late && !look.given_up, "late, and a failure") ||
              expect_text(look.error.text,
                          "all_reduce #5 of comm test: NCCL's call did not come back for 1.0 s on rank 0");
    comm->inside.what = "ending"; /* while an operation is under way */
    comm->inside.ends = true;
    look = look_at(comm, after(now, 990));
    failed |= expect(!look.late && !look.given_up, "an end in time");
    look = look_at(comm, after(now, 1010));
    comm->inside.what = NULL;
    failed |= expect(look.late && !look.given_up, "a late end that loses work is a failure");
    return failed || expect_text(look.error.text, "ending comm test: all_reduce #3 (all_reduce of 100 f32 by "
                                                  "sum) of comm test is under way on rank 0");
}

static void a_late_call_is_a_failure(void **state)
{
    (void)state;
    try_case(&add, check_inside);
}

static int check_end(struct nccl_comm *comm, struct nccl_comm *part, struct instant now)
{
    (void)part;
    comm->inside = (struct nccl_inside){.what = "ending", .since = now, .limit_ns = NS_PER_S, .ends = true};
    struct nccl_look look = look_at(comm, after(now, 990));
    int failed = expect(!look.late && !look.given_up, "an end in time");
    look = look_at(comm, after(now, 1010));
    comm->inside.what = NULL;
    failed |= expect(look.given_up && !look.late, "an end that is given up");
    return failed ||
           expect_text(look.error.text, "ending comm test: NCCL's call did not come back for 1.0 s");
}

static void a_late_end_of_a_communicator_is_no_failure(void **state)
{
    (void)state;
    try_case(NULL, check_end);
}

static int check_left(struct nccl_comm *comm, struct nccl_comm *part, struct instant now)
{
    (void)part;
    comm->left.rank = 1, comm->left.pid = PID, comm->left.at = 3;
    if (expect(!look_at(comm, now).error.code, "it left after #3, for which we wait"))
        return -1;
    comm->left.at = 2;
    const struct nccl_look look = look_at(comm, now);
    comm->left.pid = 0;
    return expect_text(look.error.text, "rank 1 (pid 4711) had left the comm before all_reduce #3 (");
}

static void a_rank_may_leave_after_the_operation_itself(void **state)
{
    (void)state;
    try_case(&add, check_left);
}

/* ---- NCCL's own error ---- */

static int asked;
static ncclResult_t is_remote_error(ncclComm_t comm, ncclResult_t *result)
{
    (void)comm;
    asked++;
    *result = ncclRemoteError;
    return ncclSuccess;
}

static int check_errors(struct nccl_comm *comm, struct nccl_comm *part, struct instant now)
{
    const struct nccl_calls *calls = comm->family->calls;
    struct nccl_calls failing = *calls;
    (void)part;
    failing.async_error = is_remote_error;
    comm->family->calls = &failing;
    asked = 0;
    comm->inside = (struct nccl_inside){.what = "all_reduce", .since = now, .limit_ns = NS_PER_S};
    int failed = expect(!look_at(comm, now).error.code && !asked, "no question while a call is inside");
    comm->inside.what = NULL;
    const struct nccl_look look = look_at(comm, now);
    comm->family->calls = calls;
    return failed || expect(look.result == ncclRemoteError && !look.late, "NCCL's result") ||
           expect_text(look.error.text, tried.third ? "all_reduce #3 (all_reduce of 100 f32 by sum) of comm "
                                                      "test on rank 0: NCCL: "
                                                    : "test on rank 0: NCCL: ") ||
           expect(tried.third || !strchr(look.error.text, '#'), "no operation is blamed at rest");
}

static void an_error_is_blamed_on_what_is_under_way(void **state)
{
    (void)state;
    try_case(&add, check_errors);
    try_case(NULL, check_errors);
}

/* NCCL may report the error of an operation before its call has come back. */
static int check_issuing(struct nccl_comm *comm, struct nccl_comm *part, struct instant now)
{
    const struct nccl_calls *calls = comm->family->calls;
    struct nccl_calls failing = *calls;
    (void)part;
    failing.async_error = is_remote_error;
    comm->family->calls = &failing;
    comm->issuing = true;
    comm->comm.calls[2] = (struct comm_call){.comm = &comm->comm, .op = add};
    const struct nccl_look look = look_at(comm, now);
    comm->family->calls = calls;
    comm->issuing = false;
    return expect_text(look.error.text,
                       "all_reduce #3 (all_reduce of 100 f32 by sum) of comm test on rank 0");
}

static void an_error_is_blamed_on_what_is_being_issued(void **state)
{
    (void)state;
    try_case(NULL, check_issuing);
}

/* ---- texts ---- */

static int check_waiting(struct nccl_comm *comm, struct nccl_comm *part, struct instant now)
{
    char text[COMM_CALL_TEXT];
    comm->watched.timing = part->watched.timing = true;
    comm->watched.begun = after(now, 1);
    part->watched.begun = now;
    if (expect_text(nccl_look_waiting_text(comm->family, text), "all_reduce #1 "))
        return -1;
    part->watched.begun = after(now, 2);
    if (expect_text(nccl_look_waiting_text(comm->family, text), "all_reduce #3 "))
        return -1;
    comm->watched.timing = false;
    if (expect_text(nccl_look_waiting_text(comm->family, text), "all_reduce #1 "))
        return -1;
    part->watched.timing = false;
    return expect(nccl_look_waiting_text(comm->family, text) != NULL, "issued, and not seen to begin");
}

static void the_comm_that_waits_longest_is_named(void **state)
{
    (void)state;
    try_case(&add, check_waiting);
}

static int check_last(struct nccl_comm *comm, struct nccl_comm *part, struct instant now)
{
    char text[COMM_CALL_TEXT];
    (void)part, (void)now;
    return expect(!nccl_look_waiting_text(comm->family, text), "nothing waits") ||
           expect(!strcmp(nccl_look_last_text(comm->family, text),
                          ", after broadcast #2 (broadcast of 7 f32 from rank 1)"),
                  text);
}

static void the_last_operation_is_named(void **state)
{
    (void)state;
    try_case(NULL, check_last);
}

/* The time of an operation cannot be had: it has ended, and the thread's next launch is not blamed. */
static int check_lost_time(struct nccl_comm *comm, struct nccl_comm *part, struct instant now)
{
    (void)part, (void)now;
    cudaEvent_t untimed = NULL, *begun = &comm->slots[1].begun, kept = *begun;
    if (cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming) != cudaSuccess)
        return -1;
    *begun = untimed;
    const int64_t busy = atomic_load(&comm->comm.busy_ns);
    atomic_store(&comm->comm.finished, 1); /* as before it was seen to end */
    (void)cudaGetLastError();
    const int failed = nccl_look_advance(comm, NULL) ||
                       expect(cudaGetLastError() == cudaSuccess, "no error is left to the thread") ||
                       expect(atomic_load(&comm->comm.finished) == 2, "the operation has ended") ||
                       expect(atomic_load(&comm->comm.busy_ns) == busy, "no time is counted");
    *begun = kept;
    (void)cudaEventDestroy(untimed);
    return failed;
}

static void a_lost_time_is_no_error_of_the_thread(void **state)
{
    (void)state;
    try_case(NULL, check_lost_time);
}

/* gpu_nccl_look [TEST]: all tests, or the named test. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_wait_is_posted_once_and_asked_about, no_communicator_is_left),
        cmocka_unit_test_teardown(a_short_time_out_is_posted_sooner, no_communicator_is_left),
        cmocka_unit_test_teardown(a_rest_is_posted_with_the_last_collective, no_communicator_is_left),
        cmocka_unit_test_teardown(a_transfer_is_not_asked_about, no_communicator_is_left),
        cmocka_unit_test_teardown(missing_ranks_are_those_of_the_late_operation, no_communicator_is_left),
        cmocka_unit_test_teardown(a_late_call_is_a_failure, no_communicator_is_left),
        cmocka_unit_test_teardown(a_late_end_of_a_communicator_is_no_failure, no_communicator_is_left),
        cmocka_unit_test_teardown(a_rank_may_leave_after_the_operation_itself, no_communicator_is_left),
        cmocka_unit_test_teardown(an_error_is_blamed_on_what_is_under_way, no_communicator_is_left),
        cmocka_unit_test_teardown(an_error_is_blamed_on_what_is_being_issued, no_communicator_is_left),
        cmocka_unit_test_teardown(the_comm_that_waits_longest_is_named, no_communicator_is_left),
        cmocka_unit_test_teardown(the_last_operation_is_named, no_communicator_is_left),
        cmocka_unit_test_teardown(a_lost_time_is_no_error_of_the_thread, no_communicator_is_left),
    };
    setenv("FAKE_CUDA_DEVICES", "2", 0); /* one for each rank */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
