/* roster_return.c - a server that was started again and hears from its agents what there was before. See
 * roster.h. */
#include <inttypes.h>
#include <stdio.h>

#include "proto/exit_code.h"
#include "rendezvous/roster_internal.h"

/* The agent that served the job vanished with its workers: that costs a restart, once. */
static void count_loss(struct roster_work *w, int64_t used)
{
    struct roster *roster = w->roster;
    if (roster->before_counted)
        return;
    roster->before_counted = true;
    if (roster->restart_count <= used)
        roster->restart_count = used + 1;
    (void)snprintf(roster->restart_reason, sizeof roster->restart_reason,
                   "the agent that served the job was lost in round %u", roster->before.round);
    if (roster->restart_count > roster->max_restarts)
        roster_give_verdict(w, EXIT_CODE_NODE, false,
                            "the agent that served the job was lost in round %u; restarts used: %" PRId64
                            " of %" PRId64,
                            roster->before.round, used, roster->max_restarts);
}

void roster_on_return(struct roster_work *w, const struct roster_join *join)
{
    struct roster *roster = w->roster;
    if (roster->state != JOB_FORMING || roster->world_seen)
        return; /* a world of this life came first */
    if (roster->elastic)
        roster_fence_from(roster, roster->created);
    if (!join->last.epoch || roster->id.round > join->last.round)
        return; /* it had none, or one that was heard of */
    roster->before = join->last;
    roster->before_nodes = join->last_nodes;
    roster->before_counted = false;
    roster->id.round = join->last.round + 1;
    if (!roster_return_keeps(roster, join))
        count_loss(w, join->restart_count);
    else if (roster->restart_count < join->restart_count)
        roster->restart_count = join->restart_count;
}

bool roster_return_keeps(const struct roster *roster, const struct roster_join *join)
{
    return !roster->elastic && roster->state == JOB_FORMING && !roster->world_seen &&
           join->held.epoch != roster->epoch && join->server_done && join->last.epoch == join->held.epoch &&
           join->last.round == join->held.round;
}

static void stop_former_world(struct roster_work *w)
{
    struct roster *roster = w->roster;
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        if (member->state != MEMBER_KEEPS)
            continue;
        roster_set_state(roster, member, MEMBER_STRAY);
        roster_act(w, ROSTER_SEND_STOP, member->session, i, NULL);
    }
    count_loss(w, roster->restart_count);
}

/* Only a world that nobody is missing from can go on. */
bool roster_return_settle(struct roster_work *w)
{
    struct roster *roster = w->roster;
    int others = 0, keeping = 0;
    for (int i = 0; i < roster->slot_count; i++) {
        const struct roster_member *member = &roster->members[i];
        others += roster_seat_taken(member) && !member->local;
        keeping += member->state == MEMBER_KEEPS && member->held.epoch == roster->before.epoch &&
                   member->held.round == roster->before.round;
    }
    if (keeping < others) {
        stop_former_world(w);
        return true;
    }
    if (keeping < roster->slot_count - 1 || roster->local_slot < 0)
        return false;
    roster->id = roster->before;
    roster_adopt_world(w);
    return true;
}
