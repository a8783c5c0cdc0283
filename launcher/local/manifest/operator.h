/* operator.h - the operator's additions to each pod of a PyTorchJob (training operator v1.9.4): names,
 * labels and the environment. All pure. */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_OPERATOR_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_OPERATOR_H

#include "launcher/local/manifest/pytorchjob.h"

struct operator_variable {
    const char *name;
    char *value;
};
enum { OPERATOR_VARIABLES = 18 };
struct operator_env {
    struct operator_variable list[OPERATOR_VARIABLES]; /* in the operator's order; a name may occur twice */
    int count;
};

/* The operator's additions to the environment of every container of a pod. -1 without memory. */
int operator_env(const struct pytorchjob *job, enum local_replica_type type, int index,
                 struct operator_env *env);
void operator_env_free(struct operator_env *env);

/* <job>-master-0, the caller's (mem_free); NULL without memory. */
char *operator_pod_name(const struct pytorchjob *job, enum local_replica_type type, int64_t index);
/* The label that the operator sets on a pod, the caller's; *out is NULL if it sets none of this name. -1
 * without memory. */
int operator_label(const struct pytorchjob *job, enum local_replica_type type, int index, const char *name,
                   char **out);
/* Whether the operator puts its own container, which waits for the master's name, before those of the pod. */
bool operator_adds_init_container(const struct pytorchjob *job, enum local_replica_type type);

#endif
