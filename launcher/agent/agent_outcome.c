/* agent_outcome.c - the end of a failed job: the report and its destinations. See agent_internal.h. */
#include "launcher/agent/agent_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/agent/agent_membership.h"
#include "launcher/agent/agent_output.h"
#include "launcher/agent/board/agent_board.h"
#include "launcher/output/pump.h"
#include "launcher/verdict/failure_files.h"
#include "launcher/verdict/report.h"
#include "proto/base/guard.h"
#include "proto/env_names.h"

enum { LISTED_LIMIT = 1 + ROUND_FAILURES_KEPT + FAILURE_OTHERS_LIMIT };

static const int64_t files_patience_ns = 5 * NS_PER_S;

static bool same_worker(const struct worker_failure *a, const struct worker_failure *b)
{
    return a->rank == b->rank && a->pid == b->pid && a->group_rank == b->group_rank &&
           a->lost_node == b->lost_node;
}

static bool is_listed(const struct report_failure *list, int count, const struct worker_failure *failure)
{
    for (int i = 0; i < count; i++)
        if (same_worker(list[i].failure, failure))
            return true;
    return false;
}

static const struct failure_brief *brief_of(const struct membership_event *verdict,
                                            const struct worker_failure *failure)
{
    for (int i = 0; i < verdict->other_count; i++) {
        const struct failure_brief *brief = &verdict->others[i];
        if (brief->rank == failure->rank && brief->pid == failure->pid &&
            brief->group_rank == failure->group_rank)
            return brief;
    }
    return NULL;
}

/* If the server has a failure of ours, it also has its time, on the one clock for all. */
static struct report_failure list_own(const struct membership_event *verdict,
                                      const struct observed_failure *seen,
                                      const struct observed_failure *cause)
{
    struct report_failure entry = {.failure = &seen->failure};
    const struct failure_brief *brief = verdict ? brief_of(verdict, &seen->failure) : NULL;
    if (brief || cause) {
        entry.timed = true;
        entry.after_ns = brief ? brief->after_ns : instant_diff_ns(seen->at, cause->at);
    }
    return entry;
}

static int by_key(const void *a, const void *b)
{
    const struct report_failure *x = a, *y = b;
    struct instant x_at = {x->timed ? x->after_ns : INT64_MAX}, y_at = {y->timed ? y->after_ns : INT64_MAX};
    struct failure_key x_key = failure_key_of(x->failure, x_at), y_key = failure_key_of(y->failure, y_at);
    return failure_key_compare(&x_key, &y_key);
}

static int by_rank(const void *a, const void *b)
{
    const struct report_stopped *x = a, *y = b;
    return x->rank - y->rank;
}

static const struct observed_failure *find_own(const struct round *round,
                                               const struct worker_failure *failure)
{
    for (int i = 0; i < round->failure_count; i++)
        if (same_worker(&round->failures[i]->failure, failure))
            return round->failures[i];
    return NULL;
}

/* The content of the report. The records are the round's and the verdict's, except those made of the
 * verdict's briefs. */
struct outcome {
    struct report_failure list[LISTED_LIMIT];
    int count;
    struct worker_failure others[FAILURE_OTHERS_LIMIT];
};

/* The first cause from the server, else our best; then the rest of ours, then the server's list of others. */
static void list_failures(const struct round *round, const struct membership_event *verdict,
                          bool keeps_error_files, struct outcome *out)
{
    const struct membership_event *judged = verdict && verdict->failed ? verdict : NULL;
    const struct observed_failure *cause = judged                 ? find_own(round, &judged->failure)
                                           : round->failure_count ? round->failures[0]
                                                                  : NULL;
    if (judged)
        out->list[out->count++] = (struct report_failure){.failure = &judged->failure, .timed = true};
    for (int i = 0; i < round->failure_count; i++) {
        const struct observed_failure *seen = round->failures[i];
        if (!is_listed(out->list, out->count, &seen->failure))
            out->list[out->count++] = list_own(verdict, seen, cause);
    }
    for (int i = 0; judged && i < judged->other_count; i++) {
        failure_from_brief(&judged->others[i], 0, &out->others[i]);
        if (!is_listed(out->list, out->count, &out->others[i]))
            out->list[out->count++] = (struct report_failure){
                .failure = &out->others[i], .timed = true, .after_ns = judged->others[i].after_ns};
    }
    assert(out->count <= LISTED_LIMIT);
    for (int i = 0; i < out->count; i++)
        out->list[i].error_file_goes = !keeps_error_files;
    if (out->count > 1)
        qsort(out->list + 1, (size_t)out->count - 1, sizeof *out->list, by_key);
}

static int total_of(const struct membership_event *verdict, int count)
{
    int total = verdict && verdict->failed ? verdict->other_total + 1 : count;
    return total > count ? total : count;
}

static const char *reason_of(const struct agent *agent, char *scratch, size_t size)
{
    char name[16];
    const struct membership_event *verdict = agent_membership_verdict(agent);
    if (verdict)
        return verdict->reason;
    if (*agent->end_reason)
        return agent->end_reason;
    if (agent->group.signal) {
        (void)snprintf(scratch, size, "stopped by %s",
                       failure_signal_name(agent->group.signal, name, sizeof name));
        return scratch;
    }
    return NULL;
}

/* Off the main thread, with a bounded wait: the files are for later. */
static void write_files(struct agent *agent, const struct report *report, const struct buffer *sentence,
                        const struct buffer *text)
{
    struct muster_error err = {0};
    scope_buffer json = {0};
    const struct worker_failure *cause = report->count ? report->failures[0].failure : NULL;
    bool here = cause && *cause->error_file && find_own(&agent->round, cause);
    if (report_json(report, &json) < 0)
        return;
    struct failure_files files = {
        .json = json.data,
        .json_directory = agent_output_run_directory(agent),
        .sentence = sentence->data,
        .termination_log = agent->config->termination_log,
        .termination_log_asked = agent->config->termination_log_asked,
        .error_file = getenv(ENV_ERROR_FILE),
        .cause_error_file = here ? cause->error_file : NULL,
        .traceback = text->length ? text->data : sentence->data,
        .exit_code = report->exit_code,
        .wall_ns = report->wall_ns,
    };
    scope_buffer complaints = {0};
    if (failure_files_write(&files, files_patience_ns, &complaints, &err) < 0)
        log_warning(&agent->log, "%s", err.text);
    for (const char *line = complaints.length ? complaints.data : ""; *line;) {
        size_t length = strcspn(line, "\n");
        log_warning(&agent->log, "%.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

static void fill_server(const struct agent *agent, const struct membership_serving *serving,
                        struct report *report)
{
    const struct board *board = agent_board_kept(agent);
    report->server = serving->server;
    for (int i = 0; i < serving->voter_count && i < REPORT_VOTERS; i++)
        report->voters[report->voter_count++] = serving->voters[i];
    for (int i = 0; board && i < board->change_count && i < REPORT_CHANGES; i++) {
        const struct board_change *change = &board->changes[i];
        report->changes[report->change_count++] =
            (struct report_change){change->at * NS_PER_MS, change->server, change->reason};
    }
}

void agent_outcome_tell(struct agent *agent, int exit_code)
{
    struct membership_serving serving;
    const struct membership_event *verdict = agent_membership_verdict(agent);
    struct round *round = &agent->round;
    char scratch[64];
    scope_free struct outcome *outcome = mem_calloc(1, sizeof *outcome);
    scope_buffer text = {0}, sentence = {0};
    if (outcome)
        list_failures(round, verdict, config_wants_log_directory(agent->config), outcome);
    const int count = outcome ? outcome->count : 0;
    int stopped = round->stopped_count < ROUND_STOPPED_KEPT ? round->stopped_count : ROUND_STOPPED_KEPT;
    qsort(round->stopped, (size_t)stopped, sizeof *round->stopped, by_rank); /* in a deterministic order */
    struct report report = {
        .program = agent->config->program,
        .job_id = agent->config->rdzv_id,
        .host = agent->host,
        .reason = reason_of(agent, scratch, sizeof scratch),
        .failures = outcome ? outcome->list : NULL,
        .count = count,
        .total = total_of(verdict, count),
        .stopped = round->stopped,
        .stopped_count = stopped,
        .stopped_total = round->stopped_count,
        .done = round->done,
        .done_count = round->done_count,
        .exit_code = exit_code,
        .restarts = round->world.restart_count,
        .max_restarts = agent->config->max_restarts,
        .round = round->world.id.round,
        .wall_ns = clock_wall_ns(),
    };
    agent_membership_serving(agent, &serving);
    fill_server(agent, &serving, &report);
    if (count && report_format(&report, &text) == 0)
        pump_say(agent->pump, LOG_LEVEL_ERROR, text.data);
    if (report_sentence(&report, &sentence) < 0)
        return;
    if (count || verdict)
        log_error(&agent->log, "verdict: %s", sentence.data);
    write_files(agent, &report, &sentence, &text);
}
