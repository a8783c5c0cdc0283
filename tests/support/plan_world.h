/* plan_world.h - plans of all ranks of one world, built and checked, for tests. */
#ifndef MUSTER_TESTS_PLAN_WORLD_H
#define MUSTER_TESTS_PLAN_WORLD_H

#include "runtime/plan/plan.h"

struct plan_world {
    struct plan *plans;
    int count;
};

/* Builds every rank's plan (options->rank is ignored) and proves each alone and all together. -1 with err
 * filled where one cannot be built or is wrong; nothing is owned then. */
int plan_world_build(const struct model *model, const struct plan_options *options, struct plan_world *world,
                     struct muster_error *err);
int plan_world_check(const struct model *model, const struct plan_world *world, struct muster_error *err);
void plan_world_free(struct plan_world *world);

/* The tests' basic options: FULL_SHARD on `shard` ranks, 4 x 128 tokens, prefetch 2, clipping. */
struct plan_options plan_world_options(enum strategy strategy, int pipeline, int replicate, int shard);

#endif
