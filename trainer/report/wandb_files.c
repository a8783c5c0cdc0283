/* wandb_files.c - see wandb_files.h. */
#include "trainer/report/wandb_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"

enum { NEW_ID = 8, ID_SIZE = 65, LOG_LIMIT = 1 << 30 };
#define RUN_BEGIN "offline-run-"

/* wanted was checked (tracking_choice.h). */
static int make_id(const char *wanted, const char *before, char id[ID_SIZE], struct muster_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    const char *dash = before ? strrchr(before, '-') : NULL;
    unsigned char bytes[NEW_ID];
    if (wanted && *wanted) {
        (void)snprintf(id, ID_SIZE, "%s", wanted); /* a longer one was refused */
        return 0;
    }
    if (dash && dash[1] && strlen(dash + 1) < ID_SIZE) {
        (void)snprintf(id, ID_SIZE, "%s", dash + 1); /* fits */
        return 0;
    }
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return error_errno(err, "cannot get a random number for the id of a run");
    for (int i = 0; i < NEW_ID; i++)
        id[i] = letters[bytes[i] % (sizeof letters - 1)];
    id[NEW_ID] = '\0';
    return 0;
}

/* The log of an earlier process, without what comes again. 1: there is none. */
static int open_before(struct wandb_files *f, int64_t step, struct muster_error *err)
{
    scope_buffer text = {0};
    struct stat status;
    if (stat(f->path, &status) < 0)
        return 1;
    if (io_read_file(f->path, LOG_LIMIT, &text, err) < 0)
        return -1;
    const int64_t kept = wandb_cut(&f->crc, text.data, text.length, step, &f->log);
    if (kept < 0)
        return error_set(err, MUSTER_E_PROTOCOL, "%s is no transaction log of W&B: move it away", f->path);
    f->fd = open(f->path, O_RDWR | O_CLOEXEC);
    return f->fd < 0 || ftruncate(f->fd, kept) < 0 ? error_errno(err, "cannot go on with %s", f->path) : 0;
}

static int take_names(struct wandb_files *f, const char *folder, const char *name, const char *id,
                      struct muster_error *err)
{
    f->name = mem_strdup(name);
    f->folder = mem_printf("%s/wandb/%s", folder, name);
    f->path = f->folder ? mem_printf("%s/run-%s.wandb", f->folder, id) : NULL;
    return f->name && f->path ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for a path");
}

/* `wandb sync` without a path, and people, look there. */
static void point_to_latest(const struct wandb_files *f, const char *folder)
{
    scope_free char *link = mem_printf("%s/wandb/latest-run", folder);
    if (link && (unlink(link) == 0 || errno == ENOENT))
        (void)(symlink(f->name, link) < 0); /* a convenience: the file system may have no links */
}

static int open_new(struct wandb_files *f, const char *folder, const struct wandb_run *run, const char *id,
                    struct muster_error *err)
{
    const int64_t wall_ns = clock_wall_ns();
    const time_t now = (time_t)(wall_ns / NS_PER_S);
    struct wandb_run with_id = *run;
    struct tm local;
    char when[32], name[ID_SIZE + 64];
    (void)localtime_r(&now, &local);
    (void)strftime(when, sizeof when, "%Y%m%d_%H%M%S", &local);     /* fits */
    (void)snprintf(name, sizeof name, RUN_BEGIN "%s-%s", when, id); /* fits */
    if (take_names(f, folder, name, id, err) < 0)
        return -1;
    scope_free char *inner = mem_printf("%s/files", f->folder);
    if (!inner)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    if (io_make_directories(inner, 0777, err) < 0)
        return -1;
    f->fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (f->fd < 0)
        return error_errno(err, "cannot create %s", f->path);
    with_id.id = id;
    return wandb_begin(&f->log, &with_id, wall_ns, &f->first) < 0
               ? error_set(err, MUSTER_E_NOMEM, "no memory for the run's log")
               : 0;
}

int wandb_files_open(struct wandb_files *f, const char *folder, const struct wandb_run *run,
                     const char *before, int64_t step, struct muster_error *err)
{
    char id[ID_SIZE];
    f->fd = -1;
    crc32_make(&f->crc);
    if (make_id(run->id, before, id, err) < 0)
        return -1;
    if (before && !strncmp(before, RUN_BEGIN, strlen(RUN_BEGIN)) && !strchr(before, '/')) {
        if (take_names(f, folder, before, id, err) < 0)
            return -1;
        const int found = open_before(f, step, err);
        if (found <= 0)
            return found < 0 || wandb_set(&f->log, run->settings, &f->first) < 0 ? -1 : 0;
        wandb_files_free(f);
        crc32_make(&f->crc);
    }
    if (open_new(f, folder, run, id, err) < 0)
        return -1;
    point_to_latest(f, folder);
    return 0;
}

int wandb_files_write(void *context, const char *data, size_t length, struct muster_error *err)
{
    struct wandb_files *f = context;
    scope_buffer framed = {0};
    const off_t at = lseek(f->fd, 0, SEEK_END);
    if (at < 0)
        return error_errno(err, "cannot write %s", f->path);
    if (wandb_frame(&f->crc, at, data, length, &framed) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for an entry of %s", f->path);
    if (io_write_all(f->fd, framed.data, framed.length, f->path, err) == 0)
        return 0;
    if (ftruncate(f->fd, at) < 0)
        return error_wrap(err, "an incomplete entry is left in %s", f->path);
    return -1;
}

void wandb_files_free(struct wandb_files *f)
{
    guard_close(&f->fd);
    mem_free(f->path);
    mem_free(f->folder);
    mem_free(f->name);
    buffer_free(&f->first);
    *f = (struct wandb_files){.fd = -1};
}
