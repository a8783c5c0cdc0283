/* checkpoint_resume_test.c - a run that is stopped after any step and goes on from its checkpoint is the same
 * to the last bit (level T0), in every dtype and strategy; and with other numbers of ranks it is the same but
 * for rounding. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/folder.h"
#include "tests/unit/train/train_harness.h"

enum { STEPS = 6 };

/* What visit does in a run that is cut in two. */
struct cut {
    char folder[64];
    int load_step, save_at; /* loaded before the first step, saved after this many steps; -1: neither */
};

static int load(const struct training *run, struct trainer *trainer, int rank, const struct cut *cut)
{
    struct muster_error err = {0};
    scope_buffer report = {0};
    struct checkpoint_load load = {.trainer = trainer,
                                   .folder = cut->folder,
                                   .rank = rank,
                                   .world_size = mesh_size(run->mesh),
                                   .report = &report};
    int result = checkpoint_load(&load, &err);
    bool right = result == 1 && load.manifest.run.step == cut->load_step &&
                 load.manifest.run.samples == (int64_t)cut->load_step * run->samples && !report.length;
    if (!right)
        fprintf(stderr, "rank %d: step %d was not loaded: %d %s %s\n", rank, cut->load_step, result, err.text,
                report.data ? report.data : "");
    manifest_free(&load.manifest);
    return right ? 0 : -1;
}

static int save(const struct training *run, struct trainer *trainer, int rank, int step,
                const struct cut *cut)
{
    struct muster_error err = {0};
    struct checkpoint_save save = {.trainer = trainer,
                                   .folder = cut->folder,
                                   .rank = rank,
                                   .retention = {.last = 1},
                                   .run = {.step = step, .samples = (int64_t)step * run->samples}};
    if (!checkpoint_save(&save, NULL, &err))
        return 0;
    fprintf(stderr, "rank %d: %s\n", rank, err.text);
    return -1;
}

static int visit(const struct training *run, struct trainer *trainer, int rank, int step)
{
    const struct cut *cut = run->context;
    if (step == 0 && cut->load_step >= 0 && load(run, trainer, rank, cut) < 0)
        return -1;
    if (run->average_decay > 0 && run->first_step + step == STEPS) /* then the average is compared */
        return trainer_exchange_averages(trainer, true, NULL);
    if (step > 0 && run->first_step + step == cut->save_at)
        return save(run, trainer, rank, cut->save_at, cut);
    return 0;
}

static struct cut cut_begin(void)
{
    struct cut cut = {.folder = "/tmp/muster-checkpoint-XXXXXX", .load_step = -1, .save_at = -1};
    assert_non_null(mkdtemp(cut.folder));
    return cut;
}

static void cut_end(const struct cut *cut)
{
    int64_t *steps;
    int count = folder_list(cut->folder, &steps, NULL);
    assert_in_range(count, 0, 1); /* retention: the last one */
    for (int i = 0; i < count; i++)
        assert_int_equal(folder_remove(cut->folder, steps[i], NULL), 0);
    mem_free(steps);
    assert_int_equal(rmdir(cut->folder), 0); /* nothing else is left */
}

static size_t params_bytes(const struct training *run)
{
    struct muster_error err = {0};
    struct model *model = run->create ? run->create(run, &err) : gpt2_create(&run->gpt, &err);
    assert_non_null(model);
    size_t bytes = (size_t)model_parameters(model) * 8; /* enough for any dtype */
    model_destroy(model);
    return bytes;
}

/* A part of a run: from step `from`, which is loaded if it is not 0, up to `to`, which is saved there. */
static void run_part(struct training plan, struct cut *cut, int from, int to, double *losses, void *params)
{
    plan.first_step = from;
    plan.steps = to - from;
    plan.context = cut;
    plan.visit = visit;
    plan.losses = losses + from;
    if (plan.stats)
        plan.stats += from;
    plan.params = params;
    cut->load_step = from ? from : -1;
    cut->save_at = to < STEPS ? to : -1;
    assert_int_equal(training_run(&plan), 0);
}

/* Returns how many steps were skipped. */
static int is_the_same_cut_anywhere(const struct training *plan)
{
    const size_t bytes = params_bytes(plan);
    scope_free void *whole = mem_calloc(bytes, 1), *cut_params = mem_calloc(bytes, 1);
    double whole_losses[STEPS], losses[STEPS];
    struct trainer_stats whole_stats[STEPS], stats[STEPS];
    struct training with = *plan;
    struct cut none = {.load_step = -1, .save_at = -1};
    int skipped = 0;
    assert_non_null(whole);
    assert_non_null(cut_params);
    with.stats = whole_stats;
    run_part(with, &none, 0, STEPS, whole_losses, whole);
    with.stats = stats;
    for (int at = 1; at < STEPS; at++) {
        struct cut cut = cut_begin();
        run_part(with, &cut, 0, at, losses, NULL);
        run_part(with, &cut, at, STEPS, losses, cut_params);
        cut_end(&cut);
        for (int i = 0; i < STEPS; i++) {
            assert_true(stats[i].loss_scale == whole_stats[i].loss_scale &&
                        stats[i].skipped == whole_stats[i].skipped);
            skipped += stats[i].skipped;
        }
        assert_memory_equal(losses, whole_losses, sizeof losses);
        assert_memory_equal(cut_params, whole, bytes);
    }
    return skipped;
}

static struct training small(enum strategy strategy, struct mesh mesh, enum dtype dtype)
{
    struct training plan = training_small();
    plan.strategy = strategy;
    plan.mesh = mesh;
    plan.param_dtype = plan.reduce_dtype = dtype;
    plan.micro_batches = 2;
    return plan;
}

static void stop_and_resume_is_the_same_to_the_bit(void **state)
{
    (void)state;
    const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (size_t d = 0; d < 3; d++) {
        struct training alone = small(STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 1), dtypes[d]);
        (void)is_the_same_cut_anywhere(&alone);
        struct training two = small(STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 2), dtypes[d]);
        (void)is_the_same_cut_anywhere(&two);
        struct training optimizer = small(STRATEGY_SHARD_OPTIM, (struct mesh)MESH(1, 1, 2), dtypes[d]);
        (void)is_the_same_cut_anywhere(&optimizer);
    }
}

static void every_strategy_is_saved(void **state)
{
    (void)state;
    struct training plans[] = {
        small(STRATEGY_NO_SHARD, (struct mesh)MESH(1, 2, 1), DTYPE_F32),
        small(STRATEGY_SHARD_GRAD_OP, (struct mesh)MESH(1, 1, 2), DTYPE_F32),
        small(STRATEGY_HYBRID_SHARD, (struct mesh)MESH(1, 2, 2), DTYPE_BF16),
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        (void)is_the_same_cut_anywhere(&plans[i]);
}

static void averages_are_saved(void **state)
{
    (void)state;
    struct training plans[] = {
        small(STRATEGY_NO_SHARD, (struct mesh)MESH(1, 2, 1), DTYPE_F32),
        small(STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 2), DTYPE_F32),
        small(STRATEGY_SHARD_OPTIM, (struct mesh)MESH(1, 1, 2), DTYPE_F32),
        small(STRATEGY_HYBRID_SHARD, (struct mesh)MESH(1, 2, 2), DTYPE_BF16),
        small(STRATEGY_FULL_SHARD, (struct mesh)MESH(2, 1, 2), DTYPE_F32),
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        plans[i].average_decay = 0.7;
        (void)is_the_same_cut_anywhere(&plans[i]);
    }
}

static const struct compression_options topk = {.kind = COMPRESSION_TOPK, .ratio = 0.1, .least = 100},
                                        power = {.kind = COMPRESSION_POWERSGD,
                                                 .rank = 2,
                                                 .least = 100,
                                                 .start = 2};

/* Every replica's feedback, and the factors. */
static void compression_is_saved(void **state)
{
    (void)state;
    struct training plans[] = {
        small(STRATEGY_NO_SHARD, (struct mesh)MESH(1, 2, 1), DTYPE_F32),
        small(STRATEGY_NO_SHARD, (struct mesh)MESH(1, 1, 4), DTYPE_F32),
        small(STRATEGY_HYBRID_SHARD, (struct mesh)MESH(2, 2, 2), DTYPE_F32),
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        plans[i].compression = i % 2 ? power : topk;
        (void)is_the_same_cut_anywhere(&plans[i]);
    }
    plans[2].compression = power;
    (void)is_the_same_cut_anywhere(&plans[2]);
}

/* PowerSGD depends on the sum of all feedback alone, and that stays whoever takes it. */
static void other_replicas_take_the_feedback(void **state)
{
    (void)state;
    static const struct {
        enum strategy strategy;
        struct mesh mesh;
    } worlds[] = {{STRATEGY_NO_SHARD, MESH(1, 1, 4)},     {STRATEGY_NO_SHARD, MESH(1, 1, 1)},
                  {STRATEGY_NO_SHARD, MESH(1, 2, 1)},     {STRATEGY_HYBRID_SHARD, MESH(1, 2, 2)},
                  {STRATEGY_HYBRID_SHARD, MESH(2, 2, 2)}, {STRATEGY_NO_SHARD, MESH(1, 1, 8)}};
    struct training plan = small(STRATEGY_NO_SHARD, (struct mesh)MESH(1, 1, 4), DTYPE_F32);
    plan.kernels = kernels_ref_f64();
    plan.param_dtype = plan.reduce_dtype = DTYPE_F64;
    plan.micro_batches = 1;
    plan.clip_norm = 0;
    plan.compression = power;
    plan.compression.start = 0;
    const size_t bytes = params_bytes(&plan);
    scope_free double *whole = mem_calloc(bytes, 1), *params = mem_calloc(bytes, 1);
    struct cut none = {.load_step = -1, .save_at = -1}, cut = cut_begin();
    double losses[STEPS];
    assert_true(whole && params);
    run_part(plan, &none, 0, STEPS, losses, whole);
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        struct training other = plan;
        other.strategy = worlds[w].strategy;
        other.mesh = worlds[w].mesh;
        run_part(w % 2 ? other : plan, &cut, 0, 3, losses, NULL); /* also from more replicas to fewer */
        run_part(w % 2 ? plan : other, &cut, 3, STEPS, losses, params);
        for (size_t i = 0; i < bytes / sizeof *whole; i++)
            assert_true(whole[i] - params[i] < 1e-9 && params[i] - whole[i] < 1e-9);
    }
    cut_end(&cut);
}

/* The scale has to go on where it was, halved and half-way to its next doubling. */
static void a_loss_scale_that_overflows_goes_on(void **state)
{
    (void)state;
    struct training plan = small(STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 2), DTYPE_F16);
    plan.loss_scale = (struct loss_scale_options){
        .initial = 0x1p22, .minimum = 1, .window = 2, .hysteresis = 2, .consecutive = false};
    int skipped = is_the_same_cut_anywhere(&plan);
    assert_in_range(skipped, 1, (STEPS - 1) * (STEPS - 1)); /* some, not all */
}

struct step_world {
    enum strategy strategy;
    struct mesh mesh;
};

/* A training whose every step is made by other ranks, which go on from the checkpoint of the step before,
 * against one rank. */
static void goes_on_elsewhere(const struct step_world parts[STEPS])
{
    struct training plan = training_small();
    const size_t bytes = params_bytes(&plan);
    scope_free double *whole = mem_calloc(bytes, 1), *moved = mem_calloc(bytes, 1);
    double whole_losses[STEPS], losses[STEPS];
    struct cut none = {.load_step = -1, .save_at = -1}, cut = cut_begin();
    assert_non_null(whole);
    assert_non_null(moved);
    plan.kernels = kernels_ref_f64();
    plan.samples = 12;
    plan.average_decay = 0.7;
    run_part(plan, &none, 0, STEPS, whole_losses, whole);
    for (int i = 0; i < STEPS; i++) {
        plan.strategy = parts[i].strategy;
        plan.mesh = parts[i].mesh;
        plan.group_bytes = i % 2 ? 16 << 10 : 64 << 10; /* other groups too */
        run_part(plan, &cut, i, i + 1, losses, moved);
    }
    cut_end(&cut);
    assert_true(training_deviation(losses, whole_losses, STEPS) < 1e-12);
    for (size_t i = 0; i < bytes / 8; i++)
        assert_float_equal(moved[i], whole[i], 1e-9);
}

static void any_number_of_ranks_goes_on(void **state)
{
    (void)state;
    static const struct step_world parts[STEPS] = {
        {STRATEGY_FULL_SHARD, MESH(1, 1, 4)},  {STRATEGY_FULL_SHARD, MESH(1, 1, 3)},
        {STRATEGY_SHARD_OPTIM, MESH(1, 1, 2)}, {STRATEGY_HYBRID_SHARD, MESH(1, 2, 2)},
        {STRATEGY_NO_SHARD, MESH(1, 3, 1)},    {STRATEGY_FULL_SHARD, MESH(1, 1, 4)}};
    goes_on_elsewhere(parts);
}

/* Stages hold other parameters, and the tied table twice: it is written once, and read wherever it is wanted.
 */
static void any_mesh_goes_on(void **state)
{
    (void)state;
    static const struct step_world parts[STEPS] = {
        {STRATEGY_FULL_SHARD, MESH(2, 1, 2)},  {STRATEGY_FULL_SHARD, MESH(1, 1, 3)},
        {STRATEGY_NO_SHARD, MESH(4, 1, 1)},    {STRATEGY_HYBRID_SHARD, MESH(2, 2, 2)},
        {STRATEGY_SHARD_OPTIM, MESH(3, 1, 2)}, {STRATEGY_SHARD_GRAD_OP, MESH(2, 1, 3)}};
    goes_on_elsewhere(parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_and_resume_is_the_same_to_the_bit),
        cmocka_unit_test(every_strategy_is_saved),
        cmocka_unit_test(averages_are_saved),
        cmocka_unit_test(compression_is_saved),
        cmocka_unit_test(other_replicas_take_the_feedback),
        cmocka_unit_test(a_loss_scale_that_overflows_goes_on),
        cmocka_unit_test(any_number_of_ranks_goes_on),
        cmocka_unit_test(any_mesh_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
