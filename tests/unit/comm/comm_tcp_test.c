/* comm_tcp_test.c - the peculiarities of the comm over TCP: requests to the store, unknown peers at the port,
 * a peer that goes silent in the middle of data. Tests for all comms are in comm_shm_test.c,
 * comm_process_test.c and comm_bits_test.c. */
#define TEST_COMM comm_tcp
#include "tests/support/cmocka_all.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "runtime/comm/comm_tcp_internal.h"
#include "tests/unit/comm/comm_test_ranks.h"

/* ---- stores that see who publishes an address; the wrapped store is the first member ---- */

static int pass_get(void *ctx, const char *key, struct buffer *out, int64_t timeout_ns,
                    struct muster_error *err)
{
    const struct kv_store *real = ctx;
    return real->get(real->ctx, key, out, timeout_ns, err);
}

static int pass_add(void *ctx, const char *key, int64_t delta, int64_t *value, struct muster_error *err)
{
    const struct kv_store *real = ctx;
    return real->add(real->ctx, key, delta, value, err);
}

/* ---- unknown peers ---- */

/* A store that makes unknown peers connect to each published address before any rank learns of it: a peer
 * that sends junk and as many as `silent` that send nothing. */
struct nosy_store {
    struct kv_store real;
    int fds[64];
    int silent, count, refused;
    pthread_mutex_t lock;
};

static void visit(struct nosy_store *nosy, const char *address, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    for (int i = 0; i <= nosy->silent && nosy->count < 64 && inet_pton(AF_INET, address, &to.sin_addr) == 1;
         i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) {
            nosy->refused++;
            if (fd >= 0)
                close(fd);
            continue;
        }
        char junk[128] = "GET / HTTP/1.1\r\n";
        if (i == nosy->silent)
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
static int one_barrier(struct test_rank *r, struct test_job *job)
{
    const struct comm_op op = {.kind = COMM_BARRIER};
    struct muster_error *err = &job->errors[r->rank];
    return test_rank_do(r, r->comm, &op, NULL, NULL, err) ? test_rank_complain(r, "barrier", err->text) : 0;
}

static void meet_beside_unknown_peers(int size, int silent, int callers)
{
    struct kv_memory *memory = kv_memory_create(NULL);
    struct nosy_store nosy = {
        .real = kv_memory_store(memory), .silent = silent, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct test_job job = {.body = one_barrier,
                           .store = {.set = nosy_set, .get = pass_get, .add = pass_add, .ctx = &nosy}};
    assert_int_equal(test_job_run(&job, size), 0);
    assert_int_equal(nosy.refused, 0);
    assert_int_equal(nosy.count, callers);
    for (int i = 0; i < nosy.count; i++) { /* and are told so by the end of their connection */
        char byte;
        assert_true(recv(nosy.fds[i], &byte, 1, 0) <= 0);
        close(nosy.fds[i]);
    }
    kv_memory_destroy(memory);
}

static void unknown_peers_are_dropped(void **state)
{
    (void)state;
    meet_beside_unknown_peers(3, 1, 6);
}

/* More peers than a rank keeps take all places of rank 0, which has to be quicker than with a peer that is
 * only slow: that has 20 seconds. */
static void silent_peers_make_room(void **state)
{
    (void)state;
    struct instant start = clock_now(NULL);
    meet_beside_unknown_peers(3, 60, 64);
    assert_true(instant_diff_ns(clock_now(NULL), start) < 15 * NS_PER_S);
}

/* ---- many at once ---- */

/* Rank 0 of 400 is linked with 17 ranks: more connections than a rank has places for unknown peers. */
enum { CROWD = 400, CROWD_CALLS = 2 * 17 };

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
    struct instant limit = instant_add(clock_now(NULL), TEST_TIMEOUT_NS / 2);
    while (waiting_callers(port) < CROWD_CALLS) {
        if (instant_reached(clock_now(NULL), limit))
            return error_set(err, MUSTER_E_TIMEOUT, "%d of %d have called", waiting_callers(port),
                             CROWD_CALLS);
        clock_sleep_until(instant_add(clock_now(NULL), 5 * NS_PER_MS));
    }
    return 0;
}

static int only_meet(struct test_rank *r, struct test_job *job)
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
    struct test_job job = {.body = only_meet,
                           .store = {.set = crowded_set, .get = pass_get, .add = pass_add, .ctx = &real}};
    assert_int_equal(test_job_run(&job, CROWD), 0);
    kv_memory_destroy(memory);
}

/* A connection stands before its caller runs again and sends its first bytes. On few processors many of ours
 * are silent for that time, and none of them may be taken for an unknown peer. */
static void ranks_that_are_slow_to_speak_are_heard(void **state)
{
    const int worlds = *state ? *(const int *)*state : 4;
    for (int i = 0; i < worlds; i++) {
        struct test_job job = {.body = only_meet};
        assert_int_equal(test_job_run(&job, 64), 0);
    }
}

/* ---- time-out in the middle of data ---- */

static int silent_peer(struct test_rank *r, struct test_job *job)
{
    const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 500000};
    float *values = r->arena.base;
    if (r->rank == 1) /* takes nothing */
        return test_job_wait(&job->gave_up, r->size - 1, 2 * TEST_TIMEOUT_NS);
    int failed = test_rank_do(r, r->comm, &op, values, values, &job->errors[r->rank]);
    job->gave_up++;
    return failed ? 0 : test_rank_complain(r, "all_reduce", "passed without rank 1");
}

/* ---- requests to the store ---- */

/* Counts the requests of all ranks. */
struct counting_store {
    struct kv_store real;
    _Atomic int requests;
};

static int counting_set(void *ctx, const char *key, const void *data, size_t n, struct muster_error *err)
{
    struct counting_store *c = ctx;
    c->requests++;
    return c->real.set(c->real.ctx, key, data, n, err);
}

static int counting_get(void *ctx, const char *key, struct buffer *out, int64_t timeout_ns,
                        struct muster_error *err)
{
    struct counting_store *c = ctx;
    c->requests++;
    return c->real.get(c->real.ctx, key, out, timeout_ns, err);
}

static int counting_add(void *ctx, const char *key, int64_t delta, int64_t *value, struct muster_error *err)
{
    struct counting_store *c = ctx;
    c->requests++;
    return c->real.add(c->real.ctx, key, delta, value, err);
}

static int split_in_two(struct test_rank *r, struct test_job *job)
{
    struct muster_error *err = &job->errors[0];
    struct comm *half = comm_tcp()->split(r->comm, r->rank % 2, r->rank, "half", err);
    comm_tcp()->destroy(half);
    return half ? 0 : test_rank_complain(r, "split", err->text);
}

/* A rank counts its use of the key, sets two records, waits for one child and for rank 0 in the tree of
 * addresses, and for the addresses of half of its 11 links; a split takes no request. On average. */
static void meeting_takes_few_requests(void **state)
{
    (void)state;
    enum { RANKS = 64, EACH = 1 + 2 + 1 + 1 + 6 };
    struct kv_memory *memory = kv_memory_create(NULL);
    struct counting_store c = {.real = kv_memory_store(memory)};
    struct test_job job = {
        .body = split_in_two,
        .store = {.set = counting_set, .get = counting_get, .add = counting_add, .ctx = &c}};
    assert_int_equal(test_job_run(&job, RANKS), 0);
    assert_true(c.requests <= RANKS * EACH);
    kv_memory_destroy(memory);
}

/* ---- a round that ends while a comm is split ---- */

struct ending_store {
    struct kv_store real;
    _Atomic bool gone;
};

static int pass_set(void *ctx, const char *key, const void *data, size_t n, struct muster_error *err)
{
    const struct kv_store *real = ctx;
    return real->set(real->ctx, key, data, n, err);
}

static bool ending_is_gone(void *ctx)
{
    const struct ending_store *ending = ctx;
    return ending->gone;
}

/* Rank 1 votes, as in a split, and is lost before it calls rank 0. */
static int vote_and_go(struct test_rank *r, struct test_job *job)
{
    struct { /* as comm_tcp.c has it */
        struct comm_vote vote;
        uint64_t name;
        struct tcp_listing at;
    } records[2] = {0};
    struct ending_store *ending = job->store.ctx;
    struct muster_error *err = &job->errors[r->rank];
    if (r->rank == 0)
        return comm_tcp()->split(r->comm, 0, 0, "half", err) ? -1 : 0;
    records[1].vote = (struct comm_vote){0, 1};
    records[1].name = text_hash(TEXT_HASH_START, "half", 4);
    tcp_comm_of(r->comm)->splits++;
    if (tcp_gather_records(tcp_comm_of(r->comm), records, sizeof records[0], err))
        return test_rank_complain(r, "vote", err->text);
    ending->gone = true;
    return 0;
}

/* Without that the wait would last until the comm's time-out. */
static void a_round_that_ends_ends_a_split(void **state)
{
    struct kv_memory *memory = kv_memory_create(NULL);
    struct ending_store ending = {.real = kv_memory_store(memory)};
    struct test_job job = {
        .body = vote_and_go,
        .store = {
            .set = pass_set, .get = pass_get, .add = pass_add, .is_gone = ending_is_gone, .ctx = &ending}};
    (void)state;
    assert_int_equal(test_job_run(&job, 2), 0);
    assert_int_equal(job.errors[0].code, MUSTER_E_PEER);
    assert_non_null(strstr(job.errors[0].text, "waiting for higher ranks: the store is gone"));
    kv_memory_destroy(memory);
}

static void time_out_in_data_names_the_peer(void **state)
{
    (void)state;
    struct test_job job = {.body = silent_peer, .timeout_ns = 400 * NS_PER_MS};
    assert_int_equal(test_job_run(&job, 3), 0);
    for (int rank = 0; rank < 3; rank += 2) {
        assert_int_equal(job.errors[rank].code, MUSTER_E_TIMEOUT);
        assert_non_null(strstr(job.errors[rank].text, "for rank 1"));
    }
}

/* With an argument only that, so many times: comm_tcp_crowd_full. */
int main(int argc, char **argv)
{
    int worlds = argc > 1 ? atoi(argv[1]) : 0;
    const struct CMUnitTest crowd[] = {
        cmocka_unit_test_prestate(ranks_that_are_slow_to_speak_are_heard, &worlds),
    };
    if (worlds > 0)
        return cmocka_run_group_tests(crowd, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_peers_are_dropped),
        cmocka_unit_test(silent_peers_make_room),
        cmocka_unit_test(many_who_call_at_once_are_all_heard),
        cmocka_unit_test(ranks_that_are_slow_to_speak_are_heard),
        cmocka_unit_test(time_out_in_data_names_the_peer),
        cmocka_unit_test(meeting_takes_few_requests),
        cmocka_unit_test(a_round_that_ends_ends_a_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
