/* train_harness.h - a small training run for tests: ranks as threads of one process, data from a formula. */
#ifndef MUSTER_TESTS_TRAIN_HARNESS_H
#define MUSTER_TESTS_TRAIN_HARNESS_H

#include "runtime/model/architectures.h"
#include "runtime/train/trainer.h"

/* The order of the step's samples over micro-batches, ranks and rows: the same set, another order of sums. */
enum sample_order { ORDER_PLAIN, ORDER_REVERSED, ORDER_ROTATED };

struct training {
    struct gpt2_config gpt;
    enum strategy strategy;
    struct mesh mesh; /* its size is the number of ranks */
    int samples;      /* samples of a step over all ranks: rows * micro_batches * ranks with other samples */
    int micro_batches;
    int positions;
    int steps;
    int first_step; /* number of the first batch */
    int prefetch;
    int threads; /* threads of a rank's compute stream */
    int64_t group_bytes, keep_whole_bytes;
    enum embedding_gradient embedding_gradient;
    enum sample_order order;
    double learning_rate, clip_norm;
    double average_decay;                 /* as in plan_options */
    enum dtype param_dtype, reduce_dtype; /* as in plan_options */
    bool check;
    struct loss_scale_options loss_scale; /* all 0: the defaults */
    bool stop_on_nonfinite;
    const struct kernels *kernels;   /* NULL: the device's */
    const struct comm_ops *comm;     /* NULL: the trainer's choice */
    const struct device_ops *device; /* NULL: CPUs */
    bool recompute;                  /* every block: the model asks for it */
    struct recompute_options policy;
    enum pipe_schedule schedule;
    int chunks; /* parts of a stage; 0: 1 */
    const struct pipe_table *table;
    struct compression_options compression;
    enum memory_class optimizer_memory;
    int64_t head_chunk; /* bytes; 0: the head's */
    int state_copies;   /* as in plan_options */
    bool draws_late;    /* as in trainer_options */
    /* NULL: gpt2_create of gpt. Every rank makes its own. */
    struct model *(*create)(const struct training *run, struct muster_error *err);

    const int *told_at; /* [ranks] the step in which each first asks to stop; NULL: none does */
    int *last;          /* [ranks] filled with the last step of each; NULL with told_at NULL */

    /* Called by every rank's thread after creation and after each step (step: finished ones so far); not 0
     * ends the rank. */
    int (*visit)(const struct training *run, struct trainer *trainer, int rank, int step);
    void *context;

    /* Filled: by rank 0. losses, norms and stats: [steps] or NULL. params: model_parameters() values of the
     * kernels' dtype or NULL. */
    double *losses, *norms;
    struct trainer_stats *stats;
    void *params;
};

/* A model and run that learn something in 100 steps: 2 layers of 32, 8 samples of 16 positions. */
struct training training_small(void);

/* Tokens and targets of one rank's step, (micro_batches, B, T). Most tokens follow from the one before. */
void training_batch(const struct training *run, int rank, int step, int32_t *tokens, int32_t *targets);
/* The options of a rank's trainer, except store and comm. */
struct trainer_options training_options(const struct training *run, int rank);
struct trainer_step_values training_values(const struct training *run, int step);

/* 0, or not 0 with a line on stderr for every rank that failed. */
int training_run(struct training *run);

/* Largest |a-b| / |b|. */
double training_deviation(const double *a, const double *b, int count);

#endif
