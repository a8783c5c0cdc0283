/* run_eval.c - muster-train eval: the loss of a checkpoint or a model on the samples held out. See run.h.
 *
 * The same samples, on the same ranks, in the same order of sums as an evaluation while training: the same
 * figure to the bit. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/config/train_config_check.h"
#include "trainer/run/run.h"

static bool is_set(const char *text)
{
    return text && *text;
}

static int set_path(struct train_config *c, const char *key, const char *path, struct muster_error *err)
{
    const struct knob *knob = knob_find(train_config_table(), key, strlen(key), false, NULL);
    return knob_set(train_config_table(), c, c->sources, knob, path, KNOB_FROM_RULE, key, err);
}

/* Without samples that are held out all of data.path is evaluated; data.validation_path alone will do. */
int run_eval_settings(struct train_config *c, struct muster_error *err)
{
    const bool sources = c->data_sources && c->data_sources[0];
    if (!is_set(c->path) && !sources && is_set(c->validation_path) &&
        set_path(c, "data.path", c->validation_path, err) < 0)
        return -1;
    const bool held_out = c->validation_share > 0 || is_set(c->validation_path);
    if (!held_out && sources)
        return error_set(err, MUSTER_E_INVALID,
                         "data.sources are set, and nothing of them is held out to evaluate: set "
                         "data.validation_share or data.validation_path");
    if (!held_out && is_set(c->path) && set_path(c, "data.validation_path", c->path, err) < 0)
        return -1;
    return train_config_check("", c, TRAIN_ALL, err);
}

static int open_inputs(struct run *run, struct muster_error *err)
{
    if (run_inputs_open(run, err) < 0 || run_open_model(run, err) < 0)
        return -1;
    return run_evaluate_open(run, err);
}

static void eval_text(const struct run *run, struct buffer *out)
{
    const struct run_evaluation *e = &run->evaluation;
    if (run_classifies(run)) {
        (void)buffer_printf(
            out,
            "evaluation: loss %.4f, accuracy %.2f%%, precision %.4f, recall %.4f, F1 %.4f, %lld "
            "%s in %.2f s\n",
            e->loss, e->accuracy, e->precision, e->recall, e->f1, (long long)e->counted, run_unit(run),
            (double)e->ns / (double)NS_PER_S);
        return;
    }
    (void)buffer_printf(out, "evaluation: loss %.4f, perplexity %.2f, %lld tokens in %.2f s\n", e->loss,
                        exp(e->loss), (long long)e->counted, (double)e->ns / (double)NS_PER_S);
}

static void eval_json(const struct run *run, struct buffer *out)
{
    (void)buffer_text(out, "{");
    run_result_evaluation(run, out);
    (void)buffer_printf(out, ", \"step\": %lld, \"ranks\": %d, \"seconds\": %.6f}\n",
                        (long long)muster_trainer_state_now(run->trainer).steps, run->world_size,
                        (double)run->evaluation.ns / (double)NS_PER_S);
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
    return run_result_print(to, &out, err);
}

static int evaluate(struct run *run, bool json, FILE *out, struct muster_error *err)
{
    if (run_restore(run, open_inputs, err) < 0 || muster_heartbeat(-1, err) < 0)
        return -1;
    if (run_evaluate_now(run, err) < 0)
        return error_wrap(err, "evaluation");
    return print_result(run, json, out, err);
}

int run_eval(struct run *run, bool json, struct muster_error *err)
{
    FILE *out = json ? run_take_output(err) : stdout;
    if (!out)
        return -1;
    const int result = evaluate(run, json, out, err);
    if (json)
        (void)fclose(out); /* it was flushed */
    return result;
}
