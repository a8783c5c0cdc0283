/* takeover_messages.c - see takeover.h: messages of other agents. */
#include "rendezvous/takeover/takeover_internal.h"

/* The voters, the server among them, decide about the round after this agent's record. */
static bool is_behind(const struct takeover *t, const struct takeover_message *m)
{
    return t->known.epoch && (!m->known->epoch || record_compare(m->known, &t->known) < 0);
}

static void nack(struct takeover_work *w, const struct takeover_message *m)
{
    takeover_send(w, TAKEOVER_NACK, m->from)->ballot = w->t->promised;
}

static bool from_server(const struct takeover *t, const struct takeover_message *m)
{
    return t->state == TAKEOVER_FOLLOW &&
           agent_incarnation_equal(t->server.incarnation, m->from->incarnation);
}

/* The agent that serves, as far as it is known. */
static const struct voter *server_of(const struct takeover *t, struct instant now)
{
    if (t->state == TAKEOVER_SERVE)
        return &t->self;
    return takeover_is_served(t, now) ? &t->server : NULL;
}

static void answer_who_serves(struct takeover_work *w, const struct voter *to)
{
    struct takeover_message *answer = takeover_send(w, TAKEOVER_MOVED, to);
    answer->server = server_of(w->t, w->now);
    if (w->t->state != TAKEOVER_SERVE)
        answer->ballot = w->t->promised; /* so that an answer from before its office is known as such */
}

/* Another agent is ahead: office and candidacy end. */
static void give_way(struct takeover_work *w, const struct takeover_message *m)
{
    struct takeover *t = w->t;
    t->promised = m->ballot;
    t->highest = m->ballot.number > t->highest ? m->ballot.number : t->highest;
    const bool lost = t->state == TAKEOVER_FOLLOW && !takeover_is_served(t, w->now);
    if (!from_server(t, m))
        takeover_seek(w, lost ? takeover_loss(t) : TAKEOVER_OUTVOTED, TAKEOVER_LOST_MS * NS_PER_MS);
}

static void on_prepare(struct takeover_work *w, const struct takeover_message *m)
{
    struct takeover *t = w->t;
    if (is_behind(t, m) || ballot_compare(m->ballot, t->promised) < 0) {
        nack(w, m);
        return;
    }
    if (takeover_own_vote(t) < 0)
        return;
    if (takeover_is_served(t, w->now) && !from_server(t, m)) {
        answer_who_serves(w, m->from);
        return;
    }
    if (ballot_compare(m->ballot, t->promised) > 0)
        give_way(w, m);
    struct takeover_message *promise = takeover_send(w, TAKEOVER_PROMISE, m->from);
    promise->ballot = m->ballot;
    promise->at = t->accepted_at;
    promise->value = t->has_accepted ? &t->accepted : NULL;
}

static void on_accept(struct takeover_work *w, const struct takeover_message *m)
{
    struct takeover *t = w->t;
    if (is_behind(t, m) || ballot_compare(m->ballot, t->promised) < 0) {
        nack(w, m);
        return;
    }
    if (takeover_own_vote(t) < 0)
        return;
    if (ballot_compare(m->ballot, t->promised) > 0)
        give_way(w, m);
    t->has_accepted = true;
    t->accepted_at = m->ballot;
    t->accepted = *m->value;
    takeover_send(w, TAKEOVER_ACCEPTED, m->from)->ballot = m->ballot;
}

static void on_answer(struct takeover_work *w, const struct takeover_message *m)
{
    struct takeover *t = w->t;
    const int voter = record_find_voter(&t->known, m->from->incarnation);
    if (voter < 0 || record_compare(m->known, &t->known) != 0 || ballot_compare(m->ballot, t->ballot) != 0)
        return;
    if (m->kind == TAKEOVER_PROMISE && t->state == TAKEOVER_STAND)
        takeover_take_promise(w, voter, m);
    else if (m->kind == TAKEOVER_ACCEPTED && t->state == TAKEOVER_SERVE && t->proposing)
        takeover_take_vote(w, voter);
}

static void on_nack(struct takeover_work *w, const struct takeover_message *m)
{
    struct takeover *t = w->t;
    if (!t->known.epoch || !m->known->epoch || record_compare(m->known, &t->known) != 0 ||
        ballot_compare(m->ballot, t->ballot) <= 0)
        return;
    t->highest = m->ballot.number > t->highest ? m->ballot.number : t->highest;
    if (t->state == TAKEOVER_SERVE)
        takeover_stand(w, TAKEOVER_OUTVOTED);
    else if (t->state == TAKEOVER_STAND)
        takeover_seek(w, TAKEOVER_OUTVOTED, TAKEOVER_LOST_MS * NS_PER_MS);
}

static void on_moved(struct takeover_work *w, const struct takeover_message *m)
{
    struct takeover *t = w->t;
    const bool none = !m->server || takeover_is_self(t, m->server);
    const bool serves = m->server && agent_incarnation_equal(m->server->incarnation, m->from->incarnation);
    /* Messages overtake each other: the server's answer from before its election may come after the news of
     * it. A server that has stepped down has promised a higher ballot, or knows a newer record. */
    if (!serves && from_server(t, m) && ballot_compare(m->ballot, t->office) > 0)
        takeover_seek(w, TAKEOVER_STEPPED_DOWN, TAKEOVER_LOST_MS * NS_PER_MS);
    if (none || agent_incarnation_equal(m->server->incarnation, t->gone))
        return;
    if (!serves) {
        if (t->state == TAKEOVER_SEEK || t->state == TAKEOVER_STAND)
            takeover_act(w, TAKEOVER_ASK, m->server);
        return;
    }
    if (!m->known->epoch && t->all_ranks && from_server(t, m) && ballot_compare(m->ballot, t->office) > 0)
        takeover_forget(t, w->now); /* so has its server */
    else if (!m->known->epoch)
        t->again_at = w->now;
    if (is_behind(t, m) || (t->known.epoch && ballot_compare(m->ballot, t->promised) < 0)) {
        nack(w, m);
        return;
    }
    const bool leads = t->state == TAKEOVER_SERVE || t->state == TAKEOVER_STAND;
    if ((leads && ballot_compare(m->ballot, t->ballot) <= 0) ||
        (t->state == TAKEOVER_FOLLOW && ballot_compare(m->ballot, t->office) < 0))
        return;
    takeover_follow(w, m->server, m->ballot);
    if (t->known.revision && record_compare(m->known, &t->known) == 0 &&
        record_find_voter(&t->known, t->self.incarnation) >= 0)
        takeover_send(w, TAKEOVER_KNOWN, m->from);
}

static void on_leaves(struct takeover_work *w, const struct takeover_message *m)
{
    if (from_server(w->t, m)) {
        w->t->gone = m->from->incarnation;
        takeover_seek(w, TAKEOVER_LEFT, 0);
    }
    if (is_behind(w->t, m))
        nack(w, m);
    else
        takeover_leave_take(w, m);
}

/* Whether the message is possible at all. */
static bool is_sound(const struct takeover_message *m)
{
    const struct world_record *known = m->known, *value = m->value;
    const bool votes = m->kind != TAKEOVER_WHO && m->kind != TAKEOVER_NACK && m->kind != TAKEOVER_MOVED &&
                       m->kind != TAKEOVER_LEAVES;
    if (voter_check(m->from, NULL) < 0 || (m->server && voter_check(m->server, NULL) < 0) ||
        (known->epoch && record_check(known, NULL) < 0))
        return false;
    if (votes && (!known->epoch || record_find_voter(known, m->from->incarnation) < 0))
        return false; /* not from a member */
    if ((m->kind == TAKEOVER_PREPARE || m->kind == TAKEOVER_ACCEPT) &&
        !agent_incarnation_equal(m->ballot.agent, m->from->incarnation))
        return false;
    if (!value)
        return m->kind != TAKEOVER_ACCEPT;
    return record_check(value, NULL) == 0 && record_follows(value, known) &&
           record_find_voter(known, value->ballot.agent) >= 0;
}

static void note_informed(struct takeover *t, struct agent_incarnation agent,
                          const struct world_record *known, struct instant now)
{
    if (known->epoch && known->epoch == t->known.epoch)
        t->told_at = now;
    const int voter = t->known.epoch ? record_find_voter(&t->known, agent) : -1;
    if (voter >= 0 && known->epoch == t->known.epoch && record_compare(known, &t->known) == 0)
        t->informed |= 1u << voter;
}

/* An agent that asks for the server, or stands, does not serve: such a message keeps no follower. */
static bool shows_office(const struct takeover_message *m)
{
    return m->kind == TAKEOVER_ACCEPT ||
           (m->kind == TAKEOVER_MOVED && m->server &&
            agent_incarnation_equal(m->server->incarnation, m->from->incarnation));
}

void takeover_receive(struct takeover *t, const struct takeover_message *m, struct instant now,
                      struct takeover_actions *out)
{
    struct takeover_work w = takeover_work(t, now, out);
    const bool other = t->known.epoch && m->known->epoch && m->known->epoch != t->known.epoch;
    if (other && m->kind == TAKEOVER_MOVED && shows_office(m) && is_sound(m))
        t->again_at = now; /* the job has begun again, and has a world */
    if (other || takeover_is_below_floor(t, m->known) || !is_sound(m)) {
        t->refused++;
        return;
    }
    if (takeover_is_self(t, m->from))
        return;
    if (takeover_may_take(t, shows_office(m)))
        (void)takeover_take_record(&w, m->known, NULL);
    if (shows_office(m))
        takeover_heard(t, m->from->incarnation, now);
    else
        takeover_note_voter(t, m->from->incarnation, now);
    note_informed(t, m->from->incarnation, m->known, now);
    switch (m->kind) {
    case TAKEOVER_WHO:
        answer_who_serves(&w, m->from);
        break;
    case TAKEOVER_PREPARE:
        on_prepare(&w, m);
        break;
    case TAKEOVER_ACCEPT:
        on_accept(&w, m);
        break;
    case TAKEOVER_PROMISE:
    case TAKEOVER_ACCEPTED:
        on_answer(&w, m);
        break;
    case TAKEOVER_NACK:
        on_nack(&w, m);
        break;
    case TAKEOVER_MOVED:
        on_moved(&w, m);
        break;
    case TAKEOVER_LEAVES:
        on_leaves(&w, m);
        break;
    case TAKEOVER_KNOWN: /* it is noted */
    case TAKEOVER_MESSAGE_COUNT:
        break;
    }
}

void takeover_asked(struct takeover *t, const struct voter *from, const struct world_record *known,
                    struct instant now, struct takeover_actions *out)
{
    struct takeover_work w = takeover_work(t, now, out);
    if (takeover_may_take(t, false))
        (void)takeover_take_record(&w, known, NULL);
    takeover_note_voter(t, from->incarnation, now);
    note_informed(t, from->incarnation, known, now);
    answer_who_serves(&w, from);
}
