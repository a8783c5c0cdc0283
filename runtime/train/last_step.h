/* last_step.h - ranks that hear at different steps that they are to stop agree on the step after which all of
 * them do.
 *
 * Who hears of it proposes the next step; the first proposal counts. Since no rank gets through that step
 * without the proposer, which has spoken before it began, everybody who has finished it finds the proposal.
 */
#ifndef MUSTER_RUNTIME_TRAIN_LAST_STEP_H
#define MUSTER_RUNTIME_TRAIN_LAST_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/store/kv_store.h"

struct last_step {
    const struct kv_store *store; /* of the round; NULL: there are no others */
    bool proposed;                /* set here */
};

/* To be called by every rank after each step, which no rank can finish without the others; step: its number,
 * one more each time. told: this rank is to stop. *reached: this was the last step, on every rank. One round
 * trip to the store. */
int last_step_reached(struct last_step *last, int64_t step, bool told, bool *reached,
                      struct muster_error *err);

#endif
