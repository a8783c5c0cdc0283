/* roster_join.c - admission of agents: fingerprints, claims of rank, and the texts of refusals. See
 * roster.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/text.h"
#include "rendezvous/roster/roster_internal.h"

static bool refuse(char *refusal, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

static bool refuse(char *refusal, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(refusal, size, format, arguments);
    va_end(arguments);
    return false;
}

static bool text_fits(const char *text, size_t limit)
{
    return text && strnlen(text, limit) < limit;
}

/* Texts of others end up in logs, in reports and in workers' environments: control characters could forge
 * other content. */
static bool is_one_line(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

static bool texts_are_plain(const struct roster_join *join, char *refusal, size_t size)
{
    const struct {
        const char *what, *text;
    } texts[] = {{"agent name", join->agent_name},
                 {"role", join->role},
                 {"program", join->program},
                 {"store address", join->store_addr}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].text && !is_one_line(texts[i].text))
            return refuse(refusal, size, "%s: it holds a control character", texts[i].what);
    return true;
}

enum { NODES_SIZE = 32 };

/* As --nnodes has it. */
static void describe_nodes(int min_nodes, int max_nodes, char out[NODES_SIZE])
{
    if (min_nodes == max_nodes)
        (void)snprintf(out, NODES_SIZE, "%d", max_nodes);
    else
        (void)snprintf(out, NODES_SIZE, "%d:%d", min_nodes, max_nodes);
}

/* Equal on every node, unless the nodes were not started as one job. */
static bool fingerprint_fits(const struct roster *roster, const struct roster_join *join, char *refusal,
                             size_t size)
{
    if (join->protocol_version != ROSTER_PROTOCOL_VERSION)
        return refuse(refusal, size,
                      "protocol version: this agent has %d, the server %d; run the same muster on all nodes",
                      join->protocol_version, ROSTER_PROTOCOL_VERSION);
    bool same_job =
        text_fits(join->job_id, MEMBERSHIP_NAME_LIMIT) && strcmp(join->job_id, roster->job_id) == 0;
    if (!same_job)
        return refuse(refusal, size,
                      "job id: this agent has \"%.128s\", the server \"%.128s\": one job has one --rdzv-id, "
                      "two jobs need two ports",
                      join->job_id ? join->job_id : "", roster->job_id);
    if (join->elastic != roster->elastic)
        return refuse(refusal, size,
                      "mode: this agent has %s, the server %s: give all nodes one --rdzv-backend",
                      join->elastic ? "elastic" : "static", roster->elastic ? "elastic" : "static");
    if (join->min_nodes != roster->min_nodes || join->max_nodes != roster->max_nodes) {
        char here[NODES_SIZE], there[NODES_SIZE];
        describe_nodes(join->min_nodes, join->max_nodes, here);
        describe_nodes(roster->min_nodes, roster->max_nodes, there);
        return refuse(refusal, size, "nnodes: this agent has %s, the server %s: give all nodes one --nnodes",
                      here, there);
    }
    return true;
}

static bool runs_another_command(const struct roster *roster, uint64_t a, uint64_t b)
{
    return a && b && a != b && strcmp(roster->job_id, "none") == 0;
}

/* Whether the agent and the present or last holder of this slot belong to two jobs that share a machine. */
static bool is_of_another_job(const struct roster *roster, const struct roster_member *member,
                              const struct roster_join *join)
{
    bool counts = roster_slot_taken(member) || roster->state >= JOB_FINISHING;
    return counts && strcmp(member->name, join->agent_name) == 0 &&
           runs_another_command(roster, member->command, join->command);
}

/* If ranks are claimed, agents of one machine may well run different programs under different ranks. */
static bool command_fits(const struct roster *roster, const struct roster_join *join, char *refusal,
                         size_t size)
{
    bool claims = !roster->elastic && join->node_rank >= 0;
    int slot = claims ? join->node_rank : roster_slots_named(roster, join->agent_name);
    while (slot >= 0 && !is_of_another_job(roster, &roster->members[slot], join))
        slot = claims ? -1 : roster_slots_named_after(roster, slot);
    if (slot < 0)
        return true;
    const struct roster_member *other = &roster->members[slot];
    return refuse(refusal, size,
                  "command: an agent of \"%.128s\" is in the job with %s already, and this one runs %s with "
                  "other arguments or from elsewhere: two jobs meet at this port; give each its own "
                  "--rdzv-id, or another port",
                  join->agent_name, other->program, join->program ? join->program : "?");
}

bool roster_describe_other_program(const struct roster *roster, int slot, char *out, size_t size)
{
    if (roster->local_slot < 0 || slot < 0 || slot == roster->local_slot)
        return false;
    const struct roster_member *ours = &roster->members[roster->local_slot], *member = &roster->members[slot];
    const bool same = ours->command && ours->command == member->command;
    if (same && ours->contents && member->contents && ours->contents != member->contents) {
        (void)snprintf(
            out, size,
            "%s of agent \"%.128s\" has other contents than this node's file of that path: its ranks "
            "may compute other values, or wait for others for ever; give all nodes the same file",
            ours->program, member->name);
        return true;
    }
    if (!runs_another_command(roster, ours->command, member->command))
        return false;
    (void)snprintf(out, size,
                   "agent \"%.128s\" runs %s and this node %s, not with the same arguments or from the same "
                   "place: if these are two jobs, give each its own --rdzv-id, or another port",
                   member->name, member->program, ours->program);
    return true;
}

bool roster_describe_other_endpoints(const struct roster *roster, int slot, char *out, size_t size)
{
    if (roster->local_slot < 0 || slot < 0 || slot == roster->local_slot)
        return false;
    const uint64_t ours = roster->members[roster->local_slot].endpoints;
    const struct roster_member *member = &roster->members[slot];
    if (!ours || !member->endpoints || ours == member->endpoints)
        return false;
    (void)snprintf(
        out, size,
        "agent \"%.128s\" has another list of endpoints than this node: new nodes may not find the "
        "job after it has moved; give all nodes one --rdzv-endpoint",
        member->name);
    return true;
}

bool roster_describe_other_size(const struct roster *roster, int slot, char *out, size_t size)
{
    if (!roster->elastic || roster->local_slot < 0 || slot < 0)
        return false;
    const int ours = roster->members[roster->local_slot].local_world_size;
    const struct roster_member *member = &roster->members[slot];
    if (member->local_world_size == ours)
        return false;
    (void)snprintf(out, size,
                   "agent \"%.128s\" has %d worker%s (--nproc-per-node), and this node %d: the world's size "
                   "changes when it joins, or takes the place of a node of another size",
                   member->name, member->local_world_size, member->local_world_size == 1 ? "" : "s", ours);
    return true;
}

bool roster_join_fits(const struct roster *roster, const struct roster_join *join, char *refusal, size_t size)
{
    if (!fingerprint_fits(roster, join, refusal, size))
        return false;
    if (!text_fits(join->agent_name, MEMBERSHIP_NAME_LIMIT) || !join->agent_name[0])
        return refuse(refusal, size, "agent name: empty, or longer than %d bytes", MEMBERSHIP_NAME_LIMIT - 1);
    if (!text_fits(join->role, ROSTER_ROLE_LIMIT))
        return refuse(refusal, size, "role: longer than %d bytes", ROSTER_ROLE_LIMIT - 1);
    if (join->program && !text_fits(join->program, MEMBERSHIP_PROGRAM_LIMIT))
        return refuse(refusal, size, "program: its name is longer than %d bytes",
                      MEMBERSHIP_PROGRAM_LIMIT - 1);
    if (!text_fits(join->store_addr, MEMBERSHIP_NAME_LIMIT))
        return refuse(refusal, size, "store address: longer than %d bytes", MEMBERSHIP_NAME_LIMIT - 1);
    if (!texts_are_plain(join, refusal, size))
        return false;
    if (join->local_world_size < 1 || join->local_world_size > ROSTER_LOCAL_WORLD_LIMIT)
        return refuse(refusal, size, "nproc_per_node: %d is not in 1..%d", join->local_world_size,
                      ROSTER_LOCAL_WORLD_LIMIT);
    if (join->node_rank < -1 || (join->node_rank >= roster->max_nodes && !roster->elastic))
        return refuse(refusal, size, "node rank: %d is not in 0..%d (nnodes is %d)", join->node_rank,
                      roster->max_nodes - 1, roster->max_nodes);
    if (!join->incarnation.high && !join->incarnation.low)
        return refuse(refusal, size, "incarnation: missing");
    return command_fits(roster, join, refusal, size);
}

static bool was_superseded(const struct roster_member *member, struct agent_incarnation incarnation)
{
    unsigned kept = member->superseded_count < ROSTER_SUPERSEDED_KEPT ? member->superseded_count
                                                                      : (unsigned)ROSTER_SUPERSEDED_KEPT;
    for (unsigned i = 0; i < kept; i++)
        if (agent_incarnation_equal(member->superseded[i], incarnation))
            return true;
    return false;
}

static bool was_refused(const struct roster *roster, struct agent_incarnation incarnation)
{
    const unsigned kept =
        roster->refused_total < ROSTER_REFUSED_KEPT ? roster->refused_total : (unsigned)ROSTER_REFUSED_KEPT;
    for (unsigned i = 0; i < kept; i++)
        if (agent_incarnation_equal(roster->refused[i], incarnation))
            return true;
    return false;
}

void roster_join_bar_agent(struct roster *roster, struct agent_incarnation incarnation)
{
    if (!was_refused(roster, incarnation))
        roster->refused[roster->refused_total++ % ROSTER_REFUSED_KEPT] = incarnation;
}

/* The slot of an agent without a requested rank: its present slot, else a slot that its name had, else the
 * lowest free slot. */
static int any_slot(const struct roster *roster, const struct roster_join *join)
{
    int slot = roster_slots_find(roster, join->incarnation, true);
    if (slot < 0)
        slot = roster_slots_left_by(roster, join->agent_name);
    return slot >= 0 ? slot : roster_slots_free(roster, true);
}

/* Several agents of one host have one name, so a name alone claims nothing that is held: a slot reserved
 * for a finished agent is not given to another name. */
static int elastic_slot(const struct roster *roster, const struct roster_join *join)
{
    int slot = roster_slots_find(roster, join->incarnation, false);
    if (slot < 0)
        slot = roster_return_slot(roster, join);
    if (slot < 0)
        slot = roster_slots_left_by(roster, join->agent_name);
    if (slot < 0)
        slot = roster_slots_blank(roster);
    return slot >= 0 ? slot : roster_slots_free(roster, false);
}

static int any_elastic_slot(const struct roster *roster, const struct roster_join *join, char *refusal,
                            size_t size)
{
    int slot = elastic_slot(roster, join);
    if (slot >= 0)
        return slot;
    refuse(refusal, size, "the job is full: %d nodes are in or wait as spares (nnodes is %d:%d)",
           roster->slot_count, roster->min_nodes, roster->max_nodes);
    return -1;
}

static int claimed_slot(const struct roster *roster, const struct roster_join *join, char *refusal,
                        size_t size)
{
    if (roster->elastic)
        return any_elastic_slot(roster, join, refusal, size);
    if (join->node_rank < 0) {
        int slot = any_slot(roster, join);
        if (slot >= 0)
            return slot;
        refuse(refusal, size, "the world is full: all %d node ranks are held", roster->slot_count);
        return -1;
    }
    const struct roster_member *member = &roster->members[join->node_rank];
    if (was_superseded(member, join->incarnation)) {
        refuse(refusal, size, "superseded: node rank %d is held by a newer start of agent \"%.128s\"",
               join->node_rank, member->name);
        return -1;
    }
    /* The hosting agent cannot be gone: a second claim to its rank under its name is another agent. */
    bool same = roster_slot_taken(member) && agent_incarnation_equal(member->incarnation, join->incarnation);
    if (roster_slot_taken(member) && !same &&
        (roster_is_local(roster, member) || strcmp(member->name, join->agent_name) != 0)) {
        refuse(refusal, size,
               "node rank %d is held by agent \"%.128s\", which is alive; agent \"%.128s\" claims it too: "
               "give every node its own --node-rank",
               join->node_rank, member->name, join->agent_name);
        return -1;
    }
    return join->node_rank;
}

int roster_join_slot(const struct roster *roster, const struct roster_join *join, char *refusal, size_t size)
{
    const int slot = claimed_slot(roster, join, refusal, size);
    if (slot < 0 || !was_refused(roster, join->incarnation))
        return slot;
    refuse(refusal, size, "agent \"%.128s\" was refused before, and ends: only another start of it may join",
           join->agent_name);
    return -1;
}

void roster_join_note_refused(struct roster *roster, const struct roster_join *join)
{
    const char *name = text_fits(join->agent_name, MEMBERSHIP_NAME_LIMIT) && is_one_line(join->agent_name)
                           ? join->agent_name
                           : "?";
    roster_join_bar_agent(roster, join->incarnation);
    roster->refused_count++;
    (void)snprintf(roster->refused_name, sizeof roster->refused_name, "%s", name);
    memcpy(roster->refused_why, roster->refusal, sizeof roster->refused_why);
}

void roster_join_note_joined(struct roster *roster, const char *name)
{
    if (roster->refused_count && strcmp(roster->refused_name, name) == 0)
        roster->refused_count = 0; /* it has joined after all; other refused agents will retry */
}

void roster_describe_refused(const struct roster *roster, char *out, size_t size)
{
    (void)snprintf(out, size, "agent \"%.128s\" (%s)", roster->refused_name, roster->refused_why);
}

void roster_join_describe_refused(const struct roster *roster, char *out, size_t size)
{
    if (roster->refused_count == 1)
        (void)text_append(out, size, "; refused: agent \"%.128s\" (%s)", roster->refused_name,
                          roster->refused_why);
    else if (roster->refused_count)
        (void)text_append(out, size, "; refused %u times, the last agent \"%.128s\" (%s)",
                          roster->refused_count, roster->refused_name, roster->refused_why);
}
