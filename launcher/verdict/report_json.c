/* report_json.c - the verdict for programs: failure.json. Its schema is failure_json.md; published keys
 * keep their name and meaning. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "launcher/verdict/report.h"
#include "proto/base/clock.h"
#include "proto/xid.h"

enum { SCHEMA_VERSION = 1 };

static void put_text(struct buffer *out, const char *name, const char *text)
{
    buffer_printf(out, ", \"%s\": ", name);
    (void)buffer_json_string(out, text && *text ? text : NULL); /* out remembers a failure */
}

static void put_time(struct buffer *out, const char *name, int64_t wall_ns)
{
    time_t seconds = (time_t)(wall_ns / NS_PER_S);
    struct tm parts;
    char text[32];
    if (!gmtime_r(&seconds, &parts) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts))
        text[0] = '\0';
    buffer_printf(out, ", \"%s\": \"%s.%03dZ\"", name, text, (int)(wall_ns % NS_PER_S / NS_PER_MS));
}

static void put_bool(struct buffer *out, const char *name, bool value)
{
    buffer_printf(out, ", \"%s\": %s", name, value ? "true" : "false");
}

/* How a process ended: a code or a signal, never both. */
static void put_end(struct buffer *out, int exit_code, int signal)
{
    char scratch[16];
    if (signal)
        buffer_printf(out, ", \"exit_code\": null, \"signal\": %d, \"signal_name\": \"%s\"", signal,
                      failure_signal_name(signal, scratch, sizeof scratch));
    else
        buffer_printf(out, ", \"exit_code\": %d, \"signal\": null, \"signal_name\": null", exit_code);
}

static void put_bytes(struct buffer *out, const char *name, int64_t bytes)
{
    if (bytes > 0)
        buffer_printf(out, ", \"%s\": %" PRId64, name, bytes);
    else
        buffer_printf(out, ", \"%s\": null", name);
}

static void put_memory(struct buffer *out, const struct worker_failure *failure)
{
    put_bool(out, "out_of_memory", failure->out_of_memory);
    static const char *const checks[] = {[FAILURE_OOM_NOT_CHECKED] = "not read",
                                         [FAILURE_OOM_UNREADABLE] = "unreadable",
                                         [FAILURE_OOM_COUNTED] = "read"};
    buffer_printf(out, ", \"memory\": {\"oom_counter\": \"%s\", \"oom_kills\": %" PRId64,
                  checks[failure->oom_check], failure->oom_kills);
    put_bytes(out, "limit_bytes", failure->memory_limit);
    put_bytes(out, "peak_bytes", failure->memory_peak);
    put_bool(out, "machine_out_of_memory", failure->memory_host);
    buffer_text(out, "}");
}

static void put_gpu(struct buffer *out, const struct worker_failure *failure)
{
    if (!failure->xid) {
        buffer_text(out, ", \"xid\": null");
        return;
    }
    const struct xid_meaning *meaning = xid_meaning(failure->xid);
    buffer_printf(out, ", \"xid\": {\"number\": %d", failure->xid);
    put_text(out, "pci", failure->pci);
    put_bool(out, "of_this_rank", !failure->xid_elsewhere);
    put_text(out, "what", meaning->what);
    put_text(out, "advice", meaning->advice);
    buffer_text(out, "}");
}

static void put_failure(struct buffer *out, const struct report_failure *entry)
{
    const struct worker_failure *failure = entry->failure;
    buffer_printf(out, "{\"class\": \"%s\", \"rank\": %d, \"local_rank\": %d, \"node_rank\": %d, \"pid\": %d",
                  failure_class_name(failure_class_of(failure)), failure->rank, failure->local_rank,
                  failure->group_rank, failure->pid);
    put_text(out, "host", failure->host);
    put_time(out, "time", failure->wall_ns);
    if (entry->timed)
        buffer_printf(out, ", \"after_s\": %.6f", (double)entry->after_ns / NS_PER_S);
    else
        buffer_text(out, ", \"after_s\": null");
    put_end(out, failure->exit_code, failure->signal);
    put_bool(out, "core_dumped", failure->core_dumped);
    put_bool(out, "lost_node", failure->lost_node);
    put_bool(out, "not_started", failure->not_started);
    put_bool(out, "unkillable", failure->unkillable);
    put_bool(out, "after_stop", failure->after_stop);
    put_bool(out, "no_restart", failure->no_restart);
    put_bool(out, "hung", failure->hung);
    if (failure->hung && failure->step >= 0)
        buffer_printf(out, ", \"last_step\": %" PRId64, failure->step);
    else
        buffer_text(out, ", \"last_step\": null");
    put_memory(out, failure);
    put_gpu(out, failure);
    put_text(out, "message", failure->message);
    put_text(out, "traceback", failure->traceback);
    put_text(out, "stderr", failure->tail);
    put_text(out, "error_file", entry->error_file_goes ? "" : failure->error_file);
    buffer_text(out, "}");
}

static void put_stopped(struct buffer *out, const struct report *report)
{
    buffer_printf(out, ", \"terminated_by_launcher_total\": %d, \"terminated_by_launcher\": [",
                  report->stopped_total);
    for (int i = 0; i < report->stopped_count; i++) {
        const struct report_stopped *worker = &report->stopped[i];
        buffer_printf(out, "%s{\"rank\": %d, \"local_rank\": %d, \"pid\": %d", i ? ", " : "", worker->rank,
                      worker->local_rank, worker->pid);
        put_end(out, worker->exit_code, worker->signal);
        if (worker->place)
            put_text(out, "place", worker->place);
        buffer_text(out, "}");
    }
    buffer_text(out, "]");
}

static void put_done(struct buffer *out, const struct report *report)
{
    buffer_text(out, ", \"exited_early\": [");
    for (int i = 0; i < report->done_count; i++)
        buffer_printf(out, "%s{\"rank\": %d, \"local_rank\": %d, \"pid\": %d}", i ? ", " : "",
                      report->done[i].rank, report->done[i].local_rank, report->done[i].pid);
    buffer_text(out, "]");
}

static void put_server(struct buffer *out, const struct report *report)
{
    put_text(out, "server", report->server);
    buffer_text(out, ", \"voters\": [");
    for (int i = 0; i < report->voter_count; i++) {
        buffer_text(out, i ? ", " : "");
        buffer_json_string(out, report->voters[i]);
    }
    buffer_text(out, "], \"server_changes\": [");
    for (int i = 0; i < report->change_count; i++) {
        const struct report_change *change = &report->changes[i];
        buffer_text(out, i ? ", {\"server\": " : "{\"server\": ");
        (void)buffer_json_string(out, *change->server ? change->server : NULL); /* out remembers a failure */
        put_text(out, "reason", change->reason);
        put_time(out, "time", change->wall_ns);
        buffer_text(out, "}");
    }
    buffer_text(out, "]");
}

int report_json(const struct report *report, struct buffer *out)
{
    scope_buffer sentence = {0};
    (void)report_sentence(report, &sentence);
    buffer_printf(out, "{\"version\": %d", SCHEMA_VERSION);
    put_text(out, "verdict", sentence.data);
    buffer_printf(
        out, ", \"exit_code\": %d, \"restarts\": %" PRId64 ", \"max_restarts\": %" PRId64 ", \"round\": %u",
        report->exit_code, report->restarts, report->max_restarts, report->round);
    put_text(out, "job_id", report->job_id);
    put_text(out, "program", report->program);
    put_text(out, "reported_by", report->host);
    put_time(out, "time", report->wall_ns);
    buffer_text(out, ", \"first_cause\": ");
    if (report->count)
        put_failure(out, &report->failures[0]);
    else
        buffer_text(out, "null");
    buffer_printf(out, ", \"failures_total\": %d, \"others\": [", report->total);
    for (int i = 1; i < report->count; i++) {
        buffer_text(out, i > 1 ? ", " : "");
        put_failure(out, &report->failures[i]);
    }
    buffer_text(out, "]");
    put_stopped(out, report);
    put_done(out, report);
    put_server(out, report);
    buffer_text(out, "}\n");
    return out->failed || sentence.failed ? -1 : 0;
}
