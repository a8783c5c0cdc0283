/* unpack.c - the compressions of pages and buffers: snappy (libsnappy, loaded when a file needs it), gzip,
 * zstd. */
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "proto/base/error.h"
#include "proto/base/library.h"
#include "trainer/columns/columns_internal.h"

/* As snappy-c.h has them; 0 is SNAPPY_OK. */
struct snappy_calls {
    int (*uncompress)(const char *packed, size_t packed_length, char *out, size_t *length);
    int (*length)(const char *packed, size_t packed_length, size_t *length);
};
static const struct library_function snappy_functions[] = {
    {"snappy_uncompress", offsetof(struct snappy_calls, uncompress), false, NULL},
    {"snappy_uncompressed_length", offsetof(struct snappy_calls, length), false, NULL},
};
static const struct library snappy_library = {
    .file = "libsnappy.so.1",
    .needs = "a Parquet file packed by snappy needs libsnappy (package libsnappy1v5)",
    .functions = snappy_functions,
    .count = sizeof snappy_functions / sizeof *snappy_functions,
};

static int unpack_snappy(const char *data, size_t length, char *out, size_t size, struct muster_error *err)
{
    static struct snappy_calls calls; /* filled once, by the thread that reads the data */
    size_t there = 0, written = size;
    if (library_load(&snappy_library, &calls, NULL, err) < 0)
        return -1;
    if (calls.length(data, length, &there) != 0 || there != size ||
        calls.uncompress(data, length, out, &written) != 0 || written != size)
        return columns_damaged(err, "a page that snappy packed");
    return 0;
}

static int unpack_gzip(const char *data, size_t length, char *out, size_t size, struct muster_error *err)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)data,
                  .avail_in = (uInt)length,
                  .next_out = (Bytef *)out,
                  .avail_out = (uInt)size};
    if (length > UINT32_MAX || inflateInit2(&z, 15 + 32) != Z_OK) /* gzip or zlib, by the first bytes */
        return error_set(err, MUSTER_E_NOMEM, "no memory to unpack a page");
    const int result = inflate(&z, Z_FINISH);
    const bool whole = result == Z_STREAM_END && z.avail_out == 0;
    (void)inflateEnd(&z); /* it cannot fail here */
    return whole ? 0 : columns_damaged(err, "a page that gzip packed");
}

int columns_unpack(enum packing packing, const char *data, size_t length, char *out, size_t size,
                   struct muster_error *err)
{
    switch (packing) {
    case PACKED_SNAPPY:
        return unpack_snappy(data, length, out, size, err);
    case PACKED_GZIP:
        return unpack_gzip(data, length, out, size, err);
    case PACKED_ZSTD: {
        const size_t got = ZSTD_decompress(out, size, data, length);
        return ZSTD_isError(got) || got != size ? columns_damaged(err, "bytes that zstd packed") : 0;
    }
    case PACKED_NOT:
        break;
    }
    if (length != size)
        return columns_damaged(err, "the length of a page");
    memcpy(out, data, size);
    return 0;
}
