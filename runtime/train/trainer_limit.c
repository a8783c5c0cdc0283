/* trainer_limit.c - the least that this machine takes for a step: its products and bytes at measured rates.
 */
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/calibrate/calibrate.h"
#include "runtime/train/trainer_state.h"

enum { READ_BYTES = 64 << 20 };

/* Finds the largest buffer of parameters; all of it has been written. */
static void find_readable(const struct trainer *trainer, struct calibrate_limit *limit)
{
    for (int e = 0; e < trainer->plan.entry_count; e++) {
        const struct plan_entry *entry = &trainer->plan.entries[e];
        if (entry->kind != PLAN_PARAM_SHARD || entry->bytes <= limit->read_bytes)
            continue;
        limit->read = executor_address(&trainer->parts, e, 0);
        limit->read_bytes = entry->bytes;
    }
    if (limit->read_bytes > READ_BYTES)
        limit->read_bytes = READ_BYTES;
}

int trainer_limit(struct trainer *trainer, struct trainer_limit *out, struct muster_error *err)
{
    struct calibrate_limit limit = {
        .model = trainer->model, .plan = &trainer->plan, .kernels = trainer->kernels};
    struct plan_work work;
    const int64_t bytes = calibrate_limit_bytes(trainer->model, &trainer->plan);
    scope_free void *scratch = mem_calloc((size_t)bytes + 1, 1);
    *out = (struct trainer_limit){0};
    if (!trainer->ops->host_memory)
        return 0;
    if (!scratch)
        return error_set(err, MUSTER_E_NOMEM, "no memory to measure products of %lld bytes",
                         (long long)bytes);
    limit.scratch = scratch;
    find_readable(trainer, &limit);
    if (plan_count_work(trainer->model, &trainer->plan, &work, err) < 0 ||
        trainer_run(trainer, calibrate_limit_run, &limit, err) < 0)
        return -1;
    if (work.flops > 0 && !(limit.flops > 0))
        return 0; /* no matrix product: there is no limit to compare */
    out->seconds = plan_limit_s(&work, limit.flops > 0 ? limit.flops : 1, limit.memory);
    out->step_flops = work.model_flops;
    out->peak_flops = limit.flops;
    return 0;
}
