/* comm_shm_wait.c - the barrier of a channel from one rank's side: missing ranks, lost ranks, the first
 * failure. */
#include "proto/base/error.h"
#include "runtime/comm/comm_shm_internal.h"

int host_break(const struct host_run *run, const struct muster_error *error, struct muster_error *err)
{
    if (error->code != MUSTER_E_CANCELLED) /* an abort is reported to the others */
        host_page_fail(run->comm->page, error);
    if (err)
        *err = *error;
    return -1;
}

/* A failure that another rank, or another thread of ours, has already reported. */
static bool reported_failure(const struct host_run *run, bool patient, struct muster_error *error)
{
    if (atomic_load(&run->comm->aborted)) {
        (void)comm_aborted(run->call, run->sequence, error);
        return true;
    }
    return host_page_failed(run->comm->page, patient, error);
}

/* A member that has not arrived and never will. */
static int check_alive(const struct host_run *run, struct muster_error *error)
{
    const struct host_channel *channel = &run->channel;
    const struct comm *comm = &run->comm->comm;
    struct host_channel all = host_channel_of(run->comm->page, comm->size, comm->rank, -1);
    char text[COMM_CALL_TEXT];
    uint32_t phase = host_channel_phase(channel, channel->me);
    for (int member = 0; member < channel->count; member++) {
        int rank = host_channel_rank(channel, member), peer = run->comm->link_ranks[rank];
        if (member == channel->me)
            continue;
        /* First check for its end, then for its arrival: it may have arrived before it ended. */
        bool gone = host_link_gone(run->comm->link, peer);
        bool left = atomic_load(&all.members[rank].left);
        if (futex_reached(host_channel_phase(channel, member), phase))
            continue;
        if (gone && !left)
            return error_set(error, MUSTER_E_PEER, "rank %d (pid %d) exited during %s",
                             comm_named(comm, rank), (int)run->comm->link->peers[peer].pid,
                             comm_call_text(text, run->call, run->sequence));
        if (left)
            return error_set(error, MUSTER_E_PEER, "rank %d (pid %d) had left the comm before %s",
                             comm_named(comm, rank), (int)run->comm->link->peers[peer].pid,
                             comm_call_text(text, run->call, run->sequence));
    }
    return 0;
}

static int late(const struct host_run *run, struct muster_error *error)
{
    const struct host_channel *channel = &run->channel;
    struct comm_ranks missing = {0};
    uint32_t phase = host_channel_phase(channel, channel->me);
    for (int member = 0; member < channel->count; member++) {
        if (!futex_reached(host_channel_phase(channel, member), phase))
            comm_ranks_add(&missing, comm_named(&run->comm->comm, host_channel_rank(channel, member)));
    }
    return comm_late(run->call, run->sequence, &missing, error);
}

/* After a slice of waiting: is there a reason to stop? */
static bool hopeless(const struct host_run *run, struct instant deadline, struct muster_error *error)
{
    const struct comm *comm = &run->comm->comm;
    if (check_alive(run, error))
        return true;
    if (comm->device_ops->poll_error(comm->device,
                                     error)) { /* another comm failed: do not keep peers waiting here */
        (void)error_wrap(error, "rank %d stopped", comm_named(comm, comm->rank));
        return true;
    }
    return instant_reached(clock_now(NULL), deadline) && late(run, error);
}

/* A rank reports its failure before it leaves or exits, so what was found of it is no reason before the
 * reports were read again; a report that is being written is waited for. */
static bool gives_up(const struct host_run *run, bool found, bool patient, struct muster_error *error)
{
    const bool writing = atomic_load(&run->comm->page->failed) == HOST_FAILURE_WRITING;
    if (reported_failure(run, true, error) || (found && !(writing && patient)))
        return true;
    return !patient && reported_failure(run, false, error);
}

static int wait_for_all(const struct host_run *run, struct muster_error *err)
{
    /* A rank that writes its failure may have to wait for a processor, or died before the end. */
    enum { WRITING_SLICES = 1000 * NS_PER_MS / COMM_SLICE_NS };
    struct muster_error error = {0};
    struct instant deadline = instant_add(clock_now(NULL), run->comm->comm.timeout_ns);
    uint32_t seen;
    bool slice_over = false;
    int slices = 0;
    while (!host_channel_passed(&run->channel, &seen)) {
        slices += slice_over && atomic_load(&run->comm->page->failed) == HOST_FAILURE_WRITING;
        const bool found = slice_over && hopeless(run, deadline, &error);
        if (gives_up(run, found, slices <= WRITING_SLICES, &error)) {
            if (host_channel_passed(&run->channel, &seen))
                break; /* the event we waited for came first */
            return host_break(run, &error, err);
        }
        if (futex_look(run->channel.arrived, seen, &run->comm->patience))
            continue;
        struct instant until = instant_min(deadline, instant_add(clock_now(NULL), COMM_SLICE_NS));
        slice_over = futex_wait(run->channel.arrived, seen, until, FUTEX_SHARED);
    }
    return 0;
}

int host_meet(const struct host_run *run, struct muster_error *err)
{
    uint32_t seen;
    host_channel_arrive(&run->channel);
    if (host_channel_passed(&run->channel, &seen))
        return 0;
    const struct comm_call *call = run->call;
    atomic_store(&run->comm->waits_on, run->channel.pair ? call->op.root : HOST_WAITS_ON_ALL);
    int failed = wait_for_all(run, err);
    atomic_store(&run->comm->waits_on, HOST_WAITS_ON_NOBODY);
    return failed;
}

/* ---- do the records match? ---- */

int host_match(const struct host_run *run, struct muster_error *err)
{
    const struct host_channel *channel = &run->channel;
    const struct comm *comm = &run->comm->comm;
    int parity = (int)(host_channel_phase(channel, channel->me) & 1);
    const struct host_record *first = &channel->members[0].record[parity];
    for (int member = 1; member < channel->count; member++) {
        const struct host_record *other = &channel->members[member].record[parity];
        if (first->sequence == other->sequence && comm_fits(&first->op, &other->op))
            continue;
        struct muster_error error;
        (void)comm_differ(comm->name,
                          (struct comm_issued){comm_named(comm, host_channel_rank(channel, 0)),
                                               first->sequence, &first->op},
                          (struct comm_issued){comm_named(comm, host_channel_rank(channel, member)),
                                               other->sequence, &other->op},
                          &error);
        return host_break(run, &error, err);
    }
    return 0;
}
