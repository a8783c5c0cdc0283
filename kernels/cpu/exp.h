/* exp.h - a float exponential without branches, which the compiler vectorises.
 *
 * exp(x) = 2^k exp(r), k = round(x log2 e), r = x - k ln 2 in two parts (Cody, Waite 1980), |r| <= 0.3466,
 * and exp(r) = 1 + r + r^2 q(r), where q interpolates at the Chebyshev nodes of that range with degree 4
 * (error of the interpolation: 1.1e-8 relative, a sixth of float's roundoff). Error at most 1.5 units in the
 * last place where the result is a normal number, measured by tests/unit/kernels/kernels_table_test.c.
 * Arguments below -87.3 give about 1.2e-38 (the smallest normal number), not 0, and those above 88.3 give
 * about 2.2e38, not infinity; NaN gives NaN. */
#ifndef MUSTER_KERNELS_CPU_EXP_H
#define MUSTER_KERNELS_CPU_EXP_H

#include <stdint.h>
#include <string.h>

static inline __attribute__((always_inline)) float cpu_exp(float x)
{
    const float round_magic =
        12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    float bounded = x < -87.3f ? -87.3f : x;
    bounded = bounded > 88.3f ? 88.3f : bounded;
    float shifted = bounded * 1.44269504f + round_magic;
    float k = shifted - round_magic;
    float r = bounded - k * 0.693359375f; /* exact: the constant has 9 bits */
    r = r + k * 2.12194440e-4f;
    float q = 1.39262315e-3f;
    q = q * r + 8.36321744e-3f;
    q = q * r + 4.16665543e-2f;
    q = q * r + 1.66665766e-1f;
    q = q * r + 0.5f;
    float p = q * (r * r) + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits - 0x4b400000u + 127u) << 23; /* 2^k */
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

#endif
