/* decide_internal.h - shared by the rules of decide.h: the growing list, and queries on the description.
 *
 * A rule is one function of the description that reports through decide_set and decide_warn; it never
 * reads another rule's decision. */
#ifndef MUSTER_RUNTIME_NCCL_DECIDE_DECIDE_INTERNAL_H
#define MUSTER_RUNTIME_NCCL_DECIDE_DECIDE_INTERNAL_H

#include "runtime/nccl/decide/decide.h"

struct decider {
    const struct description *machine;
    struct decision_list *list;
    const char *rule; /* the name of the running rule */
    int version;      /* NCCL's version, 0 unknown */
    int capacity;
    bool failed; /* no memory */
};

/* The variable should have this value: SET if the user did not set it, KEPT (with a reason) if the user
 * did. */
void decide_set(struct decider *d, const char *name, const char *value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The user's value of name, or the absence of something called name, is harmful. */
void decide_warn(struct decider *d, const char *name, const char *value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Any kind. */
void decide_add(struct decider *d, enum decision_kind kind, const char *name, const char *value,
                const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The user's value; NULL if it is not set. */
const char *decide_user(const struct decider *d, const char *name);
/* Whether NCCL reads the user's value as exactly 1. */
bool decide_user_is_one(const struct decider *d, const char *name);
/* Whether the job spans nodes, and whether there is a GPU that NCCL could use. */
bool decide_many_nodes(const struct decider *d);
bool decide_has_gpus(const struct decider *d);
/* Whether a vendor's plug-in brings its own settings (EFA, TCPX, TCPXO, gIB). */
bool decide_has_profile(const struct decider *d);
/* The first candidate with a default route; NULL: none. */
const struct description_interface *decide_default_route(const struct decider *d);
/* The interface that the route to the master uses, else the one with the default route; NULL unknown. */
const struct description_interface *decide_route(const struct decider *d);
/* Whether NCCL uses the interface by default: up, an address, not lo* or docker*. */
bool decide_is_candidate(const struct description_interface *interface);
bool decide_is_usable(
    const struct description_rdma *port); /* ACTIVE, with a verbs device that can be opened */

/* The rules by topic, each a list that ends with an empty entry. */
struct decide_rule {
    const char *name;
    void (*run)(struct decider *d);
};
extern const struct decide_rule decide_rules_socket[], decide_rules_rdma[], decide_rules_gpu[],
    decide_rules_cloud[], decide_rules_values[], decide_rules_torch[];

#endif
