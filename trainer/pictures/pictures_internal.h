/* pictures_internal.h - private header of this folder: a set of pictures, and the files that it is read from.
 */
#ifndef MUSTER_TRAINER_PICTURES_PICTURES_INTERNAL_H
#define MUSTER_TRAINER_PICTURES_PICTURES_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"
#include "trainer/data/mapping.h"
#include "trainer/pictures/pictures.h"

enum {
    PICTURE_SIDE_LIMIT = 4096,
    PICTURE_FILE_SIDE = 16384, /* the longest side of a PNG or JPEG file */
    PICTURE_CLASSES_LIMIT = 4096,
    PICTURE_BLOCKS = 16,
    PICTURE_MEMORY = 1 << 30, /* bytes of pictures in folders that are kept decoded */
};

/* Pictures of one shape with their labels. Picture i has its planes of bytes at pixels + i*apart, its label
 * at labels[i*labels_apart]. */
struct picture_block {
    struct picture_shape shape;
    int64_t count;
    const uint8_t *pixels, *labels;
    int64_t apart, labels_apart;
    struct mapping mapping[2]; /* files with pixels and labels, if mapped */
    uint8_t *owned[2];         /* memory with pixels and labels, if not mapped */
};
void picture_block_free(struct picture_block *block); /* accepts NULL and a zeroed struct */

/* ---- batches.c: batches of CIFAR-10 and CIFAR-100, 32 x 32 pictures of three planes ----
 *
 * Binary: records of a label and 3,072 pixels; CIFAR-100 has a coarse label before the fine label. Pickled: a
 * dict with data, an array of (pictures, 3072) bytes, and labels (fine_labels), a list
 * (https://www.cs.toronto.edu/~kriz/cifar.html). */

enum cifar_set { CIFAR_ANY, CIFAR_10, CIFAR_100 };
enum { CIFAR_SIDE = 32, CIFAR_PIXELS = 3 * CIFAR_SIDE * CIFAR_SIDE, CIFAR_RECORD = CIFAR_PIXELS + 1 };

/* Opens a batch; its first byte and size give the kind of file. *set: the expected set; CIFAR_ANY is replaced
 * by the set of the file. Errors name the file and its fault; the caller frees the block in any case. */
int cifar_open(struct picture_block *block, const char *path, enum cifar_set *set, struct muster_error *err);

/* ---- batches.c: the IDX files of MNIST and Fashion-MNIST, pictures of one plane and their labels ---- */

/* pictures: a file of bytes with three dimensions; labels: a file with one dimension. Both may be gzipped.
 * Errors name the file and its fault; the caller frees the block in any case. */
int idx_open(struct picture_block *block, const char *pictures, const char *labels, struct muster_error *err);

/* ---- class_folders.c: files in folders by class, ROOT/cat/1.png, ROOT/dog/more/2.jpg ----
 *
 * The rules are torchvision's ImageFolder's. A class is a folder; its label is the index of its name
 * in sorted order. Its pictures are the files below it that end in .png, .jpg or .jpeg (any case), folders in
 * the order of their names, links followed. */

struct class_names {
    int count;
    char *name[PICTURE_CLASSES_LIMIT];
};
void class_names_free(struct class_names *names); /* accepts a zeroed struct */

struct listed_picture {
    size_t at; /* place of its path in paths */
    int32_t label;
};
struct picture_list {
    char *root;
    struct buffer paths;         /* below root, each ended by NUL */
    struct listed_picture *item; /* (count) */
    int64_t count, room;
    int32_t label; /* class of the next picture */
};
void picture_list_free(struct picture_list *list); /* accepts a zeroed struct */
char *picture_list_path(const struct picture_list *list, int64_t index, struct muster_error *err);

/* Whether a folder has folders that are not hidden; -1: an error. */
int class_folders_there(const char *root, struct muster_error *err);

/* Lists the pictures; names gets the classes. Errors name the folder: too few or too many classes, a class
 * without pictures, a file of another format. The caller frees list and names in any case. */
int class_folders_list(struct picture_list *list, struct class_names *names, const char *root,
                       struct muster_error *err);
/* Decodes all pictures into planes of `shape`; labels are below 256. The caller frees the block in any case.
 */
int class_folders_decode(struct picture_block *block, const struct picture_list *list,
                         const struct picture_shape *shape, struct muster_error *err);

/* ---- picture_file.c: PNG files by libpng, JPEG files by libturbojpeg (loaded when it is needed) ----
 *
 * Of PNG palettes are resolved, alpha is dropped, gamma is ignored, 16 bits become the high byte. JPEG has
 * the pixels that Pillow reads; inks of Adobe become colours. Colours become gray by Pillow's convert("L").
 */

struct picture_pixels {
    int height, width, channels; /* 1 or 3 bytes a pixel, one pixel after another */
    uint8_t *data;
};
struct picture_box {
    int top, left, height, width;
};
/* Loads the library of JPEG. Call it before threads read pictures. */
int picture_files_open(struct muster_error *err);
/* Errors name the file and its fault: neither PNG nor JPEG, cut off, a wrong checksum. The caller frees in
 * any case. */
int picture_pixels_read(const char *path, struct picture_pixels *out, struct muster_error *err);
void picture_pixels_free(struct picture_pixels *pixels);
/* Replaces the pixels by the box in another size: Pillow's resize(size, BILINEAR, box), to the bit. */
int picture_pixels_resize(struct picture_pixels *pixels, const struct picture_box *box, int height, int width,
                          struct muster_error *err);
/* The picture in the middle of zeros, (to.channels,height,width); it is not larger. to has 1 or 3 channels.
 */
void picture_pixels_place(const struct picture_pixels *from, const struct picture_shape *to, uint8_t *planes);
/* Reads a file into planes; a picture that is larger than shape is an error. */
int picture_file_read(const char *path, const struct picture_shape *shape, uint8_t *planes,
                      struct muster_error *err);

/* ---- unpickle.c: the pickled batches of CIFAR, a dict of texts, lists and one array of bytes. Pure. ----
 *
 * Only the operations of pickle's protocols 2 to 5 that build such a dict are known. A global is a name that
 * is compared with a list; nothing is ever called. Any other operation or name is an error that names it. */

enum { UNPICKLE_PICTURES = 1 << 20 }; /* most pictures of a batch */

struct unpickled_batch {
    const uint8_t *data; /* (rows, columns), in the text or in owned */
    int64_t rows, columns, labels;
    bool fine;      /* the labels are the fine labels of CIFAR-100 */
    uint8_t *owned; /* memory of data, for the caller to free; NULL: data is in the text */
};

/* Reads pickles of Python 2, and of Python 3 at protocols 2 to 5. labels_out has room for UNPICKLE_PICTURES.
 * Errors name the byte of the fault. */
int unpickle_batch(const char *text, size_t length, struct unpickled_batch *batch, uint8_t *labels_out,
                   struct muster_error *err);

/* ---- the set ---- */

struct pictures {
    struct picture_block block[PICTURE_BLOCKS];
    int blocks;
    enum picture_kind kind;
    int64_t first, samples, all; /* first and number of shuffled pictures; pictures of both splits */
    bool ordered;                /* a validation split: read in its order, without augmentation */
    uint64_t seed;
    int classes;
    struct class_names names; /* with PICTURES_FOLDERS */
    struct picture_list list; /* files that are read for each sample; count 0: pictures are in blocks */
    int resize;               /* length of the shorter side; 0: as it is */
    double crop_area;
    struct augment_options augment;
    const struct pictures *owner; /* the set that owns the blocks; NULL: this set */
    struct pictures *validation;
    struct buffer identity;
};

/* find.c: adds the pictures of a file or folder; part: "train", or "t10k" for a validation split. */
int pictures_add_path(struct pictures *pictures, const char *path, const char *part, enum picture_kind kind,
                      struct muster_error *err);

#endif
