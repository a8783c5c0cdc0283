/* launcher_machine_test.c - cores from affinity and cgroup quotas, GPUs from device files and
 * CUDA_VISIBLE_DEVICES. */
#include "launcher/host/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "tests/support/cmocka_all.h"

static void quota_texts(void **state)
{
    (void)state;
    assert_true(machine_quota_v2("max 100000\n") == 0);
    assert_true(machine_quota_v2("250000 100000\n") == 2.5);
    assert_true(machine_quota_v2("200000") == 2);
    assert_true(machine_quota_v2("") == 0);
    assert_true(machine_quota_v2("200000 0") == 0);
    assert_true(machine_quota_v1("-1\n", "100000\n") == 0);
    assert_true(machine_quota_v1("150000\n", "100000\n") == 1.5);
    assert_true(machine_quota_v1("150000\n", "") == 0);
}

static void whole_cores_at_least_one(void **state)
{
    (void)state;
    assert_int_equal(machine_cores(8, 0), 8);
    assert_int_equal(machine_cores(8, 2.5), 2);
    assert_int_equal(machine_cores(8, 0.5), 1);
    assert_int_equal(machine_cores(2, 16), 2);
    assert_int_equal(machine_cores(0, 0), 1);
}

static void visible_gpus(void **state)
{
    (void)state;
    assert_int_equal(machine_visible_gpus(4, NULL), 4);
    assert_int_equal(machine_visible_gpus(4, ""), 0);
    assert_int_equal(machine_visible_gpus(4, "0,2"), 2);
    assert_int_equal(machine_visible_gpus(4, "0, 2 ,3"), 3);
    assert_int_equal(machine_visible_gpus(4, "-1"), 0);
    assert_int_equal(machine_visible_gpus(4, "1,-1,2"), 1);
    assert_int_equal(machine_visible_gpus(2, "1,7,0"), 1);
    assert_int_equal(machine_visible_gpus(2, "GPU-5ebe9f43,GPU-aaaa"), 2);
    assert_int_equal(machine_visible_gpus(0, "0,1"), 0);
}

static char folder[] = "/tmp/muster_machine_XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512], parent[512];
    (void)snprintf(full, sizeof full, "%s/%s", folder, path);
    (void)snprintf(parent, sizeof parent, "%s", full);
    *strrchr(parent, '/') = 0;
    struct muster_error err = {0};
    if (io_make_directories(parent, 0755, &err) < 0 ||
        io_write_file_atomic(full, text, strlen(text), 0644, &err) < 0)
        fail_msg("%s", err.text);
}

static void the_smallest_quota_of_the_branch_counts(void **state)
{
    (void)state;
    put("v2/pods/cpu.max", "300000 100000\n");
    put("v2/pods/one/cpu.max", "max 100000\n");
    put("v2/pods/two/cpu.max", "200000 100000\n");
    put("v2/cpu.max", "900000 100000\n");
    char root[512];
    (void)snprintf(root, sizeof root, "%s/v2", folder);
    assert_true(machine_quota_read(root, "0::/pods/one\n") == 3);
    assert_true(machine_quota_read(root, "0::/pods/two\n") == 2);
    assert_true(machine_quota_read(root, "0::/not/here\n") == 9); /* a container sees its own mount only */
    assert_true(machine_quota_read(root, "0::/\n") == 9);
    assert_true(machine_quota_read(root, "") == 0);
    assert_true(machine_quota_read(root, "rubbish\n:\n::\n") == 9);
}

static void version_one_has_a_mount_for_each_controller(void **state)
{
    (void)state;
    put("v1/cpu,cpuacct/box/cpu.cfs_quota_us", "150000\n");
    put("v1/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    char root[512];
    (void)snprintf(root, sizeof root, "%s/v1", folder);
    assert_true(machine_quota_read(root, "5:memory:/box\n4:cpu,cpuacct:/box\n0::/\n") == 1.5);
    assert_true(machine_quota_read(root, "4:cpuacct:/box\n3:cpuset:/box\n") == 0);
}

static void device_files(void **state)
{
    (void)state;
    put("dev/nvidia0", "");
    put("dev/nvidia12", "");
    put("dev/nvidiactl", "");
    put("dev/nvidia-uvm", "");
    put("dev/nvidia", "");
    char root[512];
    (void)snprintf(root, sizeof root, "%s/dev", folder);
    assert_int_equal(machine_count_gpus(root), 2);
    assert_int_equal(machine_count_gpus("/nonexistent"), 0);
}

static void this_machine_has_a_core(void **state)
{
    (void)state;
    struct machine machine = {0};
    machine_read("", &machine);
    assert_true(machine.cores >= 1 && machine.gpus == 0);
    assert_true(machine.random[0] != 0 || machine.random[1] != 0);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quota_texts),
        cmocka_unit_test(whole_cores_at_least_one),
        cmocka_unit_test(visible_gpus),
        cmocka_unit_test(the_smallest_quota_of_the_branch_counts),
        cmocka_unit_test(version_one_has_a_mount_for_each_controller),
        cmocka_unit_test(device_files),
        cmocka_unit_test(this_machine_has_a_core),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
