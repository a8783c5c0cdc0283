/* zip.c - see zip.h. */
#include "proto/archive/zip.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"

enum {
    LOCAL_HEADER = 30,
    LOCAL_WIDE = 20, /* extra field of two 64-bit sizes */
    EXTRA_HEADER = 4,
    EXTRA_WIDE = 1,
    EXTRA_PADDING = 0x4246, /* "FB": PyTorch's own */
    VERSION_STORED = 20,
    VERSION_WIDE = 45,
    FLAG_UTF8 = 0x800,
    NO_DATE = 0x21, /* 1 January 1980: the same bytes every time */
};
#define LIMIT_32 INT64_C(0xffffffff)

static void put16(struct buffer *out, unsigned value)
{
    const unsigned char bytes[2] = {(unsigned char)value, (unsigned char)(value >> 8)};
    (void)buffer_append(out, bytes, sizeof bytes);
}

static void put32(struct buffer *out, uint32_t value)
{
    put16(out, value & 0xffffu);
    put16(out, value >> 16);
}

static void put64(struct buffer *out, int64_t value)
{
    put32(out, (uint32_t)value);
    put32(out, (uint32_t)((uint64_t)value >> 32));
}

static uint32_t narrow(int64_t value)
{
    return value >= LIMIT_32 ? (uint32_t)LIMIT_32 : (uint32_t)value;
}

static bool is_wide(const struct zip_member *member)
{
    return member->bytes >= LIMIT_32;
}

int zip_add(struct zip *zip, const char *name, int64_t bytes, int align, struct muster_error *err)
{
    if (zip->count == zip->room) {
        int room = zip->room ? 2 * zip->room : 64;
        struct zip_member *member = mem_realloc(zip->member, (size_t)room, sizeof *member);
        if (!member)
            return error_set(err, MUSTER_E_NOMEM, "no memory for an archive of %d members", room);
        zip->member = member;
        zip->room = room;
    }
    struct zip_member *member = &zip->member[zip->count];
    *member = (struct zip_member){.name = mem_strdup(name), .header = zip->end, .bytes = bytes};
    if (!member->name)
        return error_set(err, MUSTER_E_NOMEM, "no memory for an archive");
    int64_t least = zip->end + LOCAL_HEADER + (int64_t)strlen(name) + (is_wide(member) ? LOCAL_WIDE : 0);
    member->data = (least + align - 1) / align * align;
    if (member->data != least) /* the padding is an extra field, which has a header itself */
        member->data = (least + EXTRA_HEADER + align - 1) / align * align;
    zip->end = member->data + bytes;
    return zip->count++;
}

void zip_free(struct zip *zip)
{
    for (int i = 0; i < zip->count; i++)
        mem_free(zip->member[i].name);
    mem_free(zip->member);
    *zip = (struct zip){0};
}

/* What local header and directory share, from "version needed" to the length of the name. */
static void put_common(struct buffer *out, const struct zip_member *member, bool wide)
{
    put16(out, wide ? VERSION_WIDE : VERSION_STORED);
    put16(out, FLAG_UTF8);
    put16(out, 0); /* stored */
    put16(out, 0); /* time */
    put16(out, NO_DATE);
    put32(out, member->crc);
    put32(out, narrow(member->bytes));
    put32(out, narrow(member->bytes));
    put16(out, (unsigned)strlen(member->name));
}

int zip_header(const struct zip_member *member, struct buffer *out)
{
    int64_t extra = member->data - member->header - LOCAL_HEADER - (int64_t)strlen(member->name);
    put32(out, 0x04034b50);
    put_common(out, member, is_wide(member));
    put16(out, (unsigned)extra);
    (void)buffer_text(out, member->name);
    if (is_wide(member)) {
        put16(out, EXTRA_WIDE);
        put16(out, LOCAL_WIDE - EXTRA_HEADER);
        put64(out, member->bytes);
        put64(out, member->bytes);
        extra -= LOCAL_WIDE;
    }
    if (extra) {
        put16(out, EXTRA_PADDING);
        put16(out, (unsigned)(extra - EXTRA_HEADER));
        for (int64_t i = EXTRA_HEADER; i < extra; i++)
            (void)buffer_append(out, "Z", 1);
    }
    return out->failed ? -1 : 0;
}

static void put_entry(struct buffer *out, const struct zip_member *member)
{
    bool far = member->header >= LIMIT_32;
    unsigned wide = (is_wide(member) ? 16u : 0) + (far ? 8u : 0);
    put32(out, 0x02014b50);
    put16(out, wide ? VERSION_WIDE : VERSION_STORED);
    put_common(out, member, wide != 0);
    put16(out, wide ? wide + EXTRA_HEADER : 0);
    put16(out, 0); /* comment */
    put16(out, 0); /* disk */
    put16(out, 0); /* attributes, inside and outside */
    put32(out, 0);
    put32(out, narrow(member->header));
    (void)buffer_text(out, member->name);
    if (wide) {
        put16(out, EXTRA_WIDE);
        put16(out, wide);
    }
    if (is_wide(member)) {
        put64(out, member->bytes);
        put64(out, member->bytes);
    }
    if (far)
        put64(out, member->header);
}

static void put_end_wide(struct buffer *out, const struct zip *zip, int64_t size)
{
    put32(out, 0x06064b50);
    put64(out, 44); /* bytes of the rest of this record */
    put16(out, VERSION_WIDE);
    put16(out, VERSION_WIDE);
    put32(out, 0);
    put32(out, 0);
    put64(out, zip->count);
    put64(out, zip->count);
    put64(out, size);
    put64(out, zip->end);
    put32(out, 0x07064b50); /* where that record is */
    put32(out, 0);
    put64(out, zip->end + size);
    put32(out, 1);
}

int zip_directory(const struct zip *zip, struct buffer *out)
{
    size_t before = out->length;
    for (int i = 0; i < zip->count; i++)
        put_entry(out, &zip->member[i]);
    int64_t size = (int64_t)(out->length - before);
    if (zip->count >= 0xffff || zip->end + size >= LIMIT_32)
        put_end_wide(out, zip, size);
    unsigned count = zip->count >= 0xffff ? 0xffff : (unsigned)zip->count;
    put32(out, 0x06054b50);
    put32(out, 0); /* disks */
    put16(out, count);
    put16(out, count);
    put32(out, narrow(size));
    put32(out, narrow(zip->end));
    put16(out, 0); /* comment */
    return out->failed ? -1 : 0;
}
