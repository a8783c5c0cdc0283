/* device_more_test.c - the device of the module where it is asked about work that has not run yet: how far it
 * is, which of it an error may come from, and calls that are refused. Also its facts and its limits. */
#include "tests/support/cmocka_all.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/cuda/device_cuda.h"
#include "runtime/cuda/devices/devices.h"
#include "tests/gpu/device/device_support.h"

/* Until it holds; a test's own limit ends a wait that never does. */
#define UNTIL(condition)                                                                                     \
    for (struct instant until = instant_add(clock_now(NULL), 20 * NS_PER_S); !(condition);) {                \
        if (instant_reached(clock_now(NULL), until))                                                         \
            fail_msg("20 s without %s", #condition);                                                         \
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));                                          \
    }

/* ---- memory ---- */

/* Up to its last byte an arena is known: one copy, and no detour by pinned memory. */
static void a_whole_arena_is_copied_at_once(void **state)
{
    const struct fixture *f = *state;
    if (!device_on_fakes())
        skip();
    const uint64_t before = device_calls("cudaMemcpyAsync");
    assert_int_equal(f->ops->copy(f->a, f->pinned.base, f->memory.base, BYTES), 0);
    device_finish(f, f->a);
    assert_int_equal(device_calls("cudaMemcpyAsync"), before + 1);
}

static void a_copy_within_the_host_waits_for_the_stream(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    int from = 3, to = 0;
    struct device_event *done = f->ops->event_create(f->device, &err);
    assert_non_null(done);
    setenv("FAKE_CUDA_COST", "cudaMemsetAsync:20000", 1);
    assert_int_equal(f->ops->fill(f->a, f->memory.base, 1, BYTES), 0);
    assert_int_equal(f->ops->record(f->a, done), 0);
    assert_int_equal(f->ops->copy(f->a, &to, &from, sizeof to), 0);
    unsetenv("FAKE_CUDA_COST");
    assert_true(f->ops->event_done(done));
    assert_int_equal(to, 3);
    f->ops->event_destroy(done);
}

static void more_arenas_than_there_are_places_are_refused(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    scope_free struct device_arena *arenas = mem_calloc(CUDA_ARENAS, sizeof *arenas);
    struct device_arena last = {.fd = -1};
    int made = 0;
    for (; made < CUDA_ARENAS - 2; made++) /* the fixture has two */
        assert_int_equal(f->ops->arena_create(f->device, MEMORY_DEVICE, 1, &arenas[made], &err), 0);
    assert_int_equal(f->ops->arena_create(f->device, MEMORY_DEVICE, 1, &last, &err), -1);
    assert_int_equal(err.code, MUSTER_E_INVALID);
    assert_null(last.base);
    while (made)
        f->ops->arena_destroy(f->device, &arenas[--made]);
}

/* ---- time ---- */

static void a_timer_that_is_not_there_yet_is_no_error(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    int64_t ns = -1;
    struct device_event *from = f->ops->timer_create(f->device, &err),
                        *to = f->ops->timer_create(f->device, &err);
    assert_true(from && to);
    assert_int_equal(f->ops->record(f->a, from), 0);
    setenv("FAKE_CUDA_COST", "cudaMemsetAsync:20000", 1);
    assert_int_equal(f->ops->fill(f->a, f->memory.base, 1, BYTES), 0);
    unsetenv("FAKE_CUDA_COST");
    assert_int_equal(f->ops->record(f->a, to), 0);
    UNTIL(f->ops->event_done(from));
    for (int left = 1; left == 1;) {
        left = f->ops->timer_between(from, to, &ns, &err);
        if (left < 0)
            fail_msg("%s", err.text);
    }
    assert_true(ns >= 0);
    f->ops->event_destroy(from);
    f->ops->event_destroy(to);
}

/* A host that is late enqueues a wait for work that is done: then it took no time, and the next one is tried.
 */
static void a_wait_is_counted_at_the_next_sync(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    if (!device_on_fakes())
        skip();
    struct device_stream *compute = f->ops->stream_create(f->device, "compute", true, &err);
    struct device_event *done = f->ops->event_create(f->device, &err);
    assert_true(compute && done);
    setenv("FAKE_CUDA_COST", "cudaMemsetAsync:20000", 1);
    for (int i = 0; i < 100 && !f->ops->stream_waited_ns(compute); i++) {
        assert_int_equal(f->ops->fill(f->a, f->memory.base, i, 8), 0);
        assert_int_equal(f->ops->record(f->a, done), 0);
        assert_int_equal(f->ops->wait(compute, done), 0);
        device_finish(f, compute);
    }
    unsetenv("FAKE_CUDA_COST");
    assert_true(f->ops->stream_waited_ns(compute) > 0);
    f->ops->event_destroy(done);
    f->ops->stream_destroy(compute);
}

/* Waits fill the ring from a place in its middle, while all of them are open. */
static void waits_that_are_open_are_kept_when_the_ring_grows(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    const uint64_t made = device_calls("cudaEventCreateWithFlags"), gone = device_calls("cudaEventDestroy");
    struct device_stream *compute = f->ops->stream_create(f->device, "compute", true, &err);
    struct device_event *done = f->ops->event_create(f->device, &err);
    assert_true(compute && done);
    for (int i = 0; i < CUDA_WAIT_PAIRS + 20; i++) {
        if (i == 10) {
            device_finish(f, compute);
            setenv("FAKE_CUDA_COST", "cudaMemsetAsync:200000", 1);
        }
        if (i == 0 || i == 10) {
            assert_int_equal(f->ops->fill(f->a, f->memory.base, i, 8), 0);
            assert_int_equal(f->ops->record(f->a, done), 0);
        }
        assert_int_equal(f->ops->wait(compute, done), 0);
    }
    device_finish(f, compute);
    unsetenv("FAKE_CUDA_COST");
    f->ops->event_destroy(done);
    f->ops->stream_destroy(compute);
    assert_int_equal(device_calls("cudaEventDestroy") - gone,
                     device_calls("cudaEventCreateWithFlags") - made);
}

/* ---- graphs ---- */

static void what_was_recorded_is_given_back(void **state)
{
    const struct fixture *f = *state;
    struct device_graph *graph = NULL;
    struct device_add add = {f->ops->kernels(f->device), f->memory.base, f->ops->stream_handle(f->a)};
    if (!device_on_fakes())
        skip();
    const uint64_t before = device_calls("cudaGraphExecDestroy"), drawn = device_calls("cudaGraphDestroy");
    for (int round = 0; round < 3; round++)
        assert_int_equal(f->ops->launch_graph(f->a, &graph, "adding", device_add_numbers, &add), 0);
    device_finish(f, f->a);
    assert_int_equal(device_calls("cudaGraphDestroy"), drawn + 1);
    f->ops->graph_destroy(graph);
    assert_int_equal(device_calls("cudaGraphExecDestroy"), before + 1);
}

/* ---- errors ---- */

struct failing {
    const struct fixture *f;
    struct muster_error error;
};

static void fail_device(void *argument)
{
    const struct failing *failing = argument;
    (failing->f->ops->fail)(failing->f->device, &failing->error); /* cmocka has a macro of that name */
}

static void a_launch_that_fails_the_device_is_refused(void **state)
{
    const struct fixture *f = *state;
    struct failing failing = {.f = f};
    (void)error_set(&failing.error, MUSTER_E_IO, "a kernel that cannot be launched");
    assert_int_equal(f->ops->launch(f->a, fail_device, &failing), -1);
}

static void a_question_that_is_refused_fails_the_device(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    char call[64];
    if (!device_on_fakes())
        skip();
    struct device_event *event = f->ops->event_create(f->device, &err);
    assert_non_null(event);
    assert_int_equal(f->ops->record(f->a, event), 0);
    device_finish(f, f->a);
    (void)snprintf(call, sizeof call, "cudaEventQuery:%llu",
                   (unsigned long long)device_calls("cudaEventQuery") + 1);
    setenv("FAKE_CUDA_FAIL", call, 1);
    (void)f->ops->event_done(event); /* the answer does not matter: nobody asks for ever */
    unsetenv("FAKE_CUDA_FAIL");
    assert_int_equal(f->ops->poll_error(f->device, &err), -1);
    assert_non_null(strstr(err.text, "cudaEventQuery"));
    f->ops->event_destroy(event);
}

/* Work after a record that is done may have it, even if the record is asked about when that work is there. */
static void a_fault_after_a_record_is_named(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    struct device_event *events[] = {f->ops->event_create(f->device, &err),
                                     f->ops->event_create(f->device, &err)};
    struct device_add add = {f->ops->kernels(f->device), f->memory.base, f->ops->stream_handle(f->a)};
    assert_true(events[0] && events[1]);
    assert_int_equal(f->ops->copy(f->a, f->memory.base, f->pinned.base, 100), 0);
    assert_int_equal(f->ops->record(f->a, events[0]), 0);
    UNTIL(f->ops->event_done(events[0]));
    setenv("FAKE_CUDA_COST", "cudaMemsetAsync:50000", 1); /* the fault comes after the question */
    setenv("FAKE_CUDA_ASYNC", "add:1", 1);
    assert_int_equal(f->ops->fill(f->a, f->memory.base, 1, 100), 0);
    (void)f->ops->launch(f->a, device_add_numbers, &add);
    (void)f->ops->record(f->a, events[1]); /* asks about the record before it */
    assert_int_equal(f->ops->sync(f->a, INSTANT_NEVER, &err), -1);
    if (!strstr(err.text, "under way: ") || !strstr(err.text, "add of stream a"))
        fail_msg("%s", err.text);
}

static void *finish_the_device(void *status)
{
    int (*finish)(void) = (int (*)(void))(uintptr_t)device_function("cudaDeviceSynchronize");
    *(int *)status = finish ? finish() : cudaErrorUnknown;
    return NULL;
}

/* A library's own runtime meets the fault, so our thread's last error does not have it. */
static void a_fault_that_a_library_meets_is_named(void **state)
{
    const struct fixture *f = *state;
    int (*peek)(void) = (int (*)(void))(uintptr_t)device_function("cudaPeekAtLastError");
    const char *(*name_of)(int) = (const char *(*)(int))(uintptr_t)device_function("cudaGetErrorName");
    struct muster_error err = {0};
    int status;
    pthread_t finisher;
    setenv("FAKE_CUDA_ASYNC", "cudaMemsetAsync:1", 1);
    assert_int_equal(f->ops->fill(f->a, f->memory.base, 1, 100), 0);
    assert_int_equal(pthread_create(&finisher, NULL, finish_the_device, &status), 0);
    assert_int_equal(pthread_join(finisher, NULL), 0);
    unsetenv("FAKE_CUDA_ASYNC");
    assert_int_not_equal(status, cudaSuccess);
    assert_true(peek && name_of && peek() == cudaSuccess);
    (void)error_set(&err, MUSTER_E_STATE, "product: library: EXECUTION_FAILED");
    (f->ops->fail)(f->device, &err); /* cmocka has a macro of that name */
    assert_int_equal(f->ops->poll_error(f->device, &err), -1);
    if (!strstr(err.text, "EXECUTION_FAILED; the device's error: ") || !strstr(err.text, name_of(status)) ||
        !strstr(err.text, "under way: fill of stream a"))
        fail_msg("%s", err.text);
}

struct failing_record {
    const struct fixture *f;
    int calls;
};

static void *fail_from_elsewhere(void *fixture)
{
    const struct fixture *f = fixture;
    struct muster_error err = {0};
    (void)error_set(&err, MUSTER_E_PEER, "rank 1 stopped");
    (f->ops->fail)(f->device, &err);
    return NULL;
}

static void fail_in_the_record(void *argument)
{
    struct failing_record *record = argument;
    pthread_t watcher;
    if (record->calls++ == 0)
        return; /* the first call is not recorded */
    assert_int_equal(pthread_create(&watcher, NULL, fail_from_elsewhere, (void *)(uintptr_t)record->f), 0);
    assert_int_equal(pthread_join(watcher, NULL), 0);
}

/* A question to a stream that records would end its record, and its error might come first. */
static void a_fault_of_a_peer_leaves_the_record_whole(void **state)
{
    struct failing_record record = {*state, 0};
    const struct fixture *f = record.f;
    struct device_graph *graph = NULL;
    struct muster_error err = {0};
    assert_int_equal(f->ops->launch_graph(f->a, &graph, "layer", fail_in_the_record, &record), 0);
    const uint64_t whole = device_calls("cudaGraphDestroy");
    assert_int_equal(f->ops->launch_graph(f->a, &graph, "layer", fail_in_the_record, &record), -1);
    assert_int_equal(record.calls, 2);
    assert_int_equal(device_calls("cudaGraphDestroy"), whole + 1);
    assert_int_equal(f->ops->poll_error(f->device, &err), -1);
    assert_string_equal(err.text, "rank 1 stopped");
    f->ops->graph_destroy(graph);
}

/* With sync_errors an operation waits for every stream, so that a single operation can be the cause. */
static void a_fault_is_met_before_the_next_operation_of_any_stream(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    f->ops->sync_errors(f->device, true);
    setenv("FAKE_CUDA_ASYNC", "cudaMemsetAsync:1", 1);
    (void)f->ops->fill(f->a, f->memory.base, 1, 100);
    (void)f->ops->copy(f->b, f->pinned.base, f->memory.base, 100);
    assert_int_equal(f->ops->poll_error(f->device, &err), -1);
    unsetenv("FAKE_CUDA_ASYNC");
    const char *under_way = strstr(err.text, "under way: fill of stream a");
    if (!under_way || strcmp(under_way, "under way: fill of stream a") != 0)
        fail_msg("%s", err.text);
}

/* A mark for which there is no place is left out: it takes no other's. */
static void a_fault_that_hangs_behind_many_marks_is_found(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    struct device_add add = {f->ops->kernels(f->device), f->memory.base, f->ops->stream_handle(f->a)};
    setenv("FAKE_CUDA_COST", "cudaMemsetAsync:200000", 1); /* all marks are set in this time */
    setenv("FAKE_CUDA_HANG", "add:2", 1);
    assert_int_equal(f->ops->fill(f->a, f->memory.base, 0, 8), 0);
    assert_int_equal(f->ops->mark(f->a, 1), 0);
    assert_int_equal(f->ops->launch(f->a, device_add_numbers, &add), 0);
    assert_int_equal(f->ops->mark(f->a, 2), 0);
    assert_int_equal(f->ops->launch(f->a, device_add_numbers, &add), 0);
    for (int number = 3; number <= CUDA_MARKS + 2; number++)
        assert_int_equal(f->ops->mark(f->a, number), 0);
    int64_t marked = 0;
    for (const struct instant begun = clock_now(NULL);
         marked < 2 && instant_diff_ns(clock_now(NULL), begun) < 20 * NS_PER_S;) {
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
        marked = f->ops->marked(f->a);
    }
    (void)error_set(&err, MUSTER_E_TIMEOUT, "it hangs");
    (f->ops->fail)(f->device, &err); /* before a failure of the test: its end waits for no work then */
    assert_int_equal(marked, 2);
}

/* ---- facts ---- */

/* Whole parameters of a model with values of 16 bits are computed with in fp32, or in tf32 where that is
 * asked for.
 */
static void kernels_of_fp32_have_tf32_where_it_is_asked_for(void **state)
{
    const struct fixture *f = *state;
    struct muster_error err = {0};
    assert_string_equal(f->ops->kernels_f32(f->device)->name, "cuda-f32");
    if (f->ops->tf32(f->device, &err)) /* before sm_80 */
        skip();
    assert_string_equal(f->ops->kernels_f32(f->device)->name, "cuda-tf32");
    assert_int_equal(f->ops->values(f->device, DTYPE_BF16, &err), 0);
    assert_string_equal(f->ops->kernels_f32(f->device)->name, "cuda-tf32");
    assert_string_equal(f->ops->kernels(f->device)->name, "cuda-bf16");
}

/* GPUs may differ: a plan has to fit into the smallest. */
static void facts_are_of_the_smallest_device(void **state)
{
    struct muster_error err = {0};
    struct cuda_facts facts;
    (void)state;
    if (!device_on_fakes())
        skip();
    assert_int_equal(device_module()->facts(&facts, &err), 0);
    assert_int_equal(facts.count, 2);
    assert_int_equal(facts.memory_bytes, INT64_C(8) << 30);
    assert_int_equal(facts.sms, 132);
    assert_int_equal(facts.capability, 90);
    assert_int_equal(facts.clock_mhz, 1980);
    assert_true(facts.memory_rate == 2 * 2619e6 * 5120 / 8);
    for (int small = 0; small < 2; small++) {
        setenv("FAKE_CUDA_SMALL", small ? "1" : "0", 1);
        assert_int_equal(device_module()->facts(&facts, &err), 0);
        assert_int_equal(facts.memory_bytes, INT64_C(4) << 30);
        assert_int_equal(facts.sms, 66);
        assert_string_equal(facts.product, "a small fake of muster's tests");
    }
    unsetenv("FAKE_CUDA_SMALL");
}

int main(int argc, char **argv)
{
    static const char *const alone[] = {
        "a_fault_after_a_record_is_named", "a_fault_that_a_library_meets_is_named",
        "a_fault_of_a_peer_leaves_the_record_whole", "a_fault_is_met_before_the_next_operation_of_any_stream",
        "a_fault_that_hangs_behind_many_marks_is_found"};
    int failed = 0;
    for (size_t i = 0; device_on_fakes() && argc < 2 && i < sizeof alone / sizeof *alone; i++)
        failed += device_run_alone(argv[0], alone[i]);
    cmocka_set_skip_filter(argc < 2 ? "a_fault_*" : NULL);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        WITH_DEVICE(a_whole_arena_is_copied_at_once),
        WITH_DEVICE(a_copy_within_the_host_waits_for_the_stream),
        WITH_DEVICE(more_arenas_than_there_are_places_are_refused),
        WITH_DEVICE(a_timer_that_is_not_there_yet_is_no_error),
        WITH_DEVICE(a_wait_is_counted_at_the_next_sync),
        WITH_DEVICE(waits_that_are_open_are_kept_when_the_ring_grows),
        WITH_DEVICE(what_was_recorded_is_given_back),
        WITH_DEVICE(a_launch_that_fails_the_device_is_refused),
        WITH_DEVICE(a_question_that_is_refused_fails_the_device),
        WITH_DEVICE(a_fault_after_a_record_is_named),
        WITH_DEVICE(a_fault_that_a_library_meets_is_named),
        WITH_DEVICE(a_fault_of_a_peer_leaves_the_record_whole),
        WITH_DEVICE(a_fault_is_met_before_the_next_operation_of_any_stream),
        WITH_DEVICE(a_fault_that_hangs_behind_many_marks_is_found),
        WITH_DEVICE(kernels_of_fp32_have_tf32_where_it_is_asked_for),
        cmocka_unit_test(facts_are_of_the_smallest_device),
    };
    (void)device_module();
    return cmocka_run_group_tests(tests, NULL, NULL) + failed;
}
