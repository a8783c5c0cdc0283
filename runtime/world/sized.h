/* sized.h - structs of the public API that begin with their own size: a program may have been built against
 * an older or a newer version of the library. */
#ifndef MUSTER_RUNTIME_WORLD_SIZED_H
#define MUSTER_RUNTIME_WORLD_SIZED_H

#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

/* MUSTER_E_INVALID where a struct is smaller than its first version. */
int sized_least(const char *name, uint32_t size, size_t least, struct muster_error *err);
/* Copies a caller's struct of `size` bytes into ours; members that it does not have are 0. MUSTER_E_INVALID
 * where it is smaller than `least`, the first version's, or has members that we do not know and that are not
 * 0. name: of the struct. */
int sized_in(const char *name, void *ours, size_t our_size, const void *theirs, uint32_t size, size_t least,
             struct muster_error *err);
/* Fills a caller's struct from ours, but for its size; members that we do not know become 0. */
int sized_out(const char *name, void *theirs, uint32_t size, const void *ours, size_t our_size, size_t least,
              struct muster_error *err);

#endif
