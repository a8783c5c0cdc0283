/* node_identity.h - pure: this node's place in the world, derived if flags and PET_ variables do not give
 * it.
 *
 * The rules, the first that matches: JOB_COMPLETION_INDEX of an Indexed Job; the host name of a
 * PyTorchJob's pod; the node-level RANK and WORLD_SIZE of older operators; a Slurm step with one task per
 * node; NODE_RANK and MASTER_ADDR. A rule fills only missing values. */
#ifndef MUSTER_LAUNCHER_CONFIG_NODE_IDENTITY_H
#define MUSTER_LAUNCHER_CONFIG_NODE_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

enum { NODE_IDENTITY_HOST_SIZE = 256, NODE_IDENTITY_SOURCE_SIZE = 320 };

/* The values of flags and variables. */
struct node_identity_known {
    int nodes;                                           /* 0: not given */
    const char *master_addr;                             /* NULL: not given */
    int64_t master_port;                                 /* -1: not given */
    const char *host_name;                               /* this machine's */
    const char *full_name;                               /* with its domain; "" if unknown */
    const char *(*get)(void *context, const char *name); /* the environment */
    void *context;
};

struct node_identity_found {
    char source[NODE_IDENTITY_SOURCE_SIZE]; /* "the host name j-worker-1"; "" if no rule matched */
    int nodes;                              /* 0: keep the known value, as below */
    int node_rank;
    char master_addr[NODE_IDENTITY_HOST_SIZE]; /* "": leave */
    int master_port;                           /* 0: leave */
    char job_id[64];                           /* "": leave */
};

/* For a node whose rank was not given. -1 with a reason if a rule matches but cannot be followed, for
 * example if the address of node 0 is unknown. */
int node_identity_find(const struct node_identity_known *known, struct node_identity_found *found,
                       struct muster_error *err);

/* The names of the job's other pods, from the host name and the name of node 0, in both of these forms:
 * JOB-worker-3 with JOB-worker-0 or JOB-master-0, as a PyTorchJob names pods; NAME-3 with NAME-0.SERVICE, as
 * a StatefulSet or an Indexed Job in a headless Service does. Each name has the domain of node 0's. Names are
 * in the order of node ranks, without node 0's, at most `limit` and none from `nodes` nodes on. *own: the
 * place of this pod among them; -1: it is none of them. Returns how many; 0: the names have no such form. */
int node_identity_siblings(const char *master, const char *host_name, int nodes,
                           char (*names)[NODE_IDENTITY_HOST_SIZE], int limit, int *own);

#endif
