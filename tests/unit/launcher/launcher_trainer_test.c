/* launcher_trainer_test.c - progress for Kubeflow Trainer: the figures of a board, and URLs. The exchange
 * itself: tests/e2e/page/trainer_test.py. */
#include <math.h>
#include <string.h>

#include "launcher/trainjob/https_post.h"
#include "launcher/trainjob/trainer_report.h"
#include "tests/support/cmocka_all.h"

static struct board *make_board(void)
{
    struct board *board = board_create(1000);
    struct board_node node;
    assert_non_null(board);
    board_world(board, &(struct board_world){.restarts = 2, .nodes = 1, .world_size = 2}, 2000);
    assert_int_equal(board_node_init(&node, 2, NULL), 0);
    node.round = 0;
    board_take(board, &node, 3000);
    return board;
}

static struct board_rank *rank_of(struct board *board)
{
    return &board->nodes[0].ranks[0];
}

static void set(struct board *board, const char *name, double value)
{
    figures_set(&rank_of(board)->figures, name, strlen(name), value);
}

static void told(const struct board *board, const char *text)
{
    scope_buffer out = {0};
    assert_true(trainer_status_json(board, 1767225661000, &out));
    assert_string_equal(out.data, text);
}

static void nothing_is_told_before_there_is_something(void **state)
{
    (void)state;
    scope_buffer out = {0};
    struct board *board = make_board();
    assert_false(trainer_status_json(board, 5000, &out));
    assert_int_equal(out.length, 0);
    board_free(board);
}

#define TIME "\"lastUpdatedTime\":\"2026-01-01T00:01:01Z\"}}"

static void steps_alone_are_metrics(void **state)
{
    (void)state;
    struct board *board = make_board();
    rank_of(board)->step = 7;
    told(board, "{\"trainerStatus\":{\"metrics\":[{\"name\":\"step\",\"value\":\"7\"},{\"name\":\"restarts\","
                "\"value\":"
                "\"2\"}]," TIME);
    board_free(board);
}

static void progress_needs_the_number_of_steps(void **state)
{
    (void)state;
    struct board *board = make_board();
    rank_of(board)->step = 250;
    set(board, "total_steps", 1000);
    set(board, "step_ms", 400);
    set(board, "slow_rank", 1);
    set(board, "loss", 2.5);
    told(board,
         "{\"trainerStatus\":{\"progressPercentage\":25,\"estimatedRemainingSeconds\":300,\"metrics\":["
         "{\"name\":\"step\",\"value\":\"250\"},{\"name\":\"restarts\",\"value\":\"2\"},{\"name\":\"loss\","
         "\"value\":\"2.5\"},"
         "{\"name\":\"step_ms\",\"value\":\"400\"},{\"name\":\"total_steps\",\"value\":\"1000\"}]," TIME);
    /* the time that steps really took, of this round alone */
    board_point(board, -1, &(struct board_point){.at = 1500, .step = 900});
    board_point(board, -1, &(struct board_point){.at = 3000, .step = 100});
    board_point(board, -1, &(struct board_point){.at = 9000, .step = 110});
    scope_buffer out = {0};
    assert_true(trainer_status_json(board, 9000, &out));
    assert_non_null(strstr(out.data, "\"estimatedRemainingSeconds\":450,"));
    /* beyond the end, and with a value that is no number of steps */
    rank_of(board)->step = 1200;
    buffer_clear(&out);
    assert_true(trainer_status_json(board, 9000, &out));
    assert_non_null(strstr(out.data, "\"progressPercentage\":100,\"estimatedRemainingSeconds\":0,"));
    set(board, "total_steps", 0);
    buffer_clear(&out);
    assert_true(trainer_status_json(board, 9000, &out));
    assert_null(strstr(out.data, "progressPercentage"));
    board_free(board);
}

static void the_end(void **state)
{
    (void)state;
    struct board *board = make_board();
    rank_of(board)->step = 3;
    board_verdict(board, 0, "", 9000);
    told(board, "{\"trainerStatus\":{\"progressPercentage\":100,\"estimatedRemainingSeconds\":0,\"metrics\":["
                "{\"name\":"
                "\"step\",\"value\":\"3\"},{\"name\":\"restarts\",\"value\":\"2\"}]," TIME);
    board->exit_code = 1; /* a failure is where it was, and has no time left */
    set(board, "total_steps", 10);
    set(board, "step_ms", 5);
    scope_buffer out = {0};
    assert_true(trainer_status_json(board, 9000, &out));
    assert_non_null(strstr(out.data, "\"progressPercentage\":30,\"metrics\""));
    board_free(board);
}

static void urls(void **state)
{
    (void)state;
    static const struct {
        const char *url, *host, *port, *path;
        bool encrypted;
    } good[] = {
        {"https://trainer.ns.svc:10443/apis/x/status", "trainer.ns.svc", "10443", "/apis/x/status", true},
        {"http://h", "h", "80", "", false},
        {"https://h/a:b", "h", "443", "/a:b", true},
        {"http://[::1]:8080/", "::1", "8080", "/", false},
    };
    static const char *const bad[] = {
        "",          "h:80",         "ftp://h",     "https://",     "https://:1/x",
        "http://h:", "http://h:x/y", "http://[::1", "http://h/a b", "http://[::1]x/"};
    struct https_address address;
    struct muster_error err = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(https_address_parse(good[i].url, &address, &err), 0);
        assert_string_equal(address.host, good[i].host);
        assert_string_equal(address.port, good[i].port);
        assert_string_equal(address.path, good[i].path);
        assert_int_equal(address.encrypted, good[i].encrypted);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct muster_error){0};
        assert_int_equal(https_address_parse(bad[i], &address, &err), -1);
        assert_int_equal(err.code, MUSTER_E_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_told_before_there_is_something),
        cmocka_unit_test(steps_alone_are_metrics),
        cmocka_unit_test(progress_needs_the_number_of_steps),
        cmocka_unit_test(the_end),
        cmocka_unit_test(urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
