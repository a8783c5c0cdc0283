/* agent_status.c - the agent's status (status.h) and its servers: the local socket and, with a metrics
 * port, HTTP. See agent_internal.h. */
#include "launcher/agent/agent_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/agent_failures.h"
#include "launcher/agent/agent_membership.h"
#include "launcher/agent/agent_notices.h"
#include "launcher/agent/agent_server.h"
#include "launcher/agent/board/agent_board.h"
#include "launcher/agent/drain/agent_drain.h"
#include "launcher/board/board_json.h"
#include "launcher/policy/stop_notice.h"
#include "launcher/process/hang_dump.h"
#include "launcher/status/status_http.h"
#include "launcher/status/status_socket.h"
#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "rendezvous/net/tcp_listen.h"
#include "rendezvous/tcpstore/tcpstore_server.h"

/* A zeroed one serves no client. */
struct agent_audience {
    struct status_socket *socket;
    struct http_server *server;
    struct status_http http;
};

static void fill_worker(const struct agent *agent, int local_rank, struct instant now,
                        struct status_worker *out)
{
    const struct worker *worker = &agent->round.workers[local_rank];
    const struct heartbeat *beat = &agent->round.beats[local_rank];
    *out = (struct status_worker){.rank = agent->round.world.rank_base + local_rank,
                                  .local_rank = local_rank,
                                  .pid = worker->pid,
                                  .step = -1,
                                  .beat_age_ns = -1};
    bool exited = worker->end_code == CLD_EXITED;
    if (!worker->pid)
        return; /* absent */
    out->figures = beat->figures;
    if (beat->last.ns) {
        out->step = beat->step;
        out->beat_age_ns = instant_diff_ns(now, beat->last);
    }
    if (worker->alive) {
        out->state = STATUS_WORKER_RUNNING;
        return;
    }
    out->state = exited && worker->end_status == 0 ? STATUS_WORKER_EXITED : STATUS_WORKER_FAILED;
    out->exit_code = exited ? worker->end_status : -1;
    out->signal = exited ? 0 : worker->end_status;
}

static void fill_notice(struct agent *agent, struct instant now, struct agent_status *status)
{
    if (agent->group.state != GROUP_SAVING)
        return;
    status->notice.coming = stop_notice_change_name(agent_notices_coming(agent));
    status->notice.listeners = agent_notices_listeners(agent);
    status->notice.left_ns = instant_diff_ns(agent->group.deadline, now);
}

static void fill_store(const struct agent *agent, struct status_store *store)
{
    struct tcpstore_server_stats stats;
    store->there = agent_server_store_stats(agent, &stats);
    if (!store->there)
        return;
    store->bytes = stats.held;
    store->budget = stats.budget;
    store->keys = stats.store.keys;
    store->connections = stats.connections;
    store->requests = stats.requests;
    store->closed = stats.dropped;
    store->crowded_out = stats.crowded_out;
}

static struct agent_status *fill_status(void *context)
{
    struct agent *agent = context;
    const struct run_config *config = agent->config;
    struct agent_status *status = status_create(config->nproc_per_node);
    struct instant now = clock_now(NULL);
    if (!status)
        return NULL;
    status->version = MUSTER_VERSION;
    status->host = agent->host;
    status->job_id = config->rdzv_id;
    status->program = config->program;
    status->role = config->role;
    status->pid = getpid();
    status->uptime_ns = instant_diff_ns(now, agent->started);
    status->state = agent->group.state;
    status->leaving = agent->group.leaving;
    status->exit_code = agent->group.exit_code;
    status->node_rank = (int)config->node_rank;
    status->min_nodes = config->min_nodes;
    status->max_nodes = config->max_nodes;
    status->formed = agent->round.world.world_size > 0;
    status->world = agent->round.world;
    if (agent->group.state == GROUP_WAITING || agent->group.state == GROUP_OVER)
        agent_membership_describe(agent, status->waiting, sizeof status->waiting);
    else if (agent->group.state == GROUP_DONE && agent_membership_has_news(agent))
        (void)snprintf(status->waiting, sizeof status->waiting,
                       "the server has not acknowledged yet that this node is done");
    agent_membership_serving(agent, &status->serving);
    fill_notice(agent, now, status);
    status->max_restarts = config->max_restarts;
    status->failures = agent_failures_seen(agent);
    memcpy(status->round_failures, agent_failures_of_rounds(agent), sizeof status->round_failures);
    struct pump_lost lost = pump_lost(agent->pump);
    status->file_bytes_lost = lost.files;
    status->console_bytes_lost = lost.consoles;
    fill_store(agent, &status->store);
    for (int i = 0; i < config->nproc_per_node; i++)
        fill_worker(agent, i, now, &status->workers[i]);
    return status;
}

/* --- a checkpoint on request --- */

/* A handler is asked for first: without one the signal would end the worker. Any rank will do, they agree on
 * the step. */
static void ask_for_checkpoint(void *context, struct buffer *out)
{
    struct agent *agent = context;
    for (int i = 0; agent->group.state == GROUP_RUNNING && i < agent->round.worker_count; i++) {
        const struct worker *worker = &agent->round.workers[i];
        if (!worker->alive || !process_handles(worker->pid, SIGUSR2))
            continue;
        worker_signal(worker, SIGUSR2, SIGNAL_SCOPE_WORKER);
        log_info(&agent->log, "muster checkpoint: sent SIGUSR2 to rank %d (pid %d)", worker->rank,
                 (int)worker->pid);
        buffer_printf(out, "+%d %d %lld\n", worker->rank, (int)worker->pid,
                      (long long)agent->round.beats[i].step + 1);
        return;
    }
    if (agent->group.state != GROUP_RUNNING)
        buffer_text(out, "-no workers run now (muster status shows the state): ask again when they do\n");
    else
        buffer_text(out, "-no worker of this node handles SIGUSR2, by which checkpoints are requested; "
                         "muster-train does where training.checkpoint_dir is set\n");
}

static void tell_saved(void *context, struct buffer *out)
{
    const struct agent *agent = context;
    buffer_text(out, "+\n");
    for (int i = 0; i < agent->round.worker_count; i++) {
        const struct worker *worker = &agent->round.workers[i];
        const struct worker_saved *saved = &agent->round.beats[i].saved;
        if (worker->alive || saved->there)
            buffer_printf(out, "%d %s %lld %s\n", (int)worker->pid,
                          !saved->there ? "none"
                          : saved->good ? "saved"
                                        : "failed",
                          (long long)saved->step, saved->text);
    }
}

/* --- the page --- */

static void fill_board(void *context, struct buffer *out)
{
    struct board *board = agent_board(context);
    if (board)
        board_json(board, agent_board_now(context), false, out);
    else
        out->failed = true;
}

/* For clients of the local socket: with the lines. */
static void fill_board_lines(void *context, struct buffer *out)
{
    struct board *board = agent_board(context);
    if (board)
        board_json(board, agent_board_now(context), true, out);
}

static void ask_to_drain(void *context, const char *request, struct buffer *out)
{
    agent_drain_ask(context, request, out);
}

static void fill_lines(void *context, int rank, struct buffer *out)
{
    struct board *board = agent_board(context);
    if (board)
        board_lines_json(board, rank, out);
    else
        out->failed = true;
}

static int read_token(const struct run_config *config, struct page_keys *keys, struct muster_error *err)
{
    enum { TOKEN_FILE = 4096 };
    unsigned char random[PAGE_SESSION / 2];
    scope_buffer text = {0};
    if (!config->page_token_file || !*config->page_token_file)
        return 0;
    if (io_read_file(config->page_token_file, TOKEN_FILE, &text, err) < 0 ||
        page_access_token(text.data ? text.data : "", text.length, keys, err) < 0)
        return error_wrap(err, "--page-token-file");
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return error_errno(err, "getrandom");
    for (size_t i = 0; i < sizeof random; i++)
        (void)snprintf(keys->session + 2 * i, 3, "%02x", random[i]);
    return 0;
}

static int serve_http(struct agent *agent, struct agent_audience *audience, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    audience->http =
        (struct status_http){.fill = fill_status, .board = fill_board, .lines = fill_lines, .context = agent};
    if (read_token(config, &audience->http.keys, err) < 0)
        return -1;
    struct http_server_options options = {.loop = &agent->loop,
                                          .address = config->metrics_addr,
                                          .port = (uint16_t)config->metrics_port,
                                          .admit = status_http_admit,
                                          .answer = status_http_answer,
                                          .context = &audience->http};
    (void)tcp_await_port(options.address, options.port); /* the error is http_server_start's */
    audience->server = http_server_start(&options, err);
    if (!audience->server)
        return error_wrap(err, "--metrics-port");
    audience->http.keys.port = http_server_port(audience->server);
    const char *address = agent->config->metrics_addr;
    if (!address || address_is_any(address))
        address = "127.0.0.1";
    const bool six = address_is_six(address);
    log_info(&agent->log, "the job's page: http://%s%s%s:%u/", six ? "[" : "", address, six ? "]" : "",
             (unsigned)audience->http.keys.port);
    return 0;
}

static int audience_create(struct agent *agent, struct muster_error *err)
{
    struct muster_error quiet = {0};
    struct status_socket_options options = {.loop = &agent->loop,
                                            .agent_id = agent->id,
                                            .fill = fill_status,
                                            .checkpoint = ask_for_checkpoint,
                                            .saved = tell_saved,
                                            .board = fill_board_lines,
                                            .drain = ask_to_drain,
                                            .context = agent};
    agent->audience = mem_calloc(1, sizeof *agent->audience);
    if (!agent->audience)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the status");
    agent->audience->socket = status_socket_open(&options, &quiet);
    if (!agent->audience->socket) /* a sandbox may forbid it, which is no reason to fail the job */
        log_warning(&agent->log, "muster status will not find this agent: %s", quiet.text);
    return agent->config->metrics_port ? serve_http(agent, agent->audience, err) : 0;
}

static void audience_destroy(struct agent *agent)
{
    struct agent_audience *audience = agent->audience;
    if (!audience)
        return;
    http_server_stop(audience->server);
    status_socket_close(audience->socket);
    mem_free(audience);
    agent->audience = NULL;
}

const struct agent_part agent_status_part = {"status", audience_create, NULL, NULL, NULL, audience_destroy};
