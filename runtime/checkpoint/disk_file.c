/* disk_file.c - see disk_file.h. */
#include "runtime/checkpoint/disk_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/futex.h"
#include "proto/base/guard.h"
#include "proto/base/thread.h"

enum { AT_ONCE = DISK_BLOCKS / 2, NOTHING_MORE = -1 };

/* Limit on bytes in the page cache that the kernel has not begun to write: at this limit it is asked to
 * begin. */
enum { FLUSH_BYTES = 8 << 20 };

struct disk_file {
    char *path;
    /* two descriptors; direct -1: the file system has no such way; cached -1: not needed */
    int direct, cached;
    int64_t head, bytes;
    char *memory, *own;          /* the blocks; own: memory that this object frees, NULL: the caller's */
    int64_t length[DISK_BLOCKS]; /* bytes in each block that was put */
    struct futex_word filled, written; /* number of blocks so far */
    atomic_bool hurry, failed;
    struct muster_error error; /* the thread's error; read after `failed` or the join */
    pthread_t thread;
    bool started;
    bool small;        /* the whole file is in memory, its head at the front: no thread */
    int64_t unflushed; /* the thread's: bytes in the page cache */
};

static char *block_at(const struct disk_file *file, uint32_t number)
{
    return file->memory + (file->small ? file->head : 0) + (int64_t)(number % DISK_BLOCKS) * DISK_BLOCK;
}

/* ---- the thread ---- */

static int put_all(int fd, const char *data, int64_t bytes, int64_t offset)
{
    for (int64_t done = 0; done < bytes;) {
        ssize_t put = pwrite(fd, data + done, (size_t)(bytes - done), offset + done);
        if (put < 0 && errno != EINTR)
            return -1;
        if (put == 0) { /* file systems never do so on files; a retry for ever is useless */
            errno = EIO;
            return -1;
        }
        done += put > 0 ? put : 0;
    }
    return 0;
}

static int write_cached(struct disk_file *file, const char *data, int64_t bytes, int64_t offset)
{
    if (put_all(file->cached, data, bytes, offset) < 0)
        return -1;
    file->unflushed += bytes;
    if (file->unflushed >= FLUSH_BYTES) {
        /* A hint: where the file system does not know it, the sync does all the work. */
        (void)sync_file_range(file->cached, 0, 0, SYNC_FILE_RANGE_WRITE);
        file->unflushed = 0;
    }
    return 0;
}

/* Number of filled blocks that are contiguous in memory, from block `number` on; 0: no more blocks.
 */
static uint32_t find_blocks(const struct disk_file *file, uint32_t number, uint32_t filled, int64_t *bytes)
{
    uint32_t count = 0;
    *bytes = 0;
    for (uint32_t at = number; count < AT_ONCE && at != filled && (!count || at % DISK_BLOCKS);
         at++, count++) {
        if (file->length[at % DISK_BLOCKS] == NOTHING_MORE)
            break;
        *bytes += file->length[at % DISK_BLOCKS];
    }
    return count;
}

/* Writes whole sectors past the page cache. 1: that is not possible. */
static int write_direct(struct disk_file *file, const char *data, int64_t bytes, int64_t offset)
{
    if (file->direct < 0)
        return 1;
    if (!bytes || !put_all(file->direct, data, bytes, offset))
        return 0;
    if (errno != EINVAL)
        return -1;
    (void)close(take_fd(&file->direct)); /* larger sectors, or no support for O_DIRECT */
    return 1;
}

/* The file's last bytes, less than a sector, go through the page cache. A whole sector would have to be cut
 * off again, and for that a file system reads the block back. */
static int write_some(struct disk_file *file, uint32_t number, int64_t bytes)
{
    const char *data = block_at(file, number);
    const int64_t offset = file->head + (int64_t)number * DISK_BLOCK;
    int64_t whole = bytes / DISK_ALIGNMENT * DISK_ALIGNMENT;
    const int result = atomic_load(&file->hurry) ? 1 : write_direct(file, data, whole, offset);
    if (result > 0)
        whole = 0;
    return result < 0 ? -1 : write_cached(file, data + whole, bytes - whole, offset + whole);
}

static void *write_blocks(void *argument)
{
    struct disk_file *file = argument;
    for (uint32_t number = 0, count;; number += count) {
        uint32_t filled;
        int64_t bytes;
        while ((filled = atomic_load(&file->filled.value)) == number)
            (void)futex_wait(&file->filled, filled, INSTANT_NEVER, FUTEX_PRIVATE); /* never late */
        if (!(count = find_blocks(file, number, filled, &bytes)))
            return NULL;
        if (!atomic_load(&file->failed) && write_some(file, number, bytes) < 0) {
            (void)error_errno(&file->error, "cannot write %s", file->path); /* kept for the caller */
            atomic_store(&file->failed, true);
        }
        atomic_store(&file->written.value, number + count);
        futex_wake(&file->written, FUTEX_PRIVATE);
    }
}

/* ---- the caller ---- */

static int failure(const struct disk_file *file, struct muster_error *err)
{
    if (err)
        *err = file->error;
    return -1;
}

/* Waits until a block is free. */
static void wait_for_block(struct disk_file *file)
{
    uint32_t filled = atomic_load(&file->filled.value), written;
    while (filled - (written = atomic_load(&file->written.value)) >= DISK_BLOCKS)
        (void)futex_wait(&file->written, written, INSTANT_NEVER, FUTEX_PRIVATE); /* never late */
}

char *disk_file_block(struct disk_file *file, struct muster_error *err)
{
    wait_for_block(file);
    if (atomic_load(&file->failed)) {
        (void)failure(file, err); /* NULL reports it */
        return NULL;
    }
    return block_at(file, atomic_load(&file->filled.value));
}

void disk_file_put(struct disk_file *file, int64_t bytes)
{
    file->length[atomic_load(&file->filled.value) % DISK_BLOCKS] = bytes;
    atomic_fetch_add(&file->filled.value, 1);
    futex_wake(&file->filled, FUTEX_PRIVATE);
}

void disk_file_hurry(struct disk_file *file, bool hurry)
{
    atomic_store(&file->hurry, hurry);
}

static void disk_file_join(struct disk_file *file)
{
    if (!file->started)
        return;
    wait_for_block(file);
    disk_file_put(file, NOTHING_MORE);
    (void)pthread_join(file->thread, NULL); /* cannot fail: ours, joined once */
    file->started = false;
}

/* Writes a small file, through the page cache if it cannot go past it. */
static int write_small(struct disk_file *file)
{
    const bool sectors = file->bytes % DISK_ALIGNMENT == 0;
    const int result = sectors ? write_direct(file, file->memory, file->bytes, 0) : 1;
    if (result <= 0)
        return result;
    if (file->cached < 0)
        file->cached = open(file->path, O_WRONLY | O_CLOEXEC);
    return file->cached < 0 ? -1 : put_all(file->cached, file->memory, file->bytes, 0);
}

static int write_end(struct disk_file *file, const void *head)
{
    if (!file->small)
        return put_all(file->cached, head, file->head, 0);
    memcpy(file->memory, head, (size_t)file->head);
    return write_small(file);
}

/* A sync of either descriptor syncs the file. */
static int sync_and_close(struct disk_file *file)
{
    int *fd = file->cached >= 0 ? &file->cached : &file->direct;
    return fdatasync(*fd) < 0 || close(take_fd(fd)) < 0 ? -1 : 0;
}

int disk_file_end(struct disk_file *file, const void *head, struct muster_error *err)
{
    disk_file_join(file);
    if (atomic_load(&file->failed))
        return failure(file, err);
    if (write_end(file, head) < 0 || sync_and_close(file) < 0)
        return error_errno(err, "cannot write %s", file->path);
    return 0;
}

/* ---- creation ---- */

GUARD_DEFINE(disk_file, struct disk_file *, disk_file_destroy);

/* Whether an existing file may be written over: it has this size, no other name and no reader. The kernel
 * gives a lease on a file that is not open elsewhere, and refuses it if that is not known. A process that
 * opens the file during the lease waits until its end. SIGIO would end this process, so a signal that does
 * nothing replaces it. */
static bool may_be_reused(int fd, int64_t bytes)
{
    struct stat status;
    return !fstat(fd, &status) && (bytes < 0 || status.st_size == bytes) && status.st_nlink == 1 &&
           !fcntl(fd, F_SETSIG, SIGURG) && !fcntl(fd, F_SETLEASE, F_WRLCK) && !fcntl(fd, F_SETLEASE, F_UNLCK);
}

int disk_file_open(const char *path, int64_t bytes, int how)
{
    scope_close int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | how);
    if (fd >= 0 && may_be_reused(fd, bytes))
        return take_fd(&fd);
    /* A file that cannot be opened, for example after an error of the disk, is replaced too. EINVAL is no
     * error of the file: it cannot be written past the page cache. */
    if (fd < 0 && errno == EINVAL)
        return -1;
    if (unlink(path) < 0 && errno != ENOENT)
        return -1;
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | how, 0666);
}

static int open_files(struct disk_file *file, struct muster_error *err)
{
    if (file->small && file->bytes % DISK_ALIGNMENT == 0 &&
        (file->direct = disk_file_open(file->path, file->bytes, O_DIRECT)) >= 0)
        return 0;
    file->cached = disk_file_open(file->path, file->bytes, 0);
    if (file->cached < 0)
        return error_errno(err, "cannot create %s", file->path);
    file->direct = open(file->path, O_WRONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC);
    return 0;
}

char *disk_staging_create(struct muster_error *err)
{
    void *memory =
        mmap(NULL, DISK_STAGING, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory != MAP_FAILED)
        return memory;
    (void)error_set(err, MUSTER_E_NOMEM, "no memory (%d bytes) for what is written to a checkpoint",
                    DISK_STAGING);
    return NULL;
}

void disk_staging_destroy(char *staging)
{
    if (staging)
        (void)munmap(staging, DISK_STAGING); /* cannot fail: it is our mapping */
}

bool disk_file_is_small(int64_t bytes)
{
    return bytes <= DISK_STAGING;
}

struct disk_file *disk_file_create(const char *path, int64_t head, int64_t bytes, char *staging,
                                   struct muster_error *err)
{
    GUARD(guard_disk_file) struct disk_file *file = mem_calloc(1, sizeof *file);
    if (!file) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to write %s", path);
        return NULL;
    }
    file->direct = file->cached = -1;
    file->head = head;
    file->bytes = bytes;
    file->path = mem_strdup(path);
    file->own = staging ? NULL : disk_staging_create(err);
    file->memory = staging ? staging : file->own;
    if (!file->memory)
        return NULL;
    if (!file->path) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to write %s", path);
        return NULL;
    }
    file->small = disk_file_is_small(bytes);
    if (open_files(file, err) < 0)
        return NULL;
    if (file->small)
        return take_pointer(&file);
    int failed = thread_start(&file->thread, 0, write_blocks, file);
    if (failed) {
        (void)thread_error(err, failed, "the thread that writes %s", path);
        return NULL;
    }
    file->started = true;
    return take_pointer(&file);
}

void disk_file_destroy(struct disk_file *file)
{
    if (!file)
        return;
    disk_file_join(file);
    guard_close(&file->direct);
    guard_close(&file->cached);
    disk_staging_destroy(file->own);
    mem_free(file->path);
    mem_free(file);
}
