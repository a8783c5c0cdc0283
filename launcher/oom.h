/* oom.h - how many processes of this agent's cgroup the kernel killed for want of memory.
 *
 * The counter is the container's, so a rise says "one of us"; with a worker that died of a SIGKILL that we
 * did not send it says which. */
#ifndef MUSTER_LAUNCHER_OOM_H
#define MUSTER_LAUNCHER_OOM_H

#include <stdint.h>

/* The value of the line "oom_kill N" in a memory.events (cgroup v2) or memory.oom_control (v1) text; -1 where
 * there is none. Pure. */
int64_t oom_parse(const char *text);
/* The counter of the cgroup that a /proc/self/cgroup text names; root is "/sys/fs/cgroup". Where the named
 * path is not under root (a container's own mount), root itself is asked. -1 where nothing can be read. */
int64_t oom_read(const char *root, const char *proc_self_cgroup);
/* The counter of this process's cgroup, -1 where it cannot be read. */
int64_t oom_count(void);

#endif
