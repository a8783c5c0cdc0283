/* fake_nccl_comm.c - communicators of the fake NCCL: their making, splitting, failing and end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "tests/gpu/nccl/fake_nccl.h"

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *all; /* never freed: see struct ncclComm */
static _Atomic(int) dead_uses, early_uses;

struct ncclComm *fake_find(const struct fake_rank *device, uint64_t uid)
{
    struct ncclComm *found = NULL;
    (void)pthread_mutex_lock(&all_lock);
    for (struct ncclComm *comm = all; comm && uid; comm = comm->next) {
        if (comm->device == device && !atomic_load(&comm->gone) && atomic_load(&comm->shared->uid) == uid)
            found = comm;
    }
    (void)pthread_mutex_unlock(&all_lock);
    return found;
}

FAKE_EXPORT int fake_nccl_living(void)
{
    int count = 0;
    (void)pthread_mutex_lock(&all_lock);
    for (struct ncclComm *comm = all; comm; comm = comm->next)
        count += !atomic_load(&comm->gone);
    (void)pthread_mutex_unlock(&all_lock);
    return count;
}

FAKE_EXPORT int fake_nccl_dead_uses(void)
{
    return dead_uses;
}

FAKE_EXPORT int fake_nccl_early_uses(void)
{
    return early_uses;
}

/* Blocks that the kernels of a communicator of several ranks may have; the library's own limit without a
 * config. */
enum { FAKE_BLOCKS = 64 };
static _Atomic(int) blocks;

static int most_blocks(void)
{
    return blocks;
}

/* What configurations ask for: parts that share their communicator's resources, and policies. */
static _Atomic(int) sharing, policies;

FAKE_EXPORT int fake_nccl_sharing(void)
{
    return sharing;
}
FAKE_EXPORT int fake_nccl_policies(void)
{
    return policies;
}

static void note_config(const ncclConfig_t *config, int size)
{
    if (config && config->CTAPolicy != NCCL_CONFIG_UNDEF_INT)
        policies |= config->CTAPolicy;
    const char *variable = getenv("NCCL_MAX_CTAS");
    const int given = variable                                             ? atoi(variable)
                      : config && config->maxCTAs != NCCL_CONFIG_UNDEF_INT ? config->maxCTAs
                                                                           : FAKE_BLOCKS;
    if (size > 1 && given > blocks)
        blocks = given;
}

__attribute__((constructor)) static void report_living(void)
{
    fake_cudart_reports("leaked_communicators", fake_nccl_living);
    fake_cudart_reports("communicator_blocks_high_water", most_blocks);
    fake_cudart_reports("dead_communicator_uses", fake_nccl_dead_uses);
}

/* Whether there is no such communicator (any more), and the refusal in *result then. */
static bool is_gone(struct ncclComm *comm, const char *function, ncclResult_t *result)
{
    if (comm && !atomic_load(&comm->gone))
        return false;
    dead_uses += comm != NULL;
    *result = fake_refuse_call(NULL, ncclInvalidArgument, "%s: no such communicator: it %s", function,
                               comm ? "was destroyed or aborted" : "is NULL");
    return true;
}

/* ---- entering a call ---- */

/* Milliseconds of the environment. */
static void sleep_for_setting(const char *name)
{
    const char *ms = getenv(name);
    if (ms)
        clock_sleep_until(instant_add(clock_now(NULL), atoi(ms) * NS_PER_MS));
}

/* A rank that is slow where the others' doings meet it late. */
static void be_late(int rank)
{
    const char *text = getenv("FAKE_NCCL_LATE");
    int who, ms;
    if (text && sscanf(text, "%d:%d", &who, &ms) == 2 && who == rank)
        clock_sleep_until(instant_add(clock_now(NULL), ms * NS_PER_MS));
}

static void reap_helper(struct ncclComm *comm)
{
    if (comm->has_helper)
        (void)pthread_join(comm->helper, NULL);
    comm->has_helper = false;
}

ncclResult_t fake_enter(struct ncclComm *comm, const char *function)
{
    ncclResult_t result = ncclSuccess;
    if (is_gone(comm, function, &result))
        return result;
    if (atomic_exchange(&comm->busy, true))
        return fake_refuse_call(comm, ncclInvalidUsage,
                                "%s on rank %d: two threads use one communicator at once", function,
                                comm->rank);
    sleep_for_setting("FAKE_NCCL_LINGER");
    int state = atomic_load(&comm->state);
    if (fake_refuse(function))
        result = fake_refuse_call(comm, ncclSystemError, "%s is refused by FAKE_CUDA_FAIL", function);
    else if (state == ncclInProgress && ++early_uses)
        result = fake_refuse_call(comm, ncclInvalidArgument,
                                  "%s on rank %d: the communicator is not ready, its state is ncclInProgress",
                                  function, comm->rank);
    else if (state != ncclSuccess)
        result = fake_refuse_call(NULL, ncclInvalidUsage, /* keeps the reason */
                                  "%s on rank %d: after an asynchronous error only ncclCommAbort is left",
                                  function, comm->rank);
    if (result != ncclSuccess)
        fake_leave(comm);
    else
        reap_helper(comm);
    return result;
}

void fake_leave(struct ncclComm *comm)
{
    dead_uses += atomic_load(&comm->gone);
    atomic_store(&comm->busy, false);
}

ncclResult_t fake_later(struct ncclComm *comm, void *(*run)(void *), void *argument)
{
    atomic_store(&comm->state, ncclInProgress);
    if (!comm->blocking) {
        reap_helper(comm);
        if (!pthread_create(&comm->helper, NULL, run, argument)) {
            comm->has_helper = true;
            return ncclInProgress;
        }
    }
    (void)run(argument);
    int state = atomic_load(&comm->state);
    return (ncclResult_t)state;
}

/* Work begun by fake_later is done. */
static void ready(struct ncclComm *comm)
{
    int waits = ncclInProgress;
    (void)atomic_compare_exchange_strong(&comm->state, &waits, ncclSuccess);
}

/* ---- making ---- */

static struct ncclComm *make(struct fake_shared *shared, struct fake_rank *device, int rank, int size,
                             bool blocking)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (!comm)
        return NULL;
    comm->shared = shared;
    comm->device = device;
    comm->rank = rank;
    comm->size = size;
    comm->cuda_device = fake_cudart_device();
    comm->blocking = blocking;
    comm->aborted = &comm->own_aborted;
    (void)pthread_mutex_init(&comm->lock, NULL);
    atomic_fetch_add(&device->references, 1);
    shared->members[rank].device_rank = device->rank;
    (void)pthread_mutex_lock(&all_lock);
    comm->next = all;
    all = comm;
    (void)pthread_mutex_unlock(&all_lock);
    return comm;
}

static struct fake_rank *device_of(int rank, struct fake_shared *shared)
{
    struct fake_rank *device = calloc(1, sizeof *device);
    if (!device)
        return NULL;
    device->rank = rank;
    device->first = shared;
    (void)pthread_mutex_init(&device->one, NULL);
    return device;
}

static bool has_parts(const struct ncclComm *comm)
{
    bool has = false;
    (void)pthread_mutex_lock(&all_lock);
    for (const struct ncclComm *part = all; part; part = part->next)
        has |= part->shares == comm && !atomic_load(&part->gone);
    (void)pthread_mutex_unlock(&all_lock);
    return has;
}

/* A unique id's contents: the place of the shared memory. */
FAKE_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    if (fake_refuse("ncclGetUniqueId"))
        return fake_refuse_call(NULL, ncclSystemError, "ncclGetUniqueId is refused by FAKE_CUDA_FAIL");
    if (!id)
        return fake_refuse_call(NULL, ncclInvalidArgument, "ncclGetUniqueId: no place for the id");
    int fd = fake_shared_create();
    if (fd < 0)
        return fake_refuse_call(NULL, ncclSystemError, "ncclGetUniqueId: no shared memory");
    memset(id, 0, sizeof *id);
    (void)snprintf(id->internal, sizeof id->internal, "fake-nccl %d %d", (int)getpid(), fd);
    return ncclSuccess;
}

/* Its maker keeps the descriptor until all ranks have come. */
static void close_of_id(const char *id)
{
    int pid, fd;
    if (sscanf(id, "fake-nccl %d %d", &pid, &fd) == 2 && pid == getpid())
        (void)close(fd);
}

struct joining {
    struct ncclComm *comm;
    ncclComm_t *out;
    char id[NCCL_UNIQUE_ID_BYTES];
};

static void *join(void *argument)
{
    struct joining *joining = argument;
    struct ncclComm *comm = joining->comm;
    struct fake_shared *shared = comm->shared;
    int none = 0;
    if (!atomic_compare_exchange_strong(&shared->size, &none, comm->size) && none != comm->size)
        fake_fail(comm, ncclInvalidUsage, "rank %d makes a communicator of %d ranks, another rank one of %d",
                  comm->rank, comm->size, none);
    atomic_fetch_add(&shared->joined, 1);
    fake_ring_bell(shared);
    while (atomic_load(&shared->joined) < comm->size && !atomic_load(comm->aborted))
        fake_wait_bell(shared, fake_bell(shared));
    if (comm->rank == 0) /* one closer, also where all ranks are threads of one process */
        close_of_id(joining->id);
    __atomic_store_n(joining->out, comm, __ATOMIC_RELEASE); /* once more, as in NCCL */
    free(joining);
    ready(comm);
    return NULL;
}

static ncclResult_t check_config(const ncclConfig_t *config)
{
    if (config && (config->magic != 0xcafebeef || config->size < 3 * sizeof(int)))
        return fake_refuse_call(NULL, ncclInvalidArgument,
                                "the config does not begin as NCCL_CONFIG_INITIALIZER");
    if (config && config->maxCTAs != NCCL_CONFIG_UNDEF_INT &&
        (config->maxCTAs < 1 || config->maxCTAs > FAKE_BLOCKS ||
         (config->minCTAs != NCCL_CONFIG_UNDEF_INT && config->minCTAs > config->maxCTAs)))
        return fake_refuse_call(NULL, ncclInvalidArgument, "%d to %d blocks", config->minCTAs,
                                config->maxCTAs);
    return ncclSuccess;
}

FAKE_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                                ncclConfig_t *config)
{
    int pid, fd;
    if (fake_refuse("ncclCommInitRankConfig"))
        return fake_refuse_call(NULL, ncclSystemError, "ncclCommInitRankConfig is refused by FAKE_CUDA_FAIL");
    if (!out || size < 1 || size > FAKE_RANKS || rank < 0 || rank >= size)
        return fake_refuse_call(NULL, ncclInvalidArgument, "rank %d of %d", rank, size);
    if (check_config(config) != ncclSuccess)
        return ncclInvalidArgument;
    if (sscanf(id.internal, "fake-nccl %d %d", &pid, &fd) != 2)
        return fake_refuse_call(NULL, ncclInvalidArgument, "rank %d: that is no unique id", rank);
    const char *show = getenv("FAKE_NCCL_SHOW");
    if (show)
        (void)fprintf(stderr, "fake NCCL: %s is %s\n", show, getenv(show) ? getenv(show) : "not set");
    be_late(rank);
    struct fake_shared *shared = fake_shared_map(pid, fd);
    if (!shared)
        return fake_refuse_call(NULL, ncclSystemError,
                                "rank %d: the maker of the unique id, process %d, has gone", rank, pid);
    if (rank == 0)
        fake_ras_start(pid, fd, size);
    struct fake_rank *device = device_of(rank, shared);
    struct ncclComm *comm =
        device ? make(shared, device, rank, size, !config || config->blocking != 0) : NULL;
    note_config(config, size);
    if (comm)
        comm->split_share = config && config->splitShare == 1;
    struct joining *joining = calloc(1, sizeof *joining);
    if (!comm || !joining)
        return fake_refuse_call(NULL, ncclSystemError, "no memory");
    joining->comm = comm;
    joining->out = out;
    memcpy(joining->id, id.internal, sizeof joining->id);
    *out = comm;
    return fake_later(comm, join, joining);
}

FAKE_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(out, size, id, rank, NULL);
}

static void let_go(struct ncclComm *comm)
{
    reap_helper(comm);
    struct fake_rank *device = comm->device;
    atomic_store(&comm->gone, true);
    (void)pthread_mutex_lock(&all_lock); /* fake_find looks into living ones only */
    if (comm->shared != device->first)
        fake_shared_unmap(comm->shared);
    if (atomic_fetch_sub(&device->references, 1) ==
        1) /* its memory is that of all operations on the device */
        fake_shared_unmap(device->first);
    (void)pthread_mutex_unlock(&all_lock);
}

/* ---- splitting ---- */

struct splitting {
    struct ncclComm *parent;
    int color, key;
    bool blocking, split_share;
    ncclComm_t *out;
};

/* The members of our color, by key, then by rank; our place among them. */
static int part_of(const struct ncclComm *parent, int color, int members[FAKE_RANKS], int *rank)
{
    const struct fake_member *all_members = parent->shared->members;
    int count = 0;
    for (int other = 0; other < parent->size; other++) {
        if (all_members[other].color != color)
            continue;
        int at = count++;
        for (; at > 0 && all_members[members[at - 1]].key > all_members[other].key; at--)
            members[at] = members[at - 1];
        members[at] = other;
    }
    for (int i = 0; i < count; i++) {
        if (members[i] == parent->rank)
            *rank = i;
    }
    return count;
}

/* With any result, the new communicator is in *made. */
static bool do_split(const struct splitting *s, struct ncclComm **made)
{
    struct ncclComm *parent = s->parent;
    struct fake_member *all_members = parent->shared->members, *me = &all_members[parent->rank];
    uint64_t waits = fake_waits_of(FAKE_ALL_GATHER, -1, 0);
    int members[FAKE_RANKS], rank = 0, fd = -1;
    me->color = s->color;
    me->key = s->key;
    me->pid = getpid();
    if (!fake_meet(parent, waits))
        return false;
    int size = s->color < 0 ? 0 : part_of(parent, s->color, members, &rank);
    if (size && rank == 0)
        me->part_fd = fd = fake_shared_create();
    struct fake_shared *shared = NULL;
    if (fake_meet(parent, waits) && size)
        shared = fake_shared_map(all_members[members[0]].pid, all_members[members[0]].part_fd);
    bool met = fake_meet(parent, waits);
    if (fd >= 0)
        (void)close(fd);
    if (!met || (size && !shared))
        return false;
    *made = size ? make(shared, parent->device, rank, size, s->blocking) : NULL;
    if (*made && parent->split_share) {
        sharing++;
        (*made)->shares = parent;
        (*made)->aborted = parent->aborted;
    }
    if (*made) {
        (*made)->split_share = s->split_share;
        (*made)->cuda_device = parent->cuda_device; /* not that of this thread */
    }
    if (!fake_meet(parent, waits)) /* colors are read no more */
        return false;
    be_late(parent->device->rank);
    return !atomic_load(parent->aborted);
}

/* A new communicator of non-blocking ones is not ready at once either. */
static void *settle(void *argument)
{
    struct ncclComm *comm = argument;
    clock_sleep_until(instant_add(clock_now(NULL), 2 * NS_PER_MS));
    sleep_for_setting("FAKE_NCCL_SETTLE"); /* while the old one is not ready either */
    sleep_for_setting("FAKE_NCCL_SETTLE");
    ready(comm);
    return NULL;
}

static void *split(void *argument)
{
    struct splitting *s = argument;
    struct ncclComm *parent = s->parent, *made = NULL;
    if (do_split(s, &made)) {
        if (made && !made->blocking)
            (void)fake_later(made, settle, made);
        __atomic_store_n(s->out, made, __ATOMIC_RELEASE); /* not before, as in NCCL */
        sleep_for_setting("FAKE_NCCL_SETTLE");
    } else {
        if (made) /* and then the split was aborted */
            let_go(made);
        if (!atomic_load(parent->aborted))
            fake_fail(parent, ncclSystemError, "rank %d: the split failed", parent->rank);
    }
    free(s);
    ready(parent);
    return NULL;
}

FAKE_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                                       ncclConfig_t *config)
{
    ncclResult_t result = fake_enter(comm, "ncclCommSplit");
    if (result != ncclSuccess)
        return result;
    struct splitting *s = calloc(1, sizeof *s);
    if (!out || !s || check_config(config) != ncclSuccess || color < NCCL_SPLIT_NOCOLOR)
        result = fake_refuse_call(comm, ncclInvalidArgument, "ncclCommSplit on rank %d: color %d", comm->rank,
                                  color);
    else if (atomic_load(&comm->done) != comm->issued)
        result = fake_refuse_call(comm, ncclInvalidUsage,
                                  "ncclCommSplit on rank %d: operations are under way", comm->rank);
    if (result == ncclSuccess) {
        *out = NULL;
        *s = (struct splitting){comm,
                                color,
                                key,
                                config && config->blocking != NCCL_CONFIG_UNDEF_INT ? config->blocking != 0
                                                                                    : comm->blocking,
                                config ? config->splitShare == 1 : comm->split_share,
                                out};
        result = fake_later(comm, split, s);
        /* NCCL 2.28.9 says ncclSuccess although it has only begun: the state alone tells. */
        result = result == ncclInProgress ? ncclSuccess : result;
    } else {
        free(s);
    }
    fake_leave(comm);
    return result;
}

/* ---- questions ---- */

FAKE_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    ncclResult_t refused;
    if (is_gone(comm, "ncclCommGetAsyncError", &refused))
        return refused;
    if (!result)
        return fake_refuse_call(comm, ncclInvalidArgument, "ncclCommGetAsyncError: no place for the state");
    if (fake_refuse("ncclCommGetAsyncError"))
        return fake_refuse_call(comm, ncclSystemError, "ncclCommGetAsyncError is refused by FAKE_CUDA_FAIL");
    *result = (ncclResult_t)atomic_load(&comm->state);
    return ncclSuccess;
}

FAKE_EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    ncclResult_t result = fake_enter(comm, "ncclCommCount");
    if (result != ncclSuccess)
        return result;
    *count = comm->size;
    fake_leave(comm);
    return ncclSuccess;
}

FAKE_EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    ncclResult_t result = fake_enter(comm, "ncclCommUserRank");
    if (result != ncclSuccess)
        return result;
    *rank = comm->rank;
    fake_leave(comm);
    return ncclSuccess;
}

/* ---- the end ---- */

static void *finalize(void *argument)
{
    struct ncclComm *comm = argument;
    struct fake_shared *shared = comm->shared;
    fake_cudart_release_all();
    while (atomic_load(&comm->done) != comm->issued && !atomic_load(comm->aborted))
        fake_wait_bell(shared, fake_bell(shared));
    atomic_fetch_add(&shared->finalized, 1);
    fake_ring_bell(shared);
    while (atomic_load(&shared->finalized) < comm->size && !atomic_load(comm->aborted))
        fake_wait_bell(shared, fake_bell(shared));
    atomic_store(&comm->finalized, true);
    ready(comm);
    return NULL;
}

FAKE_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t result = fake_enter(comm, "ncclCommFinalize");
    if (result != ncclSuccess)
        return result;
    result = atomic_load(&comm->finalized)
                 ? fake_refuse_call(comm, ncclInvalidArgument, "ncclCommFinalize: called twice")
                 : fake_later(comm, finalize, comm);
    fake_leave(comm);
    return result;
}

FAKE_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ncclResult_t result = fake_enter(comm, "ncclCommDestroy");
    if (result != ncclSuccess)
        return result;
    if (comm->blocking && !atomic_load(&comm->finalized) && !has_parts(comm))
        (void)finalize(comm);
    if (atomic_load(&comm->done) != comm->issued && !atomic_load(comm->aborted))
        result = fake_refuse_call(comm, ncclInvalidUsage,
                                  "ncclCommDestroy on rank %d: operations are under way", comm->rank);
    else if (has_parts(comm))
        result = fake_refuse_call(comm, ncclInvalidUsage,
                                  "ncclCommDestroy on rank %d: a part that shares its resources lives",
                                  comm->rank);
    fake_leave(comm);
    return result == ncclSuccess ? fake_finish_abort(comm)
                                 : result; /* an abort may just have ended its work */
}

ncclResult_t fake_finish_abort(struct ncclComm *comm)
{
    struct instant limit = instant_add(clock_now(NULL), 20 * NS_PER_S);
    while (atomic_load(&comm->done) != comm->issued && !instant_reached(clock_now(NULL), limit)) {
        fake_cudart_release_all(); /* with what another thread has enqueued in the meantime */
        fake_wait_bell(comm->shared, fake_bell(comm->shared));
    }
    if (atomic_load(&comm->done) != comm->issued)
        return fake_refuse_call(comm, ncclInternalError,
                                "ncclCommAbort on rank %d: the device work of this communicator waits behind "
                                "that of another one; abort both in one group",
                                comm->rank);
    let_go(comm);
    return ncclSuccess;
}

/* May be called while another thread is inside a call. */
FAKE_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    ncclResult_t refused;
    if (is_gone(comm, "ncclCommAbort", &refused))
        return refused;
    if (fake_refuse("ncclCommAbort") || getenv("FAKE_NCCL_NO_ABORT"))
        return fake_refuse_call(comm, ncclSystemError, "ncclCommAbort is refused by FAKE_CUDA_FAIL");
    atomic_store(comm->aborted, true);
    (void)pthread_mutex_lock(&all_lock);
    for (struct ncclComm *other = all; other; other = other->next) {
        if (other->aborted == comm->aborted && !atomic_load(&other->gone))
            fake_ring_bell(other->shared);
    }
    (void)pthread_mutex_unlock(&all_lock);
    if (fake_group_open()) {
        fake_group_add_abort(comm);
        return ncclSuccess;
    }
    return fake_finish_abort(comm);
}
