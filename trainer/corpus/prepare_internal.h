/* prepare_internal.h - private header of this folder: one run of prepare.h, and the parts that its stages
 * share. */
#ifndef MUSTER_TRAINER_CORPUS_PREPARE_INTERNAL_H
#define MUSTER_TRAINER_CORPUS_PREPARE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "trainer/chat/jinja.h"
#include "trainer/corpus/prepare.h"
#include "trainer/corpus/rules.h"
#include "trainer/corpus/texts.h"
#include "trainer/data/walk.h"

/* ---- work.c: numbered items done by threads; a free thread takes the next item ---- */

struct workers_job {
    int items, threads;
    /* Does one item; room belongs to the thread. */
    int (*run)(void *context, void *room, int item, struct muster_error *err);
    /* Makes the room that a thread keeps from item to item; NULL: an error. */
    void *(*open)(void *context, struct muster_error *err);
    void (*close)(void *room);
    void *context;
};

/* 0: every item is done. After the first error no further item begins, and the call returns that error. */
int workers_run(const struct workers_job *job, struct muster_error *err);

/* ---- work.c: a file that gets its name when it is complete ---- */

struct new_file {
    char *path, *temporary;
    int fd; /* -1: closed */
    struct buffer held;
};

/* Takes path, which may be NULL (no memory). Call new_file_close in any case. */
int new_file_open(struct new_file *file, char *path, struct muster_error *err);
/* Writes the held bytes if they are more than `above`. */
int new_file_flush(struct new_file *file, size_t above, struct muster_error *err);
/* Writes the rest and `header` (length) over the beginning, syncs, and renames the file. */
int new_file_finish(struct new_file *file, const void *header, size_t length, struct muster_error *err);
/* Removes the file unless new_file_finish has renamed it. */
void new_file_close(struct new_file *file);

/* ---- part_file.c: the texts of a part that passed the rules, and a record of each text ----
 *
 * A part has two files in the work folder. Their names have a key of all inputs of the part, and they appear
 * when they are complete. */

struct part_counts {
    uint64_t documents, bytes;                               /* read, before cleaning */
    uint64_t dropped[RULE_COUNT], dropped_bytes[RULE_COUNT]; /* by the first rule that they break */
    uint64_t kept, kept_bytes;                               /* the records, and their texts */
};

struct part_record {
    uint64_t offset; /* place of the text in the file of texts, in bytes */
    uint64_t hash[2];
    uint32_t length;
    uint32_t shingles; /* 0: the text has no keys */
    uint32_t chat;     /* not 0: a chat, whose spans follow its text */
    uint32_t spans;    /* parts of it that are trained on */
};

struct part_writer;
struct part_writer *part_writer_create(const char *folder, uint64_t key, int bands, struct muster_error *err);
/* keys (bands); NULL: the text has no words. spans NULL: no chat. */
int part_writer_add(struct part_writer *writer, const char *text, size_t length, uint32_t shingles,
                    const uint64_t *keys, const struct jinja_spans *spans, struct muster_error *err);
/* Completes the part; sets counts->kept and kept_bytes. */
int part_writer_finish(struct part_writer *writer, struct part_counts *counts, struct muster_error *err);
/* Removes the files of a part that is not complete. Accepts NULL. */
void part_writer_destroy(struct part_writer *writer);
GUARD_DEFINE(part_writer, struct part_writer *, part_writer_destroy);

struct part_reader;
/* NULL with err->code MUSTER_E_NOT_FOUND: there is no such part. */
struct part_reader *part_reader_open(const char *folder, uint64_t key, int bands, struct part_counts *counts,
                                     struct muster_error *err);
void part_reader_close(struct part_reader *reader); /* accepts NULL */
GUARD_DEFINE(part_reader, struct part_reader *, part_reader_close);

/* Reads the next record, from 0 on, and its keys (bands), valid until the next call. 0: no record is left;
 * -1: an error. */
int part_reader_next(struct part_reader *reader, struct part_record *record, const uint64_t **keys,
                     struct muster_error *err);
/* The next call of part_reader_next reads this record. */
int part_reader_seek(struct part_reader *reader, int64_t record, struct muster_error *err);
/* Replaces out by the text of a record. */
int part_reader_text(struct part_reader *reader, const struct part_record *record, struct buffer *out,
                     struct muster_error *err);
/* Replaces out by the spans of a record that is a chat. */
int part_reader_spans(struct part_reader *reader, const struct part_record *record, struct jinja_spans *out,
                      struct muster_error *err);

/* ---- duplicates.c: the documents that repeat an earlier document ----
 *
 * Exact: the same text (128 bits of a hash). Near: the similarity (minhash.c) to an earlier, kept document is
 * at least the threshold. Signatures find the pairs; the similarity is computed from both texts. So each
 * dropped document has a kept document of that similarity. Only the earliest similar document is considered:
 * if it is dropped itself, the document kept in its place is compared, and no third document.
 *
 * Memory: a byte a document, up to 32 bytes for each document with a near duplicate, and a table of the size
 * that the caller gives. Documents are read in several passes instead. Pure but for the functions of the
 * source. */

enum duplicate { DUPLICATE_NONE, DUPLICATE_EXACT, DUPLICATE_NEAR };

struct duplicates_entry {
    uint64_t hash[2];
    const uint64_t *keys; /* (bands); NULL: a text without words, which has no near duplicate */
};

struct duplicates_source {
    int64_t documents; /* below 2^32 - 1 */
    /* Calls each(call, n, entry) for every document in order. Stops with -1 at an error, or if each returns
     * -1. */
    int (*visit)(void *context,
                 int (*each)(void *call, int64_t document, const struct duplicates_entry *entry), void *call,
                 struct muster_error *err);
    /* Replaces out by the runs of words of a document. */
    int (*load)(void *context, int64_t document, struct shingles *out, struct muster_error *err);
    void *context;
};

struct duplicates_options {
    struct minhash_bands bands;
    double threshold; /* above 1: exact duplicates alone */
    int64_t memory;   /* bytes of the table */
};

/* Writes an enum duplicate for each document into out (documents), which is zeroed. */
int duplicates_find(const struct duplicates_source *source, const struct duplicates_options *options,
                    uint8_t *out, struct muster_error *err);

/* ---- shard_writer.c: documents of tokens as shards of a limited size ----
 *
 * A shard is NAME.bin in llm.c's format, and NAME.idx with the ends of its documents (data/token_file.h). It
 * ends with a document. A shard with chats has a NAME.mask. */

struct shard {
    uint64_t tokens, documents;
};

struct shard_writer_options {
    const char *folder; /* exists; the files are shard-00000.bin, shard-00001.bin, ... */
    int width;          /* bytes of a token: 2 or 4 */
    uint64_t limit;     /* tokens of a shard; a longer document gets its own shard */
};
struct shard_writer;

/* Whether the next document, of `tokens` tokens, begins a new shard. Pure. */
bool shard_is_full(const struct shard *shard, uint64_t tokens, uint64_t limit);

struct shard_writer *shard_writer_create(const struct shard_writer_options *options,
                                         struct muster_error *err);
void shard_writer_destroy(struct shard_writer *writer); /* accepts NULL */
GUARD_DEFINE(shard_writer, struct shard_writer *, shard_writer_destroy);

/* Adds a document of `count` tokens of `width` bytes. A document without tokens is left out. masked (count),
 * of a chat: not 0 where a token is no target; NULL: no chat. */
int shard_writer_add(struct shard_writer *writer, const void *tokens, const char *masked, uint64_t count,
                     struct muster_error *err);
/* Completes the last shard. */
int shard_writer_finish(struct shard_writer *writer, struct muster_error *err);
/* The shards so far (*count), owned by the writer. */
const struct shard *shard_writer_list(const struct shard_writer *writer, uint64_t *count);
/* Removes all shards, complete or not, from a folder. */
int shard_writer_clear(const char *folder, struct muster_error *err);

/* ---- the run ---- */

/* Consecutive files of the input; a unit of work. */
struct part {
    int first, count; /* files */
    int64_t bytes;
    uint64_t key; /* hash of the files and of the settings of stage read */
    struct part_counts counts;
    int64_t document; /* kept documents in the parts before */
};

/* Bits of the decision on a document that passed the rules. */
enum {
    DECISION_DUPLICATE = 3, /* an enum duplicate */
    DECISION_HELD = 4,      /* in the validation split */
    DECISION_SAMPLED = 8,   /* in the sample that trains the tokenizer */
};

struct split_totals {
    uint64_t documents, tokens, shards;
};

/* prepare.c: the template of --chat_template; each thread opens its own. */
struct chat *prepare_open_chat(const struct corpus_settings *settings, struct muster_error *err);

struct prepare {
    const struct corpus_settings *settings;
    const struct log_sink *log;
    int threads;
    char *work; /* path of the work folder */
    int lock;
    struct walk files;
    struct part *part;
    int parts;
    struct hash_set blocked, required;
    struct minhash_bands bands;
    struct part_counts total;
    uint64_t key; /* key of the result */
    /* set by decide */
    uint64_t decided;  /* key of the decisions */
    void *decisions;   /* bytes of the file of decisions: a header, then `decision` */
    uint8_t *decision; /* (total.kept) inside of decisions */
    uint64_t duplicates[3], duplicate_bytes[3];
    uint64_t kept, kept_bytes, sampled, sampled_bytes;
    /* set by train */
    char *tokenizer; /* argument of tokenizer_open */
    uint64_t fingerprint;
    int64_t vocabulary;
    int32_t end; /* token added after each document; TOKEN_NONE: none */
};

int prepare_read(struct prepare *prepare, struct muster_error *err);
int prepare_decide(struct prepare *prepare, struct muster_error *err);
int prepare_train(struct prepare *prepare, struct muster_error *err);
int prepare_encode(struct prepare *prepare, struct muster_error *err);
int prepare_write(struct prepare *prepare, struct muster_error *err);

/* work.c: a path in the work folder; NULL: no memory. */
char *prepare_path(const struct prepare *prepare, const char *name);
/* part_file.c: opens a part that stage read has made. */
struct part_reader *prepare_open_part(const struct prepare *prepare, int part, struct muster_error *err);

/* encode.c: the tokens of a part are this header, and for each kept document its number of tokens (uint32,
 * top bit: held out, the bit below: a chat) and the tokens, of `width` bytes; of a chat a byte for each after
 * them, not 0 where it is no target. */
struct tokens_header {
    uint64_t magic, key;
    uint64_t documents;
    uint64_t width;
};
#define TOKENS_MAGIC UINT64_C(0x314B4F544D435250)
#define TOKENS_HELD  (UINT32_C(1) << 31)
#define TOKENS_CHAT  (UINT32_C(1) << 30)
char *prepare_tokens_path(const struct prepare *prepare, int part);
int prepare_tokens_width(const struct prepare *prepare);

#endif
