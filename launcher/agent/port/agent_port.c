/* agent_port.c - see agent_port.h. */
#include "launcher/agent/port/agent_port.h"

#include <stdio.h>

#include "launcher/agent/agent_server.h"
#include "launcher/loop/background_job.h"
#include "launcher/loop/listener_search.h"
#include "launcher/loop/resolver.h"
#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "rendezvous/net/tcp_listen.h"

struct agent_port {
    struct background_watch asking; /* while the holder of the port is searched */
    struct port_question *question; /* result of asking */
    void (*known)(struct agent *agent, const struct port_holder *holder);
    struct background_watch searching; /* while another node of this name is searched */
    struct listener_search *search;    /* result of searching */
    int claim; /* listens at the job's port since no other node of this name serves; -1: nothing does yet */
    void (*rival_known)(struct agent *agent, const char *address);
};

/* --- the port is in use --- */

struct port_question {
    uint16_t port;
    char bind[ADDRESS_TEXT]; /* "": every address */
    bool joins;              /* a holder of the same program is joined */
    struct port_holder holder;
    bool free;
};

static void ask_holder(void *payload)
{
    struct port_question *question = payload;
    port_holder_find(question->port, &question->holder);
    if (question->joins && question->holder.same_program)
        return;
    question->free = tcp_await_port(*question->bind ? question->bind : NULL, question->port);
    if (!question->free)
        port_holder_find(question->port, &question->holder); /* it may be another one now */
}

static void holder_found(void *context)
{
    struct agent *agent = context;
    const struct port_question question = *agent->port->question;
    background_watch_end(&agent->port->asking);
    agent->port->known(agent, question.free ? NULL : &question.holder);
}

int agent_port_find_holder(struct agent *agent, bool joins,
                           void (*known)(struct agent *agent, const struct port_holder *holder),
                           struct muster_error *err)
{
    struct agent_port *port = agent->port;
    struct port_question *question = mem_calloc(1, sizeof *question);
    if (!question)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    const char *bind = agent_server_address(agent);
    question->port = agent_master_port(agent);
    question->joins = joins;
    (void)snprintf(question->bind, sizeof question->bind, "%s", bind ? bind : "");
    port->question = question;
    port->known = known;
    struct background_job *job =
        background_job_start("finding the holder of a port", ask_holder, question, mem_free, err);
    return background_watch_begin(&port->asking, &agent->loop, job, holder_found, agent, err);
}

/* --- several nodes with one name --- */

static void search_over(void *context)
{
    struct agent *agent = context;
    struct agent_port *port = agent->port;
    char address[ADDRESS_TEXT];
    listener_search_address(port->search, address);
    if (port->search->claim >= 0)
        port->claim = take_fd(&port->search->claim);
    background_watch_end(&port->searching);
    log_info(&agent->log, "the name %s is that of several nodes: %s serves the job",
             agent->config->master_addr, *address ? address : "this one");
    port->rival_known(agent, *address ? address : NULL);
}

/* Adds the addresses of other nodes that go before own, or those that come after it. */
static void list_rivals(const struct agent *agent, const struct resolver *resolver, const char *own,
                        bool before, struct listener_search *search)
{
    const char *address;
    for (int i = 0; (address = resolver_address(resolver, i)); i++)
        if (!agent_server_is_own(agent, address) && before == (own && address_compare(address, own) < 0))
            (void)snprintf(search->addresses[search->count++], ADDRESS_TEXT, "%s", address);
}

int agent_port_seek_rival(struct agent *agent, const struct resolver *resolver,
                          void (*known)(struct agent *agent, const char *address), struct muster_error *err)
{
    static const int64_t patience_ns = 5 * NS_PER_S; /* for each place */
    struct listener_search *search = mem_calloc(1, sizeof *search);
    const char *address, *own = NULL, *bind = agent_server_address(agent);
    if (!search)
        return error_set(err, MUSTER_E_NOMEM, "no memory to look for a server");
    for (int i = 0; (address = resolver_address(resolver, i)); i++)
        if (agent_server_is_own(agent, address) && (!own || address_compare(address, own) < 0))
            own = address;
    list_rivals(agent, resolver, own, true, search);
    search->before = search->count;
    list_rivals(agent, resolver, own, false, search);
    if (!search->count || agent->config->rdzv_conf.is_host > 0) {
        mem_free(search);
        return 0;
    }
    search->port = agent_master_port(agent);
    search->until = instant_add(clock_now(NULL), search->before * patience_ns);
    search->claims = true;
    search->claim = -1;
    (void)snprintf(search->bind, sizeof search->bind, "%s", bind ? bind : "");
    agent->port->search = search;
    agent->port->rival_known = known;
    struct background_job *job =
        background_job_start("looking for a server at the addresses of a name", listener_search_run, search,
                             listener_search_destroy, err);
    return background_watch_begin(&agent->port->searching, &agent->loop, job, search_over, agent, err) < 0
               ? -1
               : 1;
}

int *agent_port_claim(const struct agent *agent)
{
    return &agent->port->claim;
}

void agent_port_describe(const struct agent *agent, char *out, size_t size)
{
    out[0] = '\0';
    if (agent->port && agent->port->searching.job)
        (void)snprintf(out, size,
                       "the name %s belongs to several nodes: looking for the node that serves the job",
                       agent->config->master_addr);
}

/* --- the part --- */

static int agent_port_create(struct agent *agent, struct muster_error *err)
{
    agent->port = mem_calloc(1, sizeof *agent->port);
    if (!agent->port)
        return error_set(err, MUSTER_E_NOMEM, "no memory to serve the job");
    agent->port->claim = -1;
    return 0;
}

static void agent_port_destroy(struct agent *agent)
{
    if (!agent->port)
        return;
    background_watch_end(&agent->port->asking);
    background_watch_end(&agent->port->searching);
    guard_close(&agent->port->claim);
    mem_free(agent->port);
    agent->port = NULL;
}

const struct agent_part agent_port_part = {"port", agent_port_create, NULL, NULL, NULL, agent_port_destroy};
