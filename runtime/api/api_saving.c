/* api_saving.c - muster_trainer.h: checkpoints are written during steps, or at once. */
#include "runtime/api/api_trainer.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/disk_file.h"
#include "runtime/checkpoint/hook.h"
#include "runtime/config/train_resume.h"
#include "runtime/config/train_settings.h"

/* ---- checkpoints that are being written ---- */

int api_check_folder(const struct muster_trainer *t, struct muster_error *err)
{
    if (t->config.checkpoint_dir && *t->config.checkpoint_dir)
        return 0;
    return error_set(err, MUSTER_E_INVALID,
                     "training.checkpoint_dir is not set: name a folder for checkpoints");
}

const char *api_local_dir(const struct muster_trainer *t)
{
    const char *dir = t->config.checkpoint_local_dir;
    return dir && *dir ? dir : NULL;
}

bool api_saving_step(const struct muster_trainer *t, int64_t step)
{
    for (int i = 0; i < t->saving_count; i++)
        if (t->saving[i].step == step)
            return true;
    return false;
}

bool api_saving_busy(const struct muster_trainer *t)
{
    enum save_state states[SAVES_AT_ONCE];
    for (int i = 0; i < t->saving_count; i++)
        states[i] = checkpoint_state(t->saving[i].writer);
    return !save_may_begin(states, t->saving_count);
}

void api_saving_end(struct muster_trainer *t)
{
    for (int i = 0; i < t->saving_count; i++)
        checkpoint_end(t->saving[i].writer);
    t->saving_count = 0;
}

/* ---- looking after it ---- */

/* A checkpoint that was to be the best was not saved: the best before it stays, also with the next one. */
static void keep_the_one_before(struct muster_trainer *t, const struct api_saving *lost)
{
    if (t->evaluation.kept_step == lost->step)
        t->evaluation.kept_step = lost->kept_before;
    for (int i = 0; i < t->saving_count; i++) {
        if (t->saving[i].kept_before == lost->step)
            t->saving[i].kept_before = lost->kept_before;
        checkpoint_keep(t->saving[i].writer, t->config.keep_best ? t->evaluation.kept_step : 0);
    }
}

/* The oldest: 1: it is saved; 0: it is still being written, or there is none. */
static int look_at_oldest(struct muster_trainer *t, bool wait, struct muster_error *err)
{
    if (!t->saving_count)
        return 0;
    const struct api_saving oldest = t->saving[0];
    struct checkpoint_writer *newer = t->saving_count > 1 ? t->saving[1].writer : NULL;
    int result = checkpoint_poll(oldest.writer, newer, wait, err);
    const struct checkpoint_figures figures = checkpoint_figures(oldest.writer);
    t->checkpoint_ns = figures.ns;
    t->checkpoint_bytes = figures.bytes;
    t->checkpoint_stall_ns = figures.stall_ns;
    if (!result)
        return 0;
    t->checkpoint_again = checkpoint_made_room(oldest.writer);
    t->checkpoint_given_up = figures.given_up;
    checkpoint_end(oldest.writer);
    t->saving[0] = t->saving[1];
    t->saving_count--;
    if (result < 0) {
        keep_the_one_before(t, &oldest);
        return error_wrap(err, "checkpoint of step %lld", (long long)oldest.step);
    }
    t->saved_step = oldest.step;
    if (t->hook)
        hook_add(t->hook, oldest.step);
    if (err)
        *err = figures.local; /* a warning */
    return 1;
}

void api_saving_settle(struct muster_trainer *t)
{
    while (t->saving_count)
        (void)look_at_oldest(t, true, NULL); /* a checkpoint that was not saved is missing */
}

/* ---- saving ---- */

/* Before a checkpoint: it is kept as the best if its step has the best evaluation. */
static int keep_best(struct muster_trainer *t, struct muster_error *err)
{
    if (!t->config.keep_best || t->evaluation.best_step != t->steps || !t->steps)
        return 0;
    t->evaluation.kept_step = t->steps;
    return api_note_evaluation(t, err);
}

/* Memory for the file and its copy, after the bytes that align them. */
static int staging_count(const struct muster_trainer *t)
{
    return api_local_dir(t) ? 2 : 1;
}

int64_t api_staging_bytes(const struct muster_trainer *t)
{
    const bool writes = t->config.checkpoint_dir && *t->config.checkpoint_dir;
    return writes ? (int64_t)staging_count(t) * DISK_STAGING + DISK_ALIGNMENT : 0;
}

/* The plan's, from the first one on: touched then, once. */
static void take_staging(struct muster_trainer *t)
{
    char *memory = trainer_checkpoint_memory(t->trainer);
    if (!memory || t->kept.staging[0])
        return;
    memory += (DISK_ALIGNMENT - (uintptr_t)memory % DISK_ALIGNMENT) % DISK_ALIGNMENT;
    memset(memory, 0, (size_t)staging_count(t) * DISK_STAGING);
    for (int i = 0; i < staging_count(t); i++)
        t->kept.staging[i] = memory + (int64_t)i * DISK_STAGING;
}

static struct checkpoint_writer *begin_saving(struct muster_trainer *t, char *const *settings,
                                              int64_t kept_before)
{
    const struct checkpoint_save save = {
        .trainer = t->trainer,
        .folder = t->config.checkpoint_dir,
        .rank = t->rank,
        .retention = {.last = t->config.checkpoint_keep,
                      .every = t->config.checkpoint_keep_every,
                      .best = t->config.keep_best ? t->evaluation.kept_step : 0,
                      .best_before = t->config.keep_best ? kept_before : 0,
                      .good = t->saved_step},
        .hook = t->hook,
        .local = api_local_dir(t),
        .local_keep = t->config.checkpoint_local_keep,
        .beside = t->saving_count > 0,
        .kept = &t->kept,
        .run = {.step = t->steps,
                .samples = t->taken,
                .settings = (manifest_texts)settings,
                .notes = (manifest_texts)t->notes},
    };
    return checkpoint_begin(&save);
}

int muster_trainer_checkpoint_begin(struct muster_trainer *t, struct muster_error *err)
{
    const int64_t kept_before = t->evaluation.kept_step;
    if (api_check_folder(t, err) < 0)
        return -1;
    if (trainer_is_averaged(t->trainer))
        return error_set(
            err, MUSTER_E_STATE,
            "the average is in the place of the parameters: muster_trainer_average with 0 first");
    if (t->saved_step == t->steps || api_saving_step(t, t->steps))
        return 0;
    if (api_saving_busy(t))
        return error_set(err, MUSTER_E_STATE,
                         "the checkpoint of step %lld is still being written: call "
                         "muster_trainer_checkpoint_end first",
                         (long long)t->saving[t->saving_count - 1].step);
    if (keep_best(t, err) < 0 || api_note_base(t, err) < 0)
        return -1;
    const bool known = t->kept.settings != NULL;
    char **settings = known ? NULL : train_resume_texts(&t->config);
    /* The ranks have the same settings, but not the same memory: this one cannot go on. */
    if (!known && !settings)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write a checkpoint");
    take_staging(t);
    struct checkpoint_writer *writer =
        begin_saving(t, settings, kept_before); /* there is one: api_saving_busy */
    train_settings_free(settings);
    t->saving[t->saving_count++] =
        (struct api_saving){.writer = writer, .step = t->steps, .kept_before = kept_before};
    return 1;
}

int muster_trainer_checkpoint_end(struct muster_trainer *t, int32_t wait, struct muster_error *err)
{
    return look_at_oldest(t, wait != 0, err);
}

int muster_trainer_checkpoint(struct muster_trainer *t, struct muster_error *err)
{
    while (t->saving_count && t->saving[0].step != t->steps)
        (void)look_at_oldest(t, true, NULL); /* this one takes its place */
    int begun = muster_trainer_checkpoint_begin(t, err);
    return begun < 0 || !t->saving_count ? begun : look_at_oldest(t, true, err);
}

/* ---- the command after each ---- */

int api_open_command(struct muster_trainer *t, struct muster_error *err)
{
    const struct train_config *c = &t->config;
    const struct hook_options options = {.command = c->checkpoint_command,
                                         .folder = c->checkpoint_dir,
                                         .timeout_ns =
                                             (int64_t)(c->checkpoint_command_timeout_s * (double)NS_PER_S)};
    if (t->rank || !c->checkpoint_command || !*c->checkpoint_command || !c->checkpoint_dir ||
        !*c->checkpoint_dir)
        return 0;
    t->hook = hook_create(&options, err);
    return t->hook ? 0 : -1;
}

void api_command_resumed(struct muster_trainer *t)
{
    if (t->hook && t->saved_step >= 0 && hook_last(t->hook) < t->saved_step)
        hook_add(t->hook, t->saved_step);
}

int muster_trainer_command_end(struct muster_trainer *t, int64_t wait_ns, int64_t *step,
                               struct muster_error *err)
{
    if (!t->hook)
        return 0;
    return hook_take(t->hook, instant_add(clock_now(NULL), wait_ns > 0 ? wait_ns : 0), step, &t->command_ns,
                     err);
}

void muster_trainer_command_stop(struct muster_trainer *t)
{
    if (t->hook)
        hook_stop(t->hook);
}
