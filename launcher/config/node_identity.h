/* node_identity.h - pure: this node's place in the world, worked out where flags and PET_ variables do not
 * say it.
 *
 * The rules, the first that matches: JOB_COMPLETION_INDEX of an Indexed Job; the host name of a PyTorchJob's
 * pod; the node-level RANK and WORLD_SIZE of older operators; a Slurm step with one task per node. A rule
 * fills only what nothing else said. */
#ifndef MUSTER_LAUNCHER_CONFIG_NODE_IDENTITY_H
#define MUSTER_LAUNCHER_CONFIG_NODE_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

enum { NODE_IDENTITY_HOST_SIZE = 256, NODE_IDENTITY_SOURCE_SIZE = 320 };

/* What flags and variables of our own settings said. */
struct node_identity_known {
    int nodes;                                           /* 0: nothing said */
    const char *master_addr;                             /* NULL: nothing said */
    int64_t master_port;                                 /* -1: nothing said */
    const char *host_name;                               /* of this machine */
    const char *full_name;                               /* with its domain; "" where it is not known */
    const char *(*get)(void *context, const char *name); /* the environment */
    void *context;
};

struct node_identity_found {
    char source[NODE_IDENTITY_SOURCE_SIZE]; /* "the host name j-worker-1"; "" where no rule matched */
    int nodes;                              /* 0: leave what is known, as below */
    int node_rank;
    char master_addr[NODE_IDENTITY_HOST_SIZE]; /* "": leave */
    int master_port;                           /* 0: leave */
    char job_id[64];                           /* "": leave */
};

/* For a node whose rank nothing has said. -1 with a reason where a rule matches and cannot be followed, as
 * where nothing names node 0. */
int node_identity_find(const struct node_identity_known *known, struct node_identity_found *found,
                       struct muster_error *err);

#endif
