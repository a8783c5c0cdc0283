/* mlflow_files.c - see report_internal.h. */
#include "trainer/report/report_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"

enum { RUN_ID = 32, EXPERIMENT_ID = 18, ID_SIZE = 33, META_LIMIT = 1 << 20, METRIC_LIMIT = 1 << 30 };
static const char default_experiment[] = "Default"; /* has id 0 */

static int no_path(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory for a path of MLflow's store");
}

static int make_id(const char *digits, int length, char id[ID_SIZE], struct muster_error *err)
{
    unsigned char bytes[RUN_ID];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return error_errno(err, "cannot get a random number for the id of a run");
    for (int i = 0; i < length; i++)
        id[i] = digits[bytes[i] % strlen(digits)];
    if (*id == '0')
        *id = '1';
    id[length] = '\0';
    return 0;
}

/* Writes the file of a value, "params/training.steps". */
static int write_value(const char *folder, const char *kind, const char *name, const char *value,
                       size_t length, struct muster_error *err)
{
    scope_free char *path = mem_printf("%s/%s/%s", folder, kind, name);
    return !path ? no_path(err) : io_write_file_atomic(path, value, length, 0666, err);
}

static int write_text(const char *folder, const char *kind, const char *name, const char *value,
                      struct muster_error *err)
{
    return write_value(folder, kind, name, value, strlen(value), err);
}

/* ---- the experiment ---- */

/* Whether the folder is the experiment of that name. */
static bool is_experiment(const char *store, const char *id, const char *name)
{
    scope_free char *path = mem_printf("%s/%s/meta.yaml", store, id);
    scope_buffer text = {0};
    if (!path || *id == '.' || io_read_file(path, META_LIMIT, &text, NULL) < 0 || !text.data)
        return false;
    scope_free char *its = mlflow_read_value(text.data, "name");
    scope_free char *stage = mlflow_read_value(text.data, "lifecycle_stage");
    return its && !strcmp(its, name) && (!stage || strcmp(stage, "deleted") != 0);
}

static void close_directory(DIR **directory)
{
    if (*directory)
        (void)closedir(*directory); /* cannot lose data: it was only read */
}

static char *find_experiment(const char *store, const char *name)
{
    GUARD(close_directory) DIR *directory = opendir(store);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (is_experiment(store, entry->d_name, name))
            return mem_strdup(entry->d_name);
    return NULL;
}

static int make_experiment(const char *store, const char *id, const char *name, struct muster_error *err)
{
    scope_buffer text = {0};
    scope_free char *folder = mem_printf("%s/%s", store, id);
    if (!folder || mlflow_experiment_text(id, name, store, clock_wall_ns() / NS_PER_MS, &text) < 0)
        return no_path(err);
    return io_make_directories(folder, 0777, err) < 0
               ? -1
               : write_value(folder, ".", "meta.yaml", text.data, text.length, err);
}

static int open_experiment(struct mlflow_files *f, const char *name, struct muster_error *err)
{
    char id[ID_SIZE] = "0";
    const char *wanted = name && *name ? name : default_experiment;
    f->experiment = find_experiment(f->store, wanted);
    if (f->experiment)
        return 0;
    if (strcmp(wanted, default_experiment) != 0 && make_id("0123456789", EXPERIMENT_ID, id, err) < 0)
        return -1;
    f->experiment = mem_strdup(id);
    return f->experiment ? make_experiment(f->store, id, wanted, err) : no_path(err);
}

/* ---- the run ---- */

static int write_meta(struct mlflow_files *f, enum mlflow_status status, int64_t end_ms,
                      struct muster_error *err)
{
    const struct mlflow_run run = {.id = f->id,
                                   .name = f->run_name,
                                   .experiment = f->experiment,
                                   .store = f->store,
                                   .user = f->user,
                                   .start_ms = f->start_ms,
                                   .end_ms = end_ms,
                                   .status = status};
    scope_buffer text = {0};
    return mlflow_run_text(&run, &text) < 0
               ? no_path(err)
               : write_value(f->folder, ".", "meta.yaml", text.data, text.length, err);
}

static int write_settings(const struct mlflow_files *f, const char *settings, struct muster_error *err)
{
    scope_free char *lines = mem_strdup(settings ? settings : "");
    char *rest = NULL;
    if (!lines)
        return no_path(err);
    for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *name = line + strspn(line, " "), *value = strchr(name, '=');
        if (!value || value == name)
            continue;
        *value++ = '\0';
        const size_t length = strlen(value);
        if (write_value(f->folder, "params", name, value,
                        length < MLFLOW_PARAM_MAX ? length : MLFLOW_PARAM_MAX, err) < 0)
            return -1;
    }
    return 0;
}

/* Makes all folders of a run; the names of metrics have a folder for their kind. */
static int make_folders(const struct mlflow_files *f, struct muster_error *err)
{
    static const char *const plain[] = {"params", "tags", "artifacts", "metrics"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain + ENTRY_KIND_COUNT; i++) {
        const bool kind = i >= sizeof plain / sizeof *plain;
        const char *inner =
            kind ? entry_kind_prefix((enum entry_kind)(i - sizeof plain / sizeof *plain)) : plain[i];
        scope_free char *path = mem_printf("%s/%s%s", f->folder, kind ? "metrics/" : "", inner);
        if (!path)
            return no_path(err);
        if (io_make_directories(path, 0777, err) < 0)
            return -1;
    }
    return 0;
}

static int cut_metric(const char *path, int64_t step, struct muster_error *err)
{
    scope_buffer text = {0};
    if (io_read_file(path, METRIC_LIMIT, &text, err) < 0)
        return -1;
    const size_t kept = mlflow_cut(text.data ? text.data : "", text.length, step);
    return kept < text.length && truncate(path, (off_t)kept) < 0
               ? error_errno(err, "cannot go on with %s", path)
               : 0;
}

static int cut_metrics(const char *folder, int64_t step, struct muster_error *err)
{
    GUARD(close_directory) DIR *directory = opendir(folder);
    struct stat status;
    if (!directory)
        return error_errno(err, "cannot read %s", folder);
    for (struct dirent *entry; (entry = readdir(directory));) {
        scope_free char *path = mem_printf("%s/%s", folder, entry->d_name);
        if (!path)
            return no_path(err);
        if (*entry->d_name == '.' || lstat(path, &status) < 0)
            continue;
        if (S_ISDIR(status.st_mode) ? cut_metrics(path, step, err) < 0
                                    : S_ISREG(status.st_mode) && cut_metric(path, step, err) < 0)
            return -1;
    }
    return 0;
}

static int64_t start_of(const struct mlflow_files *f)
{
    scope_free char *path = mem_printf("%s/meta.yaml", f->folder);
    scope_buffer text = {0};
    if (!path || io_read_file(path, META_LIMIT, &text, NULL) < 0 || !text.data)
        return 0;
    scope_free char *value = mlflow_read_value(text.data, "start_time");
    return value ? strtoll(value, NULL, 10) : 0;
}

static int take_names(struct mlflow_files *f, struct muster_error *err)
{
    f->name = mem_printf("%s/%s", f->experiment, f->id);
    f->folder = f->name ? mem_printf("%s/%s", f->store, f->name) : NULL;
    return f->folder ? 0 : no_path(err);
}

/* Opens the run of an earlier process. 1: there is no such run. */
static int open_before(struct mlflow_files *f, const char *before, int64_t step, struct muster_error *err)
{
    const char *slash = strchr(before, '/');
    if (!slash || strstr(before, "..") || strchr(slash + 1, '/'))
        return 1;
    f->experiment = mem_strndup(before, (size_t)(slash - before));
    f->id = mem_strdup(slash + 1);
    if (!f->experiment || !f->id || take_names(f, err) < 0)
        return no_path(err);
    f->start_ms = start_of(f);
    if (f->start_ms) {
        scope_free char *metrics = mem_printf("%s/metrics", f->folder);
        return !metrics ? no_path(err) : cut_metrics(metrics, step, err);
    }
    mem_free(f->experiment);
    mem_free(f->id);
    mem_free(f->name);
    mem_free(f->folder);
    f->experiment = f->id = f->name = f->folder = NULL;
    return 1;
}

static int open_new(struct mlflow_files *f, const char *experiment, struct muster_error *err)
{
    char id[ID_SIZE];
    if (make_id("0123456789abcdef", RUN_ID, id, err) < 0 || open_experiment(f, experiment, err) < 0)
        return -1;
    f->id = mem_strdup(id);
    f->start_ms = clock_wall_ns() / NS_PER_MS;
    return f->id ? take_names(f, err) : no_path(err);
}

static int write_first(struct mlflow_files *f, const char *settings, struct muster_error *err)
{
    static const char program[] = "muster-train";
    return make_folders(f, err) < 0 || write_meta(f, MLFLOW_RUNNING, 0, err) < 0 ||
                   write_text(f->folder, "tags", "mlflow.runName", f->run_name, err) < 0 ||
                   write_text(f->folder, "tags", "mlflow.user", f->user, err) < 0 ||
                   write_text(f->folder, "tags", "mlflow.source.name", program, err) < 0 ||
                   write_text(f->folder, "tags", "mlflow.source.type", "LOCAL", err) < 0 ||
                   write_settings(f, settings, err) < 0
               ? -1
               : 0;
}

int mlflow_files_open(struct mlflow_files *f, const char *store, const char *experiment, const char *run_name,
                      const char *settings, const char *before, int64_t step, struct muster_error *err)
{
    if (io_make_directories(store, 0777, err) < 0)
        return -1;
    char *absolute = realpath(store, NULL);
    if (!absolute)
        return error_errno(err, "cannot find %s", store);
    f->store = mem_strdup(absolute);
    free(absolute); /* allocated by realpath */
    const struct passwd *user = getpwuid(getuid());
    f->user = mem_strdup(user && user->pw_name ? user->pw_name : "unknown");
    if (!f->store || !f->user)
        return no_path(err);
    const int found = before ? open_before(f, before, step, err) : 1;
    if (found < 0 || (found > 0 && open_new(f, experiment, err) < 0))
        return -1;
    f->run_name = run_name && *run_name ? mem_strdup(run_name) : mem_printf("muster-%.8s", f->id);
    return f->run_name ? write_first(f, settings, err) : no_path(err);
}

/* Appends a whole line or nothing. */
static int append_line(const char *path, const char *line, struct muster_error *err)
{
    scope_close int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_errno(err, "cannot write %s", path);
    const off_t before = lseek(fd, 0, SEEK_END);
    if (io_write_all(fd, line, strlen(line), path, err) == 0)
        return 0;
    if (before >= 0 && ftruncate(fd, before) < 0)
        return error_wrap(err, "an incomplete line is left in %s", path);
    return -1;
}

int mlflow_files_write(void *context, const char *data, size_t length, struct muster_error *err)
{
    struct mlflow_files *f = context;
    for (const char *at = data, *end = data + length; at < end;) {
        const char *line = at + strlen(at) + 1;
        scope_free char *path = mem_printf("%s/metrics/%s", f->folder, at);
        if (!path)
            return no_path(err);
        if (append_line(path, line, err) < 0)
            return -1;
        at = line + strlen(line) + 1;
    }
    return 0;
}

int mlflow_files_end(struct mlflow_files *f, int exit_code, struct muster_error *err)
{
    return write_meta(f,
                      exit_code == 0    ? MLFLOW_FINISHED
                      : exit_code > 128 ? MLFLOW_KILLED
                                        : MLFLOW_FAILED,
                      clock_wall_ns() / NS_PER_MS, err);
}

void mlflow_files_free(struct mlflow_files *f)
{
    char *const texts[] = {f->store, f->folder, f->name, f->user, f->run_name, f->id, f->experiment};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        mem_free(texts[i]);
    *f = (struct mlflow_files){0};
}
