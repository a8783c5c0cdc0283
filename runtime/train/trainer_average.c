/* trainer_average.c - exchanges the parameters and their moving averages between steps, to evaluate and to
 * save the averages. No device memory is allocated: both change places. */
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/trainer_state.h"

enum { EXCHANGE_CHUNK = 1 << 16 }; /* elements in host memory at a time: they stay in a cache */

/* Host memory for a chunk of the parameters, of the averages and of the rounded parameters. */
struct exchange {
    struct trainer *trainer;
    const struct param_group *group;
    double *one, *other; /* wide enough for any dtype */
    uint16_t *rounded;
};

/* Rounds the masters, as the optimizer does, to the parameters that gathers move. */
static int move_rounded(const struct exchange *x, int64_t first, int64_t count, struct muster_error *err)
{
    const struct trainer *trainer = x->trainer;
    const struct param_group *group = x->group;
    const enum dtype dtype = trainer->plan.entries[group->param].dtype, real = trainer->kernels->statistic;
    const int64_t at = (group->resident ? group->shard_start : 0) + first;
    trainer_round(dtype, x->other, real, count, x->rounded);
    return trainer_copy(trainer, executor_address(&trainer->parts, group->param, at * dtype_size(dtype)),
                        x->rounded, count * dtype_size(dtype), err);
}

static int exchange_chunk(const struct exchange *x, int64_t first, int64_t count, struct muster_error *err)
{
    const struct trainer *trainer = x->trainer;
    const struct param_group *group = x->group;
    const int64_t size = dtype_size(trainer->kernels->statistic), bytes = count * size;
    const bool master = group->master >= 0;
    const int64_t start = !master && group->resident ? group->shard_start : 0;
    void *values =
        executor_address(&trainer->parts, master ? group->master : group->param, (start + first) * size);
    void *average = executor_address(&trainer->parts, group->average, first * size);
    if (trainer_copy(trainer, x->one, values, bytes, err) ||
        trainer_copy(trainer, x->other, average, bytes, err) ||
        trainer_copy(trainer, values, x->other, bytes, err) ||
        trainer_copy(trainer, average, x->one, bytes, err))
        return -1;
    return master ? move_rounded(x, first, count, err) : 0;
}

static int exchange_groups(struct exchange *x, struct muster_error *err)
{
    const struct plan *plan = &x->trainer->plan;
    for (int g = 0; g < plan->group_count; g++) {
        x->group = &plan->groups[g];
        for (int64_t done = 0; x->group->average >= 0 && done < x->group->shard; done += EXCHANGE_CHUNK) {
            int64_t left = x->group->shard - done;
            if (exchange_chunk(x, done, left < EXCHANGE_CHUNK ? left : EXCHANGE_CHUNK, err))
                return -1;
        }
    }
    return 0;
}

int trainer_exchange_averages(struct trainer *trainer, bool on, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    if (trainer_usable(trainer, e) || trainer_draw(trainer, e))
        return -1;
    if (!(trainer->plan.options.average_decay > 0))
        return error_set(e, MUSTER_E_STATE, "no average of the parameters is kept: the decay is 0");
    if (on == trainer->averaged)
        return error_set(e, MUSTER_E_STATE, "the parameters are %s already", on ? "averages" : "themselves");
    scope_free double *one = mem_calloc(EXCHANGE_CHUNK, sizeof *one);
    scope_free double *other = mem_calloc(EXCHANGE_CHUNK, sizeof *other);
    scope_free uint16_t *rounded = mem_calloc(EXCHANGE_CHUNK, sizeof *rounded);
    struct exchange x = {.trainer = trainer, .one = one, .other = other, .rounded = rounded};
    if (!one || !other || !rounded) {
        (void)error_set(e, MUSTER_E_NOMEM, "no memory to exchange parameters and their averages");
        return trainer_break(trainer, e, "averages"); /* the other ranks exchange theirs */
    }
    trainer_wait_for_readers(trainer);
    if (trainer_settle(trainer, e) || exchange_groups(&x, e) || executor_share(trainer->executor, e) ||
        trainer_sync(trainer, e))
        return trainer_break(trainer, e, "averages");
    executor_forget(trainer->executor);
    trainer->averaged = on;
    return 0;
}

bool trainer_is_averaged(const struct trainer *trainer)
{
    return trainer->averaged;
}
