/* agent.c - one `muster run`: the table of its parts, the loop, the end. See agent_internal.h. */
#include "launcher/agent/agent.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent/agent_failures.h"
#include "launcher/agent/agent_heartbeats.h"
#include "launcher/agent/agent_internal.h"
#include "launcher/agent/agent_job_state.h"
#include "launcher/agent/agent_membership.h"
#include "launcher/agent/agent_nccl.h"
#include "launcher/agent/agent_notices.h"
#include "launcher/agent/agent_output.h"
#include "launcher/agent/agent_processes.h"
#include "launcher/agent/agent_server.h"
#include "launcher/agent/agent_signals.h"
#include "launcher/agent/agent_start.h"
#include "launcher/agent/board/agent_board.h"
#include "launcher/agent/drain/agent_drain.h"
#include "launcher/agent/pmi/agent_pmi.h"
#include "launcher/agent/port/agent_port.h"
#include "launcher/agent/search/agent_search.h"
#include "launcher/process/guardian.h"
#include "launcher/verdict/report.h"
#include "proto/base/error.h"
#include "proto/base/futex.h"
#include "proto/base/guard.h"
#include "proto/env_names.h"
#include "proto/exit_code.h"

static const int64_t linger_ns = 2 * NS_PER_S; /* for the last messages to the server */

/* In the order in which they are created, get events and tick; they are destroyed in reverse. The worker
 * group comes last: the other parts' events of a turn of the loop are known to it. */
static const struct agent_part *const parts[] = {
    &agent_output_part,     &agent_signals_part,    &agent_events_part,  &agent_job_state_part,
    &agent_nccl_part,       &agent_folders_part,    &agent_server_part,  &agent_port_part,
    &agent_heartbeats_part, &agent_notices_part,    &agent_pmi_part,     &agent_processes_part,
    &agent_start_part,      &agent_board_part,      &agent_trainer_part, &agent_drain_part,
    &agent_status_part,     &agent_membership_part, &agent_search_part,  &agent_failures_part,
    &agent_actions_part,
};

enum { PARTS = sizeof parts / sizeof parts[0] };

/* --- the parts together --- */

/* A part that has found the job to be over (--state-dir) leaves the rest uncreated. */
static int create_parts(struct agent *agent, struct muster_error *err)
{
    for (int i = 0; i < PARTS && !agent->finished; i++) {
        agent->created = i + 1; /* its destroy ends whatever its create began */
        if (parts[i]->create(agent, err) < 0)
            return -1;
        agent->whole = i + 1;
    }
    return 0;
}

static void destroy_parts(struct agent *agent)
{
    while (agent->created > 0)
        if (parts[--agent->created]->destroy)
            parts[agent->created]->destroy(agent);
}

static struct instant next_deadline(const struct agent *agent)
{
    struct instant next = INSTANT_NEVER;
    for (int i = 0; i < agent->created; i++)
        if (parts[i]->deadline)
            next = instant_min(next, parts[i]->deadline(agent));
    return next;
}

static void tick_parts(struct agent *agent)
{
    struct instant now = clock_now(NULL);
    for (int i = 0; i < agent->created; i++)
        if (parts[i]->tick)
            parts[i]->tick(agent, now);
}

static void tell_parts(struct agent *agent, const struct agent_event *event)
{
    assert((unsigned)event->kind < AGENT_EVENT_COUNT);
    if (!agent_actions_admit(agent, event))
        return;
    for (int i = 0; i < agent->whole; i++)
        if (parts[i]->event)
            parts[i]->event(agent, event);
    agent_actions_take(agent, event);
}

/* --- before the parts --- */

static int make_identity(struct agent *agent, struct muster_error *err)
{
    if (descendants_make_id(agent->id) < 0)
        return error_errno(err, "getrandom");
    const char *outer =
        getenv(ENV_AGENT_ID); /* we may be a worker of another agent, which must find ours too */
    agent->id_chain = outer && *outer ? mem_printf("%s,%s", outer, agent->id) : mem_strdup(agent->id);
    if (!agent->id_chain)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the agent's id");
    return 0;
}

/* Room for pipes and files of every worker and for connections to the store, for the agent alone: workers
 * get the inherited limit (select breaks above 1,024). If it cannot be raised, opening fails later with an
 * error. */
static int raise_descriptors(struct agent *agent, struct muster_error *err)
{
    if (getrlimit(RLIMIT_NOFILE, &agent->descriptors) < 0)
        return error_errno(err, "getrlimit");
    struct rlimit raised = {agent->descriptors.rlim_max, agent->descriptors.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &raised); /* up to the hard limit is always allowed */
    return 0;
}

/* One arena for all threads: each would have its own, and grow it by a system call for every connection.
 * Some thousand agents that connect at once take a tenth of their time for that. */
static void share_heap(void)
{
#ifdef M_ARENA_MAX
    (void)mallopt(M_ARENA_MAX, 1); /* a hint */
#endif
}

/* Standard descriptors that are closed would be taken by the first files that are opened. */
static void open_standard_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
            return; /* no /dev/null: the output is lost either way */
}

static int begin_run(struct agent *agent, struct muster_error *err)
{
    share_heap();
    if (futex_check(err) < 0 || loop_init(&agent->loop, err) < 0 ||
        round_init(&agent->round, agent->config->nproc_per_node, err) < 0 || make_identity(agent, err) < 0 ||
        raise_descriptors(agent, err) < 0)
        return -1;
    machine_host_name(agent->host);
    return 0;
}

/* --- the loop --- */

static int run_loop(struct agent *agent, struct muster_error *err)
{
    for (bool begins = true;; begins = false) {
        tick_parts(agent);
        if (begins) /* after the start of the workers of a node that is alone */
            agent_signals_warn_of_init(agent);
        if (agent->finished)
            return 0;
        if (loop_turn(&agent->loop, next_deadline(agent), err) < 0)
            return -1;
    }
}

/* The server outlives its agent's part in the job until the others have acknowledged the end. Until then
 * signals and requests are handled as always. */
static int see_off(struct agent *agent, struct muster_error *err)
{
    char text[MUSTER_ERROR_TEXT];
    bool votes;
    agent_membership_depart(agent, linger_ns);
    if (agent_membership_departing(agent, &votes) && !votes) {
        agent_membership_describe(agent, text, sizeof text);
        log_info(&agent->log, "%s", text);
    }
    while (agent_membership_departing(agent, &votes)) {
        if (loop_turn(&agent->loop, next_deadline(agent), err) < 0)
            return -1;
        tick_parts(agent);
    }
    return 0;
}

/* --- the end --- */

static int shown_code(const struct agent *agent, int code)
{
    return report_exit_code((enum exit_mode)agent->config->exit_mode, code, agent_start_ran(agent));
}

static int fail_run(struct agent *agent, int code, const struct muster_error *err)
{
    (void)snprintf(agent->end_reason, sizeof agent->end_reason, "%s", err->text);
    agent_outcome_tell(agent, shown_code(agent, code));
    return shown_code(agent, code);
}

static int set_up_code(const struct agent *agent, const struct muster_error *err)
{
    int early = agent_signals_early(agent);
    if (early)
        return EXIT_CODE_SIGNAL_BASE + early;
    if (agent->tune->unfit)
        return EXIT_CODE_NODE;
    const int code = exit_code_of_error(err->code);
    const bool usage = err->code == MUSTER_E_INVALID || err->code == MUSTER_E_UNSUPPORTED;
    return code == EXIT_CODE_ENVIRONMENT || usage ? code : EXIT_CODE_FAILURE;
}

static int end_run(struct agent *agent)
{
    const struct membership_event *verdict = agent_membership_verdict(agent);
    const int code = agent->group.exit_code;
    struct muster_error err = {0};
    agent_failures_settle(agent);
    agent_emit(agent, &(struct agent_event){.kind = AGENT_ENDED,
                                            .code = code,
                                            .duration_ns = instant_diff_ns(clock_now(NULL), agent->started),
                                            .text = code && verdict ? verdict->reason : NULL});
    agent_job_state_keep_end(agent, verdict);
    int exit_code = shown_code(agent, code);
    if (exit_code)
        agent_outcome_tell(agent, exit_code);
    if (see_off(agent, &err) < 0)
        log_error(&agent->log, "%s", err.text); /* the job's outcome stands */
    return exit_code;
}

static int run_parts(struct agent *agent)
{
    struct muster_error err = {0};
    if (create_parts(agent, &err) < 0) {
        log_error(&agent->log, "%s", err.text);
        agent_output_discard(agent);
        return agent->pump ? fail_run(agent, set_up_code(agent, &err), &err) : EXIT_CODE_FAILURE;
    }
    if (agent->finished) { /* before it began: the job is over */
        agent->group.exit_code = agent_job_state_exit_code(agent);
    } else if (run_loop(agent, &err) <
               0) { /* the kernel refuses a resource that it gave before: end all processes */
        log_error(&agent->log, "%s", err.text);
        agent_processes_kill_last(agent, linger_ns);
        return fail_run(agent, EXIT_CODE_ENVIRONMENT, &err);
    }
    return end_run(agent);
}

int agent_run(const struct run_config *config, struct nccl_env *tune, const struct log_sink *log)
{
    struct muster_error err = {0};
    int exit_code = EXIT_CODE_FAILURE;
    open_standard_descriptors();
    scope_free struct agent *agent = mem_calloc(1, sizeof *agent);
    if (!agent) {
        log_error(log, "no memory for the agent");
        return exit_code;
    }
    agent->config = config;
    agent->tune = tune;
    agent->log = *log;
    agent->emit = tell_parts;
    agent->started = clock_now(NULL);
    agent->loop.epoll_fd = agent->loop.timer_fd = -1;
    if (begin_run(agent, &err) == 0)
        exit_code = run_parts(agent);
    else
        log_error(log, "%s", err.text);
    const pid_t guardian = agent_processes_release(agent);
    round_keep_workers(&agent->round, false);
    tell_parts(agent, &(struct agent_event){.kind = AGENT_ROUND_ENDS});
    destroy_parts(agent);
    round_free(&agent->round);
    mem_free(agent->id_chain);
    loop_close(&agent->loop);
    guardian_reap(guardian); /* its end took as long as ours */
    return exit_code;
}
