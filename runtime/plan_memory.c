/* plan_memory.c - live intervals and offsets.
 *
 * What lives for the whole run comes first, in the order in which it was planned. The rest is placed largest
 * first, each at the lowest offset where nothing that is alive at the same time lies. Two buffers that share
 * memory at different times are only ever touched by one stream, whose order keeps them apart: transient
 * buffers of device memory belong to the compute stream, and other streams work on whole-run buffers. */
#include <stdlib.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/plan_internal.h"

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

/* The lowest free offset for an entry among those placed so far that are alive with it. placed is sorted by
 * offset. */
static int64_t lowest_offset(const struct plan_entry *entry, struct plan_entry *const *placed, int count,
                             int64_t base)
{
    int64_t at = base;
    for (int i = 0; i < count; i++) {
        const struct plan_entry *other = placed[i];
        if (other->last_op < entry->first_op || other->first_op > entry->last_op)
            continue;
        if (other->offset - at >= entry->bytes)
            break;
        if (other->offset + other->bytes > at)
            at = other->offset + other->bytes;
    }
    return at;
}

static void place_class(struct plan *plan, enum memory_class memory, struct plan_entry **order,
                        struct plan_entry **placed)
{
    int count = 0, done = 0;
    int64_t base = 0, top;
    for (int e = 0; e < plan->entry_count; e++) {
        struct plan_entry *entry = &plan->entries[e];
        if (entry->memory != memory)
            continue;
        if (entry->first_op < 0) {
            entry->offset = base;
            base += entry->bytes;
        } else {
            order[count++] = entry;
        }
    }
    top = base;
    qsort(order, (size_t)count, sizeof *order, by_size);
    for (int i = 0; i < count; i++) {
        struct plan_entry *entry = order[i];
        entry->offset = lowest_offset(entry, placed, done, base);
        if (entry->offset + entry->bytes > top)
            top = entry->offset + entry->bytes;
        int at = done++;
        for (; at > 0 && by_offset(&placed[at - 1], &entry) > 0; at--)
            placed[at] = placed[at - 1];
        placed[at] = entry;
    }
    plan->arena_bytes[memory] = top;
}

int plan_place_entries(struct plan *plan, struct muster_error *err)
{
    scope_free struct plan_entry **order = mem_calloc((size_t)plan->entry_count, sizeof *order);
    scope_free struct plan_entry **placed = mem_calloc((size_t)plan->entry_count, sizeof *placed);
    if (!order || !placed)
        return error_set(err, MUSTER_E_NOMEM, "no memory to place %d buffers", plan->entry_count);
    for (int memory = 0; memory < MEMORY_CLASS_COUNT; memory++)
        place_class(plan, memory, order, placed);
    for (int e = 0; e < plan->entry_count; e++)
        plan->kind_bytes[plan->entries[e].kind] += plan->entries[e].bytes;
    return 0;
}
