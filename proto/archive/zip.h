/* zip.h - archives whose members are stored as they are, the form in which PyTorch saves. Pure.
 *
 * All sizes are known before the first byte is written, so that places are decided at once and members may be
 * written in any order; their checksums are put in afterwards. Format: APPNOTE.TXT 6.3 (PKWARE), 4.3.7,
 * 4.3.12, 4.3.14 to 4.3.16; sizes and offsets of 64 bits only where 32 are too few. */
#ifndef MUSTER_PROTO_ARCHIVE_ZIP_H
#define MUSTER_PROTO_ARCHIVE_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/checksum.h"
#include "proto/include/muster_error.h"

struct zip_member {
    char *name;
    int64_t header, data, bytes; /* where its header and its contents begin, and their size */
    uint32_t crc;                /* set by the writer of the contents */
    bool packed;                 /* read: compressed or encrypted */
};

/* A zeroed struct is an empty archive. */
struct zip {
    struct zip_member *member;
    int count, room;
    int64_t end; /* where the directory begins */
};

/* Appends a member whose contents begin at a multiple of align (1 to 4096). Returns its index, or -1:
 * MUSTER_E_NOMEM. */
int zip_add(struct zip *zip, const char *name, int64_t bytes, int align, struct muster_error *err);
void zip_free(struct zip *zip);
/* The bytes from member.header to member.data. */
int zip_header(const struct zip_member *member, struct buffer *out);
/* The bytes after the last member, for the file's end. */
int zip_directory(const struct zip *zip, struct buffer *out);

/* A file that is read: its bytes at any offset, all of them or -1. */
struct zip_source {
    const char *name; /* in errors */
    int64_t bytes;
    int (*read)(void *context, int64_t offset, void *out, size_t bytes, struct muster_error *err);
    void *context;
};

/* Appends the members of an archive, each with header, data and bytes set; all of them are in the file, but
 * for packed ones, whose bytes are not read. On failure zip is empty. */
int zip_read(const struct zip_source *source, struct zip *zip, struct muster_error *err);

#endif
