/* calibrate_internal.h - one measuring rank, shared by calibrate*.c. */
#ifndef MUSTER_RUNTIME_CALIBRATE_CALIBRATE_INTERNAL_H
#define MUSTER_RUNTIME_CALIBRATE_CALIBRATE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "rendezvous/store/kv_store.h"
#include "runtime/calibrate/calibrate.h"

/* State that the ranks share. */
struct calibrate_crowd {
    const struct calibrate_options *options;
    struct kv_store store;
    pthread_mutex_t gate; /* held while threads are started; */
    bool complete;        /* all were */
    pthread_barrier_t barrier;
    atomic_int failed;
};

struct calibrate_rank {
    struct calibrate_crowd *crowd;
    int rank;
    const struct device_ops *ops;
    struct device *device;
    struct device_stream *compute, *side; /* side: of collectives */
    const struct kernels *kernels;
    struct device_arena cold; /* what calibrate_cool passes over; */
    int64_t cold_bytes;       /* 0: nothing */
    struct calibration found;
    struct muster_error err;
};

/* Collective: 0 if no rank has failed so far, this one included. */
int calibrate_together(struct calibrate_rank *rank, int failed);
/* Collective: runs fn on every rank's compute stream at once and waits for it. */
int calibrate_at_once(struct calibrate_rank *rank, void (*fn)(void *), void *argument);
/* Values between -scale and scale, the same each time. */
void calibrate_fill(void *values, enum dtype dtype, int64_t bytes, double scale);
/* The middle of the first count values (of two their mean), which it sorts. */
double calibrate_median(double *values, int count);
double calibrate_seconds(void); /* seconds of a monotonic clock */

/* Opens memory for calibrate_cool; 0, or -1 with the rank's error. Destroying accepts memory that was not
 * opened. */
int calibrate_cold_open(struct calibrate_rank *rank);
void calibrate_cold_close(struct calibrate_rank *rank);
/* Cools the caches on the compute stream, as far as a step would between two calls that work on own_bytes. */
void calibrate_cool(const struct calibrate_rank *rank, int64_t own_bytes);

/* Collective; each fills its part of rank->found. */
int calibrate_layers(struct calibrate_rank *rank);
int calibrate_ops(struct calibrate_rank *rank);
int calibrate_comm(struct calibrate_rank *rank);

#endif
