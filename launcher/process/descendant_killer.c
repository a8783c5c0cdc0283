/* descendant_killer.c - see descendant_killer.h. */
#include "launcher/process/descendant_killer.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "launcher/loop/background_job.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"

static const int64_t patience_ns = 2 * NS_PER_S;

struct sweep {
    struct descendants descendants;
    char id[DESCENDANTS_ID_LENGTH];
    pid_t unread[DESCENDANT_KILLER_UNREAD_LIMIT];
    int signal;
    bool spare_groups;
    pid_t reading;   /* atomic */
    unsigned looked; /* atomic */
    pthread_mutex_t lock;
    bool cancelled; /* under the lock, which is held while a signal is sent */
    struct descendants_process left[DESCENDANT_KILLER_LEFT_LIMIT];
    int left_count;
    struct descendants_session sessions[];
};

/* --- the thread --- */

static bool leads_group(const struct sweep *sweep, pid_t group)
{
    for (size_t i = 0; i < sweep->descendants.session_count; i++)
        if (sweep->sessions[i].id == group && !sweep->sessions[i].leaderless)
            return true;
    return false;
}

static bool found(void *context, const struct descendants_process *process)
{
    struct sweep *sweep = context;
    if (sweep->left_count < DESCENDANT_KILLER_LEFT_LIMIT)
        sweep->left[sweep->left_count++] = *process;
    return !sweep->spare_groups || !leads_group(sweep, process->group);
}

static void deliver(void *context, int pidfd, pid_t pid, int signal)
{
    struct sweep *sweep = context;
    pthread_mutex_lock(&sweep->lock);
    if (!sweep->cancelled) {
        descendants_send(pidfd, pid, signal);
        if (signal != SIGKILL)
            descendants_send(pidfd, pid, SIGCONT);
    }
    pthread_mutex_unlock(&sweep->lock);
}

static void run_sweep(void *payload)
{
    struct sweep *sweep = payload;
    struct descendants blind = sweep->descendants;
    blind.blind = true; /* first those found without reading a process's memory */
    if (sweep->signal == SIGKILL)
        (void)descendants_sweep(&blind, sweep->signal, found, sweep);
    sweep->left_count = 0;
    (void)descendants_sweep(&sweep->descendants, sweep->signal, found,
                            sweep); /* without /proc the groups are all there is */
}

static void free_sweep(void *payload)
{
    struct sweep *sweep = payload;
    (void)pthread_mutex_destroy(&sweep->lock); /* no other holder is left */
    mem_free(sweep);
}

/* --- the agent's side --- */

static struct sweep *make(const struct descendant_killer *killer, const struct sweep_order *order)
{
    const size_t count = order->descendants.sessions ? order->descendants.session_count : 0;
    struct sweep *sweep = mem_calloc(1, sizeof *sweep + count * sizeof *sweep->sessions);
    if (!sweep || pthread_mutex_init(&sweep->lock, NULL)) {
        mem_free(sweep);
        return NULL;
    }
    sweep->signal = order->signal;
    sweep->spare_groups = order->spare_groups;
    sweep->descendants = order->descendants;
    if (count)
        memcpy(sweep->sessions, order->descendants.sessions, count * sizeof *sweep->sessions);
    sweep->descendants.sessions = sweep->sessions;
    sweep->descendants.session_count = count;
    memcpy(sweep->unread, killer->unread, sizeof sweep->unread);
    sweep->descendants.unread = sweep->unread;
    sweep->descendants.unread_count = (size_t)killer->unread_count;
    if (order->descendants.id)
        sweep->descendants.id = memcpy(sweep->id, order->descendants.id, DESCENDANTS_ID_LENGTH);
    sweep->descendants.blind =
        killer->unread_count == DESCENDANT_KILLER_UNREAD_LIMIT; /* too many do not respond */
    sweep->descendants.reading = &sweep->reading;
    sweep->descendants.looked = &sweep->looked;
    sweep->descendants.deliver = deliver;
    return sweep;
}

static void release_job(struct descendant_killer *killer)
{
    loop_remove(killer->loop, &killer->done);
    background_job_release(killer->job);
    killer->job = NULL;
    killer->sweep = NULL;
}

static void take_result(struct descendant_killer *killer)
{
    killer->left_count = killer->sweep->left_count;
    memcpy(killer->left, killer->sweep->left, sizeof killer->left);
    release_job(killer);
}

static void done_ready(void *context, uint32_t events)
{
    struct descendant_killer *killer = context;
    (void)events;
    if (background_job_is_done(killer->job))
        take_result(killer);
}

void descendant_killer_cancel(struct descendant_killer *killer)
{
    if (!killer->job)
        return;
    pthread_mutex_lock(&killer->sweep->lock);
    killer->sweep->cancelled = true;
    pthread_mutex_unlock(&killer->sweep->lock);
    release_job(killer);
}

int descendant_killer_start(struct descendant_killer *killer, const struct sweep_order *order,
                            struct muster_error *err)
{
    if (killer->job && killer->sweep->signal == order->signal)
        return 0;
    descendant_killer_cancel(killer);
    struct sweep *sweep = make(killer, order);
    if (!sweep)
        return error_set(err, MUSTER_E_NOMEM, "no memory to look for the workers' processes");
    killer->job =
        background_job_start_or_run("looking for the workers' processes", run_sweep, sweep, free_sweep, err);
    if (!killer->job)
        return -1;
    killer->sweep = sweep;
    killer->deadline = instant_add(clock_now(NULL), patience_ns);
    killer->looked = 0;
    killer->done = (struct loop_source){background_job_fd(killer->job), done_ready, killer};
    if (loop_add(killer->loop, &killer->done, EPOLLIN, err) == 0)
        return 0;
    descendant_killer_wait(killer, patience_ns);
    return -1;
}

int64_t descendant_killer_pause_ns(int64_t elapsed_ns)
{
    const int64_t least_ns = 20 * NS_PER_MS, most_ns = NS_PER_S, pause_ns = elapsed_ns / 8;
    return pause_ns < least_ns ? least_ns : pause_ns < most_ns ? pause_ns : most_ns;
}

void descendant_killer_wait(struct descendant_killer *killer, int64_t patience)
{
    if (killer->job && background_job_wait(killer->job, patience))
        take_result(killer);
}

struct instant descendant_killer_deadline(const struct descendant_killer *killer)
{
    return killer->job ? killer->deadline : INSTANT_NEVER;
}

pid_t descendant_killer_tick(struct descendant_killer *killer, struct instant now)
{
    if (!instant_reached(now, descendant_killer_deadline(killer)))
        return 0;
    const unsigned looked = __atomic_load_n(&killer->sweep->looked, __ATOMIC_RELAXED);
    if (looked != killer->looked) { /* it makes progress, though slowly: the machine is busy, or has very
                                        many processes */
        killer->looked = looked;
        killer->deadline = instant_add(now, patience_ns);
        return 0;
    }
    pid_t stuck = __atomic_load_n(&killer->sweep->reading, __ATOMIC_RELAXED);
    if (stuck && killer->unread_count < DESCENDANT_KILLER_UNREAD_LIMIT)
        killer->unread[killer->unread_count++] = stuck;
    descendant_killer_cancel(killer);
    return stuck;
}
