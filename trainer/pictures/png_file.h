/* png_file.h - one picture of a PNG file, as planes of bytes (libpng). */
#ifndef MUSTER_TRAINER_PICTURES_PNG_FILE_H
#define MUSTER_TRAINER_PICTURES_PNG_FILE_H

#include "trainer/pictures/block.h"

/* Reads the file into `planes`, (shape.channels,height,width): a smaller picture comes into the middle of
 * zeros. Palettes are looked up, an alpha channel is dropped, gamma is not looked at, of 16 bits the high
 * byte is kept; colours become gray by Pillow's formula of convert("L"). Errors name the file and what is
 * wrong: no PNG, cut off, a wrong checksum, larger than shape. shape has 1 or 3 channels. */
int png_file_read(const char *path, const struct picture_shape *shape, uint8_t *planes,
                  struct muster_error *err);

#endif
