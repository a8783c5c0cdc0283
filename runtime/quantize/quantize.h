/* quantize.h - a trained model in few bits: its products' weights rounded, or pruned, the trainer's own set
 * to what their codes open to, and all of it written as a folder.
 *
 *     GUARD(guard_quantized) struct quantized *q = quantize(trainer, &options, err);
 *     quantized_write(q, trainer, path, &what, err);
 *
 * Only products in the layers are quantised (and, where asked for, the tables of embeddings and the head, a
 * row a channel, in int8); norms, biases and positions stay as they are. For a world of one. */
#ifndef MUSTER_RUNTIME_QUANTIZE_QUANTIZE_H
#define MUSTER_RUNTIME_QUANTIZE_QUANTIZE_H

#include "proto/base/guard.h"
#include "runtime/files/files.h"
#include "runtime/rounding/coded.h"

/* symbol, name */
#define QUANTIZE_METHODS(X)                                                                                  \
    X(QUANTIZE_INT8, "int8") /* a scale for each channel (row), to nearest */                                \
    X(QUANTIZE_INT4, "int4") /* a scale for each group of columns, to nearest */                             \
    X(QUANTIZE_GPTQ, "gptq") /* int4 by what products read of a calibration set */                           \
    X(QUANTIZE_NONE, "none") /* pruning alone: tensors stay of full width */
enum quantize_method {
#define QUANTIZE_METHOD_ENUM(symbol, name) symbol,
    QUANTIZE_METHODS(QUANTIZE_METHOD_ENUM)
#undef QUANTIZE_METHOD_ENUM
        QUANTIZE_METHOD_COUNT
};
/* MUSTER_E_INVALID names all. */
int quantize_method_find(const char *name, enum quantize_method *method, struct muster_error *err);

struct quantize_options {
    enum quantize_method method;
    int64_t group;           /* group of int4 */
    double prune;            /* the share of each weight's elements that becomes 0, the smallest first */
    bool tables;             /* tables of embeddings and the head too, in int8 */
    const char *const *keep; /* patterns of parameters that stay as they are, NULL at the end; NULL: none */
    /* Samples for QUANTIZE_GPTQ, in the form of a step's samples. */
    const void *const *arrays;
    int64_t rows;
};

struct quantized {
    const struct model *model;
    struct quantize_options options;
    bool *chosen;             /* [param_count] */
    struct coded *coded;      /* [param_count]; codes NULL: as it is */
    int tensors;              /* tensors that were chosen */
    int64_t elements, pruned; /* elements of these parameters, and pruned elements */
};

/* The trainer's parameters are changed. MUSTER_E_INVALID: a pattern that matches nothing, a group that does
 * not divide a row, a value that cannot be rounded, each with its name; MUSTER_E_UNSUPPORTED: more than one
 * rank, adapters, a model without products. */
struct quantized *quantize(struct trainer *trainer, const struct quantize_options *options,
                           struct muster_error *err);
void quantized_free(struct quantized *quantized); /* accepts NULL */
GUARD_DEFINE(quantized, struct quantized *, quantized_free);

/* Bytes of the tensors of a file that has the parameters in full width, of that type, and of that of
 * quantized_write. */
int64_t quantized_plain_bytes(const struct quantized *quantized, enum dtype dtype);
int64_t quantized_bytes(const struct quantized *quantized, enum dtype dtype);

/* Writes a folder: quantized.safetensors with the tensors of files/codes.h (model.safetensors for
 * QUANTIZE_NONE), config.json, tokenizers. what: for FILES_HF. Files are written under temporary names and
 * renamed. */
int quantized_write(const struct quantized *quantized, struct trainer *trainer, const char *path,
                    const struct files_export *what, struct muster_error *err);

/* choose.c: which parameters; fills chosen and tables of them. */
int quantized_choose(struct quantized *quantized, struct muster_error *err);
/* Whether a parameter is a table: of an embedding or of the head. */
bool quantized_is_table(const struct quantized *quantized, int param);

#endif
