/* base_cgroup_test.c - quotas, limits and counters of control groups, from folders that are ours. */
#include "proto/base/cgroup.h"

#include <stdio.h>
#include <stdlib.h>

#include "proto/base/io.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

static char root[FOLDER_PATH];

static int make_root(void **state)
{
    (void)state;
    return folder_make(root, "cgroup");
}

static int remove_root(void **state)
{
    (void)state;
    return folder_remove(root);
}

static void put(const char *path, const char *text)
{
    char full[256];
    (void)snprintf(full, sizeof full, "%s/%s", root, path);
    char *slash = strrchr(full, '/');
    *slash = '\0';
    assert_int_equal(io_make_directories(full, 0700, NULL), 0);
    *slash = '/';
    assert_int_equal(io_write_file_atomic(full, text, strlen(text), 0600, NULL), 0);
}

/* The process's groups. */
static void join(const char *groups)
{
    put("proc/self/cgroup", groups);
}
#define GROUP(path) "sys/fs/cgroup/" path

/* --- texts --- */

static void quota_texts(void **state)
{
    (void)state;
    assert_true(cgroup_quota_second("max 100000\n") == 0);
    assert_true(cgroup_quota_second("250000 100000\n") == 2.5);
    assert_true(cgroup_quota_second("200000") == 2);
    assert_true(cgroup_quota_second("") == 0);
    assert_true(cgroup_quota_second("200000 0") == 0);
    assert_true(cgroup_quota_first("-1\n", "100000\n") == 0);
    assert_true(cgroup_quota_first("150000\n", "100000\n") == 1.5);
    assert_true(cgroup_quota_first("150000\n", "") == 0);
}

static void whole_cores_are_rounded_down_and_at_least_one(void **state)
{
    (void)state;
    assert_int_equal(cgroup_whole_cores(8, 0), 8);
    assert_int_equal(cgroup_whole_cores(8, 2.5), 2);
    assert_int_equal(cgroup_whole_cores(8, 2.99), 2);
    assert_int_equal(cgroup_whole_cores(8, 0.5), 1);
    assert_int_equal(cgroup_whole_cores(2, 16), 2);
    assert_int_equal(cgroup_whole_cores(0, 0), 1);
    assert_in_range(cgroup_cores(), 1, 1 << 18);
}

static void expect_line(const char **at, const char *controller, const char *controllers, const char *path)
{
    struct cgroup_line line;
    assert_true(cgroup_next_line(at, controller, &line));
    assert_int_equal(line.controllers_length, strlen(controllers));
    assert_memory_equal(line.controllers, controllers, strlen(controllers));
    assert_int_equal(line.path_length, strlen(path));
    assert_memory_equal(line.path, path, strlen(path));
    assert_true(line.second == !*controllers);
}

static void lines_that_may_have_a_controller(void **state)
{
    static const char text[] = "rubbish\n:\n12:cpuset:/x\n4:cpu,cpuacct:/box/\n3:hugetlb,memory:/job\n"
                               "2:name=cpu:/no\n0::/pod:1/box";
    struct cgroup_line line;
    const char *at = text;
    (void)state;
    expect_line(&at, "cpu", "cpu,cpuacct", "/box");
    expect_line(&at, "cpu", "", "/pod:1/box");
    assert_false(cgroup_next_line(&at, "cpu", &line));
    at = text;
    expect_line(&at, "memory", "hugetlb,memory", "/job");
    expect_line(&at, "memory", "", "/pod:1/box");
    at = "0::/\n";
    expect_line(&at, "memory", "", "");
}

/* --- CPU time --- */

static double quota_of(const char *groups)
{
    join(groups);
    return cgroup_cpu_quota(root);
}

static void the_smallest_quota_of_the_branch_counts(void **state)
{
    (void)state;
    put(GROUP("pods/cpu.max"), "300000 100000\n");
    put(GROUP("pods/one/cpu.max"), "max 100000\n");
    put(GROUP("pods/two/cpu.max"), "200000 100000\n");
    put(GROUP("cpu.max"), "900000 100000\n");
    assert_true(quota_of("0::/pods/one\n") == 3);
    assert_true(quota_of("0::/pods/two\n") == 2);
    assert_true(quota_of("0::/not/here\n") == 9); /* a container sees its own mount only */
    assert_true(quota_of("0::/\n") == 9);
    assert_true(quota_of("0::/../../host\n") == 9);
    assert_true(quota_of("rubbish\n:\n::\n") == 9);
    assert_true(quota_of("4:memory:/pods\n") == 0);
}

static void version_one_has_a_mount_for_each_controller(void **state)
{
    (void)state;
    put(GROUP("cpu,cpuacct/box/cpu.cfs_quota_us"), "150000\n");
    put(GROUP("cpu,cpuacct/box/cpu.cfs_period_us"), "100000\n");
    assert_true(quota_of("5:memory:/box\n4:cpu,cpuacct:/box\n0::/\n") == 1.5);
    assert_true(quota_of("4:cpuacct:/box\n3:cpuset:/box\n") == 0);
}

static void without_a_list_of_groups_the_mounts_count(void **state)
{
    (void)state;
    assert_true(cgroup_cpu_quota(root) == 0);
    put(GROUP("cpu.max"), "50000 100000\n");
    put(GROUP("memory.max"), "4096\n");
    assert_true(cgroup_cpu_quota(root) == 0.5);
    struct cgroup_memory memory;
    cgroup_memory(root, &memory);
    assert_int_equal(memory.limit, 4096);
    assert_int_equal(memory.used, -1);
    assert_int_equal(memory.left, -1);
}

/* --- processes --- */

static void the_group_that_leaves_the_fewest_processes(void **state)
{
    struct cgroup_pids pids;
    (void)state;
    cgroup_pids(root, &pids);
    assert_int_equal(pids.limit, -1);
    join("5:pids:/pod/box\n0::/pod\n");
    put(GROUP("pids/pod/box/pids.max"), "max\n");
    put(GROUP("pids/pod/box/pids.current"), "7\n");
    cgroup_pids(root, &pids);
    assert_int_equal(pids.limit, -1);
    put(GROUP("pids/pod/pids.max"), "100\n");
    put(GROUP("pids/pod/pids.current"), "90\n");
    put(GROUP("pids/pids.max"), "95\n"); /* it has no count, as a version 2 root has none */
    cgroup_pids(root, &pids);
    assert_true(pids.limit == 100 && pids.used == 90);
    put(GROUP("pids/pod/box/pids.max"), "8\n");
    cgroup_pids(root, &pids);
    assert_true(pids.limit == 8 && pids.used == 7);
    put(GROUP("pids/pod/box/pids.max"), "0\n"); /* none may be started, although some are there */
    cgroup_pids(root, &pids);
    assert_true(pids.limit == 0 && pids.used == 7);
}

/* --- memory --- */

static void what_limits_leave(void **state)
{
    struct cgroup_memory memory;
    (void)state;
    join("0::/pod/box\n");
    put(GROUP("pod/box/memory.max"), "max\n");
    put(GROUP("pod/box/memory.current"), "300\n");
    put(GROUP("pod/memory.max"), "1000\n");
    put(GROUP("pod/memory.current"), "400\n");
    put(GROUP("memory.max"), "5000\n"); /* larger, but nearly full */
    put(GROUP("memory.current"), "4900\n");
    cgroup_memory(root, &memory);
    assert_int_equal(memory.limit, 1000);
    assert_int_equal(memory.used, 400);
    assert_int_equal(memory.left, 100);
    put(GROUP("memory.max"), "max\n");
    put(GROUP("pod/memory.stat"), "anon 5\ninactive_file 77\n");
    cgroup_memory(root, &memory);
    assert_int_equal(memory.left, 677);
    put(GROUP("pod/memory.stat"), "inactive_file 500\n"); /* counted a moment later */
    cgroup_memory(root, &memory);
    assert_int_equal(memory.left, 1000);
    put(GROUP("pod/memory.current"), "1600\n");
    cgroup_memory(root, &memory);
    assert_int_equal(memory.left, 0);
    put(GROUP("pod/memory.max"), "max\n");
    cgroup_memory(root, &memory);
    assert_true(memory.limit == 0 && memory.used == -1 && memory.left == -1);
}

static void what_limits_leave_in_version_one(void **state)
{
    struct cgroup_memory memory;
    (void)state;
    join("4:hugetlb,memory:/job\n0::/\n");
    put(GROUP("memory/job/memory.limit_in_bytes"), "9223372036854771712\n"); /* none */
    put(GROUP("memory/job/memory.usage_in_bytes"), "10\n");
    cgroup_memory(root, &memory);
    assert_true(memory.limit == 0 && memory.left == -1);
    put(GROUP("memory/job/memory.limit_in_bytes"), "1000\n");
    put(GROUP("memory/job/memory.stat"), "inactive_file 1\ntotal_inactive_file 5\n");
    cgroup_memory(root, &memory);
    assert_true(memory.limit == 1000 && memory.used == 10 && memory.left == 995);
}

static int64_t kills_of(const char *groups)
{
    struct cgroup_oom oom;
    join(groups);
    return cgroup_oom(root, &oom) ? oom.kills : -1;
}

static void counters_of_the_own_group(void **state)
{
    struct cgroup_oom oom;
    (void)state;
    assert_int_equal(kills_of("0::/pod/box\n"), -1);
    put(GROUP("pod/box/memory.events"), "low 0\noom 1\noom_kill 3\noom_group_kill 5\n");
    put(GROUP("pod/box/memory.max"), "max\n");
    put(GROUP("pod/box/memory.peak"), "700\n");
    put(GROUP("pod/memory.max"), "1000\n");
    put(GROUP("pod/memory.events"), "oom 4\noom_kill 3\n");
    put(GROUP("memory.events"), "oom_kill 8\n");
    put(GROUP("memory.current"), "55\n");
    join("0::/pod/box\n");
    assert_true(cgroup_oom(root, &oom));
    assert_int_equal(oom.kills, 3);
    assert_int_equal(oom.hits, 5); /* with the groups above: their limits count */
    assert_int_equal(oom.limit, 1000);
    assert_int_equal(oom.peak, 700);
    join("0::/\n");
    assert_true(cgroup_oom(root, &oom));
    assert_int_equal(oom.kills, 8);
    assert_int_equal(oom.peak, 55);
    assert_int_equal(kills_of("0::/elsewhere\n"), 8); /* a container's own mount */
    assert_int_equal(kills_of("nonsense"), -1);
    assert_int_equal(kills_of("2:cpu:/pod/box\n"), -1);
}

static void counters_of_version_one(void **state)
{
    struct cgroup_oom oom;
    (void)state;
    put(GROUP("pod/box/memory.events"), "oom 1\noom_kill 3\n");
    put(GROUP("memory/job/memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 6\n");
    put(GROUP("memory/job/memory.limit_in_bytes"), "9223372036854771712\n");
    put(GROUP("memory/job/memory.failcnt"), "12\n");
    put(GROUP("memory/job/memory.memsw.failcnt"), "3\n");
    put(GROUP("memory/job/memory.max_usage_in_bytes"), "99\n");
    put(GROUP("memory/memory.limit_in_bytes"), "2000\n");
    join("5:cpu:/x\n4:hugetlb,memory:/job\n1:name=systemd:/\n0::/pod/box\n");
    assert_true(cgroup_oom(root, &oom));
    assert_int_equal(oom.kills, 6);
    assert_int_equal(oom.hits, 15);
    assert_int_equal(oom.limit, 2000);
    assert_int_equal(oom.peak, 99);
    assert_false(cgroup_oom_is_full(&oom));
    oom.peak = 1990;
    assert_true(cgroup_oom_is_full(&oom));
    put(GROUP("memory/job/memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\n"); /* an old kernel */
    assert_int_equal(kills_of("4:memory:/job\n"), -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quota_texts),
        cmocka_unit_test(whole_cores_are_rounded_down_and_at_least_one),
        cmocka_unit_test(lines_that_may_have_a_controller),
        TEST(the_smallest_quota_of_the_branch_counts),
        TEST(version_one_has_a_mount_for_each_controller),
        TEST(without_a_list_of_groups_the_mounts_count),
        TEST(the_group_that_leaves_the_fewest_processes),
        TEST(what_limits_leave),
        TEST(what_limits_leave_in_version_one),
        TEST(counters_of_the_own_group),
        TEST(counters_of_version_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
