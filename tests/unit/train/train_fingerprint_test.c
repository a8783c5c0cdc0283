/* The numerics fingerprint: text and back, and the field that differs is named. Also the reading of how much
 * memory there is, which is a few pure functions on text. */
#include "tests/support/cmocka_all.h"

#include "runtime/device/host_memory.h"
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

static void bad_text_is_refused(void **state)
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

static void memory_rows(void **state)
{
    (void)state;
    const char *meminfo = "MemTotal:       16000 kB\nMemAvailable:    8000 kB\nHugePages_Total:       3\n";
    assert_int_equal(host_memory_row(meminfo, "MemAvailable"), 8000 * 1024);
    assert_int_equal(host_memory_row(meminfo, "HugePages_Total"), 3);
    assert_int_equal(host_memory_row(meminfo, "Mem"), -1);
    assert_int_equal(host_memory_row("anon 5\ninactive_file 77\n", "inactive_file"), 77);
    assert_int_equal(host_memory_row("", "x"), -1);
}

static void memory_of_a_control_group(void **state)
{
    (void)state;
    assert_int_equal(host_memory_cgroup("1000\n", "400\n", NULL), 600);
    assert_int_equal(host_memory_cgroup("1000\n", "400\n", "inactive_file 100\n"), 700);
    assert_int_equal(host_memory_cgroup("1000\n", "1400\n", NULL), 0);
    assert_int_equal(host_memory_cgroup("1000\n", "10\n", "inactive_file 100\n"), 1000);
    assert_int_equal(host_memory_cgroup("max\n", "400\n", NULL), -1);
    assert_int_equal(host_memory_cgroup("9223372036854771712\n", "400\n", NULL), -1);
    assert_int_equal(host_memory_cgroup("1000\n", "", NULL), -1);
    assert_true(host_memory_available() > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(the_differing_field_is_named),
        cmocka_unit_test(bad_text_is_refused),
        cmocka_unit_test(memory_rows),
        cmocka_unit_test(memory_of_a_control_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
