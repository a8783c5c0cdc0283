/* faults.cpp - the lock, calls that are counted and refused, errors that stay, and the reports at exit. */
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "tests/gpu/cudart/fake_internal.h"

/* ---- the lock ---- */

/* For the thread sanitizer, where it is. */
extern "C" void AnnotateIgnoreSyncBegin(const char *file, int line) __attribute__((weak));
extern "C" void AnnotateIgnoreSyncEnd(const char *file, int line) __attribute__((weak));
extern "C" void AnnotateIgnoreReadsBegin(const char *file, int line) __attribute__((weak));
extern "C" void AnnotateIgnoreReadsEnd(const char *file, int line) __attribute__((weak));
extern "C" void AnnotateIgnoreWritesBegin(const char *file, int line) __attribute__((weak));
extern "C" void AnnotateIgnoreWritesEnd(const char *file, int line) __attribute__((weak));

void fake_sync_hide()
{
    if (AnnotateIgnoreSyncBegin) {
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__); /* what the library does to the fake's own data */
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
}

void fake_sync_show()
{
    if (AnnotateIgnoreSyncEnd) {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    }
}

void fake_held_release(void *p)
{
    fake_sync_show();
    FAKE_RELEASE(p);
    fake_sync_hide();
}

void fake_held_acquire(void *p)
{
    fake_sync_show();
    FAKE_ACQUIRE(p);
    fake_sync_hide();
}

static std::mutex &the_mutex()
{
    static std::mutex *const mutex = new std::mutex; /* streams may run while the process exits */
    return *mutex;
}

fake_locked::fake_locked()
{
    fake_sync_hide();
    lock = std::unique_lock<std::mutex>(the_mutex());
}

fake_locked::~fake_locked()
{
    if (lock.owns_lock())
        lock.unlock();
    fake_sync_show();
}

/* ---- calls ---- */

const char *fake_setting(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

static bool first_round()
{
    const char *round = fake_setting("TORCHELASTIC_RESTART_COUNT");
    return !*round || !strcmp(round, "0");
}

bool fake_means(const char *setting, const char *name, uint64_t call)
{
    const char *value = fake_setting(setting);
    const size_t length = strlen(name);
    if (strncmp(value, name, length) != 0 || value[length] != ':' || !first_round())
        return false;
    const char *rank = strchr(value, '@');
    return strtoull(value + length + 1, nullptr, 10) == call &&
           (!rank || !strcmp(rank + 1, fake_setting("RANK")));
}

uint64_t fake_cost_us(const char *name)
{
    const char *at = fake_setting("FAKE_CUDA_COST");
    const size_t length = strlen(name);
    while (*at) {
        if (!strncmp(at, name, length) && at[length] == ':')
            return strtoull(at + length + 1, nullptr, 10);
        at += strcspn(at, ",");
        at += *at == ',';
    }
    return 0;
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void take_time(uint64_t us)
{
    enum { SHORTEST_SLEEP = 100 };
    const struct timespec time = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    if (us >= SHORTEST_SLEEP)
        nanosleep(&time, nullptr);
    else if (us)
        for (const int64_t begun = clock_ns(CLOCK_MONOTONIC);
             clock_ns(CLOCK_MONOTONIC) - begun < (int64_t)us * 1000;)
            continue;
}

/* The file that a setting names, for this process. */
static FILE *open_report(const char *setting)
{
    std::string path = fake_setting(setting);
    const size_t rank = path.find("%r");
    if (rank != std::string::npos)
        path.replace(rank, 2, fake_setting("RANK"));
    FILE *file = path.empty() ? nullptr : fopen(path.c_str(), "w");
    if (!path.empty() && !file)
        fake_complain("%s=%s cannot be written", setting, path.c_str());
    return file;
}

static std::map<std::string, uint64_t> &calls()
{
    static auto *const all = new std::map<std::string, uint64_t>;
    return *all;
}

static void write_counts(FILE *file)
{
    for (const auto &row : calls())
        fprintf(file, "%s %llu\n", row.first.c_str(), (unsigned long long)row.second);
}

struct other_line {
    const char *name;
    int (*count)(void);
};
static std::vector<struct other_line> &other_lines()
{
    static auto *const all = new std::vector<struct other_line>;
    return *all;
}

extern "C" void fake_cudart_reports(const char *name, int (*count)(void))
{
    fake_locked held;
    other_lines().push_back({name, count});
}

static void write_report(FILE *file)
{
    fake_memory_report(file);
    fake_streams_report(file);
    fake_events_report(file);
    fake_graphs_report(file);
    for (const struct other_line &line : other_lines())
        fprintf(file, "%s %d\n", line.name, line.count());
}

static void report_at_exit()
{
    const struct {
        const char *setting;
        void (*write)(FILE *file);
    } reports[] = {{"FAKE_CUDA_COUNT", write_counts}, {"FAKE_CUDA_REPORT", write_report}};
    fake_locked held;
    for (const auto &report : reports) {
        FILE *file = open_report(report.setting);
        if (!file)
            continue;
        report.write(file);
        fclose(file);
    }
}

static int64_t host_ns; /* the process's first thread's */

/* A question about the device ends a time of waiting, not of work. */
static void count_host_time(const char *function)
{
    static thread_local const bool is_first = gettid() == getpid();
    static int64_t last = 0;
    if (!is_first)
        return;
    const int64_t now = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (!strstr(function, "Query") && !strstr(function, "Synchronize"))
        host_ns += now - last;
    last = now;
}

extern "C" int64_t fake_host_ns()
{
    return host_ns;
}

/* Memory is asked for after work that comes once everything is made. */
static bool allocates_late(const char *function)
{
    static const bool set = *fake_setting("FAKE_CUDA_NO_MEMORY_AFTER") != '\0';
    return set && (!strcmp(function, "cudaMalloc") || !strcmp(function, "cudaHostAlloc")) &&
           fake_calls(fake_setting("FAKE_CUDA_NO_MEMORY_AFTER"));
}

extern "C" int fake_refuse(const char *function)
{
    static bool registered = false;
    uint64_t call;
    {
        fake_locked held;
        call = ++calls()[function];
        if (!registered)
            atexit(report_at_exit);
        registered = true;
    }
    take_time(fake_cost_us(function));
    count_host_time(function);
    if (allocates_late(function)) {
        fake_complain("%s after the first %s", function, fake_setting("FAKE_CUDA_NO_MEMORY_AFTER"));
        return 1;
    }
    if (!fake_means("FAKE_CUDA_FAIL", function, call))
        return 0;
    fake_complain("%s was told to fail", function);
    return 1;
}

extern "C" uint64_t fake_calls(const char *function)
{
    fake_locked held;
    const auto row = calls().find(function);
    return row == calls().end() ? 0 : row->second;
}

/* ---- errors ---- */

static thread_local cudaError_t last_error;
static cudaError_t sticky[FAKE_DEVICES]; /* written and read with atomic builtins: no order */

cudaError_t fake_sticky()
{
    return __atomic_load_n(&sticky[fake_device()], __ATOMIC_RELAXED);
}

void fake_set_sticky(int device, cudaError_t error)
{
    __atomic_store_n(&sticky[device], error, __ATOMIC_RELAXED);
}

extern "C" cudaError_t fake_cudart_fail(cudaError_t error)
{
    return last_error = error;
}

cudaError_t fake_meet_sticky()
{
    const cudaError_t error = fake_sticky();
    return error != cudaSuccess ? fake_cudart_fail(error) : error;
}

void fake_complain(const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "fake CUDA: %s\n", text);
}

int64_t fake_now_ns()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

extern "C" {

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    if (error != fake_sticky()) /* the device's error stays */
        last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

struct error_row {
    cudaError_t error;
    const char *name, *text;
};
#define ROW(error, text)                                                                                     \
    {                                                                                                        \
        error, #error, text                                                                                  \
    }
static const struct error_row errors[] = {
    ROW(cudaSuccess, "no error"),
    ROW(cudaErrorInvalidValue, "invalid argument"),
    ROW(cudaErrorMemoryAllocation, "out of memory"),
    ROW(cudaErrorInitializationError, "initialization error"),
    ROW(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ROW(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ROW(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ROW(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ROW(cudaErrorInvalidDevice, "invalid device ordinal"),
    ROW(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ROW(cudaErrorNotReady, "device not ready"),
    ROW(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ROW(cudaErrorLaunchFailure, "unspecified launch failure"),
    ROW(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    ROW(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ROW(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ROW(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ROW(cudaErrorStreamCaptureWrongThread,
        "attempt to terminate a thread-local capture sequence from another thread"),
    ROW(cudaErrorNotPermitted, "operation not permitted"),
    ROW(cudaErrorNotSupported, "operation not supported"),
    ROW(cudaErrorContained, "an error that was contained"),
    ROW(cudaErrorExternalDevice, "an error of another device"),
    ROW(cudaErrorMpsRpcFailure, "the MPS server does not answer"),
    ROW(cudaErrorMpsClientTerminated, "the MPS server has ended this client"),
    ROW(cudaErrorTensorMemoryLeak, "tensor memory was not given back"),
    ROW(cudaErrorUnknown, "unknown error"),
};
#undef ROW

const char *cudaGetErrorName(cudaError_t error)
{
    for (const struct error_row &row : errors)
        if (row.error == error)
            return row.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const struct error_row &row : errors)
        if (row.error == error)
            return row.text;
    return "unrecognized error code";
}
}
