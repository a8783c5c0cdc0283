/* container_check.h - values of the container that is run which an API server refuses though their types are
 * right (pure): devices, requests above limits, ports. */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_CONTAINER_CHECK_H
#define MUSTER_LAUNCHER_LOCAL_POD_CONTAINER_CHECK_H

#include "launcher/local/pod/pod_source.h"

void container_check(struct problems *problems, const struct pod_source *source);

#endif
