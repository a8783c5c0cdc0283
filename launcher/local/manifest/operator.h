/* operator.h - the operator's additions to each pod of a PyTorchJob (training operator v1.9.4): names,
 * labels and the environment. All pure. */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_OPERATOR_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_OPERATOR_H

#include "launcher/local/manifest/pytorchjob.h"
#include "launcher/local/pod/facts.h"

/* The operator's additions to the environment of every container of a pod. -1 without memory. */
int operator_env(const struct pytorchjob *job, enum local_replica_type type, int index, struct facts *env);
/* The labels that it sets. -1 without memory. */
int operator_labels(const struct pytorchjob *job, enum local_replica_type type, int index,
                    struct facts *labels);

/* <job>-master-0, the caller's (mem_free); NULL without memory. */
char *operator_pod_name(const struct pytorchjob *job, enum local_replica_type type, int64_t index);
/* Whether the operator puts its own container, which waits for the master's name, before those of the pod. */
bool operator_adds_init_container(const struct pytorchjob *job, enum local_replica_type type);

#endif
