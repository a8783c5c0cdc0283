/* api_stages.c - see api_trainer.h; and muster_trainer.h: the stage of a trainer, notes of checkpoints that
 * no trainer has open.
 *
 * A checkpoint's note "stage" has the number of its stage, and the steps and updates that were done when it
 * began: the place in the schedule follows from them. */
#include "runtime/api/api_trainer.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "proto/json/json_text.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/refusal.h"

static const char stage_key[] = "stage";

struct written_stage {
    int number; /* -1: of a training without stages */
    long long first_step, first_updates;
};

static struct written_stage stage_of(const struct manifest_run *run)
{
    struct written_stage stage = {.number = -1};
    for (size_t i = 0; run->notes && run->notes[i]; i++)
        if (!strncmp(run->notes[i], stage_key, sizeof stage_key - 1) &&
            run->notes[i][sizeof stage_key - 1] == '=' &&
            sscanf(run->notes[i] + sizeof stage_key, "%d %lld %lld", &stage.number, &stage.first_step,
                   &stage.first_updates) != 3)
            stage.number = -1;
    return stage;
}

static int note_stage(struct muster_trainer *t, struct muster_error *err)
{
    char text[80];
    if (t->stage.number < 0)
        return 0;
    (void)snprintf(text, sizeof text, "%d %lld %lld", t->stage.number, (long long)t->stage.first_step,
                   (long long)t->stage.first_updates); /* fits */
    return muster_trainer_note(t, stage_key, text, err);
}

int muster_trainer_stage(struct muster_trainer *t, int32_t stage, int64_t follows, struct muster_error *err)
{
    if (stage < 0 || follows < -1 || (!stage && follows >= 0))
        return error_set(err, MUSTER_E_INVALID,
                         "stage %d after step %lld: stages count from 0, and the first one follows none",
                         stage, (long long)follows);
    if (t->steps)
        return error_set(err, MUSTER_E_STATE, "the stage is set before the first step");
    t->stage = (struct api_stage){
        .number = stage, .follows = follows >= 0, .first_step = follows < 0 ? 0 : follows, .found = -1};
    return note_stage(t, err);
}

void api_stage_look(struct muster_trainer *t)
{
    t->stage.begun = false;
    t->stage.found = -1;
}

bool api_stage_begins(const struct muster_trainer *t, const struct manifest_run *run)
{
    return t->stage.number > 0 && t->stage.follows && stage_of(run).number == t->stage.number - 1 &&
           run->step == t->stage.first_step;
}

static bool keeps_moments(const struct muster_trainer *t)
{
    return t->config.stage_moments == TRAIN_MOMENTS_KEEP;
}

unsigned api_stage_parts(const struct muster_trainer *t, const struct manifest_run *run, bool goes_on)
{
    if (!goes_on) /* the settings are the whole training's: other parameters may be frozen */
        return stage_of(run).number < 0 ? CHECKPOINT_ALL : CHECKPOINT_AVERAGES | CHECKPOINT_COUNTS;
    if (!api_stage_begins(t, run)) /* a checkpoint of another stage is refused with any contents */
        return stage_of(run).number == t->stage.number ? CHECKPOINT_ALL : 0;
    return keeps_moments(t) ? CHECKPOINT_ALL | CHECKPOINT_FROZEN : 0;
}

int api_stage_accept(struct muster_trainer *t, const struct manifest_run *run, struct muster_error *err)
{
    const struct written_stage written = stage_of(run);
    if (written.number == t->stage.number || api_stage_begins(t, run))
        return 0;
    if (written.number < 0)
        return error_set(err, MUSTER_E_REFUSED,
                         "the checkpoint is of a training without stages, and this is stage %d of one with "
                         "them (training.stages): begin in another training.checkpoint_dir, with the "
                         "exported model as model.path",
                         t->stage.number + 1);
    if (t->stage.found < 0)
        t->stage.found = written.number;
    return error_set(err, MUSTER_E_REFUSED, "the checkpoint is of stage %d of a training in stages%s",
                     written.number + 1,
                     t->stage.number < 0 ? ", and training.stages is not set: set it back, or begin a new "
                                           "run in another training.checkpoint_dir"
                                         : "");
}

static int begin_stage(struct muster_trainer *t, struct muster_error *err)
{
    const struct plateau_rule plateau = train_config_plateau(&t->config);
    evaluation_begin(&t->evaluation);
    plateau_begin(&plateau, t->config.learning_rate, &t->plateau);
    return api_note_evaluation(t, err) < 0 ? -1 : api_note_plateau(t, err);
}

int api_stage_take(struct muster_trainer *t, const struct manifest_run *run, struct muster_error *err)
{
    const struct written_stage written = stage_of(run);
    const bool begins = api_stage_begins(t, run);
    t->steps = run->step;
    t->updates = begins && !keeps_moments(t) ? 0 : run->updates;
    t->taken = begins ? 0 : run->samples;
    t->stage.begun = begins;
    if (begins)
        t->stage.first_updates = t->updates;
    else if (t->stage.number >= 0 && written.number == t->stage.number) {
        t->stage.first_step = written.first_step;
        t->stage.first_updates = written.first_updates;
        t->stage.follows = t->stage.number > 0; /* a run that goes back may go back to its begin */
    }
    if (begins && begin_stage(t, err) < 0)
        return -1;
    return note_stage(t, err);
}

void api_stage_refused(struct muster_trainer *t)
{
    double found = t->stage.found;
    if (t->stage.number >= 0 && !trainer_maximum(t->trainer, &found, 1, NULL)) /* or the ranks have gone */
        t->stage.found = (int32_t)found;
}

/* ---- notes on the disk ---- */

/* The note in a manifest. 1: it is there; 0: it is not, or the manifest is damaged; -1: not readable. */
static int read_note(const char *folder, const char *key, struct buffer *out, struct muster_error *err)
{
    scope_free char *path = mem_printf("%s/" MANIFEST_NAME, folder);
    scope_buffer text = {0};
    struct muster_error why = {0};
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the path of a checkpoint");
    if (io_read_file(path, JSON_TEXT_LIMIT, &text, &why) < 0 && refusal_of(why.code) == REFUSAL_UNREADABLE) {
        if (err)
            *err = why;
        return -1;
    }
    json_t *root = why.code || !text.data ? NULL : json_loadb(text.data, text.length, 0, NULL);
    const json_t *notes = json_object_get(root, "notes");
    const size_t length = strlen(key);
    int result = 0;
    for (size_t i = 0; !result && i < json_array_size(notes); i++) {
        const char *note = json_string_value(json_array_get(notes, i));
        if (note && !strncmp(note, key, length) && note[length] == '=')
            result = buffer_text(out, note + length + 1) < 0 ? -1 : 1; /* out keeps its failure */
    }
    json_decref(root);
    return result;
}

/* The newest checkpoint that has the note. A damaged one is refused when it is loaded. */
static int find_note(const char *folder, const char *key, struct buffer *out, struct muster_error *err)
{
    scope_free int64_t *steps = NULL;
    int found = read_note(folder, key, out, err);
    if (found)
        return found < 0 && !out->failed ? -1 : 0;
    const int count = folder_list(folder, &steps, err);
    for (int i = 0; i < count; i++) {
        scope_free char *path = folder_step_path(folder, steps[i]);
        if (!path)
            return error_set(err, MUSTER_E_NOMEM, "no memory for the path of a checkpoint");
        found = read_note(path, key, out, err);
        if (found)
            return found < 0 && !out->failed ? -1 : 0;
    }
    return count < 0 ? -1 : 0;
}

int64_t muster_checkpoint_noted(const char *folder, const char *key, char *text, int64_t size,
                                struct muster_error *err)
{
    scope_buffer note = {0};
    if (size < 1)
        return error_set(err, MUSTER_E_INVALID, "%lld bytes for a note: use 1 at least", (long long)size);
    if (find_note(folder, key, &note, err) < 0)
        return -1;
    if (note.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a note");
    (void)snprintf(text, (size_t)size, "%s", note.data ? note.data : ""); /* cut, as documented */
    return (int64_t)note.length;
}

void api_folder_cut(const char *folder, struct buffer *out)
{
    struct muster_error unread = {0};
    if (find_note(folder, API_CUT_KEY, out, &unread) < 0 || !out->length)
        return;
    (void)buffer_text(out, "\n");
    (void)find_note(folder, API_SECONDS_KEY, out, &unread);
}
