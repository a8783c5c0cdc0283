/* elements.h - runs of elements between files and memory: from one type to another, and from rows to columns.
 * Pure. */
#ifndef MUSTER_RUNTIME_FILES_ELEMENTS_H
#define MUSTER_RUNTIME_FILES_ELEMENTS_H

#include <stdint.h>

#include "kernels/kernels.h"

/* count elements of `from`, rounded to nearest with ties to even; the two may not overlap. Between float and
 * the 16-bit types by integer operations that vectorise, other pairs by the reference kernel. NaN stays
 * NaN. */
void elements_convert(void *to, enum dtype dtype_to, const void *from, enum dtype dtype_from, int64_t count);
/* Between int64 and a float type, f32 or f64; towards zero. */
void elements_to_integers(int64_t *to, const void *from, enum dtype dtype_from, int64_t count);
void elements_from_integers(void *to, enum dtype dtype_to, const int64_t *from, int64_t count);

/* to (columns, rows) = from (rows, columns), elements of 2, 4 or 8 bytes. from_stride, to_stride: elements
 * from one row to the next of each, so that both may be parts of a larger matrix. */
void elements_transpose(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t rows,
                        int64_t columns, int size);

#endif
