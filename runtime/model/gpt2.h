/* gpt2.h - the GPT-2 architecture (Radford et al. 2019).
 *
 * Layers: "embedding" (wte[token] + wpe[position]), one "h.<i>" a block, "head" (ln_f, logits with the tied
 * wte, cross entropy). Parameters have the names of Hugging Face's GPT-2 checkpoints without the
 * "transformer." prefix. The four products of a block differ: Hugging Face's Conv1D keeps them as (in, out),
 * this model as (out, in), like nn.Linear. Files have them as Hugging Face does (file_transposed). */
#ifndef MUSTER_RUNTIME_MODEL_GPT2_H
#define MUSTER_RUNTIME_MODEL_GPT2_H

#include "runtime/model/program.h"

struct gpt2_config {
    int layers, channels, heads, vocab, max_positions;
};

/* A row each: member, smallest, largest. */
#define GPT2_CONFIG_LIMITS(X)                                                                                \
    X(layers, 1, 1024)                                                                                       \
    X(channels, 1, 65536)                                                                                    \
    X(heads, 1, 1024)                                                                                        \
    X(vocab, 2, 1 << 20)                                                                                     \
    X(max_positions, 1, 1 << 20)

/* Initialisation: N(0, 0.02), residual projections N(0, 0.02/sqrt(2 layers)), biases 0, layer norm 1. Tensors
 * with two dimensions are of parameter class 0 (decays), the others of class 1. Any block's `recompute` may
 * be set by the caller before planning. NULL (MUSTER_E_INVALID) names a value and its bounds. The caller owns
 * the model (model_destroy). */
struct model *gpt2_create(const struct gpt2_config *config, struct muster_error *err);
/* lora: adapters for products of the model's blocks (lora.h); NULL: none. */
struct model *gpt2_create_adapted(const struct gpt2_config *config, const struct lora *lora,
                                  struct muster_error *err);

#endif
