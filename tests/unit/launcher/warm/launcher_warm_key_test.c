/* launcher_warm_key_test.c - for which jobs a kept template is, and in which folder it listens. The
 * processes: tests/e2e/warm/keep_test.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/warm/warm_kept.h"
#include "launcher/warm/warm_key.h"
#include "proto/base/guard.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

static void passing_variables(void **state)
{
    static const char *const passing[] = {"RANK=0",          "MASTER_ADDR=x",  "MUSTER_AGENT_ID=1", "PWD=/",
                                          "TORCHELASTIC_X=", "SSH_CLIENT=1 2", "_=/bin/x",          "TMUX=1"};
    static const char *const kept[] = {"RANKS=0", "PYTHONPATH=/x", "LD_PRELOAD=", "OMP_NUM_THREADS=1",
                                       "_X=1",    "PWDX=/",        "MUSTER=1",    "TORCH_HOME=/"};
    (void)state;
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        assert_true(warm_key_is_passing(passing[i]));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        assert_false(warm_key_is_passing(kept[i]));
}

static void the_environment(void **state)
{
    char *const all[] = {"Z=1", "RANK=3", "A=2", "PWD=/", "B=", NULL};
    scope_text_list out = {0};
    (void)state;
    assert_int_equal(warm_key_environment(all, &out), 0);
    assert_int_equal(out.count, 3);
    assert_string_equal(out.items[0], "A=2");
    assert_string_equal(out.items[1], "B=");
    assert_string_equal(out.items[2], "Z=1");
}

#define DIFFERENCE(a, b, field, size) warm_key_difference(a, sizeof(a) - 1, b, sizeof(b) - 1, field, size)

static void differences(void **state)
{
    char field[32], small[6];
    (void)state;
    DIFFERENCE("x=1\0variable A=2\0", "x=1\0variable A=2\0", field, sizeof field);
    assert_string_equal(field, "");
    DIFFERENCE("variable A=2\0x=1\0", "x=1\0variable A=2\0", field, sizeof field); /* in another order */
    assert_string_equal(field, "");
    DIFFERENCE("x=1\0variable A=2\0", "x=1\0variable A=3\0", field, sizeof field);
    assert_string_equal(field, "variable A");
    DIFFERENCE("x=1\0", "x=1\0variable B=3\0", field, sizeof field); /* the other has more */
    assert_string_equal(field, "variable B");
    DIFFERENCE("x=1\0variable B=3\0", "x=1\0", field, sizeof field);
    assert_string_equal(field, "variable B");
    DIFFERENCE("x=1=2\0", "x=1=3\0", field, sizeof field); /* up to the first sign */
    assert_string_equal(field, "x");
    DIFFERENCE("variable A=2\0", "variable AB=2\0", field, sizeof field);
    assert_string_equal(field, "variable A");
    DIFFERENCE("variable A=2\0", "", small, sizeof small);
    assert_string_equal(small, "varia");
}

static void key_of(struct warm_key_subject subject, struct buffer *key)
{
    struct muster_error err = {0};
    buffer_clear(key);
    assert_int_equal(warm_key_write(&subject, key, &err), 0);
}

static void keys(void **state)
{
    char *const environment[] = {"A=1", NULL}, *const other[] = {"A=2", NULL};
    const struct rlimit few = {64, 64}, more = {65, 65};
    sigset_t none, hangup;
    char field[64];
    (void)state;
    sigemptyset(&none);
    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    const struct warm_key_subject base = {.interpreter = "/bin/sh",
                                          .modules = "torch",
                                          .environment = environment,
                                          .ignored = &none,
                                          .descriptors = &few,
                                          .core_dumps = &few};
    struct warm_key_subject changed[6];
    static const char *const fields[] = {"interpreter",     "modules", "variable A",
                                         "ignored signals", "limit 7", "limit 4"};
    for (size_t i = 0; i < 6; i++)
        changed[i] = base;
    changed[0].interpreter = "/bin/cat";
    changed[1].modules = "json";
    changed[2].environment = other;
    changed[3].ignored = &hangup;
    changed[4].descriptors = &more;
    changed[5].core_dumps = &more;
    scope_buffer a = {0}, b = {0};
    key_of(base, &a);
    key_of(base, &b);
    assert_int_equal(a.length, b.length);
    assert_memory_equal(a.data, b.data, a.length);
    for (size_t i = 0; i < 6; i++) {
        key_of(changed[i], &b);
        warm_key_difference(a.data, a.length, b.data, b.length, field, sizeof field);
        assert_string_equal(field, fields[i]);
    }
    const mode_t before = umask(0123);
    key_of(base, &b);
    (void)umask(before);
    warm_key_difference(a.data, a.length, b.data, b.length, field, sizeof field);
    assert_string_equal(field, "Umask");
}

static void folder_paths(void **state)
{
    char path[PATH_MAX], name[WARM_NAME_SIZE], other[WARM_NAME_SIZE];
    (void)state;
    warm_folder_path("/run/user/7", 7, path);
    assert_string_equal(path, "/run/user/7/muster");
    warm_folder_path(NULL, 7, path);
    assert_string_equal(path, "/tmp/muster-7");
    warm_folder_path("", 8, path);
    assert_string_equal(path, "/tmp/muster-8");
    warm_folder_path("relative", 8, path);
    assert_string_equal(path, "/tmp/muster-8");
    warm_folder_name("abc", 3, name);
    warm_folder_name("abd", 3, other);
    assert_string_not_equal(name, other);
    assert_non_null(strstr(name, WARM_SUFFIX));
}

static void folders(void **state)
{
    char base[FOLDER_PATH], path[PATH_MAX];
    struct muster_error err = {0};
    struct warm_folder folder = {.fd = -1};
    (void)state;
    assert_int_equal(folder_make(base, "folder"), 0);
    (void)snprintf(path, sizeof path, "%s/muster", base);
    assert_int_equal(warm_folder_open(path, false, &folder, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    assert_int_equal(warm_folder_open(path, true, &folder, &err), 0);
    assert_int_equal(warm_folder_connect(&folder, "x" WARM_SUFFIX, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    int listener = warm_folder_listen(&folder, "x" WARM_SUFFIX, &err);
    assert_true(listener >= 0);
    int link = warm_folder_connect(&folder, "x" WARM_SUFFIX, &err);
    assert_true(link >= 0);
    assert_int_equal(close(link), 0);
    assert_int_equal(close(listener), 0);
    assert_int_equal(warm_folder_connect(&folder, "x" WARM_SUFFIX, &err), -1); /* its file is still there */
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    listener = warm_folder_listen(&folder, "x" WARM_SUFFIX, &err);
    assert_true(listener >= 0);
    assert_int_equal(close(listener), 0);
    assert_int_equal(close(folder.fd), 0);
    assert_int_equal(chmod(path, 0710), 0);
    assert_int_equal(warm_folder_open(path, true, &folder, &err), -1);
    assert_non_null(strstr(err.text, "has mode 0710"));
    (void)snprintf(path, sizeof path, "%s/muster/x" WARM_SUFFIX, base);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof path, "%s/muster", base);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(base), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passing_variables), cmocka_unit_test(the_environment),
        cmocka_unit_test(differences),       cmocka_unit_test(keys),
        cmocka_unit_test(folder_paths),      cmocka_unit_test(folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
