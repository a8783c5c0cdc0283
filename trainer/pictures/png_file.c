/* png_file.c - see png_file.h. libpng leaves a function that finds an error by longjmp: everything that it
 * may leave lies in `struct reading`, which the caller frees, and nothing is read back from local variables.
 */
#include "trainer/pictures/png_file.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

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
    (void)snprintf(r->text, sizeof r->text, "%s", text); /* cut where it is long */
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text; /* a warning: the picture is read all the same */
}

static void take_png_bytes(png_structp png, png_bytep to, size_t count)
{
    struct reading *r = png_get_io_ptr(png);
    if (count > r->file.length - r->at)
        png_error(png, "it is cut off");
    memcpy(to, r->file.data + r->at, count);
    r->at += count;
}

/* Of an 8-bit picture in 1 or 3 channels. */
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

/* Head and sizes. -1: r->text says why. */
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
