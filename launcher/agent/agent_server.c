/* agent_server.c - the secret, the choice of the serving node and the workers' store. See
 * agent_server.h. */
#include "launcher/agent/agent_server.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "launcher/loop/resolver.h"
#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "proto/env_names.h"
#include "rendezvous/security/secret_file.h"

struct agent_server {
    struct job_keys keys; /* derived from the job's secret */
    bool has_keys;
    int store_key_fd;             /* a file that holds the workers' key; -1: none */
    char localhost[ADDRESS_TEXT]; /* "": not asked for yet */
    struct rlimit core_dumps;     /* the limit that this process inherited */
    struct job_store *store;      /* NULL: this node does not serve */
    struct loop_source knock;     /* the first peer of store, which has no thread before; fd -1: it has */
};

/* --- the secret --- */

/* No core file of the agent may hold the keys, which libzmq keeps too. 1 and not 0: a handler in core_pattern
 * is called for 0 as well. Workers get the limit that we got. */
static int forbid_core_dumps(struct agent *agent, struct muster_error *err)
{
    if (getrlimit(RLIMIT_CORE, &agent->server->core_dumps) < 0)
        return error_errno(err, "getrlimit");
    struct rlimit none = {agent->server->core_dumps.rlim_max ? 1 : 0, agent->server->core_dumps.rlim_max};
    if (setrlimit(RLIMIT_CORE, &none) < 0)
        return error_errno(err, "cannot forbid core dumps");
    return 0;
}

/* Workers inherit it: a key in their environment would be shown to every process of their user, and logged.
 */
static int keep_store_key(struct agent *agent, struct muster_error *err)
{
    scope_close int fd = memfd_create("muster-store-key", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return error_errno(err, "cannot make the file by which workers get their key (memfd_create)");
    if (io_write_all(fd, STORE_KEY_MAGIC, sizeof STORE_KEY_MAGIC - 1, "the workers' key", err) < 0 ||
        io_write_all(fd, agent->server->keys.store, sizeof agent->server->keys.store, "the workers' key",
                     err) < 0)
        return -1;
    (void)fcntl(fd, F_ADD_SEALS,
                F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE); /* one more safeguard */
    agent->server->store_key_fd = take_fd(&fd);
    return 0;
}

static int read_secret(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    struct job_secret secret;
    enum secret_exposure exposure;
    mode_t mode;
    if (!config->secret_file)
        return 0;
    if (forbid_core_dumps(agent, err) < 0 ||
        secret_file_read(config->secret_file, &secret, &exposure, &mode, err) < 0)
        return -1;
    if (exposure != SECRET_PRIVATE)
        log_warning(&agent->log, "secret file %s has mode %04o, %s: chmod 600 makes it private",
                    config->secret_file, (unsigned)mode, secret_exposure_words(exposure));
    int failed = secret_derive(&secret, config->rdzv_id, &agent->server->keys, err);
    agent->server->has_keys = !failed;
    secret_wipe(&secret, sizeof secret);
    if (!config_meets(config) && config->worker_store == WORKER_STORE_WORKER)
        log_warning(&agent->log,
                    "--secret-file has no effect: no other node joins this job, and a worker serves "
                    "the store (--worker-store=worker)");
    return failed ? failed : keep_store_key(agent, err);
}

int agent_server_store_key_fd(const struct agent *agent)
{
    return agent->server->store_key_fd;
}

const struct job_keys *agent_server_keys(const struct agent *agent)
{
    return agent->server->has_keys ? &agent->server->keys : NULL;
}

bool agent_server_copy_store_key(const struct agent *agent, unsigned char key[SECRET_STORE_KEY_SIZE])
{
    const struct job_keys *keys = agent_server_keys(agent);
    if (keys)
        memcpy(key, keys->store, sizeof keys->store);
    return keys != NULL;
}

const struct rlimit *agent_server_core_dumps(const struct agent *agent)
{
    return agent->server->has_keys ? &agent->server->core_dumps : NULL;
}

void agent_server_warn_of_unauthenticated(const struct agent *agent, const char *address)
{
    if (agent->server->has_keys || (address && address_is_loopback(address)))
        return;
    log_warning(&agent->log,
                "this job has no secret: ANY PEER THAT REACHES PORT %u OF THIS MACHINE CAN JOIN THE JOB OR "
                "STOP IT. Give "
                "all nodes --secret-file (muster secret makes one); --require-auth makes this an error",
                (unsigned)agent_master_port(agent));
}

/* --- who serves --- */

/* The loopback address that "localhost" is on this machine: IPv4 where it is both. No other machine is asked.
 */
static const char *localhost(struct agent_server *server)
{
    char found[RESOLVER_ADDRESSES_KEPT][ADDRESS_TEXT];
    if (!*server->localhost) {
        bool known = resolver_ask("localhost", found) > 0 && address_is_loopback(found[0]);
        (void)snprintf(server->localhost, sizeof server->localhost, "%s", known ? found[0] : "127.0.0.1");
    }
    return server->localhost;
}

/* The master's address if this machine has it, else --bind-addr, else every one, since the own name is
 * often mapped to a loopback address that no other node reaches. */
const char *agent_server_address(const struct agent *agent)
{
    const char *given = agent->config->master_addr;
    if (!strcmp(given, "localhost")) /* no other machine can mean us by it */
        return localhost(agent->server);
    if (!address_is_any(given) && resolver_is_local(given))
        return given;
    return agent_bind_address(agent);
}

static struct server_question question_of(const struct agent *agent)
{
    const struct run_config *config = agent->config;
    return (struct server_question){.endpoint = config->master_addr,
                                    .is_host = config->rdzv_conf.is_host,
                                    .local_addr = config->local_addr,
                                    .host_name = agent->host,
                                    .full_name = config->full_name,
                                    .is_local = resolver_is_local};
}

enum server_choice agent_server_choose(const struct agent *agent)
{
    struct server_question question = question_of(agent);
    return server_choose(&question);
}

bool agent_server_is_entry(const struct agent *agent, const char *host)
{
    struct server_question question = question_of(agent);
    question.endpoint = host;
    question.full_name = question.full_name ? question.full_name : ""; /* static */
    question.is_host = RDZV_CONF_UNSET;                                /* it is said of the first entry */
    return server_choose(&question) == SERVER_CHOICE_SERVE;
}

bool agent_server_is_own(const struct agent *agent, const char *address)
{
    const struct server_question question = question_of(agent);
    return server_choice_is_ours(&question, address);
}

static const char *address_at(const void *context, int index)
{
    return resolver_address(context, index);
}

bool agent_server_choose_resolved(const struct agent *agent, const struct resolver *resolver)
{
    struct server_question question = question_of(agent);
    return server_choose_resolved(&question, address_at, resolver);
}

/* --- the workers' store --- */

const char *agent_server_store_address(const struct agent *agent)
{
    const struct run_config *config = agent->config;
    return config->elastic && config->local_addr && *config->local_addr ? config->local_addr
                                                                        : config->master_addr;
}

struct job_store *agent_server_store(const struct agent *agent)
{
    return agent->server->store;
}

uint16_t agent_server_store_port(const struct agent *agent)
{
    return agent->server->store ? job_store_port(agent->server->store) : 0;
}

bool agent_server_store_stats(const struct agent *agent, struct tcpstore_server_stats *stats)
{
    return agent->server->store && job_store_stats(agent->server->store, stats);
}

/* On the loopback address if that is the workers' MASTER_ADDR, else on --bind-addr, else on every one. A
 * worker's own store is on every one. */
static const char *store_binds(const struct agent *agent)
{
    const char *address = agent_server_store_address(agent);
    if (!strcmp(address, "localhost"))
        return localhost(agent->server);
    return address_is_loopback(address) ? address : agent_bind_address(agent);
}

static void stop_knocking(struct agent *agent)
{
    if (agent->server->knock.fd >= 0)
        loop_remove(&agent->loop, &agent->server->knock);
    agent->server->knock.fd = -1;
}

static void somebody_knocks(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    (void)events;
    stop_knocking(agent);
    if (job_store_serve(agent->server->store, &err) < 0)
        log_error(&agent->log, "%s", err.text); /* the workers' own time-out reports it */
}

static int watch_first_peer(struct agent *agent, struct muster_error *err)
{
    const int fd = job_store_knock_fd(agent->server->store);
    if (fd < 0)
        return 0;
    agent->server->knock = (struct loop_source){fd, somebody_knocks, agent};
    return loop_add(&agent->loop, &agent->server->knock, EPOLLIN, err);
}

int agent_server_open_store(struct agent *agent, struct muster_error *err)
{
    struct agent_server *server = agent->server;
    assert(!server->store);
    server->store = job_store_open(agent->config, store_binds(agent),
                                   server->has_keys ? server->keys.store : NULL, &agent->log, err);
    if (!server->store)
        return -1;
    if (watch_first_peer(agent, err) == 0)
        return 0;
    agent_server_close_store(agent);
    return -1;
}

void agent_server_close_store(struct agent *agent)
{
    struct job_store *store = take_pointer(&agent->server->store);
    if (!store)
        return;
    stop_knocking(agent);
    job_store_close(store);
}

/* --- the part --- */

static int server_create(struct agent *agent, struct muster_error *err)
{
    agent->server = mem_calloc(1, sizeof *agent->server);
    if (!agent->server)
        return error_set(err, MUSTER_E_NOMEM, "no memory to serve the job");
    agent->server->knock.fd = agent->server->store_key_fd = -1;
    return read_secret(agent, err);
}

static void server_destroy(struct agent *agent)
{
    if (!agent->server)
        return;
    agent_server_close_store(agent);
    secret_wipe(&agent->server->keys, sizeof agent->server->keys);
    guard_close(&agent->server->store_key_fd);
    mem_free(agent->server);
    agent->server = NULL;
}

const struct agent_part agent_server_part = {"server", server_create, NULL, NULL, NULL, server_destroy};
