/* class_folders.c - see pictures_internal.h. The files are listed first, then decoded into memory that holds
 * all pictures. */
#include <dirent.h>
#include <png.h>
#include <setjmp.h>
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

struct listed {
    char *path;
    uint8_t label;
};

struct listing {
    struct listed *item;
    int64_t count, room;
    int label; /* class of the next pictures */
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

/* Adds a file if its name is that of a PNG picture; other files are left out, as by ImageFolder. */
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

/* Lists in the order of os.walk: the files of a folder, then the folders in it. */
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
            result = -1; /* skipping it would change the numbers of later classes */
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

/* ---- PNG files ----
 *
 * libpng reports an error by longjmp out of a function. So all memory is in `struct reading`, which the
 * caller frees, and no local variable is read after the jump. */

enum { SIGNATURE = 8, PIXEL = 3 };

struct reading {
    struct mapping file;
    size_t at;
    png_structp png;
    png_infop info;
    png_bytep pixels, *rows; /* interleaved: 1 or 3 bytes a pixel */
    int height, width, channels;
    char text[96]; /* libpng's error */
};

/* ---- libpng's functions ---- */

static void fail(png_structp png, png_const_charp text)
{
    struct reading *r = png_get_error_ptr(png);
    (void)snprintf(r->text, sizeof r->text, "%s", text); /* a long text is cut */
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text; /* a warning; the picture is still read */
}

static void take_png_bytes(png_structp png, png_bytep to, size_t count)
{
    struct reading *r = png_get_io_ptr(png);
    if (count > r->file.length - r->at)
        png_error(png, "it is cut off");
    memcpy(to, r->file.data + r->at, count);
    r->at += count;
}

/* Asks libpng for 8 bits in 1 or 3 channels. */
static void normalise(struct reading *r)
{
    const png_byte type = png_get_color_type(r->png, r->info), depth = png_get_bit_depth(r->png, r->info);
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(r->png);
    if (type == PNG_COLOR_TYPE_GRAY && depth < 8)
        png_set_expand_gray_1_2_4_to_8(r->png);
    if (depth == 16)
        png_set_strip_16(r->png);
    if (type & PNG_COLOR_MASK_ALPHA)
        png_set_strip_alpha(r->png);
    (void)png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
}

/* Reads the head and the sizes. -1: r->text has the reason. */
static int read_head(struct reading *r)
{
    if (setjmp(png_jmpbuf(r->png)))
        return -1;
    png_set_user_limits(r->png, PICTURE_SIDE_LIMIT, PICTURE_SIDE_LIMIT);
    png_set_read_fn(r->png, r, take_png_bytes);
    png_read_info(r->png, r->info);
    r->height = (int)png_get_image_height(r->png, r->info);
    r->width = (int)png_get_image_width(r->png, r->info);
    normalise(r);
    r->channels = png_get_channels(r->png, r->info);
    return 0;
}

static int read_rows(struct reading *r)
{
    if (setjmp(png_jmpbuf(r->png)))
        return -1;
    png_read_image(r->png, r->rows);
    png_read_end(r->png, NULL);
    return 0;
}

/* ---- into planes ---- */

/* Pillow's L: ITU-R 601-2 luma in 16 bits. */
static uint8_t luma(const png_byte *p)
{
    return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

static void place(const struct reading *r, const struct picture_shape *to, uint8_t *planes)
{
    const int above = (to->height - r->height) / 2, before = (to->width - r->width) / 2;
    memset(planes, 0, (size_t)to->channels * (size_t)to->height * (size_t)to->width);
    for (int c = 0; c < to->channels; c++)
        for (int y = 0; y < r->height; y++) {
            uint8_t *row = planes + ((int64_t)c * to->height + y + above) * to->width + before;
            const png_byte *from = r->rows[y];
            for (int x = 0; x < r->width; x++, from += r->channels)
                row[x] = r->channels == PIXEL ? (to->channels == PIXEL ? from[c] : luma(from)) : from[0];
        }
}

/* ---- a file ---- */

static void close_reading(struct reading *r)
{
    if (r->png)
        png_destroy_read_struct(&r->png, &r->info, NULL);
    mem_free(r->pixels);
    mem_free(r->rows);
    mapping_close(&r->file);
}

static int make_rows(struct reading *r, const char *path, struct muster_error *err)
{
    const size_t row = (size_t)r->width * (size_t)r->channels;
    r->pixels = mem_calloc((size_t)r->height, row);
    r->rows = mem_calloc((size_t)r->height, sizeof *r->rows);
    if (!r->pixels || !r->rows)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", path);
    for (int y = 0; y < r->height; y++)
        r->rows[y] = r->pixels + (size_t)y * row;
    return 0;
}

static int read_picture(struct reading *r, const char *path, const struct picture_shape *shape,
                        uint8_t *planes, struct muster_error *err)
{
    if (mapping_open(&r->file, path, err) < 0)
        return -1;
    if (r->file.length < SIGNATURE || png_sig_cmp((png_const_bytep)r->file.data, 0, SIGNATURE))
        return error_set(err, MUSTER_E_INVALID, "%s is no PNG file", path);
    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, fail, ignore);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    if (!r->info)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", path);
    if (read_head(r) < 0)
        return error_set(err, MUSTER_E_INVALID, "%s cannot be read: %s", path, r->text);
    if (r->height > shape->height || r->width > shape->width)
        return error_set(err, MUSTER_E_INVALID,
                         "%s is a picture of %d x %d, larger than model.input_size %d: make it smaller", path,
                         r->height, r->width, shape->height);
    if (make_rows(r, path, err) < 0)
        return -1;
    if (read_rows(r) < 0)
        return error_set(err, MUSTER_E_INVALID, "%s cannot be read: %s", path, r->text);
    place(r, shape, planes);
    return 0;
}

int png_file_read(const char *path, const struct picture_shape *shape, uint8_t *planes,
                  struct muster_error *err)
{
    struct reading r = {0};
    const int result = read_picture(&r, path, shape, planes, err);
    close_reading(&r);
    return result;
}
