/* comm_nccl_peers.c - a family's messages with its peers: their effects on this rank, and this rank's
 * messages. */
#include <pthread.h>
#include <sched.h>

#include "proto/base/error.h"
#include "runtime/cuda/comm_nccl_internal.h"

/* ---- received ---- */

static void peer_exited(struct nccl_family *family, const struct nccl_note *note)
{
    struct muster_error error = {0};
    char text[COMM_CALL_TEXT];
    (void)pthread_mutex_lock(&family->lock);
    for (struct nccl_comm *comm = family->comms; comm; comm = comm->next)
        (void)nccl_look_advance(comm, NULL); /* its error would be the smaller one */
    const char *call = nccl_look_waiting_text(family, text);
    if (call)
        (void)error_set(&error, MUSTER_E_PEER, "rank %d (pid %d) exited during %s", note->rank, note->pid,
                        call);
    else
        (void)error_set(&error, MUSTER_E_PEER, "rank %d (pid %d) exited between operations of comm %s%s",
                        note->rank, note->pid, family->name, nccl_look_last_text(family, text));
    family->from_peer = true;
    (void)pthread_mutex_unlock(&family->lock);
    nccl_family_fail(family, &error);
}

/* A rank has destroyed a comm: an error once we wait in it for what that rank has not issued. */
static void peer_left(struct nccl_family *family, const struct nccl_note *note)
{
    (void)pthread_mutex_lock(&family->lock);
    for (struct nccl_comm *comm = family->comms; comm; comm = comm->next) {
        if (comm->number != note->comm || comm->color != note->color ||
            (comm->left.pid && comm->left.at <= note->issued))
            continue;
        comm->left.rank = note->rank;
        comm->left.pid = note->pid;
        comm->left.at = note->issued;
    }
    (void)pthread_mutex_unlock(&family->lock);
}

static void answer_received(struct nccl_family *family, const struct nccl_note *note)
{
    (void)pthread_mutex_lock(&family->lock);
    for (struct nccl_comm *comm = family->comms; comm; comm = comm->next) {
        if (comm->number != note->comm || comm->color != note->color)
            continue;
        comm->missing_for = note->issued;
        comm->missing_count = 0;
        for (int rank = 0; rank < comm->comm.size; rank++) {
            for (int i = 0; i < note->missing_count && i < NEWS_MISSING; i++) {
                if (comm->members[rank] == note->missing[i] && comm->missing_count < NEWS_MISSING)
                    comm->missing[comm->missing_count++] = rank;
            }
        }
    }
    (void)pthread_mutex_unlock(&family->lock);
}

static void peers_receive(void *context, const struct nccl_note *note)
{
    struct nccl_family *family = context;
    switch (note->kind) {
    case NOTE_GONE:
        peer_exited(family, note);
        break;
    case NOTE_LEFT:
        peer_left(family, note);
        break;
    case NOTE_ANSWER:
        answer_received(family, note);
        break;
    case NOTE_FAILURE:
        (void)pthread_mutex_lock(&family->lock);
        family->from_peer |= !atomic_load(&family->failed);
        (void)pthread_mutex_unlock(&family->lock);
        nccl_family_fail(family, &note->error);
        break;
    default: /* nothing for a rank to do */
        break;
    }
}

void nccl_peers_serve(struct nccl_family *family)
{
    const struct nccl_news_events events = {family, peers_receive};
    if (family->news)
        nccl_news_serve(family->news, &events);
}

static bool may_be_a_peers_end(ncclResult_t result)
{
    return result == ncclRemoteError || result == ncclSystemError || result == ncclInternalError;
}

/* By the calling thread, since the watching thread may be late, and may be the caller. */
int nccl_peers_reason(struct nccl_family *family, ncclResult_t result, struct muster_error *err)
{
    const struct instant limit = instant_add(clock_now(NULL), NCCL_REPORT_NS);
    while (family->news && may_be_a_peers_end(result) && !atomic_load(&family->failed)) {
        nccl_peers_serve(family);
        const struct instant now = clock_now(NULL);
        if (atomic_load(&family->failed) || instant_reached(now, limit))
            break;
        clock_sleep_until(instant_add(now, NS_PER_MS));
    }
    (void)nccl_family_check(family, err); /* -1 in any case: NCCL's error stands where no peer has failed */
    return -1;
}

int nccl_peers_wait(struct nccl_family *family, ncclComm_t handle, struct instant deadline, const char *what,
                    struct muster_error *err)
{
    enum { OFTEN = 200 }; /* a launch is done sooner than the shortest nap ends */
    int64_t nap = 20 * NS_PER_US;
    for (int turns = 0;; turns++) {
        ncclResult_t state = ncclSuccess;
        (void)pthread_mutex_lock(&family->lock);
        ncclResult_t asked = family->aborted ? ncclSuccess : family->calls->async_error(handle, &state);
        state = asked == ncclSuccess ? state : asked;
        bool failed = state != ncclSuccess && state != ncclInProgress;
        if (failed)
            (void)nccl_error(family->calls, handle, state, what, err);
        (void)pthread_mutex_unlock(&family->lock);
        if (failed)
            return nccl_peers_reason(family, state, err);
        if (nccl_family_check(family, err))
            return -1;
        if (state == ncclSuccess)
            return 0;
        struct instant now = clock_now(NULL);
        if (instant_reached(now, deadline))
            return error_set(err, MUSTER_E_TIMEOUT,
                             "%s: not ready in time on rank %d; NCCL_DEBUG=INFO shows what NCCL waits for",
                             what, family->rank);
        if (turns < OFTEN) {
            (void)sched_yield(); /* cannot fail */
            continue;
        }
        clock_sleep_until(instant_min(deadline, instant_add(now, nap)));
        nap = nap < 5 * NS_PER_MS ? 2 * nap : nap;
    }
}

/* ---- sent ---- */

void nccl_peers_send(struct nccl_family *family, struct nccl_note *note)
{
    const struct nccl_news_events events = {family, peers_receive};
    if (family->news)
        nccl_news_tell(family->news, note, &events);
}

void nccl_peers_send_failure(struct nccl_family *family)
{
    struct nccl_note note = {.kind = NOTE_FAILURE, .comm = -1};
    (void)pthread_mutex_lock(&family->telling);
    (void)pthread_mutex_lock(&family->lock);
    bool tells = atomic_load(&family->failed) && !family->sent && !family->from_peer;
    note.error = family->error;
    if (family->of_device) /* whose text names no rank, and on the peers would be taken for their own */
        (void)error_wrap(&note.error, "rank %d stopped", family->rank);
    family->sent |= atomic_load(&family->failed);
    (void)pthread_mutex_unlock(&family->lock);
    if (note.error.code == MUSTER_E_CANCELLED)
        (void)error_set(&note.error, MUSTER_E_PEER, "rank %d aborted comm %s", family->rank, family->name);
    if (tells)
        nccl_peers_send(family, &note);
    (void)pthread_mutex_unlock(&family->telling);
}

void nccl_peers_leave(struct nccl_family *family, const struct nccl_comm *comm)
{
    struct nccl_note note = {
        .kind = NOTE_LEFT, .comm = comm ? comm->number : -1, .color = comm ? comm->color : 0};
    nccl_look_at_device(family);
    nccl_peers_send_failure(family);
    (void)pthread_mutex_lock(&family->lock);
    note.issued = note.at = comm ? comm->collectives : 0;
    note.chain = comm ? comm->chain : 0; /* rank 0 compares it with the others' operations up to there */
    if (comm)
        note.op = comm->last;
    (void)pthread_mutex_unlock(&family->lock);
    nccl_peers_send(family, &note);
}
