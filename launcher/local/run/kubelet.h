/* kubelet.h - pure: one pod and its container: the table of lifecycle.h. */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_KUBELET_H
#define MUSTER_LAUNCHER_LOCAL_RUN_KUBELET_H

#include "launcher/local/run/lifecycle.h"

/* exit_code: for POD_ENDED. An event without meaning in the pod's state is logged as an internal error and
 * changes nothing. */
void kubelet_step(struct lifecycle *life, int pod, enum pod_event event, int exit_code, struct instant now);

/* Whether the pod's phase is Running: also while its container waits to be restarted. */
bool kubelet_is_active(enum pod_state state);
/* Whether there is, or will be by itself, a process of it. */
bool kubelet_is_live(enum pod_state state);

enum local_restart_policy kubelet_policy(const struct lifecycle *life, int pod);

#endif
