/* takeover_internal.h - the steps of takeover.c, takeover_again.c, takeover_leave.c, takeover_messages.c and
 * takeover_time.c, shared by these only. */
#ifndef MUSTER_RENDEZVOUS_TAKEOVER_TAKEOVER_INTERNAL_H
#define MUSTER_RENDEZVOUS_TAKEOVER_TAKEOVER_INTERNAL_H

#include "rendezvous/takeover/takeover.h"

/* What one step works on. */
struct takeover_work {
    struct takeover *t;
    struct instant now;
    struct takeover_actions *out;
};

static inline struct takeover_work takeover_work(struct takeover *t, struct instant now,
                                                 struct takeover_actions *out)
{
    out->count = 0;
    return (struct takeover_work){t, now, out};
}

static inline bool takeover_is_self(const struct takeover *t, const struct voter *voter)
{
    return agent_incarnation_equal(t->self.incarnation, voter->incarnation);
}

/* --- takeover.c --- */

/* A record of this job, older than a record that this agent has forgotten. */
bool takeover_is_below_floor(const struct takeover *t, const struct world_record *record);
/* A voter of the known record lives. */
void takeover_note_voter(struct takeover *t, struct agent_incarnation agent, struct instant now);

struct takeover_action *takeover_act(struct takeover_work *w, enum takeover_action_kind kind,
                                     const struct voter *to);
/* With the agent's record and ballot; the caller fills the rest. */
struct takeover_message *takeover_send(struct takeover_work *w, enum takeover_message_kind kind,
                                       const struct voter *to);
/* SERVE: this agent serves, under its ballot. */
void takeover_tell(struct takeover_work *w, const struct voter *to);
void takeover_tell_endpoints(struct takeover_work *w);
/* To those that have not answered; once more after TAKEOVER_TURN_MS. */
void takeover_send_to_voters(struct takeover_work *w, enum takeover_message_kind kind);
/* A random time below that (splitmix64). */
int64_t takeover_draw_ns(struct takeover *t, int64_t below_ns);
void takeover_change(struct takeover_work *w, enum takeover_state state, enum takeover_reason reason);
/* Whether an agent in this state serves, or has a server. */
bool takeover_leads(enum takeover_state state);
/* In SEEK or STAND. */
void takeover_serve(struct takeover_work *w, enum takeover_reason reason);
/* A voter stands no earlier than after wait_ns and its turn. */
void takeover_seek(struct takeover_work *w, enum takeover_reason reason, int64_t wait_ns);
void takeover_stand(struct takeover_work *w, enum takeover_reason reason);
void takeover_follow(struct takeover_work *w, const struct voter *server, struct ballot office);
/* The voter's promise or vote counts, by its index. */
void takeover_take_promise(struct takeover_work *w, int voter, const struct takeover_message *m);
void takeover_take_vote(struct takeover_work *w, int voter);
/* A majority has accepted the proposal. */
void takeover_chosen(struct takeover_work *w);
/* As takeover_learn. */
int takeover_take_record(struct takeover_work *w, const struct world_record *record,
                         struct muster_error *err);

/* --- takeover_again.c --- */

/* This agent's index among the voters of the known record; -1: it is none, or has forgotten its votes. */
int takeover_own_vote(const struct takeover *t);
/* Whether the sender's record counts for this agent. shows_office: the sender serves. */
bool takeover_may_take(const struct takeover *t, bool shows_office);
/* If the agent has waited for lost voters for long enough, it forgets them. Whether it did. */
bool takeover_begin_again(struct takeover_work *w);

/* --- takeover_leave.c --- */

/* leaves: the next round is decided, as this agent has just learned. */
void takeover_leave_decided(struct takeover_work *w);
/* leaves: messages to the voters are due. */
void takeover_leave_tell(struct takeover_work *w);
/* The sender of LEAVES, a voter. */
void takeover_leave_take(struct takeover_work *w, const struct takeover_message *m);

/* --- takeover_time.c --- */

/* Nothing was received for so long that the agent may be lost. */
bool takeover_is_doubtful(const struct takeover *t, struct instant heard, struct instant now);

/* Whether a live server is known here, or this is one: then no other agent is elected. */
bool takeover_is_served(const struct takeover *t, struct instant now);
/* FOLLOW, not served: how the server was lost. */
enum takeover_reason takeover_loss(const struct takeover *t);

#endif
