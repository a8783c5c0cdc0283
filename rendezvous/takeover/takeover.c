/* takeover.c - see takeover.h: the knowledge of an agent, its state, and proposals. */
#include "rendezvous/takeover/takeover.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "proto/base/error.h"
#include "rendezvous/takeover/takeover_internal.h"

#define TAKEOVER_NAME(symbol, name, meaning) [symbol] = (name),
#define TAKEOVER_TEXT(symbol, text)          [symbol] = (text),

const char *takeover_state_name(enum takeover_state state)
{
    static const char *const names[] = {TAKEOVER_STATES(TAKEOVER_NAME)};
    return (unsigned)state < TAKEOVER_STATE_COUNT ? names[state] : "?";
}

const char *takeover_message_name(enum takeover_message_kind kind)
{
    static const char *const names[] = {TAKEOVER_MESSAGES(TAKEOVER_NAME)};
    return (unsigned)kind < TAKEOVER_MESSAGE_COUNT ? names[kind] : "?";
}

const char *takeover_reason_text(enum takeover_reason reason)
{
    static const char *const texts[] = {TAKEOVER_REASONS(TAKEOVER_TEXT)};
    return (unsigned)reason < TAKEOVER_REASON_COUNT ? texts[reason] : "?";
}

const struct world_record *takeover_word(const struct takeover *t)
{
    static const struct world_record none;
    return t->hearsay ? &none : &t->known;
}

struct takeover_action *takeover_act(struct takeover_work *w, enum takeover_action_kind kind,
                                     const struct voter *to)
{
    assert(w->out->count < TAKEOVER_ACTIONS_LIMIT);
    struct takeover_action *action = &w->out->items[w->out->count++];
    *action = (struct takeover_action){.kind = kind, .to = to};
    return action;
}

struct takeover_message *takeover_send(struct takeover_work *w, enum takeover_message_kind kind,
                                       const struct voter *to)
{
    const struct takeover *t = w->t;
    const bool to_voter = record_find_voter(&t->known, to->incarnation) >= 0;
    struct takeover_action *action = takeover_act(w, TAKEOVER_SEND, to);
    action->message = (struct takeover_message){.kind = kind,
                                                .from = &t->self,
                                                .known = to_voter ? &t->known : takeover_word(t),
                                                .ballot = t->ballot};
    return &action->message;
}

void takeover_tell(struct takeover_work *w, const struct voter *to)
{
    takeover_send(w, TAKEOVER_MOVED, to)->server = &w->t->self;
}

void takeover_tell_endpoints(struct takeover_work *w)
{
    const struct takeover *t = w->t;
    takeover_act(w, TAKEOVER_TELL_ENDPOINTS, NULL)->message =
        (struct takeover_message){.kind = TAKEOVER_MOVED,
                                  .from = &t->self,
                                  .known = &t->known,
                                  .ballot = t->ballot,
                                  .server = &t->self};
}

void takeover_send_to_voters(struct takeover_work *w, enum takeover_message_kind kind)
{
    struct takeover *t = w->t;
    for (int i = 0; i < t->known.voter_count; i++)
        if (!takeover_is_self(t, &t->known.voters[i]) && !(t->votes & 1u << i))
            takeover_send(w, kind, &t->known.voters[i])->value = t->proposing ? &t->proposal : NULL;
    t->send_at = instant_add(w->now, TAKEOVER_TURN_MS * NS_PER_MS);
}

/* splitmix64 */
int64_t takeover_draw_ns(struct takeover *t, int64_t below_ns)
{
    uint64_t x = t->random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (int64_t)((x ^ x >> 31) % (uint64_t)below_ns);
}

bool takeover_leads(enum takeover_state state)
{
    return state == TAKEOVER_SERVE || state == TAKEOVER_FOLLOW;
}

void takeover_change(struct takeover_work *w, enum takeover_state state, enum takeover_reason reason)
{
    if (takeover_leads(w->t->state) && !takeover_leads(state))
        w->t->lost_at = w->now;
    w->t->state = state;
    w->t->reason = reason;
    w->t->since = w->now;
    struct takeover_action *action = takeover_act(w, TAKEOVER_CHANGE, NULL);
    action->reason = reason;
    action->to = state == TAKEOVER_FOLLOW ? &w->t->server : NULL;
}

/* A voter that was no member, a spare, does not stand: its round would share no node with the one before. */
static int voter_place(const struct takeover *t)
{
    const int place = takeover_own_vote(t);
    return place < t->known.nodes && !t->leaves ? place : -1;
}

/* The first voter is the server that was lost, so the second one stands first. */
static void plan_candidacy(struct takeover_work *w, int64_t wait_ns)
{
    const int place = voter_place(w->t), turn = place > 0 ? place - 1 : 0;
    w->t->stand_at =
        place < 0 ? INSTANT_NEVER : instant_add(w->now, wait_ns + turn * (TAKEOVER_TURN_MS * NS_PER_MS));
}

static void end_candidacy(struct takeover *t)
{
    t->votes = 0;
    t->has_best = t->proposing = false;
}

void takeover_seek(struct takeover_work *w, enum takeover_reason reason, int64_t wait_ns)
{
    end_candidacy(w->t);
    w->t->ask_at = w->now;
    plan_candidacy(w, wait_ns);
    takeover_change(w, TAKEOVER_SEEK, reason);
}

static bool has_majority(const struct takeover *t)
{
    return __builtin_popcount(t->votes) >= record_majority(&t->known);
}

/* The proposal is accepted by this voter, and sent to the others. */
static void ask_to_accept(struct takeover_work *w)
{
    struct takeover *t = w->t;
    t->proposing = true;
    t->votes = 1u << voter_place(t);
    t->accepted_at = t->ballot;
    t->has_accepted = true;
    t->accepted = t->proposal;
    t->since = w->now;
    takeover_send_to_voters(w, TAKEOVER_ACCEPT);
}

void takeover_serve(struct takeover_work *w, enum takeover_reason reason)
{
    struct takeover *t = w->t;
    t->ask_at = instant_add(w->now, TAKEOVER_ASK_MS * NS_PER_MS);
    takeover_change(w, TAKEOVER_SERVE, reason);
    takeover_tell_endpoints(w);
    if (!t->known.epoch)
        return;
    if (t->has_best)
        ask_to_accept(w);
    else
        for (int i = 0; i < t->known.voter_count; i++)
            if (!takeover_is_self(t, &t->known.voters[i]))
                takeover_tell(w, &t->known.voters[i]);
    if (t->proposing && has_majority(t))
        takeover_chosen(w);
}

void takeover_stand(struct takeover_work *w, enum takeover_reason reason)
{
    struct takeover *t = w->t;
    const int place = voter_place(t);
    if (place < 0) {
        takeover_seek(w, reason, 0);
        return;
    }
    end_candidacy(t);
    t->highest = t->highest > t->promised.number ? t->highest : t->promised.number;
    t->ballot = t->promised = (struct ballot){++t->highest, t->self.incarnation};
    t->has_best = t->has_accepted;
    t->best_at = t->accepted_at;
    if (t->has_best)
        t->proposal = t->accepted;
    t->votes = 1u << place;
    takeover_change(w, TAKEOVER_STAND, reason);
    if (has_majority(t))
        takeover_serve(w, TAKEOVER_ELECTED);
    else
        takeover_send_to_voters(w, TAKEOVER_PREPARE);
}

void takeover_take_promise(struct takeover_work *w, int voter, const struct takeover_message *m)
{
    struct takeover *t = w->t;
    t->votes |= 1u << voter;
    if (m->value && (!t->has_best || ballot_compare(m->at, t->best_at) > 0)) {
        t->has_best = true;
        t->best_at = m->at;
        t->proposal = *m->value;
    }
    if (has_majority(t))
        takeover_serve(w, TAKEOVER_ELECTED);
}

void takeover_take_vote(struct takeover_work *w, int voter)
{
    w->t->votes |= 1u << voter;
    if (has_majority(w->t))
        takeover_chosen(w);
}

/* Whether the record is this server's own, proposed in its present office. */
static bool is_own(const struct takeover *t, const struct world_record *record)
{
    return t->state == TAKEOVER_SERVE && t->proposing && record_equal(record, &t->proposal) &&
           ballot_compare(record->ballot, t->ballot) == 0;
}

static int find_past(const struct takeover *t, struct agent_incarnation agent)
{
    for (int i = 0; i < t->past_count; i++)
        if (agent_incarnation_equal(t->past[i].incarnation, agent))
            return i;
    return -1;
}

/* Where there is no room for all voters, the older records lose theirs. */
static void keep_past(struct takeover_work *w, const struct world_record *next)
{
    struct takeover *t = w->t;
    t->past_until = instant_add(w->now, TAKEOVER_PAST_MS * NS_PER_MS);
    for (int i = 0; i < t->known.voter_count; i++) {
        const struct voter *voter = &t->known.voters[i];
        if (takeover_is_self(t, voter) || record_find_voter(next, voter->incarnation) >= 0 ||
            find_past(t, voter->incarnation) >= 0)
            continue;
        const int kept = t->past_count < RECORD_VOTERS ? t->past_count++ : RECORD_VOTERS - 1;
        memmove(&t->past[1], &t->past[0], (size_t)kept * sizeof t->past[0]);
        t->past[0] = *voter;
    }
}

/* The newest record changes in this function only. With it end the promises, the votes and the candidacy of
 * the round that is decided now. */
static void learn(struct takeover_work *w, const struct world_record *record, enum takeover_reason reason)
{
    struct takeover *t = w->t;
    const bool own = is_own(t, record);
    keep_past(w, record);
    t->hearsay =
        (t->hearsay || !t->known.epoch) && !own && record_find_voter(record, t->self.incarnation) < 0;
    t->known = *record;
    t->told_at = w->now;
    t->promised = record->ballot;
    t->has_accepted = false;
    memset(t->heard_voter, 0, sizeof t->heard_voter);
    t->informed = t->leaving = 0;
    t->highest = record->ballot.number > t->highest ? record->ballot.number : t->highest;
    end_candidacy(t);
    if (own)
        takeover_act(w, TAKEOVER_CHOSEN, NULL);
    else if (t->state == TAKEOVER_SEEK)
        plan_candidacy(w, TAKEOVER_LOST_MS * NS_PER_MS);
    else if (t->state != TAKEOVER_FOLLOW ||
             !agent_incarnation_equal(t->server.incarnation, record->ballot.agent))
        takeover_seek(w, reason, TAKEOVER_LOST_MS * NS_PER_MS);
    takeover_leave_decided(w);
}

void takeover_chosen(struct takeover_work *w)
{
    struct takeover *t = w->t;
    learn(w, &t->proposal, TAKEOVER_OTHERS_PROPOSAL);
    if (t->state == TAKEOVER_SEEK && voter_place(t) >= 0)
        t->stand_at = w->now; /* this round has no server */
    if (t->state == TAKEOVER_SERVE && t->known.revision)
        t->ask_at = w->now; /* its voters are told */
}

bool takeover_is_below_floor(const struct takeover *t, const struct world_record *record)
{
    return record->epoch && record->epoch == t->floor_epoch && record->round < t->floor_round;
}

int takeover_take_record(struct takeover_work *w, const struct world_record *record, struct muster_error *err)
{
    struct takeover *t = w->t;
    const bool known = t->known.epoch != 0;
    if (!record->epoch ||
        (known && record->epoch == t->known.epoch && record_compare(record, &t->known) <= 0) ||
        takeover_is_below_floor(t, record))
        return 0;
    if (known && record->epoch != t->known.epoch) {
        t->refused++;
        return error_set(err, MUSTER_E_PROTOCOL,
                         "the record of another job's world: its epoch is %" PRIx64 ", not %" PRIx64,
                         record->epoch, t->known.epoch);
    }
    if (record_check(record, err) < 0) {
        t->refused++;
        return -1;
    }
    learn(w, record, TAKEOVER_OUTDATED);
    return 0;
}

void takeover_follow(struct takeover_work *w, const struct voter *server, struct ballot office)
{
    struct takeover *t = w->t;
    const bool same =
        t->state == TAKEOVER_FOLLOW && agent_incarnation_equal(t->server.incarnation, server->incarnation);
    t->office = office;
    t->heard = w->now;
    t->hearsay = false;
    /* A voter accepts nothing from the servers before this server. */
    if (ballot_compare(office, t->promised) > 0)
        t->promised = office;
    t->highest = office.number > t->highest ? office.number : t->highest;
    if (same)
        return;
    end_candidacy(t);
    t->server = *server;
    t->broken_at = INSTANT_NEVER;
    takeover_change(w, TAKEOVER_FOLLOW, TAKEOVER_FOUND);
}

/* --- the interface --- */

void takeover_init(struct takeover *t, const struct voter *self, uint64_t random, struct instant now)
{
    *t = (struct takeover){
        .self = *self, .state = TAKEOVER_SEEK, .random = random, .ask_at = now, .since = now, .lost_at = now};
    t->stand_at = t->broken_at = INSTANT_NEVER;
    t->lost_ns = TAKEOVER_LOST_MS * NS_PER_MS;
    t->doubt_ns = TAKEOVER_DOUBT_MS * NS_PER_MS;
    t->heard = now;
}

bool takeover_elects(const struct takeover *t)
{
    return t->known.voter_count > 1 ||
           (t->known.voter_count == 1 && takeover_is_self(t, &t->known.voters[0]));
}

int takeover_learn(struct takeover *t, const struct world_record *record, struct instant now,
                   struct takeover_actions *out, struct muster_error *err)
{
    struct takeover_work w = takeover_work(t, now, out);
    if (takeover_take_record(&w, record, err) < 0)
        return -1;
    t->hearsay = false; /* the server's own word */
    return 0;
}

void takeover_note_voter(struct takeover *t, struct agent_incarnation agent, struct instant now)
{
    const int voter = record_find_voter(&t->known, agent);
    if (voter >= 0)
        t->heard_voter[voter] = now;
}

void takeover_heard(struct takeover *t, struct agent_incarnation agent, struct instant now)
{
    if (t->state == TAKEOVER_FOLLOW && agent_incarnation_equal(t->server.incarnation, agent)) {
        t->heard = now;
        t->broken_at = INSTANT_NEVER;
    }
    takeover_note_voter(t, agent, now);
}

void takeover_connection(struct takeover *t, bool whole, struct instant now)
{
    t->broken_at = whole ? INSTANT_NEVER : instant_min(t->broken_at, now);
}

void takeover_gone(struct takeover *t, enum takeover_reason reason, struct instant now,
                   struct takeover_actions *out)
{
    struct takeover_work w = takeover_work(t, now, out);
    if (t->state != TAKEOVER_FOLLOW)
        return;
    if (reason == TAKEOVER_LEFT)
        t->gone = t->server.incarnation;
    takeover_seek(&w, reason, 0);
}

void takeover_workers(struct takeover *t, bool work)
{
    t->works = work;
}

bool takeover_may_propose(const struct takeover *t)
{
    return t->state == TAKEOVER_SERVE && !t->proposing && !t->works &&
           (!t->known.epoch || voter_place(t) >= 0);
}

/* Without a majority that answers, a proposal would cost the office, and with it the world that runs. */
bool takeover_may_revise(const struct takeover *t, struct instant now)
{
    return t->state == TAKEOVER_SERVE && !t->proposing && t->known.epoch && takeover_is_served(t, now);
}

bool takeover_revise(struct takeover *t, const struct voter *voters, int count, struct instant now,
                     struct takeover_actions *out)
{
    struct takeover_work w = takeover_work(t, now, out);
    if (!takeover_may_revise(t, now))
        return false;
    t->proposal = t->known;
    t->proposal.ballot = t->ballot;
    t->proposal.revision++;
    t->proposal.voter_count = count;
    for (int i = 0; i < count; i++)
        t->proposal.voters[i] = voters[i];
    ask_to_accept(&w);
    if (has_majority(t))
        takeover_chosen(&w);
    return true;
}

bool takeover_propose(struct takeover *t, const struct world_record *record, struct instant now,
                      struct takeover_actions *out)
{
    struct takeover_work w = takeover_work(t, now, out);
    if (!takeover_may_propose(t))
        return false;
    t->proposal = *record;
    t->proposal.ballot = t->ballot;
    if (t->known.epoch) {
        t->proposal.epoch = t->known.epoch;
        t->proposal.round = t->known.round + 1;
        t->proposal.revision = 0;
        ask_to_accept(&w);
        if (has_majority(t))
            takeover_chosen(&w);
    } else {
        t->proposing = true; /* no other agent may begin a job */
        takeover_chosen(&w);
    }
    return true;
}
