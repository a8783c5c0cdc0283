/* calibrate_ops.c - times of passes over memory: the optimizer, norms, casts, copies; and the cost of a
 * launch. */
#include <string.h>

#include "proto/base/error.h"
#include "runtime/calibrate/calibrate_internal.h"

enum { ELEMENTS_MIN = 1 << 14, ELEMENTS_MAX = 8 << 20, RUNS = 5, LAUNCHES = 512 };

struct arrays {
    struct calibrate_rank *rank;
    char *part[4]; /* arrays of elements: parameter, moments, gradient */
    struct step_scalars scalars;
    int64_t elements;
};

static void run_norm(const struct arrays *a)
{
    double squares;
    a->rank->kernels->norm_squared(&squares, a->part[3], a->elements, 0, NULL);
}

static void run_step(const struct arrays *a)
{
    const struct kernels *k = a->rank->kernels;
    const struct plan_options *o = &a->rank->crowd->options->plan->options;
    const int64_t n = a->elements;
    void *moved = NULL;
    if (o->optimizer.kind == OPTIMIZER_SGD)
        k->sgd(a->part[0], optimizer_moments(&o->optimizer) ? a->part[1] : NULL, a->part[3],
               OPTIMIZER_WHOLE(n, 0), o->optimizer.momentum, o->optimizer.dampening, o->optimizer.nesterov,
               moved, k->statistic, &a->scalars, NULL);
    else
        (o->optimizer.kind == OPTIMIZER_ADAM ? k->adam : k->adamw)(a->part[0], a->part[1], a->part[2],
                                                                   a->part[3], OPTIMIZER_WHOLE(n, 0), moved,
                                                                   k->statistic, &a->scalars, NULL);
}

static void run_average(const struct arrays *a)
{
    a->rank->kernels->average(a->part[0], a->part[1], 0.99, a->elements, &a->scalars, NULL);
}

static void run_rows(const struct arrays *a)
{
    enum { WIDTH = 64 };
    const int rows = (int)(a->elements / WIDTH);
    a->rank->kernels->rows_add(a->part[0], 0, a->elements, 0, a->part[1], NULL, rows, rows, WIDTH, NULL);
}

static void run_copy(const struct arrays *a)
{
    memcpy(a->part[0], a->part[1], (size_t)(a->elements * dtype_size(a->rank->kernels->statistic)));
}

static void run_fill(const struct arrays *a)
{
    memset(a->part[2], 0, (size_t)(a->elements * dtype_size(a->rank->kernels->statistic)));
}

static enum dtype narrow_dtype(const struct arrays *a)
{
    const struct plan_options *o = &a->rank->crowd->options->plan->options;
    return o->param_dtype != o->dtype ? o->param_dtype : o->reduce_dtype;
}

static void run_narrow(const struct arrays *a)
{
    a->rank->kernels->cast(a->part[2], narrow_dtype(a), a->part[0], a->rank->kernels->statistic, a->elements,
                           NULL);
}

static void run_widen(const struct arrays *a)
{
    a->rank->kernels->widen(a->part[1], a->part[2], narrow_dtype(a), 0, a->elements, NULL);
}

/* Writes the gradient, as the call or collective before a norm does in a step. */
static void write_gradient(const struct arrays *a)
{
    a->rank->kernels->scale(a->part[3], 1, a->elements, NULL);
}

/* Seconds a byte, the arrays as cold as in a step, but for what `before` writes (NULL: nothing). */
static double byte_seconds(struct arrays *a, void (*run)(const struct arrays *),
                           void (*before)(const struct arrays *))
{
    double taken[RUNS];
    run(a);
    for (int i = 0; i < RUNS; i++) {
        calibrate_cool(a->rank, 4 * a->elements * dtype_size(a->rank->kernels->statistic));
        if (before)
            before(a);
        const double begun = calibrate_seconds();
        run(a);
        taken[i] = calibrate_seconds() - begun;
    }
    return calibrate_median(taken, RUNS) / ((double)a->elements * dtype_size(a->rank->kernels->statistic));
}

static void run_all(void *argument)
{
    struct arrays *a = argument;
    struct plan_rates *rates = &a->rank->found.rates;
    rates->op[OP_NORM].byte_s = byte_seconds(a, run_norm, write_gradient);
    rates->op[OP_STEP].byte_s = byte_seconds(a, run_step, NULL);
    rates->op[OP_AVERAGE].byte_s = byte_seconds(a, run_average, NULL);
    if (a->rank->kernels->rows_add)
        rates->op[OP_ROWS].byte_s = byte_seconds(a, run_rows, NULL);
    rates->op[OP_COPY].byte_s = byte_seconds(a, run_copy, NULL);
    rates->op[OP_FILL].byte_s = byte_seconds(a, run_fill, NULL);
    if (narrow_dtype(a) == a->rank->kernels->statistic)
        return;
    rates->cast_narrow.byte_s = byte_seconds(a, run_narrow, NULL);
    rates->op[OP_CAST].byte_s = byte_seconds(a, run_widen, NULL);
}

static void run_nothing(void *argument)
{
    (void)argument;
}

static int measure_launch(struct calibrate_rank *rank)
{
    const double begun = calibrate_seconds();
    int failed = 0;
    for (int i = 0; !failed && i < LAUNCHES; i++)
        failed = rank->ops->launch(rank->compute, run_nothing, NULL);
    failed = failed || rank->ops->sync(rank->compute, INSTANT_NEVER, &rank->err);
    rank->found.rates.launch_s = (calibrate_seconds() - begun) / LAUNCHES;
    return calibrate_together(rank, failed);
}

int calibrate_ops(struct calibrate_rank *rank)
{
    const struct plan *plan = rank->crowd->options->plan;
    const int64_t size = dtype_size(rank->kernels->statistic);
    int64_t held = 0; /* bytes of the optimizer's memory that a step passes over */
    for (int g = 0; g < plan->group_count; g++)
        held += plan->groups[g].trainable ? plan->groups[g].shard : 0;
    struct arrays arrays = {.rank = rank, .elements = held};
    arrays.elements = arrays.elements < ELEMENTS_MIN ? ELEMENTS_MIN : arrays.elements;
    arrays.elements = arrays.elements > ELEMENTS_MAX ? ELEMENTS_MAX : arrays.elements;
    arrays.scalars = (struct step_scalars){.learning_rate = {1e-3, 1e-3},
                                           .weight_decay = {0.1},
                                           .beta1 = 0.9,
                                           .beta2 = 0.95,
                                           .epsilon = 1e-8,
                                           .bias_correction1 = 0.1,
                                           .bias_correction2 = 0.05,
                                           .clip = 1,
                                           .step = 2};
    const int64_t bytes = arrays.elements * size;
    struct device_arena comm = {0}, moments = {0};
    int failed = rank->ops->arena_create(rank->device, MEMORY_COMM, 2 * bytes, &comm, &rank->err);
    failed = failed || rank->ops->arena_create(rank->device, MEMORY_DEVICE, 2 * bytes, &moments, &rank->err);
    for (int i = 0; !failed && i < 4; i++) {
        const bool moment = i == 1 || i == 2;
        arrays.part[i] = (char *)(moment ? moments : comm).base + (i > 1 ? bytes : 0);
        calibrate_fill(arrays.part[i], rank->kernels->statistic, bytes, 0.1);
    }
    int result = calibrate_together(rank, failed);
    if (!result)
        result = calibrate_at_once(rank, run_all, &arrays);
    if (comm.base)
        rank->ops->arena_destroy(rank->device, &comm);
    if (moments.base)
        rank->ops->arena_destroy(rank->device, &moments);
    return result ? result : measure_launch(rank);
}
