/* power.c - compress.h: PowerSGD. A piece is any run of a matrix's elements, row by row, so that ranks with
 * other shards of the matrix add up the same factors. */
#include <math.h>
#include <string.h>

#include "runtime/compress/compress_internal.h"

/* A run of elements within one row. */
struct row_run {
    int64_t row, column, count, at; /* at: in the piece */
};

/* The next run of a piece; false: none is left. run: zeroed at first. */
static bool next_run(const struct compress_piece *p, struct row_run *run)
{
    const int64_t at = run->at + run->count, element = p->first + at;
    if (at >= p->count)
        return false;
    *run = (struct row_run){.row = element / p->columns, .column = element % p->columns, .at = at};
    const int64_t row_left = p->columns - run->column;
    run->count = row_left < p->count - at ? row_left : p->count - at;
    return true;
}

/* In the same order on every processor: eight sums side by side. */
NUMBER_INLINE double dot(const void *a, const void *b, bool wide, int64_t count)
{
    enum { LANES = 8 };
    double sums[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] += number_get(a, wide, i + lane) * number_get(b, wide, i + lane);
    for (; i < count; i++)
        sums[i % LANES] += number_get(a, wide, i) * number_get(b, wide, i);
    for (int lane = 0; lane < LANES; lane++)
        sum += sums[lane];
    return sum;
}

static double dot_of(const void *a, const void *b, bool wide, int64_t count)
{
    return wide ? dot(a, b, true, count) : dot(a, b, false, count);
}

NUMBER_INLINE void add_times(void *to, const void *from, double factor, bool wide, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        number_set(to, wide, i, number_get(to, wide, i) + factor * number_get(from, wide, i));
}

static void add_times_of(void *to, const void *from, double factor, bool wide, int64_t count)
{
    if (wide)
        add_times(to, from, factor, true, count);
    else
        add_times(to, from, factor, false, count);
}

/* ---- orthonormal columns ---- */

/* Takes the columns before out of a column and gives it the length 1. false: nothing of it is left. */
static bool make_orthonormal(void *columns, bool wide, int64_t rows, int number)
{
    enum { PASSES = 2 }; /* the second one removes the first one's rounding */
    void *column = number_at(columns, wide, number * rows);
    const double begun = sqrt(dot_of(column, column, wide, rows));
    for (int pass = 0; pass < PASSES; pass++)
        for (int i = 0; i < number; i++) {
            const void *other = number_of(columns, wide, i * rows);
            add_times_of(column, other, -dot_of(other, column, wide, rows), wide, rows);
        }
    const double length = sqrt(dot_of(column, column, wide, rows)), least = wide ? 1e-13 : 1e-6;
    if (!(length > begun * least) || !(length > 0))
        return false;
    for (int64_t i = 0; i < rows; i++)
        number_set(column, wide, i, number_get(column, wide, i) / length);
    return true;
}

static void set_unit(void *column, bool wide, int64_t rows, int64_t at)
{
    memset(column, 0, (size_t)(rows * (wide ? 8 : 4)));
    number_set(column, wide, at, 1);
}

void compress_orthonormal(enum dtype dtype, void *columns, int64_t rows, int rank, const void *other)
{
    const bool wide = dtype == DTYPE_F64;
    const size_t bytes = (size_t)(rows * dtype_size(dtype));
    for (int c = 0; c < rank; c++) {
        void *column = number_at(columns, wide, c * rows);
        if (make_orthonormal(columns, wide, rows, c))
            continue;
        if (!other) {
            memset(column, 0, bytes);
            continue;
        }
        memcpy(column, number_of(other, wide, c * rows), bytes);
        for (int64_t unit = 0; !make_orthonormal(columns, wide, rows, c) && unit < rows; unit++)
            set_unit(column, wide, rows, unit);
    }
}

/* ---- factors ---- */

static void left_of_piece(const struct compress_call *c, const struct compress_piece *p, const void *factor,
                          void *left)
{
    const bool wide = c->dtype == DTYPE_F64;
    const void *sum = number_of(c->gradient, wide, p->at);
    struct row_run run = {0};
    while (next_run(p, &run))
        for (int k = 0; k < p->rank; k++)
            number_set(left, wide, p->left + k * p->rows + run.row,
                       dot_of(number_of(sum, wide, run.at),
                              number_of(factor, wide, p->right + k * p->columns + run.column), wide,
                              run.count));
}

void compress_left(const struct compress_call *c, const void *factor, void *left, void *dense)
{
    const struct compress_sizes sizes = compress_measure(c->pieces, c->count);
    const int size = dtype_size(c->dtype);
    memset(left, 0, (size_t)(sizes.left * size));
    if (dense && c->skip)
        memset(dense, 0, (size_t)(sizes.dense * size));
    if (c->skip)
        return;
    if (dense)
        compress_pack(c, dense);
    for (int i = 0; i < c->count; i++) {
        if (!c->pieces[i].rank)
            continue;
        compress_add_feedback(c, &c->pieces[i]);
        left_of_piece(c, &c->pieces[i], factor, left);
    }
}

void compress_right(const struct compress_call *c, void *left, void *right)
{
    const bool wide = c->dtype == DTYPE_F64;
    memset(right, 0, (size_t)(compress_measure(c->pieces, c->count).right * dtype_size(c->dtype)));
    for (int i = 0; i < c->count && !c->skip; i++) {
        const struct compress_piece *p = &c->pieces[i];
        const void *sum = number_of(c->gradient, wide, p->at);
        struct row_run run = {0};
        if (p->rank)
            compress_orthonormal(c->dtype, number_at(left, wide, p->left), p->rows, p->rank, NULL);
        while (p->rank && next_run(p, &run))
            for (int k = 0; k < p->rank; k++)
                add_times_of(number_at(right, wide, p->right + k * p->columns + run.column),
                             number_of(sum, wide, run.at),
                             number_get(left, wide, p->left + k * p->rows + run.row), wide, run.count);
    }
}

/* ---- the product ---- */

/* sum becomes the product of the factors, and the feedback the rest of this replica's part. */
NUMBER_INLINE void decode_run(const struct compress_call *c, const struct compress_piece *p,
                              const struct row_run *run, const void *left, const void *right, int replicas,
                              bool wide, double figures[2])
{
    void *sum = number_at(c->gradient, wide, p->at + run->at);
    void *feedback = c->feedback ? number_at(c->feedback, wide, p->at + run->at) : NULL;
    for (int64_t i = 0; i < run->count; i++) {
        const double whole = number_get(sum, wide, i);
        double value = 0;
        for (int k = 0; k < p->rank; k++)
            value += number_get(left, wide, p->left + k * p->rows + run->row) *
                     number_get(right, wide, p->right + k * p->columns + run->column + i);
        const double missing = whole - value / replicas;
        figures[0] += missing * missing;
        figures[1] += whole * whole;
        number_set(sum, wide, i, value);
        if (feedback)
            number_set(feedback, wide, i, missing * c->factor);
    }
}

void compress_power_decode(const struct compress_call *c, const void *left, void *right, int replicas,
                           const void *dense, void *factor)
{
    const bool wide = c->dtype == DTYPE_F64;
    if (c->skip)
        return;
    if (dense)
        compress_unpack(c, dense);
    for (int i = 0; i < c->count; i++) {
        const struct compress_piece *p = &c->pieces[i];
        struct row_run run = {0};
        if (!p->rank)
            continue;
        while (next_run(p, &run)) {
            if (wide)
                decode_run(c, p, &run, left, right, replicas, true, c->figures);
            else
                decode_run(c, p, &run, left, right, replicas, false, c->figures);
        }
        void *columns = number_at(right, wide, p->right), *own = number_at(factor, wide, p->right);
        compress_orthonormal(c->dtype, columns, p->columns, p->rank, own);
        memcpy(own, columns, (size_t)(p->columns * p->rank * dtype_size(c->dtype)));
    }
}
