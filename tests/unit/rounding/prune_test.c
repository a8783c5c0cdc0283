/* prune_test.c - the smallest elements become 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/guard.h"
#include "runtime/rounding/coded.h"
#include "tests/support/cmocka_all.h"
#include "tests/unit/rounding/random_values.h"

static int by_size(const void *a, const void *b)
{
    const float x = fabsf(*(const float *)a), y = fabsf(*(const float *)b);
    return (x > y) - (x < y);
}

/* This many are 0; the others are unchanged, and no smaller than the removed values. */
static void check_share(const float *before, const float *after, int64_t count, int64_t pruned)
{
    scope_free float *sorted = mem_calloc((size_t)count, sizeof *sorted);
    int64_t gone = 0;
    memcpy(sorted, before, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_size);
    for (int64_t i = 0; i < count; i++) {
        gone += after[i] == 0 && before[i] != 0;
        if (after[i] != 0) {
            assert_true(after[i] == before[i]);
            assert_true(pruned == 0 || fabsf(after[i]) >= fabsf(sorted[pruned - 1]));
        }
    }
    int64_t zeros = 0;
    for (int64_t i = 0; i < pruned; i++)
        zeros += sorted[i] == 0;
    assert_int_equal(gone, pruned - zeros);
}

static void a_share_of_any_values(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int round = 0; round < 500; round++) {
        const int64_t count = 1 + random_bits(&seed) % 300;
        const double share = (double)(random_bits(&seed) % 101) / 100;
        scope_free float *values = mem_calloc((size_t)count, sizeof *values);
        scope_free float *before = mem_calloc((size_t)count, sizeof *before);
        for (int64_t i = 0; i < count; i++) /* often equal ones, of both signs */
            values[i] = round % 2 ? random_value(&seed) : (float)((int)(random_bits(&seed) % 7) - 3);
        memcpy(before, values, (size_t)count * sizeof *before);
        const int64_t pruned = prune_smallest(values, count, share, NULL);
        assert_int_equal(pruned, llrint(share * (double)count));
        check_share(before, values, count, pruned);
    }
}

static void of_equal_ones_the_first(void **state)
{
    (void)state;
    float values[6] = {2, -1, 1, -1, 1, 3};
    assert_int_equal(prune_smallest(values, 6, 0.5, NULL), 3);
    assert_memory_equal(values, ((float[]){2, 0, 0, 0, 1, 3}), sizeof values);
}

static void what_cannot_be_is_named(void **state)
{
    (void)state;
    struct muster_error err = {0};
    float values[3] = {1, NAN, 2};
    assert_int_equal(prune_smallest(values, 3, 1.5, &err), -1);
    assert_non_null(strstr(err.text, "a share of 1.5 is to be pruned; it must be from 0 to 1"));
    assert_int_equal(prune_smallest(values, 3, 0.5, &err), -1);
    assert_non_null(strstr(err.text, "element 1 is not a number"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_of_any_values),
        cmocka_unit_test(of_equal_ones_the_first),
        cmocka_unit_test(what_cannot_be_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
