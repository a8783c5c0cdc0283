/* tcpstore_server.h - the server of PyTorch's TCPStore protocol, with its own thread.
 *
 * One epoll loop over non-blocking sockets around the engine of tcpstore.h. All signals are blocked in its
 * thread, all descriptors are close-on-exec. The functions below may be called from any thread; each waits
 * for the server's thread to carry it out, which never blocks on a peer. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_SERVER_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_SERVER_H

#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "proto/base/log.h"
#include "proto/include/muster_error.h"
#include "rendezvous/store/store.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tcpstore_server_options {
    const char
        *address;       /* numeric IPv4 or IPv6 address to bind; NULL: [::] for both families, else 0.0.0.0 */
    uint16_t port;      /* 0: any free one */
    size_t connections; /* the most open at once; 0: 65,536 (4,096 hosts of 8 workers with 2 connections
                           each), or three quarters of the process's descriptors if that is less. Further
                           peers stay in the backlog until a connection is closed */
    int64_t greeting_ns; /* a connection without VALIDATE after this time is closed; 0: 30 s */
    size_t silent;       /* the most connections that have not sent VALIDATE; above it, the oldest of them is
                            closed.       0: an eighth of the process's descriptors, 1,024 at most */
    struct store_limits limits; /* total_bytes: of all clients' memory, see tcpstore.h */
    const unsigned char
        *key; /* MAC_KEY_SIZE bytes, copied: guards muster's own keys (tcpstore.h); NULL: no guard */
    const struct log_sink *log; /* may be NULL; must outlive the server */
};

struct tcpstore_server_stats {
    struct store_stats store;
    size_t connections;
    uint64_t accepted; /* connections since start */
    uint64_t
        dropped; /* accepted, then closed by the server: protocol violation, a limit, no VALIDATE in time */
    uint64_t requests;    /* served since start */
    uint64_t crowded_out; /* connections, and clients that had left, that lost their memory: the budget
                             was used up, and they had most of it */
    size_t held, budget;  /* bytes of the budget in use; the budget */
};

struct tcpstore_server;

/* Binds and listens; peers wait in the backlog until tcpstore_server_serve. On an occupied port: as
 * tcpstore_server_start. Call tcpstore_server_serve, which starts the thread, when tcpstore_server_fd is
 * readable: a job whose workers never connect needs no thread. Until then the other calls run on the caller's
 * thread, and all must come from the same one. */
int tcpstore_server_listen(const struct tcpstore_server_options *options, struct tcpstore_server **server,
                           struct muster_error *err);
int tcpstore_server_fd(const struct tcpstore_server *server);
/* Starts the thread; no effect if it runs. */
int tcpstore_server_serve(struct tcpstore_server *server, struct muster_error *err);
/* Binds, listens and serves. On an occupied port the error names the port and, if /proc shows it, the pid
 * that holds it. *server is owned by the caller. */
int tcpstore_server_start(const struct tcpstore_server_options *options, struct tcpstore_server **server,
                          struct muster_error *err);
uint16_t tcpstore_server_port(const struct tcpstore_server *server);
/* Starts a new round: on return the key space is empty, and every connection made before the call is closed,
 * those in the backlog included. */
int tcpstore_server_new_round(struct tcpstore_server *server, struct muster_error *err);
int tcpstore_server_stats(struct tcpstore_server *server, struct tcpstore_server_stats *stats,
                          struct muster_error *err);
/* Stops the thread and closes all sockets; no other call may be in progress. Accepts NULL. */
void tcpstore_server_destroy(struct tcpstore_server *server);
GUARD_DEFINE(tcpstore_server, struct tcpstore_server *, tcpstore_server_destroy);

#ifdef __cplusplus
}
#endif
#endif
