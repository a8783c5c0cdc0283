/* base_error_test.c - error struct, buffers and memory hook. */
#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

#include <errno.h>
#include <stdio.h>

static void set_wrap_and_cut(void **state)
{
    (void)state;
    struct muster_error err = {0};
    assert_int_equal(error_set(&err, MUSTER_E_LIMIT, "value %d above %d", 7, 5), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    assert_string_equal(err.text, "value 7 above 5");
    assert_int_equal(error_wrap(&err, "job.yaml:%d", 3), -1);
    assert_string_equal(err.text, "job.yaml:3: value 7 above 5");
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    error_set(&err, MUSTER_E_INVALID, "'%s' is no name\nsecond\tline", "a\033[31mb\x7f\r\xc3\xa9");
    assert_string_equal(err.text, "'a?[31mb??\xc3\xa9' is no name\nsecond\tline");
    char big[2000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    error_set(&err, MUSTER_E_IO, "%s", big);
    assert_int_equal(strlen(err.text), MUSTER_ERROR_TEXT - 1);
    assert_string_equal(err.text + MUSTER_ERROR_TEXT - 4, "...");
    assert_int_equal(error_set(NULL, MUSTER_E_IO, "nobody listens"), -1);
    errno = ENOENT;
    error_errno(&err, "cannot open %s", "x");
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    assert_string_equal(err.text, "cannot open x: No such file or directory");
    assert_string_equal(error_name(MUSTER_E_TIMEOUT), "timeout");
    assert_string_equal(error_name(-5), "unknown");
}

static void buffers_remember_failure(void **state)
{
    (void)state;
    struct buffer b = {.limit = 8};
    assert_int_equal(buffer_text(&b, "12345678"), 0);
    assert_int_equal(buffer_text(&b, "9"), -1);
    assert_true(b.failed);
    assert_int_equal(buffer_printf(&b, "%d", 1), -1);
    assert_int_equal(b.length, 8);
    buffer_clear(&b);
    assert_int_equal(buffer_printf(&b, "%s-%d", "ab", 12), 0);
    assert_string_equal(b.data, "ab-12");
    buffer_consume(&b, 3);
    assert_string_equal(b.data, "12");
    buffer_free(&b);
    struct buffer j = {0};
    buffer_json_string(&j, "a\"\\\n\xc3\xa9\xff\xf0\x9f\x98\x80");
    assert_string_equal(j.data, "\"a\\\"\\\\\\u000a\xc3\xa9\\ufffd\xf0\x9f\x98\x80\"");
    buffer_free(&j);
}

static void keep_line(void *context, enum log_level level, const char *line)
{
    (void)level;
    (void)snprintf(context, 2000, "%s", line);
}

static void log_lines_say_who_and_how_bad(void **state)
{
    (void)state;
    char line[2000] = "", big[3000];
    struct log_sink sink = {
        .write = keep_line, .context = line, .threshold = LOG_LEVEL_INFO, .who = "muster"};
    log_warning(&sink, "port %d is taken", 5);
    assert_string_equal(line, "muster: warning: port 5 is taken");
    log_debug(&sink, "not shown");
    assert_string_equal(line, "muster: warning: port 5 is taken");
    sink.who = NULL;
    log_error(&sink, "x");
    assert_string_equal(line, "error: x");
    memset(big, 'y', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    log_info(&sink, "%s", big);
    assert_int_equal(strlen(line), 1023);
    assert_string_equal(line + 1020, "...");
    log_info(NULL, "nobody listens");
    log_info(&sink, "agent \"%s\" left", "a\nmuster: error: b\x1b[2J");
    assert_string_equal(line, "agent \"a?muster: error: b?[2J\" left");
}

static int build_text(void *context)
{
    (void)context;
    scope_buffer b = {0};
    for (int i = 0; i < 100; i++)
        buffer_printf(&b, "line %d\n", i);
    char *copy = buffer_take(&b);
    if (!copy)
        return -1;
    mem_free(copy);
    return 0;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    faults_sweep(build_text, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_wrap_and_cut),
        cmocka_unit_test(buffers_remember_failure),
        cmocka_unit_test(log_lines_say_who_and_how_bad),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
