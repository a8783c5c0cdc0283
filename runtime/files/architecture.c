/* architecture.c - see architecture.h. */
#include "runtime/files/architecture.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"

const char *architecture_name(enum architecture_kind kind)
{
#define ARCHITECTURE_NAME(symbol, name) name,
    static const char *const names[] = {ARCHITECTURES(ARCHITECTURE_NAME)};
#undef ARCHITECTURE_NAME
    return names[kind];
}

static bool is_language_model(enum architecture_kind kind)
{
    return kind == ARCHITECTURE_GPT2 || kind == ARCHITECTURE_LLAMA || kind == ARCHITECTURE_PAGE;
}

void architecture_keep(const struct architecture *architecture)
{
    (void)page_retain(architecture->page);
}

void architecture_drop(struct architecture *architecture)
{
    page_release(architecture->page);
    architecture->page = NULL;
}

const char *architecture_own_page(const struct architecture *architecture)
{
    return architecture->page ? page_own(architecture->page) : NULL;
}

const char *architecture_title(const struct architecture *architecture)
{
    return architecture->kind == ARCHITECTURE_PAGE ? page_model_type(architecture->page)
                                                   : architecture_name(architecture->kind);
}

struct model *architecture_model(const struct architecture *architecture, struct muster_error *err)
{
    const struct lora *lora = architecture->lora.rank ? &architecture->lora : NULL;
    if (lora && !is_language_model(architecture->kind)) {
        (void)error_set(err, MUSTER_E_UNSUPPORTED, "lora: %s has no adapters; language models have",
                        architecture_name(architecture->kind));
        return NULL;
    }
    switch (architecture->kind) {
    case ARCHITECTURE_GPT2:
        return gpt2_create_adapted(&architecture->gpt2, lora, err);
    case ARCHITECTURE_SIMPLE_CNN:
        return simple_cnn_create(&architecture->cnn, err);
    case ARCHITECTURE_RESNET:
        return resnet_create(&architecture->resnet, err);
    case ARCHITECTURE_TEXT_CLASSIFIER:
        return text_classifier_create(&architecture->text_classifier, err);
    case ARCHITECTURE_TEXT_ENCODER:
        return text_encoder_create(&architecture->text_encoder, err);
    case ARCHITECTURE_PAGE:
        return page_model(architecture->page, lora, err);
    case ARCHITECTURE_LLAMA:
    case ARCHITECTURE_COUNT:
        break;
    }
    return llama_create_adapted(&architecture->llama, lora, err);
}

struct tensor_naming architecture_naming(const struct architecture *architecture)
{
    if (!architecture || !is_language_model(architecture->kind))
        return (struct tensor_naming){.prefix = "", .base = ""};
    if (architecture->kind == ARCHITECTURE_GPT2)
        return (struct tensor_naming){
            .prefix = "transformer.", .base = "", .tied = "lm_head.weight", .tied_to = "wte.weight"};
    if (architecture->kind == ARCHITECTURE_PAGE)
        return (struct tensor_naming){.prefix = "",
                                      .base = page_base(architecture->page),
                                      .older = page_classifies(architecture->page),
                                      .tied = page_tied(architecture->page),
                                      .tied_to = page_tied_to(architecture->page)};
    struct tensor_naming llama = {.prefix = "", .base = "model."};
    if (architecture->llama.tied) {
        llama.tied = "lm_head.weight";
        llama.tied_to = "model.embed_tokens.weight";
    }
    return llama;
}

int architecture_targets(const struct architecture *architecture, struct lora *lora, struct muster_error *err)
{
    if (architecture->kind == ARCHITECTURE_GPT2)
        return lora_add_target(lora, "c_attn", err);
    if (architecture->kind == ARCHITECTURE_PAGE)
        return page_targets(architecture->page, lora, err);
    return lora_add_target(lora, "q_proj", err) < 0 ? -1 : lora_add_target(lora, "v_proj", err);
}

bool architecture_ignores(const char *tensor)
{
    static const char *const patterns[] = {"*.attn.bias",           "*.attn.masked_bias",
                                           "*.attention.bias",      "*.attention.masked_bias",
                                           "*.rotary_emb.inv_freq", "*embeddings.position_ids"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (!fnmatch(patterns[i], tensor, 0))
            return true;
    }
    return false;
}

bool architecture_classifies(const struct architecture *architecture)
{
    return architecture && architecture->kind == ARCHITECTURE_PAGE && page_classifies(architecture->page);
}

bool architecture_may_lack(const struct architecture *architecture, const char *param)
{
    return architecture_classifies(architecture) && page_may_lack(architecture->page, param);
}

bool architecture_leaves_unread(const struct architecture *architecture, const char *tensor)
{
    return architecture_classifies(architecture) && page_leaves_unread(architecture->page, tensor);
}

int architecture_labels(const struct architecture *architecture)
{
    return page_labels(architecture->page);
}

const char *architecture_label(const struct architecture *architecture, int label)
{
    return page_label(architecture->page, label);
}

int architecture_set_labels(struct architecture *architecture, const char *const *names, int count,
                            struct muster_error *err)
{
    if (architecture_classifies(architecture))
        return page_set_labels(architecture->page, names, count, err);
    return error_set(
        err, MUSTER_E_INVALID,
        "model.num_classes and model.labels have no effect: the model is a %s, and no classifier of "
        "texts",
        architecture_title(architecture));
}

/* transformers registers the modules of a Llama block in this order; GPT-2's is ours. */
static int llama_part(const char *part)
{
    static const char *const parts[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                        "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                        "mlp.down_proj",    "input_layernorm",  "post_attention_layernorm"};
    enum { PARTS = sizeof parts / sizeof *parts };
    for (int i = 0; i < PARTS; i++) {
        if (!strncmp(part, parts[i], strlen(parts[i])))
            return i;
    }
    return PARTS;
}

int architecture_order(const struct architecture *architecture, const char *param)
{
    enum { BLOCK = 16 };
    int layer = 0, end = 0;
    if (architecture && architecture->kind == ARCHITECTURE_PAGE)
        return page_order(architecture->page, param);
    if (!architecture || architecture->kind != ARCHITECTURE_LLAMA)
        return 0;
    if (sscanf(param, "model.layers.%d.%n", &layer, &end) == 1 && end)
        return BLOCK * (1 + layer) + llama_part(param + end);
    return strncmp(param, "model.embed_tokens", 18) ? BLOCK * (2 + architecture->llama.layers) : 0;
}
