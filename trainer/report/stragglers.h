/* stragglers.h - which rank the others wait for. Pure.
 *
 * In every step all ranks meet in collectives: a rank that is late there waits for no other, and the others
 * wait for it. Over a window of steps, cut into parts, each rank gives the time in which its compute waited
 * for collectives; the same function of all ranks' sums on every rank names the slow one. */
#ifndef MUSTER_TRAINER_REPORT_STRAGGLERS_H
#define MUSTER_TRAINER_REPORT_STRAGGLERS_H

#include <stdbool.h>
#include <stdint.h>

enum { STRAGGLER_PARTS = 10 }; /* of a window */

struct straggler_options {
    int ranks;
    int64_t steps;      /* of the window */
    double least_share; /* of a step's time that the others wait: below it no rank is named */
    double least_ms;    /* in a step, likewise */
};

struct straggler {
    int rank;       /* -1: none */
    double late_ms; /* what the others wait for it in a step: their median less its own wait */
    double share;   /* of late_ms in the step */
    int parts;      /* of the window in which it waited least by that much */
};

/* waited_ms: (ranks, STRAGGLER_PARTS) sums over the steps of each part; step_ms: mean time of a step of the
 * window. A rank is named where over the window, and in 8 of 10 parts, the others' median waits longer than
 * it by both limits. */
void straggler_find(const struct straggler_options *options, const double *waited_ms, double step_ms,
                    struct straggler *out);

/* A rank is named once it was found in windows one behind the other that last this long: the unevenness of a
 * busy machine is over by then. */
#define STRAGGLER_LASTS_MS 5000.0
struct straggler_streak {
    int rank; /* found last; -1: none */
    double lasted_ms;
    bool named;
};
enum straggler_change { STRAGGLER_AS_BEFORE, STRAGGLER_NAMED, STRAGGLER_ENDED };
/* rank: found in a window of so many milliseconds. */
enum straggler_change straggler_follow(struct straggler_streak *streak, int rank, double window_ms);

/* One rank's sums while a window runs. */
struct straggler_window {
    int64_t steps, done; /* of the window; so far */
    double waited_ms[STRAGGLER_PARTS], step_ms;
};
/* true: the window is full, and is to be given out and begun again (done = 0, sums 0). */
bool straggler_window_add(struct straggler_window *window, double waited_ms, double step_ms);
void straggler_window_begin(struct straggler_window *window, int64_t steps);

#endif
