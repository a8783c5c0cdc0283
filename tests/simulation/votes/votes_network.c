/* votes_network.c - the events to come, the network, and what messages point to. See votes_internal.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/simulation/votes/votes_internal.h"

int64_t votes_below(uint64_t *random, int64_t limit)
{
    return limit > 0 ? (int64_t)(test_random(random) % (uint64_t)limit) : 0;
}

void votes_say(const struct votes_job *job, int node, const char *format, ...)
{
    va_list arguments;
    if (!job->trace)
        return;
    printf("%8.3f n%d: ", (double)job->now / NS_PER_S, node);
    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

static bool before(const struct votes_happening *a, const struct votes_happening *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void votes_push(struct votes_job *job, const struct votes_happening *happening)
{
    if (job->heap_count == job->heap_room) {
        int room = job->heap_room ? 2 * job->heap_room : 256;
        struct votes_happening *heap = mem_realloc(job->heap, (size_t)room, sizeof *heap);
        if (!heap) {
            votes_break(job, "no memory");
            return;
        }
        job->heap = heap;
        job->heap_room = room;
    }
    struct votes_happening added = *happening;
    added.order = job->order++;
    int at = job->heap_count++;
    while (at && before(&added, &job->heap[(at - 1) / 2])) {
        job->heap[at] = job->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    job->heap[at] = added;
}

bool votes_pop(struct votes_job *job, struct votes_happening *happening)
{
    if (!job->heap_count)
        return false;
    *happening = job->heap[0];
    const struct votes_happening last = job->heap[--job->heap_count];
    int at = 0;
    for (int child; (child = 2 * at + 1) < job->heap_count; at = child) {
        child += child + 1 < job->heap_count && before(&job->heap[child + 1], &job->heap[child]);
        if (before(&last, &job->heap[child]))
            break;
        job->heap[at] = job->heap[child];
    }
    if (job->heap_count)
        job->heap[at] = last;
    return true;
}

void votes_send(struct votes_job *job, int from, int to, const struct votes_message *message)
{
    if (to < 0 || to >= job->schedule->nodes || to == from || !(job->reach[from] & 1u << to) ||
        votes_below(&job->random, 1000) < job->drop_permille)
        return;
    struct votes_happening arrival = {.kind = VOTES_ARRIVES, .node = to, .message = *message};
    arrival.at = job->now + NS_PER_MS * (1 + votes_below(&job->random, job->schedule->delay_ms));
    if (!job->calm && !job->schedule->quiet && !job->schedule->drains &&
        votes_below(&job->random, 50) == 0) /* late by a retransmission */
        arrival.at += NS_PER_MS * votes_below(&job->random, 4000);
    votes_push(job, &arrival);
}

void votes_later(struct votes_job *job, int64_t for_ms, enum votes_fault_kind kind, int node)
{
    struct votes_happening happening = {
        .at = job->now + for_ms * NS_PER_MS, .kind = VOTES_FAULT, .node = node, .fault = -1 - (int)kind};
    if (for_ms >= 0)
        votes_push(job, &happening);
}

int votes_node_of(const struct voter *voter)
{
    return voter->port - 1;
}

struct votes_world *votes_keep(struct votes_job *job, const struct world_record *record)
{
    for (int i = job->world_count - 1; i >= 0; i--)
        if (record_equal(&job->worlds[i].record, record))
            return &job->worlds[i];
    if (job->world_count == VOTES_RECORDS) {
        votes_break(job, "more than %d records", VOTES_RECORDS);
        return &job->worlds[0];
    }
    struct votes_world *world = &job->worlds[job->world_count++];
    *world = (struct votes_world){.record = *record};
    return world;
}

const struct votes_world *votes_world_of(struct votes_job *job, const struct world_record *record)
{
    const struct votes_world *world = votes_keep(job, record);
    return world->base ? world->base : world;
}

const struct voter *votes_keep_voter(struct votes_job *job, const struct voter *voter)
{
    return &job->voters[voter->incarnation.low];
}
