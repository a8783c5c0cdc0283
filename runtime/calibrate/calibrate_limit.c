/* calibrate_limit.c - the rates that a step's own limit is made of: its matrix products alone, and memory
 * that is read. */
#include "runtime/calibrate/calibrate.h"
#include "runtime/calibrate/calibrate_internal.h"

enum { SHAPES_MAX = 16, ROWS_MAX = 512, ROWS_MIN = 64, COLUMNS_MAX = 4096, READS = 3, RUNS = 8 };
static const double most_flops = 16e9;  /* for all shapes, once */
static const double most_seconds = 0.5; /* for all shapes and runs, but for the second run of each */

struct shape_of {
    int C, OC;
    double flops; /* operations of a row, over all layers */
};

/* The matrices that layers with products use. */
static int list_shapes(const struct model *model, const struct plan_options *o, struct shape_of *shapes)
{
    int count = 0;
    for (int l = 0; l < model->layer_count; l++) {
        const struct layer_desc *layer = &model->layers[l];
        struct layer_sizes sizes = {0};
        layer->ops->sizes(layer->config, o->shape, o->value_dtype, LAYER_TRAIN, o->kernels, &sizes);
        for (int i = 0; sizes.forward_flops > 0 && i < layer->param_count; i++) {
            const struct param_desc *p = &model->params[layer->param[i]];
            if (p->ndim != 2 || p->dim[0] < 2 || p->dim[1] < 2)
                continue;
            const int OC = p->dim[0] > COLUMNS_MAX ? COLUMNS_MAX : (int)p->dim[0], C = (int)p->dim[1];
            int at = 0;
            while (at < count && (shapes[at].C != C || shapes[at].OC != OC))
                at++;
            if (at == SHAPES_MAX)
                continue; /* the others stand for it */
            if (at == count)
                shapes[count++] = (struct shape_of){C, OC, 0};
            shapes[at].flops += 2.0 * (double)p->dim[0] * (double)p->dim[1];
        }
    }
    return count;
}

static int rows_of(const struct plan_options *o, const struct shape_of *shapes, int count)
{
    double row = 0;
    for (int i = 0; i < count; i++)
        row += 6.0 * shapes[i].C * shapes[i].OC;
    int64_t rows = (int64_t)o->shape.B * o->shape.T;
    rows = rows > ROWS_MAX ? ROWS_MAX : rows;
    if (row * (double)rows > most_flops)
        rows = (int64_t)(most_flops / row);
    return rows < ROWS_MIN ? ROWS_MIN : (int)rows;
}

int64_t calibrate_limit_bytes(const struct model *model, const struct plan *plan)
{
    struct shape_of shapes[SHAPES_MAX];
    const int count = list_shapes(model, &plan->options, shapes);
    const int64_t rows = rows_of(&plan->options, shapes, count), size = dtype_size(plan->options.dtype);
    int64_t most = 0;
    for (int i = 0; i < count; i++) {
        const int64_t C = shapes[i].C, OC = shapes[i].OC, bytes = size * (rows * (C + OC) + C * OC);
        most = bytes > most ? bytes : most;
    }
    return most;
}

double calibrate_limit_largest(const struct model *model, const struct plan_options *options)
{
    struct shape_of shapes[SHAPES_MAX];
    const int count = list_shapes(model, options, shapes), rows = rows_of(options, shapes, count);
    double most = 0;
    for (int i = 0; i < count; i++) {
        const double multiplications = (double)rows * shapes[i].C * shapes[i].OC;
        most = multiplications > most ? multiplications : most;
    }
    return most;
}

static void run_products(const struct calibrate_limit *limit, const struct shape_of *shape, int rows)
{
    const struct kernels *k = limit->kernels;
    const int64_t size = dtype_size(k->statistic);
    char *in = limit->scratch, *out = in + size * rows * shape->C, *weight = out + size * rows * shape->OC;
    k->linear_forward(out, in, weight, NULL, rows, shape->C, shape->OC, shape->OC, NULL);
    k->linear_backward_input(in, out, weight, rows, shape->C, shape->OC, shape->OC, 0, NULL);
    k->linear_backward_weight(weight, NULL, out, in, rows, shape->C, shape->OC, shape->OC, 0, NULL);
}

/* Each shape is weighted by its part of a step's products. The best of its runs counts: in the first runs of
 * a process its threads may still share a core. */
static double product_rate(const struct calibrate_limit *limit)
{
    struct shape_of shapes[SHAPES_MAX];
    const struct plan_options *o = &limit->plan->options;
    const int count = list_shapes(limit->model, o, shapes), rows = rows_of(o, shapes, count);
    const double all_begun = calibrate_seconds();
    double flops = 0, seconds = 0;
    for (int i = 0; i < count; i++) {
        const struct shape_of *s = &shapes[i];
        const double end = all_begun + most_seconds * (i + 1) / count;
        const int64_t bytes =
            dtype_size(limit->kernels->statistic) * ((int64_t)rows * (s->C + s->OC) + (int64_t)s->C * s->OC);
        double best = 0;
        for (int run = 0; run < RUNS && (run < 2 || calibrate_seconds() < end); run++) {
            calibrate_fill(limit->scratch, limit->kernels->value, bytes, 0.05);
            const double begun = calibrate_seconds();
            run_products(limit, s, rows);
            const double taken = calibrate_seconds() - begun;
            best = run == 0 || taken < best ? taken : best;
        }
        flops += s->flops;
        seconds += s->flops * best / (6.0 * rows * s->C * s->OC);
    }
    return seconds > 0 ? flops / seconds : 0;
}

static double read_rate(const struct calibrate_limit *limit)
{
    const struct kernels *k = limit->kernels;
    double squares, taken[READS];
    for (int i = 0; i < READS; i++) {
        const double begun = calibrate_seconds();
        k->norm_squared(&squares, limit->read, limit->read_bytes / dtype_size(k->statistic), 0, NULL);
        taken[i] = calibrate_seconds() - begun;
    }
    return (double)limit->read_bytes / calibrate_median(taken, READS);
}

void calibrate_limit_run(void *argument)
{
    struct calibrate_limit *limit = argument;
    limit->flops = product_rate(limit);
    limit->memory = read_rate(limit);
}
