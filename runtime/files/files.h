/* files.h - models in and out of files: folders of Hugging Face, safetensors, checkpoints of llm.c,
 * model.pth.
 *
 * In: files_open reads headers and config.json alone. files_model makes the model that they describe;
 * files_match finds each of its parameters; files_load reads the values, on every rank the elements that it
 * holds and no others. Out: files_export gathers one param group at a time, and rank 0 writes it. Neither
 * ever holds a whole model. */
#ifndef MUSTER_RUNTIME_FILES_FILES_H
#define MUSTER_RUNTIME_FILES_FILES_H

#include "proto/base/guard.h"
#include "runtime/files/architecture.h"
#include "runtime/train/trainer.h"

/* ---- in ---- */

struct files;

/* path: a folder with config.json and model.safetensors, model.safetensors.index.json and its shards, or
 * quantized.safetensors (codes.h); one
 * safetensors file, which has no sizes; a folder with adapter_config.json and adapter_model.safetensors
 * (PEFT's); or a checkpoint of llm.c. The files stay open. NULL: MUSTER_E_NOT_FOUND, MUSTER_E_INVALID for a
 * damaged file, MUSTER_E_UNSUPPORTED with the name of a key of config.json and its value. */
struct files *files_open(const char *path, struct muster_error *err);
/* The same with a page of the user's that reads config.json (runtime/pages/page.h); NULL: none. */
struct files *files_open_by(const char *path, const char *page, struct muster_error *err);
/* Reads config.json of a folder alone; call architecture_drop afterwards. page: as in files_open_by. */
int files_sizes(const char *path, const char *page, struct architecture *architecture,
                struct muster_error *err);
void files_close(struct files *files); /* accepts NULL */
GUARD_DEFINE(files, struct files *, files_close);

/* NULL: a safetensors file alone, which does not say. */
const struct architecture *files_architecture(const struct files *files);
/* The settings in adapter_config.json, if the files are a folder of PEFT's adapters, which has no model;
 * otherwise NULL. */
const struct lora *files_lora(const struct files *files);
/* The folder that config.json and tokenizers can be copied from; NULL: it is none. */
const char *files_folder(const struct files *files);
/* Type of the tensors; DTYPE_COUNT if they differ. */
enum dtype files_dtype(const struct files *files);
/* "28 of 39 tensors are in int4 in groups of 64"; nothing is added where all are of full width. */
int files_coded_text(const struct files *files, struct buffer *out);
/* After files_match: "3 parameters are not there and begin at random: ...", and how many. */
const char *files_drawn(const struct files *files, int *count);
/* The largest probability of dropout in config.json; dropout is not applied. */
double files_dropout(const struct files *files);

/* Finds every parameter of a model. architecture: files_architecture's, or an architecture whose sizes come
 * from elsewhere; NULL: tensors have the parameters' names. MUSTER_E_INVALID lists tensors that are missing,
 * unexpected or of a wrong shape. If the model has adapters, the files have the base or, in a folder of
 * PEFT's, the adapters: the other parameters keep their values. The model outlives the files. */
int files_match(struct files *files, const struct model *model, const struct architecture *architecture,
                struct muster_error *err);
/* Sets all parameters of a trainer of that model, after files_match. Not collective (trainer_fill_params): a
 * rank whose files cannot be read fails alone, so agree afterwards. MUSTER_E_INVALID where a second copy of a
 * tied tensor differs. */
int files_load(struct files *files, struct trainer *trainer, struct muster_error *err);

/* ---- out ---- */

/* symbol, name in settings */
#define FILES_FORMATS(X)                                                                                     \
    X(FILES_SAFETENSORS, "safetensors") /* one file, parameters by their own names */                        \
    X(FILES_HF, "hf")                   /* a folder for transformers' from_pretrained */                     \
    X(FILES_PTH, "pth")                 /* a state dict for torch.load(weights_only=True) */                 \
    X(FILES_PEFT, "peft")               /* a folder of adapters alone, for PEFT's from_pretrained */
enum files_format {
#define FILES_FORMAT_ENUM(symbol, name) symbol,
    FILES_FORMATS(FILES_FORMAT_ENUM)
#undef FILES_FORMAT_ENUM
        FILES_FORMAT_COUNT
};

struct files_export {
    enum files_format format;
    enum dtype dtype;                        /* type of the tensors: DTYPE_F32, DTYPE_BF16 or DTYPE_F64 */
    int64_t shard_bytes;                     /* FILES_HF: most bytes of tensors in one file; 0: all in one */
    const struct architecture *architecture; /* NULL: tensors get the parameters' names, and FILES_HF has no
                                                config.json */
    const char *folder; /* FILES_HF: config.json and tokenizers are copied from there; NULL: config.json is
                           made from the architecture. FILES_PEFT: the base's name */
    bool quantized;     /* FILES_HF: tensors are in few bits (codes.h), which config.json states */
    const struct lora *lora; /* adapters of the model; NULL: none. FILES_PEFT writes the adapters, the other
                              * formats write the base with the adapters' products added to it */
};

/* Whether path can be written; a folder of FILES_HF or FILES_PEFT is made. For rank 0, hours before it is
 * needed. */
int files_export_probe(const char *path, const struct files_export *what, struct muster_error *err);
/* Collective. path: a folder for FILES_HF, otherwise a file, or an existing folder that gets
 * model.safetensors or model.pth. Every file is written under a temporary name next to its final name,
 * synced, and renamed when all files are whole. Only rank 0 gets an error of a file. */
int files_export(struct trainer *trainer, const char *path, const struct files_export *what,
                 struct muster_error *err);

/* The same as FILES_SAFETENSORS in the trainer's own type. */
int files_save(struct trainer *trainer, const char *path, struct muster_error *err);

#endif
