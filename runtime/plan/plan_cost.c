/* plan_cost.c - see plan_cost.h. Streams are queues and operations wait for each other as in a run. The time
 * of an operation is the time of its products and moved bytes. */
#include "runtime/plan/plan_cost.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

enum { STEPS_PREDICTED = 3 }; /* the first begins with nothing; all later steps are equal */

struct plan_rates plan_rates_of(double flops, double memory, double line)
{
    const double byte_s = 1 / memory;
    struct plan_rates rates = {.flops = flops, .memory = memory};
    for (int k = 0; k < OP_KIND_COUNT; k++)
        rates.op[k].byte_s = byte_s;
    rates.op[OP_COPY].byte_s = rates.op[OP_ENCODE].byte_s = rates.op[OP_DECODE].byte_s = 2 * byte_s;
    rates.op[OP_STEP].byte_s = 7 * byte_s; /* bytes of Adam, see moved_bytes */
    rates.op[OP_AVERAGE].byte_s = rates.op[OP_ROWS].byte_s = 3 * byte_s;
    rates.op[OP_CAST].byte_s = rates.cast_narrow.byte_s = 1.5 * byte_s;
    for (int k = 0; k < COMM_KIND_COUNT; k++)
        rates.comm[k] = (struct plan_line){20e-6, 1 / line};
    return rates;
}

struct plan_rates plan_rates_nominal(int threads)
{
    const double cores = threads > 1 ? threads : 1;
    return plan_rates_of(60e9 * cores, 8e9 * cores, 4e9);
}

void plan_rates_text(const struct plan_rates *rates, struct buffer *out)
{
    (void)buffer_printf(out, "by %s%s",
                        *rates->of ? "arithmetic, at the peaks of " : "the times of ordinary cores",
                        rates->of);
}

/* ---- one operation ---- */

struct layer_cost {
    double flops, bytes; /* per forward call */
};

static struct layer_cost *describe_layers(const struct model *model, const struct plan_options *o,
                                          struct muster_error *err)
{
    struct layer_cost *layers = mem_calloc((size_t)model->layer_count, sizeof *layers);
    for (int l = 0; layers && l < model->layer_count; l++) {
        struct layer_sizes sizes = {0};
        plan_layer_sizes(o, &model->layers[l], o->train ? LAYER_TRAIN : LAYER_EVAL, &sizes);
        layers[l] = (struct layer_cost){sizes.forward_flops, (double)(sizes.out + sizes.saved) * 2};
    }
    if (!layers)
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to describe %d layers", model->layer_count);
    return layers;
}

/* The work of a layer's call, in forward calls. */
static double layer_passes(const struct model *model, const struct schedule_op *op)
{
    const bool loss = op->layer == model->layer_count - 1, train = op->mode != LAYER_EVAL;
    double calls = 1;
    if (op->kind == OP_BACKWARD) /* a product for the input's gradient and one for the weight's */
        calls = (op->parts & LAYER_INPUT ? 1 : 0) + (op->parts & LAYER_WEIGHT ? 1 : 0);
    if (loss && train) /* its backward forms everything, see model.h */
        calls = op->kind == OP_BACKWARD ? calls + 1 : 0;
    return calls;
}

int plan_layer_seconds(const struct model *model, const struct plan_options *options, double *seconds,
                       struct muster_error *err)
{
    const struct plan_rates rates = plan_rates_nominal(1);
    scope_free struct layer_cost *layers = describe_layers(model, options, err);
    if (!layers)
        return -1;
    for (int l = 0; l < model->layer_count; l++) {
        const double passes = options->train ? 3 : 1; /* a product forward and two back, see layer_passes */
        seconds[l] = passes * (layers[l].flops / rates.flops + layers[l].bytes / rates.memory);
    }
    return 0;
}

static double received_bytes(const struct plan *plan, const struct schedule_op *op)
{
    const double bytes = (double)op->comm.count * dtype_size(op->comm.dtype),
                 ranks = plan_comm_line(plan, op).size;
    if (op->comm.kind == COMM_ALL_GATHER || op->comm.kind == COMM_REDUCE_SCATTER)
        return bytes * (ranks - 1);
    return op->comm.kind == COMM_ALL_REDUCE ? 2 * bytes * (ranks - 1) / ranks : bytes;
}

/* ---- nodes ---- */

/* How the ranks of an operation lie on nodes, as the plan's own rank sees it. */
struct node_span {
    int nodes;  /* that have ranks of it */
    int groups; /* operations of the same kind at once on a node, by other ranks of the stage */
    int places; /* nodes with ranks of the stage */
};

static int member_rank(const struct plan *plan, const struct schedule_op *op, int place)
{
    const struct plan_options *o = &plan->options;
    uint64_t stages = op->axis == AXIS_TIED ? plan->groups[op->group].stages : 0;
    for (int i = 0; stages && i < place; i++)
        stages &= stages - 1;
    return stages ? mesh_line_rank(o->mesh, AXIS_PIPELINE, o->rank, __builtin_ctzll(stages))
                  : mesh_line_rank(o->mesh, op->axis, o->rank, place);
}

static struct node_span find_node_span(const struct plan *plan, const struct schedule_op *op,
                                       int ranks_per_node)
{
    const struct plan_options *o = &plan->options;
    const int of_stage = mesh_size(o->mesh) / o->mesh.side[SIDE_PIPELINE],
              here = of_stage < ranks_per_node ? of_stage : ranks_per_node, own = o->rank / ranks_per_node;
    const bool pair = op->comm.kind == COMM_SEND || op->comm.kind == COMM_RECV;
    const int size = plan_comm_line(plan, op).size;
    struct node_span span = {1, 1, (of_stage + ranks_per_node - 1) / ranks_per_node};
    int together = 0, last = -1;
    if (pair) {
        span.nodes = 1 + (member_rank(plan, op, op->comm.root) / ranks_per_node != own);
        span.groups = here;
        return span;
    }
    span.nodes = 0;
    for (int i = 0; i < size; i++) {
        const int node = member_rank(plan, op, i) / ranks_per_node;
        span.nodes += node != last; /* ranks of a line grow */
        together += node == own;
        last = node;
    }
    span.groups = together && here > together ? here / together : 1;
    return span;
}

/* Bytes that an operation, and those next to it, bring to one node from other nodes. */
static double bytes_to_node(const struct plan *plan, const struct schedule_op *op,
                            const struct node_span *span)
{
    const double bytes = (double)op->comm.count * dtype_size(op->comm.dtype) * span->groups,
                 others = (span->nodes - 1.0) / span->nodes;
    if (op->comm.kind == COMM_ALL_GATHER || op->comm.kind == COMM_REDUCE_SCATTER)
        return bytes * plan_comm_line(plan, op).size * others;
    return op->comm.kind == COMM_ALL_REDUCE ? 2 * bytes * others : span->nodes > 1 ? bytes : 0;
}

/* Spans by axis, found once: they do not depend on the operation otherwise. */
struct node_spans {
    int ranks_per_node;
    bool known[AXIS_COUNT];
    struct node_span span[AXIS_COUNT];
};

static struct node_span find_span(struct node_spans *spans, const struct plan *plan,
                                  const struct schedule_op *op)
{
    const bool alike = op->axis != AXIS_TIED && op->axis != AXIS_PIPELINE;
    if (!alike || !spans->known[op->axis]) {
        spans->known[op->axis] = true;
        spans->span[op->axis] = find_node_span(plan, op, spans->ranks_per_node);
    }
    return spans->span[op->axis];
}

double plan_node_bytes(const struct plan *plan, const struct plan_rates *rates)
{
    struct node_spans spans = {.ranks_per_node = rates->ranks_per_node};
    double bytes = 0;
    for (int i = 0; spans.ranks_per_node && i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        if (op->kind != OP_COMM || op->when == WHEN_DENSE ||
            op->comm.kind == COMM_SEND) /* counted where received */
            continue;
        const struct node_span span = find_span(&spans, plan, op);
        bytes += bytes_to_node(plan, op, &span) * span.places;
    }
    return bytes;
}

/* ---- other operations ---- */

/* Bytes of the operation's elements in the layers' dtype. */
static double element_bytes(const struct plan *plan, const struct schedule_op *op)
{
    const double size = dtype_size(plan->options.dtype);
    if (op->kind == OP_STEP)
        return (double)op->bytes / dtype_size(plan->options.param_dtype) * size;
    if (op->kind == OP_CAST)
        return (double)op->bytes / dtype_size(plan->entries[op->to].dtype) * size;
    return (double)op->bytes;
}

static bool narrows(const struct plan *plan, const struct schedule_op *op)
{
    return op->kind == OP_CAST && dtype_size(plan->entries[op->to].dtype) < dtype_size(plan->options.dtype);
}

static double line_seconds(const struct plan_line *line, double bytes)
{
    return line->begin_s + bytes * line->byte_s;
}

static double layer_seconds(const struct model *model, const struct schedule_op *op,
                            const struct layer_cost *layer, const struct plan_rates *rates)
{
    if (rates->layers) {
        const struct plan_layer_times *times = &rates->layers[op->layer];
        return op->kind == OP_BACKWARD       ? times->backward_s
               : op->mode == LAYER_RECOMPUTE ? times->again_s
                                             : times->forward_s;
    }
    return layer_passes(model, op) * (layer->flops / rates->flops + layer->bytes / rates->memory);
}

static double comm_seconds(const struct plan *plan, const struct schedule_op *op,
                           const struct plan_rates *rates, struct node_spans *spans)
{
    const double inside = line_seconds(&rates->comm[op->comm.kind], received_bytes(plan, op));
    if (!spans->ranks_per_node)
        return inside;
    const struct node_span span = find_span(spans, plan, op);
    const bool pair = op->comm.kind == COMM_SEND || op->comm.kind == COMM_RECV;
    if (span.nodes == 1)
        return inside;
    return line_seconds(&rates->link, bytes_to_node(plan, op, &span)) + (pair ? 0 : inside);
}

static double op_seconds(const struct model *model, const struct plan *plan, const struct schedule_op *op,
                         const struct layer_cost *layers, const struct plan_rates *rates,
                         struct node_spans *spans)
{
    double seconds;
    if (op->when == WHEN_DENSE) /* only before compression.start */
        return 0;
    if (op->kind == OP_FORWARD || op->kind == OP_BACKWARD)
        seconds = layer_seconds(model, op, &layers[op->layer], rates);
    else if (op->kind == OP_COMM)
        seconds = comm_seconds(plan, op, rates, spans);
    else if (narrows(plan, op))
        seconds = line_seconds(&rates->cast_narrow, element_bytes(plan, op));
    else
        seconds = line_seconds(&rates->op[op->kind], element_bytes(plan, op));
    return rates->launch_s + seconds;
}

/* ---- the limit ---- */

/* Bytes read or written by an operation that is neither a call of a layer nor a collective. */
static double moved_bytes(const struct plan *plan, const struct schedule_op *op)
{
    const double bytes = element_bytes(plan, op);
    switch (op->kind) {
    case OP_STEP: /* gradient, parameter and moments are read; all but the gradient are written */
        return bytes * (3 + 2 * optimizer_moments(&plan->options.optimizer));
    case OP_AVERAGE: /* the parameters are read, the average is read and written */
    case OP_ROWS:    /* the rows are read, the gradient is read and written */
        return bytes * 3;
    case OP_CAST: /* the source or the result is half as long */
        return bytes * (op->beta ? 2.5 : 1.5);
    case OP_COPY:
    case OP_ENCODE:
    case OP_DECODE:
        return 2 * bytes;
    case OP_CLIP:
        return 0;
    default:
        return bytes;
    }
}

int plan_count_work(const struct model *model, const struct plan *plan, struct plan_work *work,
                    struct muster_error *err)
{
    scope_free struct layer_cost *layers = describe_layers(model, &plan->options, err);
    *work = (struct plan_work){0};
    if (!layers)
        return -1;
    for (int i = 0; i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        if (op->kind == OP_FORWARD || op->kind == OP_BACKWARD) {
            const double flops = layer_passes(model, op) * layers[op->layer].flops;
            work->flops += flops;
            work->model_flops += op->mode == LAYER_RECOMPUTE && op->kind == OP_FORWARD ? 0 : flops;
        } else if (op->kind != OP_COMM) {
            work->bytes += moved_bytes(plan, op);
        }
    }
    return 0;
}

/* ---- a run ---- */

struct prediction {
    double *finished; /* [op] in the step that is followed; before that in the one before */
    double streams[STREAM_COUNT], compute, comm, exposed;
};

static void predict_op(struct prediction *p, const struct schedule_op *op, int index, double seconds,
                       bool cores_shared)
{
    const int on = cores_shared ? STREAM_COMPUTE : (int)op->stream;
    double *stream = &p->streams[on], start = *stream;
    for (int i = 0; i < op->wait_count; i++) /* a later one still has the time of the step before */
        start = p->finished[op->wait[i]] > start ? p->finished[op->wait[i]] : start;
    const bool computes = op->stream == STREAM_COMPUTE;
    if (on == STREAM_COMPUTE)
        p->exposed += computes ? start - *stream : seconds;
    *(computes ? &p->compute : &p->comm) += seconds;
    *stream = p->finished[index] = start + seconds;
}

static void predict_steps(const struct plan *plan, const double *seconds, bool cores_shared,
                          struct prediction *p, struct plan_cost *cost)
{
    for (int step = 0; step < STEPS_PREDICTED; step++) {
        const double begun = p->streams[STREAM_COMPUTE];
        p->compute = p->comm = p->exposed = 0;
        for (int s = 0; s < STREAM_COUNT; s++) /* the host enqueues it then */
            p->streams[s] = p->streams[s] > begun ? p->streams[s] : begun;
        for (int o = 0; o < plan->op_count; o++)
            predict_op(p, &plan->ops[o], o, seconds[o], cores_shared);
        *cost = (struct plan_cost){p->streams[STREAM_COMPUTE] - begun, p->compute, p->comm, p->exposed};
    }
}

int plan_op_seconds(const struct model *model, const struct plan *plan, const struct plan_rates *rates,
                    double *seconds, struct muster_error *err)
{
    scope_free struct layer_cost *layers = describe_layers(model, &plan->options, err);
    struct node_spans spans = {.ranks_per_node = rates->ranks_per_node};
    if (!layers)
        return -1;
    for (int i = 0; i < plan->op_count; i++)
        seconds[i] = op_seconds(model, plan, &plan->ops[i], layers, rates, &spans);
    return 0;
}

int plan_layer_sums(const struct model *model, const struct plan *plan, const struct plan_rates *rates,
                    double *seconds, struct muster_error *err)
{
    scope_free double *each = mem_calloc((size_t)plan->op_count + 1, sizeof *each);
    if (!each)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the times of %d operations", plan->op_count);
    if (plan_op_seconds(model, plan, rates, each, err) < 0)
        return -1;
    memset(seconds, 0, (size_t)model->layer_count * sizeof *seconds);
    for (int i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == OP_FORWARD || plan->ops[i].kind == OP_BACKWARD)
            seconds[plan->ops[i].layer] += each[i];
    return 0;
}

int plan_predict(const struct model *model, const struct plan *plan, const struct plan_rates *rates,
                 struct plan_cost *cost, struct muster_error *err)
{
    scope_free double *numbers = mem_calloc((size_t)plan->op_count * 2, sizeof *numbers);
    if (!numbers)
        return error_set(err, MUSTER_E_NOMEM, "no memory to predict a plan of %d operations", plan->op_count);
    if (plan_op_seconds(model, plan, rates, numbers, err) < 0)
        return -1;
    struct prediction p = {.finished = numbers + plan->op_count};
    predict_steps(plan, numbers, rates->cores_shared, &p, cost);
    return 0;
}
