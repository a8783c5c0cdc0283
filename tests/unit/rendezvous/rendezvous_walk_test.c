/* rendezvous_walk_test.c - random messages through the wire, a client under a random server, random failures:
 * the results and their reports; one line a seed (walk.h). */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "rendezvous/client/client.h"
#include "rendezvous/failure/failure.h"
#include "rendezvous/wire/wire.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/golden.h"
#include "tests/support/walk.h"

enum { SEEDS = 300, MESSAGES = 120, STEPS = 250, FAILURES = 60 };

/* -- random content -- */

static int64_t number(struct walk *walk)
{
    static const int64_t numbers[] = {0,
                                      1,
                                      1,
                                      2,
                                      3,
                                      7,
                                      8,
                                      -1,
                                      -2,
                                      64,
                                      255,
                                      4096,
                                      4097,
                                      65535,
                                      65536,
                                      65537,
                                      INT_MAX,
                                      1000000000,
                                      1000000001,
                                      INT64_C(1) << 40,
                                      30 * NS_PER_S,
                                      INT64_MAX};
    return walk_pick(walk, numbers);
}

static int small(struct walk *walk)
{
    int64_t value = walk_one_in(walk, 12) ? number(walk) : walk_below(walk, 5);
    return value > INT_MAX - 8 ? INT_MAX - 8 : (int)value;
}

static const char *const snippets[] = {"",
                                       "a",
                                       "host-b",
                                       "Traceback (most recent call last):\n  File \"x.py\"\nValueError: no",
                                       "RuntimeError: NCCL error in: x.cpp\nncclRemoteError: peer",
                                       "line one\nConnection reset by peer\n  \n",
                                       "torch.OutOfMemoryError: CUDA out of memory. Tried\nBroken pipe",
                                       "W1121 10:00:00.000 [rank1] Exception: x\n\n",
                                       "\x1b[31mred\x1b[0m\tand\x01more",
                                       "caf\xc3\xa9 \xff\xfe end",
                                       "  indented\r\nlast line without an end",
                                       "KeyboardInterrupt",
                                       "[rank0]: DistBackendError: y\n[rank0]: at z"};

/* Up to the whole of the room. */
static void fill(struct walk *walk, char *out, size_t size)
{
    size_t used = 0;
    const bool whole = walk_one_in(walk, 12);
    out[0] = '\0';
    do {
        const char *snippet = walk_pick(walk, snippets);
        (void)snprintf(out + used, size - used, "%s%s", used ? "\n" : "", snippet);
        used = strlen(out);
    } while (whole ? used + 1 < size : walk_one_in(walk, 3) && used + 1 < size);
}

#define FILL(walk, field) fill(walk, field, sizeof(field))

static struct world_id random_id(struct walk *walk)
{
    return walk_one_in(walk, 3)
               ? (struct world_id){0}
               : (struct world_id){1 + (uint64_t)walk_below(walk, 2), (uint32_t)walk_below(walk, 3)};
}

static void random_failure(struct walk *walk, struct worker_failure *f)
{
    memset(f, 0, sizeof *f);
    f->rank = small(walk);
    f->local_rank = small(walk);
    f->group_rank = small(walk);
    f->pid = small(walk);
    f->exit_code = walk_one_in(walk, 2) ? -1 : small(walk);
    f->signal = f->exit_code == -1 ? (int)walk_below(walk, 66) : 0;
    bool *const marks[] = {&f->core_dumped,   &f->out_of_memory, &f->after_stop, &f->not_started,
                           &f->hung,          &f->unkillable,    &f->completes,  &f->memory_host,
                           &f->xid_elsewhere, &f->lost_node};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        *marks[i] = walk_one_in(walk, 7);
    f->step = walk_below(walk, 4) - 1;
    f->xid = walk_one_in(walk, 4) ? (int)walk_below(walk, 150) : 0;
    f->oom_check = (enum failure_oom_check)walk_below(walk, FAILURE_OOM_COUNTED + 1);
    f->oom_kills = walk_below(walk, 3);
    f->memory_limit = walk_one_in(walk, 2) ? walk_below(walk, 3) : walk_below(walk, INT64_C(1) << 34);
    f->memory_peak = walk_one_in(walk, 2) ? walk_below(walk, 3) : walk_below(walk, INT64_C(1) << 34);
    f->age_ns = walk_one_in(walk, 10) ? FAILURE_AGE_LIMIT_NS + walk_below(walk, 3) - 1
                                      : walk_below(walk, 9) * NS_PER_S;
    f->wall_ns = walk_one_in(walk, 10) ? number(walk) : INT64_C(1790000000000000000);
    FILL(walk, f->host);
    FILL(walk, f->tail);
    FILL(walk, f->error_file);
    FILL(walk, f->message);
    FILL(walk, f->traceback);
    FILL(walk, f->pci);
}

static void random_event(struct walk *walk, struct membership_event *e)
{
    memset(e, 0, sizeof *e);
    e->kind = (enum membership_event_kind)walk_below(walk, 4);
    e->world = (struct membership_world){.id = random_id(walk),
                                         .group_rank = small(walk),
                                         .group_world_size = small(walk) + 2,
                                         .rank_base = small(walk),
                                         .world_size = small(walk),
                                         .role_rank_base = small(walk),
                                         .role_world_size = small(walk),
                                         .restart_count = walk_below(walk, 3)};
    e->world.master_port = (uint16_t)number(walk);
    if (!walk_one_in(walk, 4)) { /* a consistent message */
        e->world.group_rank = (int)walk_below(walk, 3);
        e->world.group_world_size = e->world.group_rank + 1 + (int)walk_below(walk, 3);
        e->world.rank_base = e->world.group_rank * 2;
        e->world.world_size = e->world.group_world_size * 2;
        e->world.role_rank_base = e->world.rank_base;
        e->world.role_world_size = e->world.world_size;
        e->world.master_port = 29500;
    }
    FILL(walk, e->world.master_addr);
    e->stopped = random_id(walk);
    e->planned = walk_one_in(walk, 2);
    e->grace_ns = walk_one_in(walk, 3) ? number(walk) : walk_below(walk, 3) * NS_PER_S;
    e->change = (enum membership_change)walk_below(walk, MEMBERSHIP_CHANGE_COUNT + 1);
    e->next_nodes = small(walk);
    e->exit_code = walk_one_in(walk, 8) ? small(walk) : (int)walk_below(walk, 256);
    e->failed = walk_one_in(walk, 2);
    e->other_count = walk_one_in(walk, 10) ? FAILURE_OTHERS_LIMIT : (int)walk_below(walk, 3);
    e->other_total = e->other_count + (int)walk_below(walk, 3) - walk_one_in(walk, 10);
    FILL(walk, e->reason);
    random_failure(walk, &e->failure);
    for (int i = 0; i < e->other_count; i++) {
        static struct worker_failure other;
        random_failure(walk, &other);
        e->others[i] = failure_brief_of(&other);
        e->others[i].after_ns = (walk_below(walk, 5) - 2) * NS_PER_S;
    }
}

static void random_join(struct walk *walk, struct wire_message *m)
{
    FILL(walk, m->texts.job_id);
    FILL(walk, m->texts.agent_name);
    FILL(walk, m->texts.store_addr);
    FILL(walk, m->texts.role);
    FILL(walk, m->texts.program);
    m->join = (struct roster_join){.protocol_version = ROSTER_PROTOCOL_VERSION +
                                                       (walk_one_in(walk, 12) ? small(walk) - 1 : 0),
                                   .job_id = m->texts.job_id,
                                   .min_nodes = small(walk),
                                   .max_nodes = small(walk),
                                   .elastic = walk_one_in(walk, 2),
                                   .agent_name = m->texts.agent_name,
                                   .node_rank = small(walk) - 1,
                                   .incarnation = {(uint64_t)number(walk), (uint64_t)number(walk)},
                                   .local_world_size = small(walk),
                                   .role = m->texts.role,
                                   .command = (uint64_t)number(walk),
                                   .program = walk_one_in(walk, 4) ? NULL : m->texts.program,
                                   .store_addr = m->texts.store_addr,
                                   .store_port = (uint16_t)number(walk),
                                   .held = random_id(walk),
                                   .held_done = walk_one_in(walk, 2),
                                   .last = random_id(walk),
                                   .last_nodes = small(walk),
                                   .last_rank = small(walk) - 1,
                                   .server_done = walk_one_in(walk, 2),
                                   .server_left = walk_one_in(walk, 2),
                                   .lapsed = walk_one_in(walk, 4),
                                   .restart_count = walk_one_in(walk, 6) ? number(walk) : walk_below(walk, 3),
                                   .epoch = (uint64_t)walk_below(walk, 3)};
}

static void random_message(struct walk *walk, struct wire_message *m)
{
    memset(m, 0, sizeof *m);
    m->kind = (enum wire_kind)walk_below(walk, WIRE_EVENT + 1);
    m->exit_code = walk_one_in(walk, 6) ? small(walk) : (int)walk_below(walk, 256);
    m->grace_ns = number(walk);
    m->member = small(walk);
    m->missing = small(walk);
    m->ended = small(walk);
    m->number = (uint64_t)number(walk);
    m->lease_ns = number(walk);
    m->epoch = (uint64_t)walk_below(walk, 3);
    m->restart_count = walk_one_in(walk, 6) ? number(walk) : walk_below(walk, 3);
    m->sequence = (uint64_t)number(walk);
    m->id = random_id(walk);
    m->report = (enum membership_report_kind)walk_below(walk, 5);
    FILL(walk, m->progress);
    m->server_done = random_id(walk);
    random_join(walk, m);
    random_failure(walk, &m->failure);
    random_event(walk, &m->event);
}

static void saw_record(struct walk *walk, const struct worker_failure *f)
{
    const int64_t numbers[] = {
        f->rank,        f->local_rank,    f->group_rank,   f->pid,         f->exit_code,   f->signal,
        f->core_dumped, f->out_of_memory, f->lost_node,    f->after_stop,  f->not_started, f->hung,
        f->unkillable,  f->completes,     f->memory_host,  f->step,        f->xid,         f->xid_elsewhere,
        f->oom_check,   f->oom_kills,     f->memory_limit, f->memory_peak, f->age_ns,      f->wall_ns};
    walk_saw(walk, numbers, sizeof numbers);
    walk_saw_text(walk, f->host);
    walk_saw_text(walk, f->tail);
    walk_saw_text(walk, f->pci);
    walk_saw_text(walk, f->error_file);
    walk_saw_text(walk, f->message);
    walk_saw_text(walk, f->traceback);
}

/* -- the wire -- */

/* The received message, in its written form. */
static void saw_message(struct walk *walk, const struct wire_message *m)
{
    struct muster_error err = {0};
    scope_buffer frame = {0};
    int result = wire_encode(m, &frame, &err);
    walk_saw_number(walk, m->kind);
    walk_saw_text(walk, wire_kind_name(m->kind));
    walk_saw_number(walk, result);
    if (result < 0)
        walk_saw_text(walk, err.text);
    else
        walk_saw(walk, frame.data, frame.length);
}

static void saw_frame(struct walk *walk, const char *data, size_t length, int *taken)
{
    static struct wire_message out;
    struct muster_error err = {0};
    memset(&out, 0x5a, sizeof out); /* another message was there before */
    int result = wire_decode(data, length, &out, &err);
    walk_saw_number(walk, result);
    if (result < 0) {
        walk_saw_number(walk, err.code);
        walk_saw_text(walk, err.text);
        return;
    }
    saw_message(walk, &out);
    if (out.kind == WIRE_REPORT && out.report == MEMBERSHIP_REPORT_FAILED)
        saw_record(walk, &out.failure);
    ++*taken;
}

static void random_messages_come_through_as_they_did(void **state)
{
    (void)state;
    scope_buffer text = {0};
    static struct wire_message message;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        int taken = 0;
        for (int i = 0; i < MESSAGES / 2; i++) {
            struct muster_error err = {0};
            scope_buffer frame = {0};
            random_message(&walk, &message);
            int result = wire_encode(&message, &frame, &err);
            walk_saw_number(&walk, result);
            if (result < 0) {
                walk_saw_text(&walk, err.text);
                continue;
            }
            walk_saw(&walk, frame.data, frame.length);
            saw_frame(&walk, frame.data, frame.length, &taken);
            if (frame.length && walk_one_in(&walk, 2)) {
                frame.data[walk_below(
                    &walk, (int64_t)(walk_one_in(&walk, 2) && frame.length > 8 ? 8 : frame.length))] ^=
                    (char)(1 << walk_below(&walk, 8));
                saw_frame(&walk, frame.data, frame.length - (walk_one_in(&walk, 8) ? 1 : 0), &taken);
            }
        }
        buffer_printf(&text, "%llu: %d taken, %016llx\n", (unsigned long long)seed, taken,
                      (unsigned long long)walk.digest);
    }
    golden_check("tests/unit/rendezvous/golden/wire_walks.txt", &text);
}

/* Every number of a message, one at a time, at the limits that any of them has. */
#define FIELD(member)                                                                                        \
    {                                                                                                        \
        offsetof(struct wire_message, member), sizeof((struct wire_message *)0)->member                      \
    }
#define FIELDS_OF_FAILURE(f)                                                                                 \
    FIELD(f.rank), FIELD(f.local_rank), FIELD(f.group_rank), FIELD(f.pid), FIELD(f.exit_code),               \
        FIELD(f.signal), FIELD(f.step), FIELD(f.xid), FIELD(f.oom_check), FIELD(f.oom_kills),                \
        FIELD(f.memory_limit), FIELD(f.memory_peak), FIELD(f.age_ns), FIELD(f.wall_ns)
static const struct {
    size_t at, size;
} fields[] = {FIELD(exit_code),
              FIELD(grace_ns),
              FIELD(member),
              FIELD(number),
              FIELD(lease_ns),
              FIELD(epoch),
              FIELD(restart_count),
              FIELD(sequence),
              FIELD(id.epoch),
              FIELD(id.round),
              FIELD(report),
              FIELD(server_done.epoch),
              FIELD(join.protocol_version),
              FIELD(join.min_nodes),
              FIELD(join.max_nodes),
              FIELD(join.node_rank),
              FIELD(join.incarnation.high),
              FIELD(join.local_world_size),
              FIELD(join.store_port),
              FIELD(join.held.epoch),
              FIELD(join.last.epoch),
              FIELD(join.last_nodes),
              FIELD(join.last_rank),
              FIELD(join.restart_count),
              FIELD(join.epoch),
              FIELDS_OF_FAILURE(failure),
              FIELD(event.kind),
              FIELD(event.world.id.epoch),
              FIELD(event.world.id.round),
              FIELD(event.world.group_rank),
              FIELD(event.world.group_world_size),
              FIELD(event.world.rank_base),
              FIELD(event.world.world_size),
              FIELD(event.world.role_rank_base),
              FIELD(event.world.role_world_size),
              FIELD(event.world.restart_count),
              FIELD(event.world.master_port),
              FIELD(event.stopped.epoch),
              FIELD(event.grace_ns),
              FIELD(event.change),
              FIELD(event.next_nodes),
              FIELD(event.exit_code),
              FIELD(event.other_total),
              FIELDS_OF_FAILURE(event.failure),
              FIELD(event.others[0].rank),
              FIELD(event.others[0].local_rank),
              FIELD(event.others[0].group_rank),
              FIELD(event.others[0].pid),
              FIELD(event.others[0].exit_code),
              FIELD(event.others[0].signal),
              FIELD(event.others[0].xid),
              FIELD(event.others[0].class_),
              FIELD(event.others[0].step),
              FIELD(event.others[0].after_ns),
              FIELD(event.others[0].wall_ns)};

static void fair_message(enum wire_kind kind, enum membership_event_kind event, struct wire_message *m)
{
    memset(m, 0, sizeof *m);
    *m = (struct wire_message){.kind = kind,
                               .number = 1,
                               .lease_ns = NS_PER_S,
                               .epoch = 1,
                               .sequence = 1,
                               .id = {1, 1},
                               .report = MEMBERSHIP_REPORT_FAILED,
                               .progress = "p",
                               .server_done = {1, 1}};
    m->join = (struct roster_join){.protocol_version = ROSTER_PROTOCOL_VERSION,
                                   .job_id = "job",
                                   .min_nodes = 1,
                                   .max_nodes = 2,
                                   .agent_name = "a",
                                   .incarnation = {1, 2},
                                   .local_world_size = 1,
                                   .role = "r",
                                   .program = "p",
                                   .store_addr = "s",
                                   .store_port = 1,
                                   .held = {1, 1},
                                   .last = {1, 1},
                                   .last_nodes = 2,
                                   .last_rank = 1,
                                   .epoch = 1};
    m->failure = (struct worker_failure){.exit_code = 1, .step = -1, .host = "h"};
    m->event = (struct membership_event){.kind = event,
                                         .stopped = {1, 1},
                                         .planned = true,
                                         .grace_ns = 1,
                                         .change = MEMBERSHIP_CHANGE_JOIN,
                                         .next_nodes = 2,
                                         .exit_code = 1,
                                         .failed = true,
                                         .other_count = 2,
                                         .other_total = 2,
                                         .reason = "why"};
    m->event.world = (struct membership_world){.id = {1, 1},
                                               .group_rank = 1,
                                               .group_world_size = 3,
                                               .rank_base = 2,
                                               .world_size = 6,
                                               .role_rank_base = 2,
                                               .role_world_size = 6,
                                               .master_addr = "m",
                                               .master_port = 1};
    m->event.failure = m->failure;
    m->event.others[0] = m->event.others[1] = failure_brief_of(&m->failure);
}

static void numbers_are_taken_to_their_limits(void **state)
{
    (void)state;
    static const int64_t values[] = {INT64_MIN,
                                     INT_MIN,
                                     -2 * FAILURE_AGE_LIMIT_NS - 1,
                                     -2 * FAILURE_AGE_LIMIT_NS,
                                     -FAILURE_AGE_LIMIT_NS - 1,
                                     -FAILURE_AGE_LIMIT_NS,
                                     -2,
                                     -1,
                                     0,
                                     1,
                                     2,
                                     3,
                                     4,
                                     5,
                                     6,
                                     7,
                                     63,
                                     64,
                                     65,
                                     127,
                                     128,
                                     254,
                                     255,
                                     256,
                                     257,
                                     1023,
                                     1024,
                                     4095,
                                     4096,
                                     4097,
                                     8192,
                                     65535,
                                     65536,
                                     65537,
                                     999999999,
                                     1000000000,
                                     1000000001,
                                     268435456,
                                     268435457,
                                     INT_MAX - 8,
                                     FAILURE_AGE_LIMIT_NS - 1,
                                     FAILURE_AGE_LIMIT_NS,
                                     FAILURE_AGE_LIMIT_NS + 1,
                                     2 * FAILURE_AGE_LIMIT_NS,
                                     2 * FAILURE_AGE_LIMIT_NS + 1,
                                     86400 * NS_PER_S,
                                     86400 * NS_PER_S + 1,
                                     3600 * NS_PER_S,
                                     3600 * NS_PER_S + 1,
                                     INT64_MAX};
    static struct wire_message message;
    scope_buffer text = {0};
    for (int kind = WIRE_JOIN; kind <= WIRE_EVENT + 3; kind++) {
        int taken = 0;
        struct walk walk = walk_begin((uint64_t)kind);
        for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                struct muster_error err = {0};
                scope_buffer frame = {0};
                int value = values[v] > INT_MAX - 8 ? INT_MAX - 8
                            : values[v] < INT_MIN   ? INT_MIN
                                                    : (int)values[v];
                uint16_t port = (uint16_t)value;
                fair_message(kind < WIRE_EVENT ? (enum wire_kind)kind : WIRE_EVENT,
                             kind < WIRE_EVENT ? MEMBERSHIP_EVENT_WORLD
                                               : (enum membership_event_kind)(kind - WIRE_EVENT),
                             &message);
                memcpy((char *)&message + fields[f].at,
                       fields[f].size == 8   ? (const void *)&values[v]
                       : fields[f].size == 4 ? (const void *)&value
                                             : &port,
                       fields[f].size);
                if (wire_encode(&message, &frame, &err) < 0)
                    walk_saw_text(&walk, err.text);
                else
                    saw_frame(&walk, frame.data, frame.length, &taken);
            }
        assert_true(taken > 1000); /* most are of no concern to a kind */
        buffer_printf(&text, "%d: %d taken, %016llx\n", kind, taken, (unsigned long long)walk.digest);
    }
    golden_check("tests/unit/rendezvous/golden/wire_limits.txt", &text);
}

/* -- a client -- */

struct session {
    struct walk walk;
    struct client *client;
    struct instant now;
    bool connected, lost;
    uint64_t sent;
    struct world_id held;
};

static bool send_it(void *context, const struct wire_message *message)
{
    struct session *s = context;
    saw_message(&s->walk, message);
    if (s->connected && (message->kind == WIRE_JOIN || message->kind == WIRE_BEAT))
        s->sent = message->number;
    return s->connected;
}

static void take_events(struct session *s)
{
    static struct membership_event event;
    while (client_take_event(s->client, &event)) {
        const int64_t numbers[] = {event.kind,           (int64_t)event.world.id.epoch,
                                   event.world.id.round, (int64_t)event.stopped.epoch,
                                   event.stopped.round,  event.planned,
                                   event.grace_ns,       event.exit_code,
                                   event.failed};
        walk_saw(&s->walk, numbers, sizeof numbers);
        walk_saw_text(&s->walk, event.reason);
        if (event.kind == MEMBERSHIP_EVENT_WORLD)
            s->held = event.world.id;
    }
}

static void receive(struct session *s)
{
    static const enum wire_kind kinds[] = {WIRE_ACCEPT, WIRE_ACCEPT, WIRE_BEAT,  WIRE_BEAT,     WIRE_EVENT,
                                           WIRE_EVENT,  WIRE_EVENT,  WIRE_AGAIN, WIRE_HANDOVER, WIRE_JOIN};
    static struct wire_message message;
    struct muster_error err = {0};
    struct walk *walk = &s->walk;
    random_message(walk, &message);
    message.kind = walk_pick(walk, kinds);
    message.number = walk_one_in(walk, 8) ? (uint64_t)walk_below(walk, 100)
                                          : s->sent - (uint64_t)(s->sent && walk_one_in(walk, 4));
    message.sequence = (uint64_t)walk_below(walk, 6);
    message.lease_ns = walk_one_in(walk, 3) ? walk_below(walk, 8) * NS_PER_S : 4 * NS_PER_S;
    message.epoch = 1 + (uint64_t)walk_one_in(walk, 6);
    message.restart_count = walk_below(walk, 4);
    if (message.kind == WIRE_EVENT) {
        struct membership_event *event = &message.event;
        if (event->kind >= MEMBERSHIP_EVENT_VERDICT && !walk_one_in(walk, 6))
            event->kind = walk_one_in(walk, 2) ? MEMBERSHIP_EVENT_WORLD : MEMBERSHIP_EVENT_STOP;
        event->other_count = 0;
        event->world.id =
            (struct world_id){1 + (uint64_t)walk_one_in(walk, 6), (uint32_t)walk_below(walk, 6)};
        event->stopped = s->held.epoch && !walk_one_in(walk, 5) ? s->held : event->world.id;
        event->world.group_world_size = event->world.group_rank + 1 + (int)walk_below(walk, 2);
    }
    if (!client_has_room(s->client))
        take_events(s);
    int result = client_receive(s->client, &message, s->now, &err);
    walk_saw_number(walk, result);
    walk_saw_text(walk, result < 0 ? err.text : NULL);
}

static void report(struct session *s)
{
    static struct worker_failure failure;
    struct muster_error err = {0};
    enum membership_report_kind kind = (enum membership_report_kind)walk_below(&s->walk, 4);
    if (!s->held.epoch)
        return;
    struct world_id id = s->held;
    if (kind == MEMBERSHIP_REPORT_STOPPED)
        s->held = (struct world_id){0};
    random_failure(&s->walk, &failure);
    failure.tail[100] = failure.traceback[100] = '\0';
    if (!client_has_room(s->client))
        take_events(s);
    int result = client_report(s->client, id, kind, &failure, s->now, &err);
    walk_saw_number(&s->walk, result);
    walk_saw_text(&s->walk, result < 0 ? err.text : NULL);
}

static void one_turn(struct session *s)
{
    struct walk *walk = &s->walk;
    struct muster_error err = {0};
    struct instant due = client_deadline(s->client);
    int64_t what = walk_below(walk, 30);
    if (what < 12)
        receive(s);
    else if (what < 15)
        report(s);
    else if (what == 15) {
        s->connected = !s->connected;
        if (s->connected && walk_one_in(walk, 2))
            client_connected(s->client, s->now);
        else if (s->connected)
            client_reached(s->client);
        else
            client_broken(s->client, s->now);
    } else if (what == 16)
        client_wake(s->client, s->now);
    else if (what == 17 && walk_one_in(walk, 4))
        client_drain(s->client, 143, walk_below(walk, 2) * NS_PER_S);
    else if (what == 18 && walk_one_in(walk, 8))
        client_leave(s->client, 7);
    else if (due.ns != INSTANT_NEVER.ns && due.ns > s->now.ns && walk_one_in(walk, 3))
        s->now.ns = due.ns - walk_below(walk, 2);
    else
        s->now.ns += walk_below(walk, walk_one_in(walk, 6) ? 3 * NS_PER_S : NS_PER_S / 2);
    if (client_turn(s->client, s->now, &err) < 0) {
        walk_saw_text(walk, err.text);
        s->lost = true;
    }
    if (!walk_one_in(walk, 4))
        take_events(s);
    const int64_t numbers[] = {client_deadline(s->client).ns,        client_last_received(s->client).ns,
                               client_silence_ns(s->client, s->now), client_is_alone(s->client, s->now),
                               client_server_left(s->client),        client_has_news(s->client),
                               client_has_joined(s->client),         client_has_room(s->client)};
    walk_saw(walk, numbers, sizeof numbers);
    walk_saw_text(walk, client_progress(s->client));
}

static void a_client_answers_a_random_server_as_it_did(void **state)
{
    (void)state;
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct session s = {.walk = walk_begin(seed), .now = {100 * NS_PER_S}, .connected = true};
        struct muster_error err = {0};
        const struct client_options options = {
            .join = {.protocol_version = ROSTER_PROTOCOL_VERSION,
                     .job_id = "job",
                     .min_nodes = 1,
                     .max_nodes = 2,
                     .elastic = walk_one_in(&s.walk, 2),
                     .agent_name = "a",
                     .node_rank = -1,
                     .incarnation = {1, 2},
                     .local_world_size = 1,
                     .role = "default",
                     .store_addr = ""},
            .join_timeout_ns = (1 + walk_below(&s.walk, 60)) * NS_PER_S,
            .join_used_ns = walk_below(&s.walk, 2) * NS_PER_S,
            .max_restarts = walk_below(&s.walk, 3),
            .server = "10.0.0.1:29500",
            .send = send_it,
            .context = &s,
        };
        s.client = client_create(&options, s.now, &err);
        assert_non_null(s.client);
        for (int i = 0; i < STEPS && !s.lost; i++)
            one_turn(&s);
        client_finish(s.client);
        client_destroy(s.client);
        buffer_printf(&text, "%llu: %016llx\n", (unsigned long long)seed, (unsigned long long)s.walk.digest);
    }
    golden_check("tests/unit/rendezvous/golden/client_walks.txt", &text);
}

/* -- failures -- */

static void saw_failure(struct walk *walk, const struct worker_failure *f)
{
    static struct worker_failure back;
    char out[600];
    for (int i = 0; i < 2; i++) { /* with room, and with little */
        size_t size = i ? 1 + (size_t)walk_below(walk, 80) : sizeof out;
        failure_describe(f, out, size);
        walk_saw_text(walk, out);
        failure_excerpt(f, out, size);
        walk_saw_text(walk, out);
        failure_memory_text(f, out, size);
        walk_saw_text(walk, out);
        failure_oom_text(f, out, size);
        walk_saw_text(walk, out);
    }
    size_t length;
    const char *line = failure_informative_line(f->tail, &length);
    walk_saw_number(walk, line - f->tail);
    walk_saw(walk, line, length);
    const struct failure_brief brief = failure_brief_of(f);
    const int64_t numbers[] = {failure_class_of(f),
                               failure_shows_trouble(f),
                               failure_says_peer_gone(f->tail, f->rank),
                               failure_is_cut_short(f),
                               failure_exit_code(f),
                               brief.rank,
                               brief.xid,
                               brief.class_,
                               brief.signal,
                               brief.step,
                               brief.hung,
                               brief.after_ns};
    walk_saw(walk, numbers, sizeof numbers);
    walk_saw_text(walk, failure_class_name(failure_class_of(f)));
    walk_saw_text(walk, brief.host);
    walk_saw_text(walk, brief.excerpt);
    walk_saw_text(walk, failure_signal_name((int)walk_below(walk, 70), out, sizeof out));
    memset(&back, 0, sizeof back);
    failure_from_brief(&brief, 5, &back);
    saw_record(walk, &back);
}

static void failures_are_reported_as_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        struct failure_key before = {0};
        for (int i = 0; i < FAILURES; i++) {
            static struct worker_failure failure;
            random_failure(&walk, &failure);
            saw_failure(&walk, &failure);
            struct failure_key key = failure_key_of(&failure, (struct instant){walk_below(&walk, 3)});
            int order = failure_key_compare(&key, &before), back = failure_key_compare(&before, &key);
            assert_true((order < 0) == (back > 0) && (order == 0) == (back == 0));
            assert_int_equal(failure_key_compare(&key, &key), 0);
            walk_saw_number(&walk, order < 0);
            before = key;
            struct failure_key near = key;
            int *const fields[] = {&near.rank, &near.local_rank, &near.pid};
            *fields[walk_below(&walk, 3)] -= 1;
            assert_true(failure_key_compare(&key, &near) > 0 && failure_key_compare(&near, &key) < 0);
        }
        buffer_printf(&text, "%llu: %016llx\n", (unsigned long long)seed, (unsigned long long)walk.digest);
    }
    golden_check("tests/unit/rendezvous/golden/failure_walks.txt", &text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_messages_come_through_as_they_did),
        cmocka_unit_test(numbers_are_taken_to_their_limits),
        cmocka_unit_test(a_client_answers_a_random_server_as_it_did),
        cmocka_unit_test(failures_are_reported_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
