/* evaluation.h - what follows from the figures of a run's evaluations: which is the best, and whether the
 * training ends early. Pure: every rank has the same figures and comes to the same. */
#ifndef MUSTER_RUNTIME_TRAIN_EVALUATION_H
#define MUSTER_RUNTIME_TRAIN_EVALUATION_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

/* symbol, name; what a gain is counted in. Both are better where they are lower. */
#define EVALUATION_METRICS(X)                                                                                \
    X(EVALUATION_LOSS, "loss")             /* mean over the targets that count */                            \
    X(EVALUATION_PERPLEXITY, "perplexity") /* exp of it */
enum evaluation_metric {
#define EVALUATION_METRIC_ENUM(symbol, name) symbol,
    EVALUATION_METRICS(EVALUATION_METRIC_ENUM)
#undef EVALUATION_METRIC_ENUM
        EVALUATION_METRIC_COUNT
};

struct evaluation_rule {
    enum evaluation_metric metric;
    double min_gain;  /* at least 0: by which the metric has to fall below the last gain's to be one */
    int64_t patience; /* evaluations in a row without a gain that end the training; 0: none do */
};

/* So far. Goes into checkpoints: it is what a run needs to go on. */
struct evaluation_state {
    int64_t count;     /* evaluations */
    int64_t last_step; /* steps that were done at the last one; -1: there was none */
    double last_loss;
    int64_t best_step; /* at the one of the lowest loss, the first of equal ones; -1: none was a number */
    double best_loss;
    double gained_loss; /* of the last gain; there is one where there is a best */
    int64_t waits;      /* evaluations since then */
    int64_t kept_step;  /* of the checkpoint that is kept as the best; 0: none */
};

void evaluation_begin(struct evaluation_state *state);
/* Takes the loss of an evaluation after so many steps in. Returns whether it is the best so far. A loss that
 * is not a number is neither best nor a gain. */
bool evaluation_judge(const struct evaluation_rule *rule, struct evaluation_state *state, int64_t step,
                      double loss);
/* Whether the training ends here. */
bool evaluation_stops(const struct evaluation_rule *rule, const struct evaluation_state *state);

/* As one line of text, with all bits, and back. MUSTER_E_INVALID. */
int evaluation_format(const struct evaluation_state *state, struct buffer *out);
int evaluation_parse(const char *text, struct evaluation_state *state, struct muster_error *err);

#endif
