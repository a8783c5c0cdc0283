/* run_stages.c - a training in stages: each is a run with settings, data and a trainer of its own, which
 * begins from the checkpoint at the end of the one before. See run.h and formats/stages.h.
 *
 * A checkpoint's note has its stage, so that a run that is started again goes on in the stage of the newest
 * one; where that stage has ended, it takes no step and the next one begins. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/config/train_settings.h"
#include "trainer/formats/stages.h"
#include "trainer/run/run.h"

enum { NOTE_SIZE = 80 };

bool run_is_last_stage(const struct run *run)
{
    return run->stages.number + 1 >= run->stages.count;
}

/* ---- which one ---- */

static bool names_checkpoint(const char *resume)
{
    return resume && *resume && strcmp(resume, "auto") != 0 && strcmp(resume, "none") != 0;
}

/* On rank 0: of the newest checkpoint, or of the one that training.resume names; 0 where there is none. */
static int read_stage(const struct train_config *c, double *stage, struct muster_error *err)
{
    char text[NOTE_SIZE];
    int64_t length = muster_checkpoint_noted(c->checkpoint_dir, "stage", text, sizeof text, err);
    if (!length && names_checkpoint(c->resume))
        length = muster_checkpoint_noted(c->resume, "stage", text, sizeof text, err);
    if (length > 0)
        *stage = (double)strtol(text, NULL, 10);
    return length < 0 ? -1 : 0;
}

static int find_stage(struct run *run, struct muster_error *err)
{
    double stage = 0;
    const int failed = run->rank ? 0 : read_stage(&run->stages.whole, &stage, err);
    if (muster_world_agree(run->world, failed, err) < 0 ||
        muster_world_broadcast(run->world, &stage, sizeof stage, 0, err) < 0)
        return -1;
    if (stage < 0 || stage >= run->stages.count)
        return error_set(err, MUSTER_E_REFUSED,
                         "the newest checkpoint in %s is of stage %.0f, and training.stages has %d: set them "
                         "back, or begin a new run in another training.checkpoint_dir",
                         run->stages.whole.checkpoint_dir, stage + 1, run->stages.count);
    run->stages.number = (int)stage;
    return 0;
}

static int take_settings(struct run *run, struct muster_error *err)
{
    struct run_stages *s = &run->stages;
    mem_free(s->name);
    train_config_free(&run->config);
    return stages_settings(&s->whole, s->number, &run->config, &s->name, err);
}

/* ---- what comes later ---- */

int run_stages_each(const struct train_config *whole,
                    int (*visit)(void *context, int number, const char *name,
                                 const struct train_config *stage, struct muster_error *err),
                    void *context, struct muster_error *err)
{
    for (int i = 0; i < stages_count(whole); i++) {
        struct train_config stage;
        scope_free char *name = NULL;
        if (stages_settings(whole, i, &stage, &name, err) < 0)
            return -1;
        const int result = visit(context, i, name, &stage, err);
        train_config_free(&stage);
        if (result < 0)
            return result;
    }
    return 0;
}

/* Its plan and its data, which are closed again. */
static int try_stage(void *context, int number, const char *name, const struct train_config *stage,
                     struct muster_error *err)
{
    struct run *run = context;
    struct run probe = {.rank = run->rank, .world_size = run->world_size};
    (void)name;
    if (number <= run->stages.number) /* is opened now, or has ended */
        return 0;
    char **settings = train_settings_texts(stage, "training");
    int result = settings ? muster_plan_fits(run->model, run->world_size, (const char *const *)settings, err)
                          : error_set(err, MUSTER_E_NOMEM, "no memory for the settings");
    train_settings_free(settings);
    if (!result && !(result = train_config_copy(stage, &probe.config, err))) { /* which takes lengths */
        mem_free(probe.config.data_info);
        probe.config.data_info = NULL; /* nothing is written */
        result = run_inputs_open(&probe, err);
        run_data_close(&probe);
        train_config_free(&probe.config);
    }
    return result < 0 ? error_wrap(err, "stage %d", number + 1) : 0;
}

/* What is wrong with a later stage is found now, and not when the ones before have been trained. */
static int look_ahead(struct run *run, struct muster_error *err)
{
    int failed = take_settings(run, err);
    if (!failed)
        failed = run_open_model(run, err);
    if (!failed)
        failed = run_stages_each(&run->stages.whole, try_stage, run, err);
    return muster_world_agree(run->world, failed, err);
}

/* ---- one after the other ---- */

/* The newest checkpoint is damaged, and the one before is of an earlier stage: that is trained again. */
static bool go_to_earlier(struct run *run, struct muster_error *err)
{
    if (!run->trainer || muster_trainer_state_now(run->trainer).steps)
        return false;
    const long long found = muster_trainer_state_now(run->trainer).stage_found;
    if (found < 0 || found >= run->stages.number)
        return false;
    if (!run->rank)
        fprintf(stderr, "muster-train: warning: going on in stage %lld: %s\n", found + 1, err->text);
    error_clear(err);
    run_train_close(run);
    run->stages.number = (int)found;
    run->stages.follows = -1;
    return true;
}

/* After its last step: the next one begins from the checkpoint of this one. */
static int end_stage(struct run *run, struct muster_error *err)
{
    const long long end = muster_trainer_state_now(run->trainer).steps;
    if (muster_trainer_state_now(run->trainer).checkpoint_step != end)
        checkpoints_write(&run->checkpoints, true); /* it was resumed there from another folder */
    if (muster_trainer_state_now(run->trainer).checkpoint_step != end)
        return error_set(err, MUSTER_E_IO,
                         "stage %d has ended after step %lld, and there is no checkpoint of it in %s that "
                         "stage %d could begin from: see the warning before; a restart goes on from the last "
                         "one",
                         run->stages.number + 1, end, run->config.checkpoint_dir, run->stages.number + 2);
    run_train_close(run);
    run->stages.follows = end;
    run->stages.number++;
    return 0;
}

int run_stages(struct run *run, struct muster_error *err)
{
    run->stages.whole = run->config;
    run->stages.follows = -1;
    run->config = (struct train_config){0};
    if (find_stage(run, err) < 0 || look_ahead(run, err) < 0)
        return -1;
    for (;;) {
        if (take_settings(run, err) < 0)
            return -1;
        const int result = run_train(run, err);
        if (result < 0 && !go_to_earlier(run, err))
            return -1;
        if (!result && (run->cut_short || run_is_last_stage(run)))
            return 0;
        if (!result && end_stage(run, err) < 0)
            return -1;
    }
}

void run_stages_show(const struct run *run)
{
    const struct train_config *c = &run->config;
    const struct run_stages *s = &run->stages;
    const struct knob_table *table = train_config_table();
    const long long done = muster_trainer_state_now(run->trainer).steps;
    scope_buffer schedule = {0};
    if (!s->count)
        return;
    (void)knob_format(knob_find(table, "training.schedule", 17, false, NULL), c,
                      &schedule); /* for a message */
    printf("stage %d of %d%s%s%s %s after step %lld: steps %lld to %lld, ", s->number + 1, s->count,
           s->name ? " (" : "", s->name ? s->name : "", s->name ? ")" : "",
           done == s->first ? "begins" : "goes on", done, (long long)s->first + 1,
           (long long)run_last_step(run));
    if (!run_classifies(run))
        printf("sequences of %lld tokens, ", (long long)c->sequence_length);
    printf("learning rate %g (%s)", c->learning_rate, schedule.data ? schedule.data : "");
    for (char *const *pattern = c->frozen; pattern && *pattern; pattern++)
        printf("%s%s", pattern == c->frozen ? ", frozen: " : ", ", *pattern);
    if (s->number && done == s->first)
        printf("; the optimizer's moments %s",
               c->stage_moments == TRAIN_MOMENTS_KEEP ? "are those of the stage before" : "begin at zero");
    printf("\n");
}
