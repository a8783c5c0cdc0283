/* agent_nccl.c - NCCL's environment, decided when there is a world, the nodes' facts, compared while its
 * workers start, and the warnings in NCCL's own files. See agent_nccl.h. */
#include "launcher/agent/agent_nccl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent/agent_membership.h"
#include "launcher/agent/agent_output.h"
#include "launcher/agent/agent_server.h"
#include "launcher/loop/background_job.h"
#include "launcher/nccl/nccl_log.h"
#include "launcher/nccl/path_check.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text_list.h"
#include "rendezvous/security/secret.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "rendezvous/tcpstore/tcpstore_client.h"
#include "runtime/nccl/doctor/node_facts.h"

static const int64_t writing_bound_ns = 2 * NS_PER_S;
static const int64_t log_every_ns = 2 * NS_PER_S, log_patience_ns = NS_PER_S;
static const int64_t store_patience_ns = 20 * NS_PER_S; /* with a store that was open before the world */
static const int64_t facts_patience_ns = 60 * NS_PER_S; /* for agents that are slow to start their workers */

enum { COLUMNS = 120 };

struct exchange;

struct agent_nccl {
    char **environment; /* the workers'; NULL: the agent's own */
    char *logged;       /* the last summary; NULL: none */
    struct background_job *writing;
    struct background_watch asking;  /* while the nodes' facts are exchanged */
    struct exchange *exchange;       /* result of asking */
    char *told_differences;          /* the last ones; NULL: none */
    struct nccl_log *files;          /* this round's; NULL: NCCL writes none */
    struct background_watch probing; /* while the paths between the nodes are checked */
    struct path_check *paths;        /* result of probing */
    struct background_watch reading;
    struct nccl_log *read;  /* files that are being read: of this round or the last; held */
    bool once_more;         /* a round has ended while they were read */
    struct instant read_at; /* the next time */
};

char *const *agent_nccl_environment(const struct agent *agent)
{
    return agent->nccl->environment ? agent->nccl->environment : environ;
}

/* --- nccl.json --- */

struct record {
    char *path;
    struct buffer text;
};

static void write_record(void *payload)
{
    struct record *record = payload;
    /* a log that cannot be written is no reason to delay a job; --nccl-tune=explain prints the same */
    (void)io_write_file_atomic(record->path, record->text.data, record->text.length, 0644, NULL);
}

static void free_record(void *payload)
{
    struct record *record = payload;
    mem_free(record->path);
    buffer_free(&record->text);
    mem_free(record);
}

static void keep_record(struct agent *agent)
{
    struct agent_nccl *nccl = agent->nccl;
    struct muster_error err = {0};
    if (!agent_output_run_directory(agent) || (nccl->writing && !background_job_is_done(nccl->writing)))
        return;
    struct record *record = mem_calloc(1, sizeof *record);
    if (!record)
        return;
    record->path = mem_printf("%s/nccl.json", agent_output_run_directory(agent));
    if (!record->path || nccl_env_json(agent->tune, &record->text) < 0) {
        free_record(record);
        return;
    }
    background_job_release(nccl->writing);
    nccl->writing = background_job_start("writing nccl.json", write_record, record, free_record, &err);
    if (!nccl->writing)
        log_debug(&agent->log, "%s", err.text);
}

/* --- log lines --- */

static void tell_lines(const struct agent *agent, char *lines)
{
    for (char *rest = lines, *line; (line = strsep(&rest, "\n"));)
        if (*line)
            log_info(&agent->log, "%s", line);
}

/* One line if a variable was set or warned about, repeated only if it has changed. */
static void tell_decisions(struct agent *agent)
{
    struct agent_nccl *nccl = agent->nccl;
    const struct decision_list *list = &agent->tune->decisions;
    const struct decision *warned = decision_first(list, DECISION_WARNED);
    const bool explains = agent->tune->mode == NCCL_ENV_EXPLAIN;
    scope_buffer line = {0}, table = {0};
    if (decision_summary(list, &line) < 0 || (nccl->logged && !strcmp(nccl->logged, line.data)))
        return;
    mem_free(nccl->logged);
    nccl->logged = mem_strdup(line.data);
    if (warned && explains)
        log_warning(&agent->log, "%s", line.data);
    else if (warned)
        log_warning(&agent->log, "%s; %s%s%.100s: %s; --nccl-tune=explain prints all reasons", line.data,
                    warned->name, *warned->value ? "=" : "", warned->value, warned->reason);
    else if (explains || decision_first(list, DECISION_SET))
        log_info(&agent->log, "%s", line.data);
    if (explains && decision_print(list, COLUMNS, &table) == 0 && table.data)
        tell_lines(agent, table.data);
}

int agent_nccl_decide(struct agent *agent, struct muster_error *err)
{
    struct agent_nccl *nccl = agent->nccl;
    const struct membership_world *world = &agent->round.world;
    const char *run_directory = agent_output_run_directory(agent);
    scope_free char *attempt = NULL;
    if (!agent->tune->looked)
        return 0;
    const char *server = agent_membership_server_address(agent);
    if (run_directory)
        attempt = mem_printf("%s/attempt_%lld", run_directory, (long long)world->restart_count);
    const struct nccl_env_place place = {.nnodes = world->group_world_size,
                                         .master_address = *server ? server : NULL,
                                         .here = agent_membership_serves(agent),
                                         .log_dir = attempt};
    char **environment = nccl_env_decide(agent->tune, &place, err) < 0
                             ? NULL
                             : nccl_env_environment(agent->tune, environ, err);
    if (!environment)
        return -1;
    text_list_free_items(nccl->environment);
    nccl->environment = environment;
    tell_decisions(agent);
    keep_record(agent);
    return 0;
}

/* --- the nodes' facts: the thread --- */

/* Owned by the thread: it reads nothing of the agent. */
struct exchange {
    char address[MEMBERSHIP_NAME_LIMIT], prefix[32];
    uint16_t port;
    bool has_key;     /* the job has a secret, and key is the store's */
    bool unreachable; /* result: the store has not answered */
    unsigned char key[MAC_KEY_SIZE];
    int rank, count;
    struct node_facts own;
    struct buffer differences;
    struct muster_error err;
};

static int publish_facts(struct exchange *e, struct tcpstore_client *client)
{
    scope_buffer text = {0};
    char key[16];
    (void)snprintf(key, sizeof key, "%d", e->rank);
    if (node_facts_write(&e->own, &text) < 0)
        return error_set(&e->err, MUSTER_E_NOMEM, "no memory for this node's facts");
    return tcpstore_client_set(client, key, text.data, text.length, &e->err);
}

/* A node that publishes nothing in time (an older agent, or one with this switched off) is unknown. */
static void collect_one(struct exchange *e, struct tcpstore_client *client, int rank, struct instant deadline,
                        struct node_facts *out)
{
    scope_buffer text = {.limit = NODE_FACTS_LIMIT};
    char key[16];
    int64_t left = instant_diff_ns(deadline, clock_now(NULL));
    (void)snprintf(key, sizeof key, "%d", rank);
    if (tcpstore_client_get(client, key, &text, left > 0 ? left : 1, &e->err) < 0 ||
        node_facts_read(text.data ? text.data : "", text.length, out, &e->err) < 0)
        *out = (struct node_facts){0};
    else
        (void)tcpstore_client_delete(client, key, NULL, NULL); /* the store is the workers' */
}

static int collect_facts(struct exchange *e, struct tcpstore_client *client)
{
    scope_free struct node_facts *nodes = mem_calloc((size_t)e->count, sizeof *nodes);
    struct instant deadline = instant_add(clock_now(NULL), facts_patience_ns);
    if (!nodes)
        return error_set(&e->err, MUSTER_E_NOMEM, "no memory for %d nodes' facts", e->count);
    for (int rank = 0; rank < e->count; rank++)
        collect_one(e, client, rank, deadline, &nodes[rank]);
    return node_facts_compare(nodes, e->count, &e->differences);
}

static void run_exchange(void *payload)
{
    struct exchange *e = payload;
    const struct tcpstore_client_options options = {.host = e->address,
                                                    .port = e->port,
                                                    .prefix = e->prefix,
                                                    .key = e->has_key ? e->key : NULL,
                                                    .timeout_ns = store_patience_ns};
    struct tcpstore_client *client GUARD(guard_tcpstore_client) = tcpstore_client_connect(&options, &e->err);
    e->unreachable = !client && e->err.code == MUSTER_E_TIMEOUT;
    if (client && publish_facts(e, client) == 0 && e->rank == 0)
        (void)collect_facts(e, client); /* e->err is logged */
}

static void free_exchange(void *payload)
{
    struct exchange *e = payload;
    buffer_free(&e->differences);
    explicit_bzero(e->key, sizeof e->key);
    mem_free(e);
}

/* --- the same: the agent --- */

static void tell_differences(struct agent *agent, const char *differences)
{
    struct agent_nccl *nccl = agent->nccl;
    if (nccl->told_differences && !strcmp(nccl->told_differences, differences))
        return;
    mem_free(nccl->told_differences);
    nccl->told_differences = mem_strdup(differences);
    for (const char *line = differences; *line;) {
        size_t length = strcspn(line, "\n");
        log_warning(&agent->log, "the nodes differ: %.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

static void exchanged(void *context)
{
    struct agent *agent = context;
    const struct exchange *e = agent->nccl->exchange;
    if (e->unreachable) /* the workers would say so after their own time-out, of minutes */
        log_warning(
            &agent->log,
            "the workers' store at %s port %u does not answer this node: workers here cannot reach "
            "MASTER_ADDR and MASTER_PORT. A firewall or a NetworkPolicy must leave all ports open between "
            "the nodes of a job (%s)",
            e->address, (unsigned)e->port, e->err.text);
    else if (*e->err.text)
        log_debug(&agent->log, "the nodes' facts: %s", e->err.text);
    if (e->differences.length)
        tell_differences(agent, e->differences.data);
    background_watch_end(&agent->nccl->asking);
}

/* The workers of a world were started: publishes this node's facts. No node waits for it, and failures are
 * ignored. */
static void exchange_facts(struct agent *agent)
{
    struct agent_nccl *nccl = agent->nccl;
    const struct membership_world *world = &agent->round.world;
    struct muster_error err = {0};
    background_watch_end(&agent->nccl->asking);
    if (world->group_world_size < 2 || !agent->tune->looked || agent->tune->mode == NCCL_ENV_OFF)
        return;
    if (agent->config->worker_store != WORKER_STORE_AGENT)
        return; /* the only store is that of a worker, which may not be open yet */
    struct exchange *e = mem_calloc(1, sizeof *e);
    if (!e)
        return;
    memcpy(e->address, world->master_addr, sizeof e->address);
    (void)snprintf(e->prefix, sizeof e->prefix, "muster/facts/%" PRIu32, world->id.round);
    e->port = world->master_port;
    e->has_key = agent_server_copy_store_key(agent, e->key);
    e->rank = world->group_rank;
    e->count = world->group_world_size;
    node_facts_take(&agent->tune->machine, agent->host, &e->own);
    nccl->exchange = e;
    struct background_job *job =
        background_job_start("comparing the nodes", run_exchange, e, free_exchange, &err);
    if (background_watch_begin(&nccl->asking, &agent->loop, job, exchanged, agent, &err) < 0)
        log_debug(&agent->log, "%s", err.text);
}

/* --- the paths between the nodes --- */

static void run_path_check(void *payload)
{
    path_check_run(payload);
}

static void free_path_check(void *payload)
{
    struct path_check *check = payload;
    buffer_free(&check->findings);
    explicit_bzero(check->key, sizeof check->key);
    mem_free(check);
}

static void paths_checked(void *context)
{
    struct agent *agent = context;
    const struct path_check *check = agent->nccl->paths;
    if (*check->err.text)
        log_warning(&agent->log, "pre-flight: the paths between the nodes were not all checked: %s",
                    check->err.text);
    for (const char *line = check->findings.length ? check->findings.data : ""; *line;) {
        size_t length = strcspn(line, "\n");
        log_error(&agent->log, "pre-flight: %.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
    if (!*check->err.text && !check->findings.length)
        log_info(&agent->log, "pre-flight: the paths to %d other nodes take packets of full size",
                 check->peers);
    background_watch_end(&agent->nccl->probing);
}

/* While the workers start: a broken path is found before their own time-outs. Failures are
 * logged alone. */
static void check_paths(struct agent *agent)
{
    struct agent_nccl *nccl = agent->nccl;
    const struct membership_world *world = &agent->round.world;
    struct muster_error err = {0};
    background_watch_end(&nccl->probing);
    if (!agent->config->pre_flight || world->group_world_size < 2 ||
        agent->config->worker_store != WORKER_STORE_AGENT)
        return;
    struct path_check *check = mem_calloc(1, sizeof *check);
    if (!check)
        return;
    struct node_facts own;
    node_facts_take(&agent->tune->machine, agent->host, &own);
    (void)snprintf(check->store, sizeof check->store, "%s", world->master_addr);
    (void)snprintf(check->prefix, sizeof check->prefix, "muster/paths/%" PRIu32, world->id.round);
    (void)snprintf(check->host, sizeof check->host, "%s", agent->host);
    (void)snprintf(check->address, sizeof check->address, "%s", own.address);
    check->port = world->master_port;
    check->has_key = agent_server_copy_store_key(agent, check->key);
    check->rank = world->group_rank;
    check->count = world->group_world_size;
    nccl->paths = check;
    struct background_job *job = background_job_start("checking the paths between nodes", run_path_check,
                                                      check, free_path_check, &err);
    if (background_watch_begin(&nccl->probing, &agent->loop, job, paths_checked, agent, &err) < 0)
        log_warning(&agent->log, "pre-flight: %s", err.text);
}

/* --- what NCCL warns of in files of its own --- */

static void have_read(void *context);

/* One job at a time. pids NULL: the same as before. */
static void read_log(struct agent *agent, struct nccl_log *files, const pid_t *pids)
{
    struct agent_nccl *nccl = agent->nccl;
    struct muster_error err = {0};
    struct background_job *job = nccl_log_read(files, pids, agent->round.worker_count, &err);
    if (background_watch_begin(&nccl->reading, &agent->loop, job, have_read, agent, &err) < 0)
        log_debug(&agent->log, "%s", err.text);
    else
        nccl->read = nccl_log_hold(files);
}

static void have_read(void *context)
{
    struct agent *agent = context;
    struct agent_nccl *nccl = agent->nccl;
    struct nccl_log *files = take_pointer(&nccl->read);
    struct nccl_log_warning warning;
    background_watch_end(&nccl->reading);
    while (nccl_log_take(files, &warning))
        log_warning(&agent->log, "rank %d: %s (%s)", warning.rank, warning.text, warning.path);
    if (nccl->once_more) {
        nccl->once_more = false;
        read_log(agent, files, NULL);
    }
    nccl_log_release(files);
}

static void read_round(struct agent *agent)
{
    struct agent_nccl *nccl = agent->nccl;
    scope_free pid_t *pids = mem_calloc((size_t)agent->round.worker_count, sizeof *pids);
    nccl->read_at = instant_add(clock_now(NULL), log_every_ns);
    if (nccl->reading.job || !pids)
        return;
    for (int i = 0; i < agent->round.worker_count; i++)
        pids[i] = agent->round.workers[i].pid;
    read_log(agent, nccl->files, pids);
}

/* The last lines of a round say most: they are read after the next event. */
static void end_files(struct agent *agent)
{
    struct agent_nccl *nccl = agent->nccl;
    if (!nccl->files)
        return;
    if (nccl->reading
            .job) /* a read of this round, or of an older one with a slow file system, keeps its turn */
        nccl->once_more = true;
    else
        read_round(agent);
    nccl_log_release(take_pointer(&nccl->files));
}

/* At the end of the job they are waited for, with a bound. */
static void await_files(struct agent *agent)
{
    struct agent_nccl *nccl = agent->nccl;
    end_files(agent);
    for (int i = 0; i < 2; i++) /* the one under way, and once more */
        if (nccl->reading.job && background_job_wait(nccl->reading.job, log_patience_ns))
            have_read(agent);
}

/* --- the part --- */

static int nccl_create(struct agent *agent, struct muster_error *err)
{
    if (agent->tune->unfit)
        return error_set(err, MUSTER_E_STATE, "%s; it does not join the job", agent->tune->unfit);
    agent->nccl = mem_calloc(1, sizeof *agent->nccl);
    return agent->nccl ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for NCCL's settings");
}

static struct instant nccl_deadline(const struct agent *agent)
{
    return agent->nccl->files && !agent->nccl->reading.job ? agent->nccl->read_at : INSTANT_NEVER;
}

static void nccl_tick(struct agent *agent, struct instant now)
{
    if (instant_reached(now, nccl_deadline(agent)))
        read_round(agent);
}

static void nccl_event(struct agent *agent, const struct agent_event *event)
{
    if (!agent->nccl) /* an unfit node's end */
        return;
    if (event->kind == AGENT_STARTED && event->code) {
        exchange_facts(agent);
        check_paths(agent);
        struct agent_nccl *nccl = agent->nccl;
        const char *pattern = text_list_value(agent_nccl_environment(agent), "NCCL_DEBUG_FILE");
        if (nccl_log_is_file(pattern)) /* without memory nothing is read */
            nccl->files = nccl_log_create(pattern, agent->host, agent->round.world.rank_base);
        nccl->read_at = instant_add(clock_now(NULL), log_every_ns);
    } else if (event->kind == AGENT_ROUND_ENDS) {
        end_files(agent);
    } else if (event->kind == AGENT_ENDED) {
        await_files(agent);
    }
}

/* Waits for the write in progress, with a bound. */
static void nccl_destroy(struct agent *agent)
{
    struct agent_nccl *nccl = agent->nccl;
    if (!nccl)
        return;
    background_watch_end(&nccl->asking);
    background_watch_end(&nccl->probing);
    background_watch_end(&nccl->reading);
    nccl_log_release(nccl->read);
    nccl_log_release(nccl->files);
    if (nccl->writing && !background_job_wait(nccl->writing, writing_bound_ns))
        log_debug(&agent->log, "nccl.json: its file system does not respond");
    background_job_release(nccl->writing);
    text_list_free_items(nccl->environment);
    mem_free(nccl->logged);
    mem_free(nccl->told_differences);
    mem_free(nccl);
    agent->nccl = NULL;
}

const struct agent_part agent_nccl_part = {"nccl",    nccl_create, nccl_deadline,
                                           nccl_tick, nccl_event,  nccl_destroy};
