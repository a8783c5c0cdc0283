/* onednn_v2.c - libdnnl.so.2, whose descriptors are structs: it needs the header of version 2 (libdnnl-dev of
 * Debian 12). A build without it reads libdnnl.so.3 alone. */
#include "kernels/cpu/onednn/onednn_abi.h"

#include "proto/base/error.h"

#ifndef MUSTER_ONEDNN_2

static int onednn2_open(struct muster_error *err)
{
    return error_set(
        err, MUSTER_E_UNSUPPORTED,
        "products by oneDNN need libdnnl.so.3 (Debian: libdnnl3): this build was made without the "
        "header of version 2, for libdnnl.so.2");
}

const struct onednn_abi onednn_v2 = {.open = onednn2_open};

#else

#include <oneapi/dnnl/dnnl.h>

#include "kernels/cpu/scratch.h"
#include "proto/base/library.h"
#include "proto/base/mem.h"

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
    X(dnnl_primitive_attr_set_scratchpad_mode)                                                               \
    X(dnnl_primitive_desc_query_md)                                                                          \
    X(dnnl_memory_desc_get_size)                                                                             \
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

struct made {
    dnnl_memory_desc_t a, b, bias, out, scratch;
    dnnl_primitive_t primitive;
};

static dnnl_engine_t engine;
static dnnl_stream_t stream; /* a CPU stream has no state: all threads use it */
static onednn_sgemm *sgemm;

static int onednn2_open(struct muster_error *err)
{
    static struct library_function functions[] = {
#define ONEDNN_NAME(function) {.name = #function},
        ONEDNN_FUNCTIONS(ONEDNN_NAME)};
    size_t count = 0;
#define ONEDNN_SLOT(function) functions[count++].slot = (size_t)((char *)&dnnl.function - (char *)&dnnl);
    ONEDNN_FUNCTIONS(ONEDNN_SLOT)
    const struct library library = {.file = "libdnnl.so.2",
                                    .needs = "products by oneDNN need libdnnl (Debian: libdnnl3 or libdnnl2)",
                                    .functions = functions,
                                    .count = count};
    if (library_load(&library, &dnnl, NULL, err))
        return -1;
    sgemm = (onednn_sgemm *)dnnl.dnnl_sgemm;
    return dnnl.dnnl_engine_create(&engine, dnnl_cpu, 0) ||
                   dnnl.dnnl_stream_create(&stream, engine, dnnl_stream_in_order)
               ? error_set(err, MUSTER_E_UNSUPPORTED, "oneDNN finds no CPU to compute on")
               : 0;
}

static void onednn2_version(int *major, int *minor, int *patch)
{
    const dnnl_version_t *version = dnnl.dnnl_version();
    *major = version->major;
    *minor = version->minor;
    *patch = version->patch;
}

static unsigned onednn2_isa(void)
{
    return (unsigned)dnnl.dnnl_get_effective_cpu_isa();
}

static int onednn2_describe(const struct onednn_shape *s, struct made *m)
{
    const dnnl_dims_t a = {s->rows, s->depth}, b = {s->depth, s->columns}, out = {s->rows, s->columns};
    const dnnl_dims_t a_strides = {s->flags & ONEDNN_A_TRANSPOSED ? 1 : s->a_stride,
                                   s->flags & ONEDNN_A_TRANSPOSED ? s->a_stride : 1};
    const dnnl_dims_t b_strides = {s->flags & ONEDNN_B_TRANSPOSED ? 1 : s->b_stride,
                                   s->flags & ONEDNN_B_TRANSPOSED ? s->b_stride : 1};
    const dnnl_dims_t out_strides = {s->out_stride, 1}, bias = {1, s->columns},
                      bias_strides = {s->columns, 1};
    const dnnl_data_type_t type = s->flags & ONEDNN_NARROW ? dnnl_bf16 : dnnl_f32;
    return dnnl.dnnl_memory_desc_init_by_strides(&m->a, 2, a, dnnl_bf16, a_strides) ||
                   dnnl.dnnl_memory_desc_init_by_strides(&m->b, 2, b, dnnl_bf16, b_strides) ||
                   dnnl.dnnl_memory_desc_init_by_strides(&m->bias, 2, bias, dnnl_bf16, bias_strides) ||
                   dnnl.dnnl_memory_desc_init_by_strides(&m->out, 2, out, type, out_strides)
               ? -1
               : 0;
}

static int onednn2_primitive(const struct onednn_shape *s, struct made *m)
{
    dnnl_matmul_desc_t operation;
    dnnl_primitive_desc_t descriptor = NULL;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t after = NULL;
    int failed = onednn2_describe(s, m) ||
                 dnnl.dnnl_matmul_desc_init(&operation, &m->a, &m->b,
                                            s->flags & ONEDNN_BIAS ? &m->bias : NULL, &m->out) ||
                 dnnl.dnnl_primitive_attr_create(&attributes) ||
                 dnnl.dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    if (!failed && s->flags & ONEDNN_ADDS)
        failed = dnnl.dnnl_post_ops_create(&after) || dnnl.dnnl_post_ops_append_sum(after, 1) ||
                 dnnl.dnnl_primitive_attr_set_post_ops(attributes, after);
    failed = failed || dnnl.dnnl_primitive_desc_create(&descriptor, &operation, attributes, engine, NULL);
    if (!failed) {
        m->scratch = *dnnl.dnnl_primitive_desc_query_md(descriptor, dnnl_query_scratchpad_md, 0);
        failed = dnnl.dnnl_memory_desc_get_size(&m->scratch) > SCRATCH_LIBRARY ||
                 dnnl.dnnl_primitive_create(&m->primitive, descriptor);
    }
    if (descriptor)
        (void)dnnl.dnnl_primitive_desc_destroy(descriptor); /* fails for NULL alone, as those below */
    if (after)
        (void)dnnl.dnnl_post_ops_destroy(after);
    if (attributes)
        (void)dnnl.dnnl_primitive_attr_destroy(attributes);
    return failed ? -1 : 0;
}

/* For sums 63 deep of more than 32 rows the code that 2.6.3 makes for tiles ends the process (SIGILL): the
 * tiles that it multiplies do not fit. Of all depths to 1100 it was this one alone. */
static bool is_broken(const struct onednn_shape *shape)
{
    enum { BROKEN_DEPTH = 63 };
    return shape->depth == BROKEN_DEPTH && onednn2_isa() & ~(unsigned)ONEDNN_ISA_BF16 & ONEDNN_ISA_TILES;
}

static void *onednn2_make(const struct onednn_shape *shape)
{
    struct made *m = is_broken(shape) ? NULL : mem_calloc(1, sizeof *m);
    if (!m || !onednn2_primitive(shape, m))
        return m;
    mem_free(m);
    return NULL;
}

static bool onednn2_run(const void *made, const struct onednn_product *p, void *scratch)
{
    const struct made *m = made;
    dnnl_memory_t memory[5] = {NULL, NULL, NULL, NULL, NULL};
    const int count = p->bias ? 5 : 4;
    bool done =
        !dnnl.dnnl_memory_create(&memory[0], &m->a, engine, (void *)(uintptr_t)p->a) &&
        !dnnl.dnnl_memory_create(&memory[1], &m->b, engine, (void *)(uintptr_t)p->b) &&
        !dnnl.dnnl_memory_create(&memory[2], &m->out, engine, p->out) &&
        !dnnl.dnnl_memory_create(&memory[3], &m->scratch, engine, scratch) &&
        (!p->bias || !dnnl.dnnl_memory_create(&memory[4], &m->bias, engine, (void *)(uintptr_t)p->bias));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, memory[0]},
                                         {DNNL_ARG_WEIGHTS, memory[1]},
                                         {DNNL_ARG_DST, memory[2]},
                                         {DNNL_ARG_SCRATCHPAD, memory[3]},
                                         {DNNL_ARG_BIAS, memory[4]}};
    done = done && !dnnl.dnnl_primitive_execute(m->primitive, stream, count, arguments);
    for (int i = 0; i < 5; i++)
        if (memory[i])
            (void)dnnl.dnnl_memory_destroy(memory[i]); /* fails for NULL alone */
    return done;
}

const struct onednn_abi onednn_v2 = {onednn2_open, onednn2_version, onednn2_isa,
                                     onednn2_make, onednn2_run,     &sgemm};

#endif
