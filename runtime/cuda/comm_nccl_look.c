/* comm_nccl_look.c - a look at a comm: its progress, NCCL's own error, and the time that its oldest operation
 * has taken. The caller has the family's lock, and acts on the result without it (comm_nccl_watch.c). */
#include <stdio.h>

#include "kernels/cuda/check.h"
#include "proto/base/error.h"
#include "runtime/cuda/comm_nccl_internal.h"
#include "runtime/cuda/cuda_query.h"

int nccl_look_advance(struct nccl_comm *comm, struct muster_error *err)
{
    char text[COMM_CALL_TEXT];
    while (!comm->family->aborted && atomic_load(&comm->comm.finished) < atomic_load(&comm->comm.issued)) {
        uint64_t finished = atomic_load(&comm->comm.finished);
        int slot = (int)(finished % COMM_CALLS);
        struct nccl_slot *events = &comm->slots[slot];
        float ms = 0;
        cudaError_t status = cuda_query(cudaEventQuery(events->ended));
        if (status == cudaErrorNotReady)
            return 0;
        if (status != cudaSuccess) {
            (void)cuda_error(err, (int)status, "cudaEventQuery"); /* -1, as we return */
            return error_wrap(err, "%s", comm_call_text(text, &comm->comm.calls[slot], finished + 1));
        }
        /* A lost time does no harm, and the operation has ended: after the last one no rank would hear of a
         * failure. An error of the device is met by its next call as well. */
        if (!events->counts) { /* nothing */
        } else if (cudaEventElapsedTime(&ms, events->begun, events->ended) == cudaSuccess)
            atomic_fetch_add(&comm->comm.busy_ns, (int64_t)((double)ms * (double)NS_PER_MS));
        else
            (void)cudaGetLastError(); /* no later launch of this thread is blamed */
        comm_note_finished(&comm->comm, &comm->comm.calls[slot].op);
    }
    return 0;
}

/* The oldest operation that has not ended; false: all have. */
static bool oldest(struct nccl_comm *comm, int *slot)
{
    uint64_t finished = atomic_load(&comm->comm.finished);
    *slot = (int)(finished % COMM_CALLS);
    return finished < atomic_load(&comm->comm.issued);
}

/* The comm whose operation has been at work the longest; NULL: none is at work. */
static struct nccl_comm *waiting_comm(struct nccl_family *family)
{
    struct nccl_comm *found = NULL;
    int slot;
    for (struct nccl_comm *comm = family->comms; comm; comm = comm->next) {
        if (oldest(comm, &slot) && comm->watched.timing &&
            (!found || comm->watched.begun.ns < found->watched.begun.ns))
            found = comm;
    }
    for (struct nccl_comm *comm = family->comms; comm && !found; comm = comm->next)
        found = oldest(comm, &slot) ? comm : NULL; /* issued, not seen to begin yet */
    return found;
}

const char *nccl_look_waiting_text(struct nccl_family *family, char text[COMM_CALL_TEXT])
{
    struct nccl_comm *comm = waiting_comm(family);
    int slot;
    if (!comm)
        return NULL;
    (void)oldest(comm, &slot);
    return comm_call_text(text, &comm->comm.calls[slot], atomic_load(&comm->comm.finished) + 1);
}

const char *nccl_look_last_text(struct nccl_family *family, char text[COMM_CALL_TEXT])
{
    char op[COMM_TEXT];
    *text = '\0';
    for (struct nccl_comm *comm = family->comms; comm && !*text; comm = comm->next) {
        uint64_t finished = atomic_load(&comm->comm.finished);
        const struct comm_op *last = &comm->comm.calls[(finished + COMM_CALLS - 1) % COMM_CALLS].op;
        if (finished)
            (void)snprintf(text, COMM_CALL_TEXT, ", after %s #%llu (%s)", comm_kind_name(last->kind),
                           (unsigned long long)finished, comm_op_text(op, last));
    }
    return text;
}

static void note_of(const struct nccl_comm *comm, enum nccl_note_kind kind, struct nccl_note *note)
{
    *note = (struct nccl_note){.kind = kind, .comm = comm->number, .color = comm->color};
    (void)snprintf(note->name, sizeof note->name, "%.63s", comm->comm.name);
    note->issued = note->at = comm->collectives;
    note->chain = comm->chain;
    note->op = comm->last;
}

/* Has the oldest operation begun on the device, and since when? */
static void time_oldest(struct nccl_comm *comm, int slot, struct instant now)
{
    if (!comm->watched.timing && cuda_query(cudaEventQuery(comm->slots[slot].begun)) == cudaSuccess) {
        comm->watched.timing = true;
        comm->watched.begun = now;
    }
}

static void late_text(struct nccl_comm *comm, int slot, struct muster_error *error)
{
    char text[COMM_CALL_TEXT];
    struct comm_ranks missing = {0};
    const struct comm_call *call = &comm->comm.calls[slot];
    uint64_t sequence = atomic_load(&comm->comm.finished) + 1;
    for (int i = 0; comm->missing_for == comm->place[slot] && i < comm->missing_count; i++)
        comm_ranks_add(&missing, comm->missing[i]);
    if (missing.count || comm->comm.size == 1) {
        (void)comm_late(call, sequence, &missing, error);
        return;
    }
    (void)error_set(
        error, MUSTER_E_TIMEOUT,
        "%s waited %.1f s on rank %d; every rank has issued it, so a device, a link or NCCL itself is "
        "stuck",
        comm_call_text(text, call, sequence), (double)comm->comm.timeout_ns / (double)NS_PER_S,
        comm->comm.rank);
}

/* An operation without progress is posted once, asked about while it waits, and at last an error. */
static void look_at_still(struct nccl_comm *comm, int slot, bool waits, struct instant now,
                          struct nccl_look *look)
{
    struct nccl_watched *w = &comm->watched;
    int64_t still = instant_diff_ns(now, w->changed);
    int64_t least = comm->comm.timeout_ns / 8;
    const bool asks = waits && !comm_is_pair(comm->comm.calls[slot].op.kind); /* of others' progress */
    if (still < (least < NCCL_STILL_NS ? least : NCCL_STILL_NS))
        return;
    if (!w->posted || w->posted_issued != w->issued || w->posted_finished != w->finished) {
        note_of(comm, NOTE_POST, &look->note);
        if (asks) {
            look->note.op = comm->comm.calls[slot].op;
            look->note.at = comm->place[slot];
            look->note.chain = comm->chains[slot];
        }
        w->posted = true;
        w->posted_issued = w->issued;
        w->posted_finished = w->finished;
    } else if (asks && instant_diff_ns(now, w->asked) >= NCCL_ASK_NS) {
        note_of(comm, NOTE_ASK, &look->note);
        look->note.issued = comm->place[slot];
        w->asked = now;
    }
    if (waits && w->timing && instant_diff_ns(now, w->begun) >= comm->comm.timeout_ns) {
        late_text(comm, slot, &look->error);
        look->late = true;
    }
}

/* A call that has not come back in time. The end of a communicator waits for the peers' ends, which is no
 * failure; but where its operation is under way, that is stuck, and its result is lost. */
static void look_inside(struct nccl_comm *comm, struct instant now, struct nccl_look *look)
{
    const struct nccl_inside *inside = &comm->inside;
    const double seconds = (double)inside->limit_ns / (double)NS_PER_S;
    char text[COMM_CALL_TEXT], number[32] = "";
    int slot;
    if (instant_diff_ns(now, inside->since) < inside->limit_ns)
        return;
    const bool waits = oldest(comm, &slot);
    look->given_up = inside->ends && !waits;
    look->late = !look->given_up;
    if (!inside->ends)
        (void)snprintf(number, sizeof number, " #%llu of",
                       (unsigned long long)atomic_load(&comm->comm.issued) + 1);
    if (inside->ends && waits)
        (void)error_set(&look->error, MUSTER_E_TIMEOUT,
                        "%s comm %s: %s is under way on rank %d and did not end for %.1f s", inside->what,
                        comm->comm.name,
                        comm_call_text(text, &comm->comm.calls[slot], atomic_load(&comm->comm.finished) + 1),
                        comm->comm.rank, seconds);
    else
        (void)error_set(&look->error, MUSTER_E_TIMEOUT,
                        "%s%s comm %s: NCCL's call did not come back for %.1f s on rank %d; "
                        "NCCL_DEBUG=INFO shows what NCCL waits for",
                        inside->what, number, comm->comm.name, seconds, comm->comm.rank);
}

void nccl_look_at(struct nccl_comm *comm, struct instant now, struct nccl_look *look)
{
    struct nccl_family *family = comm->family;
    struct nccl_watched *w = &comm->watched;
    ncclResult_t state = ncclSuccess;
    char text[COMM_CALL_TEXT];
    int slot;
    *look = (struct nccl_look){.note = {.kind = NOTE_KIND_COUNT}};
    if (nccl_look_advance(comm, &look->error))
        return;
    uint64_t issued = atomic_load(&comm->comm.issued), finished = atomic_load(&comm->comm.finished);
    if (issued != w->issued || finished != w->finished || !w->changed.ns)
        w->changed = now;
    if (finished != w->finished)
        w->timing = false;
    w->issued = issued;
    w->finished = finished;
    bool waits = oldest(comm, &slot);
    if (comm->inside.what)
        look_inside(comm, now, look);
    if (look->late || look->given_up)
        return;
    if (comm->handle && !comm->inside.what) {
        ncclResult_t asked = family->calls->async_error(comm->handle, &state);
        state = asked == ncclSuccess ? state : asked;
    }
    if (state != ncclSuccess && state != ncclInProgress) {
        char what[COMM_CALL_TEXT + 32];
        look->result = state;
        (void)snprintf(what, sizeof what, "%s on rank %d",
                       waits || comm->issuing ? comm_call_text(text, &comm->comm.calls[slot], finished + 1)
                                              : comm->comm.name,
                       comm->comm.rank);
        (void)nccl_error(family->calls, comm->handle, state, what, &look->error);
        return;
    }
    if (waits && comm->left.pid && comm->place[slot] > comm->left.at) {
        (void)error_set(&look->error, MUSTER_E_PEER, "rank %d (pid %d) had left the comm before %s",
                        comm->left.rank, comm->left.pid,
                        comm_call_text(text, &comm->comm.calls[slot], finished + 1));
        return;
    }
    if (waits)
        time_oldest(comm, slot, now);
    look_at_still(comm, slot, waits, now, look);
}

void nccl_look_at_device(struct nccl_family *family)
{
    struct muster_error error = {0};
    if (atomic_load(&family->failed) || !family->device_ops->poll_error(family->device, &error))
        return;
    nccl_family_fail(family, &error);
}
