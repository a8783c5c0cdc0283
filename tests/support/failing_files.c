/* failing_files.c - preloaded into a program whose files are to fail: FAILING_FILES is
 * CALL:PART:ERRNO[:RANK], of which CALL is open, read (pread too) or write (pwrite), PART stands in the
 * file's path, and ERRNO is the system's number, or -1: the call never returns, or -2: a write
 * writes half of its bytes and its process is killed; RANK: in the process with that RANK alone. The first
 * FAILING_AFTER calls succeed. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

/* Whether it fails, with errno. */
static bool fails(const char *call, const char *path)
{
    char which[16] = "", part[200] = "";
    const char *rule = getenv("FAILING_FILES"), *rank = getenv("RANK");
    int number = 0, of = -1;
    if (!rule || sscanf(rule, "%15[^:]:%199[^:]:%d:%d", which, part, &number, &of) < 3 ||
        strcmp(which, call) != 0 || !path || !strstr(path, part) || (of >= 0 && (!rank || atoi(rank) != of)))
        return false;
    static _Atomic(int) calls;
    const char *after = getenv("FAILING_AFTER");
    if (after && calls++ < atoi(after))
        return false;
    while (number == -1)
        (void)poll(NULL, 0, -1);
    errno = number;
    return true;
}

static bool fails_on(const char *call, int fd)
{
    char link[40], path[4096];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd); /* fits */
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return false;
    path[length] = '\0';
    return fails(call, path);
}

static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

#define OPEN(name)                                                                                           \
    int name(const char *path, int how, ...);                                                                \
    EXPORTED int name(const char *path, int how, ...)                                                        \
    {                                                                                                        \
        va_list rest;                                                                                        \
        va_start(rest, how);                                                                                 \
        const mode_t mode = how & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                          \
        va_end(rest);                                                                                        \
        int (*call)(const char *, int, ...) = NULL;                                                          \
        *(void **)&call = real(#name);                                                                       \
        return fails("open", path) ? -1 : call(path, how, mode);                                             \
    }
OPEN(open)
OPEN(open64)

EXPORTED ssize_t read(int fd, void *to, size_t bytes)
{
    ssize_t (*call)(int, void *, size_t) = NULL;
    *(void **)&call = real("read");
    return fails_on("read", fd) ? -1 : call(fd, to, bytes);
}

#define READ_AT(name)                                                                                        \
    ssize_t name(int fd, void *to, size_t bytes, off_t at);                                                  \
    EXPORTED ssize_t name(int fd, void *to, size_t bytes, off_t at)                                          \
    {                                                                                                        \
        ssize_t (*call)(int, void *, size_t, off_t) = NULL;                                                  \
        *(void **)&call = real(#name);                                                                       \
        return fails_on("read", fd) ? -1 : call(fd, to, bytes, at);                                          \
    }
READ_AT(pread)
READ_AT(pread64)

#define WRITE_AT(name)                                                                                       \
    ssize_t name(int fd, const void *from, size_t bytes, off_t at);                                          \
    EXPORTED ssize_t name(int fd, const void *from, size_t bytes, off_t at)                                  \
    {                                                                                                        \
        ssize_t (*call)(int, const void *, size_t, off_t) = NULL;                                            \
        *(void **)&call = real(#name);                                                                       \
        return fails_on("write", fd) ? -1 : call(fd, from, bytes, at);                                       \
    }
WRITE_AT(pwrite)
WRITE_AT(pwrite64)

EXPORTED ssize_t write(int fd, const void *from, size_t bytes)
{
    ssize_t (*call)(int, const void *, size_t) = NULL;
    *(void **)&call = real("write");
    const bool failed = fails_on("write", fd);
    if (failed && errno == -2 && call(fd, from, bytes / 2) >= 0)
        (void)raise(SIGKILL);
    return failed ? -1 : call(fd, from, bytes);
}
