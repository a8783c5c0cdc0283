/* fake_nccl_shared.c - the memory that the ranks of a communicator share, and their meetings in it. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/base/futex.h"
#include "tests/gpu/nccl/fake_nccl.h"

int fake_shared_create(void)
{
    static _Atomic(uint32_t) made;
    int fd = memfd_create("fake-nccl", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, sizeof(struct fake_shared))) {
        (void)close(fd);
        return -1;
    }
    struct fake_shared *shared = fd >= 0 ? fake_shared_map(getpid(), fd) : NULL;
    if (!shared)
        return -1;
    atomic_store(&shared->uid, (uint64_t)getpid() << 32 | ++made);
    fake_shared_unmap(shared);
    return fd;
}

struct fake_shared *fake_shared_map(int pid, int fd)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int mine = open(path, O_RDWR | O_CLOEXEC);
    if (mine < 0)
        return NULL;
    void *at = mmap(NULL, sizeof(struct fake_shared), PROT_READ | PROT_WRITE, MAP_SHARED, mine, 0);
    (void)close(mine);
    return at == MAP_FAILED ? NULL : at;
}

void fake_shared_unmap(struct fake_shared *shared)
{
    if (shared)
        (void)munmap(shared, sizeof *shared);
}

static struct futex_word *word_of(struct fake_shared *shared)
{
    return (struct futex_word *)(void *)&shared->bell; /* the same two members */
}

uint32_t fake_bell(const struct fake_shared *shared)
{
    return atomic_load(&shared->bell.value);
}

void fake_ring_bell(struct fake_shared *shared)
{
    atomic_fetch_add(&shared->bell.value, 1);
    futex_wake(word_of(shared), FUTEX_SHARED);
}

void fake_wait_bell(struct fake_shared *shared, uint32_t seen)
{
    (void)futex_wait(word_of(shared), seen, instant_add(clock_now(NULL), 10 * NS_PER_MS), FUTEX_SHARED);
}

uint64_t fake_waits_of(int kind, int peer, uint64_t number)
{
    return number << 24 | (uint64_t)(peer + 1) << 12 | (uint64_t)(kind + 1);
}

static int kind_of(uint64_t waits)
{
    return (int)(waits & 0xff) - 1;
}

/* ---- waits for ever ---- */

/* The ranks as they wait now. */
struct waits {
    bool waits[FAKE_RANKS]; /* in the same operation as some looks ago */
    uint64_t word[FAKE_RANKS], open[FAKE_RANKS][2], arrived[FAKE_RANKS];
};

static void look_around(const struct ncclComm *comm, struct fake_patience *patience, struct waits *w)
{
    for (int rank = 0; rank < comm->size; rank++) {
        const struct fake_member *member = &comm->shared->members[rank];
        const uint64_t looks = atomic_load(&member->looks);
        w->word[rank] = atomic_load(&member->waits);
        for (int i = 0; i < 2; i++)
            w->open[rank][i] = atomic_load(&member->open[i]);
        w->arrived[rank] = atomic_load(&member->arrived);
        /* the first look may have begun before this rank's wait */
        w->waits[rank] =
            w->word[rank] && w->word[rank] == patience->waits[rank] && looks >= patience->looks[rank] + 2;
        patience->waits[rank] = w->word[rank];
        patience->looks[rank] = looks;
    }
}

/* A waiting rank that this rank waits for; -1: none. */
static int blocked_by(const struct ncclComm *comm, const struct waits *w, int rank)
{
    const bool pair = fake_is_pair(kind_of(w->word[rank]));
    for (int other = 0; other < comm->size; other++) {
        if (other == rank || !w->waits[other])
            continue;
        const bool there = fake_is_pair(kind_of(w->word[other]));
        if (!pair && (there || w->arrived[other] < w->arrived[rank]))
            return other; /* not in this collective */
        for (int i = 0; pair && i < 2; i++)
            if (w->open[rank][i] >> other & 1 && !(there && w->open[other][!i] >> rank & 1))
                return other; /* it has no operation under way that meets this one */
    }
    return -1;
}

/* Ranks wait for each other for ever if each of them waits for another one of them. Returns a rank that this
 * rank waits for; -1: this rank does not wait for ever. */
static int waits_for_ever(const struct ncclComm *comm, struct waits *w)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int rank = 0; rank < comm->size; rank++)
            if (w->waits[rank] && blocked_by(comm, w, rank) < 0) {
                w->waits[rank] = false;
                changed = true;
            }
    }
    return w->waits[comm->rank] ? blocked_by(comm, w, comm->rank) : -1;
}

/* With one operation at a time on a device: the peer's device runs an operation of another communicator,
 * which waits for us, while ours, which waits for it, runs here. */
static void check_order(struct ncclComm *comm, int peer)
{
    int other = comm->shared->members[peer].device_rank;
    if (!fake_one_at_a_time() || other == comm->device->rank)
        return;
    struct ncclComm *theirs =
        fake_find(comm->device, atomic_load(&comm->device->first->members[other].holds));
    if (!theirs || theirs == comm)
        return;
    for (int rank = 0; rank < theirs->size; rank++) {
        struct fake_member *members = theirs->shared->members;
        if (members[rank].device_rank == other &&
            atomic_load(&members[rank].arrived) > atomic_load(&members[theirs->rank].arrived))
            fake_fail(
                comm, ncclInternalError,
                "launch order: the device of rank %d runs an operation of communicator %u and waits for "
                "rank %d, whose device runs one of communicator %u and waits for rank %d",
                comm->device->rank, fake_number(comm), other, fake_number(theirs), comm->device->rank);
    }
}

/* Devices that this rank's operation waits for. */
static uint64_t devices_of(const struct ncclComm *comm)
{
    const struct fake_member *members = comm->shared->members, *me = &members[comm->rank];
    const uint64_t open = atomic_load(&me->open[0]) | atomic_load(&me->open[1]);
    const bool pair = fake_is_pair(kind_of(atomic_load(&me->waits)));
    uint64_t devices = 0;
    for (int rank = 0; rank < comm->size; rank++)
        if (pair ? open >> rank & 1 : atomic_load(&members[rank].arrived) < atomic_load(&me->arrived))
            devices |= UINT64_C(1) << members[rank].device_rank;
    return devices;
}

void fake_wait_in_vain(struct ncclComm *comm, int peer, struct fake_patience *patience)
{
    enum { PATIENCE = 30 }; /* slices of 10 ms before anything is looked for: the other may be on its way */
    atomic_fetch_add(&comm->shared->members[comm->rank].looks, 1);
    fake_queue_needs(comm, devices_of(comm));
    if (++patience->slices % PATIENCE)
        return;
    check_order(comm, peer);
    struct waits w;
    look_around(comm, patience, &w);
    const int other = waits_for_ever(comm, &w);
    if (other >= 0)
        fake_fail(comm, ncclInvalidUsage, "rank %d waits in %s, rank %d in %s: they never meet", comm->rank,
                  fake_kind_name(kind_of(w.word[comm->rank])), other, fake_kind_name(kind_of(w.word[other])));
    int device;
    uint64_t uid;
    if (other < 0 && fake_queue_waits_for_ever(comm, &patience->across, &device, &uid)) {
        const struct ncclComm *theirs = fake_find(comm->device, uid);
        fake_fail(
            comm, ncclInvalidUsage,
            "the device of rank %d waits in communicator %u, and that of rank %d in communicator %u, with "
            "the other's operation behind it on its stream: they never meet",
            comm->device->rank, fake_number(comm), device, theirs ? fake_number(theirs) : 0);
    }
}

bool fake_meet(struct ncclComm *comm, uint64_t waits)
{
    struct fake_shared *shared = comm->shared;
    struct fake_patience patience = {0};
    uint64_t phase = ++comm->phase;
    atomic_store(&shared->members[comm->rank].waits, waits);
    atomic_store(&shared->members[comm->rank].arrived, phase);
    fake_ring_bell(shared);
    for (int peer = 0; peer < comm->size;) {
        uint32_t seen = fake_bell(shared);
        if (atomic_load(&shared->members[peer].arrived) >= phase) {
            peer++;
            continue;
        }
        if (atomic_load(comm->aborted) || atomic_load(&comm->state) > ncclSuccess) {
            int state = atomic_load(&comm->state);
            if (atomic_load(comm->aborted) || state != ncclInProgress)
                return false;
        }
        fake_wait_bell(shared, seen);
        fake_wait_in_vain(comm, peer, &patience);
    }
    atomic_store(&shared->members[comm->rank].waits, 0);
    return !atomic_load(comm->aborted);
}
