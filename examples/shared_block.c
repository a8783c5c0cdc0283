/* shared_block.c - a transformer whose blocks share one set of parameters, trained on any number of ranks.
 *
 *     cc shared_block.c -o shared_block $(pkg-config --cflags --libs muster)
 *     muster run --standalone --nproc_per_node=2 ./shared_block shared_block.safetensors
 *
 * The functions ..._by take handles of parameters: a handle that several layers use is one tied parameter. */
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCABULARY = 64, WIDTH = 32, HEADS = 2, POSITIONS = 16, SAMPLES = 8, STEPS = 60 };

static struct muster_error err;

static void must(int ok)
{
    if (ok)
        return;
    fprintf(stderr, "shared_block: %s\n", err.text);
    exit(1);
}

struct shared {
    int32_t norm, q, k, v, out, gate, up, down;
};

static int32_t matrix(struct muster_model *m, const char *name, int64_t rows, int64_t columns)
{
    return muster_parameter(m, name, rows, columns, MUSTER_NORMAL, 0.1, 0);
}

/* The results of attention and MLP are halved before they are added. */
static int32_t block(struct muster_model *m, const char *name, int32_t x, const struct shared *s)
{
    muster_layer(m, name);
    int32_t n = muster_rms_norm_by(m, x, s->norm, 1e-5), none = -1;
    int32_t q = muster_rotary_scaled(m, muster_linear_by(m, n, s->q, none), HEADS, 1e4, "linear", 2, 0, 0, 0);
    int32_t k = muster_rotary_scaled(m, muster_linear_by(m, n, s->k, none), HEADS, 1e4, "linear", 2, 0, 0, 0);
    int32_t h = muster_attention(m, q, k, muster_linear_by(m, n, s->v, none), HEADS, HEADS, MUSTER_CAUSAL);
    x = muster_add(m, x, muster_scale(m, muster_linear_by(m, h, s->out, none), 0.5));
    n = muster_rms_norm_by(m, x, s->norm, 1e-5);
    h = muster_swiglu(m, muster_linear_by(m, n, s->gate, none), muster_linear_by(m, n, s->up, none));
    return muster_add(m, x, muster_scale(m, muster_linear_by(m, h, s->down, none), 0.5));
}

static struct muster_model *shared_model(void)
{
    struct muster_model *m = muster_model_new("shared", &err);
    int32_t tokens = muster_model_input(m, "tokens", MUSTER_I32, 1);
    int32_t targets = muster_model_input(m, "targets", MUSTER_I32, 1);
    muster_layer(m, "embedding");
    int32_t table = matrix(m, "table", VOCABULARY, WIDTH);
    int32_t x = muster_embedding(m, tokens, table, -1);
    muster_prefix(m, "shared."); /* the parameters are called shared.norm, shared.q, ... */
    struct shared s = {.norm = muster_parameter(m, "norm", WIDTH, 0, MUSTER_ONE, 0, 0)};
    s.q = matrix(m, "q", WIDTH, WIDTH), s.k = matrix(m, "k", WIDTH, WIDTH);
    s.v = matrix(m, "v", WIDTH, WIDTH), s.out = matrix(m, "out", WIDTH, WIDTH);
    s.gate = matrix(m, "gate", 2 * WIDTH, WIDTH), s.up = matrix(m, "up", 2 * WIDTH, WIDTH);
    s.down = matrix(m, "down", WIDTH, 2 * WIDTH);
    x = block(m, "block.2", block(m, "block.1", block(m, "block.0", x, &s), &s), &s);
    muster_layer(m, "head");
    int32_t weight = muster_parameter(m, "norm", WIDTH, 0, MUSTER_ONE, 0, 0);
    int32_t bias = muster_parameter(m, "shift", WIDTH, 0, MUSTER_ZERO, 0, 0);
    muster_cross_entropy(m, muster_layer_norm_by(m, x, weight, bias, 1e-5), table, targets);
    return m;
}

int main(int argc, char **argv)
{
    static int32_t tokens[SAMPLES * POSITIONS], targets[SAMPLES * POSITIONS];
    const void *arrays[] = {tokens, targets};
    const char *settings[] = {
        "training.strategy=FULL_SHARD", "training.optimizer=AdamW",    "training.schedule=constant",
        "training.learning_rate=1e-2",  "training.warmup_steps=0",     "training.micro_batch=4",
        "training.global_batch=8",      "training.sequence_length=16", NULL};
    struct muster_world *world = muster_world_open(NULL, &err);
    must(world != NULL);
    struct muster_model *model = shared_model();
    struct muster_trainer *trainer = muster_trainer_open(world, model, settings, &err);
    must(trainer != NULL);
    for (int64_t step = 0; step < STEPS; step++) {
        const struct muster_trainer_state state = muster_trainer_state_now(trainer);
        for (int64_t i = 0; i < state.samples * POSITIONS; i++) { /* a chain: a token and the one before it */
            const int64_t sample = state.taken + muster_trainer_row(trainer, i / POSITIONS);
            tokens[i] = i % POSITIONS ? targets[i - 1] : (int32_t)(sample * 7 % VOCABULARY);
            targets[i] = (tokens[i] * 5 + 3) % VOCABULARY;
        }
        must(muster_trainer_train(trainer, arrays, state.samples, NULL, &err) == 0);
        if (muster_world_rank(world) == 0 && step % 20 == 19)
            printf("step %d loss %.6f\n", (int)step + 1, muster_trainer_state_now(trainer).loss);
    }
    must(muster_trainer_export(trainer, argc > 1 ? argv[1] : "shared_block.safetensors", "safetensors",
                               &err) == 0);
    muster_trainer_close(&trainer);
    muster_model_free(model);
    muster_world_close(&world);
    return 0;
}
