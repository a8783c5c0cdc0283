/* mesh.h - the ranks of a run as a box: its sides, a rank's coordinates, and the ranks that work together.
 * Pure.
 *
 * rank = the coordinates written down in the order of the sides, the last side fastest. So neighbours in a
 * later side are next to each other, and on one node where there are several nodes. A side of 1 has no
 * effect. */
#ifndef MUSTER_RUNTIME_PLAN_MESH_H
#define MUSTER_RUNTIME_PLAN_MESH_H

#include <stddef.h>

/* symbol, name. Each comment names the differences between the ranks along that side. No plan uses the last
 * three sides yet: they are 1. */
#define MESH_SIDES(X)                                                                                        \
    X(SIDE_PIPELINE, "pipeline")   /* layers: they are stages */                                             \
    X(SIDE_REPLICATE, "replicate") /* samples; shards are equal */                                           \
    X(SIDE_SHARD, "shard")         /* samples and shards */                                                  \
    X(SIDE_EXPERT, "expert")       /* samples, shards and experts */                                         \
    X(SIDE_CONTEXT, "context")     /* positions of the same samples */                                       \
    X(SIDE_TENSOR, "tensor")       /* rows, columns and heads of the same products */
enum mesh_side {
#define MESH_SIDE_ENUM(symbol, name) symbol,
    MESH_SIDES(MESH_SIDE_ENUM)
#undef MESH_SIDE_ENUM
        SIDE_COUNT
};
const char *mesh_side_name(enum mesh_side side);

struct mesh {
    int side[SIDE_COUNT]; /* ranks along it, at least 1 */
};
/* MESH is an initializer of struct mesh. */
#define MESH(pipeline, replicate, shard)                                                                     \
    {                                                                                                        \
        {                                                                                                    \
            pipeline, replicate, shard, 1, 1, 1                                                              \
        }                                                                                                    \
    }
struct mesh_place {
    int at[SIDE_COUNT];
};
struct mesh_place mesh_place_of(struct mesh mesh, int rank);
int mesh_rank_of(struct mesh mesh, struct mesh_place place); /* back */
int mesh_size(struct mesh mesh); /* ranks; 0 if a side is below 1 or the product is above 2^30 */
/* The sides above 1, as "pipeline 2, shard 4"; "1 rank" where there are none. Returns text. */
const char *mesh_text(struct mesh mesh, char *text, size_t size);
enum { MESH_TEXT = 128 };

/* An axis is a set of sides; the ranks that differ in no other side share its comm. symbol, name, bits of
 * sides. AXIS_TIED stands for the pipeline too, but a comm has only the stages that hold a parameter
 * together. */
#define MESH_BIT(side) (1u << (side))
#define MESH_AXES(X)                                                                                         \
    X(AXIS_SHARD, "shard", MESH_BIT(SIDE_SHARD))                                                             \
    X(AXIS_REPLICATE, "replicate", MESH_BIT(SIDE_REPLICATE))                                                 \
    X(AXIS_PIPELINE, "pipeline", MESH_BIT(SIDE_PIPELINE))                                                    \
    X(AXIS_TIED, "tied", MESH_BIT(SIDE_PIPELINE))                                                            \
    X(AXIS_WORLD, "world", MESH_BIT(SIDE_COUNT) - 1)                                                         \
    X(AXIS_DATA, "data", MESH_BIT(SIDE_REPLICATE) | MESH_BIT(SIDE_SHARD) | MESH_BIT(SIDE_EXPERT))
enum mesh_axis {
#define MESH_AXIS_ENUM(symbol, name, sides) symbol,
    MESH_AXES(MESH_AXIS_ENUM)
#undef MESH_AXIS_ENUM
        AXIS_COUNT
};
const char *axis_name(enum mesh_axis axis);

/* The ranks that a rank shares its comm of an axis with. */
struct mesh_line {
    int color; /* number of this comm among the comms of the axis */
    int place; /* the rank's place in the line */
    int size;
};
struct mesh_line mesh_line(struct mesh mesh, enum mesh_axis axis, int rank);
/* The rank in the world of another place of the line. */
int mesh_line_rank(struct mesh mesh, enum mesh_axis axis, int rank, int place);

#endif
