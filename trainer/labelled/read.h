/* read.h - texts with labels from files, as tokens: tables, lines of JSON, or files in folders by label.
 *
 * What is written to a sink is a document a text: the number of its label, then its tokens. The last document
 * is the labels' names, a byte a token, each ended by a line feed: a label's number is its place there. */
#ifndef MUSTER_TRAINER_LABELLED_READ_H
#define MUSTER_TRAINER_LABELLED_READ_H

#include "trainer/data/token_cache.h"
#include "trainer/data/walk.h"
#include "trainer/tokens/tokenizer.h"

enum { LABELS_LIMIT = 256 };

/* In the order in which they were met. */
struct label_names {
    char *name[LABELS_LIMIT];
    int count;
};
void label_names_free(struct label_names *names); /* accepts NULL and a zeroed one */
/* Its number; -1: it is none of them. */
int label_names_find(const struct label_names *names, const char *name, size_t length);

struct labelled_read {
    struct tokenizer *tokenizer;
    const char *text_key, *label_key; /* of columns, and of lines of JSON */
    bool folders;                     /* a file is a text, and its folder's name is the label */
    /* Gets the number of bytes that were read, at the end of each file; may be NULL. */
    void (*read)(void *context, int64_t bytes);
    void *context;
};

/* Whether a file is one of labelled texts, by its name: .csv, .tsv, .jsonl. */
bool labelled_is_table(const char *path);
/* All files of the walk, and the names behind them. Errors name the file and the line. */
int labelled_read(const struct labelled_read *read, const struct walk *walk, struct token_sink *sink,
                  struct muster_error *err);
/* One file's bytes as a table or lines of JSON, by its name; the tokens of its texts. Pure but for the
 * tokenizer. */
int labelled_read_table(const struct labelled_read *read, const char *path, const char *data, size_t length,
                        struct label_names *names, struct token_sink *sink, struct muster_error *err);
/* The names in the last document of the file. 1: it is not as described. */
int label_names_parse(const struct token_file *file, struct label_names *names, struct muster_error *err);

#endif
