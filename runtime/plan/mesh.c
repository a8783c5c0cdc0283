/* mesh.c - see mesh.h; and the mesh that settings choose. */
#include "runtime/plan/mesh.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "runtime/plan/plan.h"

#define NAME_ENTRY(symbol, name) [symbol] = name,
const char *mesh_side_name(enum mesh_side side)
{
    static const char *const names[] = {MESH_SIDES(NAME_ENTRY)};
    return (unsigned)side < SIDE_COUNT ? names[side] : "unknown";
}

#define AXIS_ENTRY(symbol, name, sides) [symbol] = {name, sides},
static const struct {
    const char *name;
    unsigned sides;
} axes[] = {MESH_AXES(AXIS_ENTRY)};

const char *axis_name(enum mesh_axis axis)
{
    return (unsigned)axis < AXIS_COUNT ? axes[axis].name : "unknown";
}

struct mesh_place mesh_place_of(struct mesh mesh, int rank)
{
    struct mesh_place place;
    for (int side = SIDE_COUNT - 1; side >= 0; side--) {
        place.at[side] = rank % mesh.side[side];
        rank /= mesh.side[side];
    }
    return place;
}

int mesh_rank_of(struct mesh mesh, struct mesh_place place)
{
    int rank = 0;
    for (int side = 0; side < SIDE_COUNT; side++)
        rank = rank * mesh.side[side] + place.at[side];
    return rank;
}

int mesh_size(struct mesh mesh)
{
    const int64_t limit = INT64_C(1) << 30;
    int64_t size = 1;
    for (int side = 0; side < SIDE_COUNT; side++) {
        if (mesh.side[side] < 1 || (size *= mesh.side[side]) > limit)
            return 0;
    }
    return (int)size;
}

const char *mesh_text(struct mesh mesh, char *text, size_t size)
{
    size_t used = 0;
    (void)snprintf(text, size, "1 rank");
    for (int side = 0; side < SIDE_COUNT; side++) {
        if (mesh.side[side] == 1)
            continue;
        (void)snprintf(text + used, size - used, "%s%s %d", used ? ", " : "",
                       mesh_side_name((enum mesh_side)side), mesh.side[side]);
        used = strlen(text);
    }
    return text;
}

struct mesh_line mesh_line(struct mesh mesh, enum mesh_axis axis, int rank)
{
    const struct mesh_place place = mesh_place_of(mesh, rank);
    struct mesh_line line = {0, 0, 1};
    for (int side = 0; side < SIDE_COUNT; side++) {
        const bool along = axes[axis].sides & MESH_BIT(side);
        int *at = along ? &line.place : &line.color;
        *at = *at * mesh.side[side] + place.at[side];
        line.size *= along ? mesh.side[side] : 1;
    }
    return line;
}

int mesh_line_rank(struct mesh mesh, enum mesh_axis axis, int rank, int place)
{
    struct mesh_place at = mesh_place_of(mesh, rank);
    for (int side = SIDE_COUNT - 1; side >= 0; side--) {
        if (!(axes[axis].sides & MESH_BIT(side)))
            continue;
        at.at[side] = place % mesh.side[side];
        place /= mesh.side[side];
    }
    return mesh_rank_of(mesh, at);
}

/* ranks: the number of ranks of a stage; of: "a world", or "a stage" where there are several stages. */
static int reject_replicas(int64_t replicas, const char *of, int ranks, struct muster_error *err)
{
    int64_t below = replicas < ranks ? replicas : ranks, above = replicas;
    while (ranks % below)
        below--;
    while (above < ranks && ranks % above)
        above++;
    if (above > ranks)
        above = ranks;
    return error_set(err, MUSTER_E_INVALID,
                     "replicas is %lld, which does not divide %s of %d; the nearest that do are %lld and "
                     "%lld",
                     (long long)replicas, of, ranks, (long long)below, (long long)above);
}

static int replica_a_node(const char *of, int ranks, int local_size, int64_t *replicas,
                          struct muster_error *err)
{
    if (local_size < 1 || ranks % local_size)
        return error_set(err, MUSTER_E_INVALID,
                         "HYBRID_SHARD makes each node a replica, but %s of %d does not consist of nodes "
                         "with %d ranks; set replicas to a divisor of %d",
                         of, ranks, local_size, ranks);
    if (ranks == local_size)
        return error_set(err, MUSTER_E_INVALID,
                         "HYBRID_SHARD makes each node a replica, but all %d ranks run on one node; set "
                         "replicas to a divisor of %d, or use FULL_SHARD",
                         ranks, ranks);
    *replicas = ranks / local_size;
    return 0;
}

static int reject_pipeline(int64_t pipeline, int world_size, struct muster_error *err)
{
    const int64_t below = world_size / pipeline * pipeline;
    if (!below)
        return error_set(
            err, MUSTER_E_INVALID,
            "mesh: pipeline %lld needs a multiple of %lld ranks, and the world has %d: use %lld, or a "
            "smaller mesh.pipeline",
            (long long)pipeline, (long long)pipeline, world_size, (long long)pipeline);
    const long long left = world_size - below;
    return error_set(
        err, MUSTER_E_INVALID,
        "mesh: pipeline %lld needs a multiple of %lld ranks, and the world has %d: use %lld or %lld, or "
        "mesh.spare: true (%lld rank%s would wait)",
        (long long)pipeline, (long long)pipeline, world_size, (long long)below, (long long)(below + pipeline),
        left, left == 1 ? "" : "s");
}

int mesh_choose(const struct mesh_wish *wish, struct mesh *mesh, struct muster_error *err)
{
    const bool hybrid = wish->strategy == STRATEGY_HYBRID_SHARD;
    const char *of = wish->pipeline > 1 ? "a stage" : "a world";
    int64_t replicas = wish->replicas;
    if (wish->pipeline < 1)
        return error_set(err, MUSTER_E_INVALID, "mesh: pipeline is %lld, but must be at least 1",
                         (long long)wish->pipeline);
    if (wish->world_size % wish->pipeline)
        return reject_pipeline(wish->pipeline, wish->world_size, err);
    if (replicas < 0)
        return error_set(err, MUSTER_E_INVALID, "replicas is %lld, but must be at least 0",
                         (long long)replicas);
    if (replicas > 1 && !hybrid)
        return error_set(err, MUSTER_E_INVALID,
                         "replicas is %lld, but only HYBRID_SHARD has replicas, not %s", (long long)replicas,
                         strategy_name(wish->strategy));
    if (!replicas && !hybrid)
        replicas = 1;
    const int ranks = (int)(wish->world_size / wish->pipeline); /* ranks of a stage, next to each other */
    const int local = wish->local_size < ranks ? wish->local_size : ranks;
    if (!replicas && replica_a_node(of, ranks, local, &replicas, err))
        return -1;
    if (ranks % replicas)
        return reject_replicas(replicas, of, ranks, err);
    *mesh = (struct mesh)MESH((int)wish->pipeline, (int)replicas, (int)(ranks / replicas));
    return 0;
}
