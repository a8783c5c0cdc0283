/* plain_files.c - see plain_files.h. */
#include "benchmarks/support/plain_files.h"

#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

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

int plain_drop(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int failed = fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (fd >= 0)
        (void)close(fd);
    return failed;
}
