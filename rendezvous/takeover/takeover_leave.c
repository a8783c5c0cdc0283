/* takeover_leave.c - see takeover.h: an agent that leaves the job, and votes until the others have the next
 * round. */
#include "rendezvous/takeover/takeover_internal.h"

static bool is_decided(const struct takeover *t)
{
    return t->known.round != t->left_round;
}

/* Each of them may be lost, and they are repeated. */
void takeover_leave_tell(struct takeover_work *w)
{
    struct takeover *t = w->t;
    t->send_at = instant_add(w->now, TAKEOVER_TURN_MS * NS_PER_MS);
    for (int i = 0; i < t->known.voter_count; i++)
        if (!takeover_is_self(t, &t->known.voters[i]))
            takeover_send(w, TAKEOVER_LEAVES, &t->known.voters[i]);
}

void takeover_leave(struct takeover *t, int64_t limit_ns, struct instant now, struct takeover_actions *out)
{
    struct takeover_work w = takeover_work(t, now, out);
    t->leaves = true;
    t->left_round = t->known.round;
    t->left_at = now;
    t->stay_until = instant_add(now, limit_ns);
    t->stand_at = INSTANT_NEVER;
    if (t->state == TAKEOVER_STAND || t->state == TAKEOVER_SERVE)
        takeover_seek(&w, TAKEOVER_LEAVING, 0);
    takeover_leave_tell(&w);
}

void takeover_leave_decided(struct takeover_work *w)
{
    struct takeover *t = w->t;
    if (!t->leaves || !is_decided(t))
        return;
    if (takeover_own_vote(t) >= 0) {
        /* It was under way when this agent left. The round after it needs this vote. */
        t->left_round = t->known.round;
        t->left_at = t->send_at = w->now;
        return;
    }
    t->send_at = w->now;
    t->stay_until = instant_min(t->stay_until, instant_add(w->now, TAKEOVER_SPREAD_MS * NS_PER_MS));
}

void takeover_leave_take(struct takeover_work *w, const struct takeover_message *m)
{
    struct takeover *t = w->t;
    const int voter = record_find_voter(&t->known, m->from->incarnation);
    if (voter < 0 || record_compare(m->known, &t->known) != 0)
        return;
    t->leaving |= 1u << voter;
    if (!t->leaves && takeover_own_vote(t) >= 0)
        takeover_send(w, TAKEOVER_KNOWN, m->from);
}

/* Voters that do not answer are lost. They have that time to answer. */
static bool may_stand(const struct takeover *t, int voter, struct instant now)
{
    const bool asked = !takeover_is_doubtful(t, t->left_at, now);
    return voter < t->known.nodes && !takeover_is_self(t, &t->known.voters[voter]) &&
           !(t->leaving & 1u << voter) && (asked || !takeover_is_doubtful(t, t->heard_voter[voter], now));
}

bool takeover_stays(const struct takeover *t, struct instant now)
{
    if (!t->leaves || !t->known.epoch || instant_reached(now, t->stay_until))
        return false;
    if (is_decided(t))
        return true;
    if (takeover_own_vote(t) < 0)
        return false;
    for (int i = 0; i < t->known.voter_count; i++)
        if (may_stand(t, i, now))
            return true;
    return false;
}
