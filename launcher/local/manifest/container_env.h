/* container_env.h - a container's environment as the kubelet makes it: envFrom, literal values, values from
 * the pod, its resources, ConfigMaps and Secrets, then what the operator adds (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_CONTAINER_ENV_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_CONTAINER_ENV_H

#include "launcher/local/manifest/documents.h"
#include "launcher/local/manifest/env_map.h"
#include "launcher/local/manifest/operator.h"

/* What the node says of itself, for fields and resources that the manifest leaves open. */
struct local_machine {
    const char *node_name;
    int cores;
    int64_t memory_bytes;
};

struct container_place {
    const struct pytorchjob *job;
    const struct documents *documents; /* ConfigMaps and Secrets */
    const struct local_machine *machine;
    enum local_replica_type type;
    int index;
    const char *pod_name, *address;
    char *const *extra; /* NAME=value, NULL-terminated, over what the manifest says; NULL: none */
    const struct tree_node *container;
    const struct path *path; /* of the container */
};

/* Adds to env; what cannot be had is a fatal problem. -1 where there is no memory. */
int container_env(const struct container_place *place, struct env_map *env, struct problems *problems,
                  struct muster_error *err);

#endif
