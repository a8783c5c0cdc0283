/* plan_steps.c - the requirements of each layer, and the order in which this stage calls its layers: that of
 * the calls of its parts in the table of the schedule (pipe.h). */
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/plan/plan_internal.h"

static int find_groups(struct plan_builder *b, int index)
{
    const struct layer_desc *layer = &b->model->layers[index];
    struct plan_layer *info = &b->layers[index];
    for (int i = 0; i < layer->param_count; i++) {
        int group = b->plan->places[layer->param[i]].group, at = 0;
        while (at < info->group_count && info->group[at] != group)
            at++;
        if (at < info->group_count)
            continue;
        if (at == LAYER_GROUPS)
            return error_set(
                b->err, MUSTER_E_LIMIT,
                "layer %s uses parameters of more than %d groups; use fewer units in one layer or a larger "
                "group_bytes",
                layer->name, LAYER_GROUPS);
        info->group[info->group_count++] = group;
    }
    return 0;
}

void plan_layer_sizes(const struct plan_options *o, const struct layer_desc *layer, enum layer_mode mode,
                      struct layer_sizes *sizes)
{
    if (o->chunk_bytes > 0 && layer->ops->chunked_sizes)
        layer->ops->chunked_sizes(layer->config, o->shape, o->value_dtype, mode, o->kernels, o->chunk_bytes,
                                  sizes);
    else
        layer->ops->sizes(layer->config, o->shape, o->value_dtype, mode, o->kernels, sizes);
}

static void find_sizes(struct plan_builder *b, int index)
{
    const struct layer_desc *layer = &b->model->layers[index];
    const struct plan_options *o = b->options;
    struct plan_layer *info = &b->layers[index];
    struct layer_sizes other = {0};
    plan_layer_sizes(b->options, layer, o->train ? LAYER_TRAIN : LAYER_EVAL, &info->sizes);
    info->forward_work = info->sizes.work;
    info->loss = info->sizes.out == 0;
    plan_layer_sizes(b->options, layer, LAYER_EVAL, &other);
    info->evaluation_work = other.work;
    plan_layer_sizes(b->options, layer, LAYER_RECOMPUTE, &other);
    info->recompute_work = other.work;
}

static int describe_layer(struct plan_builder *b, int index)
{
    const struct layer_desc *layer = &b->model->layers[index];
    struct plan_layer *info = &b->layers[index];
    find_sizes(b, index);
    if (info->sizes.out < 0 || info->sizes.saved < 0 || info->sizes.work < 0 || info->sizes.out % b->value)
        return error_set(b->err, MUSTER_E_INVALID,
                         "layer %s requests %lld bytes of output, %lld saved, %lld work", layer->name,
                         (long long)info->sizes.out, (long long)info->sizes.saved,
                         (long long)info->sizes.work);
    info->stage = b->table->rank_of[layer->part];
    info->local = info->stage == b->place.at[SIDE_PIPELINE];
    for (int i = 0; i < layer->param_count; i++)
        info->trainable |= b->options->train && b->model->params[layer->param[i]].trainable;
    info->needs_grad = info->trainable;
    for (int i = 0; i < layer->source_count; i++) {
        if (layer->source[i] == SOURCE_BATCH)
            continue;
        struct plan_layer *source = &b->layers[layer->source[i]];
        if (source->loss)
            return error_set(b->err, MUSTER_E_INVALID, "layer %s reads layer %s, which has no output",
                             layer->name, b->model->layers[layer->source[i]].name);
        info->needs_grad |= source->needs_grad;
        source->used = true;
        source->used_next |= source->stage != info->stage;
    }
    return find_groups(b, index);
}

/* Which backward calls add to which gradients, on this stage. */
static void count_consumers(struct plan_builder *b)
{
    for (int l = 0; l < b->model->layer_count; l++) {
        const struct layer_desc *layer = &b->model->layers[l];
        for (int i = 0; b->layers[l].local && i < layer->source_count; i++)
            if (layer->source[i] != SOURCE_BATCH)
                b->layers[layer->source[i]].consumers++;
    }
}

/* A layer that keeps nothing, or ends in the loss, is never recomputed. */
static void choose_recomputed(struct plan_builder *b)
{
    const struct recompute_options *o = &b->options->recompute;
    int keeping = 0;
    for (int l = 0; l < b->model->layer_count; l++) {
        struct plan_layer *layer = &b->layers[l];
        if (layer->loss || layer->sizes.saved == 0)
            continue;
        const bool nth = o->kind == RECOMPUTE_EVERY && ++keeping % o->every == 0;
        const bool asks = b->model->layers[l].recompute || nth || o->kind == RECOMPUTE_ALL;
        layer->recompute = asks || o->kind == RECOMPUTE_EXCEPT_LAST;
        layer->keeps_last = !asks;
    }
}

/* Every output is read, and something is trained. */
static int check_ends(const struct plan_builder *b)
{
    const int count = b->model->layer_count;
    for (int l = 0; l < count; l++)
        if (!b->layers[l].loss && !b->layers[l].used)
            return error_set(
                b->err, MUSTER_E_INVALID,
                "layer %s has an output that no layer reads; the last layer has to end in a loss",
                b->model->layers[l].name);
    if (b->options->train && !b->layers[count - 1].needs_grad)
        return error_set(b->err, MUSTER_E_INVALID,
                         "model %s has nothing to train: no trainable parameter leads to its loss",
                         b->model->name);
    return 0;
}

void plan_describe_layers(struct plan_builder *b)
{
    const int count = b->model->layer_count;
    b->layers = mem_calloc((size_t)count, sizeof *b->layers);
    if (!b->layers)
        b->failed = error_set(b->err, MUSTER_E_NOMEM, "no memory to plan %d layers", count);
    for (int l = 0; l < count && !b->failed; l++)
        b->failed = describe_layer(b, l);
    if (b->failed || (b->failed = check_ends(b)) < 0)
        return;
    count_consumers(b);
    choose_recomputed(b);
}

/* ---- order ---- */

static bool recomputed(const struct plan_builder *b, int layer, int micro)
{
    return b->layers[layer].recompute &&
           !(b->layers[layer].keeps_last && micro == b->options->micro_batches - 1);
}

static void add_step(struct plan_builder *b, enum step_phase phase, int layer, int micro, int call)
{
    struct plan_step *step = &b->steps[b->step_count++];
    *step = (struct plan_step){.phase = phase, .layer = layer, .micro = micro, .call = call, .op = -1};
    for (int i = 0; i < LAYER_GROUPS; i++)
        step->gather[i] = -1;
}

/* first, last: layers of the call's part. */
static void add_call(struct plan_builder *b, int index, int first, int last)
{
    const struct pipe_call *call = &plan_calls(b, b->place.at[SIDE_PIPELINE])[index];
    b->call_step[index] = b->step_count;
    for (int l = first; call->phase == PIPE_FORWARD && l <= last; l++)
        add_step(b, PHASE_FORWARD, l, call->micro, index);
    for (int l = last; call->phase != PIPE_FORWARD && l >= first; l--) {
        if (!b->layers[l].needs_grad)
            continue;
        if (recomputed(b, l, call->micro))
            add_step(b, PHASE_RECOMPUTE, l, call->micro, index);
        add_step(b, PHASE_BACKWARD, l, call->micro, index);
    }
}

void plan_list_steps(struct plan_builder *b)
{
    const struct model *model = b->model;
    const int stage = b->place.at[SIDE_PIPELINE], calls = plan_call_count(b, stage);
    const size_t most = (size_t)model->layer_count * 3 * (size_t)b->options->micro_batches;
    int first[PIPE_PARTS + 1] = {0};
    for (int l = model->layer_count - 1; l >= 0; l--)
        first[model->layers[l].part] = l;
    first[model->parts] = model->layer_count;
    b->steps = mem_calloc(most, sizeof *b->steps);
    b->call_step = mem_calloc((size_t)calls + 1, sizeof *b->call_step);
    if (!b->steps || !b->call_step) {
        b->failed = error_set(b->err, MUSTER_E_NOMEM, "no memory to plan %zu layer calls", most);
        return;
    }
    for (int i = 0; i < calls; i++) {
        const int part = plan_calls(b, stage)[i].part;
        add_call(b, i, first[part], first[part + 1] - 1);
    }
    b->call_step[calls] = b->step_count;
}
