/* cudart_conformance_test.c - what muster believes of the CUDA runtime, as a program for the fake and for a
 * GPU alike; the fake's stricter checks, and its behaviour on demand, are left out on a GPU. A test that
 * breaks the runtime for good, or that has to end in a fault, runs in a process of its own. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "tests/gpu/cudart/cudart_calls.h"
#include "tests/support/cmocka_all.h"

enum { BYTES = 1000 }; /* less than a page, and its end is no multiple of one */

#define CUDA_OK(call) assert_int_equal((call), cudaSuccess)

static bool on_fake(void)
{
    return dlsym(RTLD_DEFAULT, "fake_refuse") != NULL;
}

/* For fake_cudart.h; a GPU's runtime has no such thing. */
static uint64_t calls_of(const char *function)
{
    uint64_t (*calls)(const char *) = (uint64_t(*)(const char *))(uintptr_t)dlsym(RTLD_DEFAULT, "fake_calls");
    return calls(function);
}

static void need_fake(void)
{
    if (!on_fake())
        skip();
}

static void pause_ms(int ms)
{
    clock_sleep_until(instant_add(clock_now(NULL), ms * NS_PER_MS));
}

/* In a process of its own, which has to end with this status of waitpid. */
static int status_of(void (*body)(void))
{
    int status = -1;
    (void)fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(60);
        (void)signal(SIGSEGV, SIG_DFL); /* cmocka's would end the test and not the process */
        body();
        _exit(0);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return status;
}
#define ASSERT_ENDS_WELL(body) assert_int_equal(status_of(body), 0)
/* For a process of its own, in which cmocka's asserts would end the wrong test. */
#define MUST(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                          \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

/* ---- a GPU's behaviour, too ---- */

static void wait_for_flag(void *argument)
{
    while (!atomic_load((_Atomic(int) *)argument))
        pause_ms(1);
}

static void a_question_that_has_no_answer_yet_may_be_the_last_error(void **state)
{
    static _Atomic(int) go;
    cudaStream_t stream;
    cudaEvent_t event;
    (void)state;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA_OK(cudaLaunchHostFunc(stream, wait_for_flag, &go));
    CUDA_OK(cudaEventRecord(event, stream));
    const cudaError_t asked = cudaStreamQuery(stream), kept = cudaGetLastError(), rest = cudaGetLastError();
    const cudaError_t again = cudaEventQuery(event), seen = cudaPeekAtLastError(), taken = cudaGetLastError();
    atomic_store(&go, 1); /* after any fault: later tests must not wait for this stream */
    CUDA_OK(cudaStreamSynchronize(stream));
    assert_int_equal(asked, cudaErrorNotReady);
    assert_int_equal(again, cudaErrorNotReady);
    assert_int_equal(rest, cudaSuccess);
    assert_int_equal(seen, taken);
    /* On an H100 cudart 13.0 did not keep the answer; the fake does, and a program has to stand both. */
    assert_true(kept == cudaErrorNotReady || (kept == cudaSuccess && !on_fake()));
    assert_int_equal(seen, kept);
    CUDA_OK(cudaStreamQuery(stream));
    CUDA_OK(cudaEventQuery(event));
    CUDA_OK(cudaGetLastError());
    CUDA_OK(cudaEventDestroy(event));
    CUDA_OK(cudaStreamDestroy(stream));
}

static void a_wait_means_the_record_before_it(void **state)
{
    cudaStream_t first, second;
    cudaEvent_t event;
    unsigned char *device, *host;
    (void)state;
    CUDA_OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA_OK(cudaMalloc((void **)&device, BYTES));
    CUDA_OK(cudaHostAlloc((void **)&host, BYTES, cudaHostAllocPortable));
    CUDA_OK(cudaStreamWaitEvent(second, event, cudaEventWaitDefault)); /* never recorded: there is nothing */
    CUDA_OK(cudaEventQuery(event));
    for (int round = 1; round < 20; round++) {
        CUDA_OK(cudaMemsetAsync(device, round, BYTES, first));
        CUDA_OK(cudaEventRecord(event, first));
        CUDA_OK(cudaStreamWaitEvent(second, event, cudaEventWaitDefault));
        CUDA_OK(cudaEventRecord(event, first)); /* again: the wait stays with the one before */
        CUDA_OK(cudaMemcpyAsync(host, device, BYTES, cudaMemcpyDeviceToHost, second));
        CUDA_OK(cudaStreamSynchronize(second));
        assert_true(host[0] == round && host[BYTES - 1] == round);
    }
    CUDA_OK(cudaStreamSynchronize(first));
    CUDA_OK(cudaEventDestroy(event));
    CUDA_OK(cudaFree(device));
    CUDA_OK(cudaFreeHost(host));
    CUDA_OK(cudaStreamDestroy(first));
    CUDA_OK(cudaStreamDestroy(second));
}

static void what_an_address_is(void **state)
{
    struct cudaPointerAttributes attributes;
    char *device, *pinned, own[16];
    (void)state;
    CUDA_OK(cudaMalloc((void **)&device, BYTES));
    CUDA_OK(cudaHostAlloc((void **)&pinned, BYTES, cudaHostAllocPortable));
    CUDA_OK(cudaPointerGetAttributes(&attributes, device + BYTES / 2));
    assert_int_equal(attributes.type, cudaMemoryTypeDevice);
    CUDA_OK(cudaPointerGetAttributes(&attributes, pinned));
    assert_int_equal(attributes.type, cudaMemoryTypeHost);
    CUDA_OK(cudaPointerGetAttributes(&attributes, own));
    assert_int_equal(attributes.type, cudaMemoryTypeUnregistered);
    CUDA_OK(cudaFree(device));
    CUDA_OK(cudaFreeHost(pinned));
    CUDA_OK(cudaFree(NULL));
    CUDA_OK(cudaGetLastError());
}

static void too_much_memory_is_refused(void **state)
{
    size_t bytes, all;
    void *memory;
    (void)state;
    CUDA_OK(cudaMemGetInfo(&bytes, &all));
    assert_true(bytes > 0 && bytes <= all);
    assert_int_equal(cudaMalloc(&memory, all + 1), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
}

/* Recorded work does not run, then runs as often as it is launched, in the stream's order, and with the
 * arguments that it was recorded with. */
static void recorded_work_runs_when_it_is_launched(void **state)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    enum cudaStreamCaptureStatus status;
    unsigned char *device, *host;
    (void)state;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaMalloc((void **)&device, 2 * BYTES));
    CUDA_OK(cudaHostAlloc((void **)&host, BYTES, cudaHostAllocPortable));
    CUDA_OK(cudaMemsetAsync(device, 1, 2 * BYTES, stream));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CUDA_OK(cudaStreamIsCapturing(stream, &status));
    assert_int_equal(status, cudaStreamCaptureStatusActive);
    CUDA_OK(cudaMemsetAsync(device, 7, BYTES, stream));
    CUDA_OK(cudaMemcpyAsync(device + BYTES, device, BYTES, cudaMemcpyDeviceToDevice, stream));
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&executable, graph, 0));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaMemcpyAsync(host, device + BYTES, BYTES, cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    assert_true(host[0] == 1 && host[BYTES - 1] == 1);
    for (int round = 0; round < 3; round++) {
        CUDA_OK(cudaMemsetAsync(device, 2, 2 * BYTES, stream));
        CUDA_OK(cudaGraphLaunch(executable, stream));
        CUDA_OK(cudaMemcpyAsync(host, device + BYTES, BYTES, cudaMemcpyDeviceToHost, stream));
        CUDA_OK(cudaStreamSynchronize(stream));
        assert_true(host[0] == 7 && host[BYTES - 1] == 7);
    }
    CUDA_OK(cudaGraphExecDestroy(executable));
    CUDA_OK(cudaFree(device));
    CUDA_OK(cudaFreeHost(host));
    CUDA_OK(cudaStreamDestroy(stream));
}

/* A call that cannot be recorded spoils the recording, which its end reports. */
static void what_cannot_be_recorded_breaks_the_recording(void **state)
{
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    (void)state;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    assert_int_not_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    assert_null(graph);
    (void)cudaGetLastError();
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
    (void)cudaGetLastError();
    CUDA_OK(cudaStreamSynchronize(stream));
    CUDA_OK(cudaStreamDestroy(stream));
}

/* ---- memory, where the fake is stricter ---- */

static void memory_begins_full_of_ones_and_ends_where_it_ends(void **state)
{
    unsigned char *device, *other, *host;
    (void)state;
    need_fake();
    CUDA_OK(cudaMalloc((void **)&device, BYTES));
    CUDA_OK(cudaMalloc((void **)&other, 2 * BYTES));
    CUDA_OK(cudaHostAlloc((void **)&host, 2 * BYTES, cudaHostAllocPortable));
    for (int i = 0; i < 2 * BYTES; i++)
        assert_int_equal(host[i], 0xff);
    memset(host, 0, BYTES);
    CUDA_OK(cudaMemcpyAsync(host, device, BYTES, cudaMemcpyDeviceToHost, NULL));
    CUDA_OK(cudaStreamSynchronize(NULL));
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(host[i], 0xff);
    assert_int_equal(cudaMemcpyAsync(host, device, BYTES + 1, cudaMemcpyDeviceToHost, NULL),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(host, device + BYTES, 1, cudaMemcpyDeviceToHost, NULL),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemsetAsync(device + 1, 0, BYTES, NULL), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(device, other, BYTES, cudaMemcpyHostToDevice, NULL),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(device + 10, device, 20, cudaMemcpyDeviceToDevice, NULL),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaFree(device + 1), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(host), cudaErrorInvalidValue);
    CUDA_OK(cudaFree(device));
    assert_int_equal(cudaFree(device), cudaErrorInvalidValue);
    CUDA_OK(cudaFree(other));
    CUDA_OK(cudaFreeHost(host));
    (void)cudaGetLastError();
}

static void the_hosts_own_memory_is_not_copied_asynchronously(void **state)
{
    unsigned char *device, own[BYTES] = {0};
    (void)state;
    need_fake();
    CUDA_OK(cudaMalloc((void **)&device, BYTES));
    assert_int_equal(cudaMemcpyAsync(device, own, BYTES, cudaMemcpyHostToDevice, NULL),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    CUDA_OK(cudaMemcpy(device, own, BYTES, cudaMemcpyHostToDevice));
    CUDA_OK(cudaFree(device));
}

static void memory_is_never_given_out_again(void **state)
{
    void *seen[64];
    (void)state;
    need_fake();
    for (int i = 0; i < 64; i++) {
        CUDA_OK(cudaMalloc(&seen[i], BYTES));
        CUDA_OK(cudaFree(seen[i]));
        for (int before = 0; before < i; before++)
            assert_ptr_not_equal(seen[i], seen[before]);
    }
    assert_int_equal(cudaMemsetAsync(seen[0], 0, 1, NULL), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

static void read_freed(void)
{
    char *memory;
    MUST(cudaHostAlloc((void **)&memory, BYTES, 0) == cudaSuccess && cudaFreeHost(memory) == cudaSuccess);
    (void)*(volatile char *)memory;
}

static void read_behind_the_last_page(void)
{
    char *memory;
    MUST(cudaHostAlloc((void **)&memory, 4096, 0) == cudaSuccess);
    (void)*(volatile char *)(memory + 4096);
}

static void read_device_memory(void)
{
    char *memory;
    MUST(cudaMalloc((void **)&memory, BYTES) == cudaSuccess);
    (void)*(volatile char *)memory;
}

static void read_it(void *argument)
{
    (void)*(volatile char *)argument;
}

static void read_device_memory_in_a_host_function(void)
{
    char *memory;
    MUST(cudaMalloc((void **)&memory, BYTES) == cudaSuccess);
    MUST(cudaLaunchHostFunc(NULL, read_it, memory) == cudaSuccess);
    (void)cudaStreamSynchronize(NULL);
}

/* A sanitizer ends the process itself, with a status. */
static void assert_faults(void (*body)(void))
{
    const int status = status_of(body);
    if (!(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) &&
        !(WIFEXITED(status) && WEXITSTATUS(status) > 1))
        fail_msg("no fault: status %x", (unsigned)status);
}

static void what_was_freed_and_what_lies_behind_faults(void **state)
{
    (void)state;
    need_fake();
    assert_faults(read_freed);
    assert_faults(read_behind_the_last_page);
}

static void the_hosts_threads_cannot_read_device_memory(void **state)
{
    const int key = pkey_alloc(0, 0);
    (void)state;
    need_fake();
    if (key < 0) {
        print_message("skipped: this processor has no memory protection keys\n");
        skip();
    }
    (void)pkey_free(key);
    assert_faults(read_device_memory);
    assert_faults(read_device_memory_in_a_host_function);
}

/* ---- host functions ---- */

struct in_turn {
    _Atomic(int) inside, most, calls;
};

static void be_inside(void *argument)
{
    struct in_turn *turn = argument;
    const int now = atomic_fetch_add(&turn->inside, 1) + 1;
    if (now > atomic_load(&turn->most))
        atomic_store(&turn->most, now);
    pause_ms(2);
    atomic_fetch_sub(&turn->inside, 1);
    atomic_fetch_add(&turn->calls, 1);
}

static void call_cuda(void *argument)
{
    *(cudaError_t *)argument = cudaMemsetAsync(NULL, 0, 0, NULL);
}

static void host_functions_take_turns_and_may_not_call_cuda(void **state)
{
    static struct in_turn turn;
    cudaStream_t streams[3];
    cudaError_t refused = cudaSuccess;
    (void)state;
    need_fake();
    for (int i = 0; i < 3; i++)
        CUDA_OK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    for (int i = 0; i < 12; i++)
        CUDA_OK(cudaLaunchHostFunc(streams[i % 3], be_inside, &turn));
    for (int i = 0; i < 3; i++)
        CUDA_OK(cudaStreamSynchronize(streams[i]));
    assert_int_equal(turn.calls, 12);
    assert_int_equal(turn.most, 1);
    CUDA_OK(cudaLaunchHostFunc(streams[0], call_cuda, &refused));
    CUDA_OK(cudaStreamSynchronize(streams[0]));
    assert_int_equal(refused, cudaErrorNotPermitted);
    for (int i = 0; i < 3; i++)
        CUDA_OK(cudaStreamDestroy(streams[i]));
}

/* ---- when work runs ---- */

static void note_that_it_ran(void *context)
{
    atomic_store((atomic_bool *)context, true);
}

/* Whether it has run although nothing waits for it. */
static bool runs_by_itself(const char *schedule, const char *seed)
{
    cudaStream_t stream;
    unsigned char *host;
    atomic_bool done = false;
    setenv("FAKE_CUDA_SCHEDULE", schedule, 1);
    setenv("FAKE_CUDA_SEED", seed, 1);
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    MUST(cudaHostAlloc((void **)&host, BYTES, 0) == cudaSuccess);
    MUST(cudaMemsetAsync(host, 1, BYTES, stream) == cudaSuccess);
    MUST(cudaLaunchHostFunc(stream, note_that_it_ran, &done) == cudaSuccess);
    struct instant limit = instant_add(clock_now(NULL), 50 * NS_PER_MS);
    while (!atomic_load(&done) && !instant_reached(clock_now(NULL), limit))
        pause_ms(1);
    const bool ran = atomic_load(&done);
    MUST(cudaStreamSynchronize(stream) == cudaSuccess && host[0] == 1 && atomic_load(&done));
    MUST(cudaFreeHost(host) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess);
    return ran;
}

static void run_schedules(void)
{
    int early = 0;
    char seed[16];
    MUST(runs_by_itself("early", "0"));
    MUST(!runs_by_itself("late", "0"));
    for (int i = 0; i < 12; i++) {
        (void)snprintf(seed, sizeof seed, "%d", i);
        early += runs_by_itself("shuffled", seed);
    }
    MUST(early > 1 && early < 11);
}

static void work_runs_early_late_or_mixed(void **state)
{
    (void)state;
    need_fake();
    ASSERT_ENDS_WELL(run_schedules);
}

/* ---- failures on demand ---- */

static void refuse_each_call_once(void)
{
    char setting[96];
    cudart_calls_begin();
    for (int i = 0; i < cudart_call_count; i++) {
        const struct cudart_call *call = &cudart_call_rows[i];
        (void)snprintf(setting, sizeof setting, "%s:%llu", call->function,
                       (unsigned long long)calls_of(call->function) + 2);
        setenv("FAKE_CUDA_FAIL", setting, 1);
        cudaError_t found[3];
        for (int n = 0; n < 3; n++) {
            (void)cudaGetLastError();
            found[n] = call->make();
            if (n == 1 && cudaPeekAtLastError() != found[n])
                found[n] = cudaSuccess; /* it has to be the last error, too */
        }
        if (found[0] == cudaSuccess && found[1] != cudaSuccess && found[2] == cudaSuccess)
            continue;
        fprintf(stderr, "%s: %d, %d, %d\n", setting, found[0], found[1], found[2]);
        _exit(1);
    }
}

static void the_nth_call_of_any_function_is_refused(void **state)
{
    (void)state;
    need_fake();
    ASSERT_ENDS_WELL(refuse_each_call_once);
}

/* Every function that the library has and that can fail is a row of the table. */
static void the_table_of_calls_is_whole(void **state)
{
    /* no work, or what nvcc's own code calls (gpu_shipped_module) */
    static const char *const others[] = {"cudaGetLastError",   "cudaPeekAtLastError", "cudaGetErrorName",
                                         "cudaGetErrorString", "cudaLaunchKernel",    "cudaFuncSetAttribute"};
    Dl_info info;
    char command[4200], name[128];
    int functions = 0;
    (void)state;
    need_fake();
    void *function = dlsym(RTLD_DEFAULT, "cudaMalloc");
    assert_true(function && dladdr(function, &info));
    (void)snprintf(command, sizeof command,
                   "nm -D --defined-only '%s' | awk '{print $3}' | sed 's/@.*//' | grep '^cuda'",
                   info.dli_fname);
    FILE *names = popen(command, "r");
    assert_non_null(names);
    while (fscanf(names, "%127s", name) == 1) {
        bool known = false;
        for (int i = 0; i < cudart_call_count; i++)
            known |= !strcmp(cudart_call_rows[i].function, name);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            known |= !strcmp(others[i], name);
        if (!known)
            fail_msg("%s is in no row of cudart_calls.c", name);
        functions++;
    }
    assert_int_equal(pclose(names), 0);
    assert_true(functions > 30);
}

static void break_the_device(void)
{
    char setting[64];
    cudart_calls_begin();
    (void)snprintf(setting, sizeof setting, "cudaMemsetAsync:%d", 1);
    setenv("FAKE_CUDA_ASYNC", setting, 1);
    MUST(cudaMemsetAsync(cudart_calls_memory(), 0, 1, NULL) == cudaSuccess); /* it is asynchronous */
    MUST(cudaStreamSynchronize(NULL) == cudaErrorIllegalAddress);
    unsetenv("FAKE_CUDA_ASYNC");
    for (int i = 0; i < cudart_call_count; i++) {
        const cudaError_t found = cudart_call_rows[i].make();
        if (found == cudaErrorIllegalAddress)
            continue;
        fprintf(stderr, "%s: %d after an asynchronous error\n", cudart_call_rows[i].function, found);
        _exit(1);
    }
    for (int i = 0; i < 2; i++)
        MUST(cudaGetLastError() == cudaErrorIllegalAddress); /* asking does not take it away */
}

static void an_asynchronous_error_stays(void **state)
{
    (void)state;
    need_fake();
    ASSERT_ENDS_WELL(break_the_device);
}

static void an_event_belongs_to_its_device(void **state)
{
    cudaStream_t stream;
    cudaEvent_t event;
    (void)state;
    need_fake();
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaSetDevice(1));
    CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    assert_int_equal(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
    CUDA_OK(cudaEventDestroy(event));
    assert_int_equal(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
    CUDA_OK(cudaSetDevice(0));
    CUDA_OK(cudaStreamDestroy(stream));
    assert_int_equal(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
    (void)cudaGetLastError();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nth_call_of_any_function_is_refused), /* these fork: before there are threads */
        cmocka_unit_test(an_asynchronous_error_stays),
        cmocka_unit_test(what_was_freed_and_what_lies_behind_faults),
        cmocka_unit_test(the_hosts_threads_cannot_read_device_memory),
        cmocka_unit_test(work_runs_early_late_or_mixed),
        cmocka_unit_test(the_table_of_calls_is_whole),
        cmocka_unit_test(a_question_that_has_no_answer_yet_may_be_the_last_error),
        cmocka_unit_test(a_wait_means_the_record_before_it),
        cmocka_unit_test(what_an_address_is),
        cmocka_unit_test(too_much_memory_is_refused),
        cmocka_unit_test(recorded_work_runs_when_it_is_launched),
        cmocka_unit_test(what_cannot_be_recorded_breaks_the_recording),
        cmocka_unit_test(memory_begins_full_of_ones_and_ends_where_it_ends),
        cmocka_unit_test(the_hosts_own_memory_is_not_copied_asynchronously),
        cmocka_unit_test(memory_is_never_given_out_again),
        cmocka_unit_test(host_functions_take_turns_and_may_not_call_cuda),
        cmocka_unit_test(an_event_belongs_to_its_device),
    };
    int devices = 0;
    if (on_fake())
        setenv("FAKE_CUDA_DEVICES", "2", 1);
    else if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1) {
        printf("skipped: there is no GPU\n");
        return 77;
    }
    return cmocka_run_group_tests_name("gpu_cudart_conformance", tests, NULL, NULL);
}
