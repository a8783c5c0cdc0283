/* device_cpu.c - the CPU device: its table, its first error and its events. */
#include "runtime/device/device_cpu.h"

#include <assert.h>

#include "kernels/kernels.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/device/device_cpu_internal.h"
#include "runtime/device/host_memory.h"

static struct device *cpu_open(int local_rank, int threads, struct muster_error *err)
{
    if (local_rank < 0 || threads < 1) {
        (void)error_set(err, MUSTER_E_INVALID,
                        "a CPU device needs a local rank of at least 0 and at least 1 thread, got %d and %d",
                        local_rank, threads);
        return NULL;
    }
    if (kernels_cpu_open(err)) /* here, while no thread of ours computes */
        return NULL;
    struct device *device = mem_calloc(1, sizeof *device);
    if (!device) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a device");
        return NULL;
    }
    device->threads = threads;
    device->kernels = kernels_cpu(~0u);
    device->poison = -1;
    device->memory_limit = -1;
    return device;
}

static void cpu_close(struct device *device)
{
    if (!device)
        return;
    assert(!device->arenas && atomic_load(&device->streams) == 0 &&
           "streams and arenas go before the device");
    while (device->events) {
        struct device_event *event = device->events;
        device->events = event->next;
        mem_free(event);
    }
    mem_free(device);
}

static const struct kernels *cpu_kernels(struct device *device)
{
    return device ? device->kernels : kernels_cpu(~0u);
}

/* Without bf16 in the processor, and of f16, it is the reference: slow, and right. */
static int cpu_values(struct device *device, enum dtype values, struct muster_error *err)
{
    (void)err; /* every CPU has a table of each type */
    device->kernels = kernels_cpu_values(values);
    return 0;
}

static const struct kernels *cpu_kernels_f32(struct device *device)
{
    (void)device;
    return kernels_cpu(~0u);
}

static int cpu_products(struct device *device, enum kernels_products by, struct muster_error *err)
{
    if (device->kernels->value != DTYPE_F32)
        return 0; /* values of 16 bits have one table */
    const struct kernels *kernels = kernels_cpu_by(by, err);
    if (!kernels)
        return -1;
    device->kernels = kernels;
    return 0;
}

static int64_t cpu_scratch_bytes(struct device *device)
{
    return device->threads * kernels_cpu_scratch_bytes(device->kernels);
}

static void cpu_take_scratch(struct device *device, void *memory)
{
    device->scratch = memory;
}

static int64_t cpu_memory_available(struct device *device)
{
    return device->memory_limit >= 0 ? device->memory_limit : host_memory_available();
}

void device_cpu_poison(struct device *device, int byte)
{
    device->poison = byte;
}

void device_cpu_memory_limit(struct device *device, int64_t bytes)
{
    device->memory_limit = bytes;
}

/* ---- the first error ---- */

void cpu_device_fail(struct device *device, const struct muster_error *error)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&device->failed, &none, FAILURE_WRITING))
        return;
    device->error = *error;
    if (!device->error.code)
        device->error.code = MUSTER_E_STATE;
    atomic_store(&device->failed, FAILURE_SET);
}

int cpu_device_poll_error(struct device *device, struct muster_error *err)
{
    switch (atomic_load_explicit(&device->failed, memory_order_acquire)) {
    case 0:
        return 0;
    case FAILURE_SET:
        if (err)
            *err = device->error;
        return -1;
    default: /* another thread is writing the text */
        return error_set(err, MUSTER_E_STATE, "the device is failing right now");
    }
}

static void cpu_device_mend(struct device *device)
{
    atomic_store(&device->failed, 0);
}

/* ---- events ---- */

static struct device_event *cpu_event_create(struct device *device, struct muster_error *err)
{
    struct device_event *event = device->free_events;
    if (event) {
        device->free_events = event->next_free;
    } else {
        event = mem_calloc(1, sizeof *event);
        if (!event) {
            (void)error_set(err, MUSTER_E_NOMEM, "no memory for an event");
            return NULL;
        }
        event->device = device;
        event->next = device->events;
        device->events = event;
    }
    atomic_store(&event->recorded, 0);
    atomic_store(&event->reached.value, 0);
    return event;
}

static void cpu_event_destroy(struct device_event *event)
{
    if (!event)
        return;
    event->next_free = event->device->free_events;
    event->device->free_events = event;
}

static bool cpu_event_done(struct device_event *event)
{
    return futex_reached(atomic_load(&event->reached.value), atomic_load(&event->recorded));
}

static struct instant cpu_event_time(struct device_event *event)
{
    if (!atomic_load(&event->recorded) || !cpu_event_done(event))
        return (struct instant){0};
    return (struct instant){atomic_load(&event->time_ns)};
}

static void *cpu_stream_handle(struct device_stream *stream)
{
    (void)stream; /* CPU kernels run where they are called */
    return NULL;
}

const struct device_ops *device_cpu(void)
{
    static const struct device_ops ops = {
        .abi = DEVICE_ABI,
        .size = sizeof ops,
        .name = "cpu",
        .host_memory = true,
        .host_streams = true,
        .open = cpu_open,
        .close = cpu_close,
        .kernels = cpu_kernels,
        .values = cpu_values,
        .kernels_f32 = cpu_kernels_f32,
        .products = cpu_products,
        .scratch_bytes = cpu_scratch_bytes,
        .scratch = cpu_take_scratch,
        .memory_available = cpu_memory_available,
        .arena_create = cpu_arena_create,
        .arena_destroy = cpu_arena_destroy,
        .stream_create = cpu_stream_create,
        .stream_destroy = cpu_stream_destroy,
        .stream_handle = cpu_stream_handle,
        .event_create = cpu_event_create,
        .event_destroy = cpu_event_destroy,
        .launch = cpu_stream_launch,
        .record = cpu_stream_record,
        .wait = cpu_stream_wait,
        .copy = cpu_stream_copy,
        .fill = cpu_stream_fill,
        .event_done = cpu_event_done,
        .event_time = cpu_event_time,
        .stream_waited_ns = cpu_stream_waited_ns,
        .sync = cpu_stream_sync,
        .fail = cpu_device_fail,
        .poll_error = cpu_device_poll_error,
        .mend = cpu_device_mend,
    };
    return &ops;
}
