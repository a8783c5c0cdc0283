/* The public library as a user sees it: linked as libmuster.so, with nothing but muster.h. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/include/muster.h"

enum { SEQUENCES = 4, POSITIONS = 16, TOKENS = SEQUENCES * POSITIONS };
static const struct muster_gpt model = {.size = sizeof(struct muster_gpt),
                                        .layers = 2,
                                        .channels = 16,
                                        .heads = 2,
                                        .vocabulary = 24,
                                        .positions = POSITIONS};

static struct muster_training training(void)
{
    struct muster_training t;
    muster_training_defaults(&t, &model);
    t.sequences = SEQUENCES;
    t.threads = 1;
    t.seed = 5;
    return t;
}

static void batch(int step, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (i * 5 + step * 7 + i / POSITIONS) % 24;
        targets[i] = (tokens[i] * 3 + 1) % 24; /* a function of the token: soon learnt */
    }
}

static void trains_evaluates_and_saves(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct muster_training t = training();
    struct muster_trainer *trainer = muster_trainer_create(NULL, &model, &t, &err);
    if (!trainer)
        fail_msg("%s", err.text);
    struct muster_step step;
    muster_step_defaults(&step);
    step.learning_rate = 1e-2;
    int32_t tokens[TOKENS], targets[TOKENS];
    struct muster_step_result first = {.size = sizeof first}, last = first;
    for (int i = 0; i < 60; i++) {
        batch(i, tokens, targets);
        assert_int_equal(muster_trainer_step(trainer, tokens, targets, &step, i ? &last : &first, &err), 0);
    }
    assert_true(first.loss > 2.5 && last.loss < 0.5 * first.loss);
    assert_true(first.grad_norm > 0 && !first.skipped && first.step_ns > 0);
    double loss;
    assert_int_equal(muster_trainer_evaluate(trainer, tokens, targets, &loss, &err), 0);
    assert_true(loss < first.loss);
    assert_true(muster_trainer_planned_bytes(trainer) > 0);

    char path[] = "/tmp/muster-api-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(muster_trainer_save(trainer, path, &err), 0);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char head[8192] = {0};
    assert_int_equal(fread(head, 1, sizeof head - 1, file), sizeof head - 1);
    assert_non_null(strstr(head + 8, "\"wte.weight\""));
    (void)fclose(file);
    (void)remove(path);
    assert_int_equal(muster_trainer_save(trainer, "/nowhere/at/all", &err), -1);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
    muster_trainer_destroy(trainer);
}

static void parameters_are_named_and_exchanged(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct muster_training t = training();
    struct muster_trainer *trainer = muster_trainer_create(NULL, &model, &t, &err);
    assert_non_null(trainer);
    assert_int_equal(muster_trainer_parameters(trainer), 4 + 2 * 12);
    assert_string_equal(muster_trainer_parameter_name(trainer, 4), "h.0.attn.c_attn.weight");
    assert_null(muster_trainer_parameter_name(trainer, 99));
    int64_t shape[2];
    assert_int_equal(muster_trainer_parameter_shape(trainer, 4, shape), 2);
    assert_int_equal(shape[0], 48);
    assert_int_equal(shape[1], 16);
    assert_int_equal(muster_trainer_parameter_shape(trainer, -1, shape), -1);
    assert_int_equal(muster_trainer_parameter_elements(trainer, 4), 48 * 16);
    float values[48 * 16], back[48 * 16];
    for (int i = 0; i < 48 * 16; i++)
        values[i] = (float)i * 0.001f;
    assert_int_equal(muster_trainer_set_parameter(trainer, 4, values, &err), 0);
    assert_int_equal(muster_trainer_get_parameter(trainer, 4, back, &err), 0);
    assert_memory_equal(values, back, sizeof values);
    assert_int_equal(muster_trainer_get_parameter(trainer, 99, back, &err), -1);
    muster_trainer_destroy(trainer);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct muster_training t = training();
#define REFUSED(change, names)                                                                               \
    {                                                                                                        \
        struct muster_training bad = t;                                                                      \
        change;                                                                                              \
        assert_null(muster_trainer_create(NULL, &model, &bad, &err));                                        \
        if (!strstr(err.text, names))                                                                        \
            fail_msg("'%s' does not name '%s'", err.text, names);                                            \
    }
    REFUSED(bad.size = 8, "muster_training has the size 8")
    REFUSED(bad.strategy = 17, "strategy 17")
    REFUSED(bad.replicas = 2, "replicas is 2")
    REFUSED(bad.positions = POSITIONS + 1, "longer than the model's 16")
    REFUSED(bad.timeout_ms = 0, "timeout_ms is 0")
    REFUSED(bad.timeout_ms = INT64_MAX, "timeout_ms is 9223372036854775807")
    REFUSED(bad.memory_limit = 1000, "memory limit")
    REFUSED(bad.sequences = 0, "")
#undef REFUSED
    struct muster_gpt odd = model;
    odd.heads = 3;
    assert_null(muster_trainer_create(NULL, &odd, &t, &err));
    assert_non_null(strstr(err.text, "multiple of heads"));

    struct muster_trainer *trainer = muster_trainer_create(NULL, &model, &t, &err);
    assert_non_null(trainer);
    struct muster_step step;
    muster_step_defaults(&step);
    int32_t tokens[TOKENS], targets[TOKENS];
    batch(0, tokens, targets);
    tokens[3] = 24;
    assert_int_equal(muster_trainer_step(trainer, tokens, targets, &step, NULL, &err), -1);
    assert_non_null(strstr(err.text, "token 3 is 24"));
    tokens[3] = 0;
    targets[2] = -2;
    assert_int_equal(muster_trainer_step(trainer, tokens, targets, &step, NULL, &err), -1);
    assert_non_null(strstr(err.text, "target 2 is -2"));
    targets[2] = -1;
    step.size = 3;
    assert_int_equal(muster_trainer_step(trainer, tokens, targets, &step, NULL, &err), -1);
    muster_step_defaults(&step);
    assert_int_equal(muster_trainer_step(trainer, tokens, targets, &step, NULL, NULL), 0);
    muster_trainer_destroy(trainer);
    muster_trainer_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trains_evaluates_and_saves),
        cmocka_unit_test(parameters_are_named_and_exchanged),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
