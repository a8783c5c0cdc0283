/* results.c - one object of JSON: of a training that has ended, of data that were prepared (muster-train
 * preprocess). See results.h. */
#include "trainer/run/results.h"

#include <math.h>
#include <stdio.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "trainer/formats/stages.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/inputs.h"
#include "trainer/run/stages.h"
#include "trainer/run/stop.h"

/* With every digit; a figure that is no number is null. */
void result_number(struct buffer *out, const char *name, double value)
{
    (void)buffer_printf(out, isfinite(value) ? "\"%s\": %.17g, " : "\"%s\": null, ", name, value);
}

void result_evaluation(const struct run *run, struct buffer *out)
{
    const struct evaluation_figures *e = evaluation_last(run);
    result_number(out, "loss", e->loss);
    if (inputs_classify(run->inputs)) {
        result_number(out, "accuracy", e->accuracy);
        result_number(out, "precision", e->precision);
        result_number(out, "recall", e->recall);
        result_number(out, "f1", e->f1);
    } else {
        result_number(out, "perplexity", exp(e->loss));
    }
    (void)buffer_printf(out, "\"%s\": %lld, \"samples\": %lld", inputs_unit(run->inputs),
                        (long long)e->counted, (long long)e->samples);
}

int result_print(FILE *to, struct buffer *out, struct muster_error *err)
{
    if (buffer_text(out, ""))
        return error_set(err, MUSTER_E_NOMEM, "no memory to print the result");
    return fputs(out->data, to) < 0 || fflush(to) ? error_errno(err, "cannot print the result") : 0;
}

int result_training(const struct run *run, struct instant begun, FILE *to, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const struct muster_trainer_state state = run_state(run);
    scope_buffer out = {0};
    if (run->rank)
        return 0;
    (void)buffer_printf(&out, "{\"step\": %lld, \"steps\": %lld, \"finished\": %s, ", (long long)state.steps,
                        (long long)run->progress.steps, stop_cuts_short(run) ? "false" : "true");
    result_number(&out, "loss", progress_losses(&run->progress) ? progress_mean_loss(&run->progress) : NAN);
    (void)buffer_text(&out, "\"evaluation\": ");
    if (evaluation_last(run)->ns > 0) {
        (void)buffer_text(&out, "{");
        result_evaluation(run, &out);
        (void)buffer_printf(&out, ", \"step\": %lld}, ", (long long)state.evaluated_step);
    } else {
        (void)buffer_text(&out, "null, ");
    }
    (void)buffer_printf(&out, "\"best_step\": %lld, ", (long long)state.best_step);
    result_number(&out, "best_loss", state.best_loss);
    (void)buffer_text(&out, "\"output\": ");
    if (run_saves(run) && !(stop_cuts_short(run) && run_keeps_checkpoints(run)))
        (void)buffer_json_string(&out, c->output);
    else
        (void)buffer_text(&out, "null");
    (void)buffer_printf(&out, ", \"ranks\": %d, \"seconds\": %.6f}\n", run->world_size,
                        (double)instant_diff_ns(clock_now(NULL), begun) / (double)NS_PER_S);
    return result_print(to, &out, err);
}

/* ---- muster-train preprocess ---- */

struct preprocess {
    FILE *json; /* NULL: lines for people */
};

/* A run of these settings, which the inputs change. */
static int open_data(struct train_config *config, FILE *json, struct muster_error *err)
{
    struct inputs *inputs = inputs_open(config, 0, err);
    scope_buffer out = {0};
    int result = inputs ? 0 : -1;
    if (!result && json)
        result = inputs_info(inputs, &out) < 0
                     ? error_set(err, MUSTER_E_NOMEM, "no memory to print the result")
                     : result_print(json, &out, err);
    else if (!result)
        inputs_show(inputs, config, NULL);
    inputs_close(&inputs);
    return result;
}

static int open_stage(void *context, int number, const char *name, const struct train_config *stage,
                      struct muster_error *err)
{
    const struct preprocess *p = context;
    struct train_config config;
    if (!p->json)
        printf("stage %d%s%s\n", number + 1, name ? ": " : "", name ? name : "");
    if (train_config_copy(stage, &config, err) < 0)
        return -1;
    const int result = open_data(&config, p->json, err);
    train_config_free(&config);
    return result < 0 ? error_wrap(err, "stage %d", number + 1) : 0;
}

int run_preprocess(struct run *run, bool json, struct muster_error *err)
{
    struct preprocess p = {.json = json ? console_take_output(err) : NULL};
    if (json && !p.json)
        return -1;
    const int result = stages_count(&run->config) ? stages_each(&run->config, open_stage, &p, err)
                                                  : open_data(&run->config, p.json, err);
    if (json)
        (void)fclose(p.json); /* it was flushed */
    return result;
}
