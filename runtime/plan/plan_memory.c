/* plan_memory.c - live intervals and offsets.
 *
 * Buffers of the whole run come first, in the order in which they were planned. The rest is placed largest
 * first, each at the lowest offset that is free during its live interval. Only one stream touches two buffers
 * that share memory at different times, and its order keeps them apart. Transient buffers of device memory
 * belong to the compute stream; other streams work on whole-run buffers. */
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"

#include "proto/base/guard.h"
#include "runtime/plan/plan_internal.h"
#include <assert.h>

void plan_live_intervals(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    for (int o = 0; o < plan->op_count; o++) {
        struct plan_access accesses[PLAN_ACCESSES];
        int count = plan_op_accesses(plan, &plan->ops[o], accesses);
        for (int i = 0; i < count; i++) {
            struct plan_entry *entry = &plan->entries[accesses[i].entry];
            if (!b->entry_states[accesses[i].entry].transient)
                continue;
            entry->first_op = entry->first_op < 0 ? o : entry->first_op;
            entry->last_op = o;
        }
    }
}

static int by_size(const void *left, const void *right)
{
    const struct plan_entry *a = *(const struct plan_entry *const *)left;
    const struct plan_entry *b = *(const struct plan_entry *const *)right;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    if (a->first_op != b->first_op)
        return a->first_op < b->first_op ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int by_offset(const void *left, const void *right)
{
    const struct plan_entry *a = *(const struct plan_entry *const *)left;
    const struct plan_entry *b = *(const struct plan_entry *const *)right;
    return a->offset != b->offset ? (a->offset < b->offset ? -1 : 1) : (a < b ? -1 : a > b);
}

static int by_birth(const void *left, const void *right)
{
    const struct plan_entry *a = *(const struct plan_entry *const *)left;
    const struct plan_entry *b = *(const struct plan_entry *const *)right;
    if (a->first_op != b->first_op)
        return a->first_op < b->first_op ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* A buffer that has its place. */
struct placed {
    int64_t offset, end;
    int first_op, last_op;
};

/* The transient buffers of one memory class. */
struct placement {
    struct plan_entry **births; /* by first_op; offset -1: not placed yet */
    struct plan_entry **alive;  /* room for the buffers that are alive together with a buffer */
    struct placed *placed;      /* for crowded: the placed buffers, by offset */
    bool crowded;
    int count, placed_count;
    int longest; /* operations that the longest life spans */
    int64_t base;
};

/* The first of the births that may still live at this operation. */
static int first_birth(const struct placement *p, int op)
{
    int low = 0, high = p->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (p->births[middle]->first_op < op)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The placed buffers that are alive together with entry, by offset: of births from low to below high. */
static int find_alive(struct placement *p, const struct plan_entry *entry, int low, int high)
{
    int found = 0;
    for (int i = low; i < high; i++)
        if (p->births[i]->offset >= 0 && p->births[i]->last_op >= entry->first_op)
            p->alive[found++] = p->births[i];
    qsort(p->alive, (size_t)found, sizeof *p->alive, by_offset);
    return found;
}

static int64_t lowest_among(const struct placement *p, const struct plan_entry *entry, int count)
{
    int64_t at = p->base;
    for (int i = 0; i < count; i++) {
        const struct plan_entry *other = p->alive[i];
        if (other->offset - at >= entry->bytes)
            break;
        if (other->offset + other->bytes > at)
            at = other->offset + other->bytes;
    }
    return at;
}

/* The lowest free offset for entry, from the sorted list of all placed buffers. */
static int64_t lowest_of_all(const struct placement *p, const struct plan_entry *entry)
{
    int64_t at = p->base;
    for (int i = 0; i < p->placed_count; i++) {
        const struct placed *other = &p->placed[i];
        if (other->first_op > entry->last_op || other->last_op < entry->first_op)
            continue;
        if (other->offset - at >= entry->bytes)
            break;
        if (other->end > at)
            at = other->end;
    }
    return at;
}

/* In a step of many micro-batches lives are short. A window of births then contains all buffers that are
 * alive together with a buffer, and is sorted by offset. In a deep model's single micro-batch most buffers
 * live together: a sorted list of all placed buffers is searched instead. */
static bool is_crowded(const struct placement *p)
{
    enum { SORTING = 4 }; /* cost of a buffer in a window, in buffers of the list */
    int64_t windows = 0;
    for (int i = 0; i < p->count; i++)
        windows +=
            first_birth(p, p->births[i]->last_op + 1) - first_birth(p, p->births[i]->first_op - p->longest);
    return windows * SORTING > (int64_t)p->count * p->count;
}

static int64_t lowest_offset(struct placement *p, const struct plan_entry *entry)
{
    if (p->crowded)
        return lowest_of_all(p, entry);
    const int low = first_birth(p, entry->first_op - p->longest), high = first_birth(p, entry->last_op + 1);
    return lowest_among(p, entry, find_alive(p, entry, low, high));
}

static void note_placed(struct placement *p, const struct plan_entry *entry)
{
    int low = 0, high = p->placed_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (p->placed[middle].offset <= entry->offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(p->placed + low + 1, p->placed + low, (size_t)(p->placed_count - low) * sizeof *p->placed);
    p->placed[low] =
        (struct placed){entry->offset, entry->offset + entry->bytes, entry->first_op, entry->last_op};
    p->placed_count++;
}

/* order, births, alive, placed: room for every entry each. */
static void place_class(struct plan *plan, enum memory_class memory, struct plan_entry **order,
                        struct plan_entry **births, struct plan_entry **alive, struct placed *placed)
{
    struct placement p = {.births = births, .alive = alive, .placed = placed};
    for (int e = 0; e < plan->entry_count; e++) {
        struct plan_entry *entry = &plan->entries[e];
        if (entry->memory != memory)
            continue;
        entry->offset = entry->first_op < 0 ? p.base : -1;
        if (entry->first_op < 0) {
            p.base += entry->bytes;
            continue;
        }
        if (entry->last_op - entry->first_op > p.longest)
            p.longest = entry->last_op - entry->first_op;
        order[p.count] = births[p.count] = entry;
        p.count++;
    }
    qsort(order, (size_t)p.count, sizeof *order, by_size);
    qsort(births, (size_t)p.count, sizeof *births, by_birth);
    p.crowded = is_crowded(&p);
    int64_t top = p.base;
    for (int i = 0; i < p.count; i++) {
        struct plan_entry *entry = order[i];
        entry->offset = lowest_offset(&p, entry);
        assert(entry->offset >= p.base && entry->offset <= INT64_MAX - entry->bytes);
        if (p.crowded)
            note_placed(&p, entry);
        if (entry->offset + entry->bytes > top)
            top = entry->offset + entry->bytes;
    }
    plan->arena_bytes[memory] = top;
}

void plan_place_entries(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    size_t count = (size_t)plan->entry_count;
    scope_free struct plan_entry **room = mem_calloc(count * 3, sizeof(struct plan_entry *));
    scope_free struct placed *placed = mem_calloc(count, sizeof *placed);
    if (!room || !placed) {
        b->failed = error_set(b->err, MUSTER_E_NOMEM, "no memory to place %zu buffers", count);
        return;
    }
    for (int memory = 0; memory < MEMORY_CLASS_COUNT; memory++)
        place_class(plan, (enum memory_class)memory, room, room + count, room + 2 * count, placed);
    for (int e = 0; e < plan->entry_count; e++)
        plan->kind_bytes[plan->entries[e].kind] += plan->entries[e].bytes;
}
