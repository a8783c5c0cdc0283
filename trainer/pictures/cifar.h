/* cifar.h - batches of CIFAR-10 and CIFAR-100: 32 x 32 pictures of three planes.
 *
 * Binary: records of a label and 3,072 pixels, of CIFAR-100 with a coarse label before the fine one. Pickled:
 * a dict with data, an array of (pictures, 3072) bytes, and labels (fine_labels), a list
 * (https://www.cs.toronto.edu/~kriz/cifar.html). */
#ifndef MUSTER_TRAINER_PICTURES_CIFAR_H
#define MUSTER_TRAINER_PICTURES_CIFAR_H

#include "trainer/pictures/block.h"

enum cifar_set { CIFAR_ANY, CIFAR_10, CIFAR_100 };
enum { CIFAR_SIDE = 32, CIFAR_PIXELS = 3 * CIFAR_SIDE * CIFAR_SIDE, CIFAR_RECORD = CIFAR_PIXELS + 1 };

/* One batch, the kind of file found by its first byte and size. *set: that it must be of; CIFAR_ANY becomes
 * what it is. Errors name the file and what is wrong with it; the caller frees the block. */
int cifar_open(struct picture_block *block, const char *path, enum cifar_set *set, struct muster_error *err);

#endif
