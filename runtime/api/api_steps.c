/* api_steps.c - muster_trainer.h: steps, forward passes and generation, with the caller's arrays checked. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/api/api_trainer.h"
#include "runtime/model/program_internal.h"
#include "runtime/train/generate.h"
#include "runtime/world/sized.h"

/* ---- batches ---- */

/* Numbers in the vocabulary. Returns how many count, or -1. */
static int64_t check_numbers(const struct muster_trainer *t, int input, const int32_t *array, int64_t count,
                             struct muster_error *err)
{
    const int32_t least = t->compared[input] ? -1 : 0;
    const int64_t numbers = api_numbers(t, input);
    int64_t counted = 0;
    for (int64_t i = 0; i < count; i++) {
        if (array[i] < least || array[i] >= numbers)
            return error_set(err, MUSTER_E_INVALID, "%s[%lld] is %d, but must be %d to %lld",
                             t->model.inputs[input].name, (long long)i, array[i], least,
                             (long long)numbers - 1);
        counted += array[i] >= 0;
    }
    return counted;
}

static double element_at(const void *array, enum dtype dtype, int64_t i)
{
    return dtype == DTYPE_F32 ? (double)((const float *)array)[i] : ((const double *)array)[i];
}

/* Finite values; of inputs that are compared NaN too, which does not count. */
static int64_t check_values(const struct muster_trainer *t, int input, const void *array, int64_t count,
                            struct muster_error *err)
{
    const enum dtype dtype = t->model.inputs[input].dtype;
    int64_t counted = dtype == DTYPE_U8 ? count : 0;
    for (int64_t i = 0; dtype != DTYPE_U8 && i < count; i++) {
        const double value = element_at(array, dtype, i);
        if (isinf(value) || (isnan(value) && !t->compared[input]))
            return error_set(err, MUSTER_E_INVALID, "%s[%lld] is %g, but must be finite%s",
                             t->model.inputs[input].name, (long long)i, value,
                             t->compared[input] ? ", or NaN where it does not count" : "");
        counted += !isnan(value);
    }
    return counted;
}

/* Kernels read keys from a position's place before it on. */
static int check_places(const struct muster_trainer *t, int input, const int32_t *array, int64_t count,
                        struct muster_error *err)
{
    for (int64_t i = 0; t->model.inputs[input].places && i < count; i++) {
        const int32_t next = i % t->plan.shape.T ? array[i - 1] + 1 : 0;
        if (array[i] != 0 && array[i] != next)
            return error_set(
                err, MUSTER_E_INVALID,
                "%s[%lld] is %d, but must be 0, at the begin of a document, or the place after the "
                "position before it, %d",
                t->model.inputs[input].name, (long long)i, array[i], next);
    }
    return 0;
}

static int check_array(const struct muster_trainer *t, int input, const void *array, int64_t rows,
                       int64_t *targets, struct muster_error *err)
{
    const struct batch_input *desc = &t->model.inputs[input];
    const int64_t count = rows * desc->width;
    if (count && !array)
        return error_set(err, MUSTER_E_INVALID, "the array of input %s is NULL", desc->name);
    int64_t counted = desc->dtype == DTYPE_I32 ? check_numbers(t, input, array, count, err)
                                               : check_values(t, input, array, count, err);
    if (counted < 0 || check_places(t, input, array, count, err) < 0)
        return -1;
    if (t->compared[input])
        *targets = counted;
    return 0;
}

static int take_arrays(const struct muster_trainer *t, const void *const *arrays, int64_t rows, int64_t most,
                       struct batch *batch, int64_t *targets, struct muster_error *err)
{
    if (rows < 0 || rows > most)
        return error_set(err, MUSTER_E_INVALID, "%lld samples were given; there may be 0 to %lld",
                         (long long)rows, (long long)most);
    for (int i = 0; i < t->model.input_count; i++) {
        batch->input[i] = rows ? arrays[i] : NULL;
        const int64_t positions = t->model.inputs[i].positions ? t->plan.shape.T : 1;
        if (check_array(t, i, batch->input[i], rows * positions, targets, err) < 0)
            return -1;
    }
    return 0;
}

int api_check_arrays(const struct muster_trainer *t, const void *const *arrays, int64_t rows,
                     struct muster_error *err)
{
    struct batch batch = {{0}};
    int64_t targets = 0;
    return take_arrays(t, arrays, rows, INT64_MAX / (t->plan.shape.T + 1), &batch, &targets, err);
}

/* All ranks' targets, and whether all ranks have a batch: a refused batch is an error on every rank. */
static int meet(struct muster_trainer *t, int failed, int64_t *targets, struct muster_error *err)
{
    double sums[2] = {trainer_gives_loss(t->trainer) ? (double)*targets : 0, failed != 0};
    if (trainer_reduce(t->trainer, sums, 2, failed ? NULL : err) < 0 || failed)
        return -1;
    if (sums[1] > 0)
        return error_set(err, MUSTER_E_PEER, "the batch of %.0f other ranks was refused, see their errors",
                         sums[1]);
    *targets = (int64_t)sums[0];
    return 0;
}

/* ---- a step ---- */

static double or_else(double override, double usual)
{
    return isnan(override) ? usual : override;
}

static struct trainer_step_values values_of(const struct muster_trainer *t, int64_t rows, int64_t targets)
{
    const struct train_config *c = &t->config;
    struct lr_schedule schedule = train_config_schedule(c);
    if (schedule.kind == LR_PLATEAU)
        schedule.peak = t->plateau.rate;
    const struct api_overrides *o = &t->overrides;
    const int64_t updates = t->updates - t->stage.first_updates;
    return (struct trainer_step_values){
        .learning_rate = or_else(o->learning_rate, lr_at(&schedule, updates)),
        .weight_decay = or_else(o->weight_decay, c->weight_decay),
        .beta1 = or_else(o->beta1, lr_momentum_at(&schedule, updates, c->beta1)),
        .beta2 = or_else(o->beta2, c->beta2),
        .epsilon = or_else(o->epsilon, c->epsilon),
        .clip_norm = or_else(o->clip_norm, c->clip_norm),
        .global_tokens = targets,
        .first_sample = (uint64_t)t->taken,
        .stop = t->stop,
        .checkpoint = t->wants_checkpoint,
        .missing = (int64_t)t->plan.micro_batches * t->plan.shape.B - rows,
        .next_targets = t->next_targets,
    };
}

static void keep_result(struct muster_trainer *t, const struct trainer_stats *stats,
                        const struct trainer_step_values *values)
{
    t->last = (struct muster_result){.size = sizeof t->last,
                                     .skipped = stats->skipped,
                                     .stop = stats->stop,
                                     .checkpoint = stats->checkpoint,
                                     .loss = stats->loss,
                                     .grad_norm = stats->grad_norm,
                                     .learning_rate = values->learning_rate,
                                     .targets = values->global_tokens,
                                     .step_ns = stats->step_ns,
                                     .comm_ns = stats->comm_ns,
                                     .exposed_ns = stats->exposed_ns,
                                     .loss_scale = stats->loss_scale,
                                     .nonfinite = stats->nonfinite_param,
                                     .nonfinite_rank = stats->nonfinite_rank,
                                     .correct = stats->correct,
                                     .wire_bytes = stats->wire_bytes,
                                     .compression_error = stats->compression_error};
    t->steps++;
    t->taken += t->config.global_batch;
    t->updates += !stats->skipped;
}

static int run_step(struct muster_trainer *t, const struct batch *batch, int64_t rows, int64_t targets,
                    struct muster_error *err)
{
    struct trainer_stats stats;
    const struct trainer_step_values values = values_of(t, rows, targets);
    if (api_cut_before_step(t, err) < 0 || trainer_step(t->trainer, batch, &values, &stats, err))
        return -1;
    keep_result(t, &stats, &values);
    /* A run that goes back to another sample has nothing announced. */
    t->announced = (struct api_announced){.first = -1};
    if (!isnan(stats.next_targets))
        t->announced =
            (struct api_announced){t->taken, (int64_t)t->next_targets, (int64_t)stats.next_targets};
    t->next_targets = NAN;
    const int timed = api_cut_after_step(t, err);
    if (timed < 0 || (timed && api_note_cut(t, err) < 0))
        return -1;
    return api_copies_step(t, err);
}

/* The targets of the step that comes, over all ranks, from this rank's: known before, announced by the step
 * before, or counted by a collective. */
static int count_targets(struct muster_trainer *t, int failed, int64_t *targets, struct muster_error *err)
{
    const struct api_announced *announced = &t->announced;
    const int64_t here = *targets;
    const bool told = announced->first == t->taken;
    if (!t->targets && !told && meet(t, failed, targets, err) < 0)
        return -1;
    if (failed)
        return -1;
    if (t->targets)
        *targets = t->targets;
    else if (told && here != announced->here)
        return error_set(err, MUSTER_E_INVALID,
                         "%lld targets of this rank's batch count, but next_targets was set to %lld before "
                         "the last step; give the batch that was announced",
                         (long long)here, (long long)announced->here);
    else if (told)
        *targets = announced->sums;
    return *targets ? 0 : error_set(err, MUSTER_E_INVALID, "no target of this step counts, on any rank");
}

int muster_trainer_train(struct muster_trainer *t, const void *const *arrays, int64_t rows,
                         struct muster_result *result, struct muster_error *err)
{
    struct batch batch = {{0}};
    int64_t targets = 0;
    struct muster_result unused = {.size = sizeof unused}, *out = result ? result : &unused;
    int failed = sized_out("muster_result", out, out->size, &t->last, sizeof t->last,
                           offsetof(struct muster_result, learning_rate), err) < 0 ||
                 take_arrays(t, arrays, rows, api_samples(t), &batch, &targets, err) < 0;
    if (count_targets(t, failed, &targets, err) < 0 || run_step(t, &batch, rows, targets, err) < 0)
        return -1;
    return sized_out("muster_result", out, out->size, &t->last, sizeof t->last, 0, err);
}

int muster_trainer_reduce(struct muster_trainer *t, double *values, int64_t count, struct muster_error *err)
{
    if (count < 0 || (count && !values))
        return error_set(err, MUSTER_E_INVALID, "%lld values cannot be summed", (long long)count);
    return count ? trainer_reduce(t->trainer, values, count, err) : 0;
}

int muster_trainer_nonfinite(struct muster_trainer *t, int32_t *parameter, int32_t *rank,
                             struct muster_error *err)
{
    int found = -1, holder = -1;
    if (trainer_nonfinite(t->trainer, &found, &holder, err) < 0)
        return -1;
    *parameter = found;
    *rank = holder;
    return 0;
}

/* ---- forward ---- */

/* The layer and value of a handle, and the number of elements in a row. */
static int find_value(const struct muster_trainer *t, int32_t value, struct layer_capture *capture,
                      struct muster_error *err)
{
    int layer = value / API_HANDLE_VALUES, at = value % API_HANDLE_VALUES;
    const struct program *p =
        value >= 0 && layer < t->model.layer_count ? t->model.layers[layer].config : NULL;
    bool logits = p && at == API_LOGITS && p->result < 0;
    if (!logits && (!p || at >= p->value_count || p->values[at].step < 0))
        return error_set(err, MUSTER_E_INVALID, "value %d is none of an operation of model %s", value,
                         t->model.name);
    capture->layer = layer;
    capture->value = logits ? LAYER_LOGITS : at;
    const int64_t width = logits ? p->steps[p->step_count - 1].settings.vocabulary : p->values[at].width;
    if (p->values[logits ? p->steps[p->step_count - 1].in[0] : at].sample)
        capture->rows /= t->plan.shape.T; /* a row for each sample */
    capture->bytes = capture->rows * width * (int64_t)sizeof(float);
    return 0;
}

int muster_trainer_forward(struct muster_trainer *t, const void *const *arrays, int64_t rows, int32_t value,
                           float *out, double sums[2], struct muster_error *err)
{
    struct batch batch = {{0}};
    struct layer_capture capture = {.rows = rows * t->plan.shape.T, .out = out};
    struct trainer_forward forward = {.samples = rows, .capture = value >= 0 && rows ? &capture : NULL};
    int64_t targets = 0;
    int failed = take_arrays(t, arrays, rows, t->plan.shape.B, &batch, &targets, err) < 0;
    if (!failed && value >= 0)
        failed = find_value(t, value, &capture, err);
    if (!failed && value >= 0 && rows && !out)
        failed = error_set(err, MUSTER_E_INVALID, "value %d has no memory to come to", value);
    if (meet(t, failed, &targets, err) < 0 || trainer_forward(t->trainer, &batch, &forward, err))
        return -1;
    if (forward.capture && trainer_share_value(t->trainer, &capture, err))
        return -1;
    double found[2] = {forward.loss_total, (double)forward.loss_count};
    if (trainer_reduce(t->trainer, found, 2, err) < 0)
        return -1;
    if (sums)
        memcpy(sums, found, sizeof found);
    return 0;
}

/* How many forward passes there are on the rank with the most samples; a batch that was refused is an error
 * on every rank. */
static int count_passes(struct muster_trainer *t, int failed, int64_t rows, int64_t *passes,
                        struct muster_error *err)
{
    const int B = t->plan.shape.B;
    double most[2] = {failed ? 0 : (double)((rows + B - 1) / B), failed != 0};
    if (trainer_maximum(t->trainer, most, 2, failed ? NULL : err) < 0 || failed)
        return -1;
    if (most[1] > 0)
        return error_set(err, MUSTER_E_PEER, "the samples of another rank were refused, see its error");
    *passes = (int64_t)most[0];
    return 0;
}

/* For each class: actual, predicted and correct rows. The first of the largest logits is the prediction. */
static void count_classes(struct muster_trainer *t, const float *logits, const int32_t *labels, int64_t rows)
{
    const int64_t classes = t->classes;
    for (int64_t n = 0; n < rows; n++, logits += classes) {
        int64_t best = 0;
        for (int64_t i = 1; i < classes; i++)
            best = logits[i] > logits[best] ? i : best;
        if (labels[n] < 0)
            continue;
        t->class_rows[3 * labels[n]]++;
        t->class_rows[3 * best + 1]++;
        t->class_rows[3 * best + 2] += best == labels[n];
    }
}

/* Passes `pass` to pass + micros - 1 over this rank's samples, of which it may have none left. logits: memory
 * for the logits of as many passes, in a model of classes; captures: as many. */
static int evaluate_passes(struct muster_trainer *t, const struct batch *all, int64_t rows, int64_t pass,
                           int micros, float *logits, struct layer_capture *captures, double sums[3],
                           struct muster_error *err)
{
    const struct shape shape = t->plan.shape;
    const int64_t first = pass * shape.B, left = rows > first ? rows - first : 0,
                  room = (int64_t)micros * shape.B;
    const int64_t of_sample = t->classes_of_samples ? 1 : shape.T;
    struct trainer_forward forward = {.micros = micros, .samples = left < room ? left : room};
    for (int i = 0; i < micros; i++) {
        const int64_t here = forward.samples - (int64_t)i * shape.B;
        captures[i] = (struct layer_capture){.layer = t->model.layer_count - 1,
                                             .value = LAYER_LOGITS,
                                             .rows = (here < 0         ? 0
                                                      : here < shape.B ? here
                                                                       : shape.B) *
                                                     of_sample,
                                             .out = logits + i * shape.B * of_sample * t->classes};
        captures[i].bytes = captures[i].rows * t->classes * (int64_t)sizeof *logits;
    }
    if (captures[0].bytes > 0 && trainer_gives_loss(t->trainer))
        forward.capture = captures;
    struct batch batch = {{0}};
    for (int i = 0; left && i < t->model.input_count; i++)
        batch.input[i] = (const char *)all->input[i] + pass * batch_input_bytes(&t->model, shape, i);
    forward.loss_total = sums[0];
    forward.correct = sums[2];
    if (trainer_forward(t->trainer, &batch, &forward, err))
        return -1;
    sums[0] = forward.loss_total;
    sums[1] += (double)forward.loss_count;
    sums[2] = forward.correct;
    if (forward.capture)
        count_classes(t, logits, batch.input[t->labels], forward.samples * of_sample);
    return 0;
}

int muster_trainer_evaluate(struct muster_trainer *t, const void *const *arrays, int64_t rows, double sums[2],
                            struct muster_error *err)
{
    struct batch batch = {{0}};
    int64_t targets = 0, passes = 0;
    double found[3] = {0};
    const int most = trainer_forward_micros(t->trainer);
    const size_t pass_rows = (size_t)t->plan.shape.B * (size_t)(t->classes_of_samples ? 1 : t->plan.shape.T);
    scope_free float *logits = mem_calloc((size_t)most * pass_rows, (size_t)t->classes * sizeof *logits + 1);
    scope_free struct layer_capture *captures = mem_calloc((size_t)most, sizeof *captures);
    mem_free(t->class_rows);
    t->class_rows = mem_calloc(3 * (size_t)t->classes + 1, sizeof *t->class_rows);
    int failed = !logits || !captures || !t->class_rows
                     ? error_set(err, MUSTER_E_NOMEM, "no memory for an evaluation")
                     : 0;
    failed =
        failed || take_arrays(t, arrays, rows, INT64_MAX / (t->plan.shape.T + 1), &batch, &targets, err) < 0;
    if (count_passes(t, failed, rows, &passes, err) < 0)
        return -1;
    for (int64_t pass = 0, micros; pass < passes; pass += micros) {
        micros = passes - pass < most ? passes - pass : most;
        if (evaluate_passes(t, &batch, rows, pass, (int)micros, logits, captures, found, err) < 0)
            return -1;
    }
    if (trainer_reduce(t->trainer, found, 3, err) < 0 ||
        (t->classes && trainer_reduce(t->trainer, t->class_rows, 3 * t->classes, err) < 0))
        return -1;
    memcpy(sums, found, 2 * sizeof *sums);
    t->evaluated_correct = found[2];
    return 0;
}

/* A pass over `count` of the samples, which may be fewer than the rank with the most has. */
static int lose_samples(struct muster_trainer *t, const struct batch *all, int64_t first, int64_t count,
                        int micros, double *losses, struct muster_error *err)
{
    struct batch batch = {{0}};
    struct trainer_forward forward = {.micros = micros, .samples = count, .losses = losses};
    for (int i = 0; count && i < t->model.input_count; i++)
        batch.input[i] = (const char *)all->input[i] + first * batch_input_bytes(&t->model, t->plan.shape, i);
    return trainer_forward(t->trainer, &batch, &forward, err);
}

int muster_trainer_losses(struct muster_trainer *t, const void *const *arrays, int64_t rows, double *losses,
                          struct muster_error *err)
{
    struct batch all = {{0}};
    const struct train_batch place = api_batch(t);
    int64_t targets = 0, passes = 0;
    const int64_t most = trainer_forward_micros(t->trainer);
    scope_free double *own = mem_calloc((size_t)most, sizeof *own);
    int failed = own ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for the losses of a pass");
    if (!failed && t->plan.shape.B != 1)
        failed =
            error_set(err, MUSTER_E_STATE,
                      "the loss of each sample needs training.micro_batch=1, and it is %d", t->plan.shape.B);
    failed =
        failed || take_arrays(t, arrays, rows, INT64_MAX / (t->plan.shape.T + 1), &all, &targets, err) < 0;
    if (count_passes(t, failed, rows, &passes, err) < 0)
        return -1;
    memset(losses, 0, (size_t)rows * sizeof *losses);
    for (int64_t base = 0; base < passes; base += most * place.ranks) {
        const int64_t first = base + most * place.rank, left = rows - first, together = rows - base,
                      count = left < 0      ? 0
                              : left < most ? left
                                            : most,
                      micros = together < most ? together : most;
        memset(own, 0, (size_t)most * sizeof *own);
        if (lose_samples(t, &all, first, count, (int)micros, own, err) < 0)
            return -1;
        if (count)
            memcpy(losses + first, own, (size_t)count * sizeof *own);
    }
    return rows ? trainer_reduce(t->trainer, losses, rows, err) : 0;
}

int muster_trainer_evaluated_class(const struct muster_trainer *t, int64_t number, double rows[3],
                                   struct muster_error *err)
{
    if (number < 0 || number >= t->classes)
        return error_set(err, MUSTER_E_INVALID, "class %lld: the model has %lld classes that are counted",
                         (long long)number, (long long)t->classes);
    if (!t->class_rows)
        return error_set(err, MUSTER_E_STATE, "classes are counted by evaluations, and there was none yet");
    memcpy(rows, t->class_rows + 3 * number, 3 * sizeof *rows);
    return 0;
}

/* ---- generation ---- */

int muster_trainer_generate(struct muster_trainer *t, const int32_t *prompt, int64_t prompt_count,
                            double temperature, uint64_t seed, int32_t limit, int32_t *tokens, int64_t count,
                            struct muster_error *err)
{
    struct generate_options options = {.sample = {.temperature = temperature, .seed = seed},
                                       .prompt = prompt,
                                       .prompt_count = prompt_count,
                                       .count = count,
                                       .limit = limit,
                                       .end = -1};
    return trainer_generate(t->trainer, &options, tokens, err);
}

static int check_sampling(const struct muster_sampling *s, struct muster_error *err)
{
    if (!(s->temperature >= 0) || isinf(s->temperature))
        return error_set(err, MUSTER_E_INVALID, "the temperature is %g, but must be finite and at least 0",
                         s->temperature);
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return error_set(err, MUSTER_E_INVALID, "top_p is %g, but must be 0 to 1", s->top_p);
    if (s->top_k < 0)
        return error_set(err, MUSTER_E_INVALID, "top_k is %d, but must be at least 0", s->top_k);
    return 0;
}

int64_t muster_trainer_sample(struct muster_trainer *t, const int32_t *prompt, int64_t prompt_count,
                              const struct muster_sampling *sampling, int32_t *tokens, int64_t count,
                              struct muster_error *err)
{
    struct muster_sampling s;
    if (sized_in("muster_sampling", &s, sizeof s, sampling, sampling->size, sizeof s, err) < 0 ||
        check_sampling(&s, err) < 0)
        return -1;
    struct generate_options options = {.sample = {s.temperature, s.top_k, s.top_p, s.seed},
                                       .prompt = prompt,
                                       .prompt_count = prompt_count,
                                       .count = count,
                                       .limit = s.limit,
                                       .end = s.end};
    return trainer_generate(t->trainer, &options, tokens, err) < 0 ? -1 : options.drawn;
}
