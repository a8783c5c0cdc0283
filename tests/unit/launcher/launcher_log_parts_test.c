/* launcher_log_parts_test.c - the pure parts of the logs: records, filters, the spool's table; and a target
 * on files of its own. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/output/log_filter.h"
#include "launcher/output/log_record.h"
#include "launcher/output/output_file.h"
#include "launcher/output/spool.h"
#include "launcher/output/tail.h"
#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

/* --- records --- */

static const int64_t wall_ns = INT64_C(1795279544) * NS_PER_S + 7 * NS_PER_MS; /* 2026-11-21, 16:45:44.007 */

static void times(void **state)
{
    (void)state;
    char text[LOG_TIME_SIZE];
    log_record_time(wall_ns, text);
    assert_string_equal(text, "2026-11-21T16:45:44.007Z");
    log_record_time(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
}

static void assert_agent(enum log_format format, enum log_level level, const char *line, const char *expected)
{
    struct log_style style = {format, "node\"7"};
    scope_buffer out = {0};
    assert_int_equal(log_record_agent(&style, level, wall_ns, line, &out), 0);
    assert_string_equal(out.data, expected);
}

static void agent_lines(void **state)
{
    (void)state;
    assert_agent(LOG_FORMAT_TEXT, LOG_LEVEL_INFO, "muster: hello", "muster: hello\n");
    assert_agent(LOG_FORMAT_TIMED, LOG_LEVEL_INFO, "muster: hello",
                 "2026-11-21T16:45:44.007Z muster: hello\n");
    assert_agent(LOG_FORMAT_JSON, LOG_LEVEL_WARNING, "muster: warning: a\tb",
                 "{\"time\":\"2026-11-21T16:45:44.007Z\",\"host\":\"node\\\"7\",\"level\":\"warning\","
                 "\"message\":\"a\\u0009b\"}\n");
    assert_agent(LOG_FORMAT_JSON, LOG_LEVEL_INFO, "muster: warnings are off",
                 "{\"time\":\"2026-11-21T16:45:44.007Z\",\"host\":\"node\\\"7\",\"level\":\"info\","
                 "\"message\":\"warnings are off\"}\n");
    assert_agent(LOG_FORMAT_JSON, LOG_LEVEL_ERROR, "two\nlines\n",
                 "{\"time\":\"2026-11-21T16:45:44.007Z\",\"host\":\"node\\\"7\",\"level\":\"error\","
                 "\"message\":\"two\\u000alines\"}\n");
}

static void assert_worker(const char *data, size_t length, bool partial, const char *message)
{
    struct log_style style = {LOG_FORMAT_JSON, "n"};
    scope_buffer head = {0}, out = {0}, expected = {0};
    assert_int_equal(log_record_head(&style, 2, 13, 5, &head), 0);
    assert_int_equal(log_record_worker(&head, "T", data, length, partial, &out), 0);
    buffer_printf(&expected,
                  "{\"time\":\"T\",\"host\":\"n\",\"stream\":\"stderr\",\"rank\":13,\"local_rank\":5,"
                  "\"message\":%s%s}\n",
                  message, partial ? ",\"partial\":true" : "");
    assert_string_equal(out.data, expected.data);
}

static void worker_lines(void **state)
{
    (void)state;
    assert_worker("plain\n", 6, false, "\"plain\"");
    assert_worker("dos\r\n", 5, false, "\"dos\"");
    assert_worker("10%\r", 4, false, "\"10%\"");
    assert_worker("a part", 6, true, "\"a part\"");
    assert_worker("\n", 1, false, "\"\"");
    assert_worker("nul\0in\n", 7, false, "\"nul\\u0000in\"");
    assert_worker("\xf0\x9f\x98\x80 \xc3\xa9 \xff \xc3\n", 12, false,
                  "\"\xf0\x9f\x98\x80 \xc3\xa9 \\ufffd \\ufffd\""); /* the last one is cut by the newline */
    assert_worker("\xf0\x9f\x98", 3, true, "\"\\ufffd\\ufffd\\ufffd\"");
}

/* --- filters --- */

static void assert_words(const char *text, const char *joined)
{
    struct log_filter filter;
    scope_buffer out = {0};
    assert_int_equal(log_filter_parse(text, &filter), 0);
    for (char **word = filter.words; word && *word; word++)
        buffer_printf(&out, "<%s>", *word);
    assert_string_equal(out.data ? out.data : "", joined);
    log_filter_free(&filter);
}

static void filters(void **state)
{
    (void)state;
    assert_words(NULL, "");
    assert_words("", "");
    assert_words("loss", "<loss>");
    assert_words("loss=,step 1", "<loss=><step 1>");
    assert_words("a,,b,c", "<a,b><c>");
    assert_words(",,", "<,>");
    assert_words(",,,", "<,>");
    assert_words("a,", "<a>");
    assert_words(",a", "<a>");
    struct log_filter filter;
    assert_int_equal(log_filter_parse("loss,,x,Error", &filter), 0);
    assert_true(log_filter_matches(&filter, "ValueError: 1", 13));
    assert_true(log_filter_matches(&filter, "a loss,x", 8));
    assert_false(log_filter_matches(&filter, "a loss,x", 7)); /* beyond the line */
    assert_false(log_filter_matches(&filter, "", 0));
    log_filter_free(&filter);
}

static void rank_lists(void **state)
{
    (void)state;
    assert_int_equal(log_filter_shows(NULL, 3), 1);
    assert_int_equal(log_filter_shows("", 3), 1);
    assert_int_equal(log_filter_shows("0,13", 13), 1);
    assert_int_equal(log_filter_shows("0,13", 1), 0);
    assert_int_equal(log_filter_shows("99999999999999999999", 0), 0);
    static const char *const wrong[] = {"a", "1,", ",1", "1;2", "-1", "1, 2", "0x1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(log_filter_shows(wrong[i], 0), -1);
}

/* --- the spool's table --- */

static int64_t put(struct spool *s, size_t length)
{
    int64_t offset;
    assert_true(spool_place(s, length, &offset));
    spool_add(s, offset, length);
    return offset;
}

static struct spool_batch oldest(struct spool *s)
{
    struct spool_batch batch;
    assert_true(spool_oldest(s, &batch));
    return batch;
}

static void ring_drops_the_oldest(void **state)
{
    (void)state;
    struct spool *s = mem_calloc(1, sizeof *s);
    spool_init(s, 100);
    int64_t offset;
    assert_false(spool_place(s, 101, &offset));
    assert_int_equal(put(s, 40), 0);
    assert_int_equal(put(s, 40), 40);
    assert_int_equal(put(s, 30), 0); /* no room for 30 at 80: over the first */
    assert_int_equal(oldest(s).offset, 40);
    assert_int_equal(s->dropped, 40);
    assert_int_equal(put(s, 10), 30);
    assert_int_equal(oldest(s).offset, 40); /* still whole */
    assert_int_equal(put(s, 1), 40);
    assert_int_equal(oldest(s).offset, 0);
    assert_int_equal(oldest(s).length, 30);
    assert_int_equal(put(s, 100), 0);
    assert_int_equal(oldest(s).length, 100);
    uint64_t id = oldest(s).id;
    assert_int_equal(put(s, 5), 0); /* while it was read */
    assert_false(spool_take(s, id));
    assert_true(spool_take(s, oldest(s).id));
    assert_true(spool_is_empty(s));
    mem_free(s);
}

static void a_full_disk_makes_the_ring_smaller(void **state)
{
    (void)state;
    struct spool *s = mem_calloc(1, sizeof *s);
    spool_init(s, 1000);
    int64_t offset;
    put(s, 100);
    put(s, 100);
    assert_true(spool_place(s, 100, &offset));
    assert_int_equal(offset, 200);
    assert_true(spool_shrink(s, offset, 100)); /* 200 is all that there is */
    assert_true(spool_place(s, 100, &offset));
    assert_int_equal(offset, 0);
    spool_add(s, offset, 100);
    assert_int_equal(oldest(s).offset, 100);
    assert_false(spool_place(s, 201, &offset));
    assert_true(spool_take(s, oldest(s).id) && spool_take(s, oldest(s).id));
    spool_reset(s);
    assert_true(spool_place(s, 1000, &offset)); /* there may be space again */
    assert_false(spool_is_empty(s) == false);
    assert_true(spool_shrink(s, 0, 1000));
    assert_false(spool_place(s, 1, &offset)); /* nothing at all */
    mem_free(s);
}

/* In any order: entries of the ring never overlap, come out oldest first, and only the oldest go. */
static void random_rings(void **state)
{
    (void)state;
    struct spool *s = mem_calloc(1, sizeof *s);
    for (unsigned round = 0; round < 200; round++) {
        unsigned seed = round;
        spool_init(s, 1000);
        uint64_t next = 0;
        for (int i = 0; i < 300; i++) {
            seed = seed * 1664525u + 1013904223u;
            if (seed >> 28 < 4 && !spool_is_empty(s)) {
                struct spool_batch batch = oldest(s);
                assert_true(batch.id >= next);
                next = batch.id + 1;
                assert_true(spool_take(s, batch.id));
            } else {
                put(s, 1 + (seed >> 8) % 400);
            }
            for (uint64_t a = s->first_id; a < s->next_id; a++)
                for (uint64_t b = s->first_id; b < a; b++) {
                    const struct spool_batch *x = &s->batches[a % SPOOL_BATCHES],
                                             *y = &s->batches[b % SPOOL_BATCHES];
                    bool apart = x->offset + (int64_t)x->length <= y->offset ||
                                 y->offset + (int64_t)y->length <= x->offset;
                    if (!apart)
                        fail_msg("seed %u, step %d: batches overlap", round, i);
                }
        }
    }
    mem_free(s);
}

/* --- targets --- */

static size_t plain_write(void *context, int fd, struct iovec *parts, int count)
{
    (void)context;
    size_t total = 0;
    for (int i = 0; i < count; i++) {
        ssize_t done = write(fd, parts[i].iov_base, parts[i].iov_len);
        total += done > 0 ? (size_t)done : 0;
        if (done != (ssize_t)parts[i].iov_len)
            break;
    }
    return total;
}

static void take(struct output_file *t, const char *text, uint64_t before, bool starts)
{
    struct output_file_port port = {plain_write, NULL};
    struct output_file_batch batch = {0};
    struct output_file_record record = {.target = t,
                                        .bytes_before = before,
                                        .lines_before = before / 4,
                                        .length = (uint32_t)strlen(text),
                                        .lines = strchr(text, '\n') != NULL,
                                        .starts = starts};
    output_file_take(&batch, &port, &record, text);
    output_file_flush(&batch, &port);
}

static char folder[FOLDER_PATH];

static struct output_file *open_target(const char *name, int64_t max_size, int keep)
{
    scope_free char *path = mem_printf("%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    struct output_file_options options = {
        .fd = fd, .owned = true, .name = "the log file", .path = path, .max_size = max_size, .keep = keep};
    return output_file_create(&options);
}

static void assert_file(const char *name, const char *expected)
{
    scope_free char *path = mem_printf("%s/%s", folder, name);
    scope_buffer text = {0};
    if (!expected) {
        assert_int_equal(access(path, F_OK), -1);
        return;
    }
    assert_int_equal(io_read_file(path, 1 << 20, &text, NULL), 0);
    assert_string_equal(text.data ? text.data : "", expected);
}

static void rotation_keeps_lines_whole(void **state)
{
    (void)state;
    struct output_file *t = open_target("a.log", 10, 2);
    take(t, "1234\n678\n", 0, true);
    take(t, "abc\ndef\ng", 9, true); /* does not fit */
    assert_file("a.log", "abc\ndef\ng");
    assert_file("a.log.1", "1234\n678\n");
    take(t, "hijklm\n", 18, true); /* in the middle of a line: it is cut where the file is full */
    assert_file("a.log", "ijklm\n");
    assert_file("a.log.1", "abc\ndef\ngh");
    assert_file("a.log.2", "1234\n678\n");
    take(t, "a line longer than a file\n", 25, true);
    assert_file("a.log", " file\n");
    assert_file("a.log.1", "ger than a");
    assert_file("a.log.2", "a line lon");
    assert_file("a.log.3", NULL);
    output_file_destroy(t);
}

static void a_gap_is_told_where_it_is(void **state)
{
    (void)state;
    struct output_file_port port = {plain_write, NULL};
    struct output_file *t = open_target("gap.log", 0, 1);
    take(t, "one\nhal", 0, true);
    take(t, "f\ntwo\n", 107, false); /* the line whose beginning is missing goes too */
    take(t, "three\n", 113, true);
    t->due_bytes = 219;
    output_file_settle(t, &port);
    assert_file("gap.log", "one\nhal\n"
                           "muster: warning: 102 bytes are missing here: the log file did not keep up\n"
                           "two\nthree\n"
                           "muster: warning: 100 bytes are missing here: the log file did not keep up\n");
    assert_int_equal(t->lost_bytes, 202);
    assert_int_equal(t->gap_bytes, 200);
    output_file_destroy(t);
}

static int open_folder(void **state)
{
    (void)state;
    return folder_make(folder, "target");
}

static int remove_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"a.log", "a.log.1", "a.log.2", "gap.log"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        scope_free char *path = mem_printf("%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

/* --- what NCCL warns of --- */

static void nccl_warnings_are_found_wherever_the_reads_end(void **state)
{
    (void)state;
    static const char text[] =
        "step 1\nhost:1:7 [0] NCCL INFO fine\nhost:1:7 [0] NCCL WARN Call to connect\x1b[0m\nNCCL WARN\n"
        "x NCCL WARN a\nstep 2\n NCCL WARN b\r\nNCCL WARN c\nNCCL WARN one too many\nNCCL WA";
    const size_t length = sizeof text - 1;
    for (size_t first = 0; first <= length; first++)
        for (size_t second = first; second <= length; second += 7) {
            struct notable n = {0};
            char got[NOTABLE_TEXT];
            notable_add(&n, text, first);
            notable_add(&n, text + first, second - first);
            notable_add(&n, text + second, length - second);
            static const char *const expected[] = {"NCCL WARN Call to connect", "NCCL WARN a", "NCCL WARN b",
                                                   "NCCL WARN c"};
            for (int i = 0; i < NOTABLE_KEPT; i++) {
                assert_true(notable_take(&n, got));
                assert_string_equal(got, expected[i]);
            }
            assert_false(notable_take(&n, got));
            notable_add(&n, "RN d\n", 5);
            assert_true(notable_take(&n, got));
            assert_string_equal(got, "NCCL WARN d");
        }
}

static void a_long_line_costs_no_memory(void **state)
{
    (void)state;
    struct notable n = {0};
    char many[4096], got[NOTABLE_TEXT];
    memset(many, 'x', sizeof many);
    notable_add(&n, "NCCL WARN ", 10);
    for (int i = 0; i < 100; i++)
        notable_add(&n, many, sizeof many);
    assert_false(notable_take(&n, got));
    notable_add(&n, "\n", 1);
    assert_true(notable_take(&n, got));
    assert_int_equal(strlen(got), NOTABLE_TEXT - 1);
    assert_false(notable_take(&n, got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times),
        cmocka_unit_test(agent_lines),
        cmocka_unit_test(worker_lines),
        cmocka_unit_test(filters),
        cmocka_unit_test(rank_lists),
        cmocka_unit_test(ring_drops_the_oldest),
        cmocka_unit_test(a_full_disk_makes_the_ring_smaller),
        cmocka_unit_test(random_rings),
        cmocka_unit_test(rotation_keeps_lines_whole),
        cmocka_unit_test(a_gap_is_told_where_it_is),
        cmocka_unit_test(nccl_warnings_are_found_wherever_the_reads_end),
        cmocka_unit_test(a_long_line_costs_no_memory),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
