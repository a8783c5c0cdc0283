/* tcpstore_loop_internal.h - the loop of tcpstore_loop.h, shared by tcpstore_loop.c (reading, replies, time)
 * and tcpstore_accept.c (new peers) only. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_LOOP_INTERNAL_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_LOOP_INTERNAL_H

#include <sys/uio.h>

#include "rendezvous/net/nap.h"
#include "rendezvous/net/send_batch.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "rendezvous/tcpstore/tcpstore_loop.h"

/* Buffers in a send: values of a MULTI_GET and the bytes between them. */
enum { TCPSTORE_LOOP_PARTS = 32 };

struct peer {
    int fd; /* -1: closed, freed at the end of the iteration */
    uint32_t events;
    struct tcpstore_connection *connection;
    struct instant greeted_by;
    bool greeting;                /* has not sent VALIDATE or a request: is in the greeting list */
    struct peer *next, *previous; /* in the greeting list, oldest first; next also in the closed list */
};

struct tcpstore_loop {
    int epoll, listener, wakeup;
    uint16_t port;
    bool (*on_wakeup)(void *context);
    void *context;
    const struct log_sink *log;
    size_t connections_limit, silent_limit;
    int64_t greeting_ns;
    struct tcpstore *engine;
    size_t connections, silent; /* silent: those in the greeting list */
    uint64_t accepted, dropped;
    bool accepting;
    struct instant accept_again; /* while accepting is paused for lack of descriptors */
    struct peer *greeting_first, *greeting_last;
    struct peer *closed; /* to be freed at the end of the iteration */
    struct instant log_period;
    int64_t log_period_ns;
    unsigned log_lines, log_lost;
    char *scratch; /* READ_SIZE */
    struct send_batch sends;
    struct nap pace;
    size_t received;  /* bytes of this iteration */
    int reader;       /* the descriptor that was read last */
    bool others;      /* in this iteration, a descriptor was read that was not the last read before it */
    bool replied;     /* replies were sent in this iteration */
    size_t most_held; /* by the engine since memory was given back */
    struct iovec (*parts)[TCPSTORE_LOOP_PARTS]; /* by the job's number in its batch */
};

/* --- tcpstore_loop.c --- */

/* Whether another line may be logged now: a port scanner must not fill the log. */
bool tcpstore_loop_may_log(struct tcpstore_loop *loop);
/* Closes the connection, and logs why. */
void tcpstore_loop_drop(struct tcpstore_loop *loop, struct peer *p, const char *why);

/* --- tcpstore_accept.c --- */

/* The peer has sent VALIDATE or a request, or is closed. */
void tcpstore_loop_leave_greeting(struct tcpstore_loop *loop, struct peer *p);
int tcpstore_loop_set_accepting(struct tcpstore_loop *loop, bool on);
/* All that wait at the listener, up to a limit. */
void tcpstore_loop_accept(struct tcpstore_loop *loop);
/* Connections in the backlog were made before this call: they belong to the old round. */
void tcpstore_loop_empty_backlog(struct tcpstore_loop *loop);
/* Those that have had their time to greet. */
void tcpstore_loop_drop_silent(struct tcpstore_loop *loop, struct instant now);
/* How many connections may be open, by the options and ulimit -n. */
void tcpstore_loop_set_limits(struct tcpstore_loop *loop, const struct tcpstore_server_options *options);

#endif
