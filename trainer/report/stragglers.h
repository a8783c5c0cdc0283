/* stragglers.h - finds the rank that the other ranks wait for, and figures far from their mean. Pure.
 *
 * In every step all ranks meet in collectives. A late rank waits for no other rank, and the others wait for
 * it. Each rank adds up the time that its compute waited for collectives, over a window of steps divided into
 * parts. Every rank has the sums of all ranks, and so finds the same slow rank. */
#ifndef MUSTER_TRAINER_REPORT_STRAGGLERS_H
#define MUSTER_TRAINER_REPORT_STRAGGLERS_H

#include <stdbool.h>
#include <stdint.h>

enum { STRAGGLER_PARTS = 10 }; /* parts of a window */

struct straggler_options {
    int ranks;
    int64_t steps;      /* steps of the window */
    double least_share; /* least share of a step's time that the others wait for a slow rank */
    double least_ms;    /* least time in a step that the others wait for a slow rank */
};

struct straggler {
    int rank;       /* -1: none */
    double late_ms; /* the others' wait in a step: their median minus the rank's own wait */
    double share;   /* late_ms / time of a step */
    int parts;      /* parts of the window in which the rank was late by both limits */
};

/* waited_ms: (ranks, STRAGGLER_PARTS) sums over the steps of each part; step_ms: mean time of a step in the
 * window. A rank is slow if the others' median waits longer than the rank by both limits, over the window and
 * in 8 of 10 parts. */
void straggler_find(const struct straggler_options *options, const double *waited_ms, double step_ms,
                    struct straggler *out);

/* A rank is named if it is found in consecutive windows of this total time, longer than the unevenness of a
 * busy machine. */
#define STRAGGLER_LASTS_MS 5000.0
struct straggler_streak {
    int rank; /* rank of the last window; -1: none */
    double lasted_ms;
    bool named;
};
enum straggler_change { STRAGGLER_AS_BEFORE, STRAGGLER_NAMED, STRAGGLER_ENDED };
/* rank: the slow rank of a window; window_ms: its length. */
enum straggler_change straggler_follow(struct straggler_streak *streak, int rank, double window_ms);

/* The sums of a rank during a window. */
struct straggler_window {
    int64_t steps, done; /* steps of the window; steps so far */
    double waited_ms[STRAGGLER_PARTS], step_ms;
};
/* true: the window is full; the caller uses it and calls straggler_window_begin. */
bool straggler_window_add(struct straggler_window *window, double waited_ms, double step_ms);
void straggler_window_begin(struct straggler_window *window, int64_t steps);

/* ---- the distance of a figure from its recent mean, in standard deviations ---- */

/* Zeroed: no values. */
struct z_score {
    double mean, variance; /* exponentially weighted, over about Z_SCORE_MEMORY steps */
    int64_t count;
};

enum { Z_SCORE_MEMORY = 100, Z_SCORE_LEAST = 30 };

/* The score of a value against the earlier values; then adds the value. The first Z_SCORE_LEAST values have
 * score 0. A value that is not finite has the score infinity and is not added. A value beyond 4 deviations is
 * added as 4 deviations, so that it does not hide the next outlier. */
double z_score_add(struct z_score *score, double value);

#endif
