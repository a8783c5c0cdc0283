/* trainer_params.c - access to a trainer's parameters: initial values, reading and writing one, and its
 * gradient. Between steps only; data that does not fit into planned memory goes through host memory that
 * is freed at once. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/model/rng.h"
#include "runtime/train/trainer_state.h"

/* Which elements of a parameter this rank holds, and where. */
struct piece {
    int64_t first, count; /* elements of the parameter */
    int64_t at;           /* element in the group's param buffer */
};

static struct piece piece_of(const struct plan *plan, int param, int64_t elements)
{
    const struct param_group *group = &plan->groups[plan->places[param].group];
    int64_t start = plan->places[param].offset, end = start + elements;
    int64_t from = group->resident ? 0 : group->shard_start;
    int64_t to = from + (group->resident ? group->padded : group->shard);
    int64_t first = start > from ? start : from, last = end < to ? end : to;
    if (last <= first)
        return (struct piece){0};
    return (struct piece){.first = first - start, .count = last - first, .at = first - from};
}

/* Host memory to the device and back, between steps. */
static int move(struct trainer *trainer, void *to, const void *from, int64_t bytes, struct muster_error *err)
{
    struct device_stream *stream = trainer->streams[STREAM_COMPUTE];
    if (trainer->ops->copy(stream, to, from, bytes))
        return executor_refused(trainer->ops, trainer->device, err);
    return trainer->ops->sync(stream, INSTANT_NEVER, err);
}

static char *param_address(const struct trainer *trainer, const struct param_group *group, int64_t element)
{
    return executor_address(&trainer->parts, group->param, element * dtype_size(trainer->kernels->dtype));
}

/* ---- values of all parameters ---- */

enum { FILL_CHUNK = 1 << 18 }; /* elements between host and device at a time */

static int fill_param(struct trainer *trainer, int param, trainer_param_source *source, void *context,
                      void *values, struct muster_error *err)
{
    const struct param_desc *desc = &trainer->model->params[param];
    const struct param_group *group = &trainer->plan.groups[trainer->plan.places[param].group];
    struct piece piece = piece_of(&trainer->plan, param, param_elements(desc));
    int size = dtype_size(trainer->kernels->dtype);
    for (int64_t done = 0; done < piece.count; done += FILL_CHUNK) {
        int64_t count = piece.count - done < FILL_CHUNK ? piece.count - done : FILL_CHUNK;
        if (source(context, param, piece.first + done, count, trainer->kernels->dtype, values, err))
            return -1;
        if (move(trainer, param_address(trainer, group, piece.at + done), values, count * size, err))
            return trainer_break(trainer, err, "writing all parameters");
    }
    return 0;
}

int trainer_fill_params(struct trainer *trainer, trainer_param_source *source, void *context,
                        struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    if (trainer_usable(trainer, e))
        return -1;
    if (trainer_settle(trainer, e))
        return trainer_break(trainer, e, "gathering for the next step");
    executor_forget(trainer->executor);
    scope_free double *values = mem_calloc(FILL_CHUNK, sizeof *values); /* wide enough for any dtype */
    if (!values)
        return error_set(e, MUSTER_E_NOMEM, "no memory for parameters' values");
    for (int param = 0; param < trainer->model->param_count; param++) {
        if (fill_param(trainer, param, source, context, values, e))
            return error_wrap(e, "%s", trainer->model->params[param].name);
    }
    return 0;
}

/* ---- initial values ---- */

enum { DRAW_CHUNK = 1024 }; /* elements that are drawn at a time, in double */

struct initial_values {
    const struct model *model;
    uint64_t seed;
};

static void draw_values(const struct param_desc *desc, int param, uint64_t seed, int64_t first, int64_t count,
                        double *out)
{
    if (desc->init == PARAM_INIT_NORMAL)
        rng_normal_fill(seed, RNG_INIT, (uint32_t)param, (uint64_t)first, count, out);
    for (int64_t i = 0; i < count; i++)
        out[i] = desc->init == PARAM_INIT_NORMAL ? out[i] * desc->init_std : desc->init == PARAM_INIT_ONE;
}

static void to_real(enum dtype dtype, const double *from, int64_t count, void *to)
{
    for (int64_t i = 0; i < count; i++) {
        if (dtype == DTYPE_F64)
            ((double *)to)[i] = from[i];
        else
            ((float *)to)[i] = (float)from[i];
    }
}

static int initial_values(void *context, int param, int64_t first, int64_t count, enum dtype dtype, void *out,
                          struct muster_error *err)
{
    (void)err;
    const struct initial_values *values = context;
    double drawn[DRAW_CHUNK];
    for (int64_t done = 0; done < count; done += DRAW_CHUNK) {
        int64_t more = count - done < DRAW_CHUNK ? count - done : DRAW_CHUNK;
        draw_values(&values->model->params[param], param, values->seed, first + done, more, drawn);
        to_real(dtype, drawn, more, (char *)out + done * dtype_size(dtype));
    }
    return 0;
}

int trainer_initialise(struct trainer *trainer, uint64_t seed, struct muster_error *err)
{
    struct initial_values values = {trainer->model, seed};
    return trainer_fill_params(trainer, initial_values, &values, err);
}

/* ---- reading and writing ---- */

static int check_param(struct trainer *trainer, int param, struct muster_error *err)
{
    if (trainer_usable(trainer, err))
        return -1;
    if (param < 0 || param >= trainer->model->param_count)
        return error_set(err, MUSTER_E_INVALID, "parameter %d: the model has %d parameters", param,
                         trainer->model->param_count);
    return trainer_settle(trainer, err) ? trainer_break(trainer, err, "gathering for the next step") : 0;
}

/* All ranks' pieces of `count` elements from `entry`, in rank order, into host memory. */
static int gather(struct trainer *trainer, int entry, int64_t count, void *out, struct muster_error *err)
{
    for (int stream = 0; stream < STREAM_COUNT; stream++) {
        struct comm *comm = trainer->comms.comm[AXIS_SHARD][stream];
        const struct comm_op op = {.kind = COMM_ALL_GATHER, .dtype = trainer->kernels->dtype, .count = count};
        if (!comm)
            continue;
        if (trainer->comms.ops->issue(comm, &op, executor_address(&trainer->parts, entry, 0), out,
                                      trainer->streams[stream], err))
            return -1;
        return trainer->ops->sync(trainer->streams[stream], INSTANT_NEVER, err);
    }
    return error_set(err, MUSTER_E_STATE, "the plan shards a group but has no comm on axis %s",
                     axis_name(AXIS_SHARD));
}

/* One parameter's part of a buffer that holds the whole group, or this rank's shard of it. */
static int read_flat(struct trainer *trainer, int param, int entry, bool whole, void *out,
                     struct muster_error *err)
{
    const struct param_place *place = &trainer->plan.places[param];
    const struct param_group *group = &trainer->plan.groups[place->group];
    int size = dtype_size(trainer->kernels->dtype);
    int64_t bytes = param_elements(&trainer->model->params[param]) * size;
    if (whole)
        return out ? move(trainer, out, executor_address(&trainer->parts, entry, place->offset * size), bytes,
                          err)
                   : 0;
    scope_free char *flat = mem_calloc((size_t)group->padded, (size_t)size);
    if (!flat)
        return error_set(err, MUSTER_E_NOMEM, "no memory to gather %lld bytes",
                         (long long)(group->padded * size));
    if (gather(trainer, entry, group->shard, flat, err))
        return -1;
    if (out)
        memcpy(out, flat + place->offset * size, (size_t)bytes);
    return 0;
}

static bool is_whole(const struct param_group *group)
{
    return group->resident || group->shard_size == 1;
}

int trainer_get_param(struct trainer *trainer, int param, void *out, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    if (check_param(trainer, param, e))
        return -1;
    const struct param_group *group = &trainer->plan.groups[trainer->plan.places[param].group];
    if (read_flat(trainer, param, group->param, is_whole(group), out, e))
        return trainer_break(trainer, e, "reading a parameter");
    return 0;
}

int trainer_get_grad(struct trainer *trainer, int param, void *out, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    if (check_param(trainer, param, e))
        return -1;
    const struct param_group *group = &trainer->plan.groups[trainer->plan.places[param].group];
    if (group->grad < 0)
        return error_set(e, MUSTER_E_STATE, "parameter %s is frozen and has no gradient",
                         trainer->model->params[param].name);
    if (read_flat(trainer, param, group->grad, group->shard_size == 1, out, e))
        return trainer_break(trainer, e, "reading a gradient");
    return 0;
}

/* ---- all parameters ---- */

static int read_group(struct trainer *trainer, const struct param_group *group, bool wanted, void *flat,
                      struct muster_error *err)
{
    int64_t bytes = group->elements * dtype_size(trainer->kernels->dtype);
    if (!is_whole(group))
        return gather(trainer, group->param, group->shard, flat, err);
    return wanted ? move(trainer, flat, executor_address(&trainer->parts, group->param, 0), bytes, err) : 0;
}

static int visit_group(struct trainer *trainer, const struct param_group *group, const char *flat,
                       int (*visit)(void *context, int param, const void *values, struct muster_error *err),
                       void *context, struct muster_error *err)
{
    int size = dtype_size(trainer->kernels->dtype);
    for (int i = 0; i < group->param_count; i++) {
        int param = trainer->plan.group_params[group->first_param + i];
        if (visit(context, param, flat + trainer->plan.places[param].offset * size, err))
            return -1;
    }
    return 0;
}

int trainer_each_param(struct trainer *trainer,
                       int (*visit)(void *context, int param, const void *values, struct muster_error *err),
                       void *context, struct muster_error *err)
{
    struct muster_error local = {0}, gathering = {0};
    struct muster_error *e = err ? err : &local;
    const struct plan *plan = &trainer->plan;
    int64_t most = 0, size = dtype_size(trainer->kernels->dtype);
    int failed = 0;
    if (trainer_usable(trainer, e))
        return -1;
    for (int g = 0; g < plan->group_count; g++)
        most = plan->groups[g].padded > most ? plan->groups[g].padded : most;
    scope_free void *flat = mem_calloc((size_t)most, (size_t)size);
    if (!flat) {
        (void)error_set(e, MUSTER_E_NOMEM, "no memory to gather %lld bytes", (long long)(most * size));
        return trainer_break(trainer, e, "reading all parameters");
    }
    if (trainer_settle(trainer, e))
        return trainer_break(trainer, e, "gathering for the next step");
    for (int g = 0; g < plan->group_count; g++) {
        if (read_group(trainer, &plan->groups[g], visit && !failed, flat, &gathering)) {
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

int trainer_set_param(struct trainer *trainer, int param, const void *values, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    if (check_param(trainer, param, e))
        return -1;
    const struct param_group *group = &trainer->plan.groups[trainer->plan.places[param].group];
    int size = dtype_size(trainer->kernels->dtype);
    struct piece piece = piece_of(&trainer->plan, param, param_elements(&trainer->model->params[param]));
    if (piece.count && move(trainer, param_address(trainer, group, piece.at),
                            (const char *)values + piece.first * size, piece.count * size, e))
        return trainer_break(trainer, e, "writing a parameter");
    executor_forget(trainer->executor);
    return 0;
}
