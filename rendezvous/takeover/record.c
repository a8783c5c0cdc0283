/* record.c - see record.h. */
#include "rendezvous/takeover/record.h"

#include <inttypes.h>
#include <string.h>

#include "proto/base/error.h"

static int ballot_order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

int ballot_compare(struct ballot a, struct ballot b)
{
    if (a.number != b.number)
        return ballot_order(a.number, b.number);
    if (a.agent.high != b.agent.high)
        return ballot_order(a.agent.high, b.agent.high);
    return ballot_order(a.agent.low, b.agent.low);
}

int record_compare(const struct world_record *a, const struct world_record *b)
{
    return a->round != b->round ? ballot_order(a->round, b->round) : ballot_order(a->revision, b->revision);
}

bool record_follows(const struct world_record *next, const struct world_record *record)
{
    if (next->epoch != record->epoch)
        return false;
    if (next->round == record->round)
        return next->revision == record->revision + 1 && next->nodes == record->nodes;
    return next->round == record->round + 1 && next->revision == 0;
}

bool record_equal(const struct world_record *a, const struct world_record *b)
{
    bool same = a->epoch == b->epoch && record_compare(a, b) == 0 &&
                ballot_compare(a->ballot, b->ballot) == 0 && a->nodes == b->nodes &&
                a->restart_count == b->restart_count && a->voter_count == b->voter_count;
    for (int i = 0; same && i < a->voter_count; i++)
        same = agent_incarnation_equal(a->voters[i].incarnation, b->voters[i].incarnation);
    return same;
}

int record_find_voter(const struct world_record *record, struct agent_incarnation agent)
{
    for (int i = 0; i < record->voter_count; i++)
        if (agent_incarnation_equal(record->voters[i].incarnation, agent))
            return i;
    return -1;
}

int record_majority(const struct world_record *record)
{
    return record->voter_count / 2 + 1;
}

int record_voter_count(int nodes, int spares)
{
    if (nodes >= 5)
        return 5;
    return nodes + (nodes == 2 && spares > 0) >= 3 ? 3 : 1;
}

int record_voter_rank(int index, int voters, int nodes)
{
    if (voters > nodes)
        return index < nodes ? index : -1;
    return voters > 1 ? index * (nodes - 1) / (voters - 1) : 0;
}

int voter_check(const struct voter *voter, struct muster_error *err)
{
    if (!voter->incarnation.high && !voter->incarnation.low)
        return error_set(err, MUSTER_E_PROTOCOL, "an agent of a world's record has no incarnation");
    if (!memchr(voter->name, 0, sizeof voter->name) || !voter->name[0])
        return error_set(err, MUSTER_E_PROTOCOL,
                         "the name of an agent of a world's record is not of 1 to %d bytes", RECORD_NAME - 1);
    if (!memchr(voter->address, 0, sizeof voter->address))
        return error_set(err, MUSTER_E_PROTOCOL,
                         "the address of agent %s of a world's record is longer than %d bytes", voter->name,
                         RECORD_ADDRESS - 1);
    return 0;
}

static int check_voter(const struct world_record *record, int index, struct muster_error *err)
{
    if (voter_check(&record->voters[index], err) < 0)
        return -1;
    for (int i = 0; i < index; i++)
        if (agent_incarnation_equal(record->voters[i].incarnation, record->voters[index].incarnation))
            return error_set(err, MUSTER_E_PROTOCOL, "voters %d and %d of a world's record are one agent", i,
                             index);
    return 0;
}

int record_check(const struct world_record *record, struct muster_error *err)
{
    if (!record->epoch)
        return error_set(err, MUSTER_E_PROTOCOL, "a world's record has no epoch");
    if (record->nodes < 1 || record->nodes > RECORD_NODES_LIMIT)
        return error_set(err, MUSTER_E_PROTOCOL, "a world's record has %d nodes, not 1 to %d", record->nodes,
                         RECORD_NODES_LIMIT);
    if (record->voter_count < 1 || record->voter_count > RECORD_VOTERS)
        return error_set(err, MUSTER_E_PROTOCOL, "a world's record has %d voters, not 1 to %d",
                         record->voter_count, RECORD_VOTERS);
    if (record->restart_count < 0)
        return error_set(err, MUSTER_E_PROTOCOL, "a world's record has a restart count of %" PRId64,
                         record->restart_count);
    for (int i = 0; i < record->voter_count; i++)
        if (check_voter(record, i, err) < 0)
            return -1;
    if (!agent_incarnation_equal(record->ballot.agent, record->voters[0].incarnation))
        return error_set(err, MUSTER_E_PROTOCOL,
                         "a world's record was not proposed by its server, the first of its voters");
    return 0;
}
