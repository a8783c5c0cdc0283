/* mesh.c - ranks and their coordinates. */
#include "runtime/plan/plan.h"

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
