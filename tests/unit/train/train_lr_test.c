/* The learning rate's schedule at its corners. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdbool.h>

#include "runtime/train/lr.h"

static bool near_to(double a, double b)
{
    return fabs(a - b) <= 1e-12 * (fabs(a) + fabs(b));
}

static void warms_up_then_falls(void **state)
{
    (void)state;
    const struct lr_schedule s = {.peak = 3e-3, .minimum = 3e-4, .warmup_steps = 10, .total_steps = 111};
    assert_true(near_to(lr_at(&s, 0), 3e-4)); /* peak / 10 */
    assert_true(near_to(lr_at(&s, 9), 3e-3));
    assert_true(near_to(lr_at(&s, 10), 3e-3));
    assert_true(near_to(lr_at(&s, 60), (3e-3 + 3e-4) / 2)); /* half way: cos(pi/2) */
    assert_true(near_to(lr_at(&s, 110), 3e-4));
    assert_true(near_to(lr_at(&s, 5000), 3e-4));
    assert_true(near_to(lr_at(&s, -3), lr_at(&s, 0)));
    for (int64_t step = 10; step < 110; step++)
        assert_true(lr_at(&s, step + 1) < lr_at(&s, step));
}

static void short_runs(void **state)
{
    (void)state;
    const struct lr_schedule none = {.peak = 1, .minimum = 0.1, .warmup_steps = 0, .total_steps = 1};
    assert_true(near_to(lr_at(&none, 0), 1));
    assert_true(near_to(lr_at(&none, 1), 0.1));
    const struct lr_schedule all = {.peak = 1, .minimum = 0.1, .warmup_steps = 4, .total_steps = 4};
    assert_true(near_to(lr_at(&all, 3), 1));
    assert_true(near_to(lr_at(&all, 4), 0.1));
    const struct lr_schedule one = {.peak = 1, .minimum = 0.1, .warmup_steps = 2, .total_steps = 3};
    assert_true(
        near_to(lr_at(&one, 2), 1)); /* the one step after the warm-up is both the first and the last */
    assert_true(near_to(lr_at(&one, 3), 0.1));
    const struct lr_schedule two = {.peak = 1, .minimum = 0.1, .warmup_steps = 2, .total_steps = 4};
    assert_true(near_to(lr_at(&two, 2), 1));
    assert_true(near_to(lr_at(&two, 3), 0.1));
    const struct lr_schedule empty = {.peak = 1, .minimum = 0.1};
    assert_true(near_to(lr_at(&empty, 0), 0.1));
}

static void each_kind_at_its_corners(void **state)
{
    (void)state;
    const struct lr_schedule linear = {.kind = LR_LINEAR,
                                       .peak = 1,
                                       .minimum = 0.1,
                                       .warmup_steps = 10,
                                       .total_steps = 101,
                                       .decay_steps = 40};
    assert_true(near_to(lr_at(&linear, 30), 0.55));
    assert_true(near_to(lr_at(&linear, 50), 0.1));
    assert_true(near_to(lr_at(&linear, 100), 0.1));
    const struct lr_schedule wsd = {.kind = LR_WSD, .peak = 1, .warmup_steps = 10, .total_steps = 100};
    assert_true(near_to(lr_at(&wsd, 79), 1));
    assert_true(near_to(lr_at(&wsd, 84), 0.5)); /* 5 of the last 20 */
    assert_true(lr_at(&wsd, 99) == 0);
    const struct lr_schedule warm = {.kind = LR_WARMUP, .peak = 1, .warmup_minimum = 0.2, .warmup_steps = 4};
    assert_true(near_to(lr_at(&warm, 0), 0.2)); /* before its first iteration */
    assert_true(near_to(lr_at(&warm, 1), 0.2)); /* ln 1 */
    assert_true(near_to(lr_at(&warm, 2), 0.6)); /* ln 2 / ln 4 */
    assert_true(near_to(lr_at(&warm, 5), 1));
    const struct lr_schedule cycle = {.kind = LR_ONE_CYCLE,
                                      .peak = 1,
                                      .minimum = 0.2,
                                      .warmup_steps = 4,
                                      .decay_steps = 8,
                                      .decay_rate = 1,
                                      .decay_interval = 1,
                                      .momentum_low = 0.8,
                                      .momentum_high = 0.9};
    assert_true(near_to(lr_at(&cycle, 4), 1));
    assert_true(near_to(lr_momentum_at(&cycle, 4, 0.5), 0.8));
    assert_true(near_to(lr_at(&cycle, 8), 0.6));
    assert_true(near_to(lr_momentum_at(&cycle, 8, 0.5), 0.85));
    assert_true(near_to(lr_at(&cycle, 13), 0.1)); /* one interval after the cycle */
    assert_true(lr_momentum_at(&wsd, 3, 0.5) == 0.5);
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    static const struct {
        struct lr_schedule schedule;
        const char *error;
    } rows[] = {
        {{.kind = LR_COSINE, .peak = 1, .minimum = 2}, "cosine: the minimum 2 is above the learning rate 1"},
        {{.kind = LR_WSD, .peak = 1, .warmup_steps = 90, .total_steps = 100},
         "wsd: 90 steps of warm-up and 20 of decay are more than the 100 there are"},
        {{.kind = LR_ONE_CYCLE, .peak = 1}, "OneCycle needs at least 1 step of warm-up"},
        {{.kind = LR_WARMUP_DECAY, .peak = 1, .warmup_minimum = 3, .warmup_steps = 1},
         "WarmupDecayLR: the warm-up begins at 3, above the learning rate 1"},
        {{.kind = LR_ONE_CYCLE, .peak = 1, .warmup_steps = 1, .momentum_low = 0.9, .momentum_high = 0.8},
         "OneCycle: the low momentum 0.9 is above the high one 0.8"},
        {{.kind = LR_ONE_CYCLE, .peak = 1, .warmup_steps = 1, .decay_rate = 0.5},
         "OneCycle: a decay behind the cycle needs the number of steps it counts (decay interval)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct muster_error err = {0};
        assert_int_equal(lr_check(&rows[i].schedule, &err), -1);
        assert_string_equal(err.text, rows[i].error);
    }
    const struct lr_schedule constant = {.kind = LR_CONSTANT, .peak = 1, .minimum = 2};
    assert_int_equal(lr_check(&constant, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warms_up_then_falls),
        cmocka_unit_test(short_runs),
        cmocka_unit_test(each_kind_at_its_corners),
        cmocka_unit_test(what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
