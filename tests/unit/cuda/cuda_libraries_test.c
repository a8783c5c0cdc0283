/* cuda_libraries_test.c - tables of NVIDIA's libraries: each way in which a library is missing, old or not
 * its error is one sentence, and no function stays loaded. The library is libc's own libm. */
#include <stdio.h>
#include <string.h>

#include "runtime/cuda/libraries.h"
#include "tests/support/cmocka_all.h"

struct calls {
    double (*cosine)(double);
    double (*root)(double);
    double (*cube)(double);
};
static int library_version;   /* the library's answer */
static int library_is_silent; /* it does not say */
static const char *from = "the test needs Maths (apt: libc6)";

static int version_of(const void *calls, int *version, struct muster_error *err)
{
    const struct calls *c = calls;
    assert_true(c->cosine(0) == 1); /* a function of every version is filled already */
    *version = library_version;
    if (library_is_silent && err)
        (void)snprintf(err->text, sizeof err->text, "it does not say");
    return library_is_silent ? -1 : 0;
}

static void version_text(int version, char *text, size_t size)
{
    (void)snprintf(text, size, "%d.%d", version / 100, version % 100);
}

/* cos is always there, sqrt since `root_since`, the third is a function `cube` since `cube_since`. */
static int open_table(const char *file, const char *cube, int root_since, int cube_since, struct calls *calls,
                      int *version, struct muster_error *err)
{
    const struct cuda_library_function rows[] = {
        CUDA_LIBRARY_ROW(struct calls, cosine, cos, 0),
        CUDA_LIBRARY_ROW(struct calls, root, sqrt, root_since),
        {cube, offsetof(struct calls, cube), cube_since},
    };
    const struct cuda_library library = {.name = "Maths",
                                         .file = file,
                                         .from = from,
                                         .functions = rows,
                                         .count = 3,
                                         .oldest = 205,
                                         .version = version_of,
                                         .version_text = version_text};
    return cuda_library_open(&library, calls, sizeof *calls, version, err);
}

static void assert_empty(const struct calls *calls)
{
    static const struct calls none;
    assert_memory_equal(calls, &none, sizeof none);
}

static int set_up(void **state)
{
    (void)state;
    library_version = 228;
    library_is_silent = 0;
    return 0;
}

static void a_newer_function_is_left_out_of_an_older_library(void **state)
{
    (void)state;
    struct calls calls = {0};
    struct muster_error err = {0};
    int version = 0;
    assert_int_equal(open_table("libm.so.6", "muster_none", 206, 229, &calls, &version, &err), 0);
    assert_int_equal(version, 228);
    assert_true(calls.cosine(0) == 1 && calls.root(9) == 3);
    assert_null(calls.cube);
    memset(&calls, 0, sizeof calls); /* there by accident, before its version: not used either */
    assert_int_equal(open_table("libm.so.6", "cbrt", 206, 229, &calls, NULL, &err), 0);
    assert_null(calls.cube);
    memset(&calls, 0, sizeof calls);
    assert_int_equal(open_table("libm.so.6", "cbrt", 206, 228, &calls, NULL, &err), 0);
    assert_true(calls.cube(27) > 2.99 && calls.cube(27) < 3.01);
}

static void a_missing_library_is_named(void **state)
{
    (void)state;
    struct calls calls = {0};
    struct muster_error err = {0};
    assert_int_equal(open_table("libmuster_none.so.3", "cbrt", 0, 0, &calls, NULL, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    assert_non_null(strstr(err.text, from));
    assert_non_null(strstr(err.text, "libmuster_none.so.3"));
    assert_empty(&calls);
}

static void an_old_library_is_refused_with_both_versions(void **state)
{
    (void)state;
    struct calls calls = {0};
    struct muster_error err = {0};
    library_version = 204;
    assert_int_equal(open_table("libm.so.6", "cbrt", 0, 0, &calls, NULL, &err), -1);
    assert_int_equal(err.code, MUSTER_E_UNSUPPORTED);
    assert_string_equal(
        err.text, "the test needs Maths (apt: libc6): libm.so.6 is Maths 2.4, and 2.5 or later is needed");
    assert_empty(&calls);
}

static void a_function_that_its_version_has_must_be_there(void **state)
{
    (void)state;
    struct calls calls = {0};
    struct muster_error err = {0};
    assert_int_equal(open_table("libm.so.6", "muster_none", 0, 0, &calls, NULL, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "muster_none"));
    assert_empty(&calls);
    assert_int_equal(open_table("libm.so.6", "muster_none", 0, 228, &calls, NULL, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    assert_string_equal(err.text,
                        "the test needs Maths (apt: libc6): libm.so.6 claims to be Maths 2.28, but has no "
                        "function muster_none: install it anew");
    assert_empty(&calls);
}

static void a_library_that_does_not_say_its_version_is_refused(void **state)
{
    (void)state;
    struct calls calls = {0};
    struct muster_error err = {0};
    library_is_silent = 1;
    assert_int_equal(open_table("libm.so.6", "cbrt", 0, 0, &calls, NULL, &err), -1);
    assert_string_equal(err.text,
                        "the test needs Maths (apt: libc6): the version of libm.so.6: it does not say");
    assert_empty(&calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_newer_function_is_left_out_of_an_older_library, set_up),
        cmocka_unit_test_setup(a_missing_library_is_named, set_up),
        cmocka_unit_test_setup(an_old_library_is_refused_with_both_versions, set_up),
        cmocka_unit_test_setup(a_function_that_its_version_has_must_be_there, set_up),
        cmocka_unit_test_setup(a_library_that_does_not_say_its_version_is_refused, set_up),
    };
    return cmocka_run_group_tests_name("cuda_libraries", tests, NULL, NULL);
}
