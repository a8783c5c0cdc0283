/* text_encoder.h - a classifier of texts with attention: an encoder of transformer blocks, in which each
 * position of a text sees all others, the mean over the positions, and one product. The blocks have the
 * parameters, names and formulas of
 *
 *     TransformerEncoder(TransformerEncoderLayer(channels, heads, hidden, dropout=0, norm_first=True),
 * layers, LayerNorm(channels)) */
#ifndef MUSTER_RUNTIME_MODEL_TEXT_ENCODER_H
#define MUSTER_RUNTIME_MODEL_TEXT_ENCODER_H

#include "runtime/plan/model.h"

struct text_encoder_config {
    int vocabulary, layers, channels, heads;
    int hidden; /* inside of a block's products; 0: 4 channels */
    int classes, max_positions;
};

/* Inputs: tokens (i32, a position), lengths and labels (i32, a sample). The caller owns the model
 * (model_destroy). NULL (MUSTER_E_INVALID) names a value and its bounds. */
struct model *text_encoder_create(const struct text_encoder_config *config, struct muster_error *err);

#endif
