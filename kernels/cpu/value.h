/* value.h - inside kernels/cpu: the element type of values and weights of the variant that is compiled, float
 * or, with CPU_BF16, bf16. Arithmetic is float in both: LOAD(element) is a float, STORE(element, x) rounds x
 * once. A bf16 is a struct, so that an element that is used without LOAD or STORE does not compile. Names and
 * rules are those of the reference (kernels/ref/real.h). */
#ifndef MUSTER_KERNELS_CPU_VALUE_H
#define MUSTER_KERNELS_CPU_VALUE_H

#include "kernels/kernels.h"
#include "kernels/narrow.h"

#ifdef CPU_BF16
enum { CPU_NARROW = 1 };
typedef struct {
    uint16_t bits;
} VALUE;

static inline __attribute__((always_inline)) float cpu_load(VALUE x)
{
    return narrow_from_bf16(x.bits);
}
static inline __attribute__((always_inline)) VALUE cpu_round(float x)
{
    return (VALUE){narrow_to_bf16(x)};
}
#define LOAD(element)     cpu_load(element)
#define STORE(element, x) ((element) = cpu_round(x))
#else
enum { CPU_NARROW = 0 };
typedef float VALUE;
#define LOAD(element)     (element)
#define STORE(element, x) ((element) = (x))
#endif
typedef VALUE WEIGHT;

#endif
