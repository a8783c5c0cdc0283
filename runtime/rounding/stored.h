/* stored.h - frozen parameters in 4 or 8 bits, as they are held and gathered: QLoRA's base (Dettmers et al.
 * 2023, arXiv 2305.14314). Pure.
 *
 * A flat buffer is cut into units, each of whole blocks and opened by itself, so that any rank opens the same
 * values of the same bytes:
 *
 *     nf4   units of 16,384 elements, 8,456 bytes: 4-bit codes of the 16 levels of a normal distribution, two
 *           to a byte, the even element in the low half; an 8-bit float (E4M3) for each block of 64; two
 *           floats, mean and factor. value = level[code] * (mean + factor * e4m3): the largest magnitude of
 *           the block, quantised once more
 *     int8  units of 256 elements, 260 bytes: codes -127 to 127 and a float. value = scale * code
 *
 * 4.13 and 8.13 bits an element. Zeros open to zeros. */
#ifndef MUSTER_RUNTIME_ROUNDING_STORED_H
#define MUSTER_RUNTIME_ROUNDING_STORED_H

#include <stdint.h>

#include "kernels/kernels.h"

/* symbol, name in settings, elements of a unit, its bytes */
#define STORED_KINDS(X)                                                                                      \
    X(STORED_PLAIN, "none", 1, 0) /* as the plan's param_dtype */                                            \
    X(STORED_NF4, "nf4", 16384, 8456)                                                                        \
    X(STORED_INT8, "int8", 256, 260)
enum stored {
#define STORED_ENUM(symbol, name, elements, bytes) symbol,
    STORED_KINDS(STORED_ENUM)
#undef STORED_ENUM
        STORED_KIND_COUNT
};
const char *stored_name(enum stored stored);
int64_t stored_unit(enum stored stored); /* elements */
/* Bytes of so many elements, a multiple of a unit's. Not of STORED_PLAIN. */
int64_t stored_bytes(enum stored stored, int64_t elements);

/* The 16 levels of NF4, ascending, from -1 to 1. */
extern const float stored_nf4[16];

/* Units of that many elements in all; values that are not finite become 0 in their place. */
void stored_round(enum stored stored, const float *values, int64_t elements, uint8_t *out);
/* The elements, of float or double (dtype), of `in`; of whole units. */
void stored_open(enum stored stored, const uint8_t *in, int64_t elements, void *out, enum dtype dtype);

#endif
