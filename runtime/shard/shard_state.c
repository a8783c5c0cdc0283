/* shard_state.c - all elements of a parameter's master or moments, for saving and loading. */
#include <string.h>

#include "proto/base/error.h"
#include "runtime/shard/shard_internal.h"

/* This rank's elements; NULL where there is nothing of the kind. */
static char *local_of(const struct muster_shard *shard, const struct shard_param *param, int local)
{
    if (local == MUSTER_LOCAL_PARAMETERS)
        return shard_master(shard, param->group) + param->part_offset * dtype_size(shard->dtype);
    if (shard->layout.groups[param->group].frozen || local < MUSTER_LOCAL_MOMENT1 ||
        local > shard->state_kinds)
        return NULL;
    return shard_state(shard, local - 1, param->group) + param->part_offset * dtype_size(shard->dtype);
}

static char *find_state(const struct muster_shard *shard, int parameter, int local, struct muster_error *err)
{
    if (shard_check_ready(shard, err))
        return NULL;
    char *found = parameter >= 0 && parameter < shard->layout.param_count
                      ? local_of(shard, &shard->layout.params[parameter], local)
                      : NULL;
    if (!found)
        (void)error_set(
            err, MUSTER_E_INVALID,
            "parameter %d (of %d) has nothing of kind %d: a master is %d, the moments of a trained "
            "one are %d and %d where its optimizer has them",
            parameter, shard->layout.param_count, local, MUSTER_LOCAL_PARAMETERS, MUSTER_LOCAL_MOMENT1,
            MUSTER_LOCAL_MOMENT2);
    return found;
}

static struct comm_op broadcast(const struct muster_shard *shard, const struct shard_param *param, int root,
                                int64_t count)
{
    return (struct comm_op){.kind = COMM_BROADCAST,
                            .dtype = shard->dtype,
                            .root = root,
                            .count = count,
                            .tag = (uint32_t)param->group + 1};
}

int muster_shard_read(struct muster_shard *shard, int parameter, int local, void *values,
                      struct muster_error *err)
{
    const char *mine = find_state(shard, parameter, local, err);
    if (!mine)
        return -1;
    const struct shard_param *param = &shard->layout.params[parameter];
    int64_t size = dtype_size(shard->dtype);
    memcpy((char *)values + param->first * size, mine, (size_t)(param->part * size));
    for (int rank = 0; shard->layout.size > 1 && rank < shard->layout.size; rank++) {
        int64_t first, count;
        shard_layout_piece(&shard->layout, param, rank, &first, &count);
        const struct comm_op op = broadcast(shard, param, rank, count);
        if (count && shard_collective(shard, &shard->gather, &op, NULL, (char *)values + first * size, err))
            return -1;
    }
    return 0;
}

int muster_shard_write(struct muster_shard *shard, int parameter, int local, void *values, int root,
                       struct muster_error *err)
{
    char *mine = find_state(shard, parameter, local, err);
    struct shard_names names = shard_names_of(shard);
    if (!mine)
        return -1;
    if (root < 0 || root >= shard->size)
        return error_set(err, MUSTER_E_INVALID, "root is %d, but must be a rank, 0 to %d", root,
                         shard->size - 1);
    /* groups gathered ahead would hold old values */
    if (shard_core_settle(&shard->core, &names, err) || shard_act(shard, err))
        return -1;
    const struct shard_param *param = &shard->layout.params[parameter];
    int64_t size = dtype_size(shard->dtype);
    const struct comm_op op = broadcast(shard, param, root, param->elements);
    if (shard->size > 1 && shard_collective(shard, &shard->all, &op, NULL, values, err))
        return -1;
    memcpy(mine, (char *)values + param->first * size, (size_t)(param->part * size));
    if (local == MUSTER_LOCAL_PARAMETERS && shard_has_masters(shard))
        shard->kernels->cast(shard_part(shard, param->group) +
                                 param->part_offset * shard->layout.element_bytes,
                             shard->param_dtype, mine, shard->dtype, param->part, NULL);
    return 0;
}

int64_t muster_shard_updates(struct muster_shard *shard, int parameter, int64_t set)
{
    if (!shard->ready || parameter < 0 || parameter >= shard->layout.param_count)
        return -1;
    if (set >= 0)
        shard->updates[parameter] = set;
    return shard->updates[parameter];
}
