/* data.h - the data of a training run: samples of `positions` tokens with their targets. Their order is a
 * function of (seed, epoch, sample) alone, independent of the world.
 *
 * A source is a stream of tokens. DATA_STREAM cuts it into windows of positions + 1 tokens, `positions`
 * apart. With DATA_DOCUMENTS each document is a sample: cut at positions + 1 tokens, or filled up with
 * positions whose targets do not count. With DATA_PACKED a sample is a row of several documents (rows.h),
 * each cut as with DATA_DOCUMENTS; a model then sees each by itself (data_positions). Global sample g of
 * training is sample order_permute(epoch, g mod samples) of epoch g / samples. A validation split is a
 * second, disjoint set of samples, read in the order of the sources. No token is a target in both. */
#ifndef MUSTER_TRAINER_DATA_DATA_H
#define MUSTER_TRAINER_DATA_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum { DATA_NO_TARGET = -1 }; /* target of a position whose loss does not count */
enum { DATA_SOURCES = 256 };

/* DATA_AUTO: documents where a source has chats, else a stream. */
enum data_packing { DATA_AUTO, DATA_STREAM, DATA_DOCUMENTS, DATA_PACKED };
/* How validation_share divides: the samples at the end of each source, or documents, each by a hash of its
 * own text. Adding or removing a document then moves no other document to the other side. */
enum data_split { DATA_SPLIT_END, DATA_SPLIT_DOCUMENTS };

struct data_source {
    const char *path; /* a file, or a folder with its sub-folders in name order: see walk.h */
    double weight;    /* share of the samples, relative to the sum of all weights; all 0: by size */
};

struct chat;
struct tokenizer;
struct data_progress;

struct data_options {
    const char *path;                  /* the only source; used where sources is NULL */
    const struct data_source *sources; /* (source_count) */
    int source_count;
    struct tokenizer *tokenizer; /* for texts, used by data_open alone; NULL: bytes */
    int32_t document_end;        /* token added after each document, if tokenizer is set; -1: none */
    const char *text_key;        /* key of the text in JSON lines; NULL: "text" */
    struct chat *chat;           /* template of chats, used by data_open alone; NULL: none are read */
    const char *cache_dir;       /* folder for tokenized texts; NULL or "": the user's cache folder */
    const struct data_progress *progress; /* called while texts are tokenized (corpus.h); may be NULL */
    struct buffer *notes;                 /* gets a line for each folder with files left out; may be NULL */
    enum data_packing packing;
    int positions;      /* T */
    int64_t vocabulary; /* tokens of the model, ids are below; 0: not checked */
    uint64_t seed;
    /* Set validation_share, validation_path, or neither. 0 <= share < 1; a share above 0 is at least one
     * sample or document. */
    double validation_share;
    enum data_split validation_split;
    const char *validation_path;
};

/* Opened once by a rank; only read afterwards, by any number of threads. */
struct data;

/* NULL on error: a source that is unreadable, empty, or shorter than one sample. */
struct data *data_open(const struct data_options *options, struct muster_error *err);
void data_destroy(struct data *data); /* accepts NULL */

/* Tokens and files of all sources, validation included. */
int64_t data_tokens(const struct data *data);
int data_files(const struct data *data);
/* Documents that are cut at positions + 1 tokens; 0 where they are packed as a stream. */
int64_t data_documents_cut(const struct data *data);
/* Chats of all sources, and how documents become samples. */
int64_t data_chats(const struct data *data);
enum data_packing data_packing(const struct data *data);
/* Share of the positions of all samples to train on that come after the ends of documents, and the samples'
 * documents. */
double data_padding(const struct data *data);
int64_t data_documents_used(const struct data *data);
/* The settings and files that determine the samples, next to seed and positions: sources by sizes and ends of
 * their files, tokenizer, packing, shares. Lines "NAME=VALUE", owned by data. */
const char *data_identity(const struct data *data);
/* Adds the differences between a written identity and this one, for a message; nothing where they are equal.
 * Pure. */
int data_identity_compare(const char *written, const char *now, struct buffer *out);
/* Whether a source has texts or documents, rather than token shards alone. */
bool data_has_text(const struct data *data);
/* The samples held out, owned by data; NULL: none. Only the functions below accept it. Its sample g is sample
 * g mod data_samples in the order of the sources. */
const struct data *data_validation(const struct data *data);

/* Samples of one epoch, 1 or more: the sum over all sources. With weights, an epoch may read a source more or
 * less than once. */
int64_t data_samples(const struct data *data);
/* Targets that count in every sample; -1: they differ from sample to sample. */
int data_targets_each(const struct data *data);
/* Writes the tokens and targets (positions) of sample g; either may be NULL. Targets are the tokens shifted
 * by one, or DATA_NO_TARGET. Returns the number of targets that count; -1: a token is outside of the
 * vocabulary. */
int data_sample(const struct data *data, uint64_t g, int32_t *tokens, int32_t *targets,
                struct muster_error *err);
/* Writes the place of each position of sample g in its own document (positions): 0, 1, 2, and 0 at the begin
 * of the next. Each position after the last document is a document of its own. Without DATA_PACKED a sample
 * is one document. */
void data_positions(const struct data *data, uint64_t g, int32_t *positions);

#endif
