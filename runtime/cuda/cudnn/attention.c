/* attention.c - see attention.h: the rules, and the graphs by shape. */
#include "runtime/cuda/cudnn/attention.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/library.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "runtime/cuda/cudnn/graph.h"

/* ---- the library ---- */

#define CUDNN_FILE "libcudnn.so.9"
enum { CUDNN_OLDEST = 91900 }; /* the first that plans were seen from; major*10000 + minor*100 + patch */

struct cudnn_calls {
    size_t (*version)(void);
};

static void *open_library(int *version, struct muster_error *err)
{
    static const char needs[] = "training.attention: cudnn needs cuDNN (pip: nvidia-cudnn-cu13, with "
                                "nvidia-cuda-nvrtc; their folders on LD_LIBRARY_PATH)";
    static const struct library_function functions[] = {
        {"cudnnGetVersion", offsetof(struct cudnn_calls, version), false, NULL}};
    static const struct library library = {
        .file = CUDNN_FILE, .needs = needs, .functions = functions, .count = 1};
    struct cudnn_calls calls = {0};
    void *handle = NULL;
    if (library_load(&library, &calls, &handle, err))
        return NULL;
    *version = (int)calls.version();
    if (*version >= CUDNN_OLDEST)
        return handle; /* stays loaded until the process ends */
    (void)error_set(err, MUSTER_E_UNSUPPORTED, "%s: " CUDNN_FILE " is %d.%d.%d, and 9.19 or later is needed",
                    needs, *version / 10000, *version / 100 % 100, *version % 100);
    (void)dlclose(handle);
    return NULL;
}

/* ---- shapes ---- */

bool cudnn_attention_fits(const struct attention *a, struct muster_error *why)
{
    const int64_t rows = a->q_row | a->k_row | a->v_row;
    if (a->head_size != 64 && a->head_size != 128)
        return error_set(why, MUSTER_E_UNSUPPORTED, "heads of %d: cuDNN takes heads of 64 and 128",
                         a->head_size) == 0;
    if (a->lengths || a->positions || a->window || a->cap != 0)
        return error_set(why, MUSTER_E_UNSUPPORTED, "%s: cuDNN takes whole sequences",
                         a->lengths     ? "sequences with lengths"
                         : a->positions ? "several documents in a sequence"
                         : a->window    ? "a window"
                                        : "a cap of the scores") == 0;
    if (a->B < 1 || a->T < 1 || rows % 8)
        return error_set(why, MUSTER_E_UNSUPPORTED,
                         "%d x %d positions with rows of %lld, %lld and %lld: cuDNN takes "
                         "rows at multiples of 8",
                         a->B, a->T, (long long)a->q_row, (long long)a->k_row, (long long)a->v_row) == 0;
    return true;
}

struct cudnn_shape {
    struct attention a;                     /* by, lengths, positions NULL */
    struct cudnn_graph *forward, *backward; /* NULL: cuDNN does not take it, by `why` */
    struct muster_error why;
    struct cudnn_shape *next;
};

struct attention_by {
    struct cudnn_place *place;
    enum dtype values;
    int64_t work_most; /* bytes of a backward's workspace */
    int version;
    pthread_mutex_t lock;
    struct cudnn_shape *shapes;
};

static bool is_same(const struct attention *a, const struct attention *b)
{
    return a->B == b->B && a->T == b->T && a->heads == b->heads && a->kv_heads == b->kv_heads &&
           a->head_size == b->head_size && !a->causal == !b->causal && a->q_row == b->q_row &&
           a->k_row == b->k_row && a->v_row == b->v_row && a->scale == b->scale;
}

static void make_graphs(struct attention_by *by, struct cudnn_shape *shape)
{
    if (!cudnn_attention_fits(&shape->a, &shape->why))
        return;
    shape->forward = cudnn_graph_make(by->place, &shape->a, by->values, false, &shape->why);
    if (shape->forward)
        shape->backward = cudnn_graph_make(by->place, &shape->a, by->values, true, &shape->why);
    if (!shape->backward) {
        cudnn_graph_free(shape->forward);
        shape->forward = NULL;
        return;
    }
    const int64_t work = (int64_t)cudnn_graph_work(shape->backward);
    char needs[32], most[32];
    if (work <= by->work_most)
        return;
    (void)error_set(
        &shape->why, MUSTER_E_LIMIT,
        "%d x %d positions of %d heads need %s of workspace, more than 1/%d of the GPU's memory (%s)",
        shape->a.B, shape->a.T, shape->a.heads, text_format_bytes(needs, sizeof needs, work),
        (int)CUDNN_WORK_SHARE, text_format_bytes(most, sizeof most, by->work_most));
    cudnn_graph_free(shape->backward);
    shape->backward = NULL;
}

/* Under the lock; NULL: no memory. Lengths and positions refuse a call, and not its shape. */
static struct cudnn_shape *shape_of(struct attention_by *by, const struct attention *a)
{
    struct cudnn_shape **at = &by->shapes;
    while (*at && !is_same(&(*at)->a, a))
        at = &(*at)->next;
    if (*at || !(*at = mem_calloc(1, sizeof **at)))
        return *at;
    (*at)->a = *a;
    (*at)->a.by = NULL;
    (*at)->a.lengths = (*at)->a.positions = NULL;
    make_graphs(by, *at);
    return *at;
}

static struct cudnn_graph *taken(const struct attention *a, bool backward, struct muster_error *why)
{
    struct attention_by *by = a->by;
    if (!cudnn_attention_fits(a, why))
        return NULL;
    (void)pthread_mutex_lock(&by->lock); /* a plain mutex, locked once: it cannot fail */
    const struct cudnn_shape *shape = shape_of(by, a);
    (void)pthread_mutex_unlock(&by->lock);
    struct cudnn_graph *graph = !shape ? NULL : backward ? shape->backward : shape->forward;
    if (graph)
        return graph;
    if (!shape)
        (void)error_set(why, MUSTER_E_NOMEM, "no memory for a graph of cuDNN");
    else if (why)
        *why = shape->why;
    return NULL;
}

bool cudnn_attention_takes(const struct attention *a, int backward, size_t *work, struct muster_error *why)
{
    const struct cudnn_graph *graph = taken(a, backward, why);
    if (graph)
        *work = cudnn_graph_work(graph);
    return graph;
}

/* ---- opening and closing ---- */

struct attention_by *cudnn_attention_open(const struct cuda_description *described, int capability,
                                          int64_t memory, enum dtype values, struct muster_error *err)
{
    int version;
    if (capability < 80) {
        (void)error_set(
            err, MUSTER_E_UNSUPPORTED,
            "training.attention: cudnn: this GPU is sm_%d, and cuDNN's attention begins with sm_80: use own",
            capability);
        return NULL;
    }
    if (values != DTYPE_BF16 && values != DTYPE_F16) {
        (void)error_set(
            err, MUSTER_E_UNSUPPORTED,
            "training.attention: cudnn reads values of 16 bits, not of %s: set training.dtype: bf16 and "
            "training.values: dtype, or training.attention: own",
            dtype_name(values));
        return NULL;
    }
    void *library = cudnn_graph_built(err) ? NULL : open_library(&version, err);
    struct attention_by *by = library ? mem_calloc(1, sizeof *by) : NULL;
    if (!by) {
        if (library)
            (void)error_set(err, MUSTER_E_NOMEM, "no memory for attention by cuDNN");
        return NULL;
    }
    by->values = values;
    by->work_most = memory / CUDNN_WORK_SHARE;
    by->version = version;
    (void)pthread_mutex_init(&by->lock, NULL); /* cannot fail without attributes */
    by->place = cudnn_place_open(library, described, err);
    if (by->place)
        return by;
    (void)error_wrap(err, "training.attention: cudnn");
    cudnn_attention_close(by);
    return NULL;
}

void cudnn_attention_close(struct attention_by *by)
{
    if (!by)
        return;
    for (struct cudnn_shape *shape = by->shapes, *next; shape; shape = next) {
        next = shape->next;
        cudnn_graph_free(shape->forward);
        cudnn_graph_free(shape->backward);
        mem_free(shape);
    }
    cudnn_place_close(by->place);
    (void)pthread_mutex_destroy(&by->lock);
    mem_free(by);
}

void cudnn_attention_report(const struct attention_by *by, struct cudnn_attention_report *report)
{
    *report = (struct cudnn_attention_report){0};
    (void)snprintf(report->library, sizeof report->library, "cuDNN %d.%d.%d", by->version / 10000,
                   by->version / 100 % 100, by->version % 100);
    for (const struct cudnn_shape *shape = by->shapes; shape; shape = shape->next) {
        const bool alone = shape->forward && !shape->backward;
        report->taken += shape->forward != NULL;
        report->refused += !shape->forward;
        report->forward_alone += alone;
        if (!shape->forward && report->refused == 1)
            report->why = shape->why;
        if (alone && report->forward_alone == 1)
            report->why_alone = shape->why;
    }
}

void cudnn_attention_text(const struct cudnn_attention_report *r, char *text, size_t size)
{
    const int all = r->taken + r->refused;
    char ours[sizeof r->why.text + 64] = "", backward[sizeof r->why.text + 64] = "";
    if (r->refused)
        (void)snprintf(ours, sizeof ours, ", and muster's kernels for %d of %d shapes: %s", r->refused, all,
                       r->why.text);
    if (r->forward_alone)
        (void)snprintf(backward, sizeof backward, ", and muster's backward for %d of %d shapes: %s",
                       r->forward_alone, all, r->why_alone.text);
    (void)snprintf(text, size, "%s%s%s", r->library, ours, backward); /* cut off where it is long */
}

/* ---- running ---- */

static bool is_aligned(const void *const *pointers, int count)
{
    uintptr_t all = 0;
    for (int i = 0; i < count; i++)
        all |= (uintptr_t)pointers[i];
    return all % 16 == 0;
}

int cudnn_attention_forward(void *out, void *lse, const void *q, const void *k, const void *v,
                            const struct attention *a, void *work, void *stream, struct muster_error *err)
{
    const void *all[CUDNN_FORWARD_TENSORS] = {
        [CUDNN_Q] = q, [CUDNN_K] = k, [CUDNN_V] = v, [CUDNN_OUT] = out, [CUDNN_LSE] = lse};
    void *tensors[CUDNN_FORWARD_TENSORS];
    struct cudnn_graph *graph = is_aligned(all, CUDNN_FORWARD_TENSORS) ? taken(a, false, NULL) : NULL;
    if (!graph)
        return 1;
    memcpy(tensors, all, sizeof all); /* the frontend takes no const */
    return cudnn_graph_run(graph, tensors, work, stream, err);
}

int cudnn_attention_backward(void *dq, void *dk, void *dv, const void *dout, const void *q, const void *k,
                             const void *v, const void *out, const void *lse, const struct attention *a,
                             const int beta[3], void *work, void *stream, struct muster_error *err)
{
    const void *all[CUDNN_BACKWARD_TENSORS] = {
        [CUDNN_Q] = q,       [CUDNN_K] = k,   [CUDNN_V] = v,   [CUDNN_OUT] = out, [CUDNN_LSE] = lse,
        [CUDNN_DOUT] = dout, [CUDNN_DQ] = dq, [CUDNN_DK] = dk, [CUDNN_DV] = dv};
    void *tensors[CUDNN_BACKWARD_TENSORS];
    const bool stores = dq && dk && dv && !beta[0] && !beta[1] && !beta[2];
    struct cudnn_graph *graph =
        stores && is_aligned(all, CUDNN_BACKWARD_TENSORS) ? taken(a, true, NULL) : NULL;
    if (!graph)
        return 1;
    memcpy(tensors, all, sizeof all);
    return cudnn_graph_run(graph, tensors, work, stream, err);
}
