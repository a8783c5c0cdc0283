/* idx.h - the files of MNIST and Fashion-MNIST: pictures of one plane, and labels beside them. */
#ifndef MUSTER_TRAINER_PICTURES_IDX_H
#define MUSTER_TRAINER_PICTURES_IDX_H

#include "trainer/pictures/block.h"

/* pictures: a file of three dimensions of bytes; labels: one of one dimension. Both may be gzipped. Errors
 * name the file and what is wrong with it; the caller frees the block. */
int idx_open(struct picture_block *block, const char *pictures, const char *labels, struct muster_error *err);

#endif
