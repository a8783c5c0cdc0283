/* generate.h - draws tokens from a trained language model, one at a time, with full parameters. */
#ifndef MUSTER_RUNTIME_TRAIN_GENERATE_H
#define MUSTER_RUNTIME_TRAIN_GENERATE_H

#include "runtime/train/sample.h"
#include "runtime/train/trainer.h"

struct generate_options {
    struct sample_options sample;
    const int32_t *prompt; /* at least one token */
    int64_t prompt_count;
    int64_t count; /* tokens to draw */
    int limit;     /* token numbers from this on are never drawn; 0: the vocabulary's size */
    int32_t end;   /* a token after which no more are drawn; -1: none */
    int64_t drawn; /* filled on rank 0: number of drawn tokens, including the end */
};

/* The context has the model's max_positions, or GENERATE_CONTEXT positions if the model has no limit. A
 * longer text is cut to its last positions. Keys and values of earlier positions are kept, and a token
 * computes one position. After the end of the context a token computes the whole context. */
enum { GENERATE_CONTEXT = 1024 };
/* Collective. Rank 0 gathers all parameters, draws on its compute stream and fills tokens, (count); the other
 * ranks return when the parameters are gathered. MUSTER_E_UNSUPPORTED for a model without logits over tokens,
 * MUSTER_E_INVALID for a token outside of its vocabulary, on rank 0 alone. */
int trainer_generate(struct trainer *trainer, struct generate_options *options, int32_t *tokens,
                     struct muster_error *err);

#endif
