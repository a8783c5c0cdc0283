/* logits.c - see logits.h. Outputs of layers go round in a ring that is as long as the farthest source. */
#include "runtime/model/logits.h"

#include <string.h>

#include "runtime/model/past.h"
#include "runtime/model/program_internal.h"

static int64_t aligned(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static int tokens_of(const struct model *model)
{
    for (int i = 0; i < model->input_count; i++) {
        if (!strcmp(model->inputs[i].name, "tokens"))
            return i;
    }
    return -1;
}

int64_t model_vocabulary(const struct model *model)
{
    int tokens = tokens_of(model);
    int64_t vocabulary = 0;
    for (int l = 0; l < model->layer_count; l++) {
        const struct program *p = model->layers[l].config;
        if (model->layers[l].ops != &program_ops)
            return 0;
        for (int s = 0; s < p->step_count; s++) {
            const struct program_step *step = &p->steps[s];
            if (step->op == &operation_cross_entropy)
                vocabulary = step->settings.vocabulary;
            else if (step->op == &operation_embedding && step->settings.input != tokens)
                return 0;
        }
    }
    return tokens < 0 ? 0 : vocabulary;
}

/* Work memory: a ring of outputs, then the work of one layer. */
struct logits_work {
    int ring;
    int64_t out, layer;
};

static struct logits_work logits_work(const struct model *model, const struct kernels *kernels,
                                      struct shape max)
{
    struct logits_work w = {.ring = 1};
    for (int l = 0; l < model->layer_count; l++) {
        const struct layer_desc *layer = &model->layers[l];
        struct layer_sizes sizes;
        layer->ops->sizes(layer->config, max, kernels->value, LAYER_EVAL, kernels, &sizes);
        w.out = sizes.out > w.out ? sizes.out : w.out;
        w.layer = sizes.work > w.layer ? sizes.work : w.layer;
        for (int i = 0; i < layer->source_count; i++) {
            if (layer->source[i] != SOURCE_BATCH && l - layer->source[i] + 1 > w.ring)
                w.ring = l - layer->source[i] + 1;
        }
    }
    w.out = aligned(w.out);
    return w;
}

int64_t model_logits_work(const struct model *model, const struct kernels *kernels, struct shape max)
{
    struct logits_work w = logits_work(model, kernels, max);
    return w.ring * w.out + w.layer;
}

static void logits_walk(const struct model *model, const struct kernels *kernels, const void *const *weights,
                        const int32_t *tokens, const struct step_scalars *scalars, struct shape shape,
                        void *work, void *logits, void *stream, struct layer_past *past)
{
    struct logits_work w = logits_work(model, kernels, shape);
    char *ring = work;
    struct batch batch = {{0}};
    batch.input[tokens_of(model)] = tokens;
    for (int l = 0; l < model->layer_count; l++) {
        const struct layer_desc *layer = &model->layers[l];
        const void *weight[LAYER_PARAMS], *in[LAYER_SOURCES] = {0};
        for (int i = 0; i < layer->param_count; i++)
            weight[i] = weights[layer->param[i]];
        for (int i = 0; i < layer->source_count; i++) {
            if (layer->source[i] != SOURCE_BATCH)
                in[i] = ring + layer->source[i] % w.ring * w.out;
        }
        const struct layer_context x = {.kernels = kernels,
                                        .stream = stream,
                                        .mode = LAYER_EVAL,
                                        .shape = shape,
                                        .weight = weight,
                                        .in = in,
                                        .out = ring + l % w.ring * w.out,
                                        .work = ring + w.ring * w.out,
                                        .batch = &batch,
                                        .scalars = scalars,
                                        .past = past,
                                        .evaluates = true};
        if (l < model->layer_count - 1)
            layer->ops->forward(layer->config, &x);
        else
            program_logits(layer->config, &x, logits);
    }
}

void model_logits(const struct model *model, const struct kernels *kernels, const void *const *weights,
                  const int32_t *tokens, const struct step_scalars *scalars, struct shape shape, void *work,
                  void *logits, void *stream)
{
    logits_walk(model, kernels, weights, tokens, scalars, shape, work, logits, stream, NULL);
}

void model_logits_after(const struct model *model, const struct kernels *kernels, const void *const *weights,
                        const int32_t *tokens, const struct step_scalars *scalars, struct shape shape,
                        void *work, void *logits, void *stream, struct layer_past *past)
{
    past->taken = 0;
    logits_walk(model, kernels, weights, tokens, scalars, shape, work, logits, stream, past);
    past->at += shape.T;
}
