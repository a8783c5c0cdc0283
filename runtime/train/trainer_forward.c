/* trainer_forward.c - a trainer's work between steps: a forward pass, and sums over the ranks. */
#include <math.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/trainer_state.h"

int trainer_forward_micros(const struct trainer *trainer)
{
    return trainer->plan.forward_micros;
}

/* Memory that kernels may write, where the host's memory is not: values are copied out to it, then on to the
 * caller's memory. */
struct forward_values {
    struct device_arena arena;
    struct layer_capture *inside; /* [micros] NULL: the caller's are used */
};

static int make_values(struct trainer *trainer, const struct trainer_forward *forward,
                       struct forward_values *values, struct muster_error *err)
{
    const struct layer_capture *capture = forward->capture;
    int64_t bytes = 0;
    *values = (struct forward_values){.arena = {.fd = -1}};
    if (!capture || trainer->ops->host_memory)
        return 0;
    for (int i = 0; i < forward->micros; i++)
        bytes += capture[i].bytes;
    values->inside = mem_calloc((size_t)forward->micros, sizeof *values->inside);
    if (!values->inside)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the values of %d micro-batches",
                         forward->micros);
    if (trainer->ops->arena_create(trainer->device, MEMORY_DEVICE, bytes, &values->arena, err))
        return -1;
    char *next = values->arena.base;
    for (int i = 0; i < forward->micros; next += capture[i].bytes, i++) {
        values->inside[i] = capture[i];
        values->inside[i].out = next;
    }
    return 0;
}

static void free_values(struct trainer *trainer, struct forward_values *values)
{
    trainer->ops->arena_destroy(trainer->device, &values->arena);
    mem_free(values->inside);
}

static int run_forward(struct trainer *trainer, const struct trainer_forward *forward,
                       const struct forward_values *values, struct muster_error *err)
{
    const struct device_ops *ops = trainer->ops;
    executor_capture(trainer->executor, values->inside ? values->inside : forward->capture);
    int failed = executor_evaluate(trainer->executor, forward->micros, trainer->losses, err);
    for (int i = 0; values->inside && !failed && i < forward->micros; i++)
        if (ops->copy(trainer->streams[STREAM_COMPUTE], forward->capture[i].out, values->inside[i].out,
                      values->inside[i].bytes))
            failed = executor_refused(ops, trainer->device, err);
    failed = failed || trainer_sync(trainer, err);
    executor_capture(trainer->executor, NULL);
    return failed;
}

int trainer_forward(struct trainer *trainer, const struct batch *batch, struct trainer_forward *forward,
                    struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    struct forward_values values;
    if (trainer_usable(trainer, e) || trainer_draw(trainer, e))
        return -1;
    forward->micros = forward->micros ? forward->micros : 1;
    if (forward->micros < 1 || forward->micros > trainer_forward_micros(trainer))
        return error_set(e, MUSTER_E_INVALID, "a forward pass of %d micro-batches; use 1 to %d",
                         forward->micros, trainer_forward_micros(trainer));
    trainer_write_input(trainer, &(struct trainer_step_values){.global_tokens = 1});
    /* a copied value of positions has all positions */
    trainer_write_batches(trainer, batch, forward->micros, forward->samples,
                          forward->capture && forward->capture->value != LAYER_LOGITS);
    int failed = make_values(trainer, forward, &values, e) || run_forward(trainer, forward, &values, e);
    if (failed)
        failed = trainer_break(trainer, e, "forward");
    free_values(trainer, &values);
    for (int i = 0; i < forward->micros && !failed; i++) {
        forward->loss_total += trainer->losses[i].total;
        if (forward->losses)
            forward->losses[i] += trainer->losses[i].total;
        forward->loss_count += trainer->losses[i].count;
        forward->correct += trainer->losses[i].correct;
    }
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
