/* device_cuda.c - the CUDA device: its choice, its requirements, and its table. */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/check.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/cuda/cudnn/attention.h"
#include "runtime/cuda/device_cuda.h"
#include "runtime/cuda/devices/devices.h"
#include "runtime/cuda/kernels_cuda.h"

/* ---- missing requirements ---- */

static int version_text(char text[16], int version)
{
    return snprintf(text, 16, "%d.%d", version / 1000, version % 1000 / 10);
}

/* The driver alone knows which CUDA it can run. */
static int check_driver(struct muster_error *err)
{
    int driver = 0;
    char has[16], needs[16];
    CUDA_CHECK("device cuda: cudaDriverGetVersion", cudaDriverGetVersion(&driver), err);
    (void)version_text(has, driver);
    (void)version_text(needs, CUDART_VERSION);
    if (!driver)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "device cuda: there is no NVIDIA driver on this machine (libcuda.so.1): install it, or use "
            "training.device: cpu");
    if (driver / 1000 < CUDART_VERSION / 1000)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "device cuda: the NVIDIA driver is for CUDA %s, but this build needs version %s: update the "
            "driver, or use training.device: cpu",
            has, needs);
    return 0;
}

static int count_devices(int *count, struct muster_error *err)
{
    *count = 0;
    if (check_driver(err))
        return -1;
    const cudaError_t status = cudaGetDeviceCount(count);
    if (status == cudaErrorNoDevice || (status == cudaSuccess && *count < 1)) {
        (void)cudaGetLastError(); /* the error is reported here */
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "device cuda: the driver finds no device: see nvidia-smi and CUDA_VISIBLE_DEVICES, or use "
            "training.device: cpu");
    }
    CUDA_CHECK("device cuda: cudaGetDeviceCount", status, err);
    return 0;
}

int device_cuda_probe(struct muster_error *err)
{
    int count;
    return count_devices(&count, err);
}

/* Ranks may share a device, and each may be shown one device alone: both come to the remainder. */
static int index_of(int local_rank, int count)
{
    return local_rank % count;
}

int device_cuda_locate(int local_rank, char place[MUSTER_CUDA_PLACE], struct muster_error *err)
{
    struct cudaDeviceProp p;
    int count;
    if (count_devices(&count, err))
        return -1;
    CUDA_CHECK("device cuda: cudaGetDeviceProperties",
               cudaGetDeviceProperties(&p, index_of(local_rank, count)), err);
    (void)snprintf(place, MUSTER_CUDA_PLACE, "%04x:%02x:%02x", (unsigned)p.pciDomainID, (unsigned)p.pciBusID,
                   (unsigned)p.pciDeviceID); /* fits */
    return 0;
}

/* 0 where the device does not report it. */
static int attribute_of(enum cudaDeviceAttr attribute, int index)
{
    int value = 0;
    if (cudaDeviceGetAttribute(&value, attribute, index) == cudaSuccess)
        return value;
    (void)cudaGetLastError();
    return 0;
}

int device_cuda_facts(struct cuda_facts *facts, struct muster_error *err)
{
    struct cudaDeviceProp p;
    int count, least = 0;
    if (count_devices(&count, err))
        return -1;
    *facts = (struct cuda_facts){.memory_bytes = INT64_MAX, .count = count};
    for (int i = 0; i < count; i++) {
        CUDA_CHECK("device cuda: cudaGetDeviceProperties", cudaGetDeviceProperties(&p, i), err);
        if ((int64_t)p.totalGlobalMem >= facts->memory_bytes)
            continue;
        least = i;
        facts->memory_bytes = (int64_t)p.totalGlobalMem;
        facts->capability = 10 * p.major + p.minor;
        facts->sms = p.multiProcessorCount;
        (void)snprintf(facts->product, sizeof facts->product, "%.63s", p.name); /* cut */
    }
    const double memory_hz = 1e3 * attribute_of(cudaDevAttrMemoryClockRate, least);
    facts->clock_mhz = attribute_of(cudaDevAttrClockRate, least) / 1000;
    facts->memory_rate = 2 * memory_hz * attribute_of(cudaDevAttrGlobalMemoryBusWidth, least) / 8;
    return 0;
}

/* ---- open and close ---- */

static void cuda_close(struct device *device)
{
    if (!device)
        return;
    (void)cuda_device_use(device, NULL); /* the device has failed then, and has reported it */
    if (atomic_load(&device->stuck))     /* its memory ends with the process */
        return;
    cuda_bounces_close(device);
    cudnn_attention_close(device->attention);
    if (device->own)
        (void)cudaStreamDestroy(device->own);      /* same error */
    (void)pthread_mutex_destroy(&device->staging); /* cannot fail: no thread holds it */
    (void)pthread_mutex_destroy(&device->listing);
    mem_free(device);
}
GUARD_DEFINE(device, struct device *, cuda_close);

static int open_streams(struct device *device, struct muster_error *err)
{
    int least, greatest;
    if (cuda_device_status(device, cudaDeviceGetStreamPriorityRange(&least, &greatest),
                           "cudaDeviceGetStreamPriorityRange", err))
        return -1;
    device->priority_compute = least;
    device->priority_comm = greatest;
    return cuda_device_status(device,
                              cudaStreamCreateWithPriority(&device->own, cudaStreamNonBlocking, least),
                              "cudaStreamCreateWithPriority", err);
}

static struct device *cuda_open(int local_rank, int threads, struct muster_error *err)
{
    (void)threads; /* threads are for the host's kernels */
    int count;
    if (local_rank < 0) {
        (void)error_set(err, MUSTER_E_INVALID, "a CUDA device for local rank %d, which is below 0",
                        local_rank);
        return NULL;
    }
    if (count_devices(&count, err))
        return NULL;
    GUARD(guard_device) struct device *device = mem_calloc(1, sizeof *device);
    if (!device) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a device");
        return NULL;
    }
    (void)pthread_mutex_init(&device->staging, NULL); /* cannot fail without attributes */
    (void)pthread_mutex_init(&device->listing, NULL);
    device->index = index_of(local_rank, count);
    device->end_ns = CUDA_END_NS;
    if (cuda_device_use(device, err) ||
        cuda_device_status(device, cudaGetDeviceProperties(&device->properties, device->index),
                           "cudaGetDeviceProperties", err) ||
        open_streams(device, err) || cuda_bounces_open(device, err))
        return NULL;
    return take_pointer(&device);
}

static const struct kernels *cuda_kernels(struct device *device)
{
    return device && device->attention
               ? &device->with_attention
               : kernels_cuda(device ? device->values : DTYPE_F32, device && device->tf32);
}

static const struct kernels *cuda_kernels_f32(struct device *device)
{
    return kernels_cuda(DTYPE_F32, device && device->tf32);
}

static void cuda_sync_errors(struct device *device, bool on)
{
    device->sync_errors = on;
}

static void cuda_leave(struct device *device, int multiprocessors)
{
    atomic_store(&device->left, multiprocessors);
}

static int cuda_tf32(struct device *device, struct muster_error *err)
{
    const struct cudaDeviceProp *p = &device->properties;
    if (p->major < 8)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "%s (sm_%d%d) has no tf32, which begins with sm_80: leave training.matmul_precision out", p->name,
            p->major, p->minor);
    device->tf32 = true;
    return 0;
}

/* Tensor cores multiply f16 from sm_75 on, the least that the module is built for, and bf16 from sm_80 on. */
static int cuda_values(struct device *device, enum dtype values, struct muster_error *err)
{
    const struct cudaDeviceProp *p = &device->properties;
    if (values == DTYPE_BF16 && p->major < 8)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "%s (sm_%d%d) has no bf16, which begins with sm_80: set training.dtype: fp16, or leave "
            "training.values out",
            p->name, p->major, p->minor);
    device->values = values;
    return 0;
}

static int cuda_attention(struct device *device, struct muster_error *err)
{
    const struct cudaDeviceProp *p = &device->properties;
    if (cuda_device_use(device, err))
        return -1;
    device->attention =
        cudnn_attention_open(NULL, 10 * p->major + p->minor, (int64_t)p->totalGlobalMem, device->values, err);
    if (!device->attention)
        return -1;
    kernels_cuda_with(&device->with_attention, device->values, device->attention);
    return 0;
}

static int cuda_attention_text(struct device *device, char *text, size_t size, struct muster_error *err)
{
    struct cudnn_attention_report report;
    cudnn_attention_report(device->attention, &report);
    if (!report.taken)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "training.attention: cudnn: %s takes no attention of this model: %s; use own", report.library,
            report.refused ? report.why.text : "it has none, or has sequences with lengths alone");
    cudnn_attention_text(&report, text, size);
    return 0;
}

static struct instant cuda_event_time(struct device_event *event)
{
    (void)event;
    return (struct instant){0}; /* the device's clock is not the host's */
}

const struct device_ops *device_cuda(void)
{
    static const struct device_ops ops = {
        .abi = DEVICE_ABI,
        .size = sizeof ops,
        .name = "cuda",
        .host_memory = false,
        .open = cuda_open,
        .close = cuda_close,
        .kernels = cuda_kernels,
        .memory_available = cuda_memory_available,
        .memory_kept = cuda_memory_kept,
        .leave = cuda_leave,
        .sync_errors = cuda_sync_errors,
        .tf32 = cuda_tf32,
        .values = cuda_values,
        .attention = cuda_attention,
        .attention_text = cuda_attention_text,
        .kernels_f32 = cuda_kernels_f32,
        .arena_create = cuda_arena_create,
        .arena_destroy = cuda_arena_destroy,
        .stream_create = cuda_stream_create,
        .stream_destroy = cuda_stream_destroy,
        .stream_handle = cuda_stream_kernels,
        .event_create = cuda_event_create,
        .event_destroy = cuda_event_destroy,
        .launch = cuda_stream_launch,
        .launch_graph = cuda_stream_launch_graph,
        .graph_destroy = cuda_graph_destroy,
        .record = cuda_stream_record,
        .wait = cuda_stream_wait,
        .copy = cuda_stream_copy,
        .fill = cuda_stream_fill,
        .mark = cuda_stream_mark,
        .marked = cuda_stream_marked,
        .under_way = cuda_device_under_way,
        .event_done = cuda_event_done,
        .event_time = cuda_event_time,
        .timer_create = cuda_timer_create,
        .timer_between = cuda_timer_between,
        .stream_waited_ns = cuda_stream_waited_ns,
        .sync = cuda_stream_sync,
        .fail = cuda_device_fail,
        .poll_error = cuda_device_poll_error,
    };
    return &ops;
}
