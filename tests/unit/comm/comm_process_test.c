/* comm_process_test.c - ranks as processes: the same sums as with threads, and the errors of the others when
 * one is killed in the middle of it. Built a second time with TEST_COMM=comm_tcp: the same over TCP. */
#include "tests/support/cmocka_all.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/failure/failure.h"
#include "runtime/world/world.h"
#include "tests/unit/comm/comm_test_ranks.h"
#include "tests/unit/world/world_test_environment.h"

enum { RANKS_MAX = 12, COUNT = 400000, SMALL = 100 };
#define NOTICED_NS (5 * NS_PER_S) /* until every rank knows of a death */

/* The ranks' work: all-reduces of so many elements, for so many rounds or until an error. */
struct work {
    int size, count, rounds; /* rounds 0: no end */
    int with_child;          /* the rank that leaves one; -1: none */
};

/* A rank's messages to the test, in this order, through its socket. */
struct report {
    char kind; /* 'r' it runs, 'c' it has a child, 'e' its end */
    pid_t child;
    struct muster_error err;
};

struct process {
    pid_t pid;
    int socket;
};

static void tell(int fd, const struct report *report)
{
    if (write(fd, report, sizeof *report) != (ssize_t)sizeof *report)
        _exit(3); /* the test has gone */
}

/* A grandchild that keeps every descriptor open, so that sockets alone would not show the end of its parent.
 */
static pid_t leave_a_child(void)
{
    pid_t child = fork();
    if (child == 0) {
        for (;;)
            pause();
    }
    return child;
}

/* Never returns. */
static void rank_main(int rank, const struct work *work, int port, int socket)
{
    int size = work->size, count = work->count;
    struct report report = {.kind = 'r'};
    struct test_environment e = test_environment_of(rank, size, port, false, 0);
    struct muster_world *world = test_environment_open(&e, TEST_TIMEOUT_NS / NS_PER_MS, &report.err);
    struct test_rank r = {0};
    if (!world || test_rank_open(&r, rank, size, TEST_TIMEOUT_NS, world_store(world)))
        _exit(2);
    float *values = r.arena.base, *sums = values + count;
    const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = count};
    bool failed = false;
    for (int round = 0; !failed && (!work->rounds || round < work->rounds); round++) {
        for (int i = 0; i < count; i++)
            values[i] = (float)(i % 1000 + rank + round % 100);
        failed = test_rank_do(&r, r.comm, &op, values, sums, &report.err);
        for (int i = 0; !failed && i < count; i++) {
            if (sums[i] != (float)(size * (i % 1000 + round % 100) + size * (size - 1) / 2))
                _exit(4);
        }
        if (round == 2) {
            tell(socket, &report);
            if (rank == work->with_child) {
                struct report child = {.kind = 'c', .child = leave_a_child()};
                tell(socket, &child);
            }
        }
    }
    report.kind = 'e';
    tell(socket, &report);
    char go; /* until all have been heard: they are to hear of a death, not of our own end */
    if (read(socket, &go, 1) != 1)
        _exit(3);
    test_rank_close(&r);
    if (!failed)
        muster_world_close(&world);
    _exit(0);
}

static void start(struct process *processes, const struct work *work)
{
    int port = test_free_port();
    assert_true(port > 0);
    for (int rank = 0; rank < work->size; rank++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        processes[rank].pid = fork();
        assert_true(processes[rank].pid >= 0);
        if (processes[rank].pid == 0) {
            close(ends[0]);
            alarm(1000); /* never outlives the test */
            rank_main(rank, work, port, ends[1]);
        }
        close(ends[1]);
        processes[rank].socket = ends[0];
    }
}

/* The next report of one process, within the time. */
static struct report hear(const struct process *process)
{
    struct report report = {0};
    struct pollfd entry = {.fd = process->socket, .events = POLLIN};
    int ready;
    do {
        ready = poll(&entry, 1, (int)(TEST_TIMEOUT_NS / NS_PER_MS));
    } while (ready < 0 && errno == EINTR);
    if (ready != 1 || read(process->socket, &report, sizeof report) != (ssize_t)sizeof report)
        report.kind = 0;
    return report;
}

static int end_of(struct process *process)
{
    int status = -1;
    (void)send(process->socket, "g", 1, MSG_NOSIGNAL); /* who was killed does not read it */
    while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(process->socket);
    return status;
}

static void processes_agree(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size += 2) {
        struct process processes[RANKS_MAX];
        start(processes, &(struct work){.size = size, .count = COUNT, .rounds = 20, .with_child = -1});
        for (int rank = 0; rank < size; rank++) {
            assert_int_equal(hear(&processes[rank]).kind, 'r');
            assert_int_equal(hear(&processes[rank]).kind, 'e');
        }
        for (int rank = 0; rank < size; rank++)
            assert_int_equal(end_of(&processes[rank]), 0);
    }
}

/* Kills one of size ranks; all others report it in time. */
static void kill_one(int size, int victim, int count, bool with_child)
{
    struct process processes[RANKS_MAX];
    char who[64];
    pid_t child = 0;
    start(processes, &(struct work){.size = size, .count = count, .with_child = with_child ? victim : -1});
    for (int rank = 0; rank < size; rank++)
        assert_int_equal(hear(&processes[rank]).kind, 'r');
    if (with_child)
        child = hear(&processes[victim]).child;
    struct instant killed = clock_now(NULL);
    assert_int_equal(kill(processes[victim].pid, SIGKILL), 0);
    if (!test_over_shm())
        snprintf(who, sizeof who, "rank %d exited during all_reduce #", victim);
    else
        snprintf(who, sizeof who, "rank %d (pid %d) exited during all_reduce #", victim,
                 (int)processes[victim].pid);
    for (int rank = 0; rank < size; rank++) {
        if (rank == victim)
            continue;
        struct report report = hear(&processes[rank]);
        assert_int_equal(report.kind, 'e');
        if (report.err.code != MUSTER_E_PEER)
            fail_msg("rank %d says: %s (code %d)", rank, report.err.text, report.err.code);
        char other[64]; /* over nodes: as a rank of its own node reports it */
        snprintf(other, sizeof other, "rank %d (pid %d) exited during all_reduce #", victim,
                 (int)processes[victim].pid);
        if (!strstr(report.err.text, who) && (test_over_tcp() || !strstr(report.err.text, other)))
            fail_msg("rank %d says: %s, expected: %s", rank, report.err.text, who);
        assert_true(failure_says_peer_gone(report.err.text, rank));
    }
    assert_true(instant_diff_ns(clock_now(NULL), killed) < NOTICED_NS);
    if (child > 0)
        assert_int_equal(kill(child, SIGKILL), 0);
    for (int rank = 0; rank < size; rank++) {
        int status = end_of(&processes[rank]);
        assert_int_equal(rank == victim ? WTERMSIG(status) : status, rank == victim ? SIGKILL : 0);
    }
}

static void a_killed_rank_is_named_by_all(void **state)
{
    (void)state;
    kill_one(2, 1, COUNT, false);
    kill_one(4, 2, COUNT, false);
    kill_one(4, 1, SMALL, false);
    kill_one(3, 0, COUNT, false); /* the one that serves the store */
    if (test_over_shm())
        return;
    kill_one(12, 6, SMALL, false); /* has no connection to most others */
    kill_one(12, 11, COUNT / 4, false);
}

static void a_child_of_the_killed_rank_hides_nothing(void **state)
{
    (void)state;
    if (test_over_tcp())
        skip_because(
            "over TCP the child holds the connections open: keep-alive and the launcher have to tell");
    kill_one(3, 1, COUNT, true);
}

enum { UNREAD = 5000000 }; /* floats: more than a connection's buffers hold */

struct pair {
    struct comm *comm;
    int socket;
};

/* Aborts the comm at the test's word. */
static void *abort_when_told(void *context)
{
    const struct pair *pair = context;
    char go;
    if (read(pair->socket, &go, 1) == 1)
        TEST_COMM()->abort(pair->comm);
    return NULL;
}

/* Rank 0 sends to rank 1, again and again. */
static void pair_main(int rank, int port, int socket)
{
    struct report report = {.kind = 'r'};
    struct test_environment e = test_environment_of(rank, 2, port, false, 0);
    struct muster_world *world = test_environment_open(&e, TEST_TIMEOUT_NS / NS_PER_MS, &report.err);
    struct test_rank r = {0};
    if (!world || test_rank_open(&r, rank, 2, TEST_TIMEOUT_NS, world_store(world)))
        _exit(2);
    tell(socket, &report);
    struct pair pair = {r.comm, socket};
    pthread_t thread;
    if (rank == 0 && (pthread_create(&thread, NULL, abort_when_told, &pair) || pthread_detach(thread)))
        _exit(2);
    const struct comm_op op = {
        .kind = rank ? COMM_RECV : COMM_SEND, .dtype = DTYPE_F32, .count = UNREAD, .root = !rank};
    while (!test_rank_do(&r, r.comm, &op, r.arena.base, r.arena.base, &report.err))
        ;
    report.kind = 'e';
    tell(socket, &report);
    _exit(0);
}

/* The receiver stands still in the middle of a transfer, most of the time, until the buffers are full. A
 * broken connection of which nothing is to be read counts as ready. Then it is killed, or the sender aborts.
 * Returns how long the sender took. */
static int64_t end_a_transfer(bool aborts)
{
    struct process processes[2];
    int port = test_free_port();
    for (int rank = 0; rank < 2; rank++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        processes[rank] = (struct process){fork(), ends[0]};
        assert_true(processes[rank].pid >= 0);
        if (processes[rank].pid == 0) {
            close(ends[0]);
            alarm(1000);
            pair_main(rank, port, ends[1]);
        }
        close(ends[1]);
    }
    assert_int_equal(hear(&processes[0]).kind, 'r');
    assert_int_equal(hear(&processes[1]).kind, 'r');
    clock_sleep_until(instant_add(clock_now(NULL), 100 * NS_PER_MS));
    assert_int_equal(kill(processes[1].pid, SIGSTOP), 0);
    clock_sleep_until(instant_add(clock_now(NULL), 200 * NS_PER_MS));
    const struct instant begun = clock_now(NULL);
    if (aborts)
        assert_int_equal(send(processes[0].socket, "g", 1, MSG_NOSIGNAL), 1);
    else
        assert_int_equal(kill(processes[1].pid, SIGKILL), 0);
    const struct report report = hear(&processes[0]);
    const int64_t took = instant_diff_ns(clock_now(NULL), begun);
    assert_int_equal(report.kind, 'e');
    if (report.err.code != (aborts ? MUSTER_E_CANCELLED : MUSTER_E_PEER) ||
        failure_says_peer_gone(report.err.text, 0) == aborts)
        fail_msg("rank 0 says: %s (code %d)", report.err.text, report.err.code);
    assert_int_equal(kill(processes[1].pid, SIGKILL), 0); /* it is not reaped yet */
    assert_int_equal(end_of(&processes[0]), 0);
    assert_int_equal(WTERMSIG(end_of(&processes[1])), SIGKILL);
    return took;
}

static void a_sender_learns_that_its_receiver_was_killed(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_true(end_a_transfer(false) < NOTICED_NS);
}

/* It shuts the connection's own side, which is no loss of the peer: its last word, 2 s at most, is not
 * awaited. A trial in eight may lack a processor. */
static void an_abort_ends_a_transfer_at_once(void **state)
{
    (void)state;
    int late = 0;
    for (int i = 0; i < 8; i++)
        late += end_a_transfer(true) > NS_PER_S;
    assert_in_range(late, 0, 1);
}

/* ---- many ranks ---- */

enum { CROWD_PROCESSES = 8, CROWD_THREADS = 64 };

struct crowd {
    int process, port;
};

/* Meets, sums, splits and leaves. */
static int crowd_rank(int thread, int threads, void *context)
{
    const struct crowd *crowd = context;
    const int rank = crowd->process * threads + thread, size = CROWD_PROCESSES * threads;
    struct muster_error err = {0};
    struct test_environment e = test_environment_of(rank, size, crowd->port, false, 0);
    struct muster_world *world = test_environment_open(&e, TEST_TIMEOUT_NS / NS_PER_MS, &err);
    struct test_rank r = {0};
    if (!world || test_rank_open(&r, rank, size, TEST_TIMEOUT_NS, world_store(world)))
        return fprintf(stderr, "rank %d: %s\n", rank, err.text);
    const struct comm_op add = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F64, .count = 1};
    double sum = rank, part_sum = rank;
    struct comm *part = TEST_COMM()->split(r.comm, rank % 2, rank, "half", &err);
    int failed = !part || TEST_COMM()->run(r.comm, &add, &sum, &sum, &err) ||
                 TEST_COMM()->run(part, &add, &part_sum, &part_sum, &err);
    const double half = size / 2.0;
    if (failed || sum != half * (size - 1) || part_sum != half * (half - 1) + half * (rank % 2))
        failed = fprintf(stderr, "rank %d: sums %.0f and %.0f: %s\n", rank, sum, part_sum, err.text);
    TEST_COMM()->destroy(part);
    test_rank_close(&r);
    muster_world_close(&world);
    return failed;
}

static void hundreds_of_ranks_meet_sum_and_leave(void **state)
{
    (void)state;
    pid_t pids[CROWD_PROCESSES];
    struct crowd crowd = {.port = test_free_port()};
    for (crowd.process = 0; crowd.process < CROWD_PROCESSES; crowd.process++) {
        pids[crowd.process] = fork();
        assert_true(pids[crowd.process] >= 0);
        if (pids[crowd.process] == 0) {
            alarm(300); /* never outlives the test */
            _exit(rank_threads_run(CROWD_THREADS, crowd_rank, &crowd) ? 1 : 0);
        }
    }
    for (int i = 0; i < CROWD_PROCESSES; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
}

/* With an argument many ranks alone. */
int main(int argc, char **argv)
{
    (void)argv;
    const struct CMUnitTest crowds[] = {
        cmocka_unit_test(hundreds_of_ranks_meet_sum_and_leave),
    };
    if (argc > 1)
        return cmocka_run_group_tests(crowds, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_agree),
        cmocka_unit_test(a_killed_rank_is_named_by_all),
        cmocka_unit_test(a_child_of_the_killed_rank_hides_nothing),
        cmocka_unit_test(a_sender_learns_that_its_receiver_was_killed),
        cmocka_unit_test(an_abort_ends_a_transfer_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
