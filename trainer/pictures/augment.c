/* augment.c - see augment.h. */
#include "trainer/pictures/augment.h"

#include "proto/philox.h"

/* In the counter's last word: other uses of a seed have small numbers, dropout the highest bit. */
#define AUGMENT_DOMAIN 0x40000000u

struct augment_choice augment_none(const struct augment_options *options)
{
    return (struct augment_choice){options->padding, options->padding, false};
}

struct augment_choice augment_choose(const struct augment_options *options, uint64_t seed, uint64_t epoch,
                                     uint64_t picture)
{
    const uint32_t counter[4] = {(uint32_t)picture, (uint32_t)(picture >> 32), (uint32_t)epoch,
                                 AUGMENT_DOMAIN | (uint32_t)(epoch >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint64_t places = 2 * (uint64_t)options->padding + 1;
    uint32_t word[4];
    philox4x32_10(counter, key, word);
    return (struct augment_choice){(int)(word[0] * places >> 32), (int)(word[1] * places >> 32),
                                   options->flips && word[2] >> 31};
}

void augment_picture(const struct augment_options *options, const struct augment_choice *choice,
                     const struct picture_shape *from, const uint8_t *pixels, float *out)
{
    const struct picture_shape *to = &options->shape;
    const int above = (to->height - from->height) / 2 - choice->top + options->padding;
    const int before = (to->width - from->width) / 2 - choice->left + options->padding;
    for (int channel = 0; channel < to->channels; channel++) {
        const uint8_t *plane =
            pixels + (int64_t)(from->channels == 1 ? 0 : channel) * from->height * from->width;
        const float mean = options->mean[channel], deviation = options->deviation[channel];
        for (int row = 0; row < to->height; row++)
            for (int column = 0; column < to->width; column++) {
                const int y = row - above, x = (choice->flip ? to->width - 1 - column : column) - before;
                const bool inside = y >= 0 && y < from->height && x >= 0 && x < from->width;
                const float value = inside ? (float)plane[(int64_t)y * from->width + x] / 255.0f : 0.0f;
                *out++ = (value - mean) / deviation;
            }
    }
}
