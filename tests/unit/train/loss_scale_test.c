/* The dynamic loss scale: tolerated overflows, when it is halved and doubled, where it ends. */
#include "tests/support/cmocka_all.h"

#include "runtime/train/loss_scale.h"

static const struct loss_scale_options usual = {.initial = 65536, .minimum = 1, .window = 4, .hysteresis = 2};

/* 'x': an overflow. */
static double after(const struct loss_scale_options *options, const char *steps)
{
    struct loss_scale state;
    loss_scale_begin(options, &state);
    for (const char *at = steps; *at; at++)
        assert_int_equal(loss_scale_step(options, *at == 'x', &state, NULL), 0);
    return state.scale;
}

static void the_first_overflow_is_borne(void **state)
{
    (void)state;
    assert_true(after(&usual, "x") == 65536);
    assert_true(after(&usual, "xx") == 32768);
    assert_true(after(&usual, "x.x") == 32768); /* a clean step does not refill */
    assert_true(after(&usual, "xxx") == 16384); /* nothing is left */
    struct loss_scale_options refilled = usual;
    refilled.consecutive = true;
    assert_true(after(&refilled, "x.x") == 65536);
}

static void a_clean_window_doubles(void **state)
{
    (void)state;
    assert_true(after(&usual, "....") == 65536); /* the first doubling is on the step after the window */
    assert_true(after(&usual, ".....") == 131072);
    assert_true(after(&usual, "xx....") == 32768);
    assert_true(after(&usual, "xx.....") == 65536);
    assert_true(after(&usual, "xx.....x") == 65536); /* the doubling has refilled */
}

static void the_minimum_ends_it(void **state)
{
    (void)state;
    const struct loss_scale_options low = {.initial = 3, .minimum = 2, .window = 4, .hysteresis = 1};
    struct loss_scale scale;
    struct muster_error err = {0};
    loss_scale_begin(&low, &scale);
    assert_int_equal(loss_scale_step(&low, true, &scale, &err), 0);
    assert_true(scale.scale == 2); /* not 1.5 */
    assert_int_equal(loss_scale_step(&low, true, &scale, &err), -1);
    assert_string_equal(err.text,
                        "a gradient is not finite in step 2 although the loss scale is at its minimum, 2: "
                        "lower the learning rate, or train in bf16");
}

static void a_fixed_one_stays(void **state)
{
    (void)state;
    const struct loss_scale_options fixed = {.fixed = 128};
    assert_true(after(&fixed, "xxxx......") == 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_overflow_is_borne),
        cmocka_unit_test(a_clean_window_doubles),
        cmocka_unit_test(the_minimum_ends_it),
        cmocka_unit_test(a_fixed_one_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
