/* nccl_log.c - see nccl_log.h. */
#include "launcher/nccl/nccl_log.h"

#include <fcntl.h>
#include <glob.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/process/descendants.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

enum { READ_LIMIT = 4 << 20, PIECE = 64 << 10, STAT_TEXT = 1024 };

struct log_file {
    int worker;
    char path[NCCL_LOG_PATH];
    off_t offset;
    struct notable notable;
};

struct nccl_log {
    atomic_int owners; /* the jobs among them */
    int first_rank;
    char *pattern, *host;
    pid_t *pids;
    int pid_count;
    struct log_file *files[NCCL_LOG_FILES];
    int file_count;
    int told_count;
    char told[NCCL_LOG_WARNINGS][NOTABLE_TEXT];
};

/* --- names --- */

static bool name_add(char *out, size_t size, size_t *used, const char *text, size_t length, bool escaped)
{
    for (size_t i = 0; i < length; i++) {
        if (escaped && strchr("*?[\\", text[i])) {
            if (*used + 1 >= size)
                return false;
            out[(*used)++] = '\\';
        }
        if (*used + 1 >= size)
            return false;
        out[(*used)++] = text[i];
    }
    out[*used] = '\0';
    return true;
}

bool nccl_log_path(const char *pattern, const char *host, pid_t pid, char *out, size_t size)
{
    const bool any = pid < 0;
    size_t used = 0;
    char number[32];
    (void)snprintf(number, sizeof number, "%d", (int)pid);
    if (!size)
        return false;
    *out = '\0';
    for (const char *at = pattern; *at; at++) {
        const char kind = *at == '%' ? at[1] : '\0';
        const char *text = kind == 'h' ? host : kind == 'p' ? (any ? "[0-9]*" : number) : at;
        const size_t length = kind == 'h' ? strcspn(host, ".") : kind == 'p' ? strlen(text) : 1;
        if (!name_add(out, size, &used, text, length, any && kind != 'p'))
            return false;
        at += kind == 'h' || kind == 'p' || kind == '%';
    }
    return true;
}

bool nccl_log_is_file(const char *pattern)
{
    return pattern && *pattern && strncmp(pattern, "/dev/", 5) != 0 && strncmp(pattern, "/proc/", 6) != 0;
}

/* --- its life --- */

static void log_drop(void *payload)
{
    struct nccl_log *log = payload;
    if (atomic_fetch_sub(&log->owners, 1) > 1)
        return;
    for (int i = 0; i < log->file_count; i++)
        mem_free(log->files[i]);
    mem_free(log->pattern);
    mem_free(log->host);
    mem_free(log->pids);
    mem_free(log);
}

struct nccl_log *nccl_log_create(const char *pattern, const char *host, int first_rank)
{
    struct nccl_log *log = mem_calloc(1, sizeof *log);
    if (!log)
        return NULL;
    atomic_init(&log->owners, 1);
    log->first_rank = first_rank;
    log->pattern = mem_strdup(pattern);
    log->host = mem_strdup(host);
    if (!log->pattern || !log->host) {
        log_drop(log);
        return NULL;
    }
    return log;
}

struct nccl_log *nccl_log_hold(struct nccl_log *log)
{
    (void)atomic_fetch_add(&log->owners, 1);
    return log;
}

void nccl_log_release(struct nccl_log *log)
{
    if (log)
        log_drop(log);
}

/* --- the job --- */

static bool log_has(const struct nccl_log *log, const char *path)
{
    for (int i = 0; i < log->file_count; i++)
        if (!strcmp(log->files[i]->path, path))
            return true;
    return false;
}

static void log_add_file(struct nccl_log *log, const char *path, int worker)
{
    if (log->file_count == NCCL_LOG_FILES || log_has(log, path))
        return;
    struct log_file *file = mem_calloc(1, sizeof *file);
    if (!file)
        return; /* without memory it is not read */
    file->worker = worker;
    (void)snprintf(file->path, sizeof file->path, "%s", path);
    log->files[log->file_count++] = file;
}

static pid_t session_of(pid_t pid)
{
    char path[64];
    scope_buffer text = {0};
    struct descendants_process process;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    return io_read_file(path, STAT_TEXT, &text, NULL) == 0 && text.data &&
                   descendants_parse_stat(text.data, text.length, &process)
               ? process.session
               : 0;
}

/* The process in a name that the pattern has made, 0: it is none. */
static pid_t pid_in(const struct nccl_log *log, const char *path)
{
    char made[NCCL_LOG_PATH];
    for (const char *at = path; *at; at++) {
        int pid = 0;
        if (*at >= '1' && *at <= '9' && sscanf(at, "%9d", &pid) == 1 &&
            nccl_log_path(log->pattern, log->host, pid, made, sizeof made) && !strcmp(made, path))
            return pid;
    }
    return 0;
}

/* A worker that is a script has NCCL in a child of its own: a process of the worker's session. */
static void find_others(struct nccl_log *log)
{
    char all[NCCL_LOG_PATH * 2];
    glob_t found = {0};
    if (!strstr(log->pattern, "%p") || !nccl_log_path(log->pattern, log->host, -1, all, sizeof all) ||
        glob(all, GLOB_NOSORT, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *path = found.gl_pathv[i];
        const pid_t pid = strlen(path) < NCCL_LOG_PATH && !log_has(log, path) ? pid_in(log, path) : 0;
        const pid_t session = pid ? session_of(pid) : 0;
        for (int worker = 0; session && worker < log->pid_count; worker++)
            if (log->pids[worker] == session)
                log_add_file(log, path, worker);
    }
    globfree(&found);
}

static void read_new(struct log_file *file, char *piece)
{
    struct stat seen;
    scope_close int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &seen) < 0 || !S_ISREG(seen.st_mode))
        return;
    if (seen.st_size < file->offset)
        file->offset = 0; /* begun again */
    for (int read = 0; read < READ_LIMIT;) {
        const ssize_t got = pread(fd, piece, PIECE, file->offset);
        if (got <= 0)
            return;
        notable_add(&file->notable, piece, (size_t)got);
        file->offset += got;
        read += (int)got;
    }
}

static void log_read_files(void *payload)
{
    struct nccl_log *log = payload;
    char path[NCCL_LOG_PATH];
    scope_free char *piece = mem_calloc(1, PIECE);
    if (!piece)
        return;
    for (int worker = 0; worker < log->pid_count; worker++)
        if (log->pids[worker] > 0 &&
            nccl_log_path(log->pattern, log->host, log->pids[worker], path, sizeof path))
            log_add_file(log, path, worker);
    find_others(log);
    for (int i = 0; i < log->file_count; i++)
        read_new(log->files[i], piece);
}

static int set_pids(struct nccl_log *log, const pid_t *pids, int count)
{
    pid_t *copy = mem_calloc((size_t)count, sizeof *copy);
    if (!copy)
        return -1;
    memcpy(copy, pids, (size_t)count * sizeof *copy);
    mem_free(log->pids);
    log->pids = copy;
    log->pid_count = count;
    return 0;
}

struct background_job *nccl_log_read(struct nccl_log *log, const pid_t *pids, int count,
                                     struct muster_error *err)
{
    if (pids && set_pids(log, pids, count) < 0) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to read NCCL's files");
        return NULL;
    }
    return background_job_start("reading NCCL's files", log_read_files, nccl_log_hold(log), log_drop, err);
}

/* --- findings --- */

static bool is_told(const struct nccl_log *log, const char *text)
{
    for (int i = 0; i < log->told_count; i++)
        if (!strcmp(log->told[i], text))
            return true;
    return false;
}

bool nccl_log_take(struct nccl_log *log, struct nccl_log_warning *out)
{
    for (int i = 0; i < log->file_count; i++)
        while (notable_take(&log->files[i]->notable, out->text)) {
            if (log->told_count == NCCL_LOG_WARNINGS || is_told(log, out->text))
                continue;
            memcpy(log->told[log->told_count++], out->text, NOTABLE_TEXT);
            out->rank = log->first_rank + log->files[i]->worker;
            memcpy(out->path, log->files[i]->path, sizeof out->path);
            return true;
        }
    return false;
}
