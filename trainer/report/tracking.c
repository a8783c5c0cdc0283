/* tracking.c - see report_internal.h: the folders of trackers, and W&B's folder. */
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
#include "trainer/report/report_internal.h"

enum { MEMORY_LIMIT = 1 << 16 };

/* Reads the names of the runs to continue from the memory file; NULL: none. */
static void recall(const struct tracking_options *o, char **wandb, char **mlflow)
{
    scope_buffer text = {0};
    *wandb = *mlflow = NULL;
    if (!o->goes_on || !o->memory_path || io_read_file(o->memory_path, MEMORY_LIMIT, &text, NULL) < 0 ||
        !text.data)
        return; /* new runs */
    *wandb = mlflow_read_value(text.data, "wandb");
    *mlflow = mlflow_read_value(text.data, "mlflow");
}

static int remember(const struct tracking *t, const struct tracking_options *o, struct muster_error *err)
{
    scope_buffer text = {0};
    if (!o->memory_path)
        return 0;
    buffer_text(&text, "# The runs of W&B and MLflow in which this training goes on.\n");
    if (t->wandb.name)
        buffer_printf(&text, "wandb: %s\n", t->wandb.name);
    if (t->mlflow.name)
        buffer_printf(&text, "mlflow: %s\n", t->mlflow.name);
    if (text.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the names of the runs");
    scope_free char *folder = mem_strdup(o->memory_path);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash && slash != folder) {
        *slash = '\0';
        if (io_make_directories(folder, 0777, err) < 0)
            return -1;
    }
    return io_write_file_atomic(o->memory_path, text.data, text.length, 0666, err);
}

int tracking_open(struct tracking *t, const struct tracking_options *o, struct muster_error *err)
{
    scope_free char *wandb = NULL, *mlflow = NULL;
    t->wandb.fd = -1;
    if (!o->wandb_folder && !o->mlflow_store)
        return 0;
    recall(o, &wandb, &mlflow);
    if (o->wandb_folder && wandb_files_open(&t->wandb, o->wandb_folder, &o->wandb, wandb, o->step, err) < 0)
        return error_wrap(err, "logging.wandb");
    if (o->mlflow_store && mlflow_files_open(&t->mlflow, o->mlflow_store, o->experiment, o->wandb.name,
                                             o->wandb.settings, mlflow, o->step, err) < 0)
        return error_wrap(err, "logging.mlflow");
    return remember(t, o, err);
}

void tracking_files(struct tracking *t, struct writer_file *wandb, struct writer_file *mlflow)
{
    *wandb = (struct writer_file){.fd = -1, .path = t->wandb.path};
    *mlflow = (struct writer_file){.fd = -1, .path = t->mlflow.folder};
    if (t->wandb.fd >= 0) {
        wandb->write = wandb_files_write;
        wandb->context = &t->wandb;
    }
    if (t->mlflow.folder) {
        mlflow->write = mlflow_files_write;
        mlflow->context = &t->mlflow;
    }
}

void tracking_close(struct tracking *t, int exit_code, const struct log_sink *log)
{
    struct muster_error err = {0};
    if (t->mlflow.folder && mlflow_files_end(&t->mlflow, exit_code, &err) < 0)
        log_warning(log, "%s; MLflow shows the run as if it went on", err.text);
    wandb_files_free(&t->wandb);
    mlflow_files_free(&t->mlflow);
}

/* ---- W&B's folder ---- */

enum { NEW_ID = 8, ID_SIZE = 65, LOG_LIMIT = 1 << 30 };
#define RUN_BEGIN "offline-run-"

/* The id of a run: `wanted`, which tracking_choice.h has checked; or that in the name `before`; or a new id.
 */
static int make_id(const char *wanted, const char *before, char id[ID_SIZE], struct muster_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    const char *dash = before ? strrchr(before, '-') : NULL;
    unsigned char bytes[NEW_ID];
    if (wanted && *wanted) {
        (void)snprintf(id, ID_SIZE, "%s", wanted); /* fits: longer ids were refused */
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

/* A process that was killed in its first write leaves a log without a run: nothing can read it. */
static int begin_again(const struct wandb_files *f, struct muster_error *err)
{
    return unlink(f->path) < 0 ? error_errno(err, "cannot remove %s, which has no run in it", f->path) : 1;
}

/* Opens the log of an earlier process, and cuts the steps that will run again. 1: there is none. */
static int open_before(struct wandb_files *f, int64_t step, struct muster_error *err)
{
    scope_buffer text = {0};
    struct stat status;
    if (stat(f->path, &status) < 0)
        return 1;
    if (status.st_size < WANDB_BEGIN)
        return begin_again(f, err);
    if (io_read_file(f->path, LOG_LIMIT, &text, err) < 0)
        return -1;
    const int64_t kept = wandb_cut(&f->crc, text.data, text.length, step, &f->log);
    if (kept < 0)
        return error_set(err, MUSTER_E_PROTOCOL, "%s is no transaction log of W&B: move it away", f->path);
    if (!f->log.start_ns) /* the record of the run has it */
        return begin_again(f, err);
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

/* Links latest-run, which `wandb sync` without a path reads. */
static void point_to_latest(const struct wandb_files *f, const char *folder)
{
    scope_free char *link = mem_printf("%s/wandb/latest-run", folder);
    if (link && (unlink(link) == 0 || errno == ENOENT))
        (void)(symlink(f->name, link) < 0); /* optional: the file system may have no links */
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
