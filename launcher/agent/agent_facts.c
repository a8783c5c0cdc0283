/* agent_facts.c - what this node has goes into the job's store, and the agent of group rank 0 names the
 * differences between the nodes that break jobs, once. A thread does it while the workers start: nobody waits
 * for it, and what it cannot do is left. See agent_internal.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/loop/background_job.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "rendezvous/tcpstore/tcpstore_client.h"
#include "runtime/nccl/doctor/node_facts.h"

static const int64_t patience_ns = 60 * NS_PER_S; /* for agents that are slow to start their workers */

/* The thread's own: nothing of the agent is looked at by it. */
struct exchange {
    char address[MEMBERSHIP_NAME_LIMIT], prefix[32];
    uint16_t port;
    int rank, count;
    struct node_facts own;
    struct buffer differences;
    struct muster_error err;
};

struct agent_facts {
    struct background_watch asking;
    struct exchange *exchange; /* of asking */
    char *told;                /* the last differences; NULL: none */
};

/* --- the thread --- */

static int publish(struct exchange *e, struct tcpstore_client *client)
{
    scope_buffer text = {0};
    char key[16];
    (void)snprintf(key, sizeof key, "%d", e->rank);
    if (node_facts_write(&e->own, &text) < 0)
        return error_set(&e->err, MUSTER_E_NOMEM, "no memory for this node's facts");
    return tcpstore_client_set(client, key, text.data, text.length, &e->err);
}

/* Of a node that says nothing in time (an older agent, or one that was told not to) nothing is known. */
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

static int collect(struct exchange *e, struct tcpstore_client *client)
{
    scope_free struct node_facts *nodes = mem_calloc((size_t)e->count, sizeof *nodes);
    struct instant deadline = instant_add(clock_now(NULL), patience_ns);
    if (!nodes)
        return error_set(&e->err, MUSTER_E_NOMEM, "no memory for %d nodes' facts", e->count);
    for (int rank = 0; rank < e->count; rank++)
        collect_one(e, client, rank, deadline, &nodes[rank]);
    return node_facts_compare(nodes, e->count, &e->differences);
}

static void run_exchange(void *payload)
{
    struct exchange *e = payload;
    const struct tcpstore_client_options options = {
        .host = e->address, .port = e->port, .prefix = e->prefix, .timeout_ns = patience_ns};
    struct tcpstore_client *client GUARD(guard_tcpstore_client) = tcpstore_client_connect(&options, &e->err);
    if (client && publish(e, client) == 0 && e->rank == 0)
        (void)collect(e, client); /* e->err is shown */
}

static void free_exchange(void *payload)
{
    struct exchange *e = payload;
    buffer_free(&e->differences);
    mem_free(e);
}

/* --- the agent --- */

int agent_open_facts(struct agent *agent, struct muster_error *err)
{
    agent->facts = mem_calloc(1, sizeof *agent->facts);
    return agent->facts ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory");
}

void agent_close_facts(struct agent *agent)
{
    if (!agent->facts)
        return;
    background_watch_end(&agent->facts->asking);
    mem_free(agent->facts->told);
    mem_free(agent->facts);
    agent->facts = NULL;
}

static void tell(struct agent *agent, const char *differences)
{
    struct agent_facts *facts = agent->facts;
    if (facts->told && !strcmp(facts->told, differences))
        return;
    mem_free(facts->told);
    facts->told = mem_strdup(differences);
    for (const char *line = differences; *line;) {
        size_t length = strcspn(line, "\n");
        log_warning(&agent->log, "the nodes differ: %.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

static void exchanged(void *context)
{
    struct agent *agent = context;
    const struct exchange *e = agent->facts->exchange;
    if (*e->err.text)
        log_debug(&agent->log, "the nodes' facts: %s", e->err.text);
    if (e->differences.length)
        tell(agent, e->differences.data);
    background_watch_end(&agent->facts->asking);
}

void agent_exchange_facts(struct agent *agent)
{
    struct agent_facts *facts = agent->facts;
    const struct membership_world *world = &agent->world;
    struct muster_error err = {0};
    background_watch_end(&agent->facts->asking);
    if (world->group_world_size < 2 || !agent->tune->looked || agent->tune->mode == NCCL_ENV_OFF)
        return;
    if (agent->config->worker_store != WORKER_STORE_AGENT)
        return; /* there is no store but the one that a worker may open */
    struct exchange *e = mem_calloc(1, sizeof *e);
    if (!e)
        return;
    memcpy(e->address, world->master_addr, sizeof e->address);
    (void)snprintf(e->prefix, sizeof e->prefix, "muster/facts/%" PRIu32, world->id.round);
    e->port = world->master_port;
    e->rank = world->group_rank;
    e->count = world->group_world_size;
    node_facts_take(&agent->tune->machine, agent->host, &e->own);
    facts->exchange = e;
    struct background_job *errand =
        background_job_start("comparing the nodes", run_exchange, e, free_exchange, &err);
    if (background_watch_begin(&facts->asking, &agent->loop, errand, exchanged, agent, &err) < 0)
        log_debug(&agent->log, "%s", err.text);
}
