/* api_trainer_test.c - training runs of models by handles, as a user of libmuster.so sees them, with nothing
 * but muster.h: alone and as two ranks that are threads. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rendezvous/failure/failure.h"
#include "runtime/include/muster.h"
#include "tests/support/free_port.h"
#include "tests/support/rank_threads.h"
#include "tests/unit/api/rank_world.h"

enum { C = 16, VOCABULARY = 24, T = 8, SAMPLES = 4, TOKENS = SAMPLES * T, STEPS = 12 };

/* A model of its own: a tied table, frozen positions, a norm that never decays. */
struct mine {
    struct muster_model *m;
    int32_t embedded, logits;
};

static struct mine model(double dropout)
{
    struct mine mine = {.m = muster_model_new("mine", NULL)};
    struct muster_model *m = mine.m;
    int32_t tokens = muster_model_input(m, "tokens", MUSTER_I32, 1);
    int32_t targets = muster_model_input(m, "targets", MUSTER_I32, 1);
    muster_layer(m, "embedding");
    int32_t table = muster_parameter(m, "table", VOCABULARY, C, MUSTER_NORMAL, 0.1, 0);
    int32_t positions = muster_parameter(m, "positions", T, C, MUSTER_NORMAL, 0.1, MUSTER_FROZEN);
    mine.embedded = muster_embedding(m, tokens, table, positions);
    muster_layer(m, "block");
    int32_t h = muster_rms_norm(m, mine.embedded, "norm", 1e-5, MUSTER_NO_DECAY);
    int32_t q = muster_rotary(m, muster_linear(m, h, C, "q", 0.1, MUSTER_NO_BIAS), 2, 10000);
    int32_t k = muster_rotary(m, muster_linear(m, h, C, "k", 0.1, MUSTER_NO_BIAS), 2, 10000);
    int32_t v = muster_linear(m, h, C, "v", 0.1, MUSTER_NO_BIAS);
    h = muster_dropout(m, muster_attention(m, q, k, v, 2, 2, MUSTER_CAUSAL), dropout);
    int32_t x = muster_add(m, mine.embedded, muster_linear(m, h, C, "out", 0.1, 0));
    muster_layer(m, "head");
    mine.logits = muster_cross_entropy(m, x, table, targets);
    return mine;
}

#define COMMON                                                                                               \
    "training.global_batch=4", "training.sequence_length=8", "training.threads=1",                           \
        "training.warmup_steps=0", "training.learning_rate=0.02", "training.schedule=constant",              \
        "training.seed=5"
static const char *const settings[] = {COMMON, "training.micro_batch=2", NULL};
static const char *const one_at_a_time[] = {COMMON, "training.micro_batch=1", NULL};

static void batch(int step, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (i * 5 + step * 7 + i / T) % VOCABULARY;
        targets[i] = (tokens[i] * 3 + 1) % VOCABULARY; /* a function of the token: soon learnt */
    }
}

static struct muster_trainer *opened(struct muster_world *world, struct mine mine, const char *const *texts)
{
    struct muster_error err = {0};
    struct muster_trainer *trainer = muster_trainer_open(world, mine.m, texts, &err);
    if (!trainer)
        fprintf(stderr, "%s\n", err.text);
    return trainer;
}

static int step(struct muster_trainer *t, const int32_t *tokens, const int32_t *targets, int64_t rows,
                double *loss)
{
    struct muster_error err = {0};
    struct muster_result result = {.size = sizeof result};
    if (muster_trainer_train(t, (const void *[]){tokens, targets}, rows, &result, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    *loss = result.loss;
    return 0;
}

/* ---- alone ---- */

static void trains_tied_and_frozen_parameters(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct mine mine = model(0);
    struct muster_trainer *t = opened(NULL, mine, settings);
    assert_non_null(t);
    muster_model_free(mine.m); /* the trainer keeps its own copy */
    int32_t tokens[TOKENS], targets[TOKENS], frozen = muster_trainer_parameter(t, "embedding.positions"),
                                             table = muster_trainer_parameter(t, "embedding.table");
    float before[T * C], after[T * C], old[VOCABULARY * C], now[VOCABULARY * C];
    assert_int_equal(muster_trainer_get(t, frozen, before, &err), 0);
    assert_int_equal(muster_trainer_get(t, table, old, &err), 0);
    double first = 0, loss = 0;
    for (int i = 0; i < 60; i++) {
        batch(i, tokens, targets);
        assert_int_equal(step(t, tokens, targets, SAMPLES, i ? &loss : &first), 0);
    }
    assert_true(first > 2.5 && loss < 0.5 * first);
    assert_true(muster_trainer_state_now(t).loss == loss && muster_trainer_state_now(t).steps == 60);
    assert_true(muster_trainer_state_now(t).learning_rate == 0.02 &&
                muster_trainer_state_now(t).grad_norm > 0);
    assert_true(muster_trainer_state_now(t).targets == TOKENS &&
                muster_trainer_state_now(t).samples == SAMPLES);
    assert_true(muster_trainer_state_now(t).planned_bytes > 0);
    assert_int_equal(muster_trainer_get(t, frozen, after, &err), 0);
    assert_int_equal(muster_trainer_get(t, table, now, &err), 0);
    assert_memory_equal(before, after, sizeof before);
    assert_memory_not_equal(old, now, sizeof old);
    muster_trainer_close(&t);
    assert_null(t);
    muster_trainer_close(&t);
    muster_trainer_close(NULL);
}

static void parameters_are_named_and_exchanged(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct mine mine = model(0);
    struct muster_trainer *t = opened(NULL, mine, settings);
    assert_non_null(t);
    assert_int_equal(muster_trainer_parameters(t), 8);
    assert_string_equal(muster_trainer_parameter_name(t, 3), "block.q.weight");
    assert_int_equal(muster_trainer_parameter(t, "block.q.weight"), 3);
    assert_int_equal(muster_trainer_parameter(t, "block.x"), -1);
    assert_null(muster_trainer_parameter_name(t, 99));
    int64_t shape[2];
    assert_int_equal(muster_trainer_parameter_shape(t, 0, shape), 2);
    assert_true(shape[0] == VOCABULARY && shape[1] == C);
    assert_int_equal(muster_trainer_parameter_shape(t, 2, shape), 1);
    assert_int_equal(muster_trainer_parameter_shape(t, -1, shape), -1);
    assert_int_equal(muster_trainer_parameter_elements(t, 0), VOCABULARY * C);
    float values[VOCABULARY * C], back[VOCABULARY * C];
    for (int i = 0; i < VOCABULARY * C; i++)
        values[i] = (float)i * 0.001f;
    assert_int_equal(muster_trainer_put(t, 0, values, &err), 0);
    assert_int_equal(muster_trainer_get(t, 0, back, &err), 0);
    assert_memory_equal(values, back, sizeof values);
    assert_int_equal(muster_trainer_get(t, 99, back, &err), -1);
    muster_trainer_close(&t);
    muster_model_free(mine.m);
}

/* The mean loss that logits give, of the targets that count. */
static double loss_of(const float *logits, const int32_t *targets, int rows)
{
    double sum = 0;
    int count = 0;
    for (int row = 0; row < rows; row++) {
        double total = 0;
        if (targets[row] < 0)
            continue;
        for (int i = 0; i < VOCABULARY; i++)
            total += exp((double)logits[row * VOCABULARY + i]);
        sum += log(total) - (double)logits[row * VOCABULARY + targets[row]];
        count++;
    }
    return sum / count;
}

static void forward_gives_sums_and_values(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct mine mine = model(0.5); /* which drops nothing here */
    struct muster_trainer *t = opened(NULL, mine, settings);
    assert_non_null(t);
    int32_t tokens[TOKENS], targets[TOKENS];
    batch(3, tokens, targets);
    targets[1] = targets[5] = -1;
    const void *arrays[] = {tokens, targets};
    float logits[2 * T * VOCABULARY + 1], embedded[T * C + 1], table[VOCABULARY * C], positions[T * C];
    double sums[2], part[2];
    logits[2 * T * VOCABULARY] = embedded[T * C] = 77;
    assert_int_equal(muster_trainer_forward(t, arrays, 2, mine.logits, logits, sums, &err), 0);
    assert_true(sums[1] == 2 * T - 2);
    assert_true(fabs(loss_of(logits, targets, 2 * T) / (sums[0] / sums[1]) - 1) < 1e-6);
    assert_true(logits[2 * T * VOCABULARY] == 77);

    /* one sample of two: the sums of the rest, the value's own rows alone */
    assert_int_equal(muster_trainer_forward(t, arrays, 1, mine.embedded, embedded, part, &err), 0);
    assert_true(part[1] == T - 2 && embedded[T * C] == 77);
    assert_true(fabs(loss_of(logits, targets, T) / (part[0] / part[1]) - 1) < 1e-6);
    assert_int_equal(muster_trainer_get(t, 0, table, &err), 0);
    assert_int_equal(muster_trainer_get(t, 1, positions, &err), 0);
    for (int i = 0; i < T * C; i++)
        assert_true(embedded[i] == table[tokens[i / C] * C + i % C] + positions[i]);
    assert_int_equal(muster_trainer_forward(t, arrays, 0, -1, NULL, part, &err), 0);
    assert_true(part[0] == 0 && part[1] == 0);

    assert_int_equal(muster_trainer_forward(t, arrays, 3, -1, NULL, sums, &err), -1);
    assert_string_equal(err.text, "3 samples were given; there may be 0 to 2");
    assert_int_equal(muster_trainer_forward(t, arrays, 2, 12345, logits, sums, &err), -1);
    assert_string_equal(err.text, "value 12345 is none of an operation of model mine");
    assert_int_equal(muster_trainer_forward(t, arrays, 2, mine.logits, NULL, sums, &err), -1);
    muster_trainer_close(&t);
    muster_model_free(mine.m);
}

/* In a step of fewer samples the last targets do not count. */
static void samples_that_are_not_there_do_not_count(void **state)
{
    (void)state;
    struct mine mine = model(0);
    struct muster_trainer *a = opened(NULL, mine, settings), *b = opened(NULL, mine, settings);
    assert_true(a && b);
    int32_t tokens[TOKENS], targets[TOKENS], all_tokens[TOKENS], all_targets[TOKENS];
    for (int i = 0; i < STEPS; i++) {
        int rows = 1 + i % SAMPLES;
        double few = 0, masked = 1;
        batch(i, tokens, targets);
        for (int k = 0; k < TOKENS; k++) {
            all_tokens[k] = k < rows * T ? tokens[k] : 0;
            all_targets[k] = k < rows * T ? targets[k] : -1;
        }
        assert_int_equal(step(a, tokens, targets, rows, &few), 0);
        assert_int_equal(step(b, all_tokens, all_targets, SAMPLES, &masked), 0);
        assert_true(few == masked);
    }
    double loss;
    struct muster_error err = {0};
    for (int i = 0; i < TOKENS; i++)
        targets[i] = -1;
    assert_int_equal(muster_trainer_train(a, (const void *[]){tokens, targets}, SAMPLES, NULL, &err), -1);
    assert_string_equal(err.text, "no target of this step counts, on any rank");
    batch(0, tokens, targets);
    assert_int_equal(step(a, tokens, targets, SAMPLES, &loss), 0); /* and the run goes on */
    muster_trainer_close(&a);
    muster_trainer_close(&b);
    muster_model_free(mine.m);
}

static void values_of_steps_can_be_set(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct mine mine = model(0);
    struct muster_trainer *t = opened(NULL, mine, settings);
    assert_non_null(t);
    int32_t tokens[TOKENS], targets[TOKENS];
    struct muster_result result = {.size = sizeof result};
    float before[VOCABULARY * C], after[VOCABULARY * C];
    batch(0, tokens, targets);
    const void *arrays[] = {tokens, targets};
    assert_int_equal(muster_trainer_get(t, 0, before, &err), 0);
    assert_int_equal(muster_trainer_set(t, "learning_rate", 0, &err), 0);
    assert_int_equal(muster_trainer_set(t, "stop", 1, &err), 0);
    assert_int_equal(muster_trainer_train(t, arrays, SAMPLES, &result, &err), 0);
    assert_true(result.learning_rate == 0 && result.stop && result.targets == TOKENS);
    assert_int_equal(muster_trainer_get(t, 0, after, &err), 0);
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(muster_trainer_set(t, "learning_rate", NAN, &err), 0);
    assert_int_equal(muster_trainer_set(t, "stop", 0, &err), 0);
    assert_int_equal(muster_trainer_train(t, arrays, SAMPLES, &result, &err), 0);
    assert_true(result.learning_rate == 0.02 && !result.stop);

    assert_int_equal(muster_trainer_set(t, "rate", 1, &err), -1);
    assert_non_null(strstr(err.text, "'rate' cannot be set; there are learning_rate"));
    assert_int_equal(muster_trainer_set(t, "beta1", -1, &err), -1);
    assert_int_equal(muster_trainer_set(t, "beta2", 1.5, &err), -1);
    assert_string_equal(err.text, "beta2 is 1.5, but must be below 1");
    assert_int_equal(muster_trainer_set(t, "targets", NAN, &err), -1);
    assert_int_equal(muster_trainer_set(t, "next_targets", 1e30, &err), -1);
    muster_trainer_close(&t);
    t = opened(NULL, mine,
               (const char *const[]){COMMON, "training.micro_batch=2", "training.clip_norm=0", NULL});
    assert_int_equal(muster_trainer_set(t, "clip_norm", 1, &err), -1);
    assert_non_null(strstr(err.text, "training.clip_norm=0"));
    muster_trainer_close(&t);
    muster_model_free(mine.m);
}

static void optimizers_and_schedules_are_settings(void **state)
{
    (void)state;
    static const char *const chosen[][3] = {
        {"training.optimizer=SGD", "training.momentum=0.9", "training.nesterov=true"},
        {"training.optimizer=Adam", "training.decay=all", "training.no_decay=*norm*"},
        {"training.optimizer=AdamW", "training.frozen=block.q.*", "training.frozen=block.k.*"},
    };
    struct mine mine = model(0);
    double losses[3] = {0};
    for (int i = 0; i < 3; i++) {
        const char *const texts[] = {
            COMMON, chosen[i][0], chosen[i][1], chosen[i][2], "training.micro_batch=2", NULL};
        struct muster_trainer *t = opened(NULL, mine, texts);
        assert_non_null(t);
        int32_t tokens[TOKENS], targets[TOKENS];
        for (int k = 0; k < STEPS; k++) {
            batch(k, tokens, targets);
            assert_int_equal(step(t, tokens, targets, SAMPLES, &losses[i]), 0);
        }
        muster_trainer_close(&t);
    }
    assert_true(losses[0] != losses[1] && losses[1] != losses[2]);
    muster_model_free(mine.m);
}

static void exports_and_generates(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct mine mine = model(0);
    struct muster_trainer *t = opened(NULL, mine, settings);
    assert_non_null(t);
    char path[] = "/tmp/muster-api-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(muster_trainer_export(t, path, "safetensors", &err), 0);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char head[512] = {0};
    assert_int_equal(fread(head, 1, sizeof head - 1, file), sizeof head - 1);
    assert_non_null(strstr(head + 8, "\"numerics\""));
    (void)fclose(file);

    struct muster_trainer *other = opened(
        NULL, mine, (const char *const[]){"training.micro_batch=1", "training.sequence_length=8", NULL});
    float values[VOCABULARY * C], loaded[VOCABULARY * C];
    assert_int_equal(muster_trainer_get(t, 0, values, &err), 0);
    assert_int_equal(muster_trainer_get(other, 0, loaded, &err), 0);
    assert_memory_not_equal(values, loaded, sizeof values); /* the values of another seed */
    if (muster_trainer_load(other, path, &err))
        fail_msg("%s", err.text);
    assert_int_equal(muster_trainer_get(other, 0, loaded, &err), 0);
    assert_memory_equal(values, loaded, sizeof values);
    assert_int_equal(muster_trainer_load(other, "/nowhere/at/all", &err), -1);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
    muster_trainer_close(&other);
    (void)remove(path);
    assert_int_equal(muster_trainer_export(t, "/nowhere/at/all", "safetensors", &err), -1);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
    assert_int_equal(muster_trainer_export(t, path, "docx", &err), -1);
    assert_non_null(strstr(err.text, "format 'docx'"));

    int32_t prompt[] = {1, 2}, drawn[5] = {-1, -1, -1, -1, -1}, again[5];
    assert_int_equal(muster_trainer_generate(t, prompt, 2, 1.0, 7, 10, drawn, 5, &err), 0);
    assert_int_equal(muster_trainer_generate(t, prompt, 2, 1.0, 7, 10, again, 5, &err), 0);
    assert_memory_equal(drawn, again, sizeof drawn);
    for (int i = 0; i < 5; i++)
        assert_true(drawn[i] >= 0 && drawn[i] < 10);
    assert_int_equal(muster_trainer_generate(t, (int32_t[]){99}, 1, 1.0, 7, 0, drawn, 5, &err), -1);
    assert_non_null(strstr(err.text, "token 0 of the prompt is 99"));
    muster_trainer_close(&t);
    muster_model_free(mine.m);
}

static void plans_are_texts(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct mine mine = model(0);
    const char *const texts[] = {"training.micro_batch=1", "training.global_batch=64",
                                 "training.sequence_length=8", NULL};
    char text[4096], cut[20];
    int64_t length = muster_plan_text(mine.m, 64, texts, MUSTER_PLAN_SUMMARY, text, sizeof text, &err);
    if (length < 0)
        fail_msg("%s", err.text);
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, "param_shard"));
    assert_int_equal(muster_plan_text(mine.m, 64, texts, MUSTER_PLAN_SUMMARY, cut, sizeof cut, &err), length);
    assert_true(strlen(cut) == sizeof cut - 1 && !strncmp(cut, text, sizeof cut - 1));
    assert_int_equal(muster_plan_text(mine.m, 64, texts, MUSTER_PLAN_SUMMARY, NULL, 0, &err), length);
    assert_true(muster_plan_text(mine.m, 64, texts, MUSTER_PLAN_WHOLE, NULL, 0, &err) > length);
    assert_true(muster_plan_text(mine.m, 64, texts, MUSTER_PLAN_JSON, text, sizeof text, &err) > 0);
    assert_int_equal(text[0], '{');
    assert_string_equal(text + strlen(text) - 2, "}\n");
    char members[sizeof text];
    assert_true(muster_plan_text(mine.m, 64, texts, MUSTER_PLAN_MEMBERS, members, sizeof members, &err) > 0);
    text[strlen(text) - 2] = '\0'; /* but for the braces the same */
    assert_string_equal(members, text + 1);
    assert_int_equal(muster_plan_text(mine.m, 64, texts, MUSTER_PLAN_MEMBERS + 1, NULL, 0, &err), -1);
    assert_int_equal(muster_plan_fits(mine.m, 64, texts, &err), 0);
    const char *const tight[] = {texts[0], texts[1], texts[2], "training.memory_limit=1K", NULL};
    assert_int_equal(muster_plan_fits(mine.m, 64, tight, &err), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    assert_non_null(strstr(err.text, "training.memory_limit"));
    assert_true(muster_plan_text(mine.m, 63, texts, MUSTER_PLAN_SUMMARY, NULL, 0, &err) > 0);
    assert_int_equal(muster_plan_text(mine.m, 0, texts, MUSTER_PLAN_SUMMARY, NULL, 0, &err), -1);
    const struct muster_machine machine = {.size = sizeof machine, .world_size = 8, .ranks_per_node = 4},
                                odd = {.size = sizeof odd, .world_size = 8, .ranks_per_node = 3},
                                small = {.size = sizeof small, .world_size = 8, .memory = 1000};
    length = muster_plan_suggest(mine.m, &machine, texts, MUSTER_PLAN_JSON, NULL, 0, &err);
    assert_int_equal(muster_plan_suggest(mine.m, &machine, texts, MUSTER_PLAN_JSON, text, sizeof text, &err),
                     length);
    assert_non_null(strstr(text, "\"schema\": \"muster-suggest-1\""));
    assert_int_equal(muster_plan_suggest(mine.m, &odd, texts, MUSTER_PLAN_SUMMARY, NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "8 ranks are no whole nodes of 3 ranks"));
    assert_int_equal(muster_plan_suggest(mine.m, &small, texts, MUSTER_PLAN_SUMMARY, NULL, 0, &err), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    muster_model_free(mine.m);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *setting, *error;
    } wrong[] = {
        {"training.stategy=NO_SHARD",
         "unknown setting 'training.stategy'; did you mean 'training.strategy'?"},
        {"training.strategy=ZERO", "training.strategy: 'ZERO' is not one of NO_SHARD"},
        {"training.replicas=2", "replicas is 2"},
        {"training.timeout=0", "training.timeout: '0' is outside 1 to 1000000 s"},
        {"training.memory_limit=1000", "memory limit"},
        {"training.micro_batch=5", "training.micro_batch 5 is above training.global_batch 4"},
        {"training.output=x",
         "setting 'training.output' has no effect here: it is of the program muster-train"},
        {"model.layers=3", "setting 'model.layers' has no effect here: models take it"},
        {"training.decay_steps=3", "training.decay_steps has no effect with training.schedule: constant"},
        {"training.frozen=x.*", "training.frozen: 'x.*' matches no parameter of mine"},
        {"training.frozen=*", "all 8 parameters of mine are frozen"},
        {"training", "setting 'training': write key=value"},
    };
    struct mine mine = model(0);
    struct muster_error err = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const texts[] = {COMMON, wrong[i].setting, NULL};
        assert_null(muster_trainer_open(NULL, mine.m, texts, &err));
        if (!strstr(err.text, wrong[i].error))
            fail_msg("'%s' does not contain '%s'", err.text, wrong[i].error);
    }
    struct muster_model *gpt =
        muster_model_open("gpt2", (const char *const[]){"model.positions=16", NULL}, &err);
    assert_null(
        muster_trainer_open(NULL, gpt, (const char *const[]){"training.sequence_length=17", NULL}, &err));
    assert_non_null(strstr(err.text, "training.sequence_length 17 is above the 16 positions"));
    muster_model_free(gpt);

    static const char *const small[] = {COMMON, "training.global_batch=2", NULL}; /* below the default */
    struct muster_trainer *t = opened(NULL, mine, small);
    muster_trainer_close(&t);

    t = opened(NULL, mine, settings);
    int32_t tokens[TOKENS], targets[TOKENS];
    batch(0, tokens, targets);
    const void *arrays[] = {tokens, targets};
    tokens[3] = VOCABULARY;
    assert_int_equal(muster_trainer_train(t, arrays, SAMPLES, NULL, &err), -1);
    assert_string_equal(err.text, "tokens[3] is 24, but must be 0 to 23");
    tokens[3] = 0;
    targets[2] = -2;
    assert_int_equal(muster_trainer_train(t, arrays, SAMPLES, NULL, &err), -1);
    assert_string_equal(err.text, "targets[2] is -2, but must be -1 to 23");
    targets[2] = -1;
    assert_int_equal(muster_trainer_train(t, arrays, SAMPLES + 1, NULL, &err), -1);
    assert_int_equal(muster_trainer_train(t, arrays, SAMPLES, NULL, NULL), 0);
    muster_trainer_close(&t);
    muster_model_free(mine.m);
}

static void the_state_has_a_type_and_names(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct mine mine = model(0);
    struct muster_trainer *t = opened(NULL, mine, settings);
    const struct muster_trainer_state begun = muster_trainer_state_now(t);
    assert_true(begun.steps == 0 && begun.best_step == -1 && isnan(begun.best_loss) &&
                begun.samples == SAMPLES);
    assert_true(begun.checkpoint_step == -1 && begun.stage_found == -1 && begun.loss == 0);
    int32_t tokens[TOKENS], targets[TOKENS];
    batch(0, tokens, targets);
    double loss;
    assert_int_equal(step(t, tokens, targets, SAMPLES, &loss), 0);
    const struct muster_trainer_state now = muster_trainer_state_now(t);
    const struct {
        const char *name;
        double value;
    } rows[] = {{"loss", now.loss},       {"steps", 1},
                {"threads", now.threads}, {"planned_bytes", (double)now.planned_bytes},
                {"skipped", 0},           {"command_ns", (double)now.command_ns}};
    double value;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(muster_trainer_figure(t, rows[i].name, &value, &err), 0);
        assert_true(value == rows[i].value);
    }
    static const char *const wrong[] = {"plannd_bytes", "", "size", "Loss", "steps "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (struct muster_error){0};
        assert_int_equal(muster_trainer_figure(t, wrong[i], &value, &err), -1);
        assert_int_equal(err.code, MUSTER_E_INVALID);
    }
    assert_int_equal(muster_trainer_figure(t, "plannd_bytes", &value, &err), -1);
    assert_non_null(strstr(err.text, "did you mean 'planned_bytes'?"));
    struct {
        struct muster_trainer_state state;
        char later[16];
    } newer;
    memset(&newer, 0x55, sizeof newer);
    newer.state.size = sizeof newer;
    assert_int_equal(muster_trainer_state_get(t, &newer.state, &err), 0);
    assert_true(newer.state.size == sizeof newer && newer.state.loss == now.loss && !newer.later[0] &&
                !newer.later[15]);
    newer.state.size = 8;
    assert_int_equal(muster_trainer_state_get(t, &newer.state, &err), -1);
    assert_non_null(strstr(err.text, "muster_trainer_state"));
    muster_trainer_close(&t);
    muster_model_free(mine.m);
}

/* A program built before members were added at the end, and a program built after. */
static void structs_of_other_versions_are_filled(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct mine mine = model(0);
    struct muster_trainer *t = opened(NULL, mine, settings);
    int32_t tokens[TOKENS], targets[TOKENS];
    batch(0, tokens, targets);
    const void *arrays[] = {tokens, targets};
    struct {
        struct muster_result result;
        char later[24];
    } newer;
    memset(&newer, 0x55, sizeof newer);
    newer.result.size = sizeof newer;
    assert_int_equal(muster_trainer_train(t, arrays, SAMPLES, &newer.result, &err), 0);
    assert_true(newer.result.loss == muster_trainer_state_now(t).loss && newer.result.size == sizeof newer);
    for (size_t i = 0; i < sizeof newer.later; i++)
        assert_int_equal(newer.later[i], 0);
    struct muster_result older;
    memset(&older, 0x55, sizeof older);
    older.size = offsetof(struct muster_result, learning_rate);
    assert_int_equal(muster_trainer_train(t, arrays, SAMPLES, &older, &err), 0);
    assert_true(older.loss == muster_trainer_state_now(t).loss);
    assert_true(((const char *)&older)[offsetof(struct muster_result, learning_rate)] == 0x55);
    older.size = 4;
    assert_int_equal(muster_trainer_train(t, arrays, SAMPLES, &older, &err), -1);
    assert_non_null(strstr(err.text, "struct muster_result has the size 4"));
    assert_string_equal(muster_error_text(&err), err.text);
    assert_true(sizeof err <= 512);
    muster_trainer_close(&t);
    muster_model_free(mine.m);
}

/* ---- two ranks ---- */

struct job {
    int port;
    struct mine mine;
    double losses[2][STEPS], sums[2][2];
    char errors[2][MUSTER_ERROR_TEXT];
};

/* Rank r's half of each batch; where `fewer`, rank 1 has one sample less, and none at all in step 3. */
static int train_half(struct muster_trainer *t, struct job *job, int rank)
{
    int32_t tokens[TOKENS], targets[TOKENS];
    for (int i = 0; i < STEPS; i++) {
        batch(i, tokens, targets);
        targets[2] = targets[TOKENS - 1] = -1;
        int rows = rank == 0 ? 2 : i == 3 ? 0 : 1;
        if (step(t, tokens + rank * 2 * T, targets + rank * 2 * T, rows, &job->losses[rank][i]))
            return -1;
    }
    batch(0, tokens, targets);
    return muster_trainer_forward(t, (const void *[]){tokens + rank * 2 * T, targets + rank * 2 * T},
                                  1 - rank, -1, NULL, job->sums[rank], NULL);
}

/* A batch that one rank refuses is an error on both, and the run goes on. */
static int refuse_once(struct muster_trainer *t, struct job *job, int rank)
{
    struct muster_error err = {0};
    int32_t tokens[TOKENS], targets[TOKENS];
    double loss;
    batch(0, tokens, targets);
    tokens[0] = rank ? 0 : VOCABULARY;
    if (!muster_trainer_train(t, (const void *[]){tokens, targets}, 2, NULL, &err))
        return -1;
    (void)snprintf(job->errors[rank], sizeof job->errors[rank], "%s", err.text);
    tokens[0] = 0;
    return step(t, tokens, targets, 2, &loss);
}

static int live(int rank, int size, void *context)
{
    struct job *job = context;
    struct muster_error err = {0};
    char variables[RANK_WORLD_VARIABLES];
    struct muster_world *world = rank_world_open(variables, rank, size, job->port, &err);
    const char *const odd[] = {COMMON, rank ? "training.micro_batch=1" : "training.micro_batch=x", NULL};
    if (!world || muster_trainer_open(world, job->mine.m, odd, &err) ||
        !strstr(err.text, rank ? "rank 0 cannot go on: training.micro_batch" : "training.micro_batch: 'x'"))
        return fprintf(stderr, "rank %d: %s\n", rank, err.text), -1;
    struct muster_trainer *t = opened(world, job->mine, one_at_a_time);
    int result = t ? train_half(t, job, rank) : -1;
    if (!result)
        result = refuse_once(t, job, rank);
    if (!result)
        result = muster_world_agree(world, 0, &err);
    muster_trainer_close(&t);
    muster_world_close(&world);
    return result;
}

/* Two ranks with different numbers of targets train as one rank with all of them. */
static void two_ranks_are_weighted_by_their_targets(void **state)
{
    (void)state;
    struct job job = {.port = test_free_port(), .mine = model(0.1)};
    assert_int_equal(muster_model_check(job.mine.m, NULL), 0);
    assert_int_equal(rank_threads_run(2, live, &job), 0);
    struct muster_trainer *t = opened(NULL, job.mine, one_at_a_time);
    int32_t tokens[TOKENS], targets[TOKENS];
    for (int i = 0; i < STEPS; i++) {
        double loss;
        batch(i, tokens, targets);
        targets[2] = targets[TOKENS - 1] = -1;
        /* One rank draws its masks by sample, so that its micro-batches take the ranks in turn. */
        int32_t order_tokens[TOKENS], order_targets[TOKENS];
        static const int from[] = {0, 2, 1, 3};
        for (int s = 0; s < SAMPLES; s++) {
            bool there = from[s] < 2 || (from[s] == 2 && i != 3);
            for (int k = 0; k < T; k++) {
                order_tokens[s * T + k] = tokens[from[s] * T + k];
                order_targets[s * T + k] = there ? targets[from[s] * T + k] : -1;
            }
        }
        assert_int_equal(step(t, order_tokens, order_targets, SAMPLES, &loss), 0);
        assert_true(job.losses[0][i] == job.losses[1][i]);
        if (fabs(job.losses[0][i] / loss - 1) > 1e-5)
            fail_msg("step %d: %.9g with two ranks, %.9g with one", i, job.losses[0][i], loss);
    }
    assert_memory_equal(job.sums[0], job.sums[1], sizeof job.sums[0]);
    assert_true(job.sums[0][1] == T);
    assert_string_equal(job.errors[0], "tokens[0] is 24, but must be 0 to 23");
    assert_string_equal(job.errors[1], "the batch of 1 other ranks was refused, see their errors");
    assert_true(failure_says_peer_gone(job.errors[1], 1));
    muster_trainer_close(&t);
    muster_model_free(job.mine.m);
}

/* Losses of the first two steps with logits formed a row at a time; next to it: with another trainer of the
 * same model that forms all of them at once. */
static void train_a_row_at_a_time(bool beside, double losses[2])
{
    static const char *const by_rows[] = {COMMON, "training.micro_batch=4", "training.head_chunk=16K", NULL};
    static const char *const at_once[] = {COMMON, "training.micro_batch=4", NULL};
    static const char *const sizes[] = {"model.layers=1",        "model.channels=16", "model.heads=2",
                                        "model.vocabulary=4096", "model.positions=8", NULL};
    const struct mine mine = {.m = muster_model_open("gpt2", sizes, NULL)}; /* its logits are most of it */
    struct muster_trainer *t = opened(NULL, mine, by_rows),
                          *other = beside ? opened(NULL, mine, at_once) : NULL;
    assert_true(t && (other || !beside));
    for (int i = 0; i < 2; i++) {
        int32_t tokens[TOKENS], targets[TOKENS];
        double loss;
        batch(i, tokens, targets);
        assert_int_equal(step(t, tokens, targets, SAMPLES, &losses[i]), 0);
        assert_int_equal(other ? step(other, tokens, targets, SAMPLES, &loss) : 0, 0);
        assert_true(!other || fabs(losses[i] / loss - 1) < 1e-5);
    }
    if (other)
        assert_true(muster_trainer_state_now(t).planned_bytes <
                    muster_trainer_state_now(other).planned_bytes);
    muster_trainer_close(&t);
    muster_trainer_close(&other);
    muster_model_free(mine.m);
}

/* Chunks belong to a trainer, not to the model that several have in common. */
static void trainers_of_one_model_have_their_own_chunks(void **state)
{
    (void)state;
    double alone[2], beside[2];
    train_a_row_at_a_time(false, alone);
    train_a_row_at_a_time(true, beside);
    assert_memory_equal(alone, beside, sizeof alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trainers_of_one_model_have_their_own_chunks),
        cmocka_unit_test(trains_tied_and_frozen_parameters),
        cmocka_unit_test(parameters_are_named_and_exchanged),
        cmocka_unit_test(forward_gives_sums_and_values),
        cmocka_unit_test(samples_that_are_not_there_do_not_count),
        cmocka_unit_test(values_of_steps_can_be_set),
        cmocka_unit_test(optimizers_and_schedules_are_settings),
        cmocka_unit_test(exports_and_generates),
        cmocka_unit_test(plans_are_texts),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(the_state_has_a_type_and_names),
        cmocka_unit_test(structs_of_other_versions_are_filled),
        cmocka_unit_test(two_ranks_are_weighted_by_their_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
