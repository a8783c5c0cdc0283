/* last_step.h - agreement on the last step: ranks receive a stop notice at different steps, and all must
 * stop after the same one.
 *
 * A rank that received the notice proposes the next step; the first proposal counts. No rank finishes that
 * step without the proposer, which publishes the proposal before it begins the step, so every rank that
 * has finished it finds the proposal. */
#ifndef MUSTER_RUNTIME_TRAIN_LAST_STEP_H
#define MUSTER_RUNTIME_TRAIN_LAST_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/store/kv_store.h"

struct last_step {
    const struct kv_store *store; /* of the round; NULL: a single rank */
    bool proposed;                /* set here */
};

/* Called by every rank after each step, which no rank can finish without the others; step: its number, one
 * more each time. stop_requested: this rank received a stop notice. *reached: this was the last step, on
 * every rank. One round trip to the store. */
int last_step_reached(struct last_step *last, int64_t step, bool stop_requested, bool *reached,
                      struct muster_error *err);

#endif
