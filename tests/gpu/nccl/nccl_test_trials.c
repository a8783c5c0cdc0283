/* nccl_test_trials.c - see nccl_test_trials.h. */
#include "tests/gpu/nccl/nccl_test_trials.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/device/device_cpu.h"
#include "tests/support/walk.h"

struct trial {
    struct comm_op op;
    int64_t send_count, recv_count;
    bool in_place, host, takes_part;
    uint64_t seed;
};

/* most: elements of the largest ones. */
static struct trial make_trial(uint64_t *state, int rank, int size, int64_t most_elements)
{
    static const enum comm_kind kinds[] = {COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE,
                                           COMM_BROADCAST,  COMM_ALL_TO_ALL,     COMM_SEND,
                                           COMM_BARRIER};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_I32, DTYPE_U8, DTYPE_BF16, DTYPE_F16};
    const int64_t most[] = {1, 40, 5000, most_elements};
    struct trial t = {.takes_part = true};
    t.op.kind = kinds[test_random(state) % 7];
    t.op.dtype = dtypes[test_random(state) % 6];
    t.op.reduction = (enum comm_reduction)(test_random(state) % 3);
    t.op.count = (int64_t)(test_random(state) % (uint64_t)(most[test_random(state) % 4] + 1));
    t.op.root = (int)(test_random(state) % (uint64_t)size);
    bool reduces = comm_reduces(t.op.kind);
    if (reduces && t.op.dtype == DTYPE_U8)
        t.op.dtype = DTYPE_F32;
    if (reduces && t.op.dtype == DTYPE_I32 && t.op.reduction == REDUCE_AVERAGE)
        t.op.reduction = REDUCE_SUM;
    t.op.accumulate = test_random(state) % 3 == 0 && reduces && t.op.dtype == DTYPE_F32;
    t.in_place = test_random(state) % 2 && t.op.kind != COMM_ALL_TO_ALL && !t.op.accumulate;
    t.host = test_random(state) % 4 == 0 && !t.op.accumulate;
    t.seed = test_random(state);
    if (t.op.kind == COMM_SEND) {
        int from = t.op.root, to = size > 1 ? (from + 1 + (int)(t.seed % (uint64_t)(size - 1))) % size : from;
        t.takes_part = from != to && (rank == from || rank == to);
        t.op.kind = rank == to ? COMM_RECV : COMM_SEND;
        t.op.root = rank == from ? to : from;
        t.in_place = false;
    }
    bool gathers = t.op.kind == COMM_ALL_GATHER || t.op.kind == COMM_ALL_TO_ALL;
    t.send_count = t.op.kind == COMM_BROADCAST || t.op.kind == COMM_RECV ? 0 : t.op.count;
    t.send_count *= comm_sends_blocks(t.op.kind) ? size : 1;
    t.recv_count = t.op.kind == COMM_SEND ? 0 : t.op.count * (gathers ? size : 1);
    if (t.op.kind == COMM_BARRIER)
        t.send_count = t.recv_count = 0;
    return t;
}

static void fill(const struct trial *t, int rank, int salt, void *to, int64_t count)
{
    uint64_t state = t->seed + (uint64_t)rank * 1000003 + (uint64_t)salt * 777767777;
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = test_random(&state);
        double value = (double)(int64_t)(bits >> 12) / (double)(INT64_C(1) << 52) - 0.5;
        if (t->op.dtype == DTYPE_I32)
            ((int32_t *)to)[i] = (int32_t)bits;
        else if (t->op.dtype == DTYPE_U8)
            ((uint8_t *)to)[i] = (uint8_t)bits;
        else
            kernels_ref_f64()->cast((char *)to + i * dtype_size(t->op.dtype), t->op.dtype, &value, DTYPE_F64,
                                    1, NULL);
    }
}

/* Where the order of additions, or their rounding, is another one: an average of three, 16 bits at each step.
 */
static double tolerance(const struct trial *t, int size)
{
    bool narrow = t->op.dtype == DTYPE_BF16 || t->op.dtype == DTYPE_F16;
    bool even = size == 1 || size == 2 || size == 4;
    if (!comm_reduces(t->op.kind) || t->op.reduction == REDUCE_MAX)
        return 0;
    if (narrow && (size > 2 || t->op.reduction == REDUCE_AVERAGE))
        return t->op.dtype == DTYPE_BF16 ? 0x1p-6 : 0x1p-9;
    return t->op.reduction == REDUCE_AVERAGE && !even ? (t->op.dtype == DTYPE_F32 ? 1e-6 : 1e-14) : 0;
}

static double value_of(enum dtype dtype, const void *from, int64_t i)
{
    double value = 0;
    kernels_ref_f64()->cast(&value, DTYPE_F64, (const char *)from + i * dtype_size(dtype), dtype, 1, NULL);
    return value;
}

static int compare(const struct nccl_rank *r, const struct trial *t, const void *got, const void *expected,
                   int number)
{
    int64_t size = dtype_size(t->op.dtype);
    char text[COMM_TEXT];
    for (int64_t i = 0; i < t->recv_count; i++) {
        if (!memcmp((const char *)got + i * size, (const char *)expected + i * size, (size_t)size))
            continue;
        double a = value_of(t->op.dtype, got, i), b = value_of(t->op.dtype, expected, i);
        if (fabs(a - b) <= tolerance(t, r->size) * r->size)
            continue;
        fprintf(
            stderr, "rank %d of %d, operation %d, %s, host %d, in place %d: element %lld is %.9g, not %.9g\n",
            r->rank, r->size, number, comm_op_text(text, &t->op), t->host, t->in_place, (long long)i, a, b);
        return -1;
    }
    return 0;
}

struct pair {
    struct nccl_rank *nccl;
    const struct comm_ops *ops; /* comm's, which is tried */
    struct comm *comm;
    struct device *cpu;
    struct device_stream *stream;
    struct comm *shm;
    char *send, *recv, *expected_send, *expected; /* the host's; twice the half of an arena */
};

enum { HALF = NCCL_TEST_BYTES / 2 };

/* In place: one buffer. */
static void place(const struct trial *t, int rank, char *send, char *recv, char **s, char **d)
{
    int64_t part = t->op.count * dtype_size(t->op.dtype);
    *s = send;
    *d = recv;
    if (t->in_place && t->op.kind == COMM_ALL_GATHER)
        *s = recv + rank * part;
    if (t->in_place && t->op.kind == COMM_ALL_REDUCE)
        *s = recv;
    if (t->in_place && t->op.kind == COMM_REDUCE_SCATTER)
        *d = send + rank * part;
}

static int trial_run(struct pair *p, const struct trial *t, int number)
{
    struct nccl_rank *r = p->nccl;
    size_t bytes = (size_t)dtype_size(t->op.dtype), in = (size_t)t->send_count * bytes,
           out = (size_t)t->recv_count * bytes;
    struct muster_error err = {0};
    char *arena = r->arena.base, *send, *recv, *mine_send, *mine_recv;
    place(t, r->rank, p->expected_send, p->expected, &mine_send, &mine_recv);
    fill(t, r->rank, 1, mine_recv, t->recv_count);
    fill(t, r->rank, 0, mine_send, t->send_count);
    place(t, r->rank, t->host ? p->send : arena, t->host ? p->recv : arena + HALF, &send, &recv);
    char *first = malloc(in + 1), *second = malloc(out + 1);
    memcpy(first, mine_send, in);
    memcpy(second, mine_recv, out);
    int failed = 0;
    if (t->host) {
        memcpy(recv, second, out);
        memcpy(send, first, in);
    } else {
        failed = nccl_put(recv, second, out) || nccl_put(send, first, in);
    }
    if (comm_shm()->run(p->shm, &t->op, mine_send, mine_recv, &err))
        failed = nccl_complain(r, "comm_shm", err.text);
    else if (number % 2 && p->ops == comm_nccl()
                 ? p->ops->run(p->comm, &t->op, send, recv, &err)
                 : p->ops->issue(p->comm, &t->op, send, recv, r->stream, &err) ||
                       nccl_sync(r, r->stream, &err))
        failed = nccl_complain(r, p->ops->name, err.text);
    if (!failed && t->host)
        memcpy(second, recv, out);
    else if (!failed)
        failed = nccl_get(second, recv, out);
    failed = failed || compare(r, t, second, mine_recv, number);
    free(first);
    free(second);
    return failed ? -1 : 0;
}

int nccl_trials(struct nccl_rank *r, struct nccl_job *job, const struct comm_ops *ops, struct comm *comm,
                int64_t most, int count)
{
    struct muster_error err = {0};
    struct pair p = {.nccl = r, .ops = ops, .comm = comm};
    p.cpu = device_cpu()->open(r->rank, 1, &err);
    p.stream = p.cpu ? device_cpu()->stream_create(p.cpu, "comm", false, &err) : NULL;
    const struct comm_options options = {.rank = r->rank,
                                         .size = r->size,
                                         .store = &job->store,
                                         .key = "shm",
                                         .timeout_ns = 60 * NS_PER_S,
                                         .device = p.cpu,
                                         .device_ops = device_cpu()};
    p.shm = p.stream ? comm_shm()->create(&options, &err) : NULL;
    p.send = malloc(4 * (size_t)HALF);
    p.recv = p.send + HALF;
    p.expected_send = p.recv + HALF;
    p.expected = p.expected_send + HALF;
    int result = p.shm ? 0 : nccl_complain(r, "comm_shm", err.text);
    uint64_t state = job->seed;
    for (int number = 0; !result && number < count; number++) {
        struct trial t = make_trial(&state, r->rank, r->size, most);
        if (t.takes_part)
            result = trial_run(&p, &t, number);
    }
    comm_shm()->destroy(p.shm);
    device_cpu()->stream_destroy(p.stream);
    device_cpu()->close(p.cpu);
    free(p.send);
    return result;
}
