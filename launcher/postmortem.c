/* postmortem.c - see postmortem.h. */
#include "launcher/postmortem.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/errand.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

struct inquest {
    char *stderr_file, *error_file;
    struct postmortem found;
};

static void inquest_free(void *payload)
{
    struct inquest *q = payload;
    mem_free(q->stderr_file);
    mem_free(q->error_file);
    mem_free(q);
}

static void read_tail(const char *path, char *out, size_t size)
{
    char bytes[TAIL_BYTES];
    struct stat status;
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        return;
    off_t from = status.st_size > TAIL_BYTES ? status.st_size - TAIL_BYTES : 0;
    ssize_t got = pread(fd, bytes, sizeof bytes, from);
    if (got > 0)
        tail_format(bytes, (size_t)got, from > 0, out, size);
}

static void inquest_run(void *payload)
{
    struct inquest *q = payload;
    if (q->stderr_file)
        read_tail(q->stderr_file, q->found.tail, sizeof q->found.tail);
    q->found.wrote_error_file = q->error_file && access(q->error_file, F_OK) == 0;
}

static struct inquest *inquest_make(const char *stderr_file, const char *error_file, struct muster_error *err)
{
    struct inquest *q = mem_calloc(1, sizeof *q);
    if (q) {
        q->stderr_file = stderr_file ? mem_strdup(stderr_file) : NULL;
        q->error_file = error_file ? mem_strdup(error_file) : NULL;
        if (!stderr_file == !q->stderr_file && !error_file == !q->error_file)
            return q;
        inquest_free(q);
    }
    error_set(err, MUSTER_E_NOMEM, "no memory to read a worker's log file");
    return NULL;
}

int postmortem_read(const char *stderr_file, const char *error_file, int64_t patience_ns,
                    struct postmortem *found, struct muster_error *err)
{
    *found = (struct postmortem){0};
    if (!stderr_file && !error_file)
        return 0;
    struct inquest *q = inquest_make(stderr_file, error_file, err);
    struct errand *errand =
        q ? errand_start("reading a worker's log file", inquest_run, q, inquest_free, err) : NULL;
    if (!errand)
        return -1;
    bool in_time = errand_wait(errand, patience_ns);
    if (in_time)
        *found = q->found;
    errand_release(errand);
    return in_time ? 0
                   : error_set(err, MUSTER_E_TIMEOUT,
                               "%s is not read: its file system did not answer within %.4g s",
                               stderr_file ? stderr_file : error_file, (double)patience_ns / NS_PER_S);
}
