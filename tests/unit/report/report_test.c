/* report_test.c - entries as JSON lines and as records of event files, and a disk that is full. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "proto/base/thread.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"
#include "trainer/report/report.h"
#include "trainer/report/report_internal.h"

static const int64_t wall_ns = 1700000000 * NS_PER_S + 7 * NS_PER_MS;

static struct entry a_step(void)
{
    struct entry entry = {.kind = ENTRY_STEP, .step = 12};
    entry_number(&entry, "loss", 2.5);
    entry_number(&entry, "third", 1.0 / 3);
    entry_number(&entry, "nothing", NAN);
    entry_integer(&entry, "tokens", 1024);
    entry_flag(&entry, "skipped", false);
    entry_text(&entry, "note", "a \"b\"\n");
    return entry;
}

static void a_line_is_one_object(void **state)
{
    (void)state;
    const struct entry entry = a_step();
    scope_buffer out = {0};
    assert_int_equal(json_lines_add(&entry, wall_ns, &out), 0);
    assert_string_equal(out.data,
                        "{\"schema\": 1, \"kind\": \"step\", \"time\": 1700000000.007, \"step\": 12, "
                        "\"loss\": 2.5, \"third\": 0.33333333333333331, \"nothing\": null, "
                        "\"tokens\": 1024, \"skipped\": false, \"note\": \"a \\\"b\\\"\\u000a\"}\n");
}

static void a_value_too_many_is_left_out(void **state)
{
    (void)state;
    struct entry entry = {.kind = ENTRY_STEP};
    for (int i = 0; i < ENTRY_VALUES + 3; i++)
        entry_integer(&entry, "n", i);
    assert_int_equal(entry.count, ENTRY_VALUES);
    assert_int_equal(entry.values[ENTRY_VALUES - 1].integer, ENTRY_VALUES - 1);
}

static uint64_t little_endian(const char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | (unsigned char)at[i];
    return value;
}

/* The framing, with the masked checksum undone. What TensorBoard makes of it: tests/compat. */
static size_t check_record(const struct tensorboard *board, const char *at)
{
    const uint64_t length = little_endian(at, 8);
    const uint32_t masked[2] = {(uint32_t)little_endian(at + 8, 4),
                                (uint32_t)little_endian(at + 12 + length, 4)};
    const uint32_t expected[2] = {checksum_add(&board->crc, 0, at, 8),
                                  checksum_add(&board->crc, 0, at + 12, (int64_t)length)};
    for (int i = 0; i < 2; i++) {
        uint32_t rotated = masked[i] - 0xa282ead8u;
        assert_int_equal(rotated >> 17 | rotated << 15, expected[i]);
    }
    return (size_t)length + 16;
}

static void records_are_framed(void **state)
{
    (void)state;
    struct tensorboard board;
    const struct entry step = a_step(), warning = {.kind = ENTRY_WARNING, .step = 12};
    scope_buffer out = {0};
    tensorboard_make(&board);
    assert_int_equal(checksum_add(&board.crc, 0, "123456789", 9), 0xe3069283u);
    assert_int_equal(tensorboard_begin(&board, 11, wall_ns, &out), 0);
    assert_int_equal(tensorboard_add(&board, &step, wall_ns, &out), 0);
    assert_int_equal(tensorboard_add(&board, &warning, wall_ns, &out), 0); /* nothing */
    assert_int_equal(tensorboard_add_text(&board, "config", "x", 0, wall_ns, &out), 0);
    int records = 0;
    for (size_t at = 0; at < out.length; records++)
        at += check_record(&board, out.data + at);
    assert_int_equal(records, 4);
    assert_non_null(memmem(out.data, out.length, "brain.Event:2", 13));
    assert_non_null(memmem(out.data, out.length, "train/loss", 10));
    assert_null(memmem(out.data, out.length, "train/note", 10));
}

/* ---- files ---- */

struct warnings {
    int count;
    char first[1024], last[1024];
};

static void take_warning(void *context, enum log_level level, const char *line)
{
    struct warnings *w = context;
    assert_int_equal(level, LOG_LEVEL_WARNING);
    if (!w->count++)
        (void)snprintf(w->first, sizeof w->first, "%s", line);
    (void)snprintf(w->last, sizeof w->last, "%s", line);
}

static void *close_report(void *report)
{
    report_close(report);
    return NULL;
}

static void a_full_disk_costs_entries(void **state)
{
    (void)state;
    struct warnings w = {0};
    const struct log_sink sink = {take_warning, &w, LOG_LEVEL_WARNING, NULL};
    const struct report_options options = {.json_path = "/dev/full", .log = &sink};
    struct muster_error err = {0};
    struct report *report = report_open(&options, &err);
    assert_non_null(report);
    const struct entry entry = a_step();
    for (int i = 0; i < 5; i++)
        report_add(report, &entry);
    report_close(report);
    assert_int_equal(w.count, 2);
    assert_non_null(strstr(w.first, "/dev/full: No space left on device"));
    assert_non_null(strstr(w.last, "5 entries could not be written"));
}

/* A pipe that nobody reads for a while is a file system that stalls. */
static void a_stalled_file_system_is_not_waited_for(void **state)
{
    (void)state;
    enum { ADDED = 60000 };
    char folder[FOLDER_PATH], path[64], bytes[1 << 16];
    struct warnings w = {0};
    const struct log_sink sink = {take_warning, &w, LOG_LEVEL_WARNING, NULL};
    struct muster_error err = {0};
    assert_int_equal(folder_make(folder, "report"), 0);
    (void)snprintf(path, sizeof path, "%s/log", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    const int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(reader >= 0);
    struct report *report = report_open(&(struct report_options){.json_path = path, .log = &sink}, &err);
    assert_non_null(report);
    const struct entry entry = a_step();
    for (int i = 0; i < ADDED; i++)
        report_add(report, &entry); /* more than the pipe and the queue take; would wait for ever */
    assert_int_equal(w.count, 1);
    assert_non_null(strstr(w.first, "entries of the log are left out"));
    pthread_t closing;
    assert_int_equal(thread_start(&closing, 0, close_report, report), 0);
    int64_t lines = 0, length = 1;
    char before = '\n';
    for (bool ended = false; !ended || length > 0;) { /* the rest comes when it is read */
        ended = ended || !pthread_tryjoin_np(closing, NULL);
        length = read(reader, bytes, sizeof bytes);
        for (int64_t i = 0; i < length; before = bytes[i++]) {
            assert_true(before != '\n' || bytes[i] == '{'); /* whole lines */
            lines += bytes[i] == '\n';
        }
    }
    assert_int_equal(before, '\n');
    assert_int_equal(w.count, 2);
    const long long lost = strtoll(w.last + strcspn(w.last, "0123456789"), NULL, 10);
    assert_int_equal(lines + lost, ADDED);
    assert_true(lost > 0 && lines > 100);
    (void)close(reader);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* As where a process was killed while it wrote. */
static void leave_unfinished_line(const char *path)
{
    FILE *file = fopen(path, "ae");
    assert_non_null(file);
    assert_true(fputs("{\"schema\": 1, \"kind\": \"unfinished", file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void lines_are_appended_and_folders_made(void **state)
{
    (void)state;
    char folder[FOLDER_PATH], path[128], events[128];
    assert_int_equal(folder_make(folder, "report"), 0);
    (void)snprintf(path, sizeof path, "%s/a/b/log.jsonl", folder);
    (void)snprintf(events, sizeof events, "%s/a/tensorboard", folder);
    struct muster_error err = {0};
    const struct entry entry = a_step();
    for (int i = 0; i < 2; i++) {
        struct report *report = report_open(
            &(struct report_options){.json_path = path, .tensorboard_folder = events, .host = "h", .step = i},
            &err);
        assert_non_null(report);
        report_add(report, &entry);
        report_add_text(report, "config", "text", 0);
        report_close(report);
        if (i == 0)
            leave_unfinished_line(path);
    }
    report_close(NULL);
    report_add(NULL, &entry);
    scope_buffer text = {0};
    assert_int_equal(io_read_file(path, 1 << 20, &text, &err), 0);
    int lines = 0;
    for (const char *at = text.data; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, 4);
    assert_null(strstr(text.data, "unfinished"));
    assert_null(report_open(&(struct report_options){.json_path = "/proc/none/log.jsonl"}, &err));
    assert_non_null(strstr(err.text, "/proc/none"));
    assert_int_equal(folder_remove(folder), 0);
}

/* TensorBoard reads the files of a folder in the order of their names. */
static void event_files_sort_by_time(void **state)
{
    static const struct {
        int64_t after_ns;
        int pid;
    } runs[] = {{0, 10002}, {9, 9998}, {100, 99}, {NS_PER_S - 1, 7}, {NS_PER_S, 6}, {11 * NS_PER_S, 5}};
    char path[2][128];
    (void)state;
    for (int i = 0; i < (int)(sizeof runs / sizeof *runs); i++) {
        assert_true(report_events_path(path[i % 2], sizeof *path, "/f", "h", runs[i].pid,
                                       1700000000 * NS_PER_S + runs[i].after_ns) > 0);
        assert_true(i == 0 || strcmp(path[1 - i % 2], path[i % 2]) < 0);
    }
    assert_string_equal(path[0], "/f/events.out.tfevents.1700000001.000000000.h.6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_one_object),
        cmocka_unit_test(a_value_too_many_is_left_out),
        cmocka_unit_test(records_are_framed),
        cmocka_unit_test(a_full_disk_costs_entries),
        cmocka_unit_test(a_stalled_file_system_is_not_waited_for),
        cmocka_unit_test(lines_are_appended_and_folders_made),
        cmocka_unit_test(event_files_sort_by_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
