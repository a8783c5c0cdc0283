/* api_trainer.h - the trainer behind a handle of muster_trainer.h. */
#ifndef MUSTER_RUNTIME_API_API_TRAINER_H
#define MUSTER_RUNTIME_API_API_TRAINER_H

#include "runtime/api/api_device.h"
#include "runtime/api/api_model.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/config/train_config.h"
#include "runtime/config/train_plan.h"
#include "runtime/train/trainer.h"

/* Values of a step that muster_trainer_set puts in place of the settings'; NaN: as in the settings. */
struct api_overrides {
    double learning_rate, weight_decay, beta1, beta2, epsilon, clip_norm;
};

/* The targets of a step, as the step before it has summed them. */
struct api_announced {
    int64_t first;      /* sample of that step; -1: nothing was announced */
    int64_t here, sums; /* of this rank, over all ranks */
};

/* A checkpoint that is on its way. */
struct api_saving {
    struct checkpoint_writer *writer;
    int64_t step;
    int64_t kept_before; /* the best one that was kept before it */
};

/* Of a training in stages, each with a trainer of its own; see api_stages.h. */
struct api_stage {
    int32_t number;                    /* from 0; -1: there are no stages */
    int64_t first_step, first_updates; /* that were done when it began */
    bool follows;                      /* it may begin from the checkpoint of first_step */
    bool begun;                        /* it has, from the one that was loaded last */
    int32_t found;                     /* the stage of a checkpoint that was refused for it; -1: none */
};

enum { API_BASE = 64, API_CLASSES = 256 };

struct muster_trainer {
    struct muster_model *shared;
    struct model model; /* the shared one's, with parameters and layers of its own: settings mark them */
    struct train_config config;
    struct plan_options plan;
    struct trainer *trainer;
    struct api_found_device found;
    struct comm_chosen comm;
    int rank, world_size, threads;
    char *folder; /* of Hugging Face that was loaded last; NULL: none */
    enum dtype
        loaded_dtype; /* of its tensors, or those of another file; DTYPE_COUNT: none was, or they differ */
    char *opened;     /* what of them was kept in few bits, as text; NULL: nothing */
    double dropout;   /* that its config.json gives, and which is not applied */
    struct api_overrides overrides;
    bool stop;
    int64_t targets;     /* of a whole step, where they are known; 0: they are counted */
    double next_targets; /* of this rank, in the step behind the next one; NaN: not given */
    struct api_announced announced;
    int64_t steps, updates; /* so far; a skipped step does not advance the schedule */
    int64_t taken;          /* samples so far, over all ranks */
    bool wants_checkpoint;  /* this rank asks for one with its next step */
    struct api_stage stage;
    char **notes; /* "key=value" that a checkpoint keeps, NULL at the end; NULL: none */
    struct evaluation_state evaluation;
    double evaluated_correct;                /* of the last one */
    int64_t classes;                         /* of the loss; 0: it has none, or more than API_CLASSES */
    int labels;                              /* the input that they are compared with */
    bool classes_of_samples;                 /* a row for each sample, not for each position */
    double *class_rows;                      /* (3 classes): of the last evaluation, over all ranks */
    struct plateau_state plateau;            /* of schedule ReduceLROnPlateau */
    int64_t saved_step;                      /* of the checkpoint that was written or loaded last; -1: none */
    struct api_saving saving[SAVES_AT_ONCE]; /* behind steps, the oldest first */
    int saving_count;
    struct checkpoint_kept kept;             /* from one to the next */
    int64_t checkpoint_ns, checkpoint_bytes; /* that writing it took; of this rank */
    int64_t checkpoint_stall_ns;             /* of it, time in which this rank's training was stalled */
    bool checkpoint_again;                   /* the last one was not saved, and another try may have room */
    int64_t checkpoint_given_up;             /* rank 0's: step of the one that was removed for it; -1: none */
    struct checkpoint_hook *hook;            /* rank 0's: training.checkpoint_command; NULL: none */
    int64_t command_ns;                      /* that it took last */
    struct trainer_limit limit;              /* as measured last */
    struct muster_result last;               /* step */
    char base[API_BASE];                     /* hash of the adapters' base; "": not formed since it was set */
    int64_t vocabulary[BATCH_INPUTS];        /* of each input: its numbers are below it */
    bool compared[BATCH_INPUTS];             /* by the loss: -1 or NaN does not count */
};

/* What the numbers of an input are below: a vocabulary, classes, or one more than there are positions. */
int64_t api_numbers(const struct muster_trainer *trainer, int input);

struct files_export;
/* What the settings and the files that were loaded say of an export: type, shards, architecture, folder. */
void api_fill_export(const struct muster_trainer *trainer, struct files_export *what);
/* Arrays of so many samples, as a step's. */
int api_check_arrays(const struct muster_trainer *trainer, const void *const *arrays, int64_t rows,
                     struct muster_error *err);
int64_t api_samples(const struct muster_trainer *trainer); /* of a step on this rank */
struct train_batch api_batch(const struct muster_trainer *trainer);
/* A plan for the settings, for a world of that size (its ranks on one node) or for the rank of a trainer
 * that is being opened: fills config, model and plan. What it holds is api_release's, on failure too. */
int api_prepare(struct muster_trainer *trainer, struct muster_model *model, const char *const *settings,
                const struct train_place *place, struct muster_error *err);
void api_release(struct muster_trainer *trainer);

#endif
