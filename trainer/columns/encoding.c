/* encoding.c - see columns_internal.h: numbers of a page's bytes. Pure. */
#include <string.h>

#include "trainer/columns/columns_internal.h"

bool cursor_take(struct cursor *c, size_t bytes, const unsigned char **out)
{
    if ((size_t)(c->end - c->at) < bytes)
        return false;
    *out = c->at;
    c->at += bytes;
    return true;
}

bool cursor_u32(struct cursor *c, uint32_t *out)
{
    const unsigned char *bytes;
    if (!cursor_take(c, 4, &bytes))
        return false;
    memcpy(out, bytes, 4); /* files and machine are little-endian */
    return true;
}

bool cursor_varint(struct cursor *c, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && c->at < c->end; shift += 7) {
        const unsigned char byte = *c->at++;
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

/* Values of `bits` bits each, from the lowest bit on. */
static void unpack_bits(const unsigned char *bytes, size_t length, int bits, size_t count, uint64_t *out)
{
    size_t bit = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t value = 0;
        for (int got = 0; got < bits;) {
            const size_t byte = bit / 8;
            const int from = (int)(bit % 8), here = 8 - from < bits - got ? 8 - from : bits - got;
            const uint64_t part = byte < length ? (uint64_t)(bytes[byte] >> from) & ((1u << here) - 1) : 0;
            value |= part << got;
            got += here;
            bit += (size_t)here;
        }
        out[i] = value;
    }
}

bool encoding_rle(struct cursor *c, int bits, size_t count, uint32_t *out)
{
    const size_t width = ((size_t)bits + 7) / 8;
    if (bits < 0 || bits > 32)
        return false;
    for (size_t done = 0; done < count;) {
        uint64_t head;
        const unsigned char *bytes;
        if (!bits) { /* all values are 0, and may have no bytes */
            memset(out + done, 0, (count - done) * sizeof *out);
            return true;
        }
        if (!cursor_varint(c, &head))
            return false;
        if (head & 1) {
            const uint64_t groups = head >> 1;
            if (!groups || groups > (uint64_t)(c->end - c->at)) /* a group has `bits` bytes, 1 or more */
                return false;
            const size_t there = (size_t)(c->end - c->at), needed = (size_t)groups * (size_t)bits,
                         length = needed < there ? needed : there; /* the last group may be cut off */
            for (size_t i = 0; i < groups * 8 && done < count; i += 8) {
                uint64_t eight[8];
                const size_t at = i / 8 * (size_t)bits;
                unpack_bits(c->at + (at < length ? at : length), at < length ? length - at : 0, bits, 8,
                            eight);
                for (int k = 0; k < 8 && done < count; k++)
                    out[done++] = (uint32_t)eight[k];
            }
            c->at += length;
            continue;
        }
        const uint64_t run = head >> 1;
        uint32_t value = 0;
        if (!run || !cursor_take(c, width, &bytes))
            return false;
        memcpy(&value, bytes, width);
        for (uint64_t i = 0; i < run && done < count; i++)
            out[done++] = value;
    }
    return true;
}

static int64_t unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

bool encoding_delta(struct cursor *c, size_t room, int64_t *out, size_t *count)
{
    uint64_t block, minis, total, first;
    if (!cursor_varint(c, &block) || !cursor_varint(c, &minis) || !cursor_varint(c, &total) ||
        !cursor_varint(c, &first) || !minis || !block || block > 1 << 20 || minis > block || block % minis ||
        block / minis % 8 || total > room)
        return false;
    const size_t each = (size_t)(block / minis);
    uint64_t value = (uint64_t)unzigzag(first); /* sums wrap, as Parquet's do */
    size_t done = 0;
    *count = (size_t)total;
    if (total)
        out[done++] = (int64_t)value;
    while (done < total) {
        uint64_t least;
        const unsigned char *widths, *bytes;
        if (!cursor_varint(c, &least) || !cursor_take(c, (size_t)minis, &widths))
            return false;
        for (size_t m = 0; m < minis && done < total; m++) {
            const int bits = widths[m];
            if (bits > 64 || !cursor_take(c, each / 8 * (size_t)bits, &bytes))
                return false;
            for (size_t i = 0; i < each && done < total; i += 8) {
                uint64_t eight[8];
                unpack_bits(bytes + i / 8 * (size_t)bits, (size_t)bits, bits, 8, eight);
                for (int k = 0; k < 8 && done < total; k++) {
                    value += (uint64_t)unzigzag(least) + eight[k];
                    out[done++] = (int64_t)value;
                }
            }
        }
    }
    return true;
}
