/* folders_test.c - pictures in folders by class: every kind of PNG gives the pixels that were written, labels
 * are the places of the sorted names, and unreadable files are named. */
#include "tests/support/cmocka_all.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "tests/support/folder.h"
#include "trainer/pictures/pictures.h"
#include "trainer/pictures/pictures_internal.h"

enum { WIDTH = 7, HEIGHT = 5, MOST = 4 * 2 * WIDTH };

static char root[64];

static const char *inside(const char *name)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

/* ---- writing ---- */

struct picture {
    int type, depth, interlace, width, height;
    uint8_t rows[HEIGHT][MOST]; /* packed as the file has them */
    png_color palette[256];
};

static int samples_of(const struct picture *p)
{
    return p->type == PNG_COLOR_TYPE_RGB          ? 3
           : p->type == PNG_COLOR_TYPE_RGB_ALPHA  ? 4
           : p->type == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                                                  : 1;
}

static void write_png(const char *path, const struct picture *p)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_bytep rows[HEIGHT];
    if (setjmp(png_jmpbuf(png)))
        fail_msg("%s cannot be written", path);
    png_init_io(png, file);
    png_set_IHDR(png, info, (png_uint_32)p->width, (png_uint_32)p->height, p->depth, p->type, p->interlace,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (p->type == PNG_COLOR_TYPE_PALETTE)
        png_set_PLTE(png, info, p->palette, 1 << p->depth);
    for (int y = 0; y < p->height; y++)
        rows[y] = (png_bytep)(uintptr_t)p->rows[y];
    png_set_rows(png, info, rows);
    png_write_png(png, info, PNG_TRANSFORM_IDENTITY, NULL);
    png_destroy_write_struct(&png, &info);
    assert_int_equal(fclose(file), 0);
}

static void draw(struct picture *p, unsigned seed)
{
    srand(seed);
    for (int y = 0; y < HEIGHT; y++)
        for (int i = 0; i < MOST; i++)
            p->rows[y][i] = (uint8_t)rand();
    for (int i = 0; i < 256; i++)
        p->palette[i] = (png_color){(png_byte)rand(), (png_byte)rand(), (png_byte)rand()};
}

/* ---- expected pictures ---- */

/* Sample c of a pixel in 8 bits: of fewer bits gray is spread, of 16 the high byte is kept. */
static int sample_at(const struct picture *p, int x, int y, int c)
{
    const int at = x * samples_of(p) + c;
    if (p->depth == 16)
        return p->rows[y][2 * at];
    if (p->depth == 8)
        return p->rows[y][at];
    const int bit = at * p->depth, most = (1 << p->depth) - 1;
    return p->rows[y][bit / 8] >> (8 - p->depth - bit % 8) & most;
}

static void pixel_at(const struct picture *p, int x, int y, int rgb[3])
{
    const int first = sample_at(p, x, y, 0);
    const png_color *color = &p->palette[first & 255];
    if (p->type == PNG_COLOR_TYPE_PALETTE)
        rgb[0] = color->red, rgb[1] = color->green, rgb[2] = color->blue;
    else if (p->type & PNG_COLOR_MASK_COLOR)
        for (int c = 0; c < 3; c++)
            rgb[c] = sample_at(p, x, y, c);
    else
        rgb[0] = rgb[1] = rgb[2] = p->depth < 8 ? first * 255 / ((1 << p->depth) - 1) : first;
}

static void check(const struct picture *p)
{
    enum { SIDE = 9, ABOVE = (SIDE - HEIGHT) / 2, BEFORE = (SIDE - WIDTH) / 2 };
    struct muster_error err = {0};
    uint8_t planes[3][SIDE][SIDE], gray[SIDE][SIDE];
    const bool color = p->type & PNG_COLOR_MASK_COLOR;
    write_png(inside("one.png"), p);
    if (picture_file_read(inside("one.png"), &(struct picture_shape){3, SIDE, SIDE}, &planes[0][0][0], &err) <
            0 ||
        picture_file_read(inside("one.png"), &(struct picture_shape){1, SIDE, SIDE}, &gray[0][0], &err) < 0)
        fail_msg("type %d, depth %d: %s", p->type, p->depth, err.text);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            const bool there = x >= BEFORE && x < BEFORE + WIDTH && y >= ABOVE && y < ABOVE + HEIGHT;
            int rgb[3] = {0};
            if (there)
                pixel_at(p, x - BEFORE, y - ABOVE, rgb);
            const int luma = (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16;
            for (int c = 0; c < 3; c++)
                if (planes[c][y][x] != rgb[c])
                    fail_msg("type %d, depth %d, interlaced %d: %d instead of %d at %d %d", p->type, p->depth,
                             p->interlace, planes[c][y][x], rgb[c], x, y);
            assert_int_equal(gray[y][x], color ? luma : rgb[0]);
        }
}

static void every_kind_gives_its_pixels(void **state)
{
    static const struct {
        int type, depths[6];
    } kinds[] = {{PNG_COLOR_TYPE_GRAY, {1, 2, 4, 8, 16, 0}},
                 {PNG_COLOR_TYPE_PALETTE, {1, 2, 4, 8, 0}},
                 {PNG_COLOR_TYPE_RGB, {8, 16, 0}},
                 {PNG_COLOR_TYPE_GRAY_ALPHA, {8, 16, 0}},
                 {PNG_COLOR_TYPE_RGB_ALPHA, {8, 16, 0}}};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (const int *depth = kinds[k].depths; *depth; depth++)
            for (int interlace = 0; interlace < 2; interlace++) {
                struct picture p = {kinds[k].type, *depth, interlace, WIDTH, HEIGHT, {{0}}, {{0, 0, 0}}};
                draw(&p, (unsigned)(7 * *depth + interlace));
                check(&p);
            }
}

/* ---- folders ---- */

static const struct picture_shape side8 = {3, 8, 8};

static void make_folder(const char *name)
{
    assert_int_equal(mkdir(inside(name), 0777), 0);
}

static void put_picture(const char *name, int level)
{
    struct picture p = {PNG_COLOR_TYPE_GRAY, 8, 0, WIDTH, HEIGHT, {{0}}, {{0, 0, 0}}};
    memset(p.rows, level, sizeof p.rows);
    write_png(inside(name), &p);
}

static void put_bytes(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(inside(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* dog before eel, Cat before both: names are sorted by bytes. Pictures below folders and links count. */
static void make_set(void)
{
    make_folder("set");
    make_folder("set/eel");
    make_folder("set/dog");
    make_folder("set/dog/more");
    make_folder("set/Cat");
    make_folder("set/.hidden");
    put_picture("set/eel/a.png", 30);
    put_picture("set/dog/2.PNG", 21);
    put_picture("set/dog/1.png", 20);
    put_picture("set/dog/more/0.png", 22);
    put_picture("set/Cat/x.png", 10);
    put_bytes("set/dog/notes.txt", "x", 1);
    put_bytes("set/README", "x", 1);
    assert_int_equal(symlink("a.png", inside("set/eel/b.png")), 0);
}

static void classes_are_the_sorted_folders(void **state)
{
    static const char *const names[] = {"Cat", "dog", "eel"};
    static const int levels[] = {10, 20, 21, 22, 30, 30}, labels[] = {0, 1, 1, 1, 2, 2};
    struct muster_error err = {0};
    struct picture_block block;
    struct class_names found = {0};
    (void)state;
    make_set();
    struct picture_list list;
    if (class_folders_list(&list, &found, inside("set"), &err) < 0 ||
        class_folders_decode(&block, &list, &side8, &err) < 0)
        fail_msg("%s", err.text);
    picture_list_free(&list);
    assert_int_equal(found.count, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(found.name[i], names[i]);
    assert_int_equal(block.count, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(block.labels[i], labels[i]);
        assert_int_equal(block.pixels[i * block.apart + 4 * 8 + 3], levels[i]);
    }
    picture_block_free(&block);
    class_names_free(&found);
    assert_int_equal(class_folders_there(inside("set"), NULL), 1);
    assert_int_equal(class_folders_there(inside("set/eel"), NULL), 0);
}

static struct pictures *open_set(const char *name, int classes, enum picture_kind kind,
                                 struct muster_error *err)
{
    const struct pictures_options o = {.path = inside(name),
                                       .kind = kind,
                                       .classes = classes,
                                       .augment = {.shape = side8, .deviation = {1, 1, 1}}};
    return pictures_open(&o, err);
}

static void a_set_has_its_names(void **state)
{
    struct muster_error err = {0};
    (void)state;
    struct pictures *p = open_set("set", 3, PICTURES_AUTO, &err);
    if (!p)
        fail_msg("%s", err.text);
    assert_int_equal(pictures_samples(p), 6);
    assert_string_equal(pictures_class(p, 2), "eel");
    assert_null(pictures_class(p, 3));
    pictures_destroy(p);
    assert_null(open_set("set", 10, PICTURES_FOLDERS, &err));
    assert_non_null(
        strstr(err.text, "set has 3 folders, each of a class, and model.num_classes is 10: set it"));
}

/* A change to the set, and the error that follows; the change is undone by removing its files. */
static void refused(const char *path, const char *error)
{
    struct muster_error err = {0};
    struct pictures *p = open_set("set", 3, PICTURES_FOLDERS, &err);
    if (p || !strstr(err.text, path) || !strstr(err.text, error))
        fail_msg("'%s' does not name %s and %s", p ? "no error" : err.text, path, error);
    assert_int_equal(remove(inside(path)), 0);
}

static size_t read_whole(const char *name, char *out, size_t room)
{
    FILE *file = fopen(inside(name), "rb");
    assert_non_null(file);
    const size_t bytes = fread(out, 1, room, file);
    assert_int_equal(fclose(file), 0);
    return bytes;
}

/* A chunk of two gigabytes, of which the file has a few bytes, takes no such memory. */
static void a_long_chunk_is_refused(void **state)
{
    enum { HEAD = 33, MOST_KB = 200 << 10 };
    static const char chunk[] = "\x7e\x3a\x29\x13tEXtTitle";
    char png[4096];
    struct rusage before, after;
    (void)state;
    const size_t bytes = read_whole("set/dog/1.png", png, sizeof png);
    memcpy(png + HEAD, chunk, sizeof chunk);
    put_bytes("set/dog/bad.png", png, bytes);
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    refused("set/dog/bad.png", "cannot be read: ");
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_in_range(after.ru_maxrss - before.ru_maxrss, 0, MOST_KB);
}

static void what_cannot_be_read_is_named(void **state)
{
    char png[4096];
    (void)state;
    const size_t bytes = read_whole("set/dog/1.png", png, sizeof png);
    put_bytes("set/dog/bad.png", "no picture at all", 17);
    refused("set/dog/bad.png", "is no PNG and no JPEG file");
    put_bytes("set/dog/bad.png", "", 0);
    refused("set/dog/bad.png", "is no PNG and no JPEG file");
    for (size_t cut = 8; cut + 13 < bytes; cut += 7) { /* before the last chunk's head */
        put_bytes("set/dog/bad.png", png, cut);
        refused("set/dog/bad.png", "cannot be read: it is cut off");
    }
    png[bytes / 2] ^= 1;
    put_bytes("set/dog/bad.png", png, bytes);
    refused("set/dog/bad.png", "cannot be read: ");
    put_bytes("set/dog/photo.JPG", "x", 1);
    refused("set/dog/photo.JPG", "is no PNG and no JPEG file");
    put_bytes("set/dog/photo.webp", "x", 1);
    refused("set/dog/photo.webp", "are read as PNG and JPEG: convert it");
    make_folder("set/empty");
    refused("set/empty", "has no .png or .jpg file");
    struct picture wide = {PNG_COLOR_TYPE_GRAY, 8, 0, 9, 1, {{0}}, {{0, 0, 0}}};
    write_png(inside("set/dog/wide.png"), &wide);
    refused("set/dog/wide.png", "is a picture of 1 x 9, larger than model.input_size 8");
}

static void validation_has_the_same_classes(void **state)
{
    struct muster_error err = {0};
    char path[256];
    (void)state;
    make_folder("held");
    make_folder("held/Cat");
    make_folder("held/dog");
    make_folder("held/fox");
    put_picture("held/Cat/1.png", 1);
    put_picture("held/dog/1.png", 2);
    put_picture("held/fox/1.png", 3);
    (void)snprintf(path, sizeof path, "%s", inside("held"));
    struct pictures_options o = {.path = inside("set"),
                                 .validation_path = path,
                                 .classes = 3,
                                 .augment = {.shape = side8, .deviation = {1, 1, 1}}};
    assert_null(pictures_open(&o, &err));
    assert_non_null(strstr(err.text, "class 2 is fox there, and eel where is trained"));
    char to[256];
    (void)snprintf(to, sizeof to, "%s", inside("held/eel"));
    assert_int_equal(rename(inside("held/fox"), to), 0);
    o.path = inside("set");
    struct pictures *p = pictures_open(&o, &err);
    if (!p)
        fail_msg("%s", err.text);
    assert_int_equal(pictures_samples(pictures_validation(p)), 3);
    pictures_destroy(p);
}

static int begin(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/folders_test.XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return folder_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_gives_its_pixels),  cmocka_unit_test(classes_are_the_sorted_folders),
        cmocka_unit_test(a_set_has_its_names),          cmocka_unit_test(a_long_chunk_is_refused),
        cmocka_unit_test(what_cannot_be_read_is_named), cmocka_unit_test(validation_has_the_same_classes),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
