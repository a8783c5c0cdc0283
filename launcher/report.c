/* report.c - see report.h. */
#include "launcher/report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/base/clock.h"
#include "rendezvous/failure.h"

int report_first_cause(const struct worker_failure *failures, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++) {
        struct instant at = {-failures[i].age_ns}, best_at = {-failures[best].age_ns};
        if (failure_precedes(&failures[i], at, &failures[best], best_at))
            best = i;
    }
    return best;
}

int report_exit_code(const struct worker_failure *failure)
{
    return failure_exit_code(failure);
}

/* torchrun's: the negative signal number where a signal ended the worker */
static int shown_code(const struct worker_failure *failure)
{
    return failure->signal ? -failure->signal : failure->exit_code;
}

int report_line(const char *name, const struct worker_failure *failure, struct buffer *out)
{
    return buffer_printf(out, "failed (exitcode: %d) local_rank: %d (pid: %d) of binary: %s",
                         shown_code(failure), failure->local_rank, failure->pid, name);
}

static void format_time(int64_t wall_ns, struct buffer *out)
{
    time_t seconds = (time_t)(wall_ns / NS_PER_S);
    struct tm parts;
    char text[32];
    if (localtime_r(&seconds, &parts) && strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &parts))
        buffer_text(out, text);
    else
        buffer_text(out, "unknown");
}

static void format_reason(const struct worker_failure *failure, struct buffer *out)
{
    char scratch[16];
    if (failure->lost_node)
        buffer_text(out, "the node was lost: nothing was heard of it any more");
    else if (failure->hung)
        buffer_printf(out, "Hung: no heartbeat after step %lld; ended by signal %d", (long long)failure->step,
                      failure->signal);
    else if (failure->signal)
        buffer_printf(out, "Signal %d (%s) received by PID %d", failure->signal,
                      failure_signal_name(failure->signal, scratch, sizeof scratch), failure->pid);
    else
        buffer_printf(out, "exited with code %d; what it said is below or in its log", failure->exit_code);
    if (failure->core_dumped)
        buffer_text(out, ", core dumped");
    if (failure->out_of_memory)
        buffer_text(out, ", killed by the kernel because the cgroup was out of memory");
    buffer_text(out, "\n");
}

/* The lines of text, each behind indent. */
static void format_lines(const char *text, const char *indent, struct buffer *out)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        buffer_printf(out, "%s%.*s\n", indent, (int)length, text);
        text += length + (text[length] == '\n');
    }
}

static void format_failure(int index, const struct worker_failure *failure, struct buffer *out)
{
    char scratch[16];
    buffer_printf(out, "[%d]:\n  time      : ", index);
    format_time(failure->wall_ns, out);
    buffer_printf(out,
                  "\n  host      : %s\n"
                  "  rank      : %d (local_rank: %d)\n"
                  "  exitcode  : %d (pid: %d)%s%s%s\n"
                  "  error_file: %s\n"
                  "  traceback : ",
                  *failure->host ? failure->host : "<N/A>", failure->rank, failure->local_rank,
                  shown_code(failure), failure->pid, failure->signal ? " (" : "",
                  failure->signal ? failure_signal_name(failure->signal, scratch, sizeof scratch) : "",
                  failure->signal ? ")" : "", *failure->error_file ? failure->error_file : "<N/A>");
    format_reason(failure, out);
}

/* The longest line of text, at most 60: torchrun's width of a rule. */
static int rule_width(const struct buffer *text)
{
    enum { WIDTH_LIMIT = 60 };
    size_t longest = 1;
    for (size_t at = 0; at < text->length;) {
        size_t length = strcspn(text->data + at, "\n");
        longest = length > longest ? length : longest;
        at += length + 1;
    }
    return longest < WIDTH_LIMIT ? (int)longest : WIDTH_LIMIT;
}

static void format_rule(char c, int width, struct buffer *out)
{
    char line[64];
    memset(line, c, (size_t)width);
    line[width] = '\n';
    buffer_append(out, line, (size_t)width + 1);
}

int report_format(const char *name, const struct worker_failure *failures, int count, struct buffer *out)
{
    int first = report_first_cause(failures, count);
    scope_buffer others = {0}, root = {0};
    for (int i = 0; i < count; i++) {
        if (i == first)
            continue;
        format_failure(i, &failures[i], &others);
        if (failure_class_of(&failures[i]) == FAILURE_CASCADE)
            buffer_printf(&others, "  class     : %s\n", failure_class_name(FAILURE_CASCADE));
    }
    if (count < 2)
        buffer_text(&others, "  <NO_OTHER_FAILURES>\n");
    format_failure(first, &failures[first], &root);
    if (*failures[first].tail) {
        buffer_text(&root, "  stderr    : the last lines\n");
        format_lines(failures[first].tail, "    ", &root);
    }
    if (others.failed || root.failed)
        return -1;
    int width = rule_width(&root), other_width = rule_width(&others);
    width = width > other_width ? width : other_width;
    buffer_text(out, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n");
    format_rule('=', width, out);
    buffer_printf(out, "%s FAILED\n", name);
    format_rule('-', width, out);
    buffer_printf(out, "Failures:\n%s", others.data);
    format_rule('-', width, out);
    buffer_printf(out, "Root Cause (first observed failure):\n%s", root.data);
    format_rule('=', width, out);
    return out->failed ? -1 : 0;
}
