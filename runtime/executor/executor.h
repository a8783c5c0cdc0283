/* executor.h - the loop over schedule_op. Buffer indices become addresses once. Then a step is a walk over an
 * array that waits, launches and records.
 *
 * Nothing is allocated after executor_create. The input of a launched function is one block for each
 * operation, filled at creation and unchanged while streams run. */
#ifndef MUSTER_RUNTIME_EXECUTOR_H
#define MUSTER_RUNTIME_EXECUTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/plan/model.h"
#include "runtime/plan/plan.h"

/* The comms of one rank: a comm for each pair of axis and stream that the schedule uses, and a comm over all
 * ranks for use between steps. */
struct comm_table {
    const struct comm_ops *ops;
    struct comm *comm[AXIS_COUNT][STREAM_COUNT]; /* NULL: no plan has an operation on it */
    struct comm *tied[PLAN_TIES];                /* by plan.ties; NULL: other stages have it */
    struct comm *control;
};

/* Callbacks for host work that runs during steps. The compute stream calls them; NULL: none. They are set
 * while the stream is idle. wait: called before the optimizer writes a group's values and moments, and before
 * compression writes its feedback and factor; may block while they are still read. vote: adds this rank's
 * votes of the step to votes[PLAN_VOTES], which are 0; does not block. */
struct step_guard {
    void (*wait)(void *context, int group);
    void *context; /* context of wait */
    void (*vote)(void *context, double *votes);
    void *voter; /* context of vote */
};

/* Inputs of an executor; the caller owns all of them, and they outlive the executor. */
struct executor_parts {
    const struct model *model;
    const struct plan *plan;
    const struct device_ops *ops;
    struct device *device;
    const struct kernels *kernels;
    const struct device_arena *arenas;    /* [MEMORY_CLASS_COUNT] */
    struct device_stream *const *streams; /* [STREAM_COUNT] */
    const struct comm_table *comms;
    const struct step_guard *guard;
    bool graphs; /* the kernels of a layer are launched as one graph (device_ops.launch_graph, not NULL then)
                  */
};

struct executor;

struct executor *executor_create(const struct executor_parts *parts, struct muster_error *err);
void executor_destroy(struct executor *executor); /* the streams must be empty; accepts NULL */

/* Enqueues the operations of a step and makes the compute stream wait for all of them but the carried
 * operations. Carried operations belong to the next run and may still run when the compute stream is idle. If
 * the previous run has not gathered the slots that this run begins with, they are gathered first: in the
 * first run, after an evaluation and after executor_forget. The compute stream must be idle. */
int executor_run(struct executor *executor, struct muster_error *err);
/* The same for the forwards of the first `micros` micro-batches, 1 to plan.forward_micros. Loss layers form
 * their loss in forward. losses: [micros] in host memory, filled when the compute stream is idle again; 0 on
 * a stage without the loss layer. */
int executor_evaluate(struct executor *executor, int micros, struct plan_loss *losses,
                      struct muster_error *err);
/* After executor_run, on an idle device: whether it has called the function of an operation of the compute
 * stream; of the sum of the loss over all ranks, on a device that can be mended: whether its stream has come
 * to it without a failure. The second enqueues a call of a function; -1: the device has failed. */
bool executor_ran(const struct executor *executor, int op);
int executor_repeat(struct executor *executor, int op);
/* Drops the gathers made ahead, after parameters were changed between runs. Collective: every rank calls it
 * before the same run. */
void executor_forget(struct executor *executor);

/* Enqueues gathers for parameters that ranks keep whole but step in parts: every rank gets the other parts.
 */
int executor_share(struct executor *executor, struct muster_error *err);

/* The time of an operation. Streams that call their functions themselves (device.h: the CPU's) write it. On
 * another device its timers are recorded around the operation, and the caller fills in the times. */
enum { MARK_BEFORE, MARK_BEGIN, MARK_END, MARK_TIMERS };
struct executor_mark {
    const struct device_ops *ops; /* both filled by the caller */
    struct device_stream *stream;
    /* NULL: the stream writes. MARK_BEFORE: before the compute stream waits for others, if it does. */
    struct device_event *timer[MARK_TIMERS];
    int64_t begin_ns, end_ns; /* monotonic; 0: not yet */
    int64_t waited_ns;        /* total wait of the stream for other streams until the operation began */
};
/* Makes the next runs write the time of each operation to marks[plan.op_count + 1]; NULL: stops that. A
 * carried operation writes its mark in the next run. The last mark has timers alone, around the compute
 * stream's wait for all others at the end. Transfers that begin together have the first one's mark. */
void executor_trace(struct executor *executor, struct executor_mark *marks);

/* The operation that the compute stream has begun last, on the device; -1: none yet. From any thread. */
int executor_place(const struct executor *executor);
/* The same of any stream, for a device whose streams pass marks (device.h); -1 for another device. */
int executor_marked(const struct executor *executor, enum stream_id stream);

/* Whether a run may have fewer positions than the plan. That needs samples with lengths
 * (program_ends_with_lengths), no layer that is launched as a graph, and no embedding whose gradient is
 * exchanged as rows. */
bool executor_may_be_shorter(const struct executor *executor);
/* Sets the positions of a micro-batch in the next runs, at most the plan's. The compute stream must be idle.
 */
void executor_positions(struct executor *executor, int micro, int positions);

/* Whether replicas compress their gradients in the next runs, where the plan has both kinds of steps. */
void executor_compress(struct executor *executor, bool on);

/* Sets the values that the next evaluation copies out of a layer's forward, until the streams are idle again:
 * one for each of its micro-batches, all of one layer. NULL: none. */
void executor_capture(struct executor *executor, const struct layer_capture *captures);

/* Fills err with the reason that the device keeps after a failed call. Returns -1. */
int executor_refused(const struct device_ops *ops, struct device *device, struct muster_error *err);

/* Address of a buffer (an index into plan.entries); NULL for -1. */
void *executor_address(const struct executor_parts *parts, int entry, int64_t offset);

#endif
