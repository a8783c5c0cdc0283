/* api_evaluate_test.c - evaluation over all ranks as a user of libmuster.so sees it: one figure at any number
 * of ranks, and a training whose bits do not depend on it. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/include/muster.h"
#include "tests/support/folder.h"
#include "tests/support/free_port.h"
#include "tests/support/rank_threads.h"
#include "tests/unit/api/rank_world.h"

enum { T = 8, VOCABULARY = 24, GLOBAL = 12, HELD = 11, STEPS = 4, RANKS = 4, VALUES = VOCABULARY * 16 };

/* Sample g of a text that goes on for ever. */
static void sample(int g, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < T; i++) {
        tokens[i] = (g * 11 + i * 5 + g * i) % VOCABULARY;
        targets[i] = (tokens[i] * 3 + 1) % VOCABULARY;
    }
}

/* Samples first, first + stride, ... below end; of every fourth the second half does not count. */
static int samples(int first, int stride, int end, int32_t *tokens, int32_t *targets)
{
    int rows = 0;
    for (int g = first; g < end; g += stride, rows++) {
        sample(g, tokens + rows * T, targets + rows * T);
        for (int i = T / 2; g % 4 == 3 && i < T; i++)
            targets[rows * T + i] = -1;
    }
    return rows;
}

struct job {
    int port, ranks;
    const char *strategy;
    bool evaluates;
    /* filled: after each step, by rank */
    double sums[RANKS][STEPS + 1][2];
    float table[VALUES];
};

static int evaluate(struct muster_trainer *t, int rank, int ranks, double sums[2])
{
    int32_t tokens[HELD * T], targets[HELD * T];
    struct muster_error err = {0};
    int rows = samples(1000 + rank, ranks, 1000 + HELD, tokens, targets);
    int result = muster_trainer_evaluate(t, (const void *[]){tokens, targets}, rows, sums, &err);
    if (result)
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
    return result;
}

static int train(struct muster_trainer *t, struct job *job, int rank)
{
    int32_t tokens[GLOBAL * T], targets[GLOBAL * T];
    if (job->evaluates && evaluate(t, rank, job->ranks, job->sums[rank][0]))
        return -1;
    for (int step = 0; step < STEPS; step++) {
        int rows = samples(step * GLOBAL + rank, job->ranks, (step + 1) * GLOBAL, tokens, targets);
        if (muster_trainer_train(t, (const void *[]){tokens, targets}, rows, NULL, NULL))
            return -1;
        if (job->evaluates && evaluate(t, rank, job->ranks, job->sums[rank][step + 1]))
            return -1;
    }
    return muster_trainer_get(t, 0, rank ? NULL : job->table, NULL);
}

/* Samples that one rank refuses are an error on all of them, before a pass begins. */
static int refuse(struct muster_trainer *t, int rank, int ranks)
{
    struct muster_error err = {0};
    int32_t tokens[T] = {0}, targets[T] = {0};
    double sums[2] = {7, 7};
    tokens[3] = rank ? 0 : VOCABULARY;
    if (!muster_trainer_evaluate(t, (const void *[]){tokens, targets}, 1, sums, &err) || sums[0] != 7 ||
        !strstr(err.text, rank ? "the samples of another rank were refused" : "tokens[3] is 24"))
        return fprintf(stderr, "rank %d: %s\n", rank, err.text), -1;
    return evaluate(t, rank, ranks, sums); /* and the run goes on */
}

static int live(int rank, int size, void *context)
{
    struct job *job = context;
    struct muster_error err = {0};
    char variables[RANK_WORLD_VARIABLES], strategy[64];
    (void)snprintf(strategy, sizeof strategy, "training.strategy=%s", job->strategy);
    const char *const sizes[] = {"model.layers=3",    "model.channels=16",   "model.heads=2",
                                 "model.positions=8", "model.vocabulary=24", NULL};
    const char *const settings[] = {strategy,
                                    strcmp(job->strategy, "HYBRID_SHARD") ? "training.prefetch=2"
                                                                          : "training.replicas=2",
                                    "training.micro_batch=1",
                                    "training.global_batch=12",
                                    "training.sequence_length=8",
                                    "training.threads=1",
                                    "training.warmup_steps=0",
                                    "training.learning_rate=0.01",
                                    "training.group_bytes=4K",
                                    NULL};
    struct muster_world *world = rank_world_open(variables, rank, size, job->port, &err);
    struct muster_model *model = world ? muster_model_open("gpt2", sizes, &err) : NULL;
    struct muster_trainer *t = model ? muster_trainer_open(world, model, settings, &err) : NULL;
    int result = t ? train(t, job, rank) : -1;
    if (!result)
        result = refuse(t, rank, size);
    if (!result)
        result = muster_world_agree(world, 0, &err);
    if (result)
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
    muster_trainer_close(&t);
    muster_model_free(model);
    muster_world_close(&world);
    return result;
}

static struct job run(int ranks, const char *strategy, bool evaluates)
{
    struct job job = {.port = test_free_port(), .ranks = ranks, .strategy = strategy, .evaluates = evaluates};
    assert_int_equal(rank_threads_run(ranks, live, &job), 0);
    return job;
}

static const struct {
    int ranks;
    const char *strategy;
} cells[] = {{1, "NO_SHARD"},      {2, "FULL_SHARD"},  {3, "FULL_SHARD"},   {4, "FULL_SHARD"},
             {2, "SHARD_GRAD_OP"}, {3, "SHARD_OPTIM"}, {4, "HYBRID_SHARD"}, {2, "NO_SHARD"}};

/* 11 samples lie unevenly on 2, 3 and 4 ranks; some targets of them do not count. */
static void one_figure_at_any_number_of_ranks(void **state)
{
    (void)state;
    struct job one = {0};
    int counted = 0;
    for (int g = 1000; g < 1000 + HELD; g++)
        counted += g % 4 == 3 ? T / 2 : T;
    for (size_t c = 0; c < sizeof cells / sizeof *cells; c++) {
        struct job job = run(cells[c].ranks, cells[c].strategy, true);
        if (c == 0)
            one = job;
        for (int step = 0; step <= STEPS; step++) {
            const double *mine = job.sums[0][step], *alone = one.sums[0][step];
            for (int rank = 1; rank < job.ranks; rank++)
                assert_memory_equal(job.sums[rank][step], mine, sizeof job.sums[rank][step]);
            assert_true(mine[1] == counted);
            if (fabs(mine[0] / alone[0] - 1) > 1e-6)
                fail_msg("%s over %d ranks, step %d: %.9g, alone %.9g", job.strategy, job.ranks, step,
                         mine[0] / mine[1], alone[0] / alone[1]);
        }
        assert_true(job.sums[0][STEPS][0] != job.sums[0][0][0]);
    }
}

static void training_does_not_depend_on_it(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cells / sizeof *cells; c++) {
        struct job with = run(cells[c].ranks, cells[c].strategy, true),
                   without = run(cells[c].ranks, cells[c].strategy, false);
        assert_memory_equal(with.table, without.table, sizeof with.table);
    }
}

/* ---- effects of the figures ---- */

static struct muster_trainer *judging(const char *folder, struct muster_model **model)
{
    char setting[100];
    struct muster_error err = {0};
    (void)snprintf(setting, sizeof setting, "training.checkpoint_dir=%s", folder);
    const char *const settings[] = {setting,
                                    "training.checkpoint_keep=1",
                                    "training.keep_best=true",
                                    "training.early_stop_patience=2",
                                    "training.micro_batch=1",
                                    "training.global_batch=12",
                                    "training.sequence_length=8",
                                    "training.threads=1",
                                    NULL};
    const char *const sizes[] = {"model.layers=1",    "model.channels=16",   "model.heads=2",
                                 "model.positions=8", "model.vocabulary=24", NULL};
    *model = muster_model_open("gpt2", sizes, &err);
    struct muster_trainer *t = *model ? muster_trainer_open(NULL, *model, settings, &err) : NULL;
    if (!t)
        fail_msg("%s", err.text);
    return t;
}

static void judge_after_a_step(struct muster_trainer *t, double loss, int expected)
{
    int32_t tokens[GLOBAL * T], targets[GLOBAL * T];
    struct muster_error err = {0};
    (void)samples(0, 1, GLOBAL, tokens, targets);
    assert_int_equal(muster_trainer_train(t, (const void *[]){tokens, targets}, GLOBAL, NULL, &err), 0);
    assert_int_equal(muster_trainer_judge(t, loss, &err), expected);
    assert_int_equal(muster_trainer_checkpoint(t, &err), 1);
}

static bool is_there(const char *folder, int step)
{
    char path[100];
    (void)snprintf(path, sizeof path, "%s/step-%d", folder, step);
    return access(path, F_OK) == 0;
}

/* The best checkpoint, of step 2, stays next to the newest, in the next process too, until step 6 is better.
 */
static void the_best_is_kept_over_a_restart(void **state)
{
    (void)state;
    char folder[FOLDER_PATH];
    struct muster_error err = {0};
    struct muster_model *model;
    assert_int_equal(folder_make(folder, "judge"), 0);
    struct muster_trainer *t = judging(folder, &model);
    assert_true(muster_trainer_state_now(t).best_step == -1 && isnan(muster_trainer_state_now(t).best_loss));
    assert_int_equal(muster_trainer_best(t, &err), 0);
    judge_after_a_step(t, 3, MUSTER_JUDGED_BEST);
    judge_after_a_step(t, 2, MUSTER_JUDGED_BEST);
    judge_after_a_step(t, 2.5, 0);
    assert_true(!is_there(folder, 1) && is_there(folder, 2) && is_there(folder, 3));
    for (int process = 0; process < 2; process++) {
        muster_trainer_close(&t);
        muster_model_free(model);
        t = judging(folder, &model);
        assert_int_equal(muster_trainer_resume(t, NULL, 0, &err), 1);
        assert_true(muster_trainer_state_now(t).steps == 3 + process);
        assert_true(muster_trainer_state_now(t).best_step == 2 && muster_trainer_state_now(t).best_loss == 2);
        assert_true(muster_trainer_state_now(t).evaluations == 3 + process);
        assert_true(muster_trainer_state_now(t).stops_early == process);
        judge_after_a_step(t, 2.25, MUSTER_JUDGED_STOP);
        assert_true(is_there(folder, 2) && is_there(folder, 4 + process) && !is_there(folder, 3 + process));
    }
    judge_after_a_step(t, 1, MUSTER_JUDGED_BEST);
    assert_true(!is_there(folder, 2) && !is_there(folder, 5) && is_there(folder, 6));
    assert_int_equal(muster_trainer_best(t, &err), 0); /* it is the present state */
    judge_after_a_step(t, 4, 0);
    assert_int_equal(muster_trainer_best(t, &err), 1);
    assert_true(muster_trainer_state_now(t).steps == 6);
    int32_t tokens[GLOBAL * T], targets[GLOBAL * T];
    (void)samples(0, 1, GLOBAL, tokens, targets);
    assert_int_equal(muster_trainer_judge(t, 0.5, &err), MUSTER_JUDGED_BEST);
    assert_int_equal(muster_trainer_train(t, (const void *[]){tokens, targets}, GLOBAL, NULL, &err), 0);
    assert_int_equal(muster_trainer_judge(t, 0.25, &err), MUSTER_JUDGED_BEST);
    assert_int_equal(muster_trainer_checkpoint_begin(t, &err), 1); /* it is waited for */
    assert_int_equal(muster_trainer_train(t, (const void *[]){tokens, targets}, GLOBAL, NULL, &err), 0);
    assert_int_equal(muster_trainer_best(t, &err), 1);
    assert_true(muster_trainer_state_now(t).steps == 7);
    assert_int_equal(muster_trainer_average(t, 1, &err), -1);
    assert_non_null(strstr(err.text, "training.ema_decay is 0"));
    muster_trainer_close(&t);
    muster_model_free(model);
    assert_int_equal(folder_remove(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_figure_at_any_number_of_ranks),
        cmocka_unit_test(training_does_not_depend_on_it),
        cmocka_unit_test(the_best_is_kept_over_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
