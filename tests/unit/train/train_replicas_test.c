/* train_replicas_test.c - replicas that agree, and one element that was changed on one rank: parameter and
 * rank are named, whatever the strategy. */
#include <stdio.h>
#include <string.h>

#include "tests/support/cmocka_all.h"
#include "tests/unit/train/train_harness.h"

struct planted {
    int rank; /* whose element is changed after the second step; -1: none */
    const char *param;
    enum trainer_tensor tensor;
    bool found; /* expected */
    int named, other;
};

static int param_of(const struct trainer *trainer, const char *name)
{
    const struct model *model = trainer_model(trainer);
    for (int i = 0; i < model->param_count; i++)
        if (!strcmp(model->params[i].name, name))
            return i;
    return -1;
}

static int change(struct trainer *trainer, const struct planted *planted)
{
    struct trainer_part part;
    struct muster_error err;
    float value;
    if (!trainer_part(trainer, param_of(trainer, planted->param), planted->tensor, &part) || !part.count)
        return -1;
    const int64_t at = part.first + part.count - 1;
    if (trainer_read_part(trainer, &part, at, 1, &value, &err) < 0)
        return -1;
    value += 1e-3f;
    return trainer_write_part(trainer, &part, at, 1, &value, &err);
}

static int visit(const struct training *run, struct trainer *trainer, int rank, int step)
{
    const struct planted *planted = run->context;
    struct trainer_difference found;
    struct muster_error err = {0};
    const bool there = step >= 2 && planted->rank >= 0;
    if (step == 2 && rank == planted->rank && change(trainer, planted) < 0) {
        fprintf(stderr, "rank %d cannot change %s\n", rank, planted->param);
        return -1;
    }
    if (trainer_compare_replicas(trainer, &found, &err) < 0) {
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
        return -1;
    }
    const bool right = there && planted->found
                           ? found.param == param_of(trainer, planted->param) &&
                                 found.rank == planted->named && found.other == planted->other
                           : found.param == -1 && found.rank == -1;
    if (!right)
        fprintf(stderr, "rank %d, step %d: parameter %d, rank %d, other %d\n", rank, step, found.param,
                found.rank, found.other);
    return right ? 0 : -1;
}

static void check(struct training run, struct planted planted)
{
    run.steps = 2; /* the changed one is not stepped */
    run.visit = visit;
    run.context = &planted;
    run.clip_norm = 1;
    assert_int_equal(training_run(&run), 0);
}

static void no_shard(void **state)
{
    (void)state;
    struct training run = training_small();
    run.strategy = STRATEGY_NO_SHARD;
    run.mesh.shard = 4;
    run.samples = 8;
    check(run, (struct planted){.rank = -1});
    check(run, (struct planted){2, "h.0.mlp.c_fc.weight", TRAINER_VALUE, true, 2, 0});
    check(run, (struct planted){0, "wte.weight", TRAINER_MOMENT2, true, 0, 1});
    run.mesh.shard = 2;
    check(run, (struct planted){0, "ln_f.bias", TRAINER_MOMENT1, true, 1, 0}); /* of two: the later one */
}

static void hybrid_shard(void **state)
{
    (void)state;
    struct training run = training_small();
    run.strategy = STRATEGY_HYBRID_SHARD;
    run.mesh.shard = 2;
    run.mesh.replicate = 2;
    check(run, (struct planted){.rank = -1});
    check(run, (struct planted){3, "h.1.mlp.c_proj.weight", TRAINER_VALUE, true, 3, 1});
}

/* Sharded elements are on one rank alone: there is nothing to compare, but what is kept whole. */
static void full_shard(void **state)
{
    (void)state;
    struct training run = training_small();
    run.strategy = STRATEGY_FULL_SHARD;
    run.mesh.shard = 3;
    run.samples = 6;
    check(run, (struct planted){1, "h.1.mlp.c_fc.weight", TRAINER_VALUE, false, 0, 0});
    run.keep_whole_bytes = 1024;
    check(run, (struct planted){1, "h.0.ln_1.weight", TRAINER_VALUE, true, 1, 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_shard),
        cmocka_unit_test(hybrid_shard),
        cmocka_unit_test(full_shard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
