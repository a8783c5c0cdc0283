/* Event lines of log_record.h: the schema that readers of torchrun's events rely on. */
#include "launcher/output/log_record.h"

#include "proto/base/clock.h"
#include "tests/support/cmocka_all.h"

static struct event_line some(enum event_state state)
{
    return (struct event_line){.state = state,
                               .wall_ns = 1700000000 * NS_PER_S + 5,
                               .run_ns = 61 * NS_PER_S,
                               .duration_ns = 1500 * NS_PER_MS,
                               .run_id = "job \"1\"",
                               .role = "trainer",
                               .host = "node-a",
                               .backend = "static",
                               .entry_point = "train.py",
                               .restarts = 2,
                               .group_rank = 1,
                               .group_world_size = 4};
}

static void a_workers_event(void **state)
{
    (void)state;
    struct event_line line = some(EVENT_FAILED);
    line.of_worker = line.ended = true;
    line.exit_code = -9;
    line.rank = 5;
    line.local_rank = 1;
    line.role_rank = 5;
    line.role_world_size = 16;
    line.pid = 812;
    line.error = "killed\n";
    scope_buffer out = {0};
    assert_int_equal(event_line_format(&line, &out), 0);
    assert_string_equal(
        out.data,
        "{\"name\": \"torchelastic.worker.status.FAILED\", \"source\": \"WORKER\", \"timestamp\": "
        "1700000000, "
        "\"metadata\": {\"run_id\": \"job \\\"1\\\"\", \"global_rank\": 5, \"group_rank\": 1, \"worker_id\": "
        "\"812\", "
        "\"role\": \"trainer\", \"hostname\": \"node-a\", \"state\": \"FAILED\", \"total_run_time\": 61, "
        "\"rdzv_backend\": \"static\", \"raw_error\": \"killed\\u000a\", \"agent_restarts\": 2, "
        "\"duration_ms\": "
        "1500, "
        "\"exit_code\": -9, \"worker_pid\": 812, \"metadata\": \"{\\\"group_world_size\\\": 4, "
        "\\\"entry_point\\\": \\\"train.py\\\", \\\"local_rank\\\": [1], \\\"role_rank\\\": [5], "
        "\\\"role_world_size\\\": [16]}\"}}\n");
}

static void an_agents_event_has_no_rank(void **state)
{
    (void)state;
    struct event_line line = some(EVENT_RENDEZVOUS);
    scope_buffer out = {0};
    assert_int_equal(event_line_format(&line, &out), 0);
    assert_string_equal(
        out.data,
        "{\"name\": \"torchelastic.worker.status.RENDEZVOUS\", \"source\": \"AGENT\", \"timestamp\": "
        "1700000000, "
        "\"metadata\": {\"run_id\": \"job \\\"1\\\"\", \"global_rank\": null, \"group_rank\": 1, "
        "\"worker_id\": null, "
        "\"role\": \"trainer\", \"hostname\": \"node-a\", \"state\": \"RENDEZVOUS\", \"total_run_time\": 61, "
        "\"rdzv_backend\": \"static\", \"raw_error\": null, \"agent_restarts\": 2, \"duration_ms\": 1500, "
        "\"exit_code\": null, \"worker_pid\": null, \"metadata\": \"{\\\"group_world_size\\\": 4, "
        "\\\"entry_point\\\": \\\"train.py\\\", \\\"local_rank\\\": [], \\\"role_rank\\\": [], "
        "\\\"role_world_size\\\": []}\"}}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_workers_event),
        cmocka_unit_test(an_agents_event_has_no_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
