/* host_path.h - what a hostPath volume needs at its path on this machine, as the kubelet checks it. */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_HOST_PATH_H
#define MUSTER_LAUNCHER_LOCAL_RUN_HOST_PATH_H

#include "launcher/local/job/volume.h"
#include "proto/include/muster_error.h"

/* Makes what *OrCreate asks for. MUSTER_E_INVALID: something else is at the path, or nothing where the type
 * needs it, so that a cluster would not start the pod. MUSTER_E_NOT_FOUND, MUSTER_E_IO: this machine lacks
 * it. */
int host_path_prepare(const char *path, enum local_host_type type, struct muster_error *err);

#endif
