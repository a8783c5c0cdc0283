/* base_library_test.c - shared libraries loaded on demand: the table is whole or empty, and errors name what
 * is missing. The library is libc's own libm. */
#include <dlfcn.h>
#include <string.h>

#include "proto/base/library.h"
#include "tests/support/cmocka_all.h"

#define FILE_NAME "libm.so.6"

struct calls {
    double (*cosine)(double);
    double (*root)(double);
    void (*extra)(void);
};

static struct library library_of(const char *file, const struct library_function *functions, size_t count)
{
    return (struct library){
        .file = file, .needs = "a test needs it (package testing)", .functions = functions, .count = count};
}

static const struct library_function whole[] = {
    {"cos", offsetof(struct calls, cosine), false, NULL},
    {"sqrt", offsetof(struct calls, root), false, NULL},
    {"muster_none", offsetof(struct calls, extra), true, NULL},
};

static double never(double value)
{
    return value - 1;
}

static void the_table_is_filled_once(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct calls calls = {0};
    struct library library = library_of(FILE_NAME, whole, 3);
    assert_int_equal(library_load(&library, &calls, NULL, &err), 0);
    assert_true(calls.cosine(0) == 1 && calls.root(9) == 3);
    assert_null(calls.extra);
    calls.root = never; /* a second look-up would put sqrt here again */
    assert_int_equal(library_load(&library, &calls, NULL, &err), 0);
    assert_ptr_equal(calls.root, never);
}

static void a_handle_is_given_to_who_asks(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct calls calls = {0};
    void *handle = NULL;
    struct library library = library_of(FILE_NAME, whole, 3);
    assert_int_equal(library_load(&library, &calls, &handle, &err), 0);
    assert_non_null(handle);
    assert_int_equal(dlclose(handle), 0);
}

static void a_missing_function_leaves_no_slot_filled(void **state)
{
    (void)state;
    static const struct library_function functions[] = {
        {"cos", offsetof(struct calls, cosine), false, NULL},
        {"muster_none", offsetof(struct calls, extra), false, NULL},
        {"sqrt", offsetof(struct calls, root), false, NULL},
    };
    struct muster_error err = {0};
    struct calls calls = {0};
    void *handle = NULL;
    struct library library = library_of(FILE_NAME, functions, 3);
    assert_int_equal(library_load(&library, &calls, &handle, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    assert_string_equal(err.text, "a test needs it (package testing): " FILE_NAME
                                  " has no function muster_none, another version is needed");
    assert_true(!calls.cosine && !calls.root && !calls.extra && !handle);
}

static void a_missing_library_is_named(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct calls calls = {0};
    struct library library = library_of("libmuster-none.so.1", whole, 3);
    assert_int_equal(library_load(&library, &calls, NULL, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "a test needs it (package testing): libmuster-none.so.1: "));
    assert_null(calls.cosine);
}

static double stand_in(double value)
{
    return -value;
}

/* As in a bundle: no file is looked for. */
static void what_is_linked_is_taken(void **state)
{
    static const struct library_function functions[] = {
        {"cos", offsetof(struct calls, cosine), false, (void (*)(void))stand_in},
        {"sqrt", offsetof(struct calls, root), false, (void (*)(void))stand_in},
    };
    struct library library = library_of("/nonexistent", functions, 2);
    struct calls calls = {0};
    (void)state;
    assert_int_equal(library_load(&library, &calls, NULL, NULL), 0);
    assert_true(calls.cosine(1) == -1 && calls.root(4) == -4);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_filled_once),
        cmocka_unit_test(a_handle_is_given_to_who_asks),
        cmocka_unit_test(a_missing_function_leaves_no_slot_filled),
        cmocka_unit_test(a_missing_library_is_named),
        cmocka_unit_test(what_is_linked_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
