/* pictures.c - a small convolutional net that tells three kinds of pictures apart, on any number of ranks.
 *
 *     cc pictures.c -o pictures $(pkg-config --cflags --libs muster)
 *     muster run --standalone --nproc_per_node=2 ./pictures pictures.safetensors
 *
 * A picture is a row of planes, and training.sequence_length is 1. The operations keep its shape up to date.
 */
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 12, PIXELS = SIDE * SIDE, KINDS = 3, SAMPLES = 32, STEPS = 80 };

static struct muster_error err;

static void must(int ok)
{
    if (ok)
        return;
    fprintf(stderr, "pictures: %s\n", err.text);
    exit(1);
}

static struct muster_model *net(void)
{
    int32_t shape[3] = {1, SIDE, SIDE}; /* channels, height, width */
    struct muster_model *m = muster_model_new("pictures", &err);
    int32_t pictures = muster_model_input(m, "pictures", MUSTER_F32, PIXELS);
    int32_t labels = muster_model_input(m, "labels", MUSTER_I32, 1);
    muster_layer(m, "first");
    int32_t x = muster_values(m, pictures);
    x = muster_relu(m, muster_conv2d(m, x, shape, 8, 3, 1, 1, "conv", 0));
    x = muster_max_pool2d(m, x, shape, 2, 2, 0); /* 8 planes of 6 x 6 */
    muster_layer(m, "second");
    x = muster_relu(m, muster_conv2d(m, x, shape, 16, 3, 1, 1, "conv", 0));
    x = muster_avg_pool2d(m, x, shape, 2, 2); /* 16 planes of 2 x 2 */
    muster_layer(m, "head");
    muster_classes(m, x, KINDS, "fc", labels);
    return m; /* muster_model_check reports the first mistake */
}

/* A row, a column or a diagonal that is lit, on a background of noise. */
static void samples(int64_t first, int64_t count, float *pictures, int32_t *labels)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t noise = (uint32_t)(first + i) * 2654435761u + 1;
        const int kind = (int)((first + i) % KINDS), place = (int)((noise >> 8) % SIDE);
        labels[i] = kind;
        for (int at = 0; at < PIXELS; at++) {
            const int row = at / SIDE, column = at % SIDE;
            const int lit = kind == 0   ? row == place
                            : kind == 1 ? column == place
                                        : (row + column) % SIDE == place;
            noise = noise * 1664525u + 1013904223u;
            pictures[i * PIXELS + at] = (float)lit + (float)(noise >> 8) / (float)(1 << 24) - 0.5f;
        }
    }
}

int main(int argc, char **argv)
{
    static float pictures[SAMPLES * PIXELS];
    static int32_t labels[SAMPLES];
    const void *arrays[] = {pictures, labels};
    const char *settings[] = {
        "training.strategy=FULL_SHARD", "training.schedule=constant", "training.learning_rate=1e-2",
        "training.warmup_steps=0",      "training.sequence_length=1", "training.micro_batch=16",
        "training.global_batch=32",     "training.weight_decay=0",    NULL};
    struct muster_world *world = muster_world_open(NULL, &err);
    must(world != NULL);
    struct muster_model *model = net();
    must(muster_model_check(model, &err) == 0);
    struct muster_trainer *trainer = muster_trainer_open(world, model, settings, &err);
    must(trainer != NULL);
    const int64_t mine = muster_trainer_state_now(trainer).samples; /* in each step */
    const int rank = muster_world_rank(world);
    for (int64_t step = 0; step < STEPS; step++) {
        struct muster_result result = {.size = sizeof result};
        samples(step * SAMPLES + rank * mine, mine, pictures, labels);
        must(muster_trainer_train(trainer, arrays, mine, &result, &err) == 0);
        if (rank == 0 && step % 40 == 39)
            printf("step %d loss %.4f correct %.0f of %d\n", (int)step + 1, result.loss, result.correct,
                   SAMPLES);
    }
    double sums[2]; /* sums over all ranks: losses, pictures */
    samples(100000 + rank * SAMPLES, SAMPLES, pictures, labels);
    must(muster_trainer_evaluate(trainer, arrays, rank < 2 ? SAMPLES : 0, sums, &err) == 0);
    const double correct = muster_trainer_state_now(trainer).evaluated_correct;
    if (rank == 0)
        printf("validation: %.0f of %.0f pictures are right\n", correct, sums[1]);
    must(muster_trainer_export(trainer, argc > 1 ? argv[1] : "pictures.safetensors", "safetensors", &err) ==
         0);
    muster_trainer_close(&trainer);
    muster_model_free(model);
    muster_world_close(&world);
    return 0;
}
