/* narrow.h - float to bf16 and f16 and back, rounded once to nearest with ties to even, bit for bit as
 * kernels/ref/cast.c: without branches, tables or denormal floats, so that loops vectorise on every processor
 * and denormals may be treated as zero (a float that is one is 0 in f16 anyway). For code outside of the
 * tables that handles 16-bit values: sums over ranks, files. */
#ifndef MUSTER_KERNELS_NARROW_H
#define MUSTER_KERNELS_NARROW_H

#include <stdint.h>
#include <string.h>

static inline uint32_t narrow_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float narrow_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t narrow_to_bf16(float value)
{
    uint32_t bits = narrow_bits(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16; /* nearest, ties to even */
    uint32_t quiet_nan = (bits >> 31 << 15) | 0x7fc0u;               /* the carry could make a NaN infinite */
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

static inline float narrow_from_bf16(uint16_t value)
{
    return narrow_float((uint32_t)value << 16);
}

static inline uint16_t narrow_to_f16(float value)
{
    const uint32_t bits = narrow_bits(value), magnitude = bits & 0x7fffffffu;
    /* Normal results: another bias of the exponent (15 for 127), 13 bits of the mantissa rounded away. What
     * rounds up to 2^16 becomes infinity by its carry. */
    const uint32_t normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    /* Below 2^-14: adding 1/2 makes the last place of the sum that of a subnormal (2^-24), and the addition
     * rounds. */
    const uint32_t half = 126u << 23;
    const uint32_t subnormal = narrow_bits(narrow_float(magnitude) + 0.5f) - half;
    uint32_t result = magnitude < (113u << 23) ? subnormal : normal;
    result = magnitude >= (143u << 23) ? 0x7c00u : result; /* 2^16 and above */
    result = magnitude > 0x7f800000u ? 0x7e00u : result;
    return (uint16_t)(bits >> 31 << 15 | result);
}

static inline float narrow_from_f16(uint16_t value)
{
    const uint32_t sign = (uint32_t)(value & 0x8000u) << 16, shifted = (uint32_t)(value & 0x7fffu) << 13;
    const uint32_t exponent = shifted & (0x1fu << 23);
    const uint32_t normal = shifted + ((127u - 15u) << 23);
    const uint32_t infinite = normal + ((128u - 16u) << 23); /* and NaN */
    /* Units of 2^-24, as the difference of two normal numbers. */
    const uint32_t subnormal = narrow_bits(narrow_float(shifted + (113u << 23)) - narrow_float(113u << 23));
    uint32_t result = exponent == 0 ? subnormal : normal;
    result = exponent == (0x1fu << 23) ? infinite : result;
    return narrow_float(result | sign);
}

#endif
