/* coded_test.c - matrices in 8 and 4 bits: codes by hand, what holds for all values, and refusals. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/narrow.h"
#include "proto/base/guard.h"
#include "runtime/rounding/coded.h"
#include "tests/support/cmocka_all.h"
#include "tests/unit/rounding/random_values.h"

static struct coded make(enum coding coding, int64_t rows, int64_t columns, int64_t group)
{
    struct coded c = {.coding = coding, .rows = rows, .columns = columns, .group = group};
    struct muster_error err = {0};
    assert_int_equal(coded_check(coding, rows, columns, group, "m", &err), 0);
    assert_int_equal(coded_create(&c, &err), 0);
    return c;
}

static void int8_by_hand(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct coded c = make(CODING_INT8, 3, 4, 4);
    /* scales 1, 0 and 2; 0.5 and 1.5 are ties: to even */
    const float values[12] = {127, 0.5f, 1.5f, -3, 0, 0, 0, 0, -254, 1, 3, 5};
    const int8_t codes[12] = {127, 0, 2, -3, 0, 0, 0, 0, -127, 0, 2, 2};
    float opened[12];
    assert_int_equal(coded_round(&c, values, "m", &err), 0);
    assert_memory_equal(c.codes, codes, sizeof codes);
    coded_open(&c, 0, 12, opened);
    assert_true(opened[0] == 127 && opened[2] == 2 && opened[4] == 0 && opened[8] == -254 && opened[10] == 4);
    assert_int_equal(coded_bytes(&c), 12 + 3 * 4);
    coded_free(&c);
}

static void int4_by_hand(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct coded c = make(CODING_INT4, 1, 8, 4);
    /* group 0: -5 to 10, scale 1, zero 5; group 1: 0 to 3 (0 counts), scale 0.2 as rounded, zero 0 */
    const float values[8] = {-5, 10, 0, 2.5f, 3, 1, 1.4f, 2};
    assert_int_equal(coded_round(&c, values, "m", &err), 0);
    const uint16_t *scales = c.scales;
    assert_true(narrow_from_f16(scales[0]) == 1);
    assert_int_equal(scales[1], narrow_to_f16(0.2f));
    assert_int_equal(c.zeros[0], 5);
    assert_int_equal(c.zeros[1], 0);
    const uint8_t codes[4] = {15 << 4 | 0, 7 << 4 | 5, 5 << 4 | 15, 10 << 4 | 7};
    assert_memory_equal(c.codes, codes, sizeof codes);
    float opened[8];
    coded_open(&c, 0, 8, opened);
    assert_true(opened[0] == -5 && opened[1] == 10 && opened[2] == 0 && opened[3] == 2);
    assert_float_equal(opened[4], 3, 0.01);
    assert_int_equal(coded_bytes(&c), 4 + 2 * 2 + 2);
    coded_free(&c);
}

/* How far a value may be from its decoded value: half a step, and at the ends of int4 the rounding
 * of the scale to fp16 has cut off. */
static double most_away(const struct coded *c, int64_t at)
{
    if (c->coding == CODING_INT8)
        return 0.5001 * (double)((const float *)c->scales)[at / c->columns];
    const int64_t group = at / c->columns * (c->columns / c->group) + at % c->columns / c->group;
    return (0.5001 + 16.0 / 2048) * (double)narrow_from_f16(((const uint16_t *)c->scales)[group]) + 1e-7;
}

static void check_values(const struct coded *c, const float *values, const float *opened)
{
    for (int64_t i = 0; i < c->rows * c->columns; i++) {
        if (fabs((double)values[i] - (double)opened[i]) > most_away(c, i))
            fail_msg("%s, %lld of %lld x %lld: %g became %g", coding_name(c->coding), (long long)i,
                     (long long)c->rows, (long long)c->columns, (double)values[i], (double)opened[i]);
        if (values[i] == 0)
            assert_true(opened[i] == 0);
    }
}

/* Any piece opens to the same bits as the whole. */
static void check_pieces(const struct coded *c, const float *opened, uint64_t *seed)
{
    const int64_t count = c->rows * c->columns;
    scope_free float *piece = mem_calloc((size_t)count, sizeof *piece);
    for (int i = 0; i < 8; i++) {
        const int64_t first = random_bits(seed) % count, length = random_bits(seed) % (count - first) + 1;
        coded_open(c, first, length, piece);
        assert_memory_equal(piece, opened + first, (size_t)length * sizeof *piece);
    }
}

static void what_is_opened_is_near(void **state)
{
    (void)state;
    struct muster_error err = {0};
    uint64_t seed = 1;
    for (int round = 0; round < 400; round++) {
        const int64_t group = 2 << random_bits(&seed) % 6, columns = group * (1 + random_bits(&seed) % 5);
        const int64_t rows = 1 + random_bits(&seed) % 9, count = rows * columns;
        const enum coding coding = round % 2 ? CODING_INT4 : CODING_INT8;
        const float size = ldexpf(1, (int)(random_bits(&seed) % 24) - 12), shift = random_value(&seed);
        struct coded c = make(coding, rows, columns, coding == CODING_INT4 ? group : columns);
        scope_free float *values = mem_calloc((size_t)count, sizeof *values);
        scope_free float *opened = mem_calloc((size_t)count, sizeof *opened);
        for (int64_t i = 0; i < count; i++) /* some groups on one side of 0, some zeros */
            values[i] =
                random_bits(&seed) % 8 ? size * (random_value(&seed) + shift * (float)(round % 3)) : 0;
        assert_int_equal(coded_round(&c, values, "m", &err), 0);
        coded_open(&c, 0, count, opened);
        check_values(&c, values, opened);
        check_pieces(&c, opened, &seed);
        coded_free(&c);
    }
}

static void what_cannot_be_is_named(void **state)
{
    (void)state;
    static const struct {
        enum coding coding;
        int64_t rows, columns, group;
        const char *error;
    } shapes[] = {
        {CODING_INT4, 4, 96, 64,
         "h.0.w: a row has 96 columns, which groups of 64 do not divide: use a divisor, such as 32"},
        {CODING_INT4, 4, 96, 31, "h.0.w: groups of 31 columns; two codes share a byte"},
        {CODING_INT4, 4, 96, 0, "h.0.w: groups of 0 columns"},
        {CODING_INT8, 0, 96, 0, "h.0.w: 0 rows of 96 columns; both must be above 0"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct muster_error err = {0};
        assert_int_equal(
            coded_check(shapes[i].coding, shapes[i].rows, shapes[i].columns, shapes[i].group, "h.0.w", &err),
            -1);
        assert_non_null(strstr(err.text, shapes[i].error));
        assert_int_equal(err.code, MUSTER_E_INVALID);
    }
    for (int i = 0; i < 4; i++) {
        struct muster_error err = {0};
        struct coded c = make(i % 2 ? CODING_INT4 : CODING_INT8, 2, 4, i % 2 ? 2 : 4);
        float values[8] = {0, 1, 2, 3, 4, i < 2 ? NAN : INFINITY, 6, 7};
        assert_int_equal(coded_round(&c, values, "h.0.w", &err), -1);
        assert_non_null(strstr(err.text, i < 2 ? "h.0.w: element (1, 1) is nan" : "element (1, 1) is inf"));
        coded_free(&c);
    }
    struct muster_error err = {0};
    struct coded c = make(CODING_INT4, 1, 2, 2);
    assert_int_equal(coded_round(&c, (float[]){1e6f, 0}, "h.0.w", &err), -1);
    assert_non_null(strstr(err.text, "element (0, 0) is 1e+06; it must be finite and at most 491280"));
    assert_int_equal(coded_round(&c, (float[]){491280, -491280}, "h.0.w", &err), 0);
    coded_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int8_by_hand),
        cmocka_unit_test(int4_by_hand),
        cmocka_unit_test(what_is_opened_is_near),
        cmocka_unit_test(what_cannot_be_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
