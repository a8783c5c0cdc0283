/* plateau.h - the learning rate falls where a metric no longer gets better: PyTorch's ReduceLROnPlateau, with
 * its names, defaults and order of rounding. Pure: every rank has the same metrics and comes to the same. */
#ifndef MUSTER_RUNTIME_TRAIN_PLATEAU_H
#define MUSTER_RUNTIME_TRAIN_PLATEAU_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum plateau_mode { PLATEAU_MIN, PLATEAU_MAX };                /* better: lower, higher */
enum plateau_threshold { PLATEAU_RELATIVE, PLATEAU_ABSOLUTE }; /* of the best, or a difference to it */

struct plateau_rule {
    enum plateau_mode mode;
    enum plateau_threshold threshold_mode;
    double threshold;
    double factor;     /* below 1 */
    int64_t patience;  /* metrics in a row that may be no better */
    int64_t cooldown;  /* metrics after a reduction that do not count */
    double minimum;    /* of the rate */
    double least_fall; /* a smaller one is none: torch's eps */
};

/* So far. Goes into checkpoints: it is what a run needs to go on. */
struct plateau_state {
    double rate, best;       /* infinite: there was no metric yet */
    int64_t waits, cooldown; /* metrics without a gain; left of the cooldown */
};

void plateau_begin(const struct plateau_rule *rule, double rate, struct plateau_state *state);
/* Takes a metric in. Whether the rate has fallen. One that is not a number is not better. */
bool plateau_judge(const struct plateau_rule *rule, struct plateau_state *state, double metric);

/* As one line of text, with all bits, and back. MUSTER_E_INVALID. */
int plateau_format(const struct plateau_state *state, struct buffer *out);
int plateau_parse(const char *text, struct plateau_state *state, struct muster_error *err);

#endif
