/* mapping.c - see mapping.h. */
#include "trainer/data/mapping.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

/* A page fault maps the cached pages around it too, in aligned blocks of this size (fault_around_bytes). */
enum { AROUND = 1 << 16 };

int mapping_open(struct mapping *mapping, const char *path, struct muster_error *err)
{
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    *mapping = (struct mapping){0};
    return fd < 0 ? error_errno(err, "cannot read %s", path) : mapping_of_fd(mapping, fd, path, err);
}

int mapping_of_fd(struct mapping *mapping, int fd, const char *path, struct muster_error *err)
{
    struct stat status;
    *mapping = (struct mapping){0};
    if (fstat(fd, &status) < 0)
        return error_errno(err, "cannot read %s", path);
    if (!S_ISREG(status.st_mode))
        return error_set(err, MUSTER_E_INVALID, "%s is no file", path);
    if (status.st_size == 0)
        return 0;
    void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return error_errno(err, "cannot map %s", path);
    *mapping = (struct mapping){data, (size_t)status.st_size};
    return 0;
}

void mapping_close(struct mapping *mapping)
{
    if (!mapping || !mapping->data)
        return;
    (void)munmap((void *)(uintptr_t)mapping->data, mapping->length); /* cannot fail: mmap's own range */
    *mapping = (struct mapping){0};
}

void mapping_release(const struct mapping *mapping, size_t from, size_t length)
{
    if (!mapping->data || !length)
        return;
    const size_t first = from / AROUND * AROUND, past = (from + length + AROUND - 1) / AROUND * AROUND,
                 end = past < mapping->length ? past : mapping->length;
    /* only a hint: after a failure the pages stay */
    (void)madvise((void *)(uintptr_t)(mapping->data + first), end - first, MADV_DONTNEED);
}
