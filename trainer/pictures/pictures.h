/* pictures.h - a set of pictures with labels, divided by a seed into what is trained on and what is held out.
 *
 * Sample g of training is picture order_permute(epoch, g mod samples) of epoch g / samples, augmented by
 * (seed, epoch, picture); a validation split is read in its order, without augmentation. Nothing depends on
 * the world. */
#ifndef MUSTER_TRAINER_PICTURES_PICTURES_H
#define MUSTER_TRAINER_PICTURES_PICTURES_H

#include "proto/base/buffer.h"
#include "trainer/pictures/augment.h"

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
    /* A batch of CIFAR-10, an IDX file of pictures, a folder that has the training files of either, itself or
     * in one of the folders that torchvision makes, or a folder with a folder of PNG files for each class. */
    const char *path;
    const char *validation_path; /* a file or folder of its own, "" or NULL: none; of a folder of IDX files
                                    the files of the test; folders have the same classes */
    enum picture_kind kind;      /* PICTURES_AUTO: by the names of the files */
    double validation_share;     /* 0 <= share < 1 */
    uint64_t seed;
    int classes; /* of the model: labels are below */
    struct augment_options augment;
};

struct pictures;
/* NULL on error: no files, files that are none, pictures larger than the input, labels beyond the classes. */
struct pictures *pictures_open(const struct pictures_options *options, struct muster_error *err);
void pictures_destroy(struct pictures *pictures); /* accepts NULL */

int64_t pictures_samples(const struct pictures *pictures); /* of one epoch */
/* The pictures held out, part of the set; NULL: none. */
const struct pictures *pictures_validation(const struct pictures *pictures);
int64_t pictures_elements(const struct pictures *pictures); /* of the input */
/* Sample g: (channels,height,width) of the input, and its label. */
void pictures_sample(const struct pictures *pictures, uint64_t g, float *out, int32_t *label);

int64_t pictures_files(const struct pictures *pictures);
const char *pictures_class(const struct pictures *pictures, int label); /* its name */
int pictures_classes(const struct pictures *pictures);
/* What the samples follow from; lines "NAME=VALUE", as of data.h. The set's. */
const char *pictures_identity(const struct pictures *pictures);

#endif
