/* device_cpu_test.c - streams that are threads: order, events, the bounded queue, errors, arenas. */
#include "tests/support/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "runtime/device/device_cpu.h"
#include "tests/support/faults.h"

struct fixture {
    const struct device_ops *ops;
    struct device *device;
    struct device_stream *a, *b;
};

static struct instant in_seconds(int seconds)
{
    return instant_add(clock_now(NULL), seconds * NS_PER_S);
}

static int set_up(void **state)
{
    static struct fixture f;
    struct muster_error err = {0};
    f.ops = device_cpu();
    f.device = f.ops->open(0, 1, &err);
    assert_non_null(f.device);
    f.a = f.ops->stream_create(f.device, "first", false, &err);
    f.b = f.ops->stream_create(f.device, "second", false, &err);
    assert_non_null(f.a);
    assert_non_null(f.b);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    f->ops->stream_destroy(f->a);
    f->ops->stream_destroy(f->b);
    f->ops->stream_destroy(NULL);
    f->ops->close(f->device);
    f->ops->close(NULL);
    return 0;
}

/* ---- work to put on streams ---- */

struct journal {
    int length;
    int line[4096];
};
struct note {
    struct journal *journal;
    int what;
};
static void write_note(void *argument)
{
    struct note *note = argument;
    note->journal->line[note->journal->length++] = note->what;
}

/* A gate holds a stream until the test opens it. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open, entered;
};
static struct gate gate_closed(void)
{
    return (struct gate){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
}
static void pass_gate(void *argument)
{
    struct gate *gate = argument;
    pthread_mutex_lock(&gate->lock);
    gate->entered = true;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}
static void gate_await_entry(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    while (!gate->entered)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}
static void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

/* ---- order ---- */

static void work_runs_in_order(void **state)
{
    struct fixture *f = *state;
    static struct journal journal;
    static struct note notes[3000]; /* more than the queue holds: the caller waits for room */
    journal.length = 0;
    for (int i = 0; i < 3000; i++) {
        notes[i] = (struct note){&journal, i};
        assert_int_equal(f->ops->launch(f->a, write_note, &notes[i]), 0);
    }
    assert_int_equal(f->ops->sync(f->a, in_seconds(30), NULL), 0);
    assert_int_equal(journal.length, 3000);
    for (int i = 0; i < 3000; i++)
        assert_int_equal(journal.line[i], i);
}

struct feeder {
    struct fixture *f;
    struct gate *gate;
    struct note *notes;
    int count;
    _Atomic bool finished;
};
static void *feed(void *argument)
{
    struct feeder *feeder = argument;
    for (int i = 0; i < feeder->count; i++)
        (void)feeder->f->ops->launch(feeder->f->a, write_note, &feeder->notes[i]);
    atomic_store(&feeder->finished, true);
    return NULL;
}

static void full_queue_makes_the_caller_wait(void **state)
{
    struct fixture *f = *state;
    static struct journal journal;
    static struct note notes[DEVICE_CPU_QUEUE + 200];
    struct gate gate = gate_closed();
    struct feeder feeder = {.f = f, .gate = &gate, .notes = notes, .count = DEVICE_CPU_QUEUE + 200};
    journal.length = 0;
    for (int i = 0; i < feeder.count; i++)
        notes[i] = (struct note){&journal, i};
    assert_int_equal(f->ops->launch(f->a, pass_gate, &gate), 0);
    gate_await_entry(&gate);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, feed, &feeder), 0);
    /* The stream cannot move, so the feeder cannot end however long we look. */
    struct muster_error err = {0};
    assert_int_equal(f->ops->sync(f->a, instant_add(clock_now(NULL), 50 * NS_PER_MS), &err), -1);
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
    assert_false(atomic_load(&feeder.finished));
    assert_int_equal(journal.length, 0);
    gate_open(&gate);
    pthread_join(thread, NULL);
    assert_int_equal(f->ops->sync(f->a, in_seconds(30), &err), 0);
    assert_int_equal(journal.length, feeder.count);
}

static void nap(void *argument)
{
    (void)argument;
    (void)usleep(100);
}

/* Who waits for the last of many entries sleeps until then, and is not woken by each one. */
static void a_wait_is_one_sleep(void **state)
{
    enum { ENTRIES = 200 };
    struct fixture *f = *state;
    struct rusage before, after;
    for (int i = 0; i < ENTRIES; i++)
        assert_int_equal(f->ops->launch(f->a, nap, NULL), 0);
    assert_int_equal(getrusage(RUSAGE_THREAD, &before), 0);
    assert_int_equal(f->ops->sync(f->a, in_seconds(60), NULL), 0);
    assert_int_equal(getrusage(RUSAGE_THREAD, &after), 0);
    assert_in_range(after.ru_nvcsw - before.ru_nvcsw, 0, ENTRIES / 10);
}

struct waiter {
    struct fixture *f;
    int entries, failed;
    _Atomic(int) done; /* completed entries */
};
static void count_done(void *argument)
{
    struct waiter *waiter = argument;
    atomic_fetch_add(&waiter->done, 1);
}
static void *wait_again_and_again(void *argument)
{
    struct waiter *waiter = argument;
    for (int turn = 1; turn <= 300; turn++) {
        for (int i = 0; i < waiter->entries; i++)
            waiter->failed += waiter->f->ops->launch(waiter->f->a, count_done, waiter) != 0;
        waiter->failed += waiter->f->ops->sync(waiter->f->a, in_seconds(60), NULL) != 0 ||
                          atomic_load(&waiter->done) != turn * waiter->entries;
    }
    return NULL;
}

static void many_threads_wait_for_one_stream(void **state)
{
    enum { THREADS = 5 };
    struct waiter waiters[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        waiters[i] = (struct waiter){.f = *state, .entries = 1 + 3 * i};
        assert_int_equal(pthread_create(&threads[i], NULL, wait_again_and_again, &waiters[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(waiters[i].failed, 0);
    }
}

static void copies_and_fills_take_their_turn(void **state)
{
    struct fixture *f = *state;
    char from[64], to[64];
    memset(from, 7, sizeof from);
    assert_int_equal(f->ops->fill(f->a, to, 3, sizeof to), 0);
    assert_int_equal(f->ops->copy(f->a, to, from, 32), 0);
    assert_int_equal(f->ops->copy(f->a, to, from, 0), 0);
    assert_int_equal(f->ops->sync(f->a, in_seconds(30), NULL), 0);
    assert_int_equal(to[0], 7);
    assert_int_equal(to[31], 7);
    assert_int_equal(to[32], 3);
    assert_int_equal(to[63], 3);
}

/* ---- events ---- */

static void events_order_streams(void **state)
{
    struct fixture *f = *state;
    struct muster_error err = {0};
    struct device_event *event = f->ops->event_create(f->device, &err);
    assert_non_null(event);
    assert_true(f->ops->event_done(event)); /* never recorded */
    assert_int_equal(f->ops->event_time(event).ns, 0);
    assert_int_equal(f->ops->wait(f->b, event), 0); /* waits for nothing */

    static struct journal journal;
    struct gate gate = gate_closed();
    struct note one = {&journal, 1}, two = {&journal, 2};
    journal.length = 0;
    struct instant before = clock_now(NULL);
    assert_int_equal(f->ops->launch(f->a, pass_gate, &gate), 0);
    assert_int_equal(f->ops->launch(f->a, write_note, &one), 0);
    assert_int_equal(f->ops->record(f->a, event), 0);
    assert_int_equal(f->ops->wait(f->b, event), 0);
    assert_int_equal(f->ops->launch(f->b, write_note, &two), 0);
    assert_false(f->ops->event_done(event));
    assert_int_equal(f->ops->event_time(event).ns, 0);
    /* The other stream hangs in the wait, and sync says in what. */
    do {
        assert_int_equal(f->ops->sync(f->b, instant_add(clock_now(NULL), 20 * NS_PER_MS), &err), -1);
        assert_int_equal(err.code, MUSTER_E_TIMEOUT);
        assert_non_null(strstr(err.text, "second"));
    } while (!strstr(err.text, "waiting for an event of stream first"));
    gate_open(&gate);
    assert_int_equal(f->ops->sync(f->b, in_seconds(30), &err), 0);
    assert_int_equal(journal.length, 2);
    assert_int_equal(journal.line[0], 1);
    assert_int_equal(journal.line[1], 2);
    assert_true(f->ops->event_done(event));
    assert_true(f->ops->event_time(event).ns > before.ns);
    assert_true(f->ops->stream_waited_ns(f->b) > 0);
    assert_int_equal(f->ops->stream_waited_ns(f->a), 0);
    f->ops->event_destroy(event);
}

struct counter {
    int value, seen_wrong, expect;
};
static void add_one(void *argument)
{
    ((struct counter *)argument)->value++;
}
static void check_value(void *argument)
{
    struct counter *counter = argument;
    counter->seen_wrong += counter->value != ++counter->expect;
}

static void two_streams_take_turns_many_times(void **state)
{
    struct fixture *f = *state;
    struct device_event *there = f->ops->event_create(f->device, NULL);
    struct device_event *back = f->ops->event_create(f->device, NULL);
    struct counter counter = {0}; /* unsynchronised: only events order the two streams */
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(f->ops->wait(f->a, back), 0);
        assert_int_equal(f->ops->launch(f->a, add_one, &counter), 0);
        assert_int_equal(f->ops->record(f->a, there), 0);
        assert_int_equal(f->ops->wait(f->b, there), 0);
        assert_int_equal(f->ops->launch(f->b, check_value, &counter), 0);
        assert_int_equal(f->ops->record(f->b, back), 0);
    }
    assert_int_equal(f->ops->sync(f->a, in_seconds(60), NULL), 0);
    assert_int_equal(f->ops->sync(f->b, in_seconds(60), NULL), 0);
    assert_int_equal(counter.value, 2000);
    assert_int_equal(counter.seen_wrong, 0);
    f->ops->event_destroy(there);
    f->ops->event_destroy(back);
}

/* ---- errors ---- */

static void first_error_is_kept_and_streams_drain(void **state)
{
    struct fixture *f = *state;
    static struct journal journal;
    struct gate gate = gate_closed();
    struct note note = {&journal, 1};
    struct muster_error first, second, err = {0};
    struct device_event *event = f->ops->event_create(f->device, NULL);
    journal.length = 0;
    assert_int_equal(f->ops->poll_error(f->device, &err), 0);
    assert_int_equal(f->ops->launch(f->a, pass_gate, &gate), 0);
    assert_int_equal(f->ops->launch(f->a, write_note, &note), 0);
    assert_int_equal(f->ops->record(f->a, event), 0);
    assert_int_equal(f->ops->wait(f->b, event), 0);
    assert_int_equal(f->ops->launch(f->b, write_note, &note), 0);
    gate_await_entry(&gate);
    (void)error_set(&first, MUSTER_E_PEER, "rank 3 is gone");
    (void)error_set(&second, MUSTER_E_IO, "something else");
    (f->ops->fail)(f->device, &first);
    (f->ops->fail)(f->device, &second);
    /* Nothing more is taken. */
    assert_int_equal(f->ops->launch(f->b, write_note, &note), -1);
    assert_int_equal(f->ops->record(f->b, event), -1);
    assert_int_equal(f->ops->wait(f->b, event), -1);
    assert_int_equal(f->ops->copy(f->b, &err, &err, 0), -1);
    assert_int_equal(f->ops->fill(f->b, &err, 0, 0), -1);
    gate_open(&gate);
    assert_int_equal(f->ops->sync(f->b, in_seconds(30), &err), -1);
    assert_int_equal(err.code, MUSTER_E_PEER);
    assert_string_equal(err.text, "rank 3 is gone");
    assert_int_equal(f->ops->poll_error(f->device, NULL), -1);
    assert_int_equal(f->ops->sync(f->a, in_seconds(30), &err), -1);
    assert_true(f->ops->event_done(event)); /* it happened, without the work */
    assert_int_equal(journal.length, 0);
    f->ops->event_destroy(event);
}

static void sync_names_stream_and_position(void **state)
{
    struct fixture *f = *state;
    struct gate gate = gate_closed();
    struct muster_error err = {0};
    assert_int_equal(f->ops->launch(f->a, pass_gate, &gate), 0);
    gate_await_entry(&gate);
    assert_int_equal(f->ops->launch(f->a, pass_gate, &gate), 0);
    assert_int_equal(f->ops->sync(f->a, clock_now(NULL), &err), -1);
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
    assert_non_null(strstr(err.text, "first"));
    assert_non_null(strstr(err.text, "1 of 2, running work"));
    gate_open(&gate);
    assert_int_equal(f->ops->sync(f->a, INSTANT_NEVER, &err), 0);
}

/* ---- the compute thread ---- */

static void note_thread(void *argument)
{
    *(int *)argument = device_cpu_on_compute_thread();
}

static void only_one_stream_computes(void **state)
{
    struct fixture *f = *state;
    struct muster_error err = {0};
    struct device_stream *compute = f->ops->stream_create(f->device, "compute", true, &err);
    assert_non_null(compute);
    assert_null(f->ops->stream_create(f->device, "other", true, &err));
    assert_int_equal(err.code, MUSTER_E_STATE);
    assert_non_null(strstr(err.text, "other"));
    int on_compute = -1, on_first = -1;
    assert_int_equal(f->ops->launch(compute, note_thread, &on_compute), 0);
    assert_int_equal(f->ops->launch(f->a, note_thread, &on_first), 0);
    assert_int_equal(f->ops->sync(compute, in_seconds(30), NULL), 0);
    assert_int_equal(f->ops->sync(f->a, in_seconds(30), NULL), 0);
    assert_int_equal(on_compute, 1);
    assert_int_equal(on_first, 0);
    assert_false(device_cpu_on_compute_thread());
    assert_null(f->ops->stream_handle(compute));
    f->ops->stream_destroy(compute);
    compute = f->ops->stream_create(f->device, "compute", true, &err); /* the place is free again */
    assert_non_null(compute);
    f->ops->stream_destroy(compute);
    assert_non_null(f->ops->kernels(f->device));
}

/* ---- arenas ---- */

static void arenas_are_zeroed_and_aligned(void **state)
{
    struct fixture *f = *state;
    struct muster_error err = {0};
    for (int memory = 0; memory < MEMORY_CLASS_COUNT; memory++) {
        struct device_arena arena = {0};
        assert_int_equal(f->ops->arena_create(f->device, (enum memory_class)memory, 10001, &arena, &err), 0);
        assert_int_equal((uintptr_t)arena.base % 4096, 0);
        assert_int_equal(arena.bytes, 10001);
        assert_int_equal(arena.memory, memory);
        for (int i = 0; i < 10001; i++)
            assert_int_equal(((char *)arena.base)[i], 0);
        assert_int_equal(arena.fd >= 0, memory == MEMORY_COMM);
        if (memory == MEMORY_COMM) {
            struct stat status;
            assert_int_equal(fstat(arena.fd, &status), 0);
            assert_int_equal(status.st_size, 10001);
            assert_int_equal(ftruncate(arena.fd, 5), -1); /* sealed: readers never get SIGBUS */
        }
        f->ops->arena_destroy(f->device, &arena);
        assert_null(arena.base);
        f->ops->arena_destroy(f->device, &arena);
    }
    struct device_arena none;
    assert_int_equal(f->ops->arena_create(f->device, MEMORY_HOST, 0, &none, &err), -1);
    assert_int_equal(err.code, MUSTER_E_INVALID);
    assert_string_equal(memory_class_name(MEMORY_PINNED), "pinned");
}

static void poison_shows_what_nobody_wrote(void **state)
{
    struct fixture *f = *state;
    struct device_arena arena;
    device_cpu_poison(f->device, 0xff);
    assert_int_equal(f->ops->arena_create(f->device, MEMORY_DEVICE, 100, &arena, NULL), 0);
    assert_int_equal(((unsigned char *)arena.base)[99], 0xff);
    f->ops->arena_destroy(f->device, &arena);
}

static void too_large_allocations_fail(void **state)
{
    struct fixture *f = *state;
    struct muster_error err = {0};
    struct device_arena first, second = {0};
    device_cpu_memory_limit(f->device, 1 << 20);
    assert_int_equal(f->ops->arena_create(f->device, MEMORY_DEVICE, 700000, &first, &err), 0);
    assert_int_equal(f->ops->arena_create(f->device, MEMORY_HOST, 400000, &second, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOMEM);
    assert_non_null(strstr(err.text, "400000"));
    assert_non_null(strstr(err.text, "348576"));
    assert_non_null(strstr(err.text, "host"));
    f->ops->arena_destroy(f->device, &first);
    assert_int_equal(f->ops->arena_create(f->device, MEMORY_HOST, 400000, &second, &err), 0);
    f->ops->arena_destroy(f->device, &second);
    /* The machine's own limit: no machine has this. */
    device_cpu_memory_limit(f->device, -1);
    assert_int_equal(f->ops->arena_create(f->device, MEMORY_DEVICE, INT64_C(1) << 46, &first, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOMEM);
    assert_int_equal(f->ops->arena_create(f->device, MEMORY_COMM, INT64_C(1) << 46, &first, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOMEM);
}

static void memory_sums(void **state)
{
    (void)state;
    struct muster_error err;
    assert_int_equal(device_cpu_memory_fits(100, 100, 0, MEMORY_HOST, &err), 0);
    assert_int_equal(device_cpu_memory_fits(101, 100, 0, MEMORY_HOST, &err), -1);
    assert_int_equal(device_cpu_memory_fits(60, 100, 40, MEMORY_HOST, &err), 0);
    assert_int_equal(device_cpu_memory_fits(61, 100, 40, MEMORY_HOST, &err), -1);
    assert_int_equal(device_cpu_memory_fits(1, 100, 400, MEMORY_HOST, &err), -1);
    assert_int_equal(device_cpu_memory_fits(1, 0, 400, MEMORY_HOST, &err), 0); /* nothing could be read */
}

/* ---- allocation failures ---- */

static int make_everything(void *context)
{
    (void)context;
    const struct device_ops *ops = device_cpu();
    struct muster_error err = {0};
    struct device_arena arena = {0};
    struct device_event *event = NULL;
    struct device_stream *stream = NULL;
    struct device *device = ops->open(0, 1, &err);
    if (!device)
        return -1;
    device_cpu_memory_limit(device, 1 << 20); /* reading the machine's absorbs a failure */
    int result = ops->arena_create(device, MEMORY_COMM, 4096, &arena, &err);
    if (!result && !(event = ops->event_create(device, &err)))
        result = -1;
    if (!result && !(stream = ops->stream_create(device, "s", false, &err)))
        result = -1;
    ops->stream_destroy(stream);
    ops->event_destroy(event);
    ops->arena_destroy(device, &arena);
    ops->close(device);
    if (result)
        assert_int_equal(err.code, MUSTER_E_NOMEM);
    return result;
}

static void failed_allocations_leak_nothing(void **state)
{
    (void)state;
    faults_sweep(make_everything, NULL);
}

static void bad_arguments(void **state)
{
    (void)state;
    struct muster_error err = {0};
    assert_null(device_cpu()->open(-1, 1, &err));
    assert_int_equal(err.code, MUSTER_E_INVALID);
    assert_null(device_cpu()->open(0, 0, &err));
    assert_int_equal(err.code, MUSTER_E_INVALID);
}

#define WITH_DEVICE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DEVICE(work_runs_in_order),
        WITH_DEVICE(full_queue_makes_the_caller_wait),
        WITH_DEVICE(a_wait_is_one_sleep),
        WITH_DEVICE(many_threads_wait_for_one_stream),
        WITH_DEVICE(copies_and_fills_take_their_turn),
        WITH_DEVICE(events_order_streams),
        WITH_DEVICE(two_streams_take_turns_many_times),
        WITH_DEVICE(first_error_is_kept_and_streams_drain),
        WITH_DEVICE(sync_names_stream_and_position),
        WITH_DEVICE(only_one_stream_computes),
        WITH_DEVICE(arenas_are_zeroed_and_aligned),
        WITH_DEVICE(poison_shows_what_nobody_wrote),
        WITH_DEVICE(too_large_allocations_fail),
        cmocka_unit_test(memory_sums),
        cmocka_unit_test(failed_allocations_leak_nothing),
        cmocka_unit_test(bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
