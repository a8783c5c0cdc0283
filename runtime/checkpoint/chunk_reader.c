/* chunk_reader.c - see chunk_reader.h. */
#include "runtime/checkpoint/chunk_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/futex.h"
#include "proto/base/guard.h"
#include "proto/base/thread.h"
#include "runtime/checkpoint/disk_file.h"
#include "runtime/checkpoint/rank_file.h"

/* A disk gives its full rate to a few requests at once. */
enum { READERS = 3, AHEAD = 2 * READERS, ROOM = MANIFEST_CHUNK + 2 * DISK_ALIGNMENT };

struct slot {
    char *memory;             /* ROOM, aligned */
    const char *bytes;        /* the chunk's bytes in memory; NULL: err has the reason */
    struct futex_word filled; /* number of the chunk in this slot, + 1 */
    struct muster_error err;
};

struct chunk_reader {
    const struct manifest *manifest;
    const struct model *model;
    const char *folder, *local;
    enum copy_state {
        COPY_UNUSED,
        COPY_NONE,
        COPY_THERE
    } *
        copies; /* state of each file's copy; UNUSED: no chunk is in the file */
    const struct chunk *chunks;
    int64_t count;
    struct checksum crc;
    char *memory;
    struct slot slots[AHEAD];
    _Atomic(uint32_t) next;  /* number of the next chunk to read, for the next free thread */
    struct futex_word given; /* number of chunks that the caller has requested */
    pthread_t threads[READERS];
    int started;
    atomic_flag copy_failed; /* set: copy_err is in use */
    struct muster_error copy_err;
};

/* ---- the threads ---- */

/* The file that a thread has read last. */
struct opened {
    int file, fd;
    bool direct, local;
};

static int open_chunk_file(const struct chunk_reader *r, struct opened want, struct opened *o,
                           struct muster_error *err)
{
    if (o->fd >= 0 && o->file == want.file && o->direct == want.direct && o->local == want.local)
        return 0;
    scope_free char *path =
        mem_printf("%s/%s", want.local ? r->local : r->folder, r->manifest->files[want.file].name);
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read a checkpoint");
    guard_close(&o->fd);
    *o = want;
    o->fd = open(path, O_RDONLY | O_CLOEXEC | (want.direct ? O_DIRECT : 0));
    if (o->fd < 0 && want.direct)
        o->fd = open(path, O_RDONLY | O_CLOEXEC); /* the file system has no such way */
    return o->fd < 0 ? error_errno(err, "cannot read %s", path) : 0;
}

/* Reads at most `bytes` bytes from an offset, fewer at the file's end; -1 with errno. */
static int64_t read_all(int fd, char *to, int64_t bytes, int64_t offset)
{
    int64_t done = 0;
    while (done < bytes) {
        ssize_t got = pread(fd, to + done, (size_t)(bytes - done), offset + done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (!got || got % DISK_ALIGNMENT) /* file's end; O_DIRECT reads continue at a sector */
            return done + got;
        done += got;
    }
    return done;
}

/* Reads whole sectors around the chunk. Returns the address of the chunk's bytes. */
static const char *read_chunk(const struct chunk_reader *r, const struct chunk *c, int64_t length, bool local,
                              char *to, struct opened *o, struct muster_error *err)
{
    const struct manifest_slice *slice = c->slice;
    const int64_t at = slice->offset + c->number * MANIFEST_CHUNK, before = at % DISK_ALIGNMENT;
    const int64_t whole = (before + length + DISK_ALIGNMENT - 1) / DISK_ALIGNMENT * DISK_ALIGNMENT;
    struct opened want = {.file = slice->file, .local = local, .direct = true};
    if (open_chunk_file(r, want, o, err) < 0)
        return NULL;
    int64_t got = read_all(o->fd, to, whole, at - before);
    want.direct = false;
    if (got < before + length && open_chunk_file(r, want, o, err) < 0)
        return NULL;
    if (got < before + length) /* sectors are larger here, or the file is cut off */
        got = read_all(o->fd, to, whole, at - before);
    const char *name = r->manifest->files[slice->file].name, *folder = local ? r->local : r->folder;
    if (got < 0)
        (void)error_errno(err, "cannot read %s/%s", folder, name); /* NULL says it */
    else if (got < before + length)
        (void)error_set(err, MUSTER_E_INVALID, "%s/%s is damaged: it is cut off", folder, name);
    return got < before + length ? NULL : to + before;
}

/* Fills a slot from the node's copy or the shared file. */
static bool fill_from(const struct chunk_reader *r, const struct chunk *c, bool local, struct slot *slot,
                      struct opened *o)
{
    const struct manifest_slice *slice = c->slice;
    const int64_t bytes = slice->count * dtype_size(slice->dtype), begin = c->number * MANIFEST_CHUNK,
                  length = bytes - begin < MANIFEST_CHUNK ? bytes - begin : MANIFEST_CHUNK;
    slot->bytes = read_chunk(r, c, length, local, slot->memory, o, &slot->err);
    if (!slot->bytes)
        return false;
    if (checksum_add(&r->crc, 0, slot->bytes, length) == manifest_chunk_crc(slice, c->number))
        return true;
    slot->bytes = NULL;
    (void)error_set(&slot->err, MUSTER_E_INVALID,
                    "%s/%s is damaged: the checksum of %s of %s differs (bytes %lld to %lld)", r->folder,
                    r->manifest->files[slice->file].name, manifest_tensor_name(slice->tensor),
                    r->model->params[slice->param].name, (long long)(slice->offset + begin),
                    (long long)(slice->offset + begin + length));
    return false;
}

/* A missing or damaged copy is not reported: it may never have been whole. */
static void note_copy_error(struct chunk_reader *r, const struct muster_error *err)
{
    if (err->code != MUSTER_E_NOT_FOUND && err->code != MUSTER_E_INVALID &&
        !atomic_flag_test_and_set(&r->copy_failed))
        r->copy_err = *err;
}

/* Reads the shared file if the copy lacks the chunk or has other bytes. */
static void fill_slot(struct chunk_reader *r, const struct chunk *c, struct slot *slot, struct opened *o)
{
    const bool copy = r->copies[c->slice->file] == COPY_THERE;
    if (copy && fill_from(r, c, true, slot, o))
        return;
    if (copy)
        note_copy_error(r, &slot->err);
    (void)fill_from(r, c, false, slot, o); /* the result is in the slot */
}

static void *read_chunks(void *argument)
{
    struct chunk_reader *r = argument;
    struct opened opened = {.fd = -1};
    for (;;) {
        const uint32_t number = atomic_fetch_add(&r->next, 1);
        uint32_t given;
        if (number >= (uint32_t)r->count)
            break;
        /* The slot is free once its chunk is no longer in use: the caller uses the next chunk then. */
        while ((given = atomic_load(&r->given.value)) + AHEAD <= number + 1)
            (void)futex_wait(&r->given, given, INSTANT_NEVER, FUTEX_PRIVATE); /* never late */
        if (given > (uint32_t)r->count)
            break;
        struct slot *slot = &r->slots[number % AHEAD];
        fill_slot(r, &r->chunks[number], slot, &opened);
        atomic_store(&slot->filled.value, number + 1);
        futex_wake(&slot->filled, FUTEX_PRIVATE);
    }
    guard_close(&opened.fd);
    return NULL;
}

/* ---- the caller ---- */

const char *chunk_reader_next(struct chunk_reader *r, struct muster_error *err)
{
    const uint32_t number = atomic_fetch_add(&r->given.value, 1);
    struct slot *slot = &r->slots[number % AHEAD];
    uint32_t seen;
    futex_wake(&r->given, FUTEX_PRIVATE);
    while ((seen = atomic_load(&slot->filled.value)) != number + 1)
        (void)futex_wait(&slot->filled, seen, INSTANT_NEVER, FUTEX_PRIVATE); /* never late */
    if (!slot->bytes && err)
        *err = slot->err;
    return slot->bytes;
}

void chunk_reader_files(const struct chunk_reader *r, int *files, int *local)
{
    *files = *local = 0;
    for (int i = 0; i < r->manifest->file_count; i++) {
        *files += r->copies[i] != COPY_UNUSED;
        *local += r->copies[i] == COPY_THERE;
    }
}

const struct muster_error *chunk_reader_copy_error(const struct chunk_reader *r)
{
    return &r->copy_err;
}

/* A copy belongs to this checkpoint if its header does. */
static void find_copies(struct chunk_reader *r)
{
    for (int64_t i = 0; i < r->count; i++) {
        const int file = r->chunks[i].slice->file;
        struct muster_error err = {0};
        if (r->copies[file] != COPY_UNUSED)
            continue;
        r->copies[file] = COPY_NONE;
        if (r->local && !rank_file_check(r->local, &r->manifest->files[file], true, &err))
            r->copies[file] = COPY_THERE;
        else if (r->local)
            note_copy_error(r, &err);
    }
}

GUARD_DEFINE(chunk_reader, struct chunk_reader *, chunk_reader_destroy);

static int start_threads(struct chunk_reader *r, struct muster_error *err)
{
    for (r->started = 0; r->started < READERS; r->started++) {
        int failed = thread_start(&r->threads[r->started], 0, read_chunks, r);
        if (failed)
            return thread_error(err, failed, "a thread that reads %s", r->folder);
    }
    return 0;
}

struct chunk_reader *chunk_reader_create(const struct manifest *manifest, const struct model *model,
                                         const char *folder, const char *local, const struct chunk *chunks,
                                         int64_t count, struct muster_error *err)
{
    GUARD(guard_chunk_reader) struct chunk_reader *r = mem_calloc(1, sizeof *r);
    void *memory = r && count < INT32_MAX ? mmap(NULL, (size_t)AHEAD * ROOM, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                          : MAP_FAILED;
    if (memory != MAP_FAILED)
        r->memory = memory;
    if (r)
        r->copies = mem_calloc((size_t)manifest->file_count + 1, sizeof *r->copies);
    if (!r || !r->memory || !r->copies) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to read a checkpoint");
        return NULL;
    }
    r->local = local;
    r->manifest = manifest;
    r->model = model;
    r->folder = folder;
    r->chunks = chunks;
    r->count = count;
    checksum_make(&r->crc, true);
    for (int i = 0; i < AHEAD; i++)
        r->slots[i].memory = r->memory + (int64_t)i * ROOM;
    find_copies(r);
    return start_threads(r, err) < 0 ? NULL : take_pointer(&r);
}

void chunk_reader_destroy(struct chunk_reader *r)
{
    if (!r)
        return;
    atomic_store(&r->given.value, (uint32_t)r->count + 1); /* the threads end */
    futex_wake(&r->given, FUTEX_PRIVATE);
    for (int i = 0; i < r->started; i++)
        (void)pthread_join(r->threads[i], NULL); /* cannot fail: ours, joined once */
    if (r->memory)
        (void)munmap(r->memory, (size_t)AHEAD * ROOM); /* cannot fail: it is our mapping */
    mem_free(r->copies);
    mem_free(r);
}
