/* calibrate_comm.c - what collectives of this machine's ranks take: a small one gives the beginning, a large
 * one the bytes. */
#include "proto/base/error.h"
#include "runtime/calibrate/calibrate_internal.h"
#include "runtime/comm/comm_internal.h"

enum { SMALL = 256, LARGE_MAX = 2 << 20, SMALL_RUNS = 32, LARGE_RUNS = 5 };

struct meeting {
    struct calibrate_rank *rank;
    struct comm *comm;
    char *send, *recv;
    int64_t bytes; /* send and recv together */
};

static int issue(const struct meeting *m, const struct comm_op *op, int runs)
{
    struct calibrate_rank *rank = m->rank;
    for (int i = 0; i < runs; i++)
        if (comm_shm()->issue(m->comm, op, m->send, m->recv, rank->side, &rank->err))
            return -1;
    return rank->ops->sync(rank->side, INSTANT_NEVER, &rank->err) ||
                   rank->ops->poll_error(rank->device, &rank->err)
               ? -1
               : 0;
}

/* Seconds of one small operation. */
static int measure_small(const struct meeting *m, const struct comm_op *op, double *seconds)
{
    if (calibrate_together(m->rank, issue(m, op, 1)))
        return -1;
    const double begun = calibrate_seconds();
    const int failed = issue(m, op, SMALL_RUNS);
    *seconds = (calibrate_seconds() - begun) / SMALL_RUNS;
    return calibrate_together(m->rank, failed);
}

static void cool(void *meeting)
{
    const struct meeting *m = meeting;
    calibrate_cool(m->rank, m->bytes);
}

/* Measures a large operation, on memory that is as cold as in a step; the first run is not counted. */
static int measure_large(struct meeting *m, const struct comm_op *op, double *seconds)
{
    double taken[LARGE_RUNS + 1];
    for (int i = 0; i <= LARGE_RUNS; i++) {
        if (calibrate_at_once(m->rank, cool, m))
            return -1;
        const double begun = calibrate_seconds();
        const int failed = issue(m, op, 1);
        taken[i] = calibrate_seconds() - begun;
        if (calibrate_together(m->rank, failed))
            return -1;
    }
    *seconds = calibrate_median(taken + 1, LARGE_RUNS);
    return 0;
}

static int measure_kind(struct meeting *m, enum comm_kind kind, enum dtype dtype, int64_t large)
{
    const int ranks = m->rank->crowd->options->ranks;
    struct comm_op op = {.kind = kind, .dtype = dtype, .reduction = REDUCE_SUM, .count = SMALL};
    double small_s, large_s;
    if (measure_small(m, &op, &small_s))
        return -1;
    const double small_bytes = (double)comm_received_bytes(&op, ranks);
    op.count = large;
    if (measure_large(m, &op, &large_s))
        return -1;
    const double bytes = (double)comm_received_bytes(&op, ranks) - small_bytes;
    struct plan_line *line = &m->rank->found.rates.comm[kind];
    *line = (struct plan_line){small_s, large_s > small_s ? (large_s - small_s) / bytes : 0};
    return 0;
}

static int measure_all(struct meeting *m, int64_t large)
{
    const struct plan_options *o = &m->rank->crowd->options->plan->options;
    if (measure_kind(m, COMM_ALL_GATHER, o->param_dtype, large) ||
        measure_kind(m, COMM_REDUCE_SCATTER, o->reduce_dtype, large) ||
        measure_kind(m, COMM_ALL_REDUCE, o->reduce_dtype, large))
        return -1;
    return 0;
}

/* Elements of a rank's largest part of a group, from 2 * SMALL to LARGE_MAX. */
static int64_t large_part(const struct plan *plan)
{
    int64_t large = SMALL * 2;
    for (int g = 0; g < plan->group_count; g++)
        large = plan->groups[g].shard > large ? plan->groups[g].shard : large;
    return large > LARGE_MAX ? LARGE_MAX : large;
}

int calibrate_comm(struct calibrate_rank *rank)
{
    const struct calibrate_options *o = rank->crowd->options;
    if (o->ranks == 1)
        return 0;
    const int64_t large = large_part(o->plan),
                  whole = large * o->ranks * dtype_size(rank->kernels->statistic);
    struct device_arena arena = {0};
    struct meeting m = {.rank = rank, .bytes = 2 * whole};
    int failed = rank->ops->arena_create(rank->device, MEMORY_COMM, 2 * whole, &arena, &rank->err);
    m.send = arena.base;
    m.recv = failed ? NULL : m.send + whole;
    if (!failed)
        calibrate_fill(m.send, rank->kernels->statistic, 2 * whole, 0.01);
    int result = calibrate_together(rank, failed);
    if (!result) {
        m.comm = comm_shm()->create(&(struct comm_options){.rank = rank->rank,
                                                           .size = o->ranks,
                                                           .store = &rank->crowd->store,
                                                           .key = "calibrate",
                                                           .timeout_ns = 60 * NS_PER_S,
                                                           .device = rank->device,
                                                           .device_ops = rank->ops,
                                                           .arenas = &arena,
                                                           .arena_count = 1},
                                    &rank->err);
        result = calibrate_together(rank, !m.comm);
    }
    if (!result)
        result = measure_all(&m, large);
    comm_shm()->destroy(m.comm);
    if (arena.base)
        rank->ops->arena_destroy(rank->device, &arena);
    return result;
}
