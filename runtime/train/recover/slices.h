/* slices.h - the tensors of a state that outlives its trainer, by parameter and elements. */
#ifndef MUSTER_RUNTIME_TRAIN_RECOVER_SLICES_H
#define MUSTER_RUNTIME_TRAIN_RECOVER_SLICES_H

#include "runtime/train/recover/keep.h"

/* Elements first..first+count-1 of a tensor of a parameter, at `offset` of an image. As ranks of one machine
 * type send it. */
struct slice {
    int32_t tensor, param, dtype, unused;
    int64_t first, count, offset;
};
struct slices {
    struct slice *list; /* the caller's, mem_free */
    int64_t count;
};

/* The slices of the image of rank `then` of the kept state's world. values: slices of values, else
 * of moments and averages. all: equal slices of several ranks are listed for each of them, else for the first
 * alone. now: a trainer of the same model and settings. */
int slices_list(const struct trainer *now, const struct recover_kept *kept, int then, bool values, bool all,
                struct slices *out, struct muster_error *err);

#endif
