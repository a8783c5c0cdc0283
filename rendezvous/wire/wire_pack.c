/* wire_pack.c - wire_encode: packs a message of wire.h into one frame. All parts of the frame are on the
 * packer's stack and point into the message: nothing is copied before protobuf-c writes it. */
#include <string.h>

#include "proto/base/error.h"
#include "rendezvous/wire/wire_values.h"

const char *wire_kind_name(enum wire_kind kind)
{
    static const char *const names[] = {"JOIN",  "LEAVE",    "DRAIN", "REPORT", "BEAT", "ACCEPT",
                                        "AGAIN", "HANDOVER", "EVENT", "NOTE",   "VOTE", "EVICT"};
    return (unsigned)kind < sizeof names / sizeof names[0] ? names[kind] : "?";
}

struct vote_parts {
    Muster__Vote vote;
    Muster__Voter from, server;
    Muster__Ballot ballot, at;
    struct wire_record_parts known, value;
};

/* The message tree of one frame: every part that an envelope may point to, on the packer's stack. */
struct parts {
    Muster__Envelope envelope;
    Muster__WorldId id, last;
    Muster__Failure failure;
    Muster__Brief briefs[FAILURE_OTHERS_LIMIT], *others[FAILURE_OTHERS_LIMIT];
    struct wire_record_parts record;
    Muster__Voter server;
    Muster__Ballot office;
    uint32_t ranges[2 * RANK_RANGES_LIMIT];
    union {
        Muster__Join join;
        Muster__Leave leave;
        Muster__Drain drain;
        Muster__Report report;
        Muster__Beat beat;
        Muster__Accept accept;
        Muster__Again again;
        Muster__Handover handover;
        Muster__Note note;
        Muster__World world;
        Muster__Stop stop;
        Muster__Verdict verdict;
        Muster__Refuse refuse;
        Muster__Evict evict;
        Muster__Eviction eviction;
        Muster__Go go;
        struct vote_parts vote;
    } body;
};

static Muster__Vote *pack_vote(struct vote_parts *parts, const struct wire_vote *vote)
{
    const struct takeover_message *message = &vote->message;
    Muster__Vote *out = &parts->vote;
    muster__vote__init(out);
    out->job_id = (char *)vote->job_id;
    out->to_high = vote->to.high;
    out->to_low = vote->to.low;
    out->kind = (Muster__VoteKind)(message->kind + 1); /* 0 is "none" on the wire */
    out->from = wire_pack_voter(&parts->from, message->from);
    if (message->known->epoch)
        out->known = wire_pack_record(&parts->known, message->known);
    out->ballot = wire_pack_ballot(&parts->ballot, message->ballot);
    if (message->value) {
        out->at = wire_pack_ballot(&parts->at, message->at);
        out->value = wire_pack_record(&parts->value, message->value);
    }
    if (message->server)
        out->server = wire_pack_voter(&parts->server, message->server);
    return out;
}

static void pack_verdict(struct parts *parts, const struct membership_event *event)
{
    Muster__Verdict *out = parts->envelope.verdict = &parts->body.verdict;
    muster__verdict__init(out);
    parts->envelope.body_case = MUSTER__ENVELOPE__BODY_VERDICT;
    out->exit_code = event->exit_code;
    out->doubled = event->doubled;
    out->reason = wire_pack_bytes(event->reason);
    if (!event->failed)
        return;
    out->failure = wire_pack_failure(&parts->failure, &event->failure);
    for (int i = 0; i < event->other_count; i++) {
        wire_pack_brief(&parts->briefs[i], &event->others[i]);
        parts->others[i] = &parts->briefs[i];
    }
    out->others = parts->others;
    out->n_others = (size_t)event->other_count;
    out->other_total = event->other_total;
}

static void pack_join(struct parts *parts, const struct wire_message *message)
{
    const struct roster_join *join = &message->join;
    Muster__Join *out = parts->envelope.join = &parts->body.join;
    muster__join__init(out);
    parts->envelope.body_case = MUSTER__ENVELOPE__BODY_JOIN;
    parts->envelope.version = (uint32_t)join->protocol_version;
    out->job_id = (char *)join->job_id;
    out->min_nodes = join->min_nodes;
    out->max_nodes = join->max_nodes;
    out->elastic = join->elastic;
    out->agent_name = (char *)join->agent_name;
    out->node_rank = join->node_rank;
    out->incarnation_high = join->incarnation.high;
    out->incarnation_low = join->incarnation.low;
    out->local_world_size = join->local_world_size;
    out->role = (char *)join->role;
    out->command = join->command;
    out->contents = join->contents;
    out->endpoints = join->endpoints;
    if (join->program)
        out->program = (char *)join->program;
    out->store_addr = (char *)join->store_addr;
    out->store_port = join->store_port;
    out->number = message->number;
    out->restart_count = join->restart_count;
    out->last_nodes = join->last_nodes;
    if (join->last.epoch)
        out->last = wire_pack_id(&parts->last, join->last);
    out->epoch = join->epoch;
    out->held_done = join->held_done;
    out->server_done = join->server_done;
    out->done = parts->ranges;
    if (join->server_done)
        out->n_done = wire_pack_ranges(parts->ranges, &join->done);
    out->last_rank = join->last_rank;
    out->server_left = join->server_left;
    out->lapsed = join->lapsed;
    out->proof = join->proof;
    if (join->vote_addr)
        out->vote_addr = (char *)join->vote_addr;
    out->vote_port = join->vote_port;
    if (message->record)
        out->known = wire_pack_record(&parts->record, message->record);
    if (join->held.epoch)
        out->held = wire_pack_id(&parts->id, join->held);
}

static void pack_world(struct parts *parts, const struct wire_message *message)
{
    const struct membership_event *event = &message->event;
    const struct membership_world *world = &event->world;
    Muster__World *out = parts->envelope.world = &parts->body.world;
    muster__world__init(out);
    parts->envelope.body_case = MUSTER__ENVELOPE__BODY_WORLD;
    out->id = wire_pack_id(&parts->id, world->id);
    out->group_rank = world->group_rank;
    out->group_world_size = world->group_world_size;
    out->rank_base = world->rank_base;
    out->world_size = world->world_size;
    out->role_rank_base = world->role_rank_base;
    out->role_world_size = world->role_world_size;
    out->restart_count = world->restart_count;
    out->master_addr = (char *)world->master_addr;
    out->master_port = world->master_port;
    out->reason = wire_pack_bytes(event->reason);
    out->failed_class = (uint32_t)event->failed_class;
    if (message->record)
        out->record = wire_pack_record(&parts->record, message->record);
}

static void pack_event(struct parts *parts, const struct wire_message *message)
{
    const struct membership_event *event = &message->event;
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        pack_world(parts, message);
        break;
    case MEMBERSHIP_EVENT_STOP:
        parts->envelope.stop = &parts->body.stop;
        muster__stop__init(&parts->body.stop);
        parts->envelope.body_case = MUSTER__ENVELOPE__BODY_STOP;
        parts->body.stop.id = wire_pack_id(&parts->id, event->stopped);
        parts->body.stop.reason = wire_pack_bytes(event->reason);
        parts->body.stop.planned = event->planned;
        parts->body.stop.grace_ns = event->grace_ns;
        parts->body.stop.change = (uint32_t)event->change;
        parts->body.stop.next_nodes = event->next_nodes;
        break;
    case MEMBERSHIP_EVENT_VERDICT:
        pack_verdict(parts, event);
        break;
    case MEMBERSHIP_EVENT_REFUSED:
        parts->envelope.refuse = &parts->body.refuse;
        muster__refuse__init(&parts->body.refuse);
        parts->envelope.body_case = MUSTER__ENVELOPE__BODY_REFUSE;
        parts->body.refuse.reason = (char *)event->reason;
        break;
    case MEMBERSHIP_EVENT_EVICTION:
        parts->envelope.eviction = &parts->body.eviction;
        muster__eviction__init(&parts->body.eviction);
        parts->envelope.body_case = MUSTER__ENVELOPE__BODY_EVICTION;
        parts->body.eviction.number = event->number;
        parts->body.eviction.state = (Muster__EvictionState)(event->eviction + 1); /* 0 is "none" */
        parts->body.eviction.text = wire_pack_bytes(event->reason);
        parts->body.eviction.incarnation_high = event->agent.high;
        parts->body.eviction.incarnation_low = event->agent.low;
        break;
    case MEMBERSHIP_EVENT_GO:
        parts->envelope.go = &parts->body.go;
        muster__go__init(&parts->body.go);
        parts->envelope.body_case = MUSTER__ENVELOPE__BODY_GO;
        parts->body.go.reason = wire_pack_bytes(event->reason);
        break;
    }
}

static void pack_accept(struct parts *parts, const struct wire_message *message)
{
    Muster__Accept *out = parts->envelope.accept = &parts->body.accept;
    muster__accept__init(out);
    parts->envelope.body_case = MUSTER__ENVELOPE__BODY_ACCEPT;
    out->member = message->member;
    out->report_sequence = message->sequence;
    out->lease_ns = message->lease_ns;
    out->number = message->number;
    out->epoch = message->epoch;
    out->notes = message->notes;
    if (message->record)
        out->record = wire_pack_record(&parts->record, message->record);
    if (!message->server)
        return;
    out->server = wire_pack_voter(&parts->server, message->server);
    out->office = wire_pack_ballot(&parts->office, message->office);
}

static void pack_report(struct parts *parts, const struct wire_message *message)
{
    Muster__Report *out = parts->envelope.report = &parts->body.report;
    muster__report__init(out);
    parts->envelope.body_case = MUSTER__ENVELOPE__BODY_REPORT;
    out->id = wire_pack_id(&parts->id, message->id);
    out->kind = (Muster__ReportKind)(message->report + 1); /* 0 is "none" on the wire */
    out->sequence = message->sequence;
    if (message->report == MEMBERSHIP_REPORT_FAILED)
        out->failure = wire_pack_failure(&parts->failure, &message->failure);
}

static void pack(struct parts *parts, const struct wire_message *message)
{
    Muster__Envelope *envelope = &parts->envelope;
    muster__envelope__init(envelope);
    envelope->version = ROSTER_PROTOCOL_VERSION;
    switch (message->kind) {
    case WIRE_JOIN:
        pack_join(parts, message);
        break;
    case WIRE_LEAVE:
        envelope->leave = &parts->body.leave;
        muster__leave__init(envelope->leave);
        envelope->body_case = MUSTER__ENVELOPE__BODY_LEAVE;
        envelope->leave->exit_code = message->exit_code;
        break;
    case WIRE_DRAIN:
        envelope->drain = &parts->body.drain;
        muster__drain__init(envelope->drain);
        envelope->body_case = MUSTER__ENVELOPE__BODY_DRAIN;
        envelope->drain->exit_code = message->exit_code;
        envelope->drain->grace_ns = message->grace_ns;
        break;
    case WIRE_REPORT:
        pack_report(parts, message);
        break;
    case WIRE_BEAT:
        envelope->beat = &parts->body.beat;
        muster__beat__init(envelope->beat);
        envelope->body_case = MUSTER__ENVELOPE__BODY_BEAT;
        envelope->beat->report_sequence = message->sequence;
        envelope->beat->number = message->number;
        envelope->beat->missing = (uint32_t)message->missing;
        envelope->beat->ended = (uint32_t)message->ended;
        envelope->beat->progress = (char *)message->progress;
        envelope->beat->server_works = message->server_works;
        envelope->beat->done = parts->ranges;
        if (message->server_done.epoch) {
            envelope->beat->server_done = wire_pack_id(&parts->id, message->server_done);
            envelope->beat->n_done = wire_pack_ranges(parts->ranges, &message->done);
        }
        break;
    case WIRE_ACCEPT:
        pack_accept(parts, message);
        break;
    case WIRE_AGAIN:
        envelope->again = &parts->body.again;
        muster__again__init(envelope->again);
        envelope->again->proof = message->proof;
        envelope->body_case = MUSTER__ENVELOPE__BODY_AGAIN;
        break;
    case WIRE_HANDOVER:
        envelope->handover = &parts->body.handover;
        muster__handover__init(envelope->handover);
        envelope->body_case = MUSTER__ENVELOPE__BODY_HANDOVER;
        envelope->handover->id = wire_pack_id(&parts->id, message->id);
        envelope->handover->restart_count = message->restart_count;
        break;
    case WIRE_NOTE:
        envelope->note = &parts->body.note;
        muster__note__init(envelope->note);
        envelope->body_case = MUSTER__ENVELOPE__BODY_NOTE;
        envelope->note->data = (ProtobufCBinaryData){message->note_length, (uint8_t *)message->note};
        break;
    case WIRE_EVICT:
        envelope->evict = &parts->body.evict;
        muster__evict__init(envelope->evict);
        envelope->body_case = MUSTER__ENVELOPE__BODY_EVICT;
        envelope->evict->number = message->evict.number;
        envelope->evict->node = (char *)message->evict.node;
        envelope->evict->without_spare = message->evict.without_spare;
        envelope->evict->incarnation_high = message->evict.agent.high;
        envelope->evict->incarnation_low = message->evict.agent.low;
        break;
    case WIRE_VOTE:
        envelope->vote = pack_vote(&parts->body.vote, &message->vote);
        envelope->body_case = MUSTER__ENVELOPE__BODY_VOTE;
        break;
    case WIRE_EVENT:
        pack_event(parts, message);
        break;
    }
}

int wire_encode(const struct wire_message *message, struct buffer *out, struct muster_error *err)
{
    struct parts parts;
    pack(&parts, message);
    size_t size = muster__envelope__get_packed_size(&parts.envelope);
    if (size > WIRE_FRAME_LIMIT)
        return error_set(err, MUSTER_E_LIMIT, "a %s of %zu bytes is above the frame limit of %d bytes",
                         wire_kind_name(message->kind), size, WIRE_FRAME_LIMIT);
    char *place = buffer_reserve(out, size);
    if (!place)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a frame of %zu bytes", size);
    out->length += muster__envelope__pack(&parts.envelope, (uint8_t *)place);
    return 0;
}
