/* regression.c - a model of numbers instead of tokens: a curve is learnt on any number of ranks.
 *
 *     cc regression.c -o regression $(pkg-config --cflags --libs muster)
 *     muster run --standalone --nproc_per_node=2 ./regression regression.safetensors
 *
 * A sample is one row (training.sequence_length=1): three features and the number that belongs to them. */
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>

enum { FEATURES = 3, WIDTH = 64, SAMPLES = 32, STEPS = 300 };

static struct muster_error err;

static void must(int ok)
{
    if (ok)
        return;
    fprintf(stderr, "regression: %s\n", err.text);
    exit(1);
}

static struct muster_model *own_model(void)
{
    struct muster_model *m = muster_model_new("regression", &err);
    int32_t features = muster_model_input(m, "features", MUSTER_F32, FEATURES);
    int32_t wanted = muster_model_input(m, "wanted", MUSTER_F32, 1);
    muster_layer(m, "up");
    int32_t x =
        muster_activation(m, muster_linear(m, muster_values(m, features), WIDTH, "fc", 0.5, 0), "tanh");
    muster_layer(m, "middle");
    x = muster_activation(m, muster_linear(m, x, WIDTH, "fc", 0.15, 0), "tanh");
    muster_layer(m, "down");
    muster_squared_error(m, muster_linear(m, x, 1, "fc", 0.1, 0), wanted); /* NaN there: does not count */
    return m; /* muster_model_check reports the first mistake */
}

/* Samples from number `first` on: points of a grid in -1..1, and x y + z^2 - 0.5 of each. */
static void samples(int64_t first, int64_t count, float *features, float *wanted)
{
    for (int64_t i = 0; i < count; i++) {
        double p[FEATURES];
        for (int k = 0; k < FEATURES; k++)
            features[i * FEATURES + k] = (float)(p[k] = (double)((first + i) * (17 + 6 * k) % 41) / 20 - 1);
        wanted[i] = (float)(p[0] * p[1] + p[2] * p[2] - 0.5);
    }
}

int main(int argc, char **argv)
{
    static float features[SAMPLES * FEATURES], wanted[SAMPLES];
    const void *arrays[] = {features, wanted};
    const char *settings[] = {
        "training.strategy=FULL_SHARD", "training.schedule=constant", "training.learning_rate=5e-3",
        "training.warmup_steps=0",      "training.sequence_length=1", "training.micro_batch=16",
        "training.global_batch=32",     "training.weight_decay=0",    NULL};
    struct muster_world *world = muster_world_open(NULL, &err);
    must(world != NULL);
    struct muster_model *model = own_model();
    must(muster_model_check(model, &err) == 0);
    struct muster_trainer *trainer = muster_trainer_open(world, model, settings, &err);
    must(trainer != NULL);
    const int64_t mine = muster_trainer_state_now(trainer).samples; /* in each step */
    const int rank = muster_world_rank(world);
    for (int64_t step = 0; step < STEPS; step++) {
        struct muster_result result = {.size = sizeof result};
        samples(step * SAMPLES + rank * mine, mine, features, wanted);
        must(muster_trainer_train(trainer, arrays, mine, &result, &err) == 0);
        if (rank == 0 && step % 100 == 99)
            printf("step %d loss %.6f\n", (int)step + 1, result.loss);
    }
    double sums[2]; /* sums over all ranks: squared errors, targets */
    samples(100000 + rank * 8, 8, features, wanted);
    must(muster_trainer_evaluate(trainer, arrays, rank < 2 ? 8 : 0, sums, &err) == 0);
    if (rank == 0)
        printf("validation loss %.8f of %.0f targets\n", sums[0] / sums[1], sums[1]);
    must(muster_trainer_export(trainer, argc > 1 ? argv[1] : "regression.safetensors", "safetensors", &err) ==
         0);
    muster_trainer_close(&trainer);
    muster_model_free(model);
    muster_world_close(&world);
    return 0;
}
