/* train_config_test.c - the strict YAML reader: good files, every kind of bad one, overrides. */
#include "proto/base/error.h"
#include "runtime/config/train_model.h"
#include "runtime/model/program.h"
#include "runtime/plan/plan.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "trainer/formats/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The settings of a text alone. */
static int train_config_parse(const char *name, const char *text, size_t length, char *const *overrides,
                              int override_count, struct train_config *config, struct muster_error *err)
{
    struct formats_settings settings;
    const int result = formats_parse(name, text, length, overrides, override_count, 1, &settings, err);
    *config = settings.config;
    settings.config = (struct train_config){0};
    formats_free(&settings);
    return result;
}

static const char good[] = "# comment\n"
                           "training:\n  steps: &n 12\n  warmup_steps: *n\n  strategy: NO_SHARD\n  "
                           "learning_rate: 3e-4\n  min_learning_rate: 0\n"
                           "model: {layers: 2, channels: 64}\n"
                           "data:\n  path: \"/tmp/a b\"\n"
                           "logging:\n  sample_prompt: \"x\\ny\"\n";

static void reads_a_good_file(void **state)
{
    (void)state;
    struct train_config c;
    struct muster_error err = {0};
    char set[] = "training.steps=99";
    char *overrides[] = {set};
    if (train_config_parse("t.yaml", good, strlen(good), overrides, 1, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(c.steps, 99);
    assert_int_equal(c.strategy, STRATEGY_NO_SHARD);
    assert_true(c.learning_rate == 3e-4);
    assert_int_equal(c.layers, 2);
    assert_int_equal(c.vocabulary, 256);
    assert_string_equal(c.path, "/tmp/a b");
    assert_string_equal(c.sample_prompt, "x\ny");
    const struct train_batch batch = train_config_batch(&c, 1, 2);
    assert_true(batch.global_batch == c.global_batch && batch.micro_batch == c.micro_batch);
    assert_true(batch.rank == 1 && batch.ranks == 2);
    assert_int_equal(train_batch_micro_batches(&batch), 1);
    train_config_free(&c);
}

static void reads_lists_of_patterns(void **state)
{
    (void)state;
    static const char text[] = "training:\n  frozen: [wte.*, 'h.0.*']\n  no_decay: wpe.*\n  optimizer: SGD\n"
                               "  momentum: 0.9\n  nesterov: true\ndata: {path: x}\n";
    struct train_config c;
    struct muster_error err = {0};
    char set[] = "training.frozen=h.1.*";
    char *overrides[] = {set};
    if (train_config_parse("t.yaml", text, strlen(text), NULL, 0, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(c.frozen[0], "wte.*");
    assert_string_equal(c.frozen[1], "h.0.*");
    assert_null(c.frozen[2]);
    train_config_free(&c);
    if (train_config_parse("t.yaml", text, strlen(text), overrides, 1, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(c.frozen[0], "h.1.*"); /* in place of the file's list */
    assert_null(c.frozen[1]);
    assert_string_equal(c.no_decay[0], "wpe.*");
    assert_null(c.no_decay[1]);
    assert_int_equal(c.optimizer, OPTIMIZER_SGD);
    assert_true(c.momentum == 0.9 && c.nesterov);
    train_config_free(&c);
}

static const struct {
    const char *text, *error;
} bad[] = {
    {"training:\n  stesp: 5\n", "t.yaml:2:3: unknown key 'training.stesp'; did you mean 'training.steps'?"},
    {"trainig:\n  steps: 5\n", "t.yaml:1:1: unknown section 'trainig'; did you mean 'training'?"},
    {"model:\n  steps: 5\n", "t.yaml:2:3: unknown key 'model.steps'"},
    {"training:\n  steps: five\n", "t.yaml:2:10: training.steps: 'five' is not a whole number"},
    {"training:\n  steps: 0\n", "t.yaml:2:10: training.steps: '0' is outside 1 to 1000000000"},
    {"training:\n  steps: 5\n  steps: 6\n", "t.yaml:3:3: key 'steps' appears twice"},
    {"training:\n  steps: 5\ntraining:\n  seed: 6\n", "t.yaml:3:1: key 'training' appears twice"},
    {"training: 5\n", "t.yaml:1:11: section 'training' is a single value"},
    {"- a\n", "t.yaml:1:1: the file is not a mapping"},
    {"training:\n  steps: [1]\n",
     "t.yaml:2:10: training.steps: a list found where a single value is expected"},
    {"training:\n  frozen: [a, [b]]\n",
     "t.yaml:2:15: training.frozen: a list found where a single value is expected"},
    {"training:\n  schedule: Cosine\n",
     "t.yaml:2:13: training.schedule: 'Cosine' is not one of cosine, linear"},
    {"training:\n  schedule: OneCycle\n  warmup_steps: 0\n",
     "t.yaml: training.schedule: OneCycle needs at least 1 step of warm-up"},
    {"training:\n  steps: {a: 1}\n",
     "t.yaml:2:10: training.steps: a mapping found where a single value is expected"},
    {"training:\n  steps: *x\n", "t.yaml:2:10: alias *x has no anchor before it"},
    {"training:\n\tsteps: 5\n", "not valid YAML"},
    {"training:\n  strategy: ZERO\n", "t.yaml:2:13: training.strategy: 'ZERO' is not one of NO_SHARD"},
    {"model:\n  heads: 5\n", "t.yaml: model.channels 128 is not a multiple of model.heads 5"},
    {"model:\n  tied: true\n", "t.yaml: model.tied has no effect with model.architecture: auto; remove it or "
                               "set model.architecture to llama"},
    {"model: {architecture: llama, rope_low_frequency: 2, rope_scaling: linear}\n",
     "t.yaml: model.rope_low_frequency has no effect with model.rope_scaling: linear; remove it or set "
     "model.rope_scaling to llama3"},
    {"model: {architecture: llama, rope_factor: 2}\n",
     "t.yaml: model.rope_factor has no effect with model.rope_scaling: none; remove it or set "
     "model.rope_scaling to linear or llama3"},
    {"training: {schedule: constant, min_learning_rate: 0}\n",
     "t.yaml: training.min_learning_rate has no effect with training.schedule: constant; remove it or set "
     "training.schedule to cosine, linear, wsd, WarmupCosineLR, OneCycle, ReduceLROnPlateau, hf_cosine, "
     "hf_polynomial or hf_warmup_stable_decay"},
    {"training: {strategy: NO_SHARD, keep_whole_below: 1000}\n",
     "t.yaml: training.keep_whole_below has no effect with training.strategy: NO_SHARD; remove it or set "
     "training.strategy to SHARD_OPTIM, SHARD_GRAD_OP, FULL_SHARD or HYBRID_SHARD"},
    {"data: {path: x}\nlogging: {dir: d, trace: 12-10}\n",
     "t.yaml: logging.trace '12-10' is neither a step nor a range of steps, from 1: write 10 or 10-12"},
    {"data: {path: x}\nlogging: {dir: d, trace: 10-}\n", "t.yaml: logging.trace '10-' is neither a step"},
    {"data: {path: x}\nlogging: {dir: d, trace: 0-3}\n", "t.yaml: logging.trace '0-3' is neither a step"},
    {"data: {path: x}\nlogging: {dir: d, trace: 1-1001}\n",
     "t.yaml: logging.trace 1-1001: at most 1000 steps"},
    {"training: {steps: 5}\ndata: {path: x}\nlogging: {dir: d, trace: 6-7}\n",
     "t.yaml: logging.trace 6-7 begins after the last step, training.steps 5"},
    {"logging: {trace: 3}\n",
     "t.yaml: logging.trace has no effect with logging.dir: ; remove it or set logging.dir"},
    {"just text\n", "t.yaml:1:1: the file is not a mapping"},
    {"", "data.path is missing"},
};

static void names_what_is_wrong_and_where(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct train_config c;
        struct muster_error err = {0};
        faults_begin();
        int result = train_config_parse("t.yaml", bad[i].text, strlen(bad[i].text), NULL, 0, &c, &err);
        assert_int_equal(faults_end(), 0);
        assert_int_equal(result, -1);
        if (!strstr(err.text, bad[i].error))
            fail_msg("case %zu: '%s' does not contain '%s'", i, err.text, bad[i].error);
    }
}

/* A key that is read and then used by nothing is refused; with the value that uses it, it is accepted. */
static const struct {
    const char *key, *other, *useful; /* texts of --set; other is what makes the key useless */
} effects[] = {
    {"training.warmup_type=linear", "training.schedule=cosine", "training.schedule=WarmupLR"},
    {"training.warmup_type=log", "training.schedule=OneCycle", "training.schedule=WarmupDecayLR"},
    {"training.warmup_min_learning_rate=0", "training.schedule=wsd", "training.schedule=WarmupCosineLR"},
    {"training.warmup_min_learning_rate=1e-5", "training.schedule=linear", "training.schedule=WarmupDecayLR"},
    {"training.decay_steps=5", "training.schedule=constant", "training.schedule=cosine"},
    {"training.decay_steps=5", "training.schedule=WarmupLR", "training.schedule=linear"},
    {"training.decay_steps=5", "training.schedule=constant", "training.schedule=WarmupDecayLR"},
    {"training.decay_steps=5", "training.schedule=WarmupLR", "training.schedule=WarmupCosineLR"},
    {"training.min_learning_rate=0", "training.schedule=WarmupLR", "training.schedule=WarmupCosineLR"},
    {"training.min_learning_rate=0", "training.schedule=WarmupDecayLR", "training.schedule=linear"},
    {"training.cycle_min_momentum=0.7", "training.schedule=cosine", "training.schedule=OneCycle"},
    {"training.cycle_max_momentum=0.95", "training.schedule=cosine", "training.schedule=OneCycle"},
    {"training.cycle_decay_rate=0", "training.schedule=linear", "training.schedule=OneCycle"},
    {"training.cycle_momentum_rate=0", "training.schedule=wsd", "training.schedule=OneCycle"},
    {"training.cycle_decay_interval=3", "training.schedule=WarmupLR", "training.schedule=OneCycle"},
    {"training.beta1=0.8", "training.optimizer=SGD", "training.optimizer=Adam"},
    {"training.beta2=0.8", "training.optimizer=SGD", "training.optimizer=AdamW"},
    {"training.epsilon=1e-6", "training.optimizer=SGD", "training.optimizer=AdamW"},
    {"training.momentum=0.5", "training.optimizer=AdamW", "training.optimizer=SGD"},
    {"training.nesterov=true", "training.optimizer=Adam", "training.optimizer=SGD"},
    {"training.ema_evaluate=true", "training.ema_decay=0", "training.ema_decay=0.9"},
    {"training.early_stop_min_gain=1", "training.early_stop_patience=0", NULL},
    {"training.early_stop_patience=1", "training.evaluate_every=0", "training.evaluate_every=1"},
    {"training.keep_best=true", "training.checkpoint_dir=", NULL},
    {"model.kv_heads=2", "model.architecture=gpt2", "model.architecture=llama"},
    {"model.rope_factor=2", "model.architecture=gpt2", NULL},
};

static void refuses_a_key_without_effect(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof effects / sizeof *effects; i++) {
        struct train_config c;
        struct muster_error err = {0};
        char key[64], other[64], steps[] = "training.warmup_steps=2", path[] = "data.path=x", expected[200];
        char *overrides[] = {path, steps, key, other};
        strcpy(key, effects[i].key);
        strcpy(other, effects[i].other);
        if (!train_config_parse("t.yaml", "", 0, overrides, 4, &c, &err))
            fail_msg("%s beside %s is not refused", key, other);
        const int name = (int)strcspn(key, "="), beside = (int)strcspn(other, "=");
        snprintf(expected, sizeof expected,
                 "t.yaml: %.*s has no effect with %.*s: %s; remove it or set %.*s to ", name, key, beside,
                 other, other + beside + 1, beside, other);
        if (strncmp(err.text, expected, strlen(expected)) != 0)
            fail_msg("'%s' does not begin with '%s'", err.text, expected);
        if (!effects[i].useful)
            continue;
        strcpy(other, effects[i].useful);
        if (train_config_parse("t.yaml", "", 0, overrides, 4, &c, &err) < 0)
            fail_msg("%s beside %s: %s", key, other, err.text);
        train_config_free(&c);
    }
}

/* OneCycle moves Adam's beta1, and dampening is of the momentum. */
static void an_effect_may_need_two_keys(void **state)
{
    (void)state;
    struct train_config c;
    struct muster_error err = {0};
    static const char cycled[] = "training: {schedule: OneCycle, optimizer: SGD, cycle_min_momentum: 0.7}\n"
                                 "data: {path: x}\n",
                      damped[] = "training: {optimizer: SGD, dampening: 0.5}\ndata: {path: x}\n",
                      rate[] = "training: {schedule: constant, learning_rate: 1e-5}\ndata: {path: x}\n";
    assert_int_equal(train_config_parse("t.yaml", cycled, strlen(cycled), NULL, 0, &c, &err), -1);
    assert_string_equal(err.text,
                        "t.yaml: training.cycle_min_momentum has no effect with training.optimizer: "
                        "SGD; remove it or set training.optimizer to AdamW or Adam");
    assert_int_equal(train_config_parse("t.yaml", damped, strlen(damped), NULL, 0, &c, &err), -1);
    assert_string_equal(err.text,
                        "t.yaml: training.dampening has no effect with training.momentum: 0; remove "
                        "it or set training.momentum to more than 0");
    /* a minimum that no schedule reads is compared with nothing */
    assert_int_equal(train_config_parse("t.yaml", rate, strlen(rate), NULL, 0, &c, &err), 0);
    train_config_free(&c);
}

/* A small peak needs no minimum of its own; a given minimum stays and is compared. */
static void the_default_minimum_follows_a_small_peak(void **state)
{
    (void)state;
    struct train_config c;
    struct muster_error err = {0};
    static const char small[] = "training: {learning_rate: 2e-5}\ndata: {path: x}\n",
                      larger[] = "training: {learning_rate: 2e-3}\ndata: {path: x}\n",
                      given[] = "training: {learning_rate: 2e-5, min_learning_rate: 1e-4}\ndata: {path: x}\n";
    assert_int_equal(train_config_parse("t.yaml", small, strlen(small), NULL, 0, &c, &err), 0);
    assert_true(train_config_schedule(&c).minimum == 2e-5 / 10);
    train_config_free(&c);
    assert_int_equal(train_config_parse("t.yaml", larger, strlen(larger), NULL, 0, &c, &err), 0);
    assert_true(train_config_schedule(&c).minimum == 1e-4);
    train_config_free(&c);
    assert_int_equal(train_config_parse("t.yaml", given, strlen(given), NULL, 0, &c, &err), -1);
    assert_non_null(
        strstr(err.text, "training.min_learning_rate 0.0001 is above training.learning_rate 2e-05"));
}

/* Tokens are whole steps of the batch, and with steps of the same number they are no second length. */
static void tokens_are_a_length(void **state)
{
    (void)state;
    static const char tokens[] =
        "training: {tokens: 1025, global_batch: 8, sequence_length: 128}\ndata: {path: x}\n";
    struct train_config c;
    struct muster_error err = {0};
    char two[] = "training.steps=2", three[] = "training.steps=3", more[] = "training.tokens=3000",
         batch[] = "training.global_batch=4", epochs[] = "training.epochs=1";
    char *by_steps[] = {three}, *by_tokens[] = {more, batch}, *same[] = {two, more, batch},
         *both[] = {more, epochs};
    assert_int_equal(train_config_parse("t.yaml", tokens, strlen(tokens), NULL, 0, &c, &err), 0);
    assert_int_equal(c.steps, 2);
    train_config_free(&c);
    assert_int_equal(train_config_parse("t.yaml", tokens, strlen(tokens), by_steps, 1, &c, &err), 0);
    assert_true(c.steps == 3 && !c.tokens); /* --set takes the place of the file's */
    train_config_free(&c);
    assert_int_equal(train_config_parse("t.yaml", tokens, strlen(tokens), by_tokens, 2, &c, &err), 0);
    assert_int_equal(c.steps, 6); /* 4 x 128 tokens each */
    train_config_free(&c);
    assert_int_equal(train_config_parse("t.yaml", tokens, strlen(tokens), same, 3, &c, &err), -1);
    assert_string_equal(err.text,
                        "t.yaml: training.tokens 3000 are 6 steps, and training.steps is 2; name one");
    assert_int_equal(train_config_parse("t.yaml", tokens, strlen(tokens), both, 2, &c, &err), -1);
    assert_string_equal(err.text,
                        "t.yaml: training.epochs 1 and training.tokens 3000 are both set; name one");
}

static void steps_to_trace_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t first, count;
    } cases[] = {{"", 0, 0}, {"10", 10, 1}, {"10-12", 10, 3}, {"1-1000", 1, 1000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char trace[16];
        const struct train_config c = {.trace = trace};
        struct muster_error err = {0};
        int64_t first = -1, count = -1;
        strcpy(trace, cases[i].text);
        assert_int_equal(train_config_trace(&c, &first, &count, &err), 0);
        assert_int_equal(first, cases[i].first);
        assert_int_equal(count, cases[i].count);
    }
}

/* A capital at the beginning, a full stop at the end, and at most 25 words up to each of . ; and : */
static void help_is_written_in_sentences(void **state)
{
    (void)state;
    const struct knob_table *table = train_config_table();
    for (size_t i = 0; i < table->count; i++) {
        const char *name = table->knobs[i].name, *help = table->knobs[i].help;
        const size_t length = strlen(help);
        int words = 1;
        if (!(help[0] >= 'A' && help[0] <= 'Z') || help[length - 1] != '.')
            fail_msg("%s: no sentence: %s", name, help);
        for (const char *at = help; *at; at++) {
            words += *at == ' ';
            if (strchr(".;:", *at) && at[1] == ' ')
                words = 0;
            if (words > 25)
                fail_msg("%s: a sentence of more than 25 words: %s", name, help);
        }
    }
}

static void the_keys_of_a_llama_are_its_own(void **state)
{
    (void)state;
    static const char text[] =
        "model: {architecture: llama, heads: 6, head_size: 20, kv_heads: 2, tied: true}\n"
        "data: {path: x}\n";
    struct train_config c;
    struct muster_error err = {0};
    char scaling[] = "model.rope_scaling=llama3", factor[] = "model.rope_factor=32",
         gpt2[] = "model.architecture=gpt2";
    char *overrides[] = {scaling, factor, gpt2};
    if (train_config_parse("t.yaml", text, strlen(text), overrides, 2, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(train_config_architecture(&c), "llama");
    assert_int_equal(c.head_size, 20); /* so that channels need not be a multiple of heads */
    assert_true(c.tied && c.rope_factor == 32 && c.rope_theta == 10000);
    const struct architecture architecture = train_architecture(&c);
    GUARD(guard_model) struct model *model = architecture_model(&architecture, &err);
    if (!model)
        fail_msg("%s", err.text);
    assert_string_equal(model->name, "llama-4x128");
    train_config_free(&c);
    assert_int_equal(train_config_parse("t.yaml", text, strlen(text), overrides, 3, &c, &err), -1);
    assert_non_null(strstr(err.text, "model.kv_heads has no effect with model.architecture: gpt2"));
}

static void overrides_are_checked_too(void **state)
{
    (void)state;
    struct train_config c;
    struct muster_error err = {0};
    char unknown_key[] = "training.step=1", no_value[] = "training.steps";
    char *one[] = {unknown_key}, *two[] = {no_value};
    assert_int_equal(train_config_parse("t.yaml", good, strlen(good), one, 1, &c, &err), -1);
    assert_string_equal(err.text, "--set: unknown key 'training.step'; did you mean 'training.steps'?");
    assert_int_equal(train_config_parse("t.yaml", good, strlen(good), two, 1, &c, &err), -1);
    assert_non_null(strstr(err.text, "key=value"));
}

/* Bytes flipped, cut and repeated in a good file: an answer or an error, never a crash. */
static void survives_rubbish(void **state)
{
    (void)state;
    unsigned seed = 1;
    for (int round = 0; round < 3000; round++) {
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        size_t length = 1 + (size_t)rand_r(&seed) % (sizeof good - 1);
        for (int n = rand_r(&seed) % 8; n > 0; n--)
            text[(size_t)rand_r(&seed) % length] = (char)(rand_r(&seed) & 0xFF);
        struct train_config c;
        struct muster_error err = {0};
        if (!train_config_parse("t.yaml", text, length, NULL, 0, &c, &err))
            train_config_free(&c);
        else
            assert_true(err.text[0] != '\0');
    }
}

static int parse_once(void *context)
{
    (void)context;
    struct train_config c;
    int result = train_config_parse("t.yaml", good, strlen(good), NULL, 0, &c, NULL);
    if (!result)
        train_config_free(&c);
    return result;
}

static void survives_no_memory(void **state)
{
    (void)state;
    faults_sweep_absorbed(parse_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_good_file),
        cmocka_unit_test(reads_lists_of_patterns),
        cmocka_unit_test(names_what_is_wrong_and_where),
        cmocka_unit_test(refuses_a_key_without_effect),
        cmocka_unit_test(an_effect_may_need_two_keys),
        cmocka_unit_test(overrides_are_checked_too),
        cmocka_unit_test(survives_rubbish),
        cmocka_unit_test(survives_no_memory),
        cmocka_unit_test(the_default_minimum_follows_a_small_peak),
        cmocka_unit_test(tokens_are_a_length),
        cmocka_unit_test(steps_to_trace_are_read),
        cmocka_unit_test(help_is_written_in_sentences),
        cmocka_unit_test(the_keys_of_a_llama_are_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
