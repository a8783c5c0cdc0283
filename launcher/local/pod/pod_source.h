/* pod_source.h - one pod as its controller describes it: a template, and the names and values that the
 * controller adds (pure). Texts and nodes belong to the trees that they were read from, but for texts that
 * are marked as owned. */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_POD_SOURCE_H
#define MUSTER_LAUNCHER_LOCAL_POD_POD_SOURCE_H

#include "launcher/local/pod/env_map.h"
#include "launcher/local/pod/problems.h"
#include "proto/base/text_list.h"
#include "proto/tree/tree.h"

/* The trainer section of a TrainJob: its command, args, env and resourcesPerNode go before the container's.
 */
struct pod_overlay {
    const char *file;
    const struct tree_node *node; /* NULL: none */
    const struct path *path;
};

struct pod_source {
    const char *file, *namespace_;
    const struct tree_node *template_; /* metadata and spec */
    const struct path *path;           /* the template's */
    size_t container;                  /* index of the container that is run */
    struct pod_overlay over;
    const struct tree_node *claims;              /* a JobSet's volumeClaimPolicies; NULL: none */
    const char *claims_of;                       /* its name */
    const struct text_list *more;                /* words after the command; NULL: none */
    char *name, *hostname, *subdomain, *address; /* owned; subdomain NULL: none */
    struct facts labels, annotations, variables;
};

const struct tree_node *pod_source_spec(const struct pod_source *source);
const struct tree_node *pod_source_container(const struct pod_source *source);
/* command or args: the overlay's, else the container's; NULL where neither is a list. */
const struct tree_node *pod_source_words(const struct pod_source *source, const char *field);
/* The map of limits or requests of the container that is run; NULL for none. */
const struct tree_node *pod_source_resources(const struct pod_source *source, const char *kind);
/* GPUs that it may use: limits, else requests, of NVIDIA's resources. */
int pod_source_gpus(const struct pod_source *source);
/* Index of the container of this name in the template; -1 for none. */
int pod_source_find(const struct tree_node *template_, const char *name);
/* The claim's template of this name in the volumeClaimPolicies; NULL for none. */
const struct tree_node *pod_source_claim(const struct pod_source *source, const char *name);
void pod_source_free(struct pod_source *source);

#endif
