/* agent_search.c - the entries are asked in turn, one each second (names of other pods less often): any agent
 * there that takes part in votes, or serves, knows the server. The first entry is the membership's own
 * server. While its name does not resolve there is no membership that could ask; an entry at which a program
 * listens is joined instead. Nothing listens there before the job has begun. See agent_search.h. */
#include "launcher/agent/search/agent_search.h"

#include <stdio.h>

#include "launcher/agent/agent_membership.h"
#include "launcher/agent/agent_server.h"
#include "launcher/loop/background_job.h"
#include "launcher/loop/listener_search.h"
#include "launcher/loop/resolver.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"

static const int64_t look_up_ns = 3 * NS_PER_S;

/* All pods of a large job may wait for the endpoint, and ask for each other's names. */
static int64_t ask_every_ns(const struct agent *agent)
{
    static const int64_t least_ns = 2 * NS_PER_S, node_ns = 30 * NS_PER_MS;
    const int64_t crowd_ns = agent->config->max_nodes * node_ns;
    if (!agent->config->endpoints_derived)
        return NS_PER_S;
    return crowd_ns > least_ns ? crowd_ns : least_ns;
}

/* At all times: name is in the loop if there is a resolver. */
struct agent_search {
    int at; /* the entry that was asked last */
    struct instant ask_at;
    bool told; /* that it asks pods whose names were derived */
    struct resolver *resolver;
    struct loop_source name;
    struct background_watch probing;
    struct listener_search *probe; /* while it is under way */
};

static void probe_over(void *context)
{
    struct agent *agent = context;
    struct agent_search *search = agent->search;
    char address[ADDRESS_TEXT];
    listener_search_address(search->probe, address);
    background_watch_end(&search->probing);
    search->probe = NULL;
    if (!*address || !agent_membership_resolves(agent))
        return;
    log_info(&agent->log, "the name %s does not resolve: looking for the job at %s, entry %d of the list",
             agent->config->master_addr, address, search->at + 1);
    agent_membership_join_at(agent, address);
}

static void probe(struct agent *agent, const char *address, uint16_t port)
{
    struct agent_search *search = agent->search;
    struct muster_error err = {0};
    if (search->probe || port != agent_master_port(agent))
        return;
    struct listener_search *question = mem_calloc(1, sizeof *question);
    if (!question)
        return; /* its turn comes again */
    (void)snprintf(question->addresses[0], ADDRESS_TEXT, "%s", address);
    question->count = 1;
    question->claim = -1;
    question->port = port;
    question->until = clock_now(NULL);
    struct background_job *job =
        background_job_start("looking for the job at another endpoint", listener_search_run, question,
                             listener_search_destroy, &err);
    if (background_watch_begin(&search->probing, &agent->loop, job, probe_over, agent, &err) < 0)
        log_warning(&agent->log, "%s", err.text);
    else
        search->probe = question;
}

static void try_address(struct agent *agent, const char *address, uint16_t port)
{
    if (agent_membership_resolves(agent))
        probe(agent, address, port);
    else
        agent_membership_ask(agent, address, port);
}

static void end_look_up(struct agent *agent)
{
    struct agent_search *search = agent->search;
    if (!search->resolver)
        return;
    loop_remove(&agent->loop, &search->name);
    resolver_destroy(search->resolver);
    search->resolver = NULL;
}

static void name_known(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct agent_search *search = agent->search;
    const uint16_t port = agent->config->endpoints[search->at].port;
    char address[ADDRESS_TEXT];
    struct muster_error err = {0};
    (void)events;
    if (resolver_result(search->resolver, address, sizeof address, &err) < 0) {
        log_debug(&agent->log, "%s", err.text); /* its turn comes again */
    } else {
        const char *other;
        for (int i = 0; (other = resolver_address(search->resolver, i)); i++)
            try_address(agent, other, port);
    }
    end_look_up(agent);
}

static void ask(struct agent *agent, const struct config_endpoint *entry, struct instant now)
{
    struct agent_search *search = agent->search;
    struct muster_error err = {0};
    if (address_is_numeric(entry->host)) {
        try_address(agent, entry->host, entry->port);
        return;
    }
    struct resolver *resolver = resolver_start(entry->host, instant_add(now, look_up_ns), &err);
    if (resolver) {
        search->name = (struct loop_source){resolver_fd(resolver), name_known, agent};
        if (loop_add(&agent->loop, &search->name, EPOLLIN, &err) == 0) {
            search->resolver = resolver;
            return;
        }
        resolver_destroy(resolver);
    }
    log_warning(&agent->log, "%s", err.text);
}

/* Whether there is an entry besides the first and this node's own. */
static bool has_others(const struct run_config *config)
{
    const bool own = config->endpoints_derived && config->own_endpoint > 0;
    return config->endpoint_count > (own ? 2 : 1);
}

static bool seeks(const struct agent *agent)
{
    return has_others(agent->config) && !agent->finished && !agent->search->resolver &&
           !agent->search->probe && (agent_membership_seeks(agent) || agent_membership_resolves(agent));
}

/* --- the part --- */

static int agent_search_create(struct agent *agent, struct muster_error *err)
{
    agent->search = mem_calloc(1, sizeof *agent->search);
    if (!agent->search)
        return error_set(err, MUSTER_E_NOMEM, "no memory to look for the job");
    agent->search->ask_at = instant_add(clock_now(NULL), ask_every_ns(agent));
    return 0;
}

static struct instant agent_search_deadline(const struct agent *agent)
{
    return seeks(agent) ? agent->search->ask_at : INSTANT_NEVER;
}

/* This node's own entry is passed over. */
static int next_entry(const struct agent *agent)
{
    const struct run_config *config = agent->config;
    int at = agent->search->at % (config->endpoint_count - 1) + 1;
    if (config->endpoints_derived && at == config->own_endpoint)
        at = at % (config->endpoint_count - 1) + 1;
    return at;
}

/* Once. A member of a world looks for its next server, and has said so. */
static void tell_of_search(struct agent *agent, const struct config_endpoint *first)
{
    if (agent->search->told || agent->round.world.id.epoch)
        return;
    agent->search->told = true;
    if (agent->config->endpoints_derived)
        log_info(&agent->log, "no server is known yet: asking the job's other pods, %s first", first->host);
    else
        log_info(&agent->log,
                 "no server is known yet: asking the other entries of --rdzv-endpoint, %s:%u first",
                 first->host, (unsigned)first->port);
}

static void agent_search_tick(struct agent *agent, struct instant now)
{
    struct agent_search *search = agent->search;
    if (!seeks(agent) || !instant_reached(now, search->ask_at))
        return;
    search->ask_at = instant_add(now, ask_every_ns(agent));
    search->at = next_entry(agent);
    const struct config_endpoint *entry = &agent->config->endpoints[search->at];
    tell_of_search(agent, entry);
    ask(agent, entry, now);
}

static void agent_search_destroy(struct agent *agent)
{
    if (!agent->search)
        return;
    end_look_up(agent);
    background_watch_end(&agent->search->probing);
    mem_free(agent->search);
    agent->search = NULL;
}

const struct agent_part agent_search_part = {
    "search", agent_search_create, agent_search_deadline, agent_search_tick, NULL, agent_search_destroy};
