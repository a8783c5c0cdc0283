/* api_checkpoint.c - muster_trainer.h: going on from checkpoints, and the notes that they keep. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "runtime/api/api_trainer.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/refusal.h"
#include "runtime/config/train_resume.h"
#include "runtime/config/train_settings.h"

/* ---- notes ---- */

static size_t note_count(char *const *notes)
{
    size_t count = 0;
    while (notes && notes[count])
        count++;
    return count;
}

/* The place of "key=" in the list, or the list's end. */
static size_t find_note(char *const *notes, const char *key, size_t length)
{
    size_t i = 0;
    while (notes && notes[i] && (strncmp(notes[i], key, length) != 0 || notes[i][length] != '='))
        i++;
    return i;
}

static int set_note(struct muster_trainer *t, char *text, size_t key_length, struct muster_error *err)
{
    size_t count = note_count(t->notes), at = text ? find_note(t->notes, text, key_length) : 0;
    char **notes = text ? mem_realloc(t->notes, count + 2, sizeof *notes) : NULL;
    if (!notes) {
        mem_free(text);
        return error_set(err, MUSTER_E_NOMEM, "no memory for a note");
    }
    if (at == count)
        notes[count + 1] = NULL;
    else
        mem_free(notes[at]);
    notes[at] = text;
    t->notes = notes;
    return 0;
}

int muster_trainer_note(struct muster_trainer *t, const char *key, const char *text, struct muster_error *err)
{
    if (!*key || strchr(key, '='))
        return error_set(err, MUSTER_E_INVALID, "'%s' is no key of a note: it is empty or has a '='", key);
    return set_note(t, mem_printf("%s=%s", key, text), strlen(key), err);
}

const char *muster_trainer_noted(const struct muster_trainer *t, const char *key)
{
    size_t at = find_note(t->notes, key, strlen(key));
    return t->notes && t->notes[at] ? t->notes[at] + strlen(key) + 1 : NULL;
}

/* ---- evaluations ---- */

/* The note of that name is this file's. */
static const char evaluation_key[] = "evaluation";

int api_note_evaluation(struct muster_trainer *t, struct muster_error *err)
{
    scope_buffer text = {0};
    if (evaluation_format(&t->evaluation, &text) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a note");
    return muster_trainer_note(t, evaluation_key, text.data, err);
}

static const char plateau_key[] = "plateau"; /* the same for ReduceLROnPlateau */

int api_note_plateau(struct muster_trainer *t, struct muster_error *err)
{
    scope_buffer text = {0};
    if (t->config.schedule != LR_PLATEAU)
        return 0;
    if (plateau_format(&t->plateau, &text) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a note");
    return muster_trainer_note(t, plateau_key, text.data, err);
}

int api_note_cut(struct muster_trainer *t, struct muster_error *err)
{
    scope_buffer cut = {0}, seconds = {0};
    if (t->model.parts < 2)
        return 0;
    if (api_cut_texts(t, &cut, &seconds) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a note");
    if (seconds.length && muster_trainer_note(t, API_SECONDS_KEY, seconds.data, err) < 0)
        return -1;
    return muster_trainer_note(t, API_CUT_KEY, cut.data, err);
}

/* A run with another schedule has no such note: the state begins here. */
static int take_plateau(struct muster_trainer *t, struct muster_error *err)
{
    const char *text = muster_trainer_noted(t, plateau_key);
    return text && t->config.schedule == LR_PLATEAU ? plateau_parse(text, &t->plateau, err) : 0;
}

/* Where the notes have it. */
static int take_evaluation(struct muster_trainer *t, struct muster_error *err)
{
    const char *text = muster_trainer_noted(t, evaluation_key);
    return text ? evaluation_parse(text, &t->evaluation, err) : 0;
}

int muster_trainer_judge(struct muster_trainer *t, double loss, struct muster_error *err)
{
    const struct evaluation_rule rule = train_config_evaluation(&t->config);
    const struct plateau_rule plateau = train_config_plateau(&t->config);
    struct evaluation_state before = t->evaluation;
    struct plateau_state plateau_before = t->plateau;
    const bool best = evaluation_judge(&rule, &t->evaluation, t->steps, loss);
    if (best && t->config.keep_best && (t->saved_step == t->steps || api_saving_step(t, t->steps)))
        t->evaluation.kept_step = t->steps; /* it is there already, or on its way */
    const bool lowers = t->config.schedule == LR_PLATEAU && plateau_judge(&plateau, &t->plateau, loss);
    if (api_note_evaluation(t, err) < 0 || api_note_plateau(t, err) < 0) {
        t->evaluation = before;
        t->plateau = plateau_before;
        return -1;
    }
    return (best ? MUSTER_JUDGED_BEST : 0) | (lowers ? MUSTER_JUDGED_LOWER : 0) |
           (evaluation_stops(&rule, &t->evaluation) ? MUSTER_JUDGED_STOP : 0);
}

/* ---- resuming ---- */

/* Lines that differ between two fingerprints, as "world_size 4, now 2". */
static void put_differences(const struct fingerprint *written, const struct fingerprint *now,
                            struct buffer *out)
{
#define NUMBER_DIFFERS(name, meaning)                                                                        \
    if (written->name != now->name)                                                                          \
        (void)buffer_printf(out, "%s" #name " %d, now %d", out->length ? "; " : "", written->name, now->name);
#define TEXT_DIFFERS(name, meaning)                                                                          \
    if (strcmp(written->name, now->name) != 0)                                                               \
        (void)buffer_printf(out, "%s" #name " %s, now %s", out->length ? "; " : "", written->name, now->name);
    FINGERPRINT_NUMBERS(NUMBER_DIFFERS)
    FINGERPRINT_TEXTS(TEXT_DIFFERS)
#undef NUMBER_DIFFERS
#undef TEXT_DIFFERS
}

static int compare_numerics(const struct muster_trainer *t, const struct manifest_run *run,
                            struct buffer *report, struct muster_error *err)
{
    struct fingerprint written, now;
    scope_buffer differences = {0};
    if (fingerprint_parse(run->numerics, &written, err) < 0)
        return -1;
    trainer_fingerprint(t->trainer, &now);
    put_differences(&written, &now, &differences);
    if (!differences.length)
        return 0;
    if (t->config.resume_numerics == TRAIN_NUMERICS_REFUSE)
        return error_set(err, MUSTER_E_REFUSED,
                         "the numerics differ from the checkpoint's: %s; restore them, or set "
                         "training.resume_numerics: warn",
                         differences.data);
    (void)buffer_printf(report, "the numerics differ, so that the last bits will: %s\n", differences.data);
    return 0;
}

static int accept(void *context, const struct manifest *manifest, struct buffer *report,
                  struct muster_error *err)
{
    struct muster_trainer *t = context;
    if (api_stage_accept(t, &manifest->run, err) < 0)
        return -1;
    if (api_stage_begins(t, &manifest->run)) /* the stage before may have had any settings */
        return api_compare_base(t, manifest->run.notes, report, err);
    char **now = train_resume_texts(&t->config);
    if (!now)
        return error_set(err, MUSTER_E_NOMEM, "no memory to compare settings");
    int result = train_resume_compare(manifest->run.settings, (const char *const *)now, report, err);
    train_settings_free(now);
    if (result < 0 || api_compare_base(t, manifest->run.notes, report, err) < 0)
        return -1;
    return compare_numerics(t, &manifest->run, report, err);
}

static unsigned parts_going_on(void *context, const struct manifest_run *run)
{
    return api_stage_parts(context, run, true);
}

static unsigned parts_of_state(void *context, const struct manifest_run *run)
{
    return api_stage_parts(context, run, false);
}

static int take_notes(struct muster_trainer *t, manifest_texts notes, struct muster_error *err)
{
    for (size_t i = 0; notes && notes[i]; i++)
        if (set_note(t, mem_strdup(notes[i]), strcspn(notes[i], "="), err) < 0)
            return -1;
    return 0;
}

/* The loaded values are the trainer's state from here. */
int api_take_run(struct muster_trainer *t, const struct manifest_run *run, struct muster_error *err)
{
    if (!api_stage_begins(t, run) && (take_notes(t, run->notes, err) < 0 || take_evaluation(t, err) < 0 ||
                                      take_plateau(t, err) < 0 || api_note_cut(t, err) < 0))
        return -1;
    return api_stage_take(t, run, err);
}

/* one: the path is a checkpoint's, and not that of a folder of them. goes_on: as the run that wrote it. */
static int load_path(struct muster_trainer *t, const char *path, bool one, bool goes_on,
                     struct buffer *report, struct muster_error *err)
{
    struct checkpoint_load load = {.trainer = t->trainer,
                                   .folder = path,
                                   .one = one,
                                   .rank = t->rank,
                                   .world_size = t->world_size,
                                   .local = api_local_dir(t),
                                   .accept = goes_on ? accept : NULL,
                                   .parts = goes_on ? parts_going_on : parts_of_state,
                                   .context = t,
                                   .report = report};
    if (api_note_base(t, err) < 0)
        return -1;
    int result = checkpoint_load(&load, err);
    const struct manifest_run *run = &load.manifest.run;
    if (result > 0) {
        t->saved_step = one ? -1 : run->step; /* a new folder gets its own */
        if (api_take_run(t, run, err) < 0)
            result = -1;
        (void)buffer_printf(report, "resumed from step %lld (%s, written by %d rank%s", (long long)run->step,
                            path, run->world_size, run->world_size == 1 ? "" : "s");
        if (load.local)
            (void)buffer_printf(report,
                                load.local_manifest ? "; manifest and %d of %d files read on this node"
                                                    : "; %d of %d files read on this node",
                                load.local_files, load.files);
        (void)buffer_printf(report, "); sample %lld is the next\n", (long long)t->taken);
    }
    manifest_free(&load.manifest);
    return result;
}

/* Collective: an error of one rank (own; code 0: none) is that of all. */
static int all_can(const struct muster_trainer *t, struct muster_error *own, struct muster_error *err)
{
    enum refusal worst;
    if (refusal_share(t->trainer, t->rank, t->world_size, own, &worst, err) < 0)
        return -1;
    if (worst && err)
        *err = *own;
    return worst ? -1 : 0;
}

/* How many checkpoints there are, on every rank what rank 0 sees. */
static int count_checkpoints(const struct muster_trainer *t, const char *folder, int64_t *newest,
                             struct muster_error *err)
{
    scope_free int64_t *steps = NULL;
    struct muster_error own = {0};
    int count = t->rank ? 0 : folder_list(folder, &steps, &own);
    double values[2] = {count > 0 ? (double)steps[0] : 0, count};
    if (all_can(t, &own, err) < 0 || trainer_reduce(t->trainer, values, 2, err) < 0)
        return -1;
    *newest = (int64_t)values[0];
    return (int)values[1];
}

/* All of them are: whether the run begins at step 0, which replaces them one after the other. */
static int begin_anew(const struct muster_trainer *t, int count, struct buffer *report,
                      struct muster_error *err)
{
    const char *folder = t->config.checkpoint_dir;
    if (t->config.resume_damaged == TRAIN_DAMAGED_REFUSE)
        return error_set(
            err, MUSTER_E_REFUSED,
            "all %d checkpoints in %s are damaged (see the warnings before): restore one, name "
            "another folder, or set training.resume_damaged: anew to begin at step 0 and replace them",
            count, folder);
    (void)buffer_printf(report,
                        "all %d checkpoints in %s are damaged: the run begins at step 0 and replaces them "
                        "(training.resume_damaged: anew)\n",
                        count, folder);
    return 0;
}

static int resume(struct muster_trainer *t, struct buffer *report, struct muster_error *err)
{
    const char *folder = t->config.checkpoint_dir, *how = t->config.resume;
    const bool none = !strcmp(how, "none"), automatic = !*how || !strcmp(how, "auto");
    int64_t newest = 0;
    int count = count_checkpoints(t, folder, &newest, err);
    if (count < 0)
        return -1;
    if (none && count)
        return error_set(err, MUSTER_E_REFUSED,
                         "training.resume: none, but %s has checkpoints up to step %lld: remove them, name "
                         "another folder or resume from them (auto)",
                         folder, (long long)newest);
    if (none || (automatic && !count))
        return 0;
    if (!automatic && !count)
        return load_path(t, how, true, true, report, err);
    if (!automatic)
        (void)buffer_printf(report, "training.resume %s is not used: %s has checkpoints up to step %lld\n",
                            how, folder, (long long)newest);
    const int result = load_path(t, folder, false, true, report, err);
    return result ? result : begin_anew(t, count, report, err);
}

static void put_report(const struct buffer *report, char *text, int64_t size)
{
    if (!text || size <= 0)
        return;
    size_t length = (int64_t)report->length < size ? report->length : (size_t)size - 1;
    if (length)
        memcpy(text, report->data, length);
    text[length] = '\0';
}

int muster_trainer_roll_back(struct muster_trainer *t, char *text, int64_t size, struct muster_error *err)
{
    scope_buffer report = {0};
    const int64_t taken = t->taken;
    int64_t newest;
    if (api_check_folder(t, err) < 0)
        return -1;
    api_saving_settle(t); /* it is gone back to, or was not saved */
    int count = count_checkpoints(t, t->config.checkpoint_dir, &newest, err);
    if (count <= 0)
        return count;
    int result = load_path(t, t->config.checkpoint_dir, false, true, &report, err);
    put_report(&report, text, size);
    if (!result)
        return error_set(err, MUSTER_E_INVALID,
                         "all %d checkpoints in %s are damaged: there is none to go back to", count,
                         t->config.checkpoint_dir);
    t->taken = taken; /* the samples since then are left out */
    return result;
}

int muster_trainer_resume(struct muster_trainer *t, char *text, int64_t size, struct muster_error *err)
{
    scope_buffer report = {0};
    if (api_check_folder(t, err) < 0)
        return -1;
    api_saving_settle(t); /* it is loaded from, or was not saved */
    struct muster_error own = {0};
    if (!t->rank)
        (void)folder_probe(t->config.checkpoint_dir, &own); /* own tells */
    if (all_can(t, &own, err) < 0)
        return -1;
    api_stage_look(t);
    int result = resume(t, &report, err);
    put_report(&report, text, size);
    if (result < 0)
        api_stage_refused(t);
    if (result > 0)
        api_command_resumed(t);
    return result > 0 && t->stage.begun ? 2 : result;
}

/* Whether the path is that of a checkpoint, on every rank what rank 0 sees. */
static int is_checkpoint(const struct muster_trainer *t, const char *path, struct muster_error *err)
{
    scope_free char *manifest = mem_printf("%s/" MANIFEST_NAME, path);
    struct muster_error own = {0};
    if (!manifest)
        (void)error_set(&own, MUSTER_E_NOMEM, "no memory for the path of a checkpoint"); /* own tells */
    double there = !t->rank && manifest ? io_exists(manifest, &own) : 0;
    return all_can(t, &own, err) < 0 || trainer_reduce(t->trainer, &there, 1, err) < 0 ? -1 : there > 0;
}

int muster_trainer_restore(struct muster_trainer *t, const char *path, char *text, int64_t size,
                           struct muster_error *err)
{
    scope_buffer report = {0};
    int64_t newest;
    if (text_refuse_scheme("the checkpoint", path, err) < 0)
        return -1;
    api_saving_settle(t);
    const int one = is_checkpoint(t, path, err);
    if (one < 0)
        return -1;
    const int count = one ? one : count_checkpoints(t, path, &newest, err);
    if (count <= 0)
        return count;
    const int result = load_path(t, path, one > 0, false, &report, err);
    put_report(&report, text, size);
    return result || one
               ? result
               : error_set(err, MUSTER_E_INVALID, "all %d checkpoints in %s are damaged", count, path);
}

int muster_trainer_best(struct muster_trainer *t, struct muster_error *err)
{
    scope_buffer report = {0};
    if (api_check_folder(t, err) < 0)
        return -1;
    api_saving_settle(t); /* it may be that one; where it was not saved the one before is kept */
    const int64_t step = t->evaluation.kept_step;
    if (!step || step == t->steps)
        return 0;
    scope_free char *path = folder_step_path(t->config.checkpoint_dir, step);
    if (!path) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the path of a checkpoint");
        return -1;
    }
    return load_path(t, path, true, true, &report, err) < 0
               ? error_wrap(err, "the best checkpoint, of step %lld", (long long)step)
               : 1;
}
