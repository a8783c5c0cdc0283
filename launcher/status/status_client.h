/* status_client.h - the client of status_socket.h: finds this machine's agents and queries an agent. */
#ifndef MUSTER_LAUNCHER_STATUS_STATUS_CLIENT_H
#define MUSTER_LAUNCHER_STATUS_STATUS_CLIENT_H

#include <sys/types.h>

#include "launcher/status/status_socket.h"

enum { STATUS_NAME_LIMIT = 64 };

/* The fields of a socket's name. */
struct status_name {
    char text[STATUS_NAME_LIMIT];
    uid_t uid;
    pid_t pid; /* in the agent's own pid namespace, which may be another one */
};

/* Pure. The listening sockets of agents in the text of /proc/net/unix; at most limit are filled. Returns how
 * many there are. */
size_t status_names_parse(const char *text, struct status_name *names, size_t limit);

/* The agents whose sockets this process may query (its own user's; root: every user's), owned by the
 * caller (mem_free). NULL: err. */
struct status_name *status_names_read(size_t *count, struct muster_error *err);

/* The pid, as seen by this process, of the agent that owns the socket; nothing is sent. -1: MUSTER_E_PEER
 * if it has exited or does not match its name, MUSTER_E_TIMEOUT if its queue is full. */
pid_t status_whose(const struct status_name *name, struct muster_error *err);

/* Sends a request and waits for at most patience. The reply is appended without control characters except
 * newlines. *pid (may be NULL) is the agent's as seen by this process. -1: MUSTER_E_PEER if it has exited
 * or does not match its name, MUSTER_E_TIMEOUT if it does not respond. */
int status_ask(const struct status_name *name, enum status_question question, int64_t patience_ns,
               struct buffer *answer, pid_t *pid, struct muster_error *err);
/* The same with a request after the question's word; NULL: none. */
int status_ask_of(const struct status_name *name, enum status_question question, const char *request,
                  int64_t patience_ns, struct buffer *answer, pid_t *pid, struct muster_error *err);

#endif
