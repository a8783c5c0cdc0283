/* host_threads_test.c - how many threads a rank takes where nobody says. */
#include "tests/support/cmocka_all.h"

#include "runtime/device/host_threads.h"

static void the_environment_comes_first(void **state)
{
    (void)state;
    assert_int_equal(host_threads_of("3", 64, 2), 3);
    assert_int_equal(host_threads_of("4,2", 64, 2), 4);
    const char *const useless[] = {"", "0", "-1", "x", "5000000000", "1025", "2x"};
    for (size_t i = 0; i < sizeof useless / sizeof *useless; i++)
        assert_int_equal(host_threads_of(useless[i], 64, 2), 32);
}

static void else_ranks_share_the_cpus(void **state)
{
    (void)state;
    assert_int_equal(host_threads_of(NULL, 64, 8), 8);
    assert_int_equal(host_threads_of(NULL, 3, 8), 1);
    assert_int_equal(host_threads_of(NULL, 1 << 20, 1), HOST_THREADS_MAX);
    assert_true(host_threads(1) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_comes_first),
        cmocka_unit_test(else_ranks_share_the_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
