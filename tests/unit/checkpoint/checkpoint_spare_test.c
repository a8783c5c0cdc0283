/* checkpoint_spare_test.c - I/O errors while a checkpoint is written over the files of an older one: at every
 * call that changes the disk, one kind of call after the other. It is not saved, the one before is as it was,
 * and the next one is right. */
#include "tests/support/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/folder.h"
#include "tests/unit/train/train_harness.h"

enum { RANKS = 2, STEPS = 60, WARM_UP = 3, FILE_LIMIT = 64 << 20 };

/* ---- a disk with one error ---- */

static char watched[65];          /* the folder */
static atomic_int good_left = -1; /* calls of its kind before the failing call; -1: none fails */
static atomic_bool struck;

enum call { CALL_PWRITE, CALL_WRITE, CALL_SYNC, CALL_SYNC_DATA, CALL_OPEN, CALL_COUNT };
static atomic_int kind; /* which of them fails: how ranks' calls of different kinds mix is chance */

static bool is_watched(const char *path)
{
    return *watched && !strncmp(path, watched, strlen(watched));
}

static bool strikes(enum call call, const char *path)
{
    if ((int)call != atomic_load(&kind) || !is_watched(path) || atomic_load(&good_left) < 0 ||
        atomic_fetch_sub(&good_left, 1) != 0)
        return false;
    atomic_store(&struck, true);
    errno = EIO;
    return true;
}

static bool strikes_fd(enum call call, int fd)
{
    char link[64], path[256];
    if (atomic_load(&good_left) < 0)
        return false;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd); /* fits */
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return strikes(call, path);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    return strikes_fd(CALL_PWRITE, fd) ? -1 : syscall(SYS_pwrite64, fd, data, bytes, offset);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    return strikes_fd(CALL_WRITE, fd) ? -1 : syscall(SYS_write, fd, data, bytes);
}

int fsync(int fd)
{
    return strikes_fd(CALL_SYNC, fd) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return strikes_fd(CALL_SYNC_DATA, fd) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int open(const char *path, int how, ...)
{
    mode_t mode = 0;
    if (how & O_CREAT) {
        va_list arguments;
        va_start(arguments, how);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    if ((how & O_ACCMODE) != O_RDONLY && strikes(CALL_OPEN, path))
        return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, how, mode);
}

/* ---- a run ---- */

static const char *const files[] = {"rank-0.safetensors", "rank-1.safetensors", MANIFEST_NAME};
enum { FILES = sizeof files / sizeof *files };

struct spare {
    char folder[64], alone[64];
    struct checkpoint_kept keeps[RANKS];
    struct buffer before[FILES];                 /* files of the last saved checkpoint */
    int64_t saved;                               /* its step */
    int good;                                    /* calls before the next failing call */
    int struck[CALL_COUNT];                      /* errors so far, by call */
    atomic_bool through;                         /* no call is left */
    atomic_int failed_io, failed_peer, absorbed; /* by ranks */
};

static int save(struct trainer *trainer, int rank, int64_t step, const char *folder,
                struct checkpoint_kept *kept, struct muster_error *err)
{
    const struct checkpoint_save what = {.trainer = trainer,
                                         .folder = folder,
                                         .rank = rank,
                                         .retention = {.last = 1},
                                         .kept = kept,
                                         .run = {.step = step, .samples = step * 8}};
    return checkpoint_save(&what, NULL, err);
}

static int read_file(const char *folder, int64_t step, const char *name, struct buffer *out)
{
    struct muster_error err = {0};
    scope_free char *path = mem_printf("%s/step-%lld/%s", folder, (long long)step, name);
    buffer_clear(out);
    return io_read_file(path, FILE_LIMIT, out, &err);
}

/* Whether a checkpoint has the bytes of these. */
static bool has_bytes(const char *folder, int64_t step, const struct buffer *bytes)
{
    scope_buffer now = {0};
    for (int i = 0; i < FILES; i++)
        if (read_file(folder, step, files[i], &now) < 0 || now.length != bytes[i].length ||
            memcmp(now.data, bytes[i].data, now.length) != 0)
            return false;
    return true;
}

static int keep_bytes(struct spare *s, int64_t step)
{
    for (int i = 0; i < FILES; i++)
        if (read_file(s->alone, step, files[i], &s->before[i]) < 0)
            return -1;
    s->saved = step;
    return 0;
}

static int say(const char *what, int64_t step)
{
    fprintf(stderr, "step %lld: %s (call %d)\n", (long long)step, what, atomic_load(&kind));
    return -1;
}

/* Checks the files after a save during which a call failed. */
static int look_at_disk(struct spare *s, int64_t step)
{
    scope_free int64_t *steps = NULL;
    struct buffer now[FILES] = {{0}};
    if (!has_bytes(s->folder, s->saved, s->before))
        return say("the one before is not as it was", step);
    const int count = folder_list(s->folder, &steps, NULL);
    if (count < 1 || count > 2 || steps[count - 1] != s->saved)
        return say("others are there than the one before", step);
    for (int i = 0; i < FILES; i++)
        if (read_file(s->alone, step, files[i], &now[i]) < 0)
            return -1;
    const bool whole = count == 1 || (steps[0] == step && has_bytes(s->folder, step, now));
    for (int i = 0; i < FILES; i++)
        buffer_free(&now[i]);
    return whole ? 0 : say("a part of it is there under its name", step);
}

static int meet(struct trainer *trainer, int failed)
{
    struct muster_error err = {0};
    double sum = failed != 0;
    return trainer_reduce(trainer, &sum, 1, &err) < 0 || sum > 0 ? -1 : 0;
}

/* A save that fails: all its ranks know it, and one rank knows the reason. */
static int fail_once(struct spare *s, struct trainer *trainer, int rank, int64_t step)
{
    struct muster_error err = {0};
    if (rank == 0) {
        atomic_store(&struck, false);
        atomic_store(&good_left, s->good);
    }
    if (meet(trainer, 0) < 0)
        return -1;
    const int result = save(trainer, rank, step, s->folder, &s->keeps[rank], &err);
    if (meet(trainer, 0) < 0) /* all have ended */
        return -1;
    if (rank == 0)
        atomic_store(&good_left, -1);
    const bool hit = atomic_load(&struck);
    /* a file that cannot be opened past the page cache, or for writing over it, is opened in another way */
    const bool absorbed = hit && result >= 0 && atomic_load(&kind) == CALL_OPEN;
    if ((result < 0) != (hit && !absorbed))
        return say(hit ? "it is said to be saved" : "it failed by itself", step);
    if (absorbed)
        atomic_fetch_add(&s->absorbed, 1);
    else if (hit && err.code == MUSTER_E_PEER)
        atomic_fetch_add(&s->failed_peer, 1);
    else if (hit && strstr(err.text, strerror(EIO)) && strstr(err.text, watched))
        atomic_fetch_add(&s->failed_io, 1);
    else if (hit)
        return say(err.text, step);
    int failed = 0;
    if (rank == 0 && hit)
        failed = absorbed ? keep_bytes(s, step) : look_at_disk(s, step);
    if (rank == 0 && absorbed && !failed && !has_bytes(s->folder, step, s->before))
        failed = say("it is not right", step);
    if (rank == 0 && hit)
        s->struck[atomic_load(&kind)]++;
    if (rank == 0) { /* the next call; after the last of a kind, the first of the next kind */
        s->good = hit ? s->good + 1 : 0;
        if (!hit && atomic_load(&kind) + 1 < CALL_COUNT)
            atomic_fetch_add(&kind, 1);
        else if (!hit)
            atomic_store(&s->through, true);
    }
    return meet(trainer, failed);
}

static int visit(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct spare *s = run->context;
    struct muster_error err = {0};
    if (step == 0 || atomic_load(&s->through))
        return meet(trainer, 0);
    if (save(trainer, rank, step, s->alone, NULL, &err) < 0)
        return say(err.text, step);
    /* every second save: the next save uses the spare files left by an error */
    if (step > WARM_UP && step % 2 == 0 && fail_once(s, trainer, rank, step) < 0)
        return -1;
    if (save(trainer, rank, step, s->folder, &s->keeps[rank], &err) < 0)
        return say(err.text, step);
    return meet(trainer, rank == 0 && (keep_bytes(s, step) < 0 || !has_bytes(s->folder, step, s->before))
                             ? say("it is not right", step)
                             : 0);
}

static void an_error_at_any_call_leaves_the_one_before(void **state)
{
    (void)state;
    struct spare s = {.folder = "/tmp/muster-spare-XXXXXX", .alone = "/tmp/muster-alone-XXXXXX"};
    struct training run = training_small();
    assert_non_null(mkdtemp(s.folder));
    assert_non_null(mkdtemp(s.alone));
    (void)snprintf(watched, sizeof watched, "%s/", s.folder); /* fits */
    run.mesh = (struct mesh)MESH(1, 1, RANKS);
    run.strategy = STRATEGY_FULL_SHARD;
    run.steps = STEPS;
    run.context = &s;
    run.visit = visit;
    assert_int_equal(training_run(&run), 0);
    assert_true(atomic_load(&s.through)); /* at each call there was one */
    const int errors = s.struck[CALL_PWRITE] + s.struck[CALL_WRITE] + s.struck[CALL_SYNC] +
                       s.struck[CALL_SYNC_DATA] + s.struck[CALL_OPEN];
    assert_true(s.struck[CALL_PWRITE] >= RANKS && s.struck[CALL_SYNC_DATA] > RANKS);
    assert_true(s.struck[CALL_WRITE] > 0 && s.struck[CALL_SYNC] > 0);
    assert_int_equal(2 * atomic_load(&s.failed_io) + atomic_load(&s.absorbed), RANKS * errors);
    assert_int_equal(atomic_load(&s.failed_peer), atomic_load(&s.failed_io));
    for (int rank = 0; rank < RANKS; rank++)
        checkpoint_kept_free(&s.keeps[rank]);
    *watched = '\0';
    for (int i = 0; i < FILES; i++)
        buffer_free(&s.before[i]);
    assert_int_equal(folder_remove(s.folder, s.saved, NULL), 0);
    assert_int_equal(folder_remove(s.alone, s.saved, NULL), 0);
    assert_int_equal(rmdir(s.folder), 0); /* nothing hidden is left */
    assert_int_equal(rmdir(s.alone), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_at_any_call_leaves_the_one_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
