/* quantize.c - see quantize.h. */
#include "runtime/quantize/quantize.h"

#include <string.h>

#include "proto/base/error.h"
#include "runtime/rounding/coded.h"
#include "runtime/train/layer_moments.h"

static const char *const method_names[] = {
#define METHOD_NAME(symbol, name) name,
    QUANTIZE_METHODS(METHOD_NAME)
#undef METHOD_NAME
};

int quantize_method_find(const char *name, enum quantize_method *method, struct muster_error *err)
{
    for (int i = 0; i < QUANTIZE_METHOD_COUNT; i++)
        if (name && !strcmp(name, method_names[i])) {
            *method = (enum quantize_method)i;
            return 0;
        }
    return error_set(err, MUSTER_E_INVALID,
                     "method '%s'; there are int8, int4, gptq and none (pruning alone)", name ? name : "");
}

/* ---- checks, before anything is changed ---- */

/* Coding of a chosen parameter; CODING_COUNT: it keeps its full width. */
static enum coding coding_of(const struct quantized *q, int param)
{
    switch (q->options.method) {
    case QUANTIZE_INT4:
    case QUANTIZE_GPTQ:
        return quantized_is_table(q, param) ? CODING_INT8 : CODING_INT4;
    case QUANTIZE_INT8:
        return CODING_INT8;
    case QUANTIZE_NONE:
    case QUANTIZE_METHOD_COUNT:
        break;
    }
    return CODING_COUNT;
}

static int quantize_check(const struct trainer *trainer, const struct quantize_options *o,
                          struct muster_error *err)
{
    const struct plan_options *plan = &trainer_plan(trainer)->options;
    if (plan->world_size > 1)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "a model is quantised by one process, and there are %d ranks: run it without muster run",
            plan->world_size);
    if (trainer_model(trainer)->adapter_scale != 0)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "%s has adapters: export it with lora.merge=true first, and quantise that",
                         trainer_model(trainer)->name);
    for (int i = 0; i < trainer_model(trainer)->param_count; i++)
        if (trainer_model(trainer)->params[i].statistic != PARAM_LEARNED)
            return error_set(
                err, MUSTER_E_UNSUPPORTED,
                "%s has running statistics (%s): models of products and norms of rows are quantised",
                trainer_model(trainer)->name, trainer_model(trainer)->params[i].name);
    if (!(o->prune >= 0 && o->prune < 1))
        return error_set(err, MUSTER_E_INVALID, "a share of %g is to be pruned; it must be from 0 to below 1",
                         o->prune);
    if (o->method == QUANTIZE_NONE && o->prune == 0)
        return error_set(err, MUSTER_E_INVALID,
                         "method none changes nothing without a share to prune: give one, or another method");
    if (o->method == QUANTIZE_GPTQ && o->prune > 0)
        return error_set(err, MUSTER_E_INVALID,
                         "gptq makes up for errors in elements that were pruned: prune with int4 or int8");
    if (o->method == QUANTIZE_GPTQ && o->rows < 1)
        return error_set(err, MUSTER_E_INVALID, "gptq needs a calibration set of at least one sample");
    return 0;
}

static int check_shapes(struct quantized *q, struct muster_error *err)
{
    for (int i = 0; i < q->model->param_count; i++) {
        const struct param_desc *param = &q->model->params[i];
        const enum coding coding = q->chosen[i] ? coding_of(q, i) : CODING_COUNT;
        if (coding == CODING_COUNT)
            continue;
        q->coded[i] = (struct coded){.coding = coding,
                                     .rows = param->dim[0],
                                     .columns = param->dim[1],
                                     .group = coding == CODING_INT4 ? q->options.group : param->dim[1]};
        if (coded_check(coding, param->dim[0], param->dim[1], q->options.group, param->name, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- one parameter ---- */

static float *take_values(const struct quantized *q, struct trainer *trainer, int param,
                          struct muster_error *err)
{
    const struct param_desc *desc = &q->model->params[param];
    float *values = mem_calloc((size_t)param_elements(desc), sizeof *values);
    if (!values) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the values of %s", desc->name);
        return NULL;
    }
    if (trainer_get_param(trainer, param, values, err) < 0) {
        mem_free(values);
        return NULL;
    }
    return values;
}

/* Rounds, with gptq where it is not NULL, and sets the trainer's own to the decoded values. */
static int round_param(struct quantized *q, struct trainer *trainer, int param, const struct gptq *gptq,
                       struct muster_error *err)
{
    const struct param_desc *desc = &q->model->params[param];
    struct coded *coded = &q->coded[param];
    scope_free float *values = take_values(q, trainer, param, err);
    if (!values)
        return -1;
    if (q->options.prune > 0) {
        const int64_t pruned = prune_smallest(values, param_elements(desc), q->options.prune, err);
        if (pruned < 0)
            return error_wrap(err, "%s", desc->name);
        q->pruned += pruned;
    }
    if (coded->rows) {
        if (coded_create(coded, err) < 0 || (gptq ? gptq_round(gptq, coded, values, desc->name, err)
                                                  : coded_round(coded, values, desc->name, err)) < 0)
            return -1;
        coded_open(coded, 0, param_elements(desc), values);
    }
    return trainer_set_param(trainer, param, values, err);
}

/* ---- by what products read ---- */

struct gptq_visit {
    struct quantized *q;
    struct trainer *trainer;
};

static bool rounds_any(const struct quantized *q, const struct layer_moments *m)
{
    for (int i = 0; i < m->param_count; i++)
        if (q->chosen[m->param[i]] && q->coded[m->param[i]].coding == CODING_INT4)
            return true;
    return false;
}

static int visit_moments(void *context, const struct layer_moments *m, struct muster_error *err)
{
    struct gptq_visit *v = context;
    struct gptq gptq;
    if (!rounds_any(v->q, m))
        return 0;
    if (gptq_create(&gptq, m->moments, m->columns, err) < 0)
        return error_wrap(err, "%s", v->q->model->params[m->param[0]].name);
    int failed = 0;
    for (int i = 0; i < m->param_count && !failed; i++) {
        const int param = m->param[i];
        const bool first =
            !v->q->coded[param].codes; /* a parameter that two products share is rounded once */
        if (v->q->chosen[param] && v->q->coded[param].coding == CODING_INT4 && first)
            failed = round_param(v->q, v->trainer, param, &gptq, err);
    }
    gptq_free(&gptq);
    return failed;
}

/* ---- all ---- */

static int quantize_all(struct quantized *q, struct trainer *trainer, struct muster_error *err)
{
    struct gptq_visit visit = {q, trainer};
    const bool gptq = q->options.method == QUANTIZE_GPTQ;
    /* Tables first: what products read follows from them. */
    for (int i = 0; i < q->model->param_count; i++)
        if (q->chosen[i] && !(gptq && q->coded[i].coding == CODING_INT4) &&
            round_param(q, trainer, i, NULL, err) < 0)
            return -1;
    return gptq ? trainer_visit_moments(trainer, q->options.arrays, q->options.rows, visit_moments, &visit,
                                        err)
                : 0;
}

struct quantized *quantize(struct trainer *trainer, const struct quantize_options *options,
                           struct muster_error *err)
{
    const size_t params = (size_t)trainer_model(trainer)->param_count;
    if (quantize_check(trainer, options, err) < 0)
        return NULL;
    GUARD(guard_quantized) struct quantized *q = mem_calloc(1, sizeof *q);
    if (q) {
        *q = (struct quantized){.model = trainer_model(trainer),
                                .options = *options,
                                .chosen = mem_calloc(params, sizeof *q->chosen),
                                .coded = mem_calloc(params, sizeof *q->coded)};
    }
    if (!q || !q->chosen || !q->coded) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to quantise %zu parameters", params);
        return NULL;
    }
    if (quantized_choose(q, err) < 0 || check_shapes(q, err) < 0 || quantize_all(q, trainer, err) < 0)
        return NULL;
    return take_pointer(&q);
}

void quantized_free(struct quantized *q)
{
    if (!q)
        return;
    for (int i = 0; q->coded && i < q->model->param_count; i++)
        coded_free(&q->coded[i]);
    mem_free(q->coded);
    mem_free(q->chosen);
    mem_free(q);
}

int64_t quantized_plain_bytes(const struct quantized *q, enum dtype dtype)
{
    return model_parameters(q->model) * dtype_size(dtype);
}

int64_t quantized_bytes(const struct quantized *q, enum dtype dtype)
{
    int64_t bytes = 0;
    for (int i = 0; i < q->model->param_count; i++)
        bytes += q->coded[i].codes ? coded_bytes(&q->coded[i])
                                   : param_elements(&q->model->params[i]) * dtype_size(dtype);
    return bytes;
}
