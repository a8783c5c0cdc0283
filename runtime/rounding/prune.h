/* prune.h - the smallest elements of a tensor become 0. Pure. */
#ifndef MUSTER_RUNTIME_ROUNDING_PRUNE_H
#define MUSTER_RUNTIME_ROUNDING_PRUNE_H

#include <stdint.h>

#include "proto/include/muster_error.h"

/* Sets round(share * count) of the values to 0: the values with the smallest magnitudes, and the first among
 * equal magnitudes. share: 0 to 1. Returns how many were set, or -1: MUSTER_E_NOMEM, MUSTER_E_INVALID for a
 * share outside, or a value that is not a number. */
int64_t prune_smallest(float *values, int64_t count, double share, struct muster_error *err);

#endif
