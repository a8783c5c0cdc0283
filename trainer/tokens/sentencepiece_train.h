/* sentencepiece_train.h - a sentencepiece model trained on a text, by libsentencepiece (sentencepiece.h).
 *
 * No part of a text is lost: there is no normalization, blanks stay, and characters without a piece become
 * bytes. The model is a function of the options and the sentences alone. */
#ifndef MUSTER_TRAINER_TOKENS_SENTENCEPIECE_TRAIN_H
#define MUSTER_TRAINER_TOKENS_SENTENCEPIECE_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum { SENTENCEPIECE_SENTENCE = 4192 }; /* bytes of a sentence; longer sentences are left out */

struct sentencepiece_training {
    bool bpe;           /* else unigram */
    int64_t vocabulary; /* at most */
    double coverage;    /* share of characters that are pieces */
    /* 1: the next sentence is *text, the callee's until the next call; 0: no more; -1: an error, in err. */
    int (*next)(void *context, const char **text, size_t *length, struct muster_error *err);
    void *context;
};

/* Adds the bytes of the .model file to out. */
int sentencepiece_train(const struct sentencepiece_training *training, struct buffer *out,
                        struct muster_error *err);

#endif
