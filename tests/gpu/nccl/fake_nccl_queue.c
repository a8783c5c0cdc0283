/* fake_nccl_queue.c - the works of each device over all its communicators, as other ranks see them, and ranks
 * that wait for each other for ever over several communicators.
 *
 * A work that has begun and waits for a device is blocked if that device has a work of the same communicator
 * behind another one on its stream, which has begun and waits, too. Works wait for ever if each of them is
 * blocked by one of them. Streams that wait for other streams' events are not followed. */
#include <stdlib.h>

#include "tests/gpu/nccl/fake_nccl.h"

static struct fake_queued *queue_of(const struct ncclComm *comm, int device)
{
    return comm->device->first->members[device].queue;
}

int fake_queue_enter(struct ncclComm *comm, const void *stream)
{
    struct fake_queued *queue = queue_of(comm, comm->device->rank);
    for (int i = 0; i < FAKE_QUEUE; i++) {
        uint64_t none = 0;
        if (!atomic_compare_exchange_strong(&queue[i].order, &none, UINT64_MAX))
            continue;
        atomic_store(&queue[i].uid, atomic_load(&comm->shared->uid));
        atomic_store(&queue[i].stream, (uint64_t)(uintptr_t)stream);
        atomic_store(&queue[i].needs, 0);
        atomic_store(&queue[i].looks, 0);
        atomic_store(&queue[i].begun, false);
        atomic_store(&queue[i].order, atomic_fetch_add(&comm->device->orders, 1) + 1);
        return i;
    }
    return -1; /* it is not followed */
}

void fake_queue_begin(struct ncclComm *comm, int place)
{
    comm->place = place;
    if (place >= 0)
        atomic_store(&queue_of(comm, comm->device->rank)[place].begun, true);
}

void fake_queue_leave(struct ncclComm *comm, int place)
{
    if (place >= 0)
        atomic_store(&queue_of(comm, comm->device->rank)[place].order, 0);
}

void fake_queue_needs(struct ncclComm *comm, uint64_t devices)
{
    if (comm->place < 0)
        return;
    struct fake_queued *mine = &queue_of(comm, comm->device->rank)[comm->place];
    atomic_store(&mine->needs, devices);
    atomic_fetch_add(&mine->looks, 1);
}

/* ---- over all devices ---- */

struct node {
    int device;
    uint64_t order, uid, stream, needs, looks;
    bool begun, waits; /* waits: it may wait for ever */
};

/* Works of all devices; FAKE_RANKS * FAKE_QUEUE have room. */
static int look_at_all(const struct ncclComm *comm, struct node *nodes)
{
    int count = 0;
    for (int device = 0; device < FAKE_RANKS; device++)
        for (int i = 0; i < FAKE_QUEUE; i++) {
            const struct fake_queued *q = &queue_of(comm, device)[i];
            const uint64_t order = atomic_load(&q->order);
            if (!order || order == UINT64_MAX)
                continue;
            nodes[count] = (struct node){device,
                                         order,
                                         atomic_load(&q->uid),
                                         atomic_load(&q->stream),
                                         atomic_load(&q->needs),
                                         atomic_load(&q->looks),
                                         atomic_load(&q->begun),
                                         false};
            nodes[count].waits = nodes[count].begun && nodes[count].needs;
            count += atomic_load(&q->order) == order; /* else it has gone */
        }
    return count;
}

/* The first work of a device on a communicator (stream NULL) or on a stream; -1: none. */
static int first_of(const struct node *nodes, int count, int device, uint64_t uid, const uint64_t *stream)
{
    int first = -1;
    for (int i = 0; i < count; i++)
        if (nodes[i].device == device && (stream ? nodes[i].stream == *stream : nodes[i].uid == uid) &&
            (first < 0 || nodes[i].order < nodes[first].order))
            first = i;
    return first;
}

static int blocked_by(const struct node *nodes, int count, const struct node *node)
{
    for (int device = 0; device < FAKE_RANKS; device++) {
        if (device == node->device || !(node->needs >> device & 1))
            continue;
        const int wanted = first_of(nodes, count, device, node->uid, NULL);
        if (wanted < 0 || nodes[wanted].begun)
            continue; /* not issued yet, or on its way */
        const int head = first_of(nodes, count, device, 0, &nodes[wanted].stream);
        if (nodes[head].waits && nodes[head].uid != node->uid)
            return head;
    }
    return -1;
}

bool fake_queue_waits_for_ever(struct ncclComm *comm, struct fake_across *before, int *device, uint64_t *uid)
{
    struct fake_across now = {0};
    struct node *nodes = comm->place < 0 ? NULL : calloc(FAKE_RANKS * FAKE_QUEUE, sizeof *nodes);
    const int count = nodes ? look_at_all(comm, nodes) : 0;
    int mine = -1;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < count; i++)
            if (nodes[i].waits && blocked_by(nodes, count, &nodes[i]) < 0) {
                nodes[i].waits = false;
                changed = true;
            }
    }
    const uint64_t own = nodes ? atomic_load(&queue_of(comm, comm->device->rank)[comm->place].order) : 0;
    for (int i = 0; i < count; i++) {
        if (!nodes[i].waits)
            continue;
        now.orders += nodes[i].order * (uint64_t)(nodes[i].device + 1);
        now.looks[nodes[i].device] += nodes[i].looks;
        if (nodes[i].device == comm->device->rank && nodes[i].order == own)
            mine = i;
    }
    /* A wait that was over may still stand there: all of them have looked again since. */
    bool stays = mine >= 0 && now.orders == before->orders;
    for (int i = 0; i < FAKE_RANKS; i++)
        stays = stays && (!now.looks[i] || now.looks[i] >= before->looks[i] + 2);
    if (stays) {
        const int other = blocked_by(nodes, count, &nodes[mine]);
        *device = nodes[other].device;
        *uid = nodes[other].uid;
    }
    *before = now;
    free(nodes);
    return stays;
}
