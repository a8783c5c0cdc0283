/* roster_causes.c - the failures that end a round: the first cause, and the others as far as they are kept.
 * See roster.h. */
#include <stdio.h>
#include <string.h>

#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"
#include "rendezvous/roster/roster_internal.h"

bool roster_has_failed(const struct roster *roster)
{
    return roster->seen_count > 0;
}

const struct worker_failure *roster_cause(const struct roster *roster)
{
    assert(roster_has_failed(roster));
    return &roster->seen[0].failure;
}

bool roster_is_spent(const struct roster *roster)
{
    return roster_has_failed(roster) &&
           (roster->restart_count >= roster->max_restarts || roster_cause(roster)->no_restart);
}

/* The place of the failure that this one completes; -1: it is not, or no longer, kept. */
static int find_completed(const struct roster *roster, const struct worker_failure *failure, int group_rank)
{
    for (int i = 0; i < roster->seen_count && failure->completes; i++) {
        const struct worker_failure *seen = &roster->seen[i].failure;
        if (seen->group_rank == group_rank && seen->rank == failure->rank &&
            seen->local_rank == failure->local_rank && seen->pid == failure->pid && !seen->lost_node)
            return i;
    }
    return -1;
}

static void take_out(struct roster *roster, int place)
{
    roster->seen_count--;
    memmove(&roster->seen[place], &roster->seen[place + 1],
            (size_t)(roster->seen_count - place) * sizeof *roster->seen);
}

void roster_record(struct roster_work *w, const struct worker_failure *failure, int group_rank,
                   struct instant at)
{
    struct roster *roster = w->roster;
    if (!roster_has_failed(roster))
        roster->failed_at = w->now;
    const struct failure_key key = failure_key_of(failure, at);
    const int known = find_completed(roster, failure, group_rank);
    /* Details of a cause that a former server received are new here. If there are more causes than there is
     * room for, the cause may be counted already and not kept. */
    roster->seen_total += known < 0 && (!failure->completes || roster->seen_count < ROSTER_CAUSES_KEPT);
    if (known >= 0) {
        take_out(roster, known);
    } else if (roster->seen_count == ROSTER_CAUSES_KEPT) {
        if (failure_key_compare(&key, &roster->seen[roster->seen_count - 1].key) >= 0)
            return;
        take_out(roster, roster->seen_count - 1);
    }
    int place = roster->seen_count;
    while (place > 0 && failure_key_compare(&key, &roster->seen[place - 1].key) < 0)
        place--;
    memmove(&roster->seen[place + 1], &roster->seen[place],
            (size_t)(roster->seen_count - place) * sizeof *roster->seen);
    roster->seen[place] = (struct roster_cause){key, *failure};
    roster->seen[place].failure.group_rank = group_rank;
    roster->seen_count++;
    assert(roster->seen_count <= ROSTER_CAUSES_KEPT);
}

void roster_record_needed(struct roster_work *w, const struct roster_member *done, int missing)
{
    const bool whole = done->state != MEMBER_RUNNING;
    const int local_rank = whole ? 0 : done->ended - 1 - done->rank_base;
    struct worker_failure failure = {
        .rank = done->rank_base + local_rank, .local_rank = local_rank, .exit_code = EXIT_CODE_FAILURE};
    (void)snprintf(failure.host, sizeof failure.host, "%s", done->name);
    (void)snprintf(failure.message, sizeof failure.message,
                   "its own code was 0, but rank %d still needs it%s", missing, whole ? "s node" : "");
    roster_record(w, &failure, done->group_rank, w->now);
}

void roster_record_lost(struct roster_work *w, const struct roster_member *member, const char *why)
{
    struct worker_failure failure = {
        .rank = member->rank_base,
        .local_rank = -1,
        .exit_code = EXIT_CODE_NODE,
        .lost_node = true,
    };
    (void)snprintf(failure.host, sizeof failure.host, "%s", member->name);
    (void)snprintf(failure.message, sizeof failure.message, "%s", why ? why : "");
    roster_record(w, &failure, member->group_rank, member->last_received);
}
