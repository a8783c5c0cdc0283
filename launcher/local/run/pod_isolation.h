/* pod_isolation.h - a pod's own host name, /etc/hosts and mounts, by namespaces where the machine permits
 * them. */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_POD_ISOLATION_H
#define MUSTER_LAUNCHER_LOCAL_RUN_POD_ISOLATION_H

#include <stdbool.h>

#include "launcher/local/run/mount_plan.h"

enum pod_isolation_kind {
    POD_ISOLATION_NONE,  /* not permitted here */
    POD_ISOLATION_PLAIN, /* namespaces of host name and mounts (as root) */
    POD_ISOLATION_USER,  /* the same inside a user namespace of its own */
};

struct pod_isolation {
    enum pod_isolation_kind kind;
    const char *hosts;               /* the file that becomes /etc/hosts */
    const char *hostname;            /* the pod's */
    const struct mount_plan *mounts; /* the pod's; NULL: none */
    /* The identity that processes keep inside a user namespace: their own. */
    char uid_map[48], gid_map[48];
};

/* The permitted kind, found by a child that tries it with the file hosts. */
struct pod_isolation pod_isolation_probe(const char *hosts);
/* Whether a child can enter with these mounts; errno otherwise. */
bool pod_isolation_permits(const struct pod_isolation *isolation, const struct mount_plan *mounts);

/* Gives the calling process and its program its own name and mounts; context is a struct pod_isolation. 0,
 * or -1 with errno. System calls only: for spawn_options.enter. */
int pod_isolation_enter(const void *context);

#endif
