/* zip_read.c - the members of an archive that another program wrote. See zip.h. */
#include <string.h>

#include "proto/archive/zip.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

enum {
    END_RECORD = 22,
    WIDE_LOCATOR = 20,
    WIDE_RECORD = 56,
    ENTRY = 46,
    LOCAL = 30,
    COMMENT = 0xffff,
    DIRECTORY_LIMIT = 64 << 20,
    MEMBERS_LIMIT = 1 << 20,
    ENCRYPTED = 1,
    EXTRA_SIZES = 1,
};
#define NARROW UINT32_C(0xffffffff)

/* The directory: its place and its entries. */
struct directory {
    int64_t offset, bytes, count;
};

static uint64_t little(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static int damaged(const struct zip_source *s, const char *what, struct muster_error *err)
{
    return error_set(err, MUSTER_E_INVALID, "%s: the archive is cut off or damaged: %s", s->name, what);
}

/* Sizes of 64 bits are in a record of their own, before the locator that is before the end record. */
static int find_wide(const struct zip_source *s, int64_t end, struct directory *d, struct muster_error *err)
{
    unsigned char locator[WIDE_LOCATOR], record[WIDE_RECORD];
    if (end < WIDE_LOCATOR)
        return 0;
    if (s->read(s->context, end - WIDE_LOCATOR, locator, sizeof locator, err) < 0)
        return -1;
    if (little(locator, 4) != 0x07064b50)
        return 0;
    const uint64_t at = little(locator + 8, 8);
    if (at > (uint64_t)(end - WIDE_LOCATOR - WIDE_RECORD))
        return damaged(s, "the record of its end is not in it", err);
    if (s->read(s->context, (int64_t)at, record, sizeof record, err) < 0)
        return -1;
    if (little(record, 4) != 0x06064b50)
        return damaged(s, "there is no record of its end", err);
    d->count = (int64_t)little(record + 32, 8);
    d->bytes = (int64_t)little(record + 40, 8);
    d->offset = (int64_t)little(record + 48, 8);
    return 0;
}

static int find_directory(const struct zip_source *s, struct directory *d, struct muster_error *err)
{
    const int64_t most = END_RECORD + COMMENT, room = s->bytes < most ? s->bytes : most;
    scope_free unsigned char *tail = mem_calloc((size_t)room + 1, 1);
    if (!tail)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", s->name);
    if (s->read(s->context, s->bytes - room, tail, (size_t)room, err) < 0)
        return -1;
    int64_t at = room - END_RECORD;
    while (at >= 0 && little(tail + at, 4) != 0x06054b50)
        at--;
    if (at < 0)
        return damaged(s, "it has no end", err);
    *d = (struct directory){.count = (int64_t)little(tail + at + 10, 2),
                            .bytes = (int64_t)little(tail + at + 12, 4),
                            .offset = (int64_t)little(tail + at + 16, 4)};
    if (find_wide(s, s->bytes - room + at, d, err) < 0)
        return -1;
    if (d->count < 0 || d->count > MEMBERS_LIMIT || d->bytes < 0 || d->bytes > DIRECTORY_LIMIT)
        return error_set(err, MUSTER_E_LIMIT, "%s: an archive of %lld members; at most %d are read", s->name,
                         (long long)d->count, MEMBERS_LIMIT);
    if (d->offset < 0 || d->offset > s->bytes - d->bytes)
        return damaged(s, "its directory is not in it", err);
    return 0;
}

/* The 64-bit values of an entry, in the order of the 32-bit fields that were too small. */
static bool take_wide(const unsigned char *extra, size_t length, uint64_t *bytes, uint64_t *packed,
                      uint64_t *header)
{
    uint64_t *const values[] = {bytes, packed, header};
    while (length >= 4) {
        const size_t size = (size_t)little(extra + 2, 2);
        const unsigned char *at = extra + 4;
        if (size > length - 4)
            return false;
        if (little(extra, 2) == EXTRA_SIZES) {
            size_t left = size;
            for (size_t i = 0; i < 3; i++) {
                if (*values[i] != NARROW)
                    continue;
                if (left < 8)
                    return false;
                *values[i] = little(at, 8);
                at += 8;
                left -= 8;
            }
            return true;
        }
        extra += 4 + size;
        length -= 4 + size;
    }
    return *bytes != NARROW && *packed != NARROW && *header != NARROW;
}

/* Where the contents begin is in the header before them. */
static int find_data(const struct zip_source *s, struct zip_member *member, struct muster_error *err)
{
    unsigned char local[LOCAL];
    if (member->header > s->bytes - LOCAL)
        return damaged(s, "a member is not in it", err);
    if (s->read(s->context, member->header, local, sizeof local, err) < 0)
        return -1;
    member->data = member->header + LOCAL + (int64_t)little(local + 26, 2) + (int64_t)little(local + 28, 2);
    if (little(local, 4) != 0x04034b50 || member->data > s->bytes || member->bytes > s->bytes - member->data)
        return damaged(s, "a member is not where its directory has it", err);
    return 0;
}

/* One entry of the directory; its length, or -1. */
static int64_t take_entry(const struct zip_source *s, const unsigned char *at, size_t length, struct zip *zip,
                          struct muster_error *err)
{
    if (length < ENTRY || little(at, 4) != 0x02014b50)
        return damaged(s, "its directory is no directory", err);
    const size_t name = (size_t)little(at + 28, 2), extra = (size_t)little(at + 30, 2);
    const size_t all = ENTRY + name + extra + (size_t)little(at + 32, 2);
    uint64_t packed = little(at + 20, 4), bytes = little(at + 24, 4), header = little(at + 42, 4);
    scope_free char *text = length >= all ? mem_strndup((const char *)at + ENTRY, name) : NULL;
    if (length < all)
        return damaged(s, "its directory is cut off", err);
    if (!text)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", s->name);
    if (!take_wide(at + ENTRY + name, extra, &bytes, &packed, &header) || header > INT64_MAX ||
        bytes > INT64_MAX || packed > INT64_MAX)
        return damaged(s, "a size in its directory", err);
    const int index = zip_add(zip, text, 0, 1, err);
    if (index < 0)
        return -1;
    zip->member[index].header = (int64_t)header;
    zip->member[index].bytes = (int64_t)bytes;
    zip->member[index].packed = little(at + 10, 2) != 0 || little(at + 8, 2) & ENCRYPTED || packed != bytes;
    if (zip->member[index].packed)
        zip->member[index].bytes = (int64_t)packed;
    return find_data(s, &zip->member[index], err) < 0 ? -1 : (int64_t)all;
}

int zip_read(const struct zip_source *source, struct zip *zip, struct muster_error *err)
{
    struct directory d = {0};
    if (source->bytes < END_RECORD)
        return damaged(source, "it is too short", err);
    if (find_directory(source, &d, err) < 0)
        return -1;
    scope_free unsigned char *entries = mem_calloc((size_t)d.bytes + 1, 1);
    if (!entries)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", source->name);
    if (source->read(source->context, d.offset, entries, (size_t)d.bytes, err) < 0)
        return -1;
    int64_t at = 0;
    for (int64_t i = 0; i < d.count; i++) {
        const int64_t length = take_entry(source, entries + at, (size_t)(d.bytes - at), zip, err);
        if (length < 0) {
            zip_free(zip);
            return -1;
        }
        at += length;
    }
    return 0;
}
