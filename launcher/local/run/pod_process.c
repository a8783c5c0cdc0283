/* pod_process.c - see pod_process.h. */
#include "launcher/local/run/pod_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/local/run/pod_env.h"
#include "launcher/process/find_program.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"

enum { CLEAN_LOOKS = 2 }; /* a process may be created after a scan */

/* --- output --- */

/* The pod's log file for appending, -1 if there is none. */
static int open_log(const struct pod_process *pod, const struct pod_place *place, int *fd,
                    struct muster_error *err)
{
    *fd = -1;
    if (!place->options->log_dir)
        return 0;
    scope_free char *path = mem_printf("%s/%s.log", place->options->log_dir, pod->spec->name);
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    return *fd < 0 ? error_errno(err, "cannot open the log file %s", path) : 0;
}

/* Through the pump to the console and the file; the write end is the pod's. */
static int open_stream(struct pod_process *pod, int stream, const struct pod_place *place, int *writer,
                       struct muster_error *err)
{
    scope_close int file = -1;
    scope_free char *prefix = mem_printf("[%s] ", pod->spec->name);
    int ends[2];
    if (!prefix)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a prefix");
    if (open_log(pod, place, &file, err) < 0)
        return -1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, "cannot make a pipe (ulimit -n limits them)");
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK); /* ours alone; the pod's end stays blocking */
    scope_close int write_end = ends[1];
    struct output_file_options log = {.fd = file, .owned = true, .name = "the log file"};
    struct output_file *target = file >= 0 ? pump_file(place->pump, &log, err) : NULL;
    if (take_fd(&file) >= 0 && !target) {
        (void)close(ends[0]); /* a pipe's read end */
        return -1;
    }
    struct pump_stream_options options = {.fd = ends[0],
                                          .stream = stream,
                                          .console = true,
                                          .file = target,
                                          .prefix = place->options->no_prefix ? NULL : prefix};
    pod->streams[stream] = pump_add(place->pump, &options, err);
    if (!pod->streams[stream])
        return -1;
    *writer = take_fd(&write_end);
    return 0;
}

/* Not shown: the log file itself, or nothing. */
static int open_quietly(const struct pod_process *pod, const struct pod_place *place, int *writer,
                        struct muster_error *err)
{
    if (open_log(pod, place, writer, err) < 0)
        return -1;
    if (*writer < 0)
        *writer = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return *writer < 0 ? error_errno(err, "cannot open /dev/null") : 0;
}

static int open_output(struct pod_process *pod, int stream, const struct pod_place *place, int *writer,
                       struct muster_error *err)
{
    return place->options->quiet ? open_quietly(pod, place, writer, err)
                                 : open_stream(pod, stream, place, writer, err);
}

/* --- starting --- */

/* The environment and command of the pod, and the path of its program. */
static int pod_prepare(const struct pod_process *pod, const struct pod_place *place, struct text_list *envp,
                       struct text_list *argv, char **program, int *exit_code, struct muster_error *err)
{
    const struct cluster *cluster = place->cluster;
    scope_free char *ids = place->outer_ids && *place->outer_ids
                               ? mem_printf("%s,%s,%s", place->outer_ids, cluster->id, pod->id)
                               : mem_printf("%s,%s", cluster->id, pod->id);
    struct pod_env_place env = {.job = cluster->job,
                                .pod = pod->index,
                                .inherited = place->inherited,
                                .agent_ids = ids,
                                .gpus = cluster->gpus.items[pod->index],
                                .front = cluster->commands,
                                .set_attempt = pod->set_attempt,
                                .job_attempt = pod->job_attempt,
                                .named = cluster->isolation.kind != POD_ISOLATION_NONE};
    if (!ids || pod_env_build(&env, envp) < 0 || pod_env_command(&env, argv) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for its environment");
    const char *name = argv->items[0];
    *program =
        strchr(name, '/') ? mem_strdup(name) : find_program(name, text_list_value(envp->items, "PATH"), err);
    if (*program)
        return 0;
    if (strchr(name, '/'))
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    *exit_code = err->code == MUSTER_E_NOT_FOUND ? EXIT_CODE_NOT_FOUND
                 : err->code == MUSTER_E_NOMEM   ? EXIT_CODE_FAILURE
                                                 : EXIT_CODE_CANNOT_EXECUTE;
    return -1;
}

static int prepare_mounts(const struct pod_process *pod, const struct cluster *cluster,
                          struct mount_plan *mounts, char **hosts, struct muster_error *err)
{
    *hosts = cluster_hosts(cluster, pod->index, err);
    if (!*hosts || cluster_check_volumes(cluster, pod->index, err) < 0)
        return -1;
    if (!cluster->mounts)
        return 0;
    if (pod->renewed &&
        (volume_folders_renew(&cluster->volumes, pod->index, err) < 0 ||
         volume_folders_rewrite(&cluster->volumes, pod->index, pod->set_attempt, pod->job_attempt, err) < 0))
        return -1;
    return cluster_plan_mounts(cluster, pod->index, mounts, err);
}

static pid_t spawn(struct pod_process *pod, const struct pod_place *place, int *exit_code,
                   struct muster_error *err)
{
    scope_text_list envp = {0}, argv = {0};
    scope_free char *program = NULL;
    scope_close int out = -1, error = -1;
    struct mount_plan __attribute__((cleanup(mount_plan_free))) mounts = {0};
    scope_free char *hosts = NULL;
    struct pod_isolation isolation = place->cluster->isolation;
    isolation.hostname = pod->spec->own_hostname ? pod->spec->own_hostname : pod->spec->hostname;
    if (prepare_mounts(pod, place->cluster, &mounts, &hosts, err) < 0) {
        if (err->code == MUSTER_E_INVALID) /* the manifest's, which starting the pod anew does not mend */
            *exit_code = EXIT_CODE_CANNOT_EXECUTE;
        return -1;
    }
    isolation.mounts = &mounts;
    isolation.hosts = hosts;
    if (pod_prepare(pod, place, &envp, &argv, &program, exit_code, err) < 0 ||
        open_output(pod, STDOUT_FILENO, place, &out, err) < 0 ||
        open_output(pod, STDERR_FILENO, place, &error, err) < 0)
        return -1;
    struct spawn_options options = {.path = program,
                                    .argv = argv.items,
                                    .envp = envp.items,
                                    .out_fd = out,
                                    .err_fd = error,
                                    .mark = descendants_mark(pod->id),
                                    .ignored = place->ignored,
                                    .directory = pod->spec->working_dir,
                                    .enter = pod_isolation_enter,
                                    .enter_context = &isolation};
    return spawn_worker(&options, exit_code, err);
}

int pod_process_start(struct pod_process *pod, const struct pod_place *place, struct muster_error *err)
{
    int exit_code = EXIT_CODE_FAILURE;
    pid_t pid = spawn(pod, place, &exit_code, err);
    pod->clean_looks = 0;
    if (pid < 0) {
        pod->ended = true;
        pod->lost = exit_code == EXIT_CODE_FAILURE; /* a failure of this machine, not of the command */
        pod->exit_code = exit_code;
        return -1;
    }
    pod->pid = pid;
    pod->alive = true;
    guardian_add(place->guardian, pid);
    return 0;
}

/* --- signals and ends --- */

void pod_process_terminate(const struct pod_process *pod)
{
    if (!pod->alive)
        return;
    (void)kill(pod->pid, SIGTERM); /* it is not reaped: the number is its own */
    (void)kill(pod->pid, SIGCONT); /* a stopped process handles nothing */
}

void pod_process_reaped(struct pod_process *pod, int code, int status)
{
    pod->alive = false;
    pod->ended = true;
    pod->exit_code = code == CLD_EXITED ? status : EXIT_CODE_SIGNAL_BASE + status;
}

static int look(const struct pod_process *pod, int signal,
                bool (*found)(void *, const struct descendants_process *), void *context)
{
    struct descendants_session session = {.id = pod->pid, .leaderless = !pod->alive};
    struct descendants descendants = {
        .id = pod->id, .sessions = &session, .session_count = pod->pid != 0, .except = {getpid(), 0}};
    return descendants_sweep(&descendants, signal, found, context);
}

bool pod_process_sweep(struct pod_process *pod)
{
    int left = look(pod, SIGKILL, NULL, NULL);
    if (left < 0 && pod->alive) /* no /proc: only its session can be reached */
        (void)kill(-pod->pid, SIGKILL);
    pod->clean_looks = left > 0 ? 0 : pod->clean_looks + 1;
    return pod->clean_looks >= CLEAN_LOOKS && !pod->alive;
}

void pod_process_list(const struct pod_process *pod,
                      bool (*found)(void *, const struct descendants_process *), void *context)
{
    (void)look(pod, SIGKILL, found, context);
}

void pod_process_release(struct pod_process *pod, const struct pod_place *place)
{
    if (pod->pid)
        guardian_remove(place->guardian, pod->pid);
    pump_close(pod->streams[STDOUT_FILENO]);
    pump_close(pod->streams[STDERR_FILENO]);
    pod->streams[STDOUT_FILENO] = pod->streams[STDERR_FILENO] = NULL;
    pod->pid = 0;
    pod->alive = pod->ended = pod->lost = false;
}

/* --- the table --- */

/* A missing pod was deleted, or never existed. */
static const char *end_of(const struct lifecycle_pod *pod)
{
    if (pod->state != POD_ABSENT)
        return pod_state_name(pod->state);
    return pod->first_start.ns == INSTANT_NEVER.ns ? "never created" : "deleted";
}

static double duration_s(const struct lifecycle_pod *pod, struct instant now)
{
    bool ended = pod->last_end.ns != INSTANT_NEVER.ns && !(pod->state == POD_RUNNING);
    if (pod->first_start.ns == INSTANT_NEVER.ns)
        return 0;
    return (double)instant_diff_ns(ended ? pod->last_end : now, pod->first_start) / (double)NS_PER_S;
}

static const char *condition_of(const struct lifecycle *life)
{
    const char *name = "not seen";
    for (int i = 0; i < life->conditions.count; i++)
        if (life->conditions.list[i].status)
            name = life->conditions.list[i].type == CONDITION_SUCCEEDED
                       ? local_kind_success(life->job->kind)
                       : condition_name(life->conditions.list[i].type);
    return name;
}

int pod_table_format(const struct lifecycle *life, struct instant now, struct buffer *out)
{
    int width = 3;
    for (int i = 0; i < life->pod_count; i++)
        if ((int)strlen(life->job->pods[i].name) > width)
            width = (int)strlen(life->job->pods[i].name);
    buffer_printf(out, "%-*s  %-13s  %-14s  %8s  %9s  %9s\n", width, "pod", "end", "exit code", "restarts",
                  "recreated", "seconds");
    for (int i = 0; i < life->pod_count; i++) {
        const struct lifecycle_pod *pod = &life->pods[i];
        bool spare = i >= life->job->pod_count && pod->first_start.ns == INSTANT_NEVER.ns;
        if (spare)
            continue;
        buffer_printf(out, "%-*s  %-13s", width, life->job->pods[i].name, end_of(pod));
        char scratch[16], text[40] = "-";
        int number = pod->exit_code - EXIT_CODE_SIGNAL_BASE;
        if (pod->has_code && number > 0)
            (void)snprintf(text, sizeof text, "%d (%s)", pod->exit_code,
                           failure_signal_name(number, scratch, sizeof scratch));
        else if (pod->has_code)
            (void)snprintf(text, sizeof text, "%d", pod->exit_code);
        buffer_printf(out, "  %-14s", text);
        buffer_printf(out, "  %8d  %9d  %9.1f\n", pod->restarts, pod->recreated, duration_s(pod, now));
    }
    const bool apart = life->job->apart && life->state == JOB_SUCCEEDED;
    return buffer_printf(out, "job %s: %s%s%s\n", life->job->name,
                         life->state == JOB_DELETED ? "deleted" : condition_of(life), apart ? ", but " : "",
                         apart ? life->job->apart : "");
}
