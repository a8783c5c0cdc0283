/* comm_shm.c - the comm over shared memory as an object: creation, splitting, status, abort. See
 * comm_shm_internal.h for how it works. */
#include "runtime/comm/comm_shm_internal.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"

static void destroy(struct comm *comm);
GUARD_DEFINE(comm, struct comm *, destroy);

/* ---- the control memory ---- */

static int map_page(struct host_comm *host, int fd, struct muster_error *err)
{
    int64_t bytes = host_page_bytes(host->comm.size);
    struct stat status;
    if (fstat(fd, &status))
        return error_errno(err, "looking at control memory");
    if (status.st_size != bytes)
        return error_set(err, MUSTER_E_PROTOCOL,
                         "control memory of %lld bytes, expected %lld; do all ranks run the same version?",
                         (long long)status.st_size, (long long)bytes);
    void *base = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return error_errno(err, "mapping %lld bytes of control memory", (long long)bytes);
    host->page = base;
    return 0;
}

static int make_page(struct host_comm *host, int *out, struct muster_error *err)
{
    scope_close int fd = memfd_create("muster-control", MFD_CLOEXEC);
    if (fd < 0)
        return error_errno(err, "memfd_create for control memory");
    if (ftruncate(fd, host_page_bytes(host->comm.size)))
        return error_errno(err, "control memory of %lld bytes", (long long)host_page_bytes(host->comm.size));
    if (map_page(host, fd, err))
        return -1;
    host->page->magic = HOST_PAGE_MAGIC;
    host->page->size = host->comm.size;
    *out = take_fd(&fd);
    return 0;
}

struct control_message {
    uint64_t magic, id;
};

/* Rank 0 creates the control memory and passes it to the others. */
static int share_page(struct host_comm *host, struct muster_error *err)
{
    const struct control_message mine = {HOST_PAGE_MAGIC, host->id};
    struct instant deadline = instant_add(clock_now(NULL), host->comm.timeout_ns);
    scope_close int fd = -1;
    if (host->comm.rank == 0) {
        if (make_page(host, &fd, err))
            return -1;
        for (int rank = 1; rank < host->comm.size; rank++) {
            if (host_link_send(host->link, host->link_ranks[rank], &mine, sizeof mine, fd, err))
                return -1;
        }
        return 0;
    }
    struct control_message message;
    if (host_link_receive(host->link, host->link_ranks[0], &message, sizeof message, &fd, deadline, err))
        return -1;
    if (fd < 0 || memcmp(&message, &mine, sizeof mine))
        return error_set(err, MUSTER_E_PROTOCOL,
                         "rank 0 of comm %s makes another comm; all ranks make comms in the same order",
                         host->comm.name);
    return map_page(host, fd, err);
}

/* ---- creation ---- */

static uint64_t hash_name(uint64_t hash, const char *name)
{
    return text_hash(hash, name, strlen(name));
}

/* An object without control memory; link_ranks are still to be filled. Takes no reference. */
static struct host_comm *allocate(const struct comm_options *options, struct muster_error *err)
{
    struct host_comm *host = mem_calloc(1, sizeof *host);
    int *link_ranks = mem_calloc((size_t)options->size, sizeof *link_ranks);
    if (!host || !link_ranks) {
        mem_free(host);
        mem_free(link_ranks);
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for comm %s", options->key ? options->key : "alone");
        return NULL;
    }
    comm_init(&host->comm, options, host_run_call);
    host->link_ranks = link_ranks;
    host->patience.moves = true;
    atomic_store(&host->waits_on, HOST_WAITS_ON_NOBODY);
    return host;
}

static struct comm *shm_create(const struct comm_options *options, struct muster_error *err)
{
    if (comm_check_options(options, "a host comm", HOST_RANKS_MAX, err))
        return NULL;
    struct host_comm *host = allocate(options, err);
    if (!host)
        return NULL;
    GUARD(guard_comm) struct comm *comm = &host->comm;
    for (int rank = 0; rank < options->size; rank++)
        host->link_ranks[rank] = rank;
    host->id = hash_name(TEXT_HASH_START, comm->name);
    host->link = host_link_create(options, err);
    if (!host->link || (options->size > 1 && share_page(host, err))) {
        (void)error_wrap(err, "comm %s, rank %d", comm->name, options->rank);
        return NULL;
    }
    return take_pointer(&comm);
}

static void destroy(struct comm *comm)
{
    if (!comm)
        return;
    struct host_comm *host = host_comm_of(comm);
    if (host->page) {
        struct host_channel channel = host_channel_of(host->page, comm->size, comm->rank, -1);
        atomic_store(&channel.members[channel.me].left, 1); /* wakes ranks that still wait for us */
        (void)munmap(host->page, (size_t)host_page_bytes(comm->size)); /* our own mapping, whole */
    }
    host_link_drop(host->link);
    mem_free(host->link_ranks);
    mem_free(host);
}

/* ---- splitting ---- */

struct split_message {
    uint64_t magic, id;
    struct comm_vote vote;
};

/* Exchanges every rank's color and key; votes has size entries, and ours is filled in. */
static int vote(struct host_comm *host, uint64_t id, struct comm_vote *votes, struct muster_error *err)
{
    const struct split_message mine = {HOST_PAGE_MAGIC, id, votes[host->comm.rank]};
    struct instant deadline = instant_add(clock_now(NULL), host->comm.timeout_ns);
    for (int rank = 0; rank < host->comm.size; rank++) {
        if (rank != host->comm.rank &&
            host_link_send(host->link, host->link_ranks[rank], &mine, sizeof mine, -1, err))
            return -1;
    }
    for (int rank = 0; rank < host->comm.size; rank++) {
        struct split_message theirs;
        if (rank == host->comm.rank)
            continue;
        if (host_link_receive(host->link, host->link_ranks[rank], &theirs, sizeof theirs, NULL, deadline,
                              err))
            return -1;
        if (theirs.magic != mine.magic || theirs.id != id)
            return error_set(err, MUSTER_E_PEER,
                             "rank %d splits another comm or uses another name; all ranks must split alike",
                             rank);
        votes[rank] = theirs.vote;
    }
    return 0;
}

static struct comm *make_part(struct host_comm *host, const struct comm_options *options, const int *members,
                              uint64_t id, struct muster_error *err)
{
    struct host_comm *part = allocate(options, err);
    if (!part)
        return NULL;
    GUARD(guard_comm) struct comm *comm = &part->comm;
    part->id = id;
    part->link = host_link_keep(host->link);
    for (int i = 0; i < options->size; i++)
        part->link_ranks[i] = host->link_ranks[members[i]];
    if (options->size > 1 && share_page(part, err))
        return NULL;
    return take_pointer(&comm);
}

static struct comm *split(struct comm *comm, int color, int key, const char *name, struct muster_error *err)
{
    struct host_comm *host = host_comm_of(comm);
    scope_free struct comm_vote *votes = mem_calloc((size_t)comm->size, sizeof *votes);
    scope_free int *members = mem_calloc((size_t)comm->size, sizeof *members);
    if (!votes || !members) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to split comm %s", comm->name);
        return NULL;
    }
    uint64_t id = hash_name(host->id + ++host->splits, name);
    struct comm *part = NULL;
    votes[comm->rank] = (struct comm_vote){color, key};
    if (!vote(host, id, votes, err)) {
        int rank, size = comm_members(votes, comm->size, comm->rank, members, &rank);
        const struct comm_options options = comm_part_options(comm, rank, size, name);
        part = make_part(host, &options, members, id, err);
    }
    if (!part)
        (void)error_wrap(err, "splitting comm %s into %s", comm->name, name);
    return part;
}

/* ---- status ---- */

static void status(struct comm *comm, struct comm_status *out)
{
    struct host_comm *host = host_comm_of(comm);
    comm_status_begin(comm, out);
    int waits_on = atomic_load(&host->waits_on);
    if (waits_on == HOST_WAITS_ON_NOBODY)
        return;
    struct host_channel channel = host_channel_of(host->page, comm->size, comm->rank, waits_on);
    uint32_t phase = host_channel_phase(&channel, channel.me);
    for (int member = 0; member < channel.count; member++) {
        if (!futex_reached(host_channel_phase(&channel, member), phase))
            comm_status_add(out, host_channel_rank(&channel, member));
    }
}

static void abort_waiting(struct comm *comm)
{
    struct host_comm *host = host_comm_of(comm);
    struct muster_error error;
    (void)error_set(&error, MUSTER_E_PEER, "rank %d aborted comm %s", comm_named(comm, comm->rank),
                    comm->name);
    atomic_store(&host->aborted, 1);
    if (host->page)
        host_page_fail(host->page, &error);
}

const struct comm_ops *comm_shm(void)
{
    static const struct comm_ops ops = {
        .abi = COMM_ABI,
        .size = sizeof ops,
        .name = "host",
        .create = shm_create,
        .destroy = destroy,
        .split = split,
        .issue = comm_call_issue,
        .run = comm_call_run,
        .status = status,
        .busy_ns = comm_busy_ns,
        .abort = abort_waiting,
    };
    return &ops;
}
