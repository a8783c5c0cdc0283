/* trainer_forward.c - a trainer's work between steps: a forward pass, and sums over the ranks. */
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

/* Kernels copy a value out to memory that they may write. If that is not the host's memory, the value is then
 * copied to the caller's. */
static int forward_into(struct trainer *trainer, const struct layer_capture *capture,
                        struct device_arena *arena, struct plan_loss *found, struct muster_error *err)
{
    struct layer_capture inside = capture ? *capture : (struct layer_capture){0};
    if (arena->base)
        inside.out = arena->base;
    executor_capture(trainer->executor, capture ? &inside : NULL);
    int failed = run_forward(trainer, found, err);
    if (!failed && arena->base &&
        trainer->ops->copy(trainer->streams[STREAM_COMPUTE], capture->out, arena->base, capture->bytes))
        failed = executor_refused(trainer->ops, trainer->device, err);
    failed = failed || trainer_sync(trainer, err);
    executor_capture(trainer->executor, NULL);
    return failed;
}

int trainer_forward(struct trainer *trainer, const struct batch *batch, struct trainer_forward *forward,
                    struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    if (trainer_usable(trainer, e))
        return -1;
    struct plan_loss found = {0};
    struct device_arena arena = {.fd = -1};
    const struct layer_capture *capture = forward->capture;
    int failed = capture && !trainer->ops->host_memory
                     ? trainer->ops->arena_create(trainer->device, MEMORY_DEVICE, capture->bytes, &arena, e)
                     : 0;
    trainer_write_input(trainer, &(struct trainer_step_values){.global_tokens = 1});
    /* a copied value of positions has all positions */
    trainer_write_batches(trainer, batch, 1, forward->samples, capture && capture->value != LAYER_LOGITS);
    failed = failed || forward_into(trainer, capture, &arena, &found, e);
    if (failed)
        failed = trainer_break(trainer, e, "forward");
    trainer->ops->arena_destroy(trainer->device, &arena);
    forward->loss_total = found.total;
    forward->loss_count = found.count;
    forward->correct = found.correct;
    return failed;
}

int trainer_share_value(struct trainer *trainer, const struct layer_capture *capture,
                        struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    const int stage = plan_stage_of(trainer->plan.options.mesh, trainer->model->layers[capture->layer].part);
    return trainer_share(trainer, stage, capture->out, capture->bytes, e)
               ? trainer_break(trainer, e, "sharing a value")
               : 0;
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
    struct device_stream *compute = trainer->streams[STREAM_COMPUTE]; /* gathers may still run */
    if (trainer->comms.ops->issue(trainer->comms.control, &op, values, values, compute, e) ||
        trainer_await(trainer, STREAM_COMPUTE, e) || trainer->ops->poll_error(trainer->device, e))
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
