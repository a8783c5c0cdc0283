/* pictures.h - a set of pictures with labels, divided by a seed into a training and a validation split.
 *
 * Sample g of training is picture order_permute(epoch, g mod samples) of epoch g / samples, augmented by
 * (seed, epoch, picture). A validation split is read in its order, without augmentation. Nothing depends on
 * the world. */
#ifndef MUSTER_TRAINER_PICTURES_PICTURES_H
#define MUSTER_TRAINER_PICTURES_PICTURES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

struct picture_shape {
    int channels, height, width;
};

/* ---- pictures.c: a picture becomes a model's input. Pure. ----
 *
 * The steps are torchvision's RandomCrop(size, padding), RandomHorizontalFlip, ToTensor and Normalize. The
 * place of the crop and the flip are random bits of (seed, epoch, picture) alone, by Philox. */

enum { AUGMENT_CHANNELS = 64 };

/* The model's input. A smaller picture is put in the middle, a gray picture in all channels. */
struct augment_options {
    struct picture_shape shape;
    int padding; /* zeros around the picture before the crop; 0: no crop */
    bool flips;  /* half of the pictures are mirrored */
    float mean[AUGMENT_CHANNELS], deviation[AUGMENT_CHANNELS];
};

struct augment_choice {
    int top, left; /* place of the crop in the padded picture, 0..2*padding */
    bool flip;
};
struct augment_choice augment_choose(const struct augment_options *options, uint64_t seed, uint64_t epoch,
                                     uint64_t picture);
/* The crop in the middle, not mirrored. */
struct augment_choice augment_none(const struct augment_options *options);
/* out (channels,height,width) of options->shape = (pixel / 255 - mean) / deviation. from: at most that height
 * and width, with 1 channel or as many as the input. */
void augment_picture(const struct augment_options *options, const struct augment_choice *choice,
                     const struct picture_shape *from, const uint8_t *pixels, float *out);

/* ---- the set ---- */

/* symbol, name in the settings. */
#define PICTURE_KINDS(X)                                                                                     \
    X(PICTURES_AUTO, "auto")                                                                                 \
    X(PICTURES_CIFAR10, "cifar10")                                                                           \
    X(PICTURES_MNIST, "mnist")                                                                               \
    X(PICTURES_FASHION_MNIST, "fashion_mnist")                                                               \
    X(PICTURES_FOLDERS, "folders")                                                                           \
    X(PICTURES_CIFAR100, "cifar100")
enum picture_kind {
#define PICTURE_KIND_ENUM(symbol, name) symbol,
    PICTURE_KINDS(PICTURE_KIND_ENUM)
#undef PICTURE_KIND_ENUM
        PICTURE_KIND_COUNT
};

struct pictures_options {
    /* A batch of CIFAR-10, an IDX file of pictures, or a folder: with the training files of either, also in a
     * folder that torchvision makes there; or with a folder of PNG and JPEG files for each class. */
    const char *path;
    const char *validation_path; /* a separate file or folder; "" or NULL: none. Of a folder of IDX files the
                                    test files are read; folders have the same classes */
    enum picture_kind kind;      /* PICTURES_AUTO: by the names of the files */
    double validation_share;     /* 0 <= share < 1 */
    uint64_t seed;
    int classes; /* classes of the model; labels are below */
    /* Pictures in folders: the shorter side becomes so many pixels, 0: as it is. A sample is cropped from the
     * result: at a random place in training, from the middle in an evaluation. */
    int resize;
    double crop_area; /* above 0: training takes a random box of this share of the area or more
                         (RandomResizedCrop) */
    struct augment_options augment;
};

struct pictures;
/* NULL on error: no files, files of another kind, pictures larger than the input, labels beyond the classes.
 */
struct pictures *pictures_open(const struct pictures_options *options, struct muster_error *err);
void pictures_destroy(struct pictures *pictures); /* accepts NULL */

int64_t pictures_samples(const struct pictures *pictures); /* samples of an epoch */
/* The validation split, owned by the set; NULL: none. */
const struct pictures *pictures_validation(const struct pictures *pictures);
int64_t pictures_elements(const struct pictures *pictures); /* elements of the input */
/* Writes sample g: (channels,height,width) of the input, and its label. Error: a file that is read for each
 * sample cannot be read. */
int pictures_sample(const struct pictures *pictures, uint64_t g, float *out, int32_t *label,
                    struct muster_error *err);

int64_t pictures_files(const struct pictures *pictures);
const char *pictures_class(const struct pictures *pictures, int label); /* name; NULL: unknown */
int pictures_classes(const struct pictures *pictures);
/* The settings and files that determine the samples: lines "NAME=VALUE" as in data.h, owned by the set. */
const char *pictures_identity(const struct pictures *pictures);

/* ---- info.c: {"train_size", "val_size", "num_classes", "classes"} of a set. Pure. ---- */

int pictures_info_json(const struct pictures *pictures, struct buffer *out); /* -1: no memory */
/* Writes a file that torch.load(weights_only=True) reads: a dict, as torch.save writes it. */
int pictures_info_archive(const struct pictures *pictures, struct buffer *out, struct muster_error *err);

#endif
