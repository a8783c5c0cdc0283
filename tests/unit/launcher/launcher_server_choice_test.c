/* launcher_server_choice_test.c - which node serves an elastic job. */
#include <string.h>

#include "launcher/policy/server_choice.h"
#include "tests/support/cmocka_all.h"

static bool local_10(const char *address)
{
    return !strncmp(address, "10.0.0.7", 9) || !strncmp(address, "127.", 4);
}

static const char *at(const void *context, int index)
{
    const char *const *addresses = context;
    return addresses[index];
}

static void every_rule(void **state)
{
    (void)state;
    static const struct {
        const char *endpoint;
        int is_host;
        const char *local_addr;
        enum server_choice first;
        const char *addresses[3];
        bool serves; /* where it was resolved */
    } rows[] = {
        {"10.0.0.7", -1, NULL, SERVER_CHOICE_SERVE, {NULL}, false},
        {"10.0.0.8", -1, NULL, SERVER_CHOICE_JOIN, {NULL}, false},
        {"127.0.0.1", -1, NULL, SERVER_CHOICE_SERVE, {NULL}, false},
        /* pods on one machine: an address is one pod's */
        {"127.0.0.2", -1, "127.0.0.3", SERVER_CHOICE_JOIN, {NULL}, false},
        {"127.0.0.2", -1, "127.0.0.2", SERVER_CHOICE_SERVE, {NULL}, false},
        {"svc", -1, "127.0.0.3", SERVER_CHOICE_RESOLVE, {"127.0.0.2"}, false},
        {"svc", -1, "127.0.0.3", SERVER_CHOICE_RESOLVE, {"127.0.0.2", "127.0.0.3"}, true},
        {"127.0.0.2", -1, "10.0.0.9", SERVER_CHOICE_SERVE, {NULL}, false},
        /* the node with this address serves, with any address of its own for the others */
        {"10.0.0.7", -1, "web-0", SERVER_CHOICE_SERVE, {NULL}, false},
        {"10.0.0.7", -1, "localhost", SERVER_CHOICE_SERVE, {NULL}, false},
        {"10.0.0.7", -1, "10.0.0.71", SERVER_CHOICE_SERVE, {NULL}, false},
        {"10.0.0.7", -1, "127.0.0.1", SERVER_CHOICE_SERVE, {NULL}, false},
        {"127.0.0.1", -1, "localhost", SERVER_CHOICE_SERVE, {NULL}, false},
        {"10.0.0.8", -1, "10.0.0.7", SERVER_CHOICE_JOIN, {NULL}, false},
        {"10.0.0.8", -1, "10.0.0.8", SERVER_CHOICE_SERVE, {NULL}, false}, /* its address outside of this pod
                                                                           */
        {"svc", -1, "10.9.9.9", SERVER_CHOICE_RESOLVE, {"10.0.0.8", "10.0.0.7"}, true},
        {"svc", -1, "other", SERVER_CHOICE_RESOLVE, {"10.0.0.8"}, false},
        /* however it is spelt */
        {"::ffff:10.0.0.9", -1, "10.0.0.9", SERVER_CHOICE_SERVE, {NULL}, false},
        {"fd00::a", -1, "FD00:0:0::A", SERVER_CHOICE_SERVE, {NULL}, false},
        {"fd00::a", -1, "fd00::b", SERVER_CHOICE_JOIN, {NULL}, false},
        {"fe80::1%lo", -1, "fe80::1", SERVER_CHOICE_SERVE, {NULL}, false},
        /* names */
        {"web-0", -1, NULL, SERVER_CHOICE_SERVE, {NULL}, false},
        {"WEB-0.", -1, NULL, SERVER_CHOICE_SERVE, {NULL}, false},
        {"web-0.ns.svc", -1, NULL, SERVER_CHOICE_SERVE, {NULL}, false},
        {"web-0.other.svc", -1, NULL, SERVER_CHOICE_RESOLVE, {"10.0.0.9"}, false},
        {"web-1", -1, NULL, SERVER_CHOICE_RESOLVE, {"10.0.0.8", "10.0.0.7"}, true},
        {"localhost", -1, NULL, SERVER_CHOICE_RESOLVE, {"127.0.0.1"}, true},
        /* is_host decides alone */
        {"10.0.0.8", 1, NULL, SERVER_CHOICE_SERVE, {NULL}, false},
        {"10.0.0.7", 0, NULL, SERVER_CHOICE_JOIN, {NULL}, false},
        {"web-0", 0, NULL, SERVER_CHOICE_RESOLVE, {"10.0.0.7"}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct server_question question = {.endpoint = rows[i].endpoint,
                                           .is_host = rows[i].is_host,
                                           .local_addr = rows[i].local_addr,
                                           .host_name = "web-0",
                                           .full_name = "web-0.ns.svc",
                                           .is_local = local_10};
        if (server_choose(&question) != rows[i].first)
            fail_msg("row %zu (%s)", i, rows[i].endpoint);
        if (rows[i].first == SERVER_CHOICE_RESOLVE &&
            server_choose_resolved(&question, at, rows[i].addresses) != rows[i].serves)
            fail_msg("row %zu (%s), resolved", i, rows[i].endpoint);
        if (question.is_host >= 0)
            assert_int_equal(server_choose_resolved(&question, at, rows[i].addresses), question.is_host);
    }
}

static void an_unknown_host_name_is_nobodys(void **state)
{
    (void)state;
    struct server_question question = {
        .endpoint = "svc", .is_host = -1, .host_name = "", .full_name = "", .is_local = local_10};
    assert_int_equal(server_choose(&question), SERVER_CHOICE_RESOLVE);
}

static void only_agents_of_an_elastic_job_join_who_holds_their_port(void **state)
{
    (void)state;
    assert_true(server_choice_joins_holder(true, false, true));
    assert_false(server_choice_joins_holder(false, false, true)); /* rank 0 serves, or nobody */
    assert_false(server_choice_joins_holder(true, true, true));   /* it was told to serve */
    assert_false(server_choice_joins_holder(true, false, false)); /* another program */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule), cmocka_unit_test(an_unknown_host_name_is_nobodys),
        cmocka_unit_test(only_agents_of_an_elastic_job_join_who_holds_their_port)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
