/* prepare_internal.h - one run of prepare.h, for its stages. */
#ifndef MUSTER_TRAINER_CORPUS_PREPARE_INTERNAL_H
#define MUSTER_TRAINER_CORPUS_PREPARE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/corpus/measure.h"
#include "trainer/corpus/minhash.h"
#include "trainer/corpus/part_file.h"
#include "trainer/corpus/prepare.h"
#include "trainer/data/walk.h"

/* Consecutive files of the input, done by one worker. */
struct part {
    int first, count; /* of files */
    int64_t bytes;
    uint64_t key; /* of what is read and how */
    struct part_counts counts;
    int64_t document; /* kept ones in the parts before */
};

/* Of a document that was kept by the rules. */
enum {
    DECISION_DUPLICATE = 3, /* an enum duplicate */
    DECISION_HELD = 4,      /* in the validation split */
    DECISION_SAMPLED = 8,   /* the tokenizer is trained on it */
};

struct split_totals {
    uint64_t documents, tokens, shards;
};

struct prepare {
    const struct corpus_settings *settings;
    const struct log_sink *log;
    int threads;
    char *work; /* the folder */
    int lock;
    struct walk files;
    struct part *part;
    int parts;
    struct hash_set blocked, required;
    struct minhash_bands bands;
    struct part_counts total;
    uint64_t key; /* of the result */
    /* of decide */
    uint64_t decided;  /* its key */
    void *decisions;   /* the bytes of their file, of which ... */
    uint8_t *decision; /* (total.kept) ... these are the decisions */
    uint64_t duplicates[3], duplicate_bytes[3];
    uint64_t kept, kept_bytes, sampled, sampled_bytes;
    /* of train */
    char *tokenizer; /* what tokenizer_open is called with */
    uint64_t fingerprint;
    int64_t vocabulary;
    int32_t end; /* token behind every document; TOKEN_NONE */
};

int prepare_read(struct prepare *prepare, struct muster_error *err);
int prepare_decide(struct prepare *prepare, struct muster_error *err);
int prepare_train(struct prepare *prepare, struct muster_error *err);
int prepare_encode(struct prepare *prepare, struct muster_error *err);
int prepare_write(struct prepare *prepare, struct muster_error *err);

/* A path in the work folder, or NULL. */
char *prepare_path(const struct prepare *prepare, const char *name);
struct part_reader *prepare_open_part(const struct prepare *prepare, int part, struct muster_error *err);

/* The tokens of a part: this header, and for each kept document its number of tokens (uint32, the top bit: it
 * is held out) and the tokens, of `width` bytes. */
struct tokens_header {
    uint64_t magic, key;
    uint64_t documents;
    uint64_t width;
};
#define TOKENS_MAGIC UINT64_C(0x314B4F544D435250)
#define TOKENS_HELD  (UINT32_C(1) << 31)
char *prepare_tokens_path(const struct prepare *prepare, int part);
uint64_t prepare_tokens_key(const struct prepare *prepare, int part);
int prepare_tokens_width(const struct prepare *prepare);

#endif
