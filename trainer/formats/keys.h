/* keys.h - the keys of another program's configuration: one row a key: what becomes of it here.
 *
 * Every known key is a setting of ours, or has no effect here (which is listed), or is refused where it asks
 * for what is not built. An unknown key is an error with its place and the nearest known one. Values of null
 * count as not given, and keys that begin with an underscore are remarks. */
#ifndef MUSTER_TRAINER_FORMATS_KEYS_H
#define MUSTER_TRAINER_FORMATS_KEYS_H

#include "proto/tree/tree.h"
#include "trainer/formats/assign.h"

enum key_kind {
    KEY_SETTING,  /* the value of `setting`, through `choices` where there are any */
    KEY_WEAK,     /* the same, taken where the setting has an effect */
    KEY_IDLE,     /* no effect here; why: the reason, NULL: that of the block around it */
    KEY_ONLY,     /* only the values of `only` are possible; why: the reason and the way out */
    KEY_BLOCK,    /* a mapping with keys of its own */
    KEY_SWITCHED, /* a mapping that counts where its key "enabled" is true */
    KEY_RULE,     /* see rule; why: what it does, for the documentation */
};

/* Of a text in the file (any case) to a value of ours; to NULL: nothing is set. Ends with from NULL. */
struct key_choice {
    const char *from, *to;
};

struct key_walk;
struct key_row {
    const char *path; /* "zero_optimization.stage" */
    enum key_kind kind;
    const char *setting;
    const struct key_choice *choices;
    /* "false|none": nothing is wanted; behind a semicolon: what has no effect here, and is listed */
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
    const char *file;             /* in errors */
    const struct tree_node *root; /* of the file; NULL for an option */
    /* Reads another file that this one names. */
    int (*open)(struct key_walk *walk, const char *path, const struct tree_node *node);
    void *context;          /* of open */
    bool is_option;         /* file is "--batch_size_per_gpu": there are no lines */
    bool weak, idle;        /* all settings are weak; nothing counts (a block that is switched off) */
    struct buffer *ignored; /* "overlap_comm, aio": keys without effect */
};

/* All entries of a mapping; path: of the mapping in the table ("" or "fp16."), shown: in messages. */
int key_walk_map(struct key_walk *walk, const char *path, const char *shown, const struct tree_node *map);
/* One entry. */
int key_walk_entry(struct key_walk *walk, const char *path, const char *shown,
                   const struct tree_entry *entry);

const struct key_row *key_find(const struct key_table *table, const char *path);
/* Among the keys of the mapping at path ("" or "fp16.") the one nearest to name, without path; NULL: none is.
 */
const char *key_nearest(const struct key_table *table, const char *path, const char *name);

enum { KEY_PLACE = 640 };
/* "ds.json:3:7", or the option's name. */
const char *key_place(const struct key_walk *walk, int line, int column, char out[KEY_PLACE]);
/* "ds.json:3:7: what" and "ds.json:3:7 what": of errors, and of --print-config. */
const char *key_where(const struct key_walk *walk, const struct tree_node *node, const char *shown,
                      char out[KEY_PLACE]);
const char *key_origin(const struct key_walk *walk, const struct tree_node *node, const char *shown,
                       char out[KEY_PLACE]);
/* "text 'x'", "a list": for errors. */
const char *key_value(const struct tree_node *node, char out[KEY_PLACE]);
/* Sets one of our settings from a value of this file. Returns as assign_set. */
int key_assign(struct key_walk *walk, const char *setting, const char *text, const struct tree_node *node,
               const char *shown);
/* A number from low to high, also as text; an error names the value. */
int key_number(struct key_walk *walk, const struct tree_node *node, const char *shown, double low,
               double high, double *out);
/* The same, kept for the end (assign_keep); "auto" is not. */
int key_keep(struct key_walk *walk, enum assign_number_kind kind, const struct tree_node *node,
             const char *shown, double low, double high);
/* Lists a key as one without effect. */
int key_ignore(struct key_walk *walk, const char *shown);
/* [0.9, 0.999]: training.beta1 and beta2. */
int key_betas(struct key_walk *walk, const char *shown, const struct tree_node *node);
/* The value through the choices of a row that is in no table. */
int key_choose(struct key_walk *walk, const struct key_row *row, const struct tree_node *node,
               const char *shown);
/* Passes over the data. */
int key_epochs(struct key_walk *walk, const char *shown, const struct tree_node *node);
bool key_is_automatic(const struct tree_node *node); /* "auto" */
/* The same of what the Hugging Face Trainer's arguments give: what they leave out is as there. */
bool key_of_trainer(struct key_walk *walk, const struct tree_node *node);

#endif
