/* cast.c - the reference of conversion between element types: through double, rounded once, to nearest with
 * ties to even (IEEE 754-2019, 4.3.1).
 *
 * To integers: towards zero, out-of-range values to the nearest end, NaN to 0. NaN stays NaN between floating
 * types (its payload does not). bf16 is float's upper half; f16 is IEEE binary16. */
#include "kernels/ref/real.h"

#include <math.h>
#include <string.h>

/* A binary format of at most 16 bits: sign, exponent, mantissa. */
struct narrow_format {
    int exponent_bits, mantissa_bits;
};
static const struct narrow_format format_bf16 = {8, 7}, format_f16 = {5, 10};

static uint16_t narrow_encode(double value, struct narrow_format format)
{
    int bias = (1 << (format.exponent_bits - 1)) - 1, mantissa_one = 1 << format.mantissa_bits;
    unsigned infinity = (unsigned)(2 * bias + 1) << format.mantissa_bits;
    unsigned sign = signbit(value) ? 0x8000u : 0;
    double magnitude = fabs(value);
    if (isnan(value))
        return (uint16_t)(sign | infinity | (unsigned)mantissa_one / 2);
    if (magnitude == 0)
        return (uint16_t)sign;
    int exponent = isinf(value) ? 2 * bias : ilogb(magnitude);
    if (exponent < 1 - bias)
        exponent = 1 - bias; /* subnormal: the last place is fixed */
    if (exponent > bias)
        return (uint16_t)(sign | infinity);
    /* In units of the last place; rint rounds to nearest even. Rounding up to 2*mantissa_one carries into the
     * exponent by itself, since mantissa and exponent are adjacent. */
    int units = (int)rint(ldexp(magnitude, format.mantissa_bits - exponent));
    int encoded = ((exponent + bias - 1) << format.mantissa_bits) + units;
    return (uint16_t)(sign | (unsigned)encoded);
}

static double narrow_decode(uint16_t bits, struct narrow_format format)
{
    int bias = (1 << (format.exponent_bits - 1)) - 1, mantissa_one = 1 << format.mantissa_bits;
    int exponent = (bits & 0x7fff) >> format.mantissa_bits, mantissa = bits & (mantissa_one - 1);
    double magnitude;
    if (exponent == 2 * bias + 1)
        magnitude = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        magnitude = ldexp(mantissa, 1 - bias - format.mantissa_bits);
    else
        magnitude = ldexp(mantissa + mantissa_one, exponent - bias - format.mantissa_bits);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static double load(const void *from, enum dtype dtype, int64_t i)
{
    switch (dtype) {
    case DTYPE_F32:
        return (double)((const float *)from)[i];
    case DTYPE_F64:
        return ((const double *)from)[i];
    case DTYPE_BF16:
        return narrow_decode(((const uint16_t *)from)[i], format_bf16);
    case DTYPE_F16:
        return narrow_decode(((const uint16_t *)from)[i], format_f16);
    case DTYPE_I32:
        return ((const int32_t *)from)[i];
    case DTYPE_U8:
        return ((const uint8_t *)from)[i];
    case DTYPE_COUNT:
        break;
    }
    return (double)NAN;
}

static double clamp(double value, double low, double high)
{
    return isnan(value) ? 0 : fmin(fmax(value, low), high);
}

static void store(void *to, enum dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case DTYPE_F32:
        ((float *)to)[i] = (float)value;
        break;
    case DTYPE_F64:
        ((double *)to)[i] = value;
        break;
    case DTYPE_BF16:
        ((uint16_t *)to)[i] = narrow_encode(value, format_bf16);
        break;
    case DTYPE_F16:
        ((uint16_t *)to)[i] = narrow_encode(value, format_f16);
        break;
    case DTYPE_I32:
        ((int32_t *)to)[i] = (int32_t)clamp(value, INT32_MIN, INT32_MAX);
        break;
    case DTYPE_U8:
        ((uint8_t *)to)[i] = (uint8_t)clamp(value, 0, UINT8_MAX);
        break;
    case DTYPE_COUNT:
        break;
    }
}

void REF(cast)(void *to, enum dtype dtype_to, const void *from, enum dtype dtype_from, int64_t n,
               void *stream)
{
    (void)stream;
    if (dtype_to == dtype_from) {
        memcpy(to, from, (size_t)n * (size_t)dtype_size(dtype_to));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        store(to, dtype_to, i, load(from, dtype_from, i));
}

void REF(widen)(void *out_, const void *in, enum dtype dtype_in, int beta, int64_t n, void *stream)
{
    STATISTIC *out = out_;
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        double value = load(in, dtype_in, i);
        STORE(out[i], beta ? LOAD(out[i]) + value : value);
    }
}
