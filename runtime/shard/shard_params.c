/* shard_params.c - parameters of muster_shard.h: passes, gathers, releases, storing, this rank's part. */
#include <string.h>

#include "proto/base/error.h"
#include "runtime/shard/shard_fault.h"
#include "runtime/shard/shard_internal.h"

void *muster_shard_address(const struct muster_shard *shard, int parameter)
{
    if (!shard->ready || parameter < 0 || parameter >= shard->layout.param_count)
        return NULL;
    const struct shard_param *param = &shard->layout.params[parameter];
    return shard_full(shard, param->group) + param->offset * shard->layout.element_bytes;
}

int muster_shard_begin(struct muster_shard *shard, int pass, struct muster_error *err)
{
    if (shard_check_ready(shard, err))
        return -1;
    if (pass < 0 || pass >= SHARD_PASSES)
        return error_set(err, MUSTER_E_INVALID, "pass %d: passes are 0 to %d", pass, SHARD_PASSES - 1);
    shard_core_begin(&shard->core, pass);
    return shard_act(shard, err);
}

int muster_shard_gather(struct muster_shard *shard, int group, struct muster_error *err)
{
    if (shard_check_group(shard, group, err) || shard_core_gather(&shard->core, group, err))
        return -1;
    for (int i = 0; i < shard->core.action_count; i++) {
        const struct shard_action *action = &shard->core.actions[i];
        shard->prefetched += action->kind == SHARD_START && action->group != group;
    }
    return shard_act(shard, err);
}

int muster_shard_release(struct muster_shard *shard, int group, struct muster_error *err)
{
    struct shard_names names = shard_names_of(shard);
    if (shard_check_group(shard, group, err) || shard_core_release(&shard->core, group, &names, err))
        return -1;
    return shard_act(shard, err);
}

int muster_shard_store(struct muster_shard *shard, int group, int root, struct muster_error *err)
{
    if (shard_check_group(shard, group, err))
        return -1;
    const struct shard_layout *layout = &shard->layout;
    const struct shard_group *g = &layout->groups[group];
    if (root < -1 || root >= shard->size)
        return error_set(err, MUSTER_E_INVALID, "root is %d, but must be a rank, 0 to %d, or -1", root,
                         shard->size - 1);
    if (!shard->core.groups[group].uses)
        return error_set(err, MUSTER_E_STATE, "group %s has to be gathered before it is stored", g->name);
    char *full = shard_full(shard, group);
    const struct comm_op op = {.kind = COMM_BROADCAST,
                               .dtype = shard->param_dtype,
                               .root = root,
                               .count = g->elements,
                               .tag = (uint32_t)group + 1};
    if (root >= 0 && shard->size > 1 && shard_collective(shard, &shard->all, &op, NULL, full, err))
        return -1;
    size_t bytes = (size_t)(g->part * layout->element_bytes);
    if (layout->size > 1) /* else its address is where it is kept */
        memcpy(shard_part(shard, group), full + (size_t)layout->rank * bytes, bytes);
    if (shard_has_masters(shard))
        shard->kernels->widen(shard_master(shard, group), shard_part(shard, group), shard->param_dtype, 0,
                              g->part, NULL);
    return 0;
}

void *muster_shard_part(struct muster_shard *shard, int parameter, int local, int64_t *first,
                        int64_t *elements)
{
    *first = *elements = 0;
    if (!shard->ready || parameter < 0 || parameter >= shard->layout.param_count || local < 0 ||
        local > shard->state_kinds)
        return NULL;
    const struct shard_param *param = &shard->layout.params[parameter];
    const struct shard_core_group *group = &shard->core.groups[param->group];
    if (!param->part || (local != MUSTER_LOCAL_PARAMETERS && shard->layout.groups[param->group].frozen))
        return NULL;
    if (local == MUSTER_LOCAL_GRADIENTS &&
        (!group->reduced ||
         shard_tracker_wait(shard, &shard->reductions, shard->runs[param->group].reduction, NULL)))
        return NULL;
    *first = param->first;
    *elements = param->part;
    char *base = local == MUSTER_LOCAL_PARAMETERS ? shard_master(shard, param->group)
                                                  : shard_state(shard, local - 1, param->group);
    return base + param->part_offset * dtype_size(shard->dtype);
}

int muster_shard_guard(struct muster_shard *shard, int (*notify)(int argument), int argument,
                       struct muster_error *err)
{
    if (shard_check_ready(shard, err))
        return -1;
    return shard->layout.size > 1 ? shard_fault_watch(&shard->ranges, notify, argument, err) : 0;
}

/* Padding belongs to the parameter before it. */
static int param_at(const struct muster_shard *shard, const char *at)
{
    const struct shard_layout *layout = &shard->layout;
    int found = -1;
    for (int i = 0; i < layout->param_count; i++) {
        const struct shard_param *p = &layout->params[i];
        const char *first = shard->ranges.ranges[p->group],
                   *end = first + shard->ranges.range_bytes[p->group];
        if (at >= first + p->offset * layout->element_bytes && at < end)
            found = i;
    }
    return found;
}

int muster_shard_touched(struct muster_shard *shard)
{
    const char *at = shard->ready && shard->layout.size > 1 ? shard_fault_take(&shard->ranges) : NULL;
    return at ? param_at(shard, at) : -1;
}

int muster_shard_statistics(const struct muster_shard *shard, struct muster_shard_stats *stats,
                            struct muster_error *err)
{
    if (shard_check_ready(shard, err))
        return -1;
    if (stats->size != sizeof *stats)
        return error_set(
            err, MUSTER_E_INVALID,
            "struct muster_shard_stats is %u bytes, but this library's is %zu: set its size, and "
            "build against this library's muster_shard.h",
            stats->size, sizeof *stats);
    *stats = (struct muster_shard_stats){
        .size = sizeof *stats,
        .slots = shard->ranges.slot_count,
        .shard_bytes = shard->parts.bytes + shard->masters.bytes + shard->state.bytes,
        .slot_bytes = shard->ranges.slot_bytes,
        .grad_bytes = shard->grad_bytes,
        .gathers = shard->gathered,
        .prefetched = shard->prefetched,
        .waited_ns = shard->waited_ns,
        .comm_ns = shard_busy_ns(shard),
    };
    return 0;
}
