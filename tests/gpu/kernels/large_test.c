/* large_test.c - what shows with large arrays alone: offsets and counts of 2^31 elements and more, in memory
 * of which a kernel touches little. Of a grid only the block with the last elements runs (EMU_ONLY_BLOCK). */
#include <math.h>
#include <stdlib.h>

#include "kernels/cuda/geometry.h"
#include "runtime/rounding/stored.h"
#include "tests/unit/kernels/kernels_cuda_support.h"

static const struct kernels *reference(void)
{
    return kernels_ref_f32();
}

static void *device_zeroes(int64_t n)
{
    void *memory = NULL;
    CUDA_OK(cudaMalloc(&memory, (size_t)n * sizeof(float)));
    return memory; /* the fake's large blocks are full of zeroes */
}

/* Only the block that has the last of n elements runs, of a kernel whose threads have so many elements at a
 * time.
 */
static void with_last_block(int64_t n, int elements)
{
    char block[16];
    const int64_t piece = (n - 1) / elements;
    (void)snprintf(block, sizeof block, "%d",
                   (int)(piece % ((int64_t)CUDA_ELEMENT_BLOCKS * CUDA_BLOCK) / CUDA_BLOCK));
    setenv("EMU_ONLY_BLOCK", block, 1);
}

/* Row 2 begins 2^31 elements after the first. */
static void rows_of_logits_lie_far_apart(void **state)
{
    enum { N = 3, V = 40, ROW = 1 << 30 };
    const struct step_scalars scalars = {.inverse_tokens = 1.0 / 7};
    static const int32_t targets[N] = {3, -1, 39};
    scope_memory float *logits = floats_new(N * V, FILL_UNIT), *losses = floats_new(N, FILL_UNIT);
    scope_memory float *got = floats_new(N * V, FILL_UNIT);
    scope_device void *d_logits = device_zeroes((int64_t)2 * ROW + V), *d_losses = device_floats(losses, N);
    scope_device void *d_targets = device_copy(targets, sizeof targets);
    scope_device void *d_scalars = device_copy(&scalars, sizeof scalars);
    (void)state;
    for (int64_t n = 0; n < N; n++)
        CUDA_OK(cudaMemcpy((float *)d_logits + n * ROW, logits + n * V, V * sizeof *logits,
                           cudaMemcpyHostToDevice));
    reference()->cross_entropy(logits, losses, targets, N, V, V, 1, &scalars, NULL);
    ENQUEUED(cuda_cross_entropy(d_logits, d_losses, d_targets, N, V, ROW, 1, d_scalars, NULL, &failed));
    assert_close("losses", d_losses, losses, N, 1e-5, 1e-6);
    for (int64_t n = 0; n < N; n++)
        fetch(got + n * V, (float *)d_logits + n * ROW, V * sizeof *got);
    for (int i = 0; i < N * V; i++)
        if (fabsf(got[i] - logits[i]) > 1e-5f)
            fail_msg("row %d, element %d: %.9g, not %.9g", i / V, i % V, (double)got[i], (double)logits[i]);
}

/* More elements than 32 bits count. */
static void an_optimizer_steps_all_elements(void **state)
{
    const int64_t n = (INT64_C(1) << 31) + 300, last = n - 1;
    struct step_scalars s = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .clip = 0.7};
    float param = 2, grad = 0.5f, m = 0.25f, v = 0.125f;
    s.bias_correction1 = s.bias_correction2 = 0.5;
    s.learning_rate[0] = 6e-4;
    s.weight_decay[0] = 0.1;
    scope_device void *d_param = device_zeroes(n), *d_grad = device_zeroes(n), *d_m = device_zeroes(n),
                      *d_v = device_zeroes(n), *d_scalars = device_copy(&s, sizeof s);
    float *const at[] = {(float *)d_param + last, (float *)d_grad + last, (float *)d_m + last,
                         (float *)d_v + last};
    const float values[] = {param, grad, m, v};
    (void)state;
    for (int i = 0; i < 4; i++)
        CUDA_OK(cudaMemcpy(at[i], &values[i], sizeof values[i], cudaMemcpyHostToDevice));
    with_last_block(n, 4);
    ENQUEUED(cuda_adamw(d_param, d_m, d_v, d_grad, OPTIMIZER_WHOLE(n, 0), NULL, DTYPE_F32, d_scalars, NULL,
                        &failed));
    unsetenv("EMU_ONLY_BLOCK");
    reference()->adamw(&param, &m, &v, &grad, OPTIMIZER_WHOLE(1, 0), NULL, DTYPE_F32, &s, NULL);
    assert_close("param", at[0], &param, 1, 0, 1e-6);
    assert_close("m", at[2], &m, 1, 0, 1e-6);
    assert_close("v", at[3], &v, 1, 0, 1e-6);
}

/* ---- operations by element ---- */

/* Arrays of MANY elements that are 0, all but their last. */
#define MANY ((INT64_C(1) << 31) + 300)

static void *many(float last)
{
    void *memory = device_zeroes(MANY);
    CUDA_OK(cudaMemcpy((float *)memory + MANY - 1, &last, sizeof last, cudaMemcpyHostToDevice));
    return memory;
}

static float last_of(const void *memory)
{
    float value;
    fetch(&value, (const float *)memory + MANY - 1, sizeof value);
    return value;
}

static void sums_and_scales_reach_the_last(void **state)
{
    scope_device void *a = many(2), *b = many(3);
    (void)state;
    with_last_block(MANY, 4);
    ENQUEUED(cuda_add(a, a, b, MANY, NULL, &failed));
    assert_true(last_of(a) == 5);
    ENQUEUED(cuda_accumulate(a, b, 1, MANY, NULL, &failed));
    assert_true(last_of(a) == 8);
    ENQUEUED(cuda_scale(a, 0.25, MANY, NULL, &failed));
    assert_true(last_of(a) == 2);
    unsetenv("EMU_ONLY_BLOCK");
}

static void conversions_reach_the_last(void **state)
{
    scope_device void *a = many(1.5f), *narrow = many(0), *b = many(1);
    (void)state;
    with_last_block(MANY, 8); /* 16 bytes of the narrower type */
    ENQUEUED(cuda_cast(narrow, DTYPE_BF16, a, DTYPE_F32, MANY, NULL, &failed));
    ENQUEUED(cuda_widen(b, narrow, DTYPE_BF16, 1, MANY, NULL, &failed));
    assert_true(last_of(b) == 2.5f);
    unsetenv("EMU_ONLY_BLOCK");
}

static void averages_and_steps_reach_the_last(void **state)
{
    const struct step_scalars s = {.learning_rate = {0.5}, .clip = 1};
    scope_device void *mean = many(4), *param = many(2), *grad = many(1), *momentum = many(0);
    scope_device void *scalars = device_copy(&s, sizeof s);
    (void)state;
    with_last_block(MANY, 4);
    ENQUEUED(cuda_average(mean, param, 0.5, MANY, scalars, NULL, &failed));
    assert_true(last_of(mean) == 3);
    ENQUEUED(cuda_sgd(param, momentum, grad, OPTIMIZER_WHOLE(MANY, 0), 0.9, 0, 0, NULL, DTYPE_F32, scalars,
                      NULL, &failed));
    assert_true(last_of(param) == 1.5f && last_of(momentum) == 1);
    unsetenv("EMU_ONLY_BLOCK");
}

/* ---- parameters in few bits ---- */

static void units_are_opened_up_to_the_last(void **state)
{
    static const enum stored kinds[] = {STORED_NF4, STORED_INT8};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int64_t unit = stored_unit(kinds[i]), bytes = stored_bytes(kinds[i], unit);
        const int64_t units = (INT64_C(1) << 32) / unit + 1,
                      n = units * unit; /* bytes, too, are more than 2^31 */
        const int64_t seen = unit < 16 * CUDA_BLOCK ? unit : 16 * CUDA_BLOCK; /* that a block has */
        const float constants[] = {0.5f, 0.25f};
        const size_t size = kinds[i] == STORED_NF4 ? sizeof constants : sizeof *constants;
        scope_memory uint8_t *last = malloc((size_t)bytes);
        scope_memory float *opened = floats_new((int)unit, FILL_UNIT),
                           *got = floats_new((int)seen, FILL_UNIT);
        scope_device void *d_units = device_zeroes(units * bytes / (int64_t)sizeof(float) + 1),
                          *d_out = device_zeroes(n);
        for (int64_t b = 0; b < bytes; b++)
            last[b] = (uint8_t)(7 * b + b / 100);
        memcpy(last + bytes - size, constants, size);
        stored_open(kinds[i], last, unit, opened, DTYPE_F32);
        CUDA_OK(cudaMemcpy((uint8_t *)d_units + (units - 1) * bytes, last, (size_t)bytes,
                           cudaMemcpyHostToDevice));
        with_last_block(n, 16);
        ENQUEUED(cuda_stored_open(d_out, DTYPE_F32, d_units, kinds[i], n, NULL, &failed));
        unsetenv("EMU_ONLY_BLOCK");
        fetch(got, (const float *)d_out + n - seen, (size_t)seen * sizeof *got);
        assert_memory_equal(got, opened + unit - seen, (size_t)seen * sizeof *got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_logits_lie_far_apart),
        cmocka_unit_test(an_optimizer_steps_all_elements),
        cmocka_unit_test(sums_and_scales_reach_the_last),
        cmocka_unit_test(conversions_reach_the_last),
        cmocka_unit_test(averages_and_steps_reach_the_last),
        cmocka_unit_test(units_are_opened_up_to_the_last),
    };
    setenv("FAKE_CUDA_MEMORY", "68719476736", 1); /* address space alone */
    kernels_test_begin(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
