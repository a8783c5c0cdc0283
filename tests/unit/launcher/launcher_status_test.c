/* launcher_status_test.c - the renderings of an agent's status, the rule of liveness, the names of sockets.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "launcher/status/status.h"
#include "launcher/status/status_client.h"
#include "proto/base/guard.h"
#include "tests/support/cmocka_all.h"

/* Two nodes' second round: one worker runs and beats, one has exited, one was killed, one never started. */
static struct agent_status *example(void)
{
    struct agent_status *status = status_create(4);
    assert_non_null(status);
    status->version = "1.2.3";
    status->host = "node-1";
    status->job_id = "a \"job\"\\\n\x1b[31m";
    status->program = "train.py";
    status->role = "default";
    status->pid = 4711;
    status->uptime_ns = 3723 * NS_PER_S + 500 * NS_PER_MS;
    status->state = GROUP_RUNNING;
    status->node_rank = 1;
    status->min_nodes = status->max_nodes = 2;
    status->formed = true;
    status->world = (struct membership_world){.id = {7, 1},
                                              .group_rank = 1,
                                              .group_world_size = 2,
                                              .rank_base = 4,
                                              .world_size = 8,
                                              .restart_count = 1,
                                              .master_addr = "node-0",
                                              .master_port = 29501};
    status->max_restarts = 3;
    status->failures = 2;
    status->round_failures[FAILURE_LOST_NODE] = 3;
    status->file_bytes_lost = 10;
    status->console_bytes_lost = UINT64_C(5000000000);
    status->store = (struct status_store){true, 1000, 41943040, 7, 4, 99, 3, 2};
    const struct status_worker workers[] = {
        {4, 0, 100, STATUS_WORKER_RUNNING, 0, 0, 120, 1500 * NS_PER_MS, {0}},
        {5, 1, 101, STATUS_WORKER_EXITED, 0, 0, -1, -1, {0}},
        {6, 2, 102, STATUS_WORKER_FAILED, -1, 9, -1, -1, {0}},
        {7, 3, 0, STATUS_WORKER_ABSENT, 0, 0, -1, -1, {0}},
    };
    memcpy(status->workers, workers, sizeof workers);
    static const char line[] = "figures/1 loss=2.5 step_ms=56 exposed_ms=2.25 slow_rank=6 slow_ms=190.8";
    figures_take(&status->workers[0].figures, line, sizeof line - 1);
    return status;
}

static struct agent_status *forming(void)
{
    struct agent_status *status = example();
    status->state = GROUP_WAITING;
    status->formed = false;
    memset(&status->world, 0, sizeof status->world);
    status->worker_count = 0;
    status->store.there = false;
    status->leaving = true;
    status->exit_code = 143;
    (void)snprintf(status->waiting, sizeof status->waiting, "1 of 2 nodes, missing rank 0");
    return status;
}

static void json(void **state)
{
    (void)state;
    scope_buffer out = {0};
    scope_free struct agent_status *whole = example(), *early = forming();
    status_json(whole, &out);
    assert_string_equal(
        out.data,
        "{\"version\": \"1.2.3\", \"host\": \"node-1\", \"pid\": 4711, \"uptime_s\": 3723.500, "
        "\"job_id\": \"a \\\"job\\\"\\\\\\u000a\\u001b[31m\", \"program\": \"train.py\", \"role\": "
        "\"default\", "
        "\"state\": \"RUNNING\", \"exit_code\": null, \"node_rank\": 1, \"min_nodes\": 2, \"max_nodes\": 2, "
        "\"waiting\": \"\", \"server\": null, \"voters\": [], \"notice\": null, \"world\": {\"round\": 1, "
        "\"group_rank\": 1, "
        "\"group_world_size\": 2, "
        "\"rank_base\": 4, \"world_size\": 8, \"master_addr\": \"node-0\", \"master_port\": 29501}, "
        "\"restarts\": 1, \"max_restarts\": 3, \"failures\": 2, \"file_bytes_lost\": 10, "
        "\"console_bytes_lost\": 5000000000, \"store\": {\"bytes\": 1000, \"budget\": 41943040, \"keys\": 7, "
        "\"connections\": 4, \"requests\": 99, \"closed\": 3, \"crowded_out\": 2}, \"workers\": ["
        "{\"rank\": 4, \"local_rank\": 0, \"pid\": 100, \"state\": \"running\", \"step\": 120, "
        "\"beat_age_s\": 1.500, \"figures\": {\"loss\": 2.5, \"step_ms\": 56, \"exposed_ms\": 2.25, "
        "\"slow_rank\": 6, \"slow_ms\": 190.8}}, "
        "{\"rank\": 5, \"local_rank\": 1, \"pid\": 101, \"state\": \"exited\", \"exit_code\": 0, \"signal\": "
        "0}, "
        "{\"rank\": 6, \"local_rank\": 2, \"pid\": 102, \"state\": \"failed\", \"exit_code\": -1, "
        "\"signal\": 9}, "
        "{\"rank\": 7, \"local_rank\": 3, \"pid\": 0, \"state\": \"absent\"}]}\n");
    buffer_clear(&out);
    early->notice.coming = "node-leaves";
    early->notice.listeners = 2;
    early->notice.left_ns = 28500 * NS_PER_MS;
    status_json(early, &out);
    assert_non_null(strstr(out.data, "\"exit_code\": 143,"));
    assert_non_null(strstr(
        out.data, "\"notice\": {\"coming\": \"node-leaves\", \"listeners\": 2, \"left_s\": 28.500}, "));
    assert_non_null(strstr(out.data, "\"waiting\": \"1 of 2 nodes, missing rank 0\""));
    assert_non_null(strstr(out.data, "\"world\": null,"));
    assert_non_null(strstr(out.data, "\"store\": null,"));
    assert_non_null(strstr(out.data, "\"workers\": []}\n"));
}

static void table(void **state)
{
    (void)state;
    scope_buffer out = {0};
    scope_free struct agent_status *whole = example(), *early = forming();
    status_table(whole, &out);
    assert_string_equal(
        out.data,
        "agent     4711 on node-1, up 1:02:03, muster 1.2.3\n"
        "job       a \"job\"\\??[31m\n"
        "program   train.py\n"
        "state     RUNNING: workers run; some may have exited 0\n"
        "world     round 1: 8 workers on 2 nodes, this is node 1 with ranks 4-7; store node-0:29501\n"
        "restarts  1 of 3 used; 2 worker failures on this node\n"
        "logs      10 bytes lost on the way to files, 5000000000 to the console\n"
        "store     2 clients lost what they held: all hold 1000 of at most 41943040 bytes (--store-memory)\n"
        "training  loss 2.5000, 56.0 ms a step, 2.2 ms of it exposed communication (rank 4)\n"
        "slow      rank 6: the other ranks wait for it 190.8 ms a step\n"
        "  RANK  LOCAL       PID  STATE           STEP  LAST BEAT\n"
        "     4      0       100  running          120  1.5 s ago\n"
        "     5      1       101  exit 0             -  -\n"
        "     6      2       102  signal 9           -  -\n"
        "     7      3         -  absent             -  -\n");
    buffer_clear(&out);
    whole->serving = (struct membership_serving){
        .server = "node-1", .reason = "a majority of the voters has promised", .voter_count = 1};
    status_table(whole, &out);
    assert_non_null(strstr(out.data, "\nserver    node-1; no other node can take over; a majority of the "
                                     "voters has promised\n"));
    buffer_clear(&out);
    early->notice.coming = "job-stops";
    early->notice.listeners = 1;
    early->notice.left_ns = 28500 * NS_PER_MS;
    status_table(early, &out);
    assert_non_null(strstr(out.data, "notice    job-stops; 1 worker here may save for 28.5 s more\n"));
    assert_non_null(strstr(out.data, "; exits with code 143\n"));
    assert_non_null(strstr(out.data, "world     not formed yet, 2 nodes required\n"
                                     "waiting   1 of 2 nodes, missing rank 0\n"));
    buffer_clear(&out);
    status_summary(whole, &out);
    assert_string_equal(out.data, "4711\t1\tRUNNING\ta \"job\"\\??[31m\n");
}

/* --- Prometheus' text format, as its documentation has it --- */

static bool name_byte(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

static const char *skip_name(const char *at)
{
    assert_true(name_byte(*at, true));
    while (name_byte(*at, false))
        at++;
    return at;
}

/* {name="value",...}; in a value only \\, \" and \n are escapes. */
static const char *skip_labels(const char *at)
{
    if (*at != '{')
        return at;
    do {
        at = skip_name(at + 1);
        assert_true(at[0] == '=' && at[1] == '"');
        for (at += 2; *at != '"'; at++) {
            assert_true(*at && *at != '\n');
            if (*at == '\\')
                assert_non_null(strchr("\\\"n", *++at));
        }
        at++;
    } while (*at == ',');
    assert_int_equal(*at, '}');
    return at + 1;
}

/* One line of a family `family`, which must have been declared just above. */
static void check_sample(const char *line, const char *family)
{
    const char *end = skip_name(line);
    assert_int_equal(end - line, strlen(family));
    assert_memory_equal(line, family, strlen(family));
    end = skip_labels(end);
    assert_int_equal(*end, ' ');
    char *rest;
    (void)strtod(end + 1, &rest);
    assert_true(rest > end + 1 && *rest == 0);
}

/* Every line is a HELP, the TYPE after it, or a sample of that family; no family comes twice. */
static int check_exposition(char *text)
{
    char family[96] = "", seen[4096] = " ";
    int samples = 0;
    assert_int_equal(text[strlen(text) - 1], '\n');
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) && rest) {
        char name[80], type[16];
        if (sscanf(line, "# HELP %79s", name) == 1) {
            (void)snprintf(family, sizeof family, " %s ", name);
            assert_null(strstr(seen, family));
            (void)strncat(seen, family + 1, sizeof seen - strlen(seen) - 1);
            (void)snprintf(family, sizeof family, "%s", name);
            line = strsep(&rest, "\n");
            assert_int_equal(sscanf(line, "# TYPE %79s %15s", name, type), 2);
            assert_string_equal(name, family);
            bool total = strlen(name) > 6 && !strcmp(name + strlen(name) - 6, "_total");
            assert_string_equal(type, total ? "counter" : "gauge");
            continue;
        }
        check_sample(line, family);
        samples++;
    }
    return samples;
}

static void metrics(void **state)
{
    static const char *const wanted[] = {
        "muster_agent_info{version=\"1.2.3\",job_id=\"a \\\"job\\\"\\\\\\n\x1b[31m\",role=\"default\",host="
        "\"node-1\"} 1",
        "muster_uptime_seconds 3723.5",
        "muster_agent_state{state=\"RUNNING\"} 1",
        "muster_agent_state{state=\"STOPPING\"} 0",
        "muster_world_size 8",
        "muster_nodes 2",
        "muster_round 1",
        "muster_restarts_total 1",
        "muster_restarts_budget 3",
        "muster_worker_failures_total 2",
        "muster_round_failures_total{cause=\"signal\"} 0",
        "muster_round_failures_total{cause=\"lost node\"} 3",
        "muster_log_lost_bytes_total{to=\"file\"} 10",
        "muster_log_lost_bytes_total{to=\"console\"} 5000000000",
        "muster_store_bytes 1000",
        "muster_store_bytes_budget 41943040",
        "muster_store_closed_total 3",
        "muster_store_crowded_out_total 2",
        "muster_workers{state=\"running\"} 1",
        "muster_workers{state=\"failed\"} 1",
        "muster_worker_up{rank=\"4\",local_rank=\"0\"} 1",
        "muster_worker_up{rank=\"6\",local_rank=\"2\"} 0",
        "muster_worker_step{rank=\"4\",local_rank=\"0\"} 120",
        "muster_worker_beat_age_seconds{rank=\"4\",local_rank=\"0\"} 1.500",
        "muster_train_loss{rank=\"4\",local_rank=\"0\"} 2.5",
        "muster_train_exposed_comm_seconds{rank=\"4\",local_rank=\"0\"} 0.00225",
    };
    (void)state;
    scope_buffer out = {0};
    scope_free struct agent_status *whole = example(), *early = forming();
    status_metrics(whole, &out);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        scope_free char *line = mem_printf("\n%s\n", wanted[i]);
        if (!strstr(out.data, line))
            fail_msg("not there: %s", wanted[i]);
    }
    assert_null(strstr(out.data, "muster_worker_step{rank=\"5\"")); /* it has not beaten */
    assert_int_equal(check_exposition(out.data), 34 + FAILURE_CLASS_COUNT + GROUP_STATE_COUNT);
    buffer_clear(&out);
    status_metrics(early, &out);
    assert_non_null(strstr(out.data, "\nmuster_world_size 0\n"));
    assert_int_equal(check_exposition(out.data), 16 + FAILURE_CLASS_COUNT + GROUP_STATE_COUNT);
}

/* --- */

static void names_in_proc_net_unix(void **state)
{
    static const char text[] =
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 17 @muster-agent-0-4711-0123abcd\n"
        "0000000000000000: 00000003 00000000 00000000 0001 03 18 @muster-agent-0-4711-0123abcd\n" /* accepted
                                                                                                   */
        "0000000000000000: 00000002 00000000 00010000 0001 01 19 muster-agent-0-1-0123abcd\n"     /* a file */
        "0000000000000000: 00000002 00000000 00010000 0001 01 20 @muster-agent-x-1-0123abcd\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 21 @muster-agent--1-1-0123abcd\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 22 @muster-agent-99999999999999999999-1-a\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 23\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 24 /run/some/other/socket\n"
        "garbage\n\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 25 @muster-agent-1000-1-deadbeef";
    (void)state;
    struct status_name names[2] = {0};
    assert_int_equal(status_names_parse(text, names, 2), 2);
    assert_string_equal(names[0].text, "muster-agent-0-4711-0123abcd");
    assert_int_equal(names[0].uid, 0);
    assert_int_equal(names[0].pid, 4711);
    assert_int_equal(names[1].uid, 1000);
    assert_int_equal(names[1].pid, 1);
    assert_int_equal(status_names_parse(text, NULL, 0), 2);
    assert_int_equal(status_names_parse("", NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json),
        cmocka_unit_test(table),
        cmocka_unit_test(metrics),
        cmocka_unit_test(names_in_proc_net_unix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
