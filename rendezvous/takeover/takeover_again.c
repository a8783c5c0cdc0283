/* takeover_again.c - see takeover.h: a job that begins, and begins again without the voters that it has lost.
 */
#include <assert.h>

#include "rendezvous/takeover/takeover_internal.h"

static void takeover_begin_job(struct takeover_work *w, enum takeover_reason reason)
{
    struct takeover *t = w->t;
    t->ballot = t->promised = (struct ballot){++t->highest, t->self.incarnation};
    takeover_serve(w, reason);
}

void takeover_begin(struct takeover *t, struct instant now, struct takeover_actions *out)
{
    struct takeover_work w = takeover_work(t, now, out);
    assert(t->state == TAKEOVER_SEEK && !t->known.epoch);
    takeover_begin_job(&w, TAKEOVER_BEGUN);
}

void takeover_at_endpoint(struct takeover *t)
{
    t->endpoint = true;
}

void takeover_all_ranks(struct takeover *t)
{
    t->all_ranks = true;
}

static struct voter lost_voter(const struct takeover *t, struct instant now)
{
    for (int i = 0; i < t->known.voter_count; i++)
        if (!takeover_is_self(t, &t->known.voters[i]) && takeover_is_doubtful(t, t->heard_voter[i], now))
            return t->known.voters[i];
    return (struct voter){0};
}

void takeover_forget(struct takeover *t, struct instant now)
{
    const struct takeover old = *t;
    const bool newer = old.known.epoch != 0;
    takeover_init(t, &old.self, old.random, now);
    t->floor_epoch = newer ? old.known.epoch : old.floor_epoch;
    t->floor_round = newer ? old.known.round : old.floor_round;
    t->lost_voter = newer ? lost_voter(&old, now) : old.lost_voter;
    t->forgot_votes = takeover_own_vote(&old) >= 0 || (old.forgot_votes && !newer);
    t->all_ranks = old.all_ranks;
    t->endpoint = old.endpoint;
    /* Late answers from before its next office have lower ballots. */
    t->highest = old.highest > old.promised.number ? old.highest : old.promised.number;
    t->works = old.works;
    t->refused = old.refused;
    t->lost_ns = old.lost_ns;
    t->doubt_ns = old.doubt_ns;
}

int takeover_own_vote(const struct takeover *t)
{
    const bool forgotten =
        t->forgot_votes && t->known.epoch == t->floor_epoch && t->known.round <= t->floor_round;
    return forgotten ? -1 : record_find_voter(&t->known, t->self.incarnation);
}

bool takeover_may_take(const struct takeover *t, bool shows_office)
{
    return shows_office || !t->all_ranks || t->known.epoch;
}

/* Of a job of all ranks. Without an agent at the endpoint that serves anew, a forgotten vote would help no
 * other agent. */
static bool may_do_without_lost(const struct takeover *t, struct instant now, int64_t alone_ns)
{
    return t->all_ranks && instant_diff_ns(now, t->lost_at) >= alone_ns &&
           (t->endpoint || !takeover_is_doubtful(t, t->again_at, now));
}

/* The agents that passed the record on have given the job up, one after another, and nobody knows it any
 * more. An agent that is started now would begin the job. */
static bool is_forgotten(const struct takeover *t, struct instant now, int64_t alone_ns)
{
    return t->endpoint && takeover_may_be_over(t, now) && instant_diff_ns(now, t->told_at) >= alone_ns;
}

static bool may_begin_again(const struct takeover *t, struct instant now)
{
    const int64_t alone_ns = TAKEOVER_ALONE_MS * NS_PER_MS + 2 * t->lost_ns;
    return t->known.epoch && !t->leaves && !takeover_leads(t->state) &&
           (may_do_without_lost(t, now, alone_ns) || is_forgotten(t, now, alone_ns));
}

bool takeover_begin_again(struct takeover_work *w)
{
    struct takeover *t = w->t;
    if (!may_begin_again(t, w->now))
        return false;
    takeover_forget(t, w->now);
    if (t->endpoint)
        takeover_begin_job(w, TAKEOVER_AGAIN);
    else
        takeover_change(w, TAKEOVER_SEEK, TAKEOVER_AGAIN);
    return true;
}
