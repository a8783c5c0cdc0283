/* calibrate_layers.c - times of calls of layers. Layers of one kind take the same time, so one layer of each
 * kind is called: forward through all copies of its memory and backward in reverse, or, where a step does so,
 * backward right after forward. In a step layers of one kind follow each other. Their shared memory is still
 * in the caches for all layers but the first, which counts for one layer. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/calibrate/calibrate_internal.h"

/* Copies of a kind's memory beyond these bytes are as cold as more of them. */
enum { COLD_BYTES = 96 << 20, COPIES_MAX = 16, PASSES_MIN = 3, PASSES_MAX = 9 };
static const double pass_seconds = 0.6; /* after these no further pass begins */

/* Seconds of calls: of the first of each pass, and of all others. */
struct samples {
    double first[PASSES_MAX], other[PASSES_MAX * COPIES_MAX];
    int firsts, others;
};

struct kind {
    int layer, count; /* the first layer of the kind; how many there are */
    const struct schedule_op *forward, *backward;
    bool again; /* a step repeats the forward right before the backward, in one memory for all layers */
    struct layer_sizes sizes;
};

/* One copy of a layer's memory. */
struct call {
    struct layer_context forward, backward;
    const void *weight[LAYER_PARAMS], *in[LAYER_SOURCES];
    void *grad[LAYER_PARAMS], *din[LAYER_SOURCES];
};

/* Work of one kind on one rank. */
struct work {
    struct calibrate_rank *rank;
    const struct layer_desc *layer;
    const struct kind *kind;
    struct call *calls;
    int copies;
    int64_t dout_bytes, held_bytes; /* bytes of one copy; of all copies */
    struct plan_layer_times times;
};

/* ---- kinds ---- */

static bool same_kind(const struct model *model, const struct kind *kind, const struct kind *other)
{
    const struct layer_desc *a = &model->layers[kind->layer], *b = &model->layers[other->layer];
    if (a->ops != b->ops || a->param_count != b->param_count || a->source_count != b->source_count ||
        kind->sizes.out != other->sizes.out || kind->sizes.saved != other->sizes.saved ||
        kind->sizes.work != other->sizes.work || kind->sizes.forward_flops != other->sizes.forward_flops)
        return false;
    if (!kind->backward != !other->backward || kind->again != other->again ||
        (kind->backward && kind->backward->parts != other->backward->parts))
        return false;
    for (int i = 0; i < a->param_count; i++) {
        const struct param_desc *p = &model->params[a->param[i]], *q = &model->params[b->param[i]];
        if (p->trainable != q->trainable || p->ndim != q->ndim || memcmp(p->dim, q->dim, sizeof p->dim) != 0)
            return false;
    }
    return true;
}

static struct kind describe(const struct model *model, const struct plan *plan, int layer)
{
    const struct plan_options *o = &plan->options;
    struct kind kind = {.layer = layer, .count = 1};
    plan_layer_sizes(o, &model->layers[layer], LAYER_TRAIN, &kind.sizes);
    for (int i = 0; i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        if (op->kind == OP_FORWARD && op->layer == layer && !kind.forward)
            kind.forward = op;
        if (op->kind == OP_BACKWARD && op->layer == layer && !kind.backward)
            kind.backward = op;
        kind.again =
            kind.again || (op->kind == OP_FORWARD && op->layer == layer && op->mode == LAYER_RECOMPUTE);
    }
    return kind;
}

/* kind_of: [layer_count] filled. Returns how many there are. */
static int list_kinds(const struct model *model, const struct plan *plan, struct kind *kinds, int *kind_of)
{
    int count = 0;
    for (int l = 0; l < model->layer_count; l++) {
        const struct kind here = describe(model, plan, l);
        int k = 0;
        while (k < count && !same_kind(model, &kinds[k], &here))
            k++;
        if (k == count)
            kinds[count++] = here;
        else
            kinds[k].count++;
        kind_of[l] = k;
    }
    return count;
}

/* ---- memory ---- */

/* Hands out parts of an arena; without one (base NULL) it counts. */
struct cutter {
    char *base;
    int64_t used;
};

static void *cutter_take(struct cutter *cutter, int64_t bytes)
{
    void *part = cutter->base ? cutter->base + cutter->used : NULL;
    cutter->used += (bytes + 255) / 256 * 256;
    return bytes ? part : NULL;
}

/* As in a plan: parameters and gradients lie where other ranks may read them, all else does not. Pages differ
 * between the two. */
struct cutters {
    struct cutter device, comm;
};

/* Lays one copy out; values: memory that the call reads is filled. */
static void cut_call(const struct calibrate_rank *rank, const struct kind *kind, struct cutters *cutters,
                     struct call *call)
{
    const struct model *model = rank->crowd->options->model;
    const struct layer_desc *layer = &model->layers[kind->layer];
    const enum dtype dtype = rank->kernels->weight;
    for (int i = 0; i < layer->param_count; i++) {
        const struct param_desc *param = &model->params[layer->param[i]];
        const int64_t elements = param_elements(param), bytes = elements * dtype_size(dtype);
        const int64_t gradient = elements * dtype_size(rank->kernels->gradient);
        call->weight[i] = cutter_take(&cutters->comm, bytes);
        call->grad[i] = kind->backward && param->trainable ? cutter_take(&cutters->comm, gradient) : NULL;
        if (cutters->comm.base)
            calibrate_fill((void *)(uintptr_t)call->weight[i], dtype, bytes, 0.05);
    }
    call->forward.saved = cutter_take(&cutters->device, kind->sizes.saved);
    call->forward.out = cutter_take(&cutters->device, kind->sizes.out);
    call->backward.dout = cutter_take(&cutters->device, kind->sizes.out);
}

static int64_t source_bytes(const struct calibrate_rank *rank, int source)
{
    const struct calibrate_options *o = rank->crowd->options;
    struct layer_sizes sizes = {0};
    if (source == SOURCE_BATCH)
        return 0;
    o->model->layers[source].ops->sizes(o->model->layers[source].config, o->plan->options.shape,
                                        o->plan->options.dtype, LAYER_TRAIN, rank->kernels, &sizes);
    return sizes.out;
}

/* Lays out the memory that all copies share: inputs, their gradients, work memory, scalars, loss. */
static void cut_shared(const struct calibrate_rank *rank, const struct kind *kind, struct cutter *cutter,
                       struct call *calls, int copies)
{
    const struct calibrate_options *o = rank->crowd->options;
    const struct layer_desc *layer = &o->model->layers[kind->layer];
    const enum dtype dtype = rank->kernels->value;
    struct layer_context shared = {.kernels = rank->kernels,
                                   .stream = rank->ops->stream_handle(rank->compute),
                                   .mode = LAYER_TRAIN,
                                   .shape = o->plan->options.shape,
                                   .batch = o->batch,
                                   .chunk_bytes = o->plan->options.chunk_bytes};
    struct call first = {0};
    for (int i = 0; i < layer->source_count; i++) {
        const int64_t bytes = source_bytes(rank, layer->source[i]);
        void *in = cutter_take(cutter, bytes);
        first.in[i] = in;
        first.din[i] = kind->backward && kind->backward->din[i] >= 0 ? cutter_take(cutter, bytes) : NULL;
        if (in)
            calibrate_fill(in, dtype, bytes, 1);
    }
    shared.work = cutter_take(cutter, kind->sizes.work);
    struct step_scalars *scalars = cutter_take(cutter, sizeof *scalars);
    double *loss = cutter_take(cutter, 2 * sizeof *loss);
    if (scalars)
        *scalars = (struct step_scalars){.inverse_tokens = 1.0 / ((double)shared.shape.B * shared.shape.T),
                                         .samples = shared.shape.B};
    shared.scalars = scalars;
    if (layer - o->model->layers == o->model->layer_count - 1) {
        shared.loss_total = loss;
        shared.loss_count = loss ? (int64_t *)(void *)(loss + 1) : NULL;
    }
    for (int c = 0; cutter->base && c < copies; c++) {
        struct call *call = &calls[c];
        void *saved = call->forward.saved, *out = call->forward.out;
        const void *dout = call->backward.dout;
        memcpy(call->in, first.in, sizeof first.in);
        memcpy(call->din, first.din, sizeof first.din);
        call->forward = shared;
        call->forward.weight = call->weight;
        call->forward.grad = call->grad;
        call->forward.in = call->in;
        call->forward.saved = saved;
        call->forward.out = out;
        call->backward = call->forward;
        call->backward.dout = dout;
        call->backward.din = call->din;
        if (kind->backward) {
            call->backward.grad_beta = kind->backward->grad_beta;
            call->backward.din_beta = kind->backward->din_beta;
        }
    }
}

/* ---- measuring ---- */

static void add_sample(struct samples *samples, bool first, double seconds)
{
    if (first)
        samples->first[samples->firsts++] = seconds;
    else
        samples->other[samples->others++] = seconds;
}

/* Mean time of a call, of `layers` calls that follow each other. */
static double mean_call(struct samples *samples, int layers)
{
    const double first = samples->firsts ? calibrate_median(samples->first, samples->firsts) : 0;
    if (!samples->others)
        return first;
    return (first + calibrate_median(samples->other, samples->others) * (layers - 1)) / layers;
}

static void forward(const struct work *w, int copy, enum layer_mode mode, bool first, struct samples *samples)
{
    struct layer_context *call = &w->calls[copy].forward;
    const double begun = calibrate_seconds();
    call->mode = mode;
    w->layer->ops->forward(w->layer->config, call);
    add_sample(samples, first, calibrate_seconds() - begun);
}

static void backward(const struct work *w, int copy, bool first, struct samples *samples)
{
    const double begun = calibrate_seconds();
    if (w->kind->backward)
        w->layer->ops->backward(w->layer->config, &w->calls[copy].backward, w->kind->backward->parts);
    add_sample(samples, first, calibrate_seconds() - begun);
}

static void run_pass(const struct work *w, struct samples *there, struct samples *again, struct samples *back)
{
    const int last = w->copies - 1;
    for (int c = 0; c <= last; c++) /* a backward may have used it up */
        if (w->dout_bytes)
            calibrate_fill((void *)(uintptr_t)w->calls[c].backward.dout, w->rank->kernels->statistic,
                           w->dout_bytes, 1e-3);
    calibrate_cool(w->rank, w->held_bytes);
    for (int c = 0; c <= last; c++)
        forward(w, c, LAYER_TRAIN, c == 0, there);
    if (w->dout_bytes) /* a loss layer's backward comes at once */
        calibrate_cool(w->rank, w->held_bytes);
    for (int c = last; c >= 0; c--) {
        if (w->kind->again)
            forward(w, c, LAYER_RECOMPUTE, c == last, again);
        backward(w, c, c == last, back);
    }
}

static void run_passes(void *argument)
{
    struct work *w = argument;
    struct samples there = {.firsts = 0}, again = {.firsts = 0}, back = {.firsts = 0};
    const int layers = w->kind->count;
    const double begun = calibrate_seconds();
    for (int pass = 0; pass < PASSES_MAX; pass++) {
        if (pass >= PASSES_MIN && calibrate_seconds() - begun >= pass_seconds)
            break;
        run_pass(w, &there, &again, &back);
    }
    w->times = (struct plan_layer_times){.forward_s = mean_call(&there, layers),
                                         .again_s = mean_call(&again, layers),
                                         .backward_s = mean_call(&back, layers)};
}

/* Memory of shared and copies times one, touched; 0 bytes of a class need no arena. */
static int make_arenas(struct calibrate_rank *rank, const struct cutters *one, const struct cutter *shared,
                       int64_t copies, struct device_arena arenas[2])
{
    const int64_t bytes[2] = {shared->used + copies * one->device.used, copies * one->comm.used};
    static const enum memory_class classes[2] = {MEMORY_DEVICE, MEMORY_COMM};
    for (int i = 0; i < 2; i++) {
        if (!bytes[i])
            continue;
        if (rank->ops->arena_create(rank->device, classes[i], bytes[i], &arenas[i], &rank->err))
            return -1;
        memset(arenas[i].base, 0, (size_t)bytes[i]);
    }
    return 0;
}

static int measure_kind(struct calibrate_rank *rank, const struct kind *kind, struct plan_layer_times *times)
{
    const struct model *model = rank->crowd->options->model;
    struct call calls[COPIES_MAX] = {0};
    struct cutters one = {0};
    struct cutter shared = {0};
    cut_call(rank, kind, &one, calls);
    cut_shared(rank, kind, &shared, calls, 0);
    const int64_t bytes = one.device.used + one.comm.used;
    int64_t copies = 2 + COLD_BYTES / (bytes + 1); /* the first, and others */
    copies = copies > kind->count ? kind->count : copies;
    copies = copies > COPIES_MAX ? COPIES_MAX : copies;
    struct device_arena arenas[2] = {0};
    const int failed = make_arenas(rank, &one, &shared, copies, arenas);
    struct work work = {.rank = rank,
                        .layer = &model->layers[kind->layer],
                        .kind = kind,
                        .calls = calls,
                        .copies = (int)copies,
                        .dout_bytes = kind->sizes.out,
                        .held_bytes = shared.used + copies * bytes};
    struct cutters all = {{arenas[0].base, 0}, {arenas[1].base, 0}};
    for (int c = 0; !failed && c < copies; c++)
        cut_call(rank, kind, &all, &calls[c]);
    for (int c = 1; kind->again && c < copies; c++)
        calls[c].forward.saved = calls[0].forward.saved;
    if (!failed)
        cut_shared(rank, kind, &all.device, calls, (int)copies);
    int result = calibrate_together(rank, failed);
    if (!result)
        result = calibrate_at_once(rank, run_passes, &work);
    for (int i = 0; i < 2; i++)
        if (arenas[i].base)
            rank->ops->arena_destroy(rank->device, &arenas[i]);
    *times = work.times;
    return result;
}

int calibrate_layers(struct calibrate_rank *rank)
{
    const struct calibrate_options *o = rank->crowd->options;
    const size_t count = (size_t)o->model->layer_count;
    scope_free struct kind *kinds = mem_calloc(count, sizeof *kinds);
    scope_free int *kind_of = mem_calloc(count, sizeof *kind_of);
    if (!kinds || !kind_of)
        (void)error_set(&rank->err, MUSTER_E_NOMEM, "no memory to measure %zu layers", count);
    if (calibrate_together(rank, !kinds || !kind_of))
        return -1;
    rank->found.kinds = list_kinds(o->model, o->plan, kinds, kind_of);
    for (int k = 0; k < rank->found.kinds; k++) {
        struct plan_layer_times times;
        if (measure_kind(rank, &kinds[k], &times))
            return -1;
        for (size_t l = 0; l < count; l++)
            if (kind_of[l] == k)
                rank->found.layers[l] = times;
    }
    return 0;
}
