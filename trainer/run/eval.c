/* eval.c - a run that takes no step, with the parameters of a checkpoint or of files; and muster-train eval:
 * its loss on the samples held out. See results.h.
 *
 * The samples, their ranks and the order of sums are the same as in an evaluation while training: the figure
 * is the same to the bit. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/config/train_config_check.h"
#include "trainer/run/checkpoints.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/inputs.h"
#include "trainer/run/observers.h"
#include "trainer/run/results.h"

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

static void eval_text(const struct run *run, struct buffer *out)
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
    (void)buffer_printf(out, "evaluation: loss %.4f, perplexity %.2f, %lld tokens in %.2f s\n", e->loss,
                        exp(e->loss), (long long)e->counted, (double)e->ns / (double)NS_PER_S);
}

static void eval_json(const struct run *run, struct buffer *out)
{
    (void)buffer_text(out, "{");
    result_evaluation(run, out);
    (void)buffer_printf(out, ", \"step\": %lld, \"ranks\": %d, \"seconds\": %.6f}\n",
                        (long long)run_state(run).steps, run->world_size,
                        (double)evaluation_last(run)->ns / (double)NS_PER_S);
}

static int print_result(const struct run *run, bool json, FILE *to, struct muster_error *err)
{
    scope_buffer out = {0};
    if (run->rank)
        return 0;
    if (json)
        eval_json(run, &out);
    else
        eval_text(run, &out);
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
