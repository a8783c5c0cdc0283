/* agent_membership.h - this agent's membership in the world (rendezvous/membership.h): the choice of the
 * server, joining, events for the agent, and its reports to the others. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_MEMBERSHIP_H
#define MUSTER_LAUNCHER_AGENT_AGENT_MEMBERSHIP_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_membership_part;

/* Reports about the world of the round; failure for FAILED only, also again when more is known of it. */
void agent_membership_report(struct agent *agent, enum membership_report_kind kind,
                             const struct worker_failure *failure);
/* The agent leaves, with the group's exit code; it requests before that all save and stop. */
void agent_membership_leave(struct agent *agent);
void agent_membership_drain(struct agent *agent);
/* An operator's request that a node leaves; the answer is AGENT_EVICTION. -1: this job cannot (err). */
int agent_membership_evict(struct agent *agent, const struct membership_evict *request,
                           struct muster_error *err);
/* A worker of this rank has lost a peer, of which no failure is known (membership_miss). */
void agent_membership_miss(struct agent *agent, int rank);
/* Whether there is a report that the server has not acknowledged yet. */
bool agent_membership_has_news(const struct agent *agent);
/* The verdict on the job; NULL: none yet. */
const struct membership_event *agent_membership_verdict(const struct agent *agent);
/* The reason for waiting while there is no world, or while leaving, for display; "" if unknown. */
void agent_membership_describe(const struct agent *agent, char *out, size_t size);
/* The agent that serves the job, for display; empty while it is not known. */
void agent_membership_serving(const struct agent *agent, struct membership_serving *out);
/* Whether this node serves the job, or tries to. */
bool agent_membership_serves(const struct agent *agent);
/* Numeric, for this node or, if it serves, for the others; "" until it is known. */
const char *agent_membership_server_address(struct agent *agent);
/* A job that may live elsewhere, as in rendezvous/membership.h; false and nothing before this node joins. */
bool agent_membership_seeks(const struct agent *agent);
void agent_membership_ask(struct agent *agent, const char *address, uint16_t port);
/* Whether this node only waits for the endpoint's name, and joins at no address before. Then it may join at
 * this one, where an agent listens at the endpoint's port. */
bool agent_membership_resolves(const struct agent *agent);
void agent_membership_join_at(struct agent *agent, const char *address);
/* Notes, as in rendezvous/membership.h; there are none before this node has joined. */
uint64_t agent_membership_notes_wanted(const struct agent *agent);
void agent_membership_note(struct agent *agent, const char *data, size_t length);
bool agent_membership_take_note(struct agent *agent, struct membership_note *out);
/* The end: the server outlives its agent's part in the job until the others have acknowledged it, and a voter
 * until the next round is decided (membership_part, membership_parting). */
void agent_membership_depart(struct agent *agent, int64_t linger_ns);
int agent_membership_departing(const struct agent *agent, bool *votes);

#endif
