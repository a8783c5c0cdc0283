/* shard_ranges.h - the addresses of gathered groups: each group has one range for life, which has memory only
 * while the group is gathered.
 *
 * Memory is a few slots. A slot's pages are moved to the group's range and back (mremap of whole page tables:
 * about 0.05 ms for 28 MB, where giving pages back and getting zeroed pages costs 13 ms, or 1.2 ms in huge
 * pages, and mapping a memfd anew 4 ms). A range without a slot cannot be accessed. Where the kernel cannot
 * keep the place of moved pages reserved (before 5.7), a range gets fresh pages each time instead. */
#ifndef MUSTER_RUNTIME_SHARD_SHARD_RANGES_H
#define MUSTER_RUNTIME_SHARD_SHARD_RANGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/shard/shard_layout.h"

struct shard_slot {
    char *home;     /* where its pages are while it is free */
    void *reserved; /* address for munmap */
    int64_t bytes;  /* bytes of the slot; reserved has SHARD_PAGE_BYTES more */
    int slot_class;
    int group; /* -1: free */
};

struct shard_ranges {
    char **ranges;  /* [groups] */
    void *reserved; /* all of them */
    int64_t reserved_bytes;
    int64_t *range_bytes; /* [groups] */
    int group_count;
    struct shard_slot *slots;
    int slot_count, slot_room;
    int spare;          /* free slots of a class that keep their pages */
    bool fresh;         /* pages cannot be moved */
    int64_t slot_bytes; /* bytes of all slots */

    /* for shard_fault.h */
    _Atomic(char *) touched; /* the first access to a released range */
    int (*notify)(int argument);
    int notify_argument;
};

/* Reserves a range for each group; memory is still none. spare: see above. */
int shard_ranges_create(struct shard_ranges *ranges, const struct shard_layout *layout, int spare,
                        struct muster_error *err);
void shard_ranges_destroy(struct shard_ranges *ranges);
/* Moves a free slot, or a new slot, to the group's range; its contents are not defined. */
int shard_ranges_map(struct shard_ranges *ranges, const struct shard_layout *layout, int group,
                     struct muster_error *err);
/* Takes it away again. */
int shard_ranges_unmap(struct shard_ranges *ranges, int group, struct muster_error *err);
/* Takes away the pages that a fault handler has put at released ranges. */
void shard_ranges_protect(struct shard_ranges *ranges);

#endif
