/* reuse.h - a launch for the tests alone: each of `rows` rows of `width` (at most CUDA_BLOCK_LARGEST) values
 * is summed, and its maximum taken (at least 0 where width is not a multiple of 32), by one block. */
#ifndef MUSTER_TESTS_GPU_REUSE_H
#define MUSTER_TESTS_GPU_REUSE_H

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

int reuse_rows(void *sums, void *maxima, const void *in, int rows, int width, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
