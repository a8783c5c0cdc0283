/* param_patterns.h - parameters chosen by patterns of their names: frozen parameters, and parameters without
 * weight decay.
 *
 * A pattern is the shell's: * any characters, dots too, ? any character, [ab] a or b: "h.0.*", "*.bias". A
 * pattern that matches no parameter is an error: it is probably misspelt. Lists end with NULL; NULL is an
 * empty list. */
#ifndef MUSTER_RUNTIME_MODEL_PARAM_PATTERNS_H
#define MUSTER_RUNTIME_MODEL_PARAM_PATTERNS_H

#include "runtime/plan/model.h"

/* symbol, name in a configuration: which parameters the weight decay is applied to at all. */
#define PARAM_DECAYS(X)                                                                                      \
    X(PARAM_DECAY_MATRICES, "matrices") /* parameters with two dimensions and more: no bias, no norm */      \
    X(PARAM_DECAY_ALL, "all")
enum param_decay {
#define PARAM_DECAY_ENUM(symbol, name) symbol,
    PARAM_DECAYS(PARAM_DECAY_ENUM)
#undef PARAM_DECAY_ENUM
};

/* Before the model is planned: the parameters that match are not trained, and keep neither gradient nor
 * optimizer state. At least one has to be left. */
int param_patterns_freeze(struct model *model, char *const *patterns, struct muster_error *err);
/* Sets every parameter's class (step_scalars): 0 decays, 1 does not. */
int param_patterns_decay(struct model *model, enum param_decay decay, char *const *spared,
                         struct muster_error *err);

#endif
