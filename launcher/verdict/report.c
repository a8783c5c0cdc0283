/* report.c - the report as text and the one-line sentence. See report.h. */
#include "launcher/verdict/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/base/clock.h"
#include "proto/exit_code.h"
#include "proto/xid.h"

/* torchrun's: the negative signal number if a signal ended the worker */
static int shown_code(const struct worker_failure *failure)
{
    return failure->signal ? -failure->signal : failure->exit_code;
}

int report_line(const char *name, const struct worker_failure *failure, struct buffer *out)
{
    return buffer_printf(out, "failed (exitcode: %d) local_rank: %d (pid: %d) of binary: %s",
                         shown_code(failure), failure->local_rank, failure->pid, name);
}

/* --- one failure --- */

/* The lines of text, each after indent but for the first. */
static void format_lines(const char *text, const char *indent, struct buffer *out)
{
    for (bool first = true; *text; first = false) {
        size_t length = strcspn(text, "\n");
        buffer_printf(out, "%s%.*s\n", first ? "" : indent, (int)length, text);
        text += length + (text[length] == '\n');
    }
}

/* Without a traceback. */
static void format_reason(const struct worker_failure *failure, bool root, struct buffer *out)
{
    char scratch[16], excerpt[FAILURE_EXCERPT_LIMIT];
    failure_excerpt(failure, excerpt, sizeof excerpt);
    if (failure->lost_node)
        buffer_printf(out, "the node was lost: %s",
                      *failure->message ? failure->message : "its heartbeats stopped");
    else if (failure->not_started)
        buffer_printf(out, "could not be started: %s", failure->message);
    else if (failure->unkillable)
        buffer_printf(out, "survived SIGKILL%s%s", *failure->message ? ": " : "", failure->message);
    else if (failure->hung && failure->step >= 0)
        buffer_printf(out, "Hung: no heartbeat after step %" PRId64 "; ended by signal %d", failure->step,
                      failure->signal);
    else if (failure->hung)
        buffer_printf(out, "Hung: no heartbeat; ended by signal %d", failure->signal);
    else if (failure->signal)
        buffer_printf(out, "Signal %d (%s) received by PID %d", failure->signal,
                      failure_signal_name(failure->signal, scratch, sizeof scratch), failure->pid);
    else if (*failure->message)
        buffer_text(out, failure->message);
    else {
        /* An exit without a message: its output is all there is. shown: the report prints it further down. */
        const char *shown = root && *failure->tail ? "the last lines of its stderr are below"
                            : !root && *excerpt    ? "the most informative line of its stderr is below"
                                                   : NULL;
        buffer_printf(out, "none was recorded; exited with code %d, %s", failure->exit_code,
                      shown ? shown : "and nothing was captured from its stderr");
    }
    buffer_text(out, failure->core_dumped ? ", core dumped\n" : "\n");
}

static void format_memory(const struct worker_failure *failure, bool root, struct buffer *out)
{
    char text[200], oom[320];
    failure_memory_text(failure, text, sizeof text);
    failure_oom_text(failure, oom, sizeof oom);
    bool known = root || failure->oom_check != FAILURE_OOM_NOT_CHECKED; /* a brief report has no evidence */
    if (!*text && *oom && known)
        buffer_printf(out, "  memory    : %s\n", oom);
    else if (*text)
        buffer_printf(out, "  memory    : %s\n", text);
    else if (failure->oom_kills > 0)
        buffer_printf(out,
                      "  memory    : the kernel killed %" PRId64
                      " of this container's processes for lack of memory in the same round; a child of this "
                      "worker may be one\n",
                      failure->oom_kills);
}

static void format_gpu(const struct worker_failure *failure, struct buffer *out)
{
    if (!failure->xid)
        return;
    const struct xid_meaning *meaning = xid_meaning(failure->xid);
    buffer_printf(out, "  gpu       : NVIDIA Xid %d at %s%s: %s; %s\n", failure->xid,
                  *failure->pci ? failure->pci : "an unknown GPU",
                  failure->xid_elsewhere ? " (of this node, perhaps not of this rank)" : "", meaning->what,
                  meaning->advice);
}

static void format_failure(int index, const struct report_failure *entry, struct buffer *out)
{
    char scratch[16];
    const struct worker_failure *failure = entry->failure;
    buffer_printf(out, "[%d]:\n  time      : ", index);
    time_t seconds = (time_t)(failure->wall_ns / NS_PER_S);
    struct tm parts;
    char text[32];
    if (localtime_r(&seconds, &parts) && strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &parts))
        buffer_text(out, text);
    else
        buffer_text(out, "unknown");
    buffer_printf(out,
                  "\n  host      : %s\n"
                  "  rank      : %d (local_rank: %d)\n"
                  "  exitcode  : %d (pid: %d)%s%s%s\n"
                  "  error_file: %s\n"
                  "  traceback : ",
                  *failure->host ? failure->host : "<N/A>", failure->rank, failure->local_rank,
                  shown_code(failure), failure->pid, failure->signal ? " (" : "",
                  failure->signal ? failure_signal_name(failure->signal, scratch, sizeof scratch) : "",
                  failure->signal ? ")" : "",
                  *failure->error_file && !entry->error_file_goes ? failure->error_file : "<N/A>");
    if (*failure->traceback && !failure->hung)
        format_lines(failure->traceback, "  ", out);
    else
        format_reason(failure, index == 0, out);
    if (*failure->traceback && failure->hung) { /* written when it was sent SIGUSR1 */
        buffer_text(out, "  place     : ");
        format_lines(failure->traceback, "    ", out);
    }
    format_memory(failure, index == 0, out);
    format_gpu(failure, out);
    if (failure_is_cut_short(failure))
        buffer_text(out, "  note      : it was already failing when the launcher stopped it\n");
    else if (failure->after_stop)
        buffer_text(out, "  note      : the launcher had sent it SIGTERM\n");
}

/* --- the sections --- */

static bool follows(const struct report_failure *entry)
{
    return failure_class_of(entry->failure) == FAILURE_CASCADE;
}

/* The failures except the first cause, secondary or not. Returns how many. */
static int format_others(const struct report *report, bool followers, struct buffer *out)
{
    int count = 0;
    for (int i = 1; i < report->count; i++)
        if (follows(&report->failures[i]) == followers) {
            char excerpt[FAILURE_EXCERPT_LIMIT];
            format_failure(i, &report->failures[i], out);
            failure_excerpt(report->failures[i].failure, excerpt, sizeof excerpt);
            if (*excerpt && !*report->failures[i].failure->traceback &&
                !report->failures[i].failure->not_started)
                buffer_printf(out, "  output    : %s\n", excerpt);
            if (report->failures[i].timed && report->failures[i].after_ns >= 0)
                buffer_printf(out, "  after     : %.3f s\n", (double)report->failures[i].after_ns / NS_PER_S);
            count++;
        }
    return count;
}

static void format_stopped(const struct report *report, struct buffer *out)
{
    for (int i = 0; i < report->stopped_count; i++) {
        char scratch[16];
        const struct report_stopped *worker = &report->stopped[i];
        buffer_printf(out, "  rank %d (local_rank: %d) (pid: %d) ", worker->rank, worker->local_rank,
                      worker->pid);
        if (worker->signal)
            buffer_printf(out, "ended by %s\n", failure_signal_name(worker->signal, scratch, sizeof scratch));
        else
            buffer_printf(out, "exited with code %d\n", worker->exit_code);
        if (worker->place) {
            buffer_text(out, "    place   : ");
            format_lines(worker->place, "      ", out);
        }
    }
    if (report->stopped_total > report->stopped_count)
        buffer_printf(out, "  and %d more\n", report->stopped_total - report->stopped_count);
}

/* A rank that leaves early with exit code 0 is no failure, but its peers' connections end with it. */
static void format_done(const struct report *report, struct buffer *out)
{
    if (!follows(&report->failures[0]))
        return; /* the first cause explains itself */
    for (int i = 0; i < report->done_count; i++)
        buffer_printf(out, "  rank %d (local_rank: %d) (pid: %d)\n", report->done[i].rank,
                      report->done[i].local_rank, report->done[i].pid);
}

/* The longest line of text, at most 60: torchrun's width of a rule. */
static int widest(const struct buffer *text, int width)
{
    enum { WIDTH_LIMIT = 60 };
    for (size_t at = 0; at < text->length;) {
        size_t length = strcspn(text->data + at, "\n");
        if (length >= WIDTH_LIMIT)
            return WIDTH_LIMIT;
        width = (int)length > width ? (int)length : width;
        at += length + 1;
    }
    return width;
}

static void format_rule(char c, int width, struct buffer *out)
{
    char line[64];
    memset(line, c, (size_t)width);
    line[width] = '\n';
    buffer_append(out, line, (size_t)width + 1);
}

static void add_part(const struct buffer *part, struct buffer *out)
{
    buffer_append(out, part->data, part->length);
    out->failed |= part->failed;
}

static void format_section(const char *heading, const struct buffer *text, int width, struct buffer *out)
{
    buffer_printf(out, "%s\n", heading);
    add_part(text, out);
    format_rule('-', width, out);
}

int report_format(const struct report *report, struct buffer *out)
{
    scope_buffer others = {0}, followers = {0}, stopped = {0}, done = {0}, root = {0};
    if (format_others(report, false, &others) == 0)
        buffer_text(&others, "  <NO_OTHER_FAILURES>\n");
    if (report->total > report->count)
        buffer_printf(&others, "  and %d more that are not listed here\n", report->total - report->count);
    (void)format_others(report, true, &followers);
    format_stopped(report, &stopped);
    format_done(report, &done);
    format_failure(0, &report->failures[0], &root);
    if (*report->failures[0].failure->tail) {
        buffer_text(&root, "  stderr    : the last lines\n    ");
        format_lines(report->failures[0].failure->tail, "    ", &root);
    }
    int width = widest(&stopped, widest(&followers, widest(&root, widest(&others, 1))));
    buffer_text(out, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n");
    format_rule('=', width, out);
    buffer_printf(out, "%s FAILED\n", report->program);
    format_rule('-', width, out);
    format_section("Failures:", &others, width, out);
    if (followers.length || followers.failed)
        format_section("Followed another failure (a peer or the store was gone):", &followers, width, out);
    if (stopped.length || stopped.failed)
        format_section("Terminated by the launcher:", &stopped, width, out);
    if (done.length || done.failed)
        format_section("Exited with code 0 before, which closed connections:", &done, width, out);
    buffer_text(out, "Root Cause (first observed failure):\n");
    add_part(&root, out);
    format_rule('=', width, out);
    return out->failed ? -1 : 0;
}

/* --- one sentence --- */

int report_sentence(const struct report *report, struct buffer *out)
{
    char what[REPORT_SENTENCE_LIMIT - 200];
    if (!report->count) {
        buffer_printf(out, "%.*s", (int)sizeof what, report->reason ? report->reason : "the job failed");
    } else {
        failure_describe(report->failures[0].failure, what, sizeof what);
        buffer_text(out, what);
        if (report->total > 1)
            buffer_printf(out, "; %d other%s failed too", report->total - 1, report->total > 2 ? "s" : "");
    }
    if (report->count && report->failures[0].failure->no_restart)
        buffer_text(out, "; not restarted, since a restart does not mend it");
    else if (report->max_restarts > 0)
        buffer_printf(out, "; restarts used: %" PRId64 " of %" PRId64, report->restarts,
                      report->max_restarts);
    buffer_printf(out, "; exit code %d", report->exit_code);
    return out->failed ? -1 : 0;
}

int report_exit_code(enum exit_mode mode, int code, bool ran)
{
    if (mode == EXIT_MODE_FIRST || code == EXIT_CODE_OK)
        return code;
    if (ran || code == EXIT_CODE_NODE)
        return EXIT_CODE_FAILURE;
    return code;
}
