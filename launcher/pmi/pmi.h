/* pmi.h - pure: PMI-1, as a process manager speaks it with the MPI processes of one node in one round.
 *
 * MPICH, Intel MPI and MVAPICH find their peers through a process manager: each process has a descriptor
 * (PMI_FD) with text lines, a request and a reply. A process puts its addresses under keys, waits in a
 * barrier, and gets the keys of others. This is the manager's half for the ranks of one node, as a state
 * machine without I/O: bytes of a rank in, replies out, and texts that the nodes exchange.
 *
 * Exchanges are numbered from 0 and are the same on every node. The first begins when a rank of the node
 * calls MPI_Init, and has the ranks of each node; replies to MPI_Init wait for it. Another begins when all
 * ranks of the node are in a barrier: the node's new keys go out, the keys of all nodes come in, and the
 * barrier opens. So a node's requests to the job's store do not depend on its ranks, and every get is
 * answered here.
 *
 *     cmd=init pmi_version=1 pmi_subversion=1     ->  cmd=response_to_init pmi_version=1 pmi_subversion=1
 * rc=0 cmd=put kvsname=K key=A value=B             ->  cmd=put_result rc=0 msg=success cmd=get kvsname=K
 * key=A                     ->  cmd=get_result rc=0 msg=success value=B cmd=barrier_in ->  cmd=barrier_out
 * rc=0
 *
 * Protocol: the wire format of MPICH's "simple" PMI client, version 1.1. */
#ifndef MUSTER_LAUNCHER_PMI_PMI_H
#define MUSTER_LAUNCHER_PMI_PMI_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum {
    PMI_LINE_LIMIT = 4096,
    PMI_KEY_LIMIT = 64,     /* with the final NUL, as the client counts */
    PMI_VALUE_LIMIT = 1024, /* the same */
    PMI_NAME_LIMIT = 64,    /* the same, of the key-value space */
    PMI_OWN_LIMIT = 4 << 20 /* bytes of one node's keys in a round */
};

/* symbol, printable text: the state of one rank */
#define PMI_STATES(X)                                                                                        \
    X(PMI_STARTED, "has not called MPI_Init")                                                                \
    X(PMI_GREETS, "waits in MPI_Init for the other nodes")                                                   \
    X(PMI_RUNS, "has called MPI_Init")                                                                       \
    X(PMI_IN_BARRIER, "waits for the other ranks")                                                           \
    X(PMI_FINALIZED, "has called MPI_Finalize")                                                              \
    X(PMI_GONE, "has ended without MPI_Finalize")

enum pmi_state {
#define PMI_STATE_ENUM(symbol, text) symbol,
    PMI_STATES(PMI_STATE_ENUM)
#undef PMI_STATE_ENUM
        PMI_STATE_COUNT
};
const char *pmi_state_text(enum pmi_state state);

/* At all times: first + local <= world. */
struct pmi_place {
    int node, nodes;
    int first, local; /* this node's ranks */
    int world;        /* ranks of all nodes */
    /* The key-value space, the same on all nodes and no other round's: MPICH names its shared memory after
     * it. */
    char name[PMI_NAME_LIMIT];
};

struct pmi;

/* Owned by the caller. NULL only without memory. */
struct pmi *pmi_create(const struct pmi_place *place, struct muster_error *err);
void pmi_destroy(struct pmi *pmi); /* accepts NULL */

/* Bytes from a rank of this node. -1: they are no PMI-1, err names line and reason, and the rank is gone: its
 * connection is to be closed. */
int pmi_take(struct pmi *pmi, int local_rank, const char *bytes, size_t length, struct muster_error *err);
/* Bytes for the rank; the caller consumes them. */
struct buffer *pmi_replies(struct pmi *pmi, int local_rank);
/* The rank's connection has ended. A rank that has called MPI_Finalize stays in that state. */
void pmi_leave(struct pmi *pmi, int local_rank);
enum pmi_state pmi_state_of(const struct pmi *pmi, int local_rank);
/* The rank has called MPI_Init after MPI_Finalize: another process of it, which is refused. */
bool pmi_began_again(const struct pmi *pmi, int local_rank);

/* The number of the exchange that is due, -1: none. *own is the text of this node for the others: any bytes
 * but NUL, valid until pmi_take_exchange. */
int pmi_due_exchange(struct pmi *pmi, struct buffer **own);
/* A rank has exited 0 without MPI_Finalize, and none of this node is in MPI: the next exchange is due, and
 * reports it to the other nodes, whose ranks would wait for ever. Nothing where there is no other node. -1:
 * no memory. */
int pmi_report_missing(struct pmi *pmi, int local_rank);
/* The exchange that is due or under way reports a missing rank. */
bool pmi_reports_missing(const struct pmi *pmi);
/* The texts of all nodes, in any order, this node's too. -1: they are not the world's (MUSTER_E_INVALID), or
 * a node reports a missing rank (MUSTER_E_PEER). */
int pmi_take_exchange(struct pmi *pmi, const char *all, size_t length, struct muster_error *err);

/* A request of a rank that the log names. */
struct pmi_note {
    enum { PMI_NOTE_NONE, PMI_NOTE_ABORT, PMI_NOTE_SPAWN } kind;
    int local_rank, exit_code; /* the code of an abort */
};
/* The next note. */
struct pmi_note pmi_take_note(struct pmi *pmi);

/* "(vector,(first node,nodes,ranks a node),...)": the place of each rank, for the value of
 * PMI_process_mapping. counts: ranks of each node. False: longer than a value may be. */
bool pmi_mapping(const int *counts, int nodes, struct buffer *out);

#endif
