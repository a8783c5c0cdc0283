/* identity_test.c - the settings and files that determine the samples, as text, and differences between two
 * texts. */
#include <stdio.h>
#include <string.h>

#include "tests/support/cmocka_all.h"
#include "trainer/data/identity.h"

static void expect_difference(const char *written, const char *now, const char *says)
{
    scope_buffer out = {0};
    assert_int_equal(identity_compare(written, now, &out), 0);
    assert_string_equal(out.data ? out.data : "", says);
}

static void a_difference_is_named(void **state)
{
    (void)state;
    expect_difference("", "", "");
    expect_difference("a=1\nb=2\n", "a=1\nb=2\n", "");
    expect_difference("a=1\nb=2\n", "b=2\na=1\n", ""); /* the order is no difference */
    expect_difference("a=1\nb=2\n", "a=1\nb=22\n", "b is 22, and was 2");
    expect_difference("a=1\nb=2\n", "a=1\n", "b is gone");
    expect_difference("a=1\n", "a=1\nb=2\n", "b is new");
    expect_difference("x=y=1\n", "x=y=2\n", "x=y is 2, and was 1"); /* a file's name may have the sign */
    expect_difference("a=1\nab=1\n", "ab=1\n", "a is gone");
    expect_difference("a=1\nb=1\nc=1\n", "d=1\ne=1\n",
                      "a is gone; b is gone; c is gone; d is new; and 1 more");
}

static void damaged_text_is_no_crash(void **state)
{
    (void)state;
    expect_difference("a", "a", "");
    expect_difference("\n\n=\n", "\n\n=\n", "");
    expect_difference("=1", "", " is gone");
    expect_difference("\n", "b", " is gone; b is new");
    expect_difference("a", "ab\n", "a is gone; ab is new");
}

static void files_are_known_by_size_and_ends(void **state)
{
    (void)state;
    struct walk_file files[] = {
        {.path = (char[]){"/data/x/a\nb"}, .bytes = 10, .ends = 1, .mtime_ns = 5},
        {.path = (char[]){"/data/x/c=d"}, .bytes = 20, .ends = 2, .mtime_ns = 6},
    };
    const struct walk walk = {.file = files, .count = 2, .capacity = 2};
    scope_buffer first = {0}, second = {0}, third = {0};
    identity_add_files(&first, "data", "/data/x", &walk);
    assert_non_null(strstr(first.data, "data=2 files of 30 bytes ("));
    assert_non_null(strstr(first.data, "\ndata file a?b=10 bytes ("));
    assert_non_null(strstr(first.data, "\ndata file c=d=20 bytes ("));
    files[0].path = (char[]){"/mnt/a\nb"}; /* another node: other path, other times */
    files[1].path = (char[]){"/mnt/c=d"};
    files[0].mtime_ns = 0;
    identity_add_files(&second, "data", "/mnt/", &walk);
    expect_difference(first.data, second.data, "");
    files[1].ends = 3;
    identity_add_files(&third, "data", "/mnt", &walk);
    scope_buffer out = {0};
    assert_int_equal(identity_compare(second.data, third.data, &out), 0);
    assert_non_null(strstr(
        out.data, "data file c=d is 20 bytes (0000000000000003), and was 20 bytes (0000000000000002)"));
    assert_null(strstr(out.data, "a?b"));
}

/* With many files, the source's line covers the files without a line. */
static void many_files_have_one_line_more(void **state)
{
    (void)state;
    enum { FILES = IDENTITY_FILES + 10 };
    static struct walk_file files[FILES];
    static char paths[FILES][32];
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(paths[i], sizeof paths[i], "/d/%d", i);
        files[i] = (struct walk_file){.path = paths[i], .bytes = 1};
    }
    const struct walk walk = {.file = files, .count = FILES, .capacity = FILES};
    scope_buffer before = {0}, after = {0}, out = {0};
    identity_add_files(&before, "data", "/d", &walk);
    files[FILES - 1].ends = 9;
    identity_add_files(&after, "data", "/d", &walk);
    assert_int_equal(identity_compare(before.data, after.data, &out), 0);
    assert_non_null(strstr(out.data, "data is 74 files of 74 bytes ("));
    assert_null(strstr(out.data, ";"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_difference_is_named),
        cmocka_unit_test(damaged_text_is_no_crash),
        cmocka_unit_test(files_are_known_by_size_and_ends),
        cmocka_unit_test(many_files_have_one_line_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
