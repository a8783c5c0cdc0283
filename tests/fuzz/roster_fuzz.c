/* roster_fuzz.c - a server's roster under agents that say anything a frame can hold, in any order and at any
 * time: it never crashes, ranks stay unique, its messages can be sent, and time always moves it on.
 *
 * Input: a byte each for the kind of job, then steps; see the table at the end. Routes are kept as the
 * carrier keeps them: a session is known to the roster by the slot that ACCEPT gave it. */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/wire/wire.h"
#include "tests/fuzz/random_main.h"
#include "tests/fuzz/reader.h"

enum { SESSIONS = 8, NODES = 3, STEPS_LIMIT = 2000, EPOCH = 77 };

struct table {
    struct reader in;
    struct roster *roster;
    struct roster_actions actions;
    struct instant now;
    int slots;
    uint64_t last_session;
    uint64_t session[SESSIONS];       /* a connection's; 0: none yet */
    int slot[SESSIONS];               /* -1: not accepted */
    struct world_id round;            /* the last WORLD's */
    int rank_of[ROSTER_MEMBER_LIMIT]; /* by slot, in that round; -1: none */
};

static void hold(bool invariant)
{
    if (!invariant)
        abort();
}

/* -- the roster's messages
 * ----------------------------------------------------------------------------------------- */

/* A rank of a round goes to one slot, and stays with it. */
static void check_world(struct table *t, const struct roster_action *action,
                        const struct membership_world *world)
{
    if (world->id.epoch != t->round.epoch || world->id.round != t->round.round)
        for (int i = 0; i < t->slots; i++)
            t->rank_of[i] = -1;
    t->round = world->id;
    hold(world->group_rank >= 0 && world->group_rank < world->group_world_size);
    hold(world->group_world_size <= t->slots && world->rank_base >= 0 &&
         world->rank_base < world->world_size);
    hold(world->role_rank_base >= 0 && world->role_rank_base < world->role_world_size);
    for (int i = 0; i < t->slots; i++)
        hold(i == action->member || t->rank_of[i] != world->group_rank);
    hold(t->rank_of[action->member] < 0 || t->rank_of[action->member] == world->group_rank);
    t->rank_of[action->member] = world->group_rank;
}

static void check_can_be_sent(const struct membership_event *event)
{
    static struct wire_message sent, came;
    struct muster_error err;
    scope_buffer frame = {0};
    sent.kind = WIRE_EVENT;
    sent.event = *event;
    hold(wire_encode(&sent, &frame, &err) == 0);
    hold(wire_decode(frame.data, frame.length, &came, &err) == 0 && came.kind == WIRE_EVENT);
    hold(came.event.kind == event->kind);
}

static void take_action(struct table *t, const struct roster_action *action)
{
    static struct membership_event event;
    hold(action->session && action->member >= -1 && action->member < t->slots);
    for (int i = 0; i < SESSIONS; i++) {
        if (t->session[i] != action->session)
            continue;
        if (action->kind == ROSTER_ACCEPT)
            t->slot[i] = action->member;
        if (action->kind == ROSTER_REFUSE)
            t->slot[i] = -1;
    }
    if (action->kind == ROSTER_ACCEPT || action->kind == ROSTER_AGAIN || action->kind == ROSTER_HANDOVER)
        return;
    roster_fill_event(t->roster, action, &event);
    hold(memchr(event.reason, '\0', sizeof event.reason) != NULL);
    if (action->kind == ROSTER_SEND_WORLD)
        check_world(t, action, &event.world);
    check_can_be_sent(&event);
}

static void step(struct table *t, const struct roster_event *event)
{
    struct muster_error err = {0};
    char text[64];
    scope_buffer line = {0};
    int failed = roster_step(t->roster, event, t->now, &t->actions, &err);
    hold(!failed || err.text[0]);
    hold(t->actions.count <= t->actions.capacity);
    for (size_t i = 0; i < t->actions.count; i++)
        take_action(t, &t->actions.items[i]);
    roster_describe_progress(t->roster, text, sizeof text);
    hold(roster_format(t->roster, &line) == 0);
}

/* -- the agents' messages
 * ------------------------------------------------------------------------------------------ */

static const char *name(struct reader *in)
{
    static char longest[MEMBERSHIP_NAME_LIMIT + 1];
    static const char *const names[] = {"a", "b", "c", "node-1", "node-2", "", longest};
    memset(longest, 'x', sizeof longest - 1 - (reader_flag(in) ? 1 : 0));
    return names[reader_below(in, sizeof names / sizeof *names)];
}

static struct world_id world(struct reader *in)
{
    unsigned byte = reader_byte(in);
    return (struct world_id){byte & 128 ? 1 + byte % 3 : EPOCH, byte & 64 ? UINT32_MAX - byte % 4 : byte % 8};
}

/* Ranks of nodes that are done, as a frame can have them. */
static void done_ranks(struct reader *in, struct rank_ranges *out)
{
    int least = 0;
    for (unsigned i = reader_below(in, 4); i; i--) {
        const int rank = least + (int)reader_below(in, 3);
        if (!rank_ranges_add(out, reader_below(in, 16) ? rank : ROSTER_MEMBER_LIMIT - 1))
            return;
        least = out->items[out->count - 1].last + 1;
        if (least >= ROSTER_MEMBER_LIMIT)
            return;
    }
}

static struct roster_join join(struct table *t, unsigned agent)
{
    struct reader *in = &t->in;
    struct roster_join out = {
        .protocol_version = ROSTER_PROTOCOL_VERSION,
        .job_id = "job",
        .min_nodes = NODES,
        .max_nodes = NODES,
        .elastic = t->slots > NODES,
        .agent_name = "abcdefgh" + agent,
        .node_rank = (int)agent % NODES,
        .incarnation = {1, 1 + agent},
        .local_world_size = 2,
        .role = "default",
        .store_addr = "10.0.0.1",
        .local = t->session[0] && agent == 0,
    };
    if (out.elastic)
        out.min_nodes = 1;
    unsigned lies = reader_byte(in);
    if (lies & 1)
        out.node_rank = reader_int(in);
    if (lies & 2)
        out.incarnation = (struct agent_incarnation){reader_below(in, 2), reader_below(in, 4)};
    if (lies & 4)
        out.agent_name = name(in);
    if (lies & 8) {
        out.held = world(in);
        out.held_done = reader_flag(in);
    }
    if (lies & 16) {
        out.last = out.held.epoch && reader_flag(in) ? out.held : world(in);
        out.last_nodes = reader_flag(in) ? NODES : reader_int(in) & INT32_MAX;
        out.last_rank = reader_flag(in) ? (int)agent % NODES : reader_int(in) & INT32_MAX;
        out.server_done = reader_flag(in);
        out.server_left = reader_below(in, 8) == 0;
        out.lapsed = reader_below(in, 8) == 0;
        done_ranks(in, &out.done);
        out.restart_count = reader_number(in) & ROSTER_RESTARTS_LIMIT;
    }
    if (lies & 32)
        out.epoch = reader_flag(in) ? EPOCH : (uint64_t)reader_number(in);
    if (lies & 64) {
        out.local_world_size = reader_int(in);
        out.role = name(in);
        out.store_addr = name(in);
        out.store_port = (uint16_t)reader_number(in);
    }
    if ((lies & 128) && reader_below(in, 4) == 0) {
        out.job_id = name(in);
        out.min_nodes = reader_int(in);
        out.protocol_version = reader_int(in);
    }
    return out;
}

static void say_join(struct table *t, unsigned agent)
{
    if (!t->session[agent] || reader_below(&t->in, 4) == 0) {
        t->session[agent] = ++t->last_session; /* another connection; the carrier knows nothing of it yet */
        t->slot[agent] = -1;
    }
    struct roster_join claims = join(t, agent);
    const struct roster_event event = {
        .kind = ROSTER_JOIN, .session = t->session[agent], .member = t->slot[agent], .join = &claims};
    step(t, &event);
    const struct roster_actions *actions = &t->actions;
    if (actions->count == 1 && actions->items[0].kind == ROSTER_AGAIN && reader_flag(&t->in)) {
        claims.proof = actions->items[0].proof;
        step(t, &event);
    }
}

static void say_report(struct table *t, unsigned agent)
{
    static struct worker_failure failure;
    struct reader *in = &t->in;
    struct roster_event event = {
        .kind = ROSTER_REPORT, .session = t->session[agent], .member = t->slot[agent]};
    event.report.id = reader_flag(in) ? t->round : world(in);
    event.report.kind = (enum membership_report_kind)reader_below(in, MEMBERSHIP_REPORT_STOPPED + 2);
    event.report.sequence =
        reader_flag(in) ? roster_report_sequence(t->roster, t->slot[agent]) + 1 : (uint64_t)reader_number(in);
    if (event.report.kind == MEMBERSHIP_REPORT_FAILED) {
        failure =
            (struct worker_failure){.rank = reader_int(in),
                                    .local_rank = reader_int(in),
                                    .group_rank = reader_int(in),
                                    .exit_code = (int)reader_byte(in) - 1,
                                    .signal = (int)reader_below(in, 128),
                                    .after_stop = reader_flag(in),
                                    .hung = reader_flag(in),
                                    .lost_node = reader_flag(in),
                                    .xid = reader_int(in) & INT32_MAX,
                                    .step = reader_number(in),
                                    .age_ns = reader_flag(in) ? reader_wait_ns(in) : FAILURE_AGE_LIMIT_NS};
        (void)strcpy(failure.tail, reader_flag(in) ? "Connection reset by peer" : "a\x1b\xff\n");
        event.report.failure = &failure;
    }
    step(t, &event);
}

static void say_frame(struct table *t, unsigned agent)
{
    static struct wire_message message;
    struct muster_error err;
    size_t size;
    const uint8_t *bytes = reader_bytes(&t->in, &size);
    if (wire_decode(bytes, size, &message, &err) < 0)
        return;
    struct roster_event event = {.session = t->session[agent], .member = t->slot[agent]};
    if (message.kind == WIRE_JOIN) {
        event.kind = ROSTER_JOIN;
        event.join = &message.join;
    } else if (message.kind == WIRE_REPORT) {
        event.kind = ROSTER_REPORT;
        event.report.id = message.id;
        event.report.kind = message.report;
        event.report.sequence = message.sequence;
        event.report.failure = &message.failure;
    } else {
        return;
    }
    step(t, &event);
}

static void say(struct table *t, unsigned agent, enum roster_event_kind kind)
{
    struct roster_event event = {.kind = kind, .session = t->session[agent], .member = t->slot[agent]};
    if (kind == ROSTER_LEAVE || kind == ROSTER_DRAIN)
        event.exit_code = (int)reader_byte(&t->in);
    if (kind == ROSTER_DRAIN)
        event.grace_ns = reader_wait_ns(&t->in);
    if (kind == ROSTER_BEAT)
        event.missing = (int)agent % 3, event.ended = (int)agent % 2;
    step(t, &event);
    if (kind == ROSTER_DISCONNECT || kind == ROSTER_LEAVE) {
        t->session[agent] = 0;
        t->slot[agent] = -1;
    }
}

/* The carrier ticks whenever the deadline is reached: it must never stay in the past. */
static void pass_time(struct table *t)
{
    struct instant later = instant_add(t->now, reader_wait_ns(&t->in));
    for (int ticks = 0; instant_reached(later, roster_deadline(t->roster)); ticks++) {
        struct instant due = roster_deadline(t->roster);
        t->now = due.ns > t->now.ns ? due : t->now;
        step(t, &(struct roster_event){.kind = ROSTER_TICK});
        hold(!instant_reached(t->now, roster_deadline(t->roster)) || ticks < 4 * t->slots);
    }
    t->now = later;
}

static void turn(struct table *t)
{
    unsigned byte = reader_byte(&t->in), agent = byte % SESSIONS;
    switch (byte / SESSIONS % 16) {
    case 0 ... 3:
        say_join(t, agent);
        break;
    case 4 ... 7:
        say_report(t, agent);
        break;
    case 8:
        say_frame(t, agent);
        break;
    case 9:
        say(t, agent, ROSTER_LEAVE);
        break;
    case 10:
        say(t, agent, ROSTER_DRAIN);
        break;
    case 11:
        say(t, agent, ROSTER_DISCONNECT);
        break;
    case 12 ... 13:
        say(t, agent, ROSTER_BEAT);
        break;
    case 14:
        step(t, &(struct roster_event){.kind = ROSTER_CHOSEN});
        break;
    default:
        pass_time(t);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct table table;
    struct table *t = &table;
    *t = (struct table){.in = {data, size}, .now = {NS_PER_S}};
    struct muster_error err;
    unsigned kind = reader_byte(&t->in);
    const struct voter before = {.incarnation = {1, 2}, .name = "b"};
    const struct roster_options options = {
        .job_id = "job",
        .min_nodes = kind & 1 ? 1 : NODES,
        .max_nodes = NODES,
        .elastic = kind & 1,
        .max_restarts = kind & 2 ? 3 : 0,
        .backoff_ns = kind & 4 ? NS_PER_S : 0,
        .backoff_cap_ns = 10 * NS_PER_S,
        .epoch = EPOCH,
        .join_timeout_ns = 60 * NS_PER_S,
        .last_call_ns = kind & 8 ? NS_PER_S : 0,
        .votes = kind & 16,
        .continues = (kind & 48) == 48,
        .before = (kind & 48) == 48 ? &before : NULL,
        .round = kind & 64 ? 5 : 0,
    };
    t->roster = roster_create(&options, t->now, &err);
    if (!t->roster || roster_actions_init(&t->actions, roster_slot_count(t->roster), &err))
        abort();
    t->slots = roster_slot_count(t->roster);
    for (int i = 0; i < SESSIONS; i++)
        t->slot[i] = -1;
    for (int i = 0; t->in.left && i < STEPS_LIMIT; i++)
        turn(t);
    roster_actions_free(&t->actions);
    roster_destroy(t->roster);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    /* three agents join, start, one fails, all stop; static and elastic */
    static const uint8_t seeds[2][64] = {
        {2, 0, 1, 0, 1, 1, 0, 2, 1, 0, 32, 1, 0, 1, 33, 1, 0, 1, 34, 1, 0, 1, 32, 1, 1, 1, 112, 50},
        {11, 0, 1, 0, 1, 1, 0, 2, 1, 0, 112, 220, 32, 1, 0, 1, 33, 1, 0, 1, 34, 1, 0, 1, 80, 3, 40},
    };
    const struct fuzz_seed all[] = {{seeds[0], sizeof seeds[0]}, {seeds[1], sizeof seeds[1]}};
    return fuzz_main(argc, argv, all, 2);
}
#endif
