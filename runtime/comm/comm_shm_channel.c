/* comm_shm_channel.c - see comm_shm_internal.h. */
#include "runtime/comm/comm_shm_internal.h"

#include "proto/base/error.h"

enum { PAGE = 4096 };

static int64_t whole_pages(int64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* A channel is: the arrivals in a cache line of their own, the members, and from a page on the slots. */
enum { ARRIVED_BYTES = 128 };
static int64_t slots_offset(int count)
{
    return whole_pages(ARRIVED_BYTES + count * (int64_t)sizeof(struct host_member));
}

static int64_t channel_bytes(int count, int64_t slot_bytes)
{
    return slots_offset(count) + 2 * count * slot_bytes;
}

int64_t host_page_bytes(int size)
{
    int64_t pairs = (int64_t)size * (size - 1) / 2;
    return whole_pages(sizeof(struct host_page)) + channel_bytes(size, HOST_SLOT_BYTES) +
           pairs * channel_bytes(2, HOST_PAIR_SLOT_BYTES);
}

struct host_channel host_channel_of(struct host_page *page, int size, int rank, int peer)
{
    char *base = (char *)page + whole_pages(sizeof *page);
    struct host_channel channel = {.count = size, .me = rank, .slot_bytes = HOST_SLOT_BYTES};
    if (peer >= 0) {
        int low = rank < peer ? rank : peer, high = rank < peer ? peer : rank;
        int64_t pair = (int64_t)high * (high - 1) / 2 + low;
        base += channel_bytes(size, HOST_SLOT_BYTES) + pair * channel_bytes(2, HOST_PAIR_SLOT_BYTES);
        channel = (struct host_channel){.count = 2,
                                        .me = rank == high,
                                        .ranks = {low, high},
                                        .pair = true,
                                        .slot_bytes = HOST_PAIR_SLOT_BYTES};
    }
    channel.arrived = (struct futex_word *)base;
    channel.members = (struct host_member *)(base + ARRIVED_BYTES);
    channel.slots = base + slots_offset(channel.count);
    return channel;
}

void host_channel_arrive(const struct host_channel *channel)
{
    struct host_member *me = &channel->members[channel->me];
    uint32_t phase =
        atomic_load_explicit(&me->phase, memory_order_relaxed) + 1; /* this rank alone writes it */
    atomic_store_explicit(&me->phase, phase, memory_order_release);
    /* The sum is one word to sleep on until all have arrived; the phases identify the missing ranks. */
    uint32_t arrivals = atomic_fetch_add(&channel->arrived->value, 1) + 1;
    if (arrivals == phase * (uint32_t)channel->count)
        futex_wake(channel->arrived, FUTEX_SHARED);
}

bool host_channel_passed(const struct host_channel *channel, uint32_t *seen)
{
    uint32_t phase = atomic_load_explicit(&channel->members[channel->me].phase, memory_order_relaxed);
    *seen = atomic_load(&channel->arrived->value);
    return futex_reached(*seen, phase * (uint32_t)channel->count);
}

void host_page_fail(struct host_page *page, const struct muster_error *error)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&page->failed, &none, HOST_FAILURE_WRITING))
        return;
    page->failure = *error;
    atomic_store(&page->failed, HOST_FAILURE_SET);
    struct host_channel all = host_channel_of(page, page->size, 0, -1);
    futex_wake(all.arrived, FUTEX_SHARED);
}

bool host_page_failed(struct host_page *page, bool patient, struct muster_error *error)
{
    uint32_t failed = atomic_load_explicit(&page->failed, memory_order_acquire);
    if (!failed || (patient && failed == HOST_FAILURE_WRITING))
        return false;
    if (failed != HOST_FAILURE_SET) { /* a rank is writing, or died while writing */
        (void)error_set(error, MUSTER_E_PEER, "another rank has failed");
        return true;
    }
    *error = page->failure;
    error->text[sizeof error->text - 1] = '\0';
    return true;
}
