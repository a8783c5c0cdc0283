/* choose.c - quantize.h: which parameters a quantisation is about. */
#include <fnmatch.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "runtime/model/program_internal.h"
#include "runtime/quantize/quantize.h"

/* Whether an operation in the list reads the parameter as its first. */
static bool is_read_by(const struct model *model, int param, const struct operation *const *operations)
{
    for (int l = 0; l < model->layer_count; l++) {
        const struct layer_desc *layer = &model->layers[l];
        const struct program *p = layer->config;
        for (int s = 0; layer->ops == &program_ops && s < p->step_count; s++)
            for (int o = 0; operations[o]; o++)
                if (p->steps[s].op == operations[o] && p->steps[s].param[0] >= 0 &&
                    layer->param[p->steps[s].param[0]] == param)
                    return true;
    }
    return false;
}

bool quantized_is_table(const struct quantized *q, int param)
{
    static const struct operation *const tables[] = {&operation_embedding, &operation_cross_entropy, NULL};
    return is_read_by(q->model, param, tables);
}

static bool is_product(const struct quantized *q, int param)
{
    static const struct operation *const products[] = {&operation_linear, NULL};
    return q->model->params[param].ndim == 2 && is_read_by(q->model, param, products);
}

/* A pattern that matches no parameter was meant to match one. */
static int keep_pattern(struct quantized *q, const char *pattern, struct muster_error *err)
{
    int found = 0;
    const char *example = NULL;
    for (int i = 0; i < q->model->param_count; i++) {
        example = q->chosen[i] || !example ? q->model->params[i].name : example;
        if (fnmatch(pattern, q->model->params[i].name, 0))
            continue;
        q->chosen[i] = false;
        found++;
    }
    if (found)
        return 0;
    return error_set(err, MUSTER_E_INVALID,
                     "'%s' matches no tensor of %s, which has %d; their names are like %s", pattern,
                     q->model->name, q->model->param_count, example ? example : "");
}

int quantized_choose(struct quantized *q, struct muster_error *err)
{
    for (int i = 0; i < q->model->param_count; i++) {
        const bool table = quantized_is_table(q, i);
        q->chosen[i] = table ? q->options.tables && q->model->params[i].ndim == 2 : is_product(q, i);
    }
    for (int i = 0; q->options.keep && q->options.keep[i]; i++)
        if (keep_pattern(q, q->options.keep[i], err) < 0)
            return -1;
    for (int i = 0; i < q->model->param_count; i++) {
        q->tensors += q->chosen[i];
        q->elements += q->chosen[i] ? param_elements(&q->model->params[i]) : 0;
    }
    if (q->tensors)
        return 0;
    return error_set(err, MUSTER_E_UNSUPPORTED, "%s has no product whose weight is left to be quantised%s",
                     q->model->name,
                     q->options.keep && q->options.keep[0] ? ": name fewer tensors to be kept" : "");
}
