/* trainer_nonfinite.c - which gradient is not finite: every rank looks through its shards in the order of the
 * backward pass, and the ranks compare. A step costs nothing of this: it is called after one that failed. */
#include <math.h>

#include "proto/base/error.h"
#include "runtime/train/trainer_state.h"

enum { FINITE = INT32_MAX };

struct search {
    const struct trainer *trainer;
    void *stream;
    int32_t found; /* number of the parameter in the order of the backward pass; FINITE: none */
};

/* Numbers the uses of trained parameters as the backward pass does them, the last layer's first. Returns the
 * parameter of use number `stop`, or the first for which visit is not 0; -1: none. */
static int walk_backward(const struct model *model, int32_t stop,
                         int (*visit)(struct search *search, int param), struct search *search)
{
    int32_t number = 0;
    for (int l = model->layer_count - 1; l >= 0; l--) {
        const struct layer_desc *layer = &model->layers[l];
        for (int i = 0; i < layer->param_count; i++, number++) {
            if (!model->params[layer->param[i]].trainable)
                continue;
            if (number == stop)
                return layer->param[i];
            if (visit && visit(search, layer->param[i])) {
                search->found = number;
                return layer->param[i];
            }
        }
    }
    return -1;
}

static int is_nonfinite(struct search *search, int param)
{
    const struct trainer *trainer = search->trainer;
    const struct plan *plan = &trainer->plan;
    const struct param_group *group = &plan->groups[plan->places[param].group];
    struct piece piece = trainer_shard_piece(trainer, param);
    double squares = 0;
    if (group->grad < 0 || piece.count == 0)
        return 0;
    trainer->kernels->norm_squared(
        &squares,
        executor_address(&trainer->parts, group->grad, piece.at * dtype_size(trainer->kernels->dtype)),
        piece.count, 0, search->stream);
    return !isfinite(squares);
}

static void nonfinite_look(void *argument)
{
    struct search *search = argument;
    search->found = FINITE;
    (void)walk_backward(search->trainer->model, -1, is_nonfinite, search); /* it is in search */
}

int trainer_nonfinite(struct trainer *trainer, int *param, int *rank, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    struct device_stream *compute = trainer->streams[STREAM_COMPUTE];
    struct search search = {.trainer = trainer, .stream = trainer->ops->stream_handle(compute)};
    const struct comm_op op = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_I32, .count = 1};
    if (trainer_usable(trainer, e))
        return -1;
    if (trainer->ops->launch(compute, nonfinite_look, &search)) {
        (void)executor_refused(trainer->ops, trainer->device, e); /* -1, as we return */
        return trainer_break(trainer, e, "looking for gradients that are not finite");
    }
    if (trainer->ops->sync(compute, INSTANT_NEVER, e))
        return trainer_break(trainer, e, "looking for gradients that are not finite");
    trainer->found[0] = search.found;
    if (trainer->comms.control &&
        (trainer->comms.ops->issue(trainer->comms.control, &op, &search.found, trainer->found, compute, e) ||
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
    *param = *rank < 0 ? -1 : walk_backward(trainer->model, first, NULL, NULL);
    return 0;
}
