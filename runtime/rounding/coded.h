/* coded.h - a matrix in few bits: codes, and the scales that they are opened with. Pure.
 *
 * A matrix is (rows, columns) with a row for each output of its product, as in memory.
 *
 *     int8  codes (rows, columns) of int8_t, -127 to 127; scales (rows) of float
 *           value = scale * code; scale = largest magnitude of the row / 127
 *     int4  codes (rows, columns / 2) of uint8_t, two to a byte, the even column in the low half, 0 to 15;
 *           scales (rows, columns / group) of fp16; zeros (rows, columns / group) of uint8_t, 0 to 15
 *           value = scale * (code - zero); scale = (highest - lowest of the group, 0 among them) / 15, as
 *           rounded to fp16, and zero = the code whose value is 0
 *
 * Both round to nearest, ties to even, and have a code for 0: pruned values stay 0. Arithmetic is in
 * float: the formulas are PyTorch's to the bit (tests/compat/quantized/rounding_test.py). */
#ifndef MUSTER_RUNTIME_ROUNDING_CODED_H
#define MUSTER_RUNTIME_ROUNDING_CODED_H

#include <stdint.h>

#include "proto/include/muster_error.h"

/* symbol, name in files and settings, bits of a code */
#define CODINGS(X)                                                                                           \
    X(CODING_INT8, "int8", 8)                                                                                \
    X(CODING_INT4, "int4", 4)
enum coding {
#define CODING_ENUM(symbol, name, bits) symbol,
    CODINGS(CODING_ENUM)
#undef CODING_ENUM
        CODING_COUNT
};
const char *coding_name(enum coding coding);

enum { CODED_GROUP = 64 }; /* columns that share a scale of int4, by default */

struct coded {
    enum coding coding;
    int64_t rows, columns;
    int64_t group; /* int4: columns that share a scale; int8: columns */
    void *codes;
    void *scales;   /* float of int8, fp16 of int4 */
    uint8_t *zeros; /* for int4 */
};

/* Whether a matrix of that name can be so: MUSTER_E_INVALID names the value, the limit and what to use. */
int coded_check(enum coding coding, int64_t rows, int64_t columns, int64_t group, const char *name,
                struct muster_error *err);
/* Bytes of the codes, the scales and the zeros of so many rows. */
int64_t coded_code_bytes(const struct coded *coded, int64_t rows);
int64_t coded_scale_bytes(const struct coded *coded, int64_t rows);
int64_t coded_zero_bytes(const struct coded *coded, int64_t rows);
int64_t coded_bytes(const struct coded *coded); /* sum of all three */
/* Memory for the three, zeroed; coding, rows, columns and group are set and checked. MUSTER_E_NOMEM. */
int coded_create(struct coded *coded, struct muster_error *err);
void coded_free(struct coded *coded); /* accepts a struct that was not created */

/* Rounds each value to nearest. MUSTER_E_INVALID: a value is not finite, or too large for a scale of fp16. */
int coded_round(struct coded *coded, const float *values, const char *name, struct muster_error *err);
/* The values of elements first..first+count-1, row by row. */
void coded_open(const struct coded *coded, int64_t first, int64_t count, float *out);

/* ---- one group of a row, for coded_round and gptq.c ---- */

/* Sets the scale (and zero) of a group, 0 to columns / group - 1, by the values that it is to hold. */
void coded_set_scale(struct coded *coded, int64_t row, int64_t group, const float *values);
/* Sets a code to the nearest of a value; the value that it opens to. */
float coded_set(struct coded *coded, int64_t row, int64_t column, float value);

/* ---- gptq.c ---- */

/* A matrix in 4 bits by its product's inputs (Frantar et al. 2022, arXiv 2210.17323). Pure.
 *
 * Columns are rounded one after the other, and a column's rounding error in the product over the
 * calibration set is compensated by later columns. The columns of which products read the most come
 * first, while there are many left to make up for them (the paper's authors call it act-order); scales are
 * the original values', so that groups stay runs of neighbours in memory. */

/* By this part of itself each moment on the diagonal grows. Not by a part of their mean: where products read
 * one column a thousand times as much as the others, as a Llama's down_proj does, that would be more than the
 * others' own moments, and nothing would be made up for. */
#define GPTQ_DAMPING 0.01

/* What one or more matrices that read the same values need of them; made once. */
struct gptq {
    int64_t columns;
    int64_t *order; /* [columns] the column that is rounded first, second, ... */
    float *
        upper; /* (columns, columns), in that order: upper triangular U with (moments + damping)^-1 = U^T U */
    uint8_t *silent; /* [columns] not 0: the product never read anything but 0 there */
};

/* moments: (columns, columns), the sum of x x^T over the calibration set; symmetric. MUSTER_E_NOMEM,
 * MUSTER_E_INVALID: a moment is not finite. */
int gptq_create(struct gptq *gptq, const float *moments, int64_t columns, struct muster_error *err);
void gptq_free(struct gptq *gptq);

/* Codes of coded_create. values: (rows, columns). */
int gptq_round(const struct gptq *gptq, struct coded *coded, const float *values, const char *name,
               struct muster_error *err);

/* ---- prune.c ---- */

/* The smallest elements of a tensor become 0. Pure. */

/* Sets round(share * count) of the values to 0: the smallest magnitudes, and the first of equal ones.
 * share: 0 to 1. Returns how many were set, or -1: MUSTER_E_NOMEM, MUSTER_E_INVALID for a share outside, or a
 * value that is not a number. */
int64_t prune_smallest(float *values, int64_t count, double share, struct muster_error *err);

#endif
