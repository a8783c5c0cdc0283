/* agent_server.c - serving the job: who does, what follows where the port is taken, and when it is free
 * again. The workers' store beside the roster is in agent_store.c. See agent_internal.h. */
#include <string.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/loop/background_job.h"
#include "launcher/loop/resolver.h"
#include "launcher/policy/server_choice.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/exit_code.h"
#include "rendezvous/net/port_holder.h"

/* --- the port is taken --- */

struct port_question {
    uint16_t port;
    struct port_holder holder;
};

static void ask_holder(void *payload)
{
    struct port_question *question = payload;
    port_holder_find(question->port, &question->holder);
}

/* What the master's address is where no other agent of this machine must be met. */
static const char *own_address(const char *bound)
{
    return !strcmp(bound, "0.0.0.0") ? "127.0.0.1" : bound;
}

/* Several agents of one machine may have one endpoint: the first to come serves, the others join it. Whether
 * it is this job's is for its server to say. Anything else on the port is an error. */
static void holder_known(void *context)
{
    struct agent *agent = context;
    const struct run_config *config = agent->config;
    struct muster_error err = {0};
    char text[64];
    const struct port_holder holder = agent->port_question->holder;
    background_watch_end(&agent->port_asking);
    port_holder_text(&holder, text, sizeof text);
    if (server_choice_joins_holder(config->elastic, config->rdzv_conf.is_host > 0, holder.same_program)) {
        log_info(&agent->log, "port %u of this machine is served by another agent, %s: joining it",
                 (unsigned)agent_master_port(agent), text);
        agent_close_store(agent);
        if (agent_take_seat(agent, MEMBERSHIP_CLIENT, own_address(agent_address_to_serve(agent)), &err) < 0)
            agent_lose_seat(agent, err.text, EXIT_CODE_FAILURE);
        return;
    }
    error_set(&err, MUSTER_E_BUSY,
              "port %u is in use by %s, and this node must serve the job's world on it: stop that program or "
              "choose another %s (whatever serves there is not joined as a client)",
              (unsigned)agent_master_port(agent), text,
              config->elastic ? "port in --rdzv-endpoint" : "--master-port");
    agent_lose_seat(agent, err.text, EXIT_CODE_FAILURE);
}

static int ask_who_holds(struct agent *agent, struct muster_error *err)
{
    struct port_question *question = mem_calloc(1, sizeof *question);
    if (!question)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    question->port = agent_master_port(agent);
    agent->port_question = question;
    struct background_job *errand =
        background_job_start("finding who holds a port", ask_holder, question, mem_free, err);
    return background_watch_begin(&agent->port_asking, &agent->loop, errand, holder_known, agent, err);
}

/* --- who serves --- */

/* What this node binds: the master's address where it is one of this machine, else --bind-addr, else every
 * address, since the own name is often mapped to a loopback address that no other node reaches. */
const char *agent_address_to_serve(const struct agent *agent)
{
    const char *given = agent->config->master_addr;
    if (!strcmp(given, "localhost")) /* nobody elsewhere can mean us by it */
        return "127.0.0.1";
    if (resolver_is_numeric(given) && resolver_is_local(given))
        return given;
    const char *bound = agent_bind_address(agent);
    return bound ? bound : "0.0.0.0";
}

/* Which of this machine's addresses the others dial, where they have a name for it: for the choice of an
 * interface (agent_nccl.c), and no reason to wait or to fail. */
static void start_own_look_up(struct agent *agent)
{
    const struct run_config *config = agent->config;
    if (config->max_nodes > 1 && agent->tune->looked && !agent->resolver &&
        !resolver_is_numeric(config->master_addr))
        agent->resolver = resolver_start(config->master_addr, agent->join_deadline, NULL);
}

int agent_serve(struct agent *agent, struct muster_error *err)
{
    const char *address = agent_address_to_serve(agent);
    agent->serves_here = true;
    if (agent_open_store(agent, err) < 0)
        return -1;
    start_own_look_up(agent);
    if (agent->config->max_nodes == 1)
        return agent_take_seat(agent, MEMBERSHIP_IN_PROCESS, NULL, err);
    if (!strcmp(address, "0.0.0.0"))
        log_info(&agent->log, "serving the job on every address of this machine, port %u",
                 (unsigned)agent_master_port(agent));
    if (agent_take_seat(agent, MEMBERSHIP_SERVER, address, err) == 0) {
        agent_warn_of_strangers(agent, address);
        return 0;
    }
    return err->code == MUSTER_E_BUSY ? ask_who_holds(agent, err) : -1;
}

static struct server_question question_of(const struct agent *agent)
{
    const struct run_config *config = agent->config;
    return (struct server_question){.endpoint = config->master_addr,
                                    .is_host = config->rdzv_conf.is_host,
                                    .local_addr = config->local_addr,
                                    .host_name = agent->host,
                                    .full_name = config->full_name,
                                    .is_numeric = resolver_is_numeric,
                                    .is_local = resolver_is_local};
}

enum server_choice agent_choose_server(const struct agent *agent)
{
    struct server_question question = question_of(agent);
    return server_choose(&question);
}

static const char *address_at(const void *context, int index)
{
    return resolver_address(context, index);
}

bool agent_serves_resolved(const struct agent *agent)
{
    struct server_question question = question_of(agent);
    return server_choose_resolved(&question, address_at, agent->resolver);
}
