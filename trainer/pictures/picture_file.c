/* picture_file.c - see pictures_internal.h: pictures of PNG and JPEG files, made smaller, and put into
 * planes.
 *
 * libpng reports an error by longjmp out of a function. So all memory is in `struct reading`, which the
 * caller frees, and no local variable is read after the jump. */

#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/library.h"
#include "trainer/pictures/pictures_internal.h"

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
    png_set_user_limits(r->png, PICTURE_FILE_SIDE, PICTURE_FILE_SIDE);
    /* Texts and profiles are passed over unread: libpng reserves, and fills, as much as such a chunk says. */
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
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
static uint8_t luma(const uint8_t *p)
{
    return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

void picture_pixels_place(const struct picture_pixels *from, const struct picture_shape *to, uint8_t *planes)
{
    const int above = (to->height - from->height) / 2, before = (to->width - from->width) / 2;
    memset(planes, 0, (size_t)to->channels * (size_t)to->height * (size_t)to->width);
    for (int c = 0; c < to->channels; c++)
        for (int y = 0; y < from->height; y++) {
            uint8_t *row = planes + ((int64_t)c * to->height + y + above) * to->width + before;
            const uint8_t *at = from->data + (int64_t)y * from->width * from->channels;
            for (int x = 0; x < from->width; x++, at += from->channels)
                row[x] = from->channels == PIXEL ? (to->channels == PIXEL ? at[c] : luma(at)) : at[0];
        }
}

/* ---- another size: Pillow's bilinear filter, which is wider where the picture becomes smaller ---- */

enum { BITS = 22 }; /* bits after the point of a weight */

/* The pixels that make a pixel of the result, and their weights. */
struct weights {
    int first, count;
    int32_t *weight;
};

static struct weights *weights_of(int from_start, int from_length, int to, int32_t **memory)
{
    const double scale = (double)from_length / to, wide = scale < 1 ? 1 : scale;
    const int most = (int)ceil(wide) * 2 + 1;
    struct weights *all = mem_calloc((size_t)to, sizeof *all);
    *memory = mem_calloc((size_t)to * (size_t)most, sizeof **memory);
    if (!all || !*memory) {
        mem_free(all);
        return NULL;
    }
    for (int i = 0; i < to; i++) {
        const double middle = (i + 0.5) * scale;
        int first = (int)(middle - wide + 0.5), end = (int)(middle + wide + 0.5);
        double sum = 0;
        first = first < 0 ? 0 : first;
        end = end > from_length ? from_length : end;
        all[i] = (struct weights){from_start + first, end - first, *memory + (size_t)i * (size_t)most};
        for (int pass = 0; pass < 2; pass++)
            for (int k = 0; k < end - first; k++) {
                const double off = fabs((k + first - middle + 0.5) / wide), value = off < 1 ? 1 - off : 0;
                if (pass)
                    all[i].weight[k] = (int32_t)(0.5 + (sum > 0 ? value / sum : value) * (1 << BITS));
                else
                    sum += value;
            }
    }
    return all;
}

static uint8_t clip(int64_t sum)
{
    const int64_t value = sum >> BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* One direction: `lines` lines of pixels `apart` bytes from each other, `step` bytes between lines. */
static void filter_lines(const uint8_t *from, uint8_t *to, const struct weights *weights, int count,
                         int lines, int channels, size_t from_pixel, size_t from_line, size_t to_pixel,
                         size_t to_line)
{
    for (int line = 0; line < lines; line++)
        for (int i = 0; i < count; i++) {
            const struct weights *w = &weights[i];
            for (int c = 0; c < channels; c++) {
                int64_t sum = 1 << (BITS - 1);
                const uint8_t *at =
                    from + (size_t)line * from_line + (size_t)w->first * from_pixel + (size_t)c;
                for (int k = 0; k < w->count; k++, at += from_pixel)
                    sum += (int64_t)*at * w->weight[k];
                to[(size_t)line * to_line + (size_t)i * to_pixel + (size_t)c] = clip(sum);
            }
        }
}

int picture_pixels_resize(struct picture_pixels *p, const struct picture_box *box, int height, int width,
                          struct muster_error *err)
{
    const size_t channels = (size_t)p->channels, row = (size_t)p->width * channels;
    scope_free int32_t *across_memory = NULL, *down_memory = NULL;
    scope_free struct weights *across = weights_of(box->left, box->width, width, &across_memory),
                              *down = weights_of(0, box->height, height, &down_memory);
    scope_free uint8_t *narrow = mem_calloc((size_t)box->height * (size_t)width, channels);
    uint8_t *out = mem_calloc((size_t)height * (size_t)width, channels);
    if (!across || !down || !narrow || !out) {
        mem_free(out);
        return error_set(err, MUSTER_E_NOMEM, "no memory for a picture");
    }
    filter_lines(p->data + (size_t)box->top * row, narrow, across, width, box->height, p->channels, channels,
                 row, channels, (size_t)width * channels);
    filter_lines(narrow, out, down, height, width, p->channels, (size_t)width * channels, channels,
                 (size_t)width * channels, channels);
    mem_free(p->data);
    *p = (struct picture_pixels){height, width, p->channels, out};
    return 0;
}

/* ---- JPEG, by libjpeg-turbo's own interface ---- */

struct jpeg_calls {
    void *(*open)(void);
    int (*close)(void *handle);
    int (*head)(void *handle, const unsigned char *data, unsigned long length, int *width, int *height,
                int *samples, int *colours);
    int (*decode)(void *handle, const unsigned char *data, unsigned long length, unsigned char *out,
                  int width, int pitch, int height, int format, int flags);
    char *(*error)(void *handle);
};
#define JPEG_ROW(member, name)                                                                               \
    {                                                                                                        \
        name, offsetof(struct jpeg_calls, member), false, NULL                                               \
    }
static const struct library_function jpeg_functions[] = {
    JPEG_ROW(open, "tjInitDecompress"), JPEG_ROW(close, "tjDestroy"), JPEG_ROW(head, "tjDecompressHeader3"),
    JPEG_ROW(decode, "tjDecompress2"), JPEG_ROW(error, "tjGetErrorStr2")};
#undef JPEG_ROW
static const struct library jpeg_library = {
    .file = "libturbojpeg.so.0",
    .needs = "JPEG pictures need libturbojpeg (package libturbojpeg0, or libturbojpeg)",
    .functions = jpeg_functions,
    .count = sizeof jpeg_functions / sizeof *jpeg_functions,
};
static struct jpeg_calls jpeg; /* filled by picture_files_open, before threads read pictures */

int picture_files_open(struct muster_error *err)
{
    return library_load(&jpeg_library, &jpeg, NULL, err);
}

/* As turbojpeg.h has them. */
enum {
    JPEG_RGB = 0,
    JPEG_GRAY_FORMAT = 6,
    JPEG_CMYK_FORMAT = 11,
    JPEG_GRAY = 2,
    JPEG_CMYK = 3,
    JPEG_LIMIT_SCANS = 1 << 15
};

/* Adobe's inverted CMYK in the place of RGB, as Pillow converts it. */
static void to_rgb(const uint8_t *from, uint8_t *to, size_t pixels)
{
    for (size_t i = 0; i < pixels; i++, from += 4, to += 3)
        for (int c = 0; c < 3; c++) {
            const unsigned key = from[3], ink = 255u - from[c], product = ink * key + 128;
            const int value = (int)key - (int)(((product >> 8) + product) >> 8);
            to[c] = (uint8_t)(value < 0 ? 0 : value);
        }
}

static int decode_jpeg(void *handle, const struct mapping *file, const char *path, struct picture_pixels *out,
                       struct muster_error *err)
{
    const unsigned char *data = (const unsigned char *)file->data;
    int samples, colours;
    if (jpeg.head(handle, data, file->length, &out->width, &out->height, &samples, &colours) < 0)
        return error_set(err, MUSTER_E_INVALID, "%s cannot be read: %s", path, jpeg.error(handle));
    if (out->width < 1 || out->height < 1 || out->width > PICTURE_FILE_SIDE ||
        out->height > PICTURE_FILE_SIDE)
        return error_set(err, MUSTER_E_LIMIT, "%s is a picture of %d x %d; at most %d pixels a side are read",
                         path, out->height, out->width, PICTURE_FILE_SIDE);
    const size_t pixels = (size_t)out->width * (size_t)out->height;
    const bool gray = colours == JPEG_GRAY, inks = colours >= JPEG_CMYK;
    scope_free uint8_t *four = inks ? mem_calloc(pixels, 4) : NULL;
    out->channels = gray ? 1 : PIXEL;
    out->data = mem_calloc(pixels, (size_t)out->channels);
    if (!out->data || (inks && !four))
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", path);
    if (jpeg.decode(handle, data, file->length, inks ? four : out->data, out->width, 0, out->height,
                    inks   ? JPEG_CMYK_FORMAT
                    : gray ? JPEG_GRAY_FORMAT
                           : JPEG_RGB,
                    JPEG_LIMIT_SCANS) < 0 &&
        !strstr(jpeg.error(handle), "extraneous bytes")) /* a warning, and the picture is whole */
        return error_set(err, MUSTER_E_INVALID, "%s cannot be read: %s", path, jpeg.error(handle));
    if (inks)
        to_rgb(four, out->data, pixels);
    return 0;
}

static int read_jpeg(const struct mapping *file, const char *path, struct picture_pixels *out,
                     struct muster_error *err)
{
    void *handle = picture_files_open(err) < 0 ? NULL : jpeg.open();
    if (!handle)
        return err && err->code ? -1 : error_set(err, MUSTER_E_NOMEM, "no memory to read %s", path);
    const int result = decode_jpeg(handle, file, path, out, err);
    (void)jpeg.close(handle); /* it frees memory alone */
    return result;
}

/* ---- a file ---- */

static void close_reading(struct reading *r)
{
    if (r->png)
        png_destroy_read_struct(&r->png, &r->info, NULL);
    mem_free(r->pixels);
    mem_free(r->rows);
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

static int decode_png(struct reading *r, const char *path, const struct picture_shape *most,
                      struct muster_error *err)
{
    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, fail, ignore);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    if (!r->info)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", path);
    if (read_head(r) < 0)
        return error_set(err, MUSTER_E_INVALID, "%s cannot be read: %s", path, r->text);
    if (most && (r->height > most->height || r->width > most->width))
        return 0; /* the caller refuses it before its pixels are read */
    if (make_rows(r, path, err) < 0)
        return -1;
    return read_rows(r) < 0 ? error_set(err, MUSTER_E_INVALID, "%s cannot be read: %s", path, r->text) : 0;
}

static int read_png(const struct mapping *file, const char *path, const struct picture_shape *most,
                    struct picture_pixels *out, struct muster_error *err)
{
    struct reading r = {.file = *file};
    const int result = decode_png(&r, path, most, err);
    if (!result) {
        *out = (struct picture_pixels){r.height, r.width, r.channels, r.pixels};
        r.pixels = NULL;
    }
    close_reading(&r);
    return result;
}

/* most: a larger picture is refused; NULL: any size. */
static int read_pixels(const char *path, const struct picture_shape *most, struct picture_pixels *out,
                       struct muster_error *err)
{
    struct mapping file __attribute__((cleanup(mapping_close))) = {0};
    *out = (struct picture_pixels){0};
    if (mapping_open(&file, path, err) < 0)
        return -1;
    const unsigned char *data = (const unsigned char *)file.data;
    const bool png = file.length >= SIGNATURE && !png_sig_cmp(data, 0, SIGNATURE);
    if (!png && (file.length < 3 || data[0] != 0xFF || data[1] != 0xD8 || data[2] != 0xFF))
        return error_set(err, MUSTER_E_INVALID, "%s is no PNG and no JPEG file", path);
    if ((png ? read_png(&file, path, most, out, err) : read_jpeg(&file, path, out, err)) < 0)
        return -1;
    if (!most || (out->height <= most->height && out->width <= most->width))
        return 0;
    return error_set(
        err, MUSTER_E_INVALID,
        "%s is a picture of %d x %d, larger than model.input_size %d: make it smaller, or set data.resize",
        path, out->height, out->width, most->height);
}

int picture_pixels_read(const char *path, struct picture_pixels *out, struct muster_error *err)
{
    return read_pixels(path, NULL, out, err);
}

void picture_pixels_free(struct picture_pixels *pixels)
{
    mem_free(pixels->data);
    pixels->data = NULL;
}

int picture_file_read(const char *path, const struct picture_shape *shape, uint8_t *planes,
                      struct muster_error *err)
{
    struct picture_pixels pixels __attribute__((cleanup(picture_pixels_free)));
    if (read_pixels(path, shape, &pixels, err) < 0)
        return -1;
    picture_pixels_place(&pixels, shape, planes);
    return 0;
}
