/* muster_model.h - models: layers as straight lines of operations on values.
 *
 *     struct muster_model *m = muster_model_new("mine", &err);
 *     int32_t tokens = muster_model_input(m, "tokens", MUSTER_I32, 1);
 *     int32_t targets = muster_model_input(m, "targets", MUSTER_I32, 1);
 *     muster_layer(m, "embedding");
 *     int32_t table = muster_parameter(m, "table", 256, 64, MUSTER_NORMAL, 0.02, 0);
 *     int32_t x = muster_embedding(m, tokens, table, -1);
 *     muster_layer(m, "mlp");
 *     int32_t h = muster_activation(m, muster_linear(m, x, 256, "up", 0.02, 0), "gelu_tanh");
 *     x = muster_add(m, x, muster_linear(m, h, 64, "down", 0.02, 0));
 *     muster_layer(m, "head");
 *     muster_cross_entropy(m, x, table, targets);            the table is tied
 *     if (muster_model_check(m, &err)) ...
 *
 * A model is written down once; backward, memory and sharding follow from it. Values, parameters, inputs and
 * layers are handles, -1 on failure. The first failure stays in the model, every later call does nothing and
 * returns -1, and muster_model_check, muster_trainer_open and muster_plan_text report it: no call has to be
 * looked at. A value has a row for each position of each sequence, and a width: elements of a row. A model
 * belongs to one thread while it is written. */
#ifndef MUSTER_MODEL_H
#define MUSTER_MODEL_H

#include <stdint.h>

#include "muster_world.h"

#ifdef __cplusplus
extern "C" {
#endif

struct muster_model;

enum muster_dtype {
    MUSTER_I32 = 1, /* int32_t: numbers below a vocabulary */
    MUSTER_F32,     /* float */
    MUSTER_F64,     /* double; computed with as float */
    MUSTER_U8,      /* uint8_t: 0 to 255, such as an image's */
};
enum muster_init {
    MUSTER_ZERO,
    MUSTER_ONE,
    MUSTER_NORMAL /* with the given standard deviation; the same values in any world */
};
enum muster_flags {
    MUSTER_FROZEN = 1,   /* not trained: no gradient, no optimizer state */
    MUSTER_NO_DECAY = 2, /* never decays; without it training.decay and training.no_decay decide */
    MUSTER_NO_BIAS = 4,  /* muster_linear, muster_conv2d: no bias */
    MUSTER_CAUSAL = 8,   /* attention: a position sees itself and earlier positions */
};

/* A model of that name, owned by the caller; NULL: no memory. */
MUSTER_API struct muster_model *muster_model_new(const char *name, struct muster_error *err);
/* A model that libmuster brings: "gpt2", "llama", "simple_cnn", "text_classifier" or "text_encoder", with
 * settings of section model ("model.layers=12", ..., NULL), as in muster-train's YAML. NULL stands for no
 * settings. Otherwise the path of a folder of Hugging Face with a config.json, or of a checkpoint of llm.c.
 * Both kinds take settings of section lora ("lora.rank=8", ...): adapters on a frozen base.
 * muster_trainer_load reads its parameters. Inputs are "tokens" and "targets", of simple_cnn "pictures" and
 * "labels", of the models of texts "tokens", "lengths" and "labels"; parameters have the names of Hugging
 * Face or of torch.nn. NULL on error: MUSTER_E_INVALID names the setting. */
MUSTER_API struct muster_model *muster_model_open(const char *architecture, const char *const *settings,
                                                  struct muster_error *err);
/* "gpt2", "llama", ...; NULL: a model of the caller's own. */
MUSTER_API const char *muster_model_architecture(const struct muster_model *model);
/* Accepts NULL. A model may be freed while trainers use it. */
MUSTER_API void muster_model_free(struct muster_model *model);
/* Completes the model, which cannot be added to from then on: 0, or -1 with the first thing that is wrong
 * with it, in one line: "mine: layer mlp: add reads values of 64 and 128 elements; they must be equal". */
MUSTER_API int muster_model_check(struct muster_model *model, struct muster_error *err);

/* Completes the model, of which no trainer was opened yet. Documents may then lie one after the other in a
 * sample. Batches have one more array after the others, "positions": an int32_t a position, its place in its
 * own document, 0 at each begin. Attention sees the position's own document alone. Learned and rotary
 * positions begin with 0 in each. -1: MUSTER_E_UNSUPPORTED names an operation that documents cannot share,
 * such as attention without MUSTER_CAUSAL. */
MUSTER_API int muster_model_pack(struct muster_model *model, struct muster_error *err);

/* Completes the model and returns the handle of the value that its loss compares with the targets, for
 * muster_trainer_forward: the logits, or the first argument of muster_squared_error. */
MUSTER_API int32_t muster_model_logits(struct muster_model *model);

/* An array of the batch; arrays are given to a trainer in the order of these calls. A row of `width` elements
 * for each position of each sample (a sample without positions: training.sequence_length 1). Of MUSTER_I32
 * and width 1 for muster_embedding and muster_cross_entropy, of another type for muster_values, of MUSTER_F32
 * for muster_squared_error. Names have at most 15 characters. */
MUSTER_API int32_t muster_model_input(struct muster_model *model, const char *name, int32_t dtype,
                                      int64_t width);

/* The same with a row for each sample, and not for each position: lengths, of MUSTER_I32 and width 1, and
 * what results with a row for each sample are compared with. */
MUSTER_API int32_t muster_model_sample_input(struct muster_model *model, const char *name, int32_t dtype,
                                             int64_t width);

/* ---- layers and parameters ---- */

/* Ends the layer before and begins a layer: a unit that is gathered, computed and freed. Its result is the
 * value that its operations leave unread. Later layers may read no other of its values. */
MUSTER_API int32_t muster_layer(struct muster_model *model, const char *name);
/* Sets the beginning of the names of the open layer's next parameters, in place of the layer's name and a
 * dot. */
MUSTER_API void muster_prefix(struct muster_model *model, const char *prefix);
/* A parameter (rows, columns), or (rows) with columns 0; init: enum muster_init, scale: of MUSTER_NORMAL.
 * A handle that is used by several operations or layers is one tied parameter; the same full name again gives
 * the same handle, and is an error where shape or flags differ. */
MUSTER_API int32_t muster_parameter(struct muster_model *model, const char *name, int64_t rows,
                                    int64_t columns, int32_t init, double scale, uint32_t flags);

/* ---- operations: values in, a value out ----
 *
 * name: of the operation's own parameters, which are called name.weight and name.bias. The functions ..._by
 * take handles of parameters instead; -1: none. */

/* in weight^T + bias; weight (width, width of in) of N(0, std^2), bias 0. flags: of both parameters,
 * MUSTER_NO_BIAS. */
MUSTER_API int32_t muster_linear(struct muster_model *model, int32_t in, int64_t width, const char *name,
                                 double std, uint32_t flags);
MUSTER_API int32_t muster_linear_by(struct muster_model *model, int32_t in, int32_t weight, int32_t bias);
/* Over the elements of each row; weight 1, bias 0. */
MUSTER_API int32_t muster_layer_norm(struct muster_model *model, int32_t in, const char *name, double epsilon,
                                     uint32_t flags);
MUSTER_API int32_t muster_layer_norm_by(struct muster_model *model, int32_t in, int32_t weight, int32_t bias,
                                        double epsilon);
MUSTER_API int32_t muster_rms_norm(struct muster_model *model, int32_t in, const char *name, double epsilon,
                                   uint32_t flags);
MUSTER_API int32_t muster_rms_norm_by(struct muster_model *model, int32_t in, int32_t weight, double epsilon);
/* Turns pairs of elements of each head by their position: frequency theta^(-2i/head size), the halves of a
 * head paired as in Llama. */
MUSTER_API int32_t muster_rotary(struct muster_model *model, int32_t in, int32_t heads, double theta);
/* For longer texts. kind: "linear", "llama3"; low, high, original: of llama3, as in Llama's config.json. */
MUSTER_API int32_t muster_rotary_scaled(struct muster_model *model, int32_t in, int32_t heads, double theta,
                                        const char *kind, double factor, double low, double high,
                                        int32_t original);
/* softmax(q k^T / sqrt(head size)) v; q of `heads` heads, k and v of kv_heads heads of the same size.
 * flags: MUSTER_CAUSAL. */
MUSTER_API int32_t muster_attention(struct muster_model *model, int32_t q, int32_t k, int32_t v,
                                    int32_t heads, int32_t kv_heads, uint32_t flags);
/* The same of one value whose rows hold q, k and v in turn. */
MUSTER_API int32_t muster_attention_packed(struct muster_model *model, int32_t qkv, int32_t heads,
                                           int32_t kv_heads, uint32_t flags);
/* Samples of different lengths; lengths: an input of MUSTER_I32 with a number for each sample, 0 to the
 * number of positions. A trainer computes no more positions of a micro-batch than its longest sample has. */
/* in: the result of an attention, which is returned: positions beyond a sample's length are not seen, and
 * their own results are 0. */
MUSTER_API int32_t muster_within(struct muster_model *model, int32_t in, int32_t lengths);
/* The mean over the positions that are there, 0 where none is: a row for each sample, as all that follows
 * from it. */
MUSTER_API int32_t muster_mean(struct muster_model *model, int32_t in, int32_t lengths);
/* The first position of each sample: a value with a row for each sample. */
MUSTER_API int32_t muster_first(struct muster_model *model, int32_t in);
/* kind: "gelu_tanh" (GPT-2's), "gelu", "silu", "relu", "tanh", "sigmoid". */
MUSTER_API int32_t muster_activation(struct muster_model *model, int32_t in, const char *kind);
MUSTER_API int32_t muster_gated(struct muster_model *model, int32_t gate, int32_t up,
                                const char *kind);                                      /* f(gate) up */
MUSTER_API int32_t muster_swiglu(struct muster_model *model, int32_t gate, int32_t up); /* silu(gate) up */
/* Elements first..first+width-1 of each of `parts` equal parts of a row. */
MUSTER_API int32_t muster_slice(struct muster_model *model, int32_t in, int32_t parts, int64_t first,
                                int64_t width);
MUSTER_API int32_t muster_add(struct muster_model *model, int32_t a, int32_t b);
MUSTER_API int32_t muster_scale(struct muster_model *model, int32_t in,
                                double factor); /* not NaN or infinite */
/* Drops elements with that probability in training and scales the others up; other ones at each place of use
 * and in each step, the same ones in any world. */
MUSTER_API int32_t muster_dropout(struct muster_model *model, int32_t in, double probability);
/* table (vocabulary, width) [token] + positions (longest, width) [position]; positions -1: none. */
MUSTER_API int32_t muster_embedding(struct muster_model *model, int32_t input, int32_t table,
                                    int32_t positions);
/* Pictures: a row is a sample's planes in turn, and training.sequence_length is 1. shape: the
 * channels, height and width of in, and of the result afterwards. */
MUSTER_API int32_t muster_relu(struct muster_model *model, int32_t in);
/* Filters of kernel x kernel elements over the picture, with zeros around it; weight (filters, channels,
 * kernel, kernel) and bias as torch.nn.Conv2d draws them. flags: MUSTER_NO_BIAS. */
MUSTER_API int32_t muster_conv2d(struct muster_model *model, int32_t in, int32_t shape[3], int32_t filters,
                                 int32_t kernel, int32_t stride, int32_t padding, const char *name,
                                 uint32_t flags);
/* torch.nn.BatchNorm2d, whose usual epsilon and momentum are 1e-5 and 0.1: while training by the mean and
 * variance of this rank's micro-batch, else by the running ones. Parameters name.weight and name.bias, and
 * statistics name.running_mean, .running_var and .num_batches_tracked, which a step moves without optimizer:
 * to the mean over the ranks of what PyTorch makes of each one's micro-batches. shape stays as it is. */
MUSTER_API int32_t muster_batch_norm2d(struct muster_model *model, int32_t in, const int32_t shape[3],
                                       const char *name, double epsilon, double momentum);
MUSTER_API int32_t muster_max_pool2d(struct muster_model *model, int32_t in, int32_t shape[3], int32_t kernel,
                                     int32_t stride, int32_t padding);
/* Means over windows that cover the picture, as torch.nn.AdaptiveAvgPool2d. */
MUSTER_API int32_t muster_avg_pool2d(struct muster_model *model, int32_t in, int32_t shape[3], int32_t height,
                                     int32_t width);
/* The rows of an input as a value. Every number has to be finite. */
MUSTER_API int32_t muster_values(struct muster_model *model, int32_t input);

/* ---- the end of every model: its loss ---- */

/* Cross-entropy of the logits in weight^T, weight (vocabulary, width of in), against
 * an input; -1 there does not count. Returns the handle of the logits, which muster_trainer_forward can give.
 */
MUSTER_API int32_t muster_cross_entropy(struct muster_model *model, int32_t in, int32_t weight,
                                        int32_t targets);
/* Cross-entropy of a classifier: logits in weight^T + bias, weight (classes, width of in), drawn as
 * torch.nn.Linear draws them, against labels below `classes`. muster_result.correct counts the rows whose
 * class was found. Returns the handle of the logits. */
MUSTER_API int32_t muster_classes(struct muster_model *model, int32_t in, int64_t classes, const char *name,
                                  int32_t labels);
/* The mean of (in - target)^2 over all elements of an input as wide as in; a target that is NaN does not
 * count (an element, not a row: `targets` of results and states are elements then). Returns `in`, for
 * muster_trainer_forward. */
MUSTER_API int32_t muster_squared_error(struct muster_model *model, int32_t in, int32_t targets);

#ifdef __cplusplus
}
#endif
#endif
