/* figures.c - observers `gpu`, which samples this rank's GPU, and `figures`, which hands the figures of steps
 * to the launcher, for muster status and its metrics. See observers.h. */
#include <math.h>
#include <stdlib.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/nvml/nvml_usage.h"
#include "trainer/run/observers.h"

/* ---- gpu ---- */

static int open_gpu(struct run *run, struct muster_error *err)
{
    (void)err; /* a machine without a GPU has no sampler */
    run->observers[OBSERVER_gpu] = nvml_sampler_start(
        getenv("MUSTER_NVML_LIBRARY"), getenv("CUDA_VISIBLE_DEVICES"), muster_world_local_rank(run->world));
    return 0;
}

static int step_gpu(struct run *run, struct run_step *step, struct muster_error *err)
{
    struct progress_step *f = &step->figures;
    struct nvml_usage usage;
    (void)err;
    f->has_gpu = nvml_sampler_read(run->observers[OBSERVER_gpu], &usage);
    if (!f->has_gpu)
        return 0;
    f->gpu_busy = usage.busy;
    f->gpu_used = usage.used;
    f->gpu_total = usage.total;
    return 0;
}

static void close_gpu(struct run *run)
{
    nvml_sampler_stop(run->observers[OBSERVER_gpu]);
    run->observers[OBSERVER_gpu] = NULL;
}

const struct observer gpu_observer = {
    .open = open_gpu, .step = step_gpu, .stage = close_gpu, .close = close_gpu};

/* ---- figures ---- */

#define EVERY_NS NS_PER_S

struct figures {
    struct instant last; /* handed to the launcher; 0: never */
};

static int open_figures(struct run *run, struct muster_error *err)
{
    if (!run->observers[OBSERVER_figures])
        run->observers[OBSERVER_figures] = mem_calloc(1, sizeof(struct figures));
    return run->observers[OBSERVER_figures] ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for figures");
}

static int step_figures(struct run *run, struct run_step *record, struct muster_error *err)
{
    struct figures *figures = run->observers[OBSERVER_figures];
    const struct progress_step *step = &record->figures;
    const struct instant now = clock_now(NULL);
    const double ms = 1.0 / (double)NS_PER_MS;
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"loss", step->loss},
        {"grad_norm", step->grad_norm},
        {"learning_rate", step->learning_rate},
        {"tokens_per_s", progress_rate(&run->progress)},
        {"mfu", progress_mfu(&run->progress, step)},
        {"step_ms", (double)step->step_ns * ms},
        {"comm_ms", (double)step->comm_ns * ms},
        {"exposed_ms", (double)step->exposed_ns * ms},
        {"data_wait_ms", (double)step->data_wait_ns * ms},
        {"slow_rank", record->slow_rank},
        {"slow_ms", record->slow_ms},
        {"total_steps", (double)run->progress.steps},
        {"checkpoint_command_step", (double)run_state(run).command_step},
        /* not finite: left out */
        {"gpu_utilization", step->has_gpu && step->gpu_busy >= 0 ? step->gpu_busy : NAN},
        {"gpu_memory", step->has_gpu && step->gpu_total ? (double)step->gpu_used : NAN},
        {"gpu_memory_total", step->has_gpu && step->gpu_total ? (double)step->gpu_total : NAN},
    };
    enum { COUNT = sizeof rows / sizeof *rows };
    const char *names[COUNT];
    double values[COUNT];
    if (figures->last.ns && instant_diff_ns(now, figures->last) < EVERY_NS)
        return 0;
    figures->last = now;
    for (int i = 0; i < COUNT; i++) {
        names[i] = rows[i].name;
        values[i] = rows[i].value;
    }
    return muster_figures(names, values, COUNT, err);
}

static void close_figures(struct run *run)
{
    mem_free(run->observers[OBSERVER_figures]);
    run->observers[OBSERVER_figures] = NULL;
}

const struct observer figures_observer = {.open = open_figures, .step = step_figures, .close = close_figures};
