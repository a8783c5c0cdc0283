/* trainer_params.c - access to a trainer's parameters between steps: initial values, reading and writing a
 * parameter, and its gradient. Data that does not fit into planned memory goes through host memory that is
 * freed at once. */
#include <string.h>

#include "kernels/narrow.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/model/rng.h"
#include "runtime/train/trainer_state.h"

/* whole: the buffer has the group's parameters, not this rank's shard of them. */
static struct piece piece_of(const struct trainer *trainer, int param, bool whole)
{
    const struct plan *plan = &trainer->plan;
    const struct param_group *group = &plan->groups[plan->places[param].group];
    int64_t start = plan->places[param].offset, end = start + param_elements(&trainer->model->params[param]);
    int64_t from = whole ? 0 : group->shard_start, to = from + (whole ? group->padded : group->shard);
    int64_t first = start > from ? start : from, last = end < to ? end : to;
    if (last <= first)
        return (struct piece){0};
    return (struct piece){.first = first - start, .count = last - first, .at = first - from};
}

struct piece trainer_held_piece(const struct trainer *trainer, int param)
{
    return piece_of(trainer, param, trainer->plan.groups[trainer->plan.places[param].group].resident);
}

struct piece trainer_shard_piece(const struct trainer *trainer, int param)
{
    return piece_of(trainer, param, false);
}

/* Copies host memory to the device or back, between steps. */
static int move(struct trainer *trainer, void *to, const void *from, int64_t bytes, struct muster_error *err)
{
    struct device_stream *stream = trainer->streams[STREAM_COMPUTE];
    if (trainer->ops->copy(stream, to, from, bytes))
        return executor_refused(trainer->ops, trainer->device, err);
    return trainer->ops->sync(stream, INSTANT_NEVER, err);
}

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

void trainer_round(enum dtype dtype, const void *values, enum dtype from, int64_t count, uint16_t *out)
{
    const float *floats = values;
    if (from != DTYPE_F32)
        kernels_ref_f64()->cast(out, dtype, values, from, count, NULL);
    for (int64_t i = 0; from == DTYPE_F32 && i < count; i++)
        out[i] = dtype == DTYPE_BF16 ? narrow_to_bf16(floats[i]) : narrow_to_f16(floats[i]);
}

static void widen_values(void *out, enum dtype to, const uint16_t *values, enum dtype dtype, int64_t count)
{
    float *floats = out;
    if (to != DTYPE_F32)
        kernels_ref_f64()->cast(out, to, values, dtype, count, NULL);
    for (int64_t i = 0; to == DTYPE_F32 && i < count; i++)
        floats[i] = dtype == DTYPE_BF16 ? narrow_from_bf16(values[i]) : narrow_from_f16(values[i]);
}

/* ---- values of all parameters ---- */

enum { FILL_CHUNK = 1 << 18 }; /* elements between host and device at a time */

/* Writes the elements that are in this rank's shard to a buffer of the shard; entry -1: no buffer. */
static int write_shard(struct trainer *trainer, int param, int entry, int64_t first, int64_t count,
                       const void *values, struct muster_error *err)
{
    const int64_t size = dtype_size(trainer->kernels->dtype);
    struct piece own = piece_of(trainer, param, false);
    int64_t begin = first > own.first ? first : own.first;
    int64_t end = first + count < own.first + own.count ? first + count : own.first + own.count;
    if (entry < 0 || end <= begin)
        return 0;
    return move(trainer, executor_address(&trainer->parts, entry, (own.at + begin - own.first) * size),
                (const char *)values + (begin - first) * size, (end - begin) * size, err);
}

/* Writes elements first..first+count-1 of a parameter, at most FILL_CHUNK. The trained buffer and the
 * average, which begins with them, get them unchanged. The buffer that gathers move gets them rounded. A
 * rank's shard is a part of its held elements, so that one walk over these reaches both. */
static int write_values(struct trainer *trainer, int param, int64_t first, int64_t count, const void *values,
                        uint16_t *rounded, struct muster_error *err)
{
    const struct param_group *group = group_of(trainer, param);
    const enum dtype real = trainer->kernels->dtype, moved = trainer->plan.entries[group->param].dtype;
    struct piece held = piece_of(trainer, param, group->resident);
    const void *source = values;
    if (moved != real) {
        trainer_round(moved, values, real, count, rounded);
        source = rounded;
    }
    if (move(trainer,
             executor_address(&trainer->parts, group->param,
                              (held.at + first - held.first) * dtype_size(moved)),
             source, count * dtype_size(moved), err))
        return -1;
    return write_shard(trainer, param, group->master, first, count, values, err) ||
                   write_shard(trainer, param, group->average, first, count, values, err)
               ? -1
               : 0;
}

static int fill_param(struct trainer *trainer, int param, trainer_param_source *source, void *context,
                      void *values, uint16_t *rounded, struct muster_error *err)
{
    struct piece piece = piece_of(trainer, param, group_of(trainer, param)->resident);
    for (int64_t done = 0; done < piece.count; done += FILL_CHUNK) {
        int64_t count = piece.count - done < FILL_CHUNK ? piece.count - done : FILL_CHUNK;
        const int given =
            source(context, param, piece.first + done, count, trainer->kernels->dtype, values, err);
        if (given < 0)
            return -1;
        if (given > 0)
            continue;
        if (write_values(trainer, param, piece.first + done, count, values, rounded, err))
            return trainer_break(trainer, err, "writing all parameters");
    }
    return 0;
}

void trainer_held(const struct trainer *trainer, int param, int64_t *first, int64_t *count)
{
    const struct param_group *group = group_of(trainer, param);
    const struct piece piece = group->local ? piece_of(trainer, param, group->resident) : (struct piece){0};
    *first = piece.first;
    *count = piece.count;
}

int trainer_fill_params(struct trainer *trainer, trainer_param_source *source, void *context,
                        struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    if (trainer_writable(trainer, e))
        return -1;
    if (trainer_settle(trainer, e))
        return trainer_break(trainer, e, "gathering for the next step");
    trainer_wait_for_readers(trainer);
    executor_forget(trainer->executor);
    scope_free double *values = mem_realloc(NULL, FILL_CHUNK, sizeof *values); /* for any dtype; not zeroed */
    scope_free uint16_t *rounded = mem_realloc(NULL, FILL_CHUNK, sizeof *rounded);
    if (!values || !rounded)
        return error_set(e, MUSTER_E_NOMEM, "no memory for parameters' values");
    for (int param = 0; param < trainer->model->param_count; param++) {
        if (group_of(trainer, param)->stored == STORED_PLAIN && group_of(trainer, param)->local &&
            fill_param(trainer, param, source, context, values, rounded, e))
            return error_wrap(e, "%s", trainer->model->params[param].name);
    }
    return trainer_fill_stored(trainer, source, context, e);
}

/* ---- initial values ---- */

enum { DRAW_CHUNK = 1024 }; /* elements that are drawn at a time, in double */

struct initial_values {
    const struct model *model;
    uint64_t seed;
    bool keeps_base; /* only adapters are drawn */
};

/* Adapters have their own sites: the base is the same with and without adapters. */
static uint32_t draw_site(const struct model *model, int param)
{
    uint32_t others = 0;
    const bool adapter = model->params[param].adapter != PARAM_OF_BASE;
    for (int i = 0; i < param; i++)
        others += (model->params[i].adapter != PARAM_OF_BASE) == adapter;
    return adapter ? 1u << 31 | others : others;
}

static void draw_values(const struct param_desc *desc, uint32_t site, uint64_t seed, int64_t first,
                        int64_t count, double *out)
{
    if (desc->init == PARAM_INIT_NORMAL)
        rng_normal_fill(seed, RNG_INIT, site, (uint64_t)first, count, out);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t index = (uint64_t)(first + i);
        if (desc->init == PARAM_INIT_UNIFORM)
            out[i] = (2 * rng_uniform(seed, RNG_INIT, site, index) - 1) * desc->init_std;
        else
            out[i] = desc->init == PARAM_INIT_NORMAL ? out[i] * desc->init_std : desc->init == PARAM_INIT_ONE;
    }
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
    const uint32_t site = draw_site(values->model, param);
    double drawn[DRAW_CHUNK];
    if (values->keeps_base && !values->model->params[param].adapter)
        return 1;
    for (int64_t done = 0; done < count; done += DRAW_CHUNK) {
        int64_t more = count - done < DRAW_CHUNK ? count - done : DRAW_CHUNK;
        draw_values(&values->model->params[param], site, values->seed, first + done, more, drawn);
        to_real(dtype, drawn, more, (char *)out + done * dtype_size(dtype));
    }
    return 0;
}

int trainer_initialise(struct trainer *trainer, uint64_t seed, struct muster_error *err)
{
    struct initial_values values = {trainer->model, seed, false};
    return trainer_fill_params(trainer, initial_values, &values, err);
}

int trainer_initialise_again(struct trainer *trainer, struct muster_error *err)
{
    struct initial_values values = {trainer->model, trainer->seed, trainer->model->adapter_scale != 0};
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
               : out && move(trainer, units, executor_address(&trainer->parts, group->param, 0), bytes, err))
        return -1;
    if (out)
        stored_open(group->stored, units, group->padded, out, trainer->kernels->dtype);
    return 0;
}

/* Reads the flat elements of a whole group, on every rank, of the kernels' dtype. out may be NULL if the
 * buffer holds all elements. */
static int read_group(struct trainer *trainer, const struct param_group *group, int entry, bool whole,
                      void *out, struct muster_error *err)
{
    const enum dtype real = trainer->kernels->dtype, dtype = trainer->plan.entries[entry].dtype;
    int64_t bytes = group->padded * dtype_size(dtype);
    if (group->stored != STORED_PLAIN)
        return read_stored(trainer, group, whole, out, err);
    scope_free uint16_t *narrow = dtype != real ? mem_calloc((size_t)bytes, 1) : NULL;
    if (dtype != real && !narrow)
        return error_set(err, MUSTER_E_NOMEM, "no memory to widen %lld bytes", (long long)bytes);
    void *to = narrow ? narrow : out;
    if (!whole ? gather(trainer, entry, group->shard, to, err)
               : out && move(trainer, to, executor_address(&trainer->parts, entry, 0), bytes, err))
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
    const int64_t bytes = group->padded * dtype_size(trainer->kernels->dtype);
    if (group->local && read_group(trainer, group, entry, is_whole(group, entry), out, err))
        return -1;
    return trainer_share(trainer, plan_first_stage(group), out, bytes, err);
}

/* Reads a parameter's part of a buffer of its group. */
static int read_flat(struct trainer *trainer, int param, int entry, void *out, struct muster_error *err)
{
    const struct param_place *place = &trainer->plan.places[param];
    const struct param_group *group = &trainer->plan.groups[place->group];
    int size = dtype_size(trainer->kernels->dtype);
    int64_t bytes = param_elements(&trainer->model->params[param]) * size;
    const bool alone = is_whole(group, entry) && !has_stages(trainer); /* no other rank is needed */
    if (alone && !out)
        return 0;
    if (alone && entry_size(trainer, entry) == size)
        return move(trainer, out, executor_address(&trainer->parts, entry, place->offset * size), bytes, err);
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
    if (check_param(trainer, param, e))
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
    if (check_param(trainer, param, e))
        return -1;
    const struct param_group *group = &trainer->plan.groups[trainer->plan.places[param].group];
    if (!group->trainable)
        return error_set(e, MUSTER_E_STATE, "parameter %s is frozen and has no gradient",
                         trainer->model->params[param].name);
    if (read_flat(trainer, param, group->grad, out, e))
        return trainer_break(trainer, e, "reading a gradient");
    if (out && trainer->stepped_scale > 0 && !group->statistic)
        unscale(out, trainer->kernels->dtype, param_elements(&trainer->model->params[param]),
                trainer->stepped_scale);
    return 0;
}

/* ---- all parameters ---- */

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

static bool holds(const struct trainer *trainer, const struct param_group *group, enum trainer_params which)
{
    bool found = which == TRAINER_PARAMS_ALL;
    for (int i = 0; i < group->param_count && !found; i++) {
        const int param = trainer->plan.group_params[group->first_param + i];
        found =
            (trainer->model->params[param].adapter != PARAM_OF_BASE) == (which == TRAINER_PARAMS_ADAPTERS);
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
    int64_t most = 0, size = dtype_size(trainer->kernels->dtype);
    int failed = 0;
    if (trainer_usable(trainer, e))
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

int trainer_set_param(struct trainer *trainer, int param, const void *values, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    if (trainer_writable(trainer, e) || check_param(trainer, param, e))
        return -1;
    struct piece piece = piece_of(trainer, param, group_of(trainer, param)->resident);
    if (!group_of(trainer, param)->local) /* other stages have it */
        return 0;
    if (group_of(trainer, param)->stored != STORED_PLAIN)
        return trainer_set_stored(trainer, param, values, e);
    scope_free uint16_t *rounded = mem_realloc(NULL, FILL_CHUNK, sizeof *rounded);
    if (!rounded)
        return error_set(e, MUSTER_E_NOMEM, "no memory for a parameter's values");
    trainer_wait_for_readers(trainer);
    for (int64_t done = 0; done < piece.count; done += FILL_CHUNK) {
        int64_t count = piece.count - done < FILL_CHUNK ? piece.count - done : FILL_CHUNK;
        int64_t first = piece.first + done;
        if (write_values(trainer, param, first, count,
                         (const char *)values + first * dtype_size(trainer->kernels->dtype), rounded, e))
            return trainer_break(trainer, e, "writing a parameter");
    }
    executor_forget(trainer->executor);
    return 0;
}
