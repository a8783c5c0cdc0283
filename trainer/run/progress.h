/* progress.h - texts about steps: the progress line of a run, and the prediction of --plan --predict. Pure.
 */
#ifndef MUSTER_TRAINER_RUN_PROGRESS_H
#define MUSTER_TRAINER_RUN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"

enum { PROGRESS_LOSSES = 50 }; /* losses in the closing mean */

struct progress {
    int64_t steps;           /* last step of the run, or of its stage */
    int64_t first;           /* steps that were done when the stage began; 0 without stages */
    int64_t begun;           /* steps that were done when this process began */
    int64_t done;            /* steps that are done */
    int64_t tokens_per_step; /* tokens (or samples of `unit`) over all ranks */
    int64_t planned_bytes;   /* size of this rank's arenas */
    bool on_device;          /* most of them are a device's memory, not the host's */
    double step_ns;          /* smoothed time of a step; 0 before the first */
    double step_flops;       /* operations of this rank's products in a step; 0: not known */
    double peak_flops;       /* operations of this rank in a second at best; 0: not known */
    double limit_ns;         /* least time of a step, measured; 0: not known */
    double idle;             /* share of the last steps in which the ranks' compute waited; 0: not known */
    double padding;          /* share of the tokens that come after the ends of documents; 0: none */
    double last[PROGRESS_LOSSES]; /* ring of the latest losses */
    const char *unit;             /* unit of the rate; NULL: tok */
};

struct progress_step {
    double loss, learning_rate, grad_norm;
    int64_t step_ns, comm_ns;    /* times in ns */
    int64_t exposed_ns;          /* part of comm_ns in which compute was stalled */
    int64_t wire_bytes;          /* sent to other replicas for compressed gradients; 0: none are compressed */
    double compression_error;    /* length of what was not sent, over that of the gradients */
    int64_t data_wait_ns;        /* time before the step in which its batch was waited for */
    int64_t resident_bytes;      /* proportional set size of the process; 0: unknown */
    bool has_gpu;                /* NVML knows the next members of the rank's GPU */
    double gpu_busy;             /* 0 to 1; below 0: unknown */
    int64_t gpu_used, gpu_total; /* bytes; total 0: unknown */
};

/* Records a finished step. */
void progress_add(struct progress *progress, const struct progress_step *step);
/* The run has gone back: `done` steps are done. */
void progress_go_back(struct progress *progress, int64_t done);
/* With stages and their idle share, it is between comm and mem: "idle 12%". With samples of documents the
 * rate has the share of padding after it: "18204 tok/s (5% padding)". "step 120/900  loss 2.7134  18204 tok/s
 * 56.2 ms  71% MFU  91% of limit  data 0.0 ms  comm 4.1 ms, 0.1 ms exposed (98% hidden)  mem 34.1 MB
 * planned, 61.0 MB used  gpu 83%, 60.0 GB of 80.0 GB  eta 0:41". The share of the limit is that of the least
 * time of a step. */
int progress_line(const struct progress *progress, const struct progress_step *step, struct buffer *out);
/* Tokens over all ranks in a second, smoothed; 0 before the first step. */
double progress_rate(const struct progress *progress);
/* Model FLOPs utilization of a step: the products of the model, without recomputation, in relation
 * to the products of the same time at best; 0: not known. */
double progress_mfu(const struct progress *progress, const struct progress_step *step);
/* Number of the latest losses, at most PROGRESS_LOSSES, and their mean; 0 before the first. */
int64_t progress_losses(const struct progress *progress);
double progress_mean_loss(const struct progress *progress);

/* The "Pss:" line of /proc/PID/smaps_rollup in bytes, 0 where there is none. Pure. */
int64_t progress_parse_pss(const char *text);

struct muster_prediction;
/* The text of a plan, followed by the time of a step and the origin of that figure; prediction NULL: the plan
 * alone. json: with a prediction the plan is an object's members (MUSTER_PLAN_MEMBERS), and "prediction" the
 * last one. */
int prediction_text(const char *plan, const struct muster_prediction *prediction, int world_size, bool json,
                    struct buffer *out);

#endif
