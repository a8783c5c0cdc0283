/* job_store.c - see job_store.h. */
#include "launcher/agent/store/job_store.h"

#include <assert.h>
#include <pthread.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/net/tcp_listen.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "rendezvous/tcpstore/tcpstore_server.h"

/* At all times, under lock: a tcpstore or a reserved port, never both; held_port_fd is -1 if there is
 * none. */
struct job_store {
    pthread_mutex_t lock;
    const struct run_config *config;
    const struct log_sink *log;
    const unsigned char *key; /* the job's, for muster's own keys; NULL: no secret */
    const char *address;      /* to bind */
    bool is_the_workers;      /* --worker-store=worker */
    struct tcpstore_server *tcpstore;
    int held_port_fd; /* reserves held_port for the worker that serves the store */
    uint16_t held_port;
};

/* Serves at this port, or reserves it; 0 is any. With several nodes the server's thread renews the store,
 * so that it has its own from the beginning; with one it begins with its first peer. */
static int take_port(struct job_store *store, uint16_t port, struct muster_error *err)
{
    if (!store->is_the_workers) {
        const struct run_config *config = store->config;
        const size_t workers = (size_t)config->max_nodes * (size_t)config->nproc_per_node;
        const struct tcpstore_server_options options = {
            .address = store->address,
            .port = port,
            .limits.total_bytes =
                config->store_memory ? (size_t)config->store_memory : tcpstore_budget(workers),
            .key = store->key,
            .log = store->log};
        return config_meets(config) ? tcpstore_server_start(&options, &store->tcpstore, err)
                                    : tcpstore_server_listen(&options, &store->tcpstore, err);
    }
    int fd = tcp_hold_port(NULL, port, &store->held_port, err);
    if (fd < 0)
        return -1;
    if (store->held_port_fd >= 0)
        (void)close(store->held_port_fd); /* an unconnected socket */
    store->held_port_fd = fd;
    return 0;
}

/* In the range if one is given, else any. */
static int take_any_port(struct job_store *store, struct muster_error *err)
{
    const struct run_config *config = store->config;
    for (int port = config->first_port; port && port <= config->last_port; port++)
        if (take_port(store, (uint16_t)port, NULL) == 0)
            return 0;
    if (config->first_port)
        return error_set(err, MUSTER_E_BUSY,
                         "--port-range: no port of %d to %d is free for the workers' store",
                         config->first_port, config->last_port);
    return take_port(store, 0, err);
}

static int take_first_port(struct job_store *store, struct muster_error *err)
{
    const struct run_config *config = store->config;
    if (!config_meets(config)) { /* 0 with --standalone, unless the flag was given */
        (void)tcp_await_port(store->address, (uint16_t)config->master_port); /* the error is take_port's */
        return take_port(store, (uint16_t)config->master_port, err);
    }
    /* Next to the rendezvous if nodes have ranks beforehand (65536 wraps to any); but with a range there
     * may be a firewall that blocks all other ports. */
    bool beside = !config->elastic && !config->first_port;
    uint16_t port = (uint16_t)(beside ? config->master_port + 1 : 0);
    return port && take_port(store, port, NULL) == 0 ? 0 : take_any_port(store, err);
}

struct job_store *job_store_open(const struct run_config *config, const char *address,
                                 const unsigned char *key, const struct log_sink *log,
                                 struct muster_error *err)
{
    struct job_store *store = mem_calloc(1, sizeof *store);
    if (!store) {
        error_set(err, MUSTER_E_NOMEM, "no memory for the workers' store");
        return NULL;
    }
    *store = (struct job_store){.lock = PTHREAD_MUTEX_INITIALIZER,
                                .config = config,
                                .log = log,
                                .key = key,
                                .address = address,
                                .is_the_workers = config->worker_store == WORKER_STORE_WORKER,
                                .held_port_fd = -1};
    if (take_first_port(store, err) == 0)
        return store;
    job_store_close(store);
    return NULL;
}

void job_store_close(struct job_store *store)
{
    if (!store)
        return;
    tcpstore_server_destroy(store->tcpstore);
    if (store->held_port_fd >= 0)
        (void)close(store->held_port_fd); /* an unconnected socket */
    (void)pthread_mutex_destroy(&store->lock);
    mem_free(store);
}

uint16_t job_store_port(struct job_store *store)
{
    (void)pthread_mutex_lock(&store->lock); /* fails for an invalid lock only */
    uint16_t port = store->tcpstore ? tcpstore_server_port(store->tcpstore) : store->held_port;
    (void)pthread_mutex_unlock(&store->lock);
    return port;
}

bool job_store_stats(struct job_store *store, struct tcpstore_server_stats *stats)
{
    (void)pthread_mutex_lock(&store->lock); /* fails for an invalid lock only */
    const bool there = store->tcpstore && tcpstore_server_stats(store->tcpstore, stats, NULL) == 0;
    (void)pthread_mutex_unlock(&store->lock);
    return there;
}

int job_store_knock_fd(const struct job_store *store)
{
    return store->tcpstore && !config_meets(store->config) ? tcpstore_server_fd(store->tcpstore) : -1;
}

int job_store_serve(struct job_store *store, struct muster_error *err)
{
    return tcpstore_server_serve(store->tcpstore, err);
}

/* A process of the last round may still listen where rank 0 did. */
static uint16_t renew_held_port(struct job_store *store)
{
    struct muster_error err = {0};
    uint16_t port = store->held_port;
    int probe = tcp_hold_port(NULL, port, &port, NULL);
    if (probe >= 0) {
        (void)close(probe); /* an unconnected socket */
        return 0;
    }
    if (take_any_port(store, &err) < 0) {
        log_error(store->log, "port %u, at which rank 0 served the last round, is in use: %s", port,
                  err.text);
        return 0;
    }
    log_warning(store->log, "port %u, at which rank 0 served the last round, is in use: now it is %u", port,
                store->held_port);
    return store->held_port;
}

uint16_t job_store_renew(struct job_store *store)
{
    struct muster_error err = {0};
    uint16_t port = 0;
    if (!store)
        return 0;
    (void)pthread_mutex_lock(&store->lock);
    assert(!store->tcpstore || store->held_port_fd < 0);
    if (store->held_port_fd >= 0)
        port = renew_held_port(store);
    else if (store->tcpstore && tcpstore_server_new_round(store->tcpstore, &err) < 0)
        log_error(store->log, "%s", err.text);
    (void)pthread_mutex_unlock(&store->lock);
    return port;
}
