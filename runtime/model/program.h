/* program.h - a model as a page: each layer is written down once, as a straight line of operations on named
 * values.
 *
 *     struct writer w = writer_begin("mine");
 *     int tokens = writer_input(&w, "tokens", DTYPE_I32, true, 1);   an array of the batch
 *     int layer = program_layer(&w, "h.%d", i);                  opens a layer
 *     int x = program_input(&w, layer_before);                   a value: rows of one width, a row a position
 *     int h = program_layer_norm(&w, x, "ln", 1e-5);             an operation: values in, a value out
 *     h = program_linear(&w, h, 4 * C, "fc", true, 0.02);        its parameters are h.<i>.fc.weight and .bias
 *     program_result(&w, program_add(&w, x, h));                 closes it
 *     struct model *model = writer_finish(&w, err);
 *
 * Backward, sizes, the places of all values in saved and work memory, and which gradient is written and which
 * added follow from it; they are decided by program_result, and a run is a walk over the steps. The layers
 * are ordinary layer_ops (program_ops).
 *
 * Values, parameters and layers are numbers from 0. The first error stays in the writer, every later call
 * does nothing and returns -1, and writer_finish reports it: a page has no error handling. A value that
 * backward does not read is not saved; gradients are placed by lifetime. */
#ifndef MUSTER_RUNTIME_MODEL_PROGRAM_H
#define MUSTER_RUNTIME_MODEL_PROGRAM_H

#include "proto/base/guard.h"
#include "runtime/model/lora.h"
#include "runtime/model/operation.h"
#include "runtime/plan/model.h"

enum {
    PROGRAM_VALUES = 96, /* values of one layer, statistics of norms and attention included */
    PROGRAM_STEPS = 80,
};

struct writer {
    struct model *model;           /* under construction */
    struct program *program;       /* program of the open layer; NULL: none is open */
    char prefix[MODEL_NAME_LIMIT]; /* prefix of the open layer's parameter names */
    struct layer_result {          /* result of each layer */
        int64_t width;             /* 0: it has none */
        bool sample;               /* a row for each sample */
    } * results;
    int param_room, layer_room, sites;
    struct lora lora;                      /* rank 0: no adapters */
    char around[MODEL_NAME_LIMIT];         /* before module names: see writer_adapt */
    char modules[2][2 * MODEL_NAME_LIMIT]; /* the first and the last product that could have one */
    uint32_t targets_met;                  /* bits: targets of lora that a product has */
    struct muster_error error;             /* the first */
};

/* A size that a page is given, and its bounds. */
struct size_limit {
    const char *name;
    int value, least, most;
};
/* -1: one is outside its limits, which the error names. */
int writer_check_sizes(const struct size_limit *sizes, size_t count, struct muster_error *err);
/* A model of that name, cut off at MODEL_NAME_LIMIT; writer_finish ends it on every path. */
struct writer writer_begin(const char *name_format, ...) __attribute__((format(printf, 1, 2)));
/* The model, owned by the caller, or NULL with the first error. The writer holds nothing afterwards. */
struct model *writer_finish(struct writer *w, struct muster_error *err);
void model_destroy(struct model *model); /* destroys writer_finish's model; accepts NULL */
GUARD_DEFINE(model, struct model *, model_destroy);
/* Declares an array of the batch, see struct batch_input. Returns the input. */
int writer_input(struct writer *w, const char *name, enum dtype dtype, bool positions, int64_t width);

/* After this call program_linear adds an adapter to each product that a target names, and writer_finish
 * freezes all other parameters. A target without a product is an error of writer_finish. lora NULL: nothing
 * happens. around: prefix of modules' full names that parameters' names do not have: "transformer." */
void writer_adapt(struct writer *w, const struct lora *lora, const char *around);

/* ---- layers and parameters ---- */

/* Opens a layer; its name and a dot are the prefix of its parameters' names. Its new parameters are one unit.
 * Returns the layer. */
int program_layer(struct writer *w, const char *name_format, ...) __attribute__((format(printf, 2, 3)));
void program_prefix(struct writer *w, const char *prefix);
/* The result of an earlier layer. */
int program_input(struct writer *w, int layer);
/* The open layer's output; closes the layer. A layer that ends in a loss (program_cross_entropy,
 * program_squared_error) has none and is closed by that. */
void program_result(struct writer *w, int value);

/* A new parameter of the open layer: (rows, columns) decays, (rows) with columns 0 does not. std: of
 * PARAM_INIT_NORMAL; of PARAM_INIT_UNIFORM the bound. A parameter may be used by several layers (tied) and
 * several times in one. */
int program_parameter(struct writer *w, const char *name, int64_t rows, int64_t columns, enum param_init init,
                      double std);

/* Same as above with 1 to MODEL_DIMS dimensions. Parameters with two and more dimensions decay. */
int program_tensor(struct writer *w, const char *name, int ndim, const int64_t *dim, enum param_init init,
                   double std);

/* ---- operations ----
 *
 * `name`: of the operation in the checkpoint: the parameters are called name.weight and name.bias. The
 * functions ..._by take parameters that exist; -1: none. */

/* x weight^T + bias; N(0, std^2), bias 0 */
int program_linear(struct writer *w, int in, int64_t width, const char *name, bool bias, double std);
int program_linear_by(struct writer *w, int in, int weight, int bias);
/* With a bias, both drawn as torch.nn.Linear draws them. */
int program_drawn_linear(struct writer *w, int in, int64_t width, const char *name);
int program_layer_norm(struct writer *w, int in, const char *name, double epsilon);
int program_layer_norm_by(struct writer *w, int in, int weight, int bias, double epsilon); /* bias -1: none */
int program_layer_norm_plain(struct writer *w, int in, const char *name, double epsilon);  /* without bias */
int program_rms_norm(struct writer *w, int in, const char *name, double epsilon);
int program_rms_norm_by(struct writer *w, int in, int weight, double epsilon);
/* The same over each of `parts` equal parts of a row, by a weight of a part's size; the weight is (weight +
 * offset), and begins with 1 - offset. */
int program_rms_norm_of(struct writer *w, int in, const char *name, int parts, double epsilon, double offset);
/* Turns each head by its position, see kernels.h. rotary->lists are copied. */
int program_rotary(struct writer *w, int in, int heads, const struct rotary *rotary);
/* q of `heads` heads, k and v of kv_heads heads of the same size; causal or over all positions. */
int program_attention(struct writer *w, int q, int k, int v, int heads, int kv_heads, bool causal);
/* The same with what struct attention has besides. */
struct attention_form {
    int heads, kv_heads;
    bool causal;
    int window;
    double scale, cap;
};
int program_attention_of(struct writer *w, int q, int k, int v, const struct attention_form *form);
/* The same of one value whose rows hold q, k and v in turn. */
int program_attention_packed(struct writer *w, int qkv, int heads, int kv_heads, bool causal);
int program_activation(struct writer *w, int in, enum activation_kind kind);
/* "gelu_tanh", "gelu", "silu", "relu", "tanh", "sigmoid" as an enum activation_kind; -1: NULL, or none. */
int program_activation_kind(const char *name);
int program_gated(struct writer *w, int gate, int up, enum activation_kind kind); /* f(gate) * up */
int program_swiglu(struct writer *w, int gate, int up);                           /* silu(gate) * up */
/* Elements first..first+width-1 of each of `groups` equal parts of a row. */
int program_slice(struct writer *w, int in, int groups, int64_t first, int64_t width);
int program_add(struct writer *w, int a, int b);
int program_scale(struct writer *w, int in, double factor);
/* Drops each element with a probability while training; other masks at each place of use and in each step,
 * the same ones in any world. */
int program_dropout(struct writer *w, int in, double probability);
/* As program_dropout; the value itself with a probability of 0. */
int program_dropped(struct writer *w, int in, double probability);
/* table (vocabulary, C) [token] + positions (max, C) [position]; input: of the batch, i32; positions -1: none
 */
int program_embedding(struct writer *w, int input, int table, int positions);
/* The same with the sequence's first position in row `first` of positions. */
int program_embedding_from(struct writer *w, int input, int table, int positions, int first);
/* Texts of different lengths: `lengths` is an array of the batch, i32, one a sample, 0 to T. */
/* The mean over the positions that are there, 0 where none is: a value with a row for each sample. What
 * follows it may be anything but what reads positions, and ends in a loss against one target a sample. */
int program_mean(struct writer *w, int in, int lengths);
/* The first position of each sample: a value with a row for each sample, as program_mean's. */
int program_first(struct writer *w, int in);
/* Limits an attention to the samples' lengths, and returns its result. Positions after a sample's length are
 * not seen, and their own results are 0. */
int program_within(struct writer *w, int attention, int lengths);
/* Pictures: a row is a sample's planes, (channels, height, width), and training.sequence_length is 1. `shape`
 * is that of the input, and of the result afterwards. */
struct planes {
    int channels, height, width;
};
/* Filters of kernel x kernel; weight (filters, channels, kernel, kernel) and bias as torch.nn.Conv2d draws
 * them, between -1/sqrt(fan in) and that. */
int program_conv2d(struct writer *w, int in, struct planes *shape, int filters, int kernel, int stride,
                   int padding, const char *name, bool bias);
/* The same by a weight (filters, channels, kernel, kernel) and a bias that exist; bias -1: none. */
int program_conv2d_by(struct writer *w, int in, struct planes *shape, int kernel, int stride, int padding,
                      int weight, int bias);
/* torch.nn.BatchNorm2d. Training uses the mean and variance of this rank's micro-batch. Evaluation uses
 * the running values, name.running_mean and .running_var, which move by `momentum`. name.num_batches_tracked
 * counts batches. Their places in a step: struct batch_norm of kernels.h. A channel of one element has
 * variance 0 (PyTorch refuses it). */
int program_batch_norm2d(struct writer *w, int in, const struct planes *shape, const char *name,
                         double epsilon, double momentum);
int program_relu(struct writer *w, int in);
int program_max_pool2d(struct writer *w, int in, struct planes *shape, int kernel, int stride, int padding);
/* Means over windows that cover the picture: torch.nn.AdaptiveAvgPool2d. */
int program_avg_pool2d(struct writer *w, int in, struct planes *shape, int height, int width);
/* An array of the batch as a value: a row for each position, of f32, f64 or u8. */
int program_values(struct writer *w, int input);
/* The end of a model: cross-entropy of in weight^T (vocabulary, C) against the targets, -1 does not count. */
void program_cross_entropy(struct writer *w, int in, int weight, int input);
/* The same with logits that become cap tanh(logit / cap); 0: they stay as they are. */
void program_capped_cross_entropy(struct writer *w, int in, int weight, int input, double cap);
/* The end of a classifier: the same with a bias, both drawn as torch.nn.Linear draws them, against labels
 * below `classes`; rows whose class was found are counted. */
void program_classes(struct writer *w, int in, int64_t classes, const char *name, int input);
/* The same by a weight (classes, C) and a bias that exist. */
void program_classes_by(struct writer *w, int in, int weight, int bias, int input);
/* The end of a model: the mean of (in - target)^2 over the elements of an input of f32 and in's width; a
 * target that is NaN does not count. */
void program_squared_error(struct writer *w, int in, int input);

extern const struct layer_ops program_ops;

/* Documents may lie one after the other in a row from now on. Adds an array MODEL_POSITIONS to the batch,
 * i32, one a position: its place in its own document, 0 at each begin. Attention then sees its own document
 * alone, and positions begin with 0 in each. Other operations take rows one by one. An error names an
 * operation that documents cannot share, such as attention that sees later positions. */
#define MODEL_POSITIONS "positions"
int model_pack(struct model *model, struct muster_error *err);

/* Whether positions after the longest sample of a micro-batch change nothing, so that they need not
 * be computed: all attention sees up to lengths or backwards, and the loss has a row for each sample. */
bool program_ends_with_lengths(const struct model *model);

/* Whether a device's kernels have all that the model's programs call; an error names the operation. */
int program_kernels_check(const struct model *model, const struct kernels *kernels, struct muster_error *err);

#endif
