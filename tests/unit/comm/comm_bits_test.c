/* comm_bits_test.c - every operation over TCP, and over nodes (TEST_COMM=comm_node), has the bits of the host
 * comm's: of every type, by every reduction, small (by doubling) and large (along the chain), with ranks as
 * threads. With an argument: more sizes and more counts, in the full run. */
#ifndef TEST_COMM
#define TEST_COMM comm_tcp
#endif
#include "tests/support/cmocka_all.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "runtime/comm/comm_node.h"
#include "tests/unit/comm/comm_test_ranks.h"

static bool all_sizes;
enum {
    MOST_COUNT = 40001,
    MOST_ELEMENTS = 300000
}; /* all ranks' blocks together; one rank's block is less */

static const int64_t few_counts[] = {0, 3, 17001, -1}, many_counts[] = {0, 1, 7, 4096, 17001, 40001, -1};
static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_I32, DTYPE_U8, DTYPE_BF16, DTYPE_F16};
static const enum comm_kind kinds[] = {COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE, COMM_BROADCAST,
                                       COMM_ALL_TO_ALL, COMM_SEND,           COMM_BARRIER};

/* The contents of a rank's buffers: their sums are exact in no type of floats. */
static void fill(void *to, enum dtype dtype, int64_t count, int rank)
{
    for (int64_t i = 0; i < count; i++) {
        const double value = (double)((i * 7919 + rank * 104729) % 1000003) / 977.0 - 300.0;
        if (dtype == DTYPE_F64)
            ((double *)to)[i] = value;
        else if (dtype == DTYPE_F32)
            ((float *)to)[i] = (float)value;
        else if (dtype == DTYPE_I32)
            ((int32_t *)to)[i] = (int32_t)(value * 7000003.0);
        else if (dtype == DTYPE_U8)
            ((uint8_t *)to)[i] = (uint8_t)(i * 31 + rank * 7);
        else
            ((uint16_t *)to)[i] = /* finite: the exponent is not all ones */
                (uint16_t)((i * 40503 + rank * 30011) & (dtype == DTYPE_BF16 ? 0xbfff : 0xbbff));
    }
}

struct two_comms {
    const struct comm_ops *ops[2]; /* the tested comm, and the host comm */
    struct comm *comm[2];
    char *send, *recv[2];
};

/* The peer of a send: some of these pairs are no neighbours; -1: this rank has none. */
static int peer_of(int rank, int size, int distance)
{
    const int peer = rank ^ distance;
    return peer < size ? peer : -1;
}

static int do_both(struct test_rank *r, struct two_comms *t, const struct comm_op *op)
{
    const int64_t width = dtype_size(op->dtype);
    const bool sends_blocks = op->kind == COMM_REDUCE_SCATTER || op->kind == COMM_ALL_TO_ALL;
    const bool gets_blocks = op->kind == COMM_ALL_GATHER || op->kind == COMM_ALL_TO_ALL;
    const int64_t got = op->count * (gets_blocks ? r->size : 1);
    for (int i = 0; i < 2; i++) {
        struct muster_error err = {0};
        fill(t->send, op->dtype, op->count * (sends_blocks ? r->size : 1), r->rank);
        fill(t->recv[i], op->dtype, got, r->rank + 17);
        if (t->ops[i]->run(t->comm[i], op, t->send, t->recv[i], &err))
            return test_rank_complain(r, t->ops[i]->name, err.text);
    }
    if (!memcmp(t->recv[0], t->recv[1], (size_t)(got * width)))
        return 0;
    char text[COMM_TEXT];
    return test_rank_complain(r, comm_op_text(text, op), "differs from the host comm's");
}

/* In place over the tested comm, against the host comm in two buffers. */
static int do_in_place(struct test_rank *r, struct two_comms *t, const struct comm_op *op)
{
    struct muster_error err = {0};
    const int64_t bytes = op->count * dtype_size(op->dtype);
    const bool blocks = op->kind == COMM_REDUCE_SCATTER;
    const int64_t filled = op->count * (op->kind == COMM_ALL_REDUCE ? 1 : r->size);
    fill(t->send, op->dtype, filled, r->rank);
    memcpy(t->recv[0], t->send, (size_t)(filled * dtype_size(op->dtype)));
    char *send = t->recv[0] + (op->kind == COMM_ALL_GATHER ? r->rank * bytes : 0);
    char *recv = t->recv[0] + (blocks ? r->rank * bytes : 0);
    const char *theirs = t->send + (op->kind == COMM_ALL_GATHER ? r->rank * bytes : 0);
    const int64_t got = bytes * (op->kind == COMM_ALL_GATHER ? r->size : 1);
    if (t->ops[0]->run(t->comm[0], op, send, recv, &err) ||
        t->ops[1]->run(t->comm[1], op, theirs, t->recv[1], &err))
        return test_rank_complain(r, "in place", err.text);
    char text[COMM_TEXT];
    return memcmp(recv, t->recv[1], (size_t)got)
               ? test_rank_complain(r, comm_op_text(text, op), "differs in place")
               : 0;
}

/* To and from ranks at several distances, over both comms. */
static int do_pairs(struct test_rank *r, struct two_comms *t, enum dtype dtype, int64_t count)
{
    for (int distance = 1; distance < r->size; distance = distance * 2 + 1) {
        const int peer = peer_of(r->rank, r->size, distance);
        for (int turn = 0; peer >= 0 && turn < 2; turn++) {
            const bool sends = (peer > r->rank) == (turn == 0);
            const struct comm_op op = {
                .kind = sends ? COMM_SEND : COMM_RECV, .dtype = dtype, .count = count, .root = peer};
            if (do_both(r, t, &op))
                return -1;
        }
    }
    return 0;
}

static int do_kind(struct test_rank *r, struct two_comms *t, enum comm_kind kind, enum dtype dtype,
                   int64_t count)
{
    const bool reduces = comm_reduces(kind);
    const bool blocks = kind == COMM_ALL_GATHER || kind == COMM_REDUCE_SCATTER || kind == COMM_ALL_TO_ALL;
    if (blocks && count * r->size > MOST_ELEMENTS)
        return 0;
    if (kind == COMM_SEND)
        return do_pairs(r, t, dtype, count);
    for (int way = 0; way < (reduces ? 6 : 1); way++) {
        const struct comm_op op = {.kind = kind,
                                   .dtype = dtype,
                                   .reduction = (enum comm_reduction)(way % 3),
                                   .accumulate = way >= 3,
                                   .root = kind == COMM_BROADCAST ? (int)(count % r->size) : 0,
                                   .count = count};
        if (comm_check(&op, r->rank, r->size, t->send, t->recv[0], NULL))
            continue; /* no reduction of bytes, no average of integers */
        if (do_both(r, t, &op))
            return -1;
        if (kind != COMM_BROADCAST && kind != COMM_ALL_TO_ALL && kind != COMM_BARRIER && !op.accumulate &&
            do_in_place(r, t, &op))
            return -1;
    }
    return 0;
}

static int same_bits(struct test_rank *r, struct test_job *job)
{
    struct muster_error err = {0};
    const int64_t *counts = all_sizes ? many_counts : few_counts;
    const struct comm_options options = test_rank_options(r, "host", TEST_TIMEOUT_NS, &job->store);
    struct two_comms t = {
        {TEST_COMM(), comm_shm()}, {r->comm, comm_shm()->create(&options, &err)}, NULL, {NULL}};
    const size_t bytes = (size_t)MOST_ELEMENTS * sizeof(double);
    t.send = malloc(bytes);
    t.recv[0] = malloc(bytes);
    t.recv[1] = malloc(bytes);
    int result =
        t.comm[1] && t.send && t.recv[0] && t.recv[1] ? 0 : test_rank_complain(r, "host comm", err.text);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            for (const int64_t *count = counts; !result && *count >= 0; count++)
                result = do_kind(r, &t, kinds[k], dtypes[d], *count);
        }
    }
    comm_shm()->destroy(t.comm[1]);
    free(t.send);
    free(t.recv[0]);
    free(t.recv[1]);
    return result;
}

static void operations_have_the_bits_of_the_host_comm(void **state)
{
    (void)state;
    static const int few[] = {11}, many[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32, 64};
    const int *sizes = all_sizes ? many : few;
    const size_t count = all_sizes ? sizeof many / sizeof *many : sizeof few / sizeof *few;
    if (!strcmp(TEST_COMM()->name, "node"))
        skip_because("one node: see the next test");
    for (size_t i = 0; i < count; i++) {
        struct test_job job = {.body = same_bits};
        assert_int_equal(test_job_run(&job, sizes[i]), 0);
    }
}

/* Not all nodes have the same number of ranks; in turns, neighbours are on different nodes. */
static void operations_over_nodes_have_the_same_bits(void **state)
{
    (void)state;
    static const int few[] = {7}, many[] = {2, 3, 5, 8, 13, 16, 17, 32, 64}, nodes[] = {1, 2, 3, 8};
    const int *sizes = all_sizes ? many : few;
    const size_t count = all_sizes ? sizeof many / sizeof *many : sizeof few / sizeof *few;
    if (strcmp(TEST_COMM()->name, "node") != 0)
        skip_because("for a comm over nodes");
    for (size_t i = 0; i < count; i++) {
        for (size_t n = 0; n < sizeof nodes / sizeof *nodes; n++) {
            for (int turns = 0; turns <= (nodes[n] == 3 && sizes[i] < 16); turns++) {
                struct test_job job = {.body = same_bits};
                test_nodes = nodes[n];
                test_nodes_in_turns = turns;
                if (nodes[n] <= sizes[i] && (all_sizes || nodes[n] == 3))
                    assert_int_equal(test_job_run(&job, sizes[i]), 0);
            }
        }
    }
    test_nodes = 0;
}

/* ---- bytes between nodes ---- */

static _Atomic int64_t all_received;

/* Data bytes that this rank has received over a TCP comm so far. Sent ones may still wait in the kernel. */
static int64_t received_by(struct comm *comm)
{
    int64_t sum = 0;
    for (int rank = 0; comm && rank < comm->size; rank++) {
        struct tcp_info info = {0};
        socklen_t length = sizeof info;
        const int fd = tcp_comm_of(comm)->peers[rank].fds[TCP_DATA];
        if (fd >= 0 && !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length))
            sum += (int64_t)info.tcpi_bytes_received;
    }
    return sum;
}

enum { BYTES_RANKS = 6, BYTES_NODES = 3, BYTES_COUNT = 100000 };

/* One operation; the job's seed is its kind. */
static int count_bytes(struct test_rank *r, struct test_job *job)
{
    struct node_comm *node = node_comm_of(r->comm);
    struct muster_error err = {0};
    const struct comm_op op = {.kind = (enum comm_kind)job->seed, .dtype = DTYPE_F32, .count = BYTES_COUNT};
    float *send = r->arena.base, *recv = send + BYTES_RANKS * BYTES_COUNT;
    const int64_t before = received_by(node->rail) + received_by(node->wide);
    if (comm_node()->run(r->comm, &op, send, recv, &err))
        return test_rank_complain(r, "operation", err.text);
    all_received += received_by(node->rail) + received_by(node->wide) - before;
    return 0;
}

/* In a gather each node gets the others' bytes once; in a reduction half as much more. */
static void nodes_exchange_few_bytes(void **state)
{
    (void)state;
    static const struct {
        enum comm_kind kind;
        double most; /* times (nodes - 1) x the bytes of all ranks' blocks */
    } rows[] = {{COMM_ALL_GATHER, 1.05}, {COMM_REDUCE_SCATTER, 1.55}};
    if (strcmp(TEST_COMM()->name, "node") != 0)
        skip_because("for a comm over nodes");
    test_nodes = BYTES_NODES;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct test_job job = {.body = count_bytes, .seed = (uint64_t)rows[i].kind};
        all_received = 0;
        assert_int_equal(test_job_run(&job, BYTES_RANKS), 0);
        const double least = (BYTES_NODES - 1) * (double)BYTES_RANKS * BYTES_COUNT * sizeof(float);
        assert_true((double)all_received > 0.9 * least);
        assert_true((double)all_received <= rows[i].most * least);
    }
    test_nodes = 0;
}

int main(int argc, char **argv)
{
    (void)argv;
    all_sizes = argc > 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_have_the_bits_of_the_host_comm),
        cmocka_unit_test(operations_over_nodes_have_the_same_bits),
        cmocka_unit_test(nodes_exchange_few_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
