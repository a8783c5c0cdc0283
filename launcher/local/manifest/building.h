/* building.h - a job while it is made of an object: the common part of all kinds. */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_BUILDING_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_BUILDING_H

#include "launcher/local/job/job.h"
#include "launcher/local/manifest/manifest.h"
#include "launcher/local/pod/pod_source.h"
#include "launcher/local/pod/problems.h"
#include "proto/tree/tree.h"

/* --- patches ---
 *
 * Merges an object with a patch as Kubernetes does (strategic merge): maps by key, lists of named things by
 * their names, everything else is replaced (pure). */

/* Owns the nodes that merging makes; parts of the given trees are shared. Zeroed at first. */
struct patch_memory {
    void **blocks;
    size_t count;
};

/* The patched node, or NULL without memory. base NULL: the patch itself. */
const struct tree_node *patch_merge(struct patch_memory *memory, const struct tree_node *base,
                                    const struct tree_node *patch);
/* A map of one key, and a list of one item, of the caller's own making; NULL without memory or of NULL. key
 * must outlive the memory. */
const struct tree_node *patch_map(struct patch_memory *memory, const char *key,
                                  const struct tree_node *value);
const struct tree_node *patch_list(struct patch_memory *memory, const struct tree_node *item);
void patch_free(struct patch_memory *memory);

enum { BUILDING_PODS_LIMIT = 1000 /* a machine runs no more */ };

struct building {
    const struct documents *documents;
    const struct manifest_settings *settings;
    const struct document_object *object; /* the chosen one */
    struct patch_memory merged;           /* a runtime's, with a TrainJob's patches */
    struct tree built_in;                 /* a runtime that the files lack and Trainer brings */
    struct local_job *job;
    int64_t room; /* pods that there is memory for */
    size_t bytes; /* size of all pods' environments, commands and files */
    struct problems *problems;
    struct muster_error *err;
};

int building_no_memory(const struct building *b);

/* Memory for so many more pods; 0, -1 without memory. */
int building_reserve(struct building *b, int64_t more);
/* Appends the pod of a source, whose address it sets; the caller fills type, group and index. -1 without
 * memory, and where the job gets too large. */
int building_add_pod(struct building *b, struct pod_source *source, struct local_pod **pod);
/* Containers other than the main one: a note for each. */
void building_note_containers(const struct building *b, const struct pod_source *source);
/* Name, namespace and the texts of its object; a generated name ends with "local". */
int building_name(struct building *b, const char **name, char **owned);

/* The kinds. Each fills b->job; -1 without memory or beyond a limit, problems->fatal if no pod can be made.
 */
int pytorchjob_build(struct building *b);
int indexed_job_build(struct building *b);
int jobset_build(struct building *b);
int trainjob_build(struct building *b);

/* --- worlds apart ---
 *
 * Finds jobs whose pods form a world each instead of one together: the commonest mistake in manifests of
 * several pods, which nothing in a cluster reports (pure). */

/* Where every pod with a launcher starts a world of one node, and there are several: a warning, and
 * job->apart is the reason. -1 without memory. */
int apart_check(struct local_job *job, const char *file, struct problems *problems);

#endif
