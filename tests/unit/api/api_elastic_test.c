/* api_elastic_test.c - the same global batch on any number of ranks, as a user of libmuster.so sees it: ranks
 * as threads, batches that do not divide by them, targets that do not count, all strategies, fp16. Each run's
 * losses equal those of one rank within 3 times the effect of another order of sums on that rank (DESIGN:
 * T1). */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/include/muster.h"
#include "tests/support/free_port.h"
#include "tests/support/rank_threads.h"
#include "tests/unit/api/rank_world.h"

enum { VOCABULARY = 24, T = 8, BATCH_LIMIT = 16, RANK_LIMIT = 5, STEPS = 100, TEXTS = 12 };

/* How targets get counted before a step. */
enum counting { COUNTED, ANNOUNCED, ANNOUNCED_BY_SOME };

struct job {
    int port, batch;
    const char *settings[TEXTS];
    enum counting counting;
    bool reversed; /* the rows of each step: another order of sums */
    struct muster_model *model;
    int64_t targets[STEPS]; /* over all ranks */
    double losses[RANK_LIMIT][STEPS], first_norm;
};

/* Sample g: the same tokens in every world. About one target of four does not count, and in some samples
 * none. */
static int64_t sample(int64_t g, int32_t *tokens, int32_t *targets)
{
    int64_t counted = 0;
    for (int t = 0; t < T; t++) {
        tokens[t] = (int32_t)((g * 7 + t * 5 + g * t) % VOCABULARY);
        targets[t] = (tokens[t] * 3 + 1) % VOCABULARY;
        if (g % 5 == 3 || (g + t) % 4 == 1)
            targets[t] = -1;
        counted += targets[t] >= 0;
    }
    return counted;
}

static int64_t fill(const struct muster_trainer *t, const struct job *job, int64_t first, int32_t *tokens,
                    int32_t *targets)
{
    int64_t counted = 0;
    const int64_t samples = muster_trainer_state_now(t).samples;
    for (int64_t i = 0; i < samples; i++) {
        const int64_t row = muster_trainer_row(t, i);
        counted +=
            sample(first + (job->reversed ? job->batch - 1 - row : row), tokens + i * T, targets + i * T);
    }
    return counted;
}

static int train(struct muster_trainer *t, struct job *job, int rank, struct muster_error *err)
{
    int32_t tokens[BATCH_LIMIT * T], targets[BATCH_LIMIT * T];
    struct muster_result result = {.size = sizeof result};
    for (int step = 0; step < STEPS; step++) {
        const int64_t first = muster_trainer_state_now(t).taken;
        const int64_t next = fill(t, job, first + job->batch, tokens, targets);
        (void)fill(t, job, first, tokens, targets);
        const bool tells =
            job->counting == ANNOUNCED || (job->counting == ANNOUNCED_BY_SOME && (rank || step % 3));
        if ((tells && muster_trainer_set(t, "next_targets", (double)next, err)) ||
            muster_trainer_train(t, (const void *[]){tokens, targets}, muster_trainer_state_now(t).samples,
                                 &result, err))
            return -1;
        job->losses[rank][step] = result.loss;
        if (!rank)
            job->targets[step] = result.targets;
        if (!rank && !step)
            job->first_norm = result.grad_norm;
    }
    return 0;
}

static int live(int rank, int size, void *context)
{
    struct job *job = context;
    struct muster_error err = {0};
    char variables[RANK_WORLD_VARIABLES];
    struct muster_world *world = rank_world_open(variables, rank, size, job->port, &err);
    struct muster_trainer *t = world ? muster_trainer_open(world, job->model, job->settings, &err) : NULL;
    int result = t ? train(t, job, rank, &err) : -1;
    if (!result)
        result = muster_world_agree(world, 0, &err);
    if (result)
        fprintf(stderr, "rank %d of %d: %s\n", rank, size, err.text);
    muster_trainer_close(&t);
    muster_world_close(&world);
    return result;
}

static void run(struct job *job, int ranks, int batch, int micro_batch, const char *const *more)
{
    static char texts[2][64];
    (void)snprintf(texts[0], sizeof texts[0], "training.global_batch=%d", batch);
    (void)snprintf(texts[1], sizeof texts[1], "training.micro_batch=%d", micro_batch);
    *job = (struct job){.port = test_free_port(),
                        .batch = batch,
                        .counting = job->counting,
                        .reversed = job->reversed,
                        .model = job->model,
                        .settings = {texts[0], texts[1], "training.sequence_length=8", "training.threads=1",
                                     "training.warmup_steps=5", "training.learning_rate=0.001",
                                     "training.schedule=constant"}};
    for (int i = 0, at = 7; more && more[i]; i++)
        job->settings[at++] = more[i];
    if (rank_threads_run(ranks, live, job))
        fail_msg("%d ranks, a batch of %d", ranks, batch);
}

static double deviation(const double *a, const double *b)
{
    double largest = 0;
    for (int i = 0; i < STEPS; i++)
        largest = fmax(largest, fabs(a[i] - b[i]) / fabs(b[i]));
    return largest;
}

static struct muster_model *model(void)
{
    return muster_model_open("gpt2",
                             (const char *const[]){"model.layers=2", "model.channels=16", "model.heads=2",
                                                   "model.vocabulary=24", "model.positions=8", NULL},
                             NULL);
}

struct row {
    int ranks, batch, micro_batch;
    const char *more[4];
};

static double control(const struct job *alone, const struct row *row, const char *const *how)
{
    double largest = 0;
    for (int other = 1; other < 4; other++) {
        struct job job = {.model = alone->model, .reversed = other & 1};
        run(&job, 1, row->batch, other & 2 ? row->batch : 1, how); /* its rows in one product */
        largest = fmax(largest, deviation(job.losses[0], alone->losses[0]));
    }
    return largest;
}

static void check(const struct row *row, enum counting counting)
{
    struct job alone = {.model = model()}, many = {.model = alone.model, .counting = counting};
    /* What fp16 does is no matter of the world: one rank has it too. */
    const char *const *how = row->more[0] ? &row->more[1] : NULL;
    if (how && *how && !strstr(*how, "dtype"))
        how = NULL;
    assert_non_null(alone.model);
    run(&alone, 1, row->batch, 1, how);
    const double bound = fmax(1e-6, 3 * control(&alone, row, how));
    run(&many, row->ranks, row->batch, row->micro_batch, row->more);
    int64_t targets = 0;
    int32_t unused[2][T];
    for (int64_t g = 0; g < row->batch; g++)
        targets += sample(g, unused[0], unused[1]);
    assert_int_equal(many.targets[0], targets);
    assert_memory_equal(many.targets, alone.targets, sizeof many.targets);
    for (int rank = 1; rank < row->ranks; rank++)
        assert_memory_equal(many.losses[rank], many.losses[0], sizeof many.losses[0]);
    const double found = deviation(many.losses[0], alone.losses[0]);
    assert_true(alone.losses[0][STEPS - 1] < 0.8 * alone.losses[0][0]); /* it learns something */
    printf("%d ranks, a batch of %d by %d, %s: %.2e apart, bound %.2e\n", row->ranks, row->batch,
           row->micro_batch, row->more[0] ? row->more[0] : "FULL_SHARD", found, bound);
    assert_true(found <= bound);
    /* AdamW does not see a factor of all gradients. 10 bits of fp16, more in a product of two. */
    assert_true(fabs(many.first_norm / alone.first_norm - 1) < (how ? 0x1p-9 : 1e-5));
    muster_model_free(alone.model);
}

static void any_number_of_ranks_runs_the_same_batch(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {2, 8, 1, {NULL}},
        {3, 16, 1, {NULL}},
        {5, 8, 1, {NULL}},
        {3, 7, 2, {NULL}}, /* the last micro-batch is half full */
        {5, 3, 1, {NULL}}, /* more ranks than samples */
        {3, 8, 1, {"training.strategy=NO_SHARD"}},
        {3, 8, 1, {"training.strategy=SHARD_OPTIM"}},
        {3, 8, 3, {"training.strategy=SHARD_GRAD_OP"}},
        {4, 7, 1, {"training.strategy=HYBRID_SHARD", "training.replicas=2"}},
        {3, 8, 1, {"training.strategy=FULL_SHARD", "training.dtype=fp16"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check(&rows[i], i % 2 ? COUNTED : ANNOUNCED);
}

/* Where one rank does not announce, all count. */
static void announcements_are_optional_a_step_and_a_rank(void **state)
{
    (void)state;
    check(&(struct row){3, 7, 1, {NULL}}, ANNOUNCED_BY_SOME);
}

static void what_was_announced_has_to_come(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct muster_model *m = model();
    const char *const settings[] = {"training.global_batch=2", "training.micro_batch=2",
                                    "training.sequence_length=8", "training.threads=1", NULL};
    struct muster_trainer *t = muster_trainer_open(NULL, m, settings, &err);
    int32_t tokens[2 * T], targets[2 * T];
    struct muster_result result = {.size = sizeof result};
    const void *const arrays[] = {tokens, targets};
    assert_non_null(t);
    const int64_t here = fill(t, &(struct job){.batch = 2}, 0, tokens, targets);
    assert_int_equal(muster_trainer_set(t, "next_targets", 3, &err), 0);
    assert_int_equal(muster_trainer_train(t, arrays, 2, &result, &err), 0);
    assert_int_equal(result.targets, here);
    assert_int_equal(muster_trainer_train(t, arrays, 2, &result, &err), -1);
    assert_non_null(strstr(err.text, "but next_targets was set to 3 before the last step"));
    for (int i = 0; i < 2 * T; i++)
        targets[i] = i < 3 ? 1 : -1;
    assert_int_equal(muster_trainer_train(t, arrays, 2, &result, &err), 0);
    assert_int_equal(result.targets, 3);
    assert_int_equal(muster_trainer_train(t, arrays, 1, &result, &err), 0); /* nothing announced: counted */
    assert_int_equal(result.targets, 3);
    assert_int_equal(muster_trainer_set(t, "next_targets", 0, &err), 0);
    assert_int_equal(muster_trainer_train(t, arrays, 1, &result, &err), 0);
    assert_int_equal(muster_trainer_train(t, arrays, 0, &result, &err), -1);
    assert_string_equal(err.text, "no target of this step counts, on any rank");
    assert_int_equal(muster_trainer_set(t, "next_targets", -1, &err), -1);
    assert_true(muster_trainer_row(t, 1) == 1 && muster_trainer_row(t, 2) == -1 &&
                muster_trainer_row(t, -1) == -1);
    muster_trainer_close(&t);
    muster_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_runs_the_same_batch),
        cmocka_unit_test(announcements_are_optional_a_step_and_a_rank),
        cmocka_unit_test(what_was_announced_has_to_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
