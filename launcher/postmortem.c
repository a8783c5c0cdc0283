/* postmortem.c - see postmortem.h. The thread and the one who asked share the object by a count of two; the
 * last one out frees it. */
#include "launcher/postmortem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

struct inquest {
    int references; /* atomic */
    int done_fd;    /* found is there */
    char *stderr_file, *error_file;
    struct postmortem found; /* the thread's until done_fd */
};

static void release(struct inquest *q)
{
    if (__atomic_sub_fetch(&q->references, 1, __ATOMIC_ACQ_REL))
        return;
    if (q->done_fd >= 0)
        (void)close(q->done_fd); /* an eventfd */
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

static void *inquest_thread(void *context)
{
    struct inquest *q = context;
    uint64_t one = 1;
    if (q->stderr_file)
        read_tail(q->stderr_file, q->found.tail, sizeof q->found.tail);
    q->found.wrote_error_file = q->error_file && access(q->error_file, F_OK) == 0;
    ssize_t done = write(q->done_fd, &one, sizeof one);
    (void)done; /* an eventfd that refuses is readable already */
    release(q);
    return NULL;
}

/* The thread takes no signal: they are the main thread's, by signalfd. */
static int start_thread(struct inquest *q)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&thread, NULL, inquest_thread, q);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failure)
        (void)pthread_detach(thread); /* cannot fail for a thread that was just made */
    return failure;
}

static struct inquest *make(const char *stderr_file, const char *error_file, struct muster_error *err)
{
    struct inquest *q = mem_calloc(1, sizeof *q);
    if (q) {
        q->references = 1;
        q->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        q->stderr_file = stderr_file ? mem_strdup(stderr_file) : NULL;
        q->error_file = error_file ? mem_strdup(error_file) : NULL;
        if (q->done_fd >= 0 && !stderr_file == !q->stderr_file && !error_file == !q->error_file)
            return q;
        release(q);
    }
    error_set(err, MUSTER_E_NOMEM, "no memory or descriptor to read a worker's log file");
    return NULL;
}

static struct inquest *start(const char *stderr_file, const char *error_file, struct muster_error *err)
{
    struct inquest *q = make(stderr_file, error_file, err);
    if (!q)
        return NULL;
    q->references = 2;
    int failure = start_thread(q);
    if (!failure)
        return q;
    errno = failure;
    error_errno(err, "cannot start a thread to read a worker's log file");
    q->references = 1;
    release(q);
    return NULL;
}

int postmortem_read(const char *stderr_file, const char *error_file, int64_t patience_ns,
                    struct postmortem *found, struct muster_error *err)
{
    *found = (struct postmortem){0};
    if (!stderr_file && !error_file)
        return 0;
    struct inquest *q = start(stderr_file, error_file, err);
    if (!q)
        return -1;
    struct pollfd done = {.fd = q->done_fd, .events = POLLIN};
    uint64_t count;
    /* signals are blocked or, in a test, cut the wait short */
    bool in_time = poll(&done, 1, (int)(patience_ns / NS_PER_MS)) == 1 &&
                   read(q->done_fd, &count, sizeof count) == sizeof count;
    if (in_time)
        *found = q->found;
    release(q);
    return in_time ? 0
                   : error_set(err, MUSTER_E_TIMEOUT,
                               "%s is not read: its file system did not answer within %.4g s",
                               stderr_file ? stderr_file : error_file, (double)patience_ns / NS_PER_S);
}
