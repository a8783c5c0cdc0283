/* stages.c - see stages.h. */
#include "trainer/run/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/config/train_settings.h"
#include "trainer/formats/stages.h"
#include "trainer/run/inputs.h"

enum { NOTE_SIZE = 80 };

struct stages {
    struct train_config whole; /* settings of which the stages' are made */
    int count, number;         /* number: from 0 */
    char *name;                /* NULL: it has none */
    int64_t follows;           /* for muster_trainer_stage */
};

struct stage stages_now(const struct run *run)
{
    const struct stages *s = run->stages;
    return s ? (struct stage){s->count, s->number, s->name} : (struct stage){0};
}

bool stages_is_last(const struct run *run)
{
    return !run->stages || run->stages->number + 1 >= run->stages->count;
}

int stages_set(struct run *run, struct muster_error *err)
{
    const struct stages *s = run->stages;
    return s ? muster_trainer_stage(run->trainer, s->number, s->follows, err) : 0;
}

/* ---- the stage to begin with ---- */

/* On rank 0: the stage of the newest checkpoint, or of the checkpoint that training.resume names; 0: none. */
static int read_stage(const struct train_config *c, double *stage, struct muster_error *err)
{
    char text[NOTE_SIZE];
    int64_t length = muster_checkpoint_noted(c->checkpoint_dir, "stage", text, sizeof text, err);
    if (!length && c->resume && *c->resume && strcmp(c->resume, "auto") != 0 &&
        strcmp(c->resume, "none") != 0)
        length = muster_checkpoint_noted(c->resume, "stage", text, sizeof text, err);
    if (length > 0)
        *stage = (double)strtol(text, NULL, 10);
    return length < 0 ? -1 : 0;
}

/* Numbers that ranks compare; the largest count. -1: none. */
enum { READ, HELD, FOLLOWS, FOUND };

static int find_stage(struct run *run, struct muster_error *err)
{
    double found[FOUND] = {[READ] = 0, [HELD] = -1, [FOLLOWS] = -1};
    const int failed = run->rank ? 0 : read_stage(&run->stages->whole, &found[READ], err);
    if (muster_world_agree(run->world, failed, err) < 0 ||
        muster_world_reduce(run->world, found, FOUND, MUSTER_MAX, err) < 0)
        return -1;
    const double stage = found[HELD] < 0 ? found[READ] : found[HELD];
    run->stages->follows = (int64_t)found[FOLLOWS];
    if (stage < 0 || stage >= run->stages->count)
        return error_set(err, MUSTER_E_REFUSED,
                         "the newest checkpoint in %s is of stage %.0f, and training.stages has %d: set them "
                         "back, or begin a new run in another training.checkpoint_dir",
                         run->stages->whole.checkpoint_dir, stage + 1, run->stages->count);
    run->stages->number = (int)stage;
    return 0;
}

static int take_settings(struct run *run, struct muster_error *err)
{
    struct stages *s = run->stages;
    mem_free(s->name);
    s->name = NULL;
    train_config_free(&run->config);
    return stages_settings(&s->whole, s->number, &run->config, &s->name, err);
}

int stages_go_to(struct run *run, int number, int64_t follows, struct muster_error *err)
{
    run->stages->number = number;
    run->stages->follows = follows;
    return take_settings(run, err);
}

/* A training in stages has one model, for packed stages and others. */
static int find_packed(void *context, int number, const char *name, const struct train_config *stage,
                       struct muster_error *err)
{
    bool *packs = context;
    (void)number, (void)name, (void)err;
    *packs = *packs || stage->packing == DATA_PACKED;
    return 0;
}

/* ---- the later stages ---- */

int stages_each(const struct train_config *whole,
                int (*visit)(void *context, int number, const char *name, const struct train_config *stage,
                             struct muster_error *err),
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

/* The plan and the inputs of a later stage, which are closed again. */
static int try_stage(void *context, int number, const char *name, const struct train_config *stage,
                     struct muster_error *err)
{
    struct run *run = context;
    (void)name;
    if (number <= run->stages->number) /* is opened now, or has ended */
        return 0;
    char **settings = train_settings_texts(stage, "training");
    int result = settings ? muster_plan_fits(run->model, run->world_size, (const char *const *)settings, err)
                          : error_set(err, MUSTER_E_NOMEM, "no memory for the settings");
    train_settings_free(settings);
    struct train_config config = {0};
    if (!result && !(result = train_config_copy(stage, &config, err))) { /* the inputs change it */
        mem_free(config.data_info);
        config.data_info = NULL; /* nothing is written */
        struct inputs *inputs = inputs_open(&config, run->rank, err);
        result = inputs ? 0 : -1;
        inputs_close(&inputs);
        train_config_free(&config);
    }
    return result < 0 ? error_wrap(err, "stage %d", number + 1) : 0;
}

/* Errors of later stages are found now, and not when the stages before have been trained. */
static int look_ahead(struct run *run, struct muster_error *err)
{
    int failed = take_settings(run, err);
    if (!failed)
        failed = stages_each(&run->stages->whole, find_packed, &run->packs, err);
    if (!failed)
        failed = run_open_model(run, err);
    if (!failed)
        failed = stages_each(&run->stages->whole, try_stage, run, err);
    return muster_world_agree(run->world, failed, err);
}

int stages_open(struct run *run, struct muster_error *err)
{
    const int count = stages_count(&run->config);
    if (!count)
        return 0;
    run->stages = mem_calloc(1, sizeof *run->stages);
    if (!run->stages)
        return error_set(err, MUSTER_E_NOMEM, "no memory for training.stages");
    *run->stages = (struct stages){.whole = run->config, .count = count, .follows = -1};
    run->config = (struct train_config){0};
    return find_stage(run, err) < 0 ? -1 : look_ahead(run, err);
}

int stages_rejoin(struct run *run, struct muster_error *err)
{
    const struct stages *s = run->stages;
    double found[FOUND] = {[READ] = 0, [HELD] = s->number, [FOLLOWS] = (double)s->follows};
    if (muster_world_agree(run->world, 0, err) < 0 ||
        muster_world_reduce(run->world, found, FOUND, MUSTER_MAX, err) < 0)
        return -1;
    const int failed =
        (int)found[HELD] == s->number
            ? 0
            : error_set(err, MUSTER_E_STATE,
                        "this rank is in stage %d, and others are in stage %d already: it is started anew",
                        s->number + 1, (int)found[HELD] + 1);
    return muster_world_agree(run->world, failed, err);
}

void stages_close(struct run *run)
{
    if (!run->stages)
        return;
    train_config_free(&run->stages->whole);
    mem_free(run->stages->name);
    mem_free(run->stages);
    run->stages = NULL;
}

void stages_show(const struct run *run)
{
    const struct train_config *c = &run->config;
    const struct stages *s = run->stages;
    const struct knob_table *table = train_config_table();
    const long long done = run_state(run).steps;
    scope_buffer schedule = {0};
    if (!s)
        return;
    (void)knob_format(knob_find(table, "training.schedule", 17, false, NULL), c,
                      &schedule); /* for a message */
    printf("stage %d of %d%s%s%s %s after step %lld: steps %lld to %lld, ", s->number + 1, s->count,
           s->name ? " (" : "", s->name ? s->name : "", s->name ? ")" : "",
           done == run->progress.first ? "begins" : "goes on", done, (long long)run->progress.first + 1,
           (long long)run->progress.steps);
    if (!inputs_classify(run->inputs))
        printf("sequences of %lld tokens, ", (long long)c->sequence_length);
    printf("learning rate %g (%s)", c->learning_rate, schedule.data ? schedule.data : "");
    for (char *const *pattern = c->frozen; pattern && *pattern; pattern++)
        printf("%s%s", pattern == c->frozen ? ", frozen: " : ", ", *pattern);
    if (s->number && done == run->progress.first)
        printf("; the optimizer's moments %s",
               c->stage_moments == TRAIN_MOMENTS_KEEP ? "are those of the stage before" : "begin at zero");
    printf("\n");
}
