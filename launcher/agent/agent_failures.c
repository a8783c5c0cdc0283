/* agent_failures.c - from the end of a worker to the report of a failure: what it left behind is looked up by
 * a thread (postmortem.h), while the others are stopped already. See agent_internal.h. */
#include <stdio.h>

#include "launcher/agent/agent_internal.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"

/* much less than the silence after which the server takes this node for lost */
static const int64_t patience_ns =
    2 * NS_PER_S; /* a busy machine takes its time with a file of a few lines */

void agent_begin_failures(struct agent *agent)
{
    agent->failure_count = 0;
    agent->stopped_count = 0;
    agent_end_failures(agent);
}

void agent_watch_kernel(struct agent *agent, struct instant started)
{
    struct muster_error err = {0};
    struct kernel_evidence_paths paths = kernel_evidence_paths();
    agent->postmortem = postmortem_create(&paths, started, &err);
    if (!agent->postmortem) /* failures are reported as far as they are known */
        log_warning(&agent->log, "%s", err.text);
}

void agent_end_failures(struct agent *agent)
{
    postmortem_destroy(agent->postmortem);
    agent->postmortem = NULL;
}

/* --- what is known is told --- */

static struct failure_key key_of(const struct observed_failure *seen)
{
    return failure_key_of(&seen->failure, seen->at);
}

/* Of more than there is room for, the worst goes. */
static void keep(struct agent *agent, const struct worker_failure *failure, struct instant at)
{
    struct failure_key key = failure_key_of(failure, at);
    int place = agent->failure_count;
    if (place == AGENT_FAILURES_KEPT) {
        struct failure_key last = key_of(&agent->failures[place - 1]);
        if (failure_key_compare(&key, &last) >= 0)
            return;
        place--;
    } else {
        agent->failure_count++;
    }
    for (; place > 0; place--) {
        struct failure_key before = key_of(&agent->failures[place - 1]);
        if (failure_key_compare(&key, &before) >= 0)
            break;
        agent->failures[place] = agent->failures[place - 1];
    }
    agent->failures[place] = (struct observed_failure){*failure, at};
}

static void tell(struct agent *agent, struct worker_failure *failure, struct instant at)
{
    scope_buffer line = {0};
    struct muster_error err = {0};
    failure->age_ns = instant_diff_ns(clock_now(NULL), at);
    keep(agent, failure, at);
    agent->failures_seen++;
    if (!failure->not_started && !failure->hung &&
        !failure->unkillable) /* of a hang, all that hung are told of where it is seen */
        agent_tell_worker(agent, &agent->workers[failure->local_rank], failure);
    (void)report_line(agent->config->program, failure, &line);
    if (line.data && !line.failed)
        log_error(&agent->log, "%s", line.data);
    if (agent->membership &&
        membership_report(agent->membership, agent->world.id, MEMBERSHIP_REPORT_FAILED, failure, &err) < 0)
        log_error(&agent->log, "%s", err.text);
}

static void tell_ready(struct agent *agent)
{
    int count;
    struct postmortem_body *bodies = postmortem_take(agent->postmortem, &count);
    for (int i = 0; i < count; i++) {
        struct postmortem_body *body = &bodies[i];
        if (*body->note)
            log_warning(&agent->log, "the error file of rank %d is not used: %s", body->failure.rank,
                        body->note);
        if (!body->suspect || failure_shows_trouble(&body->failure))
            tell(agent, &body->failure, body->at);
        else
            agent_note_stopped(agent, &body->failure);
    }
    postmortem_free_bodies(bodies, count);
}

/* --- the thread --- */

static void stop_watching(struct agent *agent)
{
    if (agent->inquest.fd >= 0)
        loop_remove(&agent->loop, &agent->inquest);
    agent->inquest.fd = -1;
    agent->inquest_deadline = INSTANT_NEVER;
}

static void inquest_ready(void *context, uint32_t events)
{
    struct agent *agent = context;
    (void)events;
    stop_watching(agent);
    tell_ready(agent);
}

void agent_look_after_the_dead(struct agent *agent)
{
    struct muster_error err = {0};
    if (!agent->postmortem || agent->inquest.fd >= 0 || !postmortem_is_busy(agent->postmortem))
        return;
    postmortem_go(agent->postmortem);
    tell_ready(agent); /* what could not be looked up at all */
    int fd = postmortem_fd(agent->postmortem);
    if (fd < 0)
        return;
    agent->inquest = (struct loop_source){fd, inquest_ready, agent};
    agent->inquest_deadline = instant_add(clock_now(NULL), patience_ns);
    if (loop_add(&agent->loop, &agent->inquest, EPOLLIN, &err) == 0)
        return;
    agent->inquest.fd = -1; /* then the deadline does it */
    log_warning(&agent->log, "%s", err.text);
}

/* A file system that stalls costs one wait a round. */
static void give_up(struct agent *agent)
{
    stop_watching(agent);
    postmortem_give_up(agent->postmortem);
    log_warning(&agent->log,
                "what workers left behind is not read: a file system or driver did not answer within %.4g s",
                (double)patience_ns / NS_PER_S);
    tell_ready(agent);
}

void agent_settle_failures(struct agent *agent)
{
    agent_look_after_the_dead(agent);
    while (agent_has_untold_failures(agent)) {
        if (!postmortem_wait(agent->postmortem, patience_ns)) {
            give_up(agent);
            return;
        }
        stop_watching(agent);
        tell_ready(agent);
        agent_look_after_the_dead(agent);
    }
}

void agent_failures_tick(struct agent *agent, struct instant now)
{
    if (instant_reached(now, agent->inquest_deadline))
        give_up(agent);
}

bool agent_has_untold_failures(const struct agent *agent)
{
    return agent->postmortem && postmortem_is_busy(agent->postmortem);
}

/* --- what comes in --- */

static void add(struct agent *agent, const struct worker_failure *failure, bool suspect)
{
    struct muster_error err = {0};
    struct worker_failure known = *failure;
    const struct worker *worker = &agent->workers[failure->local_rank];
    struct instant at = instant_add(clock_now(NULL), -failure->age_ns);
    bool looks = agent->postmortem && !failure->not_started;
    struct postmortem_question question = {.failure = failure,
                                           .at = at,
                                           .suspect = suspect,
                                           .stderr_file = worker->stderr_file,
                                           .error_file = worker->error_file};
    if (looks && postmortem_add(agent->postmortem, &question, &err) == 0)
        return;
    if (*err.text)
        log_warning(&agent->log, "%s", err.text);
    if (suspect)
        agent_note_stopped(agent, &known);
    else
        tell(agent, &known, at);
}

void agent_report_failure(struct agent *agent, const struct worker_failure *failure)
{
    add(agent, failure, false);
}

void agent_suspect(struct agent *agent, const struct worker_failure *failure)
{
    add(agent, failure, true);
}

void agent_report_unkillable(struct agent *agent)
{
    struct worker_failure failure;
    const struct descendants_process *process = agent->sweeper.left_count ? &agent->sweeper.left[0] : NULL;
    int rank = agent->config->nproc_per_node - 1;
    while (rank > 0 && !agent->workers[rank].alive)
        rank--; /* 0 also where all workers are gone and one of their children is left */
    agent_describe_worker(agent, &agent->workers[rank], &failure);
    failure.unkillable = true;
    failure.exit_code = EXIT_CODE_NODE;
    if (process) {
        failure.pid = (int)process->pid;
        (void)snprintf(failure.message, sizeof failure.message, "process %d (%s) is in state %c",
                       (int)process->pid, process->name, process->state);
    }
    tell(agent, &failure, clock_now(NULL));
}

void agent_note_lost_server(struct agent *agent)
{
    struct worker_failure failure = {
        .local_rank = -1, .exit_code = EXIT_CODE_NODE, .lost_node = true, .wall_ns = clock_wall_ns()};
    (void)snprintf(failure.host, sizeof failure.host, "%s", agent->config->master_addr);
    keep(agent, &failure, clock_now(NULL));
}

void agent_note_stopped(struct agent *agent, const struct worker_failure *failure)
{
    agent_tell_worker(agent, &agent->workers[failure->local_rank], NULL);
    if (agent->stopped_count < AGENT_STOPPED_KEPT)
        agent->stopped[agent->stopped_count] = (struct report_stopped){.rank = failure->rank,
                                                                       .local_rank = failure->local_rank,
                                                                       .pid = failure->pid,
                                                                       .exit_code = failure->exit_code,
                                                                       .signal = failure->signal};
    agent->stopped_count++;
}
