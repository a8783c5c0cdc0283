/* api_regression_test.c - models of numbers instead of tokens, as a user of libmuster.so sees them: inputs of
 * f32, f64 and u8, the squared error, targets that do not count, and labels of images. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>

#include "runtime/include/muster.h"
#include "tests/support/free_port.h"
#include "tests/support/rank_threads.h"
#include "tests/unit/api/rank_world.h"

enum { FEATURES = 3, WANTED = 2, SAMPLES = 8, T = 2, ROWS = SAMPLES * T, STEPS = 60, LABELS = 4 };

#define COMMON                                                                                               \
    "training.global_batch=8", "training.sequence_length=2", "training.threads=1",                           \
        "training.warmup_steps=0", "training.learning_rate=0.02", "training.schedule=constant",              \
        "training.weight_decay=0", "training.seed=5"
static const char *const settings[] = {COMMON, "training.micro_batch=4", NULL};
static const char *const sharded[] = {COMMON, "training.micro_batch=2", "training.strategy=FULL_SHARD", NULL};

/* Two layers: tanh of a product of the features, then a product. */
static struct muster_model *model(int32_t dtype, int32_t *out)
{
    struct muster_model *m = muster_model_new("curve", NULL);
    int32_t x = muster_model_input(m, "x", dtype, FEATURES);
    int32_t wanted = muster_model_input(m, "wanted", MUSTER_F32, WANTED);
    muster_layer(m, "numbers"); /* a layer without parameters */
    int32_t h = muster_values(m, x);
    muster_layer(m, "up");
    h = muster_activation(m, muster_linear(m, h, 32, "fc", 0.5, 0), "tanh");
    muster_layer(m, "head");
    *out = muster_squared_error(m, muster_linear(m, h, WANTED, "fc", 0.2, 0), wanted);
    return m;
}

/* Numbers that all three types have, and a smooth function of them. */
static void batch(int step, float x[ROWS * FEATURES], float wanted[ROWS * WANTED])
{
    for (int i = 0; i < ROWS * FEATURES; i++)
        x[i] = (float)((i * 7 + step * 5 + i / FEATURES) % 4);
    for (int r = 0; r < ROWS; r++) {
        const float *row = x + (ptrdiff_t)r * FEATURES;
        wanted[r * WANTED] = 0.5f * row[0] - row[1] + 0.25f;
        wanted[r * WANTED + 1] = sinf(row[2]);
    }
}

static struct muster_trainer *opened(struct muster_world *world, struct muster_model *m,
                                     const char *const *texts)
{
    struct muster_error err = {0};
    struct muster_trainer *t = muster_trainer_open(world, m, texts, &err);
    if (!t)
        fprintf(stderr, "%s\n", err.text);
    return t;
}

/* The mean of the squares, from the output of a forward pass. */
static double mean_error(const float *out, const float *wanted, int64_t count, int64_t *counted)
{
    double sum = 0;
    *counted = 0;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(wanted[i]))
            continue;
        sum += ((double)out[i] - (double)wanted[i]) * ((double)out[i] - (double)wanted[i]);
        ++*counted;
    }
    return sum / (double)*counted;
}

static void learns_and_counts(void **state)
{
    (void)state;
    struct muster_error err = {0};
    int32_t out;
    struct muster_model *m = model(MUSTER_F32, &out);
    struct muster_trainer *t = opened(NULL, m, settings);
    assert_non_null(t);
    assert_int_equal(muster_model_logits(m), out);
    float x[ROWS * FEATURES], wanted[ROWS * WANTED], found[ROWS * WANTED];
    double first = 0, sums[2];
    struct muster_result result = {.size = sizeof result};
    const void *arrays[] = {x, wanted};
    for (int i = 0; i < 4 * STEPS; i++) {
        batch(i, x, wanted);
        wanted[3] = NAN;
        assert_int_equal(muster_trainer_train(t, arrays, SAMPLES, &result, &err), 0);
        assert_int_equal(result.targets, ROWS * WANTED - 1);
        first = i ? first : result.loss;
    }
    print_message("loss %.4f, then %.5f\n", first, result.loss);
    assert_true(first > 0.5 && result.loss < 0.02 * first);
    /* The loss is the mean of the squares of the elements that count. */
    batch(1, x, wanted);
    wanted[0] = wanted[5] = NAN;
    assert_int_equal(muster_trainer_forward(t, arrays, 4, out, found, sums, &err), 0);
    int64_t counted;
    double mean = mean_error(found, wanted, (int64_t)4 * T * WANTED, &counted);
    assert_true(sums[1] == (double)counted && counted == 4 * T * WANTED - 2);
    assert_true(fabs(mean / (sums[0] / sums[1]) - 1) < 1e-5);
    assert_int_equal(muster_trainer_evaluate(t, arrays, SAMPLES, sums, &err), 0);
    assert_true(sums[1] == ROWS * WANTED - 2);
    muster_trainer_close(&t);
    muster_model_free(m);
}

/* A step of fewer samples has NaN as its last targets. */
static void samples_that_are_not_there_do_not_count(void **state)
{
    (void)state;
    struct muster_error err = {0};
    int32_t out;
    struct muster_model *m = model(MUSTER_F32, &out);
    struct muster_trainer *a = opened(NULL, m, settings), *b = opened(NULL, m, settings);
    assert_true(a && b);
    float x[ROWS * FEATURES], wanted[ROWS * WANTED];
    const void *arrays[] = {x, wanted};
    struct muster_result few = {.size = sizeof few}, masked = {.size = sizeof masked};
    for (int i = 0; i < STEPS; i++) {
        const int rows = 1 + i % SAMPLES;
        batch(i, x, wanted);
        assert_int_equal(muster_trainer_train(a, arrays, rows, &few, &err), 0);
        for (int k = rows * T * WANTED; k < ROWS * WANTED; k++)
            wanted[k] = NAN;
        for (int k = rows * T * FEATURES; k < ROWS * FEATURES; k++)
            x[k] = 0;
        assert_int_equal(muster_trainer_train(b, arrays, SAMPLES, &masked, &err), 0);
        assert_true(few.loss == masked.loss && few.targets == masked.targets && isfinite(few.loss));
    }
    muster_trainer_close(&a);
    muster_trainer_close(&b);
    muster_model_free(m);
}

static void types_of_the_same_numbers_are_the_same(void **state)
{
    (void)state;
    double losses[3] = {0};
    for (int i = 0; i < 3; i++) {
        static const int32_t dtypes[] = {MUSTER_F32, MUSTER_F64, MUSTER_U8};
        struct muster_error err = {0};
        int32_t out;
        struct muster_model *m = model(dtypes[i], &out);
        struct muster_trainer *t = opened(NULL, m, settings);
        assert_non_null(t);
        for (int step = 0; step < STEPS; step++) {
            float x[ROWS * FEATURES], wanted[ROWS * WANTED];
            double wide[ROWS * FEATURES];
            uint8_t bytes[ROWS * FEATURES];
            batch(step, x, wanted);
            for (int k = 0; k < ROWS * FEATURES; k++)
                wide[k] = (double)x[k], bytes[k] = (uint8_t)x[k];
            const void *const of[] = {x, wide, bytes};
            struct muster_result result = {.size = sizeof result};
            assert_int_equal(muster_trainer_train(t, (const void *[]){of[i], wanted}, SAMPLES, &result, &err),
                             0);
            losses[i] = result.loss;
        }
        muster_trainer_close(&t);
        muster_model_free(m);
    }
    assert_true(losses[0] == losses[1] && losses[0] == losses[2]);
}

static void what_is_not_a_number_is_named(void **state)
{
    (void)state;
    struct muster_error err = {0};
    int32_t out;
    struct muster_model *m = model(MUSTER_F32, &out);
    struct muster_trainer *t = opened(NULL, m, settings);
    assert_non_null(t);
    float x[ROWS * FEATURES], wanted[ROWS * WANTED];
    const void *arrays[] = {x, wanted};
    batch(0, x, wanted);
    x[7] = NAN;
    assert_int_equal(muster_trainer_train(t, arrays, SAMPLES, NULL, &err), -1);
    assert_string_equal(err.text, "x[7] is nan, but must be finite");
    x[7] = 1;
    wanted[9] = -INFINITY;
    assert_int_equal(muster_trainer_train(t, arrays, SAMPLES, NULL, &err), -1);
    assert_string_equal(err.text, "wanted[9] is -inf, but must be finite, or NaN where it does not count");
    for (int i = 0; i < ROWS * WANTED; i++)
        wanted[i] = NAN;
    assert_int_equal(muster_trainer_train(t, arrays, SAMPLES, NULL, &err), -1);
    assert_string_equal(err.text, "no target of this step counts, on any rank");
    int32_t prompt = 1, token;
    assert_int_equal(muster_trainer_generate(t, &prompt, 1, 1, 1, 0, &token, 1, &err), -1);
    assert_string_equal(err.text, "model curve cannot be sampled from");
    batch(0, x, wanted);
    assert_int_equal(muster_trainer_train(t, arrays, SAMPLES, NULL, &err), 0); /* and the run goes on */
    muster_trainer_close(&t);
    muster_model_free(m);
}

/* ---- images with a label each ---- */

static void images_have_labels(void **state)
{
    (void)state;
    enum { PIXELS = 16, BATCH = 8 };
    struct muster_error err = {0};
    struct muster_model *m = muster_model_new("digits", NULL);
    int32_t image = muster_model_input(m, "image", MUSTER_U8, PIXELS);
    int32_t label = muster_model_input(m, "label", MUSTER_I32, 1);
    muster_layer(m, "up");
    int32_t h = muster_layer_norm(m, muster_values(m, image), "norm", 1e-5, 0);
    h = muster_activation(m, muster_linear(m, h, 32, "fc", 0.3, 0), "relu");
    muster_layer(m, "head");
    muster_cross_entropy(m, h, muster_parameter(m, "weight", LABELS, 32, MUSTER_NORMAL, 0.1, 0), label);
    const char *const texts[] = {"training.global_batch=8",    "training.sequence_length=1",
                                 "training.micro_batch=8",     "training.threads=1",
                                 "training.warmup_steps=0",    "training.learning_rate=0.01",
                                 "training.schedule=constant", NULL};
    struct muster_trainer *t = opened(NULL, m, texts);
    assert_non_null(t);
    double first = 0;
    struct muster_result result = {.size = sizeof result};
    for (int step = 0; step < 40; step++) {
        uint8_t images[BATCH * PIXELS];
        int32_t labels[BATCH];
        for (int i = 0; i < BATCH; i++) {
            labels[i] = (i + step) % LABELS;
            for (int p = 0; p < PIXELS; p++) /* the label's quarter is bright */
                images[i * PIXELS + p] =
                    (uint8_t)((p / LABELS == labels[i] ? 200 : 20) + (p * 3 + step) % 30);
        }
        assert_int_equal(muster_trainer_train(t, (const void *[]){images, labels}, BATCH, &result, &err), 0);
        first = step ? first : result.loss;
    }
    assert_true(first > 1 && result.loss < 0.1 * first);
    muster_trainer_close(&t);
    muster_model_free(m);
}

/* ---- two ranks ---- */

struct job {
    int port;
    struct muster_model *m;
    double losses[2][STEPS];
};

static int live(int rank, int size, void *context)
{
    struct job *job = context;
    struct muster_error err = {0};
    char variables[RANK_WORLD_VARIABLES];
    struct muster_world *world = rank_world_open(variables, rank, size, job->port, &err);
    struct muster_trainer *t = world ? opened(world, job->m, sharded) : NULL;
    int result = t ? 0 : -1;
    for (int step = 0; step < STEPS && !result; step++) {
        float x[ROWS * FEATURES], wanted[ROWS * WANTED];
        float mine[ROWS * FEATURES / 2], targets[ROWS * WANTED / 2];
        struct muster_result stats = {.size = sizeof stats};
        batch(step, x, wanted);
        wanted[1] = NAN; /* the ranks have different numbers of targets */
        for (int64_t i = 0; i < SAMPLES / 2; i++) {
            const int64_t row = muster_trainer_row(t, i);
            memcpy(mine + i * T * FEATURES, x + row * T * FEATURES, sizeof(float) * T * FEATURES);
            memcpy(targets + i * T * WANTED, wanted + row * T * WANTED, sizeof(float) * T * WANTED);
        }
        result = muster_trainer_train(t, (const void *[]){mine, targets}, SAMPLES / 2, &stats, &err);
        job->losses[rank][step] = stats.loss;
    }
    if (result)
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
    muster_trainer_close(&t);
    muster_world_close(&world);
    return result;
}

static void two_ranks_train_as_one(void **state)
{
    (void)state;
    struct muster_error err = {0};
    int32_t out;
    struct job job = {.port = test_free_port(), .m = model(MUSTER_F32, &out)};
    assert_int_equal(muster_model_check(job.m, &err), 0);
    assert_int_equal(rank_threads_run(2, live, &job), 0);
    struct muster_trainer *t = opened(NULL, job.m, settings);
    for (int step = 0; step < STEPS; step++) {
        float x[ROWS * FEATURES], wanted[ROWS * WANTED];
        struct muster_result one = {.size = sizeof one};
        batch(step, x, wanted);
        wanted[1] = NAN;
        assert_int_equal(muster_trainer_train(t, (const void *[]){x, wanted}, SAMPLES, &one, &err), 0);
        assert_true(job.losses[0][step] == job.losses[1][step]);
        assert_true(fabs(job.losses[0][step] / one.loss - 1) < 1e-4); /* sums in another order */
    }
    muster_trainer_close(&t);
    muster_model_free(job.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_and_counts),
        cmocka_unit_test(samples_that_are_not_there_do_not_count),
        cmocka_unit_test(types_of_the_same_numbers_are_the_same),
        cmocka_unit_test(what_is_not_a_number_is_named),
        cmocka_unit_test(images_have_labels),
        cmocka_unit_test(two_ranks_train_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
