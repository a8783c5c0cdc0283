/* pictures.c - see pictures.h. */
#include "trainer/pictures/pictures.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
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
    for (int64_t i = 0; i < b->count; i++)
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

static int finish_files(struct pictures *p, const char *path, const char *name, struct buffer *identity,
                        struct muster_error *err)
{
    for (int i = 0; i < p->blocks; i++) {
        char line[48];
        if (check_block(p, &p->block[i], path, err) < 0)
            return -1;
        p->all += p->block[i].count;
        (void)snprintf(line, sizeof line, "%s %d", name, i); /* fits */
        identity_add(identity, line, "%lld pictures (%016llx)", (long long)p->block[i].count,
                     (unsigned long long)block_hash(&p->block[i]));
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

struct pictures *pictures_open(const struct pictures_options *o, struct muster_error *err)
{
    GUARD(guard_pictures) struct pictures *p = pictures_create(o, err);
    if (!p || pictures_add_path(p, o->path, "train", o->kind, err) < 0 ||
        finish_files(p, o->path, "pictures", &p->identity, err) < 0)
        return NULL;
    if (o->validation_path && *o->validation_path ? open_validation(p, o, err) < 0
                                                  : o->validation_share > 0 && hold_out(p, o, err) < 0)
        return NULL;
    identity_add(&p->identity, "validation_share", "%g", o->validation_share);
    identity_add(&p->identity, "crop", "%d", o->augment.padding);
    identity_add(&p->identity, "flip", "%d", o->augment.flips);
    if (p->identity.failed) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a set of pictures");
        return NULL;
    }
    return take_pointer(&p);
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

void pictures_sample(const struct pictures *p, uint64_t g, float *out, int32_t *label)
{
    const uint64_t samples = (uint64_t)p->samples, epoch = g / samples;
    const uint64_t index = p->ordered ? g % samples : order_permute(p->seed, epoch, g % samples, samples);
    const int64_t picture = picture_of(p, (int64_t)index);
    const struct augment_choice choice = p->ordered
                                             ? augment_none(&p->augment)
                                             : augment_choose(&p->augment, p->seed, epoch, (uint64_t)picture);
    const struct picture_block *b = p->block;
    int64_t at = picture;
    for (; at >= b->count; b++)
        at -= b->count;
    augment_picture(&p->augment, &choice, &b->shape, b->pixels + at * b->apart, out);
    *label = b->labels[at * b->labels_apart];
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

/* Set in the counter's last word: other uses of a seed have small numbers there, dropout has the highest bit.
 */
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
