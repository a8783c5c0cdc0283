/* trainer_stored.c - writes values to groups that are held in few bits, and reads their units. Between steps.
 *
 * A unit is rounded as a whole. So all of this rank's values of a group are collected on the host before they
 * are rounded. Units without a new value keep their bytes: rounding opened values again would change them. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/train/trainer_state.h"

enum { STORED_CHUNK = 1 << 18 }; /* elements in one call of a source */

struct filling {
    struct trainer *trainer;
    const struct param_group *group;
    int64_t held, bytes; /* elements of the group on this rank, and their bytes in units */
    float *values;       /* [held] */
    uint8_t *units;      /* [bytes] the old units, then the new units */
    bool *changed;       /* [held / unit] */
    double *chunk;       /* [STORED_CHUNK] of the kernels' dtype */
};

static int begin_filling(struct filling *f, struct muster_error *err)
{
    const struct plan *plan = &f->trainer->plan;
    f->held = f->group->resident ? f->group->padded : f->group->shard;
    f->bytes = plan_held_bytes(plan, f->group, f->held);
    f->values = mem_calloc((size_t)f->held, sizeof *f->values);
    f->units = mem_calloc((size_t)f->bytes, 1);
    f->changed = mem_calloc((size_t)(f->held / stored_unit(f->group->stored)), sizeof *f->changed);
    f->chunk = mem_calloc(STORED_CHUNK, sizeof *f->chunk);
    if (f->values && f->units && f->changed && f->chunk)
        return 0;
    return error_set(err, MUSTER_E_NOMEM, "no memory to round the %lld values of %s", (long long)f->held,
                     f->group->name);
}

static void end_filling(struct filling *f)
{
    mem_free(f->values);
    mem_free(f->units);
    mem_free(f->changed);
    mem_free(f->chunk);
}

/* Copies between the buffer and `units`. */
static int move_units(struct filling *f, bool out, struct muster_error *err)
{
    struct trainer *trainer = f->trainer;
    struct device_stream *stream = trainer->streams[STREAM_COMPUTE];
    void *at = executor_address(&trainer->parts, f->group->param, 0);
    if (trainer->ops->copy(stream, out ? at : f->units, out ? (const void *)f->units : at, f->bytes))
        return executor_refused(trainer->ops, trainer->device, err);
    return trainer->ops->sync(stream, INSTANT_NEVER, err);
}

static void take_chunk(struct filling *f, int64_t at, int64_t count)
{
    const int64_t unit = stored_unit(f->group->stored);
    const bool wide = f->trainer->kernels->statistic == DTYPE_F64;
    for (int64_t i = 0; i < count; i++)
        f->values[at + i] = wide ? (float)f->chunk[i] : ((const float *)f->chunk)[i];
    for (int64_t u = at / unit; u <= (at + count - 1) / unit; u++)
        f->changed[u] = true;
}

/* Returns 1 if the source gave values. */
static int fill_one(struct filling *f, int param, trainer_param_source *source, void *context,
                    struct muster_error *err)
{
    const struct piece piece = trainer_held_piece(f->trainer, param);
    int any = 0;
    for (int64_t done = 0; done < piece.count; done += STORED_CHUNK) {
        const int64_t count = piece.count - done < STORED_CHUNK ? piece.count - done : STORED_CHUNK;
        const int given =
            source(context, param, piece.first + done, count, f->trainer->kernels->statistic, f->chunk, err);
        if (given < 0)
            return error_wrap(err, "%s", f->trainer->model->params[param].name);
        if (given)
            continue;
        take_chunk(f, piece.at + done, count);
        any = 1;
    }
    return any;
}

static void round_changed(struct filling *f)
{
    const enum stored stored = f->group->stored;
    const int64_t unit = stored_unit(stored), bytes = stored_bytes(stored, unit);
    for (int64_t u = 0; u < f->held / unit; u++)
        if (f->changed[u])
            stored_round(stored, f->values + u * unit, unit, f->units + u * bytes);
}

static int fill_group(struct filling *f, trainer_param_source *source, void *context,
                      struct muster_error *err)
{
    const struct plan *plan = &f->trainer->plan;
    int any = 0;
    if (begin_filling(f, err) < 0 || move_units(f, false, err))
        return -1;
    stored_open(f->group->stored, f->units, f->held, f->values, DTYPE_F32);
    for (int i = 0; i < f->group->param_count; i++) {
        const int given = fill_one(f, plan->group_params[f->group->first_param + i], source, context, err);
        if (given < 0)
            return -1;
        any |= given;
    }
    if (!any)
        return 0;
    round_changed(f);
    return move_units(f, true, err) ? -1 : 0;
}

int trainer_fill_stored(struct trainer *trainer, trainer_param_source *source, void *context,
                        struct muster_error *err)
{
    int failed = 0;
    for (int g = 0; g < trainer->plan.group_count && !failed; g++) {
        struct filling f = {.trainer = trainer, .group = &trainer->plan.groups[g]};
        if (f.group->stored == STORED_PLAIN || !f.group->local)
            continue;
        failed = fill_group(&f, source, context, err);
        end_filling(&f);
    }
    return failed;
}

/* ---- one parameter ---- */

struct one_param {
    int param;
    const char *values;
};

static int values_of_one(void *context, int param, int64_t first, int64_t count, enum dtype dtype, void *out,
                         struct muster_error *err)
{
    const struct one_param *one = context;
    (void)err;
    if (param != one->param)
        return 1;
    memcpy(out, one->values + first * dtype_size(dtype), (size_t)(count * dtype_size(dtype)));
    return 0;
}

int trainer_set_stored(struct trainer *trainer, int param, const void *values, struct muster_error *err)
{
    struct one_param one = {param, values};
    struct filling f = {.trainer = trainer,
                        .group = &trainer->plan.groups[trainer->plan.places[param].group]};
    trainer_wait_for_readers(trainer);
    const int failed = fill_group(&f, values_of_one, &one, err);
    end_filling(&f);
    executor_forget(trainer->executor);
    return failed ? trainer_break(trainer, err, "writing a parameter") : 0;
}

/* ---- units ---- */

int trainer_read_units(struct trainer *trainer, const struct param_group *group, int64_t first, int64_t count,
                       void *out, struct muster_error *err)
{
    struct device_stream *stream = trainer->streams[STREAM_COMPUTE];
    const void *at = executor_address(&trainer->parts, group->param, first);
    if (trainer_usable(trainer, err) || trainer_draw(trainer, err))
        return -1;
    if (trainer_settle(trainer, err))
        return trainer_break(trainer, err, "gathering for the next step");
    const int failed = trainer->ops->copy(stream, out, at, count)
                           ? executor_refused(trainer->ops, trainer->device, err)
                           : trainer->ops->sync(stream, INSTANT_NEVER, err);
    return failed ? trainer_break(trainer, err, "reading parameters in few bits") : 0;
}
