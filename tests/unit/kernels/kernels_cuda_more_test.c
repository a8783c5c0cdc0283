/* kernels_cuda_more_test.c - the CUDA operations of other models and optimizers against the reference for
 * double, as kernels_cuda_test.c. Needs a GPU; without one it says why and is skipped (status 77). */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>

#include "tests/unit/kernels/kernels_cuda_support.h"

#define U FLOAT_ROUNDOFF

static const struct kernels *exact(void)
{
    return kernels_ref_f64();
}

static void assert_near(const char *what, const void *device, const double *expected, size_t n,
                        double absolute, double relative)
{
    scope_memory float *got = floats_new(n, FILL_CONSTANT);
    fetch(got, device, n * sizeof *got);
    assert_true(doubles_close(what, got, expected, n, absolute, relative));
}

/* Exponentials stay at 1.8e-35 where they would vanish; else as kernels_elementwise_test.c. */
static void check_activation(int kind, size_t n, enum kernels_fill fill)
{
    scope_memory float *in = floats_new(n, fill), *dout = floats_new(n, FILL_UNIT);
    if (n > 2 && fill == FILL_LARGE)
        in[1] = 1e20f, in[2] = -1e20f;
    scope_memory double *in64 = doubles_of(in, n), *dout64 = doubles_of(dout, n), *out64 = doubles_of(in, n);
    scope_device void *d_in = device_floats(in, n), *d_dout = device_floats(dout, n);
    scope_device void *d_out = device_floats(in, n);
    double vanished = 1e-34 + 2e-35 * floats_largest(in, n), relative = (4 * 88 + 8) * U;
    if (kind == ACTIVATION_GELU_TANH)
        vanished = 1e-14 * 30;
    computing("cuda activation %d n=%zu fill=%s", kind, n, kernels_fill_name(fill));
    exact()->activation_forward(out64, in64, kind, (int64_t)n, NULL);
    ENQUEUED(cuda_activation_forward(d_out, d_in, kind, (int64_t)n, NULL, &failed));
    assert_near("out", d_out, out64, n, vanished, relative);
    exact()->activation_backward(in64, in64, dout64, kind, 0, (int64_t)n, NULL);
    ENQUEUED(cuda_activation_backward(d_dout, d_in, d_dout, kind, 0, (int64_t)n, NULL, &failed));
    assert_near("din", d_dout, in64, n, 40 * U, relative); /* in place */
}

static void activation_matches(void **state)
{
    (void)state;
    for (int kind = 0; kind < ACTIVATION_KINDS; kind++)
        for (int i = 0; i < ELEMENT_COUNTS; i++)
            for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
                check_activation(kind, element_counts[i], fill);
}

static void check_gated(size_t n, int betas, int kind)
{
    scope_memory float *gate = floats_new(n, FILL_LARGE), *up = floats_new(n, FILL_UNIT);
    scope_memory float *dout = floats_new(n, FILL_UNIT);
    scope_memory double *gate64 = doubles_of(gate, n), *up64 = doubles_of(up, n),
                        *dout64 = doubles_of(dout, n);
    scope_memory double *out64 = doubles_of(up, n), *dgate64 = doubles_of(up, n),
                        *dup64 = doubles_of(dout, n);
    scope_device void *d_gate = device_floats(gate, n), *d_up = device_floats(up, n);
    scope_device void *d_dout = device_floats(dout, n), *d_out = device_floats(up, n);
    scope_device void *d_dgate = device_floats(up, n), *d_dup = device_floats(dout, n);
    computing("cuda gated kind=%d n=%zu betas=%d", kind, n, betas);
    exact()->gated_forward(out64, gate64, up64, kind, (int64_t)n, NULL);
    ENQUEUED(cuda_gated_forward(d_out, d_gate, d_up, kind, (int64_t)n, NULL, &failed));
    assert_near("out", d_out, out64, n, kind == ACTIVATION_GELU_TANH ? 1e-14 * 30 : 1e-32, (4 * 88 + 12) * U);
    exact()->gated_backward(dgate64, dup64, gate64, up64, dout64, kind, betas & 1, betas >> 1, (int64_t)n,
                            NULL);
    ENQUEUED(cuda_gated_backward(d_dgate, d_dup, d_gate, d_up, d_dout, kind, betas & 1, betas >> 1,
                                 (int64_t)n, NULL, &failed));
    assert_near("dgate", d_dgate, dgate64, n, 40 * U, (4 * 88 + 12) * U);
    assert_near("dup", d_dup, dup64, n, 40 * U, (4 * 88 + 12) * U);
}

static void gated_matches(void **state)
{
    (void)state;
    for (int i = 0; i < ELEMENT_COUNTS; i++)
        for (int betas = 0; betas < 4; betas++)
            for (int kind = 0; kind < ACTIVATION_KINDS; kind++)
                check_gated(element_counts[i], betas, kind);
}

static void slice_matches(void **state)
{
    enum { ROWS = 37, ROW = 19, FIRST = 3, WIDTH = 11 };
    (void)state;
    for (int beta = 0; beta < 2; beta++) {
        scope_memory float *in = floats_new(ROWS * ROW, FILL_UNIT),
                           *out = floats_new(ROWS * WIDTH, FILL_UNIT);
        scope_memory double *in64 = doubles_of(in, ROWS * ROW), *out64 = doubles_of(out, ROWS * WIDTH);
        scope_device void *d_in = device_floats(in, ROWS * ROW), *d_out = device_floats(out, ROWS * WIDTH);
        computing("cuda slice beta=%d", beta);
        exact()->slice_forward(out64, in64, ROWS, ROW, FIRST, WIDTH, NULL);
        ENQUEUED(cuda_slice_forward(d_out, d_in, ROWS, ROW, FIRST, WIDTH, NULL, &failed));
        assert_near("out", d_out, out64, ROWS * WIDTH, 0, 0);
        exact()->slice_backward(in64, out64, ROWS, ROW, FIRST, WIDTH, beta, NULL);
        ENQUEUED(cuda_slice_backward(d_in, d_out, ROWS, ROW, FIRST, WIDTH, beta, NULL, &failed));
        assert_near("din", d_in, in64, ROWS * ROW, 0, 2 * U);
    }
}

/* As kernels_cpu_test.c. */
static void check_rms_norm(int N, int C, int beta_in, int beta)
{
    size_t n = (size_t)N * C, columns = (size_t)C, rows = (size_t)N;
    scope_memory float *in = floats_new(n, FILL_OFFSET), *weight = floats_new(columns, FILL_UNIT);
    scope_memory float *dout = floats_new(n, FILL_UNIT), *rstd = floats_new(rows, FILL_UNIT);
    scope_memory double *in64 = doubles_of(in, n), *weight64 = doubles_of(weight, columns);
    scope_memory double *dout64 = doubles_of(dout, n), *out64 = doubles_of(in, n);
    scope_memory double *rstd64 = doubles_of(rstd, rows), *din64 = doubles_of(dout, n);
    scope_memory double *dweight64 = doubles_of(weight, columns);
    size_t work_floats = cuda_rms_norm_backward_work(N, C) / sizeof(float);
    scope_memory float *work = floats_new(work_floats, FILL_LARGE);
    scope_device void *d_in = device_floats(in, n), *d_weight = device_floats(weight, columns);
    scope_device void *d_dout = device_floats(dout, n), *d_out = device_floats(in, n);
    scope_device void *d_rstd = device_floats(rstd, rows), *d_din = device_floats(dout, n);
    scope_device void *d_dweight = device_floats(weight, columns), *d_work = device_floats(work, work_floats);
    double c = C + 8, xhat = sqrt((double)C);
    computing("cuda rms_norm N=%d C=%d beta_in=%d beta=%d", N, C, beta_in, beta);
    exact()->rms_norm_forward(out64, rstd64, in64, weight64, N, C, 1e-5, beta_in, NULL);
    ENQUEUED(cuda_rms_norm_forward(d_out, d_rstd, d_in, d_weight, N, C, 1e-5, beta_in, NULL, &failed));
    assert_near("rstd", d_rstd, rstd64, rows, 0, c * U);
    assert_near("out", d_out, out64, n, FLOAT_FLUSHED, (c + 4) * U);
    exact()->rms_norm_backward(din64, dweight64, dout64, in64, rstd64, weight64, beta_in, N, C, beta_in, beta,
                               NULL, NULL);
    ENQUEUED(cuda_rms_norm_backward(d_din, d_dweight, d_dout, d_in, d_rstd, d_weight, beta_in, N, C, beta_in,
                                    beta, d_work, NULL, &failed));
    /* rstd is the device's own, off by c u. */
    assert_near("din", d_din, din64, n, (1 + xhat * xhat) * 4 * c * U + 2 * U, 4 * c * U);
    assert_near("dweight", d_dweight, dweight64, columns, (N + 4 + c) * U * (N * xhat * 2 + beta), U);
}

static void rms_norm_matches(void **state)
{
    static const int shapes[][2] = {{0, 4},    {1, 1},     {2, 31},   {7, 32},  {8, 33},
                                    {257, 96}, {1025, 40}, {3, 1600}, {8200, 8}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int betas = 0; betas < 4; betas++)
            check_rms_norm(shapes[i][0], shapes[i][1], betas & 1, betas >> 1);
}

static void check_rotary_of(const struct rotary *rotary, const struct rotary *device, const int *s,
                            int backward, int beta)
{
    size_t n = (size_t)s[0] * s[1] * s[2] * s[3];
    scope_memory float *in = floats_new(n, FILL_LARGE), *out = floats_new(n, FILL_UNIT);
    scope_memory double *in64 = doubles_of(in, n), *out64 = doubles_of(out, n);
    scope_device void *d_in = device_floats(in, n), *d_out = device_floats(out, n);
    computing("cuda rotary kind=%d B=%d T=%d NH=%d HS=%d backward=%d beta=%d", rotary->kind, s[0], s[1], s[2],
              s[3], backward, beta);
    exact()->rotary(out64, in64, rotary, s[0], s[1], s[2], s[3], backward, beta, NULL);
    ENQUEUED(cuda_rotary(d_out, d_in, device, s[0], s[1], s[2], s[3], backward, beta, NULL, &failed));
    /* The turns are rounded to float (2 pi u radians), sine and cosine once more. */
    assert_near("out", d_out, out64, n, 20 * U * 30, U);
}

static void check_rotary(const struct rotary *rotary, const int *s, int backward, int beta)
{
    check_rotary_of(rotary, rotary, s, backward, beta);
}

static void rotary_matches(void **state)
{
    static const struct rotary rotaries[] = {
        {.theta = 10000, .kind = ROTARY_PLAIN},
        {.theta = 10000, .kind = ROTARY_LINEAR, .factor = 2.5, .first = 37},
        {.theta = 500000, .kind = ROTARY_LLAMA3, .factor = 8, .low = 1, .high = 4, .original = 64},
        {.theta = 10000,
         .kind = ROTARY_YARN,
         .factor = 4,
         .low = 1,
         .high = 32,
         .original = 64,
         .amplitude = 1.2},
        {.theta = 10000, .kind = ROTARY_DYNAMIC, .factor = 2, .original = 30, .size = 2, .first = 11}};
    static const int shapes[][4] = {
        {0, 4, 2, 8}, {1, 1, 1, 2}, {2, 5, 3, 6}, {2, 33, 2, 262}, {1, 5000, 1, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof rotaries / sizeof rotaries[0]; i++)
        for (size_t j = 0; j < sizeof shapes / sizeof shapes[0]; j++)
            for (int mode = 0; mode < 4; mode++)
                check_rotary(&rotaries[i], shapes[j], mode & 1, mode >> 1);
    const int *shape = shapes[3];
    scope_memory int32_t *positions = positions_new(shape[0], shape[1]);
    const size_t rows = (size_t)shape[0] * (size_t)shape[1];
    scope_device void *d_positions = device_copy(positions, rows * sizeof *positions);
    struct rotary host = rotaries[0], device = rotaries[0];
    host.positions = positions, device.positions = d_positions;
    check_rotary_of(&host, &device, shape, 0, 1);
}

static void dropout_matches(void **state)
{
    static const int shapes[][3] = {{0, 5, 3}, {1, 1, 1}, {12, 7, 4}, {10, 63, 4}, {6, 4099, 2}, {3, 64, 1}};
    const struct step_scalars scalars = {.seed = 0x123456789abcdef, .first_sample = 0xfffffffe};
    scope_device void *d_scalars = device_copy(&scalars, sizeof scalars);
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int mode = 0; mode < 6; mode++) {
            static const double ps[3] = {0, 0.3, 1};
            const int *s = shapes[i], beta = mode & 1;
            double p = ps[mode / 2];
            size_t n = (size_t)s[0] * s[1];
            scope_memory float *in = floats_new(n, FILL_LARGE), *out = floats_new(n, FILL_UNIT);
            scope_memory double *in64 = doubles_of(in, n), *out64 = doubles_of(out, n);
            scope_device void *d_in = device_floats(in, n), *d_out = device_floats(out, n);
            computing("cuda dropout rows=%d width=%d rows_per_sample=%d p=%g beta=%d", s[0], s[1], s[2], p,
                      beta);
            exact()->dropout(out64, in64, s[0], s[1], s[2], 3, 9, p, beta, &scalars, NULL);
            ENQUEUED(cuda_dropout(d_out, d_in, s[0], s[1], s[2], 3, 9, p, beta, d_scalars, NULL, &failed));
            assert_near("out", d_out, out64, n, beta ? 2 * U * 50 : 0, 2 * U);
        }
}

static void check_adam(size_t n)
{
    struct step_scalars s = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .clip = 0.7};
    s.bias_correction1 = 1 - pow(0.9, 3), s.bias_correction2 = 1 - pow(0.95, 3);
    s.learning_rate[7] = 6e-4, s.weight_decay[7] = 0.1;
    scope_memory float *param = floats_new(n, FILL_UNIT), *grad = floats_new(n, FILL_UNIT);
    scope_memory float *m = floats_new(n, FILL_UNIT), *v = floats_new(n, FILL_CONSTANT);
    scope_memory double *param64 = doubles_of(param, n), *grad64 = doubles_of(grad, n);
    scope_memory double *m64 = doubles_of(m, n), *v64 = doubles_of(v, n);
    scope_device void *d_param = device_floats(param, n), *d_grad = device_floats(grad, n);
    scope_device void *d_m = device_floats(m, n), *d_v = device_floats(v, n);
    scope_device void *d_scalars = device_copy(&s, sizeof s);
    computing("cuda adam n=%zu", n);
    exact()->adam(param64, m64, v64, grad64, OPTIMIZER_WHOLE((int64_t)n, 7), NULL, DTYPE_F32, &s, NULL);
    ENQUEUED(cuda_adam(d_param, d_m, d_v, d_grad, OPTIMIZER_WHOLE((int64_t)n, 7), NULL, DTYPE_F32, d_scalars,
                       NULL, &failed));
    assert_near("m", d_m, m64, n, 8 * U, U);
    assert_near("v", d_v, v64, n, 8 * U, 8 * U);
    assert_near("param", d_param, param64, n, s.learning_rate[7] * 1e3 * 16 * U, 4 * U);
}

static void check_sgd(size_t n, double factor, double dampening, int nesterov)
{
    struct step_scalars s = {.clip = 0.7, .learning_rate = {0.01}, .weight_decay = {0.1}};
    scope_memory float *param = floats_new(n, FILL_UNIT), *grad = floats_new(n, FILL_UNIT);
    scope_memory double *param64 = doubles_of(param, n), *grad64 = doubles_of(grad, n);
    scope_memory double *momentum64 = doubles_of(grad, n);
    scope_device void *d_param = device_floats(param, n), *d_grad = device_floats(grad, n);
    scope_device void *d_momentum = device_floats(grad, n);
    for (s.step = 1; s.step <= 3; s.step++) {
        scope_device void *d_scalars = device_copy(&s, sizeof s);
        computing("cuda sgd n=%zu factor=%g step=%d", n, factor, (int)s.step);
        exact()->sgd(param64, factor > 0 ? momentum64 : NULL, grad64, OPTIMIZER_WHOLE((int64_t)n, 0), factor,
                     dampening, nesterov, NULL, DTYPE_F32, &s, NULL);
        ENQUEUED(cuda_sgd(d_param, factor > 0 ? d_momentum : NULL, d_grad, OPTIMIZER_WHOLE((int64_t)n, 0),
                          factor, dampening, nesterov, NULL, DTYPE_F32, d_scalars, NULL, &failed));
        assert_near("momentum", d_momentum, momentum64, n, (double)s.step * 32 * U, U);
        assert_near("param", d_param, param64, n, (double)s.step * 4 * U, U);
    }
}

static void optimizers_match(void **state)
{
    (void)state;
    for (int i = 0; i < ELEMENT_COUNTS; i++) {
        check_adam(element_counts[i]);
        check_sgd(element_counts[i], 0, 0, 0);
        check_sgd(element_counts[i], 0.9, 0.3, 0);
        check_sgd(element_counts[i], 0.9, 0, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activation_matches), cmocka_unit_test(gated_matches),
        cmocka_unit_test(slice_matches),      cmocka_unit_test(rms_norm_matches),
        cmocka_unit_test(rotary_matches),     cmocka_unit_test(dropout_matches),
        cmocka_unit_test(optimizers_match),
    };
    const char *missing = gpu_missing();
    if (missing) {
        printf("skipped: no GPU: %s\n", missing);
        return 77;
    }
    kernels_test_begin(1);
    return cmocka_run_group_tests(tests, NULL, NULL) > 0;
}
