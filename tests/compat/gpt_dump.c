/* gpt_dump - trains a GPT from files and writes down what came out, for gpt_torch_test.py to compare.
 *
 *     gpt_dump FOLDER
 *
 * FOLDER/config holds one line of numbers: layers channels heads vocab positions B T steps lr weight_decay
 * beta1 beta2 epsilon clip_norm, optimizer (enum) momentum dampening nesterov decay (enum), and two patterns
 * of names, "-" for none: frozen, not decayed. FOLDER/params: every parameter in the model's order, f32.
 * FOLDER/tokens and FOLDER/targets: (steps, B, T) i32. Written: FOLDER/grads (the first step's, f32, same
 * order), FOLDER/losses (f64, one a step), FOLDER/norms (f64), FOLDER/names (a line a parameter: name,
 * elements), FOLDER/trained.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/model/gpt.h"
#include "runtime/model/param_patterns.h"
#include "runtime/train/trainer.h"

struct settings {
    struct gpt_config gpt;
    struct shape shape;
    int steps;
    struct trainer_step_values values;
    struct optimizer_options optimizer;
    enum param_decay decay;
    char frozen[64], spared[64];
};

/* Where it begins and for how long; every file is read and written as a whole. */
static int transfer(const char *folder, const char *name, bool write, void *data, size_t bytes,
                    struct muster_error *err)
{
    char path[512];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return error_set(err, MUSTER_E_LIMIT, "%s is too long a path", folder);
    scope_fclose FILE *file = fopen(path, write ? "wb" : "rb");
    if (!file)
        return error_errno(err, "%s", path);
    size_t done = write ? fwrite(data, 1, bytes, file) : fread(data, 1, bytes, file);
    if (done != bytes || (write && fflush(file)))
        return error_set(err, MUSTER_E_IO, "%s: %zu of %zu bytes", path, done, bytes);
    return 0;
}

static int read_settings(const char *folder, struct settings *s, struct muster_error *err)
{
    char path[512];
    if (snprintf(path, sizeof path, "%s/config", folder) >= (int)sizeof path)
        return error_set(err, MUSTER_E_LIMIT, "%s is too long a path", folder);
    scope_fclose FILE *file = fopen(path, "r");
    if (!file)
        return error_errno(err, "%s", path);
    struct trainer_step_values *v = &s->values;
    int kind, nesterov, decay;
    int found =
        fscanf(file, "%d %d %d %d %d %d %d %d %lf %lf %lf %lf %lf %lf", &s->gpt.layers, &s->gpt.channels,
               &s->gpt.heads, &s->gpt.vocab, &s->gpt.max_positions, &s->shape.B, &s->shape.T, &s->steps,
               &v->learning_rate, &v->weight_decay, &v->beta1, &v->beta2, &v->epsilon, &v->clip_norm);
    found += fscanf(file, "%d %lf %lf %d %d %63s %63s", &kind, &s->optimizer.momentum,
                    &s->optimizer.dampening, &nesterov, &decay, s->frozen, s->spared);
    if (found != 21)
        return error_set(err, MUSTER_E_INVALID, "%s: %d of 21 values", path, found);
    s->optimizer.kind = (enum optimizer)kind;
    s->optimizer.nesterov = nesterov;
    s->decay = (enum param_decay)decay;
    return 0;
}

static int mark_parameters(struct model *model, struct settings *s, struct muster_error *err)
{
    char *frozen[] = {s->frozen, NULL}, *spared[] = {s->spared, NULL};
    return param_patterns_freeze(model, strcmp(s->frozen, "-") ? frozen : NULL, err) < 0 ||
                   param_patterns_decay(model, s->decay, strcmp(s->spared, "-") ? spared : NULL, err) < 0
               ? -1
               : 0;
}

/* What a run reads and writes, in memory. */
struct arrays {
    float *params, *grads;
    int32_t *tokens, *targets;
    double *losses, *norms;
};

static int each_param(struct trainer *trainer, const struct model *model, float *values,
                      int (*call)(struct trainer *, int, void *, struct muster_error *),
                      struct muster_error *err)
{
    for (int i = 0; i < model->param_count; i++) {
        if (call(trainer, i, values, err))
            return -1;
        values += param_elements(&model->params[i]);
    }
    return 0;
}

static int set_param(struct trainer *trainer, int param, void *values, struct muster_error *err)
{
    return trainer_set_param(trainer, param, values, err);
}

/* Zeros of one that is frozen. */
static int get_grad(struct trainer *trainer, int param, void *values, struct muster_error *err)
{
    const struct plan *plan = trainer_plan(trainer);
    return plan->groups[plan->places[param].group].trainable ? trainer_get_grad(trainer, param, values, err)
                                                             : 0;
}

static int train(struct trainer *trainer, const struct model *model, const struct settings *s,
                 struct arrays *a, struct muster_error *err)
{
    size_t batch = (size_t)s->shape.B * (size_t)s->shape.T;
    struct trainer_step_values values = s->values;
    values.global_tokens = (int64_t)batch;
    if (each_param(trainer, model, a->params, set_param, err))
        return -1;
    for (int step = 0; step < s->steps; step++) {
        struct trainer_stats stats;
        size_t at = (size_t)step * batch;
        if (trainer_step(trainer, a->tokens + at, a->targets + at, &values, &stats, err) ||
            (step == 0 && each_param(trainer, model, a->grads, get_grad, err)))
            return -1;
        a->losses[step] = stats.loss;
        a->norms[step] = stats.grad_norm;
    }
    return each_param(trainer, model, a->params, trainer_get_param, err);
}

static int write_names(const char *folder, const struct model *model, struct muster_error *err)
{
    scope_buffer text = {0};
    for (int i = 0; i < model->param_count; i++) {
        if (buffer_printf(&text, "%s %" PRId64 "\n", model->params[i].name,
                          param_elements(&model->params[i])))
            return error_set(err, MUSTER_E_NOMEM, "no memory for the names");
    }
    return transfer(folder, "names", true, text.data, text.length, err);
}

GUARD_DEFINE(trainer, struct trainer *, trainer_destroy);

static int run(const char *folder, struct muster_error *err)
{
    struct settings s = {0};
    if (read_settings(folder, &s, err))
        return -1;
    GUARD(guard_gpt) struct gpt *gpt = gpt_create(&s.gpt, err);
    if (!gpt || mark_parameters(&gpt->model, &s, err) < 0)
        return -1;
    const struct trainer_options options = {
        .plan = {.strategy = STRATEGY_NO_SHARD,
                 .mesh = {1, 1, 1},
                 .shape = s.shape,
                 .micro_batches = 1,
                 .clip = true,
                 .train = true,
                 .optimizer = s.optimizer},
        .world_size = 1,
        .threads = 2,
        .timeout_ns = 60 * NS_PER_S,
    };
    GUARD(guard_trainer) struct trainer *trainer = trainer_create(&gpt->model, &options, err);
    if (!trainer)
        return -1;
    size_t elements = (size_t)model_parameters(&gpt->model), steps = (size_t)s.steps;
    size_t batches = steps * (size_t)s.shape.B * (size_t)s.shape.T;
    scope_free float *params = mem_calloc(elements, sizeof *params),
                     *grads = mem_calloc(elements, sizeof *grads);
    scope_free int32_t *tokens = mem_calloc(batches, sizeof *tokens),
                       *targets = mem_calloc(batches, sizeof *targets);
    scope_free double *losses = mem_calloc(steps, sizeof *losses), *norms = mem_calloc(steps, sizeof *norms);
    if (!params || !grads || !tokens || !targets || !losses || !norms)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %zu parameters", elements);
    struct arrays arrays = {params, grads, tokens, targets, losses, norms};
    if (transfer(folder, "params", false, params, elements * sizeof *params, err) ||
        transfer(folder, "tokens", false, tokens, batches * sizeof *tokens, err) ||
        transfer(folder, "targets", false, targets, batches * sizeof *targets, err) ||
        train(trainer, &gpt->model, &s, &arrays, err))
        return -1;
    if (transfer(folder, "grads", true, grads, elements * sizeof *grads, err) ||
        transfer(folder, "losses", true, losses, steps * sizeof *losses, err) ||
        transfer(folder, "norms", true, norms, steps * sizeof *norms, err) ||
        transfer(folder, "trained", true, params, elements * sizeof *params, err))
        return -1;
    return write_names(folder, &gpt->model, err);
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: gpt_dump FOLDER\n");
        return 2;
    }
    if (run(argv[1], &err)) {
        fprintf(stderr, "gpt_dump: %s\n", err.text);
        return 1;
    }
    return 0;
}
