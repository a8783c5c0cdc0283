/* comm_nccl_end.c - the end of a family's communicators: in order where the peers come along, else by an
 * abort. See comm_nccl_internal.h. */
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/cuda/comm_nccl_internal.h"

/* Ends a communicator that does not block; false: it has to be aborted. at: under the family's lock. */
static bool end_slowly(struct nccl_family *family, ncclComm_t *at, struct muster_error *err)
{
    const struct instant limit = instant_add(clock_now(NULL), family->end_ns);
    const struct nccl_calls *calls = family->calls;
    (void)pthread_mutex_lock(&family->lock);
    ncclComm_t handle = *at;
    ncclResult_t result = handle ? calls->finalize(handle) : ncclInternalError;
    const bool refused = result != ncclSuccess && result != ncclInProgress;
    if (refused)
        (void)nccl_error(calls, handle, result, "ncclCommFinalize", err);
    (void)pthread_mutex_unlock(&family->lock);
    if (refused || nccl_peers_wait(family, handle, limit, "ncclCommFinalize", err))
        return false;
    (void)pthread_mutex_lock(&family->lock);
    result = *at ? calls->destroy(*at) : ncclSuccess; /* NULL: an abort was quicker */
    if (result == ncclSuccess)
        *at = NULL;
    else
        (void)nccl_error(calls, NULL, result, "ncclCommDestroy", err);
    (void)pthread_mutex_unlock(&family->lock);
    return result == ncclSuccess;
}

/* The same for one that blocks: the watching thread ends a call that takes too long. */
static bool end_at_once(struct nccl_comm *comm, struct muster_error *err)
{
    struct nccl_family *family = comm->family;
    const struct nccl_inside call = {.what = "ending", .limit_ns = family->end_ns, .ends = true};
    (void)pthread_mutex_lock(&family->lock);
    ncclComm_t handle = take_pointer(&comm->handle); /* no abort takes it from here on */
    nccl_family_enter(family, comm, call);
    ncclResult_t result = handle ? family->calls->destroy(handle) : ncclInternalError;
    nccl_family_leave(family, comm);
    if (result != ncclSuccess && handle) {
        (void)nccl_error(family->calls, NULL, result, "ncclCommDestroy", err);
        comm->handle = handle;
    }
    (void)pthread_mutex_unlock(&family->lock);
    return result == ncclSuccess;
}

/* Has anything failed, or is an operation stuck that this communicator's abort would wait for? */
static bool has_failed(struct nccl_comm *comm, struct muster_error *err)
{
    struct nccl_family *family = comm->family;
    if (nccl_family_check(family, err) || comm->comm.device_ops->poll_error(comm->comm.device, err))
        return true;
    (void)pthread_mutex_lock(&family->lock);
    (void)nccl_look_advance(comm, NULL);
    (void)pthread_mutex_unlock(&family->lock);
    return err->code && atomic_load(&comm->comm.finished) < atomic_load(&comm->comm.issued);
}

static void abort_one(struct nccl_family *family, ncclComm_t *at)
{
    (void)pthread_mutex_lock(&family->lock);
    ncclComm_t handle = take_pointer(at);
    if (handle)
        nccl_family_abort(family, &handle, 1);
    (void)pthread_mutex_unlock(&family->lock);
}

/* In order; true also where there is no communicator any more. */
static bool end_in_order(struct nccl_comm *comm, struct muster_error *err)
{
    struct nccl_family *family = comm->family;
    (void)pthread_mutex_lock(&family->lock);
    const bool is_there = comm->handle != NULL;
    (void)pthread_mutex_unlock(&family->lock);
    if (!is_there || (family->blocking ? end_at_once(comm, err) : end_slowly(family, &comm->handle, err)))
        return true;
    (void)error_wrap(err, "ending comm %s", comm->comm.name); /* -1: the caller has it */
    return false;
}

/* After a failure this thread may be here before the watching thread. Then too all communicators are
 * aborted in one group: one abort alone would wait, with the lock, for device work after another
 * communicator's. An abort without a failure takes those along that share its flag: an operation on
 * them would end with nothing computed. */
void nccl_end_comm(struct nccl_comm *comm)
{
    struct nccl_family *family = comm->family;
    struct muster_error error = {0};
    if (!has_failed(comm, &error) && end_in_order(comm, &error))
        return;
    if (has_failed(comm, &error)) {
        nccl_family_fail(family, &error);
        nccl_family_abort_all(family);
    } else if (family->blocking) {
        nccl_family_give_up(family, &error);
    }
    abort_one(family, &comm->handle);
}

void nccl_end_base(struct nccl_family *family)
{
    struct muster_error error = {0};
    if (!nccl_family_check(family, &error) && family->base && end_slowly(family, &family->base, &error))
        return;
    abort_one(family, &family->base);
}
