/* eval.c - a run that takes no step, with the parameters of a checkpoint or of files; and muster-train eval:
 * its loss on the samples held out, or the figures of a task. See results.h.
 *
 * The samples, their ranks and the order of sums are the same as in an evaluation while training: the figure
 * is the same to the bit. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "runtime/config/train_config_check.h"
#include "trainer/run/checkpoints.h"
#include "trainer/run/command/command.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/inputs.h"
#include "trainer/run/observers.h"
#include "trainer/run/results.h"
#include "trainer/tasks/tasks.h"

/* ---- a run without a step ---- */

static bool is_set(const char *text)
{
    return text && *text;
}

/* The sizes of the configuration are another model's where the files of --model give them. */
void restore_take_sizes(struct train_config *c)
{
    const struct knob_table *table = train_config_table();
    if (train_config_gives_sizes(c))
        return;
    for (size_t i = 0; i < table->count; i++)
        if (!strcmp(table->knobs[i].section, "model") && strcmp(table->knobs[i].name, "model.path") != 0)
            c->sources[i] = KNOB_FROM_DEFAULT;
    c->architecture = TRAIN_ARCHITECTURE_AUTO;
}

/* As a training would go on: from a named checkpoint, else the newest of training.checkpoint_dir, else
 * model.path. Else from the files that a training has written at its end. */
static int take_parameters(struct run *run, const struct restore_source *source, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const char *folder = source->checkpoint ? source->checkpoint : c->checkpoint_dir;
    const bool adapts = train_config_adapts(c); /* their checkpoints have them alone */
    if (adapts && is_set(c->model_path) && muster_trainer_load(run->trainer, c->model_path, err) < 0)
        return -1;
    if (!source->from_model && is_set(folder)) {
        const int found = checkpoints_restore(run, folder, err);
        if (found)
            return found < 0 ? -1 : 0;
        if (source->checkpoint ||
            (!is_set(c->model_path) && !(is_set(c->output) && !access(c->output, R_OK))))
            return error_set(err, MUSTER_E_NOT_FOUND,
                             "there is no checkpoint in %s: name another one with --checkpoint, or a model's "
                             "files with --model",
                             folder);
    }
    if (adapts && is_set(c->model_path))
        return is_set(c->lora_path) ? muster_trainer_load(run->trainer, c->lora_path, err) : 0;
    if (is_set(c->model_path))
        return muster_trainer_load(run->trainer, c->model_path, err);
    if (is_set(c->output) && !access(c->output, R_OK)) /* files of a training */
        return muster_trainer_load(run->trainer, c->output, err);
    return error_set(err, MUSTER_E_INVALID,
                     "there are no parameters: name a model's files with --model (model.path), or a "
                     "checkpoint with --checkpoint (training.checkpoint_dir)");
}

int restore_run(struct run *run, const struct restore_source *source,
                int (*inputs)(struct run *run, struct muster_error *err), struct muster_error *err)
{
    if (run_open_world(run, err) < 0)
        return -1;
    const int failed = inputs(run, err) < 0 || checkpoints_open(run, err) < 0;
    if (muster_world_agree(run->world, failed ? -1 : 0, err) < 0 || run_open_trainer(run, err) < 0 ||
        take_parameters(run, source, err) < 0)
        return -1;
    int32_t drawn = 0;
    const char *text = muster_trainer_drawn(run->trainer, &drawn);
    if (drawn && !run_state(run).steps)
        return error_set(err, MUSTER_E_INVALID, "%s has no classifier: %s", run->config.model_path, text);
    show_opened(run);
    return 0;
}

/* ---- muster-train eval ---- */

/* Evaluates all of data.path where no samples are held out. data.validation_path alone is enough. */
int eval_settings(struct train_config *c, struct muster_error *err)
{
    const bool sources = c->data_sources && c->data_sources[0];
    if (!is_set(c->path) && !sources && is_set(c->validation_path) &&
        run_set(c, "data.path", c->validation_path, err) < 0)
        return -1;
    const bool held_out = c->validation_share > 0 || is_set(c->validation_path);
    if (!held_out && sources)
        return error_set(err, MUSTER_E_INVALID,
                         "data.sources are set, and nothing of them is held out to evaluate: set "
                         "data.validation_share or data.validation_path");
    if (!held_out && is_set(c->path) && run_set(c, "data.validation_path", c->path, err) < 0)
        return -1;
    return train_config_check("", c, TRAIN_ALL, err);
}

static int open_inputs(struct run *run, struct muster_error *err)
{
    run->inputs = inputs_open(&run->config, run->rank, err);
    if (!run->inputs || run_open_model(run, err) < 0)
        return -1;
    return evaluation_open(run, err);
}

/* Loss in bits for each byte of text, which does not depend on the tokenizer. bytes NaN: there is no text. */
static double bits_of_byte(const struct run *run, double bytes)
{
    const struct evaluation_figures *e = evaluation_last(run);
    return e->loss * (double)e->counted / bytes / log(2);
}

static void eval_text(const struct run *run, double bytes, struct buffer *out)
{
    const struct evaluation_figures *e = evaluation_last(run);
    if (inputs_classify(run->inputs)) {
        (void)buffer_printf(
            out,
            "evaluation: loss %.4f, accuracy %.2f%%, precision %.4f, recall %.4f, F1 %.4f, %lld "
            "%s in %.2f s\n",
            e->loss, e->accuracy, e->precision, e->recall, e->f1, (long long)e->counted,
            inputs_unit(run->inputs), (double)e->ns / (double)NS_PER_S);
        return;
    }
    (void)buffer_printf(out, "evaluation: loss %.4f, perplexity %.2f, %lld tokens in %.2f s", e->loss,
                        exp(e->loss), (long long)e->counted, (double)e->ns / (double)NS_PER_S);
    if (isfinite(bytes))
        (void)buffer_printf(out, "; %.4f bits per byte", bits_of_byte(run, bytes));
    (void)buffer_text(out, "\n");
}

static void eval_json(const struct run *run, double bytes, struct buffer *out)
{
    (void)buffer_text(out, "{");
    if (isfinite(bytes)) {
        result_number(out, "bits_per_byte", bits_of_byte(run, bytes));
        result_number(out, "byte_perplexity", exp2(bits_of_byte(run, bytes)));
        (void)buffer_printf(out, "\"bytes\": %.0f, ", bytes);
    }
    result_evaluation(run, out);
    (void)buffer_printf(out, ", \"step\": %lld, \"ranks\": %d, \"seconds\": %.6f}\n",
                        (long long)run_state(run).steps, run->world_size,
                        (double)evaluation_last(run)->ns / (double)NS_PER_S);
}

static int print_result(struct run *run, bool json, FILE *to, struct muster_error *err)
{
    scope_buffer out = {0};
    double bytes;
    if (evaluation_bytes(run, &bytes, err) < 0)
        return -1;
    if (run->rank)
        return 0;
    if (json)
        eval_json(run, bytes, &out);
    else
        eval_text(run, bytes, &out);
    return result_print(to, &out, err);
}

static int evaluate(struct run *run, const struct restore_source *source, bool json, FILE *out,
                    struct muster_error *err)
{
    if (restore_run(run, source, open_inputs, err) < 0 || muster_heartbeat(-1, err) < 0)
        return -1;
    if (evaluation_now(run, err) < 0)
        return error_wrap(err, "evaluation");
    return print_result(run, json, out, err);
}

int eval_run(struct run *run, const struct restore_source *source, bool json, struct muster_error *err)
{
    FILE *out = json ? console_take_output(err) : stdout;
    if (!out)
        return -1;
    const int result = evaluate(run, source, json, out, err);
    if (json)
        (void)fclose(out); /* it was flushed */
    return result;
}

/* ---- muster-train eval --task ----
 *
 * A request is one micro-batch: its loss over the continuation's tokens is the log-likelihood. Every rank has
 * all requests, and computes its part of them; stages have several requests on their way. */

enum { TASK_FILE_LIMIT = 512 << 20, REQUESTS_AT_ONCE = 64, IN_FLIGHT = 4 /* for each stage */ };

struct task_run {
    const struct command_task *asked;
    struct task *task;
    struct task_tokens *request; /* (task->requests) */
    int64_t positions;           /* a forward pass has so many */
    int32_t *inputs, *targets;   /* (REQUESTS_AT_ONCE, positions) */
    double *likelihoods;
    bool *greedy;
};

static void task_run_close(struct run *run)
{
    struct task_run *t = run->task;
    if (!t)
        return;
    for (size_t i = 0; t->request && i < t->task->requests; i++)
        mem_free(t->request[i].tokens);
    mem_free(t->request);
    mem_free(t->inputs);
    mem_free(t->targets);
    mem_free(t->likelihoods);
    mem_free(t->greedy);
    task_destroy(t->task);
    mem_free(t);
    run->task = NULL;
}

/* ---- opening ---- */

static int read_task(struct task_run *t, struct muster_error *err)
{
    scope_buffer text = {0};
    if (io_read_file(t->asked->file, TASK_FILE_LIMIT, &text, err) < 0)
        return -1;
    t->task = task_parse(t->asked->kind, t->asked->file, text.data ? text.data : "", text.length, err);
    if (!t->task)
        return -1;
    t->request = mem_calloc(t->task->requests, sizeof *t->request);
    t->likelihoods = mem_calloc(t->task->requests, sizeof *t->likelihoods);
    t->greedy = mem_calloc(t->task->requests, sizeof *t->greedy);
    return t->request && t->likelihoods && t->greedy ? 0
                                                     : error_set(err, MUSTER_E_NOMEM, "no memory for a task");
}

/* A pass has as many positions as the longest request, or as the settings say: longer requests lose their
 * beginning. No data are read. */
static int open_task(struct run *run, struct muster_error *err)
{
    struct train_config *c = &run->config;
    struct task_run *t = run->task;
    char positions[32], batch[32];
    const struct train_batch place = train_config_batch(c, run->rank, run->world_size);
    int64_t longest;
    run->inputs = inputs_open_tokenizer(c, err);
    GUARD(guard_tokenizer)
    struct tokenizer *tokenizer = run->inputs ? inputs_tokenizer(run->inputs, NULL, err) : NULL;
    if (!tokenizer || read_task(t, err) < 0 ||
        task_encode(t->task, t->asked->file, tokenizer, t->request, &longest, err) < 0)
        return -1;
    const bool given = train_config_source(c, "training.sequence_length") != KNOB_FROM_DEFAULT &&
                       c->sequence_length < longest;
    t->positions = given ? c->sequence_length : longest;
    (void)snprintf(positions, sizeof positions, "%lld", (long long)t->positions); /* fits */
    /* Stages work on several requests at a time. */
    const int64_t stages = run->world_size / place.ranks, at_once = stages > 1 ? IN_FLIGHT * stages : 1;
    (void)snprintf(batch, sizeof batch, "%lld", (long long)(at_once * place.ranks)); /* fits */
    t->inputs = mem_calloc((size_t)t->positions * REQUESTS_AT_ONCE, sizeof *t->inputs);
    t->targets = mem_calloc((size_t)t->positions * REQUESTS_AT_ONCE, sizeof *t->targets);
    if (!t->inputs || !t->targets)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %d requests", REQUESTS_AT_ONCE);
    return run_set(c, "training.sequence_length", positions, err) < 0 ||
                   run_set(c, "training.micro_batch", "1", err) < 0 ||
                   run_set(c, "training.global_batch", batch, err) < 0 ||
                   run_set(c, "data.packing", "auto", err) < 0 /* a request is a row of its own */
               ? -1
               : run_open_model(run, err);
}

/* ---- likelihoods ---- */

/* Whether the likeliest tokens after the context are the continuation. */
static int is_greedy(struct run *run, const struct task_tokens *r, bool *greedy, struct muster_error *err)
{
    const struct muster_sampling likeliest = {.size = sizeof likeliest, .end = -1};
    const int64_t count = r->count - r->context;
    const int64_t from = r->count - 1 > run->task->positions ? r->count - 1 - run->task->positions : 0;
    scope_free int32_t *drawn = mem_calloc((size_t)count, sizeof *drawn);
    const int failed =
        drawn ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for %lld tokens", (long long)count);
    if (muster_world_agree(run->world, failed, err) < 0)
        return -1;
    const int64_t got = muster_trainer_sample(run->trainer, r->tokens + from, r->context - from, &likeliest,
                                              drawn, count, err);
    *greedy = got == count && !memcmp(drawn, r->tokens + r->context, (size_t)count * sizeof *drawn);
    return got < 0 ? -1 : 0;
}

/* Requests from `first` on, that go through the ranks together. */
static int find_likelihoods(struct run *run, size_t first, size_t count, struct muster_error *err)
{
    struct task_run *t = run->task;
    const void *arrays[] = {t->inputs, t->targets};
    double losses[REQUESTS_AT_ONCE];
    for (size_t i = 0; i < count; i++)
        task_lay_out(&t->request[first + i], t->positions, t->inputs + i * (size_t)t->positions,
                     t->targets + i * (size_t)t->positions);
    if (muster_trainer_losses(run->trainer, arrays, (int64_t)count, losses, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        t->likelihoods[first + i] = -losses[i];
    return 0;
}

static int evaluate_requests(struct run *run, struct muster_error *err)
{
    struct task_run *t = run->task;
    for (size_t first = 0; first < t->task->requests; first += REQUESTS_AT_ONCE) {
        const size_t left = t->task->requests - first,
                     count = left < REQUESTS_AT_ONCE ? left : REQUESTS_AT_ONCE;
        if (find_likelihoods(run, first, count, err) < 0)
            return -1;
        for (size_t i = first; t->asked->kind == TASK_LAMBADA && i < first + count; i++)
            if (is_greedy(run, &t->request[i], &t->greedy[i], err) < 0)
                return -1;
        if (muster_heartbeat(-1, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- figures ---- */

static void result_json(const struct run *run, const struct task_result *r, double seconds,
                        struct buffer *out)
{
    const struct task *task = run->task->task;
    (void)buffer_printf(out, "{\"task\": \"%s\", ", task_name(task->kind)); /* out remembers a failure */
    result_number(out, "acc", r->acc);
    result_number(out, "acc_stderr", r->acc_stderr);
    if (task->kind == TASK_LAMBADA) {
        result_number(out, "perplexity", r->perplexity);
    } else {
        result_number(out, "acc_norm", r->acc_norm);
        result_number(out, "acc_norm_stderr", r->acc_norm_stderr);
    }
    (void)buffer_text(out, "\"loglikelihoods\": [");
    for (size_t i = 0; i < task->requests; i++)
        (void)buffer_printf(out, i ? ", %.17g" : "%.17g", run->task->likelihoods[i]);
    (void)buffer_printf(out, "], \"samples\": %zu, \"step\": %lld, \"ranks\": %d, \"seconds\": %.6f}\n",
                        task->rows, (long long)run_state(run).steps, run->world_size, seconds);
}

static void result_text(const struct task *task, const struct task_result *r, double seconds,
                        struct buffer *out)
{
    (void)buffer_printf(out, "%s: acc %.4f +- %.4f, ", task_name(task->kind), r->acc, r->acc_stderr);
    if (task->kind == TASK_LAMBADA)
        (void)buffer_printf(out, "perplexity %.4f, ", r->perplexity);
    else
        (void)buffer_printf(out, "acc_norm %.4f +- %.4f, ", r->acc_norm, r->acc_norm_stderr);
    (void)buffer_printf(out, "%zu samples in %.2f s\n", task->rows, seconds);
}

static int evaluate_task(struct run *run, const struct restore_source *source, bool json, FILE *to,
                         struct muster_error *err)
{
    scope_buffer out = {0};
    if (restore_run(run, source, open_task, err) < 0)
        return -1;
    if (run->config.ema_evaluate && muster_trainer_average(run->trainer, 1, err) < 0)
        return -1;
    const struct instant begun = clock_now(NULL);
    if (evaluate_requests(run, err) < 0)
        return error_wrap(err, "--task %s", task_name(run->task->asked->kind));
    const double seconds = (double)instant_diff_ns(clock_now(NULL), begun) / (double)NS_PER_S;
    if (run->rank)
        return 0;
    const struct task_result result = task_score(run->task->task, run->task->likelihoods, run->task->greedy);
    if (json)
        result_json(run, &result, seconds, &out);
    else
        result_text(run->task->task, &result, seconds, &out);
    return result_print(to, &out, err);
}

int task_settings(const struct train_config *config, struct muster_error *err)
{
    if (train_config_reads_pictures(config) || train_config_reads_labels(config))
        return error_set(
            err, MUSTER_E_INVALID,
            "model.architecture is a model of %s, which continues no text: --task needs a language "
            "model",
            train_config_reads_pictures(config) ? "pictures" : "labelled texts");
    return train_config_check("", config, TRAIN_MODEL | TRAIN_TRAINING, err);
}

int eval_task_run(struct run *run, const struct restore_source *source, const struct command_task *asked,
                  bool json, struct muster_error *err)
{
    FILE *out = json ? console_take_output(err) : stdout;
    if (!out)
        return -1;
    run->task = mem_calloc(1, sizeof *run->task);
    int result = run->task ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for a task");
    if (!result) {
        run->task->asked = asked;
        result = evaluate_task(run, source, json, out, err);
    }
    task_run_close(run);
    if (json)
        (void)fclose(out); /* it was flushed */
    return result;
}
