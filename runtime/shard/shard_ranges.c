/* shard_ranges.c - see shard_ranges.h. */
#include "runtime/shard/shard_ranges.h"

#include <errno.h>
#include <sys/mman.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static char *align(void *at)
{
    return (char *)(((uintptr_t)at + SHARD_PAGE_BYTES - 1) & ~(uintptr_t)(SHARD_PAGE_BYTES - 1));
}

static void *reserve(int64_t bytes, struct muster_error *err)
{
    void *at = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED)
        return at;
    (void)error_errno(err, "reserving %lld bytes of addresses", (long long)bytes);
    return NULL;
}

/* Fresh memory, or none, at an address that is ours. */
static int replace(char *at, int64_t bytes, bool accessible, struct muster_error *err)
{
    int protection = accessible ? PROT_READ | PROT_WRITE : PROT_NONE;
    if (mmap(at, (size_t)bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        return error_errno(err, "mapping %lld bytes for a gathered group", (long long)bytes);
    if (accessible) { /* both are for speed: without them everything works */
        (void)madvise(at, (size_t)bytes, MADV_HUGEPAGE);
        (void)madvise(at, (size_t)bytes, MADV_DONTFORK); /* a forked child does not copy pages that move */
    }
    return 0;
}

int shard_ranges_create(struct shard_ranges *ranges, const struct shard_layout *layout, int spare,
                        struct muster_error *err)
{
    *ranges = (struct shard_ranges){.group_count = layout->group_count, .spare = spare};
    ranges->ranges = mem_calloc((size_t)layout->group_count, sizeof *ranges->ranges);
    ranges->range_bytes = mem_calloc((size_t)layout->group_count, sizeof *ranges->range_bytes);
    if (!ranges->ranges || !ranges->range_bytes)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the addresses of %d groups",
                         layout->group_count);
    ranges->reserved_bytes = SHARD_PAGE_BYTES;
    for (int i = 0; i < layout->group_count; i++) {
        ranges->range_bytes[i] = layout->classes[layout->groups[i].slot_class].bytes;
        ranges->reserved_bytes += ranges->range_bytes[i];
    }
    ranges->reserved = reserve(ranges->reserved_bytes, err);
    if (!ranges->reserved)
        return -1;
    char *at = align(ranges->reserved);
    for (int i = 0; i < layout->group_count; at += ranges->range_bytes[i++])
        ranges->ranges[i] = at;
    return 0;
}

void shard_ranges_destroy(struct shard_ranges *ranges)
{
    /* munmap of our own mappings, whole: cannot fail */
    for (int i = 0; i < ranges->slot_count; i++)
        (void)munmap(ranges->slots[i].reserved, (size_t)(ranges->slots[i].bytes + SHARD_PAGE_BYTES));
    if (ranges->reserved)
        (void)munmap(ranges->reserved, (size_t)ranges->reserved_bytes);
    mem_free(ranges->slots);
    mem_free(ranges->range_bytes);
    mem_free(ranges->ranges);
    *ranges = (struct shard_ranges){0};
}

/* ---- slots ---- */

static int add_slot(struct shard_ranges *ranges, int slot_class, int64_t bytes, struct muster_error *err)
{
    if (ranges->slot_count == ranges->slot_room) {
        int room = ranges->slot_room ? 2 * ranges->slot_room : 8;
        struct shard_slot *slots = mem_realloc(ranges->slots, (size_t)room, sizeof *slots);
        if (!slots)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a list of %d slots", room);
        ranges->slots = slots;
        ranges->slot_room = room;
    }
    struct shard_slot slot = {.bytes = bytes, .slot_class = slot_class, .group = -1};
    slot.reserved = reserve(bytes + SHARD_PAGE_BYTES, err);
    if (!slot.reserved)
        return -1;
    slot.home = align(slot.reserved);
    if (replace(slot.home, bytes, true, err)) {
        (void)munmap(slot.reserved, (size_t)(bytes + SHARD_PAGE_BYTES)); /* our own mapping, whole */
        return -1;
    }
    ranges->slots[ranges->slot_count++] = slot;
    ranges->slot_bytes += bytes;
    return 0;
}

static int find_slot(const struct shard_ranges *ranges, int slot_class)
{
    for (int i = 0; i < ranges->slot_count; i++) {
        if (ranges->slots[i].slot_class == slot_class && ranges->slots[i].group < 0)
            return i;
    }
    return -1;
}

/* Moves pages; where they were there is accessible memory without pages. 1: this kernel cannot. */
static int move_pages_to(char *from, char *to, int64_t bytes, struct muster_error *err)
{
    if (mremap(from, (size_t)bytes, (size_t)bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) !=
        MAP_FAILED)
        return 0;
    return errno == EINVAL ? 1 : error_errno(err, "moving %lld bytes of a gathered group", (long long)bytes);
}

int shard_ranges_map(struct shard_ranges *ranges, const struct shard_layout *layout, int group,
                     struct muster_error *err)
{
    int slot_class = layout->groups[group].slot_class;
    int64_t bytes = ranges->range_bytes[group];
    int at = find_slot(ranges, slot_class);
    if (at < 0) {
        if (add_slot(ranges, slot_class, bytes, err))
            return -1;
        at = ranges->slot_count - 1;
    }
    if (!ranges->fresh) {
        int moved = move_pages_to(ranges->slots[at].home, ranges->ranges[group], bytes, err);
        if (moved < 0)
            return -1;
        ranges->fresh = moved;
    }
    if (ranges->fresh && replace(ranges->ranges[group], bytes, true, err))
        return -1;
    ranges->slots[at].group = group;
    return 0;
}

static int free_of_class(const struct shard_ranges *ranges, int slot_class)
{
    int count = 0;
    for (int i = 0; i < ranges->slot_count; i++)
        count += ranges->slots[i].slot_class == slot_class && ranges->slots[i].group < 0;
    return count;
}

int shard_ranges_unmap(struct shard_ranges *ranges, int group, struct muster_error *err)
{
    for (int i = 0; i < ranges->slot_count; i++) {
        struct shard_slot *slot = &ranges->slots[i];
        if (slot->group != group)
            continue;
        if (!ranges->fresh && move_pages_to(ranges->ranges[group], slot->home, slot->bytes, err))
            return -1;
        if (!ranges->fresh && free_of_class(ranges, slot->slot_class) >= ranges->spare)
            (void)madvise(slot->home, (size_t)slot->bytes, MADV_DONTNEED); /* if not, it stays resident */
        slot->group = -1;
        return replace(ranges->ranges[group], slot->bytes, false, err);
    }
    return error_set(err, MUSTER_E_STATE, "group %d has no memory to give up", group);
}

void shard_ranges_protect(struct shard_ranges *ranges)
{
    for (int group = 0; group < ranges->group_count; group++) {
        bool mapped = false;
        for (int i = 0; i < ranges->slot_count; i++)
            mapped |= ranges->slots[i].group == group;
        if (!mapped) /* where it fails the NaNs stay until the next gather */
            (void)replace(ranges->ranges[group], ranges->range_bytes[group], false, NULL);
    }
}
