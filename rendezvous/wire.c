/* wire.c - see wire.h. */
#include "rendezvous/wire.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous.pb-c.h"
#include "rendezvous/membership_carrier.h"

const char *wire_kind_name(enum wire_kind kind)
{
    static const char *const names[] = {"JOIN",   "LEAVE", "DRAIN",    "REPORT", "BEAT",
                                        "ACCEPT", "AGAIN", "FAREWELL", "EVENT"};
    return (unsigned)kind < sizeof names / sizeof names[0] ? names[kind] : "?";
}

/* -- packing
 * ------------------------------------------------------------------------------------------------------ */

/* The message tree of one frame: every part that an envelope may point to, on the packer's stack. */
struct parts {
    Muster__Envelope envelope;
    Muster__WorldId id, last;
    Muster__Failure failure;
    Muster__Brief briefs[FAILURE_OTHERS_LIMIT], *others[FAILURE_OTHERS_LIMIT];
    union {
        Muster__Join join;
        Muster__Leave leave;
        Muster__Drain drain;
        Muster__Report report;
        Muster__Beat beat;
        Muster__Accept accept;
        Muster__Again again;
        Muster__Farewell farewell;
        Muster__World world;
        Muster__Stop stop;
        Muster__Verdict verdict;
        Muster__Refuse refuse;
    } body;
};

static Muster__WorldId *pack_id(Muster__WorldId *out, struct world_id id)
{
    muster__world_id__init(out);
    out->epoch = id.epoch;
    out->round = id.round;
    return out;
}

static ProtobufCBinaryData pack_bytes(const char *text)
{
    return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)text};
}

static Muster__Failure *pack_failure(struct parts *parts, const struct worker_failure *failure)
{
    Muster__Failure *out = &parts->failure;
    muster__failure__init(out);
    out->rank = failure->rank;
    out->local_rank = failure->local_rank;
    out->group_rank = failure->group_rank;
    out->pid = failure->pid;
    out->exit_code = failure->exit_code;
    out->signal = failure->signal;
    out->core_dumped = failure->core_dumped;
    out->out_of_memory = failure->out_of_memory;
    out->lost_node = failure->lost_node;
    out->step = failure->step;
    out->age_ns = failure->age_ns;
    out->wall_ns = failure->wall_ns;
    out->host = (char *)failure->host;
    out->tail = pack_bytes(failure->tail);
    out->error_file = pack_bytes(failure->error_file);
    out->told = failure->told;
    out->not_started = failure->not_started;
    out->hung = failure->hung;
    out->unkillable = failure->unkillable;
    out->memory_host = failure->memory_host;
    out->xid = failure->xid;
    out->xid_elsewhere = failure->xid_elsewhere;
    out->pci = pack_bytes(failure->pci);
    out->oom_kills = failure->oom_kills;
    out->memory_limit = failure->memory_limit;
    out->memory_peak = failure->memory_peak;
    out->message = pack_bytes(failure->message);
    out->traceback = pack_bytes(failure->traceback);
    return out;
}

static void pack_brief(Muster__Brief *out, const struct failure_brief *brief)
{
    muster__brief__init(out);
    out->rank = brief->rank;
    out->local_rank = brief->local_rank;
    out->group_rank = brief->group_rank;
    out->pid = brief->pid;
    out->exit_code = brief->exit_code;
    out->signal = brief->signal;
    out->xid = brief->xid;
    out->class_of = brief->class_;
    out->hung = brief->hung;
    out->step = brief->step;
    out->core_dumped = brief->core_dumped;
    out->out_of_memory = brief->out_of_memory;
    out->after_ns = brief->after_ns;
    out->wall_ns = brief->wall_ns;
    out->host = pack_bytes(brief->host);
    out->said = pack_bytes(brief->said);
}

static void pack_verdict(struct parts *parts, const struct membership_event *event)
{
    Muster__Verdict *out = parts->envelope.verdict = &parts->body.verdict;
    muster__verdict__init(out);
    parts->envelope.body_case = MUSTER__ENVELOPE__BODY_VERDICT;
    out->exit_code = event->exit_code;
    out->reason = pack_bytes(event->reason);
    if (!event->failed)
        return;
    out->failure = pack_failure(parts, &event->failure);
    for (int i = 0; i < event->other_count; i++) {
        pack_brief(&parts->briefs[i], &event->others[i]);
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
    if (join->program)
        out->program = (char *)join->program;
    out->store_addr = (char *)join->store_addr;
    out->store_port = join->store_port;
    out->number = message->number;
    out->restart_count = join->restart_count;
    out->last_nodes = join->last_nodes;
    if (join->last.epoch)
        out->last = pack_id(&parts->last, join->last);
    out->epoch = join->epoch;
    out->held_done = join->held_done;
    out->server_done = join->server_done;
    out->last_rank = join->last_rank;
    out->server_left = join->server_left;
    if (join->held.epoch)
        out->held = pack_id(&parts->id, join->held);
}

static void pack_world(struct parts *parts, const struct membership_event *event)
{
    const struct membership_world *world = &event->world;
    Muster__World *out = parts->envelope.world = &parts->body.world;
    muster__world__init(out);
    parts->envelope.body_case = MUSTER__ENVELOPE__BODY_WORLD;
    out->id = pack_id(&parts->id, world->id);
    out->group_rank = world->group_rank;
    out->group_world_size = world->group_world_size;
    out->rank_base = world->rank_base;
    out->world_size = world->world_size;
    out->role_rank_base = world->role_rank_base;
    out->role_world_size = world->role_world_size;
    out->restart_count = world->restart_count;
    out->master_addr = (char *)world->master_addr;
    out->master_port = world->master_port;
    out->reason = pack_bytes(event->reason);
}

static void pack_event(struct parts *parts, const struct membership_event *event)
{
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        pack_world(parts, event);
        break;
    case MEMBERSHIP_EVENT_STOP:
        parts->envelope.stop = &parts->body.stop;
        muster__stop__init(&parts->body.stop);
        parts->envelope.body_case = MUSTER__ENVELOPE__BODY_STOP;
        parts->body.stop.id = pack_id(&parts->id, event->stopped);
        parts->body.stop.reason = pack_bytes(event->reason);
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
    }
}

static void pack_report(struct parts *parts, const struct wire_message *message)
{
    Muster__Report *out = parts->envelope.report = &parts->body.report;
    muster__report__init(out);
    parts->envelope.body_case = MUSTER__ENVELOPE__BODY_REPORT;
    out->id = pack_id(&parts->id, message->id);
    out->kind = (Muster__ReportKind)(message->report + 1); /* 0 is "none" on the wire */
    out->sequence = message->sequence;
    if (message->report == MEMBERSHIP_REPORT_FAILED)
        out->failure = pack_failure(parts, &message->failure);
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
        envelope->beat->progress = (char *)message->progress;
        if (message->server_done.epoch)
            envelope->beat->server_done = pack_id(&parts->id, message->server_done);
        break;
    case WIRE_ACCEPT:
        envelope->accept = &parts->body.accept;
        muster__accept__init(envelope->accept);
        envelope->body_case = MUSTER__ENVELOPE__BODY_ACCEPT;
        envelope->accept->member = message->member;
        envelope->accept->report_sequence = message->sequence;
        envelope->accept->lease_ns = message->lease_ns;
        envelope->accept->number = message->number;
        envelope->accept->epoch = message->epoch;
        break;
    case WIRE_AGAIN:
        envelope->again = &parts->body.again;
        muster__again__init(envelope->again);
        envelope->body_case = MUSTER__ENVELOPE__BODY_AGAIN;
        break;
    case WIRE_FAREWELL:
        envelope->farewell = &parts->body.farewell;
        muster__farewell__init(envelope->farewell);
        envelope->body_case = MUSTER__ENVELOPE__BODY_FAREWELL;
        envelope->farewell->id = pack_id(&parts->id, message->id);
        envelope->farewell->restart_count = message->restart_count;
        break;
    case WIRE_EVENT:
        pack_event(parts, &message->event);
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

/* -- unpacking
 * ---------------------------------------------------------------------------------------------------- */

static int bad(struct muster_error *err, const char *what)
{
    return error_set(err, MUSTER_E_PROTOCOL, "a frame that is not ours: %s", what);
}

static int take_text(char *out, size_t size, const char *text, struct muster_error *err)
{
    size_t length = strnlen(text, size);
    if (length == size)
        return bad(err, "a text is too long");
    memcpy(out, text, length + 1);
    return 0;
}

static int take_bytes(char *out, size_t size, ProtobufCBinaryData bytes, struct muster_error *err)
{
    if (bytes.len >= size || (bytes.len && memchr(bytes.data, '\0', bytes.len)))
        return bad(err, "a text is too long or holds a NUL");
    if (bytes.len)
        memcpy(out, bytes.data, bytes.len);
    out[bytes.len] = '\0';
    return 0;
}

static int take_id(struct world_id *out, const Muster__WorldId *id, struct muster_error *err)
{
    if (!id || !id->epoch)
        return bad(err, "the world id is missing");
    *out = (struct world_id){id->epoch, id->round};
    return 0;
}

static int take_port(uint16_t *out, uint32_t port, struct muster_error *err)
{
    if (port > UINT16_MAX)
        return bad(err, "a port above 65535");
    *out = (uint16_t)port;
    return 0;
}

static int take_failure(struct worker_failure *out, const Muster__Failure *in, struct muster_error *err)
{
    if (!in)
        return bad(err, "the failure is missing");
    if (in->exit_code < -1 || in->exit_code > 255 || in->signal < 0 || in->signal > 127 || in->age_ns < 0 ||
        in->age_ns > FAILURE_AGE_LIMIT_NS || in->xid < 0 || in->oom_kills < 0 || in->memory_limit < 0 ||
        in->memory_peak < 0)
        return bad(err, "an exit code, signal, age or count is out of range");
    *out = (struct worker_failure){
        .rank = in->rank,
        .local_rank = in->local_rank,
        .group_rank = in->group_rank,
        .pid = in->pid,
        .exit_code = in->exit_code,
        .signal = in->signal,
        .core_dumped = in->core_dumped,
        .out_of_memory = in->out_of_memory,
        .lost_node = in->lost_node,
        .step = in->step,
        .age_ns = in->age_ns,
        .wall_ns = in->wall_ns,
        .told = in->told,
        .not_started = in->not_started,
        .hung = in->hung,
        .unkillable = in->unkillable,
        .memory_host = in->memory_host,
        .xid = in->xid,
        .xid_elsewhere = in->xid_elsewhere,
        .oom_kills = in->oom_kills,
        .memory_limit = in->memory_limit,
        .memory_peak = in->memory_peak,
    };
    if (take_text(out->host, sizeof out->host, in->host, err) ||
        take_bytes(out->tail, sizeof out->tail, in->tail, err) ||
        take_bytes(out->pci, sizeof out->pci, in->pci, err) ||
        take_bytes(out->message, sizeof out->message, in->message, err) ||
        take_bytes(out->traceback, sizeof out->traceback, in->traceback, err))
        return -1;
    return take_bytes(out->error_file, sizeof out->error_file, in->error_file, err);
}

static int take_brief(struct failure_brief *out, const Muster__Brief *in, struct muster_error *err)
{
    if (in->exit_code < -1 || in->exit_code > 255 || in->signal < 0 || in->signal > 127 || in->xid < 0 ||
        in->class_of < 0 || in->class_of >= FAILURE_CLASS_COUNT || in->after_ns < -2 * FAILURE_AGE_LIMIT_NS ||
        in->after_ns > 2 * FAILURE_AGE_LIMIT_NS)
        return bad(err, "a number of another failure is out of range");
    *out = (struct failure_brief){
        .rank = in->rank,
        .local_rank = in->local_rank,
        .group_rank = in->group_rank,
        .pid = in->pid,
        .exit_code = in->exit_code,
        .signal = in->signal,
        .xid = in->xid,
        .class_ = in->class_of,
        .hung = in->hung,
        .step = in->step,
        .core_dumped = in->core_dumped,
        .out_of_memory = in->out_of_memory,
        .after_ns = in->after_ns,
        .wall_ns = in->wall_ns,
    };
    if (take_bytes(out->host, sizeof out->host, in->host, err))
        return -1;
    return take_bytes(out->said, sizeof out->said, in->said, err);
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
        .program = texts->program,
        .store_addr = texts->store_addr,
        .restart_count = in->restart_count,
        .last_nodes = in->last_nodes,
        .epoch = in->epoch,
        .held_done = in->held_done,
        .server_done = in->server_done,
        .last_rank = in->last_rank,
        .server_left = in->server_left,
    };
    if (in->restart_count < 0 || in->restart_count > ROSTER_RESTARTS_LIMIT || in->last_nodes < 0 ||
        in->last_rank < 0)
        return bad(err, "a count is out of range");
    if (in->last && take_id(&out->join.last, in->last, err))
        return -1;
    if (in->held && take_id(&out->join.held, in->held, err))
        return -1;
    if (take_port(&out->join.store_port, in->store_port, err) ||
        take_text(texts->job_id, sizeof texts->job_id, in->job_id, err) ||
        take_text(texts->agent_name, sizeof texts->agent_name, in->agent_name, err) ||
        take_text(texts->role, sizeof texts->role, in->role, err) ||
        take_text(texts->program, sizeof texts->program, in->program, err))
        return -1;
    return take_text(texts->store_addr, sizeof texts->store_addr, in->store_addr, err);
}

static int take_report(struct wire_message *out, const Muster__Report *in, struct muster_error *err)
{
    out->kind = WIRE_REPORT;
    if (in->kind < MUSTER__REPORT_KIND__REPORT_RUNNING || in->kind > MUSTER__REPORT_KIND__REPORT_STOPPED)
        return bad(err, "a report of an unknown kind");
    out->report = (enum membership_report_kind)((int)in->kind - 1);
    out->sequence = in->sequence;
    if (take_id(&out->id, in->id, err))
        return -1;
    return out->report == MEMBERSHIP_REPORT_FAILED ? take_failure(&out->failure, in->failure, err) : 0;
}

static int take_world(struct membership_event *out, const Muster__World *in, struct muster_error *err)
{
    if (in->group_world_size < 1 || in->group_rank < 0 || in->group_rank >= in->group_world_size ||
        in->rank_base < 0 || in->rank_base >= in->world_size || in->role_rank_base < 0 ||
        in->role_rank_base >= in->role_world_size)
        return bad(err, "ranks of a world that do not fit its sizes");
    if (in->restart_count < 0 || in->restart_count > ROSTER_RESTARTS_LIMIT)
        return bad(err, "a count is out of range");
    out->kind = MEMBERSHIP_EVENT_WORLD;
    out->world = (struct membership_world){
        .group_rank = in->group_rank,
        .group_world_size = in->group_world_size,
        .rank_base = in->rank_base,
        .world_size = in->world_size,
        .role_rank_base = in->role_rank_base,
        .role_world_size = in->role_world_size,
        .restart_count = in->restart_count,
    };
    if (take_id(&out->world.id, in->id, err) || take_port(&out->world.master_port, in->master_port, err))
        return -1;
    if (take_text(out->world.master_addr, sizeof out->world.master_addr, in->master_addr, err))
        return -1;
    return take_bytes(out->reason, sizeof out->reason, in->reason, err);
}

static int take_verdict(struct membership_event *out, const Muster__Verdict *in, struct muster_error *err)
{
    if (in->exit_code < 0 || in->exit_code > 255)
        return bad(err, "an exit code is out of range");
    out->kind = MEMBERSHIP_EVENT_VERDICT;
    out->exit_code = in->exit_code;
    out->failed = in->failure != NULL;
    if (in->failure && take_failure(&out->failure, in->failure, err))
        return -1;
    if (in->n_others > FAILURE_OTHERS_LIMIT || in->other_total < 0 || (size_t)in->other_total < in->n_others)
        return bad(err, "more other failures than there can be");
    out->other_total = in->other_total;
    for (; (size_t)out->other_count < in->n_others; out->other_count++)
        if (take_brief(&out->others[out->other_count], in->others[out->other_count], err))
            return -1;
    return take_bytes(out->reason, sizeof out->reason, in->reason, err);
}

static int take_event(struct wire_message *out, const Muster__Envelope *in, struct muster_error *err)
{
    struct membership_event *event = &out->event;
    out->kind = WIRE_EVENT;
    membership_event_clear(event);
    switch (in->body_case) {
    case MUSTER__ENVELOPE__BODY_WORLD:
        return take_world(event, in->world, err);
    case MUSTER__ENVELOPE__BODY_STOP:
        event->kind = MEMBERSHIP_EVENT_STOP;
        event->planned = in->stop->planned;
        event->grace_ns = in->stop->grace_ns;
        if (event->grace_ns < 0 || in->stop->next_nodes < 0)
            return bad(err, "a grace or a number of nodes below 0");
        event->next_nodes = in->stop->next_nodes;
        if (in->stop->change < MEMBERSHIP_CHANGE_COUNT)
            event->change = (enum membership_change)in->stop->change;
        if (take_id(&event->stopped, in->stop->id, err))
            return -1;
        return take_bytes(event->reason, sizeof event->reason, in->stop->reason, err);
    case MUSTER__ENVELOPE__BODY_VERDICT:
        return take_verdict(event, in->verdict, err);
    default:
        event->kind = MEMBERSHIP_EVENT_REFUSED;
        return take_text(event->reason, sizeof event->reason, in->refuse->reason, err);
    }
}

static int take(struct wire_message *out, const Muster__Envelope *in, struct muster_error *err)
{
    switch (in->body_case) {
    case MUSTER__ENVELOPE__BODY_JOIN:
        return take_join(out, in, err);
    case MUSTER__ENVELOPE__BODY_LEAVE:
        out->kind = WIRE_LEAVE;
        out->exit_code = in->leave->exit_code;
        return out->exit_code < 0 || out->exit_code > 255 ? bad(err, "an exit code is out of range") : 0;
    case MUSTER__ENVELOPE__BODY_DRAIN:
        out->kind = WIRE_DRAIN;
        out->exit_code = in->drain->exit_code;
        out->grace_ns = in->drain->grace_ns;
        if (out->exit_code < 0 || out->exit_code > 255 || out->grace_ns < 0)
            return bad(err, "an exit code or grace is out of range");
        return 0;
    case MUSTER__ENVELOPE__BODY_REPORT:
        return take_report(out, in->report, err);
    case MUSTER__ENVELOPE__BODY_BEAT:
        out->kind = WIRE_BEAT;
        out->sequence = in->beat->report_sequence;
        out->number = in->beat->number;
        out->server_done = (struct world_id){0};
        if (in->beat->server_done && take_id(&out->server_done, in->beat->server_done, err))
            return -1;
        return take_text(out->progress, sizeof out->progress, in->beat->progress, err);
    case MUSTER__ENVELOPE__BODY_ACCEPT:
        out->kind = WIRE_ACCEPT;
        out->member = in->accept->member;
        out->sequence = in->accept->report_sequence;
        out->lease_ns = in->accept->lease_ns;
        out->number = in->accept->number;
        out->epoch = in->accept->epoch;
        return out->lease_ns < 0 ? bad(err, "a lease below 0") : 0;
    case MUSTER__ENVELOPE__BODY_AGAIN:
        out->kind = WIRE_AGAIN;
        return 0;
    case MUSTER__ENVELOPE__BODY_FAREWELL:
        out->kind = WIRE_FAREWELL;
        out->restart_count = in->farewell->restart_count;
        if (out->restart_count < 0 || out->restart_count > ROSTER_RESTARTS_LIMIT)
            return bad(err, "a count is out of range");
        return take_id(&out->id, in->farewell->id, err);
    case MUSTER__ENVELOPE__BODY_WORLD:
    case MUSTER__ENVELOPE__BODY_STOP:
    case MUSTER__ENVELOPE__BODY_VERDICT:
    case MUSTER__ENVELOPE__BODY_REFUSE:
        return take_event(out, in, err);
    default:
        return bad(err, "it has no body");
    }
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
        return bad(err, "it cannot be unpacked");
    int failed;
    /* A refusal is readable whatever the version: it says why the versions do not fit. */
    bool any_version = envelope->body_case == MUSTER__ENVELOPE__BODY_JOIN ||
                       envelope->body_case == MUSTER__ENVELOPE__BODY_REFUSE;
    if (envelope->version != ROSTER_PROTOCOL_VERSION && !any_version)
        failed = error_set(err, MUSTER_E_PROTOCOL, "a frame of protocol version %u; this muster speaks %d",
                           envelope->version, ROSTER_PROTOCOL_VERSION);
    else
        failed = take(message, envelope, err);
    muster__envelope__free_unpacked(envelope, &allocator);
    return failed;
}
