/* class_folders.c - see class_folders.h. The files are listed first, then decoded into memory that holds all
 * of them. */
#include "trainer/pictures/class_folders.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "trainer/pictures/png_file.h"

enum { DEPTH_LIMIT = 16 /* folders in folders: deeper is a loop or a mistake */ };

struct listed {
    char *path;
    uint8_t label;
};

struct listing {
    struct listed *item;
    int64_t count, room;
    int label; /* of the class that is listed */
};

void class_names_free(struct class_names *names)
{
    for (int i = 0; i < names->count; i++)
        mem_free(names->name[i]);
    *names = (struct class_names){0};
}

/* ---- folders ---- */

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* by bytes, in any locale */
}

struct entries {
    struct dirent **entry;
    int count;
};

static int read_folder(const char *path, struct entries *entries, struct muster_error *err)
{
    entries->count = scandir(path, &entries->entry, is_shown, by_name);
    if (entries->count >= 0)
        return 0;
    *entries = (struct entries){0};
    return error_errno(err, "cannot read folder %s", path);
}

static void free_entries(struct entries *entries)
{
    for (int i = 0; i < entries->count; i++)
        free(entries->entry[i]);
    free(entries->entry);
}

int class_folders_there(const char *root, struct muster_error *err)
{
    struct entries entries;
    int found = 0;
    if (read_folder(root, &entries, err) < 0)
        return -1;
    for (int i = 0; i < entries.count && !found; i++) {
        scope_free char *path = mem_printf("%s/%s", root, entries.entry[i]->d_name);
        found = path ? io_is_folder(path, err) : error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    }
    free_entries(&entries);
    return found;
}

/* ---- files ---- */

static bool ends_in(const char *name, const char *const *endings)
{
    const char *dot = strrchr(name, '.');
    for (; dot && *endings; endings++)
        if (!strcasecmp(dot, *endings))
            return true;
    return false;
}

/* Adds a file that is a picture by its name; what is none is left out, as ImageFolder leaves it. */
static int add_picture(struct listing *l, const char *path, struct muster_error *err)
{
    static const char *const read[] = {".png", NULL};
    static const char *const others[] = {".jpg", ".jpeg", ".ppm",  ".bmp", ".pgm",
                                         ".tif", ".tiff", ".webp", NULL};
    if (ends_in(path, others))
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "%s: of pictures in folders PNG alone is read: convert it", path);
    if (!ends_in(path, read))
        return 0;
    if (l->count == l->room) {
        const int64_t wanted = l->room * 2 + 64;
        struct listed *grown = mem_realloc(l->item, (size_t)wanted, sizeof *grown);
        if (!grown)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a list of pictures");
        l->item = grown;
        l->room = wanted;
    }
    char *copy = mem_strdup(path);
    if (!copy)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    l->item[l->count++] = (struct listed){copy, (uint8_t)l->label};
    return 0;
}

/* os.walk's order: the files of a folder, then those of the folders in it. */
static int list_folder(struct listing *l, const char *folder, int depth, struct muster_error *err)
{
    struct entries entries;
    int result = 0;
    if (depth > DEPTH_LIMIT)
        return error_set(err, MUSTER_E_LIMIT, "%s: folders are nested more than %d deep", folder,
                         DEPTH_LIMIT);
    if (read_folder(folder, &entries, err) < 0)
        return -1;
    for (int below = 0; below < 2 && !result; below++)
        for (int i = 0; i < entries.count && !result; i++) {
            scope_free char *path = mem_printf("%s/%s", folder, entries.entry[i]->d_name);
            const int is =
                path ? io_is_folder(path, err) : error_set(err, MUSTER_E_NOMEM, "no memory for a path");
            if (is < 0)
                result = -1;
            else if (is == below)
                result = below ? list_folder(l, path, depth + 1, err) : add_picture(l, path, err);
        }
    free_entries(&entries);
    return result;
}

/* ---- classes ---- */

static int add_class(struct listing *l, struct class_names *names, const char *root, const char *path,
                     const char *name, struct muster_error *err)
{
    const int64_t before = l->count;
    if (names->count == PICTURE_CLASSES_LIMIT)
        return error_set(err, MUSTER_E_LIMIT, "%s has more than %d folders, and each is a class", root,
                         PICTURE_CLASSES_LIMIT);
    names->name[names->count] = mem_strdup(name);
    if (!names->name[names->count])
        return error_set(err, MUSTER_E_NOMEM, "no memory for the names of classes");
    l->label = names->count++;
    if (list_folder(l, path, 1, err) < 0)
        return -1;
    return l->count > before
               ? 0
               : error_set(err, MUSTER_E_INVALID, "%s is the folder of a class, and has no .png file", path);
}

static int list_classes(struct listing *l, struct class_names *names, const char *root,
                        struct muster_error *err)
{
    struct entries entries;
    int result = 0;
    if (read_folder(root, &entries, err) < 0)
        return -1;
    for (int i = 0; i < entries.count && !result; i++) {
        const char *name = entries.entry[i]->d_name;
        scope_free char *path = mem_printf("%s/%s", root, name);
        const int is =
            path ? io_is_folder(path, err) : error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        if (is < 0)
            result = -1; /* without it the classes behind it would have other numbers */
        else if (is)
            result = add_class(l, names, root, path, name, err);
    }
    free_entries(&entries);
    if (!result && !l->count)
        return error_set(err, MUSTER_E_INVALID, "%s has no folders of pictures", root);
    return result;
}

/* ---- decoding ---- */

static int decode(struct picture_block *block, const struct listing *l, struct muster_error *err)
{
    const struct picture_shape *shape = &block->shape;
    block->apart = (int64_t)shape->channels * shape->height * shape->width;
    block->labels_apart = 1;
    block->owned[0] = mem_calloc((size_t)l->count, (size_t)block->apart);
    block->owned[1] = mem_calloc((size_t)l->count, 1);
    if (!block->owned[0] || !block->owned[1])
        return error_set(err, MUSTER_E_NOMEM, "no memory for %lld pictures of %lld bytes",
                         (long long)l->count, (long long)block->apart);
    for (int64_t i = 0; i < l->count; i++) {
        if (png_file_read(l->item[i].path, shape, block->owned[0] + i * block->apart, err) < 0)
            return -1;
        block->owned[1][i] = l->item[i].label;
    }
    block->count = l->count;
    block->pixels = block->owned[0];
    block->labels = block->owned[1];
    return 0;
}

int class_folders_open(struct picture_block *block, struct class_names *names, const char *root,
                       const struct picture_shape *shape, struct muster_error *err)
{
    struct listing l = {0};
    *block = (struct picture_block){.shape = *shape};
    if (shape->channels != 1 && shape->channels != 3)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: pictures in folders have 1 or 3 channels, and model.input_channels is %d", root,
                         shape->channels);
    int result = list_classes(&l, names, root, err);
    if (!result)
        result = decode(block, &l, err);
    for (int64_t i = 0; i < l.count; i++)
        mem_free(l.item[i].path);
    mem_free(l.item);
    return result;
}
