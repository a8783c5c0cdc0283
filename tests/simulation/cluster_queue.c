/* cluster_queue.c - future events of a simulated cluster: a heap by (time, order) over a pool. */
#include "proto/base/mem.h"
#include "tests/simulation/cluster_internal.h"

static bool before(const struct slot_of_heap *a, const struct slot_of_heap *b)
{
    return a->at.ns != b->at.ns ? a->at.ns < b->at.ns : a->order < b->order;
}

static void *grow(void *block, size_t *room, size_t size)
{
    *room = *room ? 2 * *room : 256;
    return cluster_need(mem_realloc(block, *room, size));
}

static uint32_t take_place(struct cluster *cluster)
{
    if (cluster->free_count)
        return cluster->pool_free[--cluster->free_count];
    if (cluster->pool_count == cluster->pool_room) {
        cluster->pool = grow(cluster->pool, &cluster->pool_room, sizeof *cluster->pool);
        cluster->pool_free =
            cluster_need(mem_realloc(cluster->pool_free, cluster->pool_room, sizeof *cluster->pool_free));
    }
    return (uint32_t)cluster->pool_count++;
}

void cluster_schedule(struct cluster *cluster, const struct happening *happening)
{
    uint32_t place = take_place(cluster);
    cluster->pool[place] = *happening;
    if (cluster->heap_count == cluster->heap_room)
        cluster->heap = grow(cluster->heap, &cluster->heap_room, sizeof *cluster->heap);
    struct slot_of_heap slot = {happening->at, cluster->order++, place};
    if (slot.at.ns < cluster->now.ns)
        slot.at = cluster->now;
    cluster->pool[place].at = slot.at;
    size_t i = cluster->heap_count++;
    for (; i && before(&slot, &cluster->heap[(i - 1) / 2]); i = (i - 1) / 2)
        cluster->heap[i] = cluster->heap[(i - 1) / 2];
    cluster->heap[i] = slot;
}

void cluster_at(struct cluster *cluster, struct instant at, int node, enum happening_kind kind)
{
    const struct node *self = &cluster->nodes[node];
    cluster_schedule(
        cluster,
        &(struct happening){.at = at, .kind = kind, .node = node, .life = self->life, .batch = self->batch});
}

void cluster_after(struct cluster *cluster, int64_t delay_ns, int node, enum happening_kind kind)
{
    cluster_at(cluster, instant_add(cluster->now, delay_ns), node, kind);
}

struct happening cluster_pop(struct cluster *cluster)
{
    struct slot_of_heap *heap = cluster->heap;
    struct happening first = cluster->pool[heap[0].happening];
    cluster->pool_free[cluster->free_count++] = heap[0].happening;
    struct slot_of_heap last = heap[--cluster->heap_count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < cluster->heap_count; i = child) {
        if (child + 1 < cluster->heap_count && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &last))
            break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return first;
}

void cluster_free_queue(struct cluster *cluster)
{
    for (size_t i = 0; i < cluster->heap_count; i++)
        cluster_free_letter(cluster, cluster->pool[cluster->heap[i].happening].letter);
    mem_free(cluster->heap);
    mem_free(cluster->pool);
    mem_free(cluster->pool_free);
}
