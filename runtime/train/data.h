/* data.h - text as tokens, and the order of samples: a function of (seed, epoch, step) alone, independent
 * of the world.
 *
 * The corpus is cut into windows of T+1 tokens, T apart. Global sample g is window permute(epoch, g mod
 * windows) of epoch g / windows, where permute is a keyed bijection: nothing is stored, every rank agrees,
 * and any sample is found in constant time. */
#ifndef MUSTER_RUNTIME_TRAIN_DATA_H
#define MUSTER_RUNTIME_TRAIN_DATA_H

#include <stdint.h>

#include "proto/include/muster_error.h"

struct data;

/* Reads path (a file, or a folder with its sub-folders in name order; symbolic links, hidden ones, *.dat and
 * files with NUL bytes are skipped) as bytes. Errors: unreadable, neither file nor folder, empty, or shorter
 * than one window. */
struct data *data_open(const char *path, int T, uint64_t seed, struct muster_error *err);
void data_destroy(struct data *data); /* accepts NULL */

int64_t data_tokens(const struct data *data);
int data_files(const struct data *data);
/* tokens, targets (T) of global sample g; targets are the tokens shifted by one. Either may be NULL. */
void data_sample(const struct data *data, uint64_t g, int32_t *tokens, int32_t *targets);
/* The (micro_batches, B, T) block of one rank in a step that begins with global sample `first`. Sample of row
 * b: first + (micro*world + rank)*B + b, so that the samples of a step are the same for every split of the
 * same micro_batches*world*B. */
void data_batch(const struct data *data, int64_t first, int rank, int world_size, int micro_batches, int B,
                int32_t *tokens, int32_t *targets);

/* The bijection on [0, n), pure: a four-round Feistel network, walked until it falls inside n. */
uint64_t data_permute(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t n);

#endif
