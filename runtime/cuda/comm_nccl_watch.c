/* comm_nccl_watch.c - the thread of a family: see comm_nccl_family.h. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"
#include "runtime/cuda/comm_nccl_family.h"
#include "runtime/cuda/comm_nccl_ras.h"
#include "runtime/cuda/cuda_query.h"

void nccl_watch_wake(struct nccl_family *family)
{
    const uint64_t one = 1;
    (void)!write(family->wake, &one, sizeof one); /* the eventfd is readable afterwards in any case */
}

/* ---- this rank's oldest operations; under the lock ---- */

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

static const char *waiting_text(struct nccl_family *family, char text[COMM_CALL_TEXT])
{
    struct nccl_comm *comm = waiting_comm(family);
    int slot;
    if (!comm)
        return NULL;
    (void)oldest(comm, &slot);
    return comm_call_text(text, &comm->comm.calls[slot], atomic_load(&comm->comm.finished) + 1);
}

/* ", after broadcast #8 (...)": what ended last in a comm; "" where nothing has. */
static const char *last_text(struct nccl_family *family, char text[COMM_CALL_TEXT])
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

/* ---- news from others ---- */

static void hear_of_end(struct nccl_family *family, const struct nccl_note *note)
{
    struct muster_error error = {0};
    char text[COMM_CALL_TEXT];
    (void)pthread_mutex_lock(&family->lock);
    for (struct nccl_comm *comm = family->comms; comm; comm = comm->next)
        (void)nccl_advance(comm, NULL); /* an error of the device matters less than the peer's exit */
    const char *call = waiting_text(family, text);
    if (call)
        (void)error_set(&error, MUSTER_E_PEER, "rank %d (pid %d) exited during %s", note->rank, note->pid,
                        call);
    else
        (void)error_set(&error, MUSTER_E_PEER, "rank %d (pid %d) exited between operations of comm %s%s",
                        note->rank, note->pid, family->name, last_text(family, text));
    family->from_peer = true;
    (void)pthread_mutex_unlock(&family->lock);
    nccl_family_fail(family, &error);
}

/* A rank has destroyed a comm: an error once we wait in it for what that rank has not issued. */
static void hear_of_leaving(struct nccl_family *family, const struct nccl_note *note)
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

static void hear_answer(struct nccl_family *family, const struct nccl_note *note)
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

static void hear(void *context, const struct nccl_note *note)
{
    struct nccl_family *family = context;
    switch (note->kind) {
    case NOTE_GONE:
        hear_of_end(family, note);
        break;
    case NOTE_LEFT:
        hear_of_leaving(family, note);
        break;
    case NOTE_ANSWER:
        hear_answer(family, note);
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

static bool is_of_peers_end(ncclResult_t result)
{
    return result == ncclRemoteError || result == ncclSystemError || result == ncclInternalError;
}

/* Runs in the calling thread: the watching thread may be late, or may be the caller. */
int nccl_watch_hear(struct nccl_family *family, ncclResult_t result, struct muster_error *err)
{
    const struct nccl_news_events events = {family, hear};
    const struct instant limit = instant_add(clock_now(NULL), NCCL_HEAR_NS);
    while (family->news && is_of_peers_end(result) && !atomic_load(&family->failed)) {
        nccl_news_serve(family->news, &events);
        const struct instant now = clock_now(NULL);
        if (atomic_load(&family->failed) || instant_reached(now, limit))
            break;
        clock_sleep_until(instant_add(now, NS_PER_MS));
    }
    (void)nccl_family_check(family, err); /* -1 in any case: NCCL's error stands where no peer has failed */
    return -1;
}

static void tell(struct nccl_family *family, struct nccl_note *note)
{
    const struct nccl_news_events events = {family, hear};
    if (family->news)
        nccl_news_tell(family->news, note, &events);
}

/* Once, and before any leaving: the peers would take that for the reason. */
static void tell_failure(struct nccl_family *family)
{
    struct nccl_note note = {.kind = NOTE_FAILURE, .comm = -1};
    (void)pthread_mutex_lock(&family->telling);
    (void)pthread_mutex_lock(&family->lock);
    bool tells = atomic_load(&family->failed) && !family->sent && !family->from_peer;
    note.error = family->error;
    family->sent |= atomic_load(&family->failed);
    (void)pthread_mutex_unlock(&family->lock);
    if (note.error.code == MUSTER_E_CANCELLED)
        (void)error_set(&note.error, MUSTER_E_PEER, "rank %d aborted comm %s", family->rank, family->name);
    if (tells)
        tell(family, &note);
    (void)pthread_mutex_unlock(&family->telling);
}

/* The device failed for a reason of its own: the peers would wait for us. */
static void look_at_device(struct nccl_family *family)
{
    struct muster_error error = {0};
    if (atomic_load(&family->failed) || !family->device_ops->poll_error(family->device, &error))
        return;
    (void)error_wrap(&error, "rank %d stopped", family->rank);
    nccl_family_fail(family, &error);
}

void nccl_watch_left(struct nccl_family *family, const struct nccl_comm *comm)
{
    struct nccl_note note = {
        .kind = NOTE_LEFT, .comm = comm ? comm->number : -1, .color = comm ? comm->color : 0};
    look_at_device(family);
    tell_failure(family);
    (void)pthread_mutex_lock(&family->lock);
    note.issued = note.at = comm ? comm->collectives : 0;
    note.chain = comm ? comm->chain : 0; /* rank 0 compares it with the other ranks' hash at that number */
    (void)pthread_mutex_unlock(&family->lock);
    tell(family, &note);
}

/* ---- looking at a comm ---- */

/* What to do after a look. */
struct look {
    struct nccl_note note; /* kind NOTE_KIND_COUNT: nothing to tell */
    struct muster_error error;
    ncclResult_t result; /* the error is NCCL's */
    bool late;
};

static void note_of(const struct nccl_comm *comm, enum nccl_note_kind kind, struct nccl_note *note)
{
    *note = (struct nccl_note){.kind = kind, .comm = comm->number, .color = comm->color};
    (void)snprintf(note->name, sizeof note->name, "%.63s", comm->comm.name);
    note->issued = note->at = comm->collectives;
    note->chain = comm->chain;
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

/* Handles an operation that has not moved for a while: posts it once, asks for it while it waits, and at last
 * reports an error. */
static void look_at_still(struct nccl_comm *comm, int slot, bool waits, struct instant now, struct look *look)
{
    struct nccl_watched *w = &comm->watched;
    int64_t still = instant_diff_ns(now, w->changed);
    int64_t least = comm->comm.timeout_ns / 8;
    if (still < (least < NCCL_STILL_NS ? least : NCCL_STILL_NS))
        return;
    if (!w->posted || w->posted_issued != w->issued || w->posted_finished != w->finished) {
        note_of(comm, NOTE_POST, &look->note);
        if (waits) {
            look->note.op = comm->comm.calls[slot].op;
            look->note.at = comm->place[slot];
            look->note.chain = comm->chains[slot];
        }
        w->posted = true;
        w->posted_issued = w->issued;
        w->posted_finished = w->finished;
    } else if (waits && instant_diff_ns(now, w->asked) >= NCCL_ASK_NS &&
               !comm_is_pair(comm->comm.calls[slot].op.kind)) {
        note_of(comm, NOTE_ASK, &look->note);
        look->note.issued = comm->place[slot];
        w->asked = now;
    }
    if (waits && w->timing && instant_diff_ns(now, w->begun) >= comm->comm.timeout_ns) {
        late_text(comm, slot, &look->error);
        look->late = true;
    }
}

static void look_at(struct nccl_comm *comm, struct instant now, struct look *look)
{
    struct nccl_family *family = comm->family;
    struct nccl_watched *w = &comm->watched;
    ncclResult_t state = ncclSuccess;
    char text[COMM_CALL_TEXT];
    int slot;
    *look = (struct look){.note = {.kind = NOTE_KIND_COUNT}};
    if (nccl_advance(comm, &look->error))
        return;
    uint64_t issued = atomic_load(&comm->comm.issued), finished = atomic_load(&comm->comm.finished);
    if (issued != w->issued || finished != w->finished || !w->changed.ns)
        w->changed = now;
    if (finished != w->finished)
        w->timing = false;
    w->issued = issued;
    w->finished = finished;
    bool waits = oldest(comm, &slot);
    if (comm->handle) {
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

/* ---- a failure ---- */

/* After a time-out: what NCCL's own service knows, for the report. */
static void ask_ras(struct nccl_family *family)
{
    scope_buffer text = {.limit = 3072};
    if (nccl_ras_ask(&text, NULL) || !text.length)
        return;
    (void)pthread_mutex_lock(&family->lock);
    mem_free(family->report);
    family->report = buffer_take(&text);
    (void)pthread_mutex_unlock(&family->lock);
}

static void look_at_all(struct nccl_family *family)
{
    struct look looks[NEWS_COMMS];
    struct instant now = clock_now(NULL);
    int count = 0;
    bool late = false;
    (void)pthread_mutex_lock(&family->lock);
    for (struct nccl_comm *comm = family->comms; comm && count < NEWS_COMMS; comm = comm->next)
        look_at(comm, now, &looks[count++]);
    (void)pthread_mutex_unlock(&family->lock);
    for (int i = 0; i < count; i++) {
        if (looks[i].note.kind != NOTE_KIND_COUNT)
            tell(family, &looks[i].note);
    }
    for (int i = 0; i < count; i++) {
        if (!looks[i].error.code || atomic_load(&family->failed))
            continue;
        if (looks[i].result != ncclSuccess)
            (void)nccl_watch_hear(family, looks[i].result, &looks[i].error);
        late |= looks[i].late;
        nccl_family_fail(family, &looks[i].error);
    }
    if (late) {
        tell_failure(family);
        ask_ras(family);
    }
}

static void use_device(struct nccl_family *family)
{
    struct muster_error error = {0};
    if (!nccl_family_use(family, &error))
        return;
    (void)error_wrap(&error, "the thread that watches comm %s", family->name);
    nccl_family_fail(family, &error);
}

static void *watch(void *context)
{
    struct nccl_family *family = context;
    const struct nccl_news_events events = {family, hear};
    struct pollfd *entries = family->polls;
    use_device(family);
    while (!atomic_load(&family->ends)) {
        uint64_t woken;
        entries[0] = (struct pollfd){.fd = family->wake, .events = POLLIN};
        int count = 1 + (family->news ? nccl_news_polls(family->news, entries + 1) : 0);
        (void)poll(entries, (nfds_t)count, (int)(NCCL_TICK_NS / NS_PER_MS)); /* any result will do */
        (void)!read(family->wake, &woken, sizeof woken);
        if (family->news)
            nccl_news_serve(family->news, &events);
        if (!atomic_load(&family->failed)) {
            look_at_device(family);
            look_at_all(family);
        }
        tell_failure(family);
        if (atomic_load(&family->failed))
            nccl_family_abort_all(family);
    }
    return NULL;
}

int nccl_watch_start(struct nccl_family *family, struct muster_error *err)
{
    struct nccl_note hello = {.kind = NOTE_POST, .comm = -1};
    family->polls = mem_calloc((size_t)family->size + 1, sizeof *family->polls);
    if (!family->polls)
        return error_set(err, MUSTER_E_NOMEM, "no memory to watch comm %s", family->name);
    const int failed = thread_start(&family->watcher, 0, watch, family);
    if (failed)
        return thread_error(err, failed, "the thread that watches comm %s", family->name);
    family->watching = true;
    tell(family, &hello);
    return 0;
}

void nccl_watch_end(struct nccl_family *family)
{
    if (!family->watching)
        return;
    nccl_watch_left(family, NULL);
    atomic_store(&family->ends, true);
    nccl_watch_wake(family);
    (void)pthread_join(family->watcher, NULL);
    family->watching = false;
}
