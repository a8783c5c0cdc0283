/* slow_writes.c - preloaded into an agent by tests/e2e/logs_matrix_test.py: pwrite, by which the spool is
 * written and nothing else, takes SLOW_WRITES_MS milliseconds, or for ever where that is -1. */
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/types.h>

typedef ssize_t write_at(int fd, const void *data, size_t length, off_t offset);

static ssize_t slowly(const char *name, int fd, const void *data, size_t length, off_t offset)
{
    const char *text = getenv("SLOW_WRITES_MS");
    (void)poll(NULL, 0, text ? (int)strtol(text, NULL, 10) : 0);
    write_at *real = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, name);
    return real(fd, data, length, offset);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset);
ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset);

__attribute__((visibility("default"))) ssize_t pwrite(int fd, const void *data, size_t length, off_t offset)
{
    return slowly("pwrite", fd, data, length, offset);
}

__attribute__((visibility("default"))) ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset)
{
    return slowly("pwrite64", fd, data, length, offset);
}
