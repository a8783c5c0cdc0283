/* policy.h - a cluster operator's additions to, pins in and bans from NCCL's environment, as decide.h uses
 * them; policy_read.h of runtime/nccl/files reads them from a YAML file.
 *
 *   version: 1
 *   rules:
 *     - add: {NCCL_IB_TC: "106"}        # unless the user set it
 *       when: {gpu: "NVIDIA H100*", pool: "a3-*", nccl: ">=2.21", nodes: ">=2"}
 *       reason: lossless class of this fabric
 *     - pin: {NCCL_DEBUG: WARN}         # overrides the user
 *     - forbid: [NCCL_IB_DISABLE, NCCL_P2P_DISABLE]   # a job that sets one does not start
 *
 * Rules count in the order of the file; the first that adds or pins a variable wins, a pin before an add.
 * A condition on an unknown value (no GPU, no version) does not hold. */
#ifndef MUSTER_RUNTIME_NCCL_DECIDE_POLICY_H
#define MUSTER_RUNTIME_NCCL_DECIDE_POLICY_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/include/muster_error.h"
#include "runtime/nccl/describe/description.h"

enum policy_kind { POLICY_ADD, POLICY_PIN, POLICY_FORBID };

/* One variable of one rule. Texts are the policy's. */
struct policy_entry {
    enum policy_kind kind;
    const char *name, *value;   /* value: NULL for FORBID */
    const char *gpu, *pool;     /* patterns with * and ?; NULL: any */
    int nccl_least, nccl_below; /* description_version's numbers; 0: no bound */
    int nodes_least;            /* 0: no bound */
    const char *reason;         /* "" where none was given */
    int line;                   /* line of the rule in the file */
};

struct policy {
    char *file; /* its name in messages */
    struct policy_entry *entries;
    int count;
    void *tree; /* owns the texts */
};

/* Whether the entry's conditions hold on this machine. */
bool policy_applies(const struct policy_entry *entry, const struct description *description);
/* The entry that decides about a variable: the first pin that applies, else the first add (NULL: none); of
 * kind FORBID only if requested. */
const struct policy_entry *policy_find(const struct policy *policy, const char *name, enum policy_kind kind,
                                       const struct description *description);

#endif
