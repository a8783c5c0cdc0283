/* calibrate.c - see calibrate.h. The ranks: threads with a device each, that begin every measurement
 * together. */
#include "runtime/calibrate/calibrate.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/narrow.h"
#include "proto/base/cgroup.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/thread.h"
#include "rendezvous/store/kv_memory.h"
#include "runtime/calibrate/calibrate_internal.h"

enum { RANKS_MAX = 64 };

/* ---- shared by the parts ---- */

int calibrate_together(struct calibrate_rank *rank, int failed)
{
    struct calibrate_crowd *crowd = rank->crowd;
    if (failed)
        atomic_store(&crowd->failed, 1);
    (void)pthread_barrier_wait(&crowd->barrier);
    failed = atomic_load(&crowd->failed);
    (void)pthread_barrier_wait(&crowd->barrier); /* before the next may fail */
    return failed ? -1 : 0;
}

int calibrate_at_once(struct calibrate_rank *rank, void (*fn)(void *), void *argument)
{
    if (calibrate_together(rank, 0))
        return -1;
    int failed = rank->ops->launch(rank->compute, fn, argument);
    if (failed)
        (void)error_set(&rank->err, MUSTER_E_STATE, "device %s refused work", rank->ops->name);
    failed = failed || rank->ops->sync(rank->compute, INSTANT_NEVER, &rank->err) ||
             rank->ops->poll_error(rank->device, &rank->err);
    return calibrate_together(rank, failed);
}

void calibrate_fill(void *values, enum dtype dtype, int64_t bytes, double scale)
{
    uint32_t state = 12345;
    for (int64_t i = 0; i < bytes / dtype_size(dtype); i++) {
        state = state * 1664525U + 1013904223U;
        const double value = scale * ((double)state / 2147483648.0 - 1);
        if (dtype == DTYPE_F64)
            ((double *)values)[i] = value;
        else if (dtype == DTYPE_BF16 || dtype == DTYPE_F16)
            ((uint16_t *)values)[i] =
                dtype == DTYPE_BF16 ? narrow_to_bf16((float)value) : narrow_to_f16((float)value);
        else
            ((float *)values)[i] = (float)value;
    }
}

static int ascending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double calibrate_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

double calibrate_seconds(void)
{
    return (double)instant_diff_ns(clock_now(NULL), (struct instant){0}) / (double)NS_PER_S;
}

/* ---- a rank ---- */

static int open_rank(struct calibrate_rank *rank)
{
    const struct calibrate_options *o = rank->crowd->options;
    rank->ops = device_cpu();
    rank->device = rank->ops->open(rank->rank, o->threads, &rank->err);
    if (!rank->device)
        return -1;
    rank->kernels = rank->ops->kernels(rank->device);
    if (o->plan->options.value_dtype != rank->kernels->value) /* buffers are the plan's */
        rank->kernels = o->plan->options.kernels;
    rank->compute = rank->ops->stream_create(rank->device, "compute", true, &rank->err);
    rank->side = rank->ops->stream_create(rank->device, "side", false, &rank->err);
    rank->found.layers = mem_calloc((size_t)o->model->layer_count, sizeof *rank->found.layers);
    if (!rank->found.layers)
        return error_set(&rank->err, MUSTER_E_NOMEM, "no memory to measure %d layers", o->model->layer_count);
    return rank->compute && rank->side ? calibrate_cold_open(rank) : -1;
}

static void close_rank(struct calibrate_rank *rank)
{
    calibrate_cold_close(rank);
    if (rank->compute)
        rank->ops->stream_destroy(rank->compute);
    if (rank->side)
        rank->ops->stream_destroy(rank->side);
    if (rank->device)
        rank->ops->close(rank->device);
}

static void *rank_main(void *argument)
{
    struct calibrate_rank *rank = argument;
    (void)pthread_mutex_lock(&rank->crowd->gate);
    const bool complete = rank->crowd->complete;
    (void)pthread_mutex_unlock(&rank->crowd->gate);
    if (!complete)
        return NULL;
    if (calibrate_together(rank, open_rank(rank)) == 0 && calibrate_layers(rank) == 0 &&
        calibrate_ops(rank) == 0)
        (void)calibrate_comm(rank); /* a failure is the crowd's */
    close_rank(rank);
    return NULL;
}

/* ---- all of them ---- */

static void add_line(struct plan_line *sum, const struct plan_line *part, double weight)
{
    sum->begin_s += part->begin_s * weight;
    sum->byte_s += part->byte_s * weight;
}

static void take_means(struct calibration *out, const struct calibrate_rank *ranks, int count, int layers)
{
    const double weight = 1.0 / count;
    for (int r = 0; r < count; r++) {
        const struct plan_rates *rates = &ranks[r].found.rates;
        for (int l = 0; l < layers; l++) {
            out->layers[l].forward_s += ranks[r].found.layers[l].forward_s * weight;
            out->layers[l].backward_s += ranks[r].found.layers[l].backward_s * weight;
            out->layers[l].again_s += ranks[r].found.layers[l].again_s * weight;
        }
        for (int k = 0; k < OP_KIND_COUNT; k++)
            add_line(&out->rates.op[k], &rates->op[k], weight);
        for (int k = 0; k < COMM_KIND_COUNT; k++)
            add_line(&out->rates.comm[k], &rates->comm[k], weight);
        add_line(&out->rates.cast_narrow, &rates->cast_narrow, weight);
        out->rates.launch_s += rates->launch_s * weight;
    }
    out->rates.layers = out->layers;
    out->kinds = ranks[0].found.kinds;
}

/* Starts all ranks or none: a barrier waits for their number. Returns how many threads there are; *failed is
 * why not all, as thread_start gives it. */
static int start_ranks(struct calibrate_crowd *crowd, struct calibrate_rank *ranks, pthread_t *threads,
                       int count, int *failed)
{
    int started = 0;
    (void)pthread_mutex_lock(&crowd->gate);
    for (*failed = 0; started < count; started++) {
        ranks[started].crowd = crowd;
        ranks[started].rank = started;
        *failed = thread_start(&threads[started], 0, rank_main, &ranks[started]);
        if (*failed)
            break;
    }
    crowd->complete = started == count;
    (void)pthread_mutex_unlock(&crowd->gate);
    return started;
}

/* -1 with the first rank's error. */
static int run_ranks(struct calibrate_crowd *crowd, struct calibrate_rank *ranks, int count,
                     struct muster_error *err)
{
    pthread_t threads[RANKS_MAX];
    int failed;
    const int started = start_ranks(crowd, ranks, threads, count, &failed);
    for (int r = 0; r < started; r++)
        (void)pthread_join(threads[r], NULL);
    if (started < count)
        return thread_error(err, failed, "thread %d of %d to measure with", started + 1, count);
    if (!atomic_load(&crowd->failed))
        return 0;
    for (int r = 0; r < count; r++)
        if (ranks[r].err.code && err) {
            *err = ranks[r].err;
            break;
        }
    return -1;
}

GUARD_DEFINE(kv_memory, struct kv_memory *, kv_memory_destroy);

int calibrate(const struct calibrate_options *options, struct calibration *out, struct muster_error *err)
{
    const struct instant begun = clock_now(NULL);
    const int count = options->ranks, layers = options->model->layer_count;
    *out = (struct calibration){0};
    if (count < 1 || count > RANKS_MAX || !options->plan->options.train)
        return error_set(err, MUSTER_E_INVALID,
                         "%d ranks measure a plan; use 1 to %d, and a plan that trains", count, RANKS_MAX);
    struct calibrate_crowd crowd = {.options = options, .gate = PTHREAD_MUTEX_INITIALIZER};
    scope_free struct calibrate_rank *ranks = mem_calloc((size_t)count, sizeof *ranks);
    GUARD(guard_kv_memory) struct kv_memory *store = kv_memory_create(err);
    struct plan_layer_times *times = mem_calloc((size_t)layers, sizeof *times);
    if (!ranks || !store || !times || pthread_barrier_init(&crowd.barrier, NULL, (unsigned)count)) {
        mem_free(times);
        return error_set(err, MUSTER_E_NOMEM, "no memory to measure with %d ranks", count);
    }
    crowd.store = kv_memory_store(store);
    out->layers = times;
    const int result = run_ranks(&crowd, ranks, count, err);
    if (result == 0)
        take_means(out, ranks, count, layers);
    out->rates.cores_shared = count > 1 && (int64_t)count * options->threads >= cgroup_cores();
    out->taken_ns = instant_diff_ns(clock_now(NULL), begun);
    for (int r = 0; r < count; r++)
        mem_free(ranks[r].found.layers);
    (void)pthread_barrier_destroy(&crowd.barrier);
    if (result < 0)
        calibration_free(out);
    return result < 0 ? error_wrap(err, "measuring the plan's layers") : 0;
}

void calibration_free(struct calibration *calibration)
{
    mem_free(calibration->layers);
    *calibration = (struct calibration){0};
}
