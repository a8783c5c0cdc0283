/* launcher_rdzv_conf_test.c - the list of --rdzv-conf: accepted keys, refused keys, ignored keys. */
#include "launcher/config/config.h"

#include "proto/base/error.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

static void values_are_typed(void **state)
{
    (void)state;
    struct rdzv_conf c;
    scope_buffer aside = {0};
    assert_int_equal(rdzv_conf_parse("join_timeout=5, last_call_timeout = 1.5,timeout=900,read_timeout=60,"
                                     "keep_alive_interval=2,keep_alive_max_attempt=3,rank=4,is_host=True,"
                                     "store_type=tcp,join_timeout=6",
                                     "--rdzv-conf", &c, &aside, NULL),
                     0);
    assert_true(c.join_timeout == 6 && c.last_call_timeout == 1.5 && c.timeout == 900);
    assert_true(c.rank == 4 && c.is_host == 1);
    assert_string_equal(aside.data, "read_timeout, keep_alive_interval, keep_alive_max_attempt");
}

static void nothing_given_is_nothing_set(void **state)
{
    (void)state;
    static const char *const texts[] = {NULL, "", "  ", "''", "\"\""};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct rdzv_conf c;
        scope_buffer aside = {0};
        assert_int_equal(rdzv_conf_parse(texts[i], "--rdzv-conf", &c, &aside, NULL), 0);
        assert_true(c.join_timeout < 0 && c.timeout < 0 && c.rank < 0 && c.is_host < 0 && aside.length == 0);
    }
}

/* Upstream's own tests leave the quotes in. */
static void quotes_around_the_list_pass(void **state)
{
    (void)state;
    static const char *const texts[] = {"'join_timeout=5,last_call_timeout=1,timeout=5'",
                                        "\"join_timeout=5,last_call_timeout=1,timeout=5\"",
                                        " ' join_timeout=5,last_call_timeout=1,timeout=5 ' "};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct rdzv_conf c;
        scope_buffer aside = {0};
        assert_int_equal(rdzv_conf_parse(texts[i], "--rdzv-conf", &c, &aside, NULL), 0);
        assert_true(c.join_timeout == 5 && c.last_call_timeout == 1 && c.timeout == 5);
    }
}

static void what_means_nothing_here_is_named_once(void **state)
{
    (void)state;
    struct rdzv_conf c;
    scope_buffer aside = {0};
    assert_int_equal(
        rdzv_conf_parse(
            "foo=1,foo=2,join_timout=3,close_timeout=30,bar=a=b,fo=1,join_timout=4,use_libuv=1,timeout=3",
            "PET_RDZV_CONF", &c, &aside, NULL),
        0);
    assert_string_equal(aside.data,
                        "foo, join_timout (did you mean join_timeout?), close_timeout, bar, fo, use_libuv");
    assert_true(c.timeout == 3);
}

static void wrong_entries_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
        int code;
    } rows[] = {
        {"a", "--rdzv-conf: 'a' has no value; it reads key=value,key=value", MUSTER_E_INVALID},
        {"a=", "--rdzv-conf: 'a' has no value; it reads key=value,key=value", MUSTER_E_INVALID},
        {"=1", "--rdzv-conf: an entry has no key; it reads key=value,key=value", MUSTER_E_INVALID},
        {"a=1,", "--rdzv-conf: an entry has no key; it reads key=value,key=value", MUSTER_E_INVALID},
        {",", "--rdzv-conf: an entry has no key; it reads key=value,key=value", MUSTER_E_INVALID},
        {"join_timeout=soon",
         "--rdzv-conf: join_timeout: 'soon' is not a number of seconds above 0 and up to 1e+07",
         MUSTER_E_INVALID},
        {"timeout=0", "--rdzv-conf: timeout: '0' is not a number of seconds above 0 and up to 1e+07",
         MUSTER_E_INVALID},
        {"close_timeout=-1",
         "--rdzv-conf: close_timeout: '-1' is not a number of seconds above 0 and up to 1e+07",
         MUSTER_E_INVALID},
        {"rank=-1", "--rdzv-conf: rank: '-1' is not a whole number of 0 to 2147483647", MUSTER_E_INVALID},
        {"keep_alive_max_attempt=0",
         "--rdzv-conf: keep_alive_max_attempt: '0' is not a whole number of 1 to 2147483647",
         MUSTER_E_INVALID},
        {"is_host=maybe", "--rdzv-conf: is_host: 'maybe' is not true or false", MUSTER_E_INVALID},
        {"store_type=file",
         "--rdzv-conf: store_type=file is not supported; leave it out and give a host in --rdzv-endpoint or "
         "--master-addr",
         MUSTER_E_UNSUPPORTED},
        {"store_type=zk", "--rdzv-conf: store_type: 'zk' is not tcp", MUSTER_E_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rdzv_conf c;
        struct muster_error err = {0};
        scope_buffer aside = {0};
        assert_int_equal(rdzv_conf_parse(rows[i].text, "--rdzv-conf", &c, &aside, &err), -1);
        assert_string_equal(err.text, rows[i].error);
        assert_int_equal(err.code, rows[i].code);
    }
}

static int parse_once(void *context)
{
    (void)context;
    struct rdzv_conf c;
    scope_buffer aside = {0};
    return rdzv_conf_parse("x=1,timeout=3,y=2", "--rdzv-conf", &c, &aside, NULL);
}

static void no_memory_leaks_nothing(void **state)
{
    (void)state;
    faults_sweep(parse_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_typed),
        cmocka_unit_test(nothing_given_is_nothing_set),
        cmocka_unit_test(quotes_around_the_list_pass),
        cmocka_unit_test(what_means_nothing_here_is_named_once),
        cmocka_unit_test(wrong_entries_are_named),
        cmocka_unit_test(no_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
