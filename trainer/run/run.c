/* run.c - opens what a run needs, trains, finishes and closes it. See run.h. */
#include "trainer/run/run.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/config/train_settings.h"
#include "trainer/formats/stages.h"

/* A model whose files give its sizes. */
static int open_path(struct run *run, char *const *settings, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    run->model = muster_model_open(c->model_path, (const char *const *)settings, err);
    if (!run->model)
        return -1;
    const char *found = muster_model_architecture(run->model);
    if (c->architecture == TRAIN_ARCHITECTURE_AUTO || !strcmp(found, train_config_architecture(c)))
        return 0;
    return error_set(err, MUSTER_E_INVALID, "model.path %s is a %s, but model.architecture is %s",
                     c->model_path, found, train_config_architecture(c));
}

int run_open_model(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const bool sizes = train_config_gives_sizes(c);
    train_settings_free(run->settings);
    run->settings = train_settings_texts(c, "training");
    if (run->settings && run->model) /* of the stage before */
        return 0;
    char **texts = train_settings_joined(c, sizes ? "model" : NULL, "lora");
    int result = 0;
    if (!texts || !run->settings)
        result = error_set(err, MUSTER_E_NOMEM, "no memory for the settings");
    else if (!sizes)
        result = open_path(run, texts, err);
    else
        run->model = muster_model_open(train_config_architecture(c), (const char *const *)texts, err);
    train_settings_free(texts);
    return run->model ? result : -1;
}

bool run_saves(const struct run *run)
{
    return run->config.output && *run->config.output;
}

/* Errors in this rank's input, found before any rank waits for another. */
static int open_inputs(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    if (run_inputs_open(run, err) < 0 || run_open_model(run, err) < 0)
        return -1;
    if (run_evaluate_open(run, err) < 0)
        return -1;
    run->next = next_batch_create(
        &(struct next_batch_options){run_source(run), train_config_batch(c, run->rank, run->world_size)},
        err);
    if (!run->next)
        return -1;
    return run->rank == 0 && run_saves(run)
               ? muster_export_probe(c->output, train_config_output_format(c), err)
               : 0;
}

int64_t run_last_step(const struct run *run)
{
    return run->stages.first + run->config.steps;
}

/* From a checkpoint of the same data; 0: there is none; 2: a stage begins from that of the stage before. */
static int go_on(struct run *run, struct muster_error *err)
{
    struct checkpoints *c = &run->checkpoints;
    const int resumed = checkpoints_resume(c, err);
    const int failed = resumed < 0 ? -1 : checkpoints_note_data(c, resumed == 1, err);
    return muster_world_agree(run->world, failed, err) < 0 ? -1 : resumed;
}

/* "": nothing. */
static int load_path(struct run *run, const char *path, struct muster_error *err)
{
    return path && *path ? muster_trainer_load(run->trainer, path, err) : 0;
}

static int open_run(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    if (muster_world_agree(run->world, open_inputs(run, err), err) < 0)
        return -1;
    run->trainer = muster_trainer_open(run->world, run->model, (const char *const *)run->settings, err);
    if (!run->trainer)
        return -1;
    if (run->stages.count &&
        muster_trainer_stage(run->trainer, run->stages.number, run->stages.follows, err) < 0)
        return -1;
    run->checkpoints = (struct checkpoints){.config = c,
                                            .trainer = run->trainer,
                                            .identity = run_data_identity(run),
                                            .rank = run->rank,
                                            .world_size = run->world_size,
                                            .last = -1};
    /* Checkpoints of adapters have them alone. */
    const bool adapts = train_config_adapts(c);
    if (adapts && load_path(run, c->model_path, err) < 0)
        return -1;
    const int resumed = checkpoints_wanted(c) ? go_on(run, err) : 0;
    if (resumed < 0 || (!resumed && load_path(run, adapts ? c->lora_path : c->model_path, err) < 0))
        return -1;
    if (!resumed && run->stages.number)
        return error_set(err, MUSTER_E_NOT_FOUND, "there is no checkpoint in %s that stage %d can begin from",
                         c->checkpoint_dir, run->stages.number + 1);
    run->stages.first = muster_trainer_state_now(run->trainer).stage_first_step;
    double limit_s;
    if (muster_trainer_limit(run->trainer, &limit_s, err) < 0) /* on all ranks at once */
        return -1;
    run->progress.limit_ns = limit_s * (double)NS_PER_S;
    /* of labelled texts as many positions are computed as they have, which differ from step to step */
    run->progress.step_flops = run->labelled ? 0 : muster_trainer_state_now(run->trainer).step_flops;
    run->progress.peak_flops = muster_trainer_state_now(run->trainer).peak_flops;
    if (c->samples && *c->samples)
        run->samples = sample_log_open(c->samples, run->world, err);
    return c->samples && *c->samples && !run->samples ? -1 : 0;
}

/* The parameters that the run ends with are those of its best evaluation. */
static int load_best(struct run *run, struct muster_error *err)
{
    const long long last = muster_trainer_state_now(run->trainer).steps;
    int loaded = muster_trainer_best(run->trainer, err);
    if (loaded < 0 || run->rank)
        return loaded < 0 ? -1 : 0;
    if (loaded > 0)
        printf("the best parameters, of step %lld, take the place of those of step %lld\n",
               (long long)muster_trainer_state_now(run->trainer).steps, last);
    else if (muster_trainer_state_now(run->trainer).best_step != last)
        fprintf(
            stderr,
            "muster-train: warning: training.export_best: there is no checkpoint of a best evaluation; the "
            "parameters are those of step %lld\n",
            last);
    return 0;
}

/* Identifies the version of a model. */
static int show_hash(struct run *run, struct muster_error *err)
{
    char exact[17], printed[9];
    if (muster_trainer_hash(run->trainer, exact, printed, err) < 0)
        return -1;
    if (!run->rank)
        printf("model hash: %s as get_model_hash forms it of model.pth, %s of every bit\n", printed, exact);
    return 0;
}

static int run_finish(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    if (run->cut_short && checkpoints_wanted(c))
        return 0; /* the run goes on from there, and there may not be enough time */
    if (c->export_best && load_best(run, err) < 0)
        return -1;
    if (c->ema_export && muster_trainer_average(run->trainer, 1, err) < 0) /* of the file and the sample */
        return -1;
    if (run_saves(run)) {
        if (muster_trainer_export(run->trainer, c->output, train_config_output_format(c), err) < 0)
            return -1;
        if (run->rank == 0 && run->data && run_data_export(run, err) < 0)
            return -1;
        if (run->rank == 0)
            printf("saved %s\n", c->output);
        if (run_classifies(run) && show_hash(run, err) < 0)
            return -1;
    }
    if (!c->sample_length || run->cut_short || run_classifies(run)) /* there may not be enough time */
        return 0;
    return run_sample(run, err);
}

int run_open_world(struct run *run, struct muster_error *err)
{
    const struct muster_world_options options = {.size = sizeof options,
                                                 .timeout_ms = (int64_t)(run->config.timeout_s * 1000)};
    run->world = muster_world_open(&options, err);
    if (!run->world)
        return -1;
    run->rank = muster_world_rank(run->world);
    run->world_size = muster_world_size(run->world);
    run->terminal = isatty(STDOUT_FILENO);
    return 0;
}

/* Once, when all that the first step needs is there: before that a stop ends the process. */
static int run_listen(struct run *run, struct muster_error *err)
{
    if (run->listening)
        return 0;
    const int listens = muster_notice_listen(err);
    if (listens < 0)
        return -1;
    run->listening = true;
    run->listens = listens > 0;
    run->ends = INSTANT_NEVER;
    return checkpoints_wanted(&run->config) ? checkpoints_listen(!run->listens, err) : 0;
}

int run_train(struct run *run, struct muster_error *err)
{
    run->progress = (struct progress){0};
    run->epoch = (struct run_epoch){0};
    if (open_run(run, err) < 0 || run_listen(run, err) < 0)
        return -1;
    run_figures_open(run);
    run_show_start(run);
    if (run_place_listen(run, err) < 0 || run_watch_open(run, err) < 0 || run_log_open(run, err) < 0)
        return -1;
    run_log_stage(run);
    return run_steps(run, err);
}

static int run_whole(struct run *run, struct muster_error *err)
{
    if (run_open_world(run, err) < 0)
        return -1;
    run->stages.count = stages_count(&run->config);
    if ((run->stages.count ? run_stages(run, err) : run_train(run, err)) < 0)
        return -1;
    return run_finish(run, err) < 0 ? -1 : run_hook_end(run, err);
}

int run_training(struct run *run, struct muster_error *err)
{
    FILE *out = run->json ? run_take_output(err) : NULL;
    run->begun = clock_now(NULL);
    if (run->json && !out)
        return -1;
    int result = run_whole(run, err);
    if (!result && out)
        result = run_result_training(run, out, err);
    if (out)
        (void)fclose(out); /* it was flushed */
    if (!result)
        result = run_hook_check(run, err); /* behind the result, which is there */
    return result;
}

void run_train_close(struct run *run)
{
    run_place_close();
    run_watch_close(run);
    run_figures_close(run);
    run->watch = (struct watch){0};
    muster_trainer_close(&run->trainer);
    sample_log_close(run->samples);
    run->samples = NULL;
    next_batch_destroy(run->next); /* before what it reads */
    run->next = NULL;
    run_evaluate_close(run);
    run_data_close(run);
}

void run_close(struct run *run)
{
    run_log_close(run);
    run_train_close(run);
    muster_model_free(run->model);
    train_settings_free(run->settings);
    muster_world_close(&run->world);
    train_config_free(&run->config);
    train_config_free(&run->stages.whole);
    mem_free(run->stages.name);
}
