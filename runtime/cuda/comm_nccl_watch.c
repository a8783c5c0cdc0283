/* comm_nccl_watch.c - the thread of a family: its loop, its start and its end. See comm_nccl_internal.h. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"
#include "runtime/cuda/comm_nccl_internal.h"

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
    struct nccl_look looks[NEWS_COMMS];
    struct instant now = clock_now(NULL);
    int count = 0;
    bool late = false;
    (void)pthread_mutex_lock(&family->lock);
    for (struct nccl_comm *comm = family->comms; comm && count < NEWS_COMMS; comm = comm->next)
        nccl_look_at(comm, now, &looks[count++]);
    (void)pthread_mutex_unlock(&family->lock);
    for (int i = 0; i < count; i++) {
        if (looks[i].note.kind != NOTE_KIND_COUNT)
            nccl_peers_send(family, &looks[i].note);
    }
    for (int i = 0; i < count; i++) {
        if (looks[i].given_up || !looks[i].error.code || atomic_load(&family->failed))
            continue;
        if (looks[i].result != ncclSuccess)
            (void)nccl_peers_reason(family, looks[i].result, &looks[i].error);
        late |= looks[i].late;
        nccl_family_fail(family, &looks[i].error);
    }
    for (int i = 0; i < count; i++) {
        if (looks[i].given_up)
            nccl_family_give_up(family, &looks[i].error);
    }
    if (late) {
        nccl_peers_send_failure(family);
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
    struct pollfd *entries = family->polls;
    use_device(family);
    while (!atomic_load(&family->ends)) {
        uint64_t woken;
        entries[0] = (struct pollfd){.fd = family->wake, .events = POLLIN};
        int count = 1 + (family->news ? nccl_news_polls(family->news, entries + 1) : 0);
        (void)poll(entries, (nfds_t)count,
                   (int)(NCCL_TICK_NS / NS_PER_MS)); /* the entries are read after any result */
        (void)!read(family->wake, &woken, sizeof woken);
        nccl_peers_serve(family);
        if (!atomic_load(&family->failed)) {
            nccl_look_at_device(family);
            look_at_all(family);
        }
        nccl_peers_send_failure(family);
        if (atomic_load(&family->failed))
            nccl_family_abort_all(family);
    }
    return NULL;
}

static int watch_start(struct nccl_family *family, struct muster_error *err)
{
    struct nccl_note hello = {.kind = NOTE_POST, .comm = -1};
    family->polls = mem_calloc((size_t)family->size + 1, sizeof *family->polls);
    if (!family->polls)
        return error_set(err, MUSTER_E_NOMEM, "no memory to watch comm %s", family->name);
    const int failed = thread_start(&family->watcher, 0, watch, family);
    if (failed)
        return thread_error(err, failed, "the thread that watches comm %s", family->name);
    family->watching = true;
    nccl_peers_send(family, &hello);
    return 0;
}

static void watch_stop(struct nccl_family *family)
{
    if (!family->watching)
        return;
    nccl_peers_leave(family, NULL);
    atomic_store(&family->ends, true);
    nccl_family_wake(family);
    (void)pthread_join(family->watcher, NULL);
    family->watching = false;
}

int nccl_watch_connect(struct nccl_family *family, const struct comm_options *options,
                       struct muster_error *err)
{
    if (options->size > 1 && !(family->news = nccl_news_open(options, err)))
        return -1;
    return watch_start(family, err);
}

void nccl_watch_drop(struct nccl_family *family)
{
    if (!family)
        return;
    (void)pthread_mutex_lock(&family->lock);
    int left = --family->references;
    (void)pthread_mutex_unlock(&family->lock);
    if (left)
        return;
    nccl_end_base(family);
    watch_stop(family);
    nccl_family_free(family);
}
