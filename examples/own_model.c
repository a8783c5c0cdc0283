/* own_model.c - a model of one's own, trained on any number of ranks and exported.
 *
 *     cc own_model.c -o own_model $(pkg-config --cflags --libs muster)
 *     muster run --standalone --nproc_per_node=2 ./own_model own_model.safetensors
 *
 * The second argument, where it is there, is the number of steps.
 * mpirun, srun or torchrun --no-python start it as well; without any of them it is a world of one. */
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCABULARY = 256, WIDTH = 64, POSITIONS = 32, HEADS = 4, SAMPLES = 8, STEPS = 30 };

static struct muster_error err;

static void must(int ok)
{
    if (ok)
        return;
    fprintf(stderr, "own_model: %s\n", err.text);
    exit(1);
}

static int32_t block(struct muster_model *m, const char *name, int32_t x)
{
    muster_layer(m, name); /* the unit that is gathered, computed and freed */
    int32_t h = muster_linear(m, muster_layer_norm(m, x, "ln_1", 1e-5, 0), 3 * WIDTH, "qkv", 0.02, 0);
    h = muster_attention_packed(m, h, HEADS, HEADS, MUSTER_CAUSAL);
    x = muster_add(m, x, muster_linear(m, h, WIDTH, "out", 0.02, 0));
    h = muster_linear(m, muster_layer_norm(m, x, "ln_2", 1e-5, 0), 4 * WIDTH, "up", 0.02, 0);
    return muster_add(m, x, muster_linear(m, muster_activation(m, h, "gelu"), WIDTH, "down", 0.02, 0));
}

static struct muster_model *own_model(void)
{
    struct muster_model *m = muster_model_new("own", &err);
    int32_t tokens = muster_model_input(m, "tokens", MUSTER_I32, 1);
    int32_t targets = muster_model_input(m, "targets", MUSTER_I32, 1);
    muster_layer(m, "embedding");
    int32_t table = muster_parameter(m, "table", VOCABULARY, WIDTH, MUSTER_NORMAL, 0.02, 0);
    int32_t place = muster_parameter(m, "positions", POSITIONS, WIDTH, MUSTER_NORMAL, 0.02, MUSTER_FROZEN);
    int32_t x = muster_embedding(m, tokens, table, place);
    x = block(m, "block.0", x);
    x = block(m, "block.1", x);
    muster_layer(m, "head");
    muster_cross_entropy(m, x, table, targets); /* the table again: tied */
    return m;                                   /* muster_model_check reports the first mistake */
}

/* Sample number `first` and those after it, of a chain in which a token follows from the one before. */
static void samples(int64_t first, int64_t count, int32_t *tokens, int32_t *targets)
{
    for (int64_t i = 0; i < count * POSITIONS; i++) {
        tokens[i] = i % POSITIONS ? targets[i - 1] : (int32_t)((first + i / POSITIONS) * 7 % VOCABULARY);
        targets[i] = (tokens[i] * 5 + 3) % VOCABULARY;
    }
}

int main(int argc, char **argv)
{
    static int32_t tokens[SAMPLES * POSITIONS], targets[SAMPLES * POSITIONS];
    const void *arrays[] = {tokens, targets};
    const char *settings[] = {
        "training.strategy=FULL_SHARD", "training.optimizer=AdamW",    "training.schedule=constant",
        "training.learning_rate=3e-3",  "training.warmup_steps=0",     "training.micro_batch=1",
        "training.global_batch=8",      "training.sequence_length=32", NULL};
    struct muster_world *world = muster_world_open(NULL, &err);
    must(world != NULL);
    struct muster_model *model = own_model();
    must(muster_model_check(model, &err) == 0);
    struct muster_trainer *trainer = muster_trainer_open(world, model, settings, &err);
    must(trainer != NULL);
    const int64_t mine = muster_trainer_state_now(trainer).samples; /* in each step */
    const int rank = muster_world_rank(world);
    const int64_t steps = argc > 2 ? atoll(argv[2]) : STEPS;
    for (int64_t step = 0; step < steps; step++) {
        struct muster_result result = {.size = sizeof result};
        samples(step * SAMPLES + rank * mine, mine, tokens, targets);
        must(muster_trainer_train(trainer, arrays, mine, &result, &err) == 0);
        must(muster_heartbeat(step, &err) == 0);
        if (rank == 0 && step % 10 == 9)
            printf("step %d loss %.6f\n", (int)step + 1, result.loss);
    }
    double sums[2]; /* sums over all ranks: losses, targets */
    samples(1000 + rank, 1, tokens, targets);
    must(muster_trainer_evaluate(trainer, arrays, rank < 2, sums, &err) == 0);
    if (rank == 0)
        printf("validation loss %.8f of %.0f targets\n", sums[0] / sums[1], sums[1]);
    must(muster_trainer_export(trainer, argc > 1 ? argv[1] : "own_model.safetensors", "safetensors", &err) ==
         0);
    muster_trainer_close(&trainer);
    muster_model_free(model);
    muster_world_close(&world);
    return 0;
}
