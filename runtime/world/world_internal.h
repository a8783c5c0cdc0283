/* world_internal.h - parts of a world that its own files alone use. */
#ifndef MUSTER_RUNTIME_WORLD_WORLD_INTERNAL_H
#define MUSTER_RUNTIME_WORLD_WORLD_INTERNAL_H

#include "proto/include/muster_error.h"
#include "rendezvous/tcpstore/mac.h"
#include "runtime/comm/comm.h"

/* ---- heartbeat.c: lines to the launcher through the worker's pipe (launcher/docs/heartbeat.md) ---- */

/* One line with its newline, of less than PIPE_BUF. Never blocks: a line that the launcher has no room for is
 * dropped. Outside of muster run it does nothing. */
int heartbeat_write(const char *line, struct muster_error *err);

/* ---- notice.c: the socket of the launcher's lines ---- */

/* 1 with the descriptor; 0 without a launcher; -1 if the descriptor is not a socket. */
int notice_find(int *out, struct muster_error *err);
/* The number after a key of a line, "\"round\": "; missing if there is none. Pure. */
int64_t notice_number(const char *line, const char *name, int64_t missing);

/* ---- store_key.c: the key that a process of a job with a secret has from its launcher ---- */

/* 1: key is filled; 0: the launcher gives none. MUSTER_E_INVALID: MUSTER_STORE_KEY_FD is not such a file. */
int store_key_read(const char *(*get)(void *context, const char *name), void *context,
                   unsigned char key[MAC_KEY_SIZE], struct muster_error *err);

/* ---- world_comm.c: the collectives of a world for its user's own values ----
 *
 * A comm with a device and a piece of memory of its own. Operations run on the calling thread. */

struct world_comm_options {
    int rank, size, local_rank, local_size;
    const struct kv_store *store;
    const char *address; /* this rank's address, from world_address */
    int64_t timeout_ns;  /* time-out of creation and of each operation */
};

struct world_comm;

/* Collective: an error of one rank is an error of all. */
struct world_comm *world_comm_create(const struct world_comm_options *options, struct muster_error *err);
void world_comm_destroy(struct world_comm *comm); /* accepts NULL */
/* From any thread: ends a call that is in progress, and all later ones. */
void world_comm_abort(struct world_comm *comm);

/* Collective. op: all_reduce or broadcast, of data in place; its count is that of all data, which goes
 * through in pieces. After an error every later call returns that error. */
int world_comm_run(struct world_comm *comm, const struct comm_op *op, void *data, struct muster_error *err);

#endif
