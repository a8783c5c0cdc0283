/* unpickle.h - reads the pickled batches of CIFAR-10: a dict of texts, lists and one array of bytes. Pure.
 *
 * Of pickle's protocols 2 to 5 only the operations that build these are known; a global is a name that is
 * compared with numpy's two, and nothing is ever called. Anything else is an error that names it. */
#ifndef MUSTER_TRAINER_PICTURES_UNPICKLE_H
#define MUSTER_TRAINER_PICTURES_UNPICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

enum { UNPICKLE_PICTURES = 1 << 20 }; /* of a batch, at most */

struct unpickled_batch {
    const uint8_t *data; /* (rows, columns), in the text that was read, or owned */
    int64_t rows, columns, labels;
    bool fine;      /* the labels are CIFAR-100's fine ones */
    uint8_t *owned; /* where data lies in memory of its own: the caller frees it; else NULL */
};

/* Pickles of Python 2, and of Python 3 at protocols 2 to 5. labels_out has room for UNPICKLE_PICTURES. Errors
 * have the byte at which they were found. */
int unpickle_batch(const char *text, size_t length, struct unpickled_batch *batch, uint8_t *labels_out,
                   struct muster_error *err);

#endif
