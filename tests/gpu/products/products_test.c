/* products_test.c - linear_* by cuBLASLt against the reference: awkward and random shapes, pointers at any
 * alignment, both betas; one choice a shape; tf32; and each call of the library failing once. */
#include "tests/support/cmocka_all.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/cuda/products_internal.h"
#include "tests/gpu/products/stream_support.h"

#define U FLOAT_ROUNDOFF
/* 10 bits of mantissa: each factor is off by so much of itself. */
#define TF32 4.8828125e-4

/* A call is enqueued, and its work is done. */
#define DONE(call)                                                                                           \
    do {                                                                                                     \
        if ((call) != 0)                                                                                     \
            fail_msg("%s", failed.text);                                                                     \
        CUDA_OK(cudaStreamSynchronize(stream_of_tests()));                                                   \
    } while (0)

static const struct kernels *reference(void)
{
    return kernels_ref_f32();
}

/* Matrices of a layer on both sides; `shift` floats lie before each on the device, which misaligns it. */
struct layer {
    int N, C, OC, shift;
    float *in, *weight, *bias, *out, *dout, *din, *dweight, *dbias;
    float *d_in, *d_weight, *d_bias, *d_out, *d_dout, *d_din, *d_dweight, *d_dbias;
};

static float *shifted(const float *from, size_t n, int shift)
{
    scope_memory float *wide = floats_new(n + (size_t)shift, FILL_UNIT);
    memcpy(wide + shift, from, n * sizeof *from);
    return (float *)device_floats(wide, n + (size_t)shift) + shift;
}

static void layer_open(struct layer *l, int N, int C, int OC, int shift, enum kernels_fill fill)
{
    size_t in = (size_t)N * C, out = (size_t)N * OC, weight = (size_t)OC * C, bias = (size_t)OC;
    *l = (struct layer){.N = N, .C = C, .OC = OC, .shift = shift};
    l->in = floats_new(in, fill);
    l->weight = floats_new(weight, FILL_UNIT);
    l->bias = floats_new(bias, FILL_UNIT);
    l->out = floats_new(out, FILL_UNIT);
    l->dout = floats_new(out, FILL_UNIT);
    l->din = floats_new(in, FILL_UNIT);
    l->dweight = floats_new(weight, FILL_UNIT);
    l->dbias = floats_new(bias, FILL_UNIT);
    l->d_in = shifted(l->in, in, shift);
    l->d_weight = shifted(l->weight, weight, shift);
    l->d_bias = shifted(l->bias, bias, shift);
    l->d_out = shifted(l->out, out, shift);
    l->d_dout = shifted(l->dout, out, shift);
    l->d_din = shifted(l->din, in, shift);
    l->d_dweight = shifted(l->dweight, weight, shift);
    l->d_dbias = shifted(l->dbias, bias, shift);
}

static void layer_close(struct layer *l)
{
    float *hosts[] = {l->in, l->weight, l->bias, l->out, l->dout, l->din, l->dweight, l->dbias};
    float *devices[] = {l->d_in,   l->d_weight, l->d_bias,    l->d_out,
                        l->d_dout, l->d_din,    l->d_dweight, l->d_dbias};
    for (int i = 0; i < 8; i++) {
        kernels_scope_free(&hosts[i]);
        CUDA_OK(cudaFree(devices[i] - l->shift));
    }
}

/* Both sides, all three products. `rounding`: the error of each product of two elements. */
static void check_layer(const struct cuda_stream_handle *handle, struct layer *l, int beta, int with_bias,
                        double rounding)
{
    size_t in = (size_t)l->N * l->C, out = (size_t)l->N * l->OC, weight = (size_t)l->OC * l->C;
    double largest = floats_largest(l->in, in);
    computing("linear N=%d C=%d OC=%d shift=%d beta=%d bias=%d", l->N, l->C, l->OC, l->shift, beta,
              with_bias);
    reference()->linear_forward(l->out, l->in, l->weight, with_bias ? l->bias : NULL, l->N, l->C, l->OC,
                                l->OC, NULL);
    DONE(cuda_linear_forward(l->d_out, l->d_in, l->d_weight, with_bias ? l->d_bias : NULL, l->N, l->C, l->OC,
                             l->OC, handle, &failed));
    assert_close("out", l->d_out, l->out, out,
                 (l->C + 1) * U * (l->C * largest + 1) + l->C * largest * rounding, U);
    reference()->linear_backward_input(l->din, l->dout, l->weight, l->N, l->C, l->OC, l->OC, beta, NULL);
    DONE(cuda_linear_backward_input(l->d_din, l->d_dout, l->d_weight, l->N, l->C, l->OC, l->OC, beta, handle,
                                    &failed));
    assert_close("din", l->d_din, l->din, in, (l->OC + 1) * U * (l->OC + 1) + l->OC * rounding, U);
    reference()->linear_backward_weight(l->dweight, l->dbias, l->dout, l->in, l->N, l->C, l->OC, l->OC, beta,
                                        NULL);
    DONE(cuda_linear_backward_weight(l->d_dweight, l->d_dbias, l->d_dout, l->d_in, l->N, l->C, l->OC, l->OC,
                                     beta, handle, &failed));
    assert_close("dweight", l->d_dweight, l->dweight, weight,
                 (l->N + 1) * U * (l->N * largest + 1) + l->N * largest * rounding, U);
    assert_close("dbias", l->d_dbias, l->dbias, (size_t)l->OC, (l->N + 1) * U * (l->N + 1), U);
}

/* A product with an activation after it, and the gradient before it, against the two one after the other.
 * pre is (N,OC) in front of out, and (N,C) in front of din. */
static void check_activation(const struct cuda_stream_handle *handle, struct layer *l, int kind,
                             int with_bias, int keeps)
{
    size_t in = (size_t)l->N * l->C, out = (size_t)l->N * l->OC;
    scope_memory float *pre = floats_new(out, FILL_UNIT), *before = floats_new(in, FILL_UNIT);
    float *d_pre = shifted(pre, out, l->shift), *d_before = shifted(before, in, l->shift);
    const float *bias = with_bias ? l->bias : NULL, *d_bias = with_bias ? l->d_bias : NULL;
    computing("linear and activation %d N=%d C=%d OC=%d shift=%d bias=%d keeps=%d", kind, l->N, l->C, l->OC,
              l->shift, with_bias, keeps);
    reference()->linear_forward(pre, l->in, l->weight, bias, l->N, l->C, l->OC, l->OC, NULL);
    reference()->activation_forward(l->out, pre, kind, (int64_t)out, NULL);
    DONE(cuda_linear_activation_forward(l->d_out, keeps ? d_pre : NULL, l->d_in, l->d_weight, d_bias, kind,
                                        l->N, l->C, l->OC, handle, &failed));
    const double near = (l->C + 4) * U * (l->C + 4);
    assert_close("out", l->d_out, l->out, out, near, 4 * U);
    if (keeps)
        assert_close("pre", d_pre, pre, out, near, 4 * U);
    reference()->linear_backward_input(l->din, l->dout, l->weight, l->N, l->C, l->OC, l->OC, 0, NULL);
    reference()->activation_backward(l->din, before, l->din, kind, 0, (int64_t)in, NULL);
    DONE(cuda_linear_backward_activation(l->d_din, NULL, l->d_dout, l->d_weight, d_before, kind, l->N, l->C,
                                         l->OC, 0, handle, &failed));
    assert_close("din", l->d_din, l->din, in, 2 * (l->OC + 4) * U * (l->OC + 4), 4 * U);
    CUDA_OK(cudaFree(d_pre - l->shift));
    CUDA_OK(cudaFree(d_before - l->shift));
}

static void activations_behind_products_match(void **state)
{
    struct cuda_stream_handle handle;
    (void)state;
    stream_open(&handle, true, false);
    for (int round = 0; round < 60; round++) {
        const bool eights = round & 1; /* rows of 32 bytes */
        const int C = 1 + (int)random_below(40), OC = 1 + (int)random_below(60);
        struct layer l;
        layer_open(&l, (int)random_below(40), eights ? (C + 7) / 8 * 8 : C, eights ? (OC + 7) / 8 * 8 : OC,
                   round % 5 == 4, FILL_UNIT);
        check_activation(&handle, &l, round % 3 ? ACTIVATION_GELU_TANH : round % ACTIVATION_KINDS, round & 2,
                         round & 4);
        layer_close(&l);
    }
    stream_close(&handle);
}

/* The activation is a kernel of its own after the product, equal to a layer's without. */
static void an_activation_is_a_kernel_behind_the_product(void **state)
{
    uint64_t (*calls)(const char *) = (uint64_t(*)(const char *))(uintptr_t)dlsym(RTLD_DEFAULT, "fake_calls");
    struct cuda_stream_handle handle;
    struct layer l;
    (void)state;
    if (!calls)
        skip(); /* nobody counts on a GPU */
    stream_open(&handle, true, false);
    layer_open(&l, 8, 16, 24, 0, FILL_UNIT);
    check_layer(&handle, &l, 0, 1, 0);
    const uint64_t forward = calls("activation_forward"), backward = calls("activation_backward");
    for (int i = 0; i < 4; i++)
        check_activation(&handle, &l, ACTIVATION_GELU_TANH, 1, 1);
    assert_int_equal(cuda_products_chosen(&handle), 3);
    assert_int_equal(calls("activation_forward") - forward, 4);
    assert_int_equal(calls("activation_backward") - backward, 4);
    layer_close(&l);
    stream_close(&handle);
}

static void products_match(void **state)
{
    static const int shapes[][3] = {
        {0, 3, 5},      {1, 1, 1},     {1, 5, 3},     {2, 1, 7},    {3, 16, 1},     {7, 17, 33}, {33, 31, 64},
        {65, 100, 129}, {130, 64, 65}, {1030, 8, 20}, {64, 64, 96}, {129, 257, 12}, {3, 9, 1031}};
    struct cuda_stream_handle handle;
    (void)state;
    stream_open(&handle, true, false);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int trial = 0; trial < 8; trial++) {
            struct layer l;
            int shift = (int[]){0, 0, 4, 1}[trial & 3];
            layer_open(&l, shapes[i][0], shapes[i][1], shapes[i][2], shift,
                       trial & 4 ? FILL_OFFSET : FILL_UNIT);
            check_layer(&handle, &l, trial & 1, trial >> 1 & 1, 0);
            layer_close(&l);
        }
    stream_close(&handle);
}

static void random_products_match(void **state)
{
    struct cuda_stream_handle handle;
    (void)state;
    stream_open(&handle, true, false);
    for (int i = 0; i < 150; i++) {
        struct layer l;
        layer_open(&l, (int)random_below(60), 1 + (int)random_below(70), 1 + (int)random_below(70),
                   (int)random_below(5), FILL_UNIT);
        check_layer(&handle, &l, i & 1, i >> 1 & 1, 0);
        layer_close(&l);
    }
    stream_close(&handle);
}

/* Of all the pointers of a layer one is aligned to less than the others: an algorithm may not have been
 * chosen for the others' alignment. Rows are multiples of 16 bytes, or the pointers would be of no matter. */
static void one_pointer_of_lower_alignment(void **state)
{
    struct cuda_stream_handle handle;
    (void)state;
    stream_open(&handle, true, false);
    for (int odd = -1; odd < 8; odd++) {
        for (int shift = 1; shift <= 4; shift += 3) { /* 4 bytes, 16 bytes */
            struct layer l;
            layer_open(&l, 16, 32, 64, 0, FILL_UNIT);
            float **pointers[] = {&l.d_in,   &l.d_weight, &l.d_bias,    &l.d_out,
                                  &l.d_dout, &l.d_din,    &l.d_dweight, &l.d_dbias};
            const float *hosts[] = {l.in, l.weight, l.bias, l.out, l.dout, l.din, l.dweight, l.dbias};
            const size_t sizes[] = {16 * 32, 64 * 32, 64, 16 * 64, 16 * 64, 16 * 32, 64 * 32, 64};
            float *whole = odd < 0 ? NULL : *pointers[odd];
            if (odd >= 0)
                *pointers[odd] = shifted(hosts[odd], sizes[odd], shift);
            check_layer(&handle, &l, 1, 1, 0);
            if (odd >= 0) {
                CUDA_OK(cudaFree(*pointers[odd] - shift));
                *pointers[odd] = whole;
            }
            layer_close(&l);
        }
    }
    stream_close(&handle);
}

/* Layers of one shape whose biases lie at other alignments than the first one's. */
static void a_bias_at_any_place_of_the_same_shape(void **state)
{
    struct cuda_stream_handle handle;
    struct layer l;
    (void)state;
    stream_open(&handle, true, false);
    layer_open(&l, 8, 16, 24, 0, FILL_UNIT);
    float *whole = l.d_bias;
    for (int shift = 0; shift < 72; shift = shift < 4 ? shift + 1 : shift * 2) {
        l.d_bias = shifted(l.bias, 24, shift);
        check_layer(&handle, &l, 0, 1, 0);
        CUDA_OK(cudaFree(l.d_bias - shift));
    }
    l.d_bias = whole;
    assert_int_equal(cuda_products_chosen(&handle), 4); /* one without the epilogue */
    layer_close(&l);
    stream_close(&handle);
}

/* Rows of out and dout `row` apart, with NaN between them: it is neither read nor written. Dense rows of the
 * same width are another product. */
static void check_apart(const struct cuda_stream_handle *handle, int N, int C, int OC, int row)
{
    const size_t in_n = (size_t)N * C, out_n = (size_t)N * OC, weight_n = (size_t)OC * C;
    const size_t apart_n = floats_apart_count(N, OC, row);
    scope_memory float *in = floats_new(in_n, FILL_UNIT), *weight = floats_new(weight_n, FILL_UNIT);
    scope_memory float *bias = floats_new((size_t)OC, FILL_UNIT), *dense = floats_new(out_n, FILL_UNIT);
    scope_memory float *din = floats_new(in_n, FILL_UNIT), *dweight = floats_new(weight_n, FILL_UNIT);
    scope_memory float *dbias = floats_new((size_t)OC, FILL_UNIT);
    scope_memory float *dout = floats_apart(dense, N, OC, row);
    scope_device void *d_in = device_floats(in, in_n), *d_weight = device_floats(weight, weight_n);
    scope_device void *d_dout = device_floats(dout, apart_n), *d_din = device_floats(din, in_n);
    scope_device void *d_dweight = device_floats(dweight, weight_n);
    scope_device void *d_dbias = device_floats(dbias, (size_t)OC);
    computing("linear N=%d C=%d OC=%d row=%d", N, C, OC, row);
    reference()->linear_backward_input(din, dense, weight, N, C, OC, OC, 1, NULL);
    DONE(cuda_linear_backward_input(d_din, d_dout, d_weight, N, C, OC, row, 1, handle, &failed));
    assert_close("din", d_din, din, in_n, (OC + 1) * U * (OC + 1), U);
    reference()->linear_backward_weight(dweight, dbias, dense, in, N, C, OC, OC, 1, NULL);
    DONE(cuda_linear_backward_weight(d_dweight, d_dbias, d_dout, d_in, N, C, OC, row, 1, handle, &failed));
    assert_close("dweight", d_dweight, dweight, weight_n, (N + 1) * U * (N + 1), U);
    assert_close("dbias", d_dbias, dbias, (size_t)OC, (N + 1) * U * (N + 1), U);
    for (int shift = 0; shift < 2; shift++) { /* the bias': by the product's epilogue, and by a kernel */
        float *d_bias = shifted(bias, (size_t)OC, shift);
        scope_device void *d_out = device_floats(dout, apart_n);
        reference()->linear_forward(dense, in, weight, bias, N, C, OC, OC, NULL);
        scope_memory float *out = floats_apart(dense, N, OC, row);
        DONE(cuda_linear_forward(d_out, d_in, d_weight, d_bias, N, C, OC, row, handle, &failed));
        assert_close("out", d_out, out, apart_n, (C + 1) * U * (C + 1), U);
        CUDA_OK(cudaFree(d_bias - shift));
    }
}

static void rows_of_outputs_may_lie_apart(void **state)
{
    static const int shapes[][4] = {{9, 16, 13, 32}, {33, 40, 29, 30}, {64, 12, 257, 288}, {5, 7, 8, 8}};
    struct cuda_stream_handle handle;
    (void)state;
    stream_open(&handle, true, false);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_apart(&handle, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
    const int64_t chosen = cuda_products_chosen(&handle);
    check_apart(&handle, 9, 16, 13, 32);
    assert_int_equal(cuda_products_chosen(&handle), chosen);
    check_apart(&handle, 9, 16, 13, 36); /* another distance, three other products, and no bias */
    assert_int_equal(cuda_products_chosen(&handle), chosen + 4);
    assert_int_equal(cuda_linear_forward(NULL, NULL, NULL, NULL, 2, 3, 4, 3, &handle, &failed), -1);
    assert_int_equal(failed.code, MUSTER_E_INVALID);
    assert_string_equal(failed.text, "linear_forward: rows of 4 elements are 3 apart; it must be 4 or more");
    stream_close(&handle);
}

static void outputs_that_are_not_wanted_are_left_out(void **state)
{
    struct cuda_stream_handle handle;
    struct layer l;
    (void)state;
    stream_open(&handle, true, false);
    layer_open(&l, 20, 12, 28, 0, FILL_UNIT);
    computing("one gradient at a time");
    DONE(cuda_linear_backward_input(NULL, l.d_dout, l.d_weight, 20, 12, 28, 28, 0, &handle, &failed));
    DONE(cuda_linear_backward_weight(l.d_dweight, NULL, l.d_dout, l.d_in, 20, 12, 28, 28, 0, &handle,
                                     &failed));
    assert_close("dbias", l.d_dbias, l.dbias, 28, 0, 0); /* as it was */
    reference()->linear_backward_weight(l.dweight, NULL, l.dout, l.in, 20, 12, 28, 28, 0, NULL);
    assert_close("dweight", l.d_dweight, l.dweight, 28 * 12, 21 * U * 20, U);
    DONE(cuda_linear_backward_weight(NULL, l.d_dbias, l.d_dout, l.d_in, 20, 12, 28, 28, 1, &handle, &failed));
    reference()->linear_backward_weight(NULL, l.dbias, l.dout, l.in, 20, 12, 28, 28, 1, NULL);
    assert_close("dweight", l.d_dweight, l.dweight, 28 * 12, 21 * U * 20, U);
    assert_close("dbias", l.d_dbias, l.dbias, 28, 21 * U * 21, U);
    layer_close(&l);
    stream_close(&handle);
}

static void the_same_call_gives_the_same_bits(void **state)
{
    struct cuda_stream_handle handle;
    struct layer l;
    enum { N = 200, C = 33, OC = 65 };
    scope_memory float *first = floats_new(OC, FILL_UNIT), *second = floats_new(OC, FILL_UNIT);
    (void)state;
    stream_open(&handle, true, false);
    layer_open(&l, N, C, OC, 0, FILL_UNIT);
    DONE(cuda_linear_backward_weight(l.d_dweight, l.d_dbias, l.d_dout, l.d_in, N, C, OC, OC, 0, &handle,
                                     &failed));
    fetch(first, l.d_dbias, OC * sizeof *first);
    DONE(cuda_linear_backward_weight(l.d_dweight, l.d_dbias, l.d_dout, l.d_in, N, C, OC, OC, 0, &handle,
                                     &failed));
    fetch(second, l.d_dbias, OC * sizeof *second);
    assert_memory_equal(first, second, OC * sizeof *first);
    layer_close(&l);
    stream_close(&handle);
}

/* Every plan is once in a chain: its own. */
static void check_chains(const struct cuda_products *products)
{
    bool seen[CUDA_PRODUCTS_ALGORITHMS] = {false};
    int count = 0;
    for (int i = 0; i < PRODUCT_CHAINS; i++)
        for (int32_t at = products->chains[i]; at; at = products->plans[at - 1].next) {
            if (seen[at - 1])
                fail_msg("plan %d is in two places of chains", at - 1);
            seen[at - 1] = true;
            count++;
        }
    assert_int_equal(count, products->count);
}

static void a_shape_is_chosen_for_once(void **state)
{
    struct cuda_stream_handle handle;
    struct layer l;
    (void)state;
    stream_open(&handle, true, false);
    layer_open(&l, 8, 16, 24, 0, FILL_UNIT);
    for (int i = 0; i < 5; i++) {
        check_layer(&handle, &l, i & 1, 1, 0);
        assert_int_equal(cuda_products_chosen(&handle), 3); /* whatever beta is */
    }
    check_layer(&handle, &l, 0, 0, 0); /* without its bias forward is another product */
    assert_int_equal(cuda_products_chosen(&handle), 4);
    layer_close(&l);
    layer_open(&l, 8, 16, 24, 1, FILL_UNIT); /* as are all at another alignment */
    check_layer(&handle, &l, 0, 0, 0);
    assert_int_equal(cuda_products_chosen(&handle), 7);
    layer_close(&l);
    layer_open(&l, 2, 3, 25 + CUDA_PRODUCTS_ALGORITHMS, 0, FILL_UNIT);
    for (int OC = 25; OC < 25 + CUDA_PRODUCTS_ALGORITHMS; OC++) /* pushes all of these out */
        DONE(cuda_linear_forward(l.d_out, l.d_in, l.d_weight, NULL, 2, 3, OC, OC, &handle, &failed));
    const int64_t chosen = cuda_products_chosen(&handle);
    for (int OC = 25; OC < 25 + CUDA_PRODUCTS_ALGORITHMS; OC++) /* all of which are remembered */
        DONE(cuda_linear_forward(l.d_out, l.d_in, l.d_weight, NULL, 2, 3, OC, OC, &handle, &failed));
    assert_int_equal(cuda_products_chosen(&handle), chosen);
    layer_close(&l);
    assert_int_equal(cuda_products_chosen(&handle), 7 + CUDA_PRODUCTS_ALGORITHMS);
    layer_open(&l, 8, 16, 24, 0, FILL_UNIT);
    check_layer(&handle, &l, 0, 1, 0);
    assert_int_equal(cuda_products_chosen(&handle), 10 + CUDA_PRODUCTS_ALGORITHMS);
    check_chains(handle.products);
    layer_close(&l);
    stream_close(&handle);
}

static void tf32_rounds_factors_and_fp32_does_not(void **state)
{
    struct cuda_stream_handle handle;
    struct layer l;
    enum { N = 33, C = 40, OC = 50 };
    scope_memory float *exact = floats_new((size_t)N * OC, FILL_UNIT),
                       *rounded = floats_new((size_t)N * OC, FILL_UNIT);
    double largest = 0;
    (void)state;
    layer_open(&l, N, C, OC, 0, FILL_UNIT);
    stream_open(&handle, true, true);
    check_layer(&handle, &l, 0, 1, 2 * TF32);
    fetch(rounded, l.d_out, (size_t)N * OC * sizeof *rounded);
    stream_close(&handle);
    stream_open(&handle, true, false);
    DONE(cuda_linear_forward(l.d_out, l.d_in, l.d_weight, l.d_bias, N, C, OC, OC, &handle, &failed));
    fetch(exact, l.d_out, (size_t)N * OC * sizeof *exact);
    for (int i = 0; i < N * OC; i++)
        largest = fmax(largest, fabs((double)exact[i] - rounded[i]));
    assert_true(largest > 1e-5 && largest < 2 * TF32 * C);
    layer_close(&l);
    stream_close(&handle);
}

static void a_stream_without_products_is_refused(void **state)
{
    struct cuda_stream_handle handle;
    struct layer l;
    (void)state;
    stream_open(&handle, false, false);
    layer_open(&l, 4, 4, 4, 0, FILL_UNIT);
    assert_int_equal(cuda_linear_forward(l.d_out, l.d_in, l.d_weight, NULL, 4, 4, 4, 4, &handle, &failed),
                     -1);
    assert_int_equal(failed.code, MUSTER_E_STATE);
    assert_string_equal(failed.text,
                        "linear_forward: this stream was not created to compute: it has no workspace");
    assert_int_equal(cuda_linear_forward(l.d_out, l.d_in, l.d_weight, NULL, -1, 4, 4, 4, &handle, &failed),
                     -1);
    assert_int_equal(failed.code, MUSTER_E_INVALID);
    layer_close(&l);
    stream_close(&handle);
}

/* ---- each call fails once: in processes of their own ---- */

enum { ONCE_FAILED = 3 };

/* A whole life of products; whether it was clean is its exit status. */
static int live_once(void)
{
    struct cuda_stream_handle handle = {.fail = stream_fail};
    struct muster_error err = {0};
    static cudaStream_t stream;
    void *memory;
    enum { N = 8, C = 16, OC = 24, ALL = 8 * 24 * 16 };
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) ||
        cudaMalloc(&memory, 8 * ALL * sizeof(float)))
        return 1;
    float *part = memory;
    handle.stream = stream;
    int status = cuda_products_open(&handle, false, &err);
    if (status == 0)
        status = cuda_linear_forward(part, part + ALL, part + 2 * ALL, part + 3 * ALL, N, C, OC, OC, &handle,
                                     &err);
    if (status == 0)
        status = cuda_linear_backward_input(part + ALL, part, part + 2 * ALL, N, C, OC, OC, 0, &handle, &err);
    if (status == 0)
        status = cuda_linear_backward_weight(part + 4 * ALL, part + 5 * ALL, part, part + ALL, N, C, OC, OC,
                                             0, &handle, &err);
    if (status == 0)
        status =
            cuda_linear_activation_forward(part, part + 6 * ALL, part + ALL, part + 2 * ALL, part + 3 * ALL,
                                           ACTIVATION_GELU_TANH, N, C, OC, &handle, &err);
    (void)cudaStreamSynchronize(stream);
    cuda_products_close(&handle);
    if (cudaFree(memory) != cudaSuccess)
        return 1;
    if (status != 0)
        print_message("%s\n", err.text);
    return status == 0 ? 0 : err.code && strchr(err.text, ':') ? ONCE_FAILED : 1;
}

static int live_once_with(const char *failing, int call)
{
    char fail[128];
    (void)snprintf(fail, sizeof fail, "%s:%d", failing, call);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("FAKE_CUDA_FAIL", fail, 1);
        execl("/proc/self/exe", "gpu_products", "once", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status))
        fail_msg("with %s failing the process died of signal %d", fail, WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void each_call_that_fails_is_an_error(void **state)
{
    static const struct {
        const char *function;
        int calls; /* a life's: so many fail, and the next does not exist */
    } rows[] = {{"cublasLtCreate", 1},
                {"cublasLtMatmulPreferenceCreate", 1},
                {"cublasLtMatmulPreferenceSetAttribute", 1 + 4 * 3},
                {"cublasLtMatmulDescCreate", 3},
                {"cublasLtMatmulDescSetAttribute", 3 * 3 + 1 + 2},
                {"cublasLtMatrixLayoutCreate", 3 * 3},
                {"cublasLtMatmulAlgoGetHeuristic", 3},
                {"cublasLtMatmul", 4}};
    (void)state;
    if (!dlsym(RTLD_DEFAULT, "fake_refuse"))
        skip(); /* the real library does as it likes */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int call = 1; call <= rows[i].calls + 1; call++) {
            int status = live_once_with(rows[i].function, call);
            if (status != (call <= rows[i].calls ? ONCE_FAILED : 0))
                fail_msg("%s failing in its call %d of %d: exit status %d", rows[i].function, call,
                         rows[i].calls, status);
        }
}

static void an_old_library_is_refused(void **state)
{
    (void)state;
    if (!dlsym(RTLD_DEFAULT, "fake_refuse"))
        skip();
    setenv("FAKE_CUBLASLT_VERSION", "129003", 1);
    assert_int_equal(live_once_with("none", 1), ONCE_FAILED);
    unsetenv("FAKE_CUBLASLT_VERSION");
    assert_int_equal(live_once_with("none", 1), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_match),
        cmocka_unit_test(activations_behind_products_match),
        cmocka_unit_test(an_activation_is_a_kernel_behind_the_product),
        cmocka_unit_test(random_products_match),
        cmocka_unit_test(one_pointer_of_lower_alignment),
        cmocka_unit_test(a_bias_at_any_place_of_the_same_shape),
        cmocka_unit_test(rows_of_outputs_may_lie_apart),
        cmocka_unit_test(outputs_that_are_not_wanted_are_left_out),
        cmocka_unit_test(the_same_call_gives_the_same_bits),
        cmocka_unit_test(a_shape_is_chosen_for_once),
        cmocka_unit_test(tf32_rounds_factors_and_fp32_does_not),
        cmocka_unit_test(a_stream_without_products_is_refused),
        cmocka_unit_test(each_call_that_fails_is_an_error),
        cmocka_unit_test(an_old_library_is_refused),
    };
    if (argc == 2 && strcmp(argv[1], "once") == 0)
        return live_once();
    if (gpu_missing()) {
        printf("skipped: no GPU: %s\n", gpu_missing());
        return 77;
    }
    kernels_test_begin(1);
    return cmocka_run_group_tests_name("gpu_products", tests, NULL, NULL);
}
