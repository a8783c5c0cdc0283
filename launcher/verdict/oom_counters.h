/* oom_counters.h - what the kernel says of memory in this agent's cgroup (v2 and v1): processes that it
 * killed, how often a limit was hit, the limit and the peak.
 *
 * The counters are the container's, so a rise says "one of us"; with a worker that died of a SIGKILL that we
 * did not send it says which. In v2 memory.events counts the groups below too, in v1 the own group alone. */
#ifndef MUSTER_LAUNCHER_VERDICT_OOM_COUNTERS_H
#define MUSTER_LAUNCHER_VERDICT_OOM_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

struct oom_counters_account {
    int64_t kills; /* processes of this group that were killed for want of memory, whoever's limit it was */
    int64_t hits; /* how often the limit of this group or of one above it could not be kept; of those that can
                     be read */
    int64_t limit; /* the smallest of these groups, bytes; 0: none, or unknown */
    int64_t peak;  /* bytes; 0: unknown */
};

/* Whether the group has come as near to its limit as makes no difference: new kernels do not count hits of
 * v1's limits any more. Pure. */
bool oom_counters_is_full(const struct oom_counters_account *account);
/* The value of the line "name N" in a text of such lines; -1 where there is none. Pure. */
int64_t oom_counters_number(const char *text, const char *name);
/* Of the group that a /proc/self/cgroup text names; root is "/sys/fs/cgroup". Where the named path is not
 * under root (a container's own mount), root itself is asked. False where there is no counter of kills: then
 * *out is zeroed. */
bool oom_counters_look(const char *root, const char *proc_self_cgroup, struct oom_counters_account *out);
/* Of this process's group. */
bool oom_counters_look_at_own(struct oom_counters_account *out);

#endif
