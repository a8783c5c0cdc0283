/* train_replicas_test.c - replicas that agree, and one element that was changed on one rank: parameter and
 * rank are named, under every strategy, and in groups that are held in few bits. */
#include <stdio.h>
#include <string.h>

#include "runtime/model/lora.h"
#include "runtime/train/trainer_state.h"
#include "tests/support/cmocka_all.h"
#include "tests/unit/train/train_harness.h"

struct planted {
    int rank; /* whose element is changed after the second step; -1: none */
    const char *param;
    enum trainer_tensor tensor;
    bool found; /* expected */
    int named, other;
    bool behind; /* the bytes after the last parameter of a group in few bits */
};

static int param_of(const struct trainer *trainer, const char *name)
{
    const struct model *model = trainer_model(trainer);
    for (int i = 0; i < model->param_count; i++)
        if (!strcmp(model->params[i].name, name))
            return i;
    return -1;
}

/* A bit of the code of the parameter's last element, or of the last element of all. */
static int change_code(struct trainer *trainer, int param, bool behind)
{
    const struct param_group *group = &trainer->plan.groups[trainer->plan.places[param].group];
    const struct piece piece = trainer_held_piece(trainer, param);
    const int64_t held = group->resident ? group->padded : group->shard, unit = stored_unit(group->stored);
    const int64_t element = behind ? held - 1 : piece.at + piece.count - 1;
    const int64_t in_unit = element % unit / (group->stored == STORED_NF4 ? 2 : 1);
    uint8_t *units = executor_address(&trainer->parts, group->param, 0);
    if (!behind && !piece.count)
        return -1;
    units[element / unit * stored_bytes(group->stored, unit) + in_unit] ^= 0x10;
    return 0;
}

static int change(struct trainer *trainer, const struct planted *planted)
{
    struct trainer_part part;
    const int param = param_of(trainer, planted->param);
    if (trainer->plan.groups[trainer->plan.places[param].group].stored != STORED_PLAIN)
        return change_code(trainer, param, planted->behind);
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
    run.mesh.side[SIDE_SHARD] = 4;
    run.samples = 8;
    check(run, (struct planted){.rank = -1});
    check(run, (struct planted){2, "h.0.mlp.c_fc.weight", TRAINER_VALUE, true, 2, 0, false});
    check(run, (struct planted){0, "wte.weight", TRAINER_MOMENT2, true, 0, 1, false});
    run.mesh.side[SIDE_SHARD] = 2;
    check(run, (struct planted){0, "ln_f.bias", TRAINER_MOMENT1, true, 1, 0,
                                false}); /* two differ: the later is named */
}

static void hybrid_shard(void **state)
{
    (void)state;
    struct training run = training_small();
    run.strategy = STRATEGY_HYBRID_SHARD;
    run.mesh.side[SIDE_SHARD] = 2;
    run.mesh.side[SIDE_REPLICATE] = 2;
    check(run, (struct planted){.rank = -1});
    check(run, (struct planted){3, "h.1.mlp.c_proj.weight", TRAINER_VALUE, true, 3, 1, false});
}

/* Sharded elements are on one rank alone: there is nothing to compare, except parameters kept whole. */
static void full_shard(void **state)
{
    (void)state;
    struct training run = training_small();
    run.strategy = STRATEGY_FULL_SHARD;
    run.mesh.side[SIDE_SHARD] = 3;
    run.samples = 6;
    check(run, (struct planted){1, "h.1.mlp.c_fc.weight", TRAINER_VALUE, false, 0, 0, false});
    run.keep_whole_bytes = 1024;
    check(run, (struct planted){1, "h.0.ln_1.weight", TRAINER_VALUE, true, 1, 0, false});
}

/* Ranks of a stage are held against each other, and the copies of what stages share: its table. */
static void stages(void **state)
{
    (void)state;
    struct training run = training_small();
    run.mesh = (struct mesh)MESH(2, 1, 3);
    run.samples = 6;
    check(run, (struct planted){.rank = -1});
    check(run, (struct planted){4, "ln_f.bias", TRAINER_VALUE, true, 4, 3, false});
    run.mesh = (struct mesh)MESH(2, 1, 1);
    check(run, (struct planted){.rank = -1});
    check(run, (struct planted){1, "ln_f.bias", TRAINER_VALUE, false, 0, 0, false}); /* it has it alone */
    check(run, (struct planted){1, "wte.weight", TRAINER_MOMENT1, true, 1, 0, false});
    run.mesh = (struct mesh)MESH(2, 1, 2);
    run.samples = 8;
    run.strategy = STRATEGY_FULL_SHARD;
    check(run, (struct planted){0, "wte.weight", TRAINER_VALUE, true, 2, 0, false});
}

/* ---- a base in few bits ---- */

static struct model *create_adapted(enum stored base, const struct training *run, struct muster_error *err)
{
    struct lora lora = {.rank = 2, .alpha = 4, .base = base, .tables = true};
    return lora_add_target(&lora, "c_attn", err) < 0 ? NULL : gpt2_create_adapted(&run->gpt, &lora, err);
}

static struct model *create_nf4(const struct training *run, struct muster_error *err)
{
    return create_adapted(STORED_NF4, run, err);
}

static struct model *create_int8(const struct training *run, struct muster_error *err)
{
    return create_adapted(STORED_INT8, run, err);
}

static void few_bits(void **state)
{
    (void)state;
    struct training run = training_small();
    run.create = create_nf4;
    run.strategy = STRATEGY_NO_SHARD;
    run.mesh.side[SIDE_SHARD] = 3;
    run.samples = 6;
    check(run, (struct planted){.rank = -1});
    check(run, (struct planted){1, "h.0.mlp.c_fc.weight", TRAINER_VALUE, true, 1, 0, false});
    check(run, (struct planted){2, "wte.weight", TRAINER_VALUE, true, 2, 0, false});
    /* No parameter opens to anything else: the first of the group is named. */
    check(run, (struct planted){2, "wte.weight", TRAINER_VALUE, true, 2, 0, true});
    run.create = create_int8;
    run.strategy = STRATEGY_HYBRID_SHARD;
    run.mesh.side[SIDE_SHARD] = 2;
    run.mesh.side[SIDE_REPLICATE] = 2;
    run.samples = 8;
    check(run, (struct planted){.rank = -1});
    check(run, (struct planted){3, "h.1.mlp.c_proj.weight", TRAINER_VALUE, true, 3, 1, false});
    run.strategy = STRATEGY_FULL_SHARD; /* nobody holds it twice */
    run.mesh.side[SIDE_SHARD] = 3;
    run.mesh.side[SIDE_REPLICATE] = 1;
    run.samples = 6;
    check(run, (struct planted){2, "wte.weight", TRAINER_VALUE, false, 0, 0, true});
    run.strategy = STRATEGY_SHARD_OPTIM; /* and here all do */
    check(run, (struct planted){1, "h.1.attn.c_proj.weight", TRAINER_VALUE, true, 1, 0, false});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_shard), cmocka_unit_test(hybrid_shard), cmocka_unit_test(full_shard),
        cmocka_unit_test(stages),   cmocka_unit_test(few_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
