/* schedule_shrink.c - from a schedule that breaks an invariant to a small one that breaks the same: steps go
 * (halves first, then single ones), then agents, then the rest is made plainer. See schedule.h. */
#include <string.h>

#include "tests/simulation/schedule.h"

struct shrinker {
    struct schedule *best;
    struct schedule trial;
    enum invariant broken;
    int runs;
};

/* Keeps the trial if it still breaks. */
static bool keeps(struct shrinker *s)
{
    struct outcome outcome;
    s->runs++;
    schedule_run(&s->trial, &outcome, NULL);
    if (outcome.broken != s->broken)
        return false;
    *s->best = s->trial;
    return true;
}

static void leave_out(struct schedule *schedule, int first, int count)
{
    memmove(&schedule->steps[first], &schedule->steps[first + count],
            (size_t)(schedule->count - first - count) * sizeof *schedule->steps);
    schedule->count -= count;
}

static bool fewer_steps(struct shrinker *s)
{
    bool any = false;
    for (int size = s->best->count / 2; size >= 1; size /= 2)
        for (int first = 0; first + size <= s->best->count;) {
            s->trial = *s->best;
            leave_out(&s->trial, first, size);
            if (keeps(s))
                any = true;
            else
                first += size;
        }
    return any;
}

static int highest_node(const struct schedule *schedule)
{
    int highest = -1;
    for (int i = 0; i < schedule->count; i++)
        if (schedule->steps[i].kind != STEP_CALM && schedule->steps[i].node > highest)
            highest = schedule->steps[i].node;
    return highest;
}

/* Without this agent; those above move down by one. */
static void drop_node(struct schedule *schedule, int node)
{
    struct cluster_options *options = &schedule->options;
    for (int i = 0; i < schedule->count;) {
        struct schedule_step *step = &schedule->steps[i];
        bool twin = step->kind == STEP_TWIN,
             claim = (step->kind == STEP_START || step->kind == STEP_FOREIGN) && step->value >= 0;
        if (step->kind != STEP_CALM && (step->node == node || ((twin || claim) && step->value == node))) {
            leave_out(schedule, i, 1);
            continue;
        }
        step->node -= step->kind != STEP_CALM && step->node > node;
        if (twin || claim)
            step->value -= step->value > node;
        i++;
    }
    for (int i = node; i + 1 < CLUSTER_NODE_LIMIT; i++) {
        options->local_world_size[i] = options->local_world_size[i + 1];
        options->role[i] = options->role[i + 1];
        options->listens[i] = options->listens[i + 1];
        options->beside[i] = options->beside[i + 1];
        options->clock_offset_ns[i] = options->clock_offset_ns[i + 1];
        options->clock_drift_ppm[i] = options->clock_drift_ppm[i + 1];
    }
    options->nodes -= options->nodes > 1 && node < options->nodes;
    if (options->elastic && options->max_nodes > 1 && options->max_nodes > options->nodes)
        options->max_nodes--;
    if (options->elastic && options->min_nodes > options->max_nodes)
        options->min_nodes = options->max_nodes;
}

static bool fewer_nodes(struct shrinker *s)
{
    bool any = false;
    for (int node = highest_node(s->best); node > 0; node--) {
        s->trial = *s->best;
        drop_node(&s->trial, node);
        any |= keeps(s);
    }
    return any;
}

/* One setting after the other takes its plainest value. */
static bool plainer_settings(struct shrinker *s)
{
    bool any = false;
#define PLAINER(change)                                                                                      \
    do {                                                                                                     \
        s->trial = *s->best;                                                                                 \
        struct cluster_options *o = &s->trial.options;                                                       \
        change;                                                                                              \
        if (memcmp(&s->trial, s->best, sizeof s->trial) != 0)                                                \
            any |= keeps(s);                                                                                 \
    } while (0)
    PLAINER(o->duplicate_percent = 0);
    PLAINER(o->drop_percent = 0);
    PLAINER(o->loss_percent = 0);
    PLAINER(o->stale_percent = 0);
    PLAINER(o->delay_min_ns = o->delay_max_ns = NS_PER_MS);
    PLAINER(o->backoff_ns = 0);
    PLAINER(o->max_restarts = 0);
    PLAINER(o->start_ns = 100 * NS_PER_MS);
    PLAINER(o->stop_ns = 100 * NS_PER_MS);
    PLAINER(o->grace_ns = NS_PER_S);
    PLAINER(memset(o->listens, 0, sizeof o->listens));
    PLAINER(memset(o->beside, 0, sizeof o->beside));
    PLAINER(o->own_name = false);
    PLAINER(memset(o->role, 0, sizeof o->role));
    PLAINER(memset(o->clock_offset_ns, 0, sizeof o->clock_offset_ns));
    PLAINER(memset(o->clock_drift_ppm, 0, sizeof o->clock_drift_ppm));
    PLAINER(memset(o->local_world_size, 0, sizeof o->local_world_size));
    PLAINER(o->nodes = o->elastic ? o->max_nodes : o->nodes);
    PLAINER(o->min_nodes = o->elastic ? 1 : 0);
    PLAINER(o->max_nodes -= o->elastic && o->max_nodes > o->min_nodes && o->max_nodes > 1);
#undef PLAINER
    return any;
}

/* Round times and short waits are easier to read. */
static bool rounder_times(struct shrinker *s)
{
    bool any = false;
    for (int i = 0; i < s->best->count; i++)
        for (int64_t unit = 5000; unit >= 100; unit /= unit == 5000 ? 5 : 10) {
            if (s->best->steps[i].at_ms % unit == 0)
                break;
            s->trial = *s->best;
            s->trial.steps[i].at_ms -= s->trial.steps[i].at_ms % unit;
            if (keeps(s)) {
                any = true;
                break;
            }
        }
    return any;
}

int schedule_shrink(struct schedule *schedule, enum invariant broken)
{
    enum { RUNS_LIMIT = 20000 };
    struct shrinker s = {.best = schedule, .broken = broken};
    bool any = true;
    while (any && s.runs < RUNS_LIMIT) {
        any = fewer_steps(&s);
        any |= fewer_nodes(&s);
        any |= plainer_settings(&s);
    }
    (void)rounder_times(&s);
    return s.runs;
}
