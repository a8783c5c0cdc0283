/* pytorchjob.h - a PyTorchJob object with the operator's defaults applied, and the rules of the operator's
 * webhook (training operator v1.9.4). All pure.
 *
 * Texts and nodes belong to the tree that the object was read from. */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_PYTORCHJOB_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_PYTORCHJOB_H

#include "launcher/local/job/job.h"
#include "launcher/local/pod/problems.h"
#include "launcher/local/pod/schema.h"
#include "proto/tree/tree.h"

enum { PYTORCHJOB_PORT = 23456, PYTORCHJOB_GRACE_S = 30 };

struct pytorchjob_replica {
    const struct tree_entry *entry;     /* under pytorchReplicaSpecs; NULL: the job has none of this type */
    const struct tree_node *containers; /* NULL where missing or of the wrong type */
    int pytorch;                        /* index of the container named pytorch, -1 */
    int64_t count;                      /* replicas, 1 by default; 0 without the type */
    enum local_restart_policy restart_policy;
    int port; /* the container pytorch's: its pytorchjob-port, 23456 by default */
};

struct pytorchjob {
    const char *file;
    const struct tree_node *object, *spec, *run_policy;
    const char *name, *namespace_;
    const struct tree_node *elastic; /* NULL: not elastic */
    const char *nproc; /* spec.nprocPerNode, "auto" by default; NULL if elasticPolicy's is set */
    int64_t min_replicas, max_replicas;
    enum local_clean_policy clean_policy;
    struct pytorchjob_replica replicas[LOCAL_REPLICA_TYPES];
};

/* Reads and defaults. Types that do not fit are reported (schema_check) and count as absent. name replaces
 * a generated metadata.name. */
void pytorchjob_read(const char *file, const struct tree_node *object, const char *generated_name,
                     struct pytorchjob *job, struct problems *problems);
/* The webhook's rules, and those without which the operator makes no pods (marked fatal). */
void pytorchjob_validate(const struct pytorchjob *job, struct problems *problems);
/* Silent behaviour of the operator that surprises users: warnings. */
void pytorchjob_warn(const struct pytorchjob *job, struct problems *problems);

/* The fields of the kind. */
extern const struct schema pytorchjob_schema;

#endif
