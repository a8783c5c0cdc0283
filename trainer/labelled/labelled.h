/* labelled.h - a set of texts with labels, divided by a seed into a training and a validation split.
 *
 * Sample g of training is text order_permute(epoch, g mod samples) of epoch g / samples, or buckets_at(g)
 * with length_buckets. A validation split is read in its order. Nothing depends on the world. One process of
 * the machine tokenizes the texts, once, into a file of the cache folder (trainer/data/token_cache.h). Other
 * texts make a new file. */
#ifndef MUSTER_TRAINER_LABELLED_LABELLED_H
#define MUSTER_TRAINER_LABELLED_LABELLED_H

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "trainer/data/corpus.h"

struct labelled_options {
    /* A file whose name ends in .csv, .tsv or .jsonl; or a folder of such files; or a folder of folders by
     * label with a .txt file for each text ("pos/0_9.txt"; "unsup" is left out); or a folder with "train" and
     * "test", which are such folders. Texts of "test" are held out if no other text is. */
    const char *path;
    const char *validation_path; /* as path; its folder "test", if any, is read. "" or NULL: none */
    double validation_share;     /* 0 <= share < 1 */
    uint64_t seed;
    const char *text_key, *label_key;
    struct tokenizer *tokenizer; /* used by labelled_open alone */
    const char *cache_dir;
    const struct data_progress *progress; /* called while texts are tokenized; may be NULL */
    bool framed;                          /* each text is between two tokens */
    int32_t begin, end;                   /* these; read where framed */
    int positions;      /* most tokens of a text with those around it; a longer text is cut */
    int64_t vocabulary; /* tokens are below; 0: not checked */
    int classes;        /* classes of the model; most labels */
    /* Labels of the model, whose numbers are the classes. Texts whose labels are all among them have those
     * classes; labels NULL, label_count above 0: whole numbers below it are. Other labels are numbered in the
     * order of their names. */
    const char *const *labels;
    int label_count;
    int64_t length_buckets; /* consecutive steps sorted by length together; 0: no sorting */
    int64_t step;           /* samples of a step; used with length_buckets */
};

struct labelled;
/* NULL on error: no files, files without labelled texts, more labels than classes, a label that only texts of
 * the validation split have. */
struct labelled *labelled_open(const struct labelled_options *options, struct muster_error *err);
void labelled_destroy(struct labelled *set); /* accepts NULL */
GUARD_DEFINE(labelled, struct labelled *, labelled_destroy);

int64_t labelled_samples(const struct labelled *set); /* samples of an epoch */
/* The validation split, owned by the set; NULL: none. */
const struct labelled *labelled_validation(const struct labelled *set);
/* Writes sample g: tokens (positions; 0 after its length), its length, and the number of its label. */
void labelled_sample(const struct labelled *set, uint64_t g, int32_t *tokens, int32_t *length,
                     int32_t *label);

/* Tokens of sample g, at most positions. sorted: in the order by length_buckets. */
int labelled_length(const struct labelled *set, uint64_t g, bool sorted);

int64_t labelled_files(const struct labelled *set);
int64_t labelled_cut(const struct labelled *set); /* texts of both splits longer than positions */
bool labelled_cached(const struct labelled *set); /* all tokens were found in the cache */
int labelled_labels(const struct labelled *set);  /* number of labels */
/* Whether all labels are the model's (labelled_options). */
bool labelled_follows(const struct labelled *set);
const char *labelled_label(const struct labelled *set, int label);
/* The settings and files that determine the samples: lines "NAME=VALUE" as in data.h, owned by the set. */
const char *labelled_identity(const struct labelled *set);

/* {"train_size", "val_size", "num_classes", "classes", "cut", "cached"} and a line feed; -1: no memory. */
int labelled_info(const struct labelled *set, struct buffer *out);

/* ---- buckets.c: the computed positions of an epoch, and the share that length_buckets saves ---- */

enum { PADDING_SAMPLES = 1 << 16 };

struct padding {
    int64_t samples;  /* counted samples: the first epoch, at most about PADDING_SAMPLES */
    int64_t tokens;   /* tokens of their texts */
    int64_t computed; /* positions; each micro-batch ends with its longest text */
    int64_t drawn;    /* the same without length_buckets */
};
/* step, micro_batch: their samples. Micro-batches of all ranks follow each other in a step, so the sums do
 * not depend on the world. */
struct padding padding_count(const struct labelled *set, int64_t step, int64_t micro_batch);

#endif
