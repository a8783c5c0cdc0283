/* trainer_state.h - the fields of a trainer, for trainer.c and the files trainer_*.c. */
#ifndef MUSTER_RUNTIME_TRAIN_TRAINER_STATE_H
#define MUSTER_RUNTIME_TRAIN_TRAINER_STATE_H

#include <stdatomic.h>

#include "runtime/executor/executor.h"
#include "runtime/train/trainer.h"

/* Elements of a parameter in a buffer of its group, and their place. */
struct piece {
    int64_t first, count; /* elements of the parameter */
    int64_t at;           /* index of the first element in the buffer */
};

struct trainer {
    const struct model *model;
    int rank, world_size, threads;
    int64_t timeout_ns; /* of collectives */
    struct plan plan;
    const struct device_ops *ops;
    struct device *device;
    const struct kernels *kernels;
    char attention[320]; /* device_ops.attention_text; "": attention is the kernels' own */
    struct device_arena arenas[MEMORY_CLASS_COUNT];
    struct device_stream *streams[STREAM_COUNT];
    struct comm_table comms;
    struct executor_parts parts;
    struct step_guard guard;  /* guards values and moments that are read while steps run */
    double votes[PLAN_VOTES]; /* the last step's sums */
    bool voted;               /* votes are not taken yet */
    struct executor *executor;
    struct plan_wire wire;
    uint64_t seed;
    int64_t steps;   /* number of steps of the schedule */
    int64_t updates; /* updates of the parameters; skipped steps do not count in Adam's bias correction */
    bool scales;     /* the loss is scaled: parameters or reductions are fp16 */
    struct loss_scale_options scale_options;
    struct loss_scale scale;
    double stepped_scale;        /* scale of the last step's gradients; 0: not scaled */
    bool averaged;               /* parameters and their averages are exchanged */
    bool stops;                  /* a gradient that is not finite ends the run */
    int32_t *found;              /* [world_size] memory of trainer_nonfinite */
    struct plan_loss *losses;    /* [plan.forward_micros] memory of trainer_forward */
    _Atomic(int64_t) stepping;   /* number of the step that runs, from 1; 0: none */
    struct trainer_trace *trace; /* NULL: no trace was requested */
    _Atomic(bool) let_go;        /* in a world of one, where no collective ends */
    /* Draws the initial values, which nothing has written yet; NULL: all values are there. */
    int (*draw)(struct trainer *trainer, struct muster_error *err);
    bool whole;                 /* the state is that of `steps` steps, or of a step that was cut off */
    bool able;                  /* after trainer_stop: the step that was cut off can be finished */
    struct muster_error broken; /* the error that ended the run */
};

/* Sets the initial values again, of all parameters that a run changes: the base of adapters stays. */
int trainer_initialise_again(struct trainer *trainer, struct muster_error *err);

/* This rank's part of a parameter in buffers of its group's shard. */
struct piece trainer_shard_piece(const struct trainer *trainer, int param);

/* This rank's part of a parameter in the buffer that it holds: the shard, or the whole group if it is
 * resident. */
struct piece trainer_held_piece(const struct trainer *trainer, int param);
/* whole: in a buffer of the group's parameters, not of this rank's shard of them. */
struct piece trainer_piece_of(const struct trainer *trainer, int param, bool whole);
/* Before a parameter is read or set: its number is in range, and gathers for the next step have ended. */
int trainer_check_param(struct trainer *trainer, int param, struct muster_error *err);
/* Collective: copies host memory of one stage to all stages. Does nothing if there is one stage. */
int trainer_share(struct trainer *trainer, int stage, void *values, int64_t bytes, struct muster_error *err);
/* trainer_stored.c: trainer_fill_params and trainer_set_param for groups that are held in few bits. */
int trainer_fill_stored(struct trainer *trainer, trainer_param_source *source, void *context,
                        struct muster_error *err);
int trainer_set_stored(struct trainer *trainer, int param, const void *values, struct muster_error *err);
/* Reads bytes [first, first + count) of this rank's units of a group in few bits into host memory. */
int trainer_read_units(struct trainer *trainer, const struct param_group *group, int64_t first, int64_t count,
                       void *out, struct muster_error *err);

/* Rounds values to the type that gathers move, as the optimizer does; dtype: bf16 or f16. On the host. */
void trainer_round(enum dtype dtype, const void *values, enum dtype from, int64_t count, uint16_t *out);

/* Ends the run: aborts the comms, waits for the streams and keeps the error. The error is in err (not NULL)
 * or kept by the device. Returns -1. */
int trainer_break(struct trainer *trainer, struct muster_error *err, const char *what);
/* Waits for the gathers that the last step has made for the next step. Needed before parameters are read or
 * written between steps. */
int trainer_settle(struct trainer *trainer, struct muster_error *err);
/* Waits until values and moments are no longer read for a checkpoint. Needed before they are written between
 * steps. */
void trainer_wait_for_readers(const struct trainer *trainer);
/* After an error and at the end: waits until the streams are empty. A device's work that does not end in time
 * fails the device, and nothing waits for it any longer. */
void trainer_drain(const struct trainer *trainer);
/* Waits for a stream that the plan uses. */
int trainer_sync_stream(const struct trainer *trainer, int stream, struct instant deadline,
                        struct muster_error *err);
/* Copies between host memory and the device, between steps. */
int trainer_copy(const struct trainer *trainer, void *to, const void *from, int64_t bytes,
                 struct muster_error *err);
/* Waits for a stream. Where its device passes marks (device.h), a device that has come no further for half as
 * long again as a collective may take is an error that names the operations under way. */
int trainer_await(const struct trainer *trainer, enum stream_id stream, struct muster_error *err);
/* trainer_fill.c: feedback of zeros, and the first factors. */
int trainer_begin_compression(struct trainer *trainer, struct muster_error *err);
/* Whether the next step compresses. */
bool trainer_compresses(const struct trainer *trainer);
/* Waits for all streams. */
int trainer_sync(struct trainer *trainer, struct muster_error *err);
/* Write a step's values and batch to staging memory. samples: number of samples in all `count` micro-batches.
 * whole: all positions, for any length of the samples. */
void trainer_write_input(struct trainer *trainer, const struct trainer_step_values *values);
void trainer_write_batches(struct trainer *trainer, const struct batch *batch, int count, int64_t samples,
                           bool whole);
/* Reads a step's results from staging memory. */
void trainer_read_stats(struct trainer *trainer, const struct trainer_step_values *values,
                        struct trainer_stats *stats);
/* trainer_trace.c, around a step: records the step if it was chosen. */
void trainer_trace_begin(struct trainer *trainer, struct instant start);
void trainer_trace_end(struct trainer *trainer, const struct trainer_stats *stats);
void trainer_trace_free(struct trainer_trace *trace); /* accepts NULL */
/* trainer_fill.c: trainer.draw of a trainer that was just made. */
int trainer_draw_first(struct trainer *trainer, struct muster_error *err);
/* -1 with the error that ended the run, 0 while there is none. */
int trainer_usable(const struct trainer *trainer, struct muster_error *err);
/* As trainer_usable, and -1 while averages are in the parameters' place. */
int trainer_writable(const struct trainer *trainer, struct muster_error *err);

#endif
