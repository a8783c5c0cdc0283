/* base_text_test.c - strict numbers, nearest names, byte counts, addresses, files. */
#include "proto/base/address.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/temporary.h"
#include "proto/base/text.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/fake_clock.h"
#include "tests/support/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void numbers_are_strict(void **state)
{
    (void)state;
    int64_t i;
    double d;
    bool b;
    assert_true(text_int64("-12", &i) && i == -12);
    assert_false(text_int64("12x", &i));
    assert_false(text_int64(" 12", &i));
    assert_false(text_int64("", &i));
    assert_false(text_int64("9223372036854775808", &i));
    assert_true(text_double("1e-3", &d) && d == 1e-3);
    assert_false(text_double("nan", &d));
    assert_false(text_double("1e999", &d));
    assert_false(text_double("0x10", &d));
    assert_true(text_bool("True", &b) && b);
    assert_true(text_bool("off", &b) && !b);
    assert_false(text_bool("2", &b));
    assert_true(text_bytes("64K", &i) && i == 65536);
    assert_true(text_bytes("3GiB", &i) && i == INT64_C(3) << 30);
    assert_false(text_bytes("9000000T", &i));
    assert_false(text_bytes("-1", &i));
}

/* Folders of a machine that has no /tmp or nothing writable, by their names. */
static int usable_but_scratch(const char *path)
{
    return !strncmp(path, "/scratch", 8) ? ENOENT : 0;
}

static int usable_cwd_alone(const char *path)
{
    return !strcmp(path, "/home/u") ? 0 : !strcmp(path, "/tmp") ? EROFS : EACCES;
}

static int usable_never(const char *path)
{
    (void)path;
    return EROFS;
}

static void folders_for_temporary_files(void **state)
{
    (void)state;
    static const struct {
        const char *tmpdir;
        int (*usable)(const char *path);
        const char *path, *warning;
    } rows[] = {
        {NULL, usable_but_scratch, "/tmp", ""},
        {"", usable_but_scratch, "/tmp", ""},
        {"/big", usable_but_scratch, "/big", ""},
        {"sub", usable_but_scratch, "/home/u/sub", ""},
        {"/scratch/u1", usable_but_scratch, "/tmp",
         "TMPDIR=/scratch/u1 cannot be used on this machine (No such file or directory): temporary files go "
         "to "
         "/tmp"},
        {NULL, usable_cwd_alone, "/home/u", ""},
        {"/x", usable_cwd_alone, "/home/u",
         "TMPDIR=/x cannot be used on this machine (Permission denied): temporary files go to /home/u"},
        {"/x", usable_never, "/x", ""}, /* the kernel's reason follows where it is used */
        {NULL, usable_never, "/tmp", ""},
    };
    struct temporary_folder folder;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        temporary_folder_choose(rows[i].tmpdir, "/home/u", rows[i].usable, &folder);
        assert_string_equal(folder.path, rows[i].path);
        assert_string_equal(folder.warning, rows[i].warning);
    }
}

static void rows_of_the_kernels_texts(void **state)
{
    (void)state;
    const char *meminfo = "MemTotal:       16000 kB\nMemAvailable:    8000 kB\nHugePages_Total:       3\n";
    assert_int_equal(text_row(meminfo, "MemAvailable"), 8000 * 1024);
    assert_int_equal(text_row(meminfo, "HugePages_Total"), 3);
    assert_int_equal(text_row(meminfo, "Mem"), -1);
    assert_int_equal(text_row("anon 5\ninactive_file 77\n", "inactive_file"), 77);
    assert_int_equal(text_row("oom_kill_disable 0\nunder_oom 0\noom_kill 17\n", "oom_kill"), 17);
    assert_int_equal(text_row("oom_kill_disable 0\nunder_oom 0\n", "oom_kill"), -1);
    assert_int_equal(text_row("x -3\n", "x"), -1);
    assert_int_equal(text_row("x 99999999999999999999 kB\n", "x"), INT64_MAX);
    assert_int_equal(text_row("", "x"), -1);
    assert_int_equal(text_row(NULL, "x"), -1);
}

static void nearest_helps_and_does_not_guess(void **state)
{
    (void)state;
    const char *names[] = {"steps", "learning_rate", "micro_batch", "max-restarts"};
    assert_string_equal(text_nearest("step", names, 4), "steps");
    assert_string_equal(text_nearest("learing_rate", names, 4), "learning_rate");
    assert_string_equal(text_nearest("max_restarst", names, 4), "max-restarts");
    assert_null(text_nearest("zzz", names, 4));
}

static void bytes_for_people(void **state)
{
    (void)state;
    char out[32];
    assert_string_equal(text_format_bytes(out, sizeof out, 64), "64 B");
    assert_string_equal(text_format_bytes(out, sizeof out, 3 << 20), "3.00 MB");
    assert_string_equal(text_format_bytes(out, sizeof out, INT64_C(123) << 30), "123.0 GB");
}

static void files_are_replaced_whole(void **state)
{
    (void)state;
    char directory[FOLDER_PATH];
    assert_int_equal(folder_make(directory, "base"), 0);
    char path[200];
    (void)snprintf(path, sizeof path, "%s/a/b", directory);
    struct muster_error err = {0};
    assert_int_equal(io_make_directories(path, 0700, &err), 0);
    (void)snprintf(path, sizeof path, "%s/a/b/file", directory);
    assert_int_equal(io_write_file_atomic(path, "one", 3, 0600, &err), 0);
    assert_int_equal(io_write_file_atomic(path, "two!", 4, 0600, &err), 0);
    scope_buffer text = {0};
    assert_int_equal(io_read_file(path, 100, &text, &err), 0);
    assert_string_equal(text.data, "two!");
    buffer_clear(&text);
    assert_int_equal(io_read_file(path, 2, &text, &err), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    assert_int_equal(io_make_directories(path, 0700, &err), -1);
    (void)unlink(path);
    (void)snprintf(path, sizeof path, "%s/a/b", directory);
    (void)rmdir(path);
    (void)snprintf(path, sizeof path, "%s/a", directory);
    (void)rmdir(path);
    (void)rmdir(directory);
}

/* Another user knows our pid, and may write to the folder. */
static void a_planted_link_is_not_followed(void **state)
{
    (void)state;
    char folder[FOLDER_PATH], path[64], planted[96], victim[64], found[64];
    struct muster_error err = {0};
    scope_buffer text = {0};
    assert_int_equal(folder_make(folder, "base"), 0);
    (void)snprintf(path, sizeof path, "%s/file", folder);
    (void)snprintf(planted, sizeof planted, "%s.new.%d", path, (int)getpid());
    (void)snprintf(victim, sizeof victim, "%s/victim", folder);
    assert_int_equal(io_write_file_atomic(victim, "precious", 8, 0600, &err), 0);
    assert_int_equal(symlink(victim, planted), 0);
    assert_int_equal(io_write_file_atomic(path, "new", 3, 0600, &err), 0);
    assert_int_equal(readlink(path, found, sizeof found), -1); /* the file itself, not the link */
    int fd = io_create_new(planted, O_WRONLY, 0600);           /* the name is needed as it is */
    assert_true(fd >= 0);
    assert_int_equal(io_write_all(fd, "more", 4, planted, &err), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(io_read_file(planted, 100, &text, &err), 0);
    assert_string_equal(text.data, "more");
    buffer_clear(&text);
    assert_int_equal(io_read_file(victim, 100, &text, &err), 0);
    assert_string_equal(text.data, "precious");
    char *beside = NULL;
    fd = io_create_beside(path, 0600, &beside, &err);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(access(beside, F_OK), 0);
    assert_int_equal(io_remove_unfinished(folder, &err), 0); /* it knows those names */
    assert_int_equal(access(beside, F_OK), -1);
    mem_free(beside);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* as a device: a file must not take its place */
    assert_int_equal(io_create_beside(path, 0600, &beside, &err), -1);
    assert_non_null(strstr(err.text, "is a device, a pipe or a socket"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(victim), 0);
    assert_int_equal(mkdir(planted, 0700), 0); /* an entry that cannot be removed is an error, and stays */
    assert_int_equal(io_create_new(planted, O_WRONLY, 0600), -1);
    assert_int_equal(rmdir(planted), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* The contents of a file of lines with this text after it is opened and a line is added. */
static void check_lines(const char *path, const char *before, size_t length, const char *after)
{
    struct muster_error err = {0};
    scope_buffer text = {0};
    if (length)
        assert_int_equal(io_write_file_atomic(path, before, length, 0600, &err), 0);
    scope_close int fd = io_open_lines(path, "{\"run\": ");
    assert_true(fd >= 0);
    assert_int_equal(io_write_all(fd, "+\n", 2, path, &err), 0);
    assert_int_equal(io_read_file(path, 100000, &text, &err), 0);
    assert_string_equal(text.data, after);
}

static void an_unfinished_line_is_cut_off(void **state)
{
    char folder[FOLDER_PATH], path[64], longest[9000];
    (void)state;
    assert_int_equal(folder_make(folder, "base"), 0);
    (void)snprintf(path, sizeof path, "%s/lines", folder);
    check_lines(path, "", 0, "+\n");
    check_lines(path, "{\"run\": 1}\n", 11, "{\"run\": 1}\n+\n");
    check_lines(path, "{\"run\": 1}\n{\"run\": 2, \"st", 25, "{\"run\": 1}\n+\n");
    check_lines(path, "{\"run\": 1}\n{", 12, "{\"run\": 1}\n+\n"); /* within the beginning */
    check_lines(path, "{\"run\": 1", 9, "+\n");                    /* the first line */
    check_lines(path, "a text\nof another kind", 22, "a text\nof another kind+\n");
    check_lines(path, "{\"rank\": 3}", 11, "{\"rank\": 3}+\n");
    memset(longest, ' ', sizeof longest);
    memcpy(longest, "x\n{\"run\": ", 10);
    for (size_t block = 4096; block <= 8192; block += 4096) /* about the size of a read */
        for (size_t length = block - 1; length <= block + 1; length++)
            check_lines(path, longest, 2 + length, "x\n+\n");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(io_open_lines(folder, "{"), -1);
    assert_int_equal(rmdir(folder), 0);
}

static void words_for_a_shell(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"a-b_c=1./:,@%+", "a-b_c=1./:,@%+"},
                                          {"", "''"},
                                          {"a b", "'a b'"},
                                          {"$x", "'$x'"},
                                          {"it's", "'it'\\''s'"},
                                          {"^", "'^'"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scope_buffer out = {0};
        assert_int_equal(buffer_shell_word(&out, rows[i][0]), 0);
        assert_string_equal(out.data, rows[i][1]);
    }
}

static void terminals_get_no_control_characters(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t length;
        const char *shown;
    } rows[] = {
        {"plain\ttext\n", 11, "plain\ttext\n"},
        {"\0\a\b\r\x1b[31m\x7f", 10, "\\x00\\x07\\x08\\x0d\\x1b[31m\\x7f"},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xc2\x9b"
         "31m\xc2\xa0",
         7,
         "\\xc2\\x9b"
         "31m\xc2\xa0"}, /* C1's CSI; a blank */
        {"a\xff\xc0\x80"
         "b\xe2\x82",
         7,
         "a\\xff\\xc0\\x80"
         "b\\xe2\\x82"},                        /* no UTF-8, cut off */
        {"\xed\xa0\x80", 3, "\\xed\\xa0\\x80"}, /* half a pair */
        {"", 0, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scope_buffer out = {0};
        assert_int_equal(buffer_printable(&out, rows[i].text, rows[i].length), 0);
        assert_string_equal(out.data ? out.data : "", rows[i].shown);
    }
}

static void time_is_a_type(void **state)
{
    (void)state;
    struct fake_clock fake;
    fake_clock_init(&fake, 5);
    fake_clock_advance(&fake, 2 * NS_PER_S);
    assert_int_equal(clock_now(&fake.clock).ns, 5 + 2 * NS_PER_S);
    assert_true(instant_add(INSTANT_NEVER, 5).ns == INT64_MAX);
    assert_true(instant_add((struct instant){INT64_MAX - 1}, 5).ns == INT64_MAX);
    struct instant first = clock_now(NULL), second = clock_now(NULL);
    assert_true(instant_diff_ns(second, first) >= 0);
}

static void addresses_have_several_spellings(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"10.0.0.1", "10.0.0.1", true},
        {"10.0.0.1", "10.0.0.10", false},
        {"10.0.0.1", "::ffff:10.0.0.1", true},
        {"::ffff:a00:1", "10.0.0.1", true},
        {"::1", "0:0:0:0:0:0:0:1", true},
        {"FD00::A", "fd00:0::000a", true},
        {"fd00::a", "fd00::b", false},
        {"::1", "127.0.0.1", false},
        {"fe80::1%lo", "fe80::1", true}, /* a zone counts where both have one */
        {"fe80::1%lo", "fe80::1%1", true},
        {"fe80::1%lo", "fe80::1%77", false},
        {"localhost", "localhost", false}, /* no address */
        {"", "", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (address_same(rows[i].a, rows[i].b) != rows[i].same)
            fail_msg("%s and %s", rows[i].a, rows[i].b);
}

static void what_is_an_address(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shortest; /* NULL: none */
        bool six, loopback, any;
    } rows[] = {
        {"10.1.2.3", "10.1.2.3", false, false, false},
        {"127.9.8.7", "127.9.8.7", false, true, false},
        {"0.0.0.0", "0.0.0.0", false, false, true},
        {"::", "::", true, false, true},
        {"0::1", "::1", true, true, false},
        {"::ffff:127.0.0.1", "127.0.0.1", false, true, false},
        {"::ffff:0.0.0.0", "0.0.0.0", false, false, true},
        {"FD00:0::2", "fd00::2", true, false, false},
        {"fe80::1%lo", "fe80::1%lo", true, false, false},
        {"fe80::1%1", "fe80::1%lo", true, false, false}, /* interface 1 is the loopback everywhere */
        {"10.1.2", NULL, false, false, false},
        {"010.1.2.3", NULL, false, false, false},
        {"10.1.2.3%lo", NULL, false, false, false},
        {"[::1]", NULL, false, false, false},
        {"::1%", NULL, false, false, false},
        {"fe80::1%an-interface-with-a-long-name", NULL, false, false, false},
        {"127.example.com", NULL, false, false, false},
        {"1:2:3:4:5:6:7:8:9:1:2:3:4:5:6:7:8:9:1:2:3:4:5:6:7:8:9", NULL, false, false, false},
        {"", NULL, false, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *text = rows[i].text;
        struct address address;
        char out[ADDRESS_TEXT];
        if (address_is_numeric(text) != (rows[i].shortest != NULL) || address_is_six(text) != rows[i].six ||
            address_is_loopback(text) != rows[i].loopback || address_is_any(text) != rows[i].any)
            fail_msg("%s", text);
        if (!rows[i].shortest)
            continue;
        assert_true(address_parse(text, 29500, &address));
        assert_string_equal(address_text(&address.of.any, out), rows[i].shortest);
        assert_int_equal(address_port(&address.of.any), 29500);
    }
    assert_true(address_zone_is_known("fe80::1%lo") && address_zone_is_known("fe80::1"));
    assert_false(address_zone_is_known("fe80::1%no-such0"));
    assert_true(address_is_numeric("fe80::1%no-such0"));
    const struct sockaddr local = {.sa_family = AF_UNIX};
    char none[ADDRESS_TEXT];
    assert_string_equal(address_text(&local, none), "");
}

static void addresses_are_no_paths(void **state)
{
    (void)state;
    static const struct {
        const char *path, *advice; /* NULL: it is a path */
    } rows[] = {{"s3://b/m", "mount the bucket"},
                {"S3://b/m", "mount the bucket"},
                {"gs://b", "mount the bucket"},
                {"az://b", "mount the bucket"},
                {"abfss://c@a.dfs.core.windows.net/x", "mount the bucket"},
                {"oci://b", "mount the bucket"},
                {"r2+x.y-z://b", "mount the bucket"},
                {"hf://org/model", "hf download"},
                {"HTTPS://x/y", "download it"},
                {"http://x", "download it"},
                {"hdfs://n/x", "HDFS"},
                {"file:///tmp/x", "without file://"},
                {"/s3://b", NULL},
                {"./s3://b", NULL},
                {"s3:/b", NULL},
                {"3s://b", NULL},
                {"://b", NULL},
                {"", NULL},
                {"a b://c", NULL},
                {"folder", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct muster_error err = {0};
        assert_int_equal(text_refuse_scheme("training.output", rows[i].path, &err), rows[i].advice ? -1 : 0);
        if (rows[i].advice &&
            (err.code != MUSTER_E_INVALID || !strstr(err.text, rows[i].advice) ||
             !strstr(err.text, rows[i].path) || strncmp(err.text, "training.output: ", 17) != 0))
            fail_msg("%s: %s", rows[i].path, err.text);
    }
    assert_int_equal(text_refuse_scheme("x", NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_no_paths),
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(folders_for_temporary_files),
        cmocka_unit_test(rows_of_the_kernels_texts),
        cmocka_unit_test(nearest_helps_and_does_not_guess),
        cmocka_unit_test(bytes_for_people),
        cmocka_unit_test(addresses_have_several_spellings),
        cmocka_unit_test(what_is_an_address),
        cmocka_unit_test(words_for_a_shell),
        cmocka_unit_test(terminals_get_no_control_characters),
        cmocka_unit_test(files_are_replaced_whole),
        cmocka_unit_test(a_planted_link_is_not_followed),
        cmocka_unit_test(an_unfinished_line_is_cut_off),
        cmocka_unit_test(time_is_a_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
