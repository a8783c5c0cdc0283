/* head.h - the end of a language model: logits and their cross-entropy, a chunk of rows at a time. */
#ifndef MUSTER_RUNTIME_MODEL_HEAD_H
#define MUSTER_RUNTIME_MODEL_HEAD_H

#include "kernels/kernels.h"

/* Rows of logits that are formed at a time: so many that a chunk stays below 64 MB. */
int head_rows(int rows, int vocabulary, enum dtype dtype);

#endif
