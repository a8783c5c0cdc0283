/* failure_files.c - see failure_files.h. */
#include "launcher/verdict/failure_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/loop/background_job.h"
#include "launcher/verdict/error_file.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "proto/env_names.h"

#define TEXTS(X)                                                                                             \
    X(json)                                                                                                  \
    X(json_directory)                                                                                        \
    X(sentence) X(termination_log) X(error_file) X(cause_error_file) X(traceback)

struct writing {
    struct failure_files files; /* its texts are owned copies */
    struct buffer complaints;   /* owned by the thread until it is done */
};

static void complain(struct writing *w, const struct muster_error *err)
{
    buffer_printf(&w->complaints, "%s\n", err->text);
}

static void write_json(struct writing *w)
{
    struct muster_error err = {0};
    scope_free char *path = mem_printf("%s/failure.json", w->files.json_directory);
    if (path && io_write_file_atomic(path, w->files.json, strlen(w->files.json), 0644, &err) == 0)
        return;
    if (!path)
        error_set(&err, MUSTER_E_NOMEM, "no memory to write failure.json");
    complain(w, &err);
}

/* The kubelet's file is a mount of its own: it can be written, not replaced. */
static int write_termination_log(const struct failure_files *files, struct muster_error *err)
{
    const char *path = files->termination_log;
    struct stat status;
    int make = files->termination_log_asked ? O_CREAT : 0;
    scope_close int fd = open(path, O_WRONLY | O_CLOEXEC | make, 0644);
    if (fd < 0 || fstat(fd, &status) < 0)
        return error_errno(err, "cannot open the termination log %s", path);
    if (S_ISREG(status.st_mode) && ftruncate(fd, 0) < 0)
        return error_errno(err, "cannot empty the termination log %s", path);
    char line[TERMINATION_LOG_LIMIT];
    size_t length = strnlen(files->sentence, sizeof line - 1);
    memcpy(line, files->sentence, length);
    line[length] = '\n';
    return io_write_all(fd, line, length + 1, path, err);
}

static int format_error_file(const struct failure_files *files, struct buffer *out, struct muster_error *err)
{
    scope_buffer text = {0};
    if (files->cause_error_file &&
        io_read_file(files->cause_error_file, ERROR_FILE_LIMIT, &text, NULL) == 0 &&
        error_file_with_code(text.data ? text.data : "", text.length, files->exit_code, out, NULL) == 0)
        return 0;
    buffer_clear(out);
    if (error_file_format(files->sentence, files->traceback, files->wall_ns, files->exit_code, out) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write %s", files->error_file);
    return 0;
}

static void write_error_file(struct writing *w)
{
    struct muster_error err = {0};
    scope_buffer text = {0};
    if (format_error_file(&w->files, &text, &err) < 0 ||
        io_write_file_atomic(w->files.error_file, text.data, text.length, 0644, &err) < 0)
        complain(w, &err);
}

static void write_all(void *payload)
{
    struct writing *w = payload;
    struct muster_error err = {0};
    const struct failure_files *files = &w->files;
    if (files->termination_log && *files->termination_log && files->sentence &&
        write_termination_log(files, &err) < 0 && files->termination_log_asked)
        complain(w, &err); /* outside of a pod there is none, and none was requested */
    if (files->error_file && *files->error_file && files->sentence && files->traceback)
        write_error_file(w);
    if (files->json_directory && files->json)
        write_json(w);
}

static void free_writing(void *payload)
{
    struct writing *w = payload;
#define FREE_TEXT(name) mem_free((char *)w->files.name);
    TEXTS(FREE_TEXT)
#undef FREE_TEXT
    buffer_free(&w->complaints);
    mem_free(w);
}

/* NULL without memory. */
static struct writing *copy(const struct failure_files *files)
{
    struct writing *w = mem_calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->files = *files;
#define COPY_TEXT(name) w->files.name = files->name ? mem_strdup(files->name) : NULL;
    TEXTS(COPY_TEXT)
#undef COPY_TEXT
    bool whole = true;
#define CHECK_TEXT(name) whole = whole && !files->name == !w->files.name;
    TEXTS(CHECK_TEXT)
#undef CHECK_TEXT
    if (whole)
        return w;
    free_writing(w);
    return NULL;
}

int failure_files_write(const struct failure_files *files, int64_t patience_ns, struct buffer *complaints,
                        struct muster_error *err)
{
    struct writing *w = copy(files);
    if (!w)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write the failure files");
    struct background_job *job =
        background_job_start_or_run("writing the failure files", write_all, w, free_writing, err);
    if (!job)
        return -1;
    bool in_time = background_job_wait(job, patience_ns);
    if (in_time && w->complaints.length)
        buffer_text(complaints, w->complaints.data);
    background_job_release(job);
    return in_time ? 0
                   : error_set(err, MUSTER_E_TIMEOUT,
                               "the failure files (failure.json, termination log) were not written: a file "
                               "system did not respond within %.4g s",
                               (double)patience_ns / NS_PER_S);
}

static const int64_t patience_ns = 2 * NS_PER_S;

void startup_failure_write(const char *shown, const struct run_config *config, const char *message,
                           int exit_code, struct buffer *complaints)
{
    struct muster_error err = {0};
    scope_buffer sentence = {0};
    if (config->command == COMMAND_ENV || config->dry_run)
        return;
    buffer_printf(&sentence, "%s: %s; exit code %d", shown, message, exit_code);
    struct failure_files files = {
        .sentence = sentence.data,
        .termination_log = config->termination_log,
        .termination_log_asked = config->termination_log_asked,
        .error_file = getenv(ENV_ERROR_FILE),
        .traceback = sentence.data,
        .exit_code = exit_code,
        .wall_ns = clock_wall_ns(),
    };
    if (!sentence.failed && failure_files_write(&files, patience_ns, complaints, &err) < 0)
        buffer_printf(complaints, "%s\n", err.text);
}
