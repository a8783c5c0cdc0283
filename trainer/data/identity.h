/* identity.h - what the samples of a run follow from, as lines "NAME=VALUE" that a checkpoint keeps. Pure. */
#ifndef MUSTER_TRAINER_DATA_IDENTITY_H
#define MUSTER_TRAINER_DATA_IDENTITY_H

#include "proto/base/buffer.h"
#include "trainer/data/walk.h"

enum { IDENTITY_FILES = 64 }; /* of a source that have a line each; the others are in its own line */

/* Adds a line. A failure stays in the buffer. */
void identity_add(struct buffer *out, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The files of a source by names below its path, sizes and hashes of their ends: not by path or time, which
 * differ between nodes. */
void identity_add_files(struct buffer *out, const char *source, const char *path, const struct walk *walk);
/* In what a text differs from one that was written before, "; " between; nothing where it does not. */
int identity_compare(const char *written, const char *now, struct buffer *out);

#endif
