/* plateau.h - lowers the learning rate when a metric no longer improves: PyTorch's ReduceLROnPlateau, with
 * its names, defaults and order of rounding. Pure: every rank has the same metrics and decides the same. */
#ifndef MUSTER_RUNTIME_TRAIN_PLATEAU_H
#define MUSTER_RUNTIME_TRAIN_PLATEAU_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum plateau_mode { PLATEAU_MIN, PLATEAU_MAX };                /* the better value: lower, higher */
enum plateau_threshold { PLATEAU_RELATIVE, PLATEAU_ABSOLUTE }; /* a share of best; a difference */

struct plateau_rule {
    enum plateau_mode mode;
    enum plateau_threshold threshold_mode;
    double threshold;
    double factor;     /* below 1 */
    int64_t patience;  /* metrics in a row that may be no better */
    int64_t cooldown;  /* metrics after a reduction that do not count */
    double minimum;    /* least rate */
    double least_fall; /* a smaller fall of the rate is not made: torch's eps */
};

/* State after the metrics so far. Checkpoints hold it, so that a resumed run goes on with it. */
struct plateau_state {
    double rate, best;       /* best: infinite before the first metric */
    int64_t waits, cooldown; /* metrics since the last gain; metrics left in the cooldown */
};

void plateau_begin(const struct plateau_rule *rule, double rate, struct plateau_state *state);
/* Takes a metric. Returns whether the rate has fallen. A metric that is not a number is not better. */
bool plateau_judge(const struct plateau_rule *rule, struct plateau_state *state, double metric);

/* Writes the state as one line of text, with all bits, and reads it back (MUSTER_E_INVALID). */
int plateau_format(const struct plateau_state *state, struct buffer *out);
int plateau_parse(const char *text, struct plateau_state *state, struct muster_error *err);

#endif
