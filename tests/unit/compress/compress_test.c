/* Top-k and PowerSGD against plain loops: what is sent, what is kept, ties, values that are not finite, dense
 * pieces, factors of matrices that are cut into shards, and steps that are skipped. In f32 and f64. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/compress/compress.h"

enum { ROWS = 7, COLUMNS = 11, ELEMENTS = ROWS * COLUMNS, RANK = 2, REPLICAS = 3 };

static double number(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(*seed >> 8) / 0x1p23 - 1;
}

static double get(enum dtype dtype, const void *values, int i)
{
    return dtype == DTYPE_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

static void set(enum dtype dtype, void *values, int i, double value)
{
    if (dtype == DTYPE_F64)
        ((double *)values)[i] = value;
    else
        ((float *)values)[i] = (float)value;
}

/* ---- top-k ---- */

static int compare_magnitudes(const void *a, const void *b)
{
    const double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
    return x < y ? 1 : x > y ? -1 : 0;
}

static void the_largest_are_sent(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64};
    for (unsigned turn = 0; turn < 400; turn++) {
        const enum dtype dtype = dtypes[turn % 2];
        const int size = dtype_size(dtype), count = 1 + (int)(turn % 190),
                  kept = 1 + (int)(turn * 7 % (unsigned)count);
        double gradient[256], feedback[256], sorted[256], values[256], figures[2] = {0};
        int32_t places[256];
        char encoded[256 * 12];
        unsigned seed = turn;
        for (int i = 0; i < count; i++) {
            set(dtype, gradient, i,
                turn % 5 == 0 ? (double)(int)(number(&seed) * 3) : number(&seed) * pow(10, turn % 9));
            set(dtype, feedback, i, number(&seed));
            sorted[i] = dtype == DTYPE_F64
                            ? ((double *)gradient)[i] + ((double *)feedback)[i] * 2
                            : (double)(float)(get(dtype, gradient, i) + get(dtype, feedback, i) * 2);
            values[i] = sorted[i];
        }
        qsort(sorted, (size_t)count, sizeof *sorted, compare_magnitudes);
        const struct compress_piece piece = {.count = count, .kept = kept};
        const struct compress_call call = {dtype, gradient, feedback, &piece, 1, 0.5, false, figures, dtype};
        compress_topk_encode(&call, encoded, NULL);
        memcpy(places, encoded + kept * size, (size_t)kept * 4);
        double left = 0;
        for (int i = 0, sent = 0; i < count; i++) {
            const bool is_sent = sent < kept && places[sent] == i;
            assert_true(fabs(values[i]) <= fabs(sorted[kept - 1]) || is_sent);
            assert_true(fabs(values[i]) >= fabs(sorted[kept - 1]) || !is_sent);
            assert_true(get(dtype, feedback, i) == (is_sent ? 0 : values[i] * 0.5));
            assert_true(!is_sent || get(dtype, encoded, sent) == values[i]);
            left += is_sent ? 0 : values[i] * values[i];
            sent += is_sent;
        }
        assert_true(fabs(figures[0] - left) <= 1e-12 * fabs(left));
        compress_topk_decode(&call, encoded, 1, 0, NULL);
        for (int i = 0, sent = 0; i < count; i++) {
            const bool was_sent = sent < kept && places[sent] == i;
            assert_true(get(dtype, gradient, i) == (was_sent ? values[i] : 0));
            sent += was_sent;
        }
    }
}

/* Values of 16 bits: the same elements as without, their rounded values, and the rest in the feedback. */
static void narrow_values_leave_their_rest(void **state)
{
    (void)state;
    enum { COUNT = 151 };
    static const enum dtype wires[] = {DTYPE_BF16, DTYPE_F16};
    for (unsigned turn = 0; turn < 60; turn++) {
        const enum dtype wire = wires[turn % 2];
        const int kept = 1 + (int)(turn * 7 % COUNT);
        float gradient[2][COUNT], feedback[2][COUNT], encoded[2][2 * COUNT];
        double figures[2][2] = {{0}}, left = 0;
        unsigned seed = turn;
        for (int i = 0; i < COUNT; i++)
            gradient[0][i] = gradient[1][i] = (float)(number(&seed) * (turn % 3 ? 1 : 1e6));
        memset(feedback, 0, sizeof feedback);
        const struct compress_piece piece = {.count = COUNT, .kept = kept};
        for (int narrow = 0; narrow < 2; narrow++) {
            const struct compress_call call = {
                DTYPE_F32, gradient[narrow], feedback[narrow],         &piece, 1, 0.5,
                false,     figures[narrow],  narrow ? wire : DTYPE_F32};
            compress_topk_encode(&call, encoded[narrow], NULL);
        }
        const int32_t *places = (const int32_t *)(const void *)(encoded[0] + kept);
        const char *narrow_places = (const char *)encoded[1] + compress_values_bytes(kept, 2);
        assert_memory_equal(places, narrow_places, (size_t)kept * 4);
        const struct compress_call call = {DTYPE_F32, gradient[1], feedback[1], &piece, 1,
                                           0.5,       false,       figures[1],  wire};
        compress_topk_decode(&call, encoded[1], 1, 0, NULL);
        for (int i = 0, sent = 0; i < COUNT; i++) {
            const bool is_sent = sent < kept && places[sent] == i;
            const double value = (double)gradient[0][i], got = (double)gradient[1][i],
                         limit = wire == DTYPE_BF16 ? 0x1p-8 : 0x1p-10;
            assert_true(is_sent || got == 0);
            assert_true((float)((value - got) * 0.5) == feedback[1][i]);
            assert_true(!is_sent || fabs(value - got) <= limit * fabs(value) ||
                        (wire == DTYPE_F16 && fabs(value) > 65504 && fabs(got) == 65504));
            left += (value - got) * (value - got);
            sent += is_sent;
        }
        assert_true(fabs(figures[1][0] - left) <= 1e-12 * left && figures[1][0] > figures[0][0]);
    }
}

/* Of equal magnitudes the first are sent; a NaN is larger than all numbers. */
static void ties_and_nans_have_an_order(void **state)
{
    (void)state;
    float gradient[] = {1, -2, 2, 0, -2, 1}, encoded[4 * 2];
    double figures[2] = {0};
    int32_t places[2];
    struct compress_piece piece = {.count = 6, .kept = 2};
    const struct compress_call call = {DTYPE_F32, gradient, NULL, &piece, 1, 1, false, figures, DTYPE_F32};
    compress_topk_encode(&call, encoded, NULL);
    memcpy(places, encoded + 2, sizeof places);
    assert_true(places[0] == 1 && places[1] == 2);
    gradient[5] = NAN;
    compress_topk_encode(&call, encoded, NULL);
    memcpy(places, encoded + 2, sizeof places);
    assert_true(places[0] == 1 && places[1] == 5 && isnan(encoded[1]));
}

/* Every replica chooses elements of its own: the places must not be added up, but the values at the places.
 */
static void replicas_add_what_each_has_chosen(void **state)
{
    (void)state;
    enum { COUNT = 5, STRIDE = 2 * 8 + 3 * 4 };
    float gradients[REPLICAS][COUNT + 3] = {
        {5, 0, 1, 0, 4, 7, 8, 9}, {0, 6, 0, 5, 1, 1, 1, 1}, {3, 0, -4, 0, 0, 2, 2, 2}};
    char encoded[REPLICAS * STRIDE];
    float dense[3] = {0}, one[3];
    double figures[2] = {0};
    const struct compress_piece pieces[] = {{.count = COUNT, .kept = 2}, {.at = COUNT, .count = 3}};
    for (int r = 0; r < REPLICAS; r++) {
        const struct compress_call call = {DTYPE_F32, gradients[r], NULL,    pieces,   2,
                                           1,         false,        figures, DTYPE_F32};
        compress_topk_encode(&call, encoded + r * STRIDE, one);
        for (int i = 0; i < 3; i++)
            dense[i] += one[i];
    }
    static const float sums[] = {8, 6, -4, 5, 4, 10, 11, 12};
    for (int r = 0; r < REPLICAS; r++) {
        const struct compress_call call = {DTYPE_F32, gradients[r], NULL,    pieces,   2,
                                           1,         false,        figures, DTYPE_F32};
        compress_topk_decode(&call, encoded, REPLICAS, STRIDE, dense);
        assert_memory_equal(gradients[r], sums, sizeof sums);
    }
    assert_true(compress_kept(0.1, 9) == 1 && compress_kept(0.1, 30) == 3 && compress_kept(1, 5) == 5);
    assert_true(compress_kept(0.5, 0) == 0);
}

/* ---- PowerSGD ---- */

struct part {
    double gradient[ELEMENTS + 3], feedback[ELEMENTS + 3], left[ROWS * RANK], right[COLUMNS * RANK];
    double factor[COLUMNS * RANK], dense[3];
    struct compress_piece pieces[2];
};

static struct compress_piece matrix(int first, int count)
{
    return (struct compress_piece){
        .first = first, .count = count, .rank = RANK, .rows = ROWS, .columns = COLUMNS};
}

/* The sums of left, right and dense over `count` parts, as their ranks make them. */
static void sum(enum dtype dtype, struct part *parts, int count, size_t offset, int elements)
{
    for (int i = 0; i < elements; i++) {
        double total = 0;
        for (int p = 0; p < count; p++)
            total += get(dtype, (char *)&parts[p] + offset, i);
        for (int p = 0; p < count; p++)
            set(dtype, (char *)&parts[p] + offset, i, total);
    }
}

/* One exchange over replicas, each of which has its matrix in `shards` pieces. factor: multiplies. */
static void exchange(enum dtype dtype, struct part *parts, int replicas, int shards, double factor,
                     double figures[2])
{
    const int count = replicas * shards;
    struct compress_call calls[REPLICAS * 2];
    for (int p = 0; p < count; p++) {
        calls[p] = (struct compress_call){dtype,
                                          parts[p].gradient,
                                          parts[p].feedback,
                                          parts[p].pieces,
                                          shards > 1 ? 1 : 2,
                                          factor,
                                          false,
                                          figures,
                                          dtype};
        compress_left(&calls[p], parts[p].factor, parts[p].left, parts[p].dense);
    }
    sum(dtype, parts, count, offsetof(struct part, left), ROWS * RANK);
    sum(dtype, parts, count, offsetof(struct part, dense), shards > 1 ? 0 : 3);
    for (int p = 0; p < count; p++)
        compress_right(&calls[p], parts[p].left, parts[p].right);
    sum(dtype, parts, count, offsetof(struct part, right), COLUMNS * RANK);
    for (int p = 0; p < count; p++)
        compress_power_decode(&calls[p], parts[p].left, parts[p].right, replicas, parts[p].dense,
                              parts[p].factor);
}

static void begin(enum dtype dtype, struct part *part, unsigned seed)
{
    *part = (struct part){.pieces = {matrix(0, ELEMENTS), {.at = ELEMENTS, .count = 3}}};
    for (int i = 0; i < ELEMENTS + 3; i++) {
        set(dtype, part->gradient, i, number(&seed));
        set(dtype, part->feedback, i, number(&seed));
    }
    seed = 99; /* the same factor for all */
    for (int i = 0; i < COLUMNS * RANK; i++)
        set(dtype, part->factor, i, number(&seed));
    compress_orthonormal(dtype, part->factor, COLUMNS, RANK, NULL);
}

/* The sum's projection onto the columns that the factor gives. */
static void factors_project_the_sum(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64};
    for (int d = 0; d < 2; d++) {
        const enum dtype dtype = dtypes[d];
        const double limit = d ? 1e-13 : 2e-6, factor = 0.25;
        struct part parts[REPLICAS], before[REPLICAS];
        double total[ELEMENTS] = {0}, figures[2] = {0}, left[ROWS * RANK] = {0}, whole = 0, missing = 0;
        for (int r = 0; r < REPLICAS; r++) {
            begin(dtype, &parts[r], 5 + (unsigned)r);
            before[r] = parts[r];
            for (int i = 0; i < ELEMENTS; i++)
                total[i] += get(dtype, parts[r].gradient, i) + get(dtype, parts[r].feedback, i) / factor;
        }
        for (int k = 0; k < RANK; k++)
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < COLUMNS; j++)
                    left[k * ROWS + i] +=
                        total[i * COLUMNS + j] * get(dtype, before[0].factor, k * COLUMNS + j);
        compress_orthonormal(DTYPE_F64, left, ROWS, RANK, NULL);
        exchange(dtype, parts, REPLICAS, 1, factor, figures);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++) {
                double wanted = 0;
                for (int k = 0; k < RANK; k++)
                    for (int m = 0; m < ROWS; m++)
                        wanted += left[k * ROWS + i] * left[k * ROWS + m] * total[m * COLUMNS + j];
                for (int r = 0; r < REPLICAS; r++) {
                    const int at = i * COLUMNS + j;
                    const double own =
                        get(dtype, before[r].gradient, at) + get(dtype, before[r].feedback, at) / factor;
                    assert_true(fabs(get(dtype, parts[r].gradient, at) - wanted) < limit * 20);
                    assert_true(fabs(get(dtype, parts[r].feedback, at) - (own - wanted / REPLICAS) * factor) <
                                limit * 20);
                    whole += own * own;
                    missing += pow(own - wanted / REPLICAS, 2);
                }
            }
        assert_true(fabs(figures[0] - missing) < limit * 1e3 && fabs(figures[1] - whole) < limit * 1e3);
        for (int i = 0; i < 3; i++) {
            double dense = 0;
            for (int r = 0; r < REPLICAS; r++)
                dense += get(dtype, before[r].gradient, ELEMENTS + i);
            assert_true(fabs(get(dtype, parts[1].gradient, ELEMENTS + i) - dense) < limit * 10);
        }
        assert_memory_equal(parts[0].gradient, parts[2].gradient, sizeof parts[0].gradient);
        assert_memory_equal(parts[0].factor, parts[2].factor, sizeof parts[0].factor);
        assert_memory_not_equal(parts[0].factor, before[0].factor, sizeof parts[0].factor);
    }
}

/* Shards of a matrix, cut inside of a row, give the same product and factor. */
static void shards_add_up_the_same_factors(void **state)
{
    (void)state;
    for (int cut = 0; cut <= ELEMENTS; cut += 13) {
        struct part whole[1], shards[2];
        double figures[2] = {0}, parts[2] = {0};
        begin(DTYPE_F64, &whole[0], 8);
        for (int s = 0; s < 2; s++) {
            const int first = s ? cut : 0, count = s ? ELEMENTS - cut : cut;
            shards[s] = whole[0];
            shards[s].pieces[0] = matrix(first, count);
            memmove(shards[s].gradient, whole[0].gradient + first, (size_t)count * sizeof(double));
            memmove(shards[s].feedback, whole[0].feedback + first, (size_t)count * sizeof(double));
        }
        exchange(DTYPE_F64, whole, 1, 1, 1, figures);
        exchange(DTYPE_F64, shards, 1, 2, 1, parts);
        for (int i = 0; i < ELEMENTS; i++) {
            const double found = i < cut ? shards[0].gradient[i] : shards[1].gradient[i - cut];
            assert_true(fabs(found - whole[0].gradient[i]) < 1e-12);
        }
        assert_true(fabs(figures[0] - parts[0]) < 1e-11 && fabs(figures[1] - parts[1]) < 1e-11);
    }
}

/* A gradient of zeros, or of rank 1, leaves no NaN, and the next step still has a whole factor. */
static void poor_matrices_keep_a_whole_factor(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct part part;
        double figures[2] = {0};
        begin(DTYPE_F32, &part, 3);
        memset(part.feedback, 0, sizeof part.feedback);
        for (int i = 0; i < ELEMENTS; i++)
            set(DTYPE_F32, part.gradient, i, rank * (1.0 + i / COLUMNS) * (1.0 + i % COLUMNS));
        exchange(DTYPE_F32, &part, 1, 1, 1, figures);
        for (int i = 0; i < ELEMENTS; i++) {
            const double wanted = rank * (1.0 + i / COLUMNS) * (1.0 + i % COLUMNS);
            assert_true(fabs(get(DTYPE_F32, part.gradient, i) - wanted) < 1e-4);
            assert_true(fabs(get(DTYPE_F32, part.feedback, i)) < 1e-4);
        }
        for (int k = 0; k < RANK; k++)
            for (int l = 0; l <= k; l++) {
                double dot = 0;
                for (int j = 0; j < COLUMNS; j++)
                    dot += get(DTYPE_F32, part.factor, k * COLUMNS + j) *
                           get(DTYPE_F32, part.factor, l * COLUMNS + j);
                assert_true(fabs(dot - (k == l)) < 1e-5);
            }
    }
}

static void skipped_steps_change_nothing(void **state)
{
    (void)state;
    struct part part, before;
    double figures[2] = {0}, encoded[64];
    begin(DTYPE_F32, &part, 3);
    set(DTYPE_F32, part.gradient, 4, NAN);
    before = part;
    struct compress_call call = {DTYPE_F32, part.gradient, part.feedback, part.pieces, 2,
                                 1,         true,          figures,       DTYPE_F32};
    compress_left(&call, part.factor, part.left, part.dense);
    compress_right(&call, part.left, part.right);
    compress_power_decode(&call, part.left, part.right, 1, part.dense, part.factor);
    for (int i = 0; i < ROWS * RANK; i++)
        assert_true(get(DTYPE_F32, part.left, i) == 0);
    part.pieces[0] = (struct compress_piece){.count = ELEMENTS, .kept = 9};
    compress_topk_encode(&call, encoded, part.dense);
    compress_topk_decode(&call, encoded, 1, 0, part.dense);
    assert_memory_equal(part.gradient, before.gradient, sizeof before.gradient);
    assert_memory_equal(part.feedback, before.feedback, sizeof before.feedback);
    assert_memory_equal(part.factor, before.factor, sizeof before.factor);
    assert_true(figures[0] == 0 && figures[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_are_sent),
        cmocka_unit_test(narrow_values_leave_their_rest),
        cmocka_unit_test(ties_and_nans_have_an_order),
        cmocka_unit_test(replicas_add_what_each_has_chosen),
        cmocka_unit_test(factors_project_the_sum),
        cmocka_unit_test(shards_add_up_the_same_factors),
        cmocka_unit_test(poor_matrices_keep_a_whole_factor),
        cmocka_unit_test(skipped_steps_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
