/* unpickle.h - reads torch.save's pickles: dicts, lists, numbers, texts, and tensors whose storages are
 * members of the archive. Pure.
 *
 * Of pickle's protocols 2 to 5 those operations are known that build these. A global is a name that is
 * compared with a state dict's globals, and nothing is ever called; another global is an error that names it.
 */
#ifndef MUSTER_PROTO_ARCHIVE_UNPICKLE_H
#define MUSTER_PROTO_ARCHIVE_UNPICKLE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

enum unpickled_kind {
    UNPICKLED_NONE,
    UNPICKLED_NUMBER, /* and booleans */
    UNPICKLED_TEXT,
    UNPICKLED_TUPLE, /* and lists */
    UNPICKLED_DICT,
    UNPICKLED_GLOBAL,
    UNPICKLED_STORAGE,
    UNPICKLED_TENSOR,
};

struct unpickled_value {
    enum unpickled_kind kind;
    int64_t
        number; /* whole ones, 0 for others; of a global: its row; of a storage: elements (its items: none) */
    int type;   /* row of unpickle_type, for a storage and a tensor */
    const char *text; /* a text, or a storage's key: in the pickle, not terminated */
    size_t length;
    int *items; /* indices: of a dict keys and values in turn; of a tensor: storage, offset, sizes, strides */
    int count, room;
};

/* All values; the last one is the pickled object. */
struct unpickled {
    struct unpickled_value *value;
    int count, room;
};

/* The type of elements: as safetensors names it, and its bytes. row: of a storage or tensor. */
struct unpickle_type {
    const char *storage, *dtype, *name;
    int size;
};
const struct unpickle_type *unpickle_type(int row);

/* root: the index of the value that was pickled. Errors have the byte at which they were found. */
int unpickle(const char *name, const char *pickle, size_t length, struct unpickled *out, int *root,
             struct muster_error *err);
void unpickled_free(struct unpickled *unpickled);

#endif
