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
    const struct lr_schedule empty = {.peak = 1, .minimum = 0.1};
    assert_true(near_to(lr_at(&empty, 0), 0.1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warms_up_then_falls),
        cmocka_unit_test(short_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
