/* files_formats_test.c - headers of safetensors and llm.c from hostile files, element types, checksums and
 * places in an archive. */
#include "kernels/kernels.h"
#include "proto/archive/zip.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/json/json_text.h"
#include "runtime/files/elements.h"
#include "runtime/files/files_internal.h"
#include "runtime/files/safetensors.h"
#include "tests/support/cmocka_all.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- safetensors ---- */

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct file_tensor tensors[] = {
        {.name = "a.weight", .dtype = DTYPE_F32, .ndim = 2, .dim = {2, 3}, .bytes = 24},
        {.name = "b\" \xc3\xa9", .dtype = DTYPE_BF16, .ndim = 1, .dim = {5}, .bytes = 10},
        {.name = "scalar", .dtype = DTYPE_F64, .bytes = 8},
        {.name = "none", .dtype = DTYPE_I32, .ndim = 2, .dim = {0, 7}}};
    const char *const metadata[] = {"format", "pt", "two\n", "\"", NULL};
    scope_buffer text = {0};
    int64_t size = safetensors_format(tensors, 4, metadata, &text, &err);
    assert_int_equal(size, (int64_t)text.length + 42);
    assert_int_equal(text.length % 8, 0);
    int64_t length = safetensors_header_length("x", text.data, size, &err);
    assert_int_equal(length, (int64_t)text.length - 8);
    struct file_tensors read = {0};
    assert_int_equal(safetensors_parse("x", text.data + 8, (size_t)length, size, 3, &read, &err), 0);
    assert_int_equal(tensors_sort(&read, "x", &err), 0);
    assert_int_equal(read.count, 4);
    for (int i = 0; i < 4; i++) {
        const struct file_tensor *found = tensors_find(&read, tensors[i].name);
        assert_non_null(found);
        assert_int_equal(found->dtype, tensors[i].dtype);
        assert_int_equal(found->ndim, tensors[i].ndim);
        assert_memory_equal(found->dim, tensors[i].dim, sizeof found->dim);
        assert_int_equal(found->offset, tensors[i].offset);
        assert_int_equal(found->bytes, tensors[i].bytes);
        assert_int_equal(found->file, 3);
    }
    assert_null(tensors_find(&read, "c"));
    tensors_free(&read);
}

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void hostile_headers_are_errors(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int64_t data; /* bytes after the header */
        const char *says;
    } cases[] = {
        {"", 0, "not valid JSON"},
        {"[]", 0, "no object"},
        {"{\"a\":1}", 0, "no dtype"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") "", 4, "not valid JSON"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]", "[4,8]") "}", 8, "duplicate"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") "} x", 4, "not valid JSON"},
        {"{\"a\":" T("F32", "[2]", "[0,4]") "}", 4, "which is not the size of F32 (2)"},
        {"{\"a\":" T("F32", "[-1]", "[0,4]") "}", 4, "which is not the size of F32 (-1)"},
        {"{\"a\":" T("F32", "[1.5]", "[0,4]") "}", 4, "not whole numbers"},
        {"{\"a\":" T("F32", "[4611686018427387904,4]", "[0,0]") "}", 0, "which is not the size of"},
        {"{\"a\":" T("F32", "[4611686018427387904]", "[0,0]") "}", 0, "which is not the size of"},
        {"{\"a\":" T("F32", "[99999999999999999999]", "[0,4]") "}", 4, "not valid JSON"},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "more than 8 dimensions"},
        {"{\"a\":" T("F32", "3", "[0,4]") "}", 4, "has no shape"},
        {"{\"a\":" T("F32", "[1]", "[0]") "}", 4, "no pair of data_offsets"},
        {"{\"a\":" T("F32", "[1]", "[0,4.0]") "}", 4, "no pair of data_offsets"},
        {"{\"a\":" T("F32", "[1]", "[4,0]") "}", 4, "at bytes 4 to 0 of 4"},
        {"{\"a\":" T("F32", "[1]", "[-4,0]") "}", 4, "at bytes -4 to 0 of 4"},
        {"{\"a\":" T("F32", "[2]", "[0,8]") "}", 4, "at bytes 0 to 8 of 4"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") "}", 8, "end at byte"},
        {"{\"a\":" T("F32", "[1]", "[4,8]") "}", 8, "leaves a hole"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[0,4]") "}", 4, "overlaps"},
        {"{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[1]", "[4,8]") "}", 8, "overlaps"},
        {"{\"a\":" T("A_TYPE_OF_NO_ONE", "[1]", "[0,4]") "}", 4, "no dtype"},
        {"{\"a\\u0000b\":" T("F32", "[1]", "[0,4]") "}", 4, "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        struct file_tensors read = {0};
        size_t length = strlen(cases[i].header);
        int64_t size = 8 + (int64_t)length + cases[i].data;
        int result = safetensors_parse("f.safetensors", cases[i].header, length, size, 0, &read, &err);
        if (result != -1 || err.code != MUSTER_E_INVALID || !strstr(err.text, cases[i].says))
            fail_msg("%s: %d %s", cases[i].header, result, err.text);
        tensors_free(&read);
    }
}

static void types_of_no_parameter_are_described(void **state)
{
    (void)state;
    static const char header[] =
        "{\"mask\":" T("BOOL", "[2,3]", "[0,6]") ",\"odd\":" T("F4", "[4]", "[6,8]") "}";
    struct muster_error err = {0};
    struct file_tensors read = {0};
    assert_int_equal(
        safetensors_parse("x", header, strlen(header), 8 + (int64_t)strlen(header) + 8, 0, &read, &err), 0);
    assert_int_equal(read.count, 2);
    assert_int_equal(read.item[0].dtype, DTYPE_COUNT);
    assert_string_equal(read.item[1].type, "F4");
    tensors_free(&read);
}

static void the_length_of_a_header_is_checked(void **state)
{
    (void)state;
    struct muster_error err = {0};
    unsigned char start[8] = {16};
    assert_int_equal(safetensors_header_length("x", start, 24, &err), 16);
    assert_int_equal(safetensors_header_length("x", start, 23, &err), -1);
    assert_non_null(strstr(err.text, "cut off"));
    assert_int_equal(safetensors_header_length("x", start, 7, &err), -1);
    memset(start, 0xff, sizeof start);
    assert_int_equal(safetensors_header_length("x", start, INT64_MAX, &err), -1);
    assert_non_null(strstr(err.text, "18446744073709551615"));
    const unsigned char large[8] = {1, 0, 0, 2}; /* JSON_TEXT_LIMIT + 1 */
    assert_int_equal(safetensors_header_length("x", large, INT64_MAX, &err), -1);
}

/* ---- llm.c ---- */

static void put_words(unsigned char out[LLMC_HEADER], const int32_t *words, int count)
{
    memset(out, 0, LLMC_HEADER);
    for (int i = 0; i < 4 * count; i++)
        out[i] = (unsigned char)((uint32_t)words[i / 4] >> (8 * (i % 4)));
}

/* L layers of C channels. */
static int64_t llmc_elements(int64_t V, int64_t T, int64_t L, int64_t C)
{
    return V * C + T * C + L * (12 * C * C + 13 * C) + 2 * C;
}

static void a_checkpoint_of_llmc_is_read(void **state)
{
    (void)state;
    for (int version = 3; version <= 5; version += 2) {
        unsigned char header[LLMC_HEADER];
        const int32_t words[] = {LLMC_MAGIC, version, 16, 50, 2, 4, 8, 64};
        struct gpt2_config config;
        struct file_tensors read = {0};
        struct muster_error err = {0};
        int size = version == 3 ? 4 : 2;
        int64_t bytes = LLMC_HEADER + size * llmc_elements(64, 16, 2, 8);
        put_words(header, words, 8);
        assert_int_equal(llmc_parse("x.bin", header, bytes, &config, &read, &err), 0);
        assert_int_equal(config.max_positions, 16);
        assert_int_equal(config.vocab, 50);
        assert_int_equal(config.layers, 2);
        assert_int_equal(config.heads, 4);
        assert_int_equal(config.channels, 8);
        assert_int_equal(tensors_sort(&read, "x.bin", &err), 0);
        assert_int_equal(read.count, 4 + 12 * 2);
        const struct file_tensor *wte = tensors_find(&read, "wte.weight");
        assert_int_equal(wte->offset, LLMC_HEADER);
        assert_int_equal(wte->dim[0], 50); /* without the padding */
        assert_int_equal(wte->bytes, 50 * 8 * size);
        assert_int_equal(tensors_find(&read, "wpe.weight")->offset, LLMC_HEADER + 64 * 8 * size);
        const struct file_tensor *last = tensors_find(&read, "ln_f.bias");
        assert_int_equal(last->offset + last->bytes, bytes);
        const struct file_tensor *product = tensors_find(&read, "h.1.mlp.c_proj.weight");
        assert_int_equal(product->dim[0], 8);
        assert_int_equal(product->dim[1], 32);
        assert_true(product->out_in);
        assert_int_equal(product->dtype, version == 3 ? DTYPE_F32 : DTYPE_BF16);
        tensors_free(&read);
    }
}

static void a_damaged_checkpoint_of_llmc_is_an_error(void **state)
{
    (void)state;
    static const struct {
        int word;
        int32_t value;
        int64_t more; /* bytes */
        int code;
        const char *says;
    } cases[] = {
        {0, 20240327, 0, MUSTER_E_INVALID, "not a checkpoint of llm.c"},
        {1, 1, 0, MUSTER_E_UNSUPPORTED, "version 1"},
        {1, 5, 0, MUSTER_E_INVALID, "the file at"}, /* half as many bytes */
        {2, 0, 0, MUSTER_E_INVALID, "max_positions is 0"},
        {2, -1, 0, MUSTER_E_INVALID, "max_positions is -1"},
        {3, 1, 0, MUSTER_E_INVALID, "vocab is 1"},
        {4, 2000000000, 0, MUSTER_E_INVALID, "layers is 2000000000"},
        {4, 1024, 0, MUSTER_E_INVALID, "cut off"},
        {5, 0, 0, MUSTER_E_INVALID, "heads is 0"},
        {6, 65537, 0, MUSTER_E_INVALID, "channels is 65537"},
        {6, 65536, 0, MUSTER_E_INVALID, "cut off"},
        {7, 49, 0, MUSTER_E_INVALID, "padded vocabulary is 49"},
        {7, INT32_MAX, 0, MUSTER_E_INVALID, "padded vocabulary is"},
        {0, LLMC_MAGIC, -1, MUSTER_E_INVALID, "cut off"},
        {0, LLMC_MAGIC, 1, MUSTER_E_INVALID, "end at byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char header[LLMC_HEADER];
        int32_t words[] = {LLMC_MAGIC, 3, 16, 50, 2, 4, 8, 64};
        struct gpt2_config config;
        struct file_tensors read = {0};
        struct muster_error err = {0};
        words[cases[i].word] = cases[i].value;
        put_words(header, words, 8);
        int64_t bytes = LLMC_HEADER + 4 * llmc_elements(64, 16, 2, 8) + cases[i].more;
        int result = llmc_parse("x.bin", header, bytes, &config, &read, &err);
        if (result != -1 || (int)err.code != cases[i].code || !strstr(err.text, cases[i].says))
            fail_msg("case %zu: %d %s", i, result, err.text);
        tensors_free(&read);
    }
}

/* ---- elements ---- */

static void all_halves_are_converted_as_the_reference_does(void **state)
{
    (void)state;
    static const enum dtype halves[] = {DTYPE_BF16, DTYPE_F16};
    for (int h = 0; h < 2; h++) {
        for (uint32_t bits = 0; bits < 65536; bits++) {
            uint16_t half = (uint16_t)bits;
            float found, wanted;
            elements_convert(&found, DTYPE_F32, &half, halves[h], 1);
            kernels_ref_f32()->cast(&wanted, DTYPE_F32, &half, halves[h], 1, NULL);
            if (isnan(wanted) ? !isnan(found) : memcmp(&found, &wanted, sizeof found) != 0)
                fail_msg("%s 0x%04x is %g, not %g", dtype_name(halves[h]), bits, (double)found,
                         (double)wanted);
        }
    }
}

static void floats_are_rounded_to_bf16_as_the_reference_does(void **state)
{
    (void)state;
    uint32_t bits = 1;
    for (int i = 0; i < 200000; i++) {
        bits = bits * 1664525u + 1013904223u;
        uint32_t tried = i % 3 ? bits : (bits & 0xffff0000u) | 0x8000u; /* ties */
        uint16_t found, wanted;
        elements_convert(&found, DTYPE_BF16, &tried, DTYPE_F32, 1);
        kernels_ref_f32()->cast(&wanted, DTYPE_BF16, &tried, DTYPE_F32, 1, NULL);
        bool nan = (tried & 0x7fffffffu) > 0x7f800000u;
        if (nan ? (found & 0x7fffu) <= 0x7f80u : found != wanted)
            fail_msg("0x%08x is 0x%04x, not 0x%04x", tried, found, wanted);
    }
    const double third = 1.0 / 3;
    float narrow;
    elements_convert(&narrow, DTYPE_F32, &third, DTYPE_F64, 1);
    assert_true(narrow == (float)third);
}

static void a_part_of_a_matrix_is_transposed(void **state)
{
    (void)state;
    enum { ROWS = 70, COLUMNS = 45, PART = 33, FIRST = 7, STRIDE = 80 };
    for (int size = 2; size <= 8; size *= 2) {
        static unsigned char from[ROWS * COLUMNS * 8], to[PART * STRIDE * 8];
        for (size_t i = 0; i < sizeof from; i++)
            from[i] = (unsigned char)(i * 31 ^ i >> 8);
        memset(to, 0xee, sizeof to);
        elements_transpose(to, STRIDE, from + (ptrdiff_t)FIRST * size, COLUMNS, ROWS, PART, size);
        for (int c = 0; c < PART; c++) {
            for (int r = 0; r < ROWS; r++)
                assert_memory_equal(to + (ptrdiff_t)(c * STRIDE + r) * size,
                                    from + (ptrdiff_t)(r * COLUMNS + FIRST + c) * size, size);
            assert_int_equal(to[(c * STRIDE + ROWS) * size], 0xee); /* the bytes next to it stay */
        }
    }
}

/* ---- archives ---- */

static void checksums_are_those_of_zip(void **state)
{
    (void)state;
    struct crc32 crc;
    crc32_make(&crc);
    assert_int_equal(crc32_add(&crc, 0, "123456789", 9), 0xcbf43926u);
    assert_int_equal(crc32_add(&crc, crc32_add(&crc, 0, "1", 1), "23456789", 8), 0xcbf43926u);
    assert_int_equal(crc32_add(&crc, 0, "", 0), 0);
}

static uint64_t little(const char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)(unsigned char)at[i] << (8 * i);
    return value;
}

/* Members beyond 4 GB need the wide forms of every record; none of their bytes is needed to see that. */
static void large_archives_have_wide_records(void **state)
{
    (void)state;
    struct zip zip = {0};
    struct muster_error err = {0};
    const int64_t large = INT64_C(5) << 30;
    assert_int_equal(zip_add(&zip, "m/a", 3, 64, &err), 0);
    assert_int_equal(zip_add(&zip, "m/large", large, 64, &err), 1);
    assert_int_equal(zip_add(&zip, "m/b", 0xfffffffe, 1, &err), 2);
    scope_buffer header = {0}, directory = {0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(zip.member[i].data % (i < 2 ? 64 : 1), 0);
        buffer_clear(&header);
        assert_int_equal(zip_header(&zip.member[i], &header), 0);
        assert_int_equal((int64_t)header.length, zip.member[i].data - zip.member[i].header);
    }
    buffer_clear(&header);
    assert_int_equal(zip_header(&zip.member[1], &header), 0);
    assert_int_equal(little(header.data + 18, 4), 0xffffffff);
    assert_int_equal(little(header.data + 30 + 7, 2), 1); /* the 64-bit extra field comes first */
    assert_int_equal(little(header.data + 30 + 7 + 4, 8), (uint64_t)large);
    assert_int_equal(zip_directory(&zip, &directory), 0);
    const char *end = directory.data + directory.length - 22;
    assert_int_equal(little(end, 4), 0x06054b50);
    assert_int_equal(little(end + 10, 2), 3);
    assert_int_equal(little(end + 16, 4), 0xffffffff);
    assert_int_equal(little(end - 20, 4), 0x07064b50);
    uint64_t size = directory.length - 22 - 20 - 56;
    assert_int_equal(little(end - 20 + 8, 8), (uint64_t)zip.end + size);
    assert_int_equal(little(end - 76, 4), 0x06064b50);
    assert_int_equal(little(end - 76 + 40, 8), size);
    assert_int_equal(little(end - 76 + 48, 8), (uint64_t)zip.end);
    const char *third = directory.data + (46 + 3) + (46 + 7 + 20);
    assert_int_equal(little(third, 4), 0x02014b50);
    assert_int_equal(little(third + 42, 4), 0xffffffff); /* begins beyond 4 GB */
    assert_int_equal(little(third + 46 + 3 + 2, 2), 8);
    assert_int_equal(little(third + 46 + 3 + 4, 8), (uint64_t)zip.member[2].header);
    zip_free(&zip);
}

static void a_pickle_has_types_that_pytorch_has(void **state)
{
    (void)state;
    struct muster_error err = {0};
    scope_buffer out = {0};
    struct file_tensor tensor = {.name = "t", .dtype = DTYPE_U8, .ndim = 1, .dim = {3}};
    assert_int_equal(pickle_state_dict(&tensor, 1, NULL, 0, &out, &err), -1);
    assert_int_equal(err.code, MUSTER_E_UNSUPPORTED);
    buffer_clear(&out);
    tensor.dtype = DTYPE_BF16;
    tensor.dim[0] = INT64_C(1) << 33; /* more elements than 32 bits count */
    assert_int_equal(pickle_state_dict(&tensor, 1, "u", 0, &out, &err), 0);
    assert_non_null(memmem(out.data, out.length, "\x8a\x08\0\0\0\0\x02\0\0\0", 10));
    assert_non_null(memmem(out.data, out.length, "BFloat16Storage", 15));
}

/* PyTorch's num_batches_tracked. */
static void an_int64_is_read_as_one(void **state)
{
    struct muster_error err = {0};
    struct file_tensor count = {.name = "n", .dtype = DTYPE_COUNT, .integer = true, .bytes = 8};
    scope_buffer text = {0};
    struct file_tensors read = {0};
    (void)state;
    assert_true(safetensors_format(&count, 1, NULL, &text, &err) > 0);
    assert_non_null(memmem(text.data, text.length, "\"I64\"", 5));
    const size_t head = text.length - SAFETENSORS_LENGTH;
    assert_int_equal(safetensors_parse("n", text.data + SAFETENSORS_LENGTH, head, (int64_t)text.length + 8, 0,
                                       &read, &err),
                     0);
    assert_true(read.item[0].integer && read.item[0].ndim == 0 && read.item[0].bytes == 8);
    tensors_free(&read);
    const int64_t whole[] = {0, 1, 390625, -7};
    float floats[4];
    int64_t again[4];
    elements_from_integers(floats, DTYPE_F32, whole, 4);
    elements_to_integers(again, floats, DTYPE_F32, 4);
    assert_memory_equal(again, whole, sizeof whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(hostile_headers_are_errors),
        cmocka_unit_test(types_of_no_parameter_are_described),
        cmocka_unit_test(the_length_of_a_header_is_checked),
        cmocka_unit_test(a_checkpoint_of_llmc_is_read),
        cmocka_unit_test(a_damaged_checkpoint_of_llmc_is_an_error),
        cmocka_unit_test(all_halves_are_converted_as_the_reference_does),
        cmocka_unit_test(floats_are_rounded_to_bf16_as_the_reference_does),
        cmocka_unit_test(a_part_of_a_matrix_is_transposed),
        cmocka_unit_test(checksums_are_those_of_zip),
        cmocka_unit_test(large_archives_have_wide_records),
        cmocka_unit_test(a_pickle_has_types_that_pytorch_has),
        cmocka_unit_test(an_int64_is_read_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
