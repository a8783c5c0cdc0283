/* membership.h - one agent's membership in a job's world, over any transport.
 *
 * Three transports, one interface: in process (--standalone, or one node: the roster runs inside this
 * object, no socket at all), server (this agent hosts the roster, serves it by a ZeroMQ ROUTER, and is a
 * member too) and client (a DEALER to the server's host). The agent's loop polls membership_fd and
 * membership_deadline and calls membership_next until it returns 0.
 *
 * Life of a membership: open (joins) -> WORLD -> report RUNNING -> ... -> report FAILED or DONE -> STOP
 * (then report STOPPED, then the next WORLD) or VERDICT (the job is over; exit with its exit code). Every
 * agent of the world gets a STOP, also an agent that reported FAILED or DONE. The serving agent gets its
 * VERDICT last, when the others have left (bounded); until then it may get a STOP only. All calls are from
 * one thread; none blocks. After any call, call membership_next until it returns 0 before sleeping, and
 * read membership_deadline again.
 *
 * Server and client memberships own a ZeroMQ context, which must not cross a fork: between fork and exec
 * the child calls nothing of this interface, and a process that forks without exec opens its membership
 * after the last fork. Every descriptor is close-on-exec, and all signals are blocked in the threads of a
 * membership. In process, no thread, descriptor or ZeroMQ call is made at all. */
#ifndef MUSTER_RENDEZVOUS_MEMBERSHIP_H
#define MUSTER_RENDEZVOUS_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"
#include "rendezvous/roster/world.h"
#include "rendezvous/transport/membership_options.h"

struct membership;

/* Joins. The object is owned by the caller; options are copied. */
struct membership *membership_open(const struct membership_options *options, struct muster_error *err);
/* Readable when membership_next may have something; -1 if the transport needs none (in process). Edge or
 * level: always drain with membership_next until it returns 0. */
int membership_fd(const struct membership *m);
/* When membership_next must be called even if the descriptor is silent. */
struct instant membership_deadline(const struct membership *m);
/* 1: event is filled; 0: nothing now; -1: the membership is lost (MUSTER_E_TIMEOUT while joining,
 * MUSTER_E_PEER if the serving node is lost, err names the reason why none follows: exit with EXIT_CODE_NODE;
 * MUSTER_E_REFUSED if this node is incompatible with the server: exit with EXIT_CODE_FAILURE), err holds the
 * reason: stop the workers. */
int membership_next(struct membership *m, struct membership_event *event, struct muster_error *err);
/* Reports about world id; an id that is not the current one is ignored (it is stale by definition). failure
 * is read for FAILED only. */
int membership_report(struct membership *m, struct world_id id, enum membership_report_kind kind,
                      const struct worker_failure *failure, struct muster_error *err);
/* The agent leaves, with exit_code: all agents are sent a planned STOP, so that all workers can save
 * within grace_ns. When ours have ended the agent leaves (membership_leave) instead of reporting STOPPED;
 * the others of an elastic world continue; in a static world they get their verdict. If the serving agent
 * of an elastic world leaves on SIGTERM its server stays until the others have stopped (membership_part),
 * and they wait for it to come back; with another code they get their verdict. A drain may stay
 * unanswered. Not for a membership in process. */
int membership_drain(struct membership *m, int exit_code, int64_t grace_ns, struct muster_error *err);
/* An operator asks that a node leaves, this one or another: the answer is EVICTION. Neither the request nor
 * the answer is repeated: ask again, once an answer has named the agent with that. MUSTER_E_STATE: this job
 * cannot. */
int membership_evict(struct membership *m, const struct membership_evict *request, struct muster_error *err);
/* While the world forms, the missing nodes, for display ("" if unknown); NUL-terminated. */
void membership_progress(const struct membership *m, char *out, size_t size);
/* Whether there is a report that the server has not acknowledged yet. */
bool membership_has_news(const struct membership *m);
/* A worker of this rank of the present world has lost a peer, of which no failure is known: if a worker of
 * another node has exited 0, that is the failure of this round. To be repeated: the message may be lost, and
 * the server decides when all nodes have sent something since the first. */
void membership_miss(struct membership *m, int rank);
/* A worker of this rank of the present world has exited 0 while others of this agent run. */
void membership_ended(struct membership *m, int rank);
/* --- notes: a node's lines on the job's page; neither numbered nor kept --- */

/* In a client: not 0 while the server wants notes; the number changes when the server may be another. */
uint64_t membership_notes_wanted(const struct membership *m);
/* Sends a note of at most WIRE_NOTE_LIMIT bytes (wire.h) if they are wanted. */
void membership_note(struct membership *m, const char *data, size_t length);
/* In a server whose options want notes: takes the next note, if there is one. The notes are bounded: if they
 * are not taken, new notes are dropped. A caller that takes them before the event of a new world has all
 * notes sent before it. */
bool membership_take_note(struct membership *m, struct membership_note *out);
/* In a client: time since the server's last message, if long enough to be unusual; else 0. */
int64_t membership_silence_ns(const struct membership *m);
/* In a client: the server's name now resolves to this numeric address. */
int membership_move(struct membership *m, const char *host, struct muster_error *err);
/* The numeric address of the agent that serves the job, if it is not the one at the endpoint: of this agent
 * as others reach it, too; else "". */
const char *membership_server(const struct membership *m);
/* The agent that serves the job now, and those that decide about the next one. */
void membership_serving(const struct membership *m, struct membership_serving *out);
/* Whether this agent knows no server of a job that has begun. */
bool membership_seeks(const struct membership *m);
/* Asks the agent at this numeric address, if there is one, where the job is served; the membership goes on
 * there. */
void membership_ask(struct membership *m, const char *address, uint16_t port);
/* Leaves with a LEAVE message (SIGTERM): the others are informed at once. exit_code is this agent's. */
int membership_leave(struct membership *m, int exit_code, struct muster_error *err);
/* Begins to close: no more events are given out. The serving agent, after a verdict or after it has left,
 * waits linger_ns for the others to leave; if it left an elastic world on SIGTERM, from when they have
 * stopped, which has a limit of its own. Does not block; membership_fd becomes readable when that is over.
 * grace_ns: how long this agent may take from its drain, or from now, for its vote. */
void membership_part(struct membership *m, int64_t linger_ns, int64_t grace_ns);
/* After that, as often as the descriptor is readable or the deadline reached: the number of others still
 * waited for; 0: none. A voter of an elastic job that has left waits until the next round is decided, since
 * its vote may be needed: for 10 s at most, to a second before the end of its grace (but a second in any
 * case), and not at all if no other voter is left. *votes: that is why it waits. */
int membership_parting(struct membership *m, bool *votes);
/* Closes without blocking longer than linger_ns for messages in flight and, without membership_part
 * before, for the wait that it begins. After a verdict the server is informed; without verdict or leave
 * the membership is lost, as if the agent had died. Accepts NULL. */
void membership_destroy(struct membership *m, int64_t linger_ns);

#endif
