/* number.h - elements of f32 or f64 as doubles. Functions with `wide` are inlined into a loop for each type.
 */
#ifndef MUSTER_RUNTIME_COMPRESS_NUMBER_H
#define MUSTER_RUNTIME_COMPRESS_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#define NUMBER_INLINE static inline __attribute__((always_inline))

/* Sent values follow each other and their places of 4 bytes without a gap. */
typedef double packed_double __attribute__((aligned(4)));

NUMBER_INLINE double number_get(const void *values, bool wide, int64_t i)
{
    return wide ? ((const packed_double *)values)[i] : (double)((const float *)values)[i];
}

NUMBER_INLINE void number_set(void *values, bool wide, int64_t i, double value)
{
    if (wide)
        ((packed_double *)values)[i] = value;
    else
        ((float *)values)[i] = (float)value;
}

static inline void *number_at(void *values, bool wide, int64_t i)
{
    return (char *)values + i * (wide ? 8 : 4);
}

static inline const void *number_of(const void *values, bool wide, int64_t i)
{
    return (const char *)values + i * (wide ? 8 : 4);
}

#endif
