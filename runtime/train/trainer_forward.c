/* trainer_forward.c - what a trainer computes besides steps: a forward pass, and sums over the ranks. */
#include <math.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/trainer_state.h"

static int run_forward(struct trainer *trainer, struct plan_loss *found, struct muster_error *err)
{
    if (executor_run(trainer->executor, trainer->plan.first_backward, true, err))
        return -1;
    if (trainer->ops->copy(trainer->streams[STREAM_COMPUTE], found,
                           executor_address(&trainer->parts, trainer->plan.loss, 0), sizeof *found))
        return executor_refused(trainer->ops, trainer->device, err);
    return 0;
}

int trainer_forward(struct trainer *trainer, const struct batch *batch, struct trainer_forward *forward,
                    struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    if (trainer_usable(trainer, e))
        return -1;
    struct plan_loss found;
    trainer_write_input(trainer, &(struct trainer_step_values){.global_tokens = 1});
    trainer_write_batches(trainer, batch, 1, forward->samples);
    executor_capture(trainer->executor, forward->capture);
    int failed = run_forward(trainer, &found, e);
    failed = failed || trainer_sync(trainer, e);
    executor_capture(trainer->executor, NULL);
    if (failed)
        return trainer_break(trainer, e, "forward");
    forward->loss_total = found.total;
    forward->loss_count = found.count;
    return 0;
}

int trainer_evaluate(struct trainer *trainer, const struct batch *batch, double *loss,
                     struct muster_error *err)
{
    struct trainer_forward forward = {.samples = trainer->plan.options.shape.B};
    if (trainer_forward(trainer, batch, &forward, err))
        return -1;
    *loss = forward.loss_count > 0 ? forward.loss_total / (double)forward.loss_count : NAN;
    return 0;
}

static int reduce_values(struct trainer *trainer, enum comm_reduction reduction, double *values,
                         int64_t count, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    const struct comm_op op = {
        .kind = COMM_ALL_REDUCE, .dtype = DTYPE_F64, .reduction = reduction, .count = count};
    if (trainer_usable(trainer, e))
        return -1;
    if (!trainer->comms.control)
        return 0;
    struct device_stream *compute = trainer->streams[STREAM_COMPUTE]; /* beside it gathers may go on */
    if (trainer->comms.ops->issue(trainer->comms.control, &op, values, values, compute, e) ||
        trainer->ops->sync(compute, INSTANT_NEVER, e) || trainer->ops->poll_error(trainer->device, e))
        return trainer_break(trainer, e, "sums over the ranks");
    return 0;
}

int trainer_reduce(struct trainer *trainer, double *values, int64_t count, struct muster_error *err)
{
    return reduce_values(trainer, REDUCE_SUM, values, count, err);
}

int trainer_maximum(struct trainer *trainer, double *values, int64_t count, struct muster_error *err)
{
    return reduce_values(trainer, REDUCE_MAX, values, count, err);
}
