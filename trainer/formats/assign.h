/* assign.h - the settings while files are read: each value, its source, and the notes about it.
 *
 * A value is firm or weak. A firm value is set when it is read, and replaces an earlier value. A weak value
 * (a default of another program, or a value that only some choices use) waits for the end. It is used if
 * there is no firm value and the setting has an effect together with the others. */
#ifndef MUSTER_TRAINER_FORMATS_ASSIGN_H
#define MUSTER_TRAINER_FORMATS_ASSIGN_H

#include "proto/base/buffer.h"
#include "runtime/config/train_config.h"
#include "trainer/formats/meant.h"

enum { ASSIGN_WEAK_LIMIT = 256 };

/* Weak values of a lower rank are used first. */
enum assign_rank { ASSIGN_VALUE, ASSIGN_TRAINER, ASSIGN_PROGRAM, ASSIGN_RANKS };

struct assign_weak {
    const struct knob *knob;
    enum assign_rank rank; /* a value of a file; a default of the Hugging Face Trainer; of another program */
    char *text, *place;
};

/* Numbers that become settings only when all files are read. */
enum assign_number_kind {
    ASSIGN_ACCUMULATION,     /* micro-batches of a step */
    ASSIGN_CHUNKS,           /* parts that a rank's batch goes through a pipeline in */
    ASSIGN_WARMUP_RATIO,     /* share of all steps */
    ASSIGN_WARMUP_MIN_RATIO, /* share of the learning rate */
    ASSIGN_MIN_RATIO,        /* the same, at the end */
    ASSIGN_SCHEDULE_STEPS,   /* DeepSpeed's total_num_steps */
    ASSIGN_WHOLE_ELEMENTS,   /* DeepSpeed's param_persistence_threshold; below 0: "auto" */
    ASSIGN_SHARD_RANKS,      /* DeepSpeed's mics_shard_size */
    ASSIGN_EVALUATE_SHARE,   /* share of all steps, or ASSIGN_EACH_EPOCH */
    ASSIGN_CHECKPOINT_SHARE, /* the same */
    ASSIGN_INTERVAL_SHARE,   /* the same */
    ASSIGN_NUMBERS
};
#define ASSIGN_EACH_EPOCH (-1.0)
struct assign_number {
    double value;
    char *place; /* NULL: not given */
};

struct assign {
    struct train_config *config;
    /* meant.h, whose tables are of readers that call this; NULL: the nearest name */
    const char *(*meant)(const char *name, char out[MEANT_SIZE]);
    char **places;          /* TRAIN_CONFIG_KEYS; NULL: the default */
    struct buffer *notes;   /* lines without "muster-train:" */
    char *const *overrides; /* values of --set: "key=value" */
    int override_count;
    int world_size;
    struct muster_error *err;

    struct assign_weak weak[ASSIGN_WEAK_LIMIT];
    size_t weak_count;
    bool wants_batch; /* a file or an option of another program gives batch sizes */
    bool adapts;      /* adapters are trained; an output folder gets the adapters alone */
    bool trainer;     /* the Hugging Face Trainer's defaults apply */
    struct assign_number numbers[ASSIGN_NUMBERS];
};

/* Whether --set gives this setting; then a file's value does not count. */
bool assign_overridden(const struct assign *a, const char *key);

/* Sets a setting. where: in errors ("ds.json:3:7: optimizer.params.lr"); place: in --print-config. A whole
 * number may have any form ("1e9"). */
int assign_set(struct assign *a, const char *key, const char *text, enum knob_source source,
               const char *where, const char *place);
/* Empties a list before its texts in this file are set, and notes the list of an earlier file. */
int assign_list_anew(struct assign *a, const char *key, const char *place);
/* Adds a weak value. The key is checked now, the value when it is used. */
int assign_weakly(struct assign *a, enum assign_rank rank, const char *key, const char *text,
                  const char *place);
struct assign_pair {
    const char *key, *text;
};
int assign_weak_list(struct assign *a, enum assign_rank rank, const struct assign_pair *pairs, size_t count,
                     const char *place);
/* Sets a rule's value, which replaces any other value. */
int assign_rule(struct assign *a, const char *key, const char *text, const char *place);
/* Resets a setting to the default. */
int assign_reset(struct assign *a, const char *key);
/* Uses the weak values, rank by rank in their order, and removes them. */
int assign_take_weak(struct assign *a);

/* Keeps a number for the end. */
int assign_keep(struct assign *a, enum assign_number_kind kind, double value, const char *place);

/* Applies a --set, "key=value". The first one of a list replaces the list of the files, a later one adds to
 * it; "[a, b]" is a whole list, and nothing or null an empty one. */
int assign_override_text(struct assign *a, const char *text);
/* Applies the --set of this setting before its turn. */
int assign_override(struct assign *a, const char *key);

/* The whole number that "5e8" or "16.0" stands for, as text for the caller to free (mem_free); NULL: no
 * change. */
char *assign_whole_number(const struct knob *knob, const char *text);
int assign_note(struct assign *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
enum knob_source assign_source(const struct assign *a, const char *key);
/* The source of a setting; "": the default. */
const char *assign_place(const struct assign *a, const char *key);
int assign_no_memory(struct assign *a);
void assign_free(struct assign *a); /* frees the weak values and the places of numbers */

#endif
