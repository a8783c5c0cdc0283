/* launcher_walk_test.c - the launcher's pure parts on random input: the table of a group of workers,
 * heartbeats, notices; lines, filters, records and events; the report of a failure. One line a seed (walk.h);
 * what cuts its input anywhere is also held against itself in one piece. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "launcher/output/line.h"
#include "launcher/output/log_filter.h"
#include "launcher/output/log_record.h"
#include "launcher/policy/hang.h"
#include "launcher/policy/heartbeat.h"
#include "launcher/policy/stop_notice.h"
#include "launcher/policy/worker_group.h"
#include "launcher/verdict/report.h"
#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "rendezvous/failure/failure.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/golden.h"
#include "tests/support/walk.h"

enum { SEEDS = 80, STEPS = 200 };

/* One line a seed of a walk into golden/NAME_walks.txt. */
static void keep(const char *name, void (*one)(struct walk *walk))
{
    char path[100];
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        one(&walk);
        buffer_printf(&text, "%llu: %016llx\n", (unsigned long long)seed, (unsigned long long)walk.digest);
    }
    (void)snprintf(path, sizeof path, "tests/unit/launcher/golden/%s_walks.txt", name);
    golden_check(path, &text);
}

/* -- the table of a group, and the meaning of its end -- */

/* Every name, and what every end in every state means. */
static void saw_tables(struct walk *walk)
{
    for (int i = -1; i <= 40; i++) {
        walk_saw_text(walk, worker_group_state_name((enum worker_group_state)i));
        walk_saw_text(walk, worker_group_state_meaning((enum worker_group_state)i));
        walk_saw_text(walk, worker_group_event_name((enum worker_group_event_kind)i));
        walk_saw_text(walk, worker_group_action_name((enum worker_group_action)i));
        walk_saw_text(walk, end_kind_name((enum end_kind)i));
        walk_saw_text(walk, hang_state_name((enum hang_state)i));
    }
    for (int group = 0; group < GROUP_STATE_COUNT; group++)
        for (int status = 0; status < 256; status++)
            for (int how = 0; how < 4; how++)
                walk_saw_number(walk, end_kind_of((enum worker_group_state)group, how & 1, how & 2, status));
}

static void one_group(struct walk *walk)
{
    if (walk_one_in(walk, 20))
        saw_tables(walk);
    struct worker_group group = {.shutdown_grace_ns = walk_below(walk, 3) * NS_PER_S,
                                 .restart_grace_ns = walk_below(walk, 3) * NS_PER_S,
                                 .hold_ns = NS_PER_S,
                                 .kill_bound_ns = NS_PER_S,
                                 .clean_bound_ns = NS_PER_S,
                                 .deadline = INSTANT_NEVER,
                                 .drains = walk_one_in(walk, 2),
                                 .ends_together = walk_one_in(walk, 2)};
    struct instant now = {NS_PER_S};
    for (int i = 0; i < STEPS && group.state != GROUP_OVER; i++) {
        static const int codes[] = {0, 1, 138, 143};
        struct worker_group_event event = {
            .kind = (enum worker_group_event_kind)walk_below(walk, GROUP_EVENT_COUNT),
            .exit_code = walk_pick(walk, codes),
            .signal = walk_one_in(walk, 2) ? SIGTERM : SIGINT,
            .grace_ns = walk_one_in(walk, 2) ? 0 : walk_below(walk, 9) * NS_PER_S,
            .planned = walk_one_in(walk, 2),
            .moves = walk_one_in(walk, 2),
            .elsewhere = walk_one_in(walk, 2)};
        struct muster_error err = {0};
        unsigned actions = 0;
        if (event.kind == GROUP_DEADLINE || walk_one_in(walk, 3)) { /* when it is due */
            if (group.deadline.ns == INSTANT_NEVER.ns)
                continue;
            event.kind = GROUP_DEADLINE;
            now.ns = group.deadline.ns > now.ns ? group.deadline.ns : now.ns;
        }
        now.ns += walk_below(walk, NS_PER_S / 8);
        group.listens = walk_one_in(walk, 2);
        group.keeps = walk_one_in(walk, 2);
        group.holds = walk_one_in(walk, 2);
        int result = worker_group_step(&group, &event, now, &actions, &err);
        const int64_t numbers[] = {result,
                                   result == 0 ? actions : 0,
                                   group.deadline.ns,
                                   group.kill_at.ns,
                                   group.planned,
                                   group.renews,
                                   group.stop_asked,
                                   group.leaving,
                                   group.exit_code,
                                   group.signal,
                                   worker_group_wants_empty(&group)};
        walk_saw(walk, numbers, sizeof numbers);
        walk_saw_text(walk, worker_group_state_name(group.state));
        walk_saw_text(walk, result < 0 ? err.text : NULL);
    }
}

static void groups_of_workers(void **state)
{
    (void)state;
    keep("group", one_group);
    assert_string_equal(worker_group_state_name(GROUP_STATE_COUNT), "?");
    assert_string_equal(worker_group_event_name(GROUP_EVENT_COUNT), "?");
    assert_string_equal(worker_group_action_name(GROUP_ACTION_COUNT), "?");
    assert_string_equal(hang_state_name(HANG_STATE_COUNT), "?");
}

/* -- heartbeats and notices, in pieces of any size -- */

static void one_heartbeats(struct walk *walk)
{
    static const char *const parts[] = {"1\n",
                                        "41",
                                        "\n",
                                        "-1\n",
                                        "-",
                                        "ready\n",
                                        "rea",
                                        "regroup\n",
                                        "held\n",
                                        "regr",
                                        "dy\n",
                                        "x\n",
                                        "readyy\n",
                                        " 7\n",
                                        "9223372036854775807\n",
                                        "9223372036854775808\n",
                                        "000000000000000000001\n",
                                        "922337203685477580",
                                        "-5\n",
                                        "12a\n",
                                        "\nready"};
    enum { WORKERS = 6 };
    scope_free struct heartbeat *beats =
        mem_calloc(WORKERS, sizeof *beats); /* none outside of them is read */
    struct stop_notice_listener listener = {0}, whole = {0};
    struct instant now = {NS_PER_S};
    for (int i = 0; i < WORKERS; i++)
        heartbeat_init(&beats[i]);
    for (int i = 0; i < STEPS; i++) {
        const char *part = walk_pick(walk, parts);
        int worker = (int)walk_below(walk, WORKERS);
        size_t length = strlen(part), cut = (size_t)walk_below(walk, (int64_t)length + 1);
        struct heartbeat one = beats[worker];
        heartbeat_take(&one, part, length, now);
        heartbeat_take(&beats[worker], part, cut, now);
        heartbeat_take(&beats[worker], part + cut, length - cut, now);
        assert_int_equal(one.step, beats[worker].step);
        assert_int_equal(one.armed, beats[worker].armed);
        stop_notice_take(&whole, part, length);
        stop_notice_take(&listener, part, cut);
        stop_notice_take(&listener, part + cut, length - cut);
        assert_memory_equal(&whole, &listener, sizeof whole);
        if (walk_one_in(walk, 20)) {
            walk_saw_number(walk, listener.listens);
            listener = whole = (struct stop_notice_listener){0};
        }
        beats[worker].over = walk_one_in(walk, 30);
        now.ns += walk_below(walk, NS_PER_S);
        int64_t timeout = walk_one_in(walk, 8) ? 1 : walk_below(walk, 8) * NS_PER_S;
        scope_buffer text = {0};
        struct instant due = heartbeats_deadline(beats, WORKERS, timeout);
        if (timeout && due.ns != INSTANT_NEVER.ns && walk_one_in(walk, 4))
            now.ns = due.ns > now.ns ? due.ns - walk_below(walk, 2) : now.ns;
        walk_saw_number(walk, due.ns);
        if (timeout)
            walk_saw_number(walk, heartbeats_stalled(beats, WORKERS, timeout, now));
        assert_int_equal(heartbeats_format(beats, WORKERS, 10, &text), 0);
        walk_saw_text(walk, text.data);
        struct buffer full = {.limit = 1};
        assert_int_equal(heartbeats_format(beats, WORKERS, 10, &full), text.length ? -1 : 0);
        buffer_free(&full);
        for (int k = 0; k < WORKERS; k++) {
            const int64_t numbers[] = {beats[k].armed, beats[k].stalled, beats[k].step, beats[k].last.ns};
            walk_saw(walk, numbers, sizeof numbers);
            beats[k].stalled = false;
        }
    }
}

static void heartbeats(void **state)
{
    (void)state;
    keep("heartbeat", one_heartbeats);
}

static void one_notice(struct walk *walk)
{
    static char reason[STOP_NOTICE_LINE_LIMIT + 200];
    for (int i = 0; i < STEPS; i++) {
        size_t length = (size_t)walk_below(walk, walk_one_in(walk, 3) ? sizeof reason : 30);
        for (size_t k = 0; k < length; k++)
            reason[k] = "ab \"\\\n\x01\xc3\xa9\xff"[walk_below(walk, 10)];
        reason[length] = '\0';
        const struct stop_notice notice = {
            .change = (enum membership_change)walk_below(walk, MEMBERSHIP_CHANGE_COUNT),
            .round = (uint32_t)walk_below(walk, 3),
            .nodes = (int)walk_below(walk, 4),
            .next_nodes = (int)walk_below(walk, 4),
            .deadline = {walk_below(walk, 9 * NS_PER_S)},
            .reason = reason};
        scope_buffer out = {0};
        assert_int_equal(stop_notice_format(&notice, (struct instant){walk_below(walk, 9 * NS_PER_S)}, &out),
                         0);
        assert_in_range(out.length, 1, STOP_NOTICE_LINE_LIMIT);
        walk_saw_text(walk, out.data);
        struct hang hang = {.state = HANG_WATCHING, .deadline = INSTANT_NEVER};
        for (int k = 0; k < 6; k++) {
            walk_saw_number(walk, hang_step(&hang, (enum hang_event)walk_below(walk, HANG_EVENT_COUNT),
                                            (struct instant){k * NS_PER_S}));
            walk_saw_text(walk, hang_state_name(hang.state));
            walk_saw_number(walk, hang.deadline.ns);
        }
    }
}

static void notices(void **state)
{
    (void)state;
    keep("notice", one_notice);
}

/* -- lines -- */

static void keep_piece(void *context, const char *data, size_t length, bool ends)
{
    buffer_printf(context, "%zu%c", length, ends ? '.' : ',');
    buffer_append(context, data, length);
}

/* All output is passed on, in lines, and the bound holds. */
static void one_stream(struct walk *walk)
{
    static char data[3 * LINE_PIECE_LIMIT];
    struct line_splitter splitter = {0};
    scope_buffer passed = {0};
    const struct line_sink sink = {keep_piece, &passed};
    for (int i = 0; i < 30; i++) {
        size_t length = (size_t)walk_below(walk, walk_one_in(walk, 10) ? (int64_t)sizeof data : 60);
        if (walk_one_in(walk, 12))
            length = LINE_PIECE_LIMIT - 1 + (size_t)walk_below(walk, 3);
        for (size_t k = 0; k < length; k++)
            data[k] = 'x';
        for (int64_t ends = walk_below(walk, 4); ends > 0 && length; ends--)
            data[walk_below(walk, (int64_t)length)] = walk_one_in(walk, 3) ? '\r' : '\n';
        line_feed(&splitter, data, length, &sink);
        walk_saw_number(walk, line_pending(&splitter));
        assert_in_range(splitter.partial.length, 0, LINE_PIECE_LIMIT);
        if (walk_one_in(walk, 8))
            line_flush(&splitter, &sink);
    }
    line_flush(&splitter, &sink);
    walk_saw_number(walk, line_pending(&splitter));
    walk_saw(walk, passed.data, passed.length);
    line_free(&splitter);
}

static void one_prefix(struct walk *walk)
{
    static const char *const parts[] = {"${role_name}",
                                        "${rank}",
                                        "$local_rank",
                                        "${local_rank}",
                                        "${hostname}",
                                        "$$",
                                        "$",
                                        "${node_rank}",
                                        "${restart}",
                                        "$time",
                                        "${time}",
                                        "${",
                                        "}",
                                        "x",
                                        "${rank",
                                        "$rankx",
                                        "${x}",
                                        "[",
                                        "]: ",
                                        "$role_name"};
    for (int i = 0; i < STEPS; i++) {
        char pattern[200] = "", list[60] = "";
        scope_buffer out = {0};
        for (int64_t n = walk_below(walk, 6); n > 0; n--)
            strcat(pattern, walk_pick(walk, parts));
        const struct line_names names = {.role = "trainer",
                                         .host = "h",
                                         .time = "T",
                                         .rank = 11,
                                         .local_rank = 3,
                                         .node_rank = 2,
                                         .restart = 5};
        assert_int_equal(line_prefix(pattern, &names, &out), 0);
        walk_saw_text(walk, out.data);
        walk_saw_number(walk, line_prefix_has_time(pattern));
        for (int64_t n = walk_below(walk, 6); n > 0; n--) {
            static const char *const ranks[] = {"0",    "1",    "2",           "13", ",", ",",
                                                "4095", "4096", "99999999999", "x",  " ", "-"};
            strcat(list, walk_pick(walk, ranks));
        }
        for (int rank = 0; rank < 15; rank++)
            walk_saw_number(walk, log_filter_shows(list, rank));
    }
    assert_int_equal(log_filter_shows(NULL, 3), 1);
}

static void one_filter(struct walk *walk)
{
    for (int i = 0; i < STEPS / 2; i++) {
        char text[40], line[40];
        struct log_filter filter = {0};
        size_t length = (size_t)walk_below(walk, 12), of_line = (size_t)walk_below(walk, 12);
        for (size_t k = 0; k < length; k++)
            text[k] = "ab,,"[walk_below(walk, 4)];
        text[length] = '\0';
        for (size_t k = 0; k < of_line; k++)
            line[k] = "aab,"[walk_below(walk, 4)];
        assert_int_equal(log_filter_parse(text, &filter), 0);
        walk_saw_number(walk, log_filter_matches(&filter, line, of_line));
        for (size_t k = 0; filter.words && filter.words[k]; k++)
            walk_saw_text(walk, filter.words[k]);
        log_filter_free(&filter);
        log_filter_free(&filter);
    }
}

static int parse_filter(void *context)
{
    struct log_filter filter = {0};
    int result = log_filter_parse(context, &filter);
    log_filter_free(&filter);
    return result;
}

static void lines(void **state)
{
    (void)state;
    keep("stream", one_stream);
    keep("prefix", one_prefix);
    keep("filter", one_filter);
    faults_sweep(parse_filter, "a,b,c,,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s");
}

static void one_record(struct walk *walk)
{
    static const char *const texts[] = {"",
                                        "x\n",
                                        "muster: warning: text\n",
                                        "muster: error: no\r\n",
                                        "muster: info\n",
                                        "a \"quoted\" \xff\r",
                                        "two\nlines\n",
                                        "muster: debug: y",
                                        "\n",
                                        "\r\n",
                                        "z\r"};
    for (int i = 0; i < STEPS; i++) {
        const struct log_style style = {(enum log_format)walk_below(walk, 3),
                                        walk_one_in(walk, 5) ? "" : "host"};
        const char *data = walk_pick(walk, texts);
        int64_t wall = walk_one_in(walk, 4)
                           ? 0
                           : walk_below(walk, INT64_C(4000000000)) * NS_PER_S + walk_below(walk, NS_PER_S);
        char time[LOG_TIME_SIZE];
        scope_buffer out = {0}, head = {0};
        log_record_time(wall, time);
        walk_saw_text(walk, time);
        assert_int_equal(log_record_agent(&style, (enum log_level)walk_below(walk, 4), wall, data, &out), 0);
        const int local_rank = (int)walk_below(walk, 2); /* arguments have no order */
        const int stream = 1 + (int)walk_below(walk, 2);
        assert_int_equal(log_record_head(&style, stream, 5, local_rank, &head), 0);
        assert_int_equal(log_record_worker(&head, time, data, strlen(data), walk_one_in(walk, 3), &out), 0);
        const struct event_line line = {.state = (enum event_state)walk_below(walk, EVENT_STATE_COUNT),
                                        .of_worker = walk_one_in(walk, 2),
                                        .wall_ns = wall,
                                        .run_ns = walk_below(walk, 3 * NS_PER_S),
                                        .duration_ns = walk_below(walk, 3 * NS_PER_S),
                                        .run_id = "job",
                                        .role = "r",
                                        .host = "h",
                                        .backend = "c10d",
                                        .entry_point = data,
                                        .error = walk_one_in(walk, 2) ? data : NULL,
                                        .restarts = walk_below(walk, 3),
                                        .group_rank = (int)walk_below(walk, 3),
                                        .group_world_size = 3,
                                        .ended = walk_one_in(walk, 2),
                                        .exit_code = (int)walk_below(walk, 5) - 2,
                                        .rank = 4,
                                        .local_rank = 1,
                                        .role_rank = 2,
                                        .role_world_size = 6,
                                        .pid = 77};
        assert_int_equal(event_line_format(&line, &out), 0);
        walk_saw_text(walk, out.data);
        struct buffer full = {.limit = (size_t)walk_below(walk, 40)};
        walk_saw_number(walk, log_record_worker(&head, time, data, strlen(data), false, &full));
        walk_saw_number(walk, event_line_format(&line, &full));
        buffer_free(&full);
    }
}

static void records(void **state)
{
    (void)state;
    keep("record", one_record);
}

/* -- the report -- */

static void random_failure(struct walk *walk, struct worker_failure *f)
{
    static const char *const texts[] = {"",
                                        "ValueError: no",
                                        "line one\nline two\n",
                                        "Connection reset by peer",
                                        "Traceback\n  File \"x\"\nRuntimeError: a \"b\"",
                                        "caf\xc3\xa9 \x01\xff"};
    memset(f, 0, sizeof *f);
    f->rank = (int)walk_below(walk, 5);
    f->local_rank = (int)walk_below(walk, 5);
    f->pid = 100 + (int)walk_below(walk, 5);
    f->exit_code = walk_one_in(walk, 2) ? -1 : 1 + (int)walk_below(walk, 140);
    f->signal = f->exit_code == -1 ? 1 + (int)walk_below(walk, 65) : 0;
    bool *const marks[] = {&f->core_dumped, &f->out_of_memory, &f->after_stop,    &f->not_started, &f->hung,
                           &f->unkillable,  &f->memory_host,   &f->xid_elsewhere, &f->lost_node};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        *marks[i] = walk_one_in(walk, 6);
    f->step = walk_below(walk, 4) - 1;
    f->xid = walk_one_in(walk, 4) ? 1 + (int)walk_below(walk, 140) : 0;
    f->oom_check = (enum failure_oom_check)walk_below(walk, FAILURE_OOM_COUNTED + 1);
    f->oom_kills = walk_below(walk, 3);
    f->memory_limit = walk_below(walk, 2) << 30;
    f->memory_peak = walk_below(walk, 2) << 29;
    f->wall_ns =
        walk_one_in(walk, 5) ? 0 : INT64_C(1700000000) * NS_PER_S + walk_below(walk, 100) * NS_PER_MS;
    strcpy(f->host, walk_one_in(walk, 4) ? ""
                    : walk_one_in(walk, 4)
                        ? "a-host-whose-name-is-longer-than-sixty-characters-in-all.example"
                        : "h");
    strcpy(f->tail, walk_pick(walk, texts));
    strcpy(f->error_file, walk_one_in(walk, 2) ? "" : "/tmp/error.json");
    strcpy(f->message, walk_pick(walk, texts));
    strcpy(f->traceback, walk_pick(walk, texts));
    strcpy(f->pci, walk_one_in(walk, 2) ? "" : "0000:3b:00");
}

static int format_again(void *context)
{
    const struct report *report = context;
    scope_buffer out = {0};
    if (report_format(report, &out) || report_json(report, &out) || report_sentence(report, &out) ||
        report_line("x.py", report->failures[0].failure, &out))
        return -1;
    return 0;
}

static void one_report(struct walk *walk)
{
    enum { FAILURES = 18, STOPPED = 5 };
    static struct worker_failure records[FAILURES];
    static char program[1200];
    for (int i = 0; i < STEPS / 8; i++) {
        struct report_failure failures[FAILURES];
        struct report_stopped stopped[STOPPED];
        int count = 1 + (int)walk_below(walk, walk_one_in(walk, 6) ? FAILURES : 3),
            ended = (int)walk_below(walk, STOPPED);
        for (int k = 0; k < count; k++) {
            random_failure(walk, &records[k]);
            failures[k] = (struct report_failure){&records[k], k > 0 && walk_one_in(walk, 2),
                                                  (walk_below(walk, 5) - 2) * NS_PER_S / 3, false};
        }
        for (int k = 0; k < ended; k++)
            stopped[k] = (struct report_stopped){
                k, k, 200 + k, walk_one_in(walk, 2) ? -1 : (int)walk_below(walk, 3), 0, NULL};
        for (int k = 0; k < ended; k++)
            stopped[k].signal = stopped[k].exit_code == -1 ? SIGTERM : 0;
        size_t length = 1 + (size_t)walk_below(walk, walk_one_in(walk, 6) ? sizeof program - 1 : 70);
        memset(program, 'p', length);
        program[length] = '\0';
        struct report report = {.program = program,
                                .job_id = "job",
                                .host = "h",
                                .reason = walk_one_in(walk, 3) ? "a \"reason\"" : NULL,
                                .failures = failures,
                                .count = count,
                                .total = count + (int)walk_below(walk, 3),
                                .stopped = stopped,
                                .stopped_count = ended,
                                .stopped_total = ended + (int)walk_below(walk, 3),
                                .done = stopped,
                                .done_count = ended,
                                .exit_code = (int)walk_below(walk, 3) * 70,
                                .restarts = walk_below(walk, 3),
                                .max_restarts = walk_below(walk, 3),
                                .round = (unsigned)walk_below(walk, 3),
                                .wall_ns = INT64_C(1700000000) * NS_PER_S + walk_below(walk, 2)};
        scope_buffer out = {0};
        assert_int_equal(report_format(&report, &out), 0);
        assert_int_equal(report_line("x.py", &records[0], &out), 0);
        struct buffer full = {.limit = 1};
        assert_int_equal(report_format(&report, &full), -1);
        assert_int_equal(report_json(&report, &full), -1);
        assert_int_equal(report_sentence(&report, &full), -1);
        assert_int_equal(report_line("x.py", &records[0], &full), -1);
        buffer_free(&full);
        if (i == 0 && walk->digest % 8 == 0) /* it takes long */
            faults_sweep(format_again, &report);
        for (int none = 0; none < 2; none++) {
            report.count = none ? 0 : count;
            report.total = none ? 0 : report.total;
            size_t before = out.length;
            assert_int_equal(report_sentence(&report, &out), 0);
            assert_in_range(out.length - before, 1, REPORT_SENTENCE_LIMIT);
            assert_int_equal(report_json(&report, &out), 0);
        }
        walk_saw(walk, out.data, out.length);
    }
}

static void reports(void **state)
{
    (void)state;
    assert_int_equal(setenv("TZ", "UTC", 1), 0);
    tzset();
    keep("report", one_report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_of_workers), cmocka_unit_test(heartbeats),
        cmocka_unit_test(notices),           cmocka_unit_test(lines),
        cmocka_unit_test(records),           cmocka_unit_test(reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
