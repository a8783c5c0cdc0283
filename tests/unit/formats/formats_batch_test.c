/* formats_batch_test.c - two of the sizes of a batch give the third; tests/compat compares the same with
 * DeepSpeed's own class. */
#include "trainer/formats/formats_internal.h"

#include "tests/support/cmocka_all.h"

static const struct {
    struct batch_sizes given, expected; /* expected.total 0: refused */
    int ranks;
    bool strict, changed;
} rows[] = {
    {{32, 4, 2}, {32, 4, 2}, 4, true, false},
    {{32, 4, 0}, {32, 4, 2}, 4, true, false},
    {{32, 0, 2}, {32, 4, 2}, 4, true, false},
    {{0, 4, 2}, {32, 4, 2}, 4, true, false},
    {{32, 0, 0}, {32, 8, 1}, 4, true, false},
    {{0, 4, 0}, {16, 4, 1}, 4, true, false},
    {{0, 0, 2}, {0}, 4, true, false},
    {{0, 0, 0}, {0}, 4, true, false},
    {{1024, 16, 1}, {1024, 16, 1}, 64, true, false},
    {{1024, 16, 1}, {0}, 4, true, false},
    {{1024, 16, 1}, {1024, 16, 16}, 4, false, true},
    {{1024, 16, 1}, {1024, 16, 1}, 64, false, false},
    {{16, 4, 0}, {0}, 3, true, false},
    {{16, 4, 0}, {16, 4, 2}, 3, false, false}, /* the last micro-batch has empty rows */
    {{16, 4, 2}, {16, 4, 2}, 3, false, false},
    {{16, 0, 3}, {0}, 3, false, false}, /* no micro-batch of ours fits */
    {{2, 0, 0}, {0}, 4, false, false},
    {{2, 4, 0}, {0}, 1, true, false},
    {{2, 4, 0}, {2, 4, 1}, 1, false, false},
    {{0, 1000000000, 1000000000}, {0}, 1000000, false, false},
    {{-1, 4, 1}, {0}, 1, false, false},
};

static void completes_as_deepspeed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct batch_sizes sizes = rows[i].given;
        struct muster_error err = {0};
        bool changed;
        int result = batch_complete(&sizes, rows[i].ranks, rows[i].strict, &changed, &err);
        if (!rows[i].expected.total) {
            assert_int_equal(result, -1);
            assert_int_equal(err.code, MUSTER_E_INVALID);
            assert_memory_equal(&sizes, &rows[i].given, sizeof sizes);
            continue;
        }
        if (result < 0)
            fail_msg("row %zu: %s", i, err.text);
        if (memcmp(&sizes, &rows[i].expected, sizeof sizes) || changed != rows[i].changed)
            fail_msg("row %zu: %lld = %lld x %lld x %d, changed %d", i, (long long)sizes.total,
                     (long long)sizes.micro, (long long)sizes.accumulation, rows[i].ranks, changed);
    }
}

static void names_the_sizes(void **state)
{
    (void)state;
    struct batch_sizes sizes = {1024, 16, 1};
    struct muster_error err = {0};
    bool changed;
    assert_int_equal(batch_complete(&sizes, 4, true, &changed, &err), -1);
    assert_string_equal(err.text, "train_batch_size 1024 is not train_micro_batch_size_per_gpu 16 x "
                                  "gradient_accumulation_steps 1 x 4 ranks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completes_as_deepspeed),
        cmocka_unit_test(names_the_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
