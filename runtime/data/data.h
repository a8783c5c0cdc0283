/* data.h - what a training run reads: samples of `positions` tokens with their targets, in an order that is a
 * function of (seed, epoch, sample) alone, independent of the world.
 *
 * The corpus is cut into windows of positions + 1 tokens, `positions` apart. Global sample g of training is
 * sample order_permute(epoch, g mod samples) of epoch g / samples. A validation split is a second, disjoint
 * set of samples that is read in the order of the corpus; no target of one is a target of the other. */
#ifndef MUSTER_RUNTIME_DATA_DATA_H
#define MUSTER_RUNTIME_DATA_DATA_H

#include <stdint.h>

#include "proto/include/muster_error.h"

enum { DATA_NO_TARGET = -1 }; /* the target of a position whose loss does not count */

struct data_options {
    const char *path; /* a file, or a folder with its sub-folders in name order; symbolic links, hidden ones,
                       *.dat and files with NUL bytes are skipped. Read as bytes. */
    int positions;    /* T */
    uint64_t seed;
    double validation_share; /* 0 <= share < 1: of the samples, from the end of the corpus; at least one */
};

/* Opened once by a rank; only read afterwards, by any number of threads. */
struct data;

/* NULL on error: unreadable, neither file nor folder, empty, or shorter than one window (two with a
 * validation split). */
struct data *data_open(const struct data_options *options, struct muster_error *err);
void data_destroy(struct data *data); /* accepts NULL */

/* Of the whole corpus, validation included. */
int64_t data_tokens(const struct data *data);
int data_files(const struct data *data);
/* The samples held out, part of data; NULL: none. Of it only the functions below may be called, and its
 * sample g is sample g mod data_samples in the order of the corpus. */
const struct data *data_validation(const struct data *data);

/* Samples of one epoch, 1 or more. */
int64_t data_samples(const struct data *data);
/* Targets that count in every sample; -1: they differ from sample to sample. */
int data_targets_each(const struct data *data);
/* tokens, targets (positions) of sample g. Targets are the tokens shifted by one, or DATA_NO_TARGET. Either
 * may be NULL. Returns how many targets count; -1 on error. */
int data_sample(const struct data *data, uint64_t g, int32_t *tokens, int32_t *targets,
                struct muster_error *err);

#endif
