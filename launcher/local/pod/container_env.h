/* container_env.h - a container's environment as the kubelet makes it: envFrom, literal values, values
 * from the pod, its resources, ConfigMaps and Secrets, then the controller's variables (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_CONTAINER_ENV_H
#define MUSTER_LAUNCHER_LOCAL_POD_CONTAINER_ENV_H

#include "launcher/local/pod/documents.h"
#include "launcher/local/pod/env_map.h"
#include "launcher/local/pod/pod_source.h"

/* Properties of the node, for fields and resources that the manifest leaves open. */
struct local_machine {
    const char *node_name;
    int cores;
    int64_t memory_bytes;
};

struct container_place {
    const struct pod_source *source;
    const struct documents *documents; /* ConfigMaps and Secrets */
    const struct local_machine *machine;
    char *const *extra; /* NAME=value, NULL-terminated, overrides the manifest; NULL: none */
    const char *file;   /* from which the container was read */
    const struct tree_node *container;
    const struct path *path; /* the container's */
};

/* Adds to env; a value that cannot be found is a fatal problem. -1 without memory. */
int container_env(const struct container_place *place, struct env_map *env, struct problems *problems,
                  struct muster_error *err);

#endif
