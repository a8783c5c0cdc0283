/* gpu_nccl_end_test.c - the end of a family's communicators, ranks as threads: work that is still under way,
 * aborts that NCCL refuses, handles that are no more, parts of parts. Each communicator ends once. */
#include "tests/support/cmocka_all.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/cudart/fake_cudart.h"
#include "tests/gpu/nccl/nccl_test_ranks.h"

enum { RANKS = 2 };
static const struct comm_op add = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 100};

static void run(int (*body)(struct nccl_rank *, struct nccl_job *), uint64_t seed)
{
    struct nccl_job job = {.body = body, .seed = seed};
    assert_int_equal(nccl_job_run(&job, RANKS), 0);
}

static struct nccl_family *end_within(struct nccl_rank *r, int64_t ns)
{
    struct nccl_family *family = nccl_comm_of(r->comm)->family;
    (void)pthread_mutex_lock(&family->lock);
    family->end_ns = ns;
    (void)pthread_mutex_unlock(&family->lock);
    return family;
}

static uint64_t aborts(void)
{
    return fake_calls("ncclCommAbort");
}

/* ---- work under way ---- */

/* A part is destroyed while its operation waits on the device after one that never ends. Without the wait of
 * the order of the schedule they are on one stream. */
static int ends_with_work(struct nccl_rank *r, struct nccl_job *job)
{
    struct muster_error err = {0};
    struct nccl_family *family = end_within(r, NS_PER_S);
    struct comm *part = comm_nccl()->split(r->comm, 0, r->rank, "part", &err);
    float *values = r->arena.base;
    if (!part || comm_nccl()->issue(r->comm, &add, values, values, r->stream, &err) ||
        comm_nccl()->issue(part, &add, values + 200, values + 200, r->stream, &err) ||
        nccl_job_meet(job, RANKS))
        return nccl_complain(r, "before the end", err.text);
    const struct instant begun = clock_now(NULL);
    comm_nccl()->destroy(part);
    if (instant_diff_ns(clock_now(NULL), begun) > 10 * NS_PER_S)
        return nccl_complain(r, "the end", "took too long");
    if (!nccl_family_check(family, &err) || err.code != MUSTER_E_TIMEOUT)
        return nccl_complain(r, "the end", "lost work, and is no failure");
    if (!strstr(err.text, "ending comm test/1-part.0: "))
        return nccl_complain(r, "the end does not name the comm", err.text);
    return job->seed ||
                   strstr(err.text, "all_reduce #1 (all_reduce of 100 f32 by sum) of comm test/1-part.0 is "
                                    "under way on rank ")
               ? 0
               : nccl_complain(r, "the end does not name the work", err.text);
}

static void work_that_never_ends_is_an_error_of_the_end(void **state)
{
    (void)state;
    setenv("FAKE_NCCL_HANG", "1:1", 1);
    for (uint64_t free_order = 0; free_order < 2; free_order++) {
        setenv("MUSTER_NCCL_ORDER", free_order ? "free" : "schedule", 1);
        run(ends_with_work, free_order);
    }
    unsetenv("MUSTER_NCCL_ORDER");
    unsetenv("FAKE_NCCL_HANG");
}

/* ---- aborts ---- */

static int fails_in_the_second(struct nccl_rank *r, struct nccl_job *job)
{
    struct muster_error *err = &job->errors[r->rank];
    struct comm *part = comm_nccl()->split(r->comm, 0, r->rank, "part", err);
    for (int i = 0; i < 3 && part && !err->code; i++)
        (void)nccl_do(r, i ? part : r->comm, &add, r->arena.base, r->arena.base, err);
    comm_nccl()->destroy(part);
    return strstr(err->text, "all_reduce #1 (all_reduce of 100 f32 by sum) of comm test/1-part.0 on rank 1: "
                             "NCCL: remote process exited")
               ? 0
               : nccl_complain(r, "not the first cause", err->text);
}

/* The refused one is that of the base, of a part, and of the last part. */
static void an_abort_that_is_refused_is_tried_once_more(void **state)
{
    (void)state;
    setenv("FAKE_NCCL_ASYNC", "1:2", 1);
    for (int i = 0; i < 3; i++) {
        char refused[32];
        (void)snprintf(refused, sizeof refused, "ncclCommAbort:%d", (int)aborts() + 1 + i);
        setenv("FAKE_CUDA_FAIL", refused, 1);
        const uint64_t before = aborts();
        run(fails_in_the_second, 0);
        assert_int_equal(aborts() - before, 3 * RANKS + 1); /* the base, the first comm and the part */
        assert_int_equal(nccl_test_left(), 0);
    }
    unsetenv("FAKE_CUDA_FAIL");
    unsetenv("FAKE_NCCL_ASYNC");
}

/* In a process of its own, which takes what NCCL keeps with it. */
static int fails_without_an_abort(struct nccl_rank *r, struct nccl_job *job)
{
    struct muster_error err = {0};
    struct nccl_family *family = nccl_comm_of(r->comm)->family;
    (void)comm_nccl()->issue(r->comm, &add, r->arena.base, r->arena.base, r->stream, &err);
    while (!r->ops->poll_error(r->device, &err)) /* the stream never runs empty */
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
    const struct instant limit = instant_add(clock_now(NULL), 20 * NS_PER_S);
    while (!__atomic_load_n(&family->aborted, __ATOMIC_RELAXED) && !instant_reached(clock_now(NULL), limit))
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
    (void)pthread_mutex_lock(&family->lock); /* the aborts are over */
    (void)pthread_mutex_unlock(&family->lock);
    nccl_end_comm(nccl_comm_of(r->comm));
    nccl_end_base(family);
    clock_sleep_until(instant_add(clock_now(NULL), 5 * NCCL_TICK_NS));
    if (aborts() != job->seed + 2 * 2) /* the base and the first comm, twice */
        _exit(2);
    _exit(strstr(err.text,
                 "all_reduce #1 (all_reduce of 100 f32 by sum) of comm test on rank 0: NCCL: remote "
                 "process exited") != NULL
              ? 0
              : 1);
}

static void an_abort_that_is_always_refused_hides_no_cause(void **state)
{
    (void)state;
    int status = -1;
    const pid_t pid = fork();
    if (pid == 0) {
        struct nccl_job job = {.body = fails_without_an_abort, .seed = aborts()};
        alarm(60);
        setenv("FAKE_NCCL_ASYNC", "0:1", 1);
        setenv("FAKE_NCCL_NO_ABORT", "1", 1);
        _exit(nccl_job_run(&job, 1) ? 99 : 98);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
}

/* ---- handles ---- */

/* The thread that watches, a failure and the comm's own end meet no handle that NCCL has freed. */
static int ends_before_it_is_destroyed(struct nccl_rank *r, struct nccl_job *job)
{
    struct muster_error err = {0};
    struct nccl_family *family = nccl_comm_of(r->comm)->family;
    struct comm *part = comm_nccl()->split(r->comm, 0, r->rank, "part", &err);
    struct nccl_look look;
    if (!part || nccl_do(r, part, &add, r->arena.base, r->arena.base, &err) || nccl_job_meet(job, RANKS))
        return nccl_complain(r, "part", err.text);
    struct nccl_comm *comm = nccl_comm_of(part);
    nccl_end_comm(comm);
    (void)pthread_mutex_lock(&family->lock);
    const bool left = comm->handle != NULL;
    nccl_look_at(comm, clock_now(NULL), &look);
    (void)pthread_mutex_unlock(&family->lock);
    const bool issued = !comm_nccl()->issue(part, &add, r->arena.base, r->arena.base, r->stream, &err);
    nccl_end_comm(comm);
    comm_nccl()->destroy(part);
    if (left || look.error.code)
        return nccl_complain(r, "after the end", left ? "there is a handle" : look.error.text);
    return issued ? nccl_complain(r, "after the end", "an operation is issued") : 0;
}

static void a_handle_ends_with_its_communicator(void **state)
{
    (void)state;
    for (int free_order = 0; free_order < 2; free_order++) {
        setenv("MUSTER_NCCL_ORDER", free_order ? "free" : "schedule", 1);
        run(ends_before_it_is_destroyed, 0);
        assert_int_equal(nccl_test_left(), 0);
    }
    unsetenv("MUSTER_NCCL_ORDER");
}

/* ---- families ---- */

/* NCCL refuses to end a part. Its abort spoils what the family shares, and later operations would end with
 * nothing computed: they are refused. */
static int end_is_refused(struct nccl_rank *r, struct nccl_job *job)
{
    struct muster_error err = {0};
    char refused[32];
    struct comm *part = comm_nccl()->split(r->comm, 0, r->rank, "part", &err);
    (void)job;
    if (!part || nccl_do(r, part, &add, r->arena.base, r->arena.base, &err))
        return nccl_complain(r, "part", err.text);
    (void)snprintf(refused, sizeof refused, "ncclCommDestroy:%d", (int)fake_calls("ncclCommDestroy") + 1);
    setenv("FAKE_CUDA_FAIL", refused, 1);
    comm_nccl()->destroy(part);
    unsetenv("FAKE_CUDA_FAIL");
    if (!comm_nccl()->issue(r->comm, &add, r->arena.base, r->arena.base, r->stream, &err))
        return nccl_complain(r, "after a refused end", "an operation is issued");
    return strstr(err.text, "the communicator was aborted, since another one did not end in order")
               ? 0
               : nccl_complain(r, "after a refused end", err.text);
}

static void an_end_that_is_refused_ends_the_family(void **state)
{
    (void)state;
    struct nccl_job job = {.body = end_is_refused};
    assert_int_equal(nccl_job_run(&job, 1), 0);
}

/* Parts of a part; they end in an order of their own: in order, or after a failure by an abort each. A part
 * that ends before the parts that were split from it, and share its resources, takes them along. */
static int parts_of_parts(struct nccl_rank *r, struct nccl_job *job)
{
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    struct muster_error err = {0};
    const bool fails = job->seed & 1;
    struct comm *parts[3] = {comm_nccl()->split(r->comm, 0, r->rank, "part", &err), NULL, NULL};
    for (int i = 1; i < 3 && parts[i - 1]; i++)
        parts[i] = comm_nccl()->split(parts[i - 1], 0, r->rank, "part", &err);
    if (!parts[2] || nccl_do(r, parts[2], &add, r->arena.base, r->arena.base, &err) ||
        nccl_job_meet(job, RANKS))
        return nccl_complain(r, "parts", err.text);
    if (fails && r->rank == 1)
        comm_nccl()->abort(parts[1]);
    while (fails && !r->ops->poll_error(r->device, &err))
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
    for (int i = 0; i < 3; i++)
        comm_nccl()->destroy(parts[orders[job->seed / 2][i]]);
    return 0;
}

static void parts_end_in_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        setenv("MUSTER_NCCL_ORDER", seed < 6 ? "schedule" : "free", 1);
        const uint64_t before = aborts();
        run(parts_of_parts, seed % 6);
        assert_int_equal(nccl_test_left(), 0);
        /* the first comm and three parts, and in a schedule the base; the second order is the parts' own */
        const bool in_order = !(seed & 1) && (seed >= 6 || seed / 2 == 1);
        assert_int_equal(aborts() - before, in_order ? 0 : RANKS * (seed < 6 ? 5 : 4));
    }
    unsetenv("MUSTER_NCCL_ORDER");
}

/* gpu_nccl_end [TEST]: all tests, or the named test. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(work_that_never_ends_is_an_error_of_the_end, no_communicator_is_left),
        cmocka_unit_test_teardown(an_abort_that_is_refused_is_tried_once_more, no_communicator_is_left),
        cmocka_unit_test(an_abort_that_is_always_refused_hides_no_cause),
        cmocka_unit_test_teardown(a_handle_ends_with_its_communicator, no_communicator_is_left),
        cmocka_unit_test_teardown(an_end_that_is_refused_ends_the_family, no_communicator_is_left),
        cmocka_unit_test_teardown(parts_end_in_any_order, no_communicator_is_left),
    };
    setenv("FAKE_CUDA_DEVICES", "4", 0); /* one for each rank */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
