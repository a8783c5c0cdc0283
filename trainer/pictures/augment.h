/* augment.h - a picture becomes a model's input. Pure.
 *
 * As torchvision's RandomCrop(size, padding), RandomHorizontalFlip, ToTensor and Normalize in turn: the
 * crop's place and the flip are random bits of (seed, epoch, picture), by Philox, and of nothing else. */
#ifndef MUSTER_TRAINER_PICTURES_AUGMENT_H
#define MUSTER_TRAINER_PICTURES_AUGMENT_H

#include <stdbool.h>

#include "trainer/pictures/block.h"

enum { AUGMENT_CHANNELS = 64 };

/* The input that is made. A smaller picture is put into its middle, a gray one into all channels. */
struct augment_options {
    struct picture_shape shape;
    int padding; /* zeros around it from which it is cropped; 0: no crop */
    bool flips;  /* half of the pictures are mirrored */
    float mean[AUGMENT_CHANNELS], deviation[AUGMENT_CHANNELS];
};

/* What is done to one picture; zeroed with crop at padding: nothing. */
struct augment_choice {
    int top, left; /* 0..2*padding: of the crop in the padded picture */
    bool flip;
};
struct augment_choice augment_choose(const struct augment_options *options, uint64_t seed, uint64_t epoch,
                                     uint64_t picture);
/* The middle, not mirrored. */
struct augment_choice augment_none(const struct augment_options *options);
/* out (channels,height,width) of options->shape = (pixel / 255 - mean) / deviation. from: at most as high and
 * wide, with one channel or as many. */
void augment_picture(const struct augment_options *options, const struct augment_choice *choice,
                     const struct picture_shape *from, const uint8_t *pixels, float *out);

#endif
