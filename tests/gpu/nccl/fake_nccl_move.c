/* fake_nccl_move.c - the device's part of an operation: on the stream's thread, chunk by chunk through
 * the shared memory. */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/nccl/fake_nccl.h"

static bool stopped(struct ncclComm *comm)
{
    int state = atomic_load(&comm->state);
    return atomic_load(comm->aborted) || (state != ncclSuccess && state != ncclInProgress);
}

static bool same(const struct fake_signature *a, const struct fake_signature *b)
{
    return a->count == b->count && a->kind == b->kind && a->dtype == b->dtype && a->op == b->op &&
           a->root == b->root;
}

static bool mismatch(struct ncclComm *comm, const struct fake_signature *mine, int peer,
                     const struct fake_signature *theirs, uint64_t number)
{
    char one[128], two[128];
    fake_fail(comm, ncclInvalidUsage, "operation %llu differs: rank %d %s, rank %d %s",
              (unsigned long long)number, comm->rank, fake_signature_text(one, mine), peer,
              fake_signature_text(two, theirs));
    return false;
}

/* ---- collectives ---- */

static bool agree(struct ncclComm *comm, const struct fake_op *op, uint64_t waits)
{
    uint64_t number = comm->collectives++;
    comm->shared->members[comm->rank].ring[number % FAKE_RING] = op->signature;
    if (!fake_meet(comm, waits))
        return false;
    for (int rank = 0; rank < comm->size; rank++) {
        const struct fake_signature *theirs = &comm->shared->members[rank].ring[number % FAKE_RING];
        if (!same(theirs, &op->signature))
            return mismatch(comm, &op->signature, rank, theirs, number);
    }
    return true;
}

/* One pass over elements first..first+count of each rank's input. */
struct pass {
    struct ncclComm *comm;
    const struct fake_op *op;
    size_t element, first, count;
};

static void give(const struct pass *p)
{
    const struct fake_signature *s = &p->op->signature;
    char *slot = p->comm->shared->slot[p->comm->rank];
    if (s->kind == FAKE_BROADCAST && s->root != p->comm->rank)
        return;
    memcpy(slot, (const char *)p->op->send + p->first * p->element, p->count * p->element);
    if (s->op == ncclAvg && (s->kind == FAKE_ALL_REDUCE || s->kind == FAKE_REDUCE_SCATTER))
        fake_average(slot, p->count, s->dtype, p->comm->size);
}

/* The reduced elements of this pass that lie in from..to of the input go to the output, which begins at from.
 */
static void reduce(const struct pass *p, size_t from, size_t to)
{
    const struct fake_signature *s = &p->op->signature;
    size_t low = p->first > from ? p->first : from;
    size_t high = p->first + p->count < to ? p->first + p->count : to;
    if (low >= high)
        return;
    char *out = (char *)p->op->recv + (low - from) * p->element;
    size_t at = (low - p->first) * p->element;
    memcpy(out, p->comm->shared->slot[0] + at, (high - low) * p->element);
    for (int rank = 1; rank < p->comm->size; rank++)
        fake_combine(out, p->comm->shared->slot[rank] + at, high - low, s->dtype, s->op);
}

static void take(const struct pass *p)
{
    const struct fake_signature *s = &p->op->signature;
    const struct fake_shared *shared = p->comm->shared;
    char *recv = p->op->recv;
    switch (s->kind) {
    case FAKE_ALL_GATHER:
        for (int rank = 0; rank < p->comm->size; rank++)
            memcpy(recv + ((size_t)rank * s->count + p->first) * p->element, shared->slot[rank],
                   p->count * p->element);
        break;
    case FAKE_BROADCAST:
        memcpy(recv + p->first * p->element, shared->slot[s->root], p->count * p->element);
        break;
    case FAKE_REDUCE_SCATTER:
        reduce(p, (size_t)p->comm->rank * s->count, ((size_t)p->comm->rank + 1) * s->count);
        break;
    default:
        reduce(p, 0, s->count);
        break;
    }
}

static bool collective(struct ncclComm *comm, const struct fake_op *op)
{
    const struct fake_signature *s = &op->signature;
    uint64_t waits = fake_waits_of(s->kind, -1, op->number);
    size_t element = fake_type_size(s->dtype), most = FAKE_SLOT / element;
    size_t total = s->count * (s->kind == FAKE_REDUCE_SCATTER ? (size_t)comm->size : 1);
    if (!agree(comm, op, waits))
        return false;
    for (size_t at = 0; at < total; at += most) {
        const struct pass p = {comm, op, element, at, total - at < most ? total - at : most};
        give(&p);
        if (!fake_meet(comm, waits))
            return false;
        take(&p);
        if (!fake_meet(comm, waits))
            return false;
    }
    return true;
}

/* ---- sends and receives ---- */

static bool advance_send(struct ncclComm *comm, struct fake_op *op)
{
    struct fake_shared *shared = comm->shared;
    int peer = op->signature.root;
    struct fake_letter *letter = &shared->letters[comm->rank][peer];
    uint64_t bytes = op->signature.count * fake_type_size(op->signature.dtype), left = bytes - op->moved;
    if (atomic_load(&letter->sent) != atomic_load(&letter->taken))
        return false; /* the piece before is still there */
    if (op->moved && !left) {
        op->done = true; /* all has been taken */
        return true;
    }
    uint64_t piece = left < FAKE_LETTER ? left : FAKE_LETTER;
    memcpy(shared->letter[comm->rank][peer], (const char *)op->send + op->moved, piece);
    letter->signature = op->signature;
    letter->number = op->number;
    op->moved += piece;
    op->done = !bytes; /* nothing to wait for */
    atomic_fetch_add(&letter->sent, 1);
    fake_ring_bell(shared);
    return true;
}

static bool advance_recv(struct ncclComm *comm, struct fake_op *op)
{
    struct fake_shared *shared = comm->shared;
    int peer = op->signature.root;
    struct fake_letter *letter = &shared->letters[peer][comm->rank];
    uint64_t bytes = op->signature.count * fake_type_size(op->signature.dtype), left = bytes - op->moved;
    if (atomic_load(&letter->sent) == atomic_load(&letter->taken))
        return false;
    if (letter->signature.count != op->signature.count || letter->signature.dtype != op->signature.dtype)
        return mismatch(comm, &op->signature, peer, &letter->signature, letter->number);
    uint64_t piece = left < FAKE_LETTER ? left : FAKE_LETTER;
    memcpy((char *)op->recv + op->moved, shared->letter[peer][comm->rank], piece);
    op->moved += piece;
    op->done = op->moved == bytes;
    atomic_fetch_add(&letter->taken, 1);
    fake_ring_bell(shared);
    return true;
}

/* For one peer and direction only the first that is not done may move: letters keep their order. */
static bool is_next(const struct fake_work *work, int i)
{
    for (int before = 0; before < i; before++) {
        const struct fake_op *other = &work->ops[before];
        if (!other->done && other->signature.kind == work->ops[i].signature.kind &&
            other->signature.root == work->ops[i].signature.root)
            return false;
    }
    return true;
}

/* Which sends and receives are not done. */
static void publish(const struct fake_work *work, struct fake_member *me)
{
    uint64_t open[2] = {0};
    for (int i = 0; i < work->count; i++)
        if (fake_is_pair(work->ops[i].signature.kind) && !work->ops[i].done)
            open[work->ops[i].signature.kind == FAKE_RECV] |= UINT64_C(1) << work->ops[i].signature.root;
    atomic_store(&me->open[0], open[0]);
    atomic_store(&me->open[1], open[1]);
}

/* All sends and receives of the work at once. */
static bool pairs(struct fake_work *work)
{
    struct ncclComm *comm = work->comm;
    struct fake_member *me = &comm->shared->members[comm->rank];
    struct fake_patience patience = {0};
    for (;;) {
        uint32_t seen = fake_bell(comm->shared);
        bool moved = false;
        int open = 0;
        const struct fake_op *waits = NULL;
        for (int i = 0; i < work->count; i++) {
            struct fake_op *op = &work->ops[i];
            if (!fake_is_pair(op->signature.kind) || op->done)
                continue;
            if (is_next(work, i))
                moved |= op->signature.kind == FAKE_SEND ? advance_send(comm, op) : advance_recv(comm, op);
            open += !op->done;
            waits = op->done ? waits : op;
        }
        if (stopped(comm))
            return false;
        if (!open)
            break;
        if (moved) {
            patience = (struct fake_patience){0};
            continue;
        }
        publish(work, me);
        atomic_store(&me->waits, fake_waits_of(waits->signature.kind, waits->signature.root, waits->number));
        fake_wait_bell(comm->shared, seen);
        fake_wait_in_vain(comm, waits->signature.root, &patience);
    }
    atomic_store(&me->waits, 0);
    atomic_store(&me->open[0], 0);
    atomic_store(&me->open[1], 0);
    return true;
}

/* ---- a launch ---- */

static bool run_all(struct fake_work *work)
{
    struct ncclComm *comm = work->comm;
    for (int i = 0; i < work->count; i++) {
        struct fake_op *op = &work->ops[i];
        op->number = atomic_fetch_add(&comm->device->operations, 1) + 1;
        if (!fake_faults(comm, op) || stopped(comm))
            return false;
        atomic_fetch_add(&comm->device->first->members[comm->device->rank].started, 1);
        if (!fake_is_pair(op->signature.kind) && !collective(comm, op))
            return false;
    }
    return pairs(work);
}

/* As a kernel on a GPU that lost its peers. */
static void spin_until_aborted(struct ncclComm *comm)
{
    while (!atomic_load(comm->aborted))
        fake_wait_bell(comm->shared, fake_bell(comm->shared));
}

static void take_turn(struct fake_work *work)
{
    struct ncclComm *comm = work->comm;
    while (atomic_load(&comm->done) != work->sequence && !atomic_load(comm->aborted))
        fake_wait_bell(comm->shared, fake_bell(comm->shared)); /* a launch before, on another stream */
}

void fake_work_run(void *argument)
{
    struct fake_work *work = argument;
    struct ncclComm *comm = work->comm;
    struct fake_member *here = &comm->device->first->members[comm->device->rank];
    bool one = fake_one_at_a_time();
    take_turn(work);
    fake_queue_begin(comm, work->place);
    if (one) {
        (void)pthread_mutex_lock(&comm->device->one);
        atomic_store(&here->holds, atomic_load(&comm->shared->uid));
    }
    if (stopped(comm) || !run_all(work))
        spin_until_aborted(comm);
    if (one) {
        atomic_store(&here->holds, 0);
        (void)pthread_mutex_unlock(&comm->device->one);
    }
}

void fake_work_dispose(void *argument)
{
    struct fake_work *work = argument;
    struct ncclComm *comm = work->comm;
    fake_queue_leave(comm, work->place);
    atomic_fetch_add(&comm->done, 1);
    fake_ring_bell(comm->shared);
    free(work);
}
