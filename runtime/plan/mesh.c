/* mesh.c - ranks and their coordinates. */
#include "runtime/plan/plan.h"

#include "proto/base/error.h"

struct mesh_place mesh_place_of(struct mesh mesh, int rank)
{
    return (struct mesh_place){
        .stage = rank / mesh.shard / mesh.replicate,
        .replica = rank / mesh.shard % mesh.replicate,
        .shard = rank % mesh.shard,
    };
}

int mesh_size(struct mesh mesh)
{
    const int64_t limit = INT64_C(1) << 30;
    if (mesh.pipeline < 1 || mesh.replicate < 1 || mesh.shard < 1)
        return 0;
    int64_t size = (int64_t)mesh.pipeline * mesh.replicate;
    if (size > limit || size * mesh.shard > limit)
        return 0;
    return (int)(size * mesh.shard);
}

static int reject_replicas(int64_t replicas, int world_size, struct muster_error *err)
{
    int64_t below = replicas < world_size ? replicas : world_size, above = replicas;
    while (world_size % below)
        below--;
    while (above < world_size && world_size % above)
        above++;
    if (above > world_size)
        above = world_size;
    return error_set(
        err, MUSTER_E_INVALID,
        "replicas is %lld, which does not divide a world of %d; the nearest that do are %lld and "
        "%lld",
        (long long)replicas, world_size, (long long)below, (long long)above);
}

static int replica_a_node(int world_size, int local_size, int64_t *replicas, struct muster_error *err)
{
    if (local_size < 1 || world_size % local_size)
        return error_set(
            err, MUSTER_E_INVALID,
            "HYBRID_SHARD makes each node a replica, but a world of %d does not consist of nodes "
            "with %d ranks; set replicas to a divisor of %d",
            world_size, local_size, world_size);
    if (world_size == local_size)
        return error_set(err, MUSTER_E_INVALID,
                         "HYBRID_SHARD makes each node a replica, but all %d ranks run on one node; set "
                         "replicas to a divisor of %d, or use FULL_SHARD",
                         world_size, world_size);
    *replicas = world_size / local_size;
    return 0;
}

int mesh_choose(enum strategy strategy, int64_t replicas, int world_size, int local_size, struct mesh *mesh,
                struct muster_error *err)
{
    bool hybrid = strategy == STRATEGY_HYBRID_SHARD;
    if (replicas < 0)
        return error_set(err, MUSTER_E_INVALID, "replicas is %lld, but must be at least 0",
                         (long long)replicas);
    if (replicas > 1 && !hybrid)
        return error_set(err, MUSTER_E_INVALID,
                         "replicas is %lld, but only HYBRID_SHARD has replicas, not %s", (long long)replicas,
                         strategy_name(strategy));
    if (!replicas && !hybrid)
        replicas = 1;
    if (!replicas && replica_a_node(world_size, local_size, &replicas, err))
        return -1;
    if (world_size % replicas)
        return reject_replicas(replicas, world_size, err);
    *mesh = (struct mesh){.pipeline = 1, .replicate = (int)replicas, .shard = (int)(world_size / replicas)};
    return 0;
}
