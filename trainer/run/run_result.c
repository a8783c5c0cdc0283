/* run_result.c - what a program that called this one reads: one object of JSON, of data that were prepared
 * and of a training that has ended. What is printed of
 * training.checkpoint_command, and whether the run has left its last checkpoint and a copy of it. See run.h.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "trainer/formats/stages.h"
#include "trainer/pictures/pictures.h"
#include "trainer/run/run.h"

/* With every digit; a figure that is no number is null. */
void run_result_number(struct buffer *out, const char *name, double value)
{
    (void)buffer_printf(out, isfinite(value) ? "\"%s\": %.17g, " : "\"%s\": null, ", name, value);
}

void run_result_evaluation(const struct run *run, struct buffer *out)
{
    const struct run_evaluation *e = &run->evaluation;
    run_result_number(out, "loss", e->loss);
    if (run_classifies(run)) {
        run_result_number(out, "accuracy", e->accuracy);
        run_result_number(out, "precision", e->precision);
        run_result_number(out, "recall", e->recall);
        run_result_number(out, "f1", e->f1);
    } else {
        run_result_number(out, "perplexity", exp(e->loss));
    }
    (void)buffer_printf(out, "\"%s\": %lld, \"samples\": %lld", run_unit(run), (long long)e->counted,
                        (long long)e->samples);
}

int run_result_print(FILE *to, struct buffer *out, struct muster_error *err)
{
    if (buffer_text(out, ""))
        return error_set(err, MUSTER_E_NOMEM, "no memory to print the result");
    return fputs(out->data, to) < 0 || fflush(to) ? error_errno(err, "cannot print the result") : 0;
}

int run_result_training(const struct run *run, FILE *to, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const int64_t done = muster_trainer_state_now(run->trainer).steps;
    scope_buffer out = {0};
    if (run->rank)
        return 0;
    (void)buffer_printf(&out, "{\"step\": %lld, \"steps\": %lld, \"finished\": %s, ", (long long)done,
                        (long long)run_last_step(run), run->cut_short ? "false" : "true");
    run_result_number(&out, "loss",
                      progress_losses(&run->progress) ? progress_mean_loss(&run->progress) : NAN);
    (void)buffer_text(&out, "\"evaluation\": ");
    if (run->evaluation.ns > 0) {
        (void)buffer_text(&out, "{");
        run_result_evaluation(run, &out);
        (void)buffer_printf(&out, ", \"step\": %lld}, ",
                            (long long)muster_trainer_state_now(run->trainer).evaluated_step);
    } else {
        (void)buffer_text(&out, "null, ");
    }
    (void)buffer_printf(&out, "\"best_step\": %lld, ",
                        (long long)muster_trainer_state_now(run->trainer).best_step);
    run_result_number(&out, "best_loss", muster_trainer_state_now(run->trainer).best_loss);
    (void)buffer_text(&out, "\"output\": ");
    if (run_saves(run) && !(run->cut_short && checkpoints_wanted(c)))
        (void)buffer_json_string(&out, c->output);
    else
        (void)buffer_text(&out, "null");
    (void)buffer_printf(&out, ", \"ranks\": %d, \"seconds\": %.6f}\n", run->world_size,
                        (double)instant_diff_ns(clock_now(NULL), run->begun) / (double)NS_PER_S);
    return run_result_print(to, &out, err);
}

/* ---- muster-train preprocess ---- */

static int data_info(const struct data *data, struct buffer *out)
{
    const struct data *held = data_validation(data);
    return buffer_printf(out, "{\"train_size\": %lld, \"val_size\": %lld, \"tokens\": %lld, \"files\": %d}\n",
                         (long long)data_samples(data), held ? (long long)data_samples(held) : 0LL,
                         (long long)data_tokens(data), data_files(data));
}

static int show_info(struct run *run, FILE *to, struct muster_error *err)
{
    scope_buffer out = {0};
    const int result = run->labelled   ? labelled_info(run->labelled, &out)
                       : run->pictures ? pictures_info_json(run->pictures, &out)
                                       : data_info(run->data, &out);
    return result ? error_set(err, MUSTER_E_NOMEM, "no memory to print the result")
                  : run_result_print(to, &out, err);
}

struct preprocess {
    FILE *json; /* NULL: lines for people */
};

/* A run of these settings, which are its own. */
static int open_data(struct run *run, FILE *json, struct muster_error *err)
{
    int result = run_inputs_open(run, err);
    if (!result && json)
        result = show_info(run, json, err);
    else if (!result)
        run_show_data(run);
    run_data_close(run);
    return result;
}

static int open_stage(void *context, int number, const char *name, const struct train_config *stage,
                      struct muster_error *err)
{
    const struct preprocess *p = context;
    struct run run = {.world_size = 1};
    if (!p->json)
        printf("stage %d%s%s\n", number + 1, name ? ": " : "", name ? name : "");
    if (train_config_copy(stage, &run.config, err) < 0) /* it takes paths and lengths */
        return -1;
    const int result = open_data(&run, p->json, err);
    train_config_free(&run.config);
    return result < 0 ? error_wrap(err, "stage %d", number + 1) : 0;
}

int run_preprocess(struct run *run, bool json, struct muster_error *err)
{
    struct preprocess p = {.json = json ? run_take_output(err) : NULL};
    if (json && !p.json)
        return -1;
    const int result = stages_count(&run->config) ? run_stages_each(&run->config, open_stage, &p, err)
                                                  : open_data(run, p.json, err);
    if (json)
        (void)fclose(p.json); /* it was flushed */
    return result;
}

/* ---- what the run leaves ---- */

#define ASK_NS    (NS_PER_S / 2) /* the ranks that wait meet so often, so that no collective is late */
#define MARGIN_NS (NS_PER_S)     /* before a stop's deadline */

static void log_command(struct run *run, int64_t step, bool good, const char *text)
{
    struct entry entry = {.kind = ENTRY_COMMAND, .step = step};
    entry_flag(&entry, "saved", good);
    entry_number(&entry, "ms", (double)muster_trainer_state_now(run->trainer).command_ns / (double)NS_PER_MS);
    entry_integer(&entry, "last_step", muster_trainer_state_now(run->trainer).command_step);
    if (!good)
        entry_text(&entry, "text", text);
    report_add(run->report, &entry);
}

/* Of one that has ended. */
static void tell_command(struct run *run, int64_t step, const struct muster_error *err)
{
    const double seconds = (double)muster_trainer_state_now(run->trainer).command_ns / (double)NS_PER_S;
    const long long last = muster_trainer_state_now(run->trainer).command_step;
    run_show_line_end(run);
    run->command = *err;
    run->command_step = step;
    log_command(run, step, !err->code, err->text);
    if (!err->code) {
        printf("checkpoint command of step %lld: done in %.2f s\n", (long long)step, seconds);
        (void)fflush(stdout); /* a closed console does not stop the training */
    } else if (last >= 0) {
        fprintf(stderr,
                "muster-train: warning: checkpoint command of step %lld: %s; its last success is that of "
                "step %lld\n",
                (long long)step, err->text, last);
    } else {
        fprintf(stderr,
                "muster-train: warning: checkpoint command of step %lld: %s; it has not succeeded yet\n",
                (long long)step, err->text);
    }
}

/* Whether one has ended within the time, which is told. */
static bool take_command(struct run *run, int64_t wait_ns)
{
    struct muster_error err = {0};
    int64_t step;
    if (!muster_trainer_command_end(run->trainer, wait_ns, &step, &err))
        return false;
    tell_command(run, step, &err);
    return true;
}

static bool has_command(const struct run *run)
{
    const char *command = run->config.checkpoint_command;
    return command && *command && checkpoints_wanted(&run->config);
}

void run_hook_step(struct run *run)
{
    while (!run->rank && has_command(run) && take_command(run, 0))
        ;
}

/* On rank 0, for half a second at most. Whether there is something left to wait for. */
static bool wait_a_while(struct run *run, bool *stopped)
{
    const struct instant now = clock_now(NULL), last = instant_add(run->ends, -MARGIN_NS);
    if (run->cut_short && !*stopped && run->ends.ns != INT64_MAX && instant_reached(now, last)) {
        muster_trainer_command_stop(run->trainer);
        *stopped = true;
    }
    while (take_command(run, ASK_NS))
        ;
    return muster_trainer_state_now(run->trainer).command_busy;
}

int run_hook_end(struct run *run, struct muster_error *err)
{
    bool stopped = false;
    if (!has_command(run))
        return 0;
    for (;;) {
        double busy = !run->rank && wait_a_while(run, &stopped);
        if (muster_heartbeat(-1, err) < 0 || muster_trainer_reduce(run->trainer, &busy, 1, err) < 0)
            return -1;
        if (!(busy > 0))
            return 0;
    }
}

/* Whether someone has asked for an end, or the run has come to its own: else nodes come or go, and the next
 * round goes on from what there is. */
static bool is_end(const struct run *run)
{
    return !run->cut_short || checkpoints_terminated() || run->coming == MUSTER_JOB_STOPS;
}

static int say_unsaved(const struct run *run, struct muster_error *err)
{
    const long long step = run->progress.done, last = (long long)run->checkpoints.last;
    return last >= 0
               ? error_set(
                     err, MUSTER_E_IO,
                     "the last checkpoint, of step %lld, is not saved (see the warning before); the newest "
                     "is that of step %lld, from which a restart goes on",
                     step, last)
               : error_set(err, MUSTER_E_IO,
                           "the last checkpoint, of step %lld, is not saved, and there is no other (see the "
                           "warning before)",
                           step);
}

int run_hook_check(struct run *run, struct muster_error *err)
{
    double values[2] = {!run->rank && has_command(run) && run->command.code != 0, is_end(run)};
    if (!run->checkpoints.unsaved && !has_command(run))
        return 0;
    if (muster_trainer_reduce(run->trainer, values, 2, err) <
        0) /* a notice may not have come to every rank */
        return -1;
    if (!(values[1] > 0))
        return 0;
    if (run->checkpoints.unsaved)
        return say_unsaved(run, err);
    return values[0] > 0
               ? error_set(err, MUSTER_E_IO,
                           "the last run of training.checkpoint_command has failed (see the warning before): "
                           "the newest checkpoint is in %s alone; a restart runs it again",
                           run->config.checkpoint_dir)
               : 0;
}
