/* trainer.h - one rank's training run. A trainer owns device, comms, arenas and plan, and executes the
 * schedule step by step.
 *
 * There are no globals: tests run ranks as threads of one process. All calls are from one thread (the
 * caller's); the device's streams do the work. */
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
    /* shape, strategy, mesh, micro_batches, prefetch; rank and kernels are filled in */
    struct plan_options plan;
    int rank, world_size, local_rank;
    int local_world_size;            /* ranks that share this machine's memory; 0: one, no other machine
                                      */
    int threads;                     /* OpenMP/BLAS threads of the compute stream */
    const struct device_ops *device; /* NULL: device_cpu() */
    bool sync_errors;                /* device_ops.sync_errors */
    bool tf32;                       /* device_ops.tf32, where the device has it */
    enum dtype values;               /* device_ops.values; DTYPE_F32, 0: not called */
    bool cudnn;                      /* attention by cuDNN: device_ops.attention */
    enum kernels_products products;  /* device_ops.products; where the device has none, the first and
                                        KERNELS_AUTO change nothing, and others are refused */
    bool graphs;                     /* executor_parts.graphs; refused where the device has none */
    /* NULL: comm_shm(), but comm_node() if local_world_size shows other nodes, either staged (comm_staged.h)
     * where the host does not reach the device's memory. */
    const struct comm_ops *comm;
    const struct comm_delay_options *delay; /* not NULL: comm_delay with these figures instead */
    const struct kernels *kernels;          /* NULL: the device's; tests pass kernels_ref_f64() */
    const struct kv_store *store; /* used by ranks to find each other; may be NULL with world_size 1 */
    const char *address;          /* address for comm_tcp, see comm_options */
    const char *key;              /* key prefix, unique per round; NULL: "trainer" */
    int64_t timeout_ns;           /* time-out of every collective */
    int64_t memory_limit; /* bytes a rank may plan, of the device's memory; 0: what is free; a larger plan is
                             refused */
    uint64_t seed;        /* seed of the parameter initialisation */
    bool draws_late;      /* initial values are drawn at their first use, see trainer_draw */
    /* Options of the loss scale, used if parameters or reductions are fp16; all 0: loss_scale_defaults. */
    struct loss_scale_options loss_scale;
    /* Fills the rates for the times in the advice for a plan that does not fit; NULL: ordinary cores. */
    void (*rates)(void *context, struct plan_rates *rates);
    /* Whether this rank has room for more than its plan's memory, which is taken before; NULL: it has. The
     * refusal of one rank is that of all. */
    int (*room)(void *context, struct muster_error *err);
    void *context;          /* of both */
    bool stop_on_nonfinite; /* a gradient that is not finite ends the run (not under a dynamic loss scale) */
};

/* The host-side values of one step; the trainer copies them into device memory. */
struct trainer_step_values {
    double learning_rate; /* rate for both classes of parameters */
    double weight_decay;  /* decay for class 0 alone */
    double beta1, beta2, epsilon;
    double clip_norm;      /* 0: none */
    int64_t global_tokens; /* tokens that count in the whole step, over all ranks and micro-batches */
    uint64_t first_sample; /* global index of the step's first sample */
    bool stop;             /* this rank asks all to stop after this step */
    bool checkpoint;       /* this rank asks all to write a checkpoint after this step */
    int64_t missing;       /* samples missing at the end of this rank's batch: they do not count */
    double next_targets;   /* targets that count in this rank's next step; NaN: not known */
};

struct trainer_stats {
    double loss;      /* mean over the global batch of the step */
    double correct;   /* rows of the step with the correct class, over all ranks; 0: a loss without classes */
    double grad_norm; /* before clipping; 0 if neither clipped nor checked */
    bool skipped;     /* a gradient was not finite: parameters are as before (found if clipped or checked) */
    /* If skipped: the first parameter whose gradient is not finite, in the order of the backward pass; and
     * the first rank that holds such a part of it. -1: none was found. */
    int nonfinite_param, nonfinite_rank;
    double loss_scale; /* scale of this step; 0: none */
    bool stop;         /* some rank has asked to stop: the same on every rank of the step */
    bool checkpoint;   /* some rank has asked for a checkpoint: the same on every rank */
    /* Targets that count in the next step, over all ranks; NaN: some rank did not know. The same on every
     * rank. */
    double next_targets;
    /* Where gradients are compressed: bytes that this rank has sent to other replicas for them, and the
     * length of the parts that were not sent, over that of the gradients. Both 0 else. */
    int64_t wire_bytes;
    double compression_error;
    int64_t step_ns; /* wall time */
    /* With a staged comm (comm_staged.h) all of comm_ns is exposed: the caller waits and enqueues nothing.
     */
    /* comm_ns: sum of all collectives' times, from the start on the stream to the end, including waits for
     * late peers (two at once count twice). exposed_ns: time in which the compute stream waited for other
     * streams, at most comm_ns. A longer wait is the cost of waking threads, not communication. */
    int64_t comm_ns, exposed_ns;
};

struct trainer;

/* 0 where a device that multiplies by its own library can train with these products. */
int trainer_check_products(const char *device, enum kernels_products products, struct muster_error *err);

/* Collective. Opens the device, plans, connects the ranks, compares their plans and initialises the
 * parameters. A plan that does not fit or cannot be executed is rejected before any arena exists. A rejection
 * on one rank is an error on every rank at once, with its code and the rank's number. The model outlives the
 * trainer; options and the memory they point to are not kept. */
struct trainer *trainer_create(const struct model *model, const struct trainer_options *options,
                               struct muster_error *err);
void trainer_destroy(struct trainer *trainer); /* accepts NULL */

/* A run that has failed goes on with new comms: device, memory and plan stay, and so does the state where it
 * is whole. Collective with trainer_create of ranks that were started anew; options as there, with the store
 * and address of now. After an error the trainer is broken, and this may be called again.
 * MUSTER_E_UNSUPPORTED: the device stays failed. */
int trainer_rejoin(struct trainer *trainer, const struct trainer_options *options, struct muster_error *err);
/* The first half of it: ends all collectives, and completes a step that was cut off in its changes of the
 * state. The trainer is good for trainer_finish, trainer_rejoin, recover_keep and trainer_destroy. Nothing
 * where the device stays failed (trainer_whole is -1). */
void trainer_stop(struct trainer *trainer);
/* Until the next step: the step that was cut off before its changes of the state, if the gradients are there
 * for them; -1: there is none. The second makes the changes: from then on that step is trainer_whole. -1: the
 * state is not whole any more. */
int64_t trainer_finishes(const struct trainer *trainer);
int trainer_finish(struct trainer *trainer);
/* From any thread, but not during trainer_rejoin or trainer_stop: ends collectives that wait, and all later
 * ones. In a world of one the next call of this header fails. */
void trainer_let_go(struct trainer *trainer);
/* The number of steps whose state this rank holds; -1: it is not whole, or has not begun. */
int64_t trainer_whole(const struct trainer *trainer);

/* batch: this rank's arrays in the order of model.inputs, each with its micro-batches one after the other. A
 * language model has {tokens, targets}, (micro_batches, B, T) each; tokens must be in the model's vocabulary,
 * targets too or be -1. Blocks until the step is finished. The trainer keeps the step count. After an error
 * the comms are aborted and every later call returns the same error. */
int trainer_step(struct trainer *trainer, const struct batch *batch, const struct trainer_step_values *values,
                 struct trainer_stats *stats, struct muster_error *err);
/* Collective, between steps: finds the first parameter whose gradient is not finite, in the order of the last
 * backward pass, and the first rank that holds such a part. -1 and -1: none. */
int trainer_nonfinite(struct trainer *trainer, int *param, int *rank, struct muster_error *err);
/* Mean loss of one micro-batch of this rank without touching parameters, and without dropout; collective
 * under FULL_SHARD and among stages. NaN if no target counts, and on all stages but the last. */
int trainer_evaluate(struct trainer *trainer, const struct batch *batch, double *loss,
                     struct muster_error *err);

/* Input of a forward pass, and its result on this rank. */
struct trainer_forward {
    int micros;      /* micro-batches, 1 to trainer_forward_micros; the same on every rank; 0: 1 */
    int64_t samples; /* number of samples in all of them; only the last ones may lack samples */
    const struct layer_capture
        *capture;   /* [micros] values of a layer to copy out (bytes 0: none); NULL: none */
    double *losses; /* [micros] the pass adds the total loss of each micro-batch; NULL: not wanted */
    /* The pass adds to these, micro-batch by micro-batch. */
    double loss_total; /* total loss of the targets that count */
    int64_t loss_count;
    double correct; /* rows with the correct class */
};
/* Micro-batches of a forward pass, at most: those of a step among several stages, which then work on
 * different micro-batches at a time; else 1. */
int trainer_forward_micros(const struct trainer *trainer);
/* Whether this rank is of the last stage, which has the loss. */
bool trainer_gives_loss(const struct trainer *trainer);
/* Collective: sends a copied value from its layer's stage to the other stages. */
int trainer_share_value(struct trainer *trainer, const struct layer_capture *capture,
                        struct muster_error *err);
/* Whether micro-batches end with their longest sample, where samples have lengths (executor.h). */
bool trainer_cuts_batches(const struct trainer *trainer);
/* Micro-batches forward without touching parameters, and without dropout; collective under FULL_SHARD and
 * among the stages of a line, which have the same samples. The last stage has the loss, other stages add 0.
 * The stage of its layer has a copied value. batch: (micros, B, T) of each array, as for a step. */
int trainer_forward(struct trainer *trainer, const struct batch *batch, struct trainer_forward *forward,
                    struct muster_error *err);
/* Collective: every rank gets the sums of all ranks' values, with the same bits. */
int trainer_reduce(struct trainer *trainer, double *values, int64_t count, struct muster_error *err);
/* Collective: every rank gets the largest of all ranks' values, element by element. */
int trainer_maximum(struct trainer *trainer, double *values, int64_t count, struct muster_error *err);

/* Collective: gives every rank a full parameter, of the kernels' dtype, param_elements() long: the master if
 * the plan has masters. Any rank may pass NULL. */
int trainer_get_param(struct trainer *trainer, int param, void *out, struct muster_error *err);
/* Collective: gathers all full parameters, group by group in the plan's order, each group once. visit is
 * called for each parameter on this rank and may be NULL. values: as above, valid until visit returns. After
 * a failed visit the gathers go on, so that no other rank waits; the visit's error is returned. */
int trainer_each_param(struct trainer *trainer,
                       int (*visit)(void *context, int param, const void *values, struct muster_error *err),
                       void *context, struct muster_error *err);
/* As trainer_each_param, for the groups that hold adapters or parameters of the base; such a group may hold
 * other parameters too. */
enum trainer_params { TRAINER_PARAMS_ALL, TRAINER_PARAMS_ADAPTERS, TRAINER_PARAMS_BASE };
int trainer_each_param_of(struct trainer *trainer, enum trainer_params which,
                          int (*visit)(void *context, int param, const void *values,
                                       struct muster_error *err),
                          void *context, struct muster_error *err);
/* Collective: gives a parameter's full gradient of the last step (reduced, without loss scale, before
 * clipping). For tests.
 */
int trainer_get_grad(struct trainer *trainer, int param, void *out, struct muster_error *err);
/* Exchanges the parameters and their moving averages (plan_options.average_decay): while they are exchanged,
 * forward passes and reads use the averages. The next call, with `on` false, puts everything back to the bit.
 * Frozen parameters, which have no average, stay. Collective. While on, a step is MUSTER_E_STATE, and
 * parameters must not be set. */
int trainer_exchange_averages(struct trainer *trainer, bool on, struct muster_error *err);
/* Whether they are exchanged now. */
bool trainer_is_averaged(const struct trainer *trainer);

/* Sets a full parameter; every rank passes the same values, between the same two steps. The gathers made for
 * the next step are repeated. */
int trainer_set_param(struct trainer *trainer, int param, const void *values, struct muster_error *err);

/* Writes elements first..first+count-1 of a parameter, as dtype, to out. 0: success; -1: an error; 1: the
 * elements keep their values. */
typedef int trainer_param_source(void *context, int param, int64_t first, int64_t count, enum dtype dtype,
                                 void *out, struct muster_error *err);
/* Sets all parameters from source. Not collective: a rank requests only the elements that it holds, in the
 * order of the parameters and piece by piece. After an error of source some values are old and some new. The
 * other ranks do not know of the error: agree before the next step. */
int trainer_fill_params(struct trainer *trainer, trainer_param_source *source, void *context,
                        struct muster_error *err);

/* The elements of a parameter for which source is called. */
void trainer_held(const struct trainer *trainer, int param, int64_t *first, int64_t *count);

/* ---- the training state, for checkpoints: between steps, on this rank alone ---- */

enum trainer_tensor {
    TRAINER_VALUE,
    TRAINER_MOMENT1,
    TRAINER_MOMENT2,
    TRAINER_AVERAGE,
    TRAINER_FEEDBACK, /* what a replica has not sent: each replica has another one */
    TRAINER_FACTOR,   /* columns of a factor of the parameter's gradient, one after the other */
    TRAINER_TENSOR_COUNT
};
/* A rank's part of one tensor of the state: elements first..first+count-1 of the parameter. */
struct trainer_part {
    enum dtype dtype;
    int64_t first, count;
    int copies, copy;      /* ranks that hold the same elements, and this one's number among them */
    int replica, replicas; /* TRAINER_FEEDBACK: whose it is, and how many there are; else 0 and 1 */
    int entry; /* for the trainer: the buffer, and (at) the element in it; -1: other stages have it */
    int64_t at;
};
/* Finds this rank's part of a tensor. Values are the masters, if there are masters. false: no rank has such a
 * tensor. */
bool trainer_part(const struct trainer *trainer, int param, enum trainer_tensor tensor,
                  struct trainer_part *part);
/* Read or write elements of the parameter inside of the part, of its dtype. trainer_fill_params writes
 * values, since the parameters that gathers move follow from them. */
int trainer_read_part(struct trainer *trainer, const struct trainer_part *part, int64_t first, int64_t count,
                      void *out, struct muster_error *err);
int trainer_write_part(struct trainer *trainer, const struct trainer_part *part, int64_t first, int64_t count,
                       const void *values, struct muster_error *err);
/* Where the host does not read the device's memory: parts are copied to pinned memory between steps, and read
 * from there while steps run. trainer_pin allocates it; the arena is freed before the trainer. trainer_fetch
 * enqueues the copy of a part's elements into it, trainer_fetched waits for all copies. */
int trainer_pin(struct trainer *trainer, int64_t bytes, struct device_arena *arena, struct muster_error *err);
void trainer_unpin(struct trainer *trainer, struct device_arena *arena); /* accepts an arena of nothing */
int trainer_fetch(struct trainer *trainer, const struct trainer_part *part, int64_t first, int64_t count,
                  void *pinned, struct muster_error *err);
int trainer_fetched(struct trainer *trainer, struct muster_error *err);
/* Whether trainer_part_address gives addresses. */
bool trainer_host_reads(const struct trainer *trainer);
/* Address from which the host reads the part, from element `first` on, while no group is stepped; NULL: the
 * device's memory is not the host's. Gathers for the next step do not write there. */
const void *trainer_part_address(const struct trainer *trainer, const struct trainer_part *part,
                                 int64_t first);
/* Sets a guard: wait(context, group) is called, and may block, before a step or a function of this header
 * changes values or moments of that group; NULL: no guard. */
void trainer_set_guard(struct trainer *trainer, void (*wait)(void *context, int group), void *context);
/* Sets a vote: vote(context, votes) is called in every step, on a thread of the trainer's, as late as
 * possible. It adds this rank's votes on background work to votes[TRAINER_VOTES], which are 0, and does not
 * block. The step sums the votes over all ranks. NULL: no vote. Every rank sets it between the same two
 * steps; sums that were not taken are dropped. */
enum { TRAINER_VOTES = PLAN_VOTES };
void trainer_set_vote(struct trainer *trainer, void (*vote)(void *context, double *votes), void *context);
/* Takes the sums of the last step, the same on every rank. false: no step since the vote was set, or the sums
 * were taken before. */
bool trainer_take_votes(struct trainer *trainer, double votes[TRAINER_VOTES]);
/* Counts on which a step's scalars depend. */
struct trainer_counts {
    int64_t steps, updates;
    struct loss_scale scale; /* scale 0: the loss was not scaled */
};
void trainer_get_counts(const struct trainer *trainer, struct trainer_counts *counts);
void trainer_set_counts(struct trainer *trainer, const struct trainer_counts *counts);
/* Sets values, moments and counts as after trainer_create. */
int trainer_restart(struct trainer *trainer, struct muster_error *err);
/* After trainer_create with draws_late: draws the initial values that nothing has written yet. Functions of
 * this header do it before they read values; trainer_part_address does not. Nothing where they are drawn. */
int trainer_draw(struct trainer *trainer, struct muster_error *err);

/* ---- a trace: times of operations in chosen steps ---- */

enum trainer_trace_kind {
    TRAINER_TRACE_STEP, /* a whole step */
    TRAINER_TRACE_OP,   /* an operation of the plan; a gather for the next step may end after its own step */
    TRAINER_TRACE_WAIT  /* the compute stream waited for another stream, before that operation; -1: at the end
                         */
};
struct trainer_trace_event {
    enum trainer_trace_kind kind;
    int op;                   /* in plan.ops; -1: none */
    int64_t step;             /* number of the step, from 1 */
    int64_t begin_ns, end_ns; /* monotonic */
    int64_t bytes;            /* bytes that an operation gathers, reduces, moves or works on; 0: a layer's */
    int64_t comm_ns, exposed_ns; /* times of a step, as in its stats: the waits add up to exposed_ns */
};
typedef int trainer_trace_visit(void *context, const struct trainer_trace_event *event,
                                struct muster_error *err);

/* On a GPU times are those of its events, from the host's time at the step's begin on. */
/* Records the next `steps` steps, in memory that is allocated now. 0: records none, and drops recorded steps.
 * Not collective. */
int trainer_trace(struct trainer *trainer, int64_t steps, struct muster_error *err);
/* Visits all recorded events, step by step: first the step, then its operations in their order. Ends at a
 * visit that returns -1. */
int trainer_traced(struct trainer *trainer, trainer_trace_visit *visit, void *context,
                   struct muster_error *err);

/* Fills seconds[layer_count] from the recorded steps: the calls of each layer in a step, all as long as the
 * shortest of their kind (other work of the machine only adds); 0: of layers that this rank does not call. */
int trainer_layer_seconds(struct trainer *trainer, double *seconds, struct muster_error *err);

/* The name of an operation of the plan: "forward h.0", "all_gather wte". */
enum { TRAINER_OP_NAME = 128 };
void trainer_op_name(const struct trainer *trainer, int op, char name[TRAINER_OP_NAME]);

/* Prints this rank's place in the schedule. Each comm has lines with its last issued and finished operations
 * and the ranks that it waits for. The last line has the step and the operation that compute has begun last.
 * From any thread, also during another thread's call of the trainer; the parts are read one after the other.
 */
int trainer_place(const struct trainer *trainer, struct buffer *out);

/* A difference in bits of parameters, moments or averages between ranks that hold the same elements. Such
 * ranks are all of NO_SHARD, the replicas of HYBRID_SHARD, and all ranks for parameters that are kept whole.
 */
struct trainer_difference {
    int param; /* the first that differs; -1: none */
    /* Ranks that differ; if more than two ranks hold the parameter, fewer ranks agree with `rank`. */
    int rank, other;
};
/* Collective, between steps; the same answer on every rank. Reads all elements that more than one rank holds.
 */
int trainer_compare_replicas(struct trainer *trainer, struct trainer_difference *out,
                             struct muster_error *err);

/* Runs fn on the compute stream, where kernels may be called, and waits for it: benchmarks measure kernels
 * with the threads of a step this way. */
int trainer_run(struct trainer *trainer, void (*fn)(void *argument), void *argument,
                struct muster_error *err);

/* The least time of a step: its products, and the bytes that the optimizer and copies move (plan_count_work),
 * at the rates at which this rank multiplies and reads. */
struct trainer_limit {
    /* least seconds of a step; 0: no layer multiplies, or the device is not measured (CUDA) */
    double seconds;
    double step_flops; /* operations of this rank's products in a step, without recomputation */
    double peak_flops; /* operations in a second; 0: no layer multiplies */
};
/* Measures the limit for about 0.5 s. Not collective, but ranks that share a machine should measure at once.
 */
int trainer_limit(struct trainer *trainer, struct trainer_limit *limit, struct muster_error *err);

/* The settings that the last bit of this run depends on. */
void trainer_fingerprint(const struct trainer *trainer, struct fingerprint *fingerprint);
const struct model *trainer_model(const struct trainer *trainer);
const struct kernels *trainer_kernels(const struct trainer *trainer);
const char *trainer_attention(const struct trainer *trainer); /* the library's text; "": there is none */
const struct plan *trainer_plan(const struct trainer *trainer);
/* Memory of plan_options.checkpoint_bytes, for the caller's use; NULL: none was planned. */
char *trainer_checkpoint_memory(const struct trainer *trainer);
/* Bytes really allocated per memory class: equals plan.arena_bytes. */
int64_t trainer_arena_bytes(const struct trainer *trainer, enum memory_class memory);

#endif
