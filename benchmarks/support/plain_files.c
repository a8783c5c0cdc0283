/* plain_files.c - see plain_files.h. */
#include "benchmarks/support/plain_files.h"

#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

enum { PAGE = 4096 };

double plain_write(const char *path, const char *piece, int64_t bytes)
{
    struct instant start = clock_now(NULL);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = fd >= 0;
    for (int64_t done = 0; good && done < bytes; done += PLAIN_PIECE)
        good = write(fd, piece, PLAIN_PIECE) == PLAIN_PIECE;
    good = good && !fsync(fd);
    if (fd >= 0)
        good = !close(fd) && good;
    return good ? plain_since(start) : -1;
}

double plain_read(const char *path, char *piece)
{
    struct instant start = clock_now(NULL);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? 1 : -1;
    while (got > 0)
        got = read(fd, piece, PLAIN_PIECE);
    if (fd >= 0)
        (void)close(fd);
    return got < 0 ? -1 : plain_since(start);
}

double plain_write_direct(const char *path, const char *data, int64_t bytes)
{
    struct instant start = clock_now(NULL);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
    bool good = fd >= 0;
    for (int64_t done = 0; good && done < bytes; done += PLAIN_LARGE) {
        int64_t now = bytes - done < PLAIN_LARGE ? (bytes - done + PAGE - 1) / PAGE * PAGE : PLAIN_LARGE;
        good = write(fd, data + done, (size_t)now) == now;
    }
    good = good && !fsync(fd);
    if (fd >= 0)
        good = !close(fd) && good;
    return good ? plain_since(start) : -1;
}

double plain_read_direct(const char *path, char *piece)
{
    struct instant start = clock_now(NULL);
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    ssize_t got = fd >= 0 ? 1 : -1;
    while (got > 0)
        got = read(fd, piece, PLAIN_LARGE);
    if (fd >= 0)
        (void)close(fd);
    return got < 0 ? -1 : plain_since(start);
}

int plain_drop(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int failed = fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (fd >= 0)
        (void)close(fd);
    return failed;
}
