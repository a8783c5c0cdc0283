/* train_encoder.h - encoders of model.path: whether its folder has one, and what their inputs have to know
 * before the model is opened. */
#ifndef MUSTER_RUNTIME_CONFIG_TRAIN_ENCODER_H
#define MUSTER_RUNTIME_CONFIG_TRAIN_ENCODER_H

#include "runtime/config/train_config.h"

enum { TRAIN_LABELS = 256 }; /* most labels of a model that have names here */

struct train_encoder {
    int positions;             /* longest text, with the tokens around it */
    bool types;                /* its tokens have types */
    int labels;                /* number of labels in model.labels, else in its config.json */
    char *label[TRAIN_LABELS]; /* their names; all NULL: they have none of their own */
};

/* Sets model.architecture to encoder where the config.json of model.path is an encoder's. A folder that
 * cannot be read changes nothing: its error comes when the model is opened. MUSTER_E_INVALID: the
 * architecture is set to encoder, and it is another model's. */
int train_encoder_find(struct train_config *config, struct muster_error *err);
/* Reads model.path's config.json. Call train_encoder_free
 * afterwards. */
int train_encoder_read(const struct train_config *config, struct train_encoder *encoder,
                       struct muster_error *err);
void train_encoder_free(struct train_encoder *encoder); /* accepts NULL */

#endif
