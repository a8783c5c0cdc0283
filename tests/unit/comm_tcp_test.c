/* comm_tcp_test.c - what is special to the comm over TCP: results equal to the host comm's bit by bit, peers
 * that die, strangers at the port, a peer that goes silent in the middle of data. What all comms have in
 * common is in comm_host_test.c. */
#define TEST_COMM comm_tcp
#include "tests/support/cmocka_all.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "runtime/world.h"
#include "tests/support/kv_memory.h"
#include "tests/support/rank_threads.h"
#include "tests/unit/comm_test_ranks.h"
#include "tests/unit/world_test_environment.h"

enum { ARENA_BYTES = 4 << 20, RANKS = 4 };
#define TIMEOUT_NS (240 * NS_PER_S)

struct job {
    struct kv_store store;
    int64_t timeout_ns;
    int (*body)(struct test_rank *r, struct job *job);
    struct muster_error errors[RANKS];
    _Atomic int gave_up;
};

static int rank_main(int rank, int size, void *context)
{
    struct job *job = context;
    struct test_rank r;
    if (test_rank_open(&r, rank, size, ARENA_BYTES, job->timeout_ns, &job->store)) {
        job->gave_up++;
        return -1;
    }
    int result = job->body(&r, job);
    test_rank_close(&r);
    return result;
}

static int run_ranks(int size, int (*body)(struct test_rank *, struct job *), int64_t timeout_ns,
                     struct job *job)
{
    struct kv_memory *memory = kv_memory_create(NULL);
    assert_non_null(memory);
    *job = (struct job){.store = kv_memory_store(memory), .timeout_ns = timeout_ns, .body = body};
    int result = rank_threads_run(size, rank_main, job);
    kv_memory_destroy(memory);
    return result;
}

/* ---- the same bits ---- */

static const int64_t counts[] = {0, 1, 7, 4096, 65537, 120001};
static const enum comm_kind kinds[] = {COMM_REDUCE_SCATTER, COMM_ALL_REDUCE};

static struct comm *host_comm(struct test_rank *r, struct job *job, struct muster_error *err)
{
    const struct comm_options options = {.rank = r->rank,
                                         .size = r->size,
                                         .store = &job->store,
                                         .key = "host",
                                         .timeout_ns = TIMEOUT_NS,
                                         .device = r->device,
                                         .device_ops = r->ops,
                                         .arenas = &r->arena,
                                         .arena_count = 1};
    return comm_host()->create(&options, err);
}

static void fill(float *values, int64_t count, int rank)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)((i * 7919 + rank * 104729) % 1000003) / 977.0F - 300.0F;
}

static int both_reduce(struct test_rank *r, struct comm *host, const struct comm_op *op,
                       float *const buffers[3])
{
    struct muster_error err = {0};
    int64_t sent = op->count * (op->kind == COMM_REDUCE_SCATTER ? r->size : 1);
    fill(buffers[0], sent, r->rank);
    for (int i = 1; i < 3; i++)
        fill(buffers[i], op->count, r->rank + 17);
    if (test_rank_do(r, r->comm, op, buffers[0], buffers[1], &err) ||
        comm_host()->issue(host, op, buffers[0], buffers[2], r->stream, &err) ||
        r->ops->sync(r->stream, INSTANT_NEVER, &err))
        return test_rank_complain(r, "reduction", err.text);
    if (memcmp(buffers[1], buffers[2], (size_t)op->count * sizeof(float)) != 0)
        return test_rank_complain(r, "reduction", "differs from the host comm's");
    return 0;
}

static int same_bits(struct test_rank *r, struct job *job)
{
    struct muster_error err = {0};
    struct comm *host = host_comm(r, job, &err);
    float *base = r->arena.base, *const buffers[] = {base, base + 640000, base + 820000};
    int result = host ? 0 : test_rank_complain(r, "host comm", err.text);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            for (int way = 0; !result && way < 6; way++) {
                const struct comm_op op = {.kind = kinds[k],
                                           .dtype = DTYPE_F32,
                                           .reduction = (enum comm_reduction)(way % 3),
                                           .accumulate = way >= 3,
                                           .count = counts[c]};
                result = both_reduce(r, host, &op, buffers);
            }
        }
    }
    comm_host()->destroy(host);
    return result;
}

static void reductions_have_the_bits_of_the_host_comm(void **state)
{
    (void)state;
    for (int size = 2; size <= RANKS; size++) {
        struct job job;
        assert_int_equal(run_ranks(size, same_bits, TIMEOUT_NS, &job), 0);
    }
}

/* ---- strangers ---- */

/* A store that lets a stranger call whoever publishes an address, before anybody else learns of it. */
struct nosy_store {
    struct kv_store real;
    int fds[64];
    int count, refused;
    pthread_mutex_t lock;
};

static void visit(struct nosy_store *nosy, const char *address, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    for (int i = 0; i < 2 && nosy->count < 64 && inet_pton(AF_INET, address, &to.sin_addr) == 1; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) {
            nosy->refused++;
            if (fd >= 0)
                close(fd);
            continue;
        }
        char junk[128] = "GET / HTTP/1.1\r\n";
        if (i == 1) /* the first one says nothing */
            nosy->refused += send(fd, junk, sizeof junk, MSG_NOSIGNAL) != sizeof junk;
        nosy->fds[nosy->count++] = fd;
    }
}

static int nosy_set(void *ctx, const char *key, const void *data, size_t n, struct muster_error *err)
{
    struct nosy_store *nosy = ctx;
    uint16_t port;
    if (strstr(key, "/at/")) { /* a listing ends in its port */
        memcpy(&port, (const char *)data + n - sizeof port, sizeof port);
        pthread_mutex_lock(&nosy->lock);
        visit(nosy, data, port);
        pthread_mutex_unlock(&nosy->lock);
    }
    return nosy->real.set(nosy->real.ctx, key, data, n, err);
}
static int nosy_get(void *ctx, const char *key, struct buffer *out, int64_t timeout_ns,
                    struct muster_error *err)
{
    struct nosy_store *nosy = ctx;
    return nosy->real.get(nosy->real.ctx, key, out, timeout_ns, err);
}
static int nosy_add(void *ctx, const char *key, int64_t delta, int64_t *value, struct muster_error *err)
{
    struct nosy_store *nosy = ctx;
    return nosy->real.add(nosy->real.ctx, key, delta, value, err);
}

static int one_barrier(struct test_rank *r, struct job *job)
{
    const struct comm_op op = {.kind = COMM_BARRIER};
    struct muster_error *err = &job->errors[r->rank];
    return test_rank_do(r, r->comm, &op, NULL, NULL, err) ? test_rank_complain(r, "barrier", err->text) : 0;
}

static void strangers_are_dropped(void **state)
{
    (void)state;
    struct kv_memory *memory = kv_memory_create(NULL);
    struct nosy_store nosy = {.real = kv_memory_store(memory), .lock = PTHREAD_MUTEX_INITIALIZER};
    struct job job = {.store = {.set = nosy_set, .get = nosy_get, .add = nosy_add, .ctx = &nosy},
                      .timeout_ns = TIMEOUT_NS,
                      .body = one_barrier};
    assert_int_equal(rank_threads_run(3, rank_main, &job), 0);
    assert_int_equal(nosy.refused, 0);
    assert_int_equal(nosy.count, 6);
    for (int i = 0; i < nosy.count; i++) { /* and are told so by the end of their connection */
        char byte;
        assert_true(recv(nosy.fds[i], &byte, 1, 0) <= 0);
        close(nosy.fds[i]);
    }
    kv_memory_destroy(memory);
}

/* ---- many at once ---- */

enum { CROWD = 24, CROWD_CALLS = 2 * (CROWD - 1) }; /* more than a rank looks at together */

/* How many have connected to a port of ours and were not answered yet; -1: nobody listens there. */
static int waiting_callers(uint16_t port)
{
    scope_buffer text = {0};
    char listens[32];
    unsigned calls = 0;
    (void)snprintf(listens, sizeof listens, "0100007F:%04X 00000000:0000 0A ", port);
    if (io_read_file("/proc/net/tcp", 4 << 20, &text, NULL))
        return -1;
    const char *line = strstr(text.data, listens);
    return line && sscanf(line + strlen(listens), "%*8x:%8x", &calls) == 1 ? (int)calls : -1;
}

/* Everybody else has called before rank 0 looks who is there. */
static int crowded_set(void *ctx, const char *key, const void *data, size_t n, struct muster_error *err)
{
    struct kv_store *real = ctx;
    uint16_t port;
    if (real->set(real->ctx, key, data, n, err))
        return -1;
    if (!strstr(key, "/at/0"))
        return 0;
    memcpy(&port, (const char *)data + n - sizeof port, sizeof port);
    struct instant limit = instant_add(clock_now(NULL), TIMEOUT_NS / 2);
    while (waiting_callers(port) < CROWD_CALLS) {
        if (instant_reached(clock_now(NULL), limit))
            return error_set(err, MUSTER_E_TIMEOUT, "%d of %d have called", waiting_callers(port),
                             CROWD_CALLS);
        clock_sleep_until(instant_add(clock_now(NULL), 5 * NS_PER_MS));
    }
    return 0;
}

static int crowded_get(void *ctx, const char *key, struct buffer *out, int64_t timeout_ns,
                       struct muster_error *err)
{
    struct kv_store *real = ctx;
    return real->get(real->ctx, key, out, timeout_ns, err);
}

static int crowded_add(void *ctx, const char *key, int64_t delta, int64_t *value, struct muster_error *err)
{
    struct kv_store *real = ctx;
    return real->add(real->ctx, key, delta, value, err);
}

static int only_meet(struct test_rank *r, struct job *job)
{
    (void)r;
    (void)job;
    return 0;
}

static void many_who_call_at_once_are_all_heard(void **state)
{
    (void)state;
    struct kv_memory *memory = kv_memory_create(NULL);
    struct kv_store real = kv_memory_store(memory);
    struct job job = {.store = {.set = crowded_set, .get = crowded_get, .add = crowded_add, .ctx = &real},
                      .timeout_ns = TIMEOUT_NS,
                      .body = only_meet};
    assert_int_equal(rank_threads_run(CROWD, rank_main, &job), 0);
    kv_memory_destroy(memory);
}

/* ---- time-out in the middle of data ---- */

static int silent_peer(struct test_rank *r, struct job *job)
{
    const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 500000};
    float *values = r->arena.base;
    if (r->rank == 1) { /* takes nothing */
        struct instant limit = instant_add(clock_now(NULL), 2 * TIMEOUT_NS);
        while (job->gave_up < r->size - 1 && !instant_reached(clock_now(NULL), limit))
            clock_sleep_until(instant_add(clock_now(NULL), 5 * NS_PER_MS));
        return 0;
    }
    int failed = test_rank_do(r, r->comm, &op, values, values, &job->errors[r->rank]);
    job->gave_up++;
    return failed ? 0 : test_rank_complain(r, "all_reduce", "passed without rank 1");
}

static void time_out_in_data_names_the_peer(void **state)
{
    (void)state;
    struct job job;
    int result = -1;
    /* A machine that is busy may need longer than a short time-out for what comes before. */
    for (int64_t timeout_ns = 400 * NS_PER_MS; result && timeout_ns < TIMEOUT_NS; timeout_ns *= 5) {
        result = run_ranks(3, silent_peer, timeout_ns, &job);
        for (int rank = 0; rank < 3 && !result; rank += 2)
            result = !strstr(job.errors[rank].text, "for rank 1");
    }
    assert_int_equal(result, 0);
    for (int rank = 0; rank < 3; rank += 2) {
        assert_int_equal(job.errors[rank].code, MUSTER_E_TIMEOUT);
        assert_non_null(strstr(job.errors[rank].text, "for rank 1"));
    }
}

/* ---- death ---- */

/* All-reduces until an error; never returns. Says 'r' when it runs. */
static void process_main(int rank, int size, int port, int pipe, int64_t count)
{
    struct muster_error err = {0};
    struct test_environment e = test_environment_of(rank, size, port, false, 0);
    struct muster_world *world = test_environment_open(&e, TIMEOUT_NS / NS_PER_MS, &err);
    struct test_rank r = {0};
    if (!world || test_rank_open(&r, rank, size, ARENA_BYTES, TIMEOUT_NS, world_store(world)))
        _exit(2);
    const struct comm_op op = {
        .kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .reduction = REDUCE_MAX, .count = count};
    bool said = false;
    while (!test_rank_do(&r, r.comm, &op, r.arena.base, r.arena.base, &err)) {
        if (!said && write(pipe, "r", 1) != 1)
            _exit(3);
        said = true;
    }
    if (write(pipe, &err, sizeof err) != (ssize_t)sizeof err)
        _exit(3);
    pause(); /* its comm stays open: the others are to hear of the death, not of its own end */
    _exit(0);
}

static void kill_one(int size, int victim, int64_t count)
{
    pid_t pids[RANKS];
    int pipes[RANKS][2], port = test_free_port();
    for (int rank = 0; rank < size; rank++) {
        assert_int_equal(pipe(pipes[rank]), 0);
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] == 0)
            process_main(rank, size, port, pipes[rank][1], count);
        close(pipes[rank][1]);
    }
    for (int rank = 0; rank < size; rank++) {
        char byte;
        assert_int_equal(read(pipes[rank][0], &byte, 1), 1);
    }
    struct instant start = clock_now(NULL);
    assert_int_equal(kill(pids[victim], SIGKILL), 0);
    char gone[32];
    (void)snprintf(gone, sizeof gone, "rank %d is gone", victim);
    for (int rank = 0; rank < size; rank++) {
        struct muster_error err;
        if (rank == victim)
            continue;
        assert_int_equal(read(pipes[rank][0], &err, sizeof err), (int)sizeof err);
        assert_int_equal(err.code, MUSTER_E_PEER);
        if (!strstr(err.text, gone))
            fail_msg("rank %d says: %s", rank, err.text);
    }
    assert_true(instant_diff_ns(clock_now(NULL), start) < TIMEOUT_NS); /* not its time-out */
    for (int rank = 0; rank < size; rank++) {
        (void)kill(pids[rank], SIGKILL);
        assert_int_equal(waitpid(pids[rank], NULL, 0), pids[rank]);
        close(pipes[rank][0]);
    }
}

static void a_killed_rank_is_named_by_all(void **state)
{
    (void)state;
    kill_one(3, 2, 400000);
    kill_one(4, 1, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_have_the_bits_of_the_host_comm),
        cmocka_unit_test(strangers_are_dropped),
        cmocka_unit_test(many_who_call_at_once_are_all_heard),
        cmocka_unit_test(time_out_in_data_names_the_peer),
        cmocka_unit_test(a_killed_rank_is_named_by_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
