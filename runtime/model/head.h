/* head.h - the end of a language model: logits and their cross-entropy, a chunk of rows at a time. */
#ifndef MUSTER_RUNTIME_MODEL_HEAD_H
#define MUSTER_RUNTIME_MODEL_HEAD_H

#include "kernels/kernels.h"
#include "runtime/plan/model.h"

/* Rows of logits, `row` elements apart, that are formed at a time: so many that a chunk stays below
 * chunk_bytes (0: 64 MiB), but at least one. */
int head_rows(int rows, int row, enum dtype dtype, int64_t chunk_bytes);
/* n logits become cap tanh(logit / cap); uncapped gets logit / cap, NULL: it is not kept. */
void head_cap(const struct kernels *kernels, void *logits, void *uncapped, double cap, int64_t n,
              void *stream);

#endif
