/* config_json.c - see config_json.h: reading. Writing is in config_json_write.c. */
#include "runtime/files/config_json.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/json/json_text.h"
#include "runtime/pages/rope.h"

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

static const struct {
    const char *name;
    enum activation_kind kind;
} gpt2_activations[] = {{"gelu_new", ACTIVATION_GELU_TANH}, {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
                        {"gelu", ACTIVATION_GELU_ERF},      {"relu", ACTIVATION_RELU},
                        {"silu", ACTIVATION_SILU},          {"swish", ACTIVATION_SILU},
                        {"tanh", ACTIVATION_TANH}};

static double largest_of(struct config_reader *r, const char *const *keys)
{
    double most = 0;
    for (; *keys; keys++) {
        double value = take_real(r, *keys, 0);
        most = value > most ? value : most;
    }
    return most;
}

static enum activation_kind take_activation(struct config_reader *r, const char *key)
{
    const json_t *value = config_get(r, key);
    const char *name = value ? json_string_value(value) : "gelu_new";
    for (size_t i = 0; name && i < sizeof gpt2_activations / sizeof *gpt2_activations; i++)
        if (!strcmp(gpt2_activations[i].name, name))
            return gpt2_activations[i].kind;
    fail_unsupported(r, key, value, "gelu_new, gelu, relu, silu and tanh are");
    return ACTIVATION_GELU_TANH;
}

static void read_gpt2(struct config_reader *r, struct gpt2_config *c, struct config_notes *notes)
{
    static const char *const dropouts[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop", NULL};
    *c = (struct gpt2_config){.layers = take_size(r, "n_layer", true, 0),
                              .channels = take_size(r, "n_embd", true, 0),
                              .heads = take_size(r, "n_head", true, 0),
                              .vocab = take_size(r, "vocab_size", true, 0),
                              .max_positions = take_size(r, "n_positions", true, 0)};
    c->hidden = take_size(r, "n_inner", false, 0);
    c->activation = take_activation(r, "activation_function");
    c->epsilon = take_real(r, "layer_norm_epsilon", 1e-5);
    if (!(c->epsilon > 0))
        fail_unsupported(r, "layer_norm_epsilon", config_get(r, "layer_norm_epsilon"), "a number above 0 is");
    must_be_flag(r, "scale_attn_weights", true, true);
    must_be_flag(r, "scale_attn_by_inverse_layer_idx", false, false);
    must_be_flag(r, "add_cross_attention", false, false);
    notes->dropout = largest_of(r, dropouts);
}

static int rope_refused(void *context, const char *key, const json_t *value, const char *works)
{
    fail_unsupported(context, key, value, works);
    return -1;
}

static void read_rotary(struct config_reader *r, struct llama_config *c)
{
    const int head = c->head_size ? c->head_size : c->channels / (c->heads ? c->heads : 1);
    const struct rope_source source = {.config = r->root,
                                       .head = head,
                                       .positions = c->max_positions,
                                       .theta = 10000,
                                       .theta_key = "rope_theta",
                                       .partial_key = "partial_rotary_factor",
                                       .kinds = "default linear llama3 dynamic yarn"};
    if (rope_read(&source, &c->rotary, NULL, rope_refused, r) == 0 && c->rotary.kind == ROTARY_DYNAMIC &&
        c->rotary.factor * c->max_positions < (1 << 20))
        c->max_positions = (int)(c->rotary.factor * c->max_positions); /* what the frequencies grow for */
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
    read_rotary(r, c);
    must_be_text(r, "hidden_act", "silu", "swish", "silu is");
    must_be_flag(r, "mlp_bias", false, false);
    must_be_absent(r, "sliding_window", "attention sees all positions before");
    notes->dropout = largest_of(r, dropouts);
}

/* A family with a page: of the user's, or of those that libmuster brings. */
static int read_page(struct config_reader *r, json_t *root, const char *kind, const struct config_page *own,
                     struct architecture *architecture, struct config_notes *notes)
{
    size_t length = own ? own->length : 0;
    const char *text = own ? own->text : page_of_family(kind, &length);
    char families[512], page[64];
    if (!text) {
        (void)snprintf(families, sizeof families,
                       "llama, %s are; another needs a page of its own (model.page)",
                       page_families()); /* cut: still a list */
        fail_unsupported(r, "model_type", config_get(r, "model_type"), families);
        return -1;
    }
    (void)snprintf(page, sizeof page, "%s.yaml", kind);
    architecture->kind = ARCHITECTURE_PAGE;
    architecture->page = page_open(own ? own->name : page, own != NULL, text, length, r->name, root, r->err);
    r->failed = !architecture->page;
    notes->dropout = architecture->page ? page_dropout(architecture->page) : 0;
    return r->failed ? -1 : 0;
}

int config_json_parse(const char *name, const char *text, size_t length, const struct config_page *own,
                      struct architecture *architecture, struct config_notes *notes, struct muster_error *err)
{
    *architecture = (struct architecture){.kind = ARCHITECTURE_COUNT};
    *notes = (struct config_notes){0};
    GUARD(guard_json) json_t *root = json_text_parse(name, text, length, err);
    if (!root)
        return -1;
    struct config_reader r = {.name = name, .root = root, .err = err};
    const json_t *type = config_get(&r, "model_type");
    const char *kind = json_string_value(type);
    must_be_ours(&r);
    const json_t *causal = json_object_get(root, "is_causal"); /* null is false, as in transformers */
    if (causal && !json_is_true(causal))
        fail_unsupported(&r, "is_causal", causal, "it has to be true, or absent");
    must_be_absent(&r, "per_layer_config", "all layers have the same sizes");
    if (!type)
        r.failed = r.failed || error_set(err, MUSTER_E_INVALID, "%s: model_type is missing", name);
    if (r.failed)
        return -1;
    if (!kind)
        fail_kind(&r, "model_type", "text");
    else if (!own && !strcmp(kind, "gpt2") && take_flag(&r, "tie_word_embeddings", true))
        read_gpt2(&r, &architecture->gpt2, notes);
    else if (!own && !strcmp(kind, "llama"))
        read_llama(&r, &architecture->llama, notes);
    else
        return read_page(&r, root, kind, own, architecture, notes);
    architecture->kind = kind && !strcmp(kind, "gpt2") ? ARCHITECTURE_GPT2 : ARCHITECTURE_LLAMA;
    return r.failed ? -1 : 0;
}
