/* text_classifier.h - a small classifier of texts: the mean of the tokens' rows, and two products. It has the
 * parameters of
 *
 *     embedding = Embedding(vocabulary, channels), fc1 = Linear(channels, hidden), fc2 = Linear(hidden,
 * classes)
 *
 * and computes
 *
 *     fc2(relu(fc1(the mean of embedding(tokens) over the positions within the text)))
 *
 * In training, dropout is applied to the tokens' rows and after the ReLU. */
#ifndef MUSTER_RUNTIME_MODEL_TEXT_CLASSIFIER_H
#define MUSTER_RUNTIME_MODEL_TEXT_CLASSIFIER_H

#include "runtime/plan/model.h"

struct text_classifier_config {
    int vocabulary, channels;
    int hidden; /* 0: channels */
    int classes, max_positions;
    double dropout; /* 0 to below 1; 0: none */
};

/* Inputs: tokens (i32, a position), lengths and labels (i32, a sample). The caller owns the model
 * (model_destroy). NULL (MUSTER_E_INVALID) names a value and its bounds. */
struct model *text_classifier_create(const struct text_classifier_config *config, struct muster_error *err);

#endif
