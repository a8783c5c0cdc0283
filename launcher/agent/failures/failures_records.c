/* failures_records.c - records of failures, from their first facts to the report, and the thread that
 * completes them by the post-mortem. See failures_internal.h. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent/agent_membership.h"
#include "launcher/agent/agent_output.h"
#include "launcher/agent/agent_processes.h"
#include "launcher/agent/failures/failures_internal.h"
#include "launcher/agent/pmi/agent_pmi.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"

/* A busy machine may be slow with a file of a few lines. The other nodes have been informed already. */
static const int64_t patience_ns = 2 * NS_PER_S;
/* --- records --- */

/* The worker, node and time of a failure, not its cause. NULL without memory, which is logged. */
struct observed_failure *failures_make_record(const struct agent *agent, const struct worker *worker,
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
void failures_take_last_words(struct agent *agent, struct worker *worker, struct observed_failure *record)
{
    agent_output_last_words(agent, worker, record->failure.tail, sizeof record->failure.tail);
    record->stdout_file = take_pointer(&worker->stdout_file);
    record->stderr_file = take_pointer(&worker->stderr_file);
    record->error_file = take_pointer(&worker->error_file);
}

/* The same, with the cause and the last output. */
struct observed_failure *failures_make_end_record(struct agent *agent, struct worker *worker)
{
    struct observed_failure *record = failures_make_record(agent, worker, worker->ended);
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
    failures_take_last_words(agent, worker, record);
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

void failures_note_stopped(struct agent *agent, struct observed_failure *record)
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
        log_warning(&agent->log, "%s", record->note);
    if (record->suspect && (record->hung || !failure_shows_trouble(failure))) {
        failures_note_stopped(agent, record);
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

void failures_stop_watching(struct agent *agent)
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
    failures_stop_watching(agent);
    complete_ready(agent);
}

/* Starts the thread for the waiting failures. */
void failures_start_postmortem(struct agent *agent)
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
void failures_give_up(struct agent *agent)
{
    failures_stop_watching(agent);
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
    failures_start_postmortem(agent);
    while (agent_failures_are_pending(agent)) {
        if (!postmortem_wait(agent->failures->postmortem, patience_ns)) {
            failures_give_up(agent);
            return;
        }
        failures_stop_watching(agent);
        complete_ready(agent);
        failures_start_postmortem(agent);
    }
}

/* --- a failure --- */

void failures_watch_kernel(struct agent *agent)
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
void failures_take(struct agent *agent, struct observed_failure *record)
{
    const bool suspect = record->suspect;
    if (!suspect) {
        tell_line(agent, record);
        agent_emit(agent, &(struct agent_event){.kind = AGENT_FAILURE, .failure = &record->failure});
    }
    if (agent->failures->watch_at.ns < INSTANT_NEVER.ns && !record->failure.not_started)
        failures_watch_kernel(agent); /* it failed before the round had settled */
    if (agent->failures->postmortem && !record->failure.not_started)
        postmortem_add(agent->failures->postmortem, record);
    else
        complete_failure(agent, record, !suspect);
}

/* Without memory for a record the others are stopped all the same. */
void failures_take_nothing(struct agent *agent, const struct worker *worker)
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
    struct observed_failure *record = failures_make_record(agent, worker, clock_now(NULL));
    if (!record) {
        failures_take_nothing(agent, worker);
        return;
    }
    record->failure.pid = getpid(); /* there is no worker: this process failed to start one */
    record->failure.exit_code = exit_code ? exit_code : EXIT_CODE_FAILURE;
    record->failure.not_started = true;
    (void)snprintf(record->failure.message, sizeof record->failure.message, "%s", why);
    failures_take(agent, record);
}

void agent_failures_unkillable(struct agent *agent)
{
    const struct descendants_process *process = agent_processes_name_stuck(agent);
    int rank = agent->round.worker_count - 1;
    while (rank > 0 && !agent->round.workers[rank].alive)
        rank--; /* 0 also if all workers are gone and a child of theirs remains */
    struct observed_failure *record =
        failures_make_record(agent, &agent->round.workers[rank], clock_now(NULL));
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
