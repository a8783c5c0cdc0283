/* orders.h - one call of an operation over small buffers, run by the emulator with a block's threads and a
 * grid's blocks in three orders: the same bits each time, equal to the reference. In the second a buffer lies
 * at no multiple of 16 bytes. In the third, results that are overwritten were NaN before. Which tests run may
 * be named on the command line. */
#ifndef MUSTER_TESTS_GPU_ORDERS_H
#define MUSTER_TESTS_GPU_ORDERS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/operations.h"
#include "tests/unit/kernels/kernels_support.h"

enum { BUFFERS = 14 };

enum role { OPERAND, RESULT, WORK }; /* not to be changed; compared; neither */
/* How results are compared: BYTES exactly, HALVES (of the case's dtype) by one unit in the last place. NARROW
 * are of the case's dtype on the device, and floats for the reference. */
enum value { FLOATS, DOUBLES, BYTES, HALVES, NARROW };

struct buffer {
    void *host; /* freed by case_run */
    size_t size;
    enum value value;
    enum role role;
};

struct call_case {
    const char *what;
    struct buffer buffer[BUFFERS];
    int count;
    enum dtype halves;
    double absolute, relative; /* that a result may be off by */
};

/* Each returns the buffer's index. Values in -1..1. */
int case_in(struct call_case *c, size_t floats);
int case_result(struct call_case *c, size_t floats); /* an operand too, where it is added to */
/* The same of values that are 16 bits on the device where the case's dtype is; NARROW there, else FLOATS. */
int case_value_in(struct call_case *c, size_t values);
void case_narrow(struct call_case *c, int index); /* the buffer was FLOATS */
int case_value_result(struct call_case *c, size_t values);
int case_bytes(struct call_case *c, const void *from, size_t size, enum value value, enum role role);

int case_work(struct call_case *c, size_t size);

/* reference(p, argument) with the host's buffers, cuda(p, argument) with the device's, by index. */
void case_run(struct call_case *c, void (*reference)(void **p, const void *argument),
              int (*cuda)(void **p, const void *argument, struct muster_error *err), const void *argument);

/* name_reference and name_cuda: one call of the operation, p[] its buffers and s its sizes; `stream` is NULL.
 */
#define ORDERS_CALL(operation, ...)                                                                          \
    static void operation##_reference(void **p, const void *argument)                                        \
    {                                                                                                        \
        const struct sizes *s = argument;                                                                    \
        (void)s;                                                                                             \
        kernels_ref_f32()->operation(__VA_ARGS__, NULL);                                                     \
    }                                                                                                        \
    static int operation##_cuda(void **p, const void *argument, struct muster_error *err)                    \
    {                                                                                                        \
        const struct sizes *s = argument;                                                                    \
        (void)s;                                                                                             \
        return cuda_##operation(__VA_ARGS__, NULL, err);                                                     \
    }
/* The same for an operation over values of s->values. */
#define ORDERS_VALUES(operation, ...)                                                                        \
    static void operation##_reference(void **p, const void *argument)                                        \
    {                                                                                                        \
        const struct sizes *s = argument;                                                                    \
        kernels_ref_f32()->operation(__VA_ARGS__, NULL);                                                     \
    }                                                                                                        \
    static int operation##_cuda(void **p, const void *argument, struct muster_error *err)                    \
    {                                                                                                        \
        const struct sizes *s = argument;                                                                    \
        return (s->values == DTYPE_BF16  ? cuda_##operation##_bf16                                           \
                : s->values == DTYPE_F16 ? cuda_##operation##_f16                                            \
                                         : cuda_##operation)(__VA_ARGS__, NULL, err);                        \
    }
#define RUN(c, operation, s) case_run(c, operation##_reference, operation##_cuda, s)

/* A size that is awkward for warps, blocks and tiles more often than not, 0..limit. */
int awkward(int limit);

#define ORDERS_ROUNDS 8 /* random shapes of an operation */
/* Half as many rounds more in each type of 16 bits. */
#define ORDERS_ROUNDS_VALUES (2 * ORDERS_ROUNDS)
static inline enum dtype round_values(int round)
{
    return round < ORDERS_ROUNDS ? DTYPE_F32 : round % 2 ? DTYPE_F16 : DTYPE_BF16;
}

void orders_elements(void (*run)(const char *name, void (*test)(void)));
void orders_images(void (*run)(const char *name, void (*test)(void)));
void orders_rows(void (*run)(const char *name, void (*test)(void)));
void orders_attention(void (*run)(const char *name, void (*test)(void)));
void orders_streams(void (*run)(const char *name, void (*test)(void)));

#endif
