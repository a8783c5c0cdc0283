/* comm_reduce.c - see comm_reduce.h. Works block by block through a buffer that stays in the first-level
 * cache: each source is read once, the result written once, and since all sources of a block are read
 * before the result is written, the result may overlap a source. */
#include "runtime/comm/comm_reduce.h"

#include <stdatomic.h>
#include <string.h>

#include "proto/base/error.h"

enum { BLOCK = 1024 }; /* elements */

/* The loops of one type. add is its addition; MAX lets a NaN through, so that a check for one works. Several
 * sources are taken in one pass over the block, which saves traffic to the block and keeps the order. */
#define REDUCE_LOOPS(type, add)                                                                              \
    static void add_##type(type *restrict to, const type *restrict a, int n)                                 \
    {                                                                                                        \
        for (int i = 0; i < n; i++)                                                                          \
            to[i] = add(to[i], a[i]);                                                                        \
    }                                                                                                        \
    static void set2_##type(type *restrict to, const type *a, const type *b, int n)                          \
    {                                                                                                        \
        for (int i = 0; i < n; i++)                                                                          \
            to[i] = add(a[i], b[i]);                                                                         \
    }                                                                                                        \
    static void add3_##type(type *restrict to, const type *a, const type *b, const type *c, int n)           \
    {                                                                                                        \
        for (int i = 0; i < n; i++)                                                                          \
            to[i] = add(add(add(to[i], a[i]), b[i]), c[i]);                                                  \
    }                                                                                                        \
    static void max_##type(type *restrict to, const type *restrict a, int n)                                 \
    {                                                                                                        \
        for (int i = 0; i < n; i++)                                                                          \
            to[i] = a[i] > to[i] || a[i] != a[i] ? a[i] : to[i];                                             \
    }                                                                                                        \
    static void block_##type(type *restrict block, const void *const *sources, int size, int64_t first,      \
                             int n, enum comm_reduction reduction)                                           \
    {                                                                                                        \
        int taken = 1;                                                                                       \
        if (reduction != REDUCE_MAX && size > 1) {                                                           \
            set2_##type(block, (const type *)sources[0] + first, (const type *)sources[1] + first, n);       \
            taken = 2;                                                                                       \
        } else {                                                                                             \
            memcpy(block, (const type *)sources[0] + first, (size_t)n * sizeof(type));                       \
        }                                                                                                    \
        for (; reduction != REDUCE_MAX && taken + 3 <= size; taken += 3)                                     \
            add3_##type(block, (const type *)sources[taken] + first,                                         \
                        (const type *)sources[taken + 1] + first, (const type *)sources[taken + 2] + first,  \
                        n);                                                                                  \
        for (; taken < size; taken++)                                                                        \
            (reduction == REDUCE_MAX ? max_##type : add_##type)(block, (const type *)sources[taken] + first, \
                                                                n);                                          \
    }                                                                                                        \
    static void put_##type(type *restrict out, const type *restrict block, int n, bool accumulate)           \
    {                                                                                                        \
        if (accumulate)                                                                                      \
            add_##type(out, block, n);                                                                       \
        else                                                                                                 \
            memcpy(out, block, (size_t)n * sizeof(type));                                                    \
    }

#define ADD_REAL(a, b)    ((a) + (b))
#define ADD_INTEGER(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
REDUCE_LOOPS(float, ADD_REAL)
REDUCE_LOOPS(double, ADD_REAL)
REDUCE_LOOPS(int32_t, ADD_INTEGER)

static void scale_float(float *block, int n, float factor)
{
    for (int i = 0; i < n; i++)
        block[i] *= factor;
}

static void scale_double(double *block, int n, double factor)
{
    for (int i = 0; i < n; i++)
        block[i] *= factor;
}

/* ---- 16-bit types: widened to float, added there, rounded once at the end ---- */

/* The tables of this processor; their conversions have the reference's bits in every variant. */
static const struct kernels *narrow_kernels(void)
{
    static _Atomic(const struct kernels *) chosen;
    const struct kernels *kernels = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!kernels) { /* every thread finds the same */
        kernels = kernels_cpu((unsigned)-1);
        atomic_store_explicit(&chosen, kernels, memory_order_relaxed);
    }
    return kernels;
}

static void block_narrow(float *restrict block, const void *const *sources, int size, int64_t first, int n,
                         enum dtype dtype, enum comm_reduction reduction)
{
    const struct kernels *k = narrow_kernels();
    float next[BLOCK];
    k->widen(block, (const uint16_t *)sources[0] + first, dtype, 0, n, NULL);
    for (int i = 1; i < size; i++) {
        const uint16_t *source = (const uint16_t *)sources[i] + first;
        if (reduction != REDUCE_MAX) {
            k->widen(block, source, dtype, 1, n, NULL);
            continue;
        }
        k->widen(next, source, dtype, 0, n, NULL);
        max_float(block, next, n);
    }
}

static void put_narrow(uint16_t *restrict out, float *restrict block, int n, enum dtype dtype,
                       bool accumulate)
{
    const struct kernels *k = narrow_kernels();
    if (accumulate)
        k->widen(block, out, dtype, 1, n, NULL);
    k->cast(out, dtype, block, DTYPE_F32, n, NULL);
}

void comm_reduce(const struct comm_op *op, int size, void *out, const void *const *sources, int64_t count)
{
    union {
        float f32[BLOCK];
        double f64[BLOCK];
        int32_t i32[BLOCK];
    } block;
    bool average = op->reduction == REDUCE_AVERAGE;
    for (int64_t first = 0; first < count; first += BLOCK) {
        int n = (int)(count - first < BLOCK ? count - first : BLOCK);
        switch (op->dtype) {
        case DTYPE_F32:
            block_float(block.f32, sources, size, first, n, op->reduction);
            if (average)
                scale_float(block.f32, n, 1.0F / (float)size);
            put_float((float *)out + first, block.f32, n, op->accumulate);
            break;
        case DTYPE_F64:
            block_double(block.f64, sources, size, first, n, op->reduction);
            if (average)
                scale_double(block.f64, n, 1.0 / (double)size);
            put_double((double *)out + first, block.f64, n, op->accumulate);
            break;
        case DTYPE_I32:
            block_int32_t(block.i32, sources, size, first, n, op->reduction);
            put_int32_t((int32_t *)out + first, block.i32, n, op->accumulate);
            break;
        default: /* comm_reduce_check admits only bf16 and f16 here */
            block_narrow(block.f32, sources, size, first, n, op->dtype, op->reduction);
            if (average)
                scale_float(block.f32, n, 1.0F / (float)size);
            put_narrow((uint16_t *)out + first, block.f32, n, op->dtype, op->accumulate);
            break;
        }
    }
}

/* ---- in parts ---- */

enum dtype comm_sum_dtype(enum dtype dtype)
{
    return dtype == DTYPE_BF16 || dtype == DTYPE_F16 ? DTYPE_F32 : dtype;
}

void comm_sum_begin(const struct comm_op *op, void *sum, const void *source, int64_t count)
{
    if (comm_sum_dtype(op->dtype) == op->dtype)
        memcpy(sum, source, (size_t)(count * dtype_size(op->dtype)));
    else
        narrow_kernels()->widen(sum, source, op->dtype, 0, count, NULL);
}

static void add_block(const struct comm_op *op, void *sum, const void *source, int n)
{
    bool max = op->reduction == REDUCE_MAX;
    float next[BLOCK];
    switch (op->dtype) {
    case DTYPE_F32:
        (max ? max_float : add_float)(sum, source, n);
        break;
    case DTYPE_F64:
        (max ? max_double : add_double)(sum, source, n);
        break;
    case DTYPE_I32:
        (max ? max_int32_t : add_int32_t)(sum, source, n);
        break;
    default:
        narrow_kernels()->widen(max ? next : sum, source, op->dtype, !max, n, NULL);
        if (max)
            max_float(sum, next, n);
        break;
    }
}

void comm_sum_add(const struct comm_op *op, void *sum, const void *source, int64_t count)
{
    int64_t wide = dtype_size(comm_sum_dtype(op->dtype)), size = dtype_size(op->dtype);
    for (int64_t first = 0; first < count; first += BLOCK) {
        int n = (int)(count - first < BLOCK ? count - first : BLOCK);
        add_block(op, (char *)sum + first * wide, (const char *)source + first * size, n);
    }
}

void comm_sum_end(const struct comm_op *op, int size, void *sum, int64_t count)
{
    if (op->reduction != REDUCE_AVERAGE)
        return;
    for (int64_t first = 0; first < count; first += BLOCK) {
        int n = (int)(count - first < BLOCK ? count - first : BLOCK);
        if (op->dtype == DTYPE_F64)
            scale_double((double *)sum + first, n, 1.0 / (double)size);
        else
            scale_float((float *)sum + first, n, 1.0F / (float)size);
    }
}

void comm_sum_put(const struct comm_op *op, void *out, const void *sum, int64_t count)
{
    float block[BLOCK];
    int64_t wide = dtype_size(comm_sum_dtype(op->dtype)), size = dtype_size(op->dtype);
    for (int64_t first = 0; first < count; first += BLOCK) {
        int n = (int)(count - first < BLOCK ? count - first : BLOCK);
        void *to = (char *)out + first * size;
        const void *from = (const char *)sum + first * wide;
        if (op->dtype == DTYPE_F32)
            put_float(to, from, n, op->accumulate);
        else if (op->dtype == DTYPE_F64)
            put_double(to, from, n, op->accumulate);
        else if (op->dtype == DTYPE_I32)
            put_int32_t(to, from, n, op->accumulate);
        else
            put_narrow(to, memcpy(block, from, (size_t)n * sizeof *block), n, op->dtype, op->accumulate);
    }
}
