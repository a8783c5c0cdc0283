/* files_config_test.c - config.json: keys that are read, keys that are refused by name, and the written file.
 */
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/json/json_text.h"
#include "runtime/files/adapter_json.h"
#include "runtime/files/config_json.h"
#include "tests/support/cmocka_all.h"

#include <stdio.h>

#define GPT2_SIZES "\"n_layer\":2,\"n_embd\":32,\"n_head\":4,\"n_positions\":20,\"vocab_size\":48"
#define GPT2       "\"model_type\":\"gpt2\"," GPT2_SIZES
#define LLAMA_SIZES                                                                                          \
    "\"num_hidden_layers\":3,\"hidden_size\":48,\"num_attention_heads\":6,\"intermediate_size\":80,"         \
    "\"vocab_size\":97"
#define LLAMA "\"model_type\":\"llama\"," LLAMA_SIZES

static int parse(const char *text, struct architecture *a, struct config_notes *notes,
                 struct muster_error *err)
{
    return config_json_parse("config.json", text, strlen(text), NULL, a, notes, err);
}

static void sizes_are_read(void **state)
{
    (void)state;
    struct architecture a;
    struct config_notes notes;
    struct muster_error err = {0};
    assert_int_equal(
        parse("{" GPT2 ",\"n_inner\":null,\"attn_pdrop\":0.1,\"resid_pdrop\":0.2}", &a, &notes, &err), 0);
    assert_int_equal(a.kind, ARCHITECTURE_GPT2);
    assert_int_equal(a.gpt2.layers, 2);
    assert_int_equal(a.gpt2.channels, 32);
    assert_int_equal(a.gpt2.heads, 4);
    assert_int_equal(a.gpt2.max_positions, 20);
    assert_int_equal(a.gpt2.vocab, 48);
    assert_true(notes.dropout == 0.2);
    assert_int_equal(parse("{" GPT2 ",\"n_inner\":128}", &a, &notes, &err), 0);

    assert_int_equal(parse("{" LLAMA "}", &a, &notes, &err), 0);
    assert_int_equal(a.kind, ARCHITECTURE_LLAMA);
    assert_int_equal(a.llama.layers, 3);
    assert_int_equal(a.llama.hidden, 80);
    assert_int_equal(a.llama.max_positions, 2048);
    assert_true(a.llama.epsilon == 1e-6); /* transformers' default, not ours */
    assert_true(a.llama.rotary.theta == 10000 && a.llama.rotary.kind == ROTARY_PLAIN && !a.llama.tied);
    assert_int_equal(parse("{" LLAMA ",\"num_key_value_heads\":2,\"head_dim\":8,\"tie_word_embeddings\":true,"
                           "\"attention_bias\":true,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":64,"
                           "\"attention_dropout\":0}",
                           &a, &notes, &err),
                     0);
    assert_int_equal(a.llama.kv_heads, 2);
    assert_int_equal(a.llama.head_size, 8);
    assert_true(a.llama.tied && a.llama.attention_bias && a.llama.epsilon == 1e-5);
    GUARD(guard_model) struct model *model = architecture_model(&a, &err);
    assert_non_null(model);
}

static void both_forms_of_rotary_scaling_are_read(void **state)
{
    (void)state;
    static const char *const forms[] = {
        "{" LLAMA ",\"rope_theta\":500.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
        "\"low_freq_factor\":1.5,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":32}}",
        "{" LLAMA ",\"rope_theta\":500.0,\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,"
        "\"low_freq_factor\":1.5,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":32}}",
        "{" LLAMA ",\"rope_scaling\":null,\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":500,"
        "\"factor\":8,\"low_freq_factor\":1.5,\"high_freq_factor\":4.0,"
        "\"original_max_position_embeddings\":32}}",
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct architecture a;
        struct config_notes notes;
        struct muster_error err = {0};
        if (parse(forms[i], &a, &notes, &err))
            fail_msg("%s", err.text);
        const struct rotary *r = &a.llama.rotary;
        assert_int_equal(r->kind, ROTARY_LLAMA3);
        assert_true(r->theta == 500 && r->factor == 8 && r->low == 1.5 && r->high == 4);
        assert_int_equal(r->original, 32);
    }
}

static void what_cannot_be_computed_is_refused_by_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *says;
    } cases[] = {
        {"", MUSTER_E_INVALID, "not valid JSON"},
        {"[1]", MUSTER_E_INVALID, "no object"},
        {"{}", MUSTER_E_INVALID, "model_type is missing"},
        {"{\"model_type\":\"bloom\"}", MUSTER_E_UNSUPPORTED, "model_type is \"bloom\""},
        {"{\"model_type\":\"resnet\"}", MUSTER_E_UNSUPPORTED, "model_type is \"resnet\""},
        {"{\"model_type\":\"page\"}", MUSTER_E_UNSUPPORTED, "model_type is \"page\""},
        {"{\"model_type\":\"mistral\"}", MUSTER_E_INVALID, "hidden_size is missing"},
        {"{\"model_type\":7}", MUSTER_E_INVALID, "model_type is no text"},
        {"{\"model_type\":\"gpt2\"}", MUSTER_E_INVALID, "n_layer is missing"},
        {"{\"model_type\":\"llama\"}", MUSTER_E_INVALID, "num_hidden_layers is missing"},
        {"{" LLAMA ",\"num_key_value_heads\":-2}", MUSTER_E_INVALID,
         "num_key_value_heads is no whole number"},
        {"{" LLAMA ",\"head_dim\":9999999999}", MUSTER_E_INVALID, "head_dim is no whole number"},
        {"{" LLAMA ",\"head_dim\":8.5}", MUSTER_E_INVALID, "head_dim is no whole number"},
        {"{" LLAMA ",\"rms_norm_eps\":\"x\"}", MUSTER_E_INVALID, "rms_norm_eps is no number"},
        {"{" LLAMA ",\"tie_word_embeddings\":1}", MUSTER_E_INVALID,
         "tie_word_embeddings is no true or false"},
        {"{" LLAMA ",\"hidden_act\":\"gelu\"}", MUSTER_E_UNSUPPORTED, "hidden_act is \"gelu\""},
        {"{" LLAMA ",\"mlp_bias\":true}", MUSTER_E_UNSUPPORTED, "mlp_bias is true"},
        {"{" LLAMA ",\"sliding_window\":4096}", MUSTER_E_UNSUPPORTED, "sliding_window is 4096"},
        {"{" LLAMA ",\"partial_rotary_factor\":0.5}", MUSTER_E_UNSUPPORTED, "partial_rotary_factor is 0.5"},
        {"{" LLAMA ",\"quantization_config\":{\"bits\":4}}", MUSTER_E_UNSUPPORTED, "quantization_config"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"longrope\"}}", MUSTER_E_UNSUPPORTED,
         "the type of rotary positions is \"longrope\""},
        {"{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"dynamic\"}}", MUSTER_E_UNSUPPORTED,
         "factor is null"},
        {"{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4,\"beta_slow\":64}}",
         MUSTER_E_UNSUPPORTED, "beta_fast is null"},
        {"{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":\"x\"}}", MUSTER_E_UNSUPPORTED,
         "factor is \"x\""},
        {"{" LLAMA ",\"is_causal\":null}", MUSTER_E_UNSUPPORTED, "is_causal is null"},
        {"{" LLAMA ",\"per_layer_config\":{}}", MUSTER_E_UNSUPPORTED, "per_layer_config is {}"},
        {"{" GPT2 ",\"activation_function\":\"mish\"}", MUSTER_E_UNSUPPORTED,
         "activation_function is \"mish\""},
        {"{" GPT2 ",\"n_inner\":0}", MUSTER_E_INVALID, "n_inner is no whole number"},
        {"{" GPT2 ",\"layer_norm_epsilon\":0}", MUSTER_E_UNSUPPORTED, "layer_norm_epsilon is"},
        {"{" GPT2 ",\"scale_attn_weights\":false}", MUSTER_E_UNSUPPORTED, "scale_attn_weights is false"},
        {"{" GPT2 ",\"scale_attn_by_inverse_layer_idx\":true}", MUSTER_E_UNSUPPORTED,
         "scale_attn_by_inverse_layer_idx is true"},
        {"{" GPT2 ",\"add_cross_attention\":true}", MUSTER_E_UNSUPPORTED, "add_cross_attention is true"},
        {"{" GPT2 ",\"tie_word_embeddings\":0}", MUSTER_E_INVALID, "tie_word_embeddings is no true or false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct architecture a;
        struct config_notes notes;
        struct muster_error err = {0};
        int result = parse(cases[i].text, &a, &notes, &err);
        if (result != -1 || (int)err.code != cases[i].code || !strstr(err.text, cases[i].says) ||
            strncmp(err.text, "config.json", 11))
            fail_msg("%s: %d %d %s", cases[i].text, result, err.code, err.text);
    }
}

static void check_written(const struct architecture *wrote)
{
    struct architecture a;
    struct config_notes notes;
    struct muster_error err = {0};
    scope_buffer text = {0}, again = {0};
    assert_int_equal(config_json_format(wrote, DTYPE_BF16, &text, &err), 0);
    if (parse(text.data, &a, &notes, &err))
        fail_msg("%s\n%s", err.text, text.data);
    GUARD(guard_json) json_t *root = json_loads(text.data, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(root, "dtype")), "bfloat16");
    assert_int_equal(a.kind, wrote->kind);
    assert_int_equal(config_json_format(&a, DTYPE_BF16, &again, &err), 0);
    assert_string_equal(text.data, again.data);
    assert_true(a.llama.rotary.theta == wrote->llama.rotary.theta || !wrote->llama.rotary.theta);
    assert_true(a.llama.rotary.factor == wrote->llama.rotary.factor);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct architecture a = {
        .kind = ARCHITECTURE_GPT2,
        .gpt2 = {.layers = 2, .channels = 32, .heads = 4, .vocab = 48, .max_positions = 20}};
    check_written(&a);
    a = (struct architecture){
        .kind = ARCHITECTURE_LLAMA,
        .llama = {.layers = 2, .channels = 48, .heads = 6, .kv_heads = 2, .vocab = 48, .max_positions = 20}};
    check_written(&a);
    a.llama.tied = a.llama.attention_bias = true;
    a.llama.rotary = (struct rotary){
        .theta = 500000, .kind = ROTARY_LLAMA3, .factor = 0.1 + 8, .low = 1, .high = 4, .original = 8192};
    check_written(&a);
    a.llama.rotary = (struct rotary){.theta = 1e6, .kind = ROTARY_LINEAR, .factor = 1.0 / 3 + 1};
    check_written(&a);
}

static void only_the_type_changes(void **state)
{
    (void)state;
    static const char old[] = "{\n  \"a\": 1e-05,\n  \"torch_dtype\": \"float16\"\n}\n",
                      new[] = "{\"dtype\":  \"float32\", \"torch_dtype\": \"x\"}";
    struct muster_error err = {0};
    scope_buffer out = {0};
    assert_int_equal(config_json_retype("c", old, strlen(old), DTYPE_F16, &out, &err), 0);
    assert_string_equal(out.data, old);
    buffer_clear(&out);
    assert_int_equal(config_json_retype("c", old, strlen(old), DTYPE_F32, &out, &err), 0);
    GUARD(guard_json) json_t *root = json_loads(out.data, 0, NULL);
    assert_int_equal(json_object_size(root), 2);
    assert_string_equal(json_string_value(json_object_get(root, "torch_dtype")), "float32");
    assert_true(json_real_value(json_object_get(root, "a")) == 1e-5);
    buffer_clear(&out);
    assert_int_equal(config_json_retype("c", new, strlen(new), DTYPE_F32, &out, &err), 0);
    assert_string_equal(out.data, new);
    assert_int_equal(config_json_retype("c", "{", 1, DTYPE_F32, &out, &err), -1);
}

/* ---- adapter_config.json ---- */

static const struct {
    const char *rest, *error; /* NULL: it is read */
    double alpha;
} adapters[] = {
    {"", NULL, 6},
    {"\"init_lora_weights\": true", NULL, 6},
    {"\"init_lora_weights\": false", NULL, 6},
    {"\"init_lora_weights\": null", NULL, 6},
    {"\"init_lora_weights\": \"gaussian\"", NULL, 6},
    {"\"init_lora_weights\": \"eva\", \"eva_config\": {\"rho\": 2.0}", NULL, 6},
    {"\"init_lora_weights\": \"orthogonal\"", NULL, 6},
    {"\"use_rslora\": true", NULL, 12},
    {"\"use_rslora\": null", NULL, 6},
    {"\"loftq_config\": {}, \"rank_pattern\": {}, \"a_newer_key\": null", NULL, 6},
    {"\"init_lora_weights\": \"pissa\"",
     "a.json: init_lora_weights is \"pissa\", which is not supported: such adapters stand on a changed base",
     0},
    {"\"init_lora_weights\": \"pissa_niter_4\"", "init_lora_weights", 0},
    {"\"init_lora_weights\": \"PiSSA\"", "init_lora_weights", 0},
    {"\"init_lora_weights\": \"olora\"", "init_lora_weights", 0},
    {"\"init_lora_weights\": \"OLoRA\"", "init_lora_weights", 0},
    {"\"init_lora_weights\": \"loftq\"", "init_lora_weights", 0},
    {"\"init_lora_weights\": \"corda\"", "init_lora_weights", 0},
    {"\"init_lora_weights\": \"lora_ga\"", "init_lora_weights", 0},
    {"\"init_lora_weights\": \"of_next_year\"", "init_lora_weights", 0},
    {"\"init_lora_weights\": {}", "init_lora_weights", 0},
    {"\"use_rslora\": 2", "use_rslora is neither true nor false", 0},
    {"\"use_dora\": true", "use_dora is true", 0},
    {"\"lora_bias\": true", "lora_bias is true", 0},
    {"\"bias\": \"lora_only\"", "bias is", 0},
    {"\"alpha_pattern\": {\"q_proj\": 2}", "alpha_pattern is", 0},
    {"\"rank_pattern\": {\"q_proj\": 2}", "rank_pattern is", 0},
    {"\"layers_to_transform\": [0]", "layers_to_transform is", 0},
    {"\"layer_replication\": [[0, 2]]", "layer_replication is", 0},
    {"\"modules_to_save\": [\"lm_head\"]", "modules_to_save is", 0},
    {"\"trainable_token_indices\": [7]", "trainable_token_indices is", 0},
    {"\"target_parameters\": [\"mlp.experts\"]", "target_parameters is", 0},
    {"\"exclude_modules\": [\"v_proj\"]", "exclude_modules is", 0},
    {"\"megatron_config\": {\"x\": 1}", "megatron_config is", 0},
    {"\"loftq_config\": {\"loftq_bits\": 4}", "loftq_config is", 0},
    {"\"alora_invocation_tokens\": [1]", "alora_invocation_tokens is", 0},
    {"\"use_qalora\": true", "use_qalora is true", 0},
    {"\"ensure_weight_tying\": true", "ensure_weight_tying is true", 0},
    {"\"of_next_year\": 0.5", "of_next_year is 0.5", 0},
};

/* Each key that changes values is read or refused by its name. */
static void adapters_are_read_by_every_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++) {
        struct lora lora;
        struct muster_error err = {0};
        scope_buffer text = {0};
        buffer_printf(
            &text,
            "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 6, \"target_modules\": [\"q_proj\"]%s%s}",
            *adapters[i].rest ? ", " : "", adapters[i].rest);
        const int result = adapter_json_parse("a.json", text.data, text.length, &lora, &err);
        if (!!result != !!adapters[i].error || (result && !strstr(err.text, adapters[i].error)))
            fail_msg("%s: '%s'", adapters[i].rest, err.text);
        if (!result)
            assert_true(lora.alpha == adapters[i].alpha);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_are_read_by_every_key),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(both_forms_of_rotary_scaling_are_read),
        cmocka_unit_test(what_cannot_be_computed_is_refused_by_its_name),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(only_the_type_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
