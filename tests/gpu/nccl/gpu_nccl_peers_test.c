/* gpu_nccl_peers_test.c - effects of the peers' notes on a family's comms, with notes that a rank makes up;
 * which error stands where a peer's report comes next to an error of NCCL; how a family's parts end. */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/cmocka_all.h"

#include "tests/gpu/nccl/nccl_test_ranks.h"

enum { RANKS = 3 };
static const struct comm_op add = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 100};

static int expect(const struct nccl_rank *r, bool holds, const char *what)
{
    return holds ? 0 : nccl_complain(r, "not so", what);
}

static void run(int (*body)(struct nccl_rank *, struct nccl_job *))
{
    struct nccl_job job = {.body = body, .timeout_ns = 20 * NS_PER_S};
    assert_int_equal(nccl_job_run(&job, RANKS), 0);
}

/* Another order of the ranks than the family's: its rank 0 is the last one. */
static struct nccl_comm *reversed(struct nccl_rank *r, struct muster_error *err)
{
    struct comm *part = comm_nccl()->split(r->comm, 0, RANKS - r->rank, "reversed", err);
    return part ? nccl_comm_of(part) : NULL;
}

static struct nccl_note note_of(const struct nccl_comm *comm, enum nccl_note_kind kind, uint64_t issued)
{
    return (struct nccl_note){.kind = kind,
                              .comm = comm->number,
                              .color = comm->color,
                              .issued = issued,
                              .at = issued}; /* which no rank has come to */
}

static void tell(struct nccl_comm *comm, struct nccl_note note)
{
    nccl_peers_send(comm->family, &note);
}

/* Until the thread that watches has taken the note: the comm's state under the lock. */
static bool await(struct nccl_comm *comm, bool (*come)(const struct nccl_comm *comm))
{
    const struct instant limit = instant_add(clock_now(NULL), 20 * NS_PER_S);
    for (bool there = false; !instant_reached(clock_now(NULL), limit);) {
        (void)pthread_mutex_lock(&comm->family->lock);
        there = come(comm);
        (void)pthread_mutex_unlock(&comm->family->lock);
        if (there)
            return true;
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
    }
    return false;
}

/* Until the family has failed; the test's time-out is its limit. */
static void await_failure(struct nccl_family *family, struct muster_error *err)
{
    while (!nccl_family_check(family, err))
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
}

/* ---- a rank that leaves ---- */

static bool has_been_left(const struct nccl_comm *comm)
{
    return comm->left.pid != 0;
}

/* Rank 1 says more than once that it has left: the fewest collectives count, of that comm and color. */
static int leaves_again(struct nccl_rank *r, struct nccl_job *job)
{
    struct muster_error err = {0};
    struct nccl_comm *first = nccl_comm_of(r->comm), *part = reversed(r, &err);
    if (!part)
        return nccl_complain(r, "part", err.text);
    int failed = nccl_job_meet(job, RANKS);
    if (r->rank == 1) {
        struct nccl_note of_another_color = note_of(first, NOTE_LEFT, 400);
        of_another_color.color = 5;
        tell(first, note_of(first, NOTE_LEFT, 700));
        tell(first, note_of(first, NOTE_LEFT, 600));
        tell(first, note_of(first, NOTE_LEFT, 800));
        tell(first, of_another_color);
        tell(part, note_of(part, NOTE_LEFT, 900));
    } else {
        failed |= !await(part, has_been_left) || expect(r, part->left.at == 900, "the part's own") ||
                  expect(r, first->left.at == 600, "the fewest collectives, of this comm") ||
                  expect(r, first->left.rank == 1 && first->left.pid == getpid(), "who has left");
    }
    failed |= nccl_job_meet(job, RANKS);
    comm_nccl()->destroy(&part->comm);
    return failed ? -1 : 0;
}

static void the_first_leaving_of_a_comm_counts(void **state)
{
    (void)state;
    run(leaves_again);
}

/* ---- answers ---- */

static bool has_the_answer(const struct nccl_comm *comm)
{
    return comm->missing_for == 100 && comm->missing_count == 1;
}

/* Again and again, as a rank does: rank 0 names more ranks until it has read their notes. */
static bool ask_until_answered(struct nccl_comm *comm)
{
    const struct instant limit = instant_add(clock_now(NULL), 20 * NS_PER_S);
    for (bool there = false; !instant_reached(clock_now(NULL), limit);) {
        tell(comm, note_of(comm, NOTE_ASK, 100));
        clock_sleep_until(instant_add(clock_now(NULL), 20 * NS_PER_MS));
        (void)pthread_mutex_lock(&comm->family->lock);
        there = has_the_answer(comm);
        (void)pthread_mutex_unlock(&comm->family->lock);
        if (there)
            return true;
    }
    return false;
}

/* Rank 2 of the family, the part's rank 0, has not issued collective 100 of the part. */
static int asks(struct nccl_rank *r, struct nccl_job *job)
{
    struct muster_error err = {0};
    struct nccl_comm *first = nccl_comm_of(r->comm), *part = reversed(r, &err);
    if (!part)
        return nccl_complain(r, "part", err.text);
    tell(part, note_of(part, NOTE_POST, r->rank == 2 ? 99 : 100));
    int failed = nccl_job_meet(job, RANKS);
    if (r->rank < 2)
        failed |= !ask_until_answered(part) ||
                  expect(r, part->missing[0] == 0, "the part's rank 0 is late") ||
                  expect(r, !first->missing_for && !first->missing_count, "no answer about another comm");
    failed |= nccl_job_meet(job, RANKS);
    comm_nccl()->destroy(&part->comm);
    return failed ? -1 : 0;
}

static void an_answer_names_ranks_of_its_comm(void **state)
{
    (void)state;
    run(asks);
}

/* Of the operation that waits: its late ranks, not those of the one before. A transfer waits for its peer. */
static int asks_for_status(struct nccl_rank *r, struct nccl_job *job)
{
    static const struct comm_op to_two = {.kind = COMM_SEND, .dtype = DTYPE_F32, .root = 2, .count = 4},
                                from_none = {.kind = COMM_RECV, .dtype = DTYPE_F32, .root = 0, .count = 4};
    struct muster_error err = {0};
    struct nccl_comm *comm = nccl_comm_of(r->comm);
    struct comm_status status;
    float *values = r->arena.base;
    int failed = 0;
    if (r->rank == 0) {
        failed |= comm_nccl()->issue(r->comm, &add, values, values, r->stream, &err);
        (void)pthread_mutex_lock(&comm->family->lock);
        comm->missing[0] = 1, comm->missing_count = 1, comm->missing_for = 7;
        (void)pthread_mutex_unlock(&comm->family->lock);
        comm_nccl()->status(r->comm, &status);
        failed |= expect(r, status.missing_count == 0, "another operation's ranks");
    }
    failed |= nccl_job_meet(job, RANKS);
    if (r->rank)
        failed |= comm_nccl()->issue(r->comm, &add, values, values, r->stream, &err);
    failed |= nccl_sync(r, r->stream, &err) || nccl_job_meet(job, RANKS);
    if (r->rank == 0) {
        failed |= comm_nccl()->issue(r->comm, &to_two, values, NULL, r->stream, &err);
        comm_nccl()->status(r->comm, &status);
        failed |= expect(r, status.missing_count == 1 && status.missing[0] == 2, "the peer of a transfer");
    }
    failed |= nccl_job_meet(job, RANKS);
    if (r->rank == 2)
        failed |= comm_nccl()->issue(r->comm, &from_none, NULL, values, r->stream, &err);
    failed |= nccl_sync(r, r->stream, &err);
    return failed ? nccl_complain(r, "status", err.text) : 0;
}

static void a_status_names_the_ranks_of_its_operation(void **state)
{
    (void)state;
    run(asks_for_status);
}

/* ---- whose error stands ---- */

/* What a peer's end may have caused is not the reason before the peer's report had time to come; other errors
 * stand at once. A report that has come is the reason of both. */
static int64_t asked_for_a_reason(struct nccl_rank *r, ncclResult_t result, struct muster_error *err)
{
    const struct instant begun = clock_now(NULL);
    (void)error_set(err, MUSTER_E_IO, "its own");
    if (nccl_peers_reason(nccl_comm_of(r->comm)->family, result, err) != -1)
        return -1;
    return instant_diff_ns(clock_now(NULL), begun);
}

static int reasons(struct nccl_rank *r, struct nccl_job *job)
{
    static const ncclResult_t caused[] = {ncclRemoteError, ncclSystemError, ncclInternalError};
    struct nccl_family *family = nccl_comm_of(r->comm)->family;
    struct muster_error err = {0};
    int failed = 0;
    for (int i = 0; i < 3; i++)
        failed |=
            expect(r, asked_for_a_reason(r, caused[i], &err) >= NCCL_REPORT_NS, "a moment for reports") ||
            expect(r, !strcmp(err.text, "its own"), err.text);
    int64_t least = NCCL_REPORT_NS;
    for (int i = 0; i < 20; i++) {
        const int64_t took = asked_for_a_reason(r, ncclInvalidArgument, &err);
        least = took < least ? took : least;
    }
    failed |=
        expect(r, least < NCCL_REPORT_NS / 2, "no wait for what no peer causes") || nccl_job_meet(job, RANKS);
    if (r->rank == 1) {
        (void)error_set(&err, MUSTER_E_IO, "a disk is full");
        nccl_family_fail(family, &err);
    }
    await_failure(family, NULL);
    for (int i = 0; i < 3; i++)
        failed |= asked_for_a_reason(r, caused[i], &err) < 0 ||
                  expect(r, !strcmp(err.text, "a disk is full"), err.text);
    return failed ? -1 : 0;
}

static void a_peers_report_comes_before_what_it_causes(void **state)
{
    (void)state;
    run(reasons);
}

/* NCCL's error on rank 0 comes first, while rank 1's report, which says why, is on its way. */
static _Atomic(int) error_is_seen, report_is_sent;

static ncclResult_t fails_since_a_peer_has(ncclComm_t comm, ncclResult_t *result)
{
    (void)comm;
    error_is_seen = 1;
    while (!report_is_sent)
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
    *result = ncclRemoteError;
    return ncclSuccess;
}

static int waits_for_the_cause(struct nccl_rank *r, struct nccl_job *job)
{
    struct nccl_family *family = nccl_comm_of(r->comm)->family;
    struct nccl_note note = {.kind = NOTE_FAILURE, .comm = -1};
    struct nccl_calls failing = *family->calls;
    struct muster_error err = {0};
    failing.async_error = fails_since_a_peer_has;
    if (nccl_job_meet(job, RANKS))
        return -1;
    if (r->rank == 0) {
        const struct nccl_calls *calls = family->calls;
        (void)pthread_mutex_lock(&family->lock);
        family->calls = &failing;
        (void)pthread_mutex_unlock(&family->lock);
        await_failure(family, &err);
        (void)pthread_mutex_lock(&family->lock);
        family->calls = calls;
        (void)pthread_mutex_unlock(&family->lock);
        return expect(r, !strcmp(err.text, "a disk is full"), err.text);
    }
    while (r->rank == 1 && !error_is_seen)
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
    if (r->rank == 1) {
        (void)error_set(&note.error, MUSTER_E_IO, "a disk is full");
        nccl_peers_send(family, &note);
        clock_sleep_until(instant_add(clock_now(NULL), 20 * NS_PER_MS));
        report_is_sent = 1;
    }
    return 0;
}

static void an_error_waits_for_its_cause(void **state)
{
    (void)state;
    error_is_seen = report_is_sent = 0;
    run(waits_for_the_cause);
}

static int fails_twice(struct nccl_rank *r, struct nccl_job *job)
{
    struct nccl_family *family = nccl_comm_of(r->comm)->family;
    struct muster_error err = {0};
    if (nccl_job_meet(job, RANKS))
        return -1;
    if (r->rank == 1) {
        for (int i = 0; i < 2; i++) {
            (void)error_set(&err, MUSTER_E_IO, i ? "the second" : "the first");
            nccl_family_fail(family, &err);
        }
    }
    await_failure(family, &err);
    return expect(r, !strcmp(err.text, "the first"), err.text);
}

static void the_first_failure_stands(void **state)
{
    (void)state;
    run(fails_twice);
}

/* The device has failed before: that is the reason of what NCCL says after it, on every rank. */
static int device_fails_first(struct nccl_rank *r, struct nccl_job *job)
{
    struct nccl_family *family = nccl_comm_of(r->comm)->family;
    struct muster_error err = {0};
    if (nccl_job_meet(job, RANKS))
        return -1;
    if (r->rank == 1) {
        struct muster_error later = {0};
        (void)error_set(&err, MUSTER_E_IO, "the device's own");
        (void)error_set(&later, MUSTER_E_IO, "what came of it");
        (r->ops->fail)(r->device, &err); /* cmocka has a macro of that name */
        nccl_family_fail(family, &later);
    }
    await_failure(family, &err);
    return expect(r, strstr(err.text, "the device's own") != NULL, err.text);
}

static void the_devices_failure_is_the_reason(void **state)
{
    (void)state;
    run(device_fails_first);
}

/* ---- the end ---- */

/* A rank whose device has failed and that destroys its comms at once: its failure is told before that it
 * left. */
static int fails_and_leaves(struct nccl_rank *r, struct nccl_job *job)
{
    struct nccl_family *family = nccl_comm_of(r->comm)->family;
    struct muster_error err = {0};
    if (nccl_job_meet(job, RANKS))
        return -1;
    if (r->rank == 1) {
        (void)error_set(&err, MUSTER_E_IO, "the device failed");
        (r->ops->fail)(r->device, &err);
        nccl_peers_leave(family, nccl_comm_of(r->comm));
        nccl_peers_leave(family, NULL);
        return 0;
    }
    (void)comm_nccl()->issue(r->comm, &add, r->arena.base, r->arena.base, r->stream, &err);
    await_failure(family, &err);
    return expect(r, strstr(err.text, "the device failed") != NULL, err.text);
}

static void a_failure_is_told_before_the_leaving(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        run(fails_and_leaves);
}

/* It calls nothing more: the thread that watches finds it, and tells. */
static int device_fails(struct nccl_rank *r, struct nccl_job *job)
{
    struct nccl_family *family = nccl_comm_of(r->comm)->family;
    struct muster_error err = {0};
    if (nccl_job_meet(job, RANKS))
        return -1;
    if (r->rank == 1) {
        (void)error_set(&err, MUSTER_E_IO, "the device failed");
        (r->ops->fail)(r->device, &err);
    }
    await_failure(family, &err);
    return expect(r,
                  !strcmp(err.text, r->rank == 1 ? "the device failed" : "rank 1 stopped: the device failed"),
                  err.text);
}

static void a_failure_is_told_without_a_call(void **state)
{
    (void)state;
    run(device_fails);
}

/* A rank that ends much sooner, and waits for the ends of the others in vain, is no failure of theirs. */
static int ends_sooner(struct nccl_rank *r, struct nccl_job *job)
{
    struct nccl_family *family = nccl_comm_of(r->comm)->family;
    struct muster_error err = {0};
    (void)pthread_mutex_lock(&family->lock);
    family->end_ns = 300 * NS_PER_MS;
    (void)pthread_mutex_unlock(&family->lock);
    if (nccl_do(r, r->comm, &add, r->arena.base, r->arena.base, &err) || nccl_job_meet(job, RANKS))
        return nccl_complain(r, "sum", err.text);
    if (r->rank == 1)
        return 0;
    clock_sleep_until(instant_add(clock_now(NULL), 1500 * NS_PER_MS));
    return expect(r, !nccl_family_check(family, &err), err.text);
}

static void a_rank_may_end_sooner(void **state)
{
    (void)state;
    run(ends_sooner);
}

/* A rank whose operation is late tells the others before it asks NCCL's service, which may not answer. */
static int late_on_one(struct nccl_rank *r, struct nccl_job *job)
{
    struct nccl_family *family = nccl_comm_of(r->comm)->family;
    struct muster_error err = {0};
    (void)pthread_mutex_lock(&family->lock);
    r->comm->timeout_ns = r->rank == 0 ? NS_PER_S : 60 * NS_PER_S;
    (void)pthread_mutex_unlock(&family->lock);
    if (nccl_job_meet(job, RANKS))
        return -1;
    const struct instant begun = clock_now(NULL);
    if (r->rank < 2)
        (void)comm_nccl()->issue(r->comm, &add, r->arena.base, r->arena.base, r->stream, &err);
    await_failure(family, &err);
    const int64_t took = instant_diff_ns(clock_now(NULL), begun);
    return expect(r, took < 3 * NS_PER_S, "the others hear of it before the service's answer") ||
                   expect(r, strstr(err.text, " for rank 2") != NULL, err.text)
               ? -1
               : 0;
}

static void a_late_operation_is_told_before_the_service_is_asked(void **state)
{
    (void)state;
    char text[32];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(silent, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(silent, 8), 0); /* takes calls, and answers none */
    assert_int_equal(getsockname(silent, (struct sockaddr *)&address, &size), 0);
    (void)snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(address.sin_port));
    setenv("NCCL_RAS_ADDR", text, 1);
    run(late_on_one);
    unsetenv("NCCL_RAS_ADDR");
    (void)close(silent);
}

/* gpu_nccl_peers [TEST]: all tests, or the named test. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_first_leaving_of_a_comm_counts, no_communicator_is_left),
        cmocka_unit_test_teardown(an_answer_names_ranks_of_its_comm, no_communicator_is_left),
        cmocka_unit_test_teardown(a_status_names_the_ranks_of_its_operation, no_communicator_is_left),
        cmocka_unit_test_teardown(a_peers_report_comes_before_what_it_causes, no_communicator_is_left),
        cmocka_unit_test_teardown(an_error_waits_for_its_cause, no_communicator_is_left),
        cmocka_unit_test_teardown(the_first_failure_stands, no_communicator_is_left),
        cmocka_unit_test_teardown(the_devices_failure_is_the_reason, no_communicator_is_left),
        cmocka_unit_test_teardown(a_failure_is_told_before_the_leaving, no_communicator_is_left),
        cmocka_unit_test_teardown(a_failure_is_told_without_a_call, no_communicator_is_left),
        cmocka_unit_test_teardown(a_rank_may_end_sooner, no_communicator_is_left),
        cmocka_unit_test_teardown(a_late_operation_is_told_before_the_service_is_asked,
                                  no_communicator_is_left),
    };
    setenv("FAKE_CUDA_DEVICES", "4", 0); /* one for each rank */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
