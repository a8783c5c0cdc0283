/* client_fuzz.c - a member under a server that says anything, in any order and at any time: it never crashes,
 * its messages can be sent, one world at a time is given out and each once, and its deadline never stays in
 * the past.
 *
 * Input: a byte for the kind of job, then steps; see the table at the end. */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/client/client.h"
#include "tests/fuzz/random_main.h"
#include "tests/fuzz/reader.h"

enum { STEPS_LIMIT = 2000, EPOCH = 77, TURNS_LIMIT = 100 };

struct member {
    struct reader in;
    struct client *client;
    struct instant now;
    bool connected, over, lost;
    uint64_t numbers;     /* number of the last JOIN or beat that went out */
    struct world_id held; /* given out and not reported STOPPED */
    struct world_id last; /* given out last */
    bool stopped;         /* a STOP for held was given out */
    bool planned;         /* with time to save; it may be cut short by one without, once */
    uint64_t epoch;       /* the server's */
    bool lied;            /* it went back to an epoch that was over: a world may be given out again */
};

static void hold(bool invariant)
{
    if (!invariant)
        abort();
}

static bool same(struct world_id a, struct world_id b)
{
    return a.epoch == b.epoch && a.round == b.round;
}

static bool send(void *context, const struct wire_message *message)
{
    static struct wire_message came;
    struct member *s = context;
    struct muster_error err;
    scope_buffer frame = {0};
    hold(wire_encode(message, &frame, &err) == 0);
    hold(wire_decode(frame.data, frame.length, &came, &err) == 0 && came.kind == message->kind);
    if (s->connected && (message->kind == WIRE_JOIN || message->kind == WIRE_BEAT))
        s->numbers = message->number;
    return s->connected;
}

static void take_event(struct member *s, const struct membership_event *event)
{
    hold(!s->over);
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        hold(!s->held.epoch && (s->lied || !same(event->world.id, s->last)));
        s->held = s->last = event->world.id;
        s->stopped = false;
        break;
    case MEMBERSHIP_EVENT_STOP:
        hold(same(event->stopped, s->held) && (!s->stopped || (s->planned && !event->planned)));
        s->stopped = true;
        s->planned = event->planned;
        break;
    default:
        s->over = true;
    }
}

static void take_events(struct member *s)
{
    static struct membership_event event;
    while (client_take_event(s->client, &event))
        take_event(s, &event);
}

/* -- the server's messages
 * ----------------------------------------------------------------------------------------- */

static struct world_id world(struct member *s)
{
    unsigned byte = reader_byte(&s->in);
    if (byte & 128) {
        struct world_id again = s->held.epoch ? s->held : s->last;
        s->lied |= again.epoch != s->epoch;
        return again;
    }
    if ((byte & 96) == 96)
        s->epoch++;
    s->lied |= (byte & 96) == 64;
    return (struct world_id){(byte & 96) == 64 ? EPOCH : s->epoch,
                             byte & 16 ? UINT32_MAX - byte % 4 : byte % 8};
}

static void fill_event(struct member *s, struct membership_event *event)
{
    struct reader *in = &s->in;
    event->kind = (enum membership_event_kind)reader_below(in, 3);
    if (event->kind == MEMBERSHIP_EVENT_VERDICT && reader_flag(in))
        event->kind = MEMBERSHIP_EVENT_REFUSED;
    event->failed = event->kind == MEMBERSHIP_EVENT_VERDICT && reader_flag(in);
    event->exit_code = (int)reader_byte(in);
    event->world = (struct membership_world){
        .id = world(s), .group_world_size = 1, .world_size = 1, .role_world_size = 1};
    event->stopped = world(s);
    event->planned = reader_flag(in);
    event->grace_ns = reader_wait_ns(in);
}

static void receive(struct member *s, const struct wire_message *message)
{
    struct muster_error err = {0};
    if (!client_has_room(s->client))
        take_events(s);
    if (client_receive(s->client, message, s->now, &err) < 0)
        hold(err.text[0]);
}

static void receive_message(struct member *s)
{
    static const enum wire_kind kinds[] = {WIRE_ACCEPT, WIRE_EVENT, WIRE_BEAT,   WIRE_EVENT,   WIRE_AGAIN,
                                           WIRE_EVENT,  WIRE_JOIN,  WIRE_REPORT, WIRE_HANDOVER};
    static struct wire_message message;
    struct reader *in = &s->in;
    message.kind = kinds[reader_below(in, sizeof kinds / sizeof *kinds)];
    message.number = reader_flag(in) ? s->numbers : (uint64_t)reader_number(in);
    message.sequence = (uint64_t)reader_number(in);
    message.lease_ns = reader_flag(in) ? 20 * NS_PER_S : reader_number(in) & INT64_MAX;
    message.epoch = EPOCH + reader_below(in, 2);
    message.member = reader_int(in);
    message.restart_count = message.member & ROSTER_RESTARTS_LIMIT; /* as frames have it */
    if (message.kind == WIRE_EVENT) {
        message.event = (struct membership_event){0};
        fill_event(s, &message.event);
        if (message.event.kind == MEMBERSHIP_EVENT_STOP && !message.event.stopped.epoch)
            return; /* no frame says it */
        if (message.event.kind == MEMBERSHIP_EVENT_WORLD && !message.event.world.id.epoch)
            return;
    }
    receive(s, &message);
}

static void receive_frame(struct member *s)
{
    static struct wire_message message;
    struct muster_error err;
    size_t size;
    const uint8_t *bytes = reader_bytes(&s->in, &size);
    if (wire_decode(bytes, size, &message, &err) == 0)
        receive(s, &message);
}

/* -- the agent's actions
 * ------------------------------------------------------------------------------------------ */

static void report(struct member *s)
{
    static struct worker_failure failure = {.exit_code = 1, .tail = "the end"};
    struct muster_error err = {0};
    enum membership_report_kind kind = (enum membership_report_kind)reader_below(&s->in, 4);
    if (!s->held.epoch || s->over)
        return; /* membership.c drops it */
    struct world_id id = s->held;
    if (kind == MEMBERSHIP_REPORT_STOPPED)
        s->held = (struct world_id){0};
    if (!client_has_room(s->client))
        take_events(s);
    if (client_report(s->client, id, kind, &failure, s->now, &err) < 0)
        hold(err.text[0]);
}

/* As an agent's loop: everything that is due. */
static void run_due(struct member *s)
{
    struct muster_error err = {0};
    for (int turns = 0; !s->lost && (turns == 0 || instant_reached(s->now, client_deadline(s->client)));
         turns++) {
        hold(turns < TURNS_LIMIT);
        take_events(s);
        if (client_turn(s->client, s->now, &err) < 0) {
            hold(err.text[0]);
            s->lost = true;
        }
        take_events(s);
    }
}

static void pass_time(struct member *s)
{
    struct instant later = instant_add(s->now, reader_wait_ns(&s->in));
    while (!s->lost && instant_reached(later, client_deadline(s->client))) {
        struct instant due = client_deadline(s->client);
        s->now = due.ns > s->now.ns ? due : s->now;
        run_due(s);
    }
    s->now = later;
}

static void turn(struct member *s)
{
    switch (reader_below(&s->in, 16)) {
    case 0 ... 5:
        receive_message(s);
        break;
    case 6:
        receive_frame(s);
        break;
    case 7:
        report(s);
        break;
    case 8:
        s->connected = !s->connected;
        if (s->connected)
            client_connected(s->client, s->now);
        else
            client_broken(s->client, s->now);
        break;
    case 9:
        client_wake(s->client, s->now);
        break;
    case 10:
        client_drain(s->client, 143, reader_wait_ns(&s->in));
        break;
    case 11:
        (void)client_progress(s->client);
        (void)client_silence_ns(s->client, s->now);
        break;
    case 12:
        take_events(s);
        break;
    default:
        pass_time(s);
    }
    run_due(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct member member = {.in = {data, size}, .now = {NS_PER_S}, .connected = true, .epoch = EPOCH},
                  *s = &member;
    struct muster_error err;
    unsigned kind = reader_byte(&s->in);
    const struct client_options options = {
        .join = {.protocol_version = ROSTER_PROTOCOL_VERSION,
                 .job_id = "job",
                 .min_nodes = 1,
                 .max_nodes = 2,
                 .elastic = kind & 1,
                 .agent_name = "agent",
                 .node_rank = -1,
                 .incarnation = {1, 2},
                 .local_world_size = 1,
                 .role = "default",
                 .store_addr = ""},
        .join_timeout_ns = (kind & 2 ? 3600 : 10) * NS_PER_S,
        .server = "10.0.0.1:29500",
        .send = send,
        .context = s,
    };
    s->client = client_create(&options, s->now, &err);
    hold(s->client != NULL);
    for (int i = 0; s->in.left && !s->lost && i < STEPS_LIMIT; i++)
        turn(s);
    if (kind & 4)
        client_leave(s->client, 143);
    client_finish(s->client);
    client_destroy(s->client);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    /* accepted, a world, its stop, the next one, a verdict */
    static const uint8_t seeds[2][64] = {
        {3, 13, 10, 0, 0, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 7, 0, 0, 1, 1, 0, 1, 0, 0, 1},
        {2, 13, 10, 0, 0, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 7, 3, 0, 2, 1, 0, 1, 0, 0},
    };
    const struct fuzz_seed all[] = {{seeds[0], sizeof seeds[0]}, {seeds[1], sizeof seeds[1]}};
    return fuzz_main(argc, argv, all, 2);
}
#endif
