/* pictures.c - see pictures.h. */
#include "trainer/pictures/pictures.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "trainer/data/identity.h"
#include "trainer/data/order.h"
#include "trainer/pictures/cifar.h"
#include "trainer/pictures/class_folders.h"
#include "trainer/pictures/idx.h"

enum { BLOCKS = 16, PATH_SIZE = 4096 };

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

struct pictures {
    struct picture_block block[BLOCKS];
    int blocks;
    enum picture_kind kind;
    int64_t first, samples, all; /* of the shuffled pictures; of the set */
    bool ordered;                /* held out: no order, no augmentation */
    uint64_t seed;
    int classes;
    struct class_names names; /* of PICTURES_FOLDERS */
    struct augment_options augment;
    const struct pictures *owner; /* whose blocks these are; NULL: its own */
    struct pictures *validation;
    struct buffer identity;
};

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

/* ---- files ---- */

/* 1 or 0; -1: it cannot be found out. */
static int is_there(const char *folder, const char *name, char path[PATH_SIZE], struct muster_error *err)
{
    return snprintf(path, PATH_SIZE, "%s/%s", folder, name) < PATH_SIZE ? io_exists(path, err) : 0;
}

static int add_cifar(struct pictures *p, const char *path, enum cifar_set *set, struct muster_error *err)
{
    if (p->blocks == BLOCKS)
        return error_set(err, MUSTER_E_LIMIT, "more than %d files of pictures", BLOCKS);
    return cifar_open(&p->block[p->blocks++], path, set, err);
}

static bool of_test(const char *part)
{
    return strcmp(part, "train") != 0;
}

/* data_batch_1 to 5, or, to evaluate, test_batch, and those five where there is none; 0: there are none. */
static int add_cifar_folder(struct pictures *p, const char *folder, const char *part,
                            struct muster_error *err)
{
    static const char *const names[] = {"data_batch_%d.bin", "data_batch_%d"}, *const tests[] = {
                                                                                   "test_batch.bin",
                                                                                   "test_batch"};
    const int batches = of_test(part) ? 1 : 5;
    enum cifar_set set = CIFAR_10;
    int found = 0;
    for (size_t kind = 0; kind < 2 && !found; kind++) {
        for (int batch = 1; batch <= batches; batch++) {
            char path[PATH_SIZE], name[32];
            (void)snprintf(name, sizeof name, of_test(part) ? tests[kind] : names[kind], batch); /* fits */
            const int there = is_there(folder, name, path, err);
            if (!there)
                continue;
            if (there < 0 || add_cifar(p, path, &set, err) < 0)
                return -1;
            found++;
        }
        if (found && found < batches)
            return error_set(
                err, MUSTER_E_INVALID,
                "%s has %d of CIFAR-10's five training batches; name a single one to train on it "
                "alone",
                folder, found);
    }
    return found || !of_test(part) ? found : add_cifar_folder(p, folder, "train", err);
}

/* CIFAR-100's train or test, where meta or the names of its classes are next to it; 0: it is not there. */
static int add_cifar100_folder(struct pictures *p, const char *folder, const char *part,
                               struct muster_error *err)
{
    static const char *const marks[] = {"meta", "fine_label_names.txt"};
    char path[PATH_SIZE];
    enum cifar_set set = CIFAR_100;
    for (int binary = 0; binary < 2; binary++) {
        int there = is_there(folder, marks[binary], path, err);
        if (there > 0)
            there = is_there(folder,
                             of_test(part) ? binary ? "test.bin" : "test"
                             : binary      ? "train.bin"
                                           : "train",
                             path, err);
        if (there)
            return there < 0 || add_cifar(p, path, &set, err) < 0 ? -1 : 1;
    }
    return 0;
}

/* The file of that kind, with any of the names that are in use: "train-images-idx3-ubyte",
 * "train-images.idx3-ubyte", each also gzipped; 0: it is not there. */
static int find_idx(const char *folder, const char *part, const char *what, const char *dimensions,
                    char path[PATH_SIZE], struct muster_error *err)
{
    for (int kind = 0; kind < 4; kind++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s-%s%c%s-ubyte%s", part, what, kind & 1 ? '.' : '-', dimensions,
                       kind & 2 ? ".gz" : ""); /* fits */
        const int there = is_there(folder, name, path, err);
        if (there)
            return there;
    }
    return 0;
}

/* "train", or "t10k" ("test" in some sets); 0: there are none. */
static int add_idx_folder(struct pictures *p, const char *folder, const char *part, struct muster_error *err)
{
    char pictures[PATH_SIZE], labels[PATH_SIZE];
    int there = find_idx(folder, part, "images", "idx3", pictures, err);
    if (there <= 0 && of_test(part) && strcmp(part, "test") != 0)
        return there < 0 ? -1 : add_idx_folder(p, folder, "test", err);
    if (there > 0)
        there = find_idx(folder, part, "labels", "idx1", labels, err);
    if (there <= 0)
        return there;
    return idx_open(&p->block[p->blocks++], pictures, labels, err) < 0 ? -1 : 1;
}

/* Where a name says that it is a file of pictures; NULL: it does not. */
static const char *idx_images_in(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path,
               *dash = strstr(name, "images-idx3");
    return dash ? dash : strstr(name, "images.idx3");
}

/* The labels beside a file of pictures: "images-idx3" in its name is "labels-idx1" there, or "labels.idx1",
 * gzipped or not; named as the pictures first. */
static int add_idx_file(struct pictures *p, const char *path, struct muster_error *err)
{
    const char *at = idx_images_in(path), *rest = at + strlen("images-idx3"), *zip = strstr(rest, ".gz");
    const int prefix = (int)(at - path), middle = (int)(zip ? zip - rest : (ptrdiff_t)strlen(rest));
    char labels[4][PATH_SIZE];
    int found = 0;
    for (int kind = 3; kind >= 0; kind--) {
        const bool dot = (at[strlen("images")] == '.') != (kind & 1), zipped = (zip != NULL) != (kind >> 1);
        if (snprintf(labels[kind], PATH_SIZE, "%.*slabels%cidx1%.*s%s", prefix, path, dot ? '.' : '-', middle,
                     rest, zipped ? ".gz" : "") < PATH_SIZE &&
            io_exists(labels[kind], NULL) > 0)
            found = kind;
    }
    return idx_open(&p->block[p->blocks++], path, labels[found], err);
}

static int add_class_folders(struct pictures *p, const char *folder, struct muster_error *err)
{
    p->kind = PICTURES_FOLDERS;
    if (class_folders_open(&p->block[p->blocks++], &p->names, folder, &p->augment.shape, err) < 0)
        return -1;
    if (p->names.count != p->classes)
        return error_set(err, MUSTER_E_INVALID,
                         "%s has %d folders, each of a class, and model.num_classes is %d: set it to %d",
                         folder, p->names.count, p->classes, p->names.count);
    return 1;
}

/* What a folder holds, by the names of its files. Returns 1: found. */
static int add_folder(struct pictures *p, const char *folder, const char *part, enum picture_kind kind,
                      struct muster_error *err)
{
    static const struct {
        const char *folder; /* inside; "": itself */
        enum picture_kind kind;
    } places[] = {{"", PICTURES_CIFAR10},
                  {"cifar-10-batches-bin", PICTURES_CIFAR10},
                  {"cifar-10-batches-py", PICTURES_CIFAR10},
                  {"", PICTURES_CIFAR100},
                  {"cifar-100-python", PICTURES_CIFAR100},
                  {"cifar-100-binary", PICTURES_CIFAR100},
                  {"FashionMNIST/raw", PICTURES_FASHION_MNIST},
                  {"MNIST/raw", PICTURES_MNIST},
                  {"KMNIST/raw", PICTURES_MNIST},
                  {"", PICTURES_FASHION_MNIST},
                  {"", PICTURES_MNIST}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char path[PATH_SIZE];
        const int there = kind == PICTURES_AUTO || kind == places[i].kind
                              ? is_there(folder, places[i].folder, path, err)
                              : 0;
        if (there < 0)
            return -1;
        if (!there)
            continue;
        const bool cifar = places[i].kind == PICTURES_CIFAR10 || places[i].kind == PICTURES_CIFAR100;
        const int found = places[i].kind == PICTURES_CIFAR10    ? add_cifar_folder(p, path, part, err)
                          : places[i].kind == PICTURES_CIFAR100 ? add_cifar100_folder(p, path, part, err)
                                                                : add_idx_folder(p, path, part, err);
        if (found)
            p->kind = *places[i].folder || kind != PICTURES_AUTO || cifar
                          ? places[i].kind
                          : PICTURES_AUTO; /* of an IDX folder only the user knows what it shows */
        if (found)
            return found;
    }
    const int classes = kind == PICTURES_AUTO ? class_folders_there(folder, err) : kind == PICTURES_FOLDERS;
    if (classes < 0)
        return -1;
    if (classes)
        return add_class_folders(p, folder, err);
    return error_set(
        err, MUSTER_E_INVALID,
        "%s has none of CIFAR-10's %s (.bin, or pickled), no %s of CIFAR-100 with its meta, no "
        "%s-images-idx3-ubyte (or .idx3-ubyte, .gz) with its labels, and no folders of PNG files by class; "
        "nothing is fetched",
        folder, of_test(part) ? "test_batch" : "data_batch_1 to 5", of_test(part) ? "test" : "train", part);
}

static int add_path(struct pictures *p, const char *path, const char *part, enum picture_kind kind,
                    struct muster_error *err)
{
    struct stat status;
    if (stat(path, &status) < 0)
        return error_errno(err, "cannot read %s", path);
    if (S_ISDIR(status.st_mode))
        return add_folder(p, path, part, kind, err) < 0 ? -1 : 0;
    if (kind == PICTURES_FOLDERS)
        return error_set(err, MUSTER_E_INVALID, "%s is no folder, and data.dataset is folders", path);
    if (idx_images_in(path)) {
        p->kind = kind;
        return add_idx_file(p, path, err);
    }
    enum cifar_set set = kind == PICTURES_CIFAR100  ? CIFAR_100
                         : kind == PICTURES_CIFAR10 ? CIFAR_10
                                                    : CIFAR_ANY;
    if (add_cifar(p, path, &set, err) < 0)
        return -1;
    p->kind = set == CIFAR_100 ? PICTURES_CIFAR100 : PICTURES_CIFAR10;
    return 0;
}

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

/* A hash of the labels and of the first and last pictures: what differs where the files do. */
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

/* The first pictures in an order by the seed are trained on: int((1 - share) * all), as random_split's caller
 * counts them. */
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

/* Labels mean the same on both sides. */
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
    if (!held || add_path(held, o->validation_path, "t10k", o->kind, err) < 0 ||
        finish_files(held, o->validation_path, "validation", &p->identity, err) < 0)
        return error_wrap(err, "data.validation_path");
    held->ordered = true;
    return check_names(p, held, o->validation_path, err);
}

struct pictures *pictures_open(const struct pictures_options *o, struct muster_error *err)
{
    GUARD(guard_pictures) struct pictures *p = pictures_create(o, err);
    if (!p || add_path(p, o->path, "train", o->kind, err) < 0 ||
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

/* The split is an order of its own: not that of any epoch. */
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
