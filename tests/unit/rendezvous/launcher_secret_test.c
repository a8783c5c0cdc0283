/* muster secret: its secrets and its reports about files; secret_file.h: who may read the file. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/commands/commands.h"
#include "rendezvous/security/secret_file.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

enum { ME = 1000, ROOT = 0 };

static void exposure_is_by_mode_and_owner(void **state)
{
    (void)state;
    assert_int_equal(secret_file_exposure(0600, ME, ME), SECRET_PRIVATE);
    assert_int_equal(secret_file_exposure(0400, ME, ME), SECRET_PRIVATE);
    assert_int_equal(secret_file_exposure(0640, ME, ME), SECRET_OPEN_TO_GROUP);
    assert_int_equal(secret_file_exposure(0620, ME, ME), SECRET_OPEN_TO_GROUP);
    assert_int_equal(secret_file_exposure(0440, ROOT, ME), SECRET_PRIVATE); /* a Secret volume with fsGroup */
    assert_int_equal(secret_file_exposure(0444, ROOT, ME), SECRET_OPEN_TO_ALL);
    assert_int_equal(secret_file_exposure(0602, ME, ME), SECRET_OPEN_TO_ALL);
    assert_int_equal(secret_file_exposure(0644, ME, ME), SECRET_OPEN_TO_ALL);
}

static int call(char *const argv[], struct buffer *out, struct buffer *complaint)
{
    int argc = 0;
    while (argv[argc])
        argc++;
    buffer_clear(out);
    buffer_clear(complaint);
    return secret_command(argc, argv, out, complaint);
}

static void a_fresh_secret_is_one_line_and_never_the_same(void **state)
{
    (void)state;
    scope_buffer first = {0}, second = {0}, complaint = {0};
    struct job_secret secret;
    char *none[] = {NULL};
    assert_int_equal(call(none, &first, &complaint), 0);
    assert_int_equal(call(none, &second, &complaint), 0);
    assert_int_equal(first.length, SECRET_TEXT_SIZE);
    assert_int_equal(first.data[first.length - 1], '\n');
    assert_int_equal(secret_parse(first.data, first.length, &secret, NULL), 0);
    assert_string_not_equal(first.data, second.data);
    assert_int_equal(complaint.length, 0);
}

static void the_manifest_is_what_kubectl_takes(void **state)
{
    (void)state;
    scope_buffer out = {0};
    struct job_secret secret = {{0xab}};
    assert_int_equal(secret_manifest(&secret, "job-secret", "training", &out, NULL), 0);
    assert_string_equal(
        out.data,
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: \"job-secret\"\n  namespace: \"training\"\n"
        "type: Opaque\nstringData:\n"
        "  secret: \"muster-secret-1:ab00000000000000000000000000000000000000000000000000000000000000\"\n");
}

static void names_that_kubernetes_rejects_are_rejected(void **state)
{
    (void)state;
    static const char *const bad[] = {"",   "Upper", "-a",   "a-",   "a b",  "a_b",     "a..b",
                                      ".a", "a.",    "a-.b", "a.-b", "a\"b", "a\nb: c", "\xc3\xa4"};
    static const char *const good[] = {"a", "a-b", "job.secret", "0", "a--b", "x9.y-1.z"};
    struct job_secret secret = {{0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        scope_buffer out = {0};
        struct muster_error err = {0};
        assert_int_equal(secret_manifest(&secret, bad[i], NULL, &out, &err), -1);
        assert_int_equal(err.code, MUSTER_E_INVALID);
        assert_int_equal(out.length, 0);
        assert_int_equal(secret_manifest(&secret, "a", bad[i], &out, NULL), -1);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        scope_buffer out = {0};
        assert_int_equal(secret_manifest(&secret, good[i], NULL, &out, NULL), 0);
    }
    scope_buffer out = {0};
    assert_int_equal(secret_manifest(&secret, "a", "a.b", &out, NULL), -1); /* a namespace is one label */
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void check_says_what_a_file_holds(void **state)
{
    (void)state;
    static const char good[] =
        "muster-secret-1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
    char folder[FOLDER_PATH], path[64];
    scope_buffer out = {0}, complaint = {0}, large = {0};
    assert_int_equal(folder_make(folder, "secret"), 0);
    (void)snprintf(path, sizeof path, "%s/secret", folder);
    char *argv[] = {(char *)"--check", path, NULL};

    assert_int_equal(call(argv, &out, &complaint), 1);
    assert_non_null(strstr(complaint.data, "No such file"));
    write_file(path, good, 0600);
    assert_int_equal(call(argv, &out, &complaint), 0);
    assert_non_null(strstr(out.data, "holds a job secret"));
    assert_int_equal(complaint.length, 0);
    write_file(path, good, 0644);
    assert_int_equal(call(argv, &out, &complaint), 0);
    assert_non_null(strstr(complaint.data, "has mode 0644, every user of this machine"));
    write_file(path, "replace-me\n", 0600);
    assert_int_equal(call(argv, &out, &complaint), 1);
    assert_non_null(strstr(complaint.data, "holds no job secret"));
    for (int i = 0; i < 100000; i++)
        buffer_text(&large, "x");
    write_file(path, large.data, 0600);
    assert_int_equal(call(argv, &out, &complaint), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes it: must not wait */
    assert_int_equal(call(argv, &out, &complaint), 1);
    assert_non_null(strstr(complaint.data, "not a regular file"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void bad_usage_is_2(void **state)
{
    (void)state;
    scope_buffer out = {0}, complaint = {0};
    char *rows[][3] = {{(char *)"more", NULL},
                       {(char *)"--nonsense", NULL},
                       {(char *)"--output=yaml", NULL},
                       {(char *)"--output=kubernetes", (char *)"--name=Bad", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(call(rows[i], &out, &complaint), 2);
        assert_int_equal(out.length, 0);
        assert_non_null(strstr(complaint.data, "muster secret: error: "));
    }
    char *help[] = {(char *)"--help", NULL};
    assert_int_equal(call(help, &out, &complaint), 0);
    assert_non_null(strstr(out.data, "--check"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exposure_is_by_mode_and_owner),
        cmocka_unit_test(a_fresh_secret_is_one_line_and_never_the_same),
        cmocka_unit_test(the_manifest_is_what_kubectl_takes),
        cmocka_unit_test(names_that_kubernetes_rejects_are_rejected),
        cmocka_unit_test(check_says_what_a_file_holds),
        cmocka_unit_test(bad_usage_is_2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
