/* pictures.c - see pictures.h. */
#include "trainer/pictures/pictures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "proto/philox.h"
#include "trainer/data/identity.h"
#include "trainer/data/order.h"
#include "trainer/pictures/pictures_internal.h"

static const char *const cifar_classes[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                            "dog",      "frog",       "horse", "ship", "truck"};
static const char *const digit_classes[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
static const char *const fashion_classes[] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                              "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
static const char *const cifar100_classes[] = {
    "apple",      "aquarium_fish", "baby",         "bear",       "beaver",      "bed",         "bee",
    "beetle",     "bicycle",       "bottle",       "bowl",       "boy",         "bridge",      "bus",
    "butterfly",  "camel",         "can",          "castle",     "caterpillar", "cattle",      "chair",
    "chimpanzee", "clock",         "cloud",        "cockroach",  "couch",       "crab",        "crocodile",
    "cup",        "dinosaur",      "dolphin",      "elephant",   "flatfish",    "forest",      "fox",
    "girl",       "hamster",       "house",        "kangaroo",   "keyboard",    "lamp",        "lawn_mower",
    "leopard",    "lion",          "lizard",       "lobster",    "man",         "maple_tree",  "motorcycle",
    "mountain",   "mouse",         "mushroom",     "oak_tree",   "orange",      "orchid",      "otter",
    "palm_tree",  "pear",          "pickup_truck", "pine_tree",  "plain",       "plate",       "poppy",
    "porcupine",  "possum",        "rabbit",       "raccoon",    "ray",         "road",        "rocket",
    "rose",       "sea",           "seal",         "shark",      "shrew",       "skunk",       "skyscraper",
    "snail",      "snake",         "spider",       "squirrel",   "streetcar",   "sunflower",   "sweet_pepper",
    "table",      "tank",          "telephone",    "television", "tiger",       "tractor",     "train",
    "trout",      "tulip",         "turtle",       "wardrobe",   "whale",       "willow_tree", "wolf",
    "woman",      "worm"};
enum { CLASS_NAMES = 10, CIFAR100_NAMES = sizeof cifar100_classes / sizeof *cifar100_classes };

void pictures_destroy(struct pictures *p)
{
    if (!p)
        return;
    pictures_destroy(p->validation);
    for (int i = 0; !p->owner && i < p->blocks; i++)
        picture_block_free(&p->block[i]);
    if (!p->owner)
        class_names_free(&p->names);
    if (!p->owner)
        picture_list_free(&p->list);
    buffer_free(&p->identity);
    mem_free(p);
}
GUARD_DEFINE(pictures, struct pictures *, pictures_destroy);

/* ---- checks ---- */

static int check_block(const struct pictures *p, const struct picture_block *b, const char *path,
                       struct muster_error *err)
{
    const struct picture_shape *to = &p->augment.shape, *from = &b->shape;
    if (from->height > to->height || from->width > to->width)
        return error_set(err, MUSTER_E_INVALID, "%s has pictures of %d x %d, larger than model.input_size %d",
                         path, from->height, from->width, to->height);
    if (from->channels != 1 && from->channels != to->channels)
        return error_set(err, MUSTER_E_INVALID,
                         "%s has pictures of %d channels, and model.input_channels is %d", path,
                         from->channels, to->channels);
    for (int64_t i = 0; b->pixels && i < b->count; i++)
        if (b->labels[i * b->labels_apart] >= p->classes)
            return error_set(err, MUSTER_E_INVALID,
                             "%s has the label %d (picture %lld), and model.num_classes is %d", path,
                             b->labels[i * b->labels_apart], (long long)i, p->classes);
    return 0;
}

/* A hash of the labels and of the first and last pictures, which differ between different files. */
static uint64_t block_hash(const struct picture_block *b)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    const int64_t pixels = (int64_t)b->shape.channels * b->shape.height * b->shape.width;
    for (int64_t i = 0; i < b->count; i++)
        hash = (hash ^ b->labels[i * b->labels_apart]) * 1099511628211u;
    for (int end = 0; end < 2 && b->count; end++)
        for (int64_t i = 0; i < pixels; i++)
            hash = (hash ^ b->pixels[(end ? b->count - 1 : 0) * b->apart + i]) * 1099511628211u;
    return hash;
}

/* A hash of the paths and labels of files that are read later. */
static uint64_t list_hash(const struct picture_list *list)
{
    uint64_t hash = text_hash(TEXT_HASH_START, list->paths.data, list->paths.length);
    for (int64_t i = 0; i < list->count; i++)
        hash = text_hash(hash, &list->item[i].label, sizeof list->item[i].label);
    return hash;
}

static int finish_files(struct pictures *p, const char *path, const char *name, struct buffer *identity,
                        struct muster_error *err)
{
    for (int i = 0; i < p->blocks; i++) {
        char line[48];
        if (check_block(p, &p->block[i], path, err) < 0)
            return -1;
        p->all += p->block[i].count;
        (void)snprintf(line, sizeof line, "%s %d", name, i); /* fits */
        identity_add(
            identity, line, "%lld pictures (%016llx)", (long long)p->block[i].count,
            (unsigned long long)(p->block[i].pixels ? block_hash(&p->block[i]) : list_hash(&p->list)));
    }
    p->samples = p->all;
    return p->all ? 0 : error_set(err, MUSTER_E_INVALID, "%s holds no pictures", path);
}

/* ---- the split ---- */

static struct pictures *pictures_create(const struct pictures_options *o, struct muster_error *err)
{
    struct pictures *p = mem_calloc(1, sizeof *p);
    if (!p) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a set of pictures");
        return NULL;
    }
    p->seed = o->seed;
    p->classes = o->classes;
    p->augment = o->augment;
    p->resize = o->resize;
    p->crop_area = o->crop_area;
    return p;
}

/* Holds out the last pictures in an order by the seed; int((1 - share) * all) pictures are trained on, as
 * with random_split. */
static int hold_out(struct pictures *p, const struct pictures_options *o, struct muster_error *err)
{
    const int64_t kept = (int64_t)((1 - o->validation_share) * (double)p->all);
    if (kept < 1 || kept == p->all)
        return error_set(err, MUSTER_E_INVALID, "data.validation_share %g of %lld pictures leaves %s",
                         o->validation_share, (long long)p->all,
                         kept ? "none to evaluate on" : "none to train on");
    struct pictures *held = p->validation = mem_calloc(1, sizeof *held);
    if (!held)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a set of pictures");
    *held = *p;
    held->identity = (struct buffer){0};
    held->validation = NULL;
    held->owner = p;
    held->ordered = true;
    held->first = kept;
    held->samples = p->all - kept;
    p->samples = kept;
    return 0;
}

/* Checks that both splits have the same classes. */
static int check_names(const struct pictures *p, const struct pictures *held, const char *path,
                       struct muster_error *err)
{
    for (int i = 0; i < p->names.count && i < held->names.count; i++)
        if (strcmp(p->names.name[i], held->names.name[i]) != 0)
            return error_set(
                err, MUSTER_E_INVALID,
                "data.validation_path %s has the classes of other folders: class %d is %s there, "
                "and %s where is trained",
                path, i, held->names.name[i], p->names.name[i]);
    return 0;
}

static int open_validation(struct pictures *p, const struct pictures_options *o, struct muster_error *err)
{
    struct pictures *held = p->validation = pictures_create(o, err);
    if (!held || pictures_add_path(held, o->validation_path, "t10k", o->kind, err) < 0 ||
        finish_files(held, o->validation_path, "validation", &p->identity, err) < 0)
        return error_wrap(err, "data.validation_path");
    held->ordered = true;
    return check_names(p, held, o->validation_path, err);
}

static int check_resize(const struct pictures_options *o, struct muster_error *err)
{
    const struct picture_shape *to = &o->augment.shape;
    const int side = to->height > to->width ? to->height : to->width;
    if (o->resize && o->resize < side)
        return error_set(err, MUSTER_E_INVALID, "data.resize %d is below model.input_size %d", o->resize,
                         side);
    return o->crop_area > 0 && !o->resize
               ? error_set(err, MUSTER_E_INVALID, "data.crop_area %g needs data.resize, for evaluations",
                           o->crop_area)
               : 0;
}

struct pictures *pictures_open(const struct pictures_options *o, struct muster_error *err)
{
    GUARD(guard_pictures) struct pictures *p = pictures_create(o, err);
    if (!p || check_resize(o, err) < 0 || pictures_add_path(p, o->path, "train", o->kind, err) < 0 ||
        finish_files(p, o->path, "pictures", &p->identity, err) < 0)
        return NULL;
    if (o->validation_path && *o->validation_path ? open_validation(p, o, err) < 0
                                                  : o->validation_share > 0 && hold_out(p, o, err) < 0)
        return NULL;
    if (o->resize && !p->list.count) {
        (void)error_set(err, MUSTER_E_INVALID, "data.resize is for pictures in folders; %s is another set",
                        o->path);
        return NULL;
    }
    identity_add(&p->identity, "validation_share", "%g", o->validation_share);
    identity_add(&p->identity, "crop", "%d", o->augment.padding);
    identity_add(&p->identity, "flip", "%d", o->augment.flips);
    if (o->resize)
        identity_add(&p->identity, "resize", "%d, crops of %g", o->resize, o->crop_area);
    if (p->identity.failed) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a set of pictures");
        return NULL;
    }
    return take_pointer(&p);
}

/* ---- random numbers ---- */

/* Set in the counter's last word: other uses of a seed have small numbers there, dropout has the highest bit.
 */
#define AUGMENT_DOMAIN 0x40000000u

/* Four words of (seed, epoch, picture, use). use: below 2^10. */
static void random_words(uint64_t seed, uint64_t epoch, uint64_t picture, uint32_t use, uint32_t word[4])
{
    const uint32_t counter[4] = {(uint32_t)picture, (uint32_t)(picture >> 32), (uint32_t)epoch,
                                 AUGMENT_DOMAIN | use << 20 | (uint32_t)(epoch >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    philox4x32_10(counter, key, word);
}

/* 0 or more, below 1. */
static double unit(uint32_t word)
{
    return word / 4294967296.0;
}

static int below(uint32_t word, int count)
{
    return (int)((uint64_t)word * (uint64_t)(count > 0 ? count : 1) >> 32);
}

/* ---- samples ---- */

/* The picture of a sample; the split shuffles the pictures in an order that no epoch has. */
static int64_t picture_of(const struct pictures *p, int64_t index)
{
    const uint64_t all = (uint64_t)p->all;
    if (!p->owner && !(p->samples < p->all))
        return index;
    return (int64_t)order_permute(~p->seed, UINT64_MAX - 1, (uint64_t)(p->first + index), all);
}

/* Python's round(): a half goes to the even number. */
static int round_half(double value)
{
    return (int)nearbyint(value);
}

/* A random box of at least crop_area of the picture, with sides of 3:4 to 4:3, as torchvision's
 * RandomResizedCrop draws it: ten tries, else a box in the middle. */
static struct picture_box random_box(const struct pictures *p, const struct picture_pixels *of,
                                     uint64_t epoch, uint64_t picture)
{
    enum { TRIES = 10 };
    const double area = (double)of->height * of->width, wide = log(4.0 / 3),
                 ratio = (double)of->width / of->height;
    for (int i = 0; i < TRIES; i++) {
        uint32_t word[4];
        random_words(p->seed, epoch, picture, 1 + (uint32_t)i, word);
        const double target = area * (p->crop_area + (1 - p->crop_area) * unit(word[0])),
                     shape = exp(-wide + 2 * wide * unit(word[1]));
        const int width = round_half(sqrt(target * shape)), height = round_half(sqrt(target / shape));
        if (width > 0 && width <= of->width && height > 0 && height <= of->height)
            return (struct picture_box){below(word[2], of->height - height + 1),
                                        below(word[3], of->width - width + 1), height, width};
    }
    const int width = ratio > 4.0 / 3 ? round_half(of->height * 4.0 / 3) : of->width,
              height = ratio < 3.0 / 4 ? round_half(of->width / 0.75) : of->height;
    return (struct picture_box){(of->height - height) / 2, (of->width - width) / 2, height, width};
}

/* The picture with a shorter side of `resize`, cropped to the input, as Resize and RandomCrop or CenterCrop.
 */
static int fit_picture(const struct pictures *p, struct picture_pixels *pixels, uint64_t epoch,
                       uint64_t picture, struct muster_error *err)
{
    const struct picture_shape *to = &p->augment.shape;
    const struct picture_box whole = {0, 0, pixels->height, pixels->width};
    if (!p->ordered && p->crop_area > 0) {
        const struct picture_box box = random_box(p, pixels, epoch, picture);
        return picture_pixels_resize(pixels, &box, to->height, to->width, err);
    }
    const bool upright = pixels->width <= pixels->height;
    const int longer = (int)((int64_t)p->resize * (upright ? pixels->height : pixels->width) /
                             (upright ? pixels->width : pixels->height));
    if (picture_pixels_resize(pixels, &whole, upright ? longer : p->resize, upright ? p->resize : longer,
                              err) < 0)
        return -1;
    const int free_rows = pixels->height - to->height, free_columns = pixels->width - to->width;
    struct picture_box box = {round_half(free_rows / 2.0), round_half(free_columns / 2.0), to->height,
                              to->width};
    if (!p->ordered) {
        uint32_t word[4];
        random_words(p->seed, epoch, picture, 1, word);
        box.top = below(word[0], free_rows + 1);
        box.left = below(word[1], free_columns + 1);
    }
    return picture_pixels_resize(pixels, &box, to->height, to->width, err); /* the size stays: a crop */
}

/* A picture whose file is read now. */
static int read_listed(const struct pictures *p, int64_t picture, uint64_t epoch,
                       const struct augment_choice *choice, float *out, struct muster_error *err)
{
    struct picture_pixels pixels __attribute__((cleanup(picture_pixels_free))) = {0};
    struct augment_choice how = *choice;
    scope_free char *path = picture_list_path(&p->list, picture, err);
    const size_t elements = (size_t)pictures_elements(p);
    scope_free uint8_t *planes = mem_calloc(elements, 1);
    if (!path || !planes)
        return path ? error_set(err, MUSTER_E_NOMEM, "no memory for a picture") : -1;
    if (!p->resize) {
        if (picture_file_read(path, &p->augment.shape, planes, err) < 0)
            return -1;
    } else {
        if (picture_pixels_read(path, &pixels, err) < 0 ||
            fit_picture(p, &pixels, epoch, (uint64_t)picture, err) < 0)
            return -1;
        picture_pixels_place(&pixels, &p->augment.shape, planes);
        how.top = how.left = p->augment.padding; /* it is cropped already */
    }
    augment_picture(&p->augment, &how, &p->augment.shape, planes, out);
    return 0;
}

int pictures_sample(const struct pictures *p, uint64_t g, float *out, int32_t *label,
                    struct muster_error *err)
{
    const uint64_t samples = (uint64_t)p->samples, epoch = g / samples;
    const uint64_t index = p->ordered ? g % samples : order_permute(p->seed, epoch, g % samples, samples);
    const int64_t picture = picture_of(p, (int64_t)index);
    const struct augment_choice choice = p->ordered
                                             ? augment_none(&p->augment)
                                             : augment_choose(&p->augment, p->seed, epoch, (uint64_t)picture);
    if (p->list.count) {
        *label = p->list.item[picture].label;
        return read_listed(p, picture, epoch, &choice, out, err);
    }
    const struct picture_block *b = p->block;
    int64_t at = picture;
    for (; at >= b->count; b++)
        at -= b->count;
    augment_picture(&p->augment, &choice, &b->shape, b->pixels + at * b->apart, out);
    *label = b->labels[at * b->labels_apart];
    return 0;
}

int64_t pictures_elements(const struct pictures *p)
{
    return (int64_t)p->augment.shape.channels * p->augment.shape.height * p->augment.shape.width;
}

int64_t pictures_samples(const struct pictures *p)
{
    return p->samples;
}

const struct pictures *pictures_validation(const struct pictures *p)
{
    return p->validation;
}

int64_t pictures_files(const struct pictures *p)
{
    return p->blocks + (p->validation && !p->validation->owner ? p->validation->blocks : 0);
}

int pictures_classes(const struct pictures *p)
{
    return p->classes;
}

const char *pictures_class(const struct pictures *p, int label)
{
    if (p->kind == PICTURES_FOLDERS)
        return label >= 0 && label < p->names.count ? p->names.name[label] : NULL;
    if (p->kind == PICTURES_CIFAR100)
        return label >= 0 && label < CIFAR100_NAMES ? cifar100_classes[label] : NULL;
    if (label < 0 || label >= CLASS_NAMES)
        return NULL;
    return p->kind == PICTURES_CIFAR10         ? cifar_classes[label]
           : p->kind == PICTURES_FASHION_MNIST ? fashion_classes[label]
                                               : digit_classes[label];
}

const char *pictures_identity(const struct pictures *p)
{
    return p->identity.data;
}

/* ---- augmentation ---- */

struct augment_choice augment_none(const struct augment_options *options)
{
    return (struct augment_choice){options->padding, options->padding, false};
}

struct augment_choice augment_choose(const struct augment_options *options, uint64_t seed, uint64_t epoch,
                                     uint64_t picture)
{
    uint32_t word[4];
    random_words(seed, epoch, picture, 0, word);
    const uint64_t places = 2 * (uint64_t)options->padding + 1;
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
