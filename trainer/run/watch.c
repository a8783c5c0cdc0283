/* watch.c - observer `watch`: figures that are far from their recent mean, a rank that the others wait for,
 * and replicas that differ. See observers.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "trainer/report/stragglers.h"
#include "trainer/run/observers.h"

enum { HOST_BYTES = 64, TEXT_SIZE = 256 };

struct watch {
    struct z_score loss, grad_norm;
    struct straggler_window window;
    double *sums;          /* windows of all ranks */
    struct straggler slow; /* rank of the last window */
    struct straggler_streak streak;
    double waited_ms, step_ms; /* with stages: of this rank, since their idle share was formed last */
};

/* Numbers of `sums`: the last one is the mean time of a step. */
static int64_t sum_count(const struct run *run)
{
    return (int64_t)run->world_size * STRAGGLER_PARTS + 1;
}

static void close_watch(struct run *run)
{
    struct watch *w = run->observers[OBSERVER_watch];
    if (w)
        mem_free(w->sums);
    mem_free(w);
    run->observers[OBSERVER_watch] = NULL;
}

static int open_watch(struct run *run, struct muster_error *err)
{
    struct watch *w = run->observers[OBSERVER_watch] = mem_calloc(1, sizeof *w);
    bool none = !w;
    if (w) {
        w->slow.rank = w->streak.rank = -1;
        if (run->world_size > 1 && run->config.straggler_steps > 0) {
            straggler_window_begin(&w->window, run->config.straggler_steps);
            w->sums = mem_calloc((size_t)sum_count(run), sizeof *w->sums);
            none = !w->sums;
        }
    }
    if (none)
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the waits of %d ranks", run->world_size);
    return muster_world_agree(run->world, none, err);
}

/* On rank 0: a line for people, and an entry of the log. */
static void warn(struct run *run, const char *text)
{
    if (run->rank)
        return;
    console_line_end();
    log_warning(console_warnings(), "%s", text);
    log_warning_entry(run, text);
}

/* ---- figures ---- */

static double watch_figure(struct run *run, const char *name, double value, struct z_score *score)
{
    char text[TEXT_SIZE];
    const double mean = score->mean, limit = run->config.z_limit, z = z_score_add(score, value);
    if (limit > 0 && fabs(z) > limit) {
        (void)snprintf(text, sizeof text,
                       "step %lld: the %s is %.4g, %.1f standard deviations from its recent mean of %.4g",
                       (long long)run->progress.done, name, value, z, mean);
        warn(run, text);
    }
    return z;
}

/* ---- the slow rank ---- */

/* The host of a rank, on every rank: collective. */
static int find_host(struct run *run, int rank, char host[HOST_BYTES], struct muster_error *err)
{
    double bytes[HOST_BYTES] = {0};
    char mine[HOST_BYTES] = "";
    (void)gethostname(mine, sizeof mine - 1); /* a name for the message; cut if too long */
    for (int i = 0; rank == run->rank && i < HOST_BYTES - 1; i++)
        bytes[i] = (unsigned char)mine[i];
    if (muster_trainer_reduce(run->trainer, bytes, HOST_BYTES, err) < 0)
        return -1;
    for (int i = 0; i < HOST_BYTES; i++)
        host[i] = (char)(unsigned char)bytes[i];
    return 0;
}

static int name_slow(struct run *run, const struct straggler *found, struct muster_error *err)
{
    const struct watch *w = run->observers[OBSERVER_watch];
    char text[TEXT_SIZE], host[HOST_BYTES];
    if (find_host(run, found->rank, host, err) < 0)
        return -1;
    (void)snprintf(text, sizeof text,
                   "rank %d on %s is slow: over the last %lld steps the other ranks waited for it %.1f ms a "
                   "step, %.0f%% of its time",
                   found->rank, host, (long long)w->window.steps, found->late_ms, 100 * found->share);
    warn(run, text);
    return 0;
}

/* At the end of a window: every rank gets all ranks' waits, and they find the same rank. */
static int find_slow(struct run *run, struct muster_error *err)
{
    struct watch *w = run->observers[OBSERVER_watch];
    const int64_t count = sum_count(run);
    const struct straggler_options options = {
        .ranks = run->world_size, .steps = w->window.steps, .least_share = 0.1, .least_ms = 1};
    memset(w->sums, 0, (size_t)count * sizeof *w->sums);
    memcpy(w->sums + (int64_t)run->rank * STRAGGLER_PARTS, w->window.waited_ms, sizeof w->window.waited_ms);
    w->sums[count - 1] = w->window.step_ms / run->world_size;
    if (muster_trainer_reduce(run->trainer, w->sums, count, err) < 0)
        return -1;
    straggler_find(&options, w->sums, w->sums[count - 1], &w->slow);
    straggler_window_begin(&w->window, w->window.steps);
    const int before = w->streak.rank;
    char text[TEXT_SIZE];
    switch (straggler_follow(&w->streak, w->slow.rank, w->sums[count - 1] * (double)w->window.steps)) {
    case STRAGGLER_NAMED:
        return name_slow(run, &w->slow, err);
    case STRAGGLER_ENDED:
        (void)snprintf(text, sizeof text, "the other ranks do not wait for rank %d any more", before);
        warn(run, text);
        return 0;
    case STRAGGLER_AS_BEFORE:
        break;
    }
    return 0;
}

/* ---- idle stages ---- */

/* The mean share of all ranks, every IDLE_STEPS steps. */
static int watch_idle(struct run *run, const struct progress_step *step, struct muster_error *err)
{
    enum { IDLE_STEPS = 10 };
    struct watch *w = run->observers[OBSERVER_watch];
    w->waited_ms += (double)step->exposed_ns / 1e6;
    w->step_ms += (double)step->step_ns / 1e6;
    if (run->progress.done % IDLE_STEPS)
        return 0;
    double sums[] = {w->waited_ms, w->step_ms};
    w->waited_ms = w->step_ms = 0;
    if (muster_trainer_reduce(run->trainer, sums, 2, err) < 0)
        return -1;
    run->progress.idle = sums[1] > 0 ? sums[0] / sums[1] : 0;
    return 0;
}

/* ---- replicas ---- */

static int watch_replicas(struct run *run, struct muster_error *err)
{
    char text[TEXT_SIZE];
    int32_t param, rank, other;
    const int found = muster_trainer_compare_replicas(run->trainer, &param, &rank, &other, err);
    if (found <= 0)
        return found;
    (void)snprintf(text, sizeof text,
                   "step %lld: rank %d and rank %d hold different bits of %s or its optimizer state, which "
                   "should be equal: "
                   "a core or the memory of rank %d's machine may err",
                   (long long)run->progress.done, rank, other, run_param_name(run, param), rank);
    if (run->config.on_replica_difference == TRAIN_REPLICAS_STOP)
        return error_set(err, MUSTER_E_STATE, "%s (training.on_replica_difference: stop)", text);
    warn(run, text);
    return 0;
}

static int step_watch(struct run *run, struct run_step *step, struct muster_error *err)
{
    struct watch *w = run->observers[OBSERVER_watch];
    const struct progress_step *f = &step->figures;
    const double ms = 1e-6;
    const int64_t every = run->config.check_replicas_every;
    step->loss_z = watch_figure(run, "loss", f->loss, &w->loss);
    step->grad_norm_z =
        f->grad_norm > 0 ? watch_figure(run, "norm of the gradient", f->grad_norm, &w->grad_norm) : 0;
    if (every > 0 && run->progress.done % every == 0 && watch_replicas(run, err) < 0)
        return -1;
    if (run->config.mesh_pipeline > 1 && watch_idle(run, f, err) < 0)
        return -1;
    if (w->window.steps &&
        straggler_window_add(&w->window, (double)f->exposed_ns * ms,
                             (double)(f->step_ns + f->data_wait_ns) * ms) &&
        find_slow(run, err) < 0)
        return -1;
    step->slow_rank = w->streak.named ? w->streak.rank : -1;
    step->slow_ms = w->streak.named ? w->slow.late_ms : 0;
    return 0;
}

const struct observer watch_observer = {
    .open = open_watch, .step = step_watch, .stage = close_watch, .close = close_watch};
