/* onednn.c - see onednn.h.
 *
 * A primitive is machine code for one shape; making one takes up to a millisecond. They are kept by shape in
 * a table that only grows: a run has a few dozen shapes. A shape that finds the table full is made each time.
 */
#include "kernels/cpu/onednn.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/library.h"

#ifndef MUSTER_ONEDNN

int onednn_open(struct muster_error *err)
{
    return error_set(err, MUSTER_E_UNSUPPORTED,
                     "oneDNN: this build has none (libdnnl-dev 2 was absent when it was made): use "
                     "training.products: openblas and training.matmul_precision: fp32");
}

bool onednn_has_bf16(void)
{
    return false;
}

const char *onednn_text(void)
{
    return "";
}

bool onednn_f32(bool a_transposed, bool b_transposed, int rows, int columns, int depth, const float *a,
                int a_stride, const float *b, int b_stride, float beta, float *out, int out_stride)
{
    (void)a_transposed, (void)b_transposed, (void)rows, (void)columns, (void)depth, (void)a, (void)a_stride;
    (void)b, (void)b_stride, (void)beta, (void)out, (void)out_stride;
    return false;
}

bool onednn_bf16(bool a_transposed, bool b_transposed, int rows, int columns, int depth, const uint16_t *a,
                 int a_stride, const uint16_t *b, int b_stride, float beta, float *out, int out_stride)
{
    (void)a_transposed, (void)b_transposed, (void)rows, (void)columns, (void)depth, (void)a, (void)a_stride;
    (void)b, (void)b_stride, (void)beta, (void)out, (void)out_stride;
    return false;
}

#else

#include <oneapi/dnnl/dnnl.h>

#define ONEDNN_FUNCTIONS(X)                                                                                  \
    X(dnnl_version)                                                                                          \
    X(dnnl_get_effective_cpu_isa)                                                                            \
    X(dnnl_sgemm)                                                                                            \
    X(dnnl_engine_create)                                                                                    \
    X(dnnl_stream_create)                                                                                    \
    X(dnnl_memory_desc_init_by_strides)                                                                      \
    X(dnnl_memory_create)                                                                                    \
    X(dnnl_memory_destroy)                                                                                   \
    X(dnnl_matmul_desc_init)                                                                                 \
    X(dnnl_primitive_attr_create)                                                                            \
    X(dnnl_primitive_attr_destroy)                                                                           \
    X(dnnl_primitive_attr_set_post_ops)                                                                      \
    X(dnnl_post_ops_create)                                                                                  \
    X(dnnl_post_ops_destroy)                                                                                 \
    X(dnnl_post_ops_append_sum)                                                                              \
    X(dnnl_primitive_desc_create)                                                                            \
    X(dnnl_primitive_desc_destroy)                                                                           \
    X(dnnl_primitive_create)                                                                                 \
    X(dnnl_primitive_destroy)                                                                                \
    X(dnnl_primitive_execute)

static struct {
#define ONEDNN_MEMBER(function) __typeof__(&(function)) function;
    ONEDNN_FUNCTIONS(ONEDNN_MEMBER)
#undef ONEDNN_MEMBER
} dnnl;

#define ONEDNN_NUMBER2(number) #number
#define ONEDNN_NUMBER(number)  ONEDNN_NUMBER2(number)

static pthread_once_t open_once = PTHREAD_ONCE_INIT;
static struct muster_error open_error;
static char text[64];
static bool bf16;
static dnnl_engine_t engine;
static dnnl_stream_t stream; /* a CPU stream has no state: all threads use it */

static void set_text(dnnl_cpu_isa_t isa)
{
    const dnnl_version_t *version = dnnl.dnnl_version();
    const char *name = isa == dnnl_cpu_isa_avx512_core_amx    ? "avx512_core_amx"
                       : isa == dnnl_cpu_isa_avx512_core_bf16 ? "avx512_core_bf16"
                       : isa == dnnl_cpu_isa_avx512_core_vnni ? "avx512_core_vnni"
                       : isa == dnnl_cpu_isa_avx512_core      ? "avx512_core"
                       : isa == dnnl_cpu_isa_avx2_vnni        ? "avx2_vnni"
                       : isa == dnnl_cpu_isa_avx2             ? "avx2"
                                                              : "other";
    (void)snprintf(text, sizeof text, "oneDNN %d.%d.%d, %s", version->major, version->minor, version->patch,
                   name); /* fits */
    bf16 = isa == dnnl_cpu_isa_avx512_core_amx || isa == dnnl_cpu_isa_avx512_core_bf16;
}

static void open_once_only(void)
{
    static struct library_function functions[] = {
#define ONEDNN_NAME(function)  {.name = #function},
        ONEDNN_FUNCTIONS(ONEDNN_NAME)};
    size_t count = 0;
#define ONEDNN_SLOT(function)  functions[count++].slot = (size_t)((char *)&dnnl.function - (char *)&dnnl);
    ONEDNN_FUNCTIONS(ONEDNN_SLOT)
    const struct library library = {.file = "libdnnl.so." ONEDNN_NUMBER(DNNL_VERSION_MAJOR),
                                    .needs = "products by oneDNN need libdnnl (Debian: libdnnl2)",
                                    .functions = functions,
                                    .count = count};
    if (library_load(&library, &dnnl, NULL, &open_error))
        return;
    if (dnnl.dnnl_engine_create(&engine, dnnl_cpu, 0) || dnnl.dnnl_stream_create(&stream, engine, 0))
        (void)error_set(&open_error, MUSTER_E_UNSUPPORTED, "oneDNN finds no CPU to compute on");
    else
        set_text(dnnl.dnnl_get_effective_cpu_isa());
}

int onednn_open(struct muster_error *err)
{
    (void)pthread_once(&open_once, open_once_only); /* cannot fail: both arguments are valid */
    if (!open_error.code)
        return 0;
    if (err)
        *err = open_error;
    return -1;
}

bool onednn_has_bf16(void)
{
    return bf16;
}

const char *onednn_text(void)
{
    return text;
}

bool onednn_f32(bool a_transposed, bool b_transposed, int rows, int columns, int depth, const float *a,
                int a_stride, const float *b, int b_stride, float beta, float *out, int out_stride)
{
    return !dnnl.dnnl_sgemm(a_transposed ? 'T' : 'N', b_transposed ? 'T' : 'N', rows, columns, depth, 1.0f, a,
                            a_stride, b, b_stride, beta, out, out_stride);
}

/* ---- primitives by shape ---- */

struct shape {
    int32_t rows, columns, depth, a_stride, b_stride, out_stride;
    int32_t flags; /* 1: a is transposed, 2: b is, 4: added to out */
};

struct made {
    struct shape shape;
    dnnl_memory_desc_t a, b, out;
    dnnl_primitive_t primitive;
};

enum { MADE_LIMIT = 512 };
static struct made made[MADE_LIMIT];
static _Atomic(int) made_count;
static pthread_mutex_t made_lock = PTHREAD_MUTEX_INITIALIZER;

static int make_descriptors(const struct shape *s, struct made *m)
{
    const dnnl_dims_t a = {s->rows, s->depth}, b = {s->depth, s->columns}, out = {s->rows, s->columns};
    const dnnl_dims_t a_strides = {s->flags & 1 ? 1 : s->a_stride, s->flags & 1 ? s->a_stride : 1};
    const dnnl_dims_t b_strides = {s->flags & 2 ? 1 : s->b_stride, s->flags & 2 ? s->b_stride : 1};
    const dnnl_dims_t out_strides = {s->out_stride, 1};
    m->shape = *s;
    return dnnl.dnnl_memory_desc_init_by_strides(&m->a, 2, a, dnnl_bf16, a_strides) ||
                   dnnl.dnnl_memory_desc_init_by_strides(&m->b, 2, b, dnnl_bf16, b_strides) ||
                   dnnl.dnnl_memory_desc_init_by_strides(&m->out, 2, out, dnnl_f32, out_strides)
               ? -1
               : 0;
}

static int make_primitive(const struct shape *s, struct made *m)
{
    dnnl_matmul_desc_t operation;
    dnnl_primitive_desc_t descriptor = NULL;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t after = NULL;
    int failed = make_descriptors(s, m) ||
                 dnnl.dnnl_matmul_desc_init(&operation, &m->a, &m->b, NULL, &m->out) ||
                 dnnl.dnnl_primitive_attr_create(&attributes);
    if (!failed && s->flags & 4)
        failed = dnnl.dnnl_post_ops_create(&after) || dnnl.dnnl_post_ops_append_sum(after, 1) ||
                 dnnl.dnnl_primitive_attr_set_post_ops(attributes, after);
    failed = failed || dnnl.dnnl_primitive_desc_create(&descriptor, &operation, attributes, engine, NULL) ||
             dnnl.dnnl_primitive_create(&m->primitive, descriptor);
    if (descriptor)
        (void)dnnl.dnnl_primitive_desc_destroy(descriptor); /* fails for NULL alone, as those below */
    if (after)
        (void)dnnl.dnnl_post_ops_destroy(after);
    if (attributes)
        (void)dnnl.dnnl_primitive_attr_destroy(attributes);
    return failed ? -1 : 0;
}

static const struct made *find_made(const struct shape *s, int from)
{
    const int count = atomic_load_explicit(&made_count, memory_order_acquire);
    for (int i = from; i < count; i++)
        if (!memcmp(&made[i].shape, s, sizeof *s))
            return &made[i];
    return NULL;
}

/* NULL: the library refused, or the table is full. */
static const struct made *find_or_make(const struct shape *s)
{
    const struct made *found = find_made(s, 0);
    if (found)
        return found;
    (void)pthread_mutex_lock(&made_lock); /* cannot fail: a static mutex, never locked twice */
    const int count = atomic_load(&made_count);
    found = find_made(s, 0);
    if (!found && count < MADE_LIMIT && !make_primitive(s, &made[count])) {
        found = &made[count];
        atomic_store_explicit(&made_count, count + 1, memory_order_release);
    }
    (void)pthread_mutex_unlock(&made_lock);
    return found;
}

bool onednn_bf16(bool a_transposed, bool b_transposed, int rows, int columns, int depth, const uint16_t *a,
                 int a_stride, const uint16_t *b, int b_stride, float beta, float *out, int out_stride)
{
    const struct shape shape = {rows,
                                columns,
                                depth,
                                a_stride,
                                b_stride,
                                out_stride,
                                (a_transposed ? 1 : 0) | (b_transposed ? 2 : 0) | (beta != 0 ? 4 : 0)};
    const struct made *m = find_or_make(&shape);
    dnnl_memory_t memory[3] = {NULL, NULL, NULL};
    if (!m)
        return false;
    bool done = !dnnl.dnnl_memory_create(&memory[0], &m->a, engine, (void *)(uintptr_t)a) &&
                !dnnl.dnnl_memory_create(&memory[1], &m->b, engine, (void *)(uintptr_t)b) &&
                !dnnl.dnnl_memory_create(&memory[2], &m->out, engine, out);
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, memory[0]}, {DNNL_ARG_WEIGHTS, memory[1]}, {DNNL_ARG_DST, memory[2]}};
    done = done && !dnnl.dnnl_primitive_execute(m->primitive, stream, 3, arguments);
    for (int i = 0; i < 3; i++)
        if (memory[i])
            (void)dnnl.dnnl_memory_destroy(memory[i]); /* fails for NULL alone */
    return done;
}

#endif
