/* config_json.c - see config_json.h: reading. Writing is in config_json_write.c. */
#include "runtime/files/config_json.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/json/json_text.h"

/* A reader that keeps the first error; later calls return their fallback. */
struct config_reader {
    const char *name;
    const json_t *root;
    struct muster_error *err;
    bool failed;
};

/* Absent and null are the same, as in transformers. */
static const json_t *config_get(const struct config_reader *r, const char *key)
{
    const json_t *value = json_object_get(r->root, key);
    return value && !json_is_null(value) ? value : NULL;
}

static void fail_kind(struct config_reader *r, const char *key, const char *kind)
{
    if (!r->failed)
        r->failed = error_set(r->err, MUSTER_E_INVALID, "%s: %s is no %s", r->name, key, kind);
}

static void fail_unsupported(struct config_reader *r, const char *key, const json_t *value, const char *works)
{
    if (r->failed)
        return;
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    r->failed = error_set(r->err, MUSTER_E_UNSUPPORTED, "%s: %s is %.200s, which is not supported: %s",
                          r->name, key, text ? text : "another value", works);
    free(text); /* jansson's, not of mem.h */
}

/* required: no fallback. */
static int take_size(struct config_reader *r, const char *key, bool required, int fallback)
{
    const json_t *value = config_get(r, key);
    if (!value && required && !r->failed)
        r->failed = error_set(r->err, MUSTER_E_INVALID, "%s: %s is missing", r->name, key);
    if (!value)
        return fallback;
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > INT_MAX) {
        fail_kind(r, key, "whole number above 0");
        return fallback;
    }
    return (int)json_integer_value(value);
}

static double take_real(struct config_reader *r, const char *key, double fallback)
{
    const json_t *value = config_get(r, key);
    if (value && !json_is_number(value))
        fail_kind(r, key, "number");
    return value && json_is_number(value) ? json_number_value(value) : fallback;
}

static bool take_flag(struct config_reader *r, const char *key, bool fallback)
{
    const json_t *value = config_get(r, key);
    if (value && !json_is_boolean(value))
        fail_kind(r, key, "true or false");
    return value && json_is_boolean(value) ? json_is_true(value) : fallback;
}

/* ---- keys with only one supported value ---- */

static void must_be_flag(struct config_reader *r, const char *key, bool only, bool fallback)
{
    if (take_flag(r, key, fallback) != only)
        fail_unsupported(r, key, config_get(r, key) ? config_get(r, key) : json_null(),
                         only ? "it has to be true" : "it has to be false");
}

static void must_be_number(struct config_reader *r, const char *key, double only, const char *works)
{
    if (take_real(r, key, only) != only)
        fail_unsupported(r, key, config_get(r, key), works);
}

/* only, alias: two names for the same function. */
static void must_be_text(struct config_reader *r, const char *key, const char *only, const char *alias,
                         const char *works)
{
    const json_t *value = config_get(r, key);
    const char *text = json_string_value(value);
    if (value && (!text || (strcmp(text, only) && strcmp(text, alias))))
        fail_unsupported(r, key, value, works);
}

static void must_be_absent(struct config_reader *r, const char *key, const char *works)
{
    const json_t *value = config_get(r, key);
    if (value)
        fail_unsupported(r, key, value, works);
}

/* Accepts tensors in few bits only if muster-train quantize wrote them. */
static void must_be_ours(struct config_reader *r)
{
    const json_t *value = config_get(r, "quantization_config");
    const char *method = json_string_value(json_object_get(value, "quant_method"));
    if (value && (!method || strcmp(method, CONFIG_QUANT_METHOD) != 0))
        fail_unsupported(
            r, "quantization_config", value,
            "parameters of 16, 32 or 64 bits are, and the parameters that muster-train quantize writes");
}

/* ---- architectures ---- */

static double largest_of(struct config_reader *r, const char *const *keys)
{
    double most = 0;
    for (; *keys; keys++) {
        double value = take_real(r, *keys, 0);
        most = value > most ? value : most;
    }
    return most;
}

static void read_gpt2(struct config_reader *r, struct gpt2_config *c, struct config_notes *notes)
{
    static const char *const dropouts[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop", NULL};
    *c = (struct gpt2_config){.layers = take_size(r, "n_layer", true, 0),
                              .channels = take_size(r, "n_embd", true, 0),
                              .heads = take_size(r, "n_head", true, 0),
                              .vocab = take_size(r, "vocab_size", true, 0),
                              .max_positions = take_size(r, "n_positions", true, 0)};
    int64_t inner = take_size(r, "n_inner", false, 0);
    if (inner && inner != (int64_t)4 * c->channels)
        fail_unsupported(r, "n_inner", config_get(r, "n_inner"), "it has to be 4 x n_embd, or null");
    must_be_text(r, "activation_function", "gelu_new", "gelu_pytorch_tanh", "gelu_new is");
    must_be_number(r, "layer_norm_epsilon", 1e-5, "1e-05 is");
    must_be_flag(r, "scale_attn_weights", true, true);
    must_be_flag(r, "scale_attn_by_inverse_layer_idx", false, false);
    must_be_flag(r, "add_cross_attention", false, false);
    must_be_flag(r, "tie_word_embeddings", true, true);
    notes->dropout = largest_of(r, dropouts);
}

static void read_llama3(struct config_reader *r, struct rotary *rotary, int max_positions)
{
    rotary->kind = ROTARY_LLAMA3;
    rotary->factor = take_real(r, "factor", 0);
    rotary->low = take_real(r, "low_freq_factor", 0);
    rotary->high = take_real(r, "high_freq_factor", 0);
    rotary->original = take_size(r, "original_max_position_embeddings", false, max_positions);
}

/* transformers 4 has rope_theta next to rope_scaling; transformers 5 has it inside rope_parameters. Where a
 * file has both keys, transformers 5 takes rope_scaling. */
static void read_rotary(struct config_reader *r, struct rotary *rotary, int max_positions)
{
    const char *key = config_get(r, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    const json_t *scaling = config_get(r, key);
    rotary->theta = take_real(r, "rope_theta", 10000);
    must_be_number(r, "partial_rotary_factor", 1, "1 is");
    if (!scaling)
        return;
    struct config_reader inner = *r;
    inner.root = scaling;
    const json_t *type = config_get(&inner, "rope_type");
    type = type ? type : config_get(&inner, "type");
    const char *kind = type ? json_string_value(type) : "default";
    rotary->theta = take_real(&inner, "rope_theta", rotary->theta);
    must_be_number(&inner, "partial_rotary_factor", 1, "1 is");
    if (kind && !strcmp(kind, "linear")) {
        rotary->kind = ROTARY_LINEAR;
        rotary->factor = take_real(&inner, "factor", 0);
    } else if (kind && !strcmp(kind, "llama3")) {
        read_llama3(&inner, rotary, max_positions);
    } else if (!kind || strcmp(kind, "default")) {
        char place[64];
        (void)snprintf(place, sizeof place, "the type of %s", key); /* fits */
        fail_unsupported(&inner, place, type, "default, linear and llama3 are");
    }
    r->failed = inner.failed;
}

static void read_llama(struct config_reader *r, struct llama_config *c, struct config_notes *notes)
{
    static const char *const dropouts[] = {"attention_dropout", NULL};
    *c = (struct llama_config){
        .layers = take_size(r, "num_hidden_layers", true, 0),
        .channels = take_size(r, "hidden_size", true, 0),
        .heads = take_size(r, "num_attention_heads", true, 0),
        .kv_heads = take_size(r, "num_key_value_heads", false, 0),
        .head_size = take_size(r, "head_dim", false, 0),
        .hidden = take_size(r, "intermediate_size", true, 0),
        .vocab = take_size(r, "vocab_size", true, 0),
        .max_positions = take_size(r, "max_position_embeddings", false, 2048),
        .tied = take_flag(r, "tie_word_embeddings", false),
        .attention_bias = take_flag(r, "attention_bias", false),
        .epsilon = take_real(r, "rms_norm_eps", 1e-6),
    };
    read_rotary(r, &c->rotary, c->max_positions);
    must_be_text(r, "hidden_act", "silu", "swish", "silu is");
    must_be_flag(r, "mlp_bias", false, false);
    must_be_absent(r, "sliding_window", "attention sees all positions before");
    notes->dropout = largest_of(r, dropouts);
}

int config_json_parse(const char *name, const char *text, size_t length, struct architecture *architecture,
                      struct config_notes *notes, struct muster_error *err)
{
    GUARD(guard_json) json_t *root = json_text_parse(name, text, length, err);
    if (!root)
        return -1;
    struct config_reader r = {.name = name, .root = root, .err = err};
    const json_t *type = config_get(&r, "model_type");
    const char *kind = json_string_value(type);
    *architecture = (struct architecture){.kind = ARCHITECTURE_COUNT};
    *notes = (struct config_notes){0};
    for (int i = 0; kind && i < ARCHITECTURE_COUNT; i++) {
        if (!strcmp(kind, architecture_name((enum architecture_kind)i)))
            architecture->kind = (enum architecture_kind)i;
    }
    must_be_ours(&r);
    if (!type)
        r.failed = r.failed || error_set(err, MUSTER_E_INVALID, "%s: model_type is missing", name);
    else if (architecture->kind == ARCHITECTURE_COUNT)
        fail_unsupported(&r, "model_type", type, "gpt2 and llama are");
    else if (architecture->kind == ARCHITECTURE_GPT2)
        read_gpt2(&r, &architecture->gpt2, notes);
    else
        read_llama(&r, &architecture->llama, notes);
    return r.failed ? -1 : 0;
}
