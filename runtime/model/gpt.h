/* gpt.h - the GPT-2 architecture as parameters and layers.
 *
 * Layers: "embedding" (wte[token] + wpe[position]), one "h.<i>" a block, "head" (ln_f, logits with the
 * tied wte, cross entropy). Parameter names are those of Hugging Face's GPT-2 checkpoints without the
 * "transformer." prefix. One difference: their Conv1D keeps the four products of a block as (in, out);
 * ours are (out, in) as in nn.Linear, and files have them as Hugging Face does (file_transposed). */
#ifndef MUSTER_RUNTIME_MODEL_GPT_H
#define MUSTER_RUNTIME_MODEL_GPT_H

#include <stdbool.h>

#include "proto/base/guard.h"
#include "runtime/plan/model.h"

struct gpt_config {
    int layers, channels, heads, vocab, max_positions;
};

/* A row each: member, smallest, largest. */
#define GPT_CONFIG_LIMITS(X)                                                                                 \
    X(layers, 1, 1024)                                                                                       \
    X(channels, 1, 65536)                                                                                    \
    X(heads, 1, 1024)                                                                                        \
    X(vocab, 2, 1 << 20)                                                                                     \
    X(max_positions, 1, 1 << 20)

struct gpt {
    struct gpt_config config;
    struct model model; /* its layers point at config: a gpt is never copied */
};

/* MUSTER_E_INVALID names the value and its bounds. */
int gpt_config_check(const struct gpt_config *config, struct muster_error *err);

/* Initialisation: N(0, 0.02), residual projections N(0, 0.02/sqrt(2 layers)), biases 0, layer norm 1. Tensors
 * with two dimensions are of parameter class 0 (decays), the others of class 1. Any layer's `recompute` may
 * be set by the caller before planning, but not the head's: it forms its loss and all of its products in
 * backward already. */
struct gpt *gpt_create(const struct gpt_config *config, struct muster_error *err);
void gpt_destroy(struct gpt *gpt); /* accepts NULL */
GUARD_DEFINE(gpt, struct gpt *, gpt_destroy);

/* The logits of the last position of each row. work: gpt_logits_work bytes; weights as trainer_get_param
 * gives them, in the order of model.params. Runs kernels on the calling thread, which has to be a compute
 * stream's. logits: (B, vocab) of the kernels' dtype. */
void gpt_logits(const struct gpt *gpt, const struct kernels *kernels, const void *const *weights,
                const int32_t *tokens, struct shape shape, void *work, void *logits);
int64_t gpt_logits_work(const struct gpt *gpt, const struct kernels *kernels, struct shape max);

#endif
