/* building.h - a job while it is made of an object: the common part of all kinds. */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_BUILDING_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_BUILDING_H

#include "launcher/local/manifest/manifest.h"
#include "launcher/local/manifest/patch.h"
#include "launcher/local/pod/pod_source.h"

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

#endif
