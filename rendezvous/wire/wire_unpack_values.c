/* wire_unpack_values.c - see wire_values.h. Every value that is later used as a size, an index or a text is
 * checked here. */
#include "rendezvous/wire/wire_values.h"

#include <string.h>

#include "proto/base/error.h"

int wire_bad(struct muster_error *err, const char *what)
{
    return error_set(err, MUSTER_E_PROTOCOL, "not a muster frame: %s", what);
}

int wire_take_text(char *out, size_t size, const char *text, struct muster_error *err)
{
    size_t length = strnlen(text, size);
    if (length == size)
        return wire_bad(err, "a text is too long");
    memcpy(out, text, length + 1);
    return 0;
}

int wire_take_bytes(char *out, size_t size, ProtobufCBinaryData bytes, struct muster_error *err)
{
    if (bytes.len >= size || (bytes.len && memchr(bytes.data, '\0', bytes.len)))
        return wire_bad(err, "a text is too long or holds a NUL");
    if (bytes.len)
        memcpy(out, bytes.data, bytes.len);
    out[bytes.len] = '\0';
    return 0;
}

int wire_take_id(struct world_id *out, const Muster__WorldId *id, struct muster_error *err)
{
    if (!id || !id->epoch)
        return wire_bad(err, "the world id is missing");
    *out = (struct world_id){id->epoch, id->round};
    return 0;
}

int wire_take_ranges(struct rank_ranges *out, const uint32_t *in, size_t count, struct muster_error *err)
{
    uint32_t least = 0;
    if (count % 2 || count > 2 * RANK_RANGES_LIMIT)
        return wire_bad(err, "ranges of ranks are odd or too many");
    for (size_t i = 0; i < count; i += 2) {
        if (in[i] < least || in[i + 1] < in[i] || in[i + 1] >= ROSTER_MEMBER_LIMIT)
            return wire_bad(err, "ranges of ranks are out of order or out of range");
        out->items[i / 2].first = (int)in[i];
        out->items[i / 2].last = (int)in[i + 1];
        least = in[i + 1] + 1;
    }
    out->count = (int)(count / 2);
    return 0;
}

int wire_take_port(uint16_t *out, uint32_t port, struct muster_error *err)
{
    if (port > UINT16_MAX)
        return wire_bad(err, "a port above 65535");
    *out = (uint16_t)port;
    return 0;
}

int wire_take_failure(struct worker_failure *out, const Muster__Failure *in, struct muster_error *err)
{
    if (!in)
        return wire_bad(err, "the failure is missing");
    if (in->exit_code < -1 || in->exit_code > 255 || in->signal < 0 || in->signal > 127 || in->age_ns < 0 ||
        in->age_ns > FAILURE_AGE_LIMIT_NS || in->xid < 0 || in->oom_kills < 0 || in->memory_limit < 0 ||
        in->memory_peak < 0)
        return wire_bad(err, "an exit code, signal, age or count is out of range");
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
        .after_stop = in->after_stop,
        .not_started = in->not_started,
        .hung = in->hung,
        .unkillable = in->unkillable,
        .memory_host = in->memory_host,
        .xid = in->xid,
        .xid_elsewhere = in->xid_elsewhere,
        .oom_check = in->oom_check <= FAILURE_OOM_COUNTED ? (enum failure_oom_check)in->oom_check
                                                          : FAILURE_OOM_NOT_CHECKED,
        .oom_kills = in->oom_kills,
        .memory_limit = in->memory_limit,
        .memory_peak = in->memory_peak,
        .completes = in->completes,
        .no_restart = in->no_restart,
    };
    if (wire_take_text(out->host, sizeof out->host, in->host, err) ||
        wire_take_bytes(out->tail, sizeof out->tail, in->tail, err) ||
        wire_take_bytes(out->pci, sizeof out->pci, in->pci, err) ||
        wire_take_bytes(out->message, sizeof out->message, in->message, err) ||
        wire_take_bytes(out->traceback, sizeof out->traceback, in->traceback, err))
        return -1;
    return wire_take_bytes(out->error_file, sizeof out->error_file, in->error_file, err);
}

int wire_take_brief(struct failure_brief *out, const Muster__Brief *in, struct muster_error *err)
{
    if (in->exit_code < -1 || in->exit_code > 255 || in->signal < 0 || in->signal > 127 || in->xid < 0 ||
        in->class_of < 0 || in->class_of >= FAILURE_CLASS_COUNT || in->after_ns < -2 * FAILURE_AGE_LIMIT_NS ||
        in->after_ns > 2 * FAILURE_AGE_LIMIT_NS)
        return wire_bad(err, "a number of another failure is out of range");
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
    if (wire_take_bytes(out->host, sizeof out->host, in->host, err))
        return -1;
    return wire_take_bytes(out->excerpt, sizeof out->excerpt, in->excerpt, err);
}

struct ballot wire_take_ballot(const Muster__Ballot *in)
{
    return in ? (struct ballot){in->number, {in->high, in->low}} : (struct ballot){0};
}

int wire_take_voter(struct voter *out, const Muster__Voter *in, struct muster_error *err)
{
    if (!in)
        return error_set(err, MUSTER_E_PROTOCOL, "not a muster frame: the agent is missing");
    *out = (struct voter){.incarnation = {in->incarnation_high, in->incarnation_low}};
    if (in->port > UINT16_MAX || in->server_port > UINT16_MAX)
        return error_set(err, MUSTER_E_PROTOCOL, "not a muster frame: a port above 65535");
    out->port = (uint16_t)in->port;
    out->server_port = (uint16_t)in->server_port;
    /* Cut where they are too long, without an end, for the check. */
    memcpy(out->name, in->name, strnlen(in->name, sizeof out->name));
    memcpy(out->address, in->address, strnlen(in->address, sizeof out->address));
    return voter_check(out, err);
}

int wire_take_record(struct world_record *out, const Muster__Record *in, struct muster_error *err)
{
    *out = (struct world_record){0};
    if (!in)
        return 0;
    out->epoch = in->epoch;
    out->round = in->round;
    out->revision = in->revision;
    out->ballot = wire_take_ballot(in->ballot);
    out->nodes = in->nodes;
    out->restart_count = in->restart_count;
    if (in->n_voters < 1 || in->n_voters > RECORD_VOTERS)
        return error_set(err, MUSTER_E_PROTOCOL, "a world's record has %zu voters, not 1 to %d", in->n_voters,
                         RECORD_VOTERS);
    for (; (size_t)out->voter_count < in->n_voters; out->voter_count++)
        if (wire_take_voter(&out->voters[out->voter_count], in->voters[out->voter_count], err) < 0)
            return -1;
    return record_check(out, err);
}
