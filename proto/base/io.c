/* io.c - see io.h. */
#include "proto/base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

int io_write_all(int fd, const void *data, size_t length, const char *what, struct muster_error *err)
{
    const char *from = data;
    while (length) {
        ssize_t n = write(fd, from, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_errno(err, "cannot write %s", what);
        from += n;
        length -= (size_t)n;
    }
    return 0;
}

int io_read_all(int fd, void *data, size_t length, const char *what, struct muster_error *err)
{
    char *to = data;
    while (length) {
        ssize_t n = read(fd, to, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_errno(err, "cannot read %s", what);
        if (n == 0)
            return error_set(err, MUSTER_E_IO, "%s ended %zu bytes early", what, length);
        to += n;
        length -= (size_t)n;
    }
    return 0;
}

enum { READ_LEAST = 1024 };

int io_read_file(const char *path, size_t limit, struct buffer *out, struct muster_error *err)
{
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, "cannot open %s", path);
    for (;;) {
        /* most are a line: little at first, then as much again as there is */
        const size_t room = out->length < READ_LEAST ? READ_LEAST : out->length;
        char *to = buffer_reserve(out, room);
        if (!to)
            return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", path);
        ssize_t n = read(fd, to, room);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_errno(err, "cannot read %s", path);
        out->length += (size_t)n;
        out->data[out->length] = '\0';
        if (out->length > limit)
            return error_set(err, MUSTER_E_LIMIT, "%s is larger than %zu bytes", path, limit);
        if (n == 0)
            return 0;
    }
}

int io_exists(const char *path, struct muster_error *err)
{
    struct stat status;
    if (!stat(path, &status))
        return 1;
    return errno == ENOENT || errno == ENOTDIR ? 0 : error_errno(err, "cannot read %s", path);
}

int io_is_folder(const char *path, struct muster_error *err)
{
    struct stat status;
    if (!stat(path, &status))
        return S_ISDIR(status.st_mode);
    return errno == ENOENT || errno == ENOTDIR ? 0 : error_errno(err, "cannot read %s", path);
}

static int sync_directory_of(const char *path, struct muster_error *err)
{
    const char *slash = strrchr(path, '/');
    scope_free char *directory =
        slash ? mem_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : mem_strdup(".");
    if (!directory)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    scope_close int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return error_errno(err, "cannot sync directory %s", directory);
    return 0;
}

bool io_same_file(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

int io_create_new(const char *path, int access, mode_t mode)
{
    enum { TRIES = 16 }; /* another user may plant it again and again */
    for (int i = 0; i < TRIES; i++) {
        const int fd = open(path, access | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST)
            return fd;
        if (unlink(path) < 0 && errno != ENOENT)
            return -1;
    }
    errno = EEXIST;
    return -1;
}

int io_create_beside(const char *path, mode_t mode, char **name, struct muster_error *err)
{
    enum { TRIES = 16 };
    struct stat there;
    *name = NULL;
    /* renamed into place, the file would be there instead of /dev/null, for all programs */
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode))
        return error_set(err, MUSTER_E_INVALID, "%s is a device, a pipe or a socket: name a file", path);
    for (int i = 0; i < TRIES; i++) {
        uint64_t number = 0;
        *name = NULL;
        if (getrandom(&number, sizeof number, 0) != sizeof number)
            return error_errno(err, "cannot get a random number for a file next to %s", path);
        scope_free char *beside = mem_printf("%s.new.%llu", path, (unsigned long long)number);
        if (!beside)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        const int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd < 0)
            return error_errno(err, "cannot create %s", beside);
        *name = take_pointer(&beside);
        return fd;
    }
    return error_set(err, MUSTER_E_IO, "cannot create a file next to %s: its names are taken", path);
}

int io_write_file_atomic(const char *path, const void *data, size_t length, mode_t mode,
                         struct muster_error *err)
{
    scope_free char *beside = NULL;
    scope_close int fd = io_create_beside(path, mode, &beside, err);
    if (fd < 0)
        return -1;
    if (io_write_all(fd, data, length, beside, err) < 0) {
        (void)unlink(beside);
        return -1;
    }
    if (fsync(fd) < 0 || rename(beside, path) < 0) {
        (void)error_errno(err, "cannot rename %s into place", path);
        (void)unlink(beside);
        return -1;
    }
    return sync_directory_of(path, err);
}

/* Where the last line of a file of so many bytes begins, which is its end where that line is whole; -1 with
 * errno. */
static off_t last_line(int fd, off_t end)
{
    char block[4096];
    for (off_t at = end; at > 0;) {
        const size_t wanted = at < (off_t)sizeof block ? (size_t)at : sizeof block;
        const ssize_t n = pread(fd, block, wanted, at - (off_t)wanted);
        if (n < 0)
            return -1;
        const char *newline = memrchr(block, '\n', (size_t)n);
        at -= (off_t)wanted;
        if (newline)
            return at + (newline - block) + 1;
    }
    return 0;
}

static int cut_unfinished_line(const char *path, int fd, const char *begins)
{
    struct stat status;
    char found[64];
    if (fstat(fd, &status) < 0)
        return -1;
    if (!S_ISREG(status.st_mode) || status.st_size == 0)
        return 0;
    scope_close int reader = open(path, O_RDONLY | O_CLOEXEC);
    if (reader < 0)
        return errno == EACCES ? 0 : -1; /* a file that may be written alone */
    const off_t line = last_line(reader, status.st_size);
    if (line < 0)
        return -1;
    const ssize_t length = pread(reader, found, strnlen(begins, sizeof found), line);
    if (length < 0)
        return -1;
    /* less than `begins` where the cut lies within */
    return length && strncmp(found, begins, (size_t)length) == 0 ? ftruncate(fd, line) : 0;
}

int io_open_lines(const char *path, const char *begins)
{
    scope_close int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return fd < 0 || cut_unfinished_line(path, fd, begins) < 0 ? -1 : take_fd(&fd);
}

int io_remove_matching(const char *folder, bool (*matches)(const char *name), struct muster_error *err)
{
    DIR *open_folder = opendir(folder);
    struct dirent *entry;
    int result = 0;
    if (!open_folder)
        return error_errno(err, "cannot read %s", folder);
    while (!result && (errno = 0, entry = readdir(open_folder)))
        if (matches(entry->d_name) && unlinkat(dirfd(open_folder), entry->d_name, 0) < 0)
            result = error_errno(err, "cannot remove %s/%s", folder, entry->d_name);
    if (!result && errno)
        result = error_errno(err, "cannot read %s", folder);
    (void)closedir(open_folder); /* only read */
    return result;
}

static bool is_unfinished(const char *name)
{
    const char *end = strstr(name, ".new.");
    return end && end != name && end[5] && !end[5 + strspn(end + 5, "0123456789")];
}

int io_remove_unfinished(const char *folder, struct muster_error *err)
{
    return io_remove_matching(folder, is_unfinished, err);
}

int io_make_directories(const char *path, mode_t mode, struct muster_error *err)
{
    scope_free char *copy = mem_strdup(path);
    if (!copy)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    for (char *slash = copy + 1;; slash++) {
        if (*slash != '/' && *slash)
            continue;
        char kept = *slash;
        *slash = '\0';
        struct stat status;
        if (mkdir(copy, mode) < 0 && errno != EEXIST)
            return error_errno(err, "cannot create directory %s", copy);
        const bool there = !stat(copy, &status);
        if (!there || !S_ISDIR(status.st_mode)) {
            errno = there ? ENOTDIR : errno;
            return error_errno(err, "cannot create directory %s", copy);
        }
        if (!kept)
            return 0;
        *slash = kept;
    }
}
