/* coded.c - see coded.h. */
#include "runtime/rounding/coded.h"

#include <math.h>

#include "kernels/narrow.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"

enum { INT8_MOST = 127, INT4_MOST = 15 };

const char *coding_name(enum coding coding)
{
#define CODING_NAME(symbol, name, bits) name,
    static const char *const names[] = {CODINGS(CODING_NAME)};
#undef CODING_NAME
    return names[coding];
}

/* ---- sizes ---- */

int coded_check(enum coding coding, int64_t rows, int64_t columns, int64_t group, const char *name,
                struct muster_error *err)
{
    if (rows < 1 || columns < 1 || rows > INT64_MAX / 16 / columns)
        return error_set(err, MUSTER_E_INVALID, "%s: %lld rows of %lld columns; both must be above 0", name,
                         (long long)rows, (long long)columns);
    if (coding == CODING_INT8)
        return 0;
    if (group < 2 || group % 2)
        return error_set(
            err, MUSTER_E_INVALID,
            "%s: groups of %lld columns; two codes share a byte, so that a group must be an even "
            "number: 32, 64 and 128 are usual",
            name, (long long)group);
    if (columns % group)
        return error_set(
            err, MUSTER_E_INVALID,
            "%s: a row has %lld columns, which groups of %lld do not divide: use a divisor, such "
            "as %lld, or leave the tensor as it is",
            name, (long long)columns, (long long)group,
            (long long)(columns % 64 == 0   ? 64
                        : columns % 32 == 0 ? 32
                        : columns % 2       ? columns
                                            : 2));
    return 0;
}

static int64_t groups_of(const struct coded *c)
{
    return c->coding == CODING_INT8 ? 1 : c->columns / c->group;
}

int64_t coded_code_bytes(const struct coded *c, int64_t rows)
{
    return c->coding == CODING_INT8 ? rows * c->columns : rows * (c->columns / 2);
}

int64_t coded_scale_bytes(const struct coded *c, int64_t rows)
{
    return rows * groups_of(c) * (int64_t)(c->coding == CODING_INT8 ? sizeof(float) : sizeof(uint16_t));
}

int64_t coded_zero_bytes(const struct coded *c, int64_t rows)
{
    return c->coding == CODING_INT8 ? 0 : rows * groups_of(c);
}

int64_t coded_bytes(const struct coded *c)
{
    return coded_code_bytes(c, c->rows) + coded_scale_bytes(c, c->rows) + coded_zero_bytes(c, c->rows);
}

int coded_create(struct coded *c, struct muster_error *err)
{
    const int64_t zeros = coded_zero_bytes(c, c->rows);
    c->codes = mem_calloc((size_t)coded_code_bytes(c, c->rows), 1);
    c->scales = mem_calloc((size_t)coded_scale_bytes(c, c->rows), 1);
    c->zeros = zeros ? mem_calloc((size_t)zeros, 1) : NULL;
    if (c->codes && c->scales && (!zeros || c->zeros))
        return 0;
    coded_free(c);
    return error_set(err, MUSTER_E_NOMEM, "no memory for %lld codes", (long long)(c->rows * c->columns));
}

void coded_free(struct coded *c)
{
    mem_free(c->codes);
    mem_free(c->scales);
    mem_free(c->zeros);
    c->codes = c->scales = NULL;
    c->zeros = NULL;
}

/* ---- scales ---- */

static float limited(float value, float least, float most)
{
    return value < least ? least : value > most ? most : value;
}

void coded_set_scale(struct coded *c, int64_t row, int64_t group, const float *values)
{
    float low = 0, high = 0;
    for (int64_t i = 0; i < c->group; i++) {
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
    }
    if (c->coding == CODING_INT8) {
        ((float *)c->scales)[row] = (-low > high ? -low : high) / INT8_MOST;
        return;
    }
    const int64_t at = row * groups_of(c) + group;
    const uint16_t half = narrow_to_f16((high - low) / INT4_MOST);
    const float scale = narrow_from_f16(half);
    ((uint16_t *)c->scales)[at] = half;
    c->zeros[at] = scale > 0 ? (uint8_t)limited(rintf(-low / scale), 0, INT4_MOST) : 0;
}

/* ---- codes ---- */

static float set_int8(struct coded *c, int64_t row, int64_t column, float value)
{
    const float scale = ((const float *)c->scales)[row];
    const float code = scale > 0 ? limited(rintf(value / scale), -INT8_MOST, INT8_MOST) : 0;
    ((int8_t *)c->codes)[row * c->columns + column] = (int8_t)code;
    return scale * code;
}

static float set_int4(struct coded *c, int64_t row, int64_t column, float value)
{
    const int64_t at = row * groups_of(c) + column / c->group;
    const float scale = narrow_from_f16(((const uint16_t *)c->scales)[at]);
    const float zero = (float)c->zeros[at];
    const float code = scale > 0 ? limited(rintf(value / scale) + zero, 0, INT4_MOST) : zero;
    uint8_t *byte = (uint8_t *)c->codes + (row * c->columns + column) / 2;
    const unsigned kept = column % 2 ? *byte & 0x0fu : *byte & 0xf0u;
    *byte = (uint8_t)(kept | (column % 2 ? (unsigned)code << 4 : (unsigned)code));
    return scale * (code - zero);
}

float coded_set(struct coded *c, int64_t row, int64_t column, float value)
{
    return c->coding == CODING_INT8 ? set_int8(c, row, column, value) : set_int4(c, row, column, value);
}

static int check_value(const struct coded *c, const char *name, int64_t at, float value,
                       struct muster_error *err)
{
    /* A group from the lowest to the highest of these has a scale that fp16 holds. */
    const float most = c->coding == CODING_INT8 ? 3.4e38f : 65504.0f * INT4_MOST / 2;
    if (fabsf(value) <= most)
        return 0;
    return error_set(err, MUSTER_E_INVALID,
                     "%s: element (%lld, %lld) is %g; it must be finite%s: keep the tensor as it is", name,
                     (long long)(at / c->columns), (long long)(at % c->columns), (double)value,
                     c->coding == CODING_INT8 ? "" : " and at most 491280, since scales are of fp16");
}

int coded_round(struct coded *c, const float *values, const char *name, struct muster_error *err)
{
    for (int64_t i = 0; i < c->rows * c->columns; i++)
        if (check_value(c, name, i, values[i], err) < 0)
            return -1;
    for (int64_t row = 0; row < c->rows; row++) {
        const float *from = values + row * c->columns;
        for (int64_t column = 0; column < c->columns; column++) {
            if (column % c->group == 0)
                coded_set_scale(c, row, column / c->group, from + column);
            (void)coded_set(c, row, column, from[column]);
        }
    }
    return 0;
}

void coded_open(const struct coded *c, int64_t first, int64_t count, float *out)
{
    const int64_t groups = groups_of(c);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = first + i, row = at / c->columns, column = at % c->columns;
        if (c->coding == CODING_INT8) {
            out[i] = ((const float *)c->scales)[row] * (float)((const int8_t *)c->codes)[at];
            continue;
        }
        const uint8_t byte = ((const uint8_t *)c->codes)[at / 2];
        const int64_t g = row * groups + column / c->group;
        out[i] = narrow_from_f16(((const uint16_t *)c->scales)[g]) *
                 ((float)(at % 2 ? byte >> 4 : byte & 0x0f) - (float)c->zeros[g]);
    }
}
