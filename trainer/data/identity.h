/* identity.h - the files and settings that determine the samples of a run, as lines "NAME=VALUE" that a
 * checkpoint keeps. Pure. */
#ifndef MUSTER_TRAINER_DATA_IDENTITY_H
#define MUSTER_TRAINER_DATA_IDENTITY_H

#include "proto/base/buffer.h"
#include "trainer/data/walk.h"

enum { IDENTITY_FILES = 64 }; /* files of a source with their own line; the source's line covers all files */

/* Adds a line; the buffer remembers a failure. */
void identity_add(struct buffer *out, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds the files of a source: names below its path, sizes, and hashes of their ends. Paths and times are left
 * out, since they differ between nodes. */
void identity_add_files(struct buffer *out, const char *source, const char *path, const struct walk *walk);
/* Adds the differences between two identities, "; " between them; nothing where they are equal. */
int identity_compare(const char *written, const char *now, struct buffer *out);

#endif
