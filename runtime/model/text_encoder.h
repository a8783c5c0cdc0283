/* text_encoder.h - a classifier of texts with attention: an encoder of transformer blocks, in which each
 * position of a text sees all others, the mean over the positions, and one product. The blocks have the
 * parameters, names and formulas of
 *
 *     TransformerEncoder(TransformerEncoderLayer(channels, heads, hidden, dropout, norm_first=True),
 * layers, LayerNorm(channels))
 *
 * but for dropout on the scores of attention, which is not applied; it is on the tokens' rows, too. */
#ifndef MUSTER_RUNTIME_MODEL_TEXT_ENCODER_H
#define MUSTER_RUNTIME_MODEL_TEXT_ENCODER_H

#include "runtime/plan/model.h"

struct text_encoder_config {
    int vocabulary, layers, channels, heads;
    int hidden; /* inside of a block's products; 0: 4 channels */
    int classes, max_positions;
    double dropout; /* 0 to below 1; 0: none */
};

/* Inputs: tokens (i32, a position), lengths and labels (i32, a sample). The caller owns the model
 * (model_destroy). NULL (MUSTER_E_INVALID) names a value and its bounds. */
struct model *text_encoder_create(const struct text_encoder_config *config, struct muster_error *err);

#endif
