/* plan_cost.c - see plan_cost.h. Streams are queues and operations wait for each other as in a run; an
 * operation takes as long as its products and the bytes that it moves take. */
#include "runtime/plan/plan_cost.h"

#include "proto/base/error.h"
#include "proto/base/guard.h"

enum { STEPS_PREDICTED = 3 }; /* the first begins with nothing; from the second on all are alike */

struct plan_rates plan_rates_nominal(int threads)
{
    const double cores = threads > 1 ? threads : 1;
    return (struct plan_rates){.flops = 60e9 * cores, .memory = 8e9 * cores, .comm = 4e9, .latency_s = 20e-6};
}

/* ---- one operation ---- */

struct layer_cost {
    double flops, bytes; /* of a forward call */
};

static double layer_seconds(const struct model *model, const struct schedule_op *op,
                            const struct layer_cost *layer, const struct plan_rates *rates)
{
    const bool loss = op->layer == model->layer_count - 1, train = op->mode != LAYER_EVAL;
    double calls = 1;
    if (op->kind == OP_BACKWARD) /* a product for the input's gradient and one for the weight's */
        calls = (op->parts & LAYER_INPUT ? 1 : 0) + (op->parts & LAYER_WEIGHT ? 1 : 0);
    if (loss && train) /* its backward forms everything, see model.h */
        calls = op->kind == OP_BACKWARD ? calls + 1 : 0;
    return calls * (layer->flops / rates->flops + layer->bytes / rates->memory);
}

static double comm_seconds(const struct plan *plan, const struct schedule_op *op,
                           const struct plan_rates *rates)
{
    const struct mesh *mesh = &plan->options.mesh;
    const int sizes[AXIS_COUNT] = {[AXIS_SHARD] = mesh->shard,
                                   [AXIS_REPLICATE] = mesh->replicate,
                                   [AXIS_PIPELINE] = mesh->pipeline,
                                   [AXIS_TIED] = 2,
                                   [AXIS_WORLD] = mesh_size(*mesh)};
    const double bytes = (double)op->comm.count * dtype_size(op->comm.dtype), ranks = sizes[op->axis];
    double received = bytes;
    if (op->comm.kind == COMM_ALL_GATHER || op->comm.kind == COMM_REDUCE_SCATTER)
        received = bytes * (ranks - 1);
    else if (op->comm.kind == COMM_ALL_REDUCE)
        received = 2 * bytes * (ranks - 1) / ranks;
    return rates->latency_s + received / rates->comm;
}

static double op_seconds(const struct model *model, const struct plan *plan, const struct schedule_op *op,
                         const struct layer_cost *layers, const struct plan_rates *rates)
{
    const double bytes = (double)op->bytes;
    switch (op->kind) {
    case OP_FORWARD:
    case OP_BACKWARD:
        return layer_seconds(model, op, &layers[op->layer], rates);
    case OP_COMM:
        return comm_seconds(plan, op, rates);
    case OP_STEP: /* gradient, parameter and moments are read; all but the gradient are written */
        return bytes * (3 + 2 * optimizer_moments(&plan->options.optimizer)) / rates->memory;
    case OP_COPY:
    case OP_ENCODE:
    case OP_DECODE:
        return 2 * bytes / rates->memory;
    default:
        return bytes / rates->memory;
    }
}

/* ---- a run ---- */

struct prediction {
    double *finished; /* [op] in the step that is followed; before that in the one before */
    double streams[STREAM_COUNT], compute, comm, exposed;
};

static void predict_op(struct prediction *p, const struct schedule_op *op, int index, double seconds)
{
    double *stream = &p->streams[op->stream], start = *stream;
    for (int i = 0; i < op->wait_count; i++) /* a later one still has the time of the step before */
        start = p->finished[op->wait[i]] > start ? p->finished[op->wait[i]] : start;
    if (op->stream == STREAM_COMPUTE)
        p->exposed += start - *stream;
    *(op->stream == STREAM_COMPUTE ? &p->compute : &p->comm) += seconds;
    *stream = p->finished[index] = start + seconds;
}

static void predict_steps(const struct plan *plan, const double *seconds, struct prediction *p,
                          struct plan_cost *cost)
{
    for (int step = 0; step < STEPS_PREDICTED; step++) {
        const double begun = p->streams[STREAM_COMPUTE];
        p->compute = p->comm = p->exposed = 0;
        for (int s = 0; s < STREAM_COUNT; s++) /* the host enqueues it then */
            p->streams[s] = p->streams[s] > begun ? p->streams[s] : begun;
        for (int o = 0; o < plan->op_count; o++)
            predict_op(p, &plan->ops[o], o, seconds[o]);
        *cost = (struct plan_cost){p->streams[STREAM_COMPUTE] - begun, p->compute, p->comm, p->exposed};
    }
}

int plan_predict(const struct model *model, const struct plan *plan, const struct plan_rates *rates,
                 struct plan_cost *cost, struct muster_error *err)
{
    const struct plan_options *o = &plan->options;
    scope_free struct layer_cost *layers = mem_calloc((size_t)model->layer_count, sizeof *layers);
    scope_free double *numbers = mem_calloc((size_t)plan->op_count * 2, sizeof *numbers);
    if (!layers || !numbers)
        return error_set(err, MUSTER_E_NOMEM, "no memory to predict a plan of %d operations", plan->op_count);
    for (int l = 0; l < model->layer_count; l++) {
        struct layer_sizes sizes = {0};
        model->layers[l].ops->sizes(model->layers[l].config, o->shape, o->dtype,
                                    o->train ? LAYER_TRAIN : LAYER_EVAL, o->kernels, &sizes);
        layers[l] = (struct layer_cost){sizes.forward_flops, (double)(sizes.out + sizes.saved) * 2};
    }
    for (int i = 0; i < plan->op_count; i++)
        numbers[i] = op_seconds(model, plan, &plan->ops[i], layers, rates);
    struct prediction p = {.finished = numbers + plan->op_count};
    predict_steps(plan, numbers, &p, cost);
    return 0;
}
