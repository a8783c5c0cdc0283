/* architecture.h - which of our models, of what sizes, and how Hugging Face names its tensors. Pure. */
#ifndef MUSTER_RUNTIME_FILES_ARCHITECTURE_H
#define MUSTER_RUNTIME_FILES_ARCHITECTURE_H

#include <stdbool.h>

#include "proto/base/buffer.h"
#include "runtime/model/architectures.h"
#include "runtime/pages/page.h"

/* symbol, name: model_type in config.json and model.architecture in YAML; of ARCHITECTURE_PAGE the page has
 * it. */
#define ARCHITECTURES(X)                                                                                     \
    X(ARCHITECTURE_GPT2, "gpt2")                                                                             \
    X(ARCHITECTURE_LLAMA, "llama")                                                                           \
    X(ARCHITECTURE_SIMPLE_CNN, "simple_cnn")                                                                 \
    X(ARCHITECTURE_RESNET, "resnet")                                                                         \
    X(ARCHITECTURE_TEXT_CLASSIFIER, "text_classifier")                                                       \
    X(ARCHITECTURE_TEXT_ENCODER, "text_encoder")                                                             \
    X(ARCHITECTURE_PAGE, "page")
enum architecture_kind {
#define ARCHITECTURE_ENUM(symbol, name) symbol,
    ARCHITECTURES(ARCHITECTURE_ENUM)
#undef ARCHITECTURE_ENUM
        ARCHITECTURE_COUNT
};
const char *architecture_name(enum architecture_kind kind);

struct architecture {
    enum architecture_kind kind;
    struct gpt2_config gpt2;   /* for ARCHITECTURE_GPT2 */
    struct llama_config llama; /* for ARCHITECTURE_LLAMA */
    struct simple_cnn_config cnn;
    struct resnet_config resnet;
    struct text_classifier_config text_classifier;
    struct text_encoder_config text_encoder;
    struct page *page; /* for ARCHITECTURE_PAGE: kept by architecture_keep, given back by architecture_drop */
    struct lora lora;  /* adapters of its products; rank 0: none */
};

/* Copies share a page. An owner of a copy keeps it, and drops it in the end; other kinds own nothing. */
void architecture_keep(const struct architecture *architecture);
void architecture_drop(struct architecture *architecture);
/* "llama", of a page its model_type. */
const char *architecture_title(const struct architecture *architecture);

/* The file of a user's own page; NULL: none. */
const char *architecture_own_page(const struct architecture *architecture);

/* gpt2_create, llama_create, ... of its kind. */
struct model *architecture_model(const struct architecture *architecture, struct muster_error *err);

/* Before the names of tensors in a file of PEFT's adapters: its own modules around the model. */
#define ADAPTER_PREFIX "base_model.model."

/* How a folder of Hugging Face names the tensors of a model. */
struct tensor_naming {
    const char *prefix; /* before all names of ours: "transformer." */
    const char *base; /* prefix of our names that the model without its head leaves out: "model."; "" none */
    bool older;       /* norms may have their older names, gamma and beta */
    const char *tied, *tied_to; /* this name may stand for that parameter too; NULL: none is tied */
};
/* NULL: a model that is none of these, whose tensors have their parameters' names. */
struct tensor_naming architecture_naming(const struct architecture *architecture);
/* PEFT's own choice where no target is named: q_proj and v_proj, of GPT-2 c_attn, of a page its adapters. */
int architecture_targets(const struct architecture *architecture, struct lora *lora,
                         struct muster_error *err);
/* Tensors in files that are no parameters: masks and tables of older versions. */
bool architecture_ignores(const char *tensor);
/* Whether it reads labelled texts from a folder with config.json; the others below are of these alone. */
bool architecture_classifies(const struct architecture *architecture);
/* As page_may_lack and page_leaves_unread. */
bool architecture_may_lack(const struct architecture *architecture, const char *param);
bool architecture_leaves_unread(const struct architecture *architecture, const char *tensor);
/* As page_labels and page_label. */
int architecture_labels(const struct architecture *architecture);
const char *architecture_label(const struct architecture *architecture, int label);
/* Gives it other labels, before it is copied. MUSTER_E_INVALID: it is no such model. */
int architecture_set_labels(struct architecture *architecture, const char *const *names, int count,
                            struct muster_error *err);
/* Where a parameter is in the order in which transformers has them, for sorting; equal: as in the model. */
int architecture_order(const struct architecture *architecture, const char *param);

#endif
