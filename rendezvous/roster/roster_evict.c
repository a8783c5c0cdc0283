/* roster_evict.c - an operator asks that a node leaves: whether the others can go on without it, and how far
 * it has come. See roster.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/text.h"
#include "rendezvous/roster/roster_internal.h"

enum { NONE = -1, SEVERAL = -2 };

__attribute__((format(printf, 4, 5))) static int answer(struct roster_work *w, enum membership_eviction state,
                                                        const struct roster_member *member,
                                                        const char *format, ...)
{
    struct roster *roster = w->roster;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(roster->eviction.text, sizeof roster->eviction.text, format, arguments);
    va_end(arguments);
    roster->eviction.number = w->event->evict->number;
    roster->eviction.state = state;
    roster->eviction.agent = member ? member->incarnation : w->event->evict->agent;
    roster_act(w, ROSTER_SEND_EVICTION, w->event->session, w->event->member, NULL);
    return 0;
}

/* A node's number goes before a name of digits. */
static int find_node(const struct roster *roster, const char *node)
{
    int64_t number;
    if (text_int64(node, &number) && number >= 0 && number < roster->world_nodes)
        return roster->by_rank[number];
    int found = NONE;
    for (int slot = roster_slots_named(roster, node); slot != NONE;
         slot = roster_slots_named_after(roster, slot)) {
        if (!roster_slot_taken(&roster->members[slot]))
            continue;
        if (found != NONE)
            return SEVERAL;
        found = slot;
    }
    return found;
}

/* Members that were told to go, and have not begun to, are still counted as if they stayed. */
struct places {
    int spares; /* that take a leaving node's place */
    int nodes;  /* in the next world, without the spares */
    const struct roster_member *spare;
};

static struct places count_places(const struct roster *roster)
{
    struct places places = {.nodes = roster->world_nodes};
    for (int i = 0; i < roster->slot_count; i++) {
        const struct roster_member *member = &roster->members[i];
        const bool leaves = member->evicted && !member->draining;
        if (member->state == MEMBER_JOINED && !leaves) {
            places.spares++;
            places.spare = member;
        } else if (roster_has_workers(member) && leaves) {
            places.nodes--;
        }
    }
    return places;
}

static int go(struct roster_work *w, struct roster_member *member)
{
    member->evicted = true;
    roster_act(w, ROSTER_SEND_GO, member->session, roster_slot_of(w->roster, member), NULL);
    return 0;
}

static int refuse_without_spare(struct roster_work *w, const char *who, int nodes)
{
    const struct roster *roster = w->roster;
    if (nodes < roster->min_nodes)
        return answer(w, EVICTION_REFUSED, NULL,
                      "%s stays: no spare waits, and the job needs %d node%s (--nnodes=%d:%d), without it %d "
                      "would be left. Start an agent on another node, which becomes a spare, and ask again",
                      who, roster->min_nodes, roster->min_nodes == 1 ? "" : "s", roster->min_nodes,
                      roster->max_nodes, nodes);
    return answer(w, EVICTION_REFUSED, NULL,
                  "%s stays: no spare waits. Start an agent on another node, which becomes a spare, and ask "
                  "again; or let the job go on with %d node%s: --without-spare",
                  who, nodes, nodes == 1 ? "" : "s");
}

/* A member of the running world. */
static int evict_member(struct roster_work *w, struct roster_member *member)
{
    struct roster *roster = w->roster;
    const struct places places = count_places(roster);
    const int left = roster->world_nodes - places.nodes, nodes = places.nodes - 1 + places.spares;
    char who[MUSTER_ERROR_TEXT - 300];
    roster_describe_member(roster, member, who, sizeof who);
    if (roster->count[MEMBER_DONE] + roster->count[MEMBER_DONE_GONE])
        return answer(w, EVICTION_REFUSED, NULL,
                      "%s stays: the job is about to end, since the workers of another node have finished",
                      who);
    if (roster_is_local(roster, member) && !roster_elastic_is_replaced(roster))
        return answer(w, EVICTION_REFUSED, NULL,
                      "%s stays: it serves the job, and the other nodes are too few to elect another server "
                      "(three nodes can, or two and a spare). Start another agent, and ask again",
                      who);
    if (places.spares <= left && (!w->event->evict->without_spare || nodes < roster->min_nodes))
        return refuse_without_spare(w, who, nodes);
    if (places.spares > left)
        (void)answer(w, EVICTION_LEAVES, member, "%s leaves, and %s%.128s%s takes its place", who,
                     places.spares == 1 ? "the spare \"" : "one of the spares",
                     places.spares == 1 ? places.spare->name : "", places.spares == 1 ? "\"" : "");
    else
        (void)answer(w, EVICTION_LEAVES, member, "%s leaves, and the job goes on with %d node%s", who, nodes,
                     nodes == 1 ? "" : "s");
    return go(w, member);
}

/* What became of the agent that was asked before, by this server or the one before it. */
static int follow_up(struct roster_work *w)
{
    struct roster *roster = w->roster;
    const struct membership_evict *ask = w->event->evict;
    const int slot = roster_slots_find(roster, ask->agent, true);
    char who[MUSTER_ERROR_TEXT - 100];
    if (slot < 0 && roster->state == JOB_RUNNING)
        return answer(w, EVICTION_LEFT, NULL, "node \"%.200s\" has left; %d node%s run%s", ask->node,
                      roster->world_nodes, roster->world_nodes == 1 ? "" : "s",
                      roster->world_nodes == 1 ? "s" : "");
    if (slot < 0)
        return answer(w, EVICTION_LEAVES, NULL, "node \"%.200s\" has left; the others do not run yet",
                      ask->node);
    struct roster_member *member = &roster->members[slot];
    roster_describe_member(roster, member, who, sizeof who);
    if (member->draining || member->state == MEMBER_LEAVING)
        return answer(w, EVICTION_LEAVES, member, "%s leaves: its workers are being stopped", who);
    if (roster->state != JOB_RUNNING)
        return answer(w, EVICTION_LEAVES, member, "%s has not left yet, and the round is %s", who,
                      roster_job_state_name(roster->state));
    (void)answer(w, EVICTION_LEAVES, member, "%s was asked to leave, and has not begun", who);
    return go(w, member);
}

int roster_on_evict(struct roster_work *w)
{
    struct roster *roster = w->roster;
    const struct membership_evict *ask = w->event->evict;
    if (!roster->elastic)
        return answer(w, EVICTION_REFUSED, NULL,
                      "the job has a fixed set of nodes (--nnodes=%d with node ranks), of which none can be "
                      "replaced while it runs. A job with --nnodes=%d:%d and one agent more has a spare",
                      roster->max_nodes, roster->max_nodes, roster->max_nodes);
    if (ask->agent.high || ask->agent.low)
        return follow_up(w);
    if (roster->state != JOB_RUNNING)
        return answer(w, EVICTION_WAITS, NULL, "the job is between two rounds (%s)",
                      roster_job_state_name(roster->state));
    const int slot = find_node(roster, ask->node);
    if (slot == SEVERAL)
        return answer(w, EVICTION_REFUSED, NULL,
                      "several agents are named \"%.200s\": give the node's number, 0 to %d", ask->node,
                      roster->world_nodes - 1);
    if (slot == NONE || !roster_slot_taken(&roster->members[slot]))
        return answer(w, EVICTION_REFUSED, NULL,
                      "no node \"%.200s\": the job has the nodes 0 to %d. It may have left; muster top shows "
                      "their names",
                      ask->node, roster->world_nodes - 1);
    struct roster_member *member = &roster->members[slot];
    if (member->evicted || member->draining || member->state == MEMBER_LEAVING)
        return answer(w, EVICTION_LEAVES, member, "node \"%.200s\" was asked to leave before", ask->node);
    if (roster_has_workers(member) || member->state == MEMBER_DONE)
        return evict_member(w, member);
    (void)answer(w, EVICTION_LEAVES, member, "spare \"%.128s\" leaves: it has no ranks", member->name);
    return go(w, member);
}

int roster_on_evict_late(struct roster_work *w)
{
    return answer(w, EVICTION_REFUSED, NULL, "the job is over");
}
