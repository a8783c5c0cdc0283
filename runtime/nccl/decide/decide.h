/* decide.h - pure: the settings that NCCL cannot find by itself, derived from a description, the user's
 * settings in it and a policy.
 *
 * Rules: a variable that the user set (in the process environment or in a file of NCCL's) is never changed;
 * NVIDIA's debugging variables are never set, only warned about; every entry has a reason of one line; the
 * same input gives the same list in the same order (by variable's name, then kind). Sources of the rules:
 * NCCL's manual (environment variables, its division into system configuration and debugging), the
 * behaviour of NCCL 2.18 to 2.30 where it reads values, PyTorch 2.13's documents. */
#ifndef MUSTER_RUNTIME_NCCL_DECIDE_DECIDE_H
#define MUSTER_RUNTIME_NCCL_DECIDE_DECIDE_H

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"
#include "runtime/nccl/describe/description.h"

struct policy; /* policy.h; NULL: none */

enum decision_kind {
    DECISION_SET,       /* the workers get it */
    DECISION_KEPT,      /* the user set it, and a rule applies to it */
    DECISION_WARNED,    /* the user's value is harmful, or NCCL reads it differently */
    DECISION_FORBIDDEN, /* the policy forbids it: the job does not start */
};

struct decision {
    enum decision_kind kind;
    char name[DESCRIPTION_NAME];
    char value[1024];              /* in force; "" for WARNED about a missing thing */
    char reason[DESCRIPTION_TEXT]; /* one line, names the observation and, for a warning, the remedy */
    char rule[DESCRIPTION_NAME];   /* the rule's stable name, e.g. "socket-interface" */
};

struct decision_list {
    struct decision *items;
    int count;
};

/* Fills list, which must be zeroed. */
int decide(const struct description *description, const struct policy *policy, struct decision_list *list,
           struct muster_error *err);
/* The same without muster's own rules: the policy alone. */
int decide_policy(const struct description *description, const struct policy *policy,
                  struct decision_list *list, struct muster_error *err);
/* The interface that reaches the other nodes: the one on the route to the master, else the first that NCCL
 * would use and that has a default route; NULL unknown. */
const struct description_interface *decide_interface(const struct description *description);
/* Accepts NULL. */
void decision_list_free(struct decision_list *list);
/* The first decision of a kind; NULL: there is none. */
const struct decision *decision_first(const struct decision_list *list, enum decision_kind kind);

const char *decision_kind_name(enum decision_kind kind); /* "set", "kept", "warned", "forbidden" */
/* A table for display, and a JSON array of {variable, value, kind, reason, rule}; appended. */
int decision_print(const struct decision_list *list, int columns, struct buffer *out);
int decision_json(const struct decision_list *list, struct buffer *out);
/* One line: "NCCL: 3 set (NCCL_DEBUG=WARN, ...), 1 kept, 2 warnings (/dev/shm, NCCL_IB_DISABLE)". */
int decision_summary(const struct decision_list *list, struct buffer *out);

#endif
