/* agent_failures.c - from the end of a worker to the report of a failure, and its completion by the
 * post-mortem. See agent_failures.h. */
#include "launcher/agent/agent_failures.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/agent_heartbeats.h"
#include "launcher/agent/agent_membership.h"
#include "launcher/agent/agent_output.h"
#include "launcher/agent/agent_processes.h"
#include "launcher/agent/agent_start.h"
#include "launcher/agent/pmi/agent_pmi.h"
#include "launcher/policy/worker_group.h"
#include "launcher/warm/warm_reaper.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"

/* A busy machine may be slow with a file of a few lines. The other nodes have been informed already. */
static const int64_t patience_ns = 2 * NS_PER_S;
/* The thread that opens the kernel's evidence takes part of a processor and of this process's memory map,
 * which short jobs and the start of many workers need themselves. Nobody fills a machine's memory this
 * quickly. */
static const int64_t settling_ns = 5 * NS_PER_MS;

/* At all times: deadline is set if watched.fd is; every record is owned by the post-mortem, the round or
 * one function here. */
struct agent_failures {
    int64_t seen, rounds[FAILURE_CLASS_COUNT]; /* failures of this node's workers, in this run; rounds of the
                                                  job, as in the header */
    struct instant started, watch_at;          /* the round's workers; when the kernel's evidence is opened */
    struct postmortem *postmortem;             /* this round's; NULL: not yet, or no memory */
    struct loop_source watched;                /* its thread, while one is in progress; fd -1 */
    struct instant deadline;
    bool moved; /* another server than the first has served the job */
};

/* --- records --- */

/* The worker, node and time of a failure, not its cause. NULL without memory, which is logged. */
static struct observed_failure *make_record(const struct agent *agent, const struct worker *worker,
                                            struct instant at)
{
    struct observed_failure *record = mem_calloc(1, sizeof *record);
    if (!record) {
        log_error(&agent->log, "no memory for the record of a failure");
        return NULL;
    }
    struct worker_failure *failure = &record->failure;
    failure->rank = worker ? worker->rank : agent->round.world.rank_base;
    failure->local_rank = worker ? worker->local_rank : 0;
    failure->group_rank = agent->round.world.group_rank;
    failure->pid = worker ? worker->pid : 0;
    failure->wall_ns = clock_wall_ns();
    (void)snprintf(failure->host, sizeof failure->host, "%s", agent->host);
    record->at = at;
    return record;
}

/* The end of its stderr, and where the post-mortem finds the rest. */
static void take_last_words(struct agent *agent, struct worker *worker, struct observed_failure *record)
{
    agent_output_last_words(agent, worker, record->failure.tail, sizeof record->failure.tail);
    record->stderr_file = take_pointer(&worker->stderr_file);
    record->error_file = take_pointer(&worker->error_file);
}

/* The same, with the cause and the last output. */
static struct observed_failure *make_end_record(struct agent *agent, struct worker *worker)
{
    struct observed_failure *record = make_record(agent, worker, worker->ended);
    if (!record)
        return NULL;
    struct worker_failure *failure = &record->failure;
    bool exited = worker->end_code == CLD_EXITED;
    failure->exit_code = exited ? worker->end_status : -1;
    failure->signal = exited ? 0 : worker->end_status;
    failure->core_dumped = worker->end_code == CLD_DUMPED;
    const struct heartbeat *beat = &agent->round.beats[worker->local_rank];
    failure->no_restart = exited && beat->fatal;
    if (failure->no_restart) /* a message in its error file replaces this one */
        (void)snprintf(failure->message, sizeof failure->message, "%s", beat->message);
    const char *of_mpi = agent_pmi_explain(agent, worker);
    if (of_mpi)
        (void)snprintf(failure->message, sizeof failure->message, "%s", of_mpi);
    take_last_words(agent, worker, record);
    return record;
}

static bool has_worker(const struct worker_failure *failure)
{
    /* hung workers are all reported where the hang is detected */
    return !failure->not_started && !failure->hung && !failure->unkillable && !failure->lost_node;
}

static void tell_end(struct agent *agent, const struct worker_failure *end,
                     const struct worker_failure *failure)
{
    agent_emit(agent, &(struct agent_event){.kind = AGENT_WORKER_ENDED,
                                            .worker = &agent->round.workers[end->local_rank],
                                            .failure = failure});
}

static void tell_line(struct agent *agent, struct observed_failure *record)
{
    scope_buffer line = {0};
    record->failure.age_ns = instant_diff_ns(clock_now(NULL), record->at);
    agent->failures->seen++;
    (void)report_line(agent->config->program, &record->failure, &line);
    if (line.data && !line.failed)
        log_error(&agent->log, "%s", line.data);
}

/* --- findings --- */

static void note_stopped(struct agent *agent, struct observed_failure *record)
{
    const struct worker_failure *end = &record->failure;
    tell_end(agent, end, NULL);
    round_note_stopped(&agent->round,
                       &(struct report_stopped){.rank = end->rank,
                                                .local_rank = end->local_rank,
                                                .pid = end->pid,
                                                .exit_code = end->exit_code,
                                                .signal = end->signal,
                                                .place = record->place ? mem_strdup(end->traceback)
                                                                       : NULL}); /* no memory: none */
    observed_failure_free(record);
}

/* Its record is final. reported: the server has had it before completion. */
static void complete_failure(struct agent *agent, struct observed_failure *record, bool reported)
{
    struct worker_failure *failure = &record->failure;
    if (*record->note)
        log_warning(&agent->log, "the error file of rank %d is not used: %s", failure->rank, record->note);
    if (record->suspect && (record->hung || !failure_shows_trouble(failure))) {
        note_stopped(agent, record);
        return;
    }
    if (!reported)
        tell_line(agent, record);
    failure->age_ns = instant_diff_ns(clock_now(NULL), record->at);
    failure->completes = reported;
    if (!reported || record->more_found)
        agent_membership_report(agent, MEMBERSHIP_REPORT_FAILED, failure);
    if (has_worker(failure))
        tell_end(agent, failure, failure);
    round_keep_failure(&agent->round, record);
}

static void complete_ready(struct agent *agent)
{
    struct postmortem *postmortem = agent->failures->postmortem;
    for (struct observed_failure *record; (record = postmortem_take(postmortem));)
        complete_failure(agent, record, !record->suspect);
}

/* --- the thread --- */

static void stop_watching(struct agent *agent)
{
    struct agent_failures *failures = agent->failures;
    if (failures->watched.fd >= 0)
        loop_remove(&agent->loop, &failures->watched);
    failures->watched.fd = -1;
    failures->deadline = INSTANT_NEVER;
}

static void postmortem_ready(void *context, uint32_t events)
{
    struct agent *agent = context;
    (void)events;
    stop_watching(agent);
    complete_ready(agent);
}

/* Starts the thread for the waiting failures. */
static void start_postmortem(struct agent *agent)
{
    struct agent_failures *failures = agent->failures;
    struct muster_error err = {0};
    if (!agent_failures_are_pending(agent) || failures->watched.fd >= 0)
        return;
    postmortem_go(failures->postmortem);
    complete_ready(agent); /* failures that could not be examined at all */
    int fd = postmortem_fd(failures->postmortem);
    if (fd < 0)
        return;
    failures->watched = (struct loop_source){fd, postmortem_ready, agent};
    failures->deadline = instant_add(clock_now(NULL), patience_ns);
    if (loop_add(&agent->loop, &failures->watched, EPOLLIN, &err) == 0)
        return;
    failures->watched.fd = -1; /* then the deadline does it */
    log_warning(&agent->log, "%s", err.text);
}

/* A file system that hangs costs one wait a round. */
static void give_up(struct agent *agent)
{
    stop_watching(agent);
    postmortem_give_up(agent->failures->postmortem);
    log_warning(&agent->log,
                "crash diagnostics skipped: the log file system or GPU driver did not respond within %.4g s",
                (double)patience_ns / NS_PER_S);
    complete_ready(agent);
}

bool agent_failures_are_pending(const struct agent *agent)
{
    const struct agent_failures *failures = agent->failures;
    return failures && failures->postmortem && postmortem_is_busy(failures->postmortem);
}

void agent_failures_settle(struct agent *agent)
{
    start_postmortem(agent);
    while (agent_failures_are_pending(agent)) {
        if (!postmortem_wait(agent->failures->postmortem, patience_ns)) {
            give_up(agent);
            return;
        }
        stop_watching(agent);
        complete_ready(agent);
        start_postmortem(agent);
    }
}

int64_t agent_failures_seen(const struct agent *agent)
{
    return agent->failures->seen;
}

const int64_t *agent_failures_of_rounds(const struct agent *agent)
{
    return agent->failures->rounds;
}

/* --- events --- */

static void watch_kernel(struct agent *agent)
{
    struct agent_failures *failures = agent->failures;
    struct muster_error err = {0};
    struct kernel_evidence_paths paths = kernel_evidence_paths();
    failures->watch_at = INSTANT_NEVER;
    failures->postmortem = postmortem_create(&paths, failures->started, &err);
    if (!failures->postmortem) /* failures are reported as far as they are known */
        log_warning(&agent->log, "%s", err.text);
}

/* Takes the record. Reported at once if it is known to be a failure. */
static void take_failure(struct agent *agent, struct observed_failure *record)
{
    const bool suspect = record->suspect;
    if (!suspect) {
        tell_line(agent, record);
        agent_emit(agent, &(struct agent_event){.kind = AGENT_FAILURE, .failure = &record->failure});
    }
    if (agent->failures->watch_at.ns < INSTANT_NEVER.ns && !record->failure.not_started)
        watch_kernel(agent); /* it failed before the round had settled */
    if (agent->failures->postmortem && !record->failure.not_started)
        postmortem_add(agent->failures->postmortem, record);
    else
        complete_failure(agent, record, !suspect);
}

/* Without memory for a record the others are stopped all the same. */
static void take_nothing(struct agent *agent, const struct worker *worker)
{
    struct worker_failure failure = {.rank = worker ? worker->rank : agent->round.world.rank_base,
                                     .local_rank = worker ? worker->local_rank : 0,
                                     .group_rank = agent->round.world.group_rank,
                                     .exit_code = EXIT_CODE_FAILURE};
    agent_emit(agent, &(struct agent_event){.kind = AGENT_FAILURE, .failure = &failure});
}

void agent_failures_not_started(struct agent *agent, const struct worker *worker, int exit_code,
                                const char *why)
{
    struct observed_failure *record = make_record(agent, worker, clock_now(NULL));
    if (!record) {
        take_nothing(agent, worker);
        return;
    }
    record->failure.pid = getpid(); /* there is no worker: this process failed to start one */
    record->failure.exit_code = exit_code ? exit_code : EXIT_CODE_FAILURE;
    record->failure.not_started = true;
    (void)snprintf(record->failure.message, sizeof record->failure.message, "%s", why);
    take_failure(agent, record);
}

void agent_failures_unkillable(struct agent *agent)
{
    const struct descendants_process *process = agent_processes_name_stuck(agent);
    int rank = agent->round.worker_count - 1;
    while (rank > 0 && !agent->round.workers[rank].alive)
        rank--; /* 0 also if all workers are gone and a child of theirs remains */
    struct observed_failure *record = make_record(agent, &agent->round.workers[rank], clock_now(NULL));
    if (!record)
        return;
    record->failure.unkillable = true;
    record->failure.exit_code = EXIT_CODE_NODE;
    if (process) {
        record->failure.pid = (int)process->pid;
        (void)snprintf(record->failure.message, sizeof record->failure.message,
                       "process %d (%s) is in state %c", (int)process->pid, process->name, process->state);
    }
    complete_failure(agent, record, false);
}

static void note_aborted(struct agent *agent, const struct agent_event *event)
{
    struct observed_failure *record = make_record(agent, event->worker, clock_now(NULL));
    if (!record) {
        take_nothing(agent, event->worker);
        return;
    }
    record->failure.exit_code = event->code;
    (void)snprintf(record->failure.message, sizeof record->failure.message, "%s", event->text);
    event->worker->aborted = true;
    take_last_words(agent, event->worker, record);
    take_failure(agent, record);
}

static void note_move(struct agent *agent)
{
    struct membership_serving serving;
    agent_membership_serving(agent, &serving);
    agent->failures->moved |= serving.server[0] != '\0';
}

/* A cause like any other lost node, named by us since no other agent can. It had rank 0, unless the job has
 * moved. why: no other node serves the job. */
static void note_lost_server(struct agent *agent, const char *why)
{
    struct membership_serving last;
    struct observed_failure *record = make_record(agent, NULL, clock_now(NULL));
    if (!record)
        return;
    record->failure = (struct worker_failure){
        .local_rank = -1, .exit_code = EXIT_CODE_NODE, .lost_node = true, .wall_ns = clock_wall_ns()};
    agent_membership_serving(agent, &last);
    const char *host = *last.server ? last.server : last.voter_count ? last.voters[0] : "";
    record->failure.group_rank = agent->failures->moved ? -1 : 0;
    (void)snprintf(record->failure.host, sizeof record->failure.host, "%s",
                   *host ? host : agent->config->master_addr);
    (void)snprintf(record->failure.message, sizeof record->failure.message, "%s", why);
    round_keep_failure(&agent->round, record);
}

/* --- reaping --- */

/* The next end of a child of ours, or of a child of the reaper of warm workers. */
static bool reap_next(struct agent *agent, struct warm_end *end)
{
    struct child_end child;
    if (!children_next(&agent->children, &child))
        return agent_start_take_end(agent, end);
    *end = (struct warm_end){child.pid, child.code, child.status};
    return true;
}

/* Reap every exited child first, then classify: all of them exited before we sent a stop signal. */
static void collect_children(struct agent *agent)
{
    struct round *round = &agent->round;
    for (;;) {
        struct warm_end end;
        if (!reap_next(agent, &end))
            return;
        struct worker *worker = round_find_worker(round, end.pid);
        round_note_dead(round, end.pid);
        if (!worker)
            continue; /* an orphan that became ours */
        round_worker_reaped(round, worker, end.code, end.status);
        agent_heartbeats_end(agent, worker);
        agent_processes_note_reaped(agent, worker);
    }
}

/* A worker that hung next to the reported worker: the report has the place where it hung. */
static void take_place(struct agent *agent, struct observed_failure *record)
{
    struct postmortem *postmortem = agent->failures->postmortem;
    record->suspect = record->hung = true;
    if (postmortem && record->error_file)
        postmortem_add(postmortem, record);
    else
        note_stopped(agent, record);
}

/* state: when it was reaped. */
static void classify_exit(struct agent *agent, struct worker *worker, enum worker_group_state state)
{
    const struct worker_group *group = &agent->group;
    if (worker->aborted) { /* in the report already */
        agent_emit(agent, &(struct agent_event){.kind = AGENT_WORKER_ENDED, .worker = worker});
        return;
    }
    enum end_kind kind = end_kind_of(state, group->leaving || group->planned, worker->end_code == CLD_EXITED,
                                     worker->end_status);
    if (kind == END_DONE) {
        round_note_done(&agent->round, worker);
        agent_emit(agent, &(struct agent_event){.kind = AGENT_WORKER_ENDED, .worker = worker});
        return;
    }
    if (agent->round.beats[worker->local_rank].stalled)
        kind = END_STOPPED; /* it hung, and was reported */
    struct observed_failure *record = make_end_record(agent, worker);
    if (!record) {
        if (kind == END_OWN || kind == END_AFTER_STOP)
            take_nothing(agent, worker);
        return;
    }
    record->failure.after_stop = kind != END_OWN;
    record->suspect = kind == END_SUSPECT;
    if (kind == END_STOPPED && agent->round.beats[worker->local_rank].stalled)
        take_place(agent, record);
    else if (kind == END_STOPPED)
        note_stopped(agent, record);
    else
        take_failure(agent, record);
}

static void reap_children(struct agent *agent)
{
    struct round *round = &agent->round;
    enum worker_group_state state = agent->group.state;
    collect_children(agent);
    if (agent_heartbeats_hold_ends(agent))
        return;
    for (int i = 0; i < round->worker_count; i++) {
        struct worker *worker = &round->workers[i];
        bool unhandled = worker->unhandled;
        worker->unhandled = false;
        if (unhandled)
            classify_exit(agent, worker, state);
    }
    state = agent->group.state;
    if ((state == GROUP_RUNNING || state == GROUP_DRAINING || state == GROUP_SAVING) && round->alive == 0 &&
        !agent_output_opens_files(agent) && !agent_start_awaits_template(agent))
        agent_emit(agent, &(struct agent_event){.kind = AGENT_SUCCESS});
}

/* One failure for all stalled workers: of the slowest. */
static void take_hang(struct agent *agent, struct worker *slowest, int64_t silent_ns)
{
    struct round *round = &agent->round;
    struct observed_failure *record = make_end_record(agent, slowest);
    if (!record) {
        take_nothing(agent, slowest);
        return;
    }
    struct worker_failure *failure = &record->failure;
    if (slowest->alive || !failure->signal) {
        /* it does not end, or ended by itself when it was stopped */
        failure->exit_code = -1;
        failure->signal = SIGABRT;
    }
    failure->hung = true;
    failure->step = round->beats[slowest->local_rank].step;
    record->at = instant_add(clock_now(NULL), -silent_ns);
    if (agent->failures->watch_at.ns < INSTANT_NEVER.ns)
        watch_kernel(agent); /* which reads the places of the others */
    for (int i = 0; i < round->worker_count; i++) {
        struct worker *worker = &round->workers[i];
        if (!round->beats[i].stalled || !worker->unhandled)
            continue;
        worker->unhandled = false;
        struct observed_failure *other = worker == slowest ? NULL : make_end_record(agent, worker);
        if (other)
            take_place(agent, other);
        else
            agent_emit(agent, &(struct agent_event){.kind = AGENT_WORKER_ENDED,
                                                    .worker = worker,
                                                    .failure = worker == slowest ? failure : NULL});
    }
    take_failure(agent, record);
    reap_children(agent); /* the others' ends were held back */
}

/* --- the part --- */

static int failures_create(struct agent *agent, struct muster_error *err)
{
    agent->failures = mem_calloc(1, sizeof *agent->failures);
    if (!agent->failures)
        return error_set(err, MUSTER_E_NOMEM, "no memory to watch for failures");
    agent->failures->watched.fd = -1;
    agent->failures->deadline = agent->failures->watch_at = INSTANT_NEVER;
    return 0;
}

static void begin_round(struct agent *agent)
{
    struct agent_failures *failures = agent->failures;
    assert(!agent_failures_are_pending(agent)); /* the last round was not over before all was reported */
    stop_watching(agent);
    postmortem_destroy(take_pointer(&failures->postmortem));
}

static struct instant failures_deadline(const struct agent *agent)
{
    const struct agent_failures *failures = agent->failures;
    bool due = failures->postmortem && postmortem_is_due(failures->postmortem);
    return due ? (struct instant){0} : instant_min(failures->deadline, failures->watch_at);
}

static void failures_tick(struct agent *agent, struct instant now)
{
    if (instant_reached(now, agent->failures->deadline))
        give_up(agent);
    if (instant_reached(now, agent->failures->watch_at))
        watch_kernel(agent);
    start_postmortem(agent);
}

static void note_start(struct agent *agent, int64_t ago_ns)
{
    const struct instant now = clock_now(NULL);
    agent->failures->started = instant_add(now, -ago_ns);
    agent->failures->watch_at = instant_add(now, settling_ns);
}

/* The first cause is settled when all workers have stopped: the next world has it, or the verdict. */
static void count_round(struct agent *agent, const struct membership_event *event)
{
    if (event->kind == MEMBERSHIP_EVENT_WORLD && event->failed_class > 0)
        agent->failures->rounds[event->failed_class - 1]++;
    else if (event->kind == MEMBERSHIP_EVENT_VERDICT && event->failed)
        agent->failures->rounds[failure_class_of(&event->failure)]++;
}

static void failures_event(struct agent *agent, const struct agent_event *event)
{
    switch (event->kind) {
    case AGENT_WORLD:
        count_round(agent, event->membership);
        begin_round(agent);
        break;
    case AGENT_VERDICT:
        count_round(agent, event->membership);
        break;
    case AGENT_STARTED:
        note_start(agent, event->duration_ns);
        break;
    case AGENT_ROUND_ENDS:
        agent->failures->watch_at = INSTANT_NEVER;
        break;
    case AGENT_CHILDREN:
        reap_children(agent);
        break;
    case AGENT_HUNG:
        take_hang(agent, event->worker, event->duration_ns);
        break;
    case AGENT_ABORTED:
        note_aborted(agent, event);
        break;
    case AGENT_SERVER_MOVED:
        note_move(agent);
        break;
    case AGENT_SERVER_LOST:
        note_lost_server(agent, event->text);
        break;
    default:
        break;
    }
}

static void failures_destroy(struct agent *agent)
{
    struct agent_failures *failures = agent->failures;
    if (!failures)
        return;
    stop_watching(agent);
    postmortem_destroy(failures->postmortem);
    mem_free(failures);
    agent->failures = NULL;
}

const struct agent_part agent_failures_part = {"failures",    failures_create, failures_deadline,
                                               failures_tick, failures_event,  failures_destroy};
