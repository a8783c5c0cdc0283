/* The edge between two steps: groups that were gathered for the next step while this one ended. The same run
 * without prefetch, where nothing is gathered ahead, has to give the same losses, norms and parameters to the
 * bit, with any calls between the steps: reading, setting, filling, evaluating, saving. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "runtime/files/files.h"
#include "tests/unit/train/train_harness.h"

enum { STEPS = 8, RANKS = 4 };

struct between {
    const char *name;
    int (*act)(struct trainer *trainer, const struct training *run, int rank, int step);
};

/* The results of a run's trainers, by rank and step. */
struct seen {
    const struct between *between;
    double evaluated[RANKS][STEPS + 1];
};

static struct model *model_of(const struct training *run)
{
    struct model *model = gpt2_create(&run->gpt, NULL);
    assert_non_null(model);
    return model;
}

static int nothing(struct trainer *trainer, const struct training *run, int rank, int step)
{
    (void)trainer, (void)run, (void)rank, (void)step;
    return 0;
}

/* The first block's product: gathered ahead in every sharded run. */
enum { SOME_PARAM = 4 };

static int change(struct trainer *trainer, const struct training *run, bool write)
{
    GUARD(guard_model) struct model *model = model_of(run);
    int64_t count = param_elements(&model->params[SOME_PARAM]);
    float *values = calloc((size_t)count, sizeof *values);
    int failed = !values || trainer_get_param(trainer, SOME_PARAM, values, NULL);
    for (int64_t i = 0; !failed && i < count; i++)
        values[i] *= 0.5F;
    failed = failed || (write && trainer_set_param(trainer, SOME_PARAM, values, NULL));
    free(values);
    return failed;
}

static int get(struct trainer *trainer, const struct training *run, int rank, int step)
{
    (void)rank, (void)step;
    return change(trainer, run, false);
}

static int set(struct trainer *trainer, const struct training *run, int rank, int step)
{
    (void)rank;
    return step % 3 == 0 ? change(trainer, run, true) : 0;
}

static int halves(void *context, int param, int64_t first, int64_t count, enum dtype dtype, void *out,
                  struct muster_error *err)
{
    (void)context, (void)dtype, (void)err;
    for (int64_t i = 0; i < count; i++)
        ((float *)out)[i] = 0.01F * (float)((first + i + param) % 7 - 3);
    return 0;
}

static int fill(struct trainer *trainer, const struct training *run, int rank, int step)
{
    (void)run, (void)rank;
    return step == 3 ? trainer_fill_params(trainer, halves, NULL, NULL) : 0;
}

static int evaluate(struct trainer *trainer, const struct training *run, int rank, int step)
{
    struct seen *seen = run->context;
    int32_t tokens[8 * 16], targets[8 * 16];
    assert_true(run->samples * run->positions <= 8 * 16);
    training_batch(run, rank, 100 + step, tokens, targets);
    for (int times = (step + 1) % 3; times > 0; times--)
        if (trainer_evaluate(trainer, &(struct batch){{tokens, targets}}, &seen->evaluated[rank][step], NULL))
            return -1;
    return 0;
}

static int save(struct trainer *trainer, const struct training *run, int rank, int step)
{
    (void)run, (void)rank;
    char path[64];
    (void)snprintf(path, sizeof path, "/tmp/muster-edge-%d.safetensors", (int)getpid());
    int failed = step % 2 ? 0 : files_save(trainer, path, NULL);
    if (rank == 0)
        (void)unlink(path);
    return failed;
}

static int all(struct trainer *trainer, const struct training *run, int rank, int step)
{
    return evaluate(trainer, run, rank, step) || set(trainer, run, rank, step) ||
           evaluate(trainer, run, rank, step) || save(trainer, run, rank, step) ||
           fill(trainer, run, rank, step) || get(trainer, run, rank, step);
}

static int visit(const struct training *run, struct trainer *trainer, int rank, int step)
{
    const struct seen *seen = run->context;
    return seen->between->act(trainer, run, rank, step);
}

struct result {
    double losses[STEPS], norms[STEPS];
    struct seen seen;
    void *params;
    size_t bytes;
};

static void edge_run(struct training run, const struct between *between, int prefetch, struct result *result)
{
    GUARD(guard_model) struct model *model = model_of(&run);
    *result =
        (struct result){.seen.between = between, .bytes = (size_t)model_parameters(model) * sizeof(float)};
    result->params = calloc(1, result->bytes);
    assert_non_null(result->params);
    run.steps = STEPS;
    run.prefetch = prefetch;
    run.visit = visit;
    run.context = &result->seen;
    run.losses = result->losses;
    run.norms = result->norms;
    run.params = result->params;
    assert_int_equal(training_run(&run), 0);
}

/* Leaves half of the parameters as they are. */
static int some_halves(void *context, int param, int64_t first, int64_t count, enum dtype dtype, void *out,
                       struct muster_error *err)
{
    return param % 2 ? 1 : halves(context, param, first, count, dtype, out, err);
}

static int fill_some(struct trainer *trainer, const struct training *run, int rank, int step)
{
    (void)run, (void)rank;
    return step % 4 == 0 ? trainer_fill_params(trainer, some_halves, NULL, NULL) : 0;
}

static const struct between acts[] = {
    {"nothing", nothing},     {"get", get},           {"set", set},   {"fill", fill},
    {"fill some", fill_some}, {"evaluate", evaluate}, {"save", save}, {"all", all}};

static void check_edge(const struct training *run)
{
    double plain = 0;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        struct result ahead, without;
        edge_run(*run, &acts[i], 2, &ahead);
        edge_run(*run, &acts[i], 0, &without);
        if (memcmp(ahead.losses, without.losses, sizeof ahead.losses) ||
            memcmp(ahead.norms, without.norms, sizeof ahead.norms) ||
            memcmp(ahead.params, without.params, ahead.bytes) ||
            memcmp(ahead.seen.evaluated, without.seen.evaluated, sizeof ahead.seen.evaluated))
            fail_msg("%s, %s: %d ranks with and without prefetch differ", strategy_name(run->strategy),
                     acts[i].name, mesh_size(run->mesh));
        bool changes =
            acts[i].act == set || acts[i].act == fill || acts[i].act == fill_some || acts[i].act == all;
        if (i == 0)
            plain = ahead.losses[STEPS - 1];
        assert_int_equal(ahead.losses[STEPS - 1] != plain, changes); /* the set values are used */
        free(ahead.params);
        free(without.params);
    }
}

/* The first call of a trainer that has not drawn its initial values: it draws them, or writes all of them. */
static void check_late(const struct training *run)
{
    struct training late = *run;
    late.draws_late = true;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        struct result drawn, drawn_late;
        edge_run(*run, &acts[i], 2, &drawn);
        edge_run(late, &acts[i], 2, &drawn_late);
        if (memcmp(drawn.losses, drawn_late.losses, sizeof drawn.losses) ||
            memcmp(drawn.params, drawn_late.params, drawn.bytes) ||
            memcmp(drawn.seen.evaluated, drawn_late.seen.evaluated, sizeof drawn.seen.evaluated))
            fail_msg("%s: values that are drawn late differ", acts[i].name);
        free(drawn.params);
        free(drawn_late.params);
    }
}

static void initial_values_are_drawn_at_their_first_use(void **state)
{
    (void)state;
    struct training run = training_small();
    run.strategy = STRATEGY_FULL_SHARD;
    run.mesh = (struct mesh)MESH(1, 1, 2);
    check_late(&run);
    run.param_dtype = run.reduce_dtype = DTYPE_BF16;
    check_late(&run);
}

static void check_strategy(enum strategy strategy, struct mesh mesh)
{
    struct training run = training_small();
    run.gpt.layers = 5; /* more than there are slots for */
    run.strategy = strategy;
    run.mesh = mesh;
    check_edge(&run);
    run.clip_norm = 0;
    run.micro_batches = 2;
    check_edge(&run);
}

static void full_shard(void **state)
{
    (void)state;
    check_strategy(STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 2));
}

static void shard_grad_op(void **state)
{
    (void)state;
    check_strategy(STRATEGY_SHARD_GRAD_OP, (struct mesh)MESH(1, 1, 2));
}

static void shard_optim(void **state)
{
    (void)state;
    check_strategy(STRATEGY_SHARD_OPTIM, (struct mesh)MESH(1, 1, 2));
}

static void hybrid_shard(void **state)
{
    (void)state;
    check_strategy(STRATEGY_HYBRID_SHARD, (struct mesh)MESH(1, 2, 2));
}

static void no_shard(void **state)
{
    (void)state;
    check_strategy(STRATEGY_NO_SHARD, (struct mesh)MESH(1, 1, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_shard),  cmocka_unit_test(shard_grad_op),
        cmocka_unit_test(shard_optim), cmocka_unit_test(hybrid_shard),
        cmocka_unit_test(no_shard),    cmocka_unit_test(initial_values_are_drawn_at_their_first_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
