/* volumes.h - a container's mounts, from its volumeMounts and the pod's volumes (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_VOLUMES_H
#define MUSTER_LAUNCHER_LOCAL_POD_VOLUMES_H

#include "launcher/local/job/job.h"
#include "launcher/local/pod/container_env.h"

struct volumes_place {
    const struct container_place *container;
    const struct env_map *env;     /* the container's: for subPathExpr */
    struct local_volumes *volumes; /* the job's; pods of one template share its entries */
    size_t *bytes;                 /* the sizes of files are added */
    struct problems *problems;
};

/* Fills pod->mounts. A volume that a cluster would refuse is an error; a volume that is not given here, or
 * not emulated, is a warning or a note, and its path stays this machine's. -1 without memory. */
int pod_volumes(const struct volumes_place *place, struct local_pod *pod, struct muster_error *err);

/* The files of a configMap, secret, downwardAPI or projected volume; *own: they are this pod's alone. 1, 0
 * if the volume cannot be made (reported), -1 without memory. */
int volume_files(const struct volumes_place *place, const struct tree_node *node, const struct path *path,
                 struct local_volume *volume, bool *own, struct muster_error *err);
/* Whether a volume is such a one. */
bool volume_has_files(const struct tree_node *node);
/* Relative, and no part is "..", so that it stays inside the volume. */
bool volume_path_is_inside(const char *path);

#endif
