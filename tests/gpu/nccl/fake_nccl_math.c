/* fake_nccl_math.c - reductions in rank order, in the element's own arithmetic: 16-bit floats are rounded at
 * every step, as on the way around a ring. */
#include <stdlib.h>

#include "kernels/narrow.h"
#include "tests/gpu/nccl/fake_nccl.h"

size_t fake_type_size(int dtype)
{
    static const size_t sizes[] = {
        [ncclInt8] = 1,   [ncclUint8] = 1,   [ncclInt32] = 4,   [ncclUint32] = 4,  [ncclInt64] = 8,
        [ncclUint64] = 8, [ncclFloat16] = 2, [ncclFloat32] = 4, [ncclFloat64] = 8, [ncclBfloat16] = 2};
    return (unsigned)dtype < sizeof sizes / sizeof *sizes ? sizes[dtype] : 0;
}

/* ncclMax and ncclMin drop a NaN where the other value is a number. */
#define LOOPS(name, type, add)                                                                               \
    static type name##_of(type a, type b, int op)                                                            \
    {                                                                                                        \
        switch (op) {                                                                                        \
        case ncclMax:                                                                                        \
            return b > a || a != a ? b : a;                                                                  \
        case ncclMin:                                                                                        \
            return b < a || a != a ? b : a;                                                                  \
        case ncclProd:                                                                                       \
            return (type)(a * b);                                                                            \
        default:                                                                                             \
            return add(type, a, b);                                                                          \
        }                                                                                                    \
    }                                                                                                        \
    static void name##_all(void *into, const void *from, size_t count, int op)                               \
    {                                                                                                        \
        type *a = into;                                                                                      \
        const type *b = from;                                                                                \
        for (size_t i = 0; i < count; i++)                                                                   \
            a[i] = name##_of(a[i], b[i], op);                                                                \
    }

#define PLAIN(type, a, b) ((type)((a) + (b)))
LOOPS(f32, float, PLAIN)
LOOPS(f64, double, PLAIN)
LOOPS(u8, uint8_t, PLAIN)
LOOPS(i8, int8_t, PLAIN)
LOOPS(u32, uint32_t, PLAIN)
LOOPS(u64, uint64_t, PLAIN)
#define WRAP32(type, a, b) ((type)((uint32_t)(a) + (uint32_t)(b)))
#define WRAP64(type, a, b) ((type)((uint64_t)(a) + (uint64_t)(b)))
LOOPS(i32, int32_t, WRAP32)
LOOPS(i64, int64_t, WRAP64)

static float wide(uint16_t value, int dtype)
{
    return dtype == ncclBfloat16 ? narrow_from_bf16(value) : narrow_from_f16(value);
}
static uint16_t rounded(float value, int dtype)
{
    return dtype == ncclBfloat16 ? narrow_to_bf16(value) : narrow_to_f16(value);
}

static void narrow_all(void *into, const void *from, size_t count, int dtype, int op)
{
    uint16_t *a = into;
    const uint16_t *b = from;
    for (size_t i = 0; i < count; i++)
        a[i] = rounded(f32_of(wide(a[i], dtype), wide(b[i], dtype), op), dtype);
}

void fake_combine(void *into, const void *from, size_t count, int dtype, int op)
{
    switch (dtype) {
    case ncclFloat32:
        f32_all(into, from, count, op);
        break;
    case ncclFloat64:
        f64_all(into, from, count, op);
        break;
    case ncclInt32:
        i32_all(into, from, count, op);
        break;
    case ncclUint32:
        u32_all(into, from, count, op);
        break;
    case ncclInt64:
        i64_all(into, from, count, op);
        break;
    case ncclUint64:
        u64_all(into, from, count, op);
        break;
    case ncclInt8:
        i8_all(into, from, count, op);
        break;
    case ncclUint8:
        u8_all(into, from, count, op);
        break;
    default:
        narrow_all(into, from, count, dtype, op);
        break;
    }
}

void fake_average(void *values, size_t count, int dtype, int size)
{
    for (size_t i = 0; i < count; i++) {
        if (dtype == ncclFloat32)
            ((float *)values)[i] *= 1.0F / (float)size;
        else if (dtype == ncclFloat64)
            ((double *)values)[i] *= 1.0 / size;
        else
            ((uint16_t *)values)[i] =
                rounded(wide(((uint16_t *)values)[i], dtype) * (1.0F / (float)size), dtype);
    }
}
