/* manifest_options.h - the settings of `muster manifest`, and the writers of each kind (pure). */
#ifndef MUSTER_LAUNCHER_MANIFEST_MANIFEST_OPTIONS_H
#define MUSTER_LAUNCHER_MANIFEST_MANIFEST_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"

enum manifest_kind {
    MANIFEST_PYTORCHJOB,
    MANIFEST_TRAINJOB,
    MANIFEST_JOB,
    MANIFEST_JOBSET,
    MANIFEST_SLURM,
};

struct manifest_options {
    int kind; /* enum manifest_kind */
    char *name, *namespace_, *image, *launcher_image, *secret, *memory, *shm, *queue;
    char **env;    /* NAME=value, checked; NULL-terminated, NULL: none */
    char **claims; /* CLAIM=PATH, checked; the same */
    int64_t nodes, gpus, workers, cpus, restarts, metrics_port;
    double grace_s;
    bool help;
    char *const *program; /* NULL-terminated, at least one word */
};

/* Seconds of the grace period that are left for the work after the workers' end. */
enum { MANIFEST_GRACE_MARGIN_S = 15, MANIFEST_PORT = 29500 };

/* Workers of a node: as given, else one a GPU, else one. */
int64_t manifest_workers(const struct manifest_options *o);
/* Whether the nodes share a secret. */
bool manifest_has_secret(const struct manifest_options *o);
/* The name of the Secret. */
void manifest_secret_name(const struct manifest_options *o, struct buffer *out);

/* Variables that the kind's controller does not set. */
struct manifest_place {
    bool nodes;         /* PET_NNODES and PET_NPROC_PER_NODE */
    const char *master; /* PET_MASTER_ADDR; NULL: set by the controller */
};
/* A pod template's metadata and spec, indented by so many blanks. container is its name. */
void manifest_pod(const struct manifest_options *o, const char *container, const char *restart_policy,
                  const char *subdomain, const struct manifest_place *place, int indent, struct buffer *out);
/* The whole file; secret: the line of the job's secret, NULL for none. -1 where out has failed. */
int manifest_write(const struct manifest_options *o, const char *secret, struct buffer *out);

#endif
