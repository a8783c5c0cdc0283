/* batches.c - see pictures_internal.h: CIFAR's batches, and IDX files. IDX: two bytes of 0, the type (8:
 * bytes), the number of dimensions, and each dimension as four bytes, highest first
 * (http://yann.lecun.com/exdb/mnist). */
#include <string.h>
#include <zlib.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/pictures/pictures_internal.h"

static const struct picture_shape shape = {3, CIFAR_SIDE, CIFAR_SIDE};

static int open_binary(struct picture_block *block, const char *path, enum cifar_set *set,
                       struct muster_error *err)
{
    const struct mapping *m = &block->mapping[0];
    if (*set == CIFAR_ANY) /* a size that fits both would have more pictures than either set */
        *set = m->length % CIFAR_RECORD && m->length % (CIFAR_RECORD + 1) == 0 ? CIFAR_100 : CIFAR_10;
    const int labels = *set == CIFAR_100 ? 2 : 1, record = CIFAR_PIXELS + labels;
    if (m->length == 0 || m->length % (size_t)record)
        return error_set(
            err, MUSTER_E_INVALID,
            "%s has %zu bytes; binary batches are records of %d bytes (CIFAR-10) or %d (CIFAR-100)", path,
            m->length, CIFAR_RECORD, CIFAR_RECORD + 1);
    block->count = (int64_t)(m->length / (size_t)record);
    block->labels = (const uint8_t *)m->data + labels - 1; /* the fine label */
    block->pixels = (const uint8_t *)m->data + labels;
    block->apart = block->labels_apart = record;
    return 0;
}

static int open_pickle(struct picture_block *block, const char *path, enum cifar_set *set,
                       struct muster_error *err)
{
    const struct mapping *m = &block->mapping[0];
    struct unpickled_batch batch;
    block->owned[0] = mem_calloc(UNPICKLE_PICTURES, 1);
    if (!block->owned[0])
        return error_set(err, MUSTER_E_NOMEM, "no memory for the labels of %s", path);
    if (unpickle_batch(m->data, m->length, &batch, block->owned[0], err) < 0)
        return error_wrap(err, "%s", path);
    block->owned[1] = batch.owned;
    if (*set != CIFAR_ANY && *set != (batch.fine ? CIFAR_100 : CIFAR_10))
        return error_set(err, MUSTER_E_INVALID, "%s is a batch of CIFAR-%d, and CIFAR-%d is requested", path,
                         batch.fine ? 100 : 10, batch.fine ? 10 : 100);
    *set = batch.fine ? CIFAR_100 : CIFAR_10;
    if (batch.columns != CIFAR_PIXELS || batch.rows != batch.labels)
        return error_set(err, MUSTER_E_INVALID,
                         "%s has %lld pictures of %lld bytes and %lld labels; CIFAR's pictures have %d "
                         "bytes, and a label each",
                         path, (long long)batch.rows, (long long)batch.columns, (long long)batch.labels,
                         CIFAR_PIXELS);
    block->count = batch.rows;
    block->pixels = batch.data;
    block->apart = CIFAR_PIXELS;
    block->labels = block->owned[0];
    block->labels_apart = 1;
    return 0;
}

int cifar_open(struct picture_block *block, const char *path, enum cifar_set *set, struct muster_error *err)
{
    *block = (struct picture_block){.shape = shape};
    const struct mapping *m = &block->mapping[0];
    if (mapping_open(&block->mapping[0], path, err) < 0)
        return -1;
    /* Pickles begin with the operation PROTO, binary batches with a label. */
    return m->length > 2 && (unsigned char)m->data[0] == 0x80 ? open_pickle(block, path, set, err)
                                                              : open_binary(block, path, set, err);
}

/* ---- IDX files ---- */

enum { IDX_BYTES = 8, IDX_DIMENSIONS = 3, INFLATE_STEP = 1 << 20, INFLATE_LIMIT = 1 << 30 };

struct bytes {
    const uint8_t *data;
    size_t length;
};

static int inflate_all(z_stream *z, struct buffer *out)
{
    int state = Z_OK;
    while (state == Z_OK) {
        char *to = buffer_reserve(out, INFLATE_STEP);
        if (!to)
            return Z_MEM_ERROR;
        z->next_out = (Bytef *)to;
        z->avail_out = INFLATE_STEP;
        state = inflate(z, Z_NO_FLUSH);
        out->length += INFLATE_STEP - z->avail_out;
    }
    return state;
}

/* Decompresses a gzipped file into memory of the block. */
static int gunzip(const struct mapping *m, const char *path, uint8_t **owned, struct bytes *out,
                  struct muster_error *err)
{
    scope_buffer text = {.limit = INFLATE_LIMIT};
    z_stream z = {.next_in = (Bytef *)(uintptr_t)m->data, .avail_in = (uInt)m->length};
    if (m->length > UINT32_MAX || inflateInit2(&z, 15 + 16) != Z_OK) /* window of 32 KB, gzip's header */
        return error_set(err, MUSTER_E_LIMIT, "%s cannot be unpacked", path);
    const int state = inflate_all(&z, &text);
    (void)inflateEnd(&z);
    if (state != Z_STREAM_END)
        return error_set(err, state == Z_MEM_ERROR ? MUSTER_E_NOMEM : MUSTER_E_INVALID,
                         "%s cannot be unpacked: %s", path,
                         state == Z_MEM_ERROR ? "it needs more than 1 GiB, or memory is short"
                                              : "it is damaged or cut off");
    out->length = text.length;
    *owned = (uint8_t *)buffer_take(&text);
    out->data = *owned;
    return *owned ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory to unpack %s", path);
}

/* Reads the head with `dimensions` dimensions, and moves file to the bytes after it. */
static int read_head(struct bytes *file, const char *path, int dimensions, int64_t *size,
                     struct muster_error *err)
{
    const size_t head = 4 + 4 * (size_t)dimensions;
    const uint8_t *d = file->data;
    if (file->length < head || d[0] || d[1] || d[2] != IDX_BYTES || d[3] != dimensions)
        return error_set(err, MUSTER_E_INVALID, "%s is no IDX file of %d dimensions of bytes", path,
                         dimensions);
    int64_t elements = 1;
    for (int i = 0; i < dimensions; i++) {
        const uint8_t *at = d + 4 + 4 * i;
        size[i] = (int64_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
        if (i && (size[i] < 1 || size[i] > PICTURE_SIDE_LIMIT))
            return error_set(err, MUSTER_E_LIMIT,
                             "%s has pictures of %lld pixels on a side; 1 to %d are read", path,
                             (long long)size[i], PICTURE_SIDE_LIMIT);
        elements *= size[i];
    }
    if ((int64_t)(file->length - head) != elements)
        return error_set(err, MUSTER_E_INVALID, "%s has %zu bytes after its head, which gives %lld", path,
                         file->length - head, (long long)elements);
    file->data += head;
    file->length -= head;
    return 0;
}

static int open_one(struct picture_block *block, int which, const char *path, struct bytes *file,
                    struct muster_error *err)
{
    struct mapping *m = &block->mapping[which];
    if (mapping_open(m, path, err) < 0)
        return -1;
    *file = (struct bytes){(const uint8_t *)m->data, m->length};
    if (m->length < 2 || memcmp(m->data, "\x1f\x8b", 2) != 0)
        return 0;
    const int result = gunzip(m, path, &block->owned[which], file, err);
    mapping_close(m);
    return result;
}

int idx_open(struct picture_block *block, const char *pictures, const char *labels, struct muster_error *err)
{
    struct bytes pixels, names;
    int64_t size[IDX_DIMENSIONS], count;
    *block = (struct picture_block){0};
    if (open_one(block, 0, pictures, &pixels, err) < 0 || open_one(block, 1, labels, &names, err) < 0 ||
        read_head(&pixels, pictures, IDX_DIMENSIONS, size, err) < 0 ||
        read_head(&names, labels, 1, &count, err) < 0)
        return -1;
    if (count != size[0])
        return error_set(err, MUSTER_E_INVALID, "%s has %lld pictures, and %s %lld labels", pictures,
                         (long long)size[0], labels, (long long)count);
    block->shape = (struct picture_shape){1, (int)size[1], (int)size[2]};
    block->count = count;
    block->pixels = pixels.data;
    block->apart = size[1] * size[2];
    block->labels = names.data;
    block->labels_apart = 1;
    return 0;
}

/* ---- blocks ---- */

void picture_block_free(struct picture_block *block)
{
    for (int i = 0; block && i < 2; i++) {
        mapping_close(&block->mapping[i]);
        mem_free(block->owned[i]);
    }
    if (block)
        *block = (struct picture_block){0};
}
