/* info.h - what a set of pictures is: {"train_size", "val_size", "num_classes", "classes"}, as JSON and as
 * torch.save writes a dict of it. Pure. */
#ifndef MUSTER_TRAINER_PICTURES_INFO_H
#define MUSTER_TRAINER_PICTURES_INFO_H

#include "trainer/pictures/pictures.h"

int pictures_info_json(const struct pictures *pictures, struct buffer *out); /* -1: no memory */
/* The whole file that torch.load(weights_only=True) reads. */
int pictures_info_archive(const struct pictures *pictures, struct buffer *out, struct muster_error *err);

#endif
