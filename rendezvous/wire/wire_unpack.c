/* wire_unpack.c - wire_decode: unpacks a frame from the network into a message of wire.h, or an error that
 * describes the fault. Every value that is later used as a size, an index or a text is checked here. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/roster/world.h"
#include "rendezvous/wire/wire_values.h"

static int take_vote(struct wire_message *frame, const Muster__Vote *in, struct muster_error *err)
{
    struct wire_vote *out = &frame->vote;
    struct takeover_message *message = &out->message;
    *message = (struct takeover_message){.from = &out->from, .known = &out->known};
    if (in->kind < MUSTER__VOTE_KIND__VOTE_ASK || in->kind > MUSTER__VOTE_KIND__VOTE_LEAVES)
        return error_set(err, MUSTER_E_PROTOCOL, "not a muster frame: a vote of an unknown kind");
    message->kind = (enum takeover_message_kind)((int)in->kind - 1);
    message->ballot = wire_take_ballot(in->ballot);
    out->job_id = frame->texts.job_id;
    out->to = (struct agent_incarnation){in->to_high, in->to_low};
    if (wire_take_text(frame->texts.job_id, sizeof frame->texts.job_id, in->job_id, err))
        return -1;
    if (wire_take_voter(&out->from, in->from, err) < 0 || wire_take_record(&out->known, in->known, err) < 0)
        return -1;
    if (in->value) {
        message->at = wire_take_ballot(in->at);
        message->value = &out->value;
        if (wire_take_record(&out->value, in->value, err) < 0)
            return -1;
    }
    if (in->server) {
        message->server = &out->server;
        return wire_take_voter(&out->server, in->server, err);
    }
    return 0;
}

/* The record that comes with another message. */
static int take_newest(struct wire_message *out, const Muster__Record *in, struct muster_error *err)
{
    out->record = in ? &out->vote.known : NULL;
    return wire_take_record(&out->vote.known, in, err);
}

static int take_join(struct wire_message *out, const Muster__Envelope *envelope, struct muster_error *err)
{
    const Muster__Join *in = envelope->join;
    struct wire_texts *texts = &out->texts;
    out->kind = WIRE_JOIN;
    out->number = in->number;
    out->join = (struct roster_join){
        .protocol_version = (int)envelope->version,
        .job_id = texts->job_id,
        .min_nodes = in->min_nodes,
        .max_nodes = in->max_nodes,
        .elastic = in->elastic,
        .agent_name = texts->agent_name,
        .node_rank = in->node_rank,
        .incarnation = {in->incarnation_high, in->incarnation_low},
        .local_world_size = in->local_world_size,
        .role = texts->role,
        .command = in->command,
        .contents = in->contents,
        .endpoints = in->endpoints,
        .program = texts->program,
        .store_addr = texts->store_addr,
        .restart_count = in->restart_count,
        .last_nodes = in->last_nodes,
        .epoch = in->epoch,
        .held_done = in->held_done,
        .server_done = in->server_done,
        .last_rank = in->last_rank,
        .server_left = in->server_left,
        .lapsed = in->lapsed,
        .proof = in->proof,
    };
    if (in->restart_count < 0 || in->restart_count > ROSTER_RESTARTS_LIMIT || in->last_nodes < 0 ||
        in->last_rank < 0)
        return wire_bad(err, "a count is out of range");
    out->join.vote_addr = texts->vote_addr;
    if (wire_take_port(&out->join.vote_port, in->vote_port, err) ||
        wire_take_text(texts->vote_addr, sizeof texts->vote_addr, in->vote_addr, err) ||
        take_newest(out, in->known, err))
        return -1;
    if (wire_take_ranges(&out->join.done, in->done, in->n_done, err))
        return -1;
    if (in->last && wire_take_id(&out->join.last, in->last, err))
        return -1;
    if (in->held && wire_take_id(&out->join.held, in->held, err))
        return -1;
    if (wire_take_port(&out->join.store_port, in->store_port, err) ||
        wire_take_text(texts->job_id, sizeof texts->job_id, in->job_id, err) ||
        wire_take_text(texts->agent_name, sizeof texts->agent_name, in->agent_name, err) ||
        wire_take_text(texts->role, sizeof texts->role, in->role, err) ||
        wire_take_text(texts->program, sizeof texts->program, in->program, err))
        return -1;
    return wire_take_text(texts->store_addr, sizeof texts->store_addr, in->store_addr, err);
}

static int take_report(struct wire_message *out, const Muster__Report *in, struct muster_error *err)
{
    out->kind = WIRE_REPORT;
    if (in->kind < MUSTER__REPORT_KIND__REPORT_RUNNING || in->kind > MUSTER__REPORT_KIND__REPORT_STOPPED)
        return wire_bad(err, "a report of an unknown kind");
    out->report = (enum membership_report_kind)((int)in->kind - 1);
    out->sequence = in->sequence;
    if (wire_take_id(&out->id, in->id, err))
        return -1;
    return out->report == MEMBERSHIP_REPORT_FAILED ? wire_take_failure(&out->failure, in->failure, err) : 0;
}

static int take_world(struct membership_event *out, const Muster__World *in, struct muster_error *err)
{
    if (in->group_world_size < 1 || in->group_rank < 0 || in->group_rank >= in->group_world_size ||
        in->rank_base < 0 || in->rank_base >= in->world_size || in->role_rank_base < 0 ||
        in->role_rank_base >= in->role_world_size)
        return wire_bad(err, "ranks of a world that do not fit its sizes");
    if (in->restart_count < 0 || in->restart_count > ROSTER_RESTARTS_LIMIT)
        return wire_bad(err, "a count is out of range");
    out->kind = MEMBERSHIP_EVENT_WORLD;
    if (in->failed_class <= FAILURE_CLASS_COUNT) /* a class of a later version stays unknown */
        out->failed_class = (int)in->failed_class;
    out->world = (struct membership_world){
        .group_rank = in->group_rank,
        .group_world_size = in->group_world_size,
        .rank_base = in->rank_base,
        .world_size = in->world_size,
        .role_rank_base = in->role_rank_base,
        .role_world_size = in->role_world_size,
        .restart_count = in->restart_count,
    };
    if (wire_take_id(&out->world.id, in->id, err) ||
        wire_take_port(&out->world.master_port, in->master_port, err))
        return -1;
    if (wire_take_text(out->world.master_addr, sizeof out->world.master_addr, in->master_addr, err))
        return -1;
    return wire_take_bytes(out->reason, sizeof out->reason, in->reason, err);
}

static int take_verdict(struct membership_event *out, const Muster__Verdict *in, struct muster_error *err)
{
    if (in->exit_code < 0 || in->exit_code > 255)
        return wire_bad(err, "an exit code is out of range");
    out->kind = MEMBERSHIP_EVENT_VERDICT;
    out->exit_code = in->exit_code;
    out->doubled = in->doubled;
    out->failed = in->failure != NULL;
    if (in->failure && wire_take_failure(&out->failure, in->failure, err))
        return -1;
    if (in->n_others > FAILURE_OTHERS_LIMIT || in->other_total < 0 || (size_t)in->other_total < in->n_others)
        return wire_bad(err, "more other failures than there can be");
    out->other_total = in->other_total;
    for (; (size_t)out->other_count < in->n_others; out->other_count++)
        if (wire_take_brief(&out->others[out->other_count], in->others[out->other_count], err))
            return -1;
    return wire_take_bytes(out->reason, sizeof out->reason, in->reason, err);
}

static int take_event(struct wire_message *out, const Muster__Envelope *in, struct muster_error *err)
{
    struct membership_event *event = &out->event;
    out->kind = WIRE_EVENT;
    out->record = NULL;
    membership_event_clear(event);
    switch (in->body_case) {
    case MUSTER__ENVELOPE__BODY_WORLD:
        return take_newest(out, in->world->record, err) ? -1 : take_world(event, in->world, err);
    case MUSTER__ENVELOPE__BODY_STOP:
        event->kind = MEMBERSHIP_EVENT_STOP;
        event->planned = in->stop->planned;
        event->grace_ns = in->stop->grace_ns;
        if (event->grace_ns < 0 || in->stop->next_nodes < 0)
            return wire_bad(err, "a grace or a number of nodes below 0");
        event->next_nodes = in->stop->next_nodes;
        if (in->stop->change < MEMBERSHIP_CHANGE_COUNT)
            event->change = (enum membership_change)in->stop->change;
        if (wire_take_id(&event->stopped, in->stop->id, err))
            return -1;
        return wire_take_bytes(event->reason, sizeof event->reason, in->stop->reason, err);
    case MUSTER__ENVELOPE__BODY_VERDICT:
        return take_verdict(event, in->verdict, err);
    case MUSTER__ENVELOPE__BODY_EVICTION:
        event->kind = MEMBERSHIP_EVENT_EVICTION;
        if (in->eviction->state < MUSTER__EVICTION_STATE__EVICTION_WAITS ||
            in->eviction->state > MUSTER__EVICTION_STATE__EVICTION_REFUSED)
            return wire_bad(err, "an eviction of an unknown state");
        event->eviction = (enum membership_eviction)((int)in->eviction->state - 1);
        event->number = in->eviction->number;
        event->agent.high = in->eviction->incarnation_high;
        event->agent.low = in->eviction->incarnation_low;
        return wire_take_bytes(event->reason, sizeof event->reason, in->eviction->text, err);
    case MUSTER__ENVELOPE__BODY_GO:
        event->kind = MEMBERSHIP_EVENT_GO;
        return wire_take_bytes(event->reason, sizeof event->reason, in->go->reason, err);
    default:
        event->kind = MEMBERSHIP_EVENT_REFUSED;
        return wire_take_text(event->reason, sizeof event->reason, in->refuse->reason, err);
    }
}

static int take_accept(struct wire_message *out, const Muster__Accept *in, struct muster_error *err)
{
    out->kind = WIRE_ACCEPT;
    out->member = in->member;
    out->sequence = in->report_sequence;
    out->lease_ns = in->lease_ns;
    out->number = in->number;
    out->epoch = in->epoch;
    out->notes = in->notes;
    out->server = in->server ? &out->vote.server : NULL;
    out->office = wire_take_ballot(in->office);
    if (out->lease_ns < 0)
        return wire_bad(err, "a lease below 0");
    if (take_newest(out, in->record, err))
        return -1;
    return in->server ? wire_take_voter(&out->vote.server, in->server, err) : 0;
}

static int take(struct wire_message *out, const Muster__Envelope *in, struct muster_error *err)
{
    switch (in->body_case) {
    case MUSTER__ENVELOPE__BODY_JOIN:
        return take_join(out, in, err);
    case MUSTER__ENVELOPE__BODY_LEAVE:
        out->kind = WIRE_LEAVE;
        out->exit_code = in->leave->exit_code;
        return out->exit_code < 0 || out->exit_code > 255 ? wire_bad(err, "an exit code is out of range") : 0;
    case MUSTER__ENVELOPE__BODY_DRAIN:
        out->kind = WIRE_DRAIN;
        out->exit_code = in->drain->exit_code;
        out->grace_ns = in->drain->grace_ns;
        if (out->exit_code < 0 || out->exit_code > 255 || out->grace_ns < 0)
            return wire_bad(err, "an exit code or grace is out of range");
        return 0;
    case MUSTER__ENVELOPE__BODY_REPORT:
        return take_report(out, in->report, err);
    case MUSTER__ENVELOPE__BODY_BEAT:
        out->kind = WIRE_BEAT;
        out->sequence = in->beat->report_sequence;
        out->number = in->beat->number;
        out->missing = in->beat->missing <= INT_MAX ? (int)in->beat->missing : 0;
        out->ended = in->beat->ended <= INT_MAX ? (int)in->beat->ended : 0;
        out->server_works = in->beat->server_works;
        out->server_done = (struct world_id){0};
        if (wire_take_ranges(&out->done, in->beat->done, in->beat->n_done, err))
            return -1;
        if (in->beat->server_done && wire_take_id(&out->server_done, in->beat->server_done, err))
            return -1;
        return wire_take_text(out->progress, sizeof out->progress, in->beat->progress, err);
    case MUSTER__ENVELOPE__BODY_ACCEPT:
        return take_accept(out, in->accept, err);
    case MUSTER__ENVELOPE__BODY_AGAIN:
        out->kind = WIRE_AGAIN;
        out->proof = in->again->proof;
        return 0;
    case MUSTER__ENVELOPE__BODY_EVICT:
        out->kind = WIRE_EVICT;
        out->evict = (struct membership_evict){
            .number = in->evict->number,
            .node = out->texts.node,
            .without_spare = in->evict->without_spare,
            .agent = {in->evict->incarnation_high, in->evict->incarnation_low},
        };
        if (wire_take_text(out->texts.node, sizeof out->texts.node, in->evict->node, err))
            return -1;
        return out->texts.node[0] ? 0 : wire_bad(err, "an eviction that names no node");
    case MUSTER__ENVELOPE__BODY_NOTE:
        out->kind = WIRE_NOTE;
        return 0;
    case MUSTER__ENVELOPE__BODY_VOTE:
        out->kind = WIRE_VOTE;
        return take_vote(out, in->vote, err);
    case MUSTER__ENVELOPE__BODY_HANDOVER:
        out->kind = WIRE_HANDOVER;
        out->restart_count = in->handover->restart_count;
        if (out->restart_count < 0 || out->restart_count > ROSTER_RESTARTS_LIMIT)
            return wire_bad(err, "a count is out of range");
        return wire_take_id(&out->id, in->handover->id, err);
    case MUSTER__ENVELOPE__BODY_WORLD:
    case MUSTER__ENVELOPE__BODY_STOP:
    case MUSTER__ENVELOPE__BODY_VERDICT:
    case MUSTER__ENVELOPE__BODY_REFUSE:
    case MUSTER__ENVELOPE__BODY_EVICTION:
    case MUSTER__ENVELOPE__BODY_GO:
        return take_event(out, in, err);
    default:
        return wire_bad(err, "it has no body");
    }
}

/* The unpacked copy ends with the envelope; these bytes are in the frame as well. */
static int find_note(struct wire_message *out, const Muster__Note *in, const void *frame, size_t length,
                     struct muster_error *err)
{
    if (in->data.len > WIRE_NOTE_LIMIT)
        return wire_bad(err, "a note above its limit");
    out->note_length = in->data.len;
    out->note = in->data.len ? memmem(frame, length, in->data.data, in->data.len) : "";
    return out->note ? 0 : wire_bad(err, "a note that is not in its frame");
}

static void *unpack_alloc(void *context, size_t size)
{
    (void)context;
    return mem_calloc(1, size);
}

static void unpack_free(void *context, void *block)
{
    (void)context;
    mem_free(block);
}

int wire_decode(const void *data, size_t length, struct wire_message *message, struct muster_error *err)
{
    ProtobufCAllocator allocator = {.alloc = unpack_alloc, .free = unpack_free};
    if (length > WIRE_FRAME_LIMIT)
        return error_set(err, MUSTER_E_LIMIT, "a frame of %zu bytes is above the limit of %d bytes", length,
                         WIRE_FRAME_LIMIT);
    Muster__Envelope *envelope = muster__envelope__unpack(&allocator, length, data);
    if (!envelope)
        return wire_bad(err, "it cannot be unpacked");
    int failed;
    /* A refusal is readable in any version: it has the reason why the versions do not match. So is the end of
     * the refused agent, which is known by then. */
    bool any_version = envelope->body_case == MUSTER__ENVELOPE__BODY_JOIN ||
                       envelope->body_case == MUSTER__ENVELOPE__BODY_LEAVE ||
                       envelope->body_case == MUSTER__ENVELOPE__BODY_REFUSE;
    if (envelope->version != ROSTER_PROTOCOL_VERSION && !any_version)
        failed = error_set(err, MUSTER_E_PROTOCOL, "a frame of protocol version %u; this muster speaks %d",
                           envelope->version, ROSTER_PROTOCOL_VERSION);
    else
        failed = take(message, envelope, err);
    if (!failed && message->kind == WIRE_NOTE)
        failed = find_note(message, envelope->note, data, length, err);
    muster__envelope__free_unpacked(envelope, &allocator);
    return failed;
}
