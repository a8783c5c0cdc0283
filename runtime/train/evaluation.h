/* evaluation.h - decisions from the losses of a run's evaluations: the best evaluation, and an early end of
 * the training. Pure: every rank has the same losses and decides the same. */
#ifndef MUSTER_RUNTIME_TRAIN_EVALUATION_H
#define MUSTER_RUNTIME_TRAIN_EVALUATION_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

/* symbol, name: metrics in which a gain is measured. The lower value of either is better. */
#define EVALUATION_METRICS(X)                                                                                \
    X(EVALUATION_LOSS, "loss")             /* mean over the targets that count */                            \
    X(EVALUATION_PERPLEXITY, "perplexity") /* exp of the loss */
enum evaluation_metric {
#define EVALUATION_METRIC_ENUM(symbol, name) symbol,
    EVALUATION_METRICS(EVALUATION_METRIC_ENUM)
#undef EVALUATION_METRIC_ENUM
        EVALUATION_METRIC_COUNT
};

struct evaluation_rule {
    enum evaluation_metric metric;
    double min_gain;  /* at least 0; fall of the metric below the last gain's that counts as a gain */
    int64_t patience; /* evaluations in a row without a gain that end the training; 0: never */
};

/* State after the evaluations so far. Checkpoints hold it, so that a resumed run goes on with it. */
struct evaluation_state {
    int64_t count;     /* evaluations */
    int64_t last_step; /* steps done at the last evaluation; -1: there was none */
    double last_loss;
    int64_t best_step; /* steps done at the first evaluation with the lowest loss; -1: no loss was a number */
    double best_loss;
    double gained_loss; /* loss of the last gain; valid if there is a best */
    int64_t waits;      /* evaluations since the last gain */
    int64_t kept_step;  /* step of the checkpoint that is kept as the best; 0: none */
};

void evaluation_begin(struct evaluation_state *state);
/* Takes the loss of an evaluation after `step` steps. Returns whether it is the best so far. A loss that
 * is not a number is neither best nor a gain. */
bool evaluation_judge(const struct evaluation_rule *rule, struct evaluation_state *state, int64_t step,
                      double loss);
/* Whether the training ends here. */
bool evaluation_stops(const struct evaluation_rule *rule, const struct evaluation_state *state);

/* Writes the state as one line of text, with all bits, and reads it back (MUSTER_E_INVALID). */
int evaluation_format(const struct evaluation_state *state, struct buffer *out);
int evaluation_parse(const char *text, struct evaluation_state *state, struct muster_error *err);

#endif
