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
    *mesh = (struct mesh)MESH(1, (int)replicas, (int)(world_size / replicas));
    return 0;
}
