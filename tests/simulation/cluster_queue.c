/* cluster_queue.c - what is still to happen in a simulated cluster: a heap by (time, order); and chance. */
#include <stdlib.h>

#include "proto/base/mem.h"
#include "tests/simulation/cluster_internal.h"

/* A simulation that runs out of memory has nothing to say. */
void *cluster_need(void *block)
{
    if (!block)
        abort();
    return block;
}

static bool before(const struct happening *a, const struct happening *b)
{
    return a->at.ns != b->at.ns ? a->at.ns < b->at.ns : a->order < b->order;
}

static void swap(struct happening *a, struct happening *b)
{
    struct happening kept = *a;
    *a = *b;
    *b = kept;
}

void cluster_schedule(struct cluster *cluster, struct happening happening)
{
    if (cluster->count == cluster->capacity) {
        cluster->capacity = cluster->capacity ? 2 * cluster->capacity : 64;
        cluster->heap = cluster_need(mem_realloc(cluster->heap, cluster->capacity, sizeof *cluster->heap));
    }
    happening.order = cluster->order++;
    size_t i = cluster->count++;
    cluster->heap[i] = happening;
    for (; i && before(&cluster->heap[i], &cluster->heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&cluster->heap[i], &cluster->heap[(i - 1) / 2]);
}

struct happening cluster_pop(struct cluster *cluster)
{
    struct happening first = cluster->heap[0];
    cluster->heap[0] = cluster->heap[--cluster->count];
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < cluster->count; child++)
            if (before(&cluster->heap[child], &cluster->heap[least]))
                least = child;
        if (least == i)
            return first;
        swap(&cluster->heap[i], &cluster->heap[least]);
        i = least;
    }
}

/* splitmix64 */
uint64_t cluster_draw(struct cluster *cluster)
{
    uint64_t z = (cluster->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
