/* part_file.h - what is kept of one part of the input between the stages: the texts that passed the rules,
 * and a record of each. Two files of the work folder, named by a key of all that they follow from, written
 * beside and renamed, so that a part is there as a whole or not at all. */
#ifndef MUSTER_TRAINER_CORPUS_PART_FILE_H
#define MUSTER_TRAINER_CORPUS_PART_FILE_H

#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "trainer/corpus/minhash.h"
#include "trainer/corpus/rules.h"

struct part_counts {
    uint64_t documents, bytes;                               /* that were read, before they were cleaned */
    uint64_t dropped[RULE_COUNT], dropped_bytes[RULE_COUNT]; /* of them, by the first rule that is broken */
    uint64_t kept, kept_bytes;                               /* the records, and their texts */
};

struct part_record {
    uint64_t offset; /* of the text */
    uint64_t hash[2];
    uint32_t length;
    uint32_t shingles; /* 0: it has no keys */
};

/* ---- writing ---- */

struct part_writer;
struct part_writer *part_writer_create(const char *folder, uint64_t key, int bands, struct muster_error *err);
/* keys (bands); NULL: the text has no words */
int part_writer_add(struct part_writer *writer, const char *text, size_t length, uint32_t shingles,
                    const uint64_t *keys, struct muster_error *err);
/* From here on the part is there. counts->kept and kept_bytes are the writer's. */
int part_writer_finish(struct part_writer *writer, struct part_counts *counts, struct muster_error *err);
void part_writer_destroy(struct part_writer *writer); /* accepts NULL; without finish nothing stays */
GUARD_DEFINE(part_writer, struct part_writer *, part_writer_destroy);

/* ---- reading ---- */

struct part_reader;
/* NULL with err->code MUSTER_E_NOT_FOUND: the part is not there. */
struct part_reader *part_reader_open(const char *folder, uint64_t key, int bands, struct part_counts *counts,
                                     struct muster_error *err);
void part_reader_close(struct part_reader *reader); /* accepts NULL */
GUARD_DEFINE(part_reader, struct part_reader *, part_reader_close);

/* The record after the last one that was read, from 0 on, and its keys (bands), until the next call; 0: none
 * is left; -1: an error. */
int part_reader_next(struct part_reader *reader, struct part_record *record, const uint64_t **keys,
                     struct muster_error *err);
/* The next call gives that one. */
int part_reader_seek(struct part_reader *reader, int64_t record, struct muster_error *err);
/* The text of a record, in place of what is in out. */
int part_reader_text(struct part_reader *reader, const struct part_record *record, struct buffer *out,
                     struct muster_error *err);

#endif
