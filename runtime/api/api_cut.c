/* api_cut.c - see api_trainer.h. With mesh.cut: auto a run that goes on from a checkpoint begins its stages
 * where that run did: sums over stages keep their order, and with it their bits. Where the number of parts is
 * another one, the times count that the run has measured. Rank 0 reads both, for all ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/api/api_trainer.h"

static const char between[] = ", ";

/* Steps of a run whose layers are timed, from its first one: the shortest time of each layer counts. */
enum { STEPS_TIMED = 3 };

/* ---- the notes of a checkpoint ---- */

static int layer_named(const struct model *model, const char *name)
{
    int l = 0;
    while (l < model->layer_count && strcmp(model->layers[l].name, name) != 0)
        l++;
    return l;
}

/* Fills cut->names from cut->text, unless the model has other layers. */
static int read_cut(struct api_cut *cut, const struct model *model, struct muster_error *err)
{
    int last = 0, count = 0;
    cut->names = mem_calloc((size_t)model->layer_count + 1, sizeof *cut->names);
    if (!cut->names)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the cut of a model");
    for (char *at = cut->text; at && *at;) {
        char *end = strstr(at, between);
        if (end)
            *end = '\0';
        const int layer = layer_named(model, at);
        if (layer <= last || layer == model->layer_count) {
            cut->names[0] = NULL;
            return 0;
        }
        cut->names[count++] = at;
        last = layer;
        at = end ? end + strlen(between) : NULL;
    }
    return 0;
}

/* One for each layer, or none. */
static int read_seconds(struct api_cut *cut, const char *text, const struct model *model,
                        struct muster_error *err)
{
    int l = 0;
    char *end = NULL;
    cut->seconds = mem_calloc((size_t)model->layer_count, sizeof *cut->seconds);
    if (!cut->seconds)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the times of %d layers", model->layer_count);
    for (; l < model->layer_count; l++, text = end) {
        cut->seconds[l] = strtod(text, &end);
        if (end == text || !(cut->seconds[l] >= 0))
            break;
    }
    if (l < model->layer_count)
        mem_free(take_pointer(&cut->seconds));
    return 0;
}

static bool is_auto(char *const *cut)
{
    return !cut || (cut[0] && !cut[1] && !strcmp(cut[0], "auto"));
}

bool api_cut_looks(const struct muster_trainer *t)
{
    const struct train_config *c = &t->config;
    return c->mesh_pipeline > 1 && is_auto(c->mesh_cut) && c->checkpoint_dir && *c->checkpoint_dir;
}

int api_cut_look(struct muster_trainer *t, struct muster_world *world, const struct buffer *notes,
                 struct muster_error *err)
{
    struct api_cut *cut = &t->cut;
    int64_t length = notes->failed ? 0 : (int64_t)notes->length;
    if (muster_world_broadcast(world, &length, sizeof length, 0, err) < 0)
        return -1;
    cut->text = mem_calloc((size_t)length + 1, 1);
    if (!cut->text)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %lld bytes of notes", (long long)length);
    if (!t->rank && length)
        memcpy(cut->text, notes->data, (size_t)length);
    if (length && muster_world_broadcast(world, cut->text, length, 0, err) < 0)
        return -1;
    char *seconds = strchr(cut->text, '\n');
    if (seconds)
        *seconds++ = '\0';
    if (read_cut(cut, &t->model, err) < 0 || (seconds && read_seconds(cut, seconds, &t->model, err) < 0))
        return -1;
    cut->found.kept = cut->names[0] ? (const char *const *)cut->names : NULL;
    cut->found.seconds = cut->seconds;
    return 0;
}

void api_cut_free(struct api_cut *cut)
{
    mem_free(cut->text);
    mem_free(cut->names);
    mem_free(cut->seconds);
}

int api_cut_texts(const struct muster_trainer *t, struct buffer *cut, struct buffer *seconds)
{
    for (int l = 0; t->cut.seconds && l < t->model.layer_count; l++)
        (void)buffer_printf(seconds, l ? " %.4g" : "%.4g", t->cut.seconds[l]);
    return plan_cut_text(&t->model, cut) < 0 || seconds->failed ? -1 : 0;
}

/* ---- a run's own times ---- */

static bool times_layers(const struct muster_trainer *t)
{
    return t->model.parts > 1 && t->cut.found.by != TRAIN_CUT_SET;
}

int api_cut_before_step(struct muster_trainer *t, struct muster_error *err)
{
    if (!times_layers(t) || t->cut.steps || t->cut.traced)
        return 0;
    return trainer_trace(t->trainer, STEPS_TIMED, err);
}

/* The mean over all ranks with a layer. sums: (2, layer_count), sums, and how many ranks there
 * are. */
static int gather_seconds(struct muster_trainer *t, double *sums, struct muster_error *err)
{
    const int layers = t->model.layer_count;
    if (!t->cut.traced && trainer_layer_seconds(t->trainer, sums, err) < 0)
        return -1;
    for (int l = 0; l < layers; l++)
        sums[layers + l] = sums[l] > 0;
    if (trainer_reduce(t->trainer, sums, 2 * layers, err) < 0)
        return -1;
    for (int l = 0; l < layers; l++)
        sums[l] = sums[layers + l] > 0 ? sums[l] / sums[layers + l] : 0;
    return 0;
}

int api_cut_after_step(struct muster_trainer *t, struct muster_error *err)
{
    if (!times_layers(t) || ++t->cut.steps != STEPS_TIMED)
        return 0;
    const size_t layers = (size_t)t->model.layer_count;
    double *seconds = mem_calloc(2 * layers, sizeof *seconds);
    if (!seconds)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the times of %zu layers", layers);
    int result = gather_seconds(t, seconds, err);
    if (!result && !t->cut.traced)
        result = trainer_trace(t->trainer, 0, err);
    bool whole = !result;
    for (size_t l = 0; l < layers; l++)
        whole = whole && seconds[layers + l] > 0;
    if (!whole) { /* some rank's steps were traced for its user: the times that are known stay */
        mem_free(seconds);
        return result;
    }
    mem_free(t->cut.seconds);
    t->cut.seconds = seconds;
    t->cut.found.seconds = NULL; /* the parts are cut */
    return plan_cut_compare(&t->model, seconds, &t->cut.slowest, err) < 0 ? -1 : 1;
}

/* ---- for people ---- */

/* The cut that the times of this run ask for. */
static int put_better(const struct muster_trainer *t, struct buffer *out, struct muster_error *err)
{
    struct model model = t->model;
    struct train_cut cut = {.seconds = t->cut.seconds};
    model.layers = mem_calloc((size_t)model.layer_count, sizeof *model.layers);
    if (!model.layers)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the cut of a model");
    memcpy(model.layers, t->model.layers, (size_t)model.layer_count * sizeof *model.layers);
    int result = train_plan_cut(&t->config, &t->plan, &cut, &model, err);
    if (!result && plan_cut_text(&model, out) < 0)
        result = error_set(err, MUSTER_E_NOMEM, "no memory for the cut of a model");
    mem_free(model.layers);
    return result;
}

int64_t muster_trainer_cut(const struct muster_trainer *t, int32_t *by, double *gain, char *text,
                           int64_t size, struct muster_error *err)
{
    scope_buffer out = {0};
    const struct plan_slowest *slowest = &t->cut.slowest;
    if (size < 0 || (size && !text))
        return error_set(err, MUSTER_E_INVALID, "%lld bytes for the text of a cut: use 0 at least",
                         (long long)size);
    *by = (int32_t)t->cut.found.by;
    *gain = slowest->now > 0 ? 1 - slowest->least / slowest->now : -1;
    const int failed = *gain < 0 ? plan_cut_text(&t->model, &out) : put_better(t, &out, err);
    if (failed)
        return out.failed ? error_set(err, MUSTER_E_NOMEM, "no memory for the text of a cut") : -1;
    if (size)
        (void)snprintf(text, (size_t)size, "%s", out.data ? out.data : ""); /* cut, as documented */
    return (int64_t)out.length;
}
