/* logits.h - a language model's forward pass alone, for sampling: logits of the next token. */
#ifndef MUSTER_RUNTIME_MODEL_LOGITS_H
#define MUSTER_RUNTIME_MODEL_LOGITS_H

#include "runtime/plan/model.h"

/* Columns of the logits; 0 if the model cannot be sampled from: it is not written down by program.h, does not
 * end in program_cross_entropy, or reads more of the batch than "tokens" before that. */
int64_t model_vocabulary(const struct model *model);
/* The logits of the last position of each row, (B, vocabulary) of the kernels' dtype. weights: all parameters
 * in the order of model.params. scalars: zeros; nothing is drawn where nothing is dropped. work:
 * model_logits_work bytes. weights' values, tokens, scalars, work and logits are memory of the kernels'
 * device. Runs kernels on the calling thread, which has to be a compute stream's; stream: its handle. */
void model_logits(const struct model *model, const struct kernels *kernels, const void *const *weights,
                  const int32_t *tokens, const struct step_scalars *scalars, struct shape shape, void *work,
                  void *logits, void *stream);
/* The same of one row of shape.T positions that follow the past->at that are kept; they are kept too, and at
 * moves on. at + T is at most past->room. */
void model_logits_after(const struct model *model, const struct kernels *kernels, const void *const *weights,
                        const int32_t *tokens, const struct step_scalars *scalars, struct shape shape,
                        void *work, void *logits, void *stream, struct layer_past *past);
int64_t model_logits_work(const struct model *model, const struct kernels *kernels, struct shape max);

#endif
