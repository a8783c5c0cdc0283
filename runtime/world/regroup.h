/* regroup.h - the launcher's word that this rank stays when others are replaced, and its place in the next
 * round (launcher/docs/regroup.md).
 *
 * A thread reads the socket of notices. When the word comes it lets this rank's communicators go, so that a
 * collective that waits for a lost rank ends, and answers. The lines stay in the socket until a place is
 * taken: stop notices are among them (notice.c). */
#ifndef MUSTER_RUNTIME_WORLD_REGROUP_H
#define MUSTER_RUNTIME_WORLD_REGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/world/world_environment.h"

struct regroup;

/* Registers this rank with its launcher. round: its present one. 1: *out is owned by the caller; 0: there is
 * no launcher that speaks this. */
int regroup_listen(int64_t round, struct regroup **out, struct muster_error *err);
void regroup_end(struct regroup *regroup); /* ends the registration; accepts NULL */

/* A case more in which this rank stays. */
enum regroup_case {
    REGROUP_MOVES,   /* a node leaves on purpose: ranks of other nodes have its ranks' state */
    REGROUP_RESIZES, /* in a world of another size, or with another rank */
    REGROUP_GROWS    /* nodes join on purpose: ranks that are interrupted in a step have a whole state */
};
int regroup_also(struct regroup *regroup, enum regroup_case which, struct muster_error *err);

/* let_go ends the collectives of one communicator, or several: any thread may call it, also when they have
 * ended. It replaces the function that has the same context; NULL removes that. After the word has come the
 * call itself calls it. MUSTER_E_LIMIT beyond REGROUP_HOLDERS. */
enum { REGROUP_HOLDERS = 8 };
int regroup_hold(struct regroup *regroup, void (*let_go)(void *context), void *context,
                 struct muster_error *err);
/* No function that regroup_hold has registered runs between these two. */
void regroup_lock(struct regroup *regroup);
void regroup_unlock(struct regroup *regroup);

/* Waits at most wait_ns for the word, and then for the place. 1: *place has its ranks, address and round, and
 * the rest as it was; 0: no word came; -1: the launcher has gone. From then on a second word is not answered
 * until regroup_ready, but it calls the functions of regroup_hold: they end what they can of the rank's new
 * connections. A rank that is stuck all the same is started anew by its launcher. */
int regroup_await(struct regroup *regroup, int64_t wait_ns, struct world_place *place,
                  struct muster_error *err);
/* Whether the word has come, and no place was taken since: for waits of any thread. */
bool regroup_is_told(void *regroup);
/* This rank has communicators that no function ends, or makes some: the word is not answered until
 * regroup_ready. Whether it was busy before; regroup NULL: true. */
bool regroup_busy(struct regroup *regroup);
/* This rank's new communicators can be let go. Accepts NULL, as regroup_busy does. */
void regroup_ready(struct regroup *regroup);

/* ---- pure ---- */

/* A line of the launcher's. kind: "regroup" or "place"; false: another one. */
bool regroup_is(const char *line, const char *kind);
/* Reads a line that is a place. MUSTER_E_PROTOCOL where a number or the address is missing. */
int regroup_read_place(const char *line, struct world_place *place, struct muster_error *err);

#endif
