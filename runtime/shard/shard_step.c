/* shard_step.c - the norm of the gradients, and the update of this rank's part. */
#include <math.h>
#include <string.h>

#include "proto/base/error.h"
#include "runtime/shard/shard_internal.h"

void muster_shard_step_defaults(struct muster_shard_step *step)
{
    *step = (struct muster_shard_step){.size = sizeof *step, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    for (int i = 0; i < MUSTER_SHARD_CLASSES; i++) {
        step->learning_rate[i] = 1e-3;
        step->weight_decay[i] = 0.01;
    }
}

/* ---- on the optimizer's stream ---- */

static char *part_of(struct muster_shard *shard, const struct shard_param *param, int kind)
{
    return shard_state(shard, kind, param->group) + param->part_offset * dtype_size(shard->dtype);
}

static void sum_squares(void *argument)
{
    struct shard_update *u = argument;
    struct muster_shard *shard = u->shard;
    u->totals[0] = 0;
    for (int i = 0; i < shard->layout.param_count; i++) {
        const struct shard_param *param = &shard->layout.params[i];
        /* what no rank has a gradient of is 0 or was never written */
        if (param->part && shard->core.groups[param->group].reduced)
            shard->kernels->norm_squared(&u->totals[0], part_of(shard, param, 0), param->part, 1,
                                         shard->ops->stream_handle(shard->compute));
    }
}

static void update_param(struct shard_update *u, const struct shard_param *param)
{
    struct muster_shard *shard = u->shard;
    const struct muster_shard_step *s = u->step;
    const struct kernels *k = shard->kernels;
    void *stream = shard->ops->stream_handle(shard->compute);
    char *values = shard_master(shard, param->group) + param->part_offset * dtype_size(shard->dtype);
    char *sent = shard_part(shard, param->group) + param->part_offset * shard->layout.element_bytes;
    void *moved = shard_has_masters(shard) ? sent : NULL;
    char *grad = part_of(shard, param, 0);
    char *m = shard->state_kinds > 1 ? part_of(shard, param, 1) : NULL;
    const struct optimizer_segment whole[] = {{0, param->part, param->parameter_class}};
    switch (shard->options.optimizer) {
    case MUSTER_SHARD_SGD:
        k->sgd(values, m, grad, whole, 1, s->momentum, s->dampening, s->nesterov, moved, shard->param_dtype,
               &u->scalars, stream);
        break;
    case MUSTER_SHARD_ADAM:
        k->adam(values, m, part_of(shard, param, 2), grad, whole, 1, moved, shard->param_dtype, &u->scalars,
                stream);
        break;
    case MUSTER_SHARD_ADAMW:
        k->adamw(values, m, part_of(shard, param, 2), grad, whole, 1, moved, shard->param_dtype, &u->scalars,
                 stream);
        break;
    default:
        break;
    }
}

/* Each parameter counts its own updates, as PyTorch's optimizers do: one without gradients is not updated. */
static void update(void *argument)
{
    struct shard_update *u = argument;
    struct muster_shard *shard = u->shard;
    shard->kernels->clip_factor(&u->scalars, shard->ops->stream_handle(shard->compute));
    for (int i = 0; i < shard->layout.param_count && !u->scalars.skip; i++) {
        const struct shard_param *param = &shard->layout.params[i];
        if (!(u->totals[1 + i] > 0))
            continue;
        shard->updates[i]++;
        u->scalars.step = (uint64_t)shard->updates[i];
        u->scalars.bias_correction1 = 1 - pow(u->scalars.beta1, (double)shard->updates[i]);
        u->scalars.bias_correction2 = 1 - pow(u->scalars.beta2, (double)shard->updates[i]);
        if (param->part)
            update_param(u, param);
    }
}

/* ---- a step ---- */

/* totals: the squared norm of all parts (0 where it is not wanted; replicas have the same ones), then the
 * number of ranks with a gradient of each parameter. */
static int collect(struct muster_shard *shard, bool norm, struct muster_error *err)
{
    double *totals = shard->update.totals;
    const struct comm_op op = {.kind = COMM_ALL_REDUCE,
                               .dtype = DTYPE_F64,
                               .reduction = REDUCE_SUM,
                               .count = 1 + shard->layout.param_count};
    totals[0] = 0;
    for (int i = 0; i < shard->layout.param_count; i++)
        totals[1 + i] = shard->has_gradient[i];
    if (norm && shard->rank < shard->layout.size && shard_compute(shard, sum_squares, err))
        return -1;
    return shard_collective(shard, &shard->all, &op, totals, totals, err);
}

static void fill_scalars(struct shard_update *u)
{
    const struct muster_shard_step *s = u->step;
    u->scalars = (struct step_scalars){.beta1 = s->beta1,
                                       .beta2 = s->beta2,
                                       .epsilon = s->epsilon,
                                       .clip_norm = s->clip_norm,
                                       .norm_squared = u->totals[0]};
    memcpy(u->scalars.learning_rate, s->learning_rate, sizeof s->learning_rate);
    memcpy(u->scalars.weight_decay, s->weight_decay, sizeof s->weight_decay);
}

/* limit: the first value that is too large. Not of an optimizer that has no use for the value. */
static int check_value(const char *name, double value, double limit, struct muster_error *err)
{
    if (value >= 0 && value < limit)
        return 0;
    return error_set(err, MUSTER_E_INVALID, "%s is %g, but must be at least 0 and %s", name, value,
                     limit < HUGE_VAL ? "below 1" : "finite");
}

static int shard_check_values(const struct muster_shard *shard, const struct muster_shard_step *step,
                              struct muster_error *err)
{
    const bool adam =
        shard->options.optimizer == MUSTER_SHARD_ADAM || shard->options.optimizer == MUSTER_SHARD_ADAMW;
    for (int i = 0; i < MUSTER_SHARD_CLASSES; i++)
        if (check_value("learning_rate", step->learning_rate[i], HUGE_VAL, err) ||
            check_value("weight_decay", step->weight_decay[i], HUGE_VAL, err))
            return -1;
    if (adam)
        return check_value("beta1", step->beta1, 1, err) || check_value("beta2", step->beta2, 1, err) ||
                       check_value("epsilon", step->epsilon, HUGE_VAL, err)
                   ? -1
                   : 0;
    if (!isfinite(step->dampening))
        return error_set(err, MUSTER_E_INVALID, "dampening is %g, but must be finite", step->dampening);
    return check_value("momentum", step->momentum, HUGE_VAL, err);
}

static int check_step(const struct muster_shard *shard, const struct muster_shard_step *step,
                      const struct muster_shard_result *result, struct muster_error *err)
{
    if (shard_check_ready(shard, err))
        return -1;
    if (step->size != sizeof *step || (result && result->size != sizeof *result))
        return error_set(
            err, MUSTER_E_INVALID,
            "struct muster_shard_step and _result are %u and %u bytes, but this library's are %zu "
            "and %zu: set their sizes, and build against this library's muster_shard.h",
            step->size, result ? result->size : 0, sizeof *step, sizeof *result);
    if (shard->options.optimizer == MUSTER_SHARD_SGD && step->momentum != 0 && !shard->options.momentum)
        return error_set(err, MUSTER_E_INVALID,
                         "momentum is %g, but the options have none: set muster_shard_options.momentum",
                         step->momentum);
    if (!(step->clip_norm >= 0))
        return error_set(err, MUSTER_E_INVALID, "clip_norm is %g, but must be 0 (not clipped) or above",
                         step->clip_norm);
    return shard->options.optimizer == MUSTER_SHARD_NONE ? 0 : shard_check_values(shard, step, err);
}

int muster_shard_step(struct muster_shard *shard, const struct muster_shard_step *step,
                      struct muster_shard_result *result, struct muster_error *err)
{
    struct shard_names names = shard_names_of(shard);
    bool norm = step->clip_norm > 0 || step->norm;
    if (check_step(shard, step, result, err) || shard_core_settle(&shard->core, &names, err) ||
        shard_act(shard, err) || collect(shard, norm, err))
        return -1;
    shard->update.step = step;
    fill_scalars(&shard->update);
    if (shard->options.optimizer != MUSTER_SHARD_NONE && shard_compute(shard, update, err))
        return -1;
    if (result) {
        result->skipped = shard->update.scalars.skip != 0;
        result->grad_norm = sqrt(shard->update.totals[0]);
    }
    memset(shard->has_gradient, 0, (size_t)shard->layout.param_count);
    shard_core_updated(&shard->core);
    return shard_act(shard, err);
}

int muster_shard_grad_norm(struct muster_shard *shard, double *norm, struct muster_error *err)
{
    struct shard_names names = shard_names_of(shard);
    if (shard_check_ready(shard, err) || shard_core_settle(&shard->core, &names, err) ||
        shard_act(shard, err) || collect(shard, true, err))
        return -1;
    *norm = sqrt(shard->update.totals[0]);
    return 0;
}
