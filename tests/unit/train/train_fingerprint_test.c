/* The numerics fingerprint: text and back, and the field that differs is named. Also the reading of how much
 * memory there is, which is a few pure functions on text. */
#include "tests/support/cmocka_all.h"

#include "runtime/train/fingerprint.h"

static const struct fingerprint sample = {
    .world_size = 2,
    .mesh_pipeline = 1,
    .mesh_replicate = 1,
    .mesh_shard = 2,
    .threads = 3,
    .batch = 4,
    .positions = 64,
    .micro_batches = 5,
    .strategy = "FULL_SHARD",
    .kernels = "cpu-avx2 f32",
    .dtypes = "f32, reduced in f32",
    .embedding = "rows of embedding",
    .blas = "OpenBLAS 0.3.21 = Zen",
    .comm = "host, sum in rank order",
};

static void text_and_back(void **state)
{
    (void)state;
    scope_buffer text = {0};
    struct fingerprint read;
    struct muster_error err = {0};
    assert_int_equal(fingerprint_format(&sample, &text), 0);
    assert_int_equal(fingerprint_parse(text.data, &read, &err), 0);
    assert_int_equal(fingerprint_compare(&sample, &read, &err), 0);
    assert_string_equal(read.blas, sample.blas);
}

/* What older versions wrote is read: its missing field is another value than any of today's. */
static void a_text_without_the_embedding_is_read(void **state)
{
    (void)state;
    scope_buffer text = {0};
    struct fingerprint read;
    struct muster_error err = {0};
    assert_int_equal(fingerprint_format(&sample, &text), 0);
    char *field = strstr(text.data, "embedding=");
    memmove(field, strchr(field, '\n') + 1, strlen(strchr(field, '\n') + 1) + 1);
    assert_int_equal(fingerprint_parse(text.data, &read, &err), 0);
    assert_string_equal(read.embedding, "not recorded");
    assert_int_equal(fingerprint_compare(&sample, &read, &err), -1);
    assert_non_null(strstr(err.text, "expected rows of embedding, found not recorded"));
}

static void the_differing_field_is_named(void **state)
{
    (void)state;
    struct muster_error err = {0};
#define DIFFERS_NUMBER(name, meaning)                                                                        \
    {                                                                                                        \
        struct fingerprint other = sample;                                                                   \
        other.name += 7;                                                                                     \
        assert_int_equal(fingerprint_compare(&sample, &other, &err), -1);                                    \
        assert_int_equal(err.code, MUSTER_E_REFUSED);                                                        \
        assert_non_null(strstr(err.text, "in " #name " ("));                                                 \
    }
#define DIFFERS_TEXT(name, meaning)                                                                          \
    {                                                                                                        \
        struct fingerprint other = sample;                                                                   \
        other.name[0] = '!';                                                                                 \
        assert_int_equal(fingerprint_compare(&sample, &other, &err), -1);                                    \
        assert_non_null(strstr(err.text, "in " #name " ("));                                                 \
        assert_non_null(strstr(err.text, other.name));                                                       \
    }
    FINGERPRINT_NUMBERS(DIFFERS_NUMBER)
    FINGERPRINT_TEXTS(DIFFERS_TEXT)
#undef DIFFERS_NUMBER
#undef DIFFERS_TEXT
}

static void bad_text_is_rejected(void **state)
{
    (void)state;
    static const struct {
        const char *text, *names;
    } bad[] = {
        {"", "world_size"},
        {"world_size=2\n", "mesh_pipeline"},
        {"colour=red\n", "colour"},
        {"world_size\n", "world_size"},
        {"world_size=two\n", "two"},
        {"world_size=-1\n", "-1"},
        {"world_size=99999999999\n", "99999999999"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fingerprint read = sample;
        struct muster_error err = {0};
        assert_int_equal(fingerprint_parse(bad[i].text, &read, &err), -1);
        assert_int_equal(err.code, MUSTER_E_INVALID);
        assert_non_null(strstr(err.text, bad[i].names));
        assert_int_equal(fingerprint_compare(&sample, &read, NULL), 0); /* untouched */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(a_text_without_the_embedding_is_read),
        cmocka_unit_test(the_differing_field_is_named),
        cmocka_unit_test(bad_text_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
