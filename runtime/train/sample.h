/* sample.h - draws a token from a row of logits with temperature, top-k and top-p. It has its own counter of
 * random numbers, so that a text depends on (seed, position) alone. */
#ifndef MUSTER_RUNTIME_TRAIN_SAMPLE_H
#define MUSTER_RUNTIME_TRAIN_SAMPLE_H

#include <stdint.h>

struct sample_options {
    double temperature; /* 0: always the largest logit */
    int top_k;          /* only the k largest logits may be drawn; 0: all */
    double top_p;       /* only the largest of these whose probabilities add up to top_p; 0 and 1: all */
    uint64_t seed;
};

/* logits: vocab values. scratch: the caller's memory for vocab values, 2 * vocab with top_p; overwritten.
 * position: position of the drawn token. Returns a token in [0, vocab). The first of equal logits counts as
 * larger. NaN is drawn only if all logits are NaN. */
int sample_token(const struct sample_options *options, const float *logits, int vocab, uint64_t position,
                 float *scratch);

#endif
