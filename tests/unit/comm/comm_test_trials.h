/* comm_test_trials.h - random operations for comm tests, whose results every rank can compute by itself. */
#ifndef MUSTER_TESTS_COMM_TEST_TRIALS_H
#define MUSTER_TESTS_COMM_TEST_TRIALS_H

#include "tests/support/walk.h"
#include "tests/unit/comm/comm_test_ranks.h"

/* What every rank can work out about an operation, the other ranks' data included. */
struct trial {
    struct comm_op op;
    uint64_t seed;
    int64_t send_count, recv_count; /* elements */
    bool send_arena, recv_arena, in_place;
};

/* Element i of what `rank` sends (or has in its receive buffer before: salt 1). Small integers and halves in
 * some types, so that sums are exact nowhere by accident but fit everywhere. */
static inline double value_at(const struct trial *t, int rank, int salt, int64_t i)
{
    uint64_t state = t->seed + (uint64_t)rank * 1000003 + (uint64_t)salt * 777767777 + (uint64_t)i * 31;
    uint64_t bits = test_random(&state);
    if (t->op.dtype == DTYPE_U8)
        return (double)(bits & 255);
    if (t->op.dtype == DTYPE_I32)
        return (double)(int32_t)(bits & 0xffffffff);
    return (double)(int64_t)(bits >> 12) / (double)(INT64_C(1) << 52) - 0.5;
}

static inline void store_value(enum dtype dtype, void *to, int64_t i, double value)
{
    switch (dtype) {
    case DTYPE_F32:
        ((float *)to)[i] = (float)value;
        break;
    case DTYPE_F64:
        ((double *)to)[i] = value;
        break;
    case DTYPE_I32:
        ((int32_t *)to)[i] = (int32_t)value;
        break;
    case DTYPE_U8:
        ((uint8_t *)to)[i] = (uint8_t)value;
        break;
    default: /* 16-bit floats */
        kernels_ref_f64()->cast((uint16_t *)to + i, dtype, &value, DTYPE_F64, 1, NULL);
        break;
    }
}

static inline double load_value(enum dtype dtype, const void *from, int64_t i)
{
    double value = 0;
    switch (dtype) {
    case DTYPE_F32:
        return ((const float *)from)[i];
    case DTYPE_F64:
        return ((const double *)from)[i];
    case DTYPE_I32:
        return ((const int32_t *)from)[i];
    case DTYPE_U8:
        return ((const uint8_t *)from)[i];
    default:
        kernels_ref_f64()->cast(&value, DTYPE_F64, (const uint16_t *)from + i, dtype, 1, NULL);
        return value;
    }
}

/* The stored value of value_at, read back: rounded to the dtype. */
static inline double sent(const struct trial *t, int rank, int64_t i)
{
    char room[8];
    store_value(t->op.dtype, room, 0, value_at(t, rank, 0, i));
    return load_value(t->op.dtype, room, 0);
}
static inline double before(const struct trial *t, int rank, int64_t i)
{
    char room[8];
    store_value(t->op.dtype, room, 0, value_at(t, rank, 1, i));
    return load_value(t->op.dtype, room, 0);
}

/* The reduction of element i over all ranks in rank order, in the dtype's own arithmetic, one by one. */
static inline void naive_reduce(const struct trial *t, int me, int size, int64_t source, int64_t i, void *out)
{
    bool max = t->op.reduction == REDUCE_MAX, average = t->op.reduction == REDUCE_AVERAGE;
    if (t->op.dtype == DTYPE_F64) {
        double sum = sent(t, 0, source);
        for (int rank = 1; rank < size; rank++) {
            double next = sent(t, rank, source);
            sum = max ? (next > sum ? next : sum) : sum + next;
        }
        sum = average ? sum * (1.0 / size) : sum;
        ((double *)out)[0] = t->op.accumulate ? before(t, me, i) + sum : sum;
    } else if (t->op.dtype == DTYPE_I32) {
        int32_t sum = (int32_t)sent(t, 0, source);
        for (int rank = 1; rank < size; rank++) {
            int32_t next = (int32_t)sent(t, rank, source);
            sum = max ? (next > sum ? next : sum) : (int32_t)((uint32_t)sum + (uint32_t)next);
        }
        ((int32_t *)out)[0] =
            t->op.accumulate ? (int32_t)((uint32_t)(int32_t)before(t, me, i) + (uint32_t)sum) : sum;
    } else {
        float sum = (float)sent(t, 0, source);
        for (int rank = 1; rank < size; rank++) {
            float next = (float)sent(t, rank, source);
            sum = max ? (next > sum ? next : sum) : sum + next;
        }
        sum = average ? sum * (1.0F / (float)size) : sum;
        store_value(t->op.dtype, out, 0, t->op.accumulate ? sum + (float)before(t, me, i) : sum);
    }
}

static inline void expected_at(const struct trial *t, int me, int size, int64_t i, void *out)
{
    int64_t count = t->op.count;
    enum dtype dtype = t->op.dtype;
    switch (t->op.kind) {
    case COMM_ALL_GATHER:
        store_value(dtype, out, 0, value_at(t, (int)(i / count), 0, i % count));
        break;
    case COMM_ALL_TO_ALL:
        store_value(dtype, out, 0, value_at(t, (int)(i / count), 0, me * count + i % count));
        break;
    case COMM_REDUCE_SCATTER:
        naive_reduce(t, me, size, me * count + i, i, out);
        break;
    case COMM_ALL_REDUCE:
        naive_reduce(t, me, size, i, i, out);
        break;
    case COMM_BROADCAST:
        store_value(dtype, out, 0, value_at(t, t->op.root, 1, i));
        break;
    case COMM_RECV:
        store_value(dtype, out, 0, value_at(t, t->op.root, 0, i));
        break;
    default:
        break;
    }
}

static inline struct trial make_trial(uint64_t *state, int rank, int size)
{
    static const enum comm_kind kinds[] = {COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE,
                                           COMM_BROADCAST,  COMM_ALL_TO_ALL,     COMM_SEND,
                                           COMM_BARRIER};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F32,  DTYPE_F64, DTYPE_I32,
                                        DTYPE_U8,  DTYPE_BF16, DTYPE_F16};
    static const int64_t most[] = {1, 40, 5000, 40000, 150000};
    struct trial t = {0};
    t.op.kind = kinds[test_random(state) % (sizeof kinds / sizeof *kinds)];
    t.op.dtype = dtypes[test_random(state) % (sizeof dtypes / sizeof *dtypes)];
    t.op.reduction = (enum comm_reduction)(test_random(state) % 3);
    int64_t limit = most[test_random(state) % (sizeof most / sizeof *most)] / size + 1;
    t.op.count = (int64_t)(test_random(state) % (uint64_t)(limit + 1));
    t.op.root = (int)(test_random(state) % (uint64_t)size);
    bool reduces = t.op.kind == COMM_REDUCE_SCATTER || t.op.kind == COMM_ALL_REDUCE;
    bool accumulate = test_random(state) % 3 == 0;
    t.op.accumulate = reduces && accumulate;
    if (reduces && t.op.dtype == DTYPE_U8)
        t.op.dtype = DTYPE_F32;
    if (reduces && t.op.dtype == DTYPE_I32 && t.op.reduction == REDUCE_AVERAGE)
        t.op.reduction = REDUCE_SUM;
    t.in_place = test_random(state) % 2 && t.op.kind != COMM_ALL_TO_ALL && !t.op.accumulate;
    t.seed = test_random(state);
    /* Mostly all in arenas; else each rank as it likes, so that one rank's choice stages all. */
    bool arenas = test_random(state) % 4 != 0;
    uint64_t own = t.seed + (uint64_t)rank;
    t.send_arena = arenas || test_random(&own) % 2;
    t.recv_arena = arenas || test_random(&own) % 2;
    if (t.op.kind == COMM_SEND) { /* a random pair; the others do nothing */
        int from = t.op.root, to = size > 1 ? (from + 1 + (int)(t.seed % (uint64_t)(size - 1))) % size : from;
        t.op.kind = from == to || (rank != from && rank != to) ? COMM_KIND_COUNT
                    : rank == from                             ? COMM_SEND
                                                               : COMM_RECV;
        t.op.root = rank == from ? to : from;
        t.in_place = false;
    }
    if (t.op.kind == COMM_BARRIER)
        return t;
    bool blocks = t.op.kind == COMM_REDUCE_SCATTER || t.op.kind == COMM_ALL_TO_ALL;
    t.send_count = t.op.kind == COMM_BROADCAST || t.op.kind == COMM_RECV ? 0 : t.op.count;
    t.send_count = blocks ? size * t.op.count : t.send_count;
    t.recv_count = t.op.kind == COMM_ALL_GATHER || t.op.kind == COMM_ALL_TO_ALL ? size * t.op.count
                   : t.op.kind == COMM_SEND                                     ? 0
                                                                                : t.op.count;
    return t;
}

struct buffers {
    char *heap_send, *heap_recv;
    void *send, *recv;
};

static inline void place_buffers(struct test_rank *r, const struct trial *t, struct buffers *b)
{
    int64_t size = dtype_size(t->op.dtype), part = t->op.count * size;
    char *arena = r->arena.base;
    int64_t odd = (int64_t)(t->seed % 5) * size; /* not at the same offset in every operation */
    b->send = (t->send_arena ? arena : b->heap_send) + odd;
    b->recv = (t->recv_arena ? arena + TEST_ARENA_BYTES / 2 : b->heap_recv) + odd;
    if (t->in_place && t->op.kind == COMM_ALL_GATHER)
        b->send = (char *)b->recv + r->rank * part;
    if (t->in_place && t->op.kind == COMM_ALL_REDUCE)
        b->send = b->recv;
    if (t->in_place && t->op.kind == COMM_REDUCE_SCATTER)
        b->recv = (char *)b->send + r->rank * part;
    for (int64_t i = 0; i < t->recv_count; i++)
        store_value(t->op.dtype, b->recv, i, value_at(t, r->rank, 1, i));
    for (int64_t i = 0; i < t->send_count; i++)
        store_value(t->op.dtype, b->send, i, value_at(t, r->rank, 0, i));
}

static inline int check_trial(struct test_rank *r, const struct trial *t, const struct buffers *b, int number)
{
    int64_t size = dtype_size(t->op.dtype);
    char text[COMM_TEXT], expected[8];
    for (int64_t i = 0; i < t->recv_count; i++) {
        expected_at(t, r->rank, r->size, i, expected);
        if (!memcmp((char *)b->recv + i * size, expected, (size_t)size))
            continue;
        fprintf(stderr,
                "rank %d of %d, operation %d, %s, arenas %d %d, in place %d: element %lld is %.9g, expected "
                "%.9g\n",
                r->rank, r->size, number, comm_op_text(text, &t->op), t->send_arena, t->recv_arena,
                t->in_place, (long long)i, load_value(t->op.dtype, b->recv, i),
                load_value(t->op.dtype, expected, 0));
        return -1;
    }
    return 0;
}

#endif
