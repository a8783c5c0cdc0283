/* data_internal.h - private header of this folder: a set of samples (data.c, sample.c, selection.c). */
#ifndef MUSTER_TRAINER_DATA_DATA_INTERNAL_H
#define MUSTER_TRAINER_DATA_DATA_INTERNAL_H

#include <stdbool.h>

#include "trainer/data/corpus.h"
#include "trainer/data/data.h"
#include "trainer/data/rows.h"
#include "trainer/data/token_file.h"

/* ---- selection.c: the documents of a split, joined into a stream of tokens ---- */

struct selection {
    int64_t *document; /* (count) numbers in the corpus, ascending */
    int64_t *start;    /* (count + 1) tokens before each document */
    int64_t count;
};

/* Divides the documents by a hash of their first tokens: about a `share` of them is held out, at least one
 * and never all. The hash of one document never depends on another. So a new document moves no other, a
 * text that grows at its end stays on its side, and equal texts are on the same side. Needs a corpus that
 * knows the ends of its documents. */
int selection_split(const struct corpus *corpus, double share, struct selection *rest, struct selection *held,
                    struct muster_error *err);
void selection_free(struct selection *selection); /* accepts NULL and a zeroed selection */
int64_t selection_tokens(const struct selection *selection);
/* Reads tokens from..from + count - 1 of the stream, which has them all; see corpus_read. */
void selection_read(const struct selection *selection, const struct corpus *corpus, int64_t from,
                    int64_t count, int32_t *out);

/* ---- a set of samples ---- */

/* Consecutive samples (windows or documents) of a source, without the unusable samples. */
struct data_part {
    struct corpus *corpus;
    int64_t first, samples;
    int64_t *kept;              /* (samples) sample numbers; NULL: first, first + 1, ... */
    struct selection selection; /* chosen documents of the corpus; count 0: the whole corpus */
    struct rows rows;           /* DATA_PACKED: samples are these rows of the samples above */
};

struct data {
    struct data_part *part; /* (count) */
    int count;
    bool owned;   /* data_destroy destroys the corpora */
    bool ordered; /* samples come in the order of the sources */
    bool masked;  /* some tokens are no targets */
    int *shares;  /* (count) samples of each source in ORDER_BLOCK; NULL: by size */
    int T;
    enum data_packing packing;
    int64_t samples, vocabulary;
    uint64_t seed;
    struct data *validation;
    int64_t tokens, cut;
    struct token_file_chats chats; /* sums over the sources, without a separate validation */
    struct buffer identity;
    int files;
};

/* sample.c: a document of a part, without those that are unusable, and the positions that it fills: its first
 * token, and how many of it are inputs. */
int sample_document(const struct data *data, const struct data_part *part, int64_t index, int64_t *begin);

/* selection.c: removes the samples without a target that counts, such as a prompt that fills the sample, or a
 * text of one token: no step and no evaluation may consist of such samples alone. Returns the number of
 * samples removed; -1: no memory. */
int64_t usable_keep(struct data *data, struct muster_error *err);

#endif
