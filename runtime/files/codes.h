/* codes.h - a tensor that a file keeps in few bits, as up to three tensors. A matrix NAME (out, in) is
 *
 *     NAME.int8  I8 (out, in)       NAME.scale  F32 (out)
 *     NAME.int4  U8 (out, in / 2)   NAME.scale  F16 (out, in / group)   NAME.zero  U8 (out, in / group)
 *
 * rounding/coded.h has the formula of the values. */
#ifndef MUSTER_RUNTIME_FILES_CODES_H
#define MUSTER_RUNTIME_FILES_CODES_H

#include "runtime/files/tensors.h"

/* Suffixes of the names of scales and zeros. */
#define CODES_SCALE ".scale"
#define CODES_ZERO  ".zero"

/* Puts the tensor that is meant in the place of each such set; the list is sorted, before and after.
 * MUSTER_E_INVALID: a part is missing, or of a wrong type or shape. path: of the source, for errors. */
int codes_fold(struct file_tensors *tensors, const char *path, struct muster_error *err);
/* "28 of 39 tensors are in int4 in groups of 64", of a list that was folded; nothing where none is. */
int codes_text(const struct file_tensors *tensors, struct buffer *out);

#endif
