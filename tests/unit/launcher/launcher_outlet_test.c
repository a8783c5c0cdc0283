/* launcher_outlet_test.c - the queue of output and its threads: order, room, the spool, full disks, and
 * targets of which nothing comes back. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "launcher/output/write_queue.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"

/* Capacity of a pipe and the two buffers, in lines. */
enum { PIPE_LIMIT = 1 << 20, HELD_LINES = (PIPE_LIMIT + 2 * WRITE_QUEUE_LIMIT) / 100 };

static const int64_t patience_ns = 200 * NS_PER_MS, long_ns = 60 * NS_PER_S;

struct bench {
    struct write_queue *outlet;
    struct output_file *target;
    int ends[2], wake;
    int lines; /* that fill has put */
};

/* An outlet on a pipe. */
static void bench_open(struct bench *b, const char *spool_folder, int64_t spool_limit)
{
    b->lines = 0;
    assert_int_equal(pipe2(b->ends, O_CLOEXEC), 0);
    b->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct write_queue_options options = {b->wake, spool_folder, spool_limit};
    b->outlet = write_queue_create(&options, NULL);
    struct output_file_options target = {.fd = b->ends[1], .owned = true, .name = "the console"};
    b->target = write_queue_target(b->outlet, &target);
    assert_non_null(b->target);
}

static struct write_queue_lost bench_close(struct bench *b, bool ends)
{
    struct write_queue_lost lost;
    assert_int_equal(write_queue_finish(b->outlet, ends ? long_ns : patience_ns, INSTANT_NEVER, &lost), ends);
    if (ends)
        close(b->wake); /* else the thread may still be on its way out */
    return lost;
}

static void read_rest(int fd, struct buffer *out)
{
    char chunk[65536];
    for (ssize_t got; (got = read(fd, chunk, sizeof chunk)) > 0;)
        buffer_append(out, chunk, (size_t)got);
    close(fd);
}

static bool put(struct bench *b, const void *owner, const char *text, bool starts, bool keep)
{
    size_t length = strlen(text);
    struct write_queue_piece piece = {.target = b->target,
                                      .owner = owner,
                                      .prefix = "> ",
                                      .prefix_length = 2,
                                      .data = text,
                                      .length = length,
                                      .lines = text[length - 1] == '\n',
                                      .starts = starts,
                                      .ends = text[length - 1] == '\n',
                                      .keep = keep};
    return write_queue_put(b->outlet, &piece);
}

/* ---- no thread ---- */

static _Atomic(bool) refuses_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    return refuses_threads ? EAGAIN : __real_pthread_create(thread, attributes, run, argument);
}

enum { PRODUCERS = 4, LINES_EACH = 1500 }; /* with their records less than the queue holds */

struct producer {
    struct bench *bench;
    int number;
    bool refused;
};

static void *produce(void *context)
{
    struct producer *p = context;
    char line[32];
    for (int i = 0; i < LINES_EACH; i++) {
        if (!p->number && i == LINES_EACH / 2)
            refuses_threads = false;
        (void)snprintf(line, sizeof line, "%d %04d\n", p->number, i);
        p->refused |= !put(p->bench, p, line, true, true);
    }
    return NULL;
}

static void *read_all(void *context)
{
    struct bench *b = context;
    struct buffer *out = mem_calloc(1, sizeof *out);
    if (out)
        read_rest(b->ends[0], out);
    return out;
}

/* Every line of each producer, in its order. */
static void assert_whole(const char *text)
{
    int next[PRODUCERS] = {0}, number, line, length;
    for (; sscanf(text, "%d %d%n", &number, &line, &length) == 2; text += length + 1) {
        assert_in_range(number, 0, PRODUCERS - 1);
        assert_int_equal(line, next[number]++);
    }
    assert_string_equal(text, "");
    for (int i = 0; i < PRODUCERS; i++)
        assert_int_equal(next[i], LINES_EACH);
}

/* Who puts writes, one at a time; and when threads can be started again one does. */
static void without_a_thread_the_producers_write(void **state)
{
    (void)state;
    struct bench b;
    struct producer producers[PRODUCERS];
    pthread_t threads[PRODUCERS], reader;
    void *read = NULL;
    bench_open(&b, NULL, 0);
    assert_int_equal(pthread_create(&reader, NULL, read_all, &b), 0);
    refuses_threads = true;
    for (int i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){.bench = &b, .number = i};
        assert_int_equal(__real_pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    for (int i = 0; i < PRODUCERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(producers[i].refused);
    }
    struct write_queue_lost lost = bench_close(&b, true);
    assert_int_equal(lost.bytes, 0);
    assert_int_equal(lost.no_thread, EAGAIN);
    assert_int_equal(pthread_join(reader, &read), 0);
    struct buffer *out = read;
    assert_non_null(out);
    buffer_append(out, "", 1);
    assert_whole(out->data);
    buffer_free(out);
    mem_free(out);
}

/* With none until the end. */
static void without_a_thread_everything_is_written(void **state)
{
    (void)state;
    struct bench b;
    int x;
    uint64_t woken = 0;
    bench_open(&b, NULL, 0);
    refuses_threads = true;
    assert_true(put(&b, &x, "one\n", true, true));
    assert_true(put(&b, &x, "two\n", true, true));
    assert_int_equal(read(b.wake, &woken, sizeof woken), sizeof woken); /* it may be told */
    struct write_queue_lost lost = bench_close(&b, true);
    refuses_threads = false;
    assert_int_equal(lost.bytes, 0);
    assert_int_equal(lost.no_thread, EAGAIN);
    struct buffer out = {0};
    read_rest(b.ends[0], &out);
    assert_string_equal(out.data, "one\ntwo\n");
    buffer_free(&out);
}

/* Another owner's line ends an open line, and later text gets its prefix again. */
static void lines_are_kept_together(void **state)
{
    (void)state;
    struct bench b;
    int x, y;
    bench_open(&b, NULL, 0);
    assert_true(put(&b, &x, "> one\n", true, true));
    assert_true(put(&b, &x, "> tw", true, true));
    assert_true(put(&b, &x, "o\n", false, true));
    assert_true(put(&b, &x, "> three", true, true));
    assert_true(put(&b, &y, "> four\n", true, true));
    assert_true(put(&b, &x, " more\n", false, true));
    assert_true(put(&b, &x, "> five", true, true));
    write_queue_forget(b.outlet, b.target, &x); /* and another begins at its address */
    assert_true(put(&b, &x, "> six\n", true, true));
    struct write_queue_lost lost = bench_close(&b, true);
    assert_int_equal(lost.bytes, 0);
    struct buffer out = {0};
    read_rest(b.ends[0], &out);
    assert_string_equal(out.data, "> one\n> two\n> three\n> four\n>  more\n> five\n> six\n");
    buffer_free(&out);
}

/* Numbered lines of 100 bytes until `want` have been refused, or `count` were put. Returns how many were put.
 */
static int fill(struct bench *b, int count, int refusals, bool keep)
{
    char line[101];
    int refused = 0, i = b->lines;
    while (i < count && refused < refusals) {
        struct instant now = clock_now(NULL);
        if (!write_queue_accepts(b->outlet, 100, keep, now)) { /* waits as the pump does */
            struct pollfd p = {.fd = b->wake, .events = POLLIN};
            uint64_t woken;
            int64_t left = instant_diff_ns(write_queue_due(b->outlet), now);
            (void)poll(&p, 1, left > 0 ? (int)(left / NS_PER_MS) + 1 : 0);
            (void)!read(b->wake, &woken, sizeof woken);
            continue;
        }
        (void)snprintf(line, sizeof line, "%099d\n", i++);
        refused += !put(b, b, line, true, keep);
    }
    return b->lines = i;
}

/* Lines until the pipe is full and the writer stands before it: from then on it is stuck, and not only late.
 */
static void fill_pipe(struct bench *b)
{
    struct pollfd room = {.fd = b->ends[1], .events = POLLOUT};
    while (poll(&room, 1, 0) > 0) {
        int held = 0;
        assert_int_equal(ioctl(b->ends[0], FIONREAD, &held), 0);
        if (held == b->lines * 100)
            (void)fill(b, b->lines + 1000, 1, true);
        write_queue_kick(b->outlet);
        (void)sched_yield();
    }
}

/* Reads to the end: numbered lines in order, and notices that account for each missing line. Returns
 * how many lines came. */
static int check(int fd, int count)
{
    struct buffer out = {0};
    int next = 0, shown = 0;
    read_rest(fd, &out);
    for (char *at = out.data, *end; at && *at; at = end + 1) {
        end = strchr(at, '\n');
        assert_non_null(end);
        if (*at == 'm') {
            int bytes = atoi(at + strlen("muster: warning: "));
            assert_int_equal(bytes % 100, 0);
            next += bytes / 100;
            continue;
        }
        assert_int_equal(end - at, 99);
        assert_int_equal(strtol(at, NULL, 10), next);
        next++;
        shown++;
    }
    assert_int_equal(next, count);
    buffer_free(&out);
    return shown;
}

/* Nobody reads, nothing else has the lines, there is no spool: refused, counted, told in the right place. */
static void stuck_without_a_spool(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, NULL, 0);
    fill_pipe(&b);
    int count = fill(&b, 1000000, 1000, true);
    assert_true(count < HELD_LINES + 1000);
    struct write_queue_lost lost = write_queue_lost(b.outlet);
    assert_int_equal(lost.bytes, 1000 * 100);
    assert_int_equal(lost.lines, 1000);
    lost = bench_close(&b, false);
    assert_true(lost.bytes > 1000 * 100);
    /* the thread that was left goes on when there is room, and takes everything with it */
    int shown = check(b.ends[0], count);
    assert_int_equal(shown, count - 1000);
}

/* The same with a spool that has room: nothing is lost. False: the spooler got no processor for so long that
 * a line was refused. */
static bool spool_takes_all(void)
{
    struct bench b;
    bench_open(&b, "/tmp", 64 << 20);
    fill_pipe(&b);
    int count = fill(&b, 200000, 1, true); /* 20 MB */
    int refused = (int)write_queue_lost(b.outlet).lines;
    struct write_queue_lost lost = bench_close(&b, false);
    assert_true(lost.bytes >= (uint64_t)count * 100 - PIPE_LIMIT); /* the pipe's contents came */
    assert_int_equal(check(b.ends[0], count), count - refused);
    assert_true(refused || count == 200000);
    return !refused;
}

static void stuck_with_a_spool(void **state)
{
    (void)state;
    int tries = 0;
    while (!spool_takes_all())
        assert_true(++tries < 10);
}

/* What need not be kept does not go there. */
static void what_a_file_has_is_rejected(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "/tmp", 64 << 20);
    fill_pipe(&b);
    int count = fill(&b, 200000, 1000, false);
    assert_true(count < HELD_LINES + 1000);
    (void)bench_close(&b, false);
    assert_int_equal(check(b.ends[0], count), count - 1000);
}

/* A spool that is too small keeps the last lines. */
static void the_oldest_of_the_spool_goes(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "/tmp", 4 << 20);
    fill_pipe(&b);
    int count = fill(&b, 200000, 1000000, true);
    assert_true(write_queue_lost(b.outlet).bytes > 5000000);
    char chunk[100]; /* the first line is in the pipe, the last ones in memory and in the spool */
    assert_int_equal(read(b.ends[0], chunk, sizeof chunk), 100);
    (void)bench_close(&b, false);
    struct buffer out = {0};
    read_rest(b.ends[0], &out);
    char last[100];
    (void)snprintf(last, sizeof last, "%099d", count - 1);
    assert_non_null(strstr(out.data, last));
    assert_non_null(strstr(out.data, "bytes are missing here"));
    assert_in_range(out.length, 1 << 20, 6 << 20);
    buffer_free(&out);
}

/* A folder that is not there is no spool. */
static void no_place_for_a_spool(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "/no/such/folder", 64 << 20);
    fill_pipe(&b);
    int count = fill(&b, 1000000, 1000, true);
    assert_true(count < 2 * HELD_LINES);
    struct write_queue_lost lost = bench_close(&b, false);
    assert_true(lost.bytes >= 1000 * 100);
    assert_true(check(b.ends[0], count) < count);
}

/* It was stuck, now it moves: everything comes, in order, and then new lines go the short way again. */
static void it_moves_again(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "/tmp", 64 << 20);
    int count = fill(&b, 100000, 1, true);
    assert_int_equal(count, 100000);
    struct buffer out = {0};
    char chunk[100000];
    while (out.length < (size_t)count * 100) {
        ssize_t got = read(b.ends[0], chunk, sizeof chunk);
        assert_true(got > 0);
        buffer_append(&out, chunk, (size_t)got);
    }
    for (int i = 0; i < count; i++)
        assert_int_equal(atoi(out.data + (size_t)i * 100), i);
    assert_true(put(&b, &b, "after\n", true, true));
    assert_int_equal(read(b.ends[0], chunk, sizeof chunk), 6);
    assert_int_equal(bench_close(&b, true).bytes, 0);
    close(b.ends[0]);
    buffer_free(&out);
}

/* A full disk: output waits until there is space, and is counted if there is none to the end. */
static void a_full_disk_is_waited_for(void **state)
{
    (void)state;
    int wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct write_queue_options options = {wake, NULL, 0};
    struct write_queue *o = write_queue_create(&options, NULL);
    struct output_file_options full = {
        .fd = open("/dev/full", O_WRONLY | O_CLOEXEC), .owned = true, .name = "it"};
    assert_true(full.fd >= 0);
    struct output_file *t = write_queue_target(o, &full);
    struct write_queue_piece raw = {.target = t, .data = "bytes", .length = 5, .keep = true};
    assert_true(write_queue_put(o, &raw));
    struct pollfd p = {.fd = wake, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 120000), 1); /* told at once */
    struct write_queue_lost lost = write_queue_lost(o);
    assert_int_equal(lost.error, ENOSPC);
    assert_int_equal(lost.bytes, 0); /* not yet */
    write_queue_release(o, t);
    assert_true(write_queue_finish(o, NS_PER_S, INSTANT_NEVER, &lost));
    assert_int_equal(lost.bytes, 5);
    assert_int_equal(fcntl(full.fd, F_GETFD), -1); /* the outlet's to close */
    close(wake);
}

/* A reader that went away is no reason to wait. */
static void a_reader_that_went_away(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "/tmp", 64 << 20);
    close(b.ends[0]);
    int count = fill(&b, 100000, 1, true);
    assert_int_equal(count, 100000);
    struct write_queue_lost lost = bench_close(&b, true);
    assert_int_equal(lost.error, EPIPE);
    assert_int_equal(lost.bytes, (uint64_t)count * 100);
    assert_int_equal(lost.lines, count);
}

struct hog {
    pthread_t thread;
    sem_t go;
};

static void *take_the_processor(void *context)
{
    struct hog *hog = context;
    while (sem_wait(&hog->go))
        ;
    struct instant end = instant_add(clock_now(NULL), 300 * NS_PER_MS);
    while (!instant_reached(clock_now(NULL), end))
        ;
    return NULL;
}

static cpu_set_t first_of(const cpu_set_t *cpus)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++) {
        if (CPU_ISSET(cpu, cpus))
            CPU_SET(cpu, &one);
    }
    return one;
}

/* The writer is last in the queue for the only processor that it may use: it is late, and nothing is stuck.
 */
static void a_writer_without_a_processor_is_waited_for(void **state)
{
    (void)state;
    struct bench b;
    struct write_queue_lost lost;
    struct hog hog;
    cpu_set_t before;
    const struct sched_param none = {0};
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    cpu_set_t one = first_of(&before);
    bench_open(&b, NULL, 0);
    assert_int_equal(sem_init(&hog.go, 0, 0), 0);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(pthread_create(&hog.thread, NULL, take_the_processor, &hog), 0);
    assert_int_equal(sched_setscheduler(0, SCHED_IDLE, &none), 0);
    assert_true(put(&b, &b, "late\n", true, true));  /* starts the writer, which gets our descriptors */
    (void)sched_setscheduler(0, SCHED_OTHER, &none); /* where nobody is let back nothing is shown here */
    assert_int_equal(sem_post(&hog.go), 0);
    assert_true(write_queue_finish(b.outlet, 2 * NS_PER_MS, INSTANT_NEVER, &lost));
    assert_int_equal(lost.bytes, 0);
    assert_int_equal(pthread_join(hog.thread, NULL), 0);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    (void)sem_destroy(&hog.go);
    close(b.wake);
    struct buffer out = {0};
    read_rest(b.ends[0], &out);
    assert_string_equal(out.data, "late\n");
    buffer_free(&out);
}

int main(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL); /* as blocked in the agent */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_kept_together),
        cmocka_unit_test(without_a_thread_the_producers_write),
        cmocka_unit_test(without_a_thread_everything_is_written),
        cmocka_unit_test(stuck_without_a_spool),
        cmocka_unit_test(stuck_with_a_spool),
        cmocka_unit_test(what_a_file_has_is_rejected),
        cmocka_unit_test(the_oldest_of_the_spool_goes),
        cmocka_unit_test(no_place_for_a_spool),
        cmocka_unit_test(it_moves_again),
        cmocka_unit_test(a_full_disk_is_waited_for),
        cmocka_unit_test(a_reader_that_went_away),
        cmocka_unit_test(a_writer_without_a_processor_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
