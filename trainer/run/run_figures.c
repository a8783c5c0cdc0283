/* run_figures.c - a rank's figures for its launcher: muster status and its metrics. See run.h. */
#include <math.h>
#include <stdlib.h>

#include "trainer/run/run.h"

#define EVERY_NS NS_PER_S

void run_figures_open(struct run *run)
{
    if (!run->gpu)
        run->gpu = nvml_sampler_start(getenv("MUSTER_NVML_LIBRARY"), getenv("CUDA_VISIBLE_DEVICES"),
                                      muster_world_local_rank(run->world));
}

void run_figures_close(struct run *run)
{
    nvml_sampler_stop(run->gpu);
    run->gpu = NULL;
}

void run_figures_gpu(struct run *run, struct progress_step *step)
{
    struct nvml_usage usage;
    step->has_gpu = nvml_sampler_read(run->gpu, &usage);
    if (!step->has_gpu)
        return;
    step->gpu_busy = usage.busy;
    step->gpu_used = usage.used;
    step->gpu_total = usage.total;
}

int run_figures_step(struct run *run, const struct progress_step *step, struct muster_error *err)
{
    const struct instant now = clock_now(NULL);
    const double ms = 1.0 / (double)NS_PER_MS;
    const bool slow = run->watch.streak.named;
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
        {"slow_rank", slow ? run->watch.streak.rank : -1},
        {"slow_ms", slow ? run->watch.slow.late_ms : 0},
        {"total_steps", (double)run->progress.steps},
        {"checkpoint_command_step", (double)muster_trainer_state_now(run->trainer).command_step},
        /* not finite: left out */
        {"gpu_utilization", step->has_gpu && step->gpu_busy >= 0 ? step->gpu_busy : NAN},
        {"gpu_memory", step->has_gpu && step->gpu_total ? (double)step->gpu_used : NAN},
        {"gpu_memory_total", step->has_gpu && step->gpu_total ? (double)step->gpu_total : NAN},
    };
    enum { COUNT = sizeof rows / sizeof *rows };
    const char *names[COUNT];
    double values[COUNT];
    if (run->figures_at.ns && instant_diff_ns(now, run->figures_at) < EVERY_NS)
        return 0;
    run->figures_at = now;
    for (int i = 0; i < COUNT; i++) {
        names[i] = rows[i].name;
        values[i] = rows[i].value;
    }
    return muster_figures(names, values, COUNT, err);
}
