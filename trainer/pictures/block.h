/* block.h - pictures of one file: pixels and labels of equal pictures, in planes of bytes. */
#ifndef MUSTER_TRAINER_PICTURES_BLOCK_H
#define MUSTER_TRAINER_PICTURES_BLOCK_H

#include <stdint.h>

#include "trainer/data/mapping.h"

enum { PICTURE_SIDE_LIMIT = 4096, PICTURE_CLASSES_LIMIT = 256 };

struct picture_shape {
    int channels, height, width;
};

/* Picture i: planes at pixels + i*apart, label at labels[i*labels_apart]. */
struct picture_block {
    struct picture_shape shape;
    int64_t count;
    const uint8_t *pixels, *labels;
    int64_t apart, labels_apart;
    struct mapping mapping[2]; /* files that they lie in */
    uint8_t *owned[2];         /* or memory */
};

void picture_block_free(struct picture_block *block); /* accepts NULL and a zeroed one */

#endif
