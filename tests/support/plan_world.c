/* plan_world.c - see plan_world.h. */
#include "tests/support/plan_world.h"

#include <stdlib.h>

#include "proto/base/error.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/plan_check/plan_check.h"

struct plan_options plan_world_options(enum strategy strategy, int pipeline, int replicate, int shard)
{
    return (struct plan_options){
        .strategy = strategy,
        .mesh = MESH(pipeline, replicate, shard),
        .shape = {4, 128},
        .micro_batches = 1,
        .dtype = DTYPE_F32,
        .prefetch_forward = 2,
        .prefetch_backward = 2,
        .clip = true,
        .train = true,
    };
}

int plan_world_check(const struct model *model, const struct plan_world *world, struct muster_error *err)
{
    const struct plan **list = calloc((size_t)world->count, sizeof *list);
    assert_non_null(list);
    int result = 0;
    for (int rank = 0; rank < world->count && result == 0; rank++) {
        list[rank] = &world->plans[rank];
        result = plan_check(model, &world->plans[rank], err);
        if (result < 0)
            (void)error_wrap(err, "rank %d", rank);
    }
    if (result == 0)
        result = plan_check_world(list, world->count, err);
    free(list);
    return result;
}

int plan_world_build(const struct model *model, const struct plan_options *options, struct plan_world *world,
                     struct muster_error *err)
{
    struct plan_options mine = *options;
    *world = (struct plan_world){.count = mesh_size(options->mesh)};
    world->plans = calloc((size_t)world->count + 1, sizeof *world->plans);
    assert_non_null(world->plans);
    int result = 0;
    for (mine.rank = 0; mine.rank < world->count && result == 0; mine.rank++)
        result = plan_build(model, &mine, &world->plans[mine.rank], err);
    if (result == 0)
        result = plan_world_check(model, world, err);
    if (result < 0)
        plan_world_free(world);
    return result;
}

void plan_world_free(struct plan_world *world)
{
    for (int rank = 0; rank < world->count; rank++)
        plan_free(&world->plans[rank]);
    free(world->plans);
    *world = (struct plan_world){0};
}
