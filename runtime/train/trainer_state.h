/* trainer_state.h - the inside of a trainer, for trainer.c and trainer_params.c. */
#ifndef MUSTER_RUNTIME_TRAIN_TRAINER_STATE_H
#define MUSTER_RUNTIME_TRAIN_TRAINER_STATE_H

#include "runtime/train/executor.h"
#include "runtime/train/trainer.h"

struct trainer {
    const struct model *model;
    int rank, world_size, threads;
    struct plan plan;
    const struct device_ops *ops;
    struct device *device;
    const struct kernels *kernels;
    struct device_arena arenas[MEMORY_CLASS_COUNT];
    struct device_stream *streams[STREAM_COUNT];
    struct comm_table comms;
    struct executor_parts parts;
    struct executor *executor;
    uint64_t seed;
    int64_t steps;   /* of the schedule */
    int64_t updates; /* of the parameters: skipped steps do not count towards Adam's bias correction */
    struct muster_error broken; /* the error that ended the run */
};

/* The value of every parameter from its description and (seed, parameter, element): the same in any world. */
int trainer_initialise(struct trainer *trainer, uint64_t seed, struct muster_error *err);

/* Ends the run: aborts the comms, waits for the streams and keeps the error, which is in err (not NULL) or
 * with the device. Returns -1. */
int trainer_break(struct trainer *trainer, struct muster_error *err, const char *what);
/* Waits for the gathers that the last step has made for the next one: before parameters are read or written
 * between steps. */
int trainer_settle(struct trainer *trainer, struct muster_error *err);
/* -1 with the error that ended the run, 0 while there is none. */
int trainer_usable(const struct trainer *trainer, struct muster_error *err);

#endif
