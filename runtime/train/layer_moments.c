/* layer_moments.c - see layer_moments.h. */
#include "runtime/train/layer_moments.h"

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/model/program_internal.h"
#include "runtime/train/trainer_state.h"

/* A value of the open layer that products read. */
struct read_value {
    /* source: number of the layer's input; -1: a step of the layer's program forms the value, and it is
     * copied out */
    int value, source;
    struct layer_moments about;
    float *moments;
    void *rows; /* rows of one sample, copied out */
    struct layer_capture capture;
};

struct moments_walk {
    struct trainer *trainer;
    const struct model *model;
    const struct kernels *kernels; /* the host's, in float, on every device */
    const void *const *arrays;
    int64_t samples, positions;
    float **out;   /* [layer_count] (samples, positions, width); NULL: not there, or no longer needed */
    int *last_use; /* [layer_count] the last layer that reads it; -1: none */
    float *weight[LAYER_PARAMS];
    void *work;
    struct read_value *values; /* [PROGRAM_VALUES] values of the open layer */
    int value_count;
    struct step_scalars scalars;
    int layer;
    bool sums; /* this pass forms the moments */
};

static const struct program *program_of(const struct moments_walk *w)
{
    return w->model->layers[w->layer].config;
}

static int moments_no_memory(const struct moments_walk *w, struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM,
                     "no memory to send %lld samples of %lld positions through layer %s: give fewer samples, "
                     "or shorter ones (training.sequence_length)",
                     (long long)w->samples, (long long)w->positions, w->model->layers[w->layer].name);
}

/* ---- the values that products read ---- */

static struct read_value *value_entry(struct moments_walk *w, int value)
{
    const struct program *p = program_of(w);
    for (int i = 0; i < w->value_count; i++)
        if (w->values[i].value == value)
            return &w->values[i];
    struct read_value *entry = &w->values[w->value_count++];
    *entry = (struct read_value){.value = value,
                                 .source = p->values[value].source,
                                 .about = {.layer = w->layer, .columns = p->values[value].width},
                                 .capture = {.layer = w->layer, .value = value, .rows = w->positions}};
    return entry;
}

static int find_values(struct moments_walk *w, struct muster_error *err)
{
    const struct program *p = program_of(w);
    const struct layer_desc *layer = &w->model->layers[w->layer];
    w->value_count = 0;
    for (int s = 0; s < p->step_count; s++) {
        const struct program_step *step = &p->steps[s];
        if (step->op != &operation_linear || step->param[0] < 0)
            continue;
        struct read_value *entry = value_entry(w, step->in[0]);
        if (entry->about.param_count == MOMENTS_PARAMS)
            return error_set(err, MUSTER_E_LIMIT, "layer %s: more than %d products read one value",
                             layer->name, MOMENTS_PARAMS);
        entry->about.param[entry->about.param_count++] = layer->param[step->param[0]];
    }
    for (int i = 0; i < w->value_count; i++) {
        struct read_value *entry = &w->values[i];
        const size_t columns = (size_t)entry->about.columns;
        entry->moments = mem_calloc(columns * columns, sizeof *entry->moments);
        entry->about.moments = entry->moments;
        if (entry->source < 0)
            entry->rows = mem_calloc((size_t)w->positions * columns, sizeof(float));
        entry->capture.out = entry->rows;
        if (!entry->moments || (entry->source < 0 && !entry->rows))
            return moments_no_memory(w, err);
    }
    return 0;
}

static void free_values(struct moments_walk *w)
{
    for (int i = 0; i < w->value_count; i++) {
        mem_free(w->values[i].moments);
        mem_free(w->values[i].rows);
    }
    w->value_count = 0;
}

/* Makes a list of all values that are copied out. */
static const struct layer_capture *captures(struct moments_walk *w)
{
    const struct layer_capture *first = NULL;
    for (int i = 0; i < w->value_count; i++)
        if (w->values[i].source < 0) {
            w->values[i].capture.next = first;
            first = &w->values[i].capture;
        }
    return first;
}

/* ---- one layer ---- */

static int64_t result_width(const struct moments_walk *w, int layer)
{
    const struct program *p = w->model->layers[layer].config;
    return p->result >= 0 ? p->values[p->result].width : 0;
}

static void add_moments(struct moments_walk *w, const void *const *in)
{
    const struct kernels *k = w->kernels;
    for (int i = 0; i < w->value_count; i++) {
        const struct read_value *v = &w->values[i];
        const void *rows = v->source >= 0 ? in[v->source] : v->rows;
        k->linear_backward_weight(v->moments, NULL, rows, rows, (int)w->positions, (int)v->about.columns,
                                  (int)v->about.columns, (int)v->about.columns, 1, NULL);
    }
}

/* Runs on the compute stream; where the device launches, on this thread. */
static void run_layer(void *argument)
{
    struct moments_walk *w = argument;
    const struct layer_desc *layer = &w->model->layers[w->layer];
    const struct layer_capture *first = w->sums ? captures(w) : NULL;
    const int64_t width = result_width(w, w->layer);
    double loss = 0, correct = 0;
    int64_t count = 0;
    for (int64_t sample = 0; sample < w->samples; sample++) {
        struct batch batch = {{0}};
        const void *in[LAYER_SOURCES] = {0};
        for (int i = 0; i < w->model->input_count; i++)
            batch.input[i] = (const char *)w->arrays[i] +
                             sample * batch_input_bytes(w->model, (struct shape){1, (int)w->positions}, i);
        for (int i = 0; i < layer->source_count; i++)
            if (layer->source[i] != SOURCE_BATCH)
                in[i] = w->out[layer->source[i]] + sample * w->positions * result_width(w, layer->source[i]);
        const struct layer_context x = {
            .kernels = w->kernels,
            .mode = LAYER_EVAL,
            .shape = {1, (int)w->positions},
            .weight = (const void *const *)w->weight,
            .in = in,
            .out = w->out[w->layer] ? w->out[w->layer] + sample * w->positions * width : NULL,
            .work = w->work,
            .batch = &batch,
            .scalars = &w->scalars,
            .evaluates = true,
            .loss_total = &loss,
            .loss_count = &count,
            .correct_total = &correct,
            .capture = first};
        layer->ops->forward(layer->config, &x);
        if (w->sums)
            add_moments(w, in);
    }
}

static void drop_weights(struct moments_walk *w)
{
    for (int i = 0; i < LAYER_PARAMS; i++)
        mem_free(take_pointer(&w->weight[i]));
}

static int pass(struct moments_walk *w, bool sums, struct muster_error *err)
{
    const struct layer_desc *layer = &w->model->layers[w->layer];
    int failed = 0;
    for (int i = 0; i < layer->param_count && !failed; i++) {
        const int64_t elements = param_elements(&w->model->params[layer->param[i]]);
        w->weight[i] = mem_calloc((size_t)elements, sizeof **w->weight);
        failed = w->weight[i] ? trainer_get_param(w->trainer, layer->param[i], w->weight[i], err)
                              : moments_no_memory(w, err);
    }
    w->sums = sums;
    failed = failed || trainer_run(w->trainer, run_layer, w, err);
    drop_weights(w);
    return failed ? -1 : 0;
}

static int visit_layer(struct moments_walk *w, layer_moments_visit *visit, void *context,
                       struct muster_error *err)
{
    const struct layer_desc *layer = &w->model->layers[w->layer];
    const bool wanted = w->last_use[w->layer] > w->layer; /* its result is needed */
    const size_t elements = (size_t)(w->samples * w->positions * result_width(w, w->layer));
    struct layer_sizes sizes;
    layer->ops->sizes(layer->config, (struct shape){1, (int)w->positions}, DTYPE_F32, LAYER_EVAL, w->kernels,
                      &sizes);
    w->work = mem_calloc((size_t)sizes.work + 1, 1);
    /* The pass for the moments also forms the result, with the old weights; the next pass overwrites it. */
    w->out[w->layer] = result_width(w, w->layer) ? mem_calloc(elements, sizeof(float)) : NULL;
    int failed = !w->work || (result_width(w, w->layer) && !w->out[w->layer]) ? moments_no_memory(w, err)
                                                                              : find_values(w, err);
    if (!failed && w->value_count)
        failed = pass(w, true, err);
    for (int i = 0; i < w->value_count && !failed; i++)
        failed = visit(context, &w->values[i].about, err);
    if (!failed && wanted)
        failed = pass(w, false, err);
    free_values(w);
    mem_free(take_pointer(&w->work));
    for (int l = 0; l <= w->layer; l++)
        if (w->last_use[l] <= w->layer)
            mem_free(take_pointer(&w->out[l]));
    return failed;
}

/* ---- all layers ---- */

/* Whether the layer's values have a row for each sample, as in classifiers. */
static bool has_sample_rows(const struct layer_desc *layer)
{
    const struct program *p = layer->config;
    for (int v = 0; v < p->value_count; v++)
        if (p->values[v].sample)
            return true;
    return false;
}

static int check_moments(const struct trainer *trainer, struct muster_error *err)
{
    if (trainer->world_size > 1)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "what products read is looked at by one rank, and there are %d: run one process",
                         trainer->world_size);
    if (trainer->kernels->statistic != DTYPE_F32)
        return error_set(err, MUSTER_E_UNSUPPORTED, "what products read is looked at in float, not by %s",
                         trainer->kernels->name);
    for (int l = 0; l < trainer->model->layer_count; l++)
        if (trainer->model->layers[l].ops != &program_ops || has_sample_rows(&trainer->model->layers[l]))
            return error_set(err, MUSTER_E_UNSUPPORTED,
                             "layer %s of %s is no list of operations on a row for each position",
                             trainer->model->layers[l].name, trainer->model->name);
    return 0;
}

static void find_last_uses(struct moments_walk *w)
{
    for (int l = 0; l < w->model->layer_count; l++) {
        const struct layer_desc *layer = &w->model->layers[l];
        w->last_use[l] = -1;
        for (int i = 0; i < layer->source_count; i++)
            if (layer->source[i] != SOURCE_BATCH)
                w->last_use[layer->source[i]] = l;
    }
}

int trainer_visit_moments(struct trainer *trainer, const void *const *arrays, int64_t rows,
                          layer_moments_visit *visit, void *context, struct muster_error *err)
{
    const size_t layers = (size_t)trainer->model->layer_count;
    struct moments_walk w = {.trainer = trainer,
                             .model = trainer->model,
                             .kernels = trainer->ops->host_memory && trainer->kernels->value == DTYPE_F32
                                            ? trainer->kernels
                                            : kernels_cpu(~0u),
                             .arrays = arrays,
                             .samples = rows,
                             .positions = trainer->plan.options.shape.T};
    if (check_moments(trainer, err) < 0)
        return -1;
    w.out = mem_calloc(layers, sizeof *w.out);
    w.last_use = mem_calloc(layers, sizeof *w.last_use);
    w.values = mem_calloc(PROGRAM_VALUES, sizeof *w.values);
    int failed = w.out && w.last_use && w.values ? 0 : moments_no_memory(&w, err);
    if (!failed)
        find_last_uses(&w);
    for (; !failed && w.layer < w.model->layer_count; w.layer++)
        failed = visit_layer(&w, visit, context, err);
    for (size_t l = 0; w.out && l < layers; l++)
        mem_free(w.out[l]);
    mem_free(w.out);
    mem_free(w.last_use);
    mem_free(w.values);
    return failed ? -1 : 0;
}
