/* cifar.c - see cifar.h. */
#include "trainer/pictures/cifar.h"

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/pictures/unpickle.h"

static const struct picture_shape shape = {3, CIFAR_SIDE, CIFAR_SIDE};

/* Pickles begin with the operation PROTO; a binary batch begins with a label. */
static int is_pickle(const struct mapping *m)
{
    return m->length > 2 && (unsigned char)m->data[0] == 0x80;
}

static int open_binary(struct picture_block *block, const char *path, enum cifar_set *set,
                       struct muster_error *err)
{
    const struct mapping *m = &block->mapping[0];
    if (*set == CIFAR_ANY) /* of both it would be of thousands of pictures more than either set has */
        *set = m->length % CIFAR_RECORD && m->length % (CIFAR_RECORD + 1) == 0 ? CIFAR_100 : CIFAR_10;
    const int labels = *set == CIFAR_100 ? 2 : 1, record = CIFAR_PIXELS + labels;
    if (m->length == 0 || m->length % (size_t)record)
        return error_set(
            err, MUSTER_E_INVALID,
            "%s has %zu bytes; binary batches are records of %d bytes (CIFAR-10) or %d (CIFAR-100)", path,
            m->length, CIFAR_RECORD, CIFAR_RECORD + 1);
    block->count = (int64_t)(m->length / (size_t)record);
    block->labels = (const uint8_t *)m->data + labels - 1; /* the fine one */
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
    if (mapping_open(&block->mapping[0], path, err) < 0)
        return -1;
    return is_pickle(&block->mapping[0]) ? open_pickle(block, path, set, err)
                                         : open_binary(block, path, set, err);
}
