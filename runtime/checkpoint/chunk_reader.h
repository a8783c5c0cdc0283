/* chunk_reader.h - chunks of a checkpoint's files. Threads read them ahead in the order of use and verify
 * their checksums. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_CHUNK_READER_H
#define MUSTER_RUNTIME_CHECKPOINT_CHUNK_READER_H

#include "runtime/checkpoint/manifest.h"

struct chunk {
    const struct manifest_slice *slice;
    int64_t number; /* index of the chunk in its slice */
};

struct chunk_reader;

/* local: a folder that may have copies of the files; NULL: none. All arguments outlive the reader. NULL: no
 * memory, or no thread. */
struct chunk_reader *chunk_reader_create(const struct manifest *manifest, const struct model *model,
                                         const char *folder, const char *local, const struct chunk *chunks,
                                         int64_t count, struct muster_error *err);
void chunk_reader_destroy(struct chunk_reader *reader); /* accepts NULL */
/* Number of files that have the chunks, and how many of these files are read from a copy. */
void chunk_reader_files(const struct chunk_reader *reader, int *files, int *local);
/* Error of the first existing copy that cannot be read; code 0: none. Call it after the last chunk. */
const struct muster_error *chunk_reader_copy_error(const struct chunk_reader *reader);
/* Bytes of the next chunk, valid until the next call. NULL: they cannot be read, or are damaged
 * (MUSTER_E_INVALID). Must not be called after the last chunk. */
const char *chunk_reader_next(struct chunk_reader *reader, struct muster_error *err);

#endif
