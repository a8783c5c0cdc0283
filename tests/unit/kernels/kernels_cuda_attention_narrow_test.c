/* kernels_cuda_attention_narrow_test.c - CUDA's attention by tensor cores, with heads of up to 128 columns,
 * in tf32, bf16 and f16, and attention without them in 16 bits, against the reference for double. Operands
 * are values that the type holds exactly, so that a result is off by the rounding of probabilities, of
 * scores' gradients and of itself alone. Needs a GPU; without one it says why and is skipped (77). */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention/narrow.h"
#include "kernels/narrow.h"
#include "proto/base/mem.h"
#include "tests/unit/kernels/kernels_cuda_support.h"

typedef int attention_forward(void *, void *, const void *, const void *, const void *,
                              const struct attention *, void *, void *, struct muster_error *);
typedef int attention_backward(void *, void *, void *, const void *, const void *, const void *, const void *,
                               const void *, const void *, const struct attention *, const int[3], void *,
                               void *, struct muster_error *);

static const struct type {
    const char *name;
    enum dtype dtype; /* in memory */
    double roundoff;
    attention_forward *forward;
    attention_backward *backward;
} types[] = {
    {"tf32", DTYPE_F32, 0x1p-11, cuda_attention_forward_tf32, cuda_attention_backward_tf32},
    {"bf16", DTYPE_BF16, 0x1p-8, cuda_attention_forward_bf16, cuda_attention_backward_bf16},
    {"f16", DTYPE_F16, 0x1p-11, cuda_attention_forward_f16, cuda_attention_backward_f16},
};
#define EACH_TYPE(type)                                                                                      \
    for (const struct type *type = types; type < types + sizeof types / sizeof *types; type++)

static const struct shape {
    const char *what;
    int B, T, heads, kv_heads, head_size, causal;
    bool packed, lengths, documents;
    int gap; /* elements between two rows */
    int window;
    double cap;
    int beta[3];
} shapes[] = {
    {"heads of 64", 1, 70, 2, 1, 64, 1, true, .beta = {0, 1, 0}},
    {"heads of 128", 1, 70, 2, 2, 128, 1, true, .beta = {1, 0, 1}},
    {"lengths, all keys", 2, 50, 2, 1, 128, 0, false, .lengths = true, .gap = 8, .beta = {0, 0, 1}},
    {"documents, odd rows", 2, 66, 1, 1, 36, 1, true, .documents = true, .gap = 3, .beta = {1, 1, 1}},
    {"a window, some columns", 1, 67, 1, 1, 80, 1, false, .window = 20},
    {"documents and lengths", 2, 66, 1, 1, 128, 1, false, .documents = true, .lengths = true, .gap = 1},
    {"wider than a tile", 1, 33, 2, 1, 136, 1, true, .lengths = true, .beta = {1, 1, 0}},
    {"a cap", 2, 20, 2, 2, 16, 1, false, .cap = 1.5},
    {"a window on both sides", 1, 40, 1, 1, 64, 0, false, .window = 7},
    {"nothing", 0, 5, 2, 2, 64, 1, true, .gap = 0},
    {"one position", 3, 1, 2, 1, 128, 0, false, .gap = 0},
};

/* Values of a type: on the host as float and in the type, on the device in the type. */
struct values {
    size_t n;
    float *values;
    void *memory; /* on the device */
};

static void values_free(struct values *v)
{
    mem_free(v->values);
    device_free(&v->memory);
}
#define scope_values __attribute__((cleanup(values_free)))

static float exact_in(float value, const struct type *type)
{
    if (type->dtype == DTYPE_BF16)
        return narrow_from_bf16(narrow_to_bf16(value));
    if (type->dtype == DTYPE_F16)
        return narrow_from_f16(narrow_to_f16(value));
    return narrow_float((narrow_bits(value) + 0x1000u) & ~0x1fffu);
}

static void to_device(struct values *v, const struct type *type)
{
    scope_memory uint16_t *halves = calloc(v->n + 1, sizeof *halves);
    assert_non_null(halves);
    for (size_t i = 0; i < v->n; i++)
        halves[i] = type->dtype == DTYPE_BF16 ? narrow_to_bf16(v->values[i]) : narrow_to_f16(v->values[i]);
    v->memory = type->dtype == DTYPE_F32 ? device_floats(v->values, v->n)
                                         : device_copy(halves, v->n * sizeof *halves);
}

static struct values values_new(size_t n, const struct type *type)
{
    struct values v = {.n = n, .values = floats_new(n, FILL_UNIT)};
    for (size_t i = 0; i < n; i++)
        v.values[i] = exact_in(v.values[i], type);
    to_device(&v, type);
    return v;
}

/* The device's values, as float; freed by the caller. */
static float *fetched(const struct values *v, const struct type *type)
{
    float *got = floats_new(v->n, FILL_CONSTANT);
    scope_memory uint16_t *halves = calloc(v->n + 1, sizeof *halves);
    if (type->dtype == DTYPE_F32) {
        fetch(got, v->memory, v->n * sizeof *got);
        return got;
    }
    fetch(halves, v->memory, v->n * sizeof *halves);
    for (size_t i = 0; i < v->n; i++)
        got[i] = type->dtype == DTYPE_BF16 ? narrow_from_bf16(halves[i]) : narrow_from_f16(halves[i]);
    return got;
}

/* Off by `units` roundings of the type, in the L2 norm, and by 2.5 times that in its largest element. */
static void assert_near(const char *what, const float *got, const double *wanted, size_t n, double roundoff,
                        double units)
{
    double difference = 0, norm = 0, most = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        const double off = (double)got[i] - wanted[i];
        if (!(fabs(off) < 1e30))
            fail_msg("%s: element %zu is %g, not %g", what, i, (double)got[i], wanted[i]);
        difference += off * off;
        norm += wanted[i] * wanted[i];
        most = fmax(most, fabs(off));
        largest = fmax(largest, fabs(wanted[i]));
    }
    if (getenv("MUSTER_TEST_SHOW"))
        printf("%s: %.3g of the norm's roundings, %.3g of the largest's\n", what,
               norm > 0 ? sqrt(difference / norm) / roundoff : 0,
               largest > 0 ? most / largest / roundoff : 0);
    if (difference > units * units * roundoff * roundoff * norm || most > 2.5 * units * roundoff * largest)
        fail_msg("%s: off by %g of the norm and %g of the largest, in roundings of the type", what,
                 sqrt(difference / norm) / roundoff, most / largest / roundoff);
}

/* One call and its operands. */
struct call {
    const struct shape *shape;
    const struct type *type;
    struct attention a; /* lengths and positions on the host */
    size_t at[3];       /* where q, k and v begin in their block, in elements */
    struct values block, gradient, dout, out;
    int32_t *lengths, *positions;
};

static void call_free(struct call *c)
{
    values_free(&c->block), values_free(&c->gradient), values_free(&c->dout), values_free(&c->out);
    mem_free(c->lengths), mem_free(c->positions);
}
#define scope_call __attribute__((cleanup(call_free)))

/* Positions beyond a sequence's length are NaN: nobody reads them. */
static void unseen(struct call *c)
{
    const struct attention *a = &c->a;
    const int64_t row[3] = {a->q_row, a->k_row, a->v_row};
    for (int b = 0; b < a->B; b++)
        for (int t = a->lengths[b]; t < a->T; t++) {
            const size_t at = (size_t)b * a->T + t;
            for (int i = 0; i < 3; i++)
                for (int j = 0; j < (i ? a->kv_heads : a->heads) * a->head_size; j++)
                    c->block.values[c->at[i] + at * row[i] + j] = NAN;
            for (int j = 0; j < a->heads * a->head_size; j++)
                c->dout.values[at * a->heads * a->head_size + j] = NAN;
        }
    device_free(&c->block.memory), device_free(&c->dout.memory);
    to_device(&c->block, c->type), to_device(&c->dout, c->type);
}

static struct call call_new(const struct shape *s, const struct type *type)
{
    const size_t rows = (size_t)s->B * s->T, out = rows * s->heads * s->head_size;
    const int width[3] = {s->heads * s->head_size, s->kv_heads * s->head_size, s->kv_heads * s->head_size};
    struct call c = {.shape = s, .type = type};
    size_t n = 0;
    int64_t row[3];
    for (int i = 0; i < 3; i++) {
        row[i] = (s->packed ? width[0] + width[1] + width[2] : width[i]) + s->gap;
        c.at[i] = n;
        n += s->packed ? (size_t)width[i] : (rows * row[i] + 7) / 8 * 8;
    }
    if (s->packed)
        n = rows * row[0];
    c.lengths = tokens_new((size_t)s->B, s->T + 1, false);
    c.positions = positions_new(s->B, s->T);
    c.a = (struct attention){.B = s->B,
                             .T = s->T,
                             .heads = s->heads,
                             .kv_heads = s->kv_heads,
                             .head_size = s->head_size,
                             .causal = s->causal,
                             .q_row = row[0],
                             .k_row = row[1],
                             .v_row = row[2],
                             .window = s->window,
                             .cap = s->cap,
                             .lengths = s->lengths ? c.lengths : NULL,
                             .positions = s->documents ? c.positions : NULL};
    c.block = values_new(n, type);
    c.gradient = values_new(n, type);
    c.dout = values_new(out, type);
    c.out = values_new(out, type);
    if (c.a.lengths)
        unseen(&c);
    return c;
}

/* The device's results: out, lse and the block of gradients, each to be freed. */
static void attend(struct call *c, float **out, float **lse, float **gradient)
{
    const struct attention *a = &c->a;
    const size_t size = (size_t)dtype_size(c->type->dtype), statistics = (size_t)a->B * a->heads * a->T;
    *lse = floats_new(statistics, FILL_UNIT);
    scope_device void *d_lse = device_floats(*lse, statistics);
    scope_device void *work = device_copy(*lse, cuda_attention_work(a, 1));
    scope_device void *lengths = device_copy(c->lengths, (size_t)a->B * sizeof *c->lengths);
    scope_device void *positions = device_copy(c->positions, (size_t)a->B * a->T * sizeof *c->positions);
    struct attention d = *a;
    d.lengths = a->lengths ? lengths : NULL;
    d.positions = a->positions ? positions : NULL;
    char *in = c->block.memory, *to = c->gradient.memory;
    ENQUEUED(c->type->forward(c->out.memory, d_lse, in + c->at[0] * size, in + c->at[1] * size,
                              in + c->at[2] * size, &d, work, NULL, &failed));
    ENQUEUED(c->type->backward(to + c->at[0] * size, to + c->at[1] * size, to + c->at[2] * size,
                               c->dout.memory, in + c->at[0] * size, in + c->at[1] * size,
                               in + c->at[2] * size, c->out.memory, d_lse, &d, c->shape->beta, work, NULL,
                               &failed));
    fetch(*lse, d_lse, statistics * sizeof(float));
    *out = fetched(&c->out, c->type);
    *gradient = fetched(&c->gradient, c->type);
}

static void attention_matches(void **state)
{
    (void)state;
    EACH_TYPE(type)
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        scope_call struct call c = call_new(&shapes[i], type);
        const struct attention *a = &c.a;
        const size_t statistics = (size_t)a->B * a->heads * a->T;
        scope_memory double *block = doubles_of(c.block.values, c.block.n);
        scope_memory double *gradient = doubles_of(c.gradient.values, c.gradient.n);
        scope_memory double *dout = doubles_of(c.dout.values, c.dout.n);
        scope_memory double *out = doubles_of(c.out.values, c.out.n);
        scope_memory float *got_out = NULL, *got_lse = NULL, *got = NULL;
        attend(&c, &got_out, &got_lse, &got);
        scope_memory double *lse = doubles_of(got_lse, statistics);
        kernels_ref_f64()->attention_forward(out, lse, block + c.at[0], block + c.at[1], block + c.at[2], a,
                                             NULL, NULL);
        char what[128];
        snprintf(what, sizeof what, "%s, %s", type->name, shapes[i].what);
        if (getenv("MUSTER_TEST_SHOW"))
            printf("%s\n", what);
        computing("%s", what);
        assert_true(doubles_close("lse", got_lse, lse, statistics, 2e-5, 2e-6));
        assert_near(what, got_out, out, c.out.n, type->roundoff, 0.8);
        scope_memory double *again = doubles_of(got_out, c.out.n), *kept = doubles_of(got_lse, statistics);
        kernels_ref_f64()->attention_backward(gradient + c.at[0], gradient + c.at[1], gradient + c.at[2],
                                              dout, block + c.at[0], block + c.at[1], block + c.at[2], again,
                                              kept, a, shapes[i].beta, NULL, NULL);
        assert_near(what, got, gradient, c.gradient.n, type->roundoff, 0.8);
    }
}

/* A grid of one block, with several pieces of work, has the results of a larger one. */
static void few_blocks_do_all_work(void **state)
{
    static const struct shape shape = {"", 1, 70, 2, 1, 128, 1, true, .gap = 8};
    (void)state;
    EACH_TYPE(type)
    {
        scope_call struct call c = call_new(&shape, type);
        scope_memory float *out[2] = {0}, *lse[2] = {0}, *gradient[2] = {0};
        attend(&c, &out[0], &lse[0], &gradient[0]);
        device_free(&c.gradient.memory), device_free(&c.out.memory); /* as before the first call */
        to_device(&c.gradient, type), to_device(&c.out, type);
        setenv("EMU_GRID_LIMIT", "1", 1); /* a GPU does not look at it */
        attend(&c, &out[1], &lse[1], &gradient[1]);
        unsetenv("EMU_GRID_LIMIT");
        assert_memory_equal(out[0], out[1], c.out.n * sizeof(float));
        assert_memory_equal(lse[0], lse[1], (size_t)2 * 70 * sizeof(float));
        assert_memory_equal(gradient[0], gradient[1], c.gradient.n * sizeof(float));
        mem_free(out[1]), mem_free(lse[1]), mem_free(gradient[1]);
    }
}

/* kernels_cuda_attention_narrow_test [TEST] */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches),
        cmocka_unit_test(few_blocks_do_all_work),
    };
    const char *missing = gpu_missing();
    if (missing) {
        printf("skipped: no GPU: %s\n", missing);
        return 77;
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    kernels_test_begin(1);
    return cmocka_run_group_tests(tests, NULL, NULL) > 0;
}
