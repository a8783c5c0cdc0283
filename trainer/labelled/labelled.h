/* labelled.h - a set of texts with labels, divided by a seed into what is trained on and what is held out.
 *
 * Sample g of training is text order_permute(epoch, g mod samples) of epoch g / samples, or follows from g by
 * buckets.h; a validation split is read in its order. Nothing depends on the world. The texts are tokenized
 * once, by one process of the machine, into a file of the cache folder (trainer/data/token_cache.h), which is
 * made anew when the files it was made from are others. */
#ifndef MUSTER_TRAINER_LABELLED_LABELLED_H
#define MUSTER_TRAINER_LABELLED_LABELLED_H

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "trainer/data/corpus.h"

struct labelled_options {
    /* A file whose name ends in .csv, .tsv or .jsonl, or a folder: of such files; of folders by label with a
     * .txt file a text ("pos/0_9.txt"; "unsup" is left out); or with "train" and "test", which are such
     * folders: the texts of "test" are held out then where nothing else is. */
    const char *path;
    const char *validation_path; /* read likewise, of a folder with "test" that one; "" or NULL: none */
    double validation_share;     /* 0 <= share < 1 */
    uint64_t seed;
    const char *text_key, *label_key;
    struct tokenizer *tokenizer; /* used while the set is opened */
    const char *cache_dir;
    const struct data_progress *progress; /* of tokenizing; may be NULL */
    int positions;                        /* longer texts are cut behind so many tokens */
    int64_t vocabulary;                   /* tokens are below; 0: any */
    int classes;                          /* of the model: there are at most so many labels */
    int64_t length_buckets;               /* steps whose texts are sorted by length; 0: none are */
    int64_t step;                         /* samples of a step, where there are such steps */
};

struct labelled;
/* NULL on error: no files, files that are no such texts, more labels than classes, a label that only the
 * texts held out have. */
struct labelled *labelled_open(const struct labelled_options *options, struct muster_error *err);
void labelled_destroy(struct labelled *set); /* accepts NULL */
GUARD_DEFINE(labelled, struct labelled *, labelled_destroy);

int64_t labelled_samples(const struct labelled *set); /* of one epoch */
/* The texts held out, part of the set; NULL: none. */
const struct labelled *labelled_validation(const struct labelled *set);
/* Sample g: tokens (positions), those behind its length 0, its length, and the number of its label. */
void labelled_sample(const struct labelled *set, uint64_t g, int32_t *tokens, int32_t *length,
                     int32_t *label);

/* Of sample g, as far as it is read; with or without length_buckets. */
int labelled_length(const struct labelled *set, uint64_t g, bool sorted);

int64_t labelled_files(const struct labelled *set);
int64_t labelled_cut(const struct labelled *set); /* texts longer than positions, held out or not */
bool labelled_cached(const struct labelled *set); /* the tokens were found, all of them */
int labelled_labels(const struct labelled *set);  /* how many there are */
const char *labelled_label(const struct labelled *set, int label);
/* What the samples follow from; lines "NAME=VALUE", as of data.h. The set's. */
const char *labelled_identity(const struct labelled *set);

/* {"train_size", "val_size", "num_classes", "classes", "cut", "cached"} and a line feed; -1: no memory. */
int labelled_info(const struct labelled *set, struct buffer *out);

#endif
