/* cgroup.h - the limits of this process's control group (version 1 or 2) on CPU time, memory and processes,
 * and the kernel's counts there.
 *
 * /proc/self/cgroup names the group, and the limits of all groups above it hold too. Inside a container
 * the path there is often the host's, and the container's own group is mounted: where the path is
 * not, the mount's root counts. root is a folder with proc/ and sys/fs/cgroup/ below it, "" for the machine's
 * own. Nothing here fails: an unreadable limit does not count. */
#ifndef MUSTER_PROTO_BASE_CGROUP_H
#define MUSTER_PROTO_BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- pure --- */

/* One line of /proc/self/cgroup. The texts end at their lengths. */
struct cgroup_line {
    const char *controllers, *path; /* "cpu,cpuacct"; "/pods/one" without a slash at its end */
    size_t controllers_length, path_length;
    bool second; /* version 2, which names no controllers and may have each */
};
/* The next line from *text on (which is moved past it) whose group may have this controller ("cpu",
 * "memory"); false at the end. */
bool cgroup_next_line(const char **text, const char *controller, struct cgroup_line *out);
/* Cores of a version 2 "cpu.max" text ("250000 100000" is 2.5); 0 where there is no quota. */
double cgroup_quota_second(const char *cpu_max);
/* The same of version 1's cpu.cfs_quota_us and cpu.cfs_period_us. */
double cgroup_quota_first(const char *quota_us, const char *period_us);
/* Whole cores out of cpus under a quota (0: none), rounded down and at least 1. Down, because a process with
 * more busy threads than its quota has its threads stopped for the rest of each period, all at once: on 2.5
 * cores two threads that always run are faster than three that are stopped together. */
int cgroup_whole_cores(int cpus, double quota);

/* --- readers --- */

/* The smallest quota, in cores; 0 where there is none. */
double cgroup_cpu_quota(const char *root);
/* The cores that this process may use: its affinity mask under the quota; at least 1. */
int cgroup_cores(void);

struct cgroup_memory {
    int64_t limit; /* bytes, the smallest; 0: none */
    int64_t used;  /* use of the limit's group; -1: unknown */
    int64_t left;  /* remaining bytes, reclaimable cache counted as free; -1: no limit */
};
void cgroup_memory(const char *root, struct cgroup_memory *out);

struct cgroup_pids {
    int64_t
        limit; /* pids.max, processes and threads together, of the group that leaves the fewest; -1: none */
    int64_t used; /* use of that group */
};
void cgroup_pids(const char *root, struct cgroup_pids *out);

/* The counters are the group's, so a rise means one of its processes. In version 2 the counters of groups
 * below are in them.
 */
struct cgroup_oom {
    int64_t kills; /* processes killed for lack of memory, at any group's limit */
    int64_t hits;  /* how often the limit of this group or of one above was exceeded, for limits that can be
                      read */
    int64_t limit; /* bytes, the smallest; 0: none */
    int64_t peak;  /* bytes; 0: unknown */
};
/* False where there is no counter of kills: then *out is zeroed. */
bool cgroup_oom(const char *root, struct cgroup_oom *out);
/* Pure. Whether the group has come as near to its limit as makes no difference: new kernels do not count hits
 * of version 1's limits any more. */
bool cgroup_oom_is_full(const struct cgroup_oom *oom);

#endif
