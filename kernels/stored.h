/* stored.h - parameters in 4 or 8 bits: the units that runtime/rounding/stored.h makes and a device opens.
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
 * Each product and each sum is rounded to float by itself. 4.13 and 8.13 bits an element. */
#ifndef MUSTER_KERNELS_STORED_H
#define MUSTER_KERNELS_STORED_H

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

/* Within a unit of nf4: codes, then sizes of blocks, then mean and factor. Of int8: codes, then the scale. */
enum {
    STORED_NF4_BLOCK = 64,
    STORED_NF4_UNIT = 16384,
    STORED_NF4_CODES = STORED_NF4_UNIT / 2,                 /* bytes */
    STORED_NF4_BLOCKS = STORED_NF4_UNIT / STORED_NF4_BLOCK, /* of a byte each */
    STORED_NF4_BYTES = STORED_NF4_CODES + STORED_NF4_BLOCKS + 2 * 4,
    STORED_INT8_UNIT = 256,
    STORED_INT8_BYTES = STORED_INT8_UNIT + 4
};

/* Quantiles of N(0, 1), scaled to -1 to 1, with a 0 of its own (Dettmers et al. 2023, appendix E), ascending.
 */
#define STORED_NF4_LEVELS                                                                                    \
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,         \
        -0.18477343022823334f, -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f,      \
        0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,               \
        0.7229568362236023f, 1.0f

#endif
