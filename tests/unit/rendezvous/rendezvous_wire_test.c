/* rendezvous_wire_test.c - the messages: a message comes out as it goes in, and foreign bytes are refused
 * without harm. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/buffer.h"
#include "rendezvous.pb-c.h"
#include "rendezvous/wire/wire.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

static const struct world_id some_id = {UINT64_C(0xfedcba9876543210), 7};

static struct worker_failure some_failure(void)
{
    struct worker_failure failure = {.rank = 5,
                                     .local_rank = 1,
                                     .group_rank = 2,
                                     .pid = 99,
                                     .exit_code = -1,
                                     .signal = 11,
                                     .core_dumped = true,
                                     .step = -1,
                                     .age_ns = 12345,
                                     .wall_ns = INT64_C(1790000000000000000),
                                     .after_stop = true,
                                     .not_started = true,
                                     .hung = true,
                                     .unkillable = true,
                                     .completes = true,
                                     .no_restart = true,
                                     .memory_host = true,
                                     .xid = 79,
                                     .xid_elsewhere = true,
                                     .pci = "0000:3b:00",
                                     .oom_check = FAILURE_OOM_COUNTED,
                                     .oom_kills = 3,
                                     .memory_limit = INT64_C(1) << 40,
                                     .memory_peak = 5,
                                     .host = "host-b",
                                     .error_file = "/tmp/error.json",
                                     .message = "ValueError: no",
                                     .traceback = "Traceback\n  line"};
    memset(failure.tail, '\xfe', sizeof failure.tail - 1); /* not UTF-8, and as long as it gets */
    return failure;
}

static struct wire_message some_join(void)
{
    return (struct wire_message){.kind = WIRE_JOIN,
                                 .join = {.protocol_version = ROSTER_PROTOCOL_VERSION,
                                          .job_id = "job",
                                          .min_nodes = 2,
                                          .max_nodes = 2,
                                          .agent_name = "host-b",
                                          .node_rank = -1,
                                          .incarnation = {UINT64_MAX, 1},
                                          .local_world_size = 8,
                                          .role = "trainer",
                                          .store_addr = "10.0.0.2",
                                          .store_port = 65535,
                                          .local = true,
                                          .held = some_id,
                                          .last = {7, 8},
                                          .last_nodes = 64,
                                          .restart_count = 3,
                                          .epoch = UINT64_MAX,
                                          .proof = UINT64_MAX - 1}};
}

/* Static: a message is larger than a comfortable stack frame. */
static const struct wire_message *round_trip(const struct wire_message *message)
{
    static struct wire_message out;
    struct muster_error err = {0};
    scope_buffer frame = {0};
    memset(&out, 0, sizeof out);
    assert_int_equal(wire_encode(message, &frame, &err), 0);
    assert_true(frame.length <= WIRE_FRAME_LIMIT);
    if (wire_decode(frame.data, frame.length, &out, &err))
        fail_msg("%s", err.text);
    assert_int_equal(out.kind, message->kind);
    return &out;
}

static void a_join_comes_through(void **state)
{
    (void)state;
    struct wire_message message = some_join();
    const struct roster_join *join = &round_trip(&message)->join;
    assert_string_equal(join->job_id, "job");
    assert_string_equal(join->agent_name, "host-b");
    assert_string_equal(join->role, "trainer");
    assert_string_equal(join->store_addr, "10.0.0.2");
    assert_int_equal(join->store_port, 65535);
    assert_int_equal(join->node_rank, -1);
    assert_true(join->incarnation.high == UINT64_MAX && join->incarnation.low == 1);
    assert_int_equal(join->local_world_size, 8);
    assert_true(join->held.epoch == some_id.epoch && join->held.round == 7);
    assert_true(join->last.epoch == 7 && join->last.round == 8 && join->epoch == UINT64_MAX);
    assert_int_equal(join->last_nodes, 64);
    assert_int_equal(join->restart_count, 3);
    assert_true(join->proof == UINT64_MAX - 1);
    assert_false(join->local); /* nobody can claim it from outside */
}

static struct wire_message some_done(enum wire_kind kind, const struct rank_ranges *done)
{
    struct wire_message message = some_join();
    message.kind = kind;
    message.server_done = some_id;
    message.join.server_done = true;
    message.done = message.join.done = *done;
    return message;
}

static const struct rank_ranges *sent_done(enum wire_kind kind, const struct rank_ranges *done)
{
    const struct wire_message message = some_done(kind, done);
    const struct wire_message *out = round_trip(&message);
    return kind == WIRE_JOIN ? &out->join.done : &out->done;
}

static void nodes_that_are_done_come_through(void **state)
{
    static const enum wire_kind kinds[] = {WIRE_JOIN, WIRE_BEAT};
    struct rank_ranges done = {0};
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(sent_done(kinds[i], &done)->count, 0);
    for (int rank = ROSTER_MEMBER_LIMIT - 3 * RANK_RANGES_LIMIT; rank < ROSTER_MEMBER_LIMIT; rank++)
        if (rank % 3)
            assert_true(rank_ranges_add(&done, rank));
    assert_int_equal(done.count, RANK_RANGES_LIMIT);
    for (int i = 0; i < 2; i++) {
        const struct rank_ranges *out = sent_done(kinds[i], &done);
        assert_int_equal(out->count, done.count);
        assert_memory_equal(out->items, done.items, sizeof done.items);
    }
}

static void expect_foreign(const Muster__Envelope *envelope, const char *text)
{
    static struct wire_message out;
    struct muster_error err = {0};
    uint8_t frame[8192];
    assert_true(muster__envelope__get_packed_size(envelope) <= sizeof frame);
    const size_t length = muster__envelope__pack(envelope, frame);
    assert_int_equal(wire_decode(frame, length, &out, &err), -1);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void ranks_that_cannot_be_are_refused(void **state)
{
    static const struct {
        uint32_t numbers[2 * RANK_RANGES_LIMIT + 2];
        size_t count;
        const char *text;
    } cases[] = {
        {{1, 2, 3}, 3, "odd"},
        {{2, 1}, 2, "out of order"},
        {{1, 4, 4, 5}, 4, "out of order"},
        {{5, 6, 1, 2}, 4, "out of order"},
        {{0, ROSTER_MEMBER_LIMIT}, 2, "out of range"},
        {{0, UINT32_MAX, 0, 1}, 4, "out of range"},
        {{0}, 2 * RANK_RANGES_LIMIT + 2, "too many"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Muster__Beat beat;
        muster__beat__init(&beat);
        beat.progress = "";
        beat.n_done = cases[i].count;
        beat.done = (uint32_t *)cases[i].numbers;
        Muster__Envelope envelope;
        muster__envelope__init(&envelope);
        envelope.version = ROSTER_PROTOCOL_VERSION;
        envelope.body_case = MUSTER__ENVELOPE__BODY_BEAT;
        envelope.beat = &beat;
        expect_foreign(&envelope, cases[i].text);
    }
}

static void a_report_comes_through(void **state)
{
    (void)state;
    static struct wire_message message;
    message = (struct wire_message){.kind = WIRE_REPORT,
                                    .id = some_id,
                                    .report = MEMBERSHIP_REPORT_FAILED,
                                    .sequence = 3,
                                    .failure = some_failure()};
    const struct wire_message *out = round_trip(&message);
    assert_int_equal(out->report, MEMBERSHIP_REPORT_FAILED);
    assert_int_equal(out->sequence, 3);
    assert_int_equal(out->id.epoch, some_id.epoch);
    assert_memory_equal(&out->failure, &message.failure, sizeof out->failure);
    message.report = MEMBERSHIP_REPORT_RUNNING;
    assert_int_equal(round_trip(&message)->report, MEMBERSHIP_REPORT_RUNNING);
}

static void events_come_through(void **state)
{
    (void)state;
    static struct wire_message message;
    message = (struct wire_message){.kind = WIRE_EVENT,
                                    .event = {.kind = MEMBERSHIP_EVENT_WORLD,
                                              .reason = "rank 3 died",
                                              .failed_class = FAILURE_CLASS_COUNT,
                                              .world = {.id = some_id,
                                                        .group_rank = 1,
                                                        .group_world_size = 2,
                                                        .rank_base = 8,
                                                        .world_size = 16,
                                                        .role_rank_base = 8,
                                                        .role_world_size = 16,
                                                        .restart_count = 2,
                                                        .master_addr = "host-a",
                                                        .master_port = 23456}}};
    assert_memory_equal(&round_trip(&message)->event, &message.event, sizeof message.event);
    message.event =
        (struct membership_event){.kind = MEMBERSHIP_EVENT_STOP, .stopped = some_id, .reason = "because"};
    message.event.planned = true;
    message.event.grace_ns = 30 * NS_PER_S;
    message.event.change = MEMBERSHIP_CHANGE_LEAVE;
    message.event.next_nodes = 7;
    assert_memory_equal(&round_trip(&message)->event, &message.event, sizeof message.event);
    message.event.next_nodes = 0; /* not known */
    message.event.grace_ns = 0;
    assert_memory_equal(&round_trip(&message)->event, &message.event, sizeof message.event);
    message.event = (struct membership_event){
        .kind = MEMBERSHIP_EVENT_VERDICT, .exit_code = 139, .failed = true, .failure = some_failure()};
    assert_memory_equal(&round_trip(&message)->event, &message.event, sizeof message.event);
    message.event.doubled = true;
    assert_memory_equal(&round_trip(&message)->event, &message.event, sizeof message.event);
    message.event.other_count = FAILURE_OTHERS_LIMIT;
    message.event.other_total = 4096;
    for (int i = 0; i < FAILURE_OTHERS_LIMIT; i++) {
        struct failure_brief *other = &message.event.others[i];
        *other = (struct failure_brief){.rank = i,
                                        .local_rank = -1,
                                        .group_rank = 4,
                                        .pid = 7,
                                        .exit_code = -1,
                                        .signal = 9,
                                        .xid = 31,
                                        .class_ = FAILURE_CASCADE,
                                        .core_dumped = true,
                                        .out_of_memory = true,
                                        .after_ns = -5,
                                        .wall_ns = 6};
        memset(other->host, 'h', sizeof other->host - 1);
        memset(other->excerpt, '\xfe', sizeof other->excerpt - 1);
    }
    assert_memory_equal(&round_trip(&message)->event, &message.event, sizeof message.event);
    message.event = (struct membership_event){.kind = MEMBERSHIP_EVENT_REFUSED, .reason = "no"};
    assert_memory_equal(&round_trip(&message)->event, &message.event, sizeof message.event);
    message.event = (struct membership_event){.kind = MEMBERSHIP_EVENT_EVICTION,
                                              .number = 6,
                                              .eviction = EVICTION_REFUSED,
                                              .agent = {1, 2},
                                              .reason = "no spare"};
    assert_memory_equal(&round_trip(&message)->event, &message.event, sizeof message.event);
    message.event = (struct membership_event){.kind = MEMBERSHIP_EVENT_GO, .reason = "an operator"};
    assert_memory_equal(&round_trip(&message)->event, &message.event, sizeof message.event);
    message = (struct wire_message){
        .kind = WIRE_EVICT, .evict = {.number = 7, .node = "node-3", .without_spare = true, .agent = {3, 4}}};
    const struct membership_evict *evict = &round_trip(&message)->evict;
    assert_true(evict->number == 7 && evict->without_spare && evict->agent.high == 3 &&
                evict->agent.low == 4);
    assert_string_equal(evict->node, "node-3");
}

static void small_ones_come_through(void **state)
{
    (void)state;
    static struct wire_message message;
    message = (struct wire_message){.kind = WIRE_LEAVE, .exit_code = 143};
    assert_int_equal(round_trip(&message)->exit_code, 143);
    message = (struct wire_message){.kind = WIRE_DRAIN, .exit_code = 143, .grace_ns = INT64_MAX};
    assert_int_equal(round_trip(&message)->exit_code, 143);
    assert_true(round_trip(&message)->grace_ns == INT64_MAX);
    message = (struct wire_message){
        .kind = WIRE_BEAT, .sequence = UINT64_MAX, .number = 77, .missing = 16384, .ended = 9};
    memset(message.progress, 'p', sizeof message.progress - 1);
    assert_true(round_trip(&message)->sequence == UINT64_MAX);
    assert_int_equal(round_trip(&message)->number, 77);
    assert_int_equal(round_trip(&message)->missing, 16384);
    assert_int_equal(round_trip(&message)->ended, 9);
    assert_string_equal(round_trip(&message)->progress, message.progress);
    message = (struct wire_message){
        .kind = WIRE_ACCEPT, .member = 4095, .sequence = 5, .number = 6, .lease_ns = 20 * NS_PER_S};
    assert_int_equal(round_trip(&message)->member, 4095);
    assert_int_equal(round_trip(&message)->number, 6);
    assert_true(round_trip(&message)->lease_ns == 20 * NS_PER_S);
    message = (struct wire_message){.kind = WIRE_AGAIN, .proof = 7};
    assert_true(round_trip(&message)->proof == 7);
    message = (struct wire_message){.kind = WIRE_HANDOVER, .id = {9, 8}, .restart_count = 7};
    assert_true(round_trip(&message)->id.epoch == 9 && round_trip(&message)->id.round == 8);
    assert_int_equal(round_trip(&message)->restart_count, 7);
    message = some_join();
    message.join.server_left = true;
    assert_true(round_trip(&message)->join.server_left);
    assert_false(round_trip(&message)->join.lapsed);
    message.join.lapsed = true;
    assert_true(round_trip(&message)->join.lapsed);
}

static struct world_record some_record(int voters)
{
    struct world_record record = {.epoch = 9, .round = 4, .revision = 1, .nodes = 8, .restart_count = 3};
    for (int i = 0; i < voters; i++)
        record.voters[record.voter_count++] = (struct voter){.incarnation = {UINT64_MAX, (uint64_t)i + 1},
                                                             .port = 65535,
                                                             .server_port = 7,
                                                             .address = "fe80::1%eth0",
                                                             .name = {(char)('a' + i)}};
    record.ballot = (struct ballot){6, record.voters[0].incarnation};
    return record;
}

/* Field by field: structs have padding, which a compiler may leave as it is. */
static void assert_same_voter(const struct voter *a, const struct voter *b)
{
    assert_true(agent_incarnation_equal(a->incarnation, b->incarnation));
    assert_int_equal(a->port, b->port);
    assert_int_equal(a->server_port, b->server_port);
    assert_string_equal(a->address, b->address);
    assert_string_equal(a->name, b->name);
}

static void assert_same_record(const struct world_record *a, const struct world_record *b)
{
    assert_true(record_equal(a, b));
    for (int i = 0; i < b->voter_count; i++)
        assert_same_voter(&a->voters[i], &b->voters[i]);
}

static void a_vote_comes_through(void **state)
{
    const struct world_record known = some_record(3), value = some_record(5);
    static struct wire_message message = {.kind = WIRE_VOTE};
    (void)state;
    message.vote.job_id = "job";
    message.vote.to = (struct agent_incarnation){5, 6};
    for (int kind = 0; kind < TAKEOVER_MESSAGE_COUNT; kind++) {
        message.vote.message = (struct takeover_message){.kind = (enum takeover_message_kind)kind,
                                                         .from = &known.voters[1],
                                                         .known = &known,
                                                         .value = &value,
                                                         .server = &known.voters[2],
                                                         .ballot = {7, {8, 9}},
                                                         .at = {10, {11, 12}}};
        const struct wire_vote *vote = &round_trip(&message)->vote;
        const struct takeover_message *out = &vote->message;
        assert_string_equal(vote->job_id, "job");
        assert_true(agent_incarnation_equal(vote->to, message.vote.to));
        assert_int_equal(out->kind, kind);
        assert_same_record(out->known, &known);
        assert_same_record(out->value, &value);
        assert_same_voter(out->from, &known.voters[1]);
        assert_same_voter(out->server, &known.voters[2]);
        assert_int_equal(ballot_compare(out->ballot, (struct ballot){7, {8, 9}}), 0);
        assert_int_equal(ballot_compare(out->at, (struct ballot){10, {11, 12}}), 0);
    }
    const struct world_record none = {0};
    message.vote.message =
        (struct takeover_message){.kind = TAKEOVER_WHO, .from = &known.voters[0], .known = &none};
    const struct takeover_message *out = &round_trip(&message)->vote.message;
    assert_true(out->known->epoch == 0 && !out->value && !out->server);
}

/* The record of a world travels with JOIN, ACCEPT and WORLD. */
static void a_record_comes_through(void **state)
{
    const struct world_record record = some_record(5);
    static struct wire_message message;
    (void)state;
    message = some_join();
    assert_null(round_trip(&message)->record);
    message.record = &record;
    message.join.vote_addr = "10.0.0.3";
    message.join.vote_port = 65535;
    message.join.endpoints = UINT64_MAX - 1;
    message.join.contents = UINT64_MAX - 2;
    const struct wire_message *out = round_trip(&message);
    assert_same_record(out->record, &record);
    assert_string_equal(out->join.vote_addr, "10.0.0.3");
    assert_int_equal(out->join.vote_port, 65535);
    assert_true(out->join.endpoints == UINT64_MAX - 1);
    assert_true(out->join.contents == UINT64_MAX - 2);
    message = (struct wire_message){.kind = WIRE_ACCEPT};
    assert_true(!round_trip(&message)->record && !round_trip(&message)->server);
    message.record = &record;
    message.server = &record.voters[2];
    message.office = (struct ballot){7, {8, 9}};
    out = round_trip(&message);
    assert_same_record(out->record, &record);
    assert_same_voter(out->server, &record.voters[2]);
    assert_int_equal(ballot_compare(out->office, message.office), 0);
    message = (struct wire_message){
        .kind = WIRE_EVENT,
        .record = &record,
        .event = {.kind = MEMBERSHIP_EVENT_WORLD,
                  .world = {.id = some_id, .group_world_size = 1, .world_size = 1, .role_world_size = 1}}};
    assert_same_record(round_trip(&message)->record, &record);
    message.event.kind = MEMBERSHIP_EVENT_STOP;
    message.event.stopped = some_id;
    assert_null(round_trip(&message)->record);
}

/* Wherever it comes. */
static void expect_refused_in(struct wire_message *message, const char *text)
{
    static struct wire_message out;
    struct muster_error err = {0};
    scope_buffer frame = {0};
    assert_int_equal(wire_encode(message, &frame, NULL), 0);
    assert_int_equal(wire_decode(frame.data, frame.length, &out, &err), -1);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void a_message_with_an_impossible_record_is_refused(void **state)
{
    struct world_record record = some_record(5);
    static struct wire_message message;
    (void)state;
    record.voter_count = 0;
    message = some_join();
    message.record = &record;
    expect_refused_in(&message, "has 0 voters, not 1 to 5");
    message = (struct wire_message){.kind = WIRE_ACCEPT, .record = &record};
    expect_refused_in(&message, "has 0 voters, not 1 to 5");
    message = (struct wire_message){.kind = WIRE_EVENT, .record = &record};
    message.event.kind = MEMBERSHIP_EVENT_WORLD;
    expect_refused_in(&message, "has 0 voters, not 1 to 5");
    message = some_join();
    message.join.vote_addr = "0123456789012345678901234567890123456789012345678901234567890123";
    expect_refused_in(&message, "a text is too long");
    const struct voter nobody = {.name = "a"};
    message = (struct wire_message){.kind = WIRE_ACCEPT, .server = &nobody};
    expect_refused_in(&message, "has no incarnation");
}

/* A vote with this record is refused, and says why. */
static void expect_refused(const struct world_record *record, const char *text)
{
    static struct wire_message message = {.kind = WIRE_VOTE};
    const struct world_record sound = some_record(1);
    message.vote.job_id = "";
    message.vote.message =
        (struct takeover_message){.kind = TAKEOVER_WHO, .from = &sound.voters[0], .known = record};
    expect_refused_in(&message, text);
}

static void a_record_that_cannot_be_is_refused(void **state)
{
    struct world_record record = some_record(5);
    (void)state;
    record.voter_count = 0;
    expect_refused(&record, "has 0 voters, not 1 to 5");
    record = some_record(5);
    record.voters[4] = record.voters[3];
    expect_refused(&record, "are one agent");
    record = some_record(2);
    record.nodes = 0;
    expect_refused(&record, "0 nodes");
    record = some_record(2);
    record.voters[1].name[0] = '\0';
    expect_refused(&record, "not of 1 to 255 bytes");
    record =
        some_record(2); /* a name of 256 bytes goes into the address: the parser does not trust its end */
    memset(record.voters[1].name, 'n', sizeof record.voters[1].name - 1);
    memset(record.voters[1].address, '1', sizeof record.voters[1].address - 1);
    const struct world_record longest = record;
    static struct wire_message message = {.kind = WIRE_VOTE};
    message.vote.message =
        (struct takeover_message){.kind = TAKEOVER_WHO, .from = &longest.voters[0], .known = &longest};
    assert_int_equal(strlen(round_trip(&message)->vote.known.voters[1].name), 255);
}

/* What no muster packs. */
static void a_record_of_another_program_is_refused(void **state)
{
    static struct wire_message message = {.kind = WIRE_VOTE};
    const struct world_record record = some_record(5);
    char longest[MEMBERSHIP_NAME_LIMIT + 1];
    scope_buffer frame = {0};
    (void)state;
    message.vote.job_id = "";
    message.vote.message =
        (struct takeover_message){.kind = TAKEOVER_WHO, .from = &record.voters[0], .known = &record};
    assert_int_equal(wire_encode(&message, &frame, NULL), 0);
    Muster__Envelope *envelope = muster__envelope__unpack(NULL, frame.length, (const uint8_t *)frame.data);
    assert_non_null(envelope);
    Muster__Record *known = envelope->vote->known, changed = *known;
    Muster__Voter sixth = *known->voters[4], *six[6];
    memcpy(six, known->voters, 5 * sizeof *six);
    sixth.incarnation_low = 6;
    six[5] = &sixth;
    changed.voters = six;
    changed.n_voters = 6;
    envelope->vote->known = &changed;
    expect_foreign(envelope, "has 6 voters, not 1 to 5");
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    sixth.name = longest; /* 256 bytes */
    six[4] = &sixth;
    changed.n_voters = 5;
    expect_foreign(envelope, "is not of 1 to 255 bytes");
    envelope->vote->known = known;
    envelope->version = ROSTER_PROTOCOL_VERSION - 1;
    expect_foreign(envelope, "a frame of protocol version ");
    muster__envelope__free_unpacked(envelope, NULL);
}

static void foreign_frames_are_rejected(void **state)
{
    (void)state;
    static struct wire_message out;
    struct muster_error err;
    static char big[WIRE_FRAME_LIMIT + 1];
    assert_int_equal(wire_decode(big, sizeof big, &out, &err), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    assert_int_equal(wire_decode(big, WIRE_FRAME_LIMIT, &out, &err), -1); /* it is looked at */
    assert_int_equal(err.code, MUSTER_E_PROTOCOL);
    assert_int_equal(wire_decode("", 0, &out, &err), -1);
    assert_int_equal(err.code, MUSTER_E_PROTOCOL);
    /* Every cut of a good frame: refused, or (where it ends between fields) decoded; never more than that. */
    struct wire_message message = some_join();
    scope_buffer frame = {0};
    assert_int_equal(wire_encode(&message, &frame, &err), 0);
    for (size_t length = 0; length < frame.length; length++) {
        char *copy =
            malloc(length ? length : 1); /* its own block, so that a sanitizer sees a read beyond it */
        assert_non_null(copy);
        memcpy(copy, frame.data, length);
        assert_int_equal(wire_decode(copy, length, &out, &err), -1);
        free(copy);
    }
}

static void another_version_is_told_apart(void **state)
{
    (void)state;
    static struct wire_message out;
    struct muster_error err;
    struct wire_message join = some_join();
    join.join.protocol_version = ROSTER_PROTOCOL_VERSION + 1;
    assert_int_equal(round_trip(&join)->join.protocol_version, ROSTER_PROTOCOL_VERSION + 1);
    /* Envelope {version: 2, again: {}} */
    static const char again[] = {0x08, ROSTER_PROTOCOL_VERSION + 1, 0x3a, 0x00};
    assert_int_equal(wire_decode(again, sizeof again, &out, &err), -1);
    assert_non_null(strstr(err.text, "protocol version"));
    /* A refusal by a server of another version has the reason. */
    struct wire_message refused = {.kind = WIRE_EVENT};
    membership_event_clear(&refused.event);
    refused.event.kind = MEMBERSHIP_EVENT_REFUSED;
    (void)snprintf(refused.event.reason, sizeof refused.event.reason, "protocol version: this agent has 6");
    scope_buffer frame = {0};
    assert_int_equal(wire_encode(&refused, &frame, &err), 0);
    assert_int_equal(frame.data[0], 0x08);
    frame.data[1] = ROSTER_PROTOCOL_VERSION + 1;
    assert_int_equal(wire_decode(frame.data, frame.length, &out, &err), 0);
    assert_int_equal(out.event.kind, MEMBERSHIP_EVENT_REFUSED);
    assert_string_equal(out.event.reason, "protocol version: this agent has 6");
    /* Its agent leaves, and the server says nothing more of it. */
    const struct wire_message leaves = {.kind = WIRE_LEAVE, .exit_code = 1};
    buffer_clear(&frame);
    assert_int_equal(wire_encode(&leaves, &frame, &err), 0);
    frame.data[1] = ROSTER_PROTOCOL_VERSION + 1;
    assert_int_equal(wire_decode(frame.data, frame.length, &out, &err), 0);
    assert_int_equal(out.kind, WIRE_LEAVE);
}

/* Bytes that random changes make of good frames, and bytes that never were one. */
static void random_bytes_do_no_harm(void **state)
{
    (void)state;
    static struct wire_message out, messages[3];
    messages[0] = some_join();
    messages[1] = (struct wire_message){.kind = WIRE_REPORT,
                                        .id = some_id,
                                        .report = MEMBERSHIP_REPORT_FAILED,
                                        .sequence = 1,
                                        .failure = some_failure()};
    messages[1].failure.tail[40] = '\0';
    messages[2] = (struct wire_message){
        .kind = WIRE_EVENT, .event = {.kind = MEMBERSHIP_EVENT_STOP, .stopped = some_id, .reason = "x"}};
    unsigned random = 12345, decoded = 0;
    for (int i = 0; i < 60000; i++) {
        scope_buffer frame = {0};
        if (i % 4 == 3) {
            for (int k = 0; k < i % 97; k++)
                buffer_append(&frame, &(char){(char)(rand_r(&random) >> 7)}, 1);
        } else {
            assert_int_equal(wire_encode(&messages[i % 4], &frame, NULL), 0);
            for (int k = 0; k <= i % 3; k++)
                frame.data[(size_t)rand_r(&random) % frame.length] = (char)(rand_r(&random) >> 7);
        }
        if (wire_decode(frame.data, frame.length, &out, NULL) == 0)
            decoded++;
    }
    assert_true(decoded > 0 && decoded < 60000);
}

static int encode_and_decode(void *context)
{
    static struct wire_message message, out;
    (void)context;
    message = (struct wire_message){.kind = WIRE_REPORT,
                                    .id = some_id,
                                    .report = MEMBERSHIP_REPORT_FAILED,
                                    .sequence = 1,
                                    .failure = some_failure()};
    scope_buffer frame = {0};
    if (wire_encode(&message, &frame, NULL))
        return -1;
    return wire_decode(frame.data, frame.length, &out, NULL);
}

static void no_allocation_failure_leaks(void **state)
{
    (void)state;
    faults_sweep(encode_and_decode, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_join_comes_through),
        cmocka_unit_test(nodes_that_are_done_come_through),
        cmocka_unit_test(ranks_that_cannot_be_are_refused),
        cmocka_unit_test(a_report_comes_through),
        cmocka_unit_test(events_come_through),
        cmocka_unit_test(small_ones_come_through),
        cmocka_unit_test(a_vote_comes_through),
        cmocka_unit_test(a_record_comes_through),
        cmocka_unit_test(a_message_with_an_impossible_record_is_refused),
        cmocka_unit_test(a_record_that_cannot_be_is_refused),
        cmocka_unit_test(a_record_of_another_program_is_refused),
        cmocka_unit_test(foreign_frames_are_rejected),
        cmocka_unit_test(another_version_is_told_apart),
        cmocka_unit_test(random_bytes_do_no_harm),
        cmocka_unit_test(no_allocation_failure_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
