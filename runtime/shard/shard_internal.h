/* shard_internal.h - the object of muster_shard.h, shared by the files of this folder. */
#ifndef MUSTER_RUNTIME_SHARD_SHARD_INTERNAL_H
#define MUSTER_RUNTIME_SHARD_SHARD_INTERNAL_H

#include "proto/base/futex.h"
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/include/muster_shard.h"
#include "runtime/shard/shard_core.h"
#include "runtime/shard/shard_layout.h"
#include "runtime/shard/shard_ranges.h"

/* Work on one stream, counted: the caller can wait for one piece of it while later pieces are queued. */
struct shard_tracker {
    struct device_stream *stream;
    struct futex_word finished; /* pieces */
    uint32_t issued;
};

struct shard_grad_slot {
    int64_t offset; /* bytes in the gradient arena */
    int slot_class;
    int number; /* in its class */
    int group;  /* -1: free */
};

/* A reduction's result of a 16-bit dtype, on its way to the reduced gradients. */
struct shard_widening {
    struct muster_shard *shard;
    int group;
    bool add;
    const void *from; /* in the gradient slot */
};

/* The shell's state of a group, in addition to the core's. */
struct shard_group_run {
    uint32_t gather, reduction; /* the number of its last one on its tracker */
    int grad_slot;              /* -1: none */
    struct shard_widening widening;
};

/* Work of the optimizer's stream. */
struct shard_update {
    struct muster_shard *shard;
    const struct muster_shard_step *step;
    struct step_scalars scalars;
    double
        *totals; /* [1 + params]: the sum of squares, then how many ranks have a gradient of the parameter */
};

/* A comm and its ranks: inside of a node it is of another kind than between nodes. */
struct shard_channel {
    const struct comm_ops *ops;
    struct comm *comm; /* NULL: none */
};

struct muster_shard {
    struct muster_shard_options options;
    struct muster_world *world; /* NULL: a world of one */
    int rank, size; /* in it; layout.rank and layout.size are those in the run that shares the parts */
    int replicas;   /* such runs, of neighbours */
    int64_t timeout_ns;
    bool ready;

    struct shard_layout layout;
    struct shard_core core;
    struct shard_ranges ranges; /* not in a world of one */

    const struct device_ops *ops;
    struct device *device;
    const struct kernels *kernels;        /* kernels of the dtype */
    enum dtype dtype;                     /* type of masters, reduced gradients and moments */
    enum dtype param_dtype, reduce_dtype; /* gathered parameters; gradients until they are reduced */
    struct device_stream *compute;
    struct shard_tracker gathers, reductions;
    struct shard_channel all;               /* over the world */
    struct shard_channel gather, reduction; /* over the ranks that share the parts; gather is `all` without
                                               replicas */
    struct shard_channel replica;           /* over the ranks with the same part; none without replicas */

    struct device_arena parts;     /* COMM: this rank's parameters, as they are gathered */
    struct device_arena masters;   /* the same in dtype; none where that is how they are gathered */
    struct device_arena gradients; /* COMM: slots for gradients before they are reduced */
    struct device_arena state;     /* reduced gradients, moments: state_elements each */
    int state_kinds;

    struct shard_group_run *runs; /* [groups] */
    struct shard_grad_slot *grad_slots;
    int grad_slot_count;
    uint8_t *has_gradient; /* [params] on this rank, since the last step */
    int64_t *updates;      /* [params] steps that changed it */
    struct shard_update update;

    int64_t grad_bytes_now, grad_bytes, gathered, prefetched, waited_ns;
};

/* ---- shard_work.c: streams, errors, actions ---- */

int shard_tracker_open(struct muster_shard *shard, struct shard_tracker *tracker, const char *name,
                       struct muster_error *err);
/* Counts the work enqueued on the tracker's stream so far; *number (may be NULL) is for shard_tracker_wait.
 */
int shard_tracker_mark(struct muster_shard *shard, struct shard_tracker *tracker, uint32_t *number,
                       struct muster_error *err);
/* Until everything up to the mark is done. -1: the device has failed. */
int shard_tracker_wait(struct muster_shard *shard, struct shard_tracker *tracker, uint32_t number,
                       struct muster_error *err);
/* The failure of a collective, with groups by name instead of the tags in its text. Returns -1. */
int shard_failed(struct muster_shard *shard, struct muster_error *err);
/* Runs on the optimizer's stream and waits. */
int shard_compute(struct muster_shard *shard, void (*work)(void *update), struct muster_error *err);
/* One collective on the gathers' stream, waited for. */
int shard_collective(struct muster_shard *shard, const struct shard_channel *channel,
                     const struct comm_op *op, const void *send, void *recv, struct muster_error *err);
/* Runs the core's actions. */
int shard_act(struct muster_shard *shard, struct muster_error *err);
struct shard_names shard_names_of(const struct muster_shard *shard);
int shard_check_ready(const struct muster_shard *shard, struct muster_error *err);
int shard_check_group(const struct muster_shard *shard, int group, struct muster_error *err);

/* ---- shard_connect.c ---- */

/* Reads options.replicas; fills replicas and the place in the layout. */
int shard_place(struct muster_shard *shard, struct muster_error *err);
/* The comm over the world, for key; then, when the ranks were compared, the others. */
int shard_connect(struct muster_shard *shard, const char *key, struct muster_error *err);
int shard_connect_parts(struct muster_shard *shard, struct muster_error *err);
int64_t shard_busy_ns(const struct muster_shard *shard); /* sum over all comms */
void shard_abort(struct muster_shard *shard);
void shard_disconnect(struct muster_shard *shard);

/* ---- shard_gradients.c ---- */

int shard_gradients_create(struct muster_shard *shard, struct muster_error *err);
int shard_gradients_take(struct muster_shard *shard, int group, struct muster_error *err);
void shard_gradients_free(struct muster_shard *shard, int group);
char *shard_gradients_base(const struct muster_shard *shard, int group);

/* ---- addresses ---- */

/* All of a group's elements while it is gathered. */
static inline char *shard_full(const struct muster_shard *shard, int group)
{
    return shard->layout.size > 1 ? shard->ranges.ranges[group]
                                  : (char *)shard->parts.base +
                                        shard->layout.groups[group].part_offset * shard->layout.element_bytes;
}
/* This rank's part of a group. */
static inline char *shard_part(const struct muster_shard *shard, int group)
{
    return (char *)shard->parts.base + shard->layout.groups[group].part_offset * shard->layout.element_bytes;
}
static inline bool shard_has_masters(const struct muster_shard *shard)
{
    return shard->param_dtype != shard->dtype;
}
/* This rank's part of a group, as the optimizer updates it. */
static inline char *shard_master(const struct muster_shard *shard, int group)
{
    return shard_has_masters(shard) ? (char *)shard->masters.base +
                                          shard->layout.groups[group].part_offset * dtype_size(shard->dtype)
                                    : shard_part(shard, group);
}
/* kind 0: reduced gradients; 1, 2: moments. Of trainable groups. */
static inline char *shard_state(const struct muster_shard *shard, int kind, int group)
{
    return (char *)shard->state.base +
           (kind * shard->layout.state_elements + shard->layout.groups[group].state_offset) *
               dtype_size(shard->dtype);
}

#endif
