/* runner.c - see runner.h: the loop of one `muster local`. Everything that happens becomes an event of the
 * life cycle (lifecycle.h), whose actions are executed. */
#include "launcher/local/run/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/local/run/lifecycle.h"
#include "launcher/local/run/pod_process.h"
#include "launcher/loop/loop.h"
#include "launcher/process/children.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/env_names.h"
#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"

enum { GUARDIANS_LIMIT = 4 };

static const int64_t sweep_every_ns = 20 * NS_PER_MS, /* while something of a pod is being killed */
    kill_bound_ns = 30 * NS_PER_S; /* a killed process that frees much memory needs seconds */

struct runner {
    const struct local_job *job;
    const struct local_options *options;
    struct log_sink log; /* through the pump */
    struct loop loop;
    struct loop_source signals, guard;
    struct pump *pump;
    struct guardian guardian;
    struct children children;
    int guardians; /* started so far */
    sigset_t ignored;
    struct cluster cluster;
    struct pod_place place;
    struct lifecycle life;
    struct pod_process *pods; /* as in job->pods, spares included */
    int pod_count;
    struct instant sweep_at;
    bool told_to_end;
};

/* --- actions of the life cycle --- */

static void start_pod(struct runner *r, int i)
{
    struct muster_error err = {0};
    r->pods[i].renewed = r->life.pods[i].restart_count == 0;
    r->pods[i].set_attempt = r->life.remakes;
    r->pods[i].job_attempt = r->life.groups ? r->life.groups[r->job->pods[i].group].restarts : 0;
    if (pod_process_start(&r->pods[i], &r->place, &err) < 0) {
        log_error(&r->log, "pod %s cannot be started: %s%s", r->job->pods[i].name, err.text,
                  err.code == MUSTER_E_NOT_FOUND
                      ? "; images are not used here, so their content must be installed on this machine"
                      : "");
        r->sweep_at = clock_now(NULL); /* its end is seen in the next turn, signals first */
    }
}

static void kill_pod(struct runner *r, int i)
{
    (void)pod_process_sweep(&r->pods[i]);
    r->sweep_at = instant_min(r->sweep_at, instant_add(clock_now(NULL), sweep_every_ns));
}

static bool name_one(void *context, const struct descendants_process *process)
{
    struct runner *r = context;
    log_error(&r->log, "process %d (%s) survived SIGKILL: it is in state %c%s", (int)process->pid,
              process->name, process->state,
              process->state == 'D' ? ", inside the kernel (a driver or a file system that does not respond)"
                                    : "");
    return false;
}

static void execute(struct runner *r, int pod, enum pod_action action)
{
    switch (action) {
    case POD_TERMINATE:
        pod_process_terminate(&r->pods[pod]);
        break;
    case POD_KILL:
        kill_pod(r, pod);
        break;
    case POD_NAME_STUCK:
        pod_process_list(&r->pods[pod], name_one, r);
        break;
    default: /* POD_START */
        start_pod(r, pod);
        break;
    }
}

static void handle(struct runner *r, const struct job_event *event)
{
    lifecycle_step(&r->life, event, clock_now(NULL));
    for (int i = 0; i < r->pod_count; i++) {
        unsigned actions = r->life.pods[i].actions;
        r->life.pods[i].actions = 0;
        for (int action = 0; action < POD_ACTION_COUNT; action++)
            if (actions & 1u << action)
                execute(r, i, (enum pod_action)action);
    }
}

/* --- events --- */

static void reap(struct runner *r)
{
    for (;;) {
        struct child_end end;
        if (!children_next(&r->children, &end))
            return;
        for (int i = 0; i < r->pod_count; i++) /* others are orphans that became ours */
            if (r->pods[i].alive && r->pods[i].pid == end.pid) {
                pod_process_reaped(&r->pods[i], end.code, end.status);
                guardian_reaped(&r->guardian, end.pid);
                r->sweep_at = clock_now(NULL);
            }
    }
}

/* A container ends with its first process: the rest is killed, then the end is reported. */
static void sweep(struct runner *r)
{
    r->sweep_at = INSTANT_NEVER;
    for (int i = 0; i < r->pod_count; i++) {
        struct pod_process *pod = &r->pods[i];
        enum pod_state state = r->life.pods[i].state;
        if (!pod->ended && state != POD_KILLING)
            continue;
        if (!pod_process_sweep(pod)) {
            r->sweep_at = instant_min(r->sweep_at, instant_add(clock_now(NULL), sweep_every_ns));
            continue;
        }
        struct job_event event = {pod->lost ? JOB_POD_LOST : JOB_POD_ENDED, i, pod->exit_code};
        pod_process_release(pod, &r->place);
        handle(r, &event);
    }
}

/* The action of an autoscaler, within the job's bounds. */
static void scale(struct runner *r, int change)
{
    const struct local_job *job = r->job;
    int workers = r->life.wanted[LOCAL_WORKER] + change;
    int there = job->replicas[LOCAL_WORKER].count + job->spare_count;
    if (!job->elastic || workers < job->min_replicas || workers > job->max_replicas || workers > there)
        log_warning(&r->log, "job %s cannot have %d workers: %s", job->name, workers,
                    job->elastic ? "its elasticPolicy bounds them" : "it has no elasticPolicy");
    else
        handle(r, &(struct job_event){.kind = JOB_SCALE, .number = workers});
}

static void signals_ready(void *context, uint32_t events)
{
    struct runner *r = context;
    struct signalfd_siginfo info;
    (void)events;
    while (read(r->signals.fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            reap(r);
        else if (info.ssi_signo == SIGUSR1)
            handle(r, &(struct job_event){.kind = JOB_SUSPEND});
        else if (info.ssi_signo == SIGUSR2)
            handle(r, &(struct job_event){.kind = JOB_RESUME});
        else if ((int)info.ssi_signo == SIGRTMIN + 1)
            scale(r, 1);
        else if ((int)info.ssi_signo == SIGRTMIN + 2)
            scale(r, -1);
        else {
            int number = (int)info.ssi_signo;
            char scratch[16];
            const char *name = failure_signal_name(number, scratch, sizeof scratch);
            if (r->told_to_end)
                log_info(&r->log, "%s: already ending the pods; each has its grace period", name);
            else
                log_info(&r->log, "%s from pid %u: the job is deleted", name, info.ssi_pid);
            r->told_to_end = true;
            handle(r, &(struct job_event){.kind = JOB_DELETE, .number = number});
        }
    }
}

/* HUP, INT and QUIT that were ignored when we started (nohup, a shell's background) stay so. */
static int watch_signals(struct runner *r, struct muster_error *err)
{
    const int taken[] = {SIGTERM, SIGUSR1, SIGUSR2, SIGRTMIN + 1, SIGRTMIN + 2, SIGINT, SIGHUP, SIGQUIT};
    enum { ALWAYS = 5 }; /* the first of them, ignored or not */
    sigset_t wanted;
    spawn_ignored_signals(&r->ignored);
    sigemptyset(&wanted);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (i < ALWAYS || sigismember(&r->ignored, taken[i]) == 0)
            sigaddset(&wanted, taken[i]);
    r->signals = (struct loop_source){-1, signals_ready, r};
    return loop_add_signals(&r->loop, &r->signals, &wanted, err);
}

/* --- the guardian --- */

static int start_guardian(struct runner *r, struct muster_error *err);

/* Features that an emulator lacks are logged and left out. */
static bool unsupported_is_fatal(struct runner *r, const struct muster_error *err)
{
    if (err->code != MUSTER_E_UNSUPPORTED)
        return true;
    log_warning(&r->log, "%s", err->text);
    return false;
}

static void guardian_gone(void *context, uint32_t events)
{
    struct runner *r = context;
    struct muster_error err = {0};
    (void)events; /* EPOLLERR: no process has the read end any more */
    loop_remove(&r->loop, &r->guard);
    guardian_dismiss(&r->guardian);
    if (r->guardians >= GUARDIANS_LIMIT || start_guardian(r, &err) < 0)
        log_warning(&r->log,
                    "the guardian process was killed and cannot be replaced%s%s: if this process is killed "
                    "too, processes of the pods may survive",
                    *err.text ? ": " : "", err.text);
}

static int start_guardian(struct runner *r, struct muster_error *err)
{
    size_t count = 0;
    scope_free struct descendants_session *sessions =
        mem_calloc((size_t)r->pod_count, sizeof(struct descendants_session));
    if (!sessions)
        return error_set(err, MUSTER_E_NOMEM, "no memory to start the guardian");
    for (int i = 0; i < r->pod_count; i++)
        if (r->pods[i].pid)
            sessions[count++] = (struct descendants_session){r->pods[i].pid, !r->pods[i].alive};
    struct guardian_task task = {.id = r->cluster.id,
                                 .sessions = sessions,
                                 .session_count = count,
                                 .afterwards = cluster_remove_folder,
                                 .context = &r->cluster};
    if (guardian_start(&task, &r->guardian, err) < 0)
        return unsupported_is_fatal(r, err) ? -1 : 0;
    r->guardians++;
    if (guardian_start_second(&task, &r->guardian, err) < 0)
        log_warning(&r->log, "%s: there is one guardian alone", err->text);
    r->guard = (struct loop_source){r->guardian.fd, guardian_gone, r};
    return loop_add(&r->loop, &r->guard, 0, err);
}

/* --- life --- */

static int make_pods(struct runner *r, struct muster_error *err)
{
    r->pods = mem_calloc((size_t)r->pod_count, sizeof *r->pods);
    if (!r->pods)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %d pods", r->pod_count);
    for (int i = 0; i < r->pod_count; i++) {
        r->pods[i].spec = &r->job->pods[i];
        r->pods[i].index = i;
        if (descendants_make_part_id(r->cluster.id, (unsigned)i, r->pods[i].id) < 0)
            return error_errno(err, "getrandom");
    }
    return 0;
}

static int start_life(struct runner *r, struct muster_error *err)
{
    const struct local_options *o = r->options;
    struct lifecycle_options options = {
        .backoff_scale = o->backoff_scale,
        .grace_s = o->grace_s,
        .linger_ns = o->keep_going ? INT64_MAX : (int64_t)(o->linger_s * (double)NS_PER_S),
        .kill_bound_ns = kill_bound_ns};
    return lifecycle_init(&r->life, r->job, &options, &r->log, err);
}

/* A container has no standard input either. */
static int close_input(struct muster_error *err)
{
    scope_close int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0)
        return error_errno(err, "cannot open /dev/null");
    return 0;
}

/* Everything that can fail before there is a pod. */
static int set_up(struct runner *r, struct muster_error *err)
{
    if (close_input(err) < 0 || start_life(r, err) < 0 ||
        (r->options->log_dir && io_make_directories(r->options->log_dir, 0755, err) < 0) ||
        cluster_set_up(&r->cluster, r->job, r->options, err) < 0 || make_pods(r, err) < 0 ||
        watch_signals(r, err) < 0)
        return -1;
    if (children_init(&r->children, err) < 0)
        return -1;
    if (guardian_adopt_orphans(err) < 0 && unsupported_is_fatal(r, err))
        return -1;
    r->place = (struct pod_place){.cluster = &r->cluster,
                                  .options = r->options,
                                  .outer_ids = getenv(ENV_AGENT_ID),
                                  .inherited = environ,
                                  .ignored = &r->ignored,
                                  .pump = r->pump,
                                  .guardian = &r->guardian};
    return start_guardian(r, err);
}

static void announce_folders(const struct runner *r)
{
    if (*r->cluster.temporary.warning)
        log_warning(&r->log, "%s", r->cluster.temporary.warning);
    const struct local_volumes *volumes = &r->job->volumes;
    if (volumes->count && !r->cluster.mounts)
        log_warning(&r->log, "volumes are not mounted (%s): the pods' paths are this machine's",
                    *r->cluster.why_not.text ? r->cluster.why_not.text : "namespaces are not permitted here");
    for (int i = 0; r->cluster.mounts && i < volumes->count; i++)
        if (r->cluster.states[i].verdict == VOLUME_LEFT_OUT)
            log_warning(&r->log, "the volume %s is left out: %s; its path in the pods stays this machine's",
                        volumes->list[i].name, r->cluster.states[i].why);
    for (int i = 0; r->cluster.mounts && i < volumes->count; i++)
        if (volumes->list[i].type == LOCAL_VOLUME_CLAIM && !r->options->volumes) {
            log_info(&r->log, "PersistentVolumeClaims are empty folders that are deleted at the end; "
                              "--volumes=DIR keeps them as DIR/<claim>");
            return;
        }
}

static void announce(const struct runner *r)
{
    if (r->cluster.isolation.kind == POD_ISOLATION_NONE)
        log_info(&r->log, "namespaces are not permitted here: the pods' host names do not resolve, so "
                          "MASTER_ADDR, PET_MASTER_ADDR and PET_RDZV_ENDPOINT are addresses, and gethostname "
                          "returns this machine's name");
    announce_folders(r);
    if (r->job->elastic && r->job->max_replicas > r->job->min_replicas)
        log_info(&r->log, "job %s has %d to %d workers: kill -RTMIN+1 %d adds one, RTMIN+2 removes one",
                 r->job->name, r->job->min_replicas, r->job->max_replicas, (int)getpid());
    if (r->job->suspended)
        log_info(&r->log, "job %s is suspended by its manifest: kill -USR2 %d resumes it (USR1 suspends)",
                 r->job->name, (int)getpid());
}

static int run(struct runner *r, struct muster_error *err)
{
    handle(r, &(struct job_event){.kind = JOB_BEGIN});
    while (!lifecycle_over(&r->life)) {
        if (loop_turn(
                &r->loop,
                instant_min(instant_min(lifecycle_deadline(&r->life), r->sweep_at), pump_deadline(r->pump)),
                err) < 0)
            return -1;
        struct instant now = clock_now(NULL);
        if (instant_reached(now, pump_deadline(r->pump)))
            pump_tick(r->pump, now);
        if (instant_reached(now, r->sweep_at))
            sweep(r);
        if (instant_reached(now, lifecycle_deadline(&r->life)))
            handle(r, &(struct job_event){.kind = JOB_TIME});
    }
    return 0;
}

static void print_table(const struct runner *r)
{
    scope_buffer text = {0};
    if (pod_table_format(&r->life, clock_now(NULL), &text) == 0)
        pump_print(r->pump, STDERR_FILENO, text.data, text.length);
}

static int run_job(struct runner *r)
{
    struct muster_error err = {0};
    int exit_code = EXIT_CODE_FAILURE;
    bool started = set_up(r, &err) == 0;
    if (started)
        announce(r);
    if (!started || run(r, &err) < 0) {
        log_error(&r->log, "%s", err.text);
        exit_code = err.code == MUSTER_E_LIMIT ? EXIT_CODE_USAGE : EXIT_CODE_FAILURE;
    } else {
        exit_code = r->life.exit_code;
    }
    if (started) {
        /* Orphans that hid even from their pods: every process that is ours by identity or by adoption. */
        struct descendants descendants = {
            .id = r->cluster.id, .family = true, .parent = getpid(), .except = {getpid(), r->guardian.pid}};
        for (int clean = 0, looks = 0; clean < 2 && looks < 100; looks++) {
            clean = descendants_sweep(&descendants, SIGKILL, NULL, NULL) > 0 ? 0 : clean + 1;
            if (clean < 2)
                clock_sleep_until(instant_add(clock_now(NULL), sweep_every_ns));
            while (waitpid(-1, NULL, WNOHANG) > 0)
                ;
        }
    }
    for (int i = 0; r->pods && i < r->pod_count; i++)
        pod_process_release(&r->pods[i], &r->place);
    if (started)
        print_table(r);
    return exit_code;
}

int local_run(const struct local_job *job, const struct local_options *options, const struct log_sink *log)
{
    struct muster_error err = {0};
    struct runner r = {.job = job,
                       .pod_count = job->pod_count + job->spare_count,
                       .options = options,
                       .log = *log,
                       .signals.fd = -1,
                       .guardian.fd = -1,
                       .guardian.second_fd = -1,
                       .sweep_at = INSTANT_NEVER};
    if (loop_init(&r.loop, &err) < 0) {
        log_error(log, "%s", err.text);
        return EXIT_CODE_FAILURE;
    }
    int exit_code = EXIT_CODE_FAILURE;
    r.pump = pump_create(&(struct pump_options){.loop = &r.loop, .style = {LOG_FORMAT_TEXT, ""}}, &err);
    if (r.pump) {
        r.log.write = pump_log;
        r.log.context = r.pump;
        exit_code = run_job(&r);
        guardian_dismiss(&r.guardian);
        cluster_tear_down(&r.cluster);
        lifecycle_free(&r.life);
        mem_free(r.pods);
        (void)pump_destroy(r.pump); /* output lost on a stuck console cannot be reported either */
    } else {
        log_error(log, "%s", err.text);
    }
    if (r.signals.fd >= 0)
        (void)close(r.signals.fd);
    loop_close(&r.loop);
    return exit_code;
}
