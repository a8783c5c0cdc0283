/* sample.h - one token from a row of logits: temperature, top-k and top-p, with random numbers of its own
 * counter, so that a text depends on (seed, position) alone. */
#ifndef MUSTER_RUNTIME_TRAIN_SAMPLE_H
#define MUSTER_RUNTIME_TRAIN_SAMPLE_H

#include <stdint.h>

struct sample_options {
    double temperature; /* 0: the largest logit */
    int top_k;          /* only the k largest logits may be drawn; 0: all */
    double top_p;       /* of these the largest, until their probabilities come to top_p; 0 and 1: all */
    uint64_t seed;
};

/* logits: vocab values; scratch: vocab values of the caller, twice as many with
 * top_p, overwritten. position: of the token that is
 * drawn. Returns a token in [0, vocab); of equal logits the first counts as larger. NaN is drawn only if
 * all logits are NaN. */
int sample_token(const struct sample_options *options, const float *logits, int vocab, uint64_t position,
                 float *scratch);

#endif
