/* trainer_nonfinite.c - finds the gradient that is not finite. Every rank checks its shards in the order of
 * the backward pass, and the ranks compare. It costs nothing in normal steps: it is called after a failed
 * step. */
#include <math.h>

#include "proto/base/error.h"
#include "runtime/train/trainer_state.h"

enum { FINITE = INT32_MAX };

struct search {
    struct trainer *trainer;
    /* Arguments of the present visit. */
    const void *values;
    int64_t count;
    struct muster_error *err;
};

/* Numbers the uses of trained parameters in the order of the backward pass, the last layer's first. Returns
 * the number `stop`, or the number of the first use for which visit is not 0, and its parameter; FINITE and
 * -1: none. */
static int32_t walk_backward(const struct model *model, int32_t stop,
                             int (*visit)(struct search *search, int param), struct search *search,
                             int *param)
{
    int32_t number = 0;
    for (int l = model->layer_count - 1; l >= 0; l--) {
        const struct layer_desc *layer = &model->layers[l];
        for (int i = 0; i < layer->param_count; i++, number++) {
            *param = layer->param[i];
            if (!model->params[*param].trainable ||
                model->params[*param].statistic) /* no cause, but an effect */
                continue;
            if (number == stop || (visit && visit(search, *param)))
                return number;
        }
    }
    *param = -1;
    return FINITE;
}

static void sum_squares(void *argument)
{
    const struct search *search = argument;
    const struct trainer *trainer = search->trainer;
    struct step_scalars *scalars = executor_address(&trainer->parts, trainer->plan.scalars, 0);
    trainer->kernels->norm_squared(&scalars->norm_squared, search->values, search->count, 0,
                                   trainer->ops->stream_handle(trainer->streams[STREAM_COMPUTE]));
}

/* Whether a gradient is not finite. The sum overwrites the step's norm, which was read before; the next step
 * writes it again. 1: not finite, 0: finite, -1: an error, which ends the walk too. */
static int is_nonfinite(struct search *search, int param)
{
    struct trainer *trainer = search->trainer;
    const struct device_ops *ops = trainer->ops;
    struct device_stream *compute = trainer->streams[STREAM_COMPUTE];
    const struct param_group *group = &trainer->plan.groups[trainer->plan.places[param].group];
    const struct piece piece = trainer_shard_piece(trainer, param);
    struct step_scalars scalars;
    if (group->grad < 0 || piece.count == 0)
        return 0;
    search->values =
        executor_address(&trainer->parts, group->grad, piece.at * dtype_size(trainer->kernels->statistic));
    search->count = piece.count;
    if (ops->launch(compute, sum_squares, search) ||
        ops->copy(compute, &scalars, executor_address(&trainer->parts, trainer->plan.scalars, 0),
                  sizeof scalars))
        return executor_refused(ops, trainer->device, search->err);
    if (ops->sync(compute, INSTANT_NEVER, search->err))
        return -1;
    return !isfinite(scalars.norm_squared);
}

int trainer_nonfinite(struct trainer *trainer, int *param, int *rank, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    struct device_stream *compute = trainer->streams[STREAM_COMPUTE];
    struct search search = {.trainer = trainer, .err = e};
    const struct comm_op op = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_I32, .count = 1};
    if (trainer_usable(trainer, e))
        return -1;
    error_clear(e);
    const int32_t found = walk_backward(trainer->model, -1, is_nonfinite, &search, param);
    if (e->code)
        return trainer_break(trainer, e, "looking for gradients that are not finite");
    trainer->found[0] = found;
    if (trainer->comms.control &&
        (trainer->comms.ops->issue(trainer->comms.control, &op, &found, trainer->found, compute, e) ||
         trainer->ops->sync(compute, INSTANT_NEVER, e)))
        return trainer_break(trainer, e, "comparing gradients that are not finite");
    *rank = -1;
    int32_t first = FINITE;
    for (int r = 0; r < trainer->world_size; r++) {
        if (trainer->found[r] < first) {
            first = trainer->found[r];
            *rank = r;
        }
    }
    *param = -1;
    if (*rank >= 0)
        (void)walk_backward(trainer->model, first, NULL, NULL, param); /* finds its parameter */
    return 0;
}
