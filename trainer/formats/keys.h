/* keys.h - the keys of another program's configuration: a table with a row for each key and its meaning here.
 *
 * A known key is a setting of muster-train; or it has no effect here, and is listed; or it is an error, if it
 * asks for something unsupported. An unknown key is an error with its place and the nearest known key. A
 * value of null counts as not given. Keys that begin with an underscore are remarks. */
#ifndef MUSTER_TRAINER_FORMATS_KEYS_H
#define MUSTER_TRAINER_FORMATS_KEYS_H

#include "proto/tree/tree.h"
#include "trainer/formats/assign.h"

enum key_kind {
    KEY_SETTING,  /* the value of `setting`, mapped by `choices` if not NULL */
    KEY_WEAK,     /* the same, used only if the setting has an effect */
    KEY_IDLE,     /* no effect here; why: the reason, NULL: the reason of the block */
    KEY_ONLY,     /* only the values of `only` are accepted; why: the reason and the way out */
    KEY_BLOCK,    /* a mapping with its own keys */
    KEY_SWITCHED, /* a mapping that counts if its key "enabled" is true */
    KEY_RULE,     /* see rule; why: its effect, for the documentation */
};

/* Maps a text in the file (any case) to a value of the setting; to NULL: nothing is set. The last row has
 * from NULL. */
struct key_choice {
    const char *from, *to;
};

struct key_walk;
struct key_row {
    const char *path; /* "zero_optimization.stage" */
    enum key_kind kind;
    const char *setting;
    const struct key_choice *choices;
    /* "false|none": values that ask for nothing; after a semicolon: values without effect here, listed */
    const char *only;
    const char *why;
    int (*rule)(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
};

struct key_table {
    const char *program; /* "DeepSpeed" */
    const struct key_row *rows;
    size_t count;
};

struct key_walk {
    const struct key_table *table;
    struct assign *assign;
    const char *file;             /* name in errors */
    const struct tree_node *root; /* root of the file; NULL for an option */
    /* Reads a file that this file names. */
    int (*open)(struct key_walk *walk, const char *path, const struct tree_node *node);
    void *context;          /* for open */
    bool is_option;         /* file is "--batch_size_per_gpu", and has no lines */
    bool weak, idle;        /* all settings are weak; nothing counts (a block switched off) */
    struct buffer *ignored; /* "overlap_comm, aio": keys without effect */
};

/* Reads all entries of a mapping; path: of the mapping in the table ("" or "fp16."), shown: in messages. */
int key_walk_map(struct key_walk *walk, const char *path, const char *shown, const struct tree_node *map);
/* Reads an entry. */
int key_walk_entry(struct key_walk *walk, const char *path, const char *shown,
                   const struct tree_entry *entry);

const struct key_row *key_find(const struct key_table *table, const char *path);
/* The key nearest to name in the mapping at path ("" or "fp16."), without path; NULL: none is near. */
const char *key_nearest(const struct key_table *table, const char *path, const char *name);

enum { KEY_PLACE = 640 };
/* "ds.json:3:7", or the option's name. */
const char *key_place(const struct key_walk *walk, int line, int column, char out[KEY_PLACE]);
/* "ds.json:3:7: key" in errors and "ds.json:3:7 key" in --print-config; shown is the key. */
const char *key_where(const struct key_walk *walk, const struct tree_node *node, const char *shown,
                      char out[KEY_PLACE]);
const char *key_origin(const struct key_walk *walk, const struct tree_node *node, const char *shown,
                       char out[KEY_PLACE]);
/* "text 'x'", "a list": for errors. */
const char *key_value(const struct tree_node *node, char out[KEY_PLACE]);
/* Sets a setting from a value of this file. Returns the result of assign_set. */
int key_assign(struct key_walk *walk, const char *setting, const char *text, const struct tree_node *node,
               const char *shown);
/* Reads a number from low to high, also from a text; an error names the value. */
int key_number(struct key_walk *walk, const struct tree_node *node, const char *shown, double low,
               double high, double *out);
/* The same, kept for the end (assign_keep); "auto" is ignored. */
int key_keep(struct key_walk *walk, enum assign_number_kind kind, const struct tree_node *node,
             const char *shown, double low, double high);
/* Lists a key without effect. */
int key_ignore(struct key_walk *walk, const char *shown);
/* Sets training.beta1 and beta2 from [0.9, 0.999]. */
int key_betas(struct key_walk *walk, const char *shown, const struct tree_node *node);
/* Sets a value, mapped by the choices of a row, which may be in no table. */
int key_choose(struct key_walk *walk, const struct key_row *row, const struct tree_node *node,
               const char *shown);
/* Sets the number of passes over the data. */
int key_epochs(struct key_walk *walk, const char *shown, const struct tree_node *node);
bool key_is_automatic(const struct tree_node *node); /* "auto" */
/* Whether a value is "auto" for the Hugging Face Trainer's arguments to fill; then the Trainer's defaults
 * apply. */
bool key_of_trainer(struct key_walk *walk, const struct tree_node *node);

#endif
