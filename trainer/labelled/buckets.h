/* buckets.h - an order of samples in which those of a step are of about one length.
 *
 * So many steps in a row are a window: of its samples, which are those that the drawn order of the epoch
 * (data/order.h) has there, the shortest ones are one step's, the next ones another's; which step gets which
 * is drawn too. Steps are counted from sample 0 of the run, and a window never has samples of two epochs, so
 * that each epoch has every sample once. Where sample g is follows from g and the options alone. */
#ifndef MUSTER_TRAINER_LABELLED_BUCKETS_H
#define MUSTER_TRAINER_LABELLED_BUCKETS_H

#include <stdint.h>

#include "proto/base/guard.h"
#include "proto/include/muster_error.h"

struct buckets_options {
    int64_t samples; /* of an epoch, 1 or more */
    int64_t step;    /* samples of a step, 1 or more */
    int64_t window;  /* steps, 1 or more */
    uint64_t seed;
    int (*length)(const void *context, int64_t index); /* of a sample; from any thread */
    const void *context;
};
struct buckets;

/* Memory for one window. NULL: there is none. */
struct buckets *buckets_create(const struct buckets_options *options, struct muster_error *err);
void buckets_destroy(struct buckets *buckets); /* accepts NULL */
GUARD_DEFINE(buckets, struct buckets *, buckets_destroy);
/* Which sample of the epoch, 0 to samples - 1, is sample g of the run. From any thread; a window is sorted
 * when one of its samples is requested and another window's was before. */
int64_t buckets_at(struct buckets *buckets, uint64_t g);

#endif
