/* report.c - see report.h. */
#include "runtime/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "runtime/report/json_lines.h"
#include "runtime/report/tensorboard.h"
#include "runtime/report/writer.h"

enum { PATH_SIZE = 4096 };
#define CLOSE_NS (10 * NS_PER_S) /* that the end of a run waits for a file system that has stalled */

struct report_file {
    int fd; /* -1: none, or the writer's */
    char path[PATH_SIZE];
};

enum { JSON, EVENTS }; /* files of the writer */

struct report {
    struct report_file json, events;
    struct writer *writer;
    struct tensorboard board;
    const struct log_sink *log;
};

/* A disk that is full costs the log, also where the run begins again. */
static int keep_file(struct report_file *file, int fd, const struct log_sink *log, struct muster_error *err)
{
    file->fd = fd;
    if (fd >= 0)
        return 0;
    const bool full = errno == ENOSPC || errno == EDQUOT;
    (void)error_errno(err, "cannot write the log %s", file->path);
    if (!full)
        return -1;
    log_warning(log, "%s; training goes on without it", err->text);
    return 0;
}

static int take_path(struct report_file *file, int length, struct muster_error *err)
{
    return length < 0 || length >= PATH_SIZE
               ? error_set(err, MUSTER_E_INVALID, "the log's path %.64s... is longer than %d bytes",
                           file->path, PATH_SIZE - 1)
               : 0;
}

/* What the path is in: "runs/a" of "runs/a/log.jsonl". */
static int make_parent(const char *path, struct muster_error *err)
{
    char folder[PATH_SIZE];
    (void)snprintf(folder, sizeof folder, "%s", path); /* fits: it was measured */
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder)
        return 0;
    *slash = '\0';
    return io_make_directories(folder, 0777, err);
}

static int open_json(struct report *report, const struct report_options *o, struct muster_error *err)
{
    struct report_file *file = &report->json;
    if (!o->json_path || !*o->json_path)
        return 0;
    return take_path(file, snprintf(file->path, sizeof file->path, "%s", o->json_path), err) < 0 ||
                   make_parent(file->path, err) < 0
               ? -1
               : keep_file(file, io_open_lines(file->path, JSON_LINES_BEGIN), o->log, err);
}

/* As TensorBoard's own writer names them: the second, the host, and what keeps two of a second apart. */
static int open_events(struct report *report, const struct report_options *o, struct muster_error *err)
{
    struct report_file *file = &report->events;
    if (!o->tensorboard_folder || !*o->tensorboard_folder)
        return 0;
    const int64_t wall_ns = clock_wall_ns();
    const int length =
        snprintf(file->path, sizeof file->path, "%s/events.out.tfevents.%010lld.%s.%d.%lld",
                 o->tensorboard_folder, (long long)(wall_ns / NS_PER_S), o->host ? o->host : "localhost",
                 (int)getpid(), (long long)(wall_ns % NS_PER_S));
    return take_path(file, length, err) < 0 || make_parent(file->path, err) < 0
               ? -1
               : keep_file(file, open(file->path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666),
                           o->log, err);
}

GUARD_DEFINE(report, struct report *, report_close);

struct report *report_open(const struct report_options *options, struct muster_error *err)
{
    GUARD(guard_report) struct report *report = mem_calloc(1, sizeof *report);
    if (!report) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the run's log");
        return NULL;
    }
    report->log = options->log;
    report->json.fd = report->events.fd = -1;
    tensorboard_make(&report->board);
    if (open_json(report, options, err) < 0 || open_events(report, options, err) < 0)
        return NULL;
    scope_buffer first = {0};
    if (tensorboard_begin(&report->board, options->step, clock_wall_ns(), &first) < 0) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the run's log");
        return NULL;
    }
    const struct writer_file files[] = {
        [JSON] = {report->json.fd, report->json.path}, [EVENTS] = {report->events.fd, report->events.path}};
    report->writer = writer_create(files, sizeof files / sizeof *files, options->log, err);
    if (!report->writer)
        return NULL;
    report->json.fd = report->events.fd = -1;
    writer_put(report->writer, EVENTS, &first);
    return take_pointer(&report);
}

void report_close(struct report *report)
{
    if (!report || !writer_destroy(report->writer, instant_add(clock_now(NULL), CLOSE_NS)))
        return; /* its thread still uses the paths */
    guard_close(&report->json.fd);
    guard_close(&report->events.fd);
    mem_free(report);
}

void report_add(struct report *report, const struct entry *entry)
{
    if (!report)
        return;
    const int64_t wall_ns = clock_wall_ns();
    scope_buffer line = {0}, record = {0};
    (void)json_lines_add(entry, wall_ns, &line); /* a buffer that failed is an entry that is lost */
    writer_put(report->writer, JSON, &line);
    if (tensorboard_add(&report->board, entry, wall_ns, &record) < 0)
        record.failed = true;
    writer_put(report->writer, EVENTS, &record);
}

void report_add_text(struct report *report, const char *tag, const char *text, int64_t step)
{
    if (!report)
        return;
    const int64_t wall_ns = clock_wall_ns();
    struct entry entry = {.kind = ENTRY_START, .step = step};
    scope_buffer line = {0}, record = {0};
    entry_text(&entry, tag, text);
    (void)json_lines_add(&entry, wall_ns, &line);
    writer_put(report->writer, JSON, &line);
    if (tensorboard_add_text(&report->board, tag, text, step, wall_ns, &record) < 0)
        record.failed = true;
    writer_put(report->writer, EVENTS, &record);
}
