/* server_choice.h - pure: decides whether this node serves an elastic job.
 *
 * Every node is given the same endpoint; the node with its address serves. Decided in two steps: before
 * the name is looked up (a pod's own name may not resolve before it is ready), and with its addresses. */
#ifndef MUSTER_LAUNCHER_POLICY_SERVER_CHOICE_H
#define MUSTER_LAUNCHER_POLICY_SERVER_CHOICE_H

#include <stdbool.h>

enum server_choice {
    SERVER_CHOICE_SERVE,
    SERVER_CHOICE_JOIN,   /* the endpoint is an address already */
    SERVER_CHOICE_RESOLVE /* resolve its name, then call server_choose_resolved */
};

struct server_question {
    const char *endpoint;                  /* host name or numeric address */
    int is_host;                           /* 1, 0, or below 0: not given */
    const char *local_addr;                /* this node's configured address; NULL: none */
    const char *host_name, *full_name;     /* this machine's; "" if unknown */
    bool (*is_local)(const char *address); /* whether this machine has it */
};

enum server_choice server_choose(const struct server_question *question);
/* Whether this node serves; address(context, i) is the i-th address of the endpoint's name, NULL after the
 * last one. */
bool server_choose_resolved(const struct server_question *question,
                            const char *(*address)(const void *context, int index), const void *context);
/* Whether an address is this node's. */
bool server_choice_is_ours(const struct server_question *question, const char *address);
/* Several agents of one machine may have one endpoint: the first that binds its port serves. Whether an
 * agent that finds the port in use joins its holder; else that is an error. must_serve: it was configured
 * as the server. */
bool server_choice_joins_holder(bool elastic, bool must_serve, bool same_program);

#endif
