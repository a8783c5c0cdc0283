/* goodput.h - pure: the one definition of goodput, for the job's page and for `./dev bench goodput`.
 *
 * Goodput is the share of a job's time in which it made steps that it did not have to make again. The time
 * runs from the job's start to now, with starts, stops and waits. A round makes the steps from its first to
 * its last one; the steps that the next round with steps begins with again are lost, and with them their part
 * of the round's time. */
#ifndef MUSTER_LAUNCHER_POLICY_GOODPUT_H
#define MUSTER_LAUNCHER_POLICY_GOODPUT_H

#include <stdint.h>

struct goodput_round {
    int64_t first_step, last_step; /* first_step -1: it made none */
    int64_t first_at, last_at;     /* ms, when these were made */
};

/* 0 to 1; NAN: no steps were made. Times of rounds, start and now are of one clock, in ms. */
double goodput_of(const struct goodput_round *rounds, int count, int64_t started_at, int64_t now);
/* The steps that were made again. */
int64_t goodput_steps_again(const struct goodput_round *rounds, int count);

#endif
