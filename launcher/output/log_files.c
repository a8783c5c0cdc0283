/* log_files.c - see log_files.h. */
#include "launcher/output/log_files.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/loop/background_job.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"

static const char *const stream_names[] = {NULL, "stdout.log", "stderr.log"};
static const char *const filtered_names[] = {NULL, "filtered_stdout.log", "filtered_stderr.log"};

/* Shared by the thread and the agent; the agent reads the results once the thread is done. */
struct work {
    /* the run directory */
    char *log_dir, *run_id;
    uint64_t random;
    bool logs;
    struct temporary_folder temporary; /* for the run directory without --log-dir */
    /* a round */
    char *run;
    int64_t attempt;
    int workers;
    uint8_t *streams;
    unsigned filtered;
    /* results */
    char *current; /* atomic; all its paths stay until the end, in `paths` */
    char **paths;
    size_t path_count;
    struct log_file *files; /* two for each worker, then the two that are shared, then the agent's */
    int failed;
    struct muster_error err;
};

struct log_files {
    struct work *work;
    struct background_job *job;
};

static size_t file_count(const struct work *w)
{
    return (size_t)w->workers * 2 + 3;
}

static struct log_file *slot(const struct work *w, int local_rank, int stream)
{
    return &w->files[(size_t)local_rank * 2 + (size_t)stream - 1];
}

static struct log_file *filtered_slot(const struct work *w, int stream)
{
    return slot(w, w->workers, stream);
}

static struct log_file *log_slot(const struct work *w)
{
    return &w->files[file_count(w) - 1];
}

static void work_free(void *payload)
{
    struct work *w = payload;
    if (!w)
        return;
    for (size_t i = 0; w->files && i < file_count(w); i++) {
        if (w->files[i].fd >= 0)
            (void)close(w->files[i].fd); /* nothing was written */
        mem_free(w->files[i].path);
    }
    for (size_t i = 0; w->paths && i < w->path_count; i++)
        mem_free(w->paths[i]);
    mem_free(w->paths);
    mem_free(w->files);
    mem_free(w->streams);
    mem_free(w->run);
    mem_free(w->log_dir);
    mem_free(w->run_id);
    mem_free(w);
}

/* --- on the thread --- */

/* The path to report if the next call hangs; owned by the job. */
static int announce(struct work *w, char *path)
{
    if (!path)
        return error_set(&w->err, MUSTER_E_NOMEM, "no memory for the path of a log file");
    w->paths[w->path_count++] = path;
    __atomic_store_n(&w->current, path, __ATOMIC_RELEASE);
    return 0;
}

static int open_into(struct work *w, struct log_file *file, const char *folder, const char *name)
{
    struct stat status;
    if (announce(w, mem_printf("%s/%s", folder, name)) < 0)
        return -1;
    file->path = mem_strdup(w->current);
    file->fd = file->path ? log_directory_open(folder, name, &w->err) : -1;
    if (!file->path)
        return error_set(&w->err, MUSTER_E_NOMEM, "no memory for the path of a log file");
    if (file->fd >= 0 && fstat(file->fd, &status) == 0 && S_ISREG(status.st_mode))
        file->size = status.st_size;
    return file->fd < 0 ? -1 : 0;
}

/* A round may repeat the number of restarts (a node came back): its reports are of an earlier round. */
static void put_aside(const char *path)
{
    for (int i = 1; access(path, F_OK) == 0 && i < 1000; i++) {
        scope_free char *aside = mem_printf("%s.%d", path, i);
        if (!aside || access(aside, F_OK) == 0)
            continue;
        (void)rename(path, aside); /* otherwise it is taken for this round's: better than not starting */
        return;
    }
}

static int open_worker(struct work *w, int local_rank)
{
    if (announce(w, mem_printf("%s/attempt_%lld/%d", w->run, (long long)w->attempt, local_rank)) < 0)
        return -1;
    scope_free char *folder = log_directory_worker(w->run, w->attempt, local_rank, &w->err);
    scope_free char *report = folder ? mem_printf("%s/error.json", folder) : NULL;
    if (!report)
        return folder ? error_set(&w->err, MUSTER_E_NOMEM, "no memory for a path") : -1;
    put_aside(report);
    for (int stream = 1; stream <= 2; stream++)
        if (w->streams[local_rank] & stream &&
            open_into(w, slot(w, local_rank, stream), folder, stream_names[stream]) < 0)
            return -1;
    return 0;
}

static void open_round(void *payload)
{
    struct work *w = payload;
    for (int i = 0; i < w->workers && !w->failed; i++)
        w->failed = open_worker(w, i);
    scope_free char *folder = mem_printf("%s/attempt_%lld", w->run, (long long)w->attempt);
    if (!folder && !w->failed)
        w->failed = error_set(&w->err, MUSTER_E_NOMEM, "no memory for the path of a log directory");
    for (int stream = 1; stream <= 2 && !w->failed; stream++)
        if (w->filtered & (unsigned)stream)
            w->failed = open_into(w, filtered_slot(w, stream), folder, filtered_names[stream]);
}

static void prepare_run(void *payload)
{
    struct work *w = payload;
    const char *given = w->log_dir;
    w->failed = announce(w, mem_strdup(given && *given ? given : "the log directory"));
    if (w->failed)
        return;
    w->run = log_directory_make(w->log_dir, w->run_id, w->random, &w->temporary, &w->err);
    w->failed = w->run ? 0 : -1;
    if (w->run && w->logs)
        w->failed = open_into(w, log_slot(w), w->run, "agent.log");
}

/* --- in the agent --- */

static struct work *make_work(int workers)
{
    struct work *w = mem_calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->workers = workers;
    w->files = mem_calloc(file_count(w), sizeof *w->files);
    w->paths = mem_calloc(file_count(w) + (size_t)workers + 1, sizeof *w->paths);
    for (size_t i = 0; w->files && i < file_count(w); i++)
        w->files[i].fd = -1;
    if (w->files && w->paths)
        return w;
    work_free(w);
    return NULL;
}

/* Takes the job. complete: all of it was copied. */
static struct log_files *send(struct work *w, bool complete, void (*run)(void *), struct muster_error *err)
{
    struct log_files *files = complete ? mem_calloc(1, sizeof *files) : NULL;
    if (!files) {
        work_free(w);
        error_set(err, MUSTER_E_NOMEM, "no memory to open log files");
        return NULL;
    }
    files->work = w;
    files->job = background_job_start_or_run("opening the log files", run, w, work_free, err);
    if (files->job)
        return files;
    mem_free(files);
    return NULL;
}

struct log_files *log_files_prepare(const char *log_dir, const char *run_id, uint64_t random,
                                    struct muster_error *err)
{
    struct work *w = make_work(0);
    if (w) {
        w->random = random;
        w->logs = log_dir && *log_dir;
        w->log_dir = log_dir ? mem_strdup(log_dir) : NULL;
        w->run_id = mem_strdup(run_id);
    }
    bool complete = w && w->run_id && !w->log_dir == !log_dir;
    return send(w, complete, prepare_run, err);
}

struct log_files *log_files_open(const struct log_round *round, struct muster_error *err)
{
    struct work *w = make_work(round->workers);
    if (w) {
        w->run = mem_strdup(round->run);
        w->attempt = round->attempt;
        w->filtered = round->filtered;
        w->streams = mem_calloc((size_t)round->workers, 1);
    }
    bool complete = w && w->run && w->streams;
    if (complete)
        memcpy(w->streams, round->streams, (size_t)round->workers);
    return send(w, complete, open_round, err);
}

int log_files_fd(const struct log_files *files)
{
    return background_job_fd(files->job);
}

bool log_files_done(const struct log_files *files)
{
    return background_job_is_done(files->job);
}

const char *log_files_path(const struct log_files *files)
{
    const char *path = __atomic_load_n(&files->work->current, __ATOMIC_ACQUIRE);
    return path ? path : "the log directory";
}

int log_files_result(const struct log_files *files, struct muster_error *err)
{
    if (files->work->failed && err)
        *err = files->work->err;
    return files->work->failed;
}

char *log_files_take_run(struct log_files *files)
{
    return take_pointer(&files->work->run);
}

const char *log_files_warning(const struct log_files *files)
{
    return files->work->temporary.warning;
}

static struct log_file take(struct log_file *from)
{
    struct log_file file = *from;
    *from = (struct log_file){.fd = -1};
    return file;
}

struct log_file log_files_take_log(struct log_files *files)
{
    return take(log_slot(files->work));
}

struct log_file log_files_take(struct log_files *files, int local_rank, int stream)
{
    return take(slot(files->work, local_rank, stream));
}

struct log_file log_files_take_filtered(struct log_files *files, int stream)
{
    return take(filtered_slot(files->work, stream));
}

void log_files_release(struct log_files *files)
{
    if (!files)
        return;
    background_job_release(files->job);
    mem_free(files);
}

/* --- directories --- */

enum { TAG_LENGTH = 8 };

static void make_tag(uint64_t random, char tag[TAG_LENGTH + 1])
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz012345";
    for (int i = 0; i < TAG_LENGTH; i++, random >>= 5)
        tag[i] = digits[random & 31];
    tag[TAG_LENGTH] = '\0';
}

/* The run id as one name of a directory. */
static char *run_name(const char *run_id, const char *tag)
{
    char *name = mem_printf("%s_%s", run_id, tag);
    for (char *at = name; at && *at; at++)
        if (*at == '/')
            *at = '_';
    return name;
}

char *log_directory_make(const char *log_dir, const char *run_id, uint64_t random,
                         struct temporary_folder *temporary, struct muster_error *err)
{
    char tag[TAG_LENGTH + 1], base_tag[TAG_LENGTH + 1];
    make_tag(random, tag);
    make_tag(random >> 24, base_tag);
    bool given = log_dir && *log_dir;
    if (!given)
        temporary_folder_find(temporary);
    scope_free char *base =
        given ? mem_strdup(log_dir) : mem_printf("%s/muster_%s", temporary->path, base_tag);
    scope_free char *name = run_name(run_id, tag);
    scope_free char *run = base && name ? mem_printf("%s/%s", base, name) : NULL;
    if (!run) {
        error_set(err, MUSTER_E_NOMEM, "no memory for the path of the log directory");
        return NULL;
    }
    if (io_make_directories(base, given ? 0777 : 0700, err) < 0 || io_make_directories(run, 0700, err) < 0) {
        error_wrap(err, given ? "--log-dir" : "no folder for the workers' log files (--log-dir=DIR sets it)");
        return NULL;
    }
    char whole[PATH_MAX]; /* workers may write elsewhere and derive their error file's name from it */
    if (!realpath(run, whole))
        return take_pointer(&run);
    char *absolute = mem_strdup(whole);
    return absolute ? absolute : take_pointer(&run);
}

void log_directory_discard(const char *log_dir, const char *run)
{
    scope_free char *base = mem_strdup(run);
    char *slash = base ? strrchr(base, '/') : NULL;
    bool chosen = !log_dir || !*log_dir;
    /* a directory that is not empty stays, and a failing removal is not worth another error line */
    if (rmdir(run) < 0 || !slash || !chosen)
        return;
    *slash = '\0';
    (void)rmdir(base);
}

char *log_directory_worker(const char *run, int64_t attempt, int local_rank, struct muster_error *err)
{
    scope_free char *path = mem_printf("%s/attempt_%lld/%d", run, (long long)attempt, local_rank);
    if (!path) {
        error_set(err, MUSTER_E_NOMEM, "no memory for the path of a log directory");
        return NULL;
    }
    if (io_make_directories(path, 0777, err) < 0)
        return NULL;
    return take_pointer(&path);
}

int log_directory_open(const char *directory, const char *name, struct muster_error *err)
{
    scope_free char *path = mem_printf("%s/%s", directory, name);
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the path of a log file");
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_errno(err, "cannot open the log file %s", path);
    return fd;
}
