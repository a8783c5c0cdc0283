/* device_cuda_test.c - the device of the module, by its table alone: memory, copies, order by events, waiting
 * with a deadline, errors. A conformance program: it asks of the fake CUDA runtime nothing that a GPU would
 * not do, so that it runs on one too; the few tests that make the fake misbehave say so and are left out
 * there. */
#include "tests/support/cmocka_all.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/cuda/device_cuda.h"
#include "tests/gpu/device/device_support.h"

static void device_fill_numbers(unsigned char *out, int64_t count, unsigned seed)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = (unsigned char)((seed = seed * 1664525U + 1013904223U) >> 24);
}

static void memory_begins_zeroed_and_aligned(void **state)
{
    const struct fixture *f = *state;
    scope_free unsigned char *out = mem_calloc(BYTES, 1);
    memset(out, 7, BYTES);
    assert_int_equal((uintptr_t)f->memory.base % 256, 0);
    assert_int_equal(f->ops->copy(f->a, out, f->memory.base, BYTES), 0);
    device_finish(f, f->a);
    for (int i = 0; i < BYTES; i++)
        assert_true(!out[i] && !((unsigned char *)f->pinned.base)[i]);
}

/* For sizes below, at and above the pieces in which the host's own memory goes. */
static void the_hosts_own_memory_goes_there_and_back(void **state)
{
    const struct fixture *f = *state;
    static const int64_t sizes[] = {1, 255, 1 << 20, (1 << 20) + 1, (2 << 20) + 12345, BYTES - 3};
    scope_free unsigned char *in = mem_calloc(BYTES, 1), *out = mem_calloc(BYTES, 1);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        device_fill_numbers(in, sizes[i], i);
        memset(out, 0, BYTES);
        assert_int_equal(f->ops->copy(f->a, (char *)f->memory.base + 3, in, sizes[i]), 0);
        assert_int_equal(f->ops->copy(f->a, out, (char *)f->memory.base + 3, sizes[i]), 0);
        device_finish(f, f->a);
        assert_memory_equal(in, out, (size_t)sizes[i]);
        device_fill_numbers(in, sizes[i], 99); /* `from` was free to change when the call returned */
        assert_int_equal(f->ops->copy(f->a, f->memory.base, in, sizes[i]), 0);
        memset(in, 0, BYTES);
        assert_int_equal(f->ops->copy(f->a, out, f->memory.base, sizes[i]), 0);
        device_fill_numbers(in, sizes[i], 99);
        assert_memory_equal(in, out, (size_t)sizes[i]); /* and `to` was filled */
    }
}

static void events_order_streams(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    unsigned char *pinned = f->pinned.base;
    struct device_event *done = f->ops->event_create(f->device, &err);
    assert_non_null(done);
    assert_true(f->ops->event_done(done)); /* it was never recorded */
    for (int round = 1; round < 50; round++) {
        assert_int_equal(f->ops->fill(f->a, f->memory.base, round, BYTES), 0);
        assert_int_equal(f->ops->record(f->a, done), 0);
        assert_int_equal(f->ops->wait(f->b, done), 0);
        assert_int_equal(f->ops->copy(f->b, pinned, f->memory.base, BYTES), 0);
        device_finish(f, f->b);
        assert_true(f->ops->event_done(done));
        assert_true(pinned[0] == round && pinned[BYTES - 1] == round);
    }
    device_finish(f, f->a);
    f->ops->event_destroy(done);
}

/* Events are made and lost while the stream that recorded them goes on. */
static void an_event_that_has_gone_is_not_asked_about(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    for (int round = 0; round < 200; round++) {
        struct device_event *event = f->ops->event_create(f->device, &err);
        assert_non_null(event);
        assert_int_equal(f->ops->fill(f->a, f->memory.base, round, 1000), 0);
        assert_int_equal(f->ops->record(f->a, event), 0);
        f->ops->event_destroy(event);
    }
    device_finish(f, f->a);
}

/* A thread may have used another device before. */
static void two_devices_take_turns(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    const char *devices = getenv("FAKE_CUDA_DEVICES");
    if (!devices || atoi(devices) < 2)
        skip();
    struct device *other = f->ops->open(1, 1, &err);
    assert_non_null(other);
    struct device_stream *computes[] = {f->ops->stream_create(f->device, "0", true, &err),
                                        f->ops->stream_create(other, "1", true, &err)};
    struct device_arena memory = {0};
    assert_true(computes[0] && computes[1]);
    const int64_t before = f->ops->memory_available(f->device);
    assert_int_equal(f->ops->arena_create(other, MEMORY_DEVICE, 2 * BYTES, &memory, &err), 0);
    struct device *shared = f->ops->open(atoi(devices), 1, &err); /* a rank more than there are devices */
    assert_non_null(shared);
    if (device_on_fakes()) { /* a GPU is used by others too */
        assert_int_equal(f->ops->memory_available(f->device), before);
        assert_int_equal(f->ops->memory_available(shared), before);
        assert_true(f->ops->memory_available(other) < before);
    }
    f->ops->close(shared);
    for (int i = 0; i < 4; i++) {
        struct device *device = i % 2 ? other : f->device;
        struct device_add add = {f->ops->kernels(device), i % 2 ? memory.base : f->memory.base,
                                 f->ops->stream_handle(computes[i % 2])};
        assert_int_equal(f->ops->launch(computes[i % 2], device_add_numbers, &add), 0);
        device_finish(f, computes[i % 2]);
    }
    f->ops->stream_destroy(computes[0]);
    f->ops->stream_destroy(computes[1]);
    f->ops->arena_destroy(other, &memory);
    f->ops->close(other);
}

/* As PyTorch's torch.cuda.set_device does. */
static void another_library_chooses_another_device(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    struct device_arena memory = {0};
    void *library = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
    int (*set_device)(int) = library ? (int (*)(int))(uintptr_t)dlsym(library, "cudaSetDevice") : NULL;
    const char *devices = getenv("FAKE_CUDA_DEVICES");
    if (!set_device || !devices || atoi(devices) < 2)
        skip();
    const int64_t before = f->ops->memory_available(f->device);
    assert_int_equal(set_device(1), 0);
    assert_int_equal(f->ops->arena_create(f->device, MEMORY_DEVICE, BYTES, &memory, &err), 0);
    assert_int_equal(before - f->ops->memory_available(f->device), BYTES);
    assert_int_equal(set_device(1), 0);
    struct device_add add = {f->ops->kernels(f->device), f->memory.base, f->ops->stream_handle(f->a)};
    assert_int_equal(f->ops->launch(f->a, device_add_numbers, &add), 0);
    device_finish(f, f->a);
    f->ops->arena_destroy(f->device, &memory);
    (void)dlclose(library);
}

static void note_call(void *argument)
{
    ++*(int *)argument;
}

static void a_launch_runs_on_its_caller(void **state)
{
    const struct fixture *f = *state;
    int calls = 0;
    assert_int_equal(f->ops->launch(f->a, note_call, &calls), 0);
    assert_int_equal(calls, 1);
}

/* CUDA keeps "not yet" as the thread's last error, which the next launch would find. */
static void ask_and_launch(const struct fixture *f, bool asks)
{
    struct muster_error err = {0};
    struct device_event *events[] = {f->ops->event_create(f->device, &err),
                                     f->ops->event_create(f->device, &err)};
    struct device_add add = {f->ops->kernels(f->device), f->memory.base, f->ops->stream_handle(f->a)};
    assert_true(events[0] && events[1]);
    for (int round = 0; round < 20; round++) {
        assert_int_equal(f->ops->fill(f->a, f->memory.base, 0, BYTES), 0);
        assert_int_equal(f->ops->record(f->a, events[0]), 0);
        if (asks)
            (void)f->ops->event_done(events[0]);
        else
            assert_int_equal(f->ops->record(f->a, events[1]), 0); /* it asks about those before it */
        assert_int_equal(f->ops->launch(f->a, device_add_numbers, &add), 0);
    }
    device_finish(f, f->a);
    f->ops->event_destroy(events[0]);
    f->ops->event_destroy(events[1]);
}

static void a_question_is_no_error_of_the_next_launch(void **state)
{
    ask_and_launch(*state, true);
}

static void a_question_about_records_is_no_error(void **state)
{
    ask_and_launch(*state, false);
}

struct doubling {
    struct device_add add;
    int calls;
};

static void double_numbers(void *argument)
{
    struct doubling *doubling = argument;
    doubling->calls++;
    device_add_numbers(&doubling->add);
    device_add_numbers(&doubling->add);
}

static void recorded_work_is_launched_in_order(void **state)
{
    const struct fixture *f = *state;
    struct device_graph *graph = NULL;
    struct doubling doubling = {{f->ops->kernels(f->device), f->memory.base, f->ops->stream_handle(f->a)}, 0};
    float *numbers = f->pinned.base;
    assert_non_null(f->ops->launch_graph);
    for (int i = 0; i < 100; i++)
        numbers[i] = (float)i;
    assert_int_equal(f->ops->copy(f->a, f->memory.base, numbers, 400), 0);
    for (int round = 0; round < 5; round++)
        assert_int_equal(f->ops->launch_graph(f->a, &graph, "doubling", double_numbers, &doubling), 0);
    assert_int_equal(f->ops->copy(f->a, numbers, f->memory.base, 400), 0);
    device_finish(f, f->a);
    assert_int_equal(doubling.calls, 2);
    for (int i = 0; i < 100; i++)
        assert_true(numbers[i] == (float)i * 1024);
    f->ops->graph_destroy(graph);
    f->ops->graph_destroy(NULL);
}

static void an_error_stays_and_refuses_what_comes(void **state)
{
    const struct fixture *f = *state;
    struct muster_error first, found = {0};
    (void)error_set(&first, MUSTER_E_PEER, "rank 3 has gone");
    assert_int_equal(f->ops->fill(f->a, f->memory.base, 1, BYTES), 0);
    (f->ops->fail)(f->device, &first); /* cmocka has a macro of that name */
    (void)error_set(&first, MUSTER_E_IO, "a later one");
    (f->ops->fail)(f->device, &first); /* cmocka has a macro of that name */
    assert_int_equal(f->ops->fill(f->a, f->memory.base, 2, 1), -1);
    assert_int_equal(f->ops->sync(f->a, INSTANT_NEVER, &found), -1); /* and the stream is empty */
    assert_int_equal(found.code, MUSTER_E_PEER);
    assert_string_equal(found.text, "rank 3 has gone");
    assert_int_equal(f->ops->poll_error(f->device, &found), -1);
}

static void what_does_not_fit_is_refused_with_what_is_free(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    struct device_arena arena = {0};
    const int64_t available = f->ops->memory_available(f->device);
    assert_true(available > 0);
    assert_int_equal(f->ops->arena_create(f->device, MEMORY_COMM, available + (1 << 20), &arena, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOMEM);
    assert_non_null(strstr(err.text, "are free"));
    assert_int_equal(f->ops->poll_error(f->device, NULL), 0); /* the device goes on */
}

static void a_fill_has_any_number_of_bytes(void **state)
{
    const struct fixture *f = *state;
    static const int64_t sizes[] = {1, 2, 3, 5, 255, 4097, 65537, BYTES - 9};
    const unsigned char *pinned = f->pinned.base;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *at = (char *)f->memory.base + 3;
        assert_int_equal(f->ops->fill(f->a, f->memory.base, 0x11, BYTES), 0);
        assert_int_equal(f->ops->fill(f->a, at, 0x77, sizes[i]), 0);
        assert_int_equal(f->ops->copy(f->a, f->pinned.base, f->memory.base, BYTES), 0);
        device_finish(f, f->a);
        assert_int_equal(pinned[2], 0x11);
        for (int64_t b = 0; b < sizes[i]; b++)
            assert_int_equal(pinned[3 + b], 0x77);
        assert_int_equal(pinned[3 + sizes[i]], 0x11);
    }
}

static void arenas_go_in_any_order(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    struct device_arena arenas[3] = {0};
    unsigned char in[64], out[64];
    for (int i = 0; i < 3; i++)
        assert_int_equal(f->ops->arena_create(f->device, MEMORY_DEVICE, 4096, &arenas[i], &err), 0);
    for (int gone = 0; gone < 3; gone++) { /* first in, first out */
        f->ops->arena_destroy(f->device, &arenas[gone]);
        for (int i = gone + 1; i < 3; i++) {
            device_fill_numbers(in, sizeof in, (unsigned)(10 * gone + i));
            assert_int_equal(f->ops->copy(f->a, arenas[i].base, in, sizeof in), 0);
            const uint64_t before = device_calls("cudaMemcpyAsync");
            assert_int_equal(f->ops->copy(f->a, out, arenas[i].base, sizeof out), 0);
            assert_memory_equal(in, out, sizeof in);
            if (device_on_fakes()) /* where host and device share addresses, the host's copy gives the same
                                      bytes */
                assert_int_equal(device_calls("cudaMemcpyAsync"), before + 1);
        }
    }
    device_finish(f, f->a);
}

struct copier {
    const struct fixture *f;
    struct device_stream *stream;
    char *at; /* device memory */
    unsigned seed;
    int wrong;
};

static void *copy_there_and_back(void *argument)
{
    enum { COPIED = 1 << 20 };
    struct copier *c = argument;
    scope_free unsigned char *in = mem_calloc(COPIED, 1), *out = mem_calloc(COPIED, 1);
    for (unsigned round = 0; round < 12 && !c->wrong; round++) {
        device_fill_numbers(in, COPIED, c->seed + round);
        c->wrong = c->f->ops->copy(c->stream, c->at, in, COPIED) ||
                   c->f->ops->copy(c->stream, out, c->at, COPIED) || memcmp(in, out, COPIED) != 0;
    }
    return NULL;
}

/* As a checkpoint's thread and the training thread do. */
static void two_threads_copy_the_hosts_own_memory(void **state)
{
    const struct fixture *f = *state;
    pthread_t threads[2];
    struct copier copiers[2] = {{f, f->a, f->memory.base, 1, 0},
                                {f, f->b, (char *)f->memory.base + (3 << 19), 1000, 0}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, copy_there_and_back, &copiers[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(!copiers[0].wrong && !copiers[1].wrong);
}

/* Collectives go before products, and no stream waits for what another library puts on the default stream. */
static void streams_have_their_priority(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    cudaError_t (*flags_of)(cudaStream_t, unsigned *), (*priority_of)(cudaStream_t, int *);
    *(void **)&flags_of = device_function("cudaStreamGetFlags");
    *(void **)&priority_of = device_function("cudaStreamGetPriority");
    if (!flags_of || !priority_of)
        skip();
    struct device_stream *compute = f->ops->stream_create(f->device, "compute", true, &err);
    assert_non_null(compute);
    struct device_stream *streams[] = {compute, f->a};
    int priority[2];
    for (int i = 0; i < 2; i++) {
        const struct cuda_stream_handle *handle = f->ops->stream_handle(streams[i]);
        unsigned flags = 0;
        assert_int_equal(flags_of(handle->stream, &flags), cudaSuccess);
        assert_int_equal(priority_of(handle->stream, &priority[i]), cudaSuccess);
        assert_int_equal(flags, cudaStreamNonBlocking);
    }
    assert_true(priority[1] < priority[0]); /* a lower number goes first */
    f->ops->stream_destroy(compute);
}

static void marks_tell_how_far_a_stream_is(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    char text[DEVICE_UNDER_WAY];
    struct device_event *event = f->ops->event_create(f->device, &err);
    assert_int_equal(f->ops->marked(f->a), 0);
    for (int round = 1; round <= 3000; round++) { /* more than are kept open */
        assert_int_equal(f->ops->fill(f->a, f->memory.base, round, 8), 0);
        assert_int_equal(f->ops->mark(f->a, round), 0);
        const int64_t marked = f->ops->marked(f->a);
        assert_true(marked >= 0 && marked <= round);
        if (round % 500 == 0) {
            device_finish(f, f->a);
            assert_true(f->ops->marked(f->a) >= round - 500);
        }
    }
    assert_int_equal(f->ops->mark(f->a, 3001), 0);
    device_finish(f, f->a);
    assert_int_equal(f->ops->marked(f->a), 3001);
    f->ops->under_way(f->device, text);
    assert_string_equal(text, "");
    f->ops->event_destroy(event);
}

/* ---- where the fake is told to misbehave ---- */

/* More waits than are measured at a time, and each is counted once. */
static void exposed_time_is_counted_whole_and_once(void **state)
{
    enum { WAITS = 1300 };
    const struct fixture *f = *state;
    struct muster_error err = {0};
    if (!device_on_fakes())
        skip();
    struct device_stream *compute = f->ops->stream_create(f->device, "compute", true, &err);
    struct device_event *done = f->ops->event_create(f->device, &err);
    assert_true(compute && done);
    assert_int_equal(f->ops->stream_waited_ns(compute), 0);
    setenv("FAKE_CUDA_COST", "cudaMemsetAsync:100", 1);
    for (int i = 0; i < WAITS; i++) {
        assert_int_equal(f->ops->fill(f->a, f->memory.base, i, 8), 0);
        assert_int_equal(f->ops->record(f->a, done), 0);
        assert_int_equal(f->ops->wait(compute, done), 0);
    }
    device_finish(f, compute);
    unsetenv("FAKE_CUDA_COST");
    const int64_t waited = f->ops->stream_waited_ns(compute);
    const int64_t cost = WAITS * 100 * NS_PER_US; /* a little of it passes while the host enqueues */
    if (waited < cost * 8 / 10)
        fail_msg("%lld ms of at least %lld were counted", (long long)(waited / NS_PER_MS),
                 (long long)(cost / NS_PER_MS));
    device_finish(f, compute);
    assert_int_equal(f->ops->stream_waited_ns(compute), waited);
    f->ops->event_destroy(done);
    f->ops->stream_destroy(compute);
}

/* Nothing that is given back waits for it for ever. */
static void a_fault_that_never_ends_is_named_and_left(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    char text[DEVICE_UNDER_WAY];
    if (!device_on_fakes())
        skip();
    struct device_stream *compute = f->ops->stream_create(f->device, "compute", true, &err);
    struct device_add add = {f->ops->kernels(f->device), f->memory.base, f->ops->stream_handle(compute)};
    setenv("FAKE_CUDA_HANG", "add:2", 1);
    assert_int_equal(f->ops->launch(compute, device_add_numbers, &add), 0);
    assert_int_equal(f->ops->mark(compute, 7), 0);
    assert_int_equal(f->ops->launch(compute, device_add_numbers, &add), 0);
    assert_int_equal(f->ops->fill(compute, f->memory.base, 0, 8), 0);
    assert_int_equal(f->ops->mark(compute, 8), 0);
    const struct instant begun = clock_now(NULL);
    assert_int_equal(f->ops->sync(compute, instant_add(begun, 200 * NS_PER_MS), &err), -1);
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
    assert_non_null(strstr(err.text, "stream compute has not finished in time: of 3 operations, add, fill"));
    assert_int_equal(f->ops->marked(compute), 7);
    (f->ops->fail)(f->device, &err);
    f->ops->under_way(f->device, text);
    assert_string_equal(text, "add, fill of stream compute");
    f->ops->stream_destroy(compute);
    assert_true(instant_diff_ns(clock_now(NULL), begun) < 20 * NS_PER_S);
}

/* Statuses that come later than their cause; operations under way are named. */
static const int late_statuses[] = {
    cudaErrorMisalignedAddress,   cudaErrorHardwareStackError,  cudaErrorECCUncorrectable,
    cudaErrorNvlinkUncorrectable, cudaErrorContained,           cudaErrorExternalDevice,
    cudaErrorMpsRpcFailure,       cudaErrorMpsClientTerminated, cudaErrorTensorMemoryLeak};

static void a_fault_of_any_kind_names_the_operations(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    if (!device_on_fakes())
        skip();
    setenv("FAKE_CUDA_ASYNC", "cudaMemsetAsync:1", 1);
    (void)f->ops->fill(f->a, f->memory.base, 1, 100);
    assert_int_equal(f->ops->sync(f->a, INSTANT_NEVER, &err), -1);
    unsetenv("FAKE_CUDA_ASYNC");
    if (!strstr(err.text, "under way: fill of stream a"))
        fail_msg("%s", err.text);
}

static void a_fault_names_the_operations_that_may_have_it(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    if (!device_on_fakes())
        skip();
    assert_int_equal(f->ops->copy(f->a, f->memory.base, f->pinned.base, 100), 0);
    device_finish(f, f->a);
    setenv("FAKE_CUDA_ASYNC", "cudaMemsetAsync:1", 1);
    (void)f->ops->fill(f->a, f->memory.base, 1, 100); /* refused or not: it is asynchronous */
    assert_int_equal(f->ops->sync(f->a, INSTANT_NEVER, &err), -1);
    unsetenv("FAKE_CUDA_ASYNC");
    assert_non_null(strstr(err.text, "cudaErrorIllegalAddress"));
    assert_non_null(strstr(err.text, "under way: fill of stream a"));
    assert_null(strstr(err.text, "copy"));
}

static void a_refusal_names_the_call(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    if (!device_on_fakes())
        skip();
    struct device_event *event = f->ops->event_create(f->device, &err);
    assert_non_null(event);
    setenv("FAKE_CUDA_FAIL", "cudaEventRecord:1000", 1); /* earlier tests have made some calls */
    int failed = 0;
    for (int n = 0; n < 1000 && !failed; n++)
        failed = f->ops->record(f->a, event);
    unsetenv("FAKE_CUDA_FAIL");
    assert_int_equal(f->ops->poll_error(f->device, &err), -1);
    assert_non_null(strstr(err.text, "cudaEventRecord"));
    f->ops->event_destroy(event);
}

static void a_fault_in_recorded_work_names_it(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    struct device_graph *graph = NULL;
    struct doubling doubling = {{f->ops->kernels(f->device), f->memory.base, f->ops->stream_handle(f->a)}, 0};
    if (!device_on_fakes())
        skip();
    assert_int_equal(f->ops->launch_graph(f->a, &graph, "doubling", double_numbers, &doubling), 0);
    device_finish(f, f->a);
    setenv("FAKE_CUDA_ASYNC", "add:2", 1);
    (void)f->ops->launch_graph(f->a, &graph, "doubling", double_numbers, &doubling);
    assert_int_equal(f->ops->sync(f->a, INSTANT_NEVER, &err), -1);
    unsetenv("FAKE_CUDA_ASYNC");
    assert_non_null(strstr(err.text, "under way: doubling of stream a"));
    f->ops->graph_destroy(graph);
}

/* In order, without a failure before: the end takes no longer than it may, and the device tells of it. */
static void a_fault_that_shows_at_the_end_is_named_and_left(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    if (!device_on_fakes())
        skip();
    struct device_stream *compute = f->ops->stream_create(f->device, "compute", true, &err);
    struct device_add add = {f->ops->kernels(f->device), f->memory.base, f->ops->stream_handle(compute)};
    assert_true(f->device->end_ns >= 10 * NS_PER_S && f->device->end_ns <= 60 * NS_PER_S);
    f->device->end_ns = 300 * NS_PER_MS;
    setenv("FAKE_CUDA_HANG", "add:2", 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(f->ops->launch(compute, device_add_numbers, &add), 0);
    const struct instant begun = clock_now(NULL);
    f->ops->stream_destroy(compute);
    assert_true(instant_diff_ns(clock_now(NULL), begun) < 10 * NS_PER_S);
    assert_int_equal(f->ops->poll_error(f->device, &err), -1);
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
    assert_non_null(
        strstr(err.text, "at the end: stream compute has not finished in time: of 2 operations, add"));
}

/* For each of these statuses, which the process keeps. */
static int run_late_statuses(char *program)
{
    int failed = 0;
    for (size_t i = 0; i < sizeof late_statuses / sizeof *late_statuses; i++) {
        char code[16];
        (void)snprintf(code, sizeof code, "%d", late_statuses[i]);
        setenv("FAKE_CUDA_ASYNC_ERROR", code, 1);
        failed += device_run_alone(program, "a_fault_of_any_kind_names_the_operations");
    }
    unsetenv("FAKE_CUDA_ASYNC_ERROR");
    return failed;
}

/* device_cuda_test [TEST]: all tests, or the named test. */
int main(int argc, char **argv)
{
    static const char *const alone[] = {
        "a_fault_names_the_operations_that_may_have_it", "a_fault_that_never_ends_is_named_and_left",
        "a_fault_that_shows_at_the_end_is_named_and_left", "a_fault_in_recorded_work_names_it"};
    int failed = 0;
    for (size_t i = 0; argc < 2 && i < sizeof alone / sizeof *alone; i++)
        failed += device_run_alone(argv[0], alone[i]);
    if (argc < 2)
        failed += run_late_statuses(argv[0]);
    cmocka_set_skip_filter(argc < 2 ? "a_fault_*" : NULL);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        WITH_DEVICE(memory_begins_zeroed_and_aligned),
        WITH_DEVICE(the_hosts_own_memory_goes_there_and_back),
        WITH_DEVICE(events_order_streams),
        WITH_DEVICE(an_event_that_has_gone_is_not_asked_about),
        WITH_DEVICE(two_devices_take_turns),
        WITH_DEVICE(another_library_chooses_another_device),
        WITH_DEVICE(a_launch_runs_on_its_caller),
        WITH_DEVICE(a_question_is_no_error_of_the_next_launch),
        WITH_DEVICE(a_question_about_records_is_no_error),
        WITH_DEVICE(recorded_work_is_launched_in_order),
        WITH_DEVICE(an_error_stays_and_refuses_what_comes),
        WITH_DEVICE(what_does_not_fit_is_refused_with_what_is_free),
        WITH_DEVICE(a_refusal_names_the_call), /* of the first thousand records */
        WITH_DEVICE(a_fill_has_any_number_of_bytes),
        WITH_DEVICE(arenas_go_in_any_order),
        WITH_DEVICE(two_threads_copy_the_hosts_own_memory),
        WITH_DEVICE(streams_have_their_priority),
        WITH_DEVICE(marks_tell_how_far_a_stream_is),
        WITH_DEVICE(exposed_time_is_counted_whole_and_once),
        WITH_DEVICE(a_fault_that_never_ends_is_named_and_left),
        WITH_DEVICE(a_fault_that_shows_at_the_end_is_named_and_left),
        WITH_DEVICE(a_fault_of_any_kind_names_the_operations),
        WITH_DEVICE(a_fault_in_recorded_work_names_it),
        WITH_DEVICE(a_fault_names_the_operations_that_may_have_it),
    };
    (void)device_module();
    return cmocka_run_group_tests(tests, NULL, NULL) + failed;
}
