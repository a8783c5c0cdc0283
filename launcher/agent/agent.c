/* agent.c - the life of one `muster run`: what it sets up, its loop, its end. What is seen becomes an event
 * of the group (agent_actions.c); the other parts are listed in agent_internal.h. */
#include "launcher/agent/agent.h"
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/config/exit_mode.h"
#include "launcher/loop/background_job.h"
#include "launcher/loop/resolver.h"
#include "launcher/output/log_directory.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/env_names.h"
#include "proto/exit_code.h"

static const int64_t linger_ns = 2 * NS_PER_S; /* for the last messages to the server */

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

/* Room for pipes and files of every worker and for connections to the store, for the agent alone: workers get
 * the limit that we got (select breaks above 1,024). Where it cannot be had, opening says so later. */
static int raise_descriptors(struct agent *agent, struct muster_error *err)
{
    if (getrlimit(RLIMIT_NOFILE, &agent->descriptors) < 0)
        return error_errno(err, "getrlimit");
    struct rlimit raised = {agent->descriptors.rlim_max, agent->descriptors.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &raised); /* up to the hard limit is always allowed */
    return 0;
}

/* One arena for all threads: each would have its own, and grow it by a system call for every connection. Some
 * thousand agents that come at once take a tenth of their time for that. */
static void share_heap(void)
{
#ifdef M_ARENA_MAX
    (void)mallopt(M_ARENA_MAX, 1); /* a hint */
#endif
}

/* Everything that can fail before there is a world. */
static int set_up(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    agent->workers = mem_calloc((size_t)config->nproc_per_node, sizeof *agent->workers);
    agent->beats = mem_calloc((size_t)config->nproc_per_node, sizeof *agent->beats);
    if (!agent->workers || !agent->beats)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %d workers", config->nproc_per_node);
    bool over;
    if (agent_watch_signals(agent, err) < 0 || agent_read_job(agent, &over, err) < 0)
        return -1;
    if (over) {
        agent->finished = true;
        agent->group.exit_code = agent->state.exit_code;
        return 0;
    }
    if (agent->tune->unfit)
        return error_set(err, MUSTER_E_STATE, "%s; it does not join the job", agent->tune->unfit);
    share_heap();
    if (make_identity(agent, err) < 0 || raise_descriptors(agent, err) < 0 ||
        agent_prepare_logs(agent, err) < 0)
        return -1;
    if (agent_open_events(agent, err) < 0 || agent_open_tuning(agent, err) < 0 ||
        agent_open_facts(agent, err) < 0)
        return -1;
    if (agent_read_secret(agent, err) < 0)
        return -1;
    agent_warn_of_init(agent);
    if (agent_adopt_orphans(agent, err) < 0 || agent_watch_guardian(agent, err) < 0 ||
        agent_open_status(agent, err) < 0)
        return -1;
    return agent_join(agent, err);
}

static struct instant next_deadline(const struct agent *agent)
{
    struct instant next = instant_min(agent->group.deadline, agent->sweep_at);
    if (agent->membership)
        next = instant_min(next, membership_deadline(agent->membership));
    next = instant_min(next, descendant_killer_deadline(&agent->sweeper));
    next = instant_min(next, agent_beats_deadline(agent));
    next = instant_min(next, agent->inquest_deadline);
    next = instant_min(next, agent_progress_deadline(agent));
    next = instant_min(next, agent_logs_deadline(agent));
    return instant_min(next, pump_deadline(agent->pump));
}

static void pass_time(struct agent *agent)
{
    struct instant now = clock_now(NULL);
    if (instant_reached(now, pump_deadline(agent->pump)))
        pump_tick(agent->pump, now);
    agent_beats_tick(agent, now);
    agent_failures_tick(agent, now);
    pid_t stuck = descendant_killer_tick(&agent->sweeper, now);
    if (stuck)
        log_warning(&agent->log, "process %d does not let its environment be read: it is left out",
                    (int)stuck);
    if (instant_reached(now, agent_progress_deadline(agent)))
        agent_tell_progress(agent, now);
    agent_follow_server(agent, now);
    agent_logs_tick(agent, now);
    if (instant_reached(now, agent->group.deadline))
        agent_event(agent, &(struct worker_group_event){.kind = GROUP_DEADLINE}, NULL);
    else if (instant_reached(now, agent->sweep_at))
        agent_sweep(agent);
}

static int run(struct agent *agent, struct muster_error *err)
{
    for (;;) {
        agent_ask_seat(agent);
        agent_look_after_the_dead(agent);
        if (worker_group_wants_empty(&agent->group) && !agent_has_untold_failures(agent) &&
            agent_is_childless()) {
            descendant_killer_call_off(&agent->sweeper); /* it must not find the next round's workers */
            agent_event(agent, &(struct worker_group_event){.kind = GROUP_EMPTY}, NULL);
        } else if (!agent->finished && loop_turn(&agent->loop, next_deadline(agent), err) < 0) {
            return -1;
        }
        if (agent->finished)
            return 0;
        pass_time(agent);
    }
}

/* --- the end --- */

/* The server outlives its agent's part in the job until the others have taken note. Meanwhile signals and
 * questions are answered as ever. */
static int see_off(struct agent *agent, struct muster_error *err)
{
    if (!agent->membership)
        return 0;
    membership_part(agent->membership, linger_ns);
    char text[MUSTER_ERROR_TEXT];
    agent_describe_waiting(agent, text, sizeof text);
    if (*text)
        log_info(&agent->log, "%s", text);
    while (membership_parting(agent->membership)) {
        if (loop_turn(&agent->loop, next_deadline(agent), err) < 0)
            return -1;
        pass_time(agent);
    }
    return 0;
}

static void tear_down(struct agent *agent)
{
    guardian_release(&agent->guardian); /* it ends while we do the rest */
    agent_close_status(agent);
    agent_close_events(agent);
    agent_close_facts(agent);
    agent_close_tuning(agent);
    agent_end_failures(agent);
    descendant_killer_call_off(&agent->sweeper);
    agent_stop_cleaning(agent);
    if (agent->workers)
        agent_release_workers(agent);
    membership_destroy(agent->membership, linger_ns);
    resolver_destroy(agent->resolver);
    background_watch_end(&agent->port_asking);
    agent_close_store(agent);
    mem_free(agent->id_chain);
    agent_discard_error_directory(agent);
    mem_free(agent->error_directory);
    mem_free(agent->run_directory);
    mem_free(agent->program);
    mem_free(agent->workers);
    mem_free(agent->beats);
    secret_wipe(&agent->keys, sizeof agent->keys);
    guardian_dismiss(&agent->guardian);
}

/* Standard descriptors that are closed would be taken by the first files that are opened. */
static void open_standard_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
            return; /* no /dev/null: what is written is lost either way */
}

static int shown_code(const struct agent *agent, int code)
{
    return exit_mode_code((enum exit_mode)agent->config->exit_mode, code, agent->ran);
}

static int fail(struct agent *agent, int code, const struct muster_error *err)
{
    (void)snprintf(agent->end_reason, sizeof agent->end_reason, "%s", err->text);
    agent_tell_outcome(agent, shown_code(agent, code));
    return shown_code(agent, code);
}

static int set_up_code(const struct agent *agent, const struct muster_error *err)
{
    if (agent->early_signal)
        return EXIT_CODE_SIGNAL_BASE + agent->early_signal;
    if (agent->tune->unfit)
        return EXIT_CODE_NODE;
    return err->code == MUSTER_E_INVALID || err->code == MUSTER_E_UNSUPPORTED ? EXIT_CODE_USAGE
                                                                              : EXIT_CODE_FAILURE;
}

static int run_agent(struct agent *agent)
{
    struct muster_error err = {0};
    if (set_up(agent, &err) < 0) {
        log_error(&agent->log, "%s", err.text);
        if (agent->run_directory)
            log_directory_discard(agent->config->log_dir, agent->run_directory);
        return fail(agent, set_up_code(agent, &err), &err);
    }
    if (run(agent, &err) < 0) { /* the kernel refuses what it gave before: leave nothing behind */
        log_error(&agent->log, "%s", err.text);
        agent_kill_workers(agent);
        descendant_killer_wait(&agent->sweeper, linger_ns);
        return fail(agent, EXIT_CODE_FAILURE, &err);
    }
    agent_settle_failures(agent);
    agent_tell(agent, agent->group.exit_code ? EVENT_FAILED : EVENT_SUCCEEDED,
               instant_diff_ns(clock_now(NULL), agent->started));
    agent_keep_end(agent);
    int exit_code = shown_code(agent, agent->group.exit_code);
    if (exit_code)
        agent_tell_outcome(agent, exit_code);
    if (see_off(agent, &err) < 0)
        log_error(&agent->log, "%s", err.text); /* the job's outcome stands */
    return exit_code;
}

int agent_run(const struct run_config *config, struct nccl_env *tune, const struct log_sink *log)
{
    struct muster_error err = {0};
    open_standard_descriptors();
    scope_free struct agent *agent = mem_calloc(1, sizeof *agent);
    if (!agent || loop_init(&agent->loop, &err) < 0) {
        log_error(log, "%s", agent ? err.text : "no memory for the agent");
        return EXIT_CODE_FAILURE;
    }
    agent->config = config;
    agent->tune = tune;
    agent->sweeper.loop = &agent->loop;
    agent->started = agent->waiting_since = clock_now(NULL);
    agent->signals.fd = agent->seat.fd = agent->inquest.fd = agent->store_knock.fd = -1;
    agent->guardian.fd = agent->held_port_fd = -1;
    agent->sweep_at = agent->hang.deadline = agent->inquest_deadline = INSTANT_NEVER;
    agent->group = (struct worker_group){.state = GROUP_WAITING,
                                         .shutdown_grace_ns = agent_seconds_ns(config->shutdown_timeout_s),
                                         .restart_grace_ns = agent_seconds_ns(config->restart_grace_s),
                                         .kill_bound_ns = AGENT_KILL_BOUND_NS,
                                         .drains = config->elastic,
                                         .ends_together = !config->elastic && config->max_nodes > 1,
                                         .clean_bound_ns = AGENT_CLEAN_BOUND_NS,
                                         .deadline = INSTANT_NEVER};
    machine_host_name(agent->host);
    int exit_code = EXIT_CODE_FAILURE;
    if (agent_open_pump(agent, &err) == 0) {
        agent->log = *log;
        agent->log.write = pump_log;
        agent->log.context = agent->pump;
        exit_code = run_agent(agent);
        tear_down(agent);
    } else {
        log_error(log, "%s", err.text);
    }
    agent_close_pump(agent);
    if (agent->signals.fd >= 0)
        (void)close(agent->signals.fd);
    loop_close(&agent->loop);
    return exit_code;
}
