/* membership.h - one agent's seat in a job's world, whatever carries it.
 *
 * Three carriers, one interface: in process (--standalone, or one node: the roster runs inside this object,
 * no socket at all), server (this agent hosts the roster behind a ZeroMQ ROUTER and is a member of it too)
 * and client (a DEALER to the server's host). The agent's loop polls membership_fd and membership_deadline
 * and calls membership_next until it says 0.
 *
 * Life of a seat: open (joins) -> WORLD -> report RUNNING -> ... -> report FAILED or DONE -> STOP (then
 * report STOPPED, then the next WORLD) or VERDICT (the job is over; leave with its exit code). A STOP comes
 * to every agent that has the world, also to one that reported FAILED or DONE. The serving agent gets its
 * VERDICT last, when the others have left (bounded); until then a STOP may be all it hears. All calls are
 * from one thread; none blocks. After any call, call membership_next until it says 0 before sleeping, and
 * look at membership_deadline again.
 *
 * Server and client seats own a ZeroMQ context, which must not cross a fork: between fork and exec the child
 * calls nothing of this interface, and a process that forks without exec opens its seat after the last fork.
 * Every descriptor is close-on-exec, and all signals are blocked in the threads of a seat. In process, no
 * thread, descriptor or ZeroMQ call is made at all. */
#ifndef MUSTER_RENDEZVOUS_MEMBERSHIP_H
#define MUSTER_RENDEZVOUS_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"
#include "rendezvous/roster/world.h"
#include "rendezvous/seat/membership_options.h"

struct membership;

/* Joins. The object is owned by the caller; options are copied. */
struct membership *membership_open(const struct membership_options *options, struct muster_error *err);
/* Readable when membership_next may have something; -1 where the carrier needs none (in process). Edge or
 * level: always drain with membership_next until it returns 0. */
int membership_fd(const struct membership *m);
/* When membership_next must be called even if the descriptor is silent. */
struct instant membership_deadline(const struct membership *m);
/* 1: event is filled; 0: nothing now; -1: the seat is lost (MUSTER_E_TIMEOUT while joining, MUSTER_E_PEER
 * where the server is gone: exit with EXIT_CODE_NODE; MUSTER_E_REFUSED where it does not go together with
 * this node: exit with EXIT_CODE_FAILURE), err says why: stop the workers. */
int membership_next(struct membership *m, struct membership_event *event, struct muster_error *err);
/* Reports about world id; an id that is not the current one is ignored (it is stale by definition). failure
 * is read for FAILED only. */
int membership_report(struct membership *m, struct world_id id, enum membership_report_kind kind,
                      const struct worker_failure *failure, struct muster_error *err);
/* The agent is to go, with exit_code: all agents are sent a planned STOP, so that everybody's workers can
 * save within grace_ns. When ours have ended the agent leaves (membership_leave) instead of reporting
 * STOPPED; the others of an elastic world go on, those of a static one get their verdict. Where the serving
 * agent of an elastic world goes on SIGTERM its server stays until the others have stopped
 * (membership_part), and they wait for it to come back; with another code they get their
 * verdict. A drain may stay unanswered. Not for a seat in process. */
int membership_drain(struct membership *m, int exit_code, int64_t grace_ns, struct muster_error *err);
/* While the world forms, who is waited for, for people ("" where nothing is known); NUL-terminated. */
void membership_progress(const struct membership *m, char *out, size_t size);
/* Whether there is a report that the server has not taken note of yet. */
bool membership_has_news(const struct membership *m);
/* Of a client seat: how long the server was not heard, if long enough to miss it; else 0. */
int64_t membership_silence_ns(const struct membership *m);
/* Of a client seat: its server's name stands for this numeric address now. */
int membership_move(struct membership *m, const char *host, struct muster_error *err);
/* Leaves with a word (TERM): the others are told at once. exit_code is what this agent will exit with. */
int membership_leave(struct membership *m, int exit_code, struct muster_error *err);
/* Begins to close: the seat gives nothing out any more. The serving agent's, once there is a verdict or it
 * has left, waits linger_ns for the others to leave; where it left an elastic world on SIGTERM, from when
 * they have stopped, which has a bound of its own. Does not block; membership_fd becomes readable when that
 * is over. */
void membership_part(struct membership *m, int64_t linger_ns);
/* After that: how many others are waited for; 0: none, or no longer. */
int membership_parting(const struct membership *m);
/* Closes without blocking longer than linger_ns for messages in flight, and, without membership_part before,
 * for what that begins. After a verdict the server is told; without verdict or leave the seat vanishes, as if
 * the agent had died. Accepts NULL. */
void membership_destroy(struct membership *m, int64_t linger_ns);

#endif
