/* attention_checks.h - attention of any table against the reference for double: packed and apart, with fewer
 * heads of keys, lengths, with and without a causal mask, added to earlier values. */
#ifndef MUSTER_TESTS_ATTENTION_CHECKS_H
#define MUSTER_TESTS_ATTENTION_CHECKS_H

#include "kernels/kernels.h"

/* GPT-2's: packed, causal, as many heads of keys as of queries. */
void attention_check_packed(const struct kernels *k);
void attention_check_shape(const struct kernels *k, struct attention packed);
void attention_check_grouped(const struct kernels *k, int random_shapes);
/* A position that nobody may see changes nothing, not even by a NaN. */
void attention_check_unseen(const struct kernels *k);

#endif
