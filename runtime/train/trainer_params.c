/* trainer_params.c - reads a trainer's parameters and gradients between steps. Data that does not fit into
 * planned memory goes through host memory that is freed at once. */
#include <string.h>

#include "kernels/narrow.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/trainer_state.h"

static int entry_size(const struct trainer *trainer, int entry)
{
    return dtype_size(trainer->plan.entries[entry].dtype);
}

static const struct param_group *group_of(const struct trainer *trainer, int param)
{
    return &trainer->plan.groups[trainer->plan.places[param].group];
}

/* The buffer with a group's trained parameters: the master, if there is a master. */
static int state_entry(const struct param_group *group)
{
    return group->master >= 0 ? group->master : group->param;
}

/* ---- 16-bit values, on the host ---- */

static void widen_values(void *out, enum dtype to, const uint16_t *values, enum dtype dtype, int64_t count)
{
    float *floats = out;
    if (to != DTYPE_F32)
        kernels_ref_f64()->cast(out, to, values, dtype, count, NULL);
    for (int64_t i = 0; to == DTYPE_F32 && i < count; i++)
        floats[i] = dtype == DTYPE_BF16 ? narrow_from_bf16(values[i]) : narrow_from_f16(values[i]);
}

/* Runs an operation on a comm of an axis, between host memory or from an entry of the plan. */
static int run_on_axis(struct trainer *trainer, enum mesh_axis axis, const struct comm_op *op,
                       const void *from, void *to, struct muster_error *err)
{
    for (int stream = 0; stream < STREAM_COUNT; stream++) {
        struct comm *comm = trainer->comms.comm[axis][stream];
        if (!comm || !trainer->streams[stream])
            continue;
        if (trainer->comms.ops->issue(comm, op, from, to, trainer->streams[stream], err))
            return -1;
        return trainer->ops->sync(trainer->streams[stream], INSTANT_NEVER, err);
    }
    return error_set(err, MUSTER_E_STATE, "the plan has no comm on axis %s", axis_name(axis));
}

/* Gathers all ranks' pieces of `count` elements of `entry`, in rank order, into host memory. */
static int gather(struct trainer *trainer, int entry, int64_t count, void *out, struct muster_error *err)
{
    const struct comm_op op = {
        .kind = COMM_ALL_GATHER, .dtype = trainer->plan.entries[entry].dtype, .count = count};
    return run_on_axis(trainer, AXIS_SHARD, &op, executor_address(&trainer->parts, entry, 0), out, err);
}

int trainer_share(struct trainer *trainer, int stage, void *values, int64_t bytes, struct muster_error *err)
{
    const struct comm_op op = {.kind = COMM_BROADCAST, .dtype = DTYPE_U8, .root = stage, .count = bytes};
    if (trainer->plan.options.mesh.side[SIDE_PIPELINE] == 1)
        return 0;
    return run_on_axis(trainer, AXIS_PIPELINE, &op, values, values, err);
}

/* Gathers the values of a group that is held in few bits. */
static int read_stored(struct trainer *trainer, const struct param_group *group, bool whole, void *out,
                       struct muster_error *err)
{
    const int64_t bytes = plan_held_bytes(&trainer->plan, group, group->padded);
    scope_free uint8_t *units = mem_calloc((size_t)bytes, 1);
    if (!units)
        return error_set(err, MUSTER_E_NOMEM, "no memory to open %lld bytes", (long long)bytes);
    const int64_t own = plan_held_bytes(&trainer->plan, group, group->shard);
    if (!whole ? gather(trainer, group->param, own, units, err)
               : out && trainer_copy(trainer, units, executor_address(&trainer->parts, group->param, 0),
                                     bytes, err))
        return -1;
    if (out)
        stored_open(group->stored, units, group->padded, out, trainer->kernels->statistic);
    return 0;
}

/* Reads the flat elements of a whole group, on every rank, of the kernels' dtype. out may be NULL if the
 * buffer holds all elements. */
static int read_group(struct trainer *trainer, const struct param_group *group, int entry, bool whole,
                      void *out, struct muster_error *err)
{
    const enum dtype real = trainer->kernels->statistic, dtype = trainer->plan.entries[entry].dtype;
    int64_t bytes = group->padded * dtype_size(dtype);
    if (group->stored != STORED_PLAIN)
        return read_stored(trainer, group, whole, out, err);
    scope_free uint16_t *narrow = dtype != real ? mem_calloc((size_t)bytes, 1) : NULL;
    if (dtype != real && !narrow)
        return error_set(err, MUSTER_E_NOMEM, "no memory to widen %lld bytes", (long long)bytes);
    void *to = narrow ? narrow : out;
    if (!whole ? gather(trainer, entry, group->shard, to, err)
               : out && trainer_copy(trainer, to, executor_address(&trainer->parts, entry, 0), bytes, err))
        return -1;
    if (narrow && out)
        widen_values(out, real, narrow, dtype, group->padded);
    return 0;
}

static bool is_whole(const struct param_group *group, int entry)
{
    return group->shard_size == 1 || (entry == group->param && group->resident);
}

static bool has_stages(const struct trainer *trainer)
{
    return trainer->plan.options.mesh.side[SIDE_PIPELINE] > 1;
}

/* As read_group, and sends the elements from the stage that has the group to all stages. entry: this rank's
 * buffer, if it is in that stage. */
static int read_everywhere(struct trainer *trainer, const struct param_group *group, int entry, void *out,
                           struct muster_error *err)
{
    const int64_t bytes = group->padded * dtype_size(trainer->kernels->statistic);
    if (group->local && read_group(trainer, group, entry, is_whole(group, entry), out, err))
        return -1;
    return trainer_share(trainer, plan_first_stage(group), out, bytes, err);
}

/* Reads a parameter's part of a buffer of its group. */
static int read_flat(struct trainer *trainer, int param, int entry, void *out, struct muster_error *err)
{
    const struct param_place *place = &trainer->plan.places[param];
    const struct param_group *group = &trainer->plan.groups[place->group];
    int size = dtype_size(trainer->kernels->statistic);
    int64_t bytes = param_elements(&trainer->model->params[param]) * size;
    const bool alone = is_whole(group, entry) && !has_stages(trainer); /* no other rank is needed */
    if (alone && !out)
        return 0;
    if (alone && entry_size(trainer, entry) == size)
        return trainer_copy(trainer, out, executor_address(&trainer->parts, entry, place->offset * size),
                            bytes, err);
    scope_free char *flat = mem_calloc((size_t)group->padded, (size_t)size);
    if (!flat)
        return error_set(err, MUSTER_E_NOMEM, "no memory to gather %lld bytes",
                         (long long)(group->padded * size));
    if (read_everywhere(trainer, group, entry, flat, err))
        return -1;
    if (out)
        memcpy(out, flat + place->offset * size, (size_t)bytes);
    return 0;
}

int trainer_get_param(struct trainer *trainer, int param, void *out, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    if (trainer_check_param(trainer, param, e) || trainer_draw(trainer, e))
        return -1;
    if (read_flat(trainer, param, state_entry(group_of(trainer, param)), out, e))
        return trainer_break(trainer, e, "reading a parameter");
    return 0;
}

static void unscale(void *values, enum dtype dtype, int64_t count, double scale)
{
    for (int64_t i = 0; i < count; i++) {
        if (dtype == DTYPE_F64)
            ((double *)values)[i] /= scale;
        else
            ((float *)values)[i] /= (float)scale;
    }
}

int trainer_get_grad(struct trainer *trainer, int param, void *out, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    if (trainer_check_param(trainer, param, e))
        return -1;
    const struct param_group *group = &trainer->plan.groups[trainer->plan.places[param].group];
    if (!group->trainable)
        return error_set(e, MUSTER_E_STATE, "parameter %s is frozen and has no gradient",
                         trainer->model->params[param].name);
    if (read_flat(trainer, param, group->grad, out, e))
        return trainer_break(trainer, e, "reading a gradient");
    if (out && trainer->stepped_scale > 0 && !group->statistic)
        unscale(out, trainer->kernels->statistic, param_elements(&trainer->model->params[param]),
                trainer->stepped_scale);
    return 0;
}

/* ---- all parameters ---- */

static int visit_group(struct trainer *trainer, const struct param_group *group, const char *flat,
                       int (*visit)(void *context, int param, const void *values, struct muster_error *err),
                       void *context, struct muster_error *err)
{
    int size = dtype_size(trainer->kernels->statistic);
    for (int i = 0; i < group->param_count; i++) {
        int param = trainer->plan.group_params[group->first_param + i];
        if (visit(context, param, flat + trainer->plan.places[param].offset * size, err))
            return -1;
    }
    return 0;
}

static bool holds(const struct trainer *trainer, const struct param_group *group, enum trainer_params which)
{
    bool found = which == TRAINER_PARAMS_ALL;
    for (int i = 0; i < group->param_count && !found; i++) {
        const int param = trainer->plan.group_params[group->first_param + i];
        const enum param_adapter adapter = trainer->model->params[param].adapter;
        found = adapter == PARAM_SAVED || (adapter != PARAM_OF_BASE) == (which == TRAINER_PARAMS_ADAPTERS);
    }
    return found;
}

int trainer_each_param(struct trainer *trainer,
                       int (*visit)(void *context, int param, const void *values, struct muster_error *err),
                       void *context, struct muster_error *err)
{
    return trainer_each_param_of(trainer, TRAINER_PARAMS_ALL, visit, context, err);
}

int trainer_each_param_of(struct trainer *trainer, enum trainer_params which,
                          int (*visit)(void *context, int param, const void *values,
                                       struct muster_error *err),
                          void *context, struct muster_error *err)
{
    struct muster_error local = {0}, gathering = {0};
    struct muster_error *e = err ? err : &local;
    const struct plan *plan = &trainer->plan;
    int64_t most = 0, size = dtype_size(trainer->kernels->statistic);
    int failed = 0;
    if (trainer_usable(trainer, e) || trainer_draw(trainer, e))
        return -1;
    for (int g = 0; g < plan->group_count; g++)
        if (holds(trainer, &plan->groups[g], which))
            most = plan->groups[g].padded > most ? plan->groups[g].padded : most;
    scope_free void *flat = mem_calloc((size_t)most, (size_t)size);
    if (!flat) {
        (void)error_set(e, MUSTER_E_NOMEM, "no memory to gather %lld bytes", (long long)(most * size));
        return trainer_break(trainer, e, "reading all parameters");
    }
    if (trainer_settle(trainer, e))
        return trainer_break(trainer, e, "gathering for the next step");
    for (int g = 0; g < plan->group_count; g++) {
        int entry = state_entry(&plan->groups[g]);
        const bool alone = is_whole(&plan->groups[g], entry) && !has_stages(trainer);
        if (!holds(trainer, &plan->groups[g], which))
            continue;
        if (!(alone && (!visit || failed)) &&
            read_everywhere(trainer, &plan->groups[g], entry, flat, &gathering)) {
            (void)trainer_break(trainer, &gathering, "reading all parameters"); /* -1, as we return */
            if (!failed) /* the first error is the one to report */
                *e = gathering;
            return -1;
        }
        if (visit && !failed)
            failed = visit_group(trainer, &plan->groups[g], flat, visit, context, e);
    }
    return failed;
}
