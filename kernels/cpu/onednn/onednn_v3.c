/* onednn_v3.c - libdnnl.so.3. All of its types are opaque, so that no header is needed: the few numbers below
 * are part of its binary interface. */
#include <stddef.h>

#include "kernels/cpu/onednn/onednn_abi.h"
#include "kernels/cpu/scratch.h"
#include "proto/base/error.h"
#include "proto/base/library.h"
#include "proto/base/mem.h"

enum {
    CPU = 1,
    IN_ORDER = 1,
    TYPE_BF16 = 2,
    TYPE_F32 = 3,
    TYPE_UNCHANGED = 0,
    SOURCE = 1,
    TARGET = 17,
    WEIGHTS = 33,
    BIAS = 41,
    SCRATCH = 80,
    SCRATCH_OURS = 1,
    QUERY_SCRATCH = 136
};
enum { DIMENSIONS_LIMIT = 12 };

struct version {
    int major, minor, patch;
    const char *hash;
    unsigned cpu_runtime, gpu_runtime;
};
struct argument {
    int number;
    void *memory;
};
typedef const int64_t dimensions[DIMENSIONS_LIMIT];

static struct {
    const struct version *(*version)(void);
    int (*isa)(void);
    onednn_sgemm *sgemm;
    int (*engine_create)(void **engine, int kind, size_t index);
    int (*stream_create)(void **stream, void *engine, unsigned flags);
    int (*describe)(void **memory, int count, dimensions sizes, int type, dimensions strides);
    int (*describe_end)(void *memory);
    int (*memory_create)(void **memory, const void *described, void *engine, void *data);
    int (*memory_destroy)(void *memory);
    int (*attributes_create)(void **attributes);
    int (*attributes_destroy)(void *attributes);
    int (*attributes_set)(void *attributes, const void *after);
    int (*scratch_mode)(void *attributes, int mode);
    const void *(*query)(const void *product, int what, int index);
    size_t (*size)(const void *described);
    int (*describe_copy)(void **memory, const void *described);
    int (*after_create)(void **after);
    int (*after_destroy)(void *after);
    int (*after_sum)(void *after, float scale, int32_t zero, int type);
    int (*product_create)(void **product, void *engine, const void *a, const void *b, const void *bias,
                          const void *out, const void *attributes);
    int (*product_destroy)(void *product);
    int (*primitive_create)(void **primitive, const void *product);
    int (*primitive_execute)(const void *primitive, void *stream, int count,
                             const struct argument *arguments);
} dnnl;

struct made {
    void *a, *b, *bias, *out, *scratch, *primitive; /* descriptions of memory, and the code */
};

static void *engine, *stream; /* a CPU stream has no state: all threads use it */

#define ROW(symbol, member)                                                                                  \
    {                                                                                                        \
        .name = symbol, .slot = offsetof(__typeof__(dnnl), member)                                           \
    }

static int onednn3_open(struct muster_error *err)
{
    static const struct library_function functions[] = {
        ROW("dnnl_version", version),
        ROW("dnnl_get_effective_cpu_isa", isa),
        ROW("dnnl_sgemm", sgemm),
        ROW("dnnl_engine_create", engine_create),
        ROW("dnnl_stream_create", stream_create),
        ROW("dnnl_memory_desc_create_with_strides", describe),
        ROW("dnnl_memory_desc_destroy", describe_end),
        ROW("dnnl_memory_create", memory_create),
        ROW("dnnl_memory_destroy", memory_destroy),
        ROW("dnnl_primitive_attr_create", attributes_create),
        ROW("dnnl_primitive_attr_destroy", attributes_destroy),
        ROW("dnnl_primitive_attr_set_post_ops", attributes_set),
        ROW("dnnl_primitive_attr_set_scratchpad_mode", scratch_mode),
        ROW("dnnl_primitive_desc_query_md", query),
        ROW("dnnl_memory_desc_get_size", size),
        ROW("dnnl_memory_desc_clone", describe_copy),
        ROW("dnnl_post_ops_create", after_create),
        ROW("dnnl_post_ops_destroy", after_destroy),
        ROW("dnnl_post_ops_append_sum", after_sum),
        ROW("dnnl_matmul_primitive_desc_create", product_create),
        ROW("dnnl_primitive_desc_destroy", product_destroy),
        ROW("dnnl_primitive_create", primitive_create),
        ROW("dnnl_primitive_execute", primitive_execute),
    };
    static const struct library library = {
        .file = "libdnnl.so.3",
        .needs = "products by oneDNN need libdnnl (Debian: libdnnl3 or libdnnl2)",
        .functions = functions,
        .count = sizeof functions / sizeof *functions};
    if (library_load(&library, &dnnl, NULL, err))
        return -1;
    return dnnl.engine_create(&engine, CPU, 0) || dnnl.stream_create(&stream, engine, IN_ORDER)
               ? error_set(err, MUSTER_E_UNSUPPORTED, "oneDNN finds no CPU to compute on")
               : 0;
}

static void onednn3_version(int *major, int *minor, int *patch)
{
    const struct version *version = dnnl.version();
    *major = version->major;
    *minor = version->minor;
    *patch = version->patch;
}

static unsigned onednn3_isa(void)
{
    return (unsigned)dnnl.isa();
}

static int describe_all(const struct onednn_shape *s, struct made *m)
{
    dimensions a = {s->rows, s->depth}, b = {s->depth, s->columns}, out = {s->rows, s->columns};
    dimensions a_strides = {s->flags & ONEDNN_A_TRANSPOSED ? 1 : s->a_stride,
                            s->flags & ONEDNN_A_TRANSPOSED ? s->a_stride : 1};
    dimensions b_strides = {s->flags & ONEDNN_B_TRANSPOSED ? 1 : s->b_stride,
                            s->flags & ONEDNN_B_TRANSPOSED ? s->b_stride : 1};
    dimensions out_strides = {s->out_stride, 1}, bias = {1, s->columns}, bias_strides = {s->columns, 1};
    const int type = s->flags & ONEDNN_NARROW ? TYPE_BF16 : TYPE_F32;
    return dnnl.describe(&m->a, 2, a, TYPE_BF16, a_strides) ||
                   dnnl.describe(&m->b, 2, b, TYPE_BF16, b_strides) ||
                   dnnl.describe(&m->bias, 2, bias, TYPE_BF16, bias_strides) ||
                   dnnl.describe(&m->out, 2, out, type, out_strides)
               ? -1
               : 0;
}

static int make_code(const struct onednn_shape *s, struct made *m)
{
    void *attributes = NULL, *after = NULL, *product = NULL;
    int failed = describe_all(s, m) || dnnl.attributes_create(&attributes) ||
                 dnnl.scratch_mode(attributes, SCRATCH_OURS);
    if (!failed && s->flags & ONEDNN_ADDS)
        failed = dnnl.after_create(&after) || dnnl.after_sum(after, 1, 0, TYPE_UNCHANGED) ||
                 dnnl.attributes_set(attributes, after);
    failed = failed ||
             dnnl.product_create(&product, engine, m->a, m->b, s->flags & ONEDNN_BIAS ? m->bias : NULL,
                                 m->out, attributes) ||
             dnnl.describe_copy(&m->scratch, dnnl.query(product, QUERY_SCRATCH, 0)) ||
             dnnl.size(m->scratch) > SCRATCH_LIBRARY || dnnl.primitive_create(&m->primitive, product);
    if (product)
        (void)dnnl.product_destroy(product); /* fails for NULL alone, as those below */
    if (after)
        (void)dnnl.after_destroy(after);
    if (attributes)
        (void)dnnl.attributes_destroy(attributes);
    return failed ? -1 : 0;
}

static void *onednn3_make(const struct onednn_shape *shape)
{
    struct made *m = mem_calloc(1, sizeof *m);
    if (!m || !make_code(shape, m))
        return m;
    void *const described[] = {m->a, m->b, m->bias, m->out, m->scratch};
    for (int i = 0; i < 5; i++)
        if (described[i])
            (void)dnnl.describe_end(described[i]); /* fails for NULL alone */
    mem_free(m);
    return NULL;
}

static bool onednn3_run(const void *made, const struct onednn_product *p, void *scratch)
{
    const struct made *m = made;
    void *memory[5] = {NULL, NULL, NULL, NULL, NULL};
    const int count = p->bias ? 5 : 4;
    bool done = !dnnl.memory_create(&memory[0], m->a, engine, (void *)(uintptr_t)p->a) &&
                !dnnl.memory_create(&memory[1], m->b, engine, (void *)(uintptr_t)p->b) &&
                !dnnl.memory_create(&memory[2], m->out, engine, p->out) &&
                !dnnl.memory_create(&memory[3], m->scratch, engine, scratch) &&
                (!p->bias || !dnnl.memory_create(&memory[4], m->bias, engine, (void *)(uintptr_t)p->bias));
    const struct argument arguments[] = {{SOURCE, memory[0]},
                                         {WEIGHTS, memory[1]},
                                         {TARGET, memory[2]},
                                         {SCRATCH, memory[3]},
                                         {BIAS, memory[4]}};
    done = done && !dnnl.primitive_execute(m->primitive, stream, count, arguments);
    for (int i = 0; i < 5; i++)
        if (memory[i])
            (void)dnnl.memory_destroy(memory[i]); /* fails for NULL alone */
    return done;
}

const struct onednn_abi onednn_v3 = {onednn3_open, onednn3_version, onednn3_isa,
                                     onednn3_make, onednn3_run,     &dnnl.sgemm};
