/* config_json_write.c - see config_json.h: writing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/json/json_text.h"
#include "runtime/files/config_json.h"

static const char quantization[] = "quantization_config";

static const char *torch_name(enum dtype dtype)
{
    return dtype == DTYPE_BF16  ? "bfloat16"
           : dtype == DTYPE_F16 ? "float16"
           : dtype == DTYPE_F64 ? "float64"
                                : "float32";
}

/* The shortest text that reads back as the same number; a whole number gets a ".0". */
static void put_real(struct buffer *out, const char *key, double value, const char *end)
{
    char text[40];
    double again;
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value); /* fits */
        if (text_double(text, &again) && again == value)
            break;
    }
    (void)buffer_printf(out, "\"%s\": %s%s%s", key, text, strpbrk(text, ".e") ? "" : ".0", end);
}

static void format_gpt2(struct buffer *out, const struct gpt2_config *c)
{
    static const char *const activations[ACTIVATION_KINDS] = {[ACTIVATION_GELU_TANH] = "gelu_new",
                                                              [ACTIVATION_GELU_ERF] = "gelu",
                                                              [ACTIVATION_SILU] = "silu",
                                                              [ACTIVATION_RELU] = "relu",
                                                              [ACTIVATION_TANH] = "tanh"};
    char inner[16] = "null";
    if (c->hidden && c->hidden != 4 * c->channels)
        (void)snprintf(inner, sizeof inner, "%d", c->hidden); /* fits */
    (void)buffer_printf(out,
                        "  \"activation_function\": \"%s\",\n"
                        "  \"architectures\": [\n    \"GPT2LMHeadModel\"\n  ],\n"
                        "  \"attn_pdrop\": 0.0,\n  \"bos_token_id\": null,\n  \"embd_pdrop\": 0.0,\n"
                        "  \"eos_token_id\": null,\n  ",
                        activations[c->activation]);
    put_real(out, "layer_norm_epsilon", c->epsilon > 0 ? c->epsilon : 1e-5, ",\n");
    (void)buffer_printf(out,
                        "  \"model_type\": \"gpt2\",\n  \"n_embd\": %d,\n  \"n_head\": %d,\n"
                        "  \"n_inner\": %s,\n  \"n_layer\": %d,\n  \"n_positions\": %d,\n"
                        "  \"resid_pdrop\": 0.0,\n  \"tie_word_embeddings\": true,\n  \"vocab_size\": %d,\n",
                        c->channels, c->heads, inner, c->layers, c->max_positions, c->vocab);
}

/* The entries of rope_scaling but its braces. */
static void format_scaling(struct buffer *out, const struct rotary *r)
{
    if (r->kind == ROTARY_PLAIN)
        (void)buffer_text(out, "    \"rope_type\": \"default\"");
    if (r->kind == ROTARY_LINEAR) {
        put_real(out, "factor", r->factor, ",\n    ");
        (void)buffer_text(out, "\"rope_type\": \"linear\"");
    }
    if (r->kind == ROTARY_DYNAMIC) {
        put_real(out, "factor", r->factor, ",\n    ");
        (void)buffer_text(out, "\"rope_type\": \"dynamic\"");
    }
    if (r->kind == ROTARY_YARN) {
        put_real(out, "attention_factor", rotary_amplitude(r), ",\n    ");
        put_real(out, "beta_fast", r->high, ",\n    ");
        put_real(out, "beta_slow", r->low, ",\n    ");
        put_real(out, "factor", r->factor, ",\n    ");
        (void)buffer_printf(out,
                            "\"original_max_position_embeddings\": %d,\n    \"rope_type\": \"yarn\",\n    "
                            "\"truncate\": %s",
                            r->original, r->exact ? "false" : "true");
    }
    if (r->kind == ROTARY_LLAMA3) {
        put_real(out, "factor", r->factor, ",\n    ");
        put_real(out, "high_freq_factor", r->high, ",\n    ");
        put_real(out, "low_freq_factor", r->low, ",\n    ");
        (void)buffer_printf(out, "\"original_max_position_embeddings\": %d,\n    \"rope_type\": \"llama3\"",
                            r->original);
    }
}

/* rope_theta and rope_scaling are transformers 4's, rope_parameters is 5's: each passes over the other's. */
static void format_rotary(struct buffer *out, const struct rotary *r)
{
    (void)buffer_text(out, "  \"rope_parameters\": {\n    ");
    put_real(out, "rope_theta", r->theta, ",\n    ");
    format_scaling(out, r);
    (void)buffer_text(out, "\n  },\n  \"rope_scaling\": ");
    if (r->kind == ROTARY_PLAIN) {
        (void)buffer_text(out, "null");
    } else {
        (void)buffer_text(out, "{\n    ");
        format_scaling(out, r);
        (void)buffer_text(out, "\n  }");
    }
    (void)buffer_text(out, ",\n  ");
    put_real(out, "rope_theta", r->theta, ",\n");
}

static int format_llama(struct buffer *out, const struct llama_config *config, struct muster_error *err)
{
    struct llama_config complete = *config;
    const struct llama_config *c = &complete;
    if (llama_complete(&complete, err))
        return -1;
    (void)buffer_printf(out,
                        "  \"architectures\": [\n    \"LlamaForCausalLM\"\n  ],\n"
                        "  \"attention_bias\": %s,\n  \"attention_dropout\": 0.0,\n"
                        "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n  \"head_dim\": %d,\n"
                        "  \"hidden_act\": \"silu\",\n  \"hidden_size\": %d,\n  \"intermediate_size\": %d,\n"
                        "  \"max_position_embeddings\": %d,\n  \"mlp_bias\": false,\n"
                        "  \"model_type\": \"llama\",\n  \"num_attention_heads\": %d,\n"
                        "  \"num_hidden_layers\": %d,\n  \"num_key_value_heads\": %d,\n  ",
                        c->attention_bias ? "true" : "false", c->head_size, c->channels, c->hidden,
                        c->rotary.kind == ROTARY_DYNAMIC ? c->rotary.original : c->max_positions, c->heads,
                        c->layers, c->kv_heads);
    put_real(out, "rms_norm_eps", c->epsilon, ",\n");
    format_rotary(out, &c->rotary);
    (void)buffer_printf(out, "  \"tie_word_embeddings\": %s,\n  \"vocab_size\": %d,\n",
                        c->tied ? "true" : "false", c->vocab);
    return 0;
}

static int put_json(const json_t *root, const char *name, struct buffer *out, struct muster_error *err)
{
    char *text = json_dumps(root, JSON_INDENT(2));
    int result = !text || buffer_text(out, text) || buffer_text(out, "\n")
                     ? error_set(err, MUSTER_E_NOMEM, "%s: no memory", name)
                     : 0;
    free(text); /* jansson's, not of mem.h */
    return result;
}

int config_json_retype(const char *name, const char *text, size_t length, enum dtype dtype,
                       struct buffer *out, struct muster_error *err)
{
    GUARD(guard_json) json_t *root = json_text_parse(name, text, length, err);
    if (!root)
        return -1;
    /* Up to 4.55 the key was torch_dtype. */
    const char *key =
        json_object_get(root, "torch_dtype") && !json_object_get(root, "dtype") ? "torch_dtype" : "dtype";
    const char *now = json_string_value(json_object_get(root, key));
    const bool quantized = !json_object_del(root, quantization);
    if (!quantized && now && !strcmp(now, torch_name(dtype)))
        return buffer_append(out, text, length) ? error_set(err, MUSTER_E_NOMEM, "%s: no memory", name) : 0;
    if (json_object_set_new(root, key, json_string(torch_name(dtype))))
        return error_set(err, MUSTER_E_NOMEM, "%s: no memory", name);
    return put_json(root, name, out, err);
}

int config_json_mark(const char *name, const char *text, size_t length, struct buffer *out,
                     struct muster_error *err)
{
    GUARD(guard_json) json_t *root = json_text_parse(name, text, length, err);
    if (!root)
        return -1;
    if (json_object_set_new(root, quantization, json_pack("{s:s}", "quant_method", CONFIG_QUANT_METHOD)))
        return error_set(err, MUSTER_E_NOMEM, "%s: no memory", name);
    return put_json(root, name, out, err);
}

/* A page keeps the config.json that it was run with. */
static int format_page(const struct page *page, enum dtype dtype, struct buffer *out,
                       struct muster_error *err)
{
    scope_buffer text = {0};
    return put_json(page_config(page), "config.json", &text, err) < 0
               ? -1
               : config_json_retype("config.json", text.data, text.length, dtype, out, err);
}

int config_json_format(const struct architecture *architecture, enum dtype dtype, struct buffer *out,
                       struct muster_error *err)
{
    if (architecture->kind == ARCHITECTURE_PAGE)
        return format_page(architecture->page, dtype, out, err);
    (void)buffer_text(out, "{\n");
    if (architecture->kind == ARCHITECTURE_GPT2)
        format_gpt2(out, &architecture->gpt2);
    else if (format_llama(out, &architecture->llama, err))
        return -1;
    return buffer_printf(out, "  \"dtype\": \"%s\"\n}\n", torch_name(dtype))
               ? error_set(err, MUSTER_E_NOMEM, "no memory for config.json")
               : 0;
}
