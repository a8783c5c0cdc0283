/* architectures.h - the models that libmuster brings: their sizes and their constructors. */
#ifndef MUSTER_RUNTIME_MODEL_ARCHITECTURES_H
#define MUSTER_RUNTIME_MODEL_ARCHITECTURES_H

#include "runtime/model/program.h"
#include "runtime/plan/model.h"

/* ---- gpt2.c ---- */

/* The GPT-2 architecture (Radford et al. 2019).
 *
 * Layers: "embedding" (wte[token] + wpe[position]), one "h.<i>" a block, "head" (ln_f, logits with the tied
 * wte, cross entropy). Parameter names are Hugging Face's for GPT-2 checkpoints without the
 * "transformer." prefix. One difference: their Conv1D keeps the four products of a block as (in, out); ours
 * are (out, in) as in nn.Linear, and files have them as Hugging Face does (file_transposed). */

struct gpt2_config {
    int layers, channels, heads, vocab, max_positions;
    int hidden;                      /* width inside of the MLP; 0: 4 channels */
    double epsilon;                  /* epsilon of the norms; 0: 1e-5 */
    enum activation_kind activation; /* inside of the MLP; 0: GELU in its tanh form */
};

/* A row each: member, smallest, largest. */
#define GPT2_CONFIG_LIMITS(X)                                                                                \
    X(layers, 1, 1024)                                                                                       \
    X(channels, 1, 65536)                                                                                    \
    X(heads, 1, 1024)                                                                                        \
    X(vocab, 2, 1 << 20)                                                                                     \
    X(max_positions, 1, 1 << 20)                                                                             \
    X(hidden, 0, 1 << 20)

/* Initialisation: N(0, 0.02), residual projections N(0, 0.02/sqrt(2 layers)), biases 0, layer norm 1. Tensors
 * with two dimensions are of parameter class 0 (decays), the others of class 1. Any block's `recompute` may
 * be set by the caller before planning. NULL (MUSTER_E_INVALID) names a value and its bounds. The caller owns
 * the model (model_destroy). */
struct model *gpt2_create(const struct gpt2_config *config, struct muster_error *err);
/* With adapters of its blocks' products (lora.h); lora NULL: without. */
struct model *gpt2_create_adapted(const struct gpt2_config *config, const struct lora *lora,
                                  struct muster_error *err);

/* ---- llama.c ---- */

/* The Llama architecture (Touvron et al. 2023; grouped-query attention: Ainslie et al. 2023).
 *
 * Layers: "embedding", one "model.layers.<i>" a block, "head" (norm, logits, cross entropy). Parameter names
 * and shapes equal Hugging Face's checkpoints. */

struct llama_config {
    int layers, channels, heads;
    int kv_heads;  /* heads of k and v: divides heads; 0: heads */
    int head_size; /* elements of a head, even; 0: channels / heads */
    int hidden;    /* width inside of the MLP; 0: 8/3 of the channels, rounded up to a multiple of 64 */
    int vocab, max_positions;
    bool tied;            /* the logits' weight is the embedding's */
    bool attention_bias;  /* q, k, v and o have biases */
    double epsilon;       /* epsilon of the norms; 0: 1e-5 */
    struct rotary rotary; /* theta 0: 10000 */
};

/* A row each: member, smallest, largest. */
#define LLAMA_CONFIG_LIMITS(X)                                                                               \
    X(layers, 1, 1024)                                                                                       \
    X(channels, 1, 65536)                                                                                    \
    X(heads, 1, 1024)                                                                                        \
    X(kv_heads, 0, 1024)                                                                                     \
    X(head_size, 0, 1024)                                                                                    \
    X(hidden, 0, 1 << 20)                                                                                    \
    X(vocab, 2, 1 << 20)                                                                                     \
    X(max_positions, 1, 1 << 20)

/* Fills values that are 0, and checks: MUSTER_E_INVALID names a value and its bounds, or the sizes that do
 * not divide. llama_create does it on a copy. */
int llama_complete(struct llama_config *config, struct muster_error *err);

/* Initialisation: N(0, 0.02), biases 0, norms 1. NULL: as llama_complete. The caller owns the model
 * (model_destroy). */
struct model *llama_create(const struct llama_config *config, struct muster_error *err);
/* With adapters of its blocks' products (lora.h); lora NULL: without. */
struct model *llama_create_adapted(const struct llama_config *config, const struct lora *lora,
                                   struct muster_error *err);

/* ---- resnet.c ---- */

/* Residual networks for small pictures (He, Zhang, Ren, Sun 2015, arXiv 1512.03385, section 4.2):
 * a convolution of 3 x 3, stages of basic blocks, whose number of filters doubles and whose planes are halved
 * from stage to stage, the mean over the planes, and a product. A shortcut that changes its shape is a
 * convolution of 1 x 1 and batch normalisation. 3 stages of 3 blocks with 16 filters are ResNet-20; 4 stages
 * of 2 blocks with 64 filters are ResNet-18 without its pooling and with a first convolution of 3 x 3.
 *
 * Parameters have torchvision's names, conv1.weight, bn1.running_mean, layer2.0.downsample.1.weight,
 * fc.weight, and are drawn as there. */

struct resnet_config {
    int channels, height, width; /* picture's sizes: 1 to 64, 4 to 4096 */
    int classes;                 /* 2 to 65536 */
    int stages, blocks, filters; /* 1 to 6; in a stage, 1 to 64; of the first stage, 1 to 1024 */
};

/* Inputs: pictures (f32, a row is its planes) and labels (i32). The caller owns the model (model_destroy).
 * NULL (MUSTER_E_INVALID) names a value and its bounds. */
struct model *resnet_create(const struct resnet_config *config, struct muster_error *err);

/* ---- simple_cnn.c ---- */

/* A small classifier of pictures: three convolutions and a product. Its parameters have the
 * names that torch.nn.Sequential gives to
 *
 *     Conv2d(3, 32, 3, padding=1), ReLU, MaxPool2d(2), Conv2d(32, 64, 3, padding=1), ReLU, MaxPool2d(2),
 *     Conv2d(64, 128, 3, padding=1), ReLU, AdaptiveAvgPool2d((1, 1)), Flatten, Linear(128, 10)
 *
 * and are drawn from the same distributions. */

struct simple_cnn_config {
    int channels, height, width; /* picture's sizes: 1 to 64, 4 to 4096 */
    int classes;                 /* 2 to 65536 */
};

/* Inputs: pictures (f32, a row is its planes) and labels (i32). The caller owns the model (model_destroy).
 * NULL (MUSTER_E_INVALID) names a value and its bounds. */
struct model *simple_cnn_create(const struct simple_cnn_config *config, struct muster_error *err);

/* ---- text_classifier.c ---- */

/* A small classifier of texts: the mean of the tokens' rows, and two products. Its
 * parameters are as in PyTorch's
 *
 *     embedding = Embedding(vocabulary, channels), fc1 = Linear(channels, hidden), fc2 = Linear(hidden,
 * classes) fc2(relu(fc1(the mean of embedding(tokens) over the positions that are there)))
 *
 * While it is trained, dropout is on the tokens' rows and after the ReLU. */

struct text_classifier_config {
    int vocabulary, channels;
    int hidden; /* 0: channels */
    int classes, max_positions;
    double dropout; /* 0 to below 1; 0: none */
};

/* Inputs: tokens (i32, a position), lengths and labels (i32, a sample). The caller owns the model
 * (model_destroy). NULL (MUSTER_E_INVALID) names a value and its bounds. */
struct model *text_classifier_create(const struct text_classifier_config *config, struct muster_error *err);

/* ---- text_encoder.c ---- */

/* A classifier of texts with attention: an encoder of transformer blocks, in which each
 * position of a text sees all others, the mean over the positions, and one product. The blocks have the
 * parameters, names and formulas of
 *
 *     TransformerEncoder(TransformerEncoderLayer(channels, heads, hidden, dropout, norm_first=True),
 * layers, LayerNorm(channels))
 *
 * but for dropout on the scores of attention, which is not applied; it is on the tokens' rows, too. */

struct text_encoder_config {
    int vocabulary, layers, channels, heads;
    int hidden; /* inside of a block's products; 0: 4 channels */
    int classes, max_positions;
    double dropout; /* 0 to below 1; 0: none */
};

/* Inputs: tokens (i32, a position), lengths and labels (i32, a sample). The caller owns the model
 * (model_destroy). NULL (MUSTER_E_INVALID) names a value and its bounds. */
struct model *text_encoder_create(const struct text_encoder_config *config, struct muster_error *err);

#endif
