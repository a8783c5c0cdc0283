/* class_folders.c - see pictures_internal.h: the files of folders by class, and their pictures in memory. */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "trainer/pictures/pictures_internal.h"

enum { DEPTH_LIMIT = 16 /* nested folders; deeper nesting is a loop or a mistake */ };

void picture_list_free(struct picture_list *list)
{
    buffer_free(&list->paths);
    mem_free(list->item);
    mem_free(list->root);
    *list = (struct picture_list){0};
}

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

/* Adds a file if its name is a picture's; other files are left out, as by ImageFolder. */
static int add_picture(struct picture_list *l, const char *path, struct muster_error *err)
{
    static const char *const read[] = {".png", ".jpg", ".jpeg", NULL};
    static const char *const others[] = {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", NULL};
    if (ends_in(path, others))
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "%s: pictures in folders are read as PNG and JPEG: convert it", path);
    if (!ends_in(path, read))
        return 0;
    if (l->count == l->room) {
        const int64_t wanted = l->room * 2 + 64;
        struct listed_picture *grown = mem_realloc(l->item, (size_t)wanted, sizeof *grown);
        if (!grown)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a list of pictures");
        l->item = grown;
        l->room = wanted;
    }
    const char *inside = path + strlen(l->root) + 1;
    l->item[l->count++] = (struct listed_picture){l->paths.length, l->label};
    return buffer_append(&l->paths, inside, strlen(inside) + 1) < 0
               ? error_set(err, MUSTER_E_NOMEM, "no memory for a list of pictures")
               : 0;
}

/* Lists in the order of os.walk: the files of a folder, then the folders in it. */
static int list_folder(struct picture_list *l, const char *folder, int depth, struct muster_error *err)
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

static int add_class(struct picture_list *l, struct class_names *names, const char *root, const char *path,
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
    return l->count > before ? 0
                             : error_set(err, MUSTER_E_INVALID,
                                         "%s is the folder of a class, and has no .png or .jpg file", path);
}

static int list_classes(struct picture_list *l, struct class_names *names, const char *root,
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
            result = -1; /* skipping it would change the numbers of later classes */
        else if (is)
            result = add_class(l, names, root, path, name, err);
    }
    free_entries(&entries);
    if (!result && !l->count)
        return error_set(err, MUSTER_E_INVALID, "%s has no folders of pictures", root);
    return result;
}

int class_folders_list(struct picture_list *list, struct class_names *names, const char *root,
                       struct muster_error *err)
{
    *list = (struct picture_list){.root = mem_strdup(root)};
    if (!list->root)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a list of pictures");
    for (size_t end = strlen(list->root); end > 1 && list->root[end - 1] == '/'; end--)
        list->root[end - 1] = '\0';
    return list_classes(list, names, list->root, err);
}

char *picture_list_path(const struct picture_list *list, int64_t index, struct muster_error *err)
{
    char *path = mem_printf("%s/%s", list->root, list->paths.data + list->item[index].at);
    if (!path)
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    return path;
}

/* ---- decoding ---- */

int class_folders_decode(struct picture_block *block, const struct picture_list *list,
                         const struct picture_shape *shape, struct muster_error *err)
{
    *block = (struct picture_block){
        .shape = *shape, .apart = (int64_t)shape->channels * shape->height * shape->width, .labels_apart = 1};
    block->owned[0] = mem_calloc((size_t)list->count, (size_t)block->apart);
    block->owned[1] = mem_calloc((size_t)list->count, 1);
    if (!block->owned[0] || !block->owned[1])
        return error_set(err, MUSTER_E_NOMEM, "no memory for %lld pictures of %lld bytes",
                         (long long)list->count, (long long)block->apart);
    for (int64_t i = 0; i < list->count; i++) {
        scope_free char *path = picture_list_path(list, i, err);
        if (!path || picture_file_read(path, shape, block->owned[0] + i * block->apart, err) < 0)
            return -1;
        block->owned[1][i] = (uint8_t)list->item[i].label;
    }
    block->count = list->count;
    block->pixels = block->owned[0];
    block->labels = block->owned[1];
    return 0;
}
