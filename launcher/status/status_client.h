/* status_client.h - the asking end of status_socket.h: finds this machine's agents and asks one of them. */
#ifndef MUSTER_LAUNCHER_STATUS_STATUS_CLIENT_H
#define MUSTER_LAUNCHER_STATUS_STATUS_CLIENT_H

#include <sys/types.h>

#include "launcher/status/status_socket.h"

enum { STATUS_NAME_LIMIT = 64 };

/* What a socket's name says. */
struct status_name {
    char text[STATUS_NAME_LIMIT];
    uid_t uid;
    pid_t pid; /* as the agent sees it, which may live in another pid namespace */
};

/* Pure. The listening sockets of agents in the text of /proc/net/unix; at most limit are filled. Returns how
 * many there are. */
size_t status_names_parse(const char *text, struct status_name *names, size_t limit);

/* The agents whose sockets this process may ask (its own user's; root: everybody's), the caller's to free
 * (mem_free). NULL: err. */
struct status_name *status_names_read(size_t *count, struct muster_error *err);

/* The agent's process as this one sees it, of whom the socket is; nothing is asked. -1: MUSTER_E_PEER where
 * it has gone or is not what its name says, MUSTER_E_TIMEOUT where too many wait for it already. */
pid_t status_whose(const struct status_name *name, struct muster_error *err);

/* Asks and waits for at most patience. The answer is appended without control characters but line ends. *pid
 * (may be NULL) is the agent's as this process sees it. -1: MUSTER_E_PEER where it has gone or is not what
 * its name says, MUSTER_E_TIMEOUT where it does not answer. */
int status_ask(const struct status_name *name, enum status_question question, int64_t patience_ns,
               struct buffer *answer, pid_t *pid, struct muster_error *err);

#endif
