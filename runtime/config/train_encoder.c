/* train_encoder.c - see train_encoder.h. */
#include "runtime/config/train_encoder.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/config/train_config_check.h"
#include "runtime/files/files.h"

static int read_sizes(const struct train_config *c, struct architecture *architecture,
                      struct muster_error *err)
{
    const char *page = c->model_page && *c->model_page ? c->model_page : NULL;
    return files_sizes(c->model_path, page, architecture, err);
}

int train_encoder_find(struct train_config *c, struct muster_error *err)
{
    static const char key[] = "model.architecture";
    struct architecture found = {0};
    struct muster_error unread = {0};
    const bool wanted = c->architecture == TRAIN_ARCHITECTURE_ENCODER;
    if (!c->model_path || train_config_gives_sizes(c) ||
        (!wanted && c->architecture != TRAIN_ARCHITECTURE_AUTO) || read_sizes(c, &found, &unread) < 0)
        return 0;
    const struct knob *knob = knob_find(train_config_table(), key, sizeof key - 1, false, NULL);
    int result = 0;
    if (architecture_classifies(&found))
        result = wanted ? 0
                        : knob_set(train_config_table(), c, c->sources, knob, "encoder", KNOB_FROM_RULE,
                                   "model.path", err);
    else if (wanted)
        result =
            error_set(err, MUSTER_E_INVALID,
                      "model.path %s is a %s, which classifies no texts, and model.architecture is encoder",
                      c->model_path, architecture_title(&found));
    architecture_drop(&found);
    return result;
}

/* All names, or none. */
static int take_names(const struct train_config *c, const struct architecture *found, struct train_encoder *e,
                      struct muster_error *err)
{
    for (int i = 0; i < e->labels && e->labels <= TRAIN_LABELS; i++) {
        const char *name = c->labels ? c->labels[i] : architecture_label(found, i);
        if (!name) {
            train_encoder_free(e);
            return 0;
        }
        if (!(e->label[i] = mem_strdup(name)))
            return error_set(err, MUSTER_E_NOMEM, "no memory for the labels of %s", c->model_path);
    }
    return 0;
}

int train_encoder_read(const struct train_config *c, struct train_encoder *e, struct muster_error *err)
{
    struct architecture found = {0};
    *e = (struct train_encoder){0};
    if (read_sizes(c, &found, err) < 0)
        return -1;
    GUARD(guard_model) struct model *model = architecture_model(&found, err);
    int result = model ? 0 : -1;
    if (model) {
        e->positions = model->max_positions;
        for (int i = 0; i < model->input_count; i++)
            e->types = e->types || !strcmp(model->inputs[i].name, "types");
        e->labels = architecture_labels(&found);
        for (int i = 0; c->labels && c->labels[i]; i++)
            e->labels = i + 1;
        result = take_names(c, &found, e, err);
    }
    architecture_drop(&found);
    return result;
}

void train_encoder_free(struct train_encoder *e)
{
    for (int i = 0; e && i < TRAIN_LABELS; i++) {
        mem_free(e->label[i]);
        e->label[i] = NULL;
    }
}
