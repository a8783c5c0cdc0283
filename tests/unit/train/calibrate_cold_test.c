/* How much is passed over before a call is measured: the cache that the system describes, a rank's part of
 * it, and at most the step's memory in addition to the call's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "runtime/calibrate/calibrate_cold.h"
#include "runtime/calibrate/calibrate_internal.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

static const int64_t mib = 1 << 20;

static void the_size_of_a_cache_is_read(void **state)
{
    (void)state;
    assert_int_equal(calibrate_cache_size("491520K\n"), 480 * mib);
    assert_int_equal(calibrate_cache_size("32M"), 32 * mib);
    assert_int_equal(calibrate_cache_size("512"), 512);
    assert_int_equal(calibrate_cache_size("4G"), 1024 * mib); /* the most */
    assert_int_equal(calibrate_cache_size("99999999999999999999K"), 1024 * mib);
    assert_int_equal(calibrate_cache_size(""), 0);
    assert_int_equal(calibrate_cache_size("-1K"), 0);
    assert_int_equal(calibrate_cache_size("none"), 0);
}

static void put_size(const char *root, int index, const char *text)
{
    char path[256];
    struct muster_error err = {0};
    (void)snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/cache/index%d", root, index);
    if (io_make_directories(path, 0755, &err) < 0)
        fail_msg("%s", err.text);
    (void)snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/cache/index%d/size", root, index);
    if (io_write_file_atomic(path, text, strlen(text), 0644, &err) < 0)
        fail_msg("%s", err.text);
}

static void the_largest_cache_counts(void **state)
{
    (void)state;
    char root[FOLDER_PATH];
    assert_int_equal(folder_make(root, "cold"), 0);
    assert_int_equal(calibrate_cache_bytes(root), 64 * mib); /* none is described */
    put_size(root, 0, "48K\n");
    put_size(root, 2, "2048K\n");
    put_size(root, 3, "24576K\n");
    put_size(root, 4, "\n");
    assert_int_equal(calibrate_cache_bytes(root), 24 * mib);
    assert_int_equal(folder_remove(root), 0);
}

static void no_more_is_passed_over_than_a_step_does(void **state)
{
    (void)state;
    assert_int_equal(calibrate_cold_bytes(480 * mib, 0, 1), 480 * mib);
    assert_int_equal(calibrate_cold_bytes(480 * mib, 8192 * mib, 4), 120 * mib);
    assert_int_equal(calibrate_cold_bytes(480 * mib, 800 * mib, 2), 100 * mib); /* little memory */
    assert_int_equal(calibrate_pass_bytes(480 * mib, 2048 * mib, 64 * mib), 480 * mib);
    assert_int_equal(calibrate_pass_bytes(480 * mib, 40 * mib, 30 * mib), 10 * mib);
    assert_int_equal(calibrate_pass_bytes(480 * mib, 40 * mib, 50 * mib), 0);
}

static void the_middle_of_two_is_their_mean(void **state)
{
    (void)state;
    double one[] = {3}, two[] = {4, 1}, five[] = {5, 100, 1, 4, 2};
    assert_true(calibrate_median(one, 1) == 3);
    assert_true(calibrate_median(two, 2) == 2.5);
    assert_true(calibrate_median(five, 5) == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_size_of_a_cache_is_read),
        cmocka_unit_test(the_largest_cache_counts),
        cmocka_unit_test(no_more_is_passed_over_than_a_step_does),
        cmocka_unit_test(the_middle_of_two_is_their_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
