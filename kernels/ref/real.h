/* real.h - what makes one source file of the reference four tables: for double, for float, and for values and
 * weights of 16 bits, bf16 or f16. REF(name) is ref_name_f32, _f64, _bf16 or _f16.
 *
 * VALUE, WEIGHT, STATISTIC and GRADIENT are the element types of the roles in operations.inc. LOAD(element)
 * is a double; STORE(element, x) rounds x once, to nearest even. The types of 16 bits are structs, so that an
 * element that is used without LOAD or STORE does not compile.
 *
 * Rules of the reference: one operation a file, plain loops in the order of the formula, one thread, no BLAS;
 * sums and statistics are accumulated in double whatever the types are. It is never made faster. */
#ifndef MUSTER_KERNELS_REF_REAL_H
#define MUSTER_KERNELS_REF_REAL_H

#include <math.h>

#include "kernels/kernels.h"
#include "kernels/narrow.h"

#if defined REF_F64
#define REF_TYPE f64
typedef double REF_VALUE, STATISTIC;
#define REF_VALUE_DTYPE DTYPE_F64
#define REF_STATISTIC   DTYPE_F64
#elif defined REF_BF16
#define REF_TYPE        bf16
typedef struct {
    uint16_t bits;
} REF_VALUE;
typedef float STATISTIC;
#define REF_VALUE_DTYPE DTYPE_BF16
#define REF_STATISTIC   DTYPE_F32
#elif defined REF_F16
#define REF_TYPE        f16
typedef struct {
    uint16_t bits;
} REF_VALUE;
typedef float STATISTIC;
#define REF_VALUE_DTYPE DTYPE_F16
#define REF_STATISTIC   DTYPE_F32
#else
#define REF_TYPE        f32
typedef float REF_VALUE, STATISTIC;
#define REF_VALUE_DTYPE DTYPE_F32
#define REF_STATISTIC   DTYPE_F32
#endif

#define REF_PASTE2(operation, type) ref_##operation##_##type
#define REF_PASTE(operation, type)  REF_PASTE2(operation, type)
#define REF(operation)              REF_PASTE(operation, REF_TYPE)

#define OPERATION(name, parameters, arguments) void REF(name)(KERNELS_EACH parameters, void *stream);
#define WORK(name, parameters, arguments)      size_t REF(name) parameters;
#include "kernels/operations.inc"

typedef REF_VALUE VALUE, WEIGHT;
typedef STATISTIC GRADIENT;

#if defined REF_BF16 || defined REF_F16
/* To float, to odd where it is not exact: rounding that to 16 bits is rounding x once (Boldo, Melquiond
 * 2008).
 */
static inline float ref_odd(double x)
{
    float f = (float)x;
    if (isnan(x) || (double)f == x)
        return f;
    uint32_t bits = narrow_bits(f);
    bits -= fabs((double)f) > fabs(x); /* towards zero */
    return narrow_float(bits | 1u);
}
static inline double ref_value_load(VALUE x)
{
    return (double)(REF_VALUE_DTYPE == DTYPE_BF16 ? narrow_from_bf16(x.bits) : narrow_from_f16(x.bits));
}
static inline VALUE ref_value_store(double x)
{
    return (VALUE){REF_VALUE_DTYPE == DTYPE_BF16 ? narrow_to_bf16(ref_odd(x)) : narrow_to_f16(ref_odd(x))};
}
#define LOAD(element)     _Generic((element), VALUE : ref_value_load, float : ref_load)(element)
#define STORE(element, x) ((element) = _Generic((element), VALUE : ref_value_store, float : ref_store)(x))
#else
#define LOAD(element)     ref_load(element)
#define STORE(element, x) ((element) = ref_store(x))
#endif
static inline double ref_load(STATISTIC x)
{
    return (double)x;
}
static inline STATISTIC ref_store(double x)
{
    return (STATISTIC)x;
}

#endif
