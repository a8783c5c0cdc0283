/* takeover_time.c - see takeover.h: due actions, fresh answers, and the state as text. */
#include "proto/base/text.h"
#include "rendezvous/takeover/takeover_internal.h"

bool takeover_is_doubtful(const struct takeover *t, struct instant heard, struct instant now)
{
    return !heard.ns || instant_diff_ns(now, heard) >= t->doubt_ns;
}

static int answering(const struct takeover *t, struct instant now)
{
    int count = 0;
    for (int i = 0; i < t->known.voter_count; i++)
        count += takeover_is_self(t, &t->known.voters[i]) || !takeover_is_doubtful(t, t->heard_voter[i], now);
    return count;
}

bool takeover_may_be_over(const struct takeover *t, struct instant now)
{
    return t->hearsay && answering(t, now) == 0;
}

enum takeover_reason takeover_loss(const struct takeover *t)
{
    return t->broken_at.ns == INT64_MAX ? TAKEOVER_SILENT : TAKEOVER_BROKEN;
}

bool takeover_is_served(const struct takeover *t, struct instant now)
{
    if (t->state == TAKEOVER_SERVE)
        return answering(t, now) >= record_majority(&t->known);
    return t->state == TAKEOVER_FOLLOW && t->broken_at.ns == INT64_MAX &&
           !takeover_is_doubtful(t, t->heard, now);
}

static struct instant silence_limit(const struct takeover *t)
{
    return instant_min(instant_add(t->heard, t->lost_ns),
                       instant_add(t->broken_at, TAKEOVER_BROKEN_MS * NS_PER_MS));
}

/* Past voters that are none of the newest record: they may know a newer record, or none of the agents that
 * this agent knows. Without an endpoint the two parts of a job would not meet. NULL: it is none, or the time
 * is over. */
static const struct voter *past_voter(const struct takeover *t, int place, struct instant now)
{
    const bool due = place < t->past_count && !instant_reached(now, t->past_until);
    return due && record_find_voter(&t->known, t->past[place].incarnation) < 0 ? &t->past[place] : NULL;
}

static void tick_seek(struct takeover_work *w)
{
    struct takeover *t = w->t;
    if (instant_reached(w->now, t->stand_at)) {
        takeover_stand(w, TAKEOVER_IN_TURN);
        return;
    }
    if (!instant_reached(w->now, t->ask_at))
        return;
    t->ask_at = instant_add(w->now, TAKEOVER_ASK_MS * NS_PER_MS);
    takeover_act(w, TAKEOVER_ASK_ENDPOINTS, NULL);
    for (int i = 0; i < t->known.voter_count; i++)
        if (!takeover_is_self(t, &t->known.voters[i]))
            takeover_act(w, TAKEOVER_ASK, &t->known.voters[i]);
    for (int i = 0; i < RECORD_VOTERS; i++)
        if (past_voter(t, i, w->now))
            takeover_act(w, TAKEOVER_ASK, &t->past[i]);
}

static void tick_stand(struct takeover_work *w)
{
    struct takeover *t = w->t;
    if (instant_diff_ns(w->now, t->since) >= TAKEOVER_PATIENCE_MS * NS_PER_MS)
        takeover_seek(w, TAKEOVER_NO_ANSWER,
                      TAKEOVER_TURN_MS * NS_PER_MS + takeover_draw_ns(t, 2 * NS_PER_S));
    else if (instant_reached(w->now, t->send_at))
        takeover_send_to_voters(w, TAKEOVER_PREPARE);
}

/* The voter is silent, or may not know that it is one. */
static bool is_to_be_told(const struct takeover *t, int voter, struct instant now)
{
    return takeover_is_doubtful(t, t->heard_voter[voter], now) ||
           (t->known.revision && !(t->informed & 1u << voter));
}

static void tick_serve(struct takeover_work *w)
{
    struct takeover *t = w->t;
    if (t->proposing && instant_diff_ns(w->now, t->since) >= TAKEOVER_PATIENCE_MS * NS_PER_MS) {
        takeover_stand(w, TAKEOVER_NO_ANSWER); /* another proposal needs another ballot */
        return;
    }
    if (t->proposing && instant_reached(w->now, t->send_at))
        takeover_send_to_voters(w, TAKEOVER_ACCEPT);
    if (!instant_reached(w->now, t->ask_at))
        return;
    t->ask_at = instant_add(w->now, TAKEOVER_ASK_MS * NS_PER_MS);
    takeover_tell_endpoints(w);
    for (int i = 0; i < t->known.voter_count; i++)
        if (!takeover_is_self(t, &t->known.voters[i]) && is_to_be_told(t, i, w->now))
            takeover_tell(w, &t->known.voters[i]);
    for (int i = 0; i < RECORD_VOTERS; i++)
        if (past_voter(t, i, w->now))
            takeover_tell(w, &t->past[i]);
}

void takeover_tick(struct takeover *t, struct instant now, struct takeover_actions *out)
{
    struct takeover_work w = takeover_work(t, now, out);
    if (t->state == TAKEOVER_FOLLOW && instant_reached(now, silence_limit(t)))
        takeover_seek(&w, takeover_loss(t), 0);
    if (takeover_begin_again(&w))
        return;
    if (t->state == TAKEOVER_SEEK)
        tick_seek(&w);
    else if (t->state == TAKEOVER_STAND)
        tick_stand(&w);
    else if (t->state == TAKEOVER_SERVE)
        tick_serve(&w);
    if (t->leaves && instant_reached(now, t->send_at))
        takeover_leave_tell(&w);
}

static struct instant state_deadline(const struct takeover *t)
{
    const struct instant patience = instant_add(t->since, TAKEOVER_PATIENCE_MS * NS_PER_MS);
    switch (t->state) {
    case TAKEOVER_SEEK:
        return instant_min(t->stand_at, t->ask_at);
    case TAKEOVER_STAND:
        return instant_min(t->send_at, patience);
    case TAKEOVER_SERVE:
        return t->proposing ? instant_min(t->ask_at, instant_min(t->send_at, patience)) : t->ask_at;
    case TAKEOVER_FOLLOW:
        return silence_limit(t);
    case TAKEOVER_STATE_COUNT:
        break;
    }
    return INSTANT_NEVER;
}

struct instant takeover_deadline(const struct takeover *t)
{
    return t->leaves ? instant_min(state_deadline(t), instant_min(t->send_at, t->stay_until))
                     : state_deadline(t);
}

static bool is_silent(const struct takeover *t, int voter, struct instant now)
{
    return !takeover_is_self(t, &t->known.voters[voter]) &&
           takeover_is_doubtful(t, t->heard_voter[voter], now);
}

/* Where they were expected: a firewall may be in between. */
static void describe_silent(const struct takeover *t, struct instant now, char *out, size_t size)
{
    const char *before = "; no answer from ";
    for (int i = 0; i < t->known.voter_count; i++) {
        const struct voter *voter = &t->known.voters[i];
        if (!is_silent(t, i, now))
            continue;
        (void)text_append(out, size, "%s%s (%s port %u)", before, voter->name,
                          voter->address[0] ? voter->address : "address unknown", (unsigned)voter->port);
        before = ", ";
    }
}

void takeover_describe(const struct takeover *t, struct instant now, char *out, size_t size)
{
    const int answers = answering(t, now), needed = record_majority(&t->known) - answers;
    bool first = true;
    out[0] = '\0';
    if (!t->known.epoch || takeover_is_served(t, now))
        return;
    (void)text_append(out, size, "%d of %d voters answer", answers, t->known.voter_count);
    for (int i = 0; i < t->known.voter_count; i++) {
        const struct voter *voter = &t->known.voters[i];
        if (is_silent(t, i, now))
            continue;
        (void)text_append(out, size, "%s %s", first ? ":" : ",", voter->name);
        first = false;
    }
    if (needed == 1)
        (void)text_append(out, size, "; waiting for one more");
    else if (needed > 1)
        (void)text_append(out, size, "; waiting for %d more", needed);
    describe_silent(t, now, out, size);
}
