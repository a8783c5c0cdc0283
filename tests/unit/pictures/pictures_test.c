/* pictures_test.c - sets of pictures: files that are none are refused by name, the split and augmentation are
 * functions of the seed, and crops, flips and normalisation are torchvision's formulas. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "tests/support/folder.h"
#include "trainer/pictures/pictures.h"
#include "trainer/pictures/pictures_internal.h"

enum { PICTURES = 20, PER_BATCH = PICTURES / 5 };

/* ---- augmentation ---- */

/* RandomCrop on a picture padded with zeros, RandomHorizontalFlip, ToTensor, Normalize: written down as
 * torchvision does it, a step at a time. */
static void by_hand(const uint8_t *picture, int side, int padding, int top, int left, bool flip, float mean,
                    float deviation, float *out)
{
    const int wide = side + 2 * padding;
    uint8_t padded[64 * 64] = {0}, cropped[32 * 32], flipped[32 * 32];
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            padded[(y + padding) * wide + x + padding] = picture[y * side + x];
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            cropped[y * side + x] = padded[(y + top) * wide + x + left];
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            flipped[y * side + x] = cropped[y * side + (flip ? side - 1 - x : x)];
    for (int i = 0; i < side * side; i++)
        out[i] = ((float)flipped[i] / 255.0f - mean) / deviation;
}

static void augmentation_is_torchvisions(void **state)
{
    enum { SIDE = 7, PADDING = 2 };
    const struct picture_shape shape = {1, SIDE, SIDE};
    struct augment_options o = {.shape = shape, .padding = PADDING, .flips = true};
    uint8_t picture[SIDE * SIDE];
    float got[SIDE * SIDE], expected[SIDE * SIDE];
    (void)state;
    o.mean[0] = 0.25f, o.deviation[0] = 0.5f;
    for (int i = 0; i < SIDE * SIDE; i++)
        picture[i] = (uint8_t)(i * 5);
    for (int top = 0; top <= 2 * PADDING; top++)
        for (int left = 0; left <= 2 * PADDING; left++)
            for (int flip = 0; flip < 2; flip++) {
                const struct augment_choice choice = {top, left, flip};
                augment_picture(&o, &choice, &shape, picture, got);
                by_hand(picture, SIDE, PADDING, top, left, flip, 0.25f, 0.5f, expected);
                assert_memory_equal(got, expected, sizeof got);
            }
}

static void smaller_and_gray_pictures_are_put_into_the_middle(void **state)
{
    const struct picture_shape from = {1, 2, 2};
    struct augment_options o = {.shape = {3, 4, 4}, .deviation = {1, 1, 1}};
    const uint8_t picture[4] = {255, 0, 51, 102};
    const struct augment_choice none = augment_none(&o);
    float out[48];
    (void)state;
    augment_picture(&o, &none, &from, picture, out);
    for (int plane = 0; plane < 3; plane++) {
        assert_true(out[plane * 16 + 5] == 1 && out[plane * 16 + 6] == 0);
        assert_true(fabsf(out[plane * 16 + 9] - 0.2f) < 1e-6f && fabsf(out[plane * 16 + 10] - 0.4f) < 1e-6f);
        assert_true(out[plane * 16] == 0 && out[plane * 16 + 15] == 0);
    }
}

static void choices_cover_all_places_and_follow_from_the_picture(void **state)
{
    const struct augment_options o = {.padding = 4, .flips = true};
    int tops[9] = {0}, lefts[9] = {0}, flips = 0, other = 0;
    (void)state;
    for (uint64_t picture = 0; picture < 9000; picture++) {
        const struct augment_choice a = augment_choose(&o, 42, 3, picture),
                                    b = augment_choose(&o, 42, 3, picture),
                                    c = augment_choose(&o, 42, 4, picture);
        assert_true(a.top == b.top && a.left == b.left && a.flip == b.flip);
        assert_in_range(a.top, 0, 8);
        assert_in_range(a.left, 0, 8);
        tops[a.top]++, lefts[a.left]++, flips += a.flip;
        other += a.top != c.top || a.left != c.left || a.flip != c.flip;
    }
    for (int i = 0; i < 9; i++) { /* 1,000 expected; a deviation is 30 */
        assert_in_range(tops[i], 850, 1150);
        assert_in_range(lefts[i], 850, 1150);
    }
    assert_in_range(flips, 4250, 4750);
    assert_true(other > 8500); /* in another epoch another choice */
}

/* ---- a set ---- */

static void write_file(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* Five binary batches; every pixel of picture i is i, its label i % 10. */
static void write_batches(const char *folder)
{
    for (int batch = 0; batch < 5; batch++) {
        uint8_t records[PER_BATCH * CIFAR_RECORD];
        char name[32];
        for (int i = 0; i < PER_BATCH; i++) {
            memset(records + i * CIFAR_RECORD, batch * PER_BATCH + i, CIFAR_RECORD);
            records[i * CIFAR_RECORD] = (uint8_t)((batch * PER_BATCH + i) % 10);
        }
        (void)snprintf(name, sizeof name, "data_batch_%d.bin", batch + 1);
        write_file(folder, name, records, sizeof records);
    }
}

static struct pictures_options options_of(const char *path)
{
    struct pictures_options o = {
        .path = path, .seed = 42, .classes = 10, .augment = {.shape = {3, 32, 32}, .padding = 4}};
    for (int i = 0; i < 3; i++)
        o.augment.deviation[i] = 1.0f / 255.0f; /* values are pixels */
    return o;
}

static const char *new_folder(void)
{
    static char folder[32];
    (void)snprintf(folder, sizeof folder, "pictures_XXXXXX");
    assert_non_null(mkdtemp(folder));
    return folder;
}

/* Which picture a sample is: its largest pixel; a crop cuts no whole picture away. */
static int picture_in(const float *sample)
{
    float most = 0;
    for (int i = 0; i < CIFAR_PIXELS; i++)
        most = fmaxf(most, sample[i]);
    return (int)lroundf(most);
}

static void the_split_is_whole_and_of_the_seed(void **state)
{
    const char *folder = new_folder();
    static float sample[CIFAR_PIXELS];
    struct muster_error err = {0};
    int first[2][PICTURES];
    (void)state;
    write_batches(folder);
    for (int seed = 0; seed < 2; seed++) {
        struct pictures_options o = options_of(folder);
        int seen[PICTURES] = {0};
        o.validation_share = 0.2;
        o.seed = (uint64_t)(seed + 1);
        struct pictures *p = pictures_open(&o, &err);
        assert_non_null(p);
        assert_int_equal(pictures_samples(p), 16);
        const struct pictures *held = pictures_validation(p);
        assert_int_equal(pictures_samples(held), 4);
        for (int g = 0; g < PICTURES; g++) {
            int32_t label;
            assert_int_equal(
                pictures_sample(g < 16 ? p : held, (uint64_t)(g < 16 ? g : g - 16), sample, &label, NULL), 0);
            const int picture = picture_in(sample);
            assert_in_range(picture, 0, PICTURES - 1);
            assert_int_equal(label, picture % 10);
            seen[picture]++;
            first[seed][g] = picture;
        }
        for (int i = 0; i < PICTURES; i++)
            assert_int_equal(seen[i], 1); /* each on one side, once an epoch */
        pictures_destroy(p);
    }
    assert_memory_not_equal(first[0], first[1], sizeof first[0]);
    assert_int_equal(folder_remove(folder), 0);
}

static void an_epoch_has_an_order_and_augmentation_of_its_own(void **state)
{
    const char *folder = new_folder();
    struct muster_error err = {0};
    static float sample[2][CIFAR_PIXELS];
    int32_t label;
    int moved = 0, same = 0;
    (void)state;
    write_batches(folder);
    const struct pictures_options o = options_of(folder);
    struct pictures *p = pictures_open(&o, &err);
    assert_non_null(p);
    for (uint64_t g = 0; g < PICTURES; g++) {
        assert_int_equal(pictures_sample(p, g, sample[0], &label, NULL), 0);
        assert_int_equal(pictures_sample(p, g, sample[1], &label, NULL), 0);
        assert_memory_equal(sample[0], sample[1], sizeof sample[0]); /* a function of g */
        assert_int_equal(pictures_sample(p, g + PICTURES, sample[1], &label, NULL), 0);
        moved += picture_in(sample[0]) != picture_in(sample[1]);
        same += !memcmp(sample[0], sample[1], sizeof sample[0]);
    }
    assert_true(moved > PICTURES / 2 && same < PICTURES / 4);
    pictures_destroy(p);
    assert_int_equal(folder_remove(folder), 0);
}

static void refuse(const char *path, int classes, int size, const char *expected)
{
    struct muster_error err = {0};
    struct pictures_options o = options_of(path);
    o.classes = classes;
    o.augment.shape.height = o.augment.shape.width = size;
    assert_null(pictures_open(&o, &err));
    if (!strstr(err.text, expected))
        fail_msg("'%s' is not in '%s'", expected, err.text);
}

static void what_is_no_set_is_refused_by_name(void **state)
{
    const char *folder = new_folder();
    char path[64];
    (void)state;
    refuse("nowhere", 10, 32, "cannot read nowhere");
    refuse(folder, 10, 32, "has none of CIFAR-10's data_batch_1 to 5");
    write_batches(folder);
    refuse(folder, 9, 32, "has the label 9 (picture 1), and model.num_classes is 9");
    refuse(folder, 10, 28, "larger than model.input_size 28");
    (void)snprintf(path, sizeof path, "%s/short.bin", folder);
    write_file(folder, "short.bin", "abc", 3);
    refuse(path, 10, 32,
           "has 3 bytes; binary batches are records of 3073 bytes (CIFAR-10) or 3074 (CIFAR-100)");
    write_file(folder, "train-images-idx3-ubyte",
               "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x01"
               "ab",
               18);
    (void)snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", folder);
    refuse(path, 10, 32, "cannot read");
    write_file(folder, "train-labels-idx1-ubyte", "\0\0\x08\x01\0\0\0\x01\x05", 9);
    refuse(path, 10, 32, "2 pictures, and");
    write_file(folder, "train-labels-idx1-ubyte", "\0\0\x08\x01\0\0\0\x02\x05", 9);
    refuse(path, 10, 32, "has 1 bytes after its head, which gives 2");
    write_file(folder, "train-labels-idx1-ubyte", "\x1f\x8b\x08garbage", 10);
    refuse(path, 10, 32, "cannot be unpacked: it is damaged");
    assert_int_equal(folder_remove(folder), 0);
}

static void idx_files_are_read(void **state)
{
    const char *folder = new_folder();
    struct muster_error err = {0};
    static float sample[CIFAR_PIXELS];
    int32_t label;
    (void)state;
    write_file(folder, "train-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x01\x07\x09", 18);
    write_file(folder, "train-labels-idx1-ubyte", "\0\0\x08\x01\0\0\0\x02\x03\x04", 10);
    struct pictures_options o = options_of(folder);
    o.augment.padding = 0;
    struct pictures *p = pictures_open(&o, &err);
    assert_non_null(p);
    for (uint64_t g = 0; g < 2; g++) {
        assert_int_equal(pictures_sample(p, g, sample, &label, NULL), 0);
        assert_int_equal(picture_in(sample), label == 3 ? 7 : 9);
    }
    pictures_destroy(p);
    assert_int_equal(folder_remove(folder), 0);
}

/* The names under which torchvision, Keras and others keep the same files. */
static void idx_files_have_many_names(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"train-images.idx3-ubyte", "train-labels.idx1-ubyte"},
        {"train-images-idx3-ubyte", "train-labels.idx1-ubyte"},
        {"emnist-letters-train-images-idx3-ubyte", "emnist-letters-train-labels-idx1-ubyte"},
        {"t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *folder = new_folder();
        char path[256];
        struct muster_error err = {0};
        write_file(folder, names[i][0], "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x01\x07\x09", 18);
        write_file(folder, names[i][1], "\0\0\x08\x01\0\0\0\x02\x03\x04", 10);
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i][0]);
        struct pictures_options o = options_of(i < 2 ? folder : path); /* a folder has the names of MNIST */
        for (int named = 0; named < 2; named++, o.path = path) {
            struct pictures *p = pictures_open(&o, &err);
            if (!p)
                fail_msg("%s: %s", o.path, err.text);
            assert_int_equal(pictures_samples(p), 2);
            pictures_destroy(p);
        }
        assert_int_equal(folder_remove(folder), 0);
    }
}

/* CIFAR-100 as its archive lays it out; CIFAR-10's test_batch is what validation_path takes of a folder. */
static void sets_of_cifar(void **state)
{
    (void)state;
    const char *folder = new_folder();
    struct muster_error err = {0};
    static uint8_t records[2 * (CIFAR_RECORD + 1)], test[CIFAR_RECORD];
    static float sample[CIFAR_PIXELS];
    int32_t label;
    records[1] = 99;                /* fine; the coarse one is before it */
    records[CIFAR_RECORD + 1] = 19; /* coarse */
    write_file(folder, "fine_label_names.txt", "apple\n", 6);
    write_file(folder, "train.bin", records, sizeof records);
    struct pictures_options o = options_of(folder);
    o.classes = 100;
    struct pictures *p = pictures_open(&o, &err);
    if (!p)
        fail_msg("%s", err.text);
    int32_t seen = 0;
    for (uint64_t g = 0; g < 2; g++) {
        assert_int_equal(pictures_sample(p, g, sample, &label, NULL), 0);
        seen += label;
    }
    assert_int_equal(seen, 99);
    assert_string_equal(pictures_class(p, 99), "worm");
    assert_string_equal(pictures_class(p, 0), "apple");
    pictures_destroy(p);
    o.kind = PICTURES_CIFAR10;
    assert_null(pictures_open(&o, &err));
    assert_int_equal(folder_remove(folder), 0);
    folder = new_folder();
    write_batches(folder);
    o = options_of(folder);
    o.validation_path = folder;
    test[0] = 7;
    write_file(folder, "test_batch.bin", test, sizeof test);
    p = pictures_open(&o, &err);
    if (!p)
        fail_msg("%s", err.text);
    assert_int_equal(pictures_samples(pictures_validation(p)), 1);
    pictures_destroy(p);
    assert_int_equal(folder_remove(folder), 0);
}

/* ---- pickles ---- */

/* {'labels': [1, 2], 'data': an array of (2, 3)}, of Python 2, as CIFAR-10's are. */
#define HEAD                                                                                                 \
    "\x80\x02}q\x01(U\x06labelsq\x02]q\x03(K\x01K\x02"                                                       \
    "eU\x04"                                                                                                 \
    "dataq\x04"
#define ARRAY                                                                                                \
    "cnumpy.core.multiarray\n_reconstruct\nq\x05"                                                            \
    "cnumpy\nndarray\nq\x06K\x00\x85q\x07U\x01"                                                              \
    "bq\x08\x87Rq\x09"
#define TYPE                                                                                                 \
    "cnumpy\ndtype\nq\x0aU\x02"                                                                              \
    "u1q\x0bK\x00K\x01\x87Rq\x0c(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
static const char good[] = HEAD ARRAY "(K\x01K\x02K\x03\x86" TYPE "\x89U\x06"
                                      "abcdef"
                                      "tbu.";

/* {'labels': [1, 2], 'data': an array of (1, 4)}, by Python 3 at protocol 2: bytes are text to encode. The
 * pixels are 0, 127, 128 and 255. */
#define PIXELS "X\x06\0\0\0\0\x7f\xC2\x80\xC3\xBF"
static const char encoded[] =
    "\x80\x02}q\0(X\x0b\0\0\0"
    "fine_labelsq\1]q\2K\1aX\4\0\0\0dataq\3cnumpy._core.multiarray\n_reconstruct\nq\4"
    "cnumpy\nndarray\nq\5K\0\x85q\6c_"
    "codecs\nencode\nq\7X\1\0\0\0bq\bX\6\0\0\0latin1q\t\x86q\nRq\x0b\x87q\x0cRq\r"
    "(K\1K\1K\4\x86q\x0e"
    "cnumpy\ndtype\nq\x0fX\2\0\0\0u1q\x10\x89\x88\x87q\x11Rq\x12(K\3X\1\0\0\0|q\x13NNNJ\xff\xff\xff"
    "\xffJ\xff\xff\xff\xffK\0tq\x14"
    "b\x89h\7" PIXELS "h\t\x86q\x16Rq\x17tq\x18"
    "bu.";

static void bytes_that_are_encoded_text(void **state)
{
    (void)state;
    static uint8_t labels[UNPICKLE_PICTURES];
    static char spoilt[sizeof encoded];
    struct unpickled_batch batch;
    struct muster_error err = {0};
    if (unpickle_batch(encoded, sizeof encoded - 1, &batch, labels, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(batch.fine && batch.rows == 1 && batch.columns == 4 && batch.labels == 1 && labels[0] == 1);
    assert_memory_equal(batch.data, "\x00\x7f\x80\xff", 4);
    assert_ptr_equal(batch.owned, batch.data);
    mem_free(batch.owned);
    for (size_t i = 0; i < sizeof encoded - 1;
         i++) { /* any other byte: an error, or the same kind of batch */
        memcpy(spoilt, encoded, sizeof encoded);
        for (int change = 0; change < 2; change++) {
            spoilt[i] = (char)(change ? 0xC4 : spoilt[i] ^ 1);
            if (unpickle_batch(spoilt, sizeof encoded - 1, &batch, labels, NULL) == 0)
                mem_free(batch.owned);
        }
        (void)unpickle_batch(encoded, i, &batch, labels, NULL);
    }
}

static void expect_wrong(const char *text, size_t length, const char *expected)
{
    static uint8_t labels[UNPICKLE_PICTURES];
    struct unpickled_batch batch;
    struct muster_error err = {0};
    assert_int_equal(unpickle_batch(text, length, &batch, labels, &err), -1);
    if (!strstr(err.text, expected))
        fail_msg("'%s' is not in '%s'", expected, err.text);
}
#define EXPECT_WRONG(text, expected) expect_wrong(text, sizeof(text) - 1, expected)

static void a_batch_is_unpickled_and_nothing_else(void **state)
{
    static uint8_t labels[UNPICKLE_PICTURES];
    struct unpickled_batch batch;
    struct muster_error err = {0};
    (void)state;
    if (unpickle_batch(good, sizeof good - 1, &batch, labels, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(batch.rows == 2 && batch.columns == 3 && batch.labels == 2);
    assert_memory_equal(batch.data, "abcdef", 6);
    assert_true(labels[0] == 1 && labels[1] == 2);
    for (size_t cut = 0; cut < sizeof good - 1; cut++) /* every prefix is refused */
        expect_wrong(good, cut, "");
    EXPECT_WRONG("\x80\x02"
                 "cos\nsystem\n(U\x02"
                 "lstR.",
                 "it names os.system, which batches of CIFAR do not");
    EXPECT_WRONG("\x80\x02(U\x02"
                 "lsios\nsystem\n.",
                 "pickle's operation 0x69");
    EXPECT_WRONG(HEAD ARRAY "(K\x01K\x02K\x04\x86" TYPE "\x89U\x06"
                            "abcdef"
                            "tbu.",
                 "another size than its bytes");
    EXPECT_WRONG(HEAD ARRAY "(K\x01K\x02K\x03\x86" TYPE "\x88U\x06"
                            "abcdef"
                            "tbu.",
                 "row by row");
    EXPECT_WRONG("\x80\x02}(U\x06labels](K\x01"
                 "eu.",
                 "there is no data");
    EXPECT_WRONG("\x80\x02R.", "a call of something");
    EXPECT_WRONG("\x80\x02t.", "a tuple without a beginning");
    EXPECT_WRONG("\x80\x02h\x07.", "not remembered");
}

/* Any byte changed: read or refused, and nothing beyond the text is touched (under the sanitizers). */
static void spoilt_pickles_are_survived(void **state)
{
    static uint8_t labels[UNPICKLE_PICTURES];
    struct unpickled_batch batch;
    char *text = mem_calloc(sizeof good - 1, 1);
    (void)state;
    for (size_t at = 0; at < sizeof good - 1; at++)
        for (int value = 0; value < 256; value += 5) {
            memcpy(text, good, sizeof good - 1);
            text[at] = (char)value;
            if (unpickle_batch(text, sizeof good - 1, &batch, labels, NULL) == 0)
                assert_true(batch.rows * batch.columns <= (int64_t)sizeof good);
        }
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(augmentation_is_torchvisions),
        cmocka_unit_test(smaller_and_gray_pictures_are_put_into_the_middle),
        cmocka_unit_test(choices_cover_all_places_and_follow_from_the_picture),
        cmocka_unit_test(the_split_is_whole_and_of_the_seed),
        cmocka_unit_test(an_epoch_has_an_order_and_augmentation_of_its_own),
        cmocka_unit_test(what_is_no_set_is_refused_by_name),
        cmocka_unit_test(idx_files_are_read),
        cmocka_unit_test(idx_files_have_many_names),
        cmocka_unit_test(sets_of_cifar),
        cmocka_unit_test(bytes_that_are_encoded_text),
        cmocka_unit_test(a_batch_is_unpickled_and_nothing_else),
        cmocka_unit_test(spoilt_pickles_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
