/* trainer_fill.c - writes a trainer's parameters between steps: initial values, all parameters from a source,
 * and one parameter. */
#include <string.h>

#include "kernels/narrow.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/compress/compress.h"
#include "runtime/model/rng.h"
#include "runtime/train/trainer_state.h"

enum { FILL_CHUNK = 1 << 18 }; /* elements between host and device at a time */

static const struct param_group *filled_group(const struct trainer *trainer, int param)
{
    return &trainer->plan.groups[trainer->plan.places[param].group];
}

void trainer_round(enum dtype dtype, const void *values, enum dtype from, int64_t count, uint16_t *out)
{
    const float *floats = values;
    if (from != DTYPE_F32)
        kernels_ref_f64()->cast(out, dtype, values, from, count, NULL);
    for (int64_t i = 0; from == DTYPE_F32 && i < count; i++)
        out[i] = dtype == DTYPE_BF16 ? narrow_to_bf16(floats[i]) : narrow_to_f16(floats[i]);
}

/* Writes the elements that are in this rank's shard to a buffer of the shard; entry -1: no buffer. */
static int write_shard(struct trainer *trainer, int param, int entry, int64_t first, int64_t count,
                       const void *values, struct muster_error *err)
{
    const int64_t size = dtype_size(trainer->kernels->statistic);
    struct piece own = trainer_piece_of(trainer, param, false);
    int64_t begin = first > own.first ? first : own.first;
    int64_t end = first + count < own.first + own.count ? first + count : own.first + own.count;
    if (entry < 0 || end <= begin)
        return 0;
    return trainer_copy(trainer,
                        executor_address(&trainer->parts, entry, (own.at + begin - own.first) * size),
                        (const char *)values + (begin - first) * size, (end - begin) * size, err);
}

/* Writes elements first..first+count-1 of a parameter, at most FILL_CHUNK. The trained buffer and the
 * average, which begins with them, get them unchanged. The buffer that gathers move gets them rounded. A
 * rank's shard is a part of its held elements, so that one walk over these reaches both. */
static int write_values(struct trainer *trainer, int param, int64_t first, int64_t count, const void *values,
                        uint16_t *rounded, struct muster_error *err)
{
    const struct param_group *group = filled_group(trainer, param);
    const enum dtype real = trainer->kernels->statistic, moved = trainer->plan.entries[group->param].dtype;
    struct piece held = trainer_piece_of(trainer, param, group->resident);
    const void *source = values;
    if (moved != real) {
        trainer_round(moved, values, real, count, rounded);
        source = rounded;
    }
    if (trainer_copy(trainer,
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
    struct piece piece = trainer_piece_of(trainer, param, filled_group(trainer, param)->resident);
    for (int64_t done = 0; done < piece.count; done += FILL_CHUNK) {
        int64_t count = piece.count - done < FILL_CHUNK ? piece.count - done : FILL_CHUNK;
        const int given =
            source(context, param, piece.first + done, count, trainer->kernels->statistic, values, err);
        if (given < 0)
            return -1;
        if (given > 0)
            continue;
        if (write_values(trainer, param, piece.first + done, count, values, rounded, err))
            return trainer_break(trainer, err, "writing all parameters");
    }
    return 0;
}

int trainer_set_param(struct trainer *trainer, int param, const void *values, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    if (trainer_writable(trainer, e) || trainer_check_param(trainer, param, e) || trainer_draw(trainer, e))
        return -1;
    struct piece piece = trainer_piece_of(trainer, param, filled_group(trainer, param)->resident);
    if (!filled_group(trainer, param)->local) /* other stages have it */
        return 0;
    if (filled_group(trainer, param)->stored != STORED_PLAIN)
        return trainer_set_stored(trainer, param, values, e);
    scope_free uint16_t *rounded = mem_realloc(NULL, FILL_CHUNK, sizeof *rounded);
    if (!rounded)
        return error_set(e, MUSTER_E_NOMEM, "no memory for a parameter's values");
    trainer_wait_for_readers(trainer);
    for (int64_t done = 0; done < piece.count; done += FILL_CHUNK) {
        int64_t count = piece.count - done < FILL_CHUNK ? piece.count - done : FILL_CHUNK;
        int64_t first = piece.first + done;
        if (write_values(trainer, param, first, count,
                         (const char *)values + first * dtype_size(trainer->kernels->statistic), rounded, e))
            return trainer_break(trainer, e, "writing a parameter");
    }
    executor_forget(trainer->executor);
    return 0;
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

/* Elements that the source leaves as they are, in a trainer in which nothing has been written. */
struct first_values {
    trainer_param_source *source;
    void *context;
    struct initial_values values;
};

static int first_values(void *context, int param, int64_t first, int64_t count, enum dtype dtype, void *out,
                        struct muster_error *err)
{
    struct first_values *f = context;
    const int given = f->source(f->context, param, first, count, dtype, out, err);
    return given > 0 ? initial_values(&f->values, param, first, count, dtype, out, err) : given;
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
    struct first_values first = {source, context, {trainer->model, trainer->seed, false}};
    if (trainer->draw) {
        source = first_values;
        context = &first;
    }
    for (int param = 0; param < trainer->model->param_count; param++) {
        if (filled_group(trainer, param)->stored == STORED_PLAIN && filled_group(trainer, param)->local &&
            fill_param(trainer, param, source, context, values, rounded, e))
            return error_wrap(e, "%s", trainer->model->params[param].name);
    }
    if (trainer_fill_stored(trainer, source, context, e))
        return -1;
    trainer->draw = NULL;
    return 0;
}

int trainer_draw_first(struct trainer *trainer, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    struct initial_values values = {trainer->model, trainer->seed, false};
    return trainer_fill_params(trainer, initial_values, &values, e)
               ? trainer_break(trainer, e, "drawing the initial values") /* the other ranks have theirs */
               : 0;
}

int trainer_initialise_again(struct trainer *trainer, struct muster_error *err)
{
    struct initial_values values = {trainer->model, trainer->seed, trainer->model->adapter_scale != 0};
    return trainer_fill_params(trainer, initial_values, &values, err);
}

/* ---- the state of compressed gradients ---- */

bool trainer_compresses(const struct trainer *trainer)
{
    const struct compression_options *o = &trainer->plan.options.compression;
    return o->kind != COMPRESSION_NONE && trainer->steps >= o->start;
}

/* Random columns, the same on all ranks. to: of the device. */
static int fill_factor(struct trainer *trainer, const struct compress_piece *piece, void *to,
                       struct muster_error *err)
{
    enum { CHUNK = 256 };
    double values[CHUNK];
    const int64_t count = piece->columns * piece->rank;
    const enum dtype dtype = trainer->plan.options.dtype;
    const bool wide = dtype == DTYPE_F64;
    scope_free double *columns = mem_calloc((size_t)count, sizeof *columns);
    if (!columns)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a factor of %lld elements", (long long)count);
    for (int64_t done = 0; done < count; done += CHUNK) {
        const int64_t now = count - done < CHUNK ? count - done : CHUNK;
        rng_normal_fill(trainer->seed, RNG_FACTOR, (uint32_t)piece->param, (uint64_t)done, now, values);
        for (int64_t i = 0; i < now; i++) {
            if (wide)
                columns[done + i] = values[i];
            else
                ((float *)(void *)columns)[done + i] = (float)values[i];
        }
    }
    compress_orthonormal(dtype, columns, piece->columns, piece->rank, NULL);
    return trainer_copy(trainer, to, columns, count * dtype_size(dtype), err);
}

static int zero_state(struct trainer *trainer, int entry, struct muster_error *err)
{
    const struct plan_entry *state = &trainer->plan.entries[entry];
    struct device_stream *stream = trainer->streams[STREAM_COMPUTE];
    if (trainer->ops->fill(stream, executor_address(&trainer->parts, entry, 0), 0, state->bytes))
        return executor_refused(trainer->ops, trainer->device, err);
    return trainer->ops->sync(stream, INSTANT_NEVER, err);
}

int trainer_begin_compression(struct trainer *trainer, struct muster_error *err)
{
    const struct plan *plan = &trainer->plan;
    const int size = dtype_size(plan->options.dtype);
    for (int g = 0; g < plan->group_count; g++) {
        const struct param_group *group = &plan->groups[g];
        char *factor = executor_address(&trainer->parts, group->factor, 0);
        if (group->feedback >= 0 && zero_state(trainer, group->feedback, err))
            return -1;
        for (int i = 0; factor && i < group->piece_count; i++) {
            const struct compress_piece *piece = &plan->pieces[group->first_piece + i];
            if (piece->rank && fill_factor(trainer, piece, factor + piece->right * size, err))
                return -1;
        }
    }
    return 0;
}

int trainer_restart(struct trainer *trainer, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    trainer_wait_for_readers(trainer);
    if (trainer_initialise_again(trainer, e))
        return -1;
    for (int g = 0; g < trainer->plan.group_count; g++) {
        const struct param_group *group = &trainer->plan.groups[g];
        if ((group->moment1 >= 0 && zero_state(trainer, group->moment1, e)) ||
            (group->moment2 >= 0 && zero_state(trainer, group->moment2, e)))
            return trainer_break(trainer, e, "clearing the optimizer's state");
    }
    if (trainer_begin_compression(trainer, e))
        return trainer_break(trainer, e, "clearing the state of the compression");
    trainer->steps = trainer->updates = 0;
    loss_scale_begin(&trainer->scale_options, &trainer->scale);
    return 0;
}
