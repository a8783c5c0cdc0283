/* model.h - a model as two lists: the parameters, which are sharded, and the layers, which are executed.
 *
 * A layer names the parameters it uses; several layers may use one (tied embeddings) and a layer may use
 * parameters of several groups (LoRA: frozen and trainable). plan_build cuts the parameters into param
 * groups, which are gathered, freed, reduced and saved as one. Nothing here depends on ranks. */
#ifndef MUSTER_RUNTIME_PLAN_MODEL_H
#define MUSTER_RUNTIME_PLAN_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "proto/include/muster_error.h"
#include "runtime/rounding/stored.h"

enum {
    MODEL_NAME_LIMIT = 64,
    MODEL_DIMS = 4,
    LAYER_PARAMS = 36, /* parameters of a layer: a transformer block of GPT-2 uses 12, with LoRA on all
                          products 20; a block of Qwen3 with biases uses 15, with LoRA 29 */
    LAYER_GROUPS = 5,  /* groups they may lie in */
    LAYER_SOURCES = 4, /* inputs from other layers */
    BATCH_INPUTS = 8,  /* arrays of one batch */
    BATCH_NAME_LIMIT = 16,
};

enum param_init {
    PARAM_INIT_ZERO,
    PARAM_INIT_ONE,
    PARAM_INIT_NORMAL, /* N(0, init_std^2), by Philox on the element's index */
    PARAM_INIT_UNIFORM /* between -init_std and init_std, by Philox on the element's index */
};

/* Whether a parameter is a thin matrix of an adapter, trained for a frozen weight; see lora.h. Of a model
 * with adapters, PARAM_SAVED is trained whole and kept with them: a classifier (PEFT's modules_to_save). */
enum param_adapter { PARAM_OF_BASE, PARAM_LORA_A, PARAM_LORA_B, PARAM_SAVED };

/* An optimizer does not step running statistics. A layer's backward forms their change where it forms
 * gradients (kernels.h, struct batch_norm). The change is summed over ranks and micro-batches as gradients
 * are, and is added without scaling. Every rank keeps all statistics; no pattern of names freezes them. */
enum param_statistic {
    PARAM_LEARNED,
    PARAM_STATISTIC,
    PARAM_COUNT /* a number that files have as an int64 */
};

struct param_desc {
    char name[MODEL_NAME_LIMIT]; /* as in a Hugging Face checkpoint: "h.0.attn.c_attn.weight" */
    int ndim;
    int64_t dim[MODEL_DIMS];
    enum param_init init;
    double init_std;
    bool trainable;
    bool spared;             /* weight decay leaves it out under all settings */
    bool classes;            /* the logits' weight or bias, a row for each class: in memory it has room for
                                kernels_row rows, those beyond its own are zero, and in no file */
    bool file_transposed;    /* the file keeps the matrix as (columns, rows) */
    uint8_t parameter_class; /* index into step_scalars: 0 decays, 1 does not */
    enum param_adapter adapter;
    enum param_statistic statistic;
    int adapts; /* an adapter's frozen weight, index of a parameter of this model */
    /* Form in which a frozen matrix is held and gathered; layers read the matrix decoded. Its values are the
     * decoded values. */
    enum stored stored;
    int unit; /* the parameter's natural unit (a block); groups never split a unit, and merge neighbouring
                 small units */
};

/* Batch size B and positions T of a micro-batch; any values up to the planned maximum. */
struct shape {
    int B, T;
};

enum layer_mode { LAYER_TRAIN, LAYER_RECOMPUTE, LAYER_EVAL };
enum layer_parts { LAYER_INPUT = 1, LAYER_WEIGHT = 2 }; /* gradients that a backward call forms */

struct layer_sizes {
    int64_t out, saved, work; /* bytes; out: 0 for a layer that ends in a loss */
    double forward_flops;
};

/* One array of a batch: "tokens", "targets", "image", "label", "lengths". Its shape is (B,T,width), or
 * (B,width) where it has no positions. */
struct batch_input {
    char name[BATCH_NAME_LIMIT];
    enum dtype dtype;
    int64_t width;  /* elements of a row */
    bool positions; /* a row for each position, not for each sample */
    bool lengths;   /* numbers of positions that samples have, 0 to T: i32, one a sample */
    bool places;    /* places of positions in documents: i32, each 0 or one more than the place before it */
    uint8_t absent; /* byte that fills an absent sample: 0xFF where targets of -1 do not count */
};

/* The arrays of one micro-batch, in the order of model.inputs. */
struct batch {
    const void *input[BATCH_INPUTS];
};

struct layer_capture;
struct layer_past;

/* Everything a layer's function may touch. Pointers are device memory; weights and gradients are in the order
 * of layer_desc.param. Functions only enqueue: no allocation, no waiting, no host scalar that changes from
 * step to step. */
struct layer_context {
    const struct kernels *kernels;
    void *stream;
    enum layer_mode mode;
    struct shape shape;
    const void *const *weight; /* [param_count] full parameters */
    void *const *grad;         /* [param_count]; NULL where frozen */
    const uint8_t *grad_beta;  /* [param_count] 0: write, 1: add */
    const void *const *in;     /* [source_count] outputs of the sources; NULL for SOURCE_BATCH */
    void *out;
    const void *dout;
    void *const *din;        /* [source_count]; NULL: not wanted */
    const uint8_t *din_beta; /* [source_count] */
    void *saved, *work;
    const struct batch *batch;
    const struct step_scalars *scalars;
    int64_t sample; /* the micro-batch's first sample on this rank, counted from the step's first: constant */
    int64_t own_sample; /* the same sample, counted among the step's samples of this rank */
    int ranks, rank; /* number of ranks with own samples in a step (0: 1), and this rank's place among them */
    bool evaluates;  /* forms the loss without gradients; no dropout or other random operation */
    int64_t chunk_bytes; /* chunk size of values formed in chunks (chunked_sizes); 0: the layer's choice */
    /* Device memory, to which a loss layer adds the sum of its losses and the number of targets that count;
     * NULL for the other layers. In LAYER_TRAIN the layer's backward adds them: the gradient of a chunk of
     * logits is formed while the chunk is in memory. In LAYER_EVAL its forward adds them. */
    double *loss_total;
    int64_t *loss_count;
    double *correct_total;   /* the same for classes: rows whose largest logit is at their target */
    struct layer_past *past; /* earlier positions, as in runtime/model/past.h; NULL: none */
    const struct layer_capture *capture; /* values of this layer to copy out; NULL: none */
};

/* A value of one layer that a forward pass copies out. */
struct layer_capture {
    int layer;
    int value;     /* index in the layer's program; LAYER_LOGITS: the logits of a loss layer */
    int64_t rows;  /* number of positions copied, from the first one */
    void *out;     /* (rows, width of the value), of the kernels' statistics: memory that kernels may write */
    int64_t bytes; /* size of out */
    const struct layer_capture *next; /* another value of the same layer; NULL: none. LAYER_LOGITS is alone */
};
enum { LAYER_LOGITS = -1 };

struct layer_ops {
    const char *name; /* "gpt_block" */
    void (*sizes)(const void *config, struct shape max, enum dtype dtype, enum layer_mode mode,
                  const struct kernels *kernels, struct layer_sizes *sizes);
    void (*forward)(const void *config, const struct layer_context *context);
    void (*backward)(const void *config, const struct layer_context *context, unsigned parts);
    /* The layer's sizes with chunks of at most chunk_bytes, as in layer_context. A loss layer forms its
     * logits in chunks. NULL: the layer forms nothing in chunks. */
    void (*chunked_sizes)(const void *config, struct shape max, enum dtype dtype, enum layer_mode mode,
                          const struct kernels *kernels, int64_t chunk_bytes, struct layer_sizes *sizes);
};

enum { SOURCE_BATCH = -1 }; /* a source that is the batch itself */

struct layer_desc {
    char name[MODEL_NAME_LIMIT];
    const struct layer_ops *ops;
    const void *config; /* owned by the model's builder; lives as long as the model */
    int param[LAYER_PARAMS], param_count;
    int source[LAYER_SOURCES], source_count; /* layers, or SOURCE_BATCH */
    int part;                                /* number of its part of the model, see model.parts */
    unsigned inputs; /* inputs of the batch that the layer reads, a bit for each index */
    /* Index + 1 of the batch input (DTYPE_I32, an element for each position) by which the layer looks rows
     * up; 0: the layer is no lookup. A lookup's output (B,T,C) is row tokens[b,t] of its first parameter
     * (V,C). Row t of a second parameter (positions, C), if any, is added. The gradient of a lookup can be
     * exchanged as rows. */
    int lookup;
    bool recompute; /* activation checkpointing: saved memory is formed again before backward, by a forward in
                       mode LAYER_RECOMPUTE; a loss layer (out 0) is never recomputed */
};

struct model_numbers {
    struct model_numbers *next;
    double values[];
};

struct model {
    char name[MODEL_NAME_LIMIT];
    struct param_desc *params;
    int param_count;
    struct layer_desc
        *layers; /* in execution order; a source comes before its user; the last one ends in the loss */
    int layer_count;
    struct batch_input inputs[BATCH_INPUTS]; /* arrays of a batch, in the order in which callers give them */
    int input_count;
    int parts; /* runs of layers that the model is cut into, at least 1; pipe.h has the stage of each part */
    int max_positions; /* largest T; 0: any */
    /* Factor of the adapters' product; 0: the model has no adapters. With adapters all other parameters are
     * frozen: checkpoints have the adapters alone. */
    double adapter_scale;
    struct model_numbers *numbers; /* lists that operations read, in a chain; NULL: none */
    /* Metadata of a file of its parameters: pairs of texts, NULL at the end; NULL: none. */
    const char *const *metadata;
};

int64_t param_elements(const struct param_desc *param);
/* Elements of its memory where layers see it: as many, or those of kernels_row rows (param_desc.classes);
 * kernels NULL: of a device that pads none. */
int64_t param_room(const struct param_desc *param, const struct kernels *kernels);
int64_t model_parameters(const struct model *model); /* elements of all learned parameters */
int64_t model_values(const struct model *model);     /* elements of learned parameters and statistics */
/* Whether a parameter belongs to the base of adapters, whose values a run does not save. */
bool model_is_base(const struct model *model, int param);
/* Declares another array of the batch; -1 if there are BATCH_INPUTS already, else its index. */
int model_add_input(struct model *model, const char *name, enum dtype dtype, bool positions, int64_t width);
/* A buffer of batch_bytes() holds all arrays of a micro-batch. batch_input_bytes: size of the i-th array;
 * batch_offset: its offset in the buffer (i = input_count: end of the last array). Offsets and batch_bytes()
 * are multiples of 256. */
int64_t batch_input_bytes(const struct model *model, struct shape shape, int i);
int64_t batch_offset(const struct model *model, struct shape shape, int i);
int64_t batch_bytes(const struct model *model, struct shape shape);
enum dtype batch_dtype(const struct model *model); /* type of a batch's arrays; DTYPE_U8 if they differ */
/* Whether the lists are consistent: sources before users and used, parameters used, stages in order.
 * Errors name the layer or parameter. */
int model_check(const struct model *model, struct muster_error *err);

#endif
