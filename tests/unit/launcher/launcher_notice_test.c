/* stop_notice.h: the line of a notice, with any text as its reason, and how a worker reports that it listens.
 */
#include "launcher/policy/stop_notice.h"

#include <string.h>

#include "tests/support/cmocka_all.h"

static const struct instant now = {100 * NS_PER_S};

static void expect_line(const struct stop_notice *notice, const char *expected)
{
    scope_buffer out = {0};
    assert_int_equal(stop_notice_format(notice, now, &out), 0);
    assert_string_equal(out.data, expected);
}

static void lines(void **state)
{
    (void)state;
    struct stop_notice notice = {.change = MEMBERSHIP_CHANGE_JOIN,
                                 .round = 3,
                                 .nodes = 2,
                                 .next_nodes = 3,
                                 .deadline = {128998 * NS_PER_MS},
                                 .reason = "1 more node joined"};
    expect_line(&notice, "{\"coming\": \"nodes-join\", \"round\": 3, \"nodes\": 2, \"next_nodes\": 3, "
                         "\"deadline_s\": 28.998, \"deadline_monotonic_ns\": 128998000000, "
                         "\"reason\": \"1 more node joined\"}\n");
    notice.change = MEMBERSHIP_CHANGE_LEAVE;
    notice.next_nodes = 0;
    notice.reason = "a \"b\"\n";
    expect_line(&notice, "{\"coming\": \"node-leaves\", \"round\": 3, \"nodes\": 2, \"next_nodes\": null, "
                         "\"deadline_s\": 28.998, \"deadline_monotonic_ns\": 128998000000, "
                         "\"reason\": \"a \\\"b\\\"\\u000a\"}\n");
    notice.change = MEMBERSHIP_CHANGE_END;
    notice.reason = "";
    expect_line(&notice, "{\"coming\": \"job-stops\", \"round\": 3, \"nodes\": 2, \"next_nodes\": 0, "
                         "\"deadline_s\": 28.998, \"deadline_monotonic_ns\": 128998000000, "
                         "\"reason\": \"\"}\n");
}

/* Control bytes grow to six, and a character is not cut in two. */
static void a_long_reason_is_cut(void **state)
{
    (void)state;
    static const char *const pieces[] = {"a", "\x01", "\"", "\xc3\xa4", "\xf0\x9f\x98\x80", "\xff"};
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        char reason[MUSTER_ERROR_TEXT] = "";
        while (strlen(reason) + strlen(pieces[p]) < sizeof reason)
            strcat(reason, pieces[p]);
        struct stop_notice notice = {.change = MEMBERSHIP_CHANGE_LEAVE,
                                     .round = UINT32_MAX,
                                     .nodes = INT32_MIN,
                                     .next_nodes = INT32_MIN,
                                     .deadline = {INT64_MAX},
                                     .reason = reason};
        scope_buffer out = {.limit = STOP_NOTICE_LINE_LIMIT};
        assert_int_equal(stop_notice_format(&notice, (struct instant){0}, &out), 0);
        assert_string_equal(out.data + out.length - 3, "\"}\n");
        bool broken = strstr(out.data, "\\ufffd") != NULL; /* U+FFFD: of invalid UTF-8 only */
        assert_int_equal(broken, p == 5);
    }
}

static void ready_in_any_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool listens;
    } rows[] = {{"ready\n", true},     {"ready", false},    {"read\n", false},       {"readyy\n", false},
                {"\n\nready\n", true}, {" ready\n", false}, {"x\nready\nx\n", true}, {"rready\n", false},
                {"", false},           {"ready\r\n", false}};
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        struct stop_notice_listener whole = {0}, bytes = {0};
        size_t length = strlen(rows[row].text);
        stop_notice_take(&whole, rows[row].text, length);
        for (size_t i = 0; i < length; i++)
            stop_notice_take(&bytes, rows[row].text + i, 1);
        assert_int_equal(whole.listens, rows[row].listens);
        assert_int_equal(bytes.listens, rows[row].listens);
    }
}

static void words_of_workers_that_stay(void **state)
{
    (void)state;
    struct stop_notice_listener listener = {0};
    stop_notice_take(&listener, "regroup\nheldd\nregroups\n", 23);
    assert_true(listener.regroups && !listener.held && !listener.listens);
    stop_notice_take(&listener, "held\n", 5);
    assert_true(listener.held);
    assert_false(listener.moves || listener.resizes || listener.grows);
    stop_notice_take(&listener, "resize\n", 7);
    assert_true(listener.resizes && !listener.grows);
    stop_notice_take(&listener, "grows\nmoves\n", 12);
    assert_true(listener.grows && listener.moves);
}

static void lines_of_a_regroup(void **state)
{
    (void)state;
    scope_buffer out = {.limit = STOP_NOTICE_LINE_LIMIT};
    assert_int_equal(stop_notice_format_regroup(3, 2 * NS_PER_S, "rank 1 \"failed\"", &out), 0);
    assert_string_equal(out.data, "{\"coming\": \"regroup\", \"round\": 3, \"answer_s\": 2.000, "
                                  "\"reason\": \"rank 1 \\\"failed\\\"\"}\n");
    struct membership_world world = {.id = {7, UINT32_MAX},
                                     .group_rank = 1,
                                     .group_world_size = 2,
                                     .rank_base = 2,
                                     .world_size = 4,
                                     .restart_count = 1,
                                     .master_port = 29400};
    strcpy(world.master_addr, "10.0.0.1");
    out.length = 0;
    assert_int_equal(stop_notice_format_place(&world, 1, 2, &out), 0);
    assert_string_equal(
        out.data,
        "{\"coming\": \"place\", \"round\": 4294967295, \"restarts\": 1, \"rank\": 3, \"world_size\": "
        "4, \"local_rank\": 1, \"local_world_size\": 2, \"node\": 1, \"nodes\": 2, \"master_addr\": "
        "\"10.0.0.1\", \"master_port\": 29400}\n");
    memset(world.master_addr, 'a', sizeof world.master_addr - 1); /* the longest line fits */
    world.master_addr[sizeof world.master_addr - 1] = '\0';
    out.length = 0;
    assert_int_equal(stop_notice_format_place(&world, 1, 2, &out), 0);
    assert_false(out.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),
        cmocka_unit_test(a_long_reason_is_cut),
        cmocka_unit_test(ready_in_any_pieces),
        cmocka_unit_test(words_of_workers_that_stay),
        cmocka_unit_test(lines_of_a_regroup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
