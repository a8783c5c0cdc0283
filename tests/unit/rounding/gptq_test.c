/* gptq_test.c - rounding by the inputs of a product: the factor, its result without correlations, and that
 * the product changes less than by rounding to nearest. */
#include <math.h>
#include <string.h>

#include "proto/base/guard.h"
#include "runtime/rounding/coded.h"
#include "tests/support/cmocka_all.h"
#include "tests/unit/rounding/random_values.h"

enum { COLUMNS = 48, ROWS = 21, GROUP = 16 };

/* The sum of x x^T over `samples` rows that mix few sources, so that columns are correlated. */
static void make_moments(uint64_t seed, int samples, float *moments)
{
    enum { SOURCES = 12 };
    float mix[COLUMNS][SOURCES], x[COLUMNS];
    memset(moments, 0, COLUMNS * COLUMNS * sizeof *moments);
    for (int c = 0; c < COLUMNS; c++)
        for (int s = 0; s < SOURCES; s++)
            mix[c][s] = random_value(&seed);
    for (int i = 0; i < samples; i++) {
        float source[SOURCES];
        for (int s = 0; s < SOURCES; s++)
            source[s] = random_value(&seed);
        for (int c = 0; c < COLUMNS; c++) {
            x[c] = 0.1f * random_value(&seed);
            for (int s = 0; s < SOURCES; s++)
                x[c] += mix[c][s] * source[s];
        }
        for (int a = 0; a < COLUMNS; a++)
            for (int b = 0; b < COLUMNS; b++)
                moments[a * COLUMNS + b] += x[a] * x[b];
    }
}

static struct coded make_codes(void)
{
    struct coded c = {.coding = CODING_INT4, .rows = ROWS, .columns = COLUMNS, .group = GROUP};
    assert_int_equal(coded_create(&c, NULL), 0);
    return c;
}

static void the_factor_is_of_the_inverse(void **state)
{
    (void)state;
    static float moments[COLUMNS * COLUMNS];
    struct muster_error err = {0};
    struct gptq g;
    make_moments(3, 200, moments);
    assert_int_equal(gptq_create(&g, moments, COLUMNS, &err), 0);
    for (int i = 1; i < COLUMNS; i++)
        assert_true(moments[g.order[i - 1] * (COLUMNS + 1)] >= moments[g.order[i] * (COLUMNS + 1)]);
    for (int i = 0; i < COLUMNS; i++)
        for (int j = 0; j < COLUMNS; j++) { /* (H U^T) U = 1 */
            double sum = 0;
            for (int k = 0; k < COLUMNS; k++) {
                double inverse = 0; /* (k, j) */
                for (int l = 0; l <= (k < j ? k : j); l++)
                    inverse += (double)g.upper[l * COLUMNS + k] * (double)g.upper[l * COLUMNS + j];
                const double moment = moments[g.order[i] * COLUMNS + g.order[k]];
                sum += moment * (i == k ? 1 + GPTQ_DAMPING : 1) * inverse;
            }
            assert_float_equal(sum, i == j, 1e-4);
        }
    gptq_free(&g);
}

/* The sum of squares by which the product changes over the calibration set: tr(E H E^T). */
static double change(const struct coded *c, const float *values, const float *moments)
{
    static float opened[ROWS * COLUMNS];
    double total = 0;
    coded_open(c, 0, ROWS * COLUMNS, opened);
    for (int r = 0; r < ROWS; r++)
        for (int a = 0; a < COLUMNS; a++)
            for (int b = 0; b < COLUMNS; b++)
                total += (double)(opened[r * COLUMNS + a] - values[r * COLUMNS + a]) *
                         (double)moments[a * COLUMNS + b] *
                         (double)(opened[r * COLUMNS + b] - values[r * COLUMNS + b]);
    return total;
}

/* One column that products read a thousand times as much as the others does not hide their share in
 * common. */
static void a_loud_column(void **state)
{
    (void)state;
    static float moments[COLUMNS * COLUMNS], values[ROWS * COLUMNS];
    struct muster_error err = {0};
    struct gptq g;
    uint64_t seed = 4;
    make_moments(4, 300, moments);
    for (int i = 0; i < COLUMNS; i++) {
        moments[7 * COLUMNS + i] *= 1000;
        moments[i * COLUMNS + 7] *= 1000;
    }
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = i % COLUMNS == 7 ? 0 : random_value(&seed); /* the loss is in other columns */
    struct coded nearest = make_codes(), c = make_codes();
    assert_int_equal(gptq_create(&g, moments, COLUMNS, &err), 0);
    assert_int_equal(g.order[0], 7);
    assert_int_equal(gptq_round(&g, &c, values, "w", &err), 0);
    assert_int_equal(coded_round(&nearest, values, "w", &err), 0);
    assert_true(change(&c, values, moments) < 0.5 * change(&nearest, values, moments));
    gptq_free(&g);
    coded_free(&c);
    coded_free(&nearest);
}

static void without_correlations_it_is_nearest(void **state)
{
    (void)state;
    static float moments[COLUMNS * COLUMNS], values[ROWS * COLUMNS];
    struct muster_error err = {0};
    struct gptq g;
    uint64_t seed = 5;
    for (int i = 0; i < COLUMNS; i++)
        moments[i * COLUMNS + i] = (float)(1 + i % 5);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = random_value(&seed);
    struct coded nearest = make_codes(), c = make_codes();
    assert_int_equal(gptq_create(&g, moments, COLUMNS, &err), 0);
    assert_int_equal(gptq_round(&g, &c, values, "w", &err), 0);
    assert_int_equal(coded_round(&nearest, values, "w", &err), 0);
    assert_memory_equal(c.codes, nearest.codes, (size_t)coded_code_bytes(&c, ROWS));
    assert_memory_equal(c.scales, nearest.scales, (size_t)coded_scale_bytes(&c, ROWS));
    assert_memory_equal(c.zeros, nearest.zeros, (size_t)coded_zero_bytes(&c, ROWS));
    gptq_free(&g);
    coded_free(&c);
    coded_free(&nearest);
}

static void products_change_less(void **state)
{
    (void)state;
    static float moments[COLUMNS * COLUMNS], values[ROWS * COLUMNS];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct muster_error err = {0};
        struct gptq g;
        uint64_t at = seed;
        make_moments(seed, 300, moments);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            values[i] = random_value(&at);
        struct coded nearest = make_codes(), c = make_codes();
        assert_int_equal(gptq_create(&g, moments, COLUMNS, &err), 0);
        assert_int_equal(gptq_round(&g, &c, values, "w", &err), 0);
        assert_int_equal(coded_round(&nearest, values, "w", &err), 0);
        if (!(change(&c, values, moments) < 0.5 * change(&nearest, values, moments)))
            fail_msg("seed %d: %g, by rounding to nearest %g", (int)seed, change(&c, values, moments),
                     change(&nearest, values, moments));
        gptq_free(&g);
        coded_free(&c);
        coded_free(&nearest);
    }
}

/* A column that was never read does not matter: it is 0, and takes no part in a group's scale. */
static void silent_columns(void **state)
{
    (void)state;
    static float moments[COLUMNS * COLUMNS], values[ROWS * COLUMNS], opened[ROWS * COLUMNS];
    struct muster_error err = {0};
    struct gptq g;
    uint64_t seed = 8;
    make_moments(8, 200, moments);
    for (int i = 0; i < COLUMNS; i++)
        moments[i * COLUMNS + 3] = moments[3 * COLUMNS + i] = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = i % COLUMNS == 3 ? 1000 : random_value(&seed);
    struct coded c = make_codes();
    assert_int_equal(gptq_create(&g, moments, COLUMNS, &err), 0);
    assert_int_equal(gptq_round(&g, &c, values, "w", &err), 0);
    coded_open(&c, 0, ROWS * COLUMNS, opened);
    for (int r = 0; r < ROWS; r++) {
        assert_true(opened[r * COLUMNS + 3] == 0);
        assert_true(fabsf(opened[r * COLUMNS]) < 10);
    }
    gptq_free(&g);
    coded_free(&c);
}

static void what_is_no_covariance_is_refused(void **state)
{
    (void)state;
    static float moments[COLUMNS * COLUMNS], values[ROWS * COLUMNS];
    struct muster_error err = {0};
    struct gptq g;
    make_moments(1, 100, moments);
    moments[5] = NAN;
    assert_int_equal(gptq_create(&g, moments, COLUMNS, &err), -1);
    assert_non_null(strstr(err.text, "moment (0, 5) of the calibration set is nan"));
    memset(moments, 0, sizeof moments);
    for (int i = 0; i < COLUMNS; i++)
        moments[i * COLUMNS + i] = 1;
    moments[1] = moments[COLUMNS] = 9;
    assert_int_equal(gptq_create(&g, moments, COLUMNS, &err), -1);
    assert_non_null(strstr(err.text, "are no covariance"));
    moments[1] = moments[COLUMNS] = 0;
    assert_int_equal(gptq_create(&g, moments, COLUMNS, &err), 0);
    struct coded c = {.coding = CODING_INT4, .rows = ROWS, .columns = 32, .group = GROUP};
    assert_int_equal(gptq_round(&g, &c, values, "h.0.w", &err), -1);
    assert_non_null(strstr(err.text, "h.0.w: 32 columns, but the moments are of 48"));
    gptq_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_factor_is_of_the_inverse),
        cmocka_unit_test(a_loud_column),
        cmocka_unit_test(without_correlations_it_is_nearest),
        cmocka_unit_test(products_change_less),
        cmocka_unit_test(silent_columns),
        cmocka_unit_test(what_is_no_covariance_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
