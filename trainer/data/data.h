/* data.h - what a training run reads: samples of `positions` tokens with their targets, in an order that is a
 * function of (seed, epoch, sample) alone, independent of the world.
 *
 * A source is a stream of tokens. Packed as a stream it is cut into windows of positions + 1 tokens,
 * `positions` apart; packed by documents each document is a sample, cut at positions + 1 tokens or filled up
 * with positions whose targets do not count. Global sample g of training is sample order_permute(epoch, g mod
 * samples) of epoch g / samples. A validation split is a second, disjoint set of samples that is read in the
 * order of the sources; no target of one is a target of the other. */
#ifndef MUSTER_TRAINER_DATA_DATA_H
#define MUSTER_TRAINER_DATA_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum { DATA_NO_TARGET = -1 }; /* the target of a position whose loss does not count */
enum { DATA_SOURCES = 256 };

enum data_packing { DATA_STREAM, DATA_DOCUMENTS };
/* What a share holds out: the samples at the end of each source, or documents, each by its own text
 * (selection.h), so that other documents that are added or removed move none to the other side. */
enum data_split { DATA_SPLIT_END, DATA_SPLIT_DOCUMENTS };

struct data_source {
    const char *path; /* a file, or a folder with its sub-folders in name order: see walk.h */
    double weight;    /* its share of the samples, of the sum of all weights; all 0: by their sizes */
};

struct tokenizer;
struct data_progress;

struct data_options {
    const char *path;                  /* the one source where sources is NULL */
    const struct data_source *sources; /* (source_count) */
    int source_count;
    struct tokenizer *tokenizer;          /* of texts, used by data_open alone; NULL: bytes */
    int32_t document_end;                 /* with a tokenizer: its token behind every document; -1: nothing */
    const char *text_key;                 /* of JSON lines; NULL: "text" */
    const char *cache_dir;                /* of tokenized texts; NULL or "": the user's cache folder */
    const struct data_progress *progress; /* of tokenizing (corpus.h); may be NULL */
    struct buffer *notes;                 /* what was left out of folders, a line each; may be NULL */
    enum data_packing packing;
    int positions;      /* T */
    int64_t vocabulary; /* of the model: ids are below; 0: not checked */
    uint64_t seed;
    /* One of both, or neither. 0 <= share < 1: of the samples, or documents; at least one. */
    double validation_share;
    enum data_split validation_split;
    const char *validation_path;
};

/* Opened once by a rank; only read afterwards, by any number of threads. */
struct data;

/* NULL on error: a source that is unreadable, empty, or shorter than one sample. */
struct data *data_open(const struct data_options *options, struct muster_error *err);
void data_destroy(struct data *data); /* accepts NULL */

/* Of all sources, validation included. */
int64_t data_tokens(const struct data *data);
int data_files(const struct data *data);
/* Documents that are cut at positions + 1 tokens; 0 where they are packed as a stream. */
int64_t data_documents_cut(const struct data *data);
/* What the samples trained on follow from, beside seed and positions: sources by sizes and ends of their
 * files, tokenizer, packing, shares; lines "NAME=VALUE". The data's. */
const char *data_identity(const struct data *data);
/* In what one differs from one that was written before, for a message; nothing where it does not. Pure. */
int data_identity_compare(const char *written, const char *now, struct buffer *out);
/* Whether some source is text, and not token shards. */
bool data_has_text(const struct data *data);
/* The samples held out, part of data; NULL: none. Of it only the functions below may be called, and its
 * sample g is sample g mod data_samples in the order of the sources. */
const struct data *data_validation(const struct data *data);

/* Samples of one epoch, 1 or more: as many as all sources have together. With weights a source may come more
 * or less than once in it. */
int64_t data_samples(const struct data *data);
/* Targets that count in every sample; -1: they differ from sample to sample. */
int data_targets_each(const struct data *data);
/* tokens, targets (positions) of sample g. Targets are the tokens shifted by one, or DATA_NO_TARGET. Either
 * may be NULL. Returns how many targets count; -1 on error: a token outside of the vocabulary. */
int data_sample(const struct data *data, uint64_t g, int32_t *tokens, int32_t *targets,
                struct muster_error *err);

#endif
