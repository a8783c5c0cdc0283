/* launcher_board_test.c - the board of a job: rounds and the parts of their recoveries, limits, JSON and
 * back, notes; and who may see the page. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "launcher/board/board_json.h"
#include "launcher/board/board_report.h"
#include "launcher/board/board_screen.h"
#include "launcher/policy/goodput.h"
#include "launcher/policy/heartbeat.h"
#include "launcher/status/status_http.h"
#include "proto/base/guard.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/golden.h"

static struct board_node make_node(int member, int group_rank, int ranks, int64_t round)
{
    struct board_node node;
    assert_int_equal(board_node_init(&node, ranks, NULL), 0);
    node.member = member;
    node.group_rank = group_rank;
    node.round = round;
    (void)snprintf(node.host, sizeof node.host, "node-%d<b>", group_rank);
    board_text(node.state, sizeof node.state, "RUNNING");
    for (int i = 0; i < ranks; i++) {
        struct board_rank *rank = &node.ranks[i];
        rank->rank = group_rank * ranks + i;
        rank->pid = 100 + rank->rank;
        board_text(rank->state, sizeof rank->state, "running");
    }
    return node;
}

static void beat(struct board_rank *rank, int64_t step, int64_t age, double loss)
{
    rank->step = step;
    rank->beat_ms = age;
    figures_set(&rank->figures, "loss", 4, loss);
}

/* Two nodes; rank 3 is killed in round 0, the second round goes on from step 40. */
static struct board *example(void)
{
    struct board *board = board_create(1000);
    assert_non_null(board);
    board_text(board->job, sizeof board->job, "</script><b>job");
    board_text(board->program, sizeof board->program, "train.py");
    board_text(board->version, sizeof board->version, "1.2.3");
    board->serves = true;
    board->min_nodes = board->max_nodes = 2;
    board->max_restarts = 3;
    board_world(board, &(struct board_world){.nodes = 2, .world_size = 4}, 2000);
    for (int i = 0; i < 2; i++) {
        struct board_node node = make_node(i - 1, i, 2, 0);
        node.start_ms = 10 + i;
        node.ranks[0].first_ms = 700;
        beat(&node.ranks[0], 1, 0, 5.5);
        board_take(board, &node, 3000);
    }
    board_point(board, -1, &(struct board_point){3000, 1, 5.5, 1000, 50, NAN});
    struct board_node own = make_node(-1, 0, 2, 0), other = make_node(0, 1, 2, 0);
    beat(&own.ranks[0], 50, 100, 4.5);
    board_take(board, &own, 9000);
    board_text(other.ranks[1].state, sizeof other.ranks[1].state, "failed");
    other.ranks[1].ended_ms = 40;
    other.ranks[1].signal = 9;
    other.ranks[1].exit_code = -1;
    other.ranks[1].lines = mem_strdup("line one\nTraceback <script>alert(1)</script>");
    board_take(board, &other, 9040); /* it ended at 9000 */
    board_point(board, -1, &(struct board_point){9000, 50, 4.5, 1100, 48, NAN});
    board_stop(board, false, "rank 3 (pid 103 on node-1) was killed by signal 9 (SIGKILL)", 9100);
    other = make_node(0, 1, 2, 0);
    other.stopped_ms = 300;
    board_take(board, &other, 9410);
    board_world(board,
                &(struct board_world){.round = 1, .restarts = 1, .nodes = 2, .world_size = 4, .cause = ""},
                9500);
    own = make_node(-1, 0, 2, 1);
    own.start_ms = 20;
    own.ranks[0].import_ms = 400;
    own.ranks[0].first_ms = 900;
    beat(&own.ranks[0], 40, 0, 4.6);
    figures_set(&own.ranks[0].figures, "slow_rank", 9, 3);
    figures_set(&own.ranks[0].figures, "accuracy", 8, 0.5);
    other = make_node(0, 1, 2, 1);
    board_take(board, &other, 10500);
    board_take(board, &own, 10600);
    own = make_node(-1, 0, 2, 1);
    beat(&own.ranks[0], 140, 600, 3.5);
    board_take(board, &own, 20600);
    board_point(board, -1, &(struct board_point){20600, 140, 3.5, 1200, 45, 1});
    return board;
}

static void a_recovery_is_split(void **state)
{
    (void)state;
    struct board *board = example();
    const struct board_round *round = &board->rounds[1];
    assert_int_equal(round->detect_ms, 100);
    assert_int_equal(round->stop_ms, 300);
    assert_int_equal(round->form_ms, 100);
    assert_int_equal(round->start_ms, 20);
    assert_int_equal(round->import_ms, 400);
    assert_int_equal(round->first_ms, 500);
    assert_int_equal(board_recovery_ms(round), 1420);
    assert_int_equal(board_slowest(board)->rank, 3);
    /* round 0: steps 1 to 50 in 5.9 s, of which 40 to 50 were made again; round 1: 40 to 140 in 9.4 s */
    const double kept = 5900.0 * 38 / 49 + 9400.0;
    assert_true(fabs(board_goodput(board, 21000) - kept / 20000) < 1e-9);
    const struct goodput_round steps[] = {
        {1, 50, 0, 0}, {-1, -1, 0, 0}, {41, 45, 0, 0}, {41, 60, 0, 0}, {61, 70, 0, 0}};
    assert_int_equal(goodput_steps_again(steps, 5), 10 + 5); /* 41 to 45 twice, 46 to 50 once */
    assert_int_equal(goodput_steps_again(steps, 1), 0);
    board_free(board);
}

/* The first step of a round is older than the first state that has one. */
static void the_first_step_is_the_first_heartbeats(void **state)
{
    (void)state;
    struct board *board = board_create(0);
    board_world(board, &(struct board_world){.nodes = 1, .world_size = 2}, 0);
    struct board_node node = make_node(-1, 0, 2, 0);
    beat(&node.ranks[0], 12, 10, 1);
    node.ranks[0].first_step = 3;
    node.ranks[0].first_beat_ms = 900;
    beat(&node.ranks[1], 11, 20, 1);
    node.ranks[1].first_step = 2;
    node.ranks[1].first_beat_ms = 950;
    board_take(board, &node, 1000);
    assert_int_equal(board->rounds[0].first_step, 2);
    assert_int_equal(board->rounds[0].first_step_at, 50);
    assert_int_equal(board->rounds[0].last_step, 12);
    board_free(board);
}

static void the_json(void **state)
{
    (void)state;
    struct board *board = example();
    struct muster_error err = {0};
    scope_buffer text = {0}, again = {0};
    board_json(board, 21000, true, &text);
    golden_check("tests/unit/launcher/golden/board.json", &text);
    struct board *read = board_read("board", text.data, text.length, 21000, &err);
    assert_non_null(read);
    board_json(read, 21000, true, &again);
    /* as it was, but for the time of the last change, of which a reader knows the time of the rendering */
    const char *one = strstr(text.data, "\"started_at\""), *other = strstr(again.data, "\"started_at\"");
    assert_string_equal(one, other);
    board_free(read);
    board_free(board);
}

static void the_server_and_its_changes_are_told(void **state)
{
    static const char *const voters[] = {"node-1", "node-0<b>", "node-2"};
    (void)state;
    struct board *board = example();
    struct muster_error err = {0};
    scope_buffer text = {0}, again = {0};
    board->voter_count = 3;
    for (int i = 0; i < 3; i++)
        board_text(board->voters[i], BOARD_NAME, voters[i]);
    for (int i = 0; i < BOARD_CHANGES; i++)
        board_server_moved(board, i % 2 ? "before" : "once", "", 1000 + i);
    board_server_moved(board, "", "the connection to the server is broken", 14000);
    (void)board_screen(board, 15000, 200, 50, 0, &text);
    assert_non_null(strstr(text.data, ".server none   voters node-1, node-0<b>, node-2\n"));
    assert_non_null(strstr(text.data, "!server: none for 1.0 s: the connection to the server is broken\n"));
    board_server_moved(board, "", "no other voter has taken over", 14500);
    board_server_moved(board, "node-1", "a majority of the voters has promised", 15000);
    assert_int_equal(board->change_count, BOARD_CHANGES);
    buffer_clear(&text);
    (void)board_screen(board, 17000, 200, 50, 0, &text);
    assert_non_null(strstr(text.data, ".server node-1   voters "));
    assert_non_null(strstr(text.data, ".server: node-1 for 2.0 s: a majority of the voters has promised\n"));
    buffer_clear(&text);
    board_json(board, 21000, true, &text);
    struct board *read = board_read("board", text.data, text.length, 21000, &err);
    assert_non_null(read);
    assert_int_equal(read->voter_count, 3);
    assert_int_equal(read->change_count, BOARD_CHANGES);
    assert_string_equal(read->voters[2], "node-2");
    assert_int_equal(read->changes[BOARD_CHANGES - 1].at, 15000);
    assert_string_equal(read->changes[BOARD_CHANGES - 1].server, "node-1");
    assert_string_equal(read->changes[BOARD_CHANGES - 2].reason, "the connection to the server is broken");
    board_report(read, "", 0, &again);
    assert_non_null(
        strstr(again.data, "<h2>Serving node</h2><p>node-1; voters node-1, node-0&lt;b&gt;, node-2</p>"));
    assert_non_null(
        strstr(again.data, "<td>none</td><td class=\"wrap\">the connection to the server is broken</td>"));
    board_free(read);
    board_free(board);
}

/* Its node's state was 60 ms on its way: the rank that the stop is for appears to have ended after it. */
static void a_failure_that_comes_late_is_the_cause_where_there_is_no_other(void **state)
{
    (void)state;
    for (int planned = 0; planned < 2; planned++) {
        struct board *board = board_create(0);
        board_world(board, &(struct board_world){.nodes = 2, .world_size = 2}, 0);
        board_stop(board, planned, "rank 1 was killed", 4020);
        struct board_node failed = make_node(0, 1, 1, 0);
        board_text(failed.ranks[0].state, sizeof failed.ranks[0].state, "failed");
        failed.ranks[0].ended_ms = 30;
        board_take(board, &failed, 4090);
        board_world(board, &(struct board_world){.round = 1, .nodes = 2, .world_size = 2}, 4300);
        assert_int_equal(board->rounds[1].detect_ms, planned ? -1 : 0);
        board_free(board);
    }
}

static void a_lost_node_is_a_silent_one(void **state)
{
    (void)state;
    struct board *board = board_create(0);
    board_world(board, &(struct board_world){.nodes = 2, .world_size = 2}, 0);
    struct board_node own = make_node(-1, 0, 1, 0), lost = make_node(0, 1, 1, 0);
    board_take(board, &lost, 1000);
    board_take(board, &own, 4000);
    board_stop(board, false, "node 1 is lost", 4100);
    own = make_node(-1, 0, 1, 0);
    own.stopped_ms = 5;
    board_take(board, &own, 4200);
    board_world(board, &(struct board_world){.round = 1, .nodes = 1, .world_size = 1}, 4300);
    assert_int_equal(board->rounds[1].detect_ms, 3100);
    board_world(board, &(struct board_world){.round = 2, .nodes = 1, .world_size = 1}, 5000);
    assert_int_equal(board->node_count, 1); /* it is not shown for ever */
    board_free(board);
}

static void memory_is_bounded(void **state)
{
    (void)state;
    struct board *board = board_create(0);
    for (int i = 0; i < BOARD_NODES + 10; i++) {
        struct board_node node = make_node(i, i, 8, 0);
        board_take(board, &node, i);
    }
    assert_int_equal(board->ranks_total, BOARD_RANKS);
    assert_int_equal(board->left_out, 0);
    struct board_node without = make_node(BOARD_NODES + 10, -1, 8, 0); /* a spare, which has no place */
    board_take(board, &without, 2000);
    assert_int_equal(board->left_out, 1);
    for (int i = 0; i < 500; i++) {
        board_world(board, &(struct board_world){.round = i, .nodes = 1, .world_size = 8}, 1000 * i);
        board_stop(board, true, "", 1000 * i + 500);
    }
    assert_int_equal(board->round_count, BOARD_ROUNDS);
    assert_int_equal(board->rounds[0].number, 0);
    assert_int_equal(board->rounds[1].number, 500 - BOARD_ROUNDS + 1);
    assert_int_equal(board->rounds_left_out, 500 - BOARD_ROUNDS);
    for (int i = 0; i < 100000; i++)
        board_point(board, 0, &(struct board_point){.at = 1000 * i, .step = i, .loss = i});
    assert_true(board->point_count > BOARD_POINTS / 4 && board->point_count <= BOARD_POINTS);
    assert_true(board->points[0].at < 1000 * 1024); /* the whole run is on it */
    assert_true(board->points[board->point_count - 1].at > 1000 * (100000 - 1024));
    board_free(board);
}

/* 16,384 nodes of 8 ranks: the answer is small, and no failed rank and no silent node is missing in it. */
static void a_large_job_is_shown_in_blocks(void **state)
{
    (void)state;
    enum { NODES = 16384, SILENT = 9000, FAILED = 16000 };
    struct board *board = board_create(0);
    board->max_nodes = NODES;
    board_world(board, &(struct board_world){.nodes = NODES, .world_size = 8 * NODES}, 0);
    for (int i = 0; i < NODES; i++) {
        struct board_node node = make_node(i, i, 8, 0);
        for (int j = 0; j < 8; j++)
            beat(&node.ranks[j], i == 12345 ? 90 : 100, 0, 3);
        if (i == FAILED) {
            board_text(node.ranks[3].state, sizeof node.ranks[3].state, "failed");
            node.ranks[3].exit_code = 7;
            node.ranks[3].lines = mem_strdup("no memory");
        }
        board_take(board, &node, i == SILENT ? 1000 : 60000);
    }
    assert_int_equal(board->left_out, 0);
    assert_int_equal(board->ranks_total, BOARD_RANKS + 8);
    assert_int_equal(board->rounds[0].last_step, 100); /* also of nodes without room */
    struct board_block blocks[BOARD_BLOCKS];
    const int64_t now = 60500;
    assert_int_equal(board_blocks(board, now, blocks), 128);
    for (int i = 0; i < 128; i++) {
        assert_int_equal(blocks[i].first, 128 * i);
        assert_int_equal(blocks[i].last, 128 * i + 127);
        assert_int_equal(blocks[i].nodes, 128);
        assert_int_equal(blocks[i].ranks, 1024);
        assert_int_equal(blocks[i].failed, i == FAILED / 128);
        assert_int_equal(blocks[i].silent, i == SILENT / 128);
        assert_int_equal(blocks[i].low_step, i == 12345 / 128 ? 90 : 100);
    }
    scope_buffer text = {0}, screen = {0};
    board_json(board, now, true, &text);
    assert_false(text.failed);
    assert_true(text.length < 128 * 1024);
    struct muster_error err;
    struct board *read = board_read("board", text.data, text.length, now, &err);
    assert_non_null(read);
    const struct board_block total = board_total(read, now);
    assert_int_equal(total.nodes, NODES);
    assert_int_equal(total.ranks, 8 * NODES);
    assert_int_equal(total.failed, 1);
    assert_int_equal(total.silent, 1);
    const struct board_rank *failed = board_rank_find(read, 8 * FAILED + 3);
    assert_true(failed && !strcmp(failed->lines ? failed->lines : "", ""));
    int64_t low, high;
    assert_true(board_steps(read, &low, &high) && low == 90 && high == 100);
    assert_true(board_screen(read, now, 120, 40, 0, &screen) > 0);
    buffer_append(&screen, "", 1);
    assert_non_null(
        strstr(screen.data, "16384 nodes report, 1 of them silent; of 131072 ranks 131071 run, 1 failed"));
    board_free(read);
    /* the next worlds are smaller: nothing of it is left */
    board_world(board, &(struct board_world){.round = 2, .nodes = 1, .world_size = 8}, 70000);
    assert_int_equal(board_total(board, 70000).nodes, 0);
    board_free(board);
}

static void the_curve_is_that_of_the_first_node(void **state)
{
    (void)state;
    struct board *board = board_create(0);
    struct board_node one = make_node(-1, 1, 1, 0), zero = make_node(0, 0, 1, 0);
    board_take(board, &one, 0);
    board_take(board, &zero, 0);
    board_point(board, -1, &(struct board_point){.at = 1000, .step = 1, .loss = 1});
    board_point(board, 0, &(struct board_point){.at = 3000, .step = 3, .loss = 3});
    board_point(board, -1, &(struct board_point){.at = 9000, .step = 9, .loss = 9});
    assert_int_equal(board->point_count, 2);
    /* a server that came later gets what there was before it */
    const struct board_point earlier[] = {{.at = 10, .step = 0}, {.at = 2000, .step = 2}};
    board_points(board, 0, earlier, 2);
    assert_int_equal(board->points[0].at, 10);
    assert_int_equal(board->point_count, 2); /* 1000 is less than a second later */
    /* also where ours are of an earlier node, which goes on */
    const struct board_point first[] = {{.at = -5000, .step = 0}, {.at = -3000, .step = 2}};
    board_point(board, 0, &(struct board_point){.at = 12000, .step = 12});
    board_points(board, -1, first, 2);
    assert_int_equal(board->points[0].at, -5000);
    board_point(board, -1, &(struct board_point){.at = 14000, .step = 14});
    board_point(board, 0, &(struct board_point){.at = 15000, .step = 15});
    assert_int_equal(board->points[board->point_count - 1].at, 15000);
    assert_int_equal(board->points[board->point_count - 2].at, 12000);
    board_free(board);
}

static void a_note_comes_through_within_its_limit(void **state)
{
    (void)state;
    struct muster_error err = {0};
    scope_buffer text = {0};
    static struct board_point points[BOARD_POINTS];
    static struct board_note_read got;
    struct board_node node = make_node(-1, 3, 8, 7);
    struct board_round rounds[BOARD_NOTE_ROUNDS];
    for (int i = 0; i < 8; i++) {
        char lines[BOARD_LINES_BYTES];
        memset(lines, '"', sizeof lines - 1); /* twice as long in JSON */
        lines[sizeof lines - 1] = '\0';
        node.ranks[i].lines = mem_strdup(lines);
        node.ranks[i].ended_ms = 5;
    }
    for (int i = 0; i < BOARD_POINTS; i++)
        points[i] = (struct board_point){1000 * i, i, 1.0 / 3, 1e6 / 7, 33.3333333, NAN};
    for (int i = 0; i < BOARD_NOTE_ROUNDS; i++) {
        rounds[i] = (struct board_round){.epoch = UINT64_MAX - 1,
                                         .number = i,
                                         .formed_at = 1000 * i + 500,
                                         .stop_at = 1000 * i + 900,
                                         .failed_at = -1,
                                         .first_step = 3};
        memset(rounds[i].cause, '"', sizeof rounds[i].cause - 1);
    }
    const struct board_note note = {&node, points, BOARD_POINTS, rounds, BOARD_NOTE_ROUNDS, 400};
    assert_int_equal(board_note_write(&note, 600000, &text, &err), 0);
    assert_true(text.length <= BOARD_NOTE_LIMIT && text.length > BOARD_NOTE_LIMIT / 3);
    assert_int_equal(board_note_read(text.data, text.length, 5600000, &got, &err), 0);
    assert_int_equal(got.node.rank_count, 8);
    assert_int_equal(got.node.group_rank, 3);
    assert_int_equal(got.node.round, 7);
    assert_int_equal(got.node.ranks[7].ended_ms, 5);
    const int count = got.point_count;
    assert_true(count > 0);
    assert_int_equal(got.points[count - 1].step, BOARD_POINTS - 1);
    assert_int_equal(got.points[count - 1].at,
                     5000000 + 1000 * (BOARD_POINTS - 1)); /* by the reader's clock */
    assert_int_equal(got.round_count, BOARD_NOTE_ROUNDS);
    assert_int_equal(got.started_at, 5000400);
    assert_true(got.rounds[7].epoch == UINT64_MAX - 1);
    assert_int_equal(got.rounds[7].formed_at, 5007500);
    assert_int_equal(got.rounds[7].stop_at, 5007900);
    assert_int_equal(got.rounds[7].failed_at, -1);
    assert_string_equal(got.rounds[7].cause, rounds[7].cause);
    board_node_clear(&got.node);
    board_node_clear(&node);
    assert_int_equal(board_note_read("{\"note\":2}", 10, 0, &got, &err), -1);
    board_node_clear(&got.node);
    const char *bad = "{\"note\":1,\"node\":{\"ranks\":[{\"rank\":-1}]}}";
    assert_int_equal(board_note_read(bad, strlen(bad), 0, &got, &err), -1);
    board_node_clear(&got.node);
}

/* --- another server --- */

static void the_history_comes_with_the_others(void **state)
{
    (void)state;
    struct board *board = board_create(50000), *full = board_create(10);
    struct board_round old[3];
    for (int i = 0; i < 3; i++)
        old[i] = (struct board_round){.epoch = 7,
                                      .number = i,
                                      .formed_at = 1000 + 1000 * i,
                                      .stop_at = i < 2 ? 1900 + 1000 * i : -1,
                                      .cause = "c"};
    board_history(board, old, 1, 900); /* before it has a world of its own */
    assert_int_equal(board->round_count, 1);
    board_world(board, &(struct board_world){.epoch = 8, .round = 1, .nodes = 2, .world_size = 2}, 60000);
    board_history(board, old, 3, 900);
    board_history(board, old, 3, 900); /* another node has the same */
    assert_int_equal(board->round_count, 4);
    for (int i = 0; i < 3; i++)
        assert_int_equal(board->rounds[i].number, i);
    assert_int_equal(board->rounds[2].stop_at, 60000); /* nobody was told of its end */
    assert_int_equal(board->rounds[3].epoch, 8);       /* the present one is ours */
    assert_int_equal(board->started_at, 900);
    for (int i = 0; i < 3 * BOARD_ROUNDS; i++) {
        const struct board_round later = {.epoch = 9, .number = i, .formed_at = 70000 + i};
        board_history(board, &later, 1, 900);
    }
    assert_int_equal(board->round_count, 4); /* nothing is later than the present one */

    for (int i = 0; i < BOARD_ROUNDS + 5; i++)
        board_world(full, &(struct board_world){.epoch = 3, .round = i}, 100000 + i);
    board_history(full, old, 3, 0);
    assert_int_equal(full->round_count, BOARD_ROUNDS);
    assert_int_equal(full->rounds[0].epoch, 7); /* the first of all */
    assert_int_equal(full->rounds[BOARD_ROUNDS - 1].number, BOARD_ROUNDS + 4);
    assert_int_equal(full->rounds_left_out, 5 + 3);
    board_free(full);
    board_free(board);
}

/* --- for reading --- */

static size_t count_of(const char *text, const char *what)
{
    size_t count = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        count++;
    return count;
}

static void a_report_quotes_and_is_bounded(void **state)
{
    (void)state;
    scope_buffer out = {0}, large = {0};
    struct board *board = example();
    board_verdict(board, 137, "rank 3 <script>x</script>", 21000);
    board_text(board_find(board, 0)->ranks[1].state, BOARD_WORD, "failed");
    board_find(board, 0)->ranks[1].lines = mem_strdup("a <b>\"line\"</b> & more");
    board_report(board, "", 0, &out);
    assert_null(strstr(out.data, "<script"));
    assert_null(strstr(out.data, "<b>job"));
    assert_non_null(strstr(out.data, "&lt;/script&gt;&lt;b&gt;job"));
    assert_non_null(strstr(out.data, "a &lt;b&gt;&quot;line&quot;&lt;/b&gt; &amp; more"));
    assert_non_null(strstr(out.data, "failed, exit code 137"));
    assert_non_null(strstr(out.data, "1.4 s")); /* the recovery in all */
    board_free(board);

    board = board_create(0); /* as much of the worst as there can be */
    char worst[BOARD_LINES_BYTES];
    memset(worst, '"', sizeof worst - 1);
    worst[sizeof worst - 1] = '\0';
    for (int i = 0; i < 512; i++) {
        struct board_node node = make_node(i, i, 8, 199);
        board_text(node.host, sizeof node.host, worst);
        node.warning_count = BOARD_WARNINGS;
        for (int j = 0; j < BOARD_WARNINGS; j++)
            board_text(node.warnings[j], BOARD_TEXT, worst);
        for (int j = 0; j < 8; j++) {
            board_text(node.ranks[j].state, BOARD_WORD, "failed");
            node.ranks[j].lines = mem_strdup(worst);
        }
        board_take(board, &node, 1000);
    }
    for (int i = 0; i < 200; i++) {
        board_world(board, &(struct board_world){.round = i, .nodes = 1, .world_size = 8}, 1000 * i);
        board_stop(board, false, worst, 1000 * i + 500);
    }
    for (int i = 0; i < 2 * BOARD_POINTS; i++)
        board_point(board, 0, &(struct board_point){1000 * i, i, 1.0 / (i + 1), i, i, i});
    board_report(board, "", 0, &large);
    assert_true(large.length < BOARD_REPORT_LIMIT - 8 * 1000); /* the style comes to it */
    assert_true(count_of(large.data, "<section>") == count_of(large.data, "</section>"));
    assert_non_null(strstr(large.data, "more ranks are left out"));
    board_free(board);
}

static void a_screen_keeps_to_its_size(void **state)
{
    (void)state;
    scope_buffer out = {0};
    struct board *board = example();
    assert_int_equal(board_screen(board, 21000, 40, 10, 0, &out), 4);
    int rows = 0;
    for (const char *line = out.data; *line; rows++) {
        const size_t length = strcspn(line, "\n");
        assert_true(length <= 41);
        line += length + 1;
    }
    assert_true(rows <= 10);
    buffer_clear(&out);
    (void)board_screen(board, 21000, 200, 50, 2, &out);
    assert_non_null(
        strstr(out.data, "!round 0 ended: rank 3 (pid 103 on node-1) was killed by signal 9 (SIGKILL)\n"));
    assert_non_null(strstr(out.data, "+round 1 began after 1.4 s: detect 100 ms, stop 300 ms"));
    assert_non_null(strstr(out.data, "     3  node-1<b>"));
    assert_null(strstr(out.data, "     0  node-0<b>"));
    struct board_node own = make_node(-1, 0, 2, 1);
    beat(&own.ranks[0], 150, 0, 3.5);
    figures_set(&own.ranks[0].figures, "slow_rank", 9, 3);
    figures_set(&own.ranks[0].figures, "slow_ms", 7, 12);
    figures_set(&own.ranks[0].figures, "total_steps", 11, 900);
    own.warning_count = 1;
    board_text(own.warnings[0], BOARD_TEXT, "NCCL: slow\x1b[2J");
    board_take(board, &own, 21000);
    buffer_clear(&out);
    (void)board_screen(board, 21000, 200, 50, 0, &out);
    assert_non_null(
        strstr(out.data, " step 150 of 900   loss 3.500   tokens/s 1200   exposed communication 1 ms\n"));
    assert_non_null(strstr(out.data, "!rank 3 is waited for, 12 ms a step\n"));
    assert_non_null(strstr(out.data, ".warning: node-0<b>: NCCL: slow?[2J\n"));
    board_free(board);
}

static void a_mark_is_no_heartbeat(void **state)
{
    (void)state;
    struct heartbeat beat;
    static const char lines[] = "mark/1 imported\nmark/2 what\nfigures/1 loss=1 my.own=2 bad!name=3\n7\n8\n";
    heartbeat_init(&beat);
    heartbeat_take(&beat, lines, 16, (struct instant){5});
    assert_false(beat.armed);
    assert_int_equal(beat.imported.ns, 5);
    heartbeat_take(&beat, lines + 16, sizeof lines - 17, (struct instant){9});
    assert_true(beat.armed);
    assert_int_equal(beat.imported.ns, 5);
    assert_int_equal(beat.first.ns, 9);
    assert_int_equal(beat.figures.own_count, 1);
    assert_string_equal(beat.figures.own[0].name, "my.own");
}

/* --- who may see the page --- */

static enum page_access check(const struct page_keys *keys, struct http_request request)
{
    if (!request.path)
        request.path = "/board.json";
    return page_access_check(keys, &request);
}

static void without_a_token_this_machine_alone(void **state)
{
    (void)state;
    const struct page_keys none = {.port = 80};
    static const char *const here[] = {"localhost:80", "LOCALHOST", "127.0.0.1:80", "127.9.9.9", "[::1]:80"};
    static const char *const elsewhere[] = {"evil.example:80",
                                            "127.0.0.1.evil.example",
                                            "localhost.evil.example",
                                            "[::2]",
                                            "0.0.0.0",
                                            "127.evil",
                                            ""};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++) {
        assert_int_equal(check(&none, (struct http_request){.local = true, .host = here[i]}), PAGE_ALLOWED);
        assert_int_equal(check(&none, (struct http_request){.host = here[i]}), PAGE_NOT_LOCAL);
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        assert_int_equal(check(&none, (struct http_request){.local = true, .host = elsewhere[i]}),
                         PAGE_NOT_LOCAL);
    assert_int_equal(check(&none, (struct http_request){.token = ""}), PAGE_NOT_LOCAL);
}

static void other_sites_are_refused(void **state)
{
    (void)state;
    const struct page_keys none = {.port = 80};
    struct http_request request = {.local = true, .host = "localhost:80", .origin = "http://localhost:80"};
    assert_int_equal(check(&none, request), PAGE_ALLOWED);
    request.origin = "http://localhost:81";
    assert_int_equal(check(&none, request), PAGE_FOREIGN);
    request.origin = "null";
    assert_int_equal(check(&none, request), PAGE_FOREIGN);
    request.origin = NULL;
    request.fetch_site = "cross-site";
    assert_int_equal(check(&none, request), PAGE_FOREIGN);
    request.fetch_site = "same-site";
    assert_int_equal(check(&none, request), PAGE_FOREIGN);
    request.fetch_mode = "navigate";
    assert_int_equal(check(&none, request), PAGE_FOREIGN);
    request.path = "/"; /* a link */
    assert_int_equal(check(&none, request), PAGE_ALLOWED);
    request.fetch_mode = "no-cors";
    assert_int_equal(check(&none, request), PAGE_FOREIGN);
}

static void with_a_token(void **state)
{
    (void)state;
    struct page_keys keys = {.session = "0123456789abcdef0123456789abcdef", .port = 8080};
    struct muster_error err = {0};
    char cookie[128];
    assert_int_equal(page_access_token(" a-token-of-20-chars \r\n", 23, &keys, &err), 0);
    assert_string_equal(keys.token, "a-token-of-20-chars");
    struct http_request request = {.local = true, .host = "10.0.0.1:8080"};
    assert_int_equal(check(&keys, request), PAGE_NEEDS_TOKEN);
    request.authorization = "Bearer a-token-of-20-chars";
    assert_int_equal(check(&keys, request), PAGE_ALLOWED);
    request.authorization = "Bearer a-token-of-20-charS";
    assert_int_equal(check(&keys, request), PAGE_NEEDS_TOKEN);
    request.authorization = "Bearer ";
    assert_int_equal(check(&keys, request), PAGE_NEEDS_TOKEN);
    request.authorization = NULL;
    request.token = "a-token-of-20-chars";
    assert_int_equal(check(&keys, request), PAGE_NEEDS_TOKEN); /* in the page's own address only */
    request.path = "/";
    assert_int_equal(check(&keys, request), PAGE_SETS_COOKIE);
    request.token = "a-token-of-20-charsa-token-of-20-chars";
    assert_int_equal(check(&keys, request), PAGE_NEEDS_TOKEN);
    request.token = NULL;
    page_access_cookie(&keys, cookie, sizeof cookie);
    assert_string_equal(cookie,
                        "muster_8080=0123456789abcdef0123456789abcdef; Path=/; HttpOnly; SameSite=Strict");
    request.cookie = "a=b; muster_8080=0123456789abcdef0123456789abcdef; c=d";
    assert_int_equal(check(&keys, request), PAGE_ALLOWED);
    request.cookie = "muster_8081=0123456789abcdef0123456789abcdef";
    assert_int_equal(check(&keys, request), PAGE_NEEDS_TOKEN);
    request.cookie = "muster_8080=; muster_8080=0123456789abcdef0123456789abcde";
    assert_int_equal(check(&keys, request), PAGE_NEEDS_TOKEN);
    assert_int_equal(page_access_token("short", 5, &keys, &err), -1);
    assert_int_equal(page_access_token("a token with blanks in it", 25, &keys, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recovery_is_split),
        cmocka_unit_test(the_first_step_is_the_first_heartbeats),
        cmocka_unit_test(the_json),
        cmocka_unit_test(the_server_and_its_changes_are_told),
        cmocka_unit_test(a_failure_that_comes_late_is_the_cause_where_there_is_no_other),
        cmocka_unit_test(a_lost_node_is_a_silent_one),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(a_large_job_is_shown_in_blocks),
        cmocka_unit_test(the_curve_is_that_of_the_first_node),
        cmocka_unit_test(a_note_comes_through_within_its_limit),
        cmocka_unit_test(the_history_comes_with_the_others),
        cmocka_unit_test(a_report_quotes_and_is_bounded),
        cmocka_unit_test(a_screen_keeps_to_its_size),
        cmocka_unit_test(a_mark_is_no_heartbeat),
        cmocka_unit_test(without_a_token_this_machine_alone),
        cmocka_unit_test(other_sites_are_refused),
        cmocka_unit_test(with_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
