/* launcher_pump_test.c - output through queues and threads: order, prefixes, slow, stuck and full. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/line.h"
#include "launcher/outlet.h"
#include "launcher/pump.h"
#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"

static const int64_t patience_ns = 200 * NS_PER_MS;

static void read_rest(int fd, struct buffer *out)
{
    char chunk[65536];
    for (ssize_t got; (got = read(fd, chunk, sizeof chunk)) > 0;)
        buffer_append(out, chunk, (size_t)got);
    close(fd);
}

static bool put(struct outlet *o, int fd, const void *owner, const char *text, bool ends)
{
    struct outlet_piece piece = {.fd = fd,
                                 .owner = owner,
                                 .prefix = "> ",
                                 .prefix_length = 2,
                                 .data = text,
                                 .length = strlen(text),
                                 .ends = ends};
    return outlet_put(o, &piece);
}

/* Another owner's line ends an open one, and what follows gets its prefix again. */
static void lines_are_kept_together(void **state)
{
    (void)state;
    int ends[2], wake = eventfd(0, EFD_NONBLOCK), a, b;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    struct outlet *o = outlet_create("the console", wake, NULL);
    assert_true(put(o, ends[1], &a, "one\n", true));
    assert_true(put(o, ends[1], &a, "tw", false));
    assert_true(put(o, ends[1], &a, "o\n", true));
    assert_true(put(o, ends[1], &a, "three", false));
    assert_true(put(o, ends[1], &b, "four\n", true));
    assert_true(put(o, ends[1], &a, " more\n", true));
    assert_true(put(o, ends[1], &a, "five", false));
    outlet_forget(o, &a); /* and another begins at its address */
    assert_true(put(o, ends[1], &a, "six\n", true));
    assert_int_equal(outlet_finish(o, patience_ns), 0);
    close(ends[1]);
    struct buffer out = {0};
    read_rest(ends[0], &out);
    assert_string_equal(out.data, "> one\n> two\n> three\n> four\n>  more\n> five\n> six\n");
    buffer_free(&out);
    close(wake);
}

static void stuck_is_counted_and_left(void **state)
{
    (void)state;
    int ends[2], wake = eventfd(0, EFD_NONBLOCK), a;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    struct outlet *o = outlet_create("the console", wake, NULL);
    char line[1000];
    memset(line, 'x', sizeof line);
    line[sizeof line - 2] = '\n';
    line[sizeof line - 1] = '\0';
    int taken = 0, dropped = 0;
    bool hangs = false;
    while (dropped < 1000 || !hangs) { /* until the pipe and both buffers are full */
        struct outlet_piece piece = {
            .fd = ends[1], .owner = &a, .data = line, .length = sizeof line - 1, .ends = true};
        if (outlet_put(o, &piece)) {
            taken++;
            continue;
        }
        outlet_drop(o, &piece);
        dropped++;
        hangs = instant_reached(clock_now(NULL), instant_add(outlet_busy_since(o), 100 * NS_PER_MS));
    }
    assert_true(taken < 1500); /* about 1.1 MB */
    assert_true(outlet_room(o, OUTLET_LIMIT) < sizeof line + 100);
    /* it moves again: room is told through the eventfd, and the next line is preceded by the count */
    struct buffer out = {0};
    char chunk[4096];
    struct pollfd p = {.fd = wake, .events = POLLIN};
    uint64_t woken;
    assert_int_equal(buffer_text(&out, ""), 0);
    (void)read(wake, &woken, sizeof woken); /* of the first change of the buffers, long ago */
    while (poll(&p, 1, 0) == 0) {
        ssize_t got = read(ends[0], chunk, sizeof chunk);
        assert_true(got > 0);
        buffer_append(&out, chunk, (size_t)got);
    }
    assert_true(put(o, ends[1], &a, "after\n", true));
    /* nobody reads any more: what is left is told in bytes, and nobody waits for ever */
    assert_true(outlet_finish(o, patience_ns) > 0);
    while (!strstr(out.data, "after\n")) { /* the thread that was left goes on when there is room */
        ssize_t got = read(ends[0], chunk, sizeof chunk);
        assert_true(got > 0);
        buffer_append(&out, chunk, (size_t)got);
    }
    int told = 0, notices = 0;
    static const char words[] = "muster: warning: ";
    for (const char *at = out.data; (at = strstr(at, words)); at++, notices++)
        told += atoi(at + sizeof words - 1);
    assert_int_equal(told, dropped);
    assert_true(out.length > (size_t)taken * (sizeof line - 1) && notices > 0);
    buffer_free(&out);
    /* ends and wake stay open: the thread may still be on its way out */
}

static void refusals_are_counted(void **state)
{
    (void)state;
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC), wake = eventfd(0, EFD_NONBLOCK);
    assert_true(full >= 0);
    struct outlet *o = outlet_create("the log files", wake, NULL);
    struct outlet_piece raw = {.fd = full, .data = "bytes", .length = 5};
    assert_true(outlet_put(o, &raw));
    struct pollfd p = {.fd = wake, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 10000), 1); /* told at once */
    struct outlet_lost lost = outlet_lost(o);
    assert_int_equal(lost.error, ENOSPC);
    assert_int_equal(lost.bytes, 5);
    outlet_close(o, full); /* the outlet's to close now */
    assert_int_equal(outlet_finish(o, patience_ns), 0);
    assert_int_equal(fcntl(full, F_GETFD), -1);
    close(wake);
}

/* --- the pump, with its own console: descriptors 1 and 2 are pipes while a test runs --- */

struct bench {
    struct loop loop;
    struct pump *pump;
    int console[2]; /* pipe that stands for 1 and 2 */
    int kept_out, kept_err;
};

static void bench_open(struct bench *b)
{
    assert_int_equal(loop_init(&b->loop, NULL), 0);
    assert_int_equal(pipe2(b->console, O_CLOEXEC), 0);
    fflush(stdout);
    b->kept_out = fcntl(1, F_DUPFD_CLOEXEC, 3);
    b->kept_err = fcntl(2, F_DUPFD_CLOEXEC, 3);
    dup2(b->console[1], 1);
    dup2(b->console[1], 2);
    close(b->console[1]);
    b->pump = pump_create(&b->loop, NULL);
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

/* A stream; *writer is what a worker would write to. */
static struct pump_stream *add(struct bench *b, int *writer, int console, const char *prefix, int file)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return NULL;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *writer = ends[1];
    struct pump_stream_options options = {
        .fd = ends[0], .console = console, .file = file, .prefix = prefix, .tail = console == 2};
    return pump_add(b->pump, &options, NULL);
}

static void write_text(int fd, const char *text)
{
    ssize_t done = write(fd, text, strlen(text));
    (void)done; /* what is missing shows in the comparison */
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
    bench_open(&b);
    struct pump_stream *s1 = add(&b, &one, 1, "[default0]:", log), *s2 = add(&b, &two, 2, NULL, -1);
    write_text(one, "a\nb");
    write_text(two, "to stderr\nlast words");
    turn(&b, 300 * NS_PER_MS); /* the halves of lines are shown by now */
    write_text(one, "c\nd\n");
    close(one);
    close(two);
    turn(&b, 10 * NS_PER_S);
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

/* A worker that writes much to a console that is slow: it waits, and nothing is lost. */
static void slow_console_loses_nothing(void **state)
{
    (void)state;
    enum { LINES = 20000 };
    struct bench b;
    struct buffer out = {0};
    int writer;
    bench_open(&b);
    struct pump_stream *s = add(&b, &writer, 1, NULL, -1);
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
            if (memchr(chunk, 'm', (size_t)got)) /* of "muster: warning" */
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

/* Returns what is wrong, 0 for nothing. In a process of its own: a thread stays behind in a write to 1. */
static int run_stuck(const char *path)
{
    struct bench b;
    struct buffer out = {0};
    int log = open(path, O_WRONLY | O_APPEND | O_CLOEXEC), plain, teed, status = 1;
    bench_open(&b);
    struct pump_stream *s1 = add(&b, &plain, 1, NULL, -1), *s2 = add(&b, &teed, 1, "[default0]:", log);
    pid_t worker = fork();
    if (worker == 0)
        write_lines(plain, teed, STUCK_LINES);
    close(plain);
    close(teed);
    turn(&b, 60 * NS_PER_S);
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
        cmocka_unit_test(lines_are_kept_together),    cmocka_unit_test(stuck_is_counted_and_left),
        cmocka_unit_test(refusals_are_counted),       cmocka_unit_test(tee_prefix_and_tail),
        cmocka_unit_test(slow_console_loses_nothing), cmocka_unit_test(stuck_console_does_not_hold_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
