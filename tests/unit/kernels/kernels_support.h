/* kernels_support.h - shared by the kernel tests: seeded inputs named after the bug they hunt, the variants
 * of this machine, and comparisons that print the failing parameters. */
#ifndef MUSTER_TESTS_KERNELS_SUPPORT_H
#define MUSTER_TESTS_KERNELS_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* Unit roundoff of float: one operation is off by at most this part of its result. */
#define FLOAT_ROUNDOFF 5.9604644775390625e-8
/* Everything below is zero with denormals flushed; a few of them may be lost on the way. */
#define FLOAT_FLUSHED 1e-37

/* Starts the threads and prints the seed: MUSTER_TEST_SEED, else a fixed one. */
void kernels_test_begin(int threads);
uint64_t kernels_test_seed(void);

/* The tables that this machine can run, slowest first; NULL at the end. */
const struct kernels *const *kernels_variants(void);

/* GPT-2's attention: a row is q, then k, then v. */
struct attention packed_attention(int B, int T, int C, int NH);

/* How a buffer is filled. */
#define KERNELS_FILLS(X)                                                                                     \
    X(FILL_UNIT, "unit", "uniform in -1..1: errors of formula")                                              \
    X(FILL_TINY, "tiny", "about 1e-20: products that underflow")                                             \
    X(FILL_LARGE, "large", "up to 30 and some at the ends: exponentials that saturate")                      \
    X(FILL_OFFSET, "offset", "100 plus unit: cancellation against a mean")                                   \
    X(FILL_CONSTANT, "constant", "all equal: zero variance, equal maxima")
enum kernels_fill {
#define KERNELS_FILL_ENUM(symbol, name, meaning) symbol,
    KERNELS_FILLS(KERNELS_FILL_ENUM)
#undef KERNELS_FILL_ENUM
        FILL_COUNT
};
const char *kernels_fill_name(enum kernels_fill fill);

/* A heap block of exactly n floats, so that the address sanitizer sees one too many; freed by mem_free. */
float *floats_new(size_t n, enum kernels_fill fill);
float *floats_copy(const float *from, size_t n);
/* A matrix whose rows of `width` lie `row` floats apart, with NaN between them and nothing after the last
 * one, in a heap block of floats_apart_count floats; freed by mem_free. floats_close finds values written
 * between rows; a value read there comes out as NaN. */
float *floats_apart(const float *dense, int rows, int width, int row);
size_t floats_apart_count(int rows, int width, int row);
/* The same values, to be freed by mem_free. */
double *doubles_of(const float *from, size_t n);
int32_t *tokens_new(size_t n, int vocabulary, bool some_ignored);
/* Places in documents that lie one after the other in each of B rows of T, as struct attention has them. */
int32_t *positions_new(int B, int T);
double random_unit(void); /* uniform in -1..1 */
uint32_t random_below(uint32_t n);
double floats_largest(const float *values, size_t n); /* the largest |value| */

/* Names the computation, for a failing comparison's message. */
void computing(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* |got - expected| <= absolute + relative*|expected| for each, NaN where expected is; prints the first that
 * fails with its index and `computing`, and returns false. */
bool floats_close(const char *what, const float *got, const float *expected, size_t n, double absolute,
                  double relative);

#define scope_memory __attribute__((cleanup(kernels_scope_free)))
void kernels_scope_free(void *pointer);

/* The same against doubles. */
bool doubles_close(const char *what, const float *got, const double *expected, size_t n, double absolute,
                   double relative);

#endif
