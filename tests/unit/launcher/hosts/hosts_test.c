/* hosts_test.c - host lists, host files, orders, and how hosts are divided. */
#include "launcher/hosts/hosts_message.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

static void assert_hosts(const struct host_list *list, const char *expected)
{
    struct buffer shown = {0};
    for (int i = 0; i < list->count; i++)
        buffer_printf(&shown, "%s%s*%lld", i ? " " : "", list->entries[i].name,
                      (long long)list->entries[i].slots);
    assert_string_equal(shown.data ? shown.data : "", expected);
    buffer_free(&shown);
}

static void flags(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"a", "a*0"},
        {"a:8,b:8", "a*8 b*8"},
        {"a,b:2,a:3", "a*4 b*2"},
        {"me@10.0.0.1:4096", "me@10.0.0.1*4096"},
        {"[fd00::1]", "fd00::1*0"},
        {"[fd00::1]:8,me@[fe80::2%lo]:4,[fd00::1]", "fd00::1*9 me@fe80::2%lo*4"}};
    struct muster_error err = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct host_list list = {0};
        assert_int_equal(host_list_parse(good[i][0], &list, &err), 0);
        assert_hosts(&list, good[i][1]);
        host_list_free(&list);
    }
    static const char *const bad[] = {
        "",           "a,",         "a:",         "a:0",      "a:4097",     "-oProxyCommand=x", "a b",
        "a;b",        "a:x",        "a:8:8",      "@host",    "user@",      "a:4000,a:4000",    "fd00::1",
        "[fd00::1",   "[fd00::1]8", "[fd00::1]:", "[a]",      "[10.0.0.1]", "@[::1]",           "-o[::1]",
        "me@[::1];x", "[]",         "::1",        "fd00::1:8"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct host_list list = {0};
        if (host_list_parse(bad[i], &list, &err) == 0)
            fail_msg("'%s' is accepted", bad[i]);
        host_list_free(&list);
    }
}

static int parse_file(const char *text, struct host_list *list, struct muster_error *err)
{
    *list = (struct host_list){0};
    return host_list_parse_file("hosts", text, strlen(text), list, err);
}

static void files(void **state)
{
    (void)state;
    struct host_list list;
    struct muster_error err = {0};
    assert_int_equal(
        parse_file("# DeepSpeed\nworker-1 slots=4\r\n\n  worker-2\tslots=8 # more\n", &list, &err), 0);
    assert_hosts(&list, "worker-1*4 worker-2*8");
    assert_string_equal(host_entry_address(&list.entries[1]), "worker-2");
    host_list_free(&list);
    assert_int_equal(parse_file("aa slots=2 max_slots=4\nbb:3\ncc\nroot@cc max-slots=9", &list, &err), 0);
    assert_hosts(&list, "aa*2 bb*3 cc*0 root@cc*0");
    assert_string_equal(host_entry_address(&list.entries[3]), "cc");
    host_list_free(&list);
    assert_int_equal(parse_file("[fd00::1] slots=2\n[fd00::2]:3\nroot@[fd00::3]", &list, &err), 0);
    assert_hosts(&list, "fd00::1*2 fd00::2*3 root@fd00::3*0");
    host_list_free(&list);
    assert_int_equal(parse_file("\xEF\xBB\xBFw1 slots=2\n", &list, &err), 0); /* a byte order mark */
    assert_hosts(&list, "w1*2");
    host_list_free(&list);
    static const char *const bad[][2] = {{"", "hosts names no host"},
                                         {"a slots=1\nb slot=2\n", "hosts:2: 'slot=2' is unknown"},
                                         {"a\nb slots=none\n", "hosts:2: 'none' is not a number of slots"},
                                         {"fd00::1 slots=2\n", "or an IPv6 address in brackets"},
                                         {"-x\n", "hosts:1: '-x' is not a host"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(parse_file(bad[i][0], &list, &err), -1);
        assert_non_null(strstr(err.text, bad[i][1]));
        host_list_free(&list);
    }
}

static int round_trip(void *context)
{
    struct hosts_message sent = {.first_rank = 7,
                                 .secret = (char *)"s\n",
                                 .directory = (char *)"/a b",
                                 .subcommand = (char *)"run",
                                 .ssh = (char *)"ssh -p 1"},
                         got = {0};
    struct host_entry hosts[] = {{(char *)"a", 8}, {(char *)"u@b", 0}, {(char *)"u@fd00::1", 3}};
    char *env[] = {(char *)"A=1\n2", NULL}, *argv[] = {(char *)"", (char *)"--x", NULL};
    struct buffer out = {0};
    struct muster_error err = {0};
    size_t used = 0;
    (void)context;
    sent.hosts = (struct host_list){hosts, 3};
    sent.env = (struct text_list){env, 1, 1};
    sent.argv = (struct text_list){argv, 2, 2};
    int result = hosts_message_write(&sent, &out);
    size_t whole = out.length;
    for (size_t part = 0; !result && part < whole; part++) {
        assert_int_equal(hosts_message_read(out.data, part, &got, &used, &err), 0);
        hosts_message_free(&got);
    }
    if (!result && buffer_text(&out, "s15\n") == 0)
        result = hosts_message_read(out.data, out.length, &got, &used, &err) == 1 ? 0 : -1;
    else
        result = -1;
    if (!result) {
        assert_int_equal(used, whole);
        assert_int_equal(got.first_rank, 7);
        assert_string_equal(got.directory, "/a b");
        assert_string_equal(got.env.items[0], "A=1\n2");
        assert_true(got.argv.count == 2 && !*got.argv.items[0]);
        assert_string_equal(got.hosts.entries[1].name, "u@b");
        assert_string_equal(got.hosts.entries[2].name, "u@fd00::1");
        assert_string_equal(host_entry_address(&got.hosts.entries[2]), "fd00::1");
        assert_true(got.hosts.count == 3 && got.hosts.entries[0].slots == 8 &&
                    got.hosts.entries[1].slots == 0);
    }
    hosts_message_free(&got);
    buffer_free(&out);
    return result;
}

static void orders_are_read_as_written(void **state)
{
    (void)state;
    assert_int_equal(round_trip(NULL), 0);
    faults_sweep(round_trip, NULL);
}

static void malformed_orders_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"GET / HTTP/1.0\r\n",           "muster-hosts-2 5\n",
                                      "muster-hosts-1 x\n",           "muster-hosts-1 \n",
                                      "muster-hosts-1 99999999999\n", "muster-hosts-1 2\nR0xx"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hosts_message message;
        struct muster_error err = {0};
        size_t used;
        if (hosts_message_read(bad[i], strlen(bad[i]), &message, &used, &err) != -1)
            fail_msg("'%s' is accepted", bad[i]);
        assert_non_null(strstr(err.text, "is the same version installed"));
        hosts_message_free(&message);
    }
}

static void hosts_are_divided_without_a_gap(void **state)
{
    (void)state;
    for (int hosts = 0; hosts <= 3000; hosts += hosts < 100 ? 1 : 97) {
        int first = 0, count = 0, next = 0, most = 0, least = hosts;
        int connections = hosts_divide(hosts, 0, &first, &count);
        assert_int_equal(connections, hosts < HOSTS_FANOUT ? hosts : HOSTS_FANOUT);
        for (int i = 0; i < connections; i++) {
            assert_int_equal(hosts_divide(hosts, i, &first, &count), connections);
            assert_int_equal(first, next);
            next += count;
            most = count > most ? count : most;
            least = count < least ? count : least;
        }
        assert_int_equal(next, hosts);
        assert_true(most - least <= 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags),
        cmocka_unit_test(files),
        cmocka_unit_test(orders_are_read_as_written),
        cmocka_unit_test(malformed_orders_are_refused),
        cmocka_unit_test(hosts_are_divided_without_a_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
