/* wire_pack_values.c - see wire_values.h. */
#include "rendezvous/wire/wire_values.h"

#include <string.h>

Muster__WorldId *wire_pack_id(Muster__WorldId *out, struct world_id id)
{
    muster__world_id__init(out);
    out->epoch = id.epoch;
    out->round = id.round;
    return out;
}

size_t wire_pack_ranges(uint32_t *out, const struct rank_ranges *ranges)
{
    for (int i = 0; i < ranges->count; i++) {
        out[2 * i] = (uint32_t)ranges->items[i].first;
        out[2 * i + 1] = (uint32_t)ranges->items[i].last;
    }
    return 2 * (size_t)ranges->count;
}

ProtobufCBinaryData wire_pack_bytes(const char *text)
{
    return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)text};
}

Muster__Failure *wire_pack_failure(Muster__Failure *out, const struct worker_failure *failure)
{
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
    out->tail = wire_pack_bytes(failure->tail);
    out->error_file = wire_pack_bytes(failure->error_file);
    out->after_stop = failure->after_stop;
    out->not_started = failure->not_started;
    out->hung = failure->hung;
    out->unkillable = failure->unkillable;
    out->memory_host = failure->memory_host;
    out->xid = failure->xid;
    out->xid_elsewhere = failure->xid_elsewhere;
    out->pci = wire_pack_bytes(failure->pci);
    out->oom_check = (uint32_t)failure->oom_check;
    out->oom_kills = failure->oom_kills;
    out->memory_limit = failure->memory_limit;
    out->memory_peak = failure->memory_peak;
    out->completes = failure->completes;
    out->no_restart = failure->no_restart;
    out->message = wire_pack_bytes(failure->message);
    out->traceback = wire_pack_bytes(failure->traceback);
    return out;
}

void wire_pack_brief(Muster__Brief *out, const struct failure_brief *brief)
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
    out->host = wire_pack_bytes(brief->host);
    out->excerpt = wire_pack_bytes(brief->excerpt);
}

Muster__Ballot *wire_pack_ballot(Muster__Ballot *out, struct ballot ballot)
{
    muster__ballot__init(out);
    out->number = ballot.number;
    out->high = ballot.agent.high;
    out->low = ballot.agent.low;
    return out;
}

Muster__Voter *wire_pack_voter(Muster__Voter *out, const struct voter *voter)
{
    muster__voter__init(out);
    out->incarnation_high = voter->incarnation.high;
    out->incarnation_low = voter->incarnation.low;
    out->name = (char *)voter->name;
    out->address = (char *)voter->address;
    out->port = voter->port;
    out->server_port = voter->server_port;
    return out;
}

Muster__Record *wire_pack_record(struct wire_record_parts *parts, const struct world_record *record)
{
    Muster__Record *out = &parts->record;
    muster__record__init(out);
    out->epoch = record->epoch;
    out->round = record->round;
    out->revision = record->revision;
    out->ballot = wire_pack_ballot(&parts->ballot, record->ballot);
    out->nodes = record->nodes;
    out->restart_count = record->restart_count;
    for (int i = 0; i < record->voter_count; i++)
        parts->voters[i] = wire_pack_voter(&parts->voter[i], &record->voters[i]);
    out->voters = parts->voters;
    out->n_voters = (size_t)record->voter_count;
    return out;
}
