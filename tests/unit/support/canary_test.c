/* canary_test.c - the machine's factor from invented probes. */
#include "tests/support/canary.h"
#include "tests/support/cmocka_all.h"

static void note(struct canary *canary, int count, int64_t late_ms, int64_t work_ms)
{
    for (int i = 0; i < count; i++)
        canary_note(canary, late_ms * NS_PER_MS, work_ms * NS_PER_MS);
}

static void without_probes_it_is_one(void **state)
{
    (void)state;
    const struct canary canary = {0};
    assert_float_equal((float)canary_factor(&canary), (float)(1), 1e-4F);
    assert_float_equal((float)canary_slowest(&canary), (float)(1), 1e-4F);
}

static void it_is_the_mean_by_the_fastest_work(void **state)
{
    (void)state;
    struct canary canary = {0};
    note(&canary, 1, 0, 2);
    assert_float_equal((float)canary_factor(&canary), (float)(1), 1e-4F);
    note(&canary, 1, 6, 4); /* 2 and 10 */
    assert_float_equal((float)canary_factor(&canary), (float)(3), 1e-4F);
    assert_float_equal((float)canary_slowest(&canary), (float)(3), 1e-4F); /* too few for a stretch */
    assert_int_equal(canary.largest_ns, 6 * NS_PER_MS);
    note(&canary, 1, 0, 1); /* a faster one: 2, 10 and 1 in units of 1 */
    assert_float_equal((float)canary_factor(&canary), (float)(13.0 / 3), 1e-4F);
}

static void the_slowest_stretch_stays(void **state)
{
    (void)state;
    struct canary canary = {0};
    note(&canary, 5 * CANARY_WINDOW, 0, 1);
    note(&canary, CANARY_WINDOW, 7, 1); /* the whole of a stretch, wherever it begins */
    assert_float_equal((float)canary_slowest(&canary), (float)(8), 1e-4F);
    note(&canary, 6 * CANARY_WINDOW, 0, 1);
    assert_float_equal((float)canary_slowest(&canary), (float)(8), 1e-4F);
    assert_float_equal((float)canary_factor(&canary), (float)(1 + 7.0 / 12), 1e-4F);
    assert_int_equal(canary.probes, 12 * CANARY_WINDOW);
}

static void one_wait_is_part_of_its_stretch(void **state)
{
    (void)state;
    struct canary canary = {0};
    note(&canary, CANARY_WINDOW + 3, 0, 1);
    note(&canary, 1, 500, 1);
    note(&canary, CANARY_WINDOW + 3, 0, 1);
    assert_float_equal((float)canary_slowest(&canary), (float)(1 + 500.0 / CANARY_WINDOW), 1e-4F);
    assert_int_equal(canary.largest_ns, 500 * NS_PER_MS);
}

static void a_probe_takes_time_and_is_noted(void **state)
{
    (void)state;
    struct canary canary = {0};
    canary_probe(&canary, instant_add(clock_now(NULL), -5 * NS_PER_MS));
    assert_int_equal(canary.probes, 1);
    assert_true(canary.largest_ns >= 5 * NS_PER_MS);
    assert_true(canary.fastest_ns > 0);
    assert_true(canary.total_ns >= canary.fastest_ns + 5 * NS_PER_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_probes_it_is_one),
        cmocka_unit_test(it_is_the_mean_by_the_fastest_work),
        cmocka_unit_test(the_slowest_stretch_stays),
        cmocka_unit_test(one_wait_is_part_of_its_stretch),
        cmocka_unit_test(a_probe_takes_time_and_is_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
