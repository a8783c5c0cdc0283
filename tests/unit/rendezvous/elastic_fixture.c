/* elastic_fixture.c - see elastic_fixture.h. */
#include "tests/unit/rendezvous/elastic_fixture.h"

#include "proto/base/buffer.h"
#include "tests/support/cmocka_all.h"

void elastic_create_held_back(struct elastic_fixture *f, int min, int max, int64_t backoff_ns)
{
    struct roster_options options = {.job_id = "job",
                                     .min_nodes = min,
                                     .max_nodes = max,
                                     .elastic = true,
                                     .max_restarts = 2,
                                     .backoff_ns = backoff_ns,
                                     .backoff_cap_ns = backoff_ns,
                                     .epoch = 42,
                                     .join_timeout_ns = 600 * NS_PER_S,
                                     .last_call_ns = LAST_CALL_S * NS_PER_S,
                                     .notice_ns = NOTICE_S * NS_PER_S,
                                     .stop_timeout_ns = 60 * NS_PER_S};
    *f = (struct elastic_fixture){.roster = roster_create(&options, (struct instant){0}, NULL)};
    assert_non_null(f->roster);
    assert_int_equal(roster_actions_init(&f->actions, roster_slot_count(f->roster), NULL), 0);
}

void elastic_create(struct elastic_fixture *f, int min, int max)
{
    elastic_create_held_back(f, min, max, 0);
}

int elastic_teardown(void **state)
{
    struct elastic_fixture *f = *state;
    roster_actions_free(&f->actions);
    roster_destroy(f->roster);
    return 0;
}

int elastic_setup(void **state)
{
    static struct elastic_fixture fixture;
    *state = &fixture;
    elastic_create(&fixture, 2, 4);
    return 0;
}

static int elastic_step(struct elastic_fixture *f, const struct roster_event *event)
{
    int result = roster_step(f->roster, event, f->now, &f->actions, &f->err);
    f->stops = f->worlds = f->verdicts = f->handovers = 0;
    for (size_t i = 0; i < f->actions.count; i++) {
        const struct roster_action *action = &f->actions.items[i];
        struct membership_event sent;
        int who = (int)action->session - 1;
        roster_fill_event(f->roster, action, &sent);
        if (action->kind == ROSTER_ACCEPT) {
            f->slot[who] = action->member;
        } else if (action->kind == ROSTER_SEND_WORLD) {
            f->world[who] = sent.world;
            f->failed_class[who] = sent.failed_class;
            f->worlds++;
        } else if (action->kind == ROSTER_SEND_STOP) {
            f->stop[who] = sent;
            f->stops++;
        } else if (action->kind == ROSTER_SEND_VERDICT) {
            f->verdict[who] = sent;
            f->verdicts++;
        } else if (action->kind == ROSTER_HANDOVER) {
            f->handovers++;
        }
    }
    return result;
}

struct roster_join elastic_join_of(int who, const char *name)
{
    return (struct roster_join){.protocol_version = ROSTER_PROTOCOL_VERSION,
                                .job_id = "job",
                                .min_nodes = 2,
                                .max_nodes = 4,
                                .elastic = true,
                                .agent_name = name,
                                .node_rank = -1,
                                .incarnation = {7, (uint64_t)who + 1},
                                .local_world_size = who + 1,
                                .role = "trainer",
                                .store_addr = name,
                                .store_port = 29500,
                                .local = who == 0};
}

void elastic_join_as(struct elastic_fixture *f, int who, const struct roster_join *join)
{
    struct roster_event event = {.kind = ROSTER_JOIN, .session = (uint64_t)who + 1, .join = join};
    assert_int_equal(elastic_step(f, &event), 0);
}

void elastic_join(struct elastic_fixture *f, int who, const char *name)
{
    struct roster_join as = elastic_join_of(who, name);
    elastic_join_as(f, who, &as);
}

void elastic_event_of(struct elastic_fixture *f, int who, struct roster_event event)
{
    event.session = (uint64_t)who + 1;
    event.member = f->slot[who];
    assert_int_equal(elastic_step(f, &event), 0);
}

void elastic_report(struct elastic_fixture *f, int who, enum membership_report_kind kind)
{
    struct worker_failure failure = {.exit_code = 3, .pid = 12};
    struct roster_event event = {.kind = ROSTER_REPORT};
    event.report.id = f->world[who].id;
    event.report.kind = kind;
    event.report.sequence = ++f->sequence[who];
    event.report.failure = &failure;
    elastic_event_of(f, who, event);
}

void elastic_pass(struct elastic_fixture *f, double seconds, const int *who, int count)
{
    int64_t until = f->now.ns + (int64_t)(seconds * (double)NS_PER_S);
    while (f->now.ns < until) {
        int64_t left = until - f->now.ns;
        f->now.ns += left < NS_PER_S ? left : NS_PER_S;
        for (int i = 0; i < count; i++)
            elastic_event_of(f, who[i], (struct roster_event){.kind = ROSTER_BEAT});
        struct roster_event tick = {.kind = ROSTER_TICK};
        assert_int_equal(elastic_step(f, &tick), 0);
    }
}

const int elastic_all[] = {1, 2, 3, 4, 5, 6, 7};

void elastic_expect_state(struct elastic_fixture *f, const char *expected)
{
    scope_buffer line = {0};
    assert_int_equal(roster_format(f->roster, &line), 0);
    assert_string_equal(line.data, expected);
}

void elastic_three_run(struct elastic_fixture *f)
{
    elastic_join(f, 0, "node0");
    elastic_join(f, 1, "node1");
    elastic_join(f, 2, "node2");
    elastic_pass(f, LAST_CALL_S, elastic_all, 2);
    assert_int_equal(f->worlds, 3);
    for (int i = 0; i < 3; i++)
        elastic_report(f, i, MEMBERSHIP_REPORT_RUNNING);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
}

void elastic_stop_and_form(struct elastic_fixture *f, const int *who, int count)
{
    for (int i = 0; i < count; i++)
        elastic_report(f, who[i], MEMBERSHIP_REPORT_STOPPED);
}

void elastic_three_fail(struct elastic_fixture *f)
{
    elastic_report(f, 1, MEMBERSHIP_REPORT_FAILED);
    for (int i = 0; i < 3; i++)
        elastic_report(f, i, MEMBERSHIP_REPORT_STOPPED);
}

void elastic_expect_progress(struct elastic_fixture *f, const char *expected)
{
    char text[256];
    roster_describe_progress(f->roster, text, sizeof text);
    assert_string_equal(text, expected);
}

void elastic_goes(struct elastic_fixture *f, int who, enum roster_event_kind kind, int exit_code)
{
    elastic_event_of(f, who,
                     (struct roster_event){.kind = kind, .exit_code = exit_code, .grace_ns = 5 * NS_PER_S});
}
