/* comm_nccl_family.c - see comm_nccl_internal.h. */
#include "runtime/cuda/comm_nccl_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kernels/cuda/check.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

static bool is_setting(const char *variable, const char *value)
{
    const char *text = getenv(variable);
    return text && !strcmp(text, value);
}

static struct nccl_family *allocate(const struct comm_options *options, const struct nccl_calls *calls,
                                    struct muster_error *err)
{
    struct nccl_family *family = mem_calloc(1, sizeof *family);
    if (!family) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for comm %s", options->key ? options->key : "alone");
        return NULL;
    }
    (void)pthread_mutex_init(&family->lock, NULL);
    (void)pthread_mutex_init(&family->copying, NULL);
    (void)pthread_mutex_init(&family->telling, NULL);
    family->references = 1;
    family->calls = calls;
    family->device = options->device;
    family->device_ops = options->device_ops;
    family->rank = options->rank;
    family->size = options->size;
    family->sums = options->sums;
    family->sums_bytes = options->sums_bytes;
    family->end_ns = options->timeout_ns < NCCL_DESTROY_NS ? options->timeout_ns : NCCL_DESTROY_NS;
    family->by_schedule = !is_setting("MUSTER_NCCL_ORDER", "free");
    family->blocking = family->by_schedule; /* what ends a call inside is the flag that parts share */
    (void)snprintf(family->name, sizeof family->name, "%s", options->key ? options->key : "alone");
    family->wake = -1;
    return family;
}

struct nccl_family *nccl_family_create(const struct comm_options *options, struct muster_error *err)
{
    const struct nccl_calls *calls = nccl_library(err);
    struct nccl_family *family = calls ? allocate(options, calls, err) : NULL;
    if (!family)
        return NULL;
    cudaError_t status = cudaGetDevice(&family->cuda_device);
    if (status != cudaSuccess)
        (void)cuda_error(err, (int)status, "cudaGetDevice"); /* -1: NULL stands for it */
    else if ((family->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        (void)error_errno(err, "eventfd");
    else
        return family;
    nccl_family_free(family);
    return NULL;
}

void nccl_family_free(struct nccl_family *family)
{
    nccl_family_abort_rest(family); /* no other thread has it any more */
    nccl_news_close(family->news);
    if (family->wake >= 0)
        (void)close(family->wake); /* no thread waits */
    (void)pthread_mutex_destroy(&family->lock);
    (void)pthread_mutex_destroy(&family->copying);
    (void)pthread_mutex_destroy(&family->telling);
    mem_free(family->polls);
    mem_free(family->report);
    mem_free(family);
}

int nccl_family_add(struct nccl_family *family, struct nccl_comm *comm, struct muster_error *err)
{
    (void)pthread_mutex_lock(&family->lock);
    const bool fits = family->numbers < NEWS_COMMS;
    if (fits) {
        comm->number = family->numbers++;
        comm->next = family->comms;
        family->comms = comm;
    }
    (void)pthread_mutex_unlock(&family->lock);
    return fits ? 0
                : error_set(err, MUSTER_E_LIMIT,
                            "comm %s: %d comms were split from %s already, and no more can be",
                            comm->comm.name, NEWS_COMMS - 1, family->name);
}

void nccl_family_take(struct nccl_family *family, int number, ncclComm_t *handle)
{
    struct nccl_making *making = &family->makings[number];
    if (making->taken) /* the family failed during the creation, and the communicator is aborted */
        return;
    *handle = __atomic_load_n(&making->handle, __ATOMIC_ACQUIRE); /* NCCL's thread stores it so */
    making->taken = *handle != NULL;
}

void nccl_family_enter(struct nccl_family *family, struct nccl_comm *comm, struct nccl_inside call)
{
    comm->inside = call;
    comm->inside.since = clock_now(NULL);
    (void)pthread_mutex_unlock(&family->lock);
}

void nccl_family_leave(struct nccl_family *family, struct nccl_comm *comm)
{
    (void)pthread_mutex_lock(&family->lock);
    comm->inside.what = NULL;
}

void nccl_family_remove(struct nccl_family *family, struct nccl_comm *comm)
{
    (void)pthread_mutex_lock(&family->lock);
    for (struct nccl_comm **at = &family->comms; *at; at = &(*at)->next) {
        if (*at == comm) {
            *at = comm->next;
            break;
        }
    }
    if (family->last_comm == comm) /* its events end with it, and its work is over */
        family->last_comm = NULL;
    (void)pthread_mutex_unlock(&family->lock);
}

void nccl_family_wake(struct nccl_family *family)
{
    const uint64_t one = 1;
    (void)!write(family->wake, &one, sizeof one); /* it is readable after any result */
}

/* The device's error is ours: it came first, and names its possible causes. */
void nccl_family_fail(struct nccl_family *family, const struct muster_error *error)
{
    struct muster_error first = *error, own;
    const bool of_device = family->device_ops->poll_error(family->device, &own) != 0;
    (family->device_ops->fail)(family->device, error);
    (void)family->device_ops->poll_error(family->device, &first); /* -1: it has failed */
    (void)pthread_mutex_lock(&family->lock);
    if (!atomic_load(&family->failed)) {
        family->error = first;
        family->of_device = of_device;
        atomic_store(&family->failed, true);
        for (struct nccl_comm *comm = family->comms; comm; comm = comm->next)
            nccl_stage_disarm(comm);
    }
    (void)pthread_mutex_unlock(&family->lock);
    nccl_family_wake(family);
}

int nccl_family_use(const struct nccl_family *family, struct muster_error *err)
{
    const cudaError_t status = cudaSetDevice(family->cuda_device);
    return status == cudaSuccess ? 0 : cuda_error(err, (int)status, "cudaSetDevice");
}

int nccl_family_check(struct nccl_family *family, struct muster_error *err)
{
    if (!atomic_load(&family->failed))
        return 0;
    (void)pthread_mutex_lock(&family->lock);
    if (err)
        *err = family->error;
    (void)pthread_mutex_unlock(&family->lock);
    return -1;
}

int nccl_family_ended(struct nccl_family *family, const char *what, struct muster_error *err)
{
    (void)pthread_mutex_lock(&family->lock);
    (void)error_set(err, MUSTER_E_STATE,
                    "%s: the communicator was aborted, since another one did not end in order%s%s", what,
                    family->given_up.code ? ": " : "", family->given_up.text);
    (void)pthread_mutex_unlock(&family->lock);
    return -1;
}

void nccl_family_abort(struct nccl_family *family, ncclComm_t *handles, int count)
{
    const struct nccl_calls *calls = family->calls;
    bool grouped = count > 1 && calls->group_start() == ncclSuccess;
    for (int i = 0; i < count; i++) {
        const ncclResult_t result = calls->abort(handles[i]);
        if (result != ncclSuccess && result != ncclInProgress) /* in progress: it is NCCL's now */
            (void)calls->abort(handles[i]); /* once more: there is nothing else to be done */
    }
    if (grouped)
        (void)calls->group_end(); /* the family already has their error */
}

void nccl_family_abort_rest(struct nccl_family *family)
{
    for (int number = 0; number <= NCCL_BASE; number++) {
        struct nccl_making *making = &family->makings[number];
        ncclComm_t handle = __atomic_load_n(&making->handle, __ATOMIC_ACQUIRE);
        if (!handle || making->taken)
            continue;
        making->taken = true;
        nccl_family_abort(family, &handle, 1);
    }
}

static bool is_inside(const struct nccl_family *family)
{
    bool inside = false;
    for (const struct nccl_comm *comm = family->comms; comm; comm = comm->next)
        inside |= comm->inside.what != NULL;
    return inside;
}

/* With the flag that the base shares the calls inside return. Where the user's NCCL shares nothing
 * (NCCL_COMM_SPLIT_SHARE_RESOURCES=0) they do not, and are not waited for for ever: NCCL allows an abort
 * then, too. */
static void end_calls_inside(struct nccl_family *family)
{
    ncclComm_t base = take_pointer(&family->base);
    if (base)
        nccl_family_abort(family, &base, 1);
    const struct instant limit = instant_add(clock_now(NULL), NCCL_OUTSIDE_NS);
    while (is_inside(family) && !instant_reached(clock_now(NULL), limit)) {
        (void)pthread_mutex_unlock(&family->lock);
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
        (void)pthread_mutex_lock(&family->lock);
    }
}

void nccl_family_abort_all(struct nccl_family *family)
{
    ncclComm_t handles[NEWS_COMMS + 1];
    int count = 0;
    (void)pthread_mutex_lock(&family->lock);
    if (!family->aborted) {
        family->aborted = true;
        if (is_inside(family))
            end_calls_inside(family);
        if (family->base)
            handles[count++] = take_pointer(&family->base);
        for (struct nccl_comm *comm = family->comms; comm; comm = comm->next) {
            if (comm->handle && count <= NEWS_COMMS)
                handles[count++] = take_pointer(&comm->handle);
        }
        nccl_family_abort(family, handles, count);
        nccl_family_abort_rest(family);
    }
    (void)pthread_mutex_unlock(&family->lock);
}

void nccl_family_give_up(struct nccl_family *family, const struct muster_error *why)
{
    (void)pthread_mutex_lock(&family->lock);
    if (!family->given_up.code)
        family->given_up = *why;
    (void)pthread_mutex_unlock(&family->lock);
    nccl_family_abort_all(family);
}
