/* muster_trainer.h - one rank's share of a training run of any model.
 *
 * All ranks of a world open theirs with the same model and settings and make the same calls in the same
 * order; every call blocks until its work is done. Calls on one trainer come from one thread at a time. After
 * an error of a collective every later call returns that error.
 *
 * Settings are texts, "training.strategy=FULL_SHARD", ended by NULL: the keys of section training of
 * muster-train's YAML, with its defaults (`muster-train --help` prints them). */
#ifndef MUSTER_TRAINER_H
#define MUSTER_TRAINER_H

#include <stddef.h>
#include <stdint.h>

#include "muster_model.h"
#include "muster_world.h"

#ifdef __cplusplus
extern "C" {
#endif

struct muster_trainer;

/* Collective. world NULL: a world of one; it must stay open until this returns. NULL on error: a setting
 * that is unknown, out of range or without effect is MUSTER_E_INVALID and named; a model or batch that does
 * not fit into memory is MUSTER_E_NOMEM before anything is allocated. A failure of one rank is an error on
 * all of them. */
MUSTER_API struct muster_trainer *muster_trainer_open(struct muster_world *world, struct muster_model *model,
                                                      const char *const *settings, struct muster_error *err);
/* Leaves and sets *trainer to NULL. */
MUSTER_API void muster_trainer_close(struct muster_trainer **trainer);

enum muster_plan_format {
    MUSTER_PLAN_SUMMARY, /* bytes by kind */
    MUSTER_PLAN_WHOLE,   /* every buffer and every operation of a step too */
    MUSTER_PLAN_JSON,    /* one JSON object, of schema "muster-plan-1" */
    MUSTER_PLAN_MEMBERS, /* the members of that object alone, for an object that has others too */
};
/* The plan of a rank 0 in a world of that size, without creating anything; format: enum muster_plan_format.
 * The text, cut off at size - 1 bytes, is terminated (size 0: text may be NULL). Returns the length of the
 * whole text, or -1. */
MUSTER_API int64_t muster_plan_text(struct muster_model *model, int32_t world_size,
                                    const char *const *settings, int32_t format, char *text, int64_t size,
                                    struct muster_error *err);
/* 0 if that plan is within training.memory_limit, or none is set; else MUSTER_E_LIMIT with both sizes and the
 * three cheapest changes of settings that make it fit. On a GPU the limit is of the GPU's memory. */
MUSTER_API int muster_plan_fits(struct muster_model *model, int32_t world_size, const char *const *settings,
                                struct muster_error *err);

struct muster_prediction {
    uint32_t size;     /* sizeof(struct muster_prediction), set by the caller */
    int32_t ranks;     /* number that was measured at once, as threads of this process */
    int32_t threads;   /* compute threads of each rank */
    int32_t kinds;     /* kinds of layers that were called */
    double step_s;     /* wall time of a step in the middle of a run */
    double compute_s;  /* compute, without waits */
    double comm_s;     /* all collectives */
    double exposed_s;  /* compute waits for collectives, or they take its cores */
    double measured_s; /* the measurement itself */
    /* With mesh.cut: auto and stages: the layers that begin the stages after the first, by these times; the
     * prediction is for them. Else "". */
    char cut[2048];
};
/* Predicts the step of the same plan from the time of its parts on this machine: each kind of layer, the
 * optimizer, collectives, called alone with cold caches on as many ranks as the machine has room for, at
 * most world_size. It takes about as long as a few steps, and as much memory as the largest layer and the
 * machine's largest cache (1 GB at most). */
MUSTER_API int muster_plan_predict(struct muster_model *model, int32_t world_size,
                                   const char *const *settings, struct muster_prediction *prediction,
                                   struct muster_error *err);

/* Why the stages of a pipeline begin where they do. */
enum muster_cut {
    MUSTER_CUT_SET,      /* as mesh.cut, or there is one stage */
    MUSTER_CUT_KEPT,     /* as in the checkpoint that the run goes on from */
    MUSTER_CUT_MEASURED, /* by the times that the run of the checkpoint has measured */
    MUSTER_CUT_COUNTED,  /* by products and bytes of the layers */
};
/* The layers that begin the stages after the first, "h.3, h.6", as a value of mesh.cut; *by: enum muster_cut.
 * After the first steps of a run with mesh.cut: auto the layers' times are known: *gain is the share of its
 * time that the slowest part would lose by another cut, and the text is that cut. Before that, and with
 * another mesh.cut, *gain is -1. Cut off and returned as by muster_plan_text. */
MUSTER_API int64_t muster_trainer_cut(const struct muster_trainer *trainer, int32_t *by, double *gain,
                                      char *text, int64_t size, struct muster_error *err);

/* A machine to suggest a mesh for; it need not be this one. */
struct muster_machine {
    uint32_t size; /* sizeof(struct muster_machine), set by the caller */
    int32_t world_size;
    int32_t ranks_per_node; /* 0: all on one node */
    uint32_t reserved;      /* 0 */
    int64_t memory;         /* bytes that a rank may use; 0: training.memory_limit, else on a GPU that of this
                               machine's, and on CPUs its share of a node like this one */
    double link_bytes_s, link_latency_s; /* of a node's line to the others; 0, 0: 1.25e9 and 50e-6 */
};
/* The ten fastest meshes for the model and training.global_batch, by the times of ordinary cores, or of a
 * GPU, described or chosen on this machine, by its peaks: pipeline, schedule, strategy, micro-batch and
 * recomputation, whatever the settings have for them. Each was planned stage by stage, fits and cannot wait
 * for ever. The text has each as YAML, or is a JSON object of schema "muster-suggest-1" (format
 * MUSTER_PLAN_JSON), cut as that of muster_plan_text. Returns the length of the whole text, or -1;
 * MUSTER_E_LIMIT where no mesh fits. */
MUSTER_API int64_t muster_plan_suggest(struct muster_model *model, const struct muster_machine *machine,
                                       const char *const *settings, int32_t format, char *text, int64_t size,
                                       struct muster_error *err);

/* ---- steps ---- */

struct muster_result {
    uint32_t size;        /* sizeof(struct muster_result), set by the caller */
    int32_t skipped;      /* not 0: a gradient was not finite and the parameters are as before */
    int32_t stop;         /* not 0: a rank asked to stop; the same on every rank */
    int32_t checkpoint;   /* not 0: a rank asked for a checkpoint; the same on every rank */
    double loss;          /* mean over the step's targets of all ranks */
    double grad_norm;     /* before clipping; 0 if not clipped */
    double learning_rate; /* rate that this step used */
    int64_t targets;      /* targets that counted, over all ranks */
    int64_t step_ns;      /* wall time */
    int64_t comm_ns;      /* time that collectives took, waiting for late ranks included, added up */
    int64_t exposed_ns;   /* part of comm_ns in which compute was stalled */
    double loss_scale;    /* factor of the loss in this step; 0: none */
    /* Where skipped: the first parameter in the order of the backward pass whose gradient is not finite, and
     * the first rank that holds such a part of it; -1: none was found. */
    int32_t nonfinite, nonfinite_rank;
    double correct; /* models of classes: rows of the step whose class was found, over all ranks */
    /* With training.compression, else 0: bytes that this rank has sent to other replicas for gradients, and
     * the length of what was not sent over that of the gradients. */
    int64_t wire_bytes;
    double compression_error;
};

/* One optimizer step. It has training.global_batch samples in every world; each rank has `samples` of its
 * state, 0 too, and muster_trainer_row gives their rows. arrays: one for each input of the model, in their
 * order, of this rank's samples in turn, each of training.sequence_length positions. rows: the
 * samples that there are, at most that many, 0 too: the others do not count, and arrays may end. Every number
 * must be in the vocabulary, and a target may be -1; other values must be finite, and a target may be NaN.
 * Loss and gradients are means over the targets that count on all ranks, which are counted by a collective
 * before the step unless "targets" or "next_targets" was set (muster_trainer_set). result may be NULL. A
 * batch that is refused on one rank is an error on all where the targets are counted, else on this one alone,
 * which may give another. */
MUSTER_API int muster_trainer_train(struct muster_trainer *trainer, const void *const *arrays, int64_t rows,
                                    struct muster_result *result, struct muster_error *err);
/* The row in a step's global batch, 0 to training.global_batch - 1, of this rank's sample, 0 to
 * `samples` of the state - 1; -1 for another. Sample g of the run is row r of a step if `taken` + r is g
 * before the step. That depends on no number of ranks: a run that continues with other ranks misses no sample
 * and takes none twice. */
MUSTER_API int64_t muster_trainer_row(const struct muster_trainer *trainer, int64_t sample);
/* Collective, after a step whose loss is not finite and that was not skipped: the same two of its gradients.
 */
MUSTER_API int muster_trainer_nonfinite(struct muster_trainer *trainer, int32_t *parameter, int32_t *rank,
                                        struct muster_error *err);
/* Forward only, without dropout; changes nothing. Collective. arrays, rows: of at most training.micro_batch
 * samples (`micro_batch` of the state). sums: of the losses, and the targets that counted, each over all
 * ranks: sums[0] / sums[1] is the mean, and both may be added up over calls; NULL: not wanted. value: a
 * handle of the model, whose (rows, positions, width) comes to out; -1: none. The logits are
 * muster_cross_entropy's.
 */
MUSTER_API int muster_trainer_forward(struct muster_trainer *trainer, const void *const *arrays, int64_t rows,
                                      int32_t value, float *out, double sums[2], struct muster_error *err);
/* The same over any number of this rank's samples, micro-batch by micro-batch: ranks may have different
 * numbers, 0 too. A data set that is spread over the ranks is evaluated by one call, or by several whose sums
 * are added up: sums[0] / sums[1] is its mean loss, weighted by targets, and exp of that its perplexity. The
 * steps before and after give the same bits as without. */
MUSTER_API int muster_trainer_evaluate(struct muster_trainer *trainer, const void *const *arrays,
                                       int64_t rows, double sums[2], struct muster_error *err);
/* Collective: the total loss of each of `rows` samples, that of its targets that count, with
 * training.micro_batch=1 and without touching parameters. All ranks give the same samples; each rank
 * computes a part of them, several at a time among stages: as many as training.global_batch gives a rank.
 * losses: (rows), the same on every rank. */
MUSTER_API int muster_trainer_losses(struct muster_trainer *trainer, const void *const *arrays, int64_t rows,
                                     double *losses, struct muster_error *err);
/* Counts of class `number` in the last evaluation of a model of muster_classes with at most 4,096 classes,
 * over all ranks: actual, predicted and correct rows. The prediction is the largest logit, the first among
 * equal ones. */
MUSTER_API int muster_trainer_evaluated_class(const struct muster_trainer *trainer, int64_t number,
                                              double rows[3], struct muster_error *err);
/* Settings training.early_stop_... and keep_best at work: takes in the mean loss of an evaluation after the
 * last step, the same number on every rank. 0, or the sum of: MUSTER_JUDGED_BEST: it is the lowest so far:
 * with keep_best the checkpoint that is written before the next step is kept until the next such one;
 * MUSTER_JUDGED_STOP: so many evaluations were without a gain that the training should end;
 * MUSTER_JUDGED_LOWER: schedule ReduceLROnPlateau has lowered the learning rate. Its state is part of
 * checkpoints. */
enum { MUSTER_JUDGED_BEST = 1, MUSTER_JUDGED_STOP = 2, MUSTER_JUDGED_LOWER = 4 };
MUSTER_API int muster_trainer_judge(struct muster_trainer *trainer, double loss, struct muster_error *err);
/* on: not 0: from now on the moving average of the parameters (training.ema_decay) is what evaluations,
 * forward passes, generation, exports and gets use; 0: the parameters again, to the bit. Collective. While it
 * is on, steps, puts, loads and checkpoints are MUSTER_E_STATE. */
MUSTER_API int muster_trainer_average(struct muster_trainer *trainer, int32_t on, struct muster_error *err);
/* Collective, between steps: every rank gets the sums of all ranks' values, (count), with the same bits, by
 * the trainer's own connections. For figures, not for tensors. */
MUSTER_API int muster_trainer_reduce(struct muster_trainer *trainer, double *values, int64_t count,
                                     struct muster_error *err);
/* For all later steps: "learning_rate", "weight_decay", "beta1", "beta2", "epsilon" or "clip_norm" in place
 * of the settings (NaN: as in the settings again); "stop": not 0: this rank asks all to stop after the next
 * step; "checkpoint": the same for a checkpoint: muster_result.checkpoint, after which all ranks call
 * muster_trainer_checkpoint; "targets": that count in every whole step over all ranks, where all of them are
 * known (0: counted, by a collective before each step). For the next step alone: "next_targets": the number
 * of targets that will count in this rank's batch of the step after it. They are summed with the next step's
 * loss, so that the step after it begins without a collective of its own. Set on all ranks, or counted as
 * before.
 */
MUSTER_API int muster_trainer_set(struct muster_trainer *trainer, const char *name, double value,
                                  struct muster_error *err);
/* The state of a trainer. Nanoseconds are wall time; a step is counted from 1; -1: there is none yet. */
struct muster_trainer_state {
    uint32_t size; /* sizeof(struct muster_trainer_state), set by the caller */

    /* The trainer, fixed when it was opened (peak_flops and step_flops: by muster_trainer_limit). */
    int32_t threads;           /* compute threads of this rank */
    int64_t parameters;        /* elements of all parameters */
    int64_t planned_bytes;     /* all memory that this rank will ever hold */
    int64_t samples;           /* samples of this rank in each step */
    int64_t micro_batch;       /* samples in a forward pass of this rank */
    int64_t micro_batches;     /* forward passes of a step */
    int64_t positions;         /* positions of a sample */
    int64_t most_positions;    /* largest number that the model takes; 0: any */
    int64_t replicas;          /* copies of the model in the world */
    int64_t groups;            /* groups of parameters, each gathered as a whole */
    int64_t gathers_in_flight; /* groups that are gathered ahead of compute */
    double dropout;            /* largest probability in the config.json that was loaded; it is not applied */
    double step_flops;         /* floating-point operations of this rank's matrix products in a step; or 0 */
    double peak_flops;         /* the same in a second at best; 0: not measured */
    int32_t cuts_batches; /* 1: micro-batches end with their longest sample, where samples have lengths */

    /* The last step, as in struct muster_result; 0 before the first. */
    int32_t skipped;      /* 1: a gradient was not finite and nothing was changed */
    int32_t stop;         /* 1: a rank asked to stop */
    int32_t checkpoint;   /* 1: a rank asked for a checkpoint */
    double loss;          /* mean over the targets of all ranks */
    double grad_norm;     /* before clipping; 0: not clipped */
    double learning_rate; /* rate that the step used */
    double loss_scale;    /* factor of the loss in the step; 0: none */
    double correct;       /* rows whose class was found, over all ranks */
    int64_t targets;      /* targets that counted, over all ranks */
    int64_t step_ns;      /* time of the step */
    int64_t comm_ns;      /* time of all collectives, waiting for late ranks included */
    int64_t exposed_ns;   /* part of comm_ns in which compute was stalled */

    /* The run so far. */
    int64_t steps;            /* steps that were done */
    int64_t taken;            /* samples that all ranks have trained on */
    int64_t stage_first_step; /* steps that were done when the stage began */
    int32_t stage_found;      /* stage of a checkpoint that muster_trainer_stage refused; -1 */

    /* Evaluations that were judged (muster_trainer_judge). */
    int32_t stops_early;              /* 1: the training should end */
    int64_t evaluations;              /* number of them */
    int64_t evaluated_step;           /* step of the last evaluation; -1 */
    int64_t best_step;                /* step of the lowest loss; -1 */
    int64_t evaluations_without_gain; /* in a row */
    double best_loss;                 /* NaN: none */
    double evaluated_correct;         /* rows of the last evaluation whose class was found, over all ranks */
    double plateau_rate;              /* learning rate of ReduceLROnPlateau after warm-up */

    /* Checkpoints. */
    int64_t checkpoint_step;     /* written or loaded last; -1 */
    int64_t checkpoint_ns;       /* time that writing the last one took */
    int64_t checkpoint_stall_ns; /* part of it in which training was stalled */
    int64_t checkpoint_bytes;    /* size of this rank's part of the last one */
    int64_t checkpoint_oldest;   /* step of the oldest that is being written; -1 */
    int64_t
        checkpoint_given_up; /* rank 0: step of an older checkpoint that was removed for lack of room; -1 */
    int32_t checkpoint_writing; /* number of checkpoints that are being written during steps */
    int32_t checkpoint_busy;    /* 1: another one cannot begin yet */
    int32_t checkpoint_again;   /* 1: the last one failed for lack of room, and another try may succeed */
    int32_t command_busy;       /* 1: training.checkpoint_command runs, on rank 0 */
    int64_t command_step;       /* step of the checkpoint of its last success; -1 */
    int64_t command_ns;         /* time that it took last */

    /* Ranks that stay. */
    int64_t copies_ns;       /* time that the last copies of training.memory_copies took */
    int64_t recovered_ns;    /* time of the last muster_trainer_recover */
    int64_t recovered_bytes; /* of states and copies that this rank has sent or received in it */
};
/* Fills state, up to its size. MUSTER_E_INVALID: the size is too small to be that of any version. */
MUSTER_API int muster_trainer_state_get(const struct muster_trainer *trainer,
                                        struct muster_trainer_state *state, struct muster_error *err);
/* The same by value: muster_trainer_state_now(trainer).steps. */
static inline struct muster_trainer_state muster_trainer_state_now(const struct muster_trainer *trainer)
{
    struct muster_trainer_state state;
    state.size = sizeof state;
    (void)muster_trainer_state_get(trainer, &state, NULL); /* which only a wrong size fails */
    return state;
}
/* One member of the state by its name ("loss"), for programs without the struct. MUSTER_E_INVALID: there is
 * no member of that name; the message has the nearest one. */
MUSTER_API int muster_trainer_figure(const struct muster_trainer *trainer, const char *name, double *value,
                                     struct muster_error *err);
/* "cpu" or "cuda": where this rank computes (training.device). *passed_over (the pointer may be NULL): why a
 * device of "auto" is not a GPU although the module for GPUs is installed; NULL: it is one, or was not asked
 * for. Texts live as long as the trainer. */
MUSTER_API const char *muster_trainer_device(const struct muster_trainer *trainer, const char **passed_over);
/* "host" or "nccl": what moves data between ranks (training.comm), the same on all of them. *passed_over (may
 * be NULL): why a comm of "auto" is not nccl although all ranks compute on GPUs: who lacks what. */
MUSTER_API const char *muster_trainer_comm(const struct muster_trainer *trainer, const char **passed_over);
/* "fp32", "bf16" or "fp16": type of activations and of parameters as layers read them (training.values). */
MUSTER_API const char *muster_trainer_values(const struct muster_trainer *trainer);
/* "fp32", "tf32", "bf16" or "fp16": type of the factors of this rank's matrix products
 * (training.matmul_precision). *library (may be NULL): what multiplies, with version and instruction set.
 * *passed_over (may be NULL): why a training.dtype of 16 bits multiplies in fp32 on this CPU; NULL: it does
 * not, or was not asked for. */
MUSTER_API const char *muster_trainer_products(const struct muster_trainer *trainer, const char **library,
                                               const char **passed_over);
/* The library that computes attention with training.attention: cudnn, its version, and which shapes it leaves
 * to muster's kernels; NULL: muster's kernels compute all attention. */
MUSTER_API const char *muster_trainer_attention(const struct muster_trainer *trainer);
/* Under another launcher than muster's the trainer itself sets NCCL's variables that are not set, by the
 * rules of `muster env`, before the first communicator; MUSTER_NCCL_TUNE=off leaves them alone. One line a
 * variable or warning, with its reason; NULL: none. */
MUSTER_API const char *muster_trainer_nccl(const struct muster_trainer *trainer);
/* Seconds that a step takes at the least on this rank: its matrix products and the traffic of optimizer and
 * copies, at rates that are measured now for about 0.5 s, best on all ranks at once; 0 where no layer
 * multiplies, and on GPUs, which are not measured. */
MUSTER_API int muster_trainer_limit(struct muster_trainer *trainer, double *seconds,
                                    struct muster_error *err);
/* Draws `count` tokens after a prompt of at least one, from a language model whose first input is the
 * token. Collective; rank 0 gets them, others may pass NULL. temperature 0: the most likely one. limit:
 * tokens from it on are never drawn; 0: the vocabulary. Rank 0 holds all parameters during the call. */
MUSTER_API int muster_trainer_generate(struct muster_trainer *trainer, const int32_t *prompt,
                                       int64_t prompt_count, double temperature, uint64_t seed, int32_t limit,
                                       int32_t *tokens, int64_t count, struct muster_error *err);

struct muster_sampling {
    uint32_t size;      /* sizeof(struct muster_sampling), set by the caller */
    int32_t top_k;      /* only the k most likely tokens are drawn; 0: all */
    double top_p;       /* then the most likely ones until their probabilities reach it; 0 and 1: all */
    double temperature; /* 0: the most likely one */
    uint64_t seed;
    int32_t limit; /* tokens from it on are never drawn; 0: the vocabulary */
    int32_t end;   /* a token after which no more are drawn; -1: none */
};
/* The same with more to choose; every rank passes the same. Returns the number of tokens drawn, the end
 * included; 0 on other ranks than 0; -1. */
MUSTER_API int64_t muster_trainer_sample(struct muster_trainer *trainer, const int32_t *prompt,
                                         int64_t prompt_count, const struct muster_sampling *sampling,
                                         int32_t *tokens, int64_t count, struct muster_error *err);

/* Where this rank is: a line for each connection of ranks, with the operations that were issued and finished
 * last and the ranks that it waits for, and one with the step and the operation that compute has begun last.
 * From any thread, also while another one is in a call of the trainer: for ranks that hang. Returns and cuts
 * the text as muster_plan_text does. */
MUSTER_API int64_t muster_trainer_place(const struct muster_trainer *trainer, char *text, int64_t size);

/* Collective, between steps: whether ranks that hold the same elements (NO_SHARD, replicas of HYBRID_SHARD,
 * parameters that are kept whole) hold the same bits of parameters and optimizer state. 0: they do. 1: they
 * do not: the first parameter, the rank that fewer ranks agree with (of two the later), and a rank that
 * differs from it. Reads everything: about a second for each GB. */
MUSTER_API int muster_trainer_compare_replicas(struct muster_trainer *trainer, int32_t *parameter,
                                               int32_t *rank, int32_t *other, struct muster_error *err);

/* ---- traces ---- */

enum muster_trace_kind {
    MUSTER_TRACE_STEP,      /* a whole step */
    MUSTER_TRACE_OPERATION, /* compute or a copy; an operation for the next step may end after its own step */
    MUSTER_TRACE_COLLECTIVE, /* waiting for late ranks included */
    MUSTER_TRACE_WAIT,       /* compute waited for other streams: over a step they add up to exposed_ns */
};
struct muster_trace_event {
    uint32_t size;            /* sizeof(struct muster_trace_event), set by the library */
    int32_t kind;             /* enum muster_trace_kind */
    int32_t stream;           /* 0: compute, 1: gathers, 2: reductions, then those between stages */
    int32_t micro_batch;      /* -1: of none */
    int64_t step;             /* steps that are done with it, from 1 */
    int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC */
    int64_t bytes;            /* bytes that an operation gathered, reduced, moved or worked on; 0: a layer */
    int64_t comm_ns, exposed_ns; /* MUSTER_TRACE_STEP: as in its muster_result */
    const char *name;            /* "forward h.0", "all_gather h.0"; the texts live until visit returns */
    const char *group, *axis;    /* parameters that it is about; ranks of a collective ("shard"); "": none */
};
/* Records the next `steps` steps on this rank, in memory that is taken now; 0: none, and drops the record.
 * Not collective. Each operation of a recorded step costs about a microsecond. On a GPU times are those of
 * events, and the step's begin is the host's. */
MUSTER_API int muster_trainer_trace(struct muster_trainer *trainer, int64_t steps, struct muster_error *err);
/* Calls visit for all that was recorded, step by step: each step, then its operations in the order of its
 * schedule; a visit that returns -1 ends it. Between steps. */
MUSTER_API int muster_trainer_traced(struct muster_trainer *trainer,
                                     int (*visit)(void *context, const struct muster_trace_event *event),
                                     void *context, struct muster_error *err);

/* ---- checkpoints ---- */

/* Collective, between steps. Writes all that the run needs to go on into training.checkpoint_dir/step-N, a
 * folder that all nodes share, and removes older ones (training.checkpoint_keep, checkpoint_keep_every). 1:
 * written; 0: that of this step is there. -1: it was not written; checkpoints that there were are intact, and
 * if the reason is the file system the run may go on. */
MUSTER_API int muster_trainer_checkpoint(struct muster_trainer *trainer, struct muster_error *err);
/* The same during steps: begin returns at once, and the state of this moment is written while training goes
 * on; a step waits for the copy of data that it is about to change. Both are collective, between steps.
 * begin: 1: begun; 0: that of this step is there or on its way; -1: as above, MUSTER_E_STATE where the files
 * of another one are still being written, or two are on their way (`checkpoint_busy` of the state): while the
 * files of one are made durable, the files of the next may be written. Call end after each step while one is
 * on its way (`checkpoint_writing` of the state); it is about the oldest: 1: it is saved (err has a code
 * where there is no copy in training.checkpoint_local_dir); 0: not yet, or none is being written; -1: it was
 * not saved. Its first call after a step uses a sum of that step, and waits for no rank. wait: not
 * 0: it does not return before the end of that one. Closing the trainer before gives them up. */
MUSTER_API int muster_trainer_checkpoint_begin(struct muster_trainer *trainer, struct muster_error *err);
MUSTER_API int muster_trainer_checkpoint_end(struct muster_trainer *trainer, int32_t wait,
                                             struct muster_error *err);
/* How training.checkpoint_command, which rank 0 runs after each commit, has ended; on other ranks 0 at once.
 * 1: well, for the checkpoint of *step; -1: it failed, and err has its exit code and last lines, or it was
 * skipped for a newer one (MUSTER_E_CANCELLED); 0: nothing has ended within wait_ns, or nothing is left to do
 * (`command_busy` of the state). stop: there is no more time: the running command is ended, and a later run,
 * which goes on from that checkpoint, begins it again. Closing the trainer does the same. */
MUSTER_API int muster_trainer_command_end(struct muster_trainer *trainer, int64_t wait_ns, int64_t *step,
                                          struct muster_error *err);
MUSTER_API void muster_trainer_command_stop(struct muster_trainer *trainer);
/* Collective, before the first step. Goes on as training.resume asks. 1: from a checkpoint: `steps` and
 * `taken` of the state are the place; 0: there is none, and the run begins anew. report: lines about refusals
 * and about differences from the run that wrote it, on each rank its own; cut off at size - 1 bytes; may be
 * NULL. -1: MUSTER_E_REFUSED for a checkpoint that is whole and does not fit, with the setting; the run
 * cannot go on as it was. */
MUSTER_API int muster_trainer_resume(struct muster_trainer *trainer, char *report, int64_t size,
                                     struct muster_error *err);
/* A training in stages has a trainer for each, one after the other, and one folder of checkpoints. Before
 * muster_trainer_resume, on every rank: this trainer is of the stage of that number, from 0. follows: figure
 * "steps" at the end of the stage before: where the newest checkpoint is of that step and stage, resume
 * returns 2, and this stage begins from its parameters: `steps` of the state goes on, samples, evaluations
 * and schedule begin anew, the optimizer's moments by training.stage_moments. -1: not known, or the first
 * stage: it is not begun so. A checkpoint of another stage is MUSTER_E_REFUSED, and `stage_found` of the
 * state has that stage. */
MUSTER_API int muster_trainer_stage(struct muster_trainer *trainer, int32_t stage, int64_t follows,
                                    struct muster_error *err);
/* Collective, before the first step: the state of the newest checkpoint of a folder, or of a checkpoint (its
 * step-N) itself, of a run with any settings: for evaluations, generation and exports.
 * 1: loaded; `steps` of the state is its step; 0: there is none. report: as above. Nothing is written. */
MUSTER_API int muster_trainer_restore(struct muster_trainer *trainer, const char *path, char *report,
                                      int64_t size, struct muster_error *err);
/* Collective, at the end of a training, to export it: loads the checkpoint that training.keep_best has kept.
 * 1: loaded; `steps` of the state is now its step; 0: there is none, or it is the present state. -1: it
 * cannot be read, and the parameters are lost. */
MUSTER_API int muster_trainer_best(struct muster_trainer *trainer, struct muster_error *err);
/* Collective, between steps. Puts parameters, optimizer, `steps` of the state and notes back to the newest
 * checkpoint, and continues with the samples after the last step: `taken` of the state stays. 1: done; 0:
 * there is no checkpoint yet, and nothing has changed. report: as above. */
MUSTER_API int muster_trainer_roll_back(struct muster_trainer *trainer, char *report, int64_t size,
                                        struct muster_error *err);
/* A text of the caller's that checkpoints keep, under a key without "=" ("evaluation", "plateau", "stage",
 * "mesh.cut" and "mesh.seconds" are taken): the name of a data set, say, or a place in it. Rank 0's are kept.
 */
MUSTER_API int muster_trainer_note(struct muster_trainer *trainer, const char *key, const char *text,
                                   struct muster_error *err);
/* The text that was set last, or came from a checkpoint; NULL: there is none. It lives until the next one is
 * set. */
MUSTER_API const char *muster_trainer_noted(const struct muster_trainer *trainer, const char *key);
/* The same of a checkpoint (its step-N), or of the newest one in a folder that has such a note, without a
 * trainer and on this rank alone. The text, cut off at size - 1 bytes, is terminated. Returns the length of
 * the whole text; 0: there is none; -1: the folder cannot be read. Key "stage" has the number of the stage
 * first. */
MUSTER_API int64_t muster_checkpoint_noted(const char *folder, const char *key, char *text, int64_t size,
                                           struct muster_error *err);

/* ---- ranks that stay when others are lost ---- */

/* This trainer's collectives end, too, when a rank of world is lost: see muster_world_stay, which this calls.
 * 1; 0 where this rank cannot stay, on GPUs and with a measured mesh.cut too. The trainer is closed before
 * world.
 */
MUSTER_API int muster_trainer_stay(struct muster_trainer *trainer, struct muster_world *world,
                                   struct muster_error *err);
/* The same, and the program takes a place of another rank, or in a world of another size, too: 2. After
 * muster_world_rejoin it asks for its rank and size again; where they have changed it calls
 * muster_trainer_keep, muster_trainer_open and muster_trainer_take in the place of muster_trainer_rejoin. 3:
 * it does so in every place, since stages may be cut anew, or since world is a part, which it closes after
 * muster_world_rejoin of the whole world. 1: its rank and size stay, as after muster_trainer_stay: gradients
 * are compressed between replicas, parameters are held in few bits, there are adapters, or pipeline stages
 * with copies in memory. */
MUSTER_API int muster_trainer_stay_anywhere(struct muster_trainer *trainer, struct muster_world *world,
                                            struct muster_error *err);
/* After muster_world_rejoin: device, memory and plan stay, and the comms are made anew. Collective with
 * muster_trainer_open of the ranks that were started anew, and with this call of the others. A checkpoint
 * that was being written is given up. After an error, of another loss for instance, muster_world_rejoin and
 * this may be called again. */
MUSTER_API int muster_trainer_rejoin(struct muster_trainer *trainer, struct muster_world *world,
                                     struct muster_error *err);
/* Collective, on every rank that may be one of such a round, right after muster_trainer_open,
 * muster_trainer_stage or muster_trainer_rejoin. 1: all ranks have the state of one step: parameters,
 * optimizer, counts, notes, evaluations; `steps` and `taken` of the state are the place. It comes from
 * replicas (NO_SHARD, HYBRID_SHARD), else from the copies of training.memory_copies. 0: no rank has a state,
 * or some part of it is lost: every rank is as after muster_trainer_open, and may resume from a checkpoint.
 */
MUSTER_API int muster_trainer_recover(struct muster_trainer *trainer, struct muster_error *err);
/* A trainer's state without the trainer: parameters and optimizer, the counts, notes and evaluations, and its
 * copies of training.memory_copies, in memory that is not planned. */
struct muster_kept;
/* Closes the trainer, after a failed call or between steps, and keeps its state: 1. 0: it has none, since a
 * step was cut off, or one was to be recovered; -1: no memory. Not collective; *kept is NULL but for 1. */
MUSTER_API int muster_trainer_keep(struct muster_trainer **trainer, struct muster_kept **kept,
                                   struct muster_error *err);
/* After muster_trainer_open, of the same model and settings: muster_trainer_recover finds this state, too,
 * and divides it anew between the ranks of this world. *kept, which may be NULL, is the trainer's from then
 * on. */
MUSTER_API void muster_trainer_take(struct muster_trainer *trainer, struct muster_kept **kept);
/* Ranks of one world that had equal states have the same number, from 0: where a rank is left out of the next
 * world, another one with its number should not be. kept NULL: -1. */
MUSTER_API int32_t muster_kept_number(const struct muster_kept *kept);
MUSTER_API void muster_kept_free(struct muster_kept *kept);

/* ---- parameters ---- */

/* Parameters are numbered from 0; running statistics (muster_batch_norm2d) are among them. The name lives as
 * long as the trainer. NULL, 0 and -1 where there is no such parameter. */
MUSTER_API int32_t muster_trainer_parameters(const struct muster_trainer *trainer);
MUSTER_API int32_t muster_trainer_parameter(const struct muster_trainer *trainer, const char *name);
MUSTER_API const char *muster_trainer_parameter_name(const struct muster_trainer *trainer, int32_t parameter);
MUSTER_API int64_t muster_trainer_parameter_elements(const struct muster_trainer *trainer, int32_t parameter);
/* Fills shape[0..1] (1 for a missing dimension) and returns the number of dimensions. */
MUSTER_API int32_t muster_trainer_parameter_shape(const struct muster_trainer *trainer, int32_t parameter,
                                                  int64_t shape[2]);
/* Collective. values: all elements, on every rank; a rank that does not need them may pass NULL to get. */
MUSTER_API int muster_trainer_get(struct muster_trainer *trainer, int32_t parameter, float *values,
                                  struct muster_error *err);
MUSTER_API int muster_trainer_put(struct muster_trainer *trainer, int32_t parameter, const float *values,
                                  struct muster_error *err);

/* Collective. Sets all parameters from a file of safetensors, a folder of Hugging Face (one file or shards),
 * a checkpoint of llm.c, or a folder of PEFT's adapters, which leaves the base as it is; each rank reads the
 * elements that it holds. MUSTER_E_INVALID lists tensors that are missing, unexpected or of a wrong shape. A
 * failure of one rank is an error on all. */
MUSTER_API int muster_trainer_load(struct muster_trainer *trainer, const char *path,
                                   struct muster_error *err);
/* Collective. Rank 0 writes all parameters, to a file next to path that is then renamed over it; only rank 0
 * gets an error of the file. format: "safetensors": one file, tensors named as the parameters; "hf": a folder
 * for transformers' from_pretrained (of another model than "gpt2" and "llama": without a config.json), in
 * shards of training.output_shard_size, with the tokenizer of the folder that was loaded; "pth": a state dict
 * for torch.load(weights_only=True); "peft": a folder of the adapters alone. Tensors are of
 * training.output_dtype. A model with adapters is written by the other formats with lora.merge=true alone:
 * the base with their product added. */
MUSTER_API int muster_trainer_export(struct muster_trainer *trainer, const char *path, const char *format,
                                     struct muster_error *err);
/* Collective. Two hashes of the parameters as format "pth" writes them, on rank 0, "" on the others: exact is
 * of every bit and in hexadecimal; printed is md5(str(sorted(state_dict.items())).encode()).hexdigest()[:8]
 * of Python, by which scripts name versions of a model: it sees what PyTorch prints of a tensor, four digits
 * of its first and last elements. MUSTER_E_UNSUPPORTED: a model whose state dict has other names or shapes
 * than its parameters (gpt2, a tied llama, adapters). */
MUSTER_API int muster_trainer_hash(struct muster_trainer *trainer, char exact[17], char printed[9],
                                   struct muster_error *err);

/* The tensors that the model's files keep in few bits, if they do: "28 of 39 tensors are in int4 in groups of
 * 64". They were opened to the trainer's type as they were read. NULL: none is. */
MUSTER_API const char *muster_trainer_opened(const struct muster_trainer *trainer);

/* Of an encoder whose files lack a classifier: "2 parameters are not there and begin at random: ...", or that
 * tensors of another head are not read. NULL: nothing of both. *count: these parameters; NULL: not wanted. */
MUSTER_API const char *muster_trainer_drawn(const struct muster_trainer *trainer, int32_t *count);

struct muster_quantization {
    uint32_t size;      /* sizeof(struct muster_quantization), set by the caller */
    int32_t tables;     /* not 0: tables of embeddings and the head too, a row a channel, in int8 */
    const char *method; /* "int8" a channel, "int4" in groups, "gptq": int4 by a calibration set; "none" */
    int64_t group;      /* columns that share a scale of int4; 0: 64; filled, 0 of other methods */
    double prune;       /* the share of each weight's elements that becomes 0, the smallest first; below 1 */
    const char *const *keep; /* patterns of parameters that stay as they are, NULL at the end; NULL: none */
    /* Filled. */
    int32_t tensors, kept;    /* that were quantised or pruned, and the others */
    int64_t elements, pruned; /* elements of the former, and pruned ones */
    int64_t plain_bytes,
        bytes; /* size of all tensors in training.output_dtype, and in the file that was written */
};
/* In a world of one. Rounds, or prunes, the weights of the model's products, sets the trainer's parameters to
 * what their codes open to, and writes a folder like muster_trainer_export's "hf", whose tensors
 * muster_trainer_load opens again. arrays, rows: for "gptq" a calibration set of any number of samples, in
 * the layout of a step. MUSTER_E_INVALID names the setting, the tensor, the limit and what to use. */
MUSTER_API int muster_trainer_quantize(struct muster_trainer *trainer,
                                       struct muster_quantization *quantization, const void *const *arrays,
                                       int64_t rows, const char *path, struct muster_error *err);
/* Whether rank 0 will be able to write there, found out before the training. */
MUSTER_API int muster_export_probe(const char *path, const char *format, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
