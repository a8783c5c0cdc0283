/* shard_connect.c - the comms of a sharded model: over the world, over the ranks that share the parts, and
 * over the ranks that have the same part. */
#include "proto/base/error.h"
#include "runtime/shard/shard_internal.h"
#include "runtime/world/world.h"

/* ---- the place ---- */

static int one_a_node(const struct muster_shard *shard, struct muster_error *err)
{
    const int local = muster_world_local_size(shard->world);
    if (shard->size % local)
        return error_set(
            err, MUSTER_E_INVALID,
            "replicas is -1, one for each node, but %d ranks are not nodes of %d each; set it to "
            "a divisor of %d",
            shard->size, local, shard->size);
    return shard->size / local;
}

int shard_place(struct muster_shard *shard, struct muster_error *err)
{
    int replicas = shard->options.replicas ? shard->options.replicas : 1;
    shard->rank = shard->world ? muster_world_rank(shard->world) : 0;
    shard->size = shard->world ? muster_world_size(shard->world) : 1;
    if (replicas < 0)
        replicas = shard->world ? one_a_node(shard, err) : 1;
    if (replicas < 0)
        return -1;
    if (shard->size % replicas)
        return error_set(err, MUSTER_E_INVALID, "replicas is %d, which does not divide %d ranks", replicas,
                         shard->size);
    shard->replicas = replicas;
    shard->layout.size = shard->size / replicas;
    shard->layout.rank = shard->rank % shard->layout.size;
    return 0;
}

/* ---- connecting ---- */

static struct comm_options options_of(struct muster_shard *shard, const struct device_arena arenas[2],
                                      const char *key, const char *address)
{
    return (struct comm_options){.rank = shard->rank,
                                 .size = shard->size,
                                 .store = shard->world ? world_store(shard->world) : NULL,
                                 .key = key,
                                 .timeout_ns = shard->timeout_ns,
                                 .address = address,
                                 .node =
                                     shard->world ? shard->rank - muster_world_local_rank(shard->world) : 0,
                                 .device = shard->device,
                                 .device_ops = shard->ops,
                                 .arenas = arenas,
                                 .arena_count = shard->gradients.base ? 2 : 1};
}

int shard_connect(struct muster_shard *shard, const char *key, struct muster_error *err)
{
    const struct device_arena arenas[] = {shard->parts, shard->gradients};
    struct muster_world *world = shard->world;
    char address[WORLD_ADDRESS];
    if (world && world_address(world, address, err))
        return -1;
    const struct comm_options options = options_of(shard, arenas, key, world ? address : NULL);
    bool apart = world && muster_world_local_size(world) < muster_world_size(world);
    shard->all.ops = apart ? comm_node() : comm_shm();
    shard->all.comm = shard->all.ops->create(&options, err);
    return shard->all.comm ? 0 : -1;
}

int shard_connect_parts(struct muster_shard *shard, struct muster_error *err)
{
    shard->gather = shard->all;
    if (shard->replicas > 1) {
        shard->gather.ops = shard->all.ops;
        shard->gather.comm = shard->all.ops->split(shard->all.comm, shard->rank / shard->layout.size,
                                                   shard->rank, "shard-gather", err);
        if (!shard->gather.comm)
            return -1;
        shard->replica.ops = shard->all.ops;
        shard->replica.comm =
            shard->all.ops->split(shard->all.comm, shard->layout.rank, shard->rank, "shard-replicas", err);
        if (!shard->replica.comm)
            return -1;
    }
    shard->reduction.ops = shard->gather.ops;
    shard->reduction.comm =
        shard->gather.ops->split(shard->gather.comm, 0, shard->layout.rank, "shard-reduce", err);
    return shard->reduction.comm ? 0 : -1;
}

/* ---- all of them ---- */

enum { CHANNELS = 4 };

/* Lists the existing comms, each once. A comm comes before the comm that it was split from. */
static int list_channels(const struct muster_shard *shard, struct shard_channel list[CHANNELS])
{
    const struct shard_channel every[CHANNELS] = {shard->reduction, shard->replica, shard->gather,
                                                  shard->all};
    int count = 0;
    for (int i = 0; i < CHANNELS; i++)
        if (every[i].comm && (i != 2 || every[i].comm != shard->all.comm))
            list[count++] = every[i];
    return count;
}

int64_t shard_busy_ns(const struct muster_shard *shard)
{
    struct shard_channel list[CHANNELS];
    int64_t busy = 0;
    for (int i = list_channels(shard, list); i-- > 0;)
        busy += list[i].ops->busy_ns(list[i].comm);
    return busy;
}

void shard_abort(struct muster_shard *shard)
{
    struct shard_channel list[CHANNELS];
    for (int i = list_channels(shard, list); i-- > 0;)
        list[i].ops->abort(list[i].comm);
}

void shard_disconnect(struct muster_shard *shard)
{
    struct shard_channel list[CHANNELS];
    const int count = list_channels(shard, list);
    for (int i = 0; i < count; i++)
        list[i].ops->destroy(list[i].comm);
    shard->reduction.comm = shard->replica.comm = shard->gather.comm = shard->all.comm = NULL;
}
