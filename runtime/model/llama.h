/* llama.h - the Llama architecture (Touvron et al. 2023; grouped-query attention: Ainslie et al. 2023).
 *
 * Layers: "embedding", one "model.layers.<i>" a block, "head" (norm, logits, cross entropy). Parameters have
 * the names and shapes of Hugging Face's checkpoints. */
#ifndef MUSTER_RUNTIME_MODEL_LLAMA_H
#define MUSTER_RUNTIME_MODEL_LLAMA_H

#include "runtime/model/program.h"

struct llama_config {
    int layers, channels, heads;
    int kv_heads;  /* heads of k and v: divides heads; 0: heads */
    int head_size; /* elements of a head, even; 0: channels / heads */
    int hidden;    /* width inside of the MLP; 0: 8/3 of the channels, rounded up to a multiple of 64 */
    int vocab, max_positions;
    bool tied;            /* the logits' weight is the embedding's */
    bool attention_bias;  /* q, k, v and o have biases */
    double epsilon;       /* epsilon of the norms; 0: 1e-5 */
    struct rotary rotary; /* theta 0: 10000 */
};

/* A row each: member, smallest, largest. */
#define LLAMA_CONFIG_LIMITS(X)                                                                               \
    X(layers, 1, 1024)                                                                                       \
    X(channels, 1, 65536)                                                                                    \
    X(heads, 1, 1024)                                                                                        \
    X(kv_heads, 0, 1024)                                                                                     \
    X(head_size, 0, 1024)                                                                                    \
    X(hidden, 0, 1 << 20)                                                                                    \
    X(vocab, 2, 1 << 20)                                                                                     \
    X(max_positions, 1, 1 << 20)

/* Fills in sizes that are 0, and checks: MUSTER_E_INVALID names a value and its bounds, or the sizes that do
 * not divide. llama_create calls it on a copy. */
int llama_complete(struct llama_config *config, struct muster_error *err);

/* Initialisation: N(0, 0.02), biases 0, norms 1. NULL: as llama_complete. The caller owns the model
 * (model_destroy). */
struct model *llama_create(const struct llama_config *config, struct muster_error *err);
/* lora: adapters for products of the model's blocks (lora.h); NULL: none. */
struct model *llama_create_adapted(const struct llama_config *config, const struct lora *lora,
                                   struct muster_error *err);

#endif
