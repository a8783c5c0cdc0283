/* progress.h - the progress line of a training run: pure, text out. */
#ifndef MUSTER_TRAINER_RUN_PROGRESS_H
#define MUSTER_TRAINER_RUN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"

enum { PROGRESS_LOSSES = 50 }; /* losses in the closing mean */

struct progress {
    int64_t steps;           /* total */
    int64_t tokens_per_step; /* over all ranks */
    int64_t planned_bytes;   /* of this rank's arenas */
    double step_ns;          /* smoothed time of a step; 0 before the first */
    double step_flops,
        peak_flops;  /* of this rank's products, in a step and in a second at best; 0: not known */
    double limit_ns; /* what a step takes at the least, as measured or as one took; 0: not known */
    double last[PROGRESS_LOSSES]; /* ring of the latest losses */
    int64_t done;                 /* steps */
    int64_t begun;                /* steps that were done before this process */
    const char *unit;             /* of the rate; NULL: tok */
};

struct progress_step {
    double loss, learning_rate, grad_norm;
    int64_t step_ns, comm_ns, exposed_ns; /* as in struct trainer_stats: exposed_ns is part of comm_ns */
    int64_t data_wait_ns;                 /* in which the step's batch was waited for, before step_ns */
    int64_t resident_bytes;               /* proportional set size of the process; 0: unknown */
    bool has_gpu;                         /* NVML knows the next ones of the rank's GPU */
    double gpu_busy;                      /* 0 to 1; below 0: unknown */
    int64_t gpu_used, gpu_total;          /* bytes; total 0: unknown */
};

/* Records one finished step. */
void progress_add(struct progress *progress, const struct progress_step *step);
/* "step 120/900  loss 2.7134  18204 tok/s  56.2 ms  71% MFU  91% of limit  data 0.0 ms  comm 4.1 ms, 0.1 ms
 * exposed (98% hidden)  mem 34.1 MB planned, 61.0 MB used  gpu 83%, 60.0 GB of 80.0 GB  eta 0:41". Of the
 * limit: its share of this step's time. */
int progress_line(const struct progress *progress, const struct progress_step *step, struct buffer *out);
/* Tokens over all ranks in a second, smoothed; 0 before the first step. */
double progress_rate(const struct progress *progress);
/* Model FLOPs utilization of a step: the products of the model, without what is computed again, in relation
 * to the products of as much time at best; 0: not known. */
double progress_mfu(const struct progress *progress, const struct progress_step *step);
/* Mean of the latest losses, at most PROGRESS_LOSSES of them, and how many they are; 0 before the first. */
int64_t progress_losses(const struct progress *progress);
double progress_mean_loss(const struct progress *progress);

/* The "Pss:" line of /proc/PID/smaps_rollup in bytes, 0 where there is none. Pure. */
int64_t progress_parse_pss(const char *text);

#endif
