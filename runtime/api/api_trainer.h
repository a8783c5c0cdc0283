/* api_trainer.h - the trainer of a handle of muster_trainer.h, and the functions that its files share. */
#ifndef MUSTER_RUNTIME_API_API_TRAINER_H
#define MUSTER_RUNTIME_API_API_TRAINER_H

#include <pthread.h>

#include "runtime/api/api_model.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/config/train_config.h"
#include "runtime/config/train_plan.h"
#include "runtime/cuda/devices/devices.h"
#include "runtime/device/device_module.h"
#include "runtime/plan/plan_cut.h"
#include "runtime/train/offers.h"
#include "runtime/train/recover/recover.h"
#include "runtime/train/trainer.h"

/* Device and transport that this rank has found for itself. */
struct api_found_device {
    struct device_chosen device;
    struct rank_offer offer;
};

/* Values of a step that muster_trainer_set puts in place of the settings'; NaN: as in the settings. */
struct api_overrides {
    double learning_rate, weight_decay, beta1, beta2, epsilon, clip_norm;
};

/* The targets of a step, as the step before it has summed them. */
struct api_announced {
    int64_t first;      /* sample of that step; -1: nothing was announced */
    int64_t here, sums; /* targets of this rank, over all ranks */
};

/* A checkpoint that is on its way. */
struct api_saving {
    struct checkpoint_writer *writer;
    int64_t step;
    int64_t kept_before; /* step of the best checkpoint before it */
};

/* The stage of this trainer, in a training in stages. */
struct api_stage {
    int32_t number;                    /* from 0; -1: there are no stages */
    int64_t first_step, first_updates; /* that were done when it began */
    bool follows;                      /* it may begin from the checkpoint of first_step */
    bool begun;                        /* it has, from the checkpoint that was loaded last */
    int32_t found;                     /* the stage of a checkpoint that was refused for it; -1: none */
};

/* Keys of notes. */
#define API_CUT_KEY     "mesh.cut"
#define API_SECONDS_KEY "mesh.seconds"

/* Where the stages begin, see api_cut.c. */
struct api_cut {
    struct train_cut found;
    char *text; /* notes of a checkpoint; names point into it */
    const char **names;
    double *seconds;             /* [layer_count] a step's time in each layer; NULL: not measured */
    int steps;                   /* timed steps of this run */
    bool traced;                 /* the caller has traces of its own: nothing is timed */
    struct plan_slowest slowest; /* by the times of this run; 0: not measured */
};

enum { API_BASE = 64, API_CLASSES = 4096 };

struct muster_trainer {
    struct muster_model *shared;
    struct model model; /* the shared one's, with parameters and layers of its own: settings mark them */
    struct train_config config;
    struct plan_options plan;
    struct api_cut cut;
    struct pipe_table table; /* from the file of mesh.schedule; zeroed: none */
    struct trainer *trainer;
    struct api_found_device found;
    enum kernels_products products; /* of this rank */
    const char *products_not; /* why products of a training.dtype of 16 bits are fp32; NULL: they are not */
    struct comm_chosen comm;
    char *nccl_lines; /* api_nccl_environment's; owned; NULL: nothing to report */
    struct {
        pthread_t thread;
        bool begun;
        enum kernels_products by; /* read by the thread */
    } ready;                      /* api_ready.c */
    int rank, world_size, local_size, threads;
    char *folder; /* folder of Hugging Face that was loaded last; NULL: none */
    enum dtype
        loaded_dtype; /* type of the tensors that were loaded; DTYPE_COUNT: none were, or types differ */
    char *opened;     /* what of them was kept in few bits, as text; NULL: nothing */
    char *drawn;      /* parameters that they lack, as text; NULL: none */
    int drawn_count;
    double dropout; /* that its config.json gives, and which is not applied */
    struct api_overrides overrides;
    bool stop;
    int64_t targets;     /* number in a whole step, where it is known; 0: counted */
    double next_targets; /* targets of this rank in the step after the next; NaN: not given */
    struct api_announced announced;
    int64_t steps, updates; /* so far; a skipped step does not advance the schedule */
    int64_t taken;          /* samples so far, over all ranks */
    bool wants_checkpoint;  /* this rank asks for one with its next step */
    struct api_stage stage;
    char **notes; /* "key=value" that a checkpoint keeps, NULL at the end; NULL: none */
    struct evaluation_state evaluation;
    double evaluated_correct;     /* correct rows of the last evaluation */
    int64_t classes;              /* classes of the loss; 0: none, or more than API_CLASSES */
    int labels;                   /* the input that they are compared with */
    bool classes_of_samples;      /* a row for each sample, not for each position */
    double *class_rows;           /* (3 classes): of the last evaluation, over all ranks */
    struct plateau_state plateau; /* for schedule ReduceLROnPlateau */
    int64_t saved_step;           /* step of the checkpoint that was written or loaded last; -1: none */
    struct api_saving saving[SAVES_AT_ONCE]; /* during steps, the oldest first */
    int saving_count;
    struct checkpoint_kept kept;             /* from one to the next */
    int64_t checkpoint_ns, checkpoint_bytes; /* that writing it took; of this rank */
    int64_t checkpoint_stall_ns;   /* part of checkpoint_ns in which this rank's training was stalled */
    bool checkpoint_again;         /* the last one was not saved, and another try may have room */
    int64_t checkpoint_given_up;   /* rank 0: step of the checkpoint that was removed for it; -1: none */
    struct muster_world *stays_in; /* muster_trainer_stay; NULL: this trainer is not registered */
    bool rejoined;                 /* and its state is not taken yet */
    struct recover_copies *copies; /* training.memory_copies; NULL: none */
    struct muster_kept *earlier;   /* muster_trainer_take; NULL: none, or it was used */
    int64_t copies_ns;             /* that the last copies in memory took */
    int64_t recovered_ns, recovered_bytes;
    struct checkpoint_hook *hook;     /* rank 0's: training.checkpoint_command; NULL: none */
    int64_t command_ns;               /* that it took last */
    struct trainer_limit limit;       /* as measured last */
    struct muster_result last;        /* step */
    char base[API_BASE];              /* hash of the adapters' base; "": not formed since it was set */
    int64_t vocabulary[BATCH_INPUTS]; /* upper bound of each input's numbers */
    bool compared[BATCH_INPUTS];      /* by the loss: -1 or NaN does not count */
};

/* The upper bound of an input's numbers: a vocabulary, classes, or the number of positions and 1. */
int64_t api_numbers(const struct muster_trainer *trainer, int input);

struct files_export;
/* Fills an export by the settings and the loaded files: type, shards, architecture, folder. */
void api_fill_export(const struct muster_trainer *trainer, struct files_export *what);
/* Arrays of so many samples, as a step's. */
int api_check_arrays(const struct muster_trainer *trainer, const void *const *arrays, int64_t rows,
                     struct muster_error *err);
int64_t api_samples(const struct muster_trainer *trainer); /* samples of this rank in a step */
struct train_batch api_batch(const struct muster_trainer *trainer);
/* Fills model and config. The caller calls api_release, on failure too. */
int api_read(struct muster_trainer *trainer, struct muster_model *model, const char *const *settings,
             struct muster_error *err);
/* After api_read: a plan for the settings, for a world of that size (its ranks on one node) or for the rank
 * of a trainer that is being opened. */
int api_make_plan(struct muster_trainer *trainer, const struct train_place *place, struct muster_error *err);
/* Both, for a plan alone. */
int api_prepare(struct muster_trainer *trainer, struct muster_model *model, const char *const *settings,
                const struct train_place *place, struct muster_error *err);
void api_release(struct muster_trainer *trainer);
/* Which of a plan's bytes a limit is of: a GPU's memory, or all (api_described.c). */
enum plan_memory api_plan_memory(const struct muster_trainer *trainer);

/* ---- api_described.c: a plan for a GPU that is not here ---- */

/* The GPU that training.device describes; NULL: it names a device to train on. */
const struct cuda_description *api_described(const struct muster_trainer *trainer);
/* 0 where the described GPU can compute as the settings have it, or none is described. */
int api_described_check(const struct muster_trainer *trainer, struct muster_error *err);
/* Bytes of the described GPU that a plan of so many ranks may take, next to its libraries. */
int64_t api_described_memory(const struct muster_trainer *trainer, int world_size);
/* The same for a plan of a GPU (api_plan_memory), described or this machine's. Fails where neither is there.
 */
int api_gpu_memory(const struct muster_trainer *trainer, int world_size, int64_t *bytes,
                   struct muster_error *err);
/* Rates to compare plans with: the peaks of the GPU that is described, or of this machine's where the
 * settings choose it (its GPU with the fewest bytes). Rates of ordinary cores where there is no GPU, it is
 * not known (cuda_describe), or it has no products of the type. */
struct plan_rates;
void api_rates(const struct muster_trainer *trainer, struct plan_rates *rates);
/* Memory of this machine for each rank of a GPU's plan: the free bytes, for as many ranks as it has GPUs, or
 * a node of the described ones. */
struct api_host {
    int64_t bytes; /* 0: not known */
    int ranks;     /* that share it */
};
void api_host(const struct muster_trainer *trainer, int world_size, struct api_host *host);
/* Adds the plan's bytes of a node's memory, and of the copy of a checkpoint, to the text of a plan for
 * a GPU. Where this machine has less, a warning follows, with changes that help: the plan may be for another
 * machine. */
int api_host_text(const struct muster_trainer *trainer, int world_size, int32_t format, struct buffer *out,
                  struct muster_error *err);
/* Whether a format (enum muster_plan_format) has the members of an object, with its braces or without. */
static inline bool api_plan_is_json(int32_t format)
{
    return format == MUSTER_PLAN_JSON || format == MUSTER_PLAN_MEMBERS;
}
/* Adds the described GPU's memory, and the least time of a step by arithmetic, to the text of a plan (enum
 * muster_plan_format). */
int api_described_text(const struct muster_trainer *trainer, const struct plan *plan, int32_t format,
                       struct buffer *out, struct muster_error *err);

/* Work memory depends on the kernels of the settings' device, and scratch on the threads of a rank among
 * local_size of one node; no device is opened. */
int api_plan_sizes(struct muster_trainer *trainer, int local_size, struct muster_error *err);
/* The library of products, of this rank, and why training.dtype: bf16 does not multiply in bf16
 * (products_not). After found.device. */
enum kernels_products api_choose_products(struct muster_trainer *trainer);

/* ---- api_libraries.c: OpenBLAS and oneDNN take memory of their own ---- */

/* Adds it to the text of a plan for a CPU (enum muster_plan_format). After api_plan_sizes. */
void api_libraries_text(const struct muster_trainer *trainer, int32_t format, struct buffer *out);
/* kernels_cpu_library_room for a rank on a CPU: trainer_options.room; context is the trainer. After
 * api_choose_products. */
int api_libraries_room(void *trainer, struct muster_error *err);

/* ---- api_ready.c: products are made ready on a thread ---- */

/* Where the largest product of the plan is oneDNN's. After api_choose_products, with the rank's threads
 * known. */
void api_ready_begin(struct muster_trainer *trainer);
void api_ready_end(struct muster_trainer *trainer); /* waits for the thread, where there is one */

/* ---- api_device.c: each rank finds a device, and all choose one ---- */

/* This rank alone: the device of its settings, and whether there is NCCL for it. */
int api_device_find(const struct muster_trainer *trainer, int local_rank, struct api_found_device *found,
                    struct muster_error *err);
/* Collective: sets device and comm of the options from the devices of all ranks, the same everywhere. An
 * error names the rank and its missing device. */
int api_device_choose(struct muster_trainer *trainer, struct muster_world *world,
                      struct trainer_options *options, struct muster_error *err);

/* ---- api_cut.c: where the stages of a pipeline begin ---- */

/* After api_read: whether a checkpoint may know it. */
bool api_cut_looks(const struct muster_trainer *trainer);
/* Collective, if it does, before api_make_plan. notes: rank 0's for all ranks, api_folder_cut's. world NULL:
 * for a plan alone. */
int api_cut_look(struct muster_trainer *trainer, struct muster_world *world, const struct buffer *notes,
                 struct muster_error *err);
void api_cut_free(struct api_cut *cut); /* accepts a zeroed one */
/* The texts of the notes: "h.3, h.6", and seconds of all layers, empty where they are not known. -1: no
 * memory.
 */
int api_cut_texts(const struct muster_trainer *trainer, struct buffer *cut, struct buffer *seconds);
/* Around each step: the first ones are timed. The second is collective; 1: the times are there now, to be
 * noted. */
int api_cut_before_step(struct muster_trainer *trainer, struct muster_error *err);
int api_cut_after_step(struct muster_trainer *trainer, struct muster_error *err);

/* ---- api_nccl.c ---- */

/* Under another launcher than muster's: sets NCCL's variables that are not set, before the first
 * communicator. A machine that cannot be read is a line of muster_trainer_nccl, and no failure. */
void api_nccl_environment(struct muster_trainer *trainer, const struct trainer_options *options);

/* ---- api_saving.c: checkpoints that are being written ---- */

/* MUSTER_E_INVALID where training.checkpoint_dir is not set. */
int api_check_folder(const struct muster_trainer *trainer, struct muster_error *err);

/* Memory for checkpoints that are being written; 0: none are. */
int64_t api_staging_bytes(const struct muster_trainer *t);
/* training.checkpoint_local_dir; NULL: there is none. */
const char *api_local_dir(const struct muster_trainer *trainer);
/* Writes the state of evaluations into the notes. */
int api_note_evaluation(struct muster_trainer *trainer, struct muster_error *err);
/* The same for the cut of a model in several parts (api_cut.c). */
int api_note_cut(struct muster_trainer *trainer, struct muster_error *err);
/* The same for the state of ReduceLROnPlateau, where that is the schedule. */
int api_note_plateau(struct muster_trainer *trainer, struct muster_error *err);

/* Whether the checkpoint of that step is being written. */
bool api_saving_step(const struct muster_trainer *trainer, int64_t step);
/* Whether another checkpoint has to wait before it can begin; the same on every rank. */
bool api_saving_busy(const struct muster_trainer *trainer);
/* Collective: waits until each of them is saved, or could not be. */
void api_saving_settle(struct muster_trainer *trainer);
/* Gives all of them up, before the trainer ends. */
void api_saving_end(struct muster_trainer *trainer);

/* training.checkpoint_command, on rank 0: before the first checkpoint; an error of this rank alone. */
int api_open_command(struct muster_trainer *trainer, struct muster_error *err);
/* After a resume: runs the command for that checkpoint, unless it had succeeded. */
void api_command_resumed(struct muster_trainer *trainer);

/* ---- api_regroup.c ---- */

/* Before the comms of a trainer are closed: it does not stay any more. */
void api_stay_end(struct muster_trainer *trainer);
/* training.memory_copies, after a trainer was created; an error of this rank alone. */
int api_copies_open(struct muster_trainer *trainer, struct muster_error *err);
/* Collective, after a step: makes the copies of training.memory_copies if they are due. */
int api_copies_step(struct muster_trainer *trainer, struct muster_error *err);
/* api_trainer.c: the state of evaluations and schedule of a run that begins. */
int api_begin(struct muster_trainer *trainer, struct muster_error *err);
/* api_checkpoint.c: the numbers and notes of a state are this trainer's from here. */
int api_take_run(struct muster_trainer *trainer, const struct manifest_run *run, struct muster_error *err);

/* ---- api_stages.c: the checkpoints that a stage takes ---- */

/* Before a checkpoint is looked for. */
void api_stage_look(struct muster_trainer *trainer);
/* Whether this stage begins from a checkpoint: it is of the end of the stage before. */
bool api_stage_begins(const struct muster_trainer *trainer, const struct manifest_run *run);
/* The parts of a checkpoint that are loaded (enum checkpoint_parts). goes_on: the trainer goes on as the run
 * that wrote it. */
unsigned api_stage_parts(const struct muster_trainer *trainer, const struct manifest_run *run, bool goes_on);
/* MUSTER_E_REFUSED: the checkpoint is of another stage, which is kept for stage_found of the state, or of a
 * training without stages. */
int api_stage_accept(struct muster_trainer *trainer, const struct manifest_run *run,
                     struct muster_error *err);
/* After a checkpoint was loaded, with the notes of the run that wrote it unless this stage begins: sets
 * steps, updates and samples, and writes the stage into the notes. */
int api_stage_take(struct muster_trainer *trainer, const struct manifest_run *run, struct muster_error *err);
/* Collective, after one was refused: the ranks agree on stage_found of the state. */
void api_stage_refused(struct muster_trainer *trainer);

/* Adds the notes of api_note_cut of a folder's newest checkpoint that has them, "CUT\nSECONDS"; nothing where
 * they cannot be read, which is the resume's error. */
void api_folder_cut(const char *folder, struct buffer *out);

/* ---- api_adapters.c: checkpoints of adapters keep a hash of the base, which they do not hold ---- */

/* Whether the model has adapters. */
bool api_adapts(const struct muster_trainer *trainer);
/* Collective: writes the base's hash and the adapters' alpha into the notes of checkpoints. Nothing without
 * adapters. */
int api_note_base(struct muster_trainer *trainer, struct muster_error *err);
/* The base has changed. */
void api_forget_base(struct muster_trainer *trainer);
/* After api_note_base: MUSTER_E_REFUSED where a checkpoint's adapters are of another base, or with
 * another alpha; a base that cannot be compared is a line of the report. Not collective. */
int api_compare_base(const struct muster_trainer *trainer, manifest_texts notes, struct buffer *report,
                     struct muster_error *err);

#endif
