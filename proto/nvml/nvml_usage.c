/* nvml_usage.c - see nvml_usage.h. */
#include "proto/nvml/nvml_usage.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"
#include "proto/nvml/nvml_library.h"

enum { PATH_SIZE = 4096 };
#define ASK_NS  NS_PER_S
#define OLD_NS  (10 * NS_PER_S)
#define STOP_NS (200 * NS_PER_MS)

struct nvml_sampler {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stops;
    bool stopped, ended;
    struct nvml_usage usage;
    struct instant at; /* time of usage; 0: none */

    char library[PATH_SIZE]; /* "": the driver's */
    int index;
    char uuid[NVML_UUID_SIZE];
};

bool nvml_usage_choose(const char *visible, int local_rank, int *index, char *uuid, unsigned size)
{
    const char *at = visible;
    *index = local_rank;
    *uuid = '\0';
    if (!visible)
        return local_rank >= 0;
    for (int i = 0; at && i < local_rank; i++) {
        const char *comma = strchr(at, ',');
        at = comma ? comma + 1 : NULL;
    }
    if (!at || local_rank < 0)
        return false;
    at += strspn(at, " ");
    const size_t length = strcspn(at, ", ");
    char *end;
    const long number = strtol(at, &end, 10);
    if (length && end == at + length) {
        *index = (int)number;
        return number >= 0 && number < NVML_GPUS_LIMIT; /* CUDA ends its list at -1 */
    }
    *index = -1;
    (void)snprintf(uuid, size, "%.*s", (int)length, at);
    return length && length < size && (!strncmp(uuid, "GPU-", 4) || !strncmp(uuid, "MIG-", 4));
}

/* ---- the thread ---- */

static bool has_uuid(const struct nvml_library *nvml, nvmlDevice_t device, const char *begins)
{
    char uuid[NVML_UUID_SIZE];
    return nvml->uuid(device, uuid, sizeof uuid) == NVML_SUCCESS && !strncmp(uuid, begins, strlen(begins));
}

static bool find_by_uuid(const struct nvml_library *nvml, const char *begins, nvmlDevice_t *device)
{
    unsigned count = 0, instances;
    (void)nvml->count(&count); /* none where it fails */
    for (unsigned i = 0; i < count; i++) {
        if (nvml->handle(i, device) != NVML_SUCCESS)
            continue;
        if (has_uuid(nvml, *device, begins))
            return true;
        nvmlDevice_t whole = *device;
        if (NVML_ASK(nvml, mig_limit, whole, &instances) != NVML_SUCCESS)
            instances = 0;
        for (unsigned k = 0; k < instances; k++)
            if (NVML_ASK(nvml, mig_handle, whole, k, device) == NVML_SUCCESS &&
                has_uuid(nvml, *device, begins))
                return true;
    }
    return false;
}

static bool ask_usage(const struct nvml_library *nvml, nvmlDevice_t device, struct nvml_usage *usage)
{
    nvmlUtilization_t rates;
    nvmlMemory_v2_t memory = {.version = NVML_MEMORY_V2};
    nvmlMemory_t old;
    *usage = (struct nvml_usage){.busy = -1};
    if (NVML_ASK(nvml, utilization, device, &rates) == NVML_SUCCESS)
        usage->busy = rates.gpu / 100.0;
    if (NVML_ASK(nvml, memory_v2, device, &memory) == NVML_SUCCESS) {
        usage->used = (int64_t)memory.used;
        usage->total = (int64_t)memory.total;
    } else if (NVML_ASK(nvml, memory, device, &old) == NVML_SUCCESS) {
        usage->used = (int64_t)old.used;
        usage->total = (int64_t)old.total;
    }
    return usage->busy >= 0 || usage->total;
}

/* true: it is to stop. */
static bool wait_for_next(struct nvml_sampler *s)
{
    const struct instant until = instant_add(clock_now(NULL), ASK_NS);
    const struct timespec when = {until.ns / NS_PER_S, until.ns % NS_PER_S};
    (void)pthread_mutex_lock(&s->lock); /* cannot fail: it is ours, and not held */
    while (!s->stopped && pthread_cond_timedwait(&s->stops, &s->lock, &when) == 0)
        ;
    const bool stopped = s->stopped;
    (void)pthread_mutex_unlock(&s->lock);
    return stopped;
}

static void ask_until_stopped(struct nvml_sampler *s, const struct nvml_library *nvml, nvmlDevice_t device)
{
    struct nvml_usage usage;
    do {
        if (!ask_usage(nvml, device, &usage))
            continue;
        (void)pthread_mutex_lock(&s->lock);
        s->usage = usage;
        s->at = clock_now(NULL);
        (void)pthread_mutex_unlock(&s->lock);
    } while (!wait_for_next(s));
}

static void ask_driver(struct nvml_sampler *s)
{
    struct nvml_library nvml;
    nvmlDevice_t device;
    if (nvml_open(*s->library ? s->library : NULL, &nvml, NULL) < 0)
        return; /* no driver: no answers */
    if (s->index >= 0 ? nvml.handle((unsigned)s->index, &device) == NVML_SUCCESS
                      : find_by_uuid(&nvml, s->uuid, &device))
        ask_until_stopped(s, &nvml, device);
    nvml_close(&nvml);
}

static void *sample_usage(void *context)
{
    struct nvml_sampler *s = context;
    ask_driver(s);
    (void)pthread_mutex_lock(&s->lock);
    s->ended = true;
    (void)pthread_cond_broadcast(&s->stops);
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the caller ---- */

static void sampler_free(struct nvml_sampler *s)
{
    (void)pthread_cond_destroy(&s->stops);
    (void)pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

struct nvml_sampler *nvml_sampler_start(const char *library, const char *visible, int local_rank)
{
    pthread_condattr_t attributes;
    struct nvml_sampler *s = mem_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    (void)pthread_mutex_init(&s->lock, NULL); /* these three cannot fail with glibc */
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->stops, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)snprintf(s->library, sizeof s->library, "%s",
                   library ? library : ""); /* a longer one is not found */
    if (nvml_usage_choose(visible, local_rank, &s->index, s->uuid, sizeof s->uuid) &&
        thread_start(&s->thread, 0, sample_usage, s) == 0)
        return s;
    sampler_free(s);
    return NULL;
}

bool nvml_sampler_read(struct nvml_sampler *s, struct nvml_usage *usage)
{
    if (!s)
        return false;
    (void)pthread_mutex_lock(&s->lock);
    *usage = s->usage;
    const bool fresh = s->at.ns && instant_diff_ns(clock_now(NULL), s->at) < OLD_NS;
    (void)pthread_mutex_unlock(&s->lock);
    return fresh;
}

void nvml_sampler_stop(struct nvml_sampler *s)
{
    if (!s)
        return;
    const struct timespec until = instant_timespec(instant_add(clock_now(NULL), STOP_NS));
    (void)pthread_mutex_lock(&s->lock);
    s->stopped = true;
    (void)pthread_cond_broadcast(&s->stops);
    while (!s->ended && pthread_cond_timedwait(&s->stops, &s->lock, &until) == 0)
        ;
    const bool ended = s->ended;
    (void)pthread_mutex_unlock(&s->lock);
    if (!ended) {
        (void)pthread_detach(s->thread); /* it hangs in the driver: its memory stays */
        return;
    }
    (void)pthread_join(s->thread, NULL); /* it returns */
    sampler_free(s);
}
