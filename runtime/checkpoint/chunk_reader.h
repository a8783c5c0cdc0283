/* chunk_reader.h - chunks of a checkpoint's files, read ahead by threads in the order in which they will be
 * asked for, and held against their checksums there. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_CHUNK_READER_H
#define MUSTER_RUNTIME_CHECKPOINT_CHUNK_READER_H

#include "runtime/checkpoint/manifest.h"

struct chunk {
    const struct manifest_slice *slice;
    int64_t number; /* of its chunks */
};

struct chunk_reader;

/* local: a folder that may have copies of the files; NULL: none. All arguments outlive the reader. NULL: no
 * memory, or no thread. */
struct chunk_reader *chunk_reader_create(const struct manifest *manifest, const struct model *model,
                                         const char *folder, const char *local, const struct chunk *chunks,
                                         int64_t count, struct muster_error *err);
void chunk_reader_destroy(struct chunk_reader *reader); /* accepts NULL */
/* Files that the chunks are of, and how many of them have a copy that is in use. */
void chunk_reader_files(const struct chunk_reader *reader, int *files, int *local);
/* Why a copy was passed over that is there and cannot be read, the first of them; code 0: none. After the
 * last chunk. */
const struct muster_error *chunk_reader_copy_error(const struct chunk_reader *reader);
/* The bytes of the next chunk, until the next call. NULL: they cannot be read, or are damaged
 * (MUSTER_E_INVALID). Not beyond the last one. */
const char *chunk_reader_next(struct chunk_reader *reader, struct muster_error *err);

#endif
