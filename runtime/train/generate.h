/* generate.h - samples text from a trained language model, one token at a time, with full parameters. */
#ifndef MUSTER_RUNTIME_TRAIN_GENERATE_H
#define MUSTER_RUNTIME_TRAIN_GENERATE_H

#include "proto/base/buffer.h"
#include "runtime/device/device.h"
#include "runtime/plan/model.h"
#include "runtime/train/sample.h"

struct generate_options {
    struct sample_options sample;
    const char *prompt; /* bytes; NULL or "" starts from a newline */
    int64_t length;     /* tokens to draw */
    int threads;        /* of the compute stream */
};

/* Appends `length` tokens as bytes to out. weights: full parameters in the order of model->params, of
 * the dtype of the device's kernels. Opens the device while it runs: its compute stream must be free.
 * Needs a vocabulary of at least GENERATE_BYTES; tokens beyond are not bytes and never drawn. The context is
 * the model's max_positions, or GENERATE_CONTEXT where it has no limit. */
enum { GENERATE_BYTES = 256, GENERATE_CONTEXT = 1024 };
int generate_text(const struct model *model, const struct device_ops *ops, const void *const *weights,
                  const struct generate_options *options, struct buffer *out, struct muster_error *err);

#endif
