/* find.c - see pictures_internal.h: finds the files of a set by their names, and opens them. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "trainer/pictures/pictures_internal.h"

enum { PATH_SIZE = 4096 };

/* Whether folder/name exists; -1: an error. */
static int is_there(const char *folder, const char *name, char path[PATH_SIZE], struct muster_error *err)
{
    return snprintf(path, PATH_SIZE, "%s/%s", folder, name) < PATH_SIZE ? io_exists(path, err) : 0;
}

static int add_cifar(struct pictures *p, const char *path, enum cifar_set *set, struct muster_error *err)
{
    if (p->blocks == PICTURE_BLOCKS)
        return error_set(err, MUSTER_E_LIMIT, "more than %d files of pictures", PICTURE_BLOCKS);
    return cifar_open(&p->block[p->blocks++], path, set, err);
}

static bool of_test(const char *part)
{
    return strcmp(part, "train") != 0;
}

/* Adds data_batch_1 to 5; for the test part test_batch, or else the five. 0: there are none. */
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

/* Adds CIFAR-100's train or test, if meta or the names of its classes are next to it. 0: there is none. */
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

/* Finds an IDX file under the names in use: "train-images-idx3-ubyte", "train-images.idx3-ubyte", each also
 * gzipped. 0: there is none. */
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

/* Adds the IDX files of the part "train" or "t10k" ("test" in some sets). 0: there are none. */
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

/* The place of "images-idx3" in a file's name; NULL: the name has none. */
static const char *idx_images_in(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path,
               *dash = strstr(name, "images-idx3");
    return dash ? dash : strstr(name, "images.idx3");
}

/* Adds an IDX file with the labels next to it: "images-idx3" in its name becomes "labels-idx1" or
 * "labels.idx1", gzipped or not. A name like that of the pictures is preferred. */
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

/* Decodes the listed pictures if they fit into memory as they are; else their files are read for each sample.
 */
static int keep_folders(struct pictures *p, struct muster_error *err)
{
    const struct picture_shape *shape = &p->augment.shape;
    const int64_t each = (int64_t)shape->channels * shape->height * shape->width;
    struct picture_block *block = &p->block[p->blocks++];
    bool jpeg = false;
    for (int64_t i = 0; i < p->list.count && !jpeg; i++) {
        const char *path = p->list.paths.data + p->list.item[i].at;
        const char *dot = strrchr(path, '.');
        jpeg = dot && strcasecmp(dot, ".png") != 0;
    }
    if (jpeg && picture_files_open(err) < 0)
        return -1;
    *block = (struct picture_block){.shape = *shape, .count = p->list.count};
    if (p->resize || p->list.count > PICTURE_MEMORY / each || p->names.count > 256)
        return 0;
    const int result = class_folders_decode(block, &p->list, shape, err);
    picture_list_free(&p->list);
    return result;
}

static int add_class_folders(struct pictures *p, const char *folder, struct muster_error *err)
{
    p->kind = PICTURES_FOLDERS;
    const struct picture_shape *shape = &p->augment.shape;
    if (shape->channels != 1 && shape->channels != 3)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: pictures in folders have 1 or 3 channels, and model.input_channels is %d",
                         folder, shape->channels);
    if (class_folders_list(&p->list, &p->names, folder, err) < 0)
        return -1;
    if (p->names.count != p->classes)
        return error_set(err, MUSTER_E_INVALID,
                         "%s has %d folders, each of a class, and model.num_classes is %d: set it to %d",
                         folder, p->names.count, p->classes, p->names.count);
    return keep_folders(p, err) < 0 ? -1 : 1;
}

/* Adds the pictures of a folder, recognized by the names of its files. Returns 1: found. */
static int add_folder(struct pictures *p, const char *folder, const char *part, enum picture_kind kind,
                      struct muster_error *err)
{
    static const struct {
        const char *folder; /* folder inside; "": the folder itself */
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
                          : PICTURES_AUTO; /* only the user knows the contents of an IDX folder */
        if (found)
            return found;
    }
    const int classes = kind == PICTURES_AUTO ? class_folders_there(folder, err) : kind == PICTURES_FOLDERS;
    if (classes < 0)
        return -1;
    if (classes)
        return add_class_folders(p, folder, err);
    return error_set(err, MUSTER_E_INVALID,
                     "%s has none of CIFAR-10's %s (.bin, or pickled), no %s of CIFAR-100 with its meta, no "
                     "%s-images-idx3-ubyte (or .idx3-ubyte, .gz) with its labels, and no folders of PNG or "
                     "JPEG files by class; "
                     "nothing is fetched",
                     folder, of_test(part) ? "test_batch" : "data_batch_1 to 5",
                     of_test(part) ? "test" : "train", part);
}

int pictures_add_path(struct pictures *p, const char *path, const char *part, enum picture_kind kind,
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
