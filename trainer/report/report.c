/* report.c - see report.h. */
#include "trainer/report/report.h"

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
#include "trainer/report/report_internal.h"

enum { PATH_SIZE = 4096 };
#define CLOSE_NS (10 * NS_PER_S) /* longest wait for a stalled file system at the end of a run */

struct report_file {
    int fd; /* -1: none, or the writer's */
    char path[PATH_SIZE];
};

enum { JSON, EVENTS, WANDB, MLFLOW }; /* files of the writer */

struct report {
    struct report_file json, events;
    struct writer *writer;
    struct tensorboard board;
    struct tracking tracking;
    int exit_code;
    const struct log_sink *log;
};

/* On a full disk a run begins without the log; other errors are errors of the run. */
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

/* Makes the folder of a path: "runs/a" for "runs/a/log.jsonl". */
static int make_parent(const char *path, struct muster_error *err)
{
    char folder[PATH_SIZE];
    (void)snprintf(folder, sizeof folder, "%s", path); /* fits: take_path has checked */
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

int report_events_path(char *out, size_t size, const char *folder, const char *host, int pid, int64_t wall_ns)
{
    return snprintf(out, size, "%s/events.out.tfevents.%010lld.%09lld.%s.%d", folder,
                    (long long)(wall_ns / NS_PER_S), (long long)(wall_ns % NS_PER_S), host, pid);
}

static int open_events(struct report *report, const struct report_options *o, struct muster_error *err)
{
    struct report_file *file = &report->events;
    if (!o->tensorboard_folder || !*o->tensorboard_folder)
        return 0;
    const int length = report_events_path(file->path, sizeof file->path, o->tensorboard_folder,
                                          o->host ? o->host : "localhost", (int)getpid(), clock_wall_ns());
    return take_path(file, length, err) < 0 || make_parent(file->path, err) < 0
               ? -1
               : keep_file(file, open(file->path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666),
                           o->log, err);
}

/* The run continues if the trackers' files cannot be made. */
static void open_tracking(struct report *report, const struct report_options *o)
{
    struct muster_error why = {0};
    if (tracking_open(&report->tracking, &o->tracking, &why) == 0)
        return;
    wandb_files_free(&report->tracking.wandb);
    mlflow_files_free(&report->tracking.mlflow);
    log_warning(o->log, "%s; training goes on without W&B's and MLflow's files", why.text);
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
    report->json.fd = report->events.fd = report->tracking.wandb.fd = -1;
    report->exit_code = 1;
    tensorboard_make(&report->board);
    if (open_json(report, options, err) < 0 || open_events(report, options, err) < 0)
        return NULL;
    open_tracking(report, options);
    scope_buffer first = {0};
    if (tensorboard_begin(&report->board, options->step, clock_wall_ns(), &first) < 0) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the run's log");
        return NULL;
    }
    struct writer_file files[] = {[JSON] = {.fd = report->json.fd, .path = report->json.path},
                                  [EVENTS] = {.fd = report->events.fd, .path = report->events.path},
                                  [WANDB] = {.fd = -1},
                                  [MLFLOW] = {.fd = -1}};
    tracking_files(&report->tracking, &files[WANDB], &files[MLFLOW]);
    report->writer = writer_create(files, sizeof files / sizeof *files, options->log, err);
    if (!report->writer)
        return NULL;
    report->json.fd = report->events.fd = -1;
    writer_put(report->writer, EVENTS, &first);
    writer_put(report->writer, WANDB, &report->tracking.wandb.first);
    return take_pointer(&report);
}

void report_close(struct report *report)
{
    scope_buffer end = {0};
    if (!report)
        return;
    if (report->writer && report->tracking.wandb.fd >= 0) {
        (void)wandb_end(&report->tracking.wandb.log, report->exit_code, clock_wall_ns(), &end);
        writer_put(report->writer, WANDB, &end);
    }
    if (!writer_destroy(report->writer, instant_add(clock_now(NULL), CLOSE_NS)))
        return; /* the thread of the writer still uses the paths */
    tracking_close(&report->tracking, report->exit_code, report->log);
    guard_close(&report->json.fd);
    guard_close(&report->events.fd);
    mem_free(report);
}

static void add_to_trackers(struct report *report, const struct entry *entry, int64_t wall_ns)
{
    scope_buffer row = {0}, lines = {0};
    if (report->tracking.wandb.fd >= 0 && wandb_add(&report->tracking.wandb.log, entry, wall_ns, &row) < 0)
        row.failed = true;
    if (report->tracking.mlflow.folder)
        (void)mlflow_add(entry, wall_ns, &lines); /* a failed buffer is a lost entry */
    writer_put(report->writer, WANDB, &row);
    writer_put(report->writer, MLFLOW, &lines);
}

void report_add_machine(struct report *report, const struct entry *entry)
{
    scope_buffer stats = {0};
    if (!report || report->tracking.wandb.fd < 0)
        return;
    if (wandb_add_stats(&report->tracking.wandb.log, entry, clock_wall_ns(), &stats) < 0)
        stats.failed = true;
    writer_put(report->writer, WANDB, &stats);
}

void report_end(struct report *report, int exit_code)
{
    if (report)
        report->exit_code = exit_code;
}

const char *report_wandb_folder(const struct report *report)
{
    return report->tracking.wandb.folder;
}

const char *report_mlflow_folder(const struct report *report)
{
    return report->tracking.mlflow.folder;
}

void report_add(struct report *report, const struct entry *entry)
{
    if (!report)
        return;
    const int64_t wall_ns = clock_wall_ns();
    scope_buffer line = {0}, record = {0};
    (void)json_lines_add(entry, wall_ns, &line); /* a failed buffer is a lost entry */
    writer_put(report->writer, JSON, &line);
    if (tensorboard_add(&report->board, entry, wall_ns, &record) < 0)
        record.failed = true;
    writer_put(report->writer, EVENTS, &record);
    add_to_trackers(report, entry, wall_ns);
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
