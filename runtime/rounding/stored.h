/* stored.h - frozen parameters in 4 or 8 bits, as they are held and gathered: QLoRA's base (Dettmers et al.
 * 2023, arXiv 2305.14314). Pure. kernels/stored.h has the formats. Zeros open to zeros. */
#ifndef MUSTER_RUNTIME_ROUNDING_STORED_H
#define MUSTER_RUNTIME_ROUNDING_STORED_H

#include <stdint.h>

#include "kernels/kernels.h"
#include "kernels/stored.h"

const char *stored_name(enum stored stored);
int64_t stored_unit(enum stored stored); /* elements */
/* Bytes of so many elements, a multiple of a unit's. Not of STORED_PLAIN. */
int64_t stored_bytes(enum stored stored, int64_t elements);

/* The 16 levels of NF4, ascending, from -1 to 1. */
extern const float stored_nf4[16];

/* Units of that many elements in all; values that are not finite become 0 in their place. */
void stored_round(enum stored stored, const float *values, int64_t elements, uint8_t *out);
/* The elements, of dtype (a float of any width), of `in`; of whole units. */
void stored_open(enum stored stored, const uint8_t *in, int64_t elements, void *out, enum dtype dtype);

#endif
