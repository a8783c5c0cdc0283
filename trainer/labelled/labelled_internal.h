/* labelled_internal.h - private header of this folder: the files of a set (read.c), and its order by length
 * (buckets.c). */
#ifndef MUSTER_TRAINER_LABELLED_LABELLED_INTERNAL_H
#define MUSTER_TRAINER_LABELLED_LABELLED_INTERNAL_H

#include <stdint.h>

#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "trainer/data/token_cache.h"
#include "trainer/data/walk.h"
#include "trainer/labelled/labelled.h"
#include "trainer/tokens/tokenizer.h"

/* ---- read.c: the files of a path ---- */

enum labelled_part { LABELLED_TRAIN, LABELLED_TEST };

struct labelled_files {
    char *path;       /* the file or folder read; it may be inside of the given path */
    struct walk walk; /* walk.name belongs to the caller */
    bool folders;     /* folders by label, each file a text */
    bool has_test;    /* the given path has a folder "test" */
};

/* setting: setting that has the path, for errors. text_key: key of JSON records under other names. Call
 * labelled_files_free in any case. */
int labelled_find(struct labelled_files *files, const char *path, enum labelled_part part,
                  const char *setting, const char *text_key, struct muster_error *err);
void labelled_files_free(struct labelled_files *files); /* accepts NULL and a zeroed struct */

/* ---- read.c: texts with labels as tokens, from tables, JSON, or files in folders by label ----
 *
 * A sink gets a document for each text: the number of its label, then its tokens. The last document has the
 * names of the labels, a byte a token, each ended by a line feed. A label's number is the index of its name.
 */

enum { LABELS_LIMIT = 256 };

/* The names of labels, in the order of their first texts. */
struct label_names {
    char *name[LABELS_LIMIT];
    int count;
};
void label_names_free(struct label_names *names); /* accepts NULL and a zeroed struct */
/* The number of a name; -1: there is no such name. */
int label_names_find(const struct label_names *names, const char *name, size_t length);

struct labelled_read {
    struct tokenizer *tokenizer;
    const char *text_key, *label_key; /* names of columns, and keys in JSON */
    bool folders;                     /* a file is a text; the name of its folder is the label */
    /* Called with the number of bytes read, at the end of each file; may be NULL. */
    void (*read)(void *context, int64_t bytes);
    void *context;
};

/* Whether a file has rows: a table, JSON lines or a JSON array. */
bool labelled_is_table(const struct walk_file *file);
/* Reads all files of the walk, then adds the names. Errors name the file and the line. */
int labelled_read(const struct labelled_read *read, const struct walk *walk, struct token_sink *sink,
                  struct muster_error *err);
/* Adds the texts of one file by its kind: a table, JSON lines or an array. Pure but for the tokenizer. */
int labelled_read_table(const struct labelled_read *read, const struct walk_file *file, const char *data,
                        size_t length, struct label_names *names, struct token_sink *sink,
                        struct muster_error *err);
/* Reads the names from the last document of a file. 1: the file is damaged. */
int label_names_parse(const struct token_file *file, struct label_names *names, struct muster_error *err);

/* ---- buckets.c: an order of samples in which the samples of a step have about the same length ----
 *
 * A window is a number of consecutive steps. Its samples are the samples that the drawn order of the epoch
 * (data/order.h) has there. They are sorted by length and divided into steps; the order of these steps is
 * drawn too. Steps are counted from sample 0 of the run. A window never has samples of two epochs, so each
 * epoch has every sample once. The place of sample g is a function of g and the options alone. */

struct buckets_options {
    int64_t samples; /* samples of an epoch, 1 or more */
    int64_t step;    /* samples of a step, 1 or more */
    int64_t window;  /* steps, 1 or more */
    uint64_t seed;
    int (*length)(const void *context, int64_t index); /* length of a sample; called from any thread */
    const void *context;
};
struct buckets;

/* Allocates memory for one window. NULL: no memory. */
struct buckets *buckets_create(const struct buckets_options *options, struct muster_error *err);
void buckets_destroy(struct buckets *buckets); /* accepts NULL */
GUARD_DEFINE(buckets, struct buckets *, buckets_destroy);
/* The sample of the epoch, 0 to samples - 1, that sample g of the run is. Any thread may call it. A sample of
 * another window than the last call's sorts that window. */
int64_t buckets_at(struct buckets *buckets, uint64_t g);

#endif
