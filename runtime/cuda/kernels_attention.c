/* kernels_attention.c - see kernels_attention.h; and the tables of GPUs that are described. */
#include "runtime/cuda/kernels_attention.h"

#include <pthread.h>

#include "proto/base/error.h"
#include "runtime/cuda/cudnn/attention.h"
#include "runtime/cuda/devices/devices.h"
#include "runtime/cuda/kernels_cuda.h"

#define CHOSEN(type)                                                                                         \
    int chosen_attention_forward_##type(void *out, void *lse, const void *q, const void *k, const void *v,   \
                                        const struct attention *a, void *work, void *stream,                 \
                                        struct muster_error *err)                                            \
    {                                                                                                        \
        const int library = a->by ? cudnn_attention_forward(out, lse, q, k, v, a, work, stream, err) : 1;    \
        return library <= 0 ? library                                                                        \
                            : cuda_attention_forward_##type(out, lse, q, k, v, a, work, stream, err);        \
    }                                                                                                        \
    int chosen_attention_backward_##type(void *dq, void *dk, void *dv, const void *dout, const void *q,      \
                                         const void *k, const void *v, const void *out, const void *lse,     \
                                         const struct attention *a, const int beta[3], void *work,           \
                                         void *stream, struct muster_error *err)                             \
    {                                                                                                        \
        const int library = a->by ? cudnn_attention_backward(dq, dk, dv, dout, q, k, v, out, lse, a, beta,   \
                                                             work, stream, err)                              \
                                  : 1;                                                                       \
        return library <= 0 ? library                                                                        \
                            : cuda_attention_backward_##type(dq, dk, dv, dout, q, k, v, out, lse, a, beta,   \
                                                             work, stream, err);                             \
    }
CHOSEN(bf16)
CHOSEN(f16)

/* The larger of both: a call whose gradients are added has ours. */
size_t chosen_attention_work(const struct attention *a, int backward)
{
    const size_t ours = cuda_attention_work(a, backward);
    size_t library = 0;
    return a->by && cudnn_attention_takes(a, backward, &library, NULL) && library > ours ? library : ours;
}

/* ---- described GPUs ---- */

static struct described {
    const struct cuda_description *device;
    enum dtype values;
    struct kernels table;
} described[2 * CUDA_DEVICE_COUNT];

static const struct kernels *table_of(const struct cuda_description *device, enum dtype values,
                                      struct muster_error *err)
{
    struct described *place = described;
    while (place->device && (place->device != device || place->values != values))
        place++;
    if (place->device)
        return &place->table;
    struct attention_by *by =
        cudnn_attention_open(device, device->capability, device->memory_bytes, values, err);
    if (!by)
        return NULL;
    kernels_cuda_with(&place->table, values, by);
    place->values = values;
    place->device = device;
    return &place->table;
}

const struct kernels *kernels_described(const struct cuda_description *device, enum dtype values, bool tf32,
                                        bool cudnn, struct muster_error *err)
{
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    if (!cudnn)
        return kernels_cuda(values, tf32);
    if (!device) {
        (void)error_set(err, MUSTER_E_INVALID,
                        "training.attention: cudnn: its workspace is one GPU's: plan for a GPU by its name "
                        "(training.device: h100), or use own");
        return NULL;
    }
    (void)pthread_mutex_lock(&making); /* a plain mutex, and locked once: it cannot fail */
    const struct kernels *table = table_of(device, values, err);
    (void)pthread_mutex_unlock(&making);
    return table;
}
