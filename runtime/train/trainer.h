/* trainer.h - one rank's training run: owns device, comms, arenas and plan, and executes the schedule step by
 * step.
 *
 * A trainer is an object, there are no globals: tests run ranks as threads of one process. All calls are from
 * one thread (the caller's); the work happens on the device's streams. */
#ifndef MUSTER_RUNTIME_TRAIN_TRAINER_H
#define MUSTER_RUNTIME_TRAIN_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/plan/model.h"
#include "runtime/plan/plan.h"
#include "runtime/train/fingerprint.h"
#include "runtime/train/loss_scale.h"

struct trainer_options {
    struct plan_options
        plan; /* shape, strategy, mesh, micro_batches, prefetch; rank and kernels are filled in */
    int rank, world_size, local_rank;
    int local_world_size; /* ranks that share this machine's memory; 0: one, and no rank is on another machine
                           */
    int threads;          /* OpenMP/BLAS threads of the compute stream */
    const struct device_ops *device; /* NULL: device_cpu() */
    bool sync_errors;                /* device_ops.sync_errors */
    bool tf32;                       /* device_ops.tf32, where the device has it */
    enum kernels_products products;  /* device_ops.products; refused where the device has none */
    bool graphs;                     /* executor_parts.graphs; refused where the device has none */
    /* NULL: comm_shm(), but comm_node() if local_world_size shows other nodes, either staged (comm_staged.h)
     * where the host does not reach the device's memory. */
    const struct comm_ops *comm;
    const struct comm_delay_options *delay; /* not NULL: comm_delay with these figures instead */
    const struct kernels *kernels;          /* NULL: the device's; tests pass kernels_ref_f64() */
    const struct kv_store *store; /* used by ranks to find each other; may be NULL with world_size 1 */
    const char *address;          /* of comm_tcp, see comm_options */
    const char *key;              /* key prefix, unique per round; NULL: "trainer" */
    int64_t timeout_ns;           /* of every collective */
    int64_t memory_limit; /* bytes a rank may plan; 0: the machine's free memory; a larger plan is refused */
    uint64_t seed;        /* of the parameter initialisation */
    /* Of the loss, where parameters or reductions are of fp16; all 0: loss_scale_defaults. */
    struct loss_scale_options loss_scale;
    bool stop_on_nonfinite; /* a gradient that is not finite ends the run (not under a dynamic loss scale) */
};

/* The host-side values of one step; the trainer copies them into device memory. */
struct trainer_step_values {
    double learning_rate; /* of both classes */
    double weight_decay;  /* of class 0 */
    double beta1, beta2, epsilon;
    double clip_norm;      /* 0: none */
    int64_t global_tokens; /* tokens that count in the whole step, over all ranks and micro-batches */
    uint64_t first_sample; /* global index of the step's first sample */
    bool stop;             /* this rank asks all to stop after this step */
    bool checkpoint;       /* this rank asks all to write a checkpoint after this step */
    int64_t missing;       /* samples at the end of this rank's batch that are not there: they do not count */
    double next_targets;   /* that count in this rank's next step; NaN: not known */
};

struct trainer_stats {
    double loss;    /* mean over the global batch of the step */
    double correct; /* rows of the step whose class was found, over all ranks; 0: of a loss without classes */
    double grad_norm; /* before clipping; 0 if neither clipped nor checked */
    bool skipped;     /* a gradient was not finite: parameters are as before (found if clipped or checked) */
    /* Where skipped: the first parameter in the order of the backward pass whose gradient is not finite, and
     * the first rank that holds such a part of it; -1: none was found. */
    int nonfinite_param, nonfinite_rank;
    double loss_scale; /* of this step; 0: none */
    bool stop;         /* some rank has asked to stop: the same on every rank of the step */
    bool checkpoint;   /* some rank has asked for a checkpoint, likewise */
    /* Targets that count in the next step, over all ranks; NaN: some rank did not know. The same likewise. */
    double next_targets;
    int64_t step_ns; /* wall */
    /* With a staged comm (comm_staged.h) all of comm_ns is exposed: the caller waits, and enqueues nothing.
     */
    /* comm_ns: every collective from its start on its stream to its end, waiting for late peers included,
     * added up (two at once count twice). exposed_ns: time in which the compute stream waited for other
     * streams, at most comm_ns: the rest is the cost of waking threads, not communication. */
    int64_t comm_ns, exposed_ns;
};

struct trainer;

/* Collective. Opens the device, plans, rejects a plan that does not fit or cannot be executed before any
 * arena exists, connects the ranks, compares their plans and initialises the parameters. A rejection on
 * one rank is an error on every rank at once, with its code and the rank's number. The model outlives the
 * trainer; options and the memory they point to are not kept. */
struct trainer *trainer_create(const struct model *model, const struct trainer_options *options,
                               struct muster_error *err);
void trainer_destroy(struct trainer *trainer); /* accepts NULL */

/* batch: this rank's arrays in the order of model.inputs, each with those of its micro-batches one after the
 * other: of a language model {tokens, targets}, (micro_batches, B, T) each; tokens must be in the model's
 * vocabulary, targets too or be -1. Blocks until the step is finished. The step count is kept here. After an
 * error the comms are aborted and every later call returns the same error. */
int trainer_step(struct trainer *trainer, const struct batch *batch, const struct trainer_step_values *values,
                 struct trainer_stats *stats, struct muster_error *err);
/* Collective, between steps: the first parameter in the order of the last backward pass whose gradient is not
 * finite, and the first rank that holds such a part of it; -1 and -1 where there is none. */
int trainer_nonfinite(struct trainer *trainer, int *param, int *rank, struct muster_error *err);
/* Mean loss of one micro-batch of this rank without touching parameters, and without dropout; collective
 * under FULL_SHARD and among stages. NaN if no target counts, and on all stages but the last. */
int trainer_evaluate(struct trainer *trainer, const struct batch *batch, double *loss,
                     struct muster_error *err);

/* What a forward pass is to do, and its result on this rank. */
struct trainer_forward {
    int64_t samples;                     /* of one micro-batch that are there */
    const struct layer_capture *capture; /* a value to be copied out; NULL: none */
    double loss_total;                   /* of the targets that count */
    int64_t loss_count;
    double correct; /* rows whose class was found */
};
/* Whether this rank is of the last stage, which has the loss. */
bool trainer_gives_loss(const struct trainer *trainer);
/* Collective: a value that was copied out, from the stage of its layer to the others. */
int trainer_share_value(struct trainer *trainer, const struct layer_capture *capture,
                        struct muster_error *err);
/* Whether micro-batches end with their longest sample, where samples have lengths (executor.h). */
bool trainer_cuts_batches(const struct trainer *trainer);
/* One micro-batch forward without touching parameters, and without dropout; collective under FULL_SHARD and
 * among the stages of a line, which have the same samples. The loss is on the last stage, 0 elsewhere, and a
 * value on the stage of its layer. */
int trainer_forward(struct trainer *trainer, const struct batch *batch, struct trainer_forward *forward,
                    struct muster_error *err);
/* Collective: every rank gets the sums of all ranks' values, with the same bits. */
int trainer_reduce(struct trainer *trainer, double *values, int64_t count, struct muster_error *err);
/* Likewise the largest. */
int trainer_maximum(struct trainer *trainer, double *values, int64_t count, struct muster_error *err);

/* Collective: one full parameter, of the kernels' dtype, param_elements() long, on every rank: the master
 * where the plan has one. Any rank may pass NULL. */
int trainer_get_param(struct trainer *trainer, int param, void *out, struct muster_error *err);
/* Collective: all full parameters, group by group as the plan has them, each group gathered once; visit gets
 * those of this rank's call and may be NULL. values: as above, until it returns. After a visit that fails the
 * gathers go on, so that no other rank waits, and its error is returned. */
int trainer_each_param(struct trainer *trainer,
                       int (*visit)(void *context, int param, const void *values, struct muster_error *err),
                       void *context, struct muster_error *err);
/* Likewise, of the groups that hold adapters or parameters of the base; a group may hold others too. */
enum trainer_params { TRAINER_PARAMS_ALL, TRAINER_PARAMS_ADAPTERS, TRAINER_PARAMS_BASE };
int trainer_each_param_of(struct trainer *trainer, enum trainer_params which,
                          int (*visit)(void *context, int param, const void *values,
                                       struct muster_error *err),
                          void *context, struct muster_error *err);
/* Collective: its full gradient of the last step (reduced, without loss scale, before clipping). For tests.
 */
int trainer_get_grad(struct trainer *trainer, int param, void *out, struct muster_error *err);
/* Exchanges the parameters and their moving averages (plan_options.average_decay): while they are exchanged,
 * forward passes use the averages, and they are what is read; the next call of it, with `on` false, puts
 * everything back to the bit. Parameters without an average (frozen ones) stay. Collective. While on, a step
 * is MUSTER_E_STATE, and parameters may not be set. */
int trainer_exchange_averages(struct trainer *trainer, bool on, struct muster_error *err);
/* Whether they are exchanged now. */
bool trainer_is_averaged(const struct trainer *trainer);

/* Sets a full parameter; every rank passes the same values, between the same two steps: what was gathered for
 * the next step is gathered again. */
int trainer_set_param(struct trainer *trainer, int param, const void *values, struct muster_error *err);

/* Gives elements first..first+count-1 of a parameter, of that dtype, to out. 0; -1: an error; 1: they stay as
 * they are. */
typedef int trainer_param_source(void *context, int param, int64_t first, int64_t count, enum dtype dtype,
                                 void *out, struct muster_error *err);
/* Sets all parameters from what source gives. Not collective: a rank asks for the elements that it holds, in
 * the order of the parameters and piece by piece, and for nothing else. After an error of source the values
 * are some old, some new, and the other ranks do not know of it: agree before the next step. */
int trainer_fill_params(struct trainer *trainer, trainer_param_source *source, void *context,
                        struct muster_error *err);

/* The elements of a parameter that source is called for. */
void trainer_held(const struct trainer *trainer, int param, int64_t *first, int64_t *count);

/* ---- the training state, for checkpoints: between steps, on this rank alone ---- */

enum trainer_tensor {
    TRAINER_VALUE,
    TRAINER_MOMENT1,
    TRAINER_MOMENT2,
    TRAINER_AVERAGE,
    TRAINER_TENSOR_COUNT
};
/* What a rank holds of one tensor of the state: elements first..first+count-1 of the parameter. */
struct trainer_part {
    enum dtype dtype;
    int64_t first, count;
    int copies, copy; /* ranks that hold the same elements, and this one's number among them */
    int entry;        /* the trainer's own: the buffer, and the element in it; -1: other stages have it */
    int64_t at;
};
/* Values are the masters where there are any. false: no rank has such a tensor. */
bool trainer_part(const struct trainer *trainer, int param, enum trainer_tensor tensor,
                  struct trainer_part *part);
/* Elements of the parameter inside of the part, of its dtype. Values are written by trainer_fill_params: what
 * gathers move follows from them. */
int trainer_read_part(struct trainer *trainer, const struct trainer_part *part, int64_t first, int64_t count,
                      void *out, struct muster_error *err);
int trainer_write_part(struct trainer *trainer, const struct trainer_part *part, int64_t first, int64_t count,
                       const void *values, struct muster_error *err);
/* Whether trainer_part_address gives addresses. */
bool trainer_host_reads(const struct trainer *trainer);
/* Where the host reads the part from element `first` on, while no group is stepped; NULL: the device's memory
 * is not the host's. Gathers for the next step do not write there. */
const void *trainer_part_address(const struct trainer *trainer, const struct trainer_part *part,
                                 int64_t first);
/* From now on wait(context, group) is called, and may block, before a step or a function of this header
 * changes values or moments of that group; NULL: no more. */
void trainer_set_guard(struct trainer *trainer, void (*wait)(void *context, int group), void *context);
/* From now on vote(context, votes) is called in every step, on a thread of the trainer's and as late as can
 * be, and adds what this rank reports of work beside the step to votes[TRAINER_VOTES], which are 0: the step
 * sums them over all ranks. It does not block. NULL: no more. Between the same two steps on every rank; sums
 * that were not taken are dropped. */
enum { TRAINER_VOTES = PLAN_VOTES };
void trainer_set_vote(struct trainer *trainer, void (*vote)(void *context, double *votes), void *context);
/* The sums of the last step, the same on every rank. false: there was none since the vote was set, or they
 * have been taken. */
bool trainer_take_votes(struct trainer *trainer, double votes[TRAINER_VOTES]);
/* What a step's scalars depend on. */
struct trainer_counts {
    int64_t steps, updates;
    struct loss_scale scale; /* scale 0: the loss was not scaled */
};
void trainer_get_counts(const struct trainer *trainer, struct trainer_counts *counts);
void trainer_set_counts(struct trainer *trainer, const struct trainer_counts *counts);
/* Values, moments and counts as after trainer_create. */
int trainer_restart(struct trainer *trainer, struct muster_error *err);

/* ---- a trace: when what ran in chosen steps ---- */

enum trainer_trace_kind {
    TRAINER_TRACE_STEP, /* a whole step */
    TRAINER_TRACE_OP,   /* an operation of the plan; one for the next step may end behind its own */
    TRAINER_TRACE_WAIT  /* the compute stream waited for another stream, before that operation; -1: at the end
                         */
};
struct trainer_trace_event {
    enum trainer_trace_kind kind;
    int op;                      /* in plan.ops; -1: none */
    int64_t step;                /* that are done with it, from 1 */
    int64_t begin_ns, end_ns;    /* monotonic */
    int64_t bytes;               /* of an operation: gathered, reduced, moved or worked on; 0: of a layer */
    int64_t comm_ns, exposed_ns; /* of a step, as in its stats: the waits add up to exposed_ns */
};
typedef int trainer_trace_visit(void *context, const struct trainer_trace_event *event,
                                struct muster_error *err);

/* MUSTER_E_UNSUPPORTED where streams do not call their functions themselves (CUDA). */
/* Records the next `steps` steps, in memory that is taken now; 0: none, and drops what was recorded. Not
 * collective. */
int trainer_trace(struct trainer *trainer, int64_t steps, struct muster_error *err);
/* Visits all that was recorded, step by step, each step first and its operations in their order; ends at a
 * visit that returns -1. */
int trainer_traced(struct trainer *trainer, trainer_trace_visit *visit, void *context,
                   struct muster_error *err);

/* "forward h.0", "all_gather wte", of an operation of the plan. */
enum { TRAINER_OP_NAME = 128 };
void trainer_op_name(const struct trainer *trainer, int op, char name[TRAINER_OP_NAME]);

/* Where this rank is: lines with each comm's last issued and finished operations and the ranks that it waits
 * for, then one with the step and the operation that compute has begun last. From any thread, also while
 * another one is in a call of the trainer; the parts are read one after the other. */
int trainer_place(const struct trainer *trainer, struct buffer *out);

/* Where ranks that hold the same elements (all of NO_SHARD, the replicas of HYBRID_SHARD, parameters that are
 * kept whole) have different bits of parameters, moments or averages. */
struct trainer_difference {
    int param; /* the first; -1: there is none */
    int rank,
        other; /* that differ; rank is the one that fewer ranks agree with, where more than two hold it */
};
/* Collective, between steps; the same answer on every rank. Reads all that is held more than once. */
int trainer_compare_replicas(struct trainer *trainer, struct trainer_difference *out,
                             struct muster_error *err);

/* Runs fn on the compute stream, where kernels may be called, and waits for it: benchmarks measure kernels
 * with the threads of a step this way. */
int trainer_run(struct trainer *trainer, void (*fn)(void *argument), void *argument,
                struct muster_error *err);

/* What a step takes at the least: its products and the bytes that the optimizer and copies move
 * (plan_count_work), at the rates at which this rank multiplies and reads. */
struct trainer_limit {
    double seconds; /* of a step; 0 where no layer multiplies, and on devices that are not measured (CUDA) */
    double step_flops; /* of this rank's products in a step, without what is computed again */
    double peak_flops; /* in a second; 0 where no layer multiplies */
};
/* Measured now for about 0.5 s. Not collective, but ranks that share a machine should measure at once. */
int trainer_limit(struct trainer *trainer, struct trainer_limit *limit, struct muster_error *err);

/* The settings that the last bit of this run depends on. */
void trainer_fingerprint(const struct trainer *trainer, struct fingerprint *fingerprint);
const struct model *trainer_model(const struct trainer *trainer);
const struct kernels *trainer_kernels(const struct trainer *trainer);
const struct plan *trainer_plan(const struct trainer *trainer);
/* Memory of plan_options.checkpoint_bytes, the caller's to use; NULL: none was planned. */
char *trainer_checkpoint_memory(const struct trainer *trainer);
/* Bytes really allocated per memory class: equals plan.arena_bytes. */
int64_t trainer_arena_bytes(const struct trainer *trainer, enum memory_class memory);

#endif
