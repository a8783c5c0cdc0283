/* node_facts.h - pure: properties that all nodes of a job must have in common, as a few lines of text sent
 * between them, and the differences that break jobs.
 *
 * NCCL of two versions, or ranks on networks of two families, fail with an error that names neither, or
 * hang; so does a large message between interfaces of two sizes. */
#ifndef MUSTER_RUNTIME_NCCL_DOCTOR_NODE_FACTS_H
#define MUSTER_RUNTIME_NCCL_DOCTOR_NODE_FACTS_H

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"
#include "runtime/nccl/describe/description.h"

enum { NODE_FACTS_LIMIT = 2048 /* bytes of the text */ };

struct node_facts {
    char host[DESCRIPTION_TEXT];
    char nccl[DESCRIPTION_NAME], driver[DESCRIPTION_NAME], cuda[DESCRIPTION_NAME]; /* "" unknown */
    char interface[DESCRIPTION_NAME]; /* interface that reaches the other nodes; "" unknown */
    char address[DESCRIPTION_NAME];   /* interface's address, in the family of the route to the master; ""
                                         unknown */
    char network[DESCRIPTION_NAME];   /* "10.0.0.0/24"; "" if not meaningful: a pod's, or of one address */
    int family, mtu;                  /* 0 unknown */
    int rdma;                         /* ports that NCCL can use; -1: no GPU, so it does not matter */
    int gpus;                         /* -1 unknown */
    char model[DESCRIPTION_NAME];     /* model of the first GPU; "" unknown */
};

/* host: the agent's name, under which the node is known. */
void node_facts_take(const struct description *machine, const char *host, struct node_facts *facts);
/* As lines of name=value, appended; and back. Unknown values are left out, unknown names are skipped: a
 * peer may be newer. MUSTER_E_INVALID if it is no such text. */
int node_facts_write(const struct node_facts *facts, struct buffer *out);
int node_facts_read(const char *text, size_t length, struct node_facts *facts, struct muster_error *err);

/* Appends one line for each difference between the nodes, in the order of their ranks: "NCCL 2.21.5 on
 * node-a, node-b; 2.27.5 on node-c: consequence". An unknown value is not compared. A node that did not
 * respond has an empty host and is left out. */
int node_facts_compare(const struct node_facts *nodes, int count, struct buffer *out);

#endif
