/* compress_internal.h - shared by the methods of compression. */
#ifndef MUSTER_RUNTIME_COMPRESS_COMPRESS_INTERNAL_H
#define MUSTER_RUNTIME_COMPRESS_COMPRESS_INTERNAL_H

#include "runtime/compress/compress.h"
#include "runtime/compress/number.h"

static inline bool compress_is_dense(const struct compress_piece *piece)
{
    return piece->kept == 0 && piece->rank == 0;
}

/* gradient += feedback, in the gradient's units. */
void compress_add_feedback(const struct compress_call *c, const struct compress_piece *piece);
/* Copy the dense pieces to one array and back. */
void compress_pack(const struct compress_call *c, void *dense);
void compress_unpack(const struct compress_call *c, const void *dense);

#endif
