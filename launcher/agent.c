/* agent.c - the loop of one `muster run`: what is seen becomes an event of the group (group.h), and what the
 * group asks for is done. Decisions are in group.c, report.c and the roster; processes in agent_workers.c. */
#include "launcher/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "launcher/agent_internal.h"
#include "launcher/logdir.h"
#include "launcher/report.h"
#include "launcher/resolver.h"
#include "launcher/spawn.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/env_names.h"
#include "proto/exit_code.h"
#include "rendezvous/tcpstore_server.h"

enum { DEFAULT_MASTER_PORT = 29500, GUARDIANS_LIMIT = 4 };

static const int64_t kill_bound_ns =
                         30 * NS_PER_S, /* a killed process that frees much memory needs seconds */
    sweep_every_ns = 20 * NS_PER_MS,    /* while killed processes may still have had children */
    linger_ns = 2 * NS_PER_S;           /* for the last messages to the server */

static int64_t seconds_ns(double seconds)
{
    return (int64_t)(seconds * (double)NS_PER_S);
}

/* --- actions of the group --- */

static void report(struct agent *agent, enum membership_report_kind kind,
                   const struct worker_failure *failure)
{
    struct muster_error err = {0};
    if (agent->membership && membership_report(agent->membership, agent->world.id, kind, failure, &err) < 0)
        log_error(&agent->log, "%s", err.text);
}

static void do_report_failed(struct agent *agent, const struct worker_failure *failure)
{
    scope_buffer line = {0};
    if (agent->failure_count < AGENT_FAILURES_KEPT)
        agent->failures[agent->failure_count++] = (struct observed_failure){*failure, clock_now(NULL)};
    (void)report_line(agent->config->program, failure, &line);
    if (line.data && !line.failed)
        log_error(&agent->log, "%s", line.data);
    report(agent, MEMBERSHIP_REPORT_FAILED, failure);
}

static void do_start(struct agent *agent)
{
    struct worker_failure failure;
    agent->failure_count = 0;
    if (agent->world.restart_count)
        log_info(&agent->log, "restart %lld of %lld: round %u starts", (long long)agent->world.restart_count,
                 (long long)agent->config->max_restarts, agent->world.id.round);
    if (agent_start_workers(agent, &failure) == 0)
        report(agent, MEMBERSHIP_REPORT_RUNNING, NULL);
    else
        agent_event(agent, &(struct group_event){.kind = GROUP_FAILURE}, &failure);
}

static void do_kill(struct agent *agent)
{
    agent_kill_workers(agent);
    agent->sweep_at = instant_add(clock_now(NULL), sweep_every_ns);
}

static void do_leave(struct agent *agent)
{
    struct muster_error err = {0};
    if (agent->membership && membership_leave(agent->membership, agent->group.exit_code, &err) < 0)
        log_debug(&agent->log, "%s", err.text); /* we go all the same */
}

static void do_remind(struct agent *agent)
{
    int64_t left = instant_diff_ns(agent->group.deadline, clock_now(NULL)) / NS_PER_S;
    log_info(&agent->log, "already stopping; what still runs %s in %lld s",
             agent->group.state == GROUP_KILLING ? "was killed, giving up" : "is killed",
             (long long)(left > 0 ? left : 0));
}

static void execute(struct agent *agent, enum group_action action, const struct worker_failure *failure)
{
    switch (action) {
    case GROUP_REPORT_FAILED:
        do_report_failed(agent, failure);
        break;
    case GROUP_REPORT_DONE:
        report(agent, MEMBERSHIP_REPORT_DONE, NULL);
        break;
    case GROUP_LEAVE:
        do_leave(agent);
        break;
    case GROUP_TERMINATE:
        agent_terminate_workers(agent, agent->group.signal);
        break;
    case GROUP_KILL:
        do_kill(agent);
        break;
    case GROUP_NAME_STUCK:
        agent_name_stuck(agent);
        break;
    case GROUP_REPORT_STOPPED:
        agent_release_workers(agent);
        report(agent, MEMBERSHIP_REPORT_STOPPED, NULL);
        break;
    case GROUP_START:
        do_start(agent);
        break;
    case GROUP_REMIND:
        do_remind(agent);
        break;
    default: /* GROUP_EXIT */
        agent->finished = true;
        break;
    }
}

void agent_event(struct agent *agent, const struct group_event *event, const struct worker_failure *failure)
{
    struct muster_error err = {0};
    unsigned actions;
    enum group_state before = agent->group.state;
    if (group_step(&agent->group, event, clock_now(NULL), &actions, &err) < 0) {
        log_error(&agent->log, "internal: %s", err.text);
        return;
    }
    log_debug(&agent->log, "%s: %s -> %s", group_event_name(event->kind), group_state_name(before),
              group_state_name(agent->group.state));
    if (agent->group.state != GROUP_KILLING)
        agent->sweep_at = INSTANT_NEVER;
    for (int action = 0; action < GROUP_ACTION_COUNT; action++)
        if (actions & 1u << action)
            execute(agent, action, failure);
}

/* --- the world --- */

static void on_membership(struct agent *agent, const struct membership_event *event)
{
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        agent->world = event->world;
        agent_event(agent, &(struct group_event){.kind = GROUP_WORLD}, NULL);
        break;
    case MEMBERSHIP_EVENT_STOP:
        agent_event(agent, &(struct group_event){.kind = GROUP_STOP}, NULL);
        break;
    case MEMBERSHIP_EVENT_VERDICT:
        agent->verdict = *event;
        if (event->failed &&
            !event->failure.wall_ns) /* a lost node: the server saw its silence, not its end */
            agent->verdict.failure.wall_ns = clock_wall_ns();
        agent->judged = true;
        agent_event(agent, &(struct group_event){.kind = GROUP_VERDICT, .exit_code = event->exit_code}, NULL);
        break;
    case MEMBERSHIP_EVENT_REFUSED:
        log_error(&agent->log, "refused by the server: %s", event->reason);
        agent_event(agent, &(struct group_event){.kind = GROUP_LOST, .exit_code = EXIT_CODE_FAILURE}, NULL);
        break;
    }
}

static void seat_ready(void *context, uint32_t events)
{
    (void)context; /* the loop asks the seat after every turn */
    (void)events;
}

static void lose_seat(struct agent *agent, const char *why, int exit_code)
{
    log_error(&agent->log, "%s", why);
    agent_event(agent, &(struct group_event){.kind = GROUP_LOST, .exit_code = exit_code}, NULL);
    if (agent->seat.fd >= 0)
        loop_remove(&agent->loop, &agent->seat);
    agent->seat.fd = -1;
    membership_destroy(agent->membership, 0);
    agent->membership = NULL;
}

static void ask_seat(struct agent *agent)
{
    while (agent->membership && !agent->finished) {
        struct membership_event event;
        struct muster_error err = {0};
        int got = membership_next(agent->membership, &event, &err);
        if (got < 0)
            lose_seat(agent, err.text, EXIT_CODE_NODE);
        if (got <= 0)
            return;
        on_membership(agent, &event);
    }
}

static uint16_t master_port(const struct run_config *config)
{
    return (uint16_t)(config->master_port ? config->master_port : DEFAULT_MASTER_PORT);
}

/* The keys of the last round (NCCL's ids among them) must not be found in the next one. Not later: a worker
 * of another node may connect as soon as its agent has the world. Not earlier: one of the last round may
 * still write. Any thread: agent->store and agent->log do not change while there is a seat. */
static void world_forms(void *context, struct world_id id)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    if (id.round && agent->store && tcpstore_server_new_round(agent->store, &err) < 0)
        log_error(&agent->log, "%s", err.text);
}

/* address: what the server's host binds or its clients connect to; NULL in process. */
static int take_seat(struct agent *agent, enum membership_mode mode, const char *address,
                     struct muster_error *err)
{
    const struct run_config *config = agent->config;
    struct membership_options options = {
        .mode = mode,
        .job_id = config->rdzv_id,
        .agent_name = agent->host,
        .node_rank = (int)config->node_rank,
        .min_nodes = config->min_nodes,
        .max_nodes = config->max_nodes,
        .local_world_size = config->nproc_per_node,
        .role = config->role,
        .max_restarts = config->max_restarts,
        .host = address,
        .port = master_port(config),
        .store_addr = config->master_addr,
        .store_port = agent->store ? tcpstore_server_port(agent->store) : 0,
        .join_timeout_ns = instant_diff_ns(agent->join_deadline, clock_now(NULL)),
        .stop_timeout_ns = seconds_ns(config->restart_grace_s) + 2 * kill_bound_ns,
        .world_forms = world_forms,
        .context = agent,
        .log = &agent->log,
    };
    if (options.join_timeout_ns < NS_PER_MS)
        options.join_timeout_ns = NS_PER_MS; /* a look-up used it up: the seat says so */
    agent->membership = membership_open(&options, err);
    if (!agent->membership)
        return -1;
    agent->seat = (struct loop_source){membership_fd(agent->membership), seat_ready, agent};
    return agent->seat.fd < 0 ? 0 : loop_add(&agent->loop, &agent->seat, EPOLLIN, err);
}

static void name_ready(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    char address[RESOLVER_ADDRESS_LIMIT];
    (void)events;
    loop_remove(&agent->loop, &agent->name);
    if (resolver_result(agent->resolver, address, sizeof address, &err) < 0)
        lose_seat(agent, err.text, EXIT_CODE_NODE);
    else if (take_seat(agent, MEMBERSHIP_CLIENT, address, &err) < 0)
        lose_seat(agent, err.text, EXIT_CODE_FAILURE);
}

static int resolve(struct agent *agent, struct muster_error *err)
{
    agent->resolver = resolver_start(agent->config->master_addr, agent->join_deadline, err);
    if (!agent->resolver)
        return -1;
    agent->name = (struct loop_source){resolver_fd(agent->resolver), name_ready, agent};
    return loop_add(&agent->loop, &agent->name, EPOLLIN, err);
}

/* What node 0 binds: MASTER_ADDR where it is an address of this machine, else every address, since the own
 * name is often mapped to a loopback address that no other node reaches. */
static const char *address_to_serve(struct agent *agent)
{
    const char *given = agent->config->master_addr;
    if (!strcmp(given, "localhost")) /* nobody elsewhere can mean us by it */
        return "127.0.0.1";
    if (resolver_is_numeric(given) && resolver_is_local(given))
        return given;
    log_info(&agent->log, "serving the job on every address of this machine, port %u",
             (unsigned)master_port(agent->config));
    return "0.0.0.0";
}

static int join(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    agent->join_deadline = instant_add(clock_now(NULL), seconds_ns(config->join_timeout_s));
    if (config->max_nodes == 1)
        return take_seat(agent, MEMBERSHIP_IN_PROCESS, NULL, err);
    if (config->node_rank == 0)
        return take_seat(agent, MEMBERSHIP_SERVER, address_to_serve(agent), err);
    if (resolver_is_numeric(config->master_addr))
        return take_seat(agent, MEMBERSHIP_CLIENT, config->master_addr, err);
    return resolve(agent, err);
}

/* The store of the workers: on the loopback address where that is what they are told, else on every one. */
static int start_store(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    struct tcpstore_server_options options = {.log = &agent->log};
    if (config->node_rank != 0 && config->max_nodes > 1)
        return 0; /* node 0's agent serves it */
    if (!strcmp(config->master_addr, "localhost"))
        options.address = "127.0.0.1";
    else if (!strncmp(config->master_addr, "127.", 4) && resolver_is_numeric(config->master_addr))
        options.address = config->master_addr;
    if (config->max_nodes == 1) {                     /* nothing else wants the port */
        options.port = (uint16_t)config->master_port; /* 0 with --standalone, unless the flag was given */
        return tcpstore_server_start(&options, &agent->store, err);
    }
    options.port = (uint16_t)(master_port(config) + 1); /* beside the rendezvous; 65536 wraps to any */
    if (options.port && tcpstore_server_start(&options, &agent->store, NULL) == 0)
        return 0;
    options.port = 0;
    return tcpstore_server_start(&options, &agent->store, err);
}

/* --- signals --- */

static void signals_ready(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct signalfd_siginfo info;
    (void)events;
    while (read(agent->signals.fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            agent_reap(agent);
            continue;
        }
        char scratch[16];
        int number = (int)info.ssi_signo;
        if (!agent->group.leaving)
            log_info(&agent->log, "%s from pid %u: stopping the workers",
                     report_signal_name(number, scratch, sizeof scratch), (unsigned)info.ssi_pid);
        agent_event(agent, &(struct group_event){.kind = GROUP_SIGNAL, .signal = number}, NULL);
    }
}

/* HUP, INT and QUIT that were ignored when we started (nohup, a shell's background) stay so. PIPE is blocked
 * so that a console that went away is an error of write, not an end. */
static int watch_signals(struct agent *agent, struct muster_error *err)
{
    static const int stops[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    struct sigaction initial = {.sa_handler = SIG_DFL};
    sigset_t watched, blocked;
    spawn_ignored_signals(&agent->ignored);
    if (sigaction(SIGCHLD, &initial, NULL) < 0) /* ignored, it would take the children's status away */
        return error_errno(err, "sigaction");
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (stops[i] == SIGTERM || sigismember(&agent->ignored, stops[i]) == 0)
            sigaddset(&watched, stops[i]);
    blocked = watched;
    sigaddset(&blocked, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &blocked, NULL); /* fails for a wrong first argument only */
    int fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return error_errno(err, "signalfd");
    agent->signals = (struct loop_source){fd, signals_ready, agent};
    return loop_add(&agent->loop, &agent->signals, EPOLLIN, err);
}

/* --- the guardian --- */

static int watch_guardian(struct agent *agent, struct muster_error *err);

static void guardian_gone(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    (void)events; /* EPOLLERR: nobody has the read end any more */
    loop_remove(&agent->loop, &agent->guard);
    guardian_dismiss(&agent->guardian);
    if (agent->guardians >= GUARDIANS_LIMIT || watch_guardian(agent, &err) < 0)
        log_warning(&agent->log,
                    "the guardian process was killed and there is no other%s%s: if this agent is killed too, "
                    "processes of the workers may stay",
                    *err.text ? ": " : "", err.text);
}

static int watch_guardian(struct agent *agent, struct muster_error *err)
{
    if (agent_start_guardian(agent, err) < 0)
        return -1;
    agent->guard = (struct loop_source){agent->guardian.fd, guardian_gone, agent};
    return agent->guardian.pid ? loop_add(&agent->loop, &agent->guard, 0, err) : 0;
}

/* --- life --- */

static int make_identity(struct agent *agent, struct muster_error *err)
{
    unsigned char bits[KIN_ID_LENGTH / 2];
    if (getrandom(bits, sizeof bits, 0) != sizeof bits)
        return error_errno(err, "getrandom");
    for (size_t i = 0; i < sizeof bits; i++)
        (void)snprintf(agent->id + 2 * i, 3, "%02x", bits[i]);
    const char *outer =
        getenv(ENV_AGENT_ID); /* we may be a worker of another agent, which must find ours too */
    agent->id_chain = outer && *outer ? mem_printf("%s,%s", outer, agent->id) : mem_strdup(agent->id);
    if (!agent->id_chain)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the agent's id");
    if (gethostname(agent->host, sizeof agent->host - 1) < 0)
        return error_errno(err, "gethostname");
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

static int prepare_logs(struct agent *agent, struct muster_error *err)
{
    uint64_t bits;
    if (!logdir_wanted(agent->config))
        return 0;
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        return error_errno(err, "getrandom");
    agent->run_directory = logdir_make(agent->config, bits, err);
    if (!agent->run_directory)
        return -1;
    log_info(&agent->log, "log directory: %s", agent->run_directory);
    return 0;
}

/* Everything that can fail before there is a world. *exit_code on failure. */
static int set_up(struct agent *agent, int *exit_code, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    *exit_code = EXIT_CODE_FAILURE;
    agent->workers = mem_calloc((size_t)config->nproc_per_node, sizeof *agent->workers);
    if (!agent->workers)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %d workers", config->nproc_per_node);
    if (watch_signals(agent, err) < 0 || make_identity(agent, err) < 0 || raise_descriptors(agent, err) < 0 ||
        prepare_logs(agent, err) < 0)
        return -1;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return error_errno(err, "cannot become the reaper of orphans");
    if (watch_guardian(agent, err) < 0 || start_store(agent, err) < 0)
        return -1;
    if (join(agent, err) < 0) {
        bool usage = err->code == MUSTER_E_INVALID || err->code == MUSTER_E_UNSUPPORTED;
        *exit_code = usage ? EXIT_CODE_USAGE : EXIT_CODE_FAILURE;
        return -1;
    }
    return 0;
}

static struct instant next_deadline(const struct agent *agent)
{
    struct instant next = instant_min(agent->group.deadline, agent->sweep_at);
    if (agent->membership)
        next = instant_min(next, membership_deadline(agent->membership));
    return instant_min(next, pump_deadline(agent->pump));
}

static void pass_time(struct agent *agent)
{
    struct instant now = clock_now(NULL);
    if (instant_reached(now, pump_deadline(agent->pump)))
        pump_tick(agent->pump, now);
    if (instant_reached(now, agent->group.deadline))
        agent_event(agent, &(struct group_event){.kind = GROUP_DEADLINE}, NULL);
    else if (instant_reached(now, agent->sweep_at))
        do_kill(agent);
}

static int run(struct agent *agent, struct muster_error *err)
{
    for (;;) {
        ask_seat(agent);
        if (group_wants_empty(&agent->group) && agent_is_childless())
            agent_event(agent, &(struct group_event){.kind = GROUP_EMPTY}, NULL);
        else if (!agent->finished && loop_turn(&agent->loop, next_deadline(agent), err) < 0)
            return -1;
        if (agent->finished)
            return 0;
        pass_time(agent);
    }
}

/* --- the end --- */

static bool same_worker(const struct worker_failure *a, const struct worker_failure *b)
{
    return a->rank == b->rank && a->pid == b->pid && a->group_rank == b->group_rank;
}

/* The verdict's cause and what else was seen here, once. */
static int collect_failures(const struct agent *agent, struct worker_failure *list)
{
    int count = 0;
    struct instant now = clock_now(NULL);
    bool caused = agent->judged && agent->verdict.failed;
    if (caused) { /* the server saw all failures and has decided: here it stays the first */
        list[count] = agent->verdict.failure;
        list[count++].age_ns = INT64_MAX / 2;
    }
    for (int i = 0; i < agent->failure_count; i++) {
        const struct observed_failure *seen = &agent->failures[i];
        if (caused && same_worker(&seen->failure, &list[0]))
            continue;
        list[count] = seen->failure;
        list[count++].age_ns = instant_diff_ns(now, seen->at);
    }
    return count;
}

static void print_outcome(struct agent *agent)
{
    scope_free struct worker_failure *list = mem_calloc(AGENT_FAILURES_KEPT + 1, sizeof *list);
    scope_buffer text = {0};
    int count = list ? collect_failures(agent, list) : 0;
    if (count && report_format(agent->config->program, list, count, &text) == 0)
        pump_print(agent->pump, STDERR_FILENO, text.data, text.length);
    else if (agent->judged && agent->verdict.exit_code)
        log_error(&agent->log, "%s", agent->verdict.reason);
}

static void tear_down(struct agent *agent)
{
    if (agent->workers)
        agent_release_workers(agent);
    guardian_dismiss(&agent->guardian);
    membership_destroy(agent->membership, linger_ns);
    resolver_destroy(agent->resolver);
    tcpstore_server_destroy(agent->store);
    mem_free(agent->id_chain);
    mem_free(agent->run_directory);
    mem_free(agent->program);
    mem_free(agent->workers);
}

/* Standard descriptors that are closed would be taken by the first files that are opened. */
static void open_standard_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
            return; /* no /dev/null: what is written is lost either way */
}

static int run_agent(struct agent *agent)
{
    struct muster_error err = {0};
    int exit_code;
    if (set_up(agent, &exit_code, &err) < 0) {
        log_error(&agent->log, "%s", err.text);
        if (agent->run_directory)
            logdir_discard(agent->config, agent->run_directory);
        return exit_code;
    }
    if (run(agent, &err) < 0) { /* the kernel refuses what it gave before: leave nothing behind */
        log_error(&agent->log, "%s", err.text);
        agent_kill_workers(agent);
        return EXIT_CODE_FAILURE;
    }
    if (agent->group.exit_code)
        print_outcome(agent);
    return agent->group.exit_code;
}

int agent_run(const struct run_config *config, const struct log_sink *log)
{
    struct muster_error err = {0};
    open_standard_descriptors();
    scope_free struct agent *agent = mem_calloc(1, sizeof *agent);
    if (!agent || loop_init(&agent->loop, &err) < 0) {
        log_error(log, "%s", agent ? err.text : "no memory for the agent");
        return EXIT_CODE_FAILURE;
    }
    agent->config = config;
    agent->signals.fd = agent->seat.fd = -1;
    agent->guardian.fd = -1;
    agent->sweep_at = INSTANT_NEVER;
    agent->group = (struct group){.state = GROUP_WAITING,
                                  .shutdown_grace_ns = seconds_ns(config->shutdown_timeout_s),
                                  .restart_grace_ns = seconds_ns(config->restart_grace_s),
                                  .kill_bound_ns = kill_bound_ns,
                                  .deadline = INSTANT_NEVER};
    agent->pump = pump_create(&agent->loop, &err);
    int exit_code = EXIT_CODE_FAILURE;
    if (agent->pump) {
        agent->log = *log;
        agent->log.write = pump_log;
        agent->log.context = agent->pump;
        exit_code = run_agent(agent);
        tear_down(agent);
        (void)pump_destroy(agent->pump); /* what a stuck console did not take cannot be told either */
    } else {
        log_error(log, "%s", err.text);
    }
    if (agent->signals.fd >= 0)
        (void)close(agent->signals.fd);
    loop_close(&agent->loop);
    return exit_code;
}
