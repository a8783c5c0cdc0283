/* slurm_test.c - Slurm's compressed lists of hosts and tasks: counted, and any one found by its index. */
#include "proto/slurm.h"

#include <stdio.h>

#include "proto/base/error.h"
#include "tests/support/cmocka_all.h"

static void hosts_of_lists(void **state)
{
    (void)state;
    static const struct {
        const char *list, *hosts;
    } rows[] = {
        {"node1", "node1"},
        {"a,b,c", "a b c"},
        {"node[1-3]", "node1 node2 node3"},
        {"node[08-11]", "node08 node09 node10 node11"},
        {"node[001,003-004],login", "node001 node003 node004 login"},
        {"rack[1-2]n[1-2]-ib,x", "rack1n1-ib rack1n2-ib rack2n1-ib rack2n2-ib x"},
        {"g[7].cluster.local", "g7.cluster.local"},
        {"[10-11]", "10 11"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char all[256] = "", host[64];
        int64_t count = slurm_host_count(rows[i].list, NULL);
        for (int64_t k = 0; k < count; k++) {
            assert_int_equal(slurm_host_at(rows[i].list, k, host, sizeof host, NULL), 0);
            (void)snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", k ? " " : "", host);
        }
        assert_string_equal(all, rows[i].hosts);
        assert_int_equal(slurm_host_at(rows[i].list, count, host, sizeof host, NULL), -1);
        assert_int_equal(slurm_host_at(rows[i].list, -1, host, sizeof host, NULL), -1);
    }
}

static void malformed_lists(void **state)
{
    (void)state;
    static const char *const lists[] = {"",
                                        ",",
                                        "a,",
                                        ",a",
                                        "a[",
                                        "a[]",
                                        "a[1",
                                        "a[1-",
                                        "a[1-]",
                                        "a[3-1]",
                                        "a]",
                                        "a[1,]",
                                        "a[1-2,",
                                        "a[-1]",
                                        "a[x]",
                                        "a[1 2]",
                                        "a[1][2-1]",
                                        "a,,b",
                                        "a[0-9999999999999999999]",
                                        "a[1-1000][1-1000][1-1000]",
                                        "a[0-1000000]"};
    char host[64];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct muster_error err = {0};
        if (slurm_host_count(lists[i], &err) != -1)
            fail_msg("'%s' has hosts", lists[i]);
        assert_non_null(strstr(err.text, "is not a list of hosts as Slurm writes it"));
        assert_int_equal(slurm_host_at(lists[i], 100, host, sizeof host, NULL), -1);
    }
}

static void long_names_are_rejected_not_cut(void **state)
{
    (void)state;
    char host[8];
    struct muster_error err = {0};
    assert_int_equal(slurm_host_at("node[100-101]", 1, host, sizeof host, &err), 0);
    assert_string_equal(host, "node101");
    assert_int_equal(slurm_host_at("nodes[100-101]", 1, host, sizeof host, &err), -1);
    assert_string_equal(err.text, "a host name in 'nodes[100-101]' is longer than 7 bytes");
}

static void numbers_have_up_to_18_digits(void **state)
{
    (void)state;
    char host[64];
    assert_int_equal(slurm_host_count("n[000000000000000008-000000000000000010]", NULL), 3);
    assert_int_equal(slurm_host_at("n[000000000000000008-000000000000000010]", 2, host, sizeof host, NULL),
                     0);
    assert_string_equal(host, "n000000000000000010");
    assert_int_equal(slurm_host_at("[999999999999999999]", 0, host, sizeof host, NULL), 0);
    assert_string_equal(host, "999999999999999999");
    assert_int_equal(slurm_host_count("n[0000000000000000001]", NULL), -1);
}

static void large_lists_are_not_expanded(void **state)
{
    (void)state;
    char host[64];
    assert_int_equal(slurm_host_count("n[000000-999999]", NULL), SLURM_HOSTS_LIMIT);
    assert_int_equal(slurm_host_at("n[000000-999999]", 123456, host, sizeof host, NULL), 0);
    assert_string_equal(host, "n123456");
}

static void tasks_of_nodes(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        int64_t index, tasks;
    } rows[] = {{"2", 0, 2},       {"2(x3),1", 0, 2}, {"2(x3),1", 2, 2},
                {"2(x3),1", 3, 1}, {"4,2(x2)", 2, 2}, {"2(x3),1", 4, -1},
                {"2", 1, -1},      {"2", -1, -1},     {"", 0, -1},
                {"0", 0, -1},      {"x", 0, -1},      {"2(x", 0, -1},
                {"2(x2", 0, -1},   {"2(x0)", 0, -1},  {"2,", 1, -1},
                {"2(x2)3", 0, -1}, {"2(3)", 0, -1},   {"2(x99999999999999999999)", 0, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct muster_error err = {0};
        if (slurm_tasks_at(rows[i].list, rows[i].index, &err) != rows[i].tasks)
            fail_msg("%s, node %lld: %s", rows[i].list, (long long)rows[i].index, err.text);
        assert_true((rows[i].tasks < 0) == (err.code != 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_of_lists),
        cmocka_unit_test(malformed_lists),
        cmocka_unit_test(long_names_are_rejected_not_cut),
        cmocka_unit_test(numbers_have_up_to_18_digits),
        cmocka_unit_test(large_lists_are_not_expanded),
        cmocka_unit_test(tasks_of_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
