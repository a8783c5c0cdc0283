/* assign.h - settings while files are read: each value, where it came from, and the notes about it.
 *
 * A value is firm or weak. Firm ones are set when they are read, a later one in place of an earlier one. Weak
 * ones (defaults of another program, values that only some choices use) wait for the end, and are taken where
 * nothing firm was given and the setting has an effect beside the others. */
#ifndef MUSTER_TRAINER_FORMATS_ASSIGN_H
#define MUSTER_TRAINER_FORMATS_ASSIGN_H

#include "proto/base/buffer.h"
#include "runtime/config/train_config.h"
#include "trainer/formats/batch.h"

enum { ASSIGN_WEAK_LIMIT = 256 };

/* Weak values of a lower rank are taken first. */
enum assign_rank { ASSIGN_VALUE, ASSIGN_TRAINER, ASSIGN_PROGRAM, ASSIGN_RANKS };

struct assign_weak {
    const struct knob *knob;
    enum assign_rank rank; /* a value of a file; a default of the Hugging Face Trainer; of another program */
    char *text, *place;
};

/* What becomes a setting only when all files are read. */
enum assign_number_kind {
    ASSIGN_ACCUMULATION,     /* micro-batches of a step */
    ASSIGN_WARMUP_RATIO,     /* of all steps */
    ASSIGN_WARMUP_MIN_RATIO, /* of the learning rate */
    ASSIGN_MIN_RATIO,        /* the same, at the end */
    ASSIGN_SCHEDULE_STEPS,   /* DeepSpeed's total_num_steps */
    ASSIGN_WHOLE_ELEMENTS,   /* DeepSpeed's param_persistence_threshold; below 0: "auto" */
    ASSIGN_SHARD_RANKS,      /* DeepSpeed's mics_shard_size */
    ASSIGN_EVALUATE_SHARE,   /* of all steps, or ASSIGN_EACH_EPOCH; likewise the next ones */
    ASSIGN_CHECKPOINT_SHARE,
    ASSIGN_INTERVAL_SHARE,
    ASSIGN_NUMBERS
};
#define ASSIGN_EACH_EPOCH (-1.0)
struct assign_number {
    double value;
    char *place; /* NULL: not given */
};

struct assign {
    struct train_config *config;
    char **places;          /* TRAIN_CONFIG_KEYS; NULL: the default */
    struct buffer *notes;   /* lines without "muster-train:" */
    char *const *overrides; /* of --set: "key=value" */
    int override_count;
    int world_size;
    struct muster_error *err;

    struct assign_weak weak[ASSIGN_WEAK_LIMIT];
    size_t weak_count;
    bool wants_batch; /* a file or an option of another program speaks of batches */
    bool adapts;      /* adapters are trained, and alone are written where a folder is wanted */
    bool trainer;     /* what is not given is as the Hugging Face Trainer has it */
    struct assign_number numbers[ASSIGN_NUMBERS];
};

/* Whether --set gives this setting: a file's value does not count. */
bool assign_overridden(const struct assign *a, const char *key);

/* where: in errors ("ds.json:3:7: optimizer.params.lr"); place: as --print-config shows it. A number in any
 * form ("1e9") may stand for a whole one. */
int assign_set(struct assign *a, const char *key, const char *text, enum knob_source source,
               const char *where, const char *place);
/* Checks nothing but the key: values are checked when they are taken. */
int assign_weakly(struct assign *a, enum assign_rank rank, const char *key, const char *text,
                  const char *place);
struct assign_pair {
    const char *key, *text;
};
int assign_weak_list(struct assign *a, enum assign_rank rank, const struct assign_pair *pairs, size_t count,
                     const char *place);
/* A rule's value, in place of what was there. */
int assign_rule(struct assign *a, const char *key, const char *text, const char *place);
/* Back to the default. */
int assign_reset(struct assign *a, const char *key);
/* Takes the weak values, rank by rank in their order, and forgets them. */
int assign_take_weak(struct assign *a);

/* Keeps a number for the end. */
int assign_keep(struct assign *a, enum assign_number_kind kind, double value, const char *place);

/* One --set, "key=value". */
int assign_override_text(struct assign *a, const char *text);
/* The --set of this setting, before its turn. */
int assign_override(struct assign *a, const char *key);

/* "5e8" and "16.0" as a whole number, for the caller (mem_free); NULL: the text is right as it is. */
char *assign_whole_number(const struct knob *knob, const char *text);
int assign_note(struct assign *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
enum knob_source assign_source(const struct assign *a, const char *key);
/* Where a setting came from; "" for a default. */
const char *assign_place(const struct assign *a, const char *key);
int assign_no_memory(struct assign *a);
void assign_free(struct assign *a); /* what it owns: weak values, the numbers' places */

#endif
