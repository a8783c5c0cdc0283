/* bias_test.c - the gradient of a bias: its work memory, and the gradient of a bias in front of an
 * activation, which one kernel forms together with the activation's own. */
#include "tests/support/cmocka_all.h"

#include "kernels/cuda/bias.h"
#include "tests/gpu/products/stream_support.h"

#define U FLOAT_ROUNDOFF

/* Work memory for fewer runs than usual: longer ones, and nothing after it is touched. */
static void a_bias_gradient_keeps_to_its_work_memory(void **state)
{
    enum { N = 100, OC = 40 };
    scope_memory float *dout = floats_new(N * OC, FILL_UNIT), *dbias = floats_new(OC, FILL_UNIT);
    scope_memory float *expected = floats_new(OC, FILL_UNIT);
    scope_device void *d_dout = device_floats(dout, N * OC);
    (void)state;
    for (size_t fit = 1; fit <= 20; fit++) {
        size_t bytes = (fit * OC + OC / 2) * sizeof(float);
        scope_device void *d_dbias = device_floats(dbias, OC), *work = device_floats(dout, N * OC);
        for (int column = 0; column < OC; column++) {
            double sum = dbias[column];
            for (int row = 0; row < N; row++)
                sum += dout[(size_t)row * OC + column];
            expected[column] = (float)sum;
        }
        computing("bias gradient with work memory for %zu runs", fit);
        ENQUEUED(cuda_bias_gradient(d_dbias, d_dout, DTYPE_F32, N, OC, OC, 1, work, bytes, NULL, &failed));
        assert_close("dbias", d_dbias, expected, OC, (N + 1) * U * (N + 1), U);
        size_t used = bytes / sizeof *dout;
        assert_close("what lies behind the work memory", (float *)work + used, dout + used, N * OC - used, 0,
                     0);
    }
    assert_int_equal(cuda_bias_gradient(NULL, d_dout, DTYPE_F32, N, OC, OC, 1, d_dout, OC * sizeof(float) - 1,
                                        NULL, &failed),
                     -1);
    assert_int_equal(failed.code, MUSTER_E_LIMIT);
}

static const struct {
    enum dtype type;
    __typeof__(cuda_activation_backward) *activation;
} types[] = {{DTYPE_F32, cuda_activation_backward},
             {DTYPE_BF16, cuda_activation_backward_bf16},
             {DTYPE_F16, cuda_activation_backward_f16}};

static void *device_values(const float *from, enum dtype type, size_t n)
{
    scope_memory float *narrow = floats_new(n, FILL_UNIT);
    kernels_ref_f32()->cast(narrow, type, from, DTYPE_F32, (int64_t)n, NULL);
    return device_copy(narrow, n * (size_t)dtype_size(type));
}

static void assert_same_bits(const char *what, const void *a, const void *b, size_t size)
{
    scope_memory float *here = floats_new(size / sizeof(float) + 1, FILL_UNIT);
    scope_memory float *there = floats_new(size / sizeof(float) + 1, FILL_UNIT);
    fetch(here, a, size), fetch(there, b, size);
    if (memcmp(here, there, size) != 0)
        fail_msg("%s has other bits", what);
}

/* As the activation's kernel and the bias's one after the other, the sums of 16 bits too: of values as they
 * are stored. */
static void a_bias_before_an_activation_has_the_bits_of_two_kernels(void **state)
{
    (void)state;
    for (int round = 0; round < 48; round++) {
        const enum dtype type = types[round % 3].type;
        const int N = round < 3 ? 0 : 1 + (int)random_below(300), C = 1 + (int)random_below(80),
                  kind = round / 3 % ACTIVATION_KINDS, beta = round / 3 & 1;
        const int wide = round & 4 ? (C + 7) / 8 * 8 : C;
        const size_t n = (size_t)N * (size_t)wide, row = (size_t)wide * sizeof(float),
                     work_bytes = row * (round & 8 ? 1 + random_below(9) : 300);
        scope_memory float *dout = floats_new(n, FILL_UNIT), *pre = floats_new(n, FILL_UNIT);
        scope_memory float *old = floats_new((size_t)wide, FILL_UNIT);
        scope_memory float *memory = floats_new(work_bytes / sizeof(float), FILL_UNIT);
        scope_device void *one = device_values(dout, type, n), *two = device_values(dout, type, n);
        scope_device void *d_pre = device_values(pre, type, n), *work = device_copy(memory, work_bytes);
        scope_device void *dbias_one = device_floats(old, (size_t)wide);
        scope_device void *dbias_two = device_floats(old, (size_t)wide);
        computing("activation %d and bias of %d x %d %s", kind, N, wide, dtype_name(type));
        ENQUEUED(types[round % 3].activation(two, d_pre, two, kind, 0, (int64_t)n, NULL, &failed));
        ENQUEUED(
            cuda_bias_gradient(dbias_two, two, type, N, wide, wide, beta, work, work_bytes, NULL, &failed));
        ENQUEUED(cuda_activation_bias_gradient(one, dbias_one, d_pre, type, kind, N, wide, beta, work,
                                               work_bytes, NULL, &failed));
        assert_same_bits("din", one, two, n * (size_t)dtype_size(type));
        assert_same_bits("dbias", dbias_one, dbias_two, row);
    }
    assert_int_equal(cuda_activation_bias_gradient(NULL, NULL, NULL, DTYPE_F32, ACTIVATION_KINDS, 1, 1, 0,
                                                   NULL, 4, NULL, &failed),
                     -1);
    assert_non_null(strstr(failed.text, "linear_backward_activation: kind is 6; it must be 0 to 5"));
    assert_int_equal(
        cuda_activation_bias_gradient(NULL, NULL, NULL, DTYPE_F32, 0, 1, 3, 0, NULL, 8, NULL, &failed), -1);
    assert_non_null(strstr(failed.text, "3 columns need 12 bytes of work memory; 8 are there"));
}

/* The same through the product's call. */
static void a_product_forms_the_bias_before_its_activation(void **state)
{
    enum { N = 50, C = 24, OC = 16 };
    struct cuda_stream_handle handle;
    scope_memory float *dout = floats_new(N * OC, FILL_UNIT), *weight = floats_new(OC * C, FILL_UNIT);
    scope_memory float *pre = floats_new(N * C, FILL_UNIT), *din = floats_new(N * C, FILL_UNIT);
    scope_memory float *dbias = floats_new(C, FILL_UNIT);
    scope_device void *d_dout = device_floats(dout, N * OC), *d_weight = device_floats(weight, OC * C);
    scope_device void *d_pre = device_floats(pre, N * C), *d_din = device_floats(din, N * C);
    scope_device void *d_dbias = device_floats(dbias, C);
    (void)state;
    stream_open(&handle, true, false);
    ENQUEUED(cuda_linear_backward_activation(d_din, d_dbias, d_dout, d_weight, d_pre, ACTIVATION_GELU_TANH, N,
                                             C, OC, 1, &handle, &failed));
    kernels_ref_f32()->linear_backward_input(din, dout, weight, N, C, OC, OC, 0, NULL);
    kernels_ref_f32()->activation_backward(din, pre, din, ACTIVATION_GELU_TANH, 0, N * C, NULL);
    kernels_ref_f32()->linear_backward_weight(NULL, dbias, din, NULL, N, 0, C, C, 1, NULL);
    assert_close("din", d_din, din, N * C, 2 * (OC + 4) * U * (OC + 4), 4 * U);
    assert_close("dbias", d_dbias, dbias, C, 2 * (N + 1) * (OC + 4) * U * (OC + 4), U);
    stream_close(&handle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bias_gradient_keeps_to_its_work_memory),
        cmocka_unit_test(a_bias_before_an_activation_has_the_bits_of_two_kernels),
        cmocka_unit_test(a_product_forms_the_bias_before_its_activation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
