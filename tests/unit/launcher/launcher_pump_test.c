/* launcher_pump_test.c - workers' output from their pipes to files and the console: prefixes, JSON, filters,
 * slow and stuck consoles. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/output/pump.h"
#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"

static void read_rest(int fd, struct buffer *out)
{
    char chunk[65536];
    for (ssize_t got; (got = read(fd, chunk, sizeof chunk)) > 0;)
        buffer_append(out, chunk, (size_t)got);
    close(fd);
}

/* --- the pump, with its own console: descriptors 1 and 2 are pipes while a test runs --- */

struct bench {
    struct loop loop;
    struct pump *pump;
    int console[2]; /* pipe that stands for 1 and 2 */
    int kept_out, kept_err;
};

static void bench_open(struct bench *b, enum log_format format)
{
    assert_int_equal(loop_init(&b->loop, NULL), 0);
    assert_int_equal(pipe2(b->console, O_CLOEXEC), 0);
    fflush(stdout);
    b->kept_out = fcntl(1, F_DUPFD_CLOEXEC, 3);
    b->kept_err = fcntl(2, F_DUPFD_CLOEXEC, 3);
    dup2(b->console[1], 1);
    dup2(b->console[1], 2);
    close(b->console[1]);
    struct pump_options options = {
        .loop = &b->loop, .style = {format, "node7"}, .spool_folder = "/tmp", .spool_limit = 16 << 20};
    b->pump = pump_create(&options, NULL);
}

static size_t bench_close(struct bench *b, struct buffer *out)
{
    size_t left = pump_destroy(b->pump);
    dup2(b->kept_out, 1);
    dup2(b->kept_err, 2);
    close(b->kept_out);
    close(b->kept_err);
    loop_close(&b->loop);
    if (!left)
        read_rest(b->console[0], out);
    else
        close(b->console[0]);
    return left;
}

static struct output_file *file_of(struct bench *b, int fd)
{
    struct output_file_options options = {.fd = fd, .owned = true, .name = "the log file"};
    return pump_file(b->pump, &options, NULL);
}

/* A stream; *writer is the worker's end. */
static struct pump_stream *add(struct bench *b, int *writer, struct pump_stream_options options)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return NULL;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *writer = ends[1];
    options.fd = ends[0];
    options.tail = options.stream == 2;
    options.names = (struct line_names){.role = "default", .host = "node7", .rank = 4};
    return pump_add(b->pump, &options, NULL);
}

static void write_text(int fd, const char *text)
{
    ssize_t done = write(fd, text, strlen(text));
    (void)done; /* missing bytes show in the comparison */
}

/* Turns the loop until the limit; ends when every stream has ended. */
static void turn(struct bench *b, int64_t limit_ns)
{
    struct instant end = instant_add(clock_now(NULL), limit_ns);
    while (!pump_idle(b->pump) && !instant_reached(clock_now(NULL), end)) {
        (void)loop_turn(&b->loop, instant_min(end, pump_deadline(b->pump)), NULL);
        pump_tick(b->pump, clock_now(NULL));
    }
}

static void tee_prefix_and_tail(void **state)
{
    (void)state;
    struct bench b;
    struct buffer out = {0}, file = {0};
    char path[] = "/tmp/muster_pump_XXXXXX", tail[256];
    int log = mkostemp(path, O_CLOEXEC | O_APPEND), one, two;
    bench_open(&b, LOG_FORMAT_TEXT);
    struct pump_stream *s1 = add(&b, &one,
                                 (struct pump_stream_options){.stream = 1,
                                                              .console = true,
                                                              .file = file_of(&b, log),
                                                              .prefix = LINE_PREFIX_ONE_NODE}),
                       *s2 = add(&b, &two, (struct pump_stream_options){.stream = 2, .console = true});
    write_text(one, "a\nb");
    write_text(two, "to stderr\nlast words");
    turn(&b, 300 * NS_PER_MS); /* the halves of lines are shown by now */
    write_text(one, "c\nd\n");
    close(one);
    close(two);
    turn(&b, 240 * NS_PER_S);
    bool idle = pump_idle(b.pump);
    pump_tail(s2, tail, sizeof tail);
    pump_close(s1);
    pump_close(s2);
    pump_print(b.pump, 2, "agent\n", 6);
    size_t left = bench_close(&b, &out);
    assert_true(idle);
    assert_int_equal(left, 0);
    assert_string_equal(tail, "to stderr\nlast words");
    read_rest(open(path, O_RDONLY | O_CLOEXEC), &file);
    assert_string_equal(file.data, "a\nbc\nd\n");
    assert_non_null(strstr(out.data, "[default0]:a\n"));
    assert_non_null(strstr(out.data, "to stderr\n"));
    assert_non_null(strstr(out.data, "[default0]:d\n"));
    assert_non_null(strstr(out.data, "\nagent\n"));
    buffer_free(&out);
    buffer_free(&file);
    unlink(path);
}

static void json_and_filters(void **state)
{
    (void)state;
    struct bench b;
    struct buffer out = {0}, matched = {0};
    char path[] = "/tmp/muster_pump_XXXXXX";
    int one, two, log = mkostemp(path, O_CLOEXEC | O_APPEND);
    struct log_filter filter;
    assert_int_equal(log_filter_parse("loss", &filter), 0);
    bench_open(&b, LOG_FORMAT_JSON);
    struct output_file *matches = file_of(&b, log);
    struct pump_stream *s1 = add(&b, &one,
                                 (struct pump_stream_options){
                                     .stream = 1, .console = true, .matches = matches, .filter = &filter}),
                       *s2 = add(&b, &two, (struct pump_stream_options){.stream = 2}); /* not shown */
    write_text(one, "a loss of 1\nnothing\nloss ");
    write_text(two, "silent\n");
    turn(&b, 200 * NS_PER_MS); /* an unfinished line is no record yet */
    write_text(one, "2\nlast");
    close(one);
    close(two);
    turn(&b, 240 * NS_PER_S);
    char tail[100];
    pump_close(s1);
    pump_drain(s2);
    pump_tail(s2, tail, sizeof tail);
    pump_close(s2);
    pump_release(b.pump, matches);
    pump_say(b.pump, LOG_LEVEL_WARNING, "muster: warning: careful");
    size_t left = bench_close(&b, &out);
    log_filter_free(&filter);
    assert_int_equal(left, 0);
    assert_string_equal(tail, "silent");
    static const char *const expected[] = {
        "\"rank\":4,\"local_rank\":0,\"message\":\"a loss of 1\"}", "\"message\":\"nothing\"}",
        "\"message\":\"loss 2\"}", "\"message\":\"last\"}", "\"level\":\"warning\",\"message\":\"careful\"}"};
    const char *at = out.data;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const char *end = strchr(at, '\n'), *found = strstr(at, expected[i]);
        assert_non_null(end);
        assert_true(found && found < end);
        at = end + 1;
    }
    assert_int_equal(*at, 0);
    read_rest(open(path, O_RDONLY | O_CLOEXEC), &matched);
    assert_non_null(strstr(matched.data, "a loss of 1"));
    assert_non_null(strstr(matched.data, "loss 2"));
    assert_null(strstr(matched.data, "nothing"));
    buffer_free(&out);
    buffer_free(&matched);
    unlink(path);
}

/* A worker that writes much to a console that is slow: nothing is lost. */
static void slow_console_loses_nothing(void **state)
{
    (void)state;
    enum { LINES = 20000 };
    struct bench b;
    struct buffer out = {0};
    int writer;
    bench_open(&b, LOG_FORMAT_TEXT);
    struct pump_stream *s = add(&b, &writer, (struct pump_stream_options){.stream = 1, .console = true});
    int console = b.console[0];
    pid_t worker = fork();
    if (worker == 0) {
        char line[101];
        close(console);
        for (int i = 0; i < LINES; i++) {
            int length = snprintf(line, sizeof line, "%099d\n", i);
            if (write(writer, line, (size_t)length) != length)
                _exit(1);
        }
        _exit(0);
    }
    close(writer);
    char chunk[16384];
    while (!pump_idle(b.pump)) { /* reads only now and then, and never much */
        (void)loop_turn(&b.loop, instant_add(clock_now(NULL), NS_PER_MS), NULL);
        pump_tick(b.pump, clock_now(NULL));
        struct pollfd p = {.fd = console, .events = POLLIN};
        if (poll(&p, 1, 0) == 1) {
            ssize_t got = read(console, chunk, sizeof chunk);
            buffer_append(&out, chunk, got > 0 ? (size_t)got : 0);
        }
    }
    pump_close(s);
    /* the rest is more than a pipe holds: somebody must read while the pump ends */
    pid_t reader = fork();
    if (reader == 0) {
        dup2(b.kept_out, 1);
        dup2(b.kept_err, 2);
        for (size_t total = out.length; total < (size_t)LINES * 100;) {
            ssize_t got = read(console, chunk, sizeof chunk);
            if (got <= 0)
                _exit(1);
            if (memchr(chunk, 'm', (size_t)got)) /* the first letter of "muster: warning" */
                _exit(2);
            total += (size_t)got;
        }
        _exit(0);
    }
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, console); /* the rest is the reader's alone */
    close(nothing);
    size_t left = bench_close(&b, &out);
    int status = 1;
    assert_int_equal(left, 0);
    assert_true(waitpid(reader, &status, 0) == reader);
    assert_int_equal(status, 0);
    assert_true(waitpid(worker, &status, 0) == worker);
    assert_int_equal(status, 0);
    buffer_free(&out);
}

/* A worker that writes many lines to two streams. */
static void write_lines(int first, int second, int count)
{
    char line[101];
    for (int i = 0; i < count; i++) {
        int length = snprintf(line, sizeof line, "%099d\n", i);
        if (write(first, line, (size_t)length) != length || write(second, line, (size_t)length) != length)
            _exit(1);
    }
    _exit(0);
}

enum { STUCK_LINES = 30000 };

/* Returns the number of the fault, 0 for none. Run in its own process: a thread stays in a write to 1. */
static int run_stuck(const char *path)
{
    struct bench b;
    struct buffer out = {0};
    int log = open(path, O_WRONLY | O_APPEND | O_CLOEXEC), plain, teed, status = 1;
    bench_open(&b, LOG_FORMAT_TEXT);
    struct pump_stream *s1 = add(&b, &plain, (struct pump_stream_options){.stream = 1, .console = true}),
                       *s2 = add(&b, &teed,
                                 (struct pump_stream_options){.stream = 1,
                                                              .console = true,
                                                              .file = file_of(&b, log),
                                                              .prefix = LINE_PREFIX_ONE_NODE});
    pid_t worker = fork();
    if (worker == 0)
        write_lines(plain, teed, STUCK_LINES);
    close(plain);
    close(teed);
    turn(&b, 240 * NS_PER_S);
    if (!pump_idle(b.pump))
        return 2;
    pump_close(s1);
    pump_close(s2);
    if (pump_destroy(b.pump) == 0)
        return 3;
    buffer_free(&out);
    return waitpid(worker, &status, 0) == worker && status == 0 ? 0 : 4;
}

/* Nobody reads the console: the worker is held for a second at most, and ends; the file has every byte. */
static void stuck_console_does_not_hold_workers(void **state)
{
    (void)state;
    struct buffer file = {0};
    char path[] = "/tmp/muster_pump_XXXXXX";
    int log = mkostemp(path, O_CLOEXEC), status = 1;
    close(log);
    pid_t pid = fork();
    if (pid == 0)
        _exit(run_stuck(path));
    assert_true(waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
    read_rest(open(path, O_RDONLY | O_CLOEXEC), &file);
    assert_int_equal(file.length, STUCK_LINES * 100);
    buffer_free(&file);
    unlink(path);
}

int main(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL); /* as blocked in the agent */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tee_prefix_and_tail),
        cmocka_unit_test(json_and_filters),
        cmocka_unit_test(slow_console_loses_nothing),
        cmocka_unit_test(stuck_console_does_not_hold_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
