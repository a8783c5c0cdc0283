/* kernels_cuda_status_test.c - what CUDA's operations refuse before they launch, how CUDA's status codes
 * become our errors, and that without a GPU every operation says so. Needs nvcc or the emulator to be built,
 * no GPU to run. */
#include "tests/support/cmocka_all.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/bias.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/operations.h"

static int devices(void)
{
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    (void)cudaGetLastError(); /* cleared: later calls look at their own errors */
    return status == cudaSuccess ? count : 0;
}

static void codes_are_mapped(void **state)
{
    (void)state;
    assert_int_equal(cuda_error_code(cudaErrorMemoryAllocation), MUSTER_E_NOMEM);
    assert_int_equal(cuda_error_code(cudaErrorInvalidValue), MUSTER_E_INVALID);
    assert_int_equal(cuda_error_code(cudaErrorNoDevice), MUSTER_E_UNSUPPORTED);
    assert_int_equal(cuda_error_code(cudaErrorNoKernelImageForDevice), MUSTER_E_UNSUPPORTED);
    assert_int_equal(cuda_error_code(cudaErrorIllegalAddress), MUSTER_E_STATE);
    assert_int_equal(cuda_error_code(cudaErrorUnknown), MUSTER_E_IO);
    assert_int_equal(cuda_error_code(123456), MUSTER_E_IO);
}

static void messages_name_operation_and_way_out(void **state)
{
    struct muster_error err = {0};
    (void)state;
    assert_int_equal(cuda_error(&err, cudaErrorNoKernelImageForDevice, "adamw"), -1);
    assert_int_equal(err.code, MUSTER_E_UNSUPPORTED);
    assert_int_equal(strncmp(err.text, "adamw: cudaErrorNoKernelImageForDevice: ", 40), 0);
    assert_non_null(strstr(err.text, "CMAKE_CUDA_ARCHITECTURES"));
    assert_int_equal(cuda_error(&err, 123456, "add"), -1); /* a code that no CUDA knows */
    assert_non_null(strstr(err.text, "add: "));
    assert_int_equal(cuda_error(NULL, cudaErrorUnknown, "add"), -1);
}

static void what_is_told_is_off_the_thread(void **state)
{
    struct muster_error err = {0};
    (void)state;
    const cudaError_t status = cudaSetDevice(9999);
    assert_int_not_equal(status, cudaSuccess);
    assert_int_equal(cudaPeekAtLastError(), status);
    assert_int_equal(cuda_error(&err, (int)status, "cudaSetDevice"), -1);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess); /* the next launch is not blamed for it */
}

static void check_invalid(const char *text, int status, struct muster_error *err)
{
    assert_int_equal(status, -1);
    assert_int_equal(err->code, MUSTER_E_INVALID);
    if (!strstr(err->text, text))
        fail_msg("\"%s\" does not say \"%s\"", err->text, text);
    *err = (struct muster_error){0};
}

static void wrong_sizes_are_refused(void **state)
{
    struct muster_error err = {0};
    struct muster_error *e = &err;
    (void)state;
    check_invalid("add: n is -1", cuda_add(NULL, NULL, NULL, -1, NULL, e), e);
    check_invalid("scale: n is -2", cuda_scale(NULL, 1, -2, NULL, e), e);
    check_invalid("accumulate: n", cuda_accumulate(NULL, NULL, 1, -1, NULL, e), e);
    check_invalid("activation_forward: n", cuda_activation_forward(NULL, NULL, 0, -1, NULL, e), e);
    check_invalid("activation_backward: n",
                  cuda_activation_backward(NULL, NULL, NULL, 0, 0, INT64_MIN, NULL, e), e);
    check_invalid("kind is 6; it must be 0 to 5", cuda_activation_forward(NULL, NULL, 6, 1, NULL, e), e);
    check_invalid("kind is -1", cuda_activation_backward(NULL, NULL, NULL, -1, 0, 1, NULL, e), e);
    check_invalid("gated_forward: n", cuda_gated_forward(NULL, NULL, NULL, ACTIVATION_SILU, -1, NULL, e), e);
    check_invalid("gated_backward: n",
                  cuda_gated_backward(NULL, NULL, NULL, NULL, NULL, ACTIVATION_SILU, 0, 0, -1, NULL, e), e);
    check_invalid("rms_norm_forward: C", cuda_rms_norm_forward(NULL, NULL, NULL, NULL, 1, -1, 0, 0, NULL, e),
                  e);
    check_invalid("rms_norm_backward: N",
                  cuda_rms_norm_backward(NULL, NULL, NULL, NULL, NULL, NULL, 0, -1, 1, 0, 0, NULL, NULL, e),
                  e);
    check_invalid("rotary: T", cuda_rotary(NULL, NULL, NULL, 1, -1, 1, 2, 0, 0, NULL, e), e);
    check_invalid("dropout: width", cuda_dropout(NULL, NULL, 1, -1, 1, 0, 0, 0, 0, NULL, NULL, e), e);
    check_invalid("rows_per_sample is 0", cuda_dropout(NULL, NULL, 1, 1, 0, 0, 0, 0, 0, NULL, NULL, e), e);
    check_invalid("adam: parameter_class is 8",
                  cuda_adam(NULL, NULL, NULL, NULL, OPTIMIZER_WHOLE(1, 8), NULL, DTYPE_F32, NULL, NULL, e),
                  e);
    check_invalid("sgd: parameter_class is -1",
                  cuda_sgd(NULL, NULL, NULL, OPTIMIZER_WHOLE(1, -1), 0, 0, 0, NULL, DTYPE_F32, NULL, NULL, e),
                  e);
    check_invalid("norm_squared: n", cuda_norm_squared(NULL, NULL, -1, 0, NULL, NULL, e), e);
    check_invalid("loss_sum: n", cuda_loss_sum(NULL, NULL, NULL, NULL, -1, NULL, e), e);
    check_invalid("squared_error: n", cuda_squared_error(NULL, NULL, NULL, NULL, -1, 0, NULL, NULL, e), e);
    check_invalid("cross_entropy: N", cuda_cross_entropy(NULL, NULL, NULL, -1, 3, 3, 0, NULL, NULL, e), e);
    check_invalid("cross_entropy: width is -3",
                  cuda_cross_entropy(NULL, NULL, NULL, 1, -3, 0, 0, NULL, NULL, e), e);
    check_invalid("embedding_forward: T", cuda_embedding_forward(NULL, NULL, NULL, NULL, 1, -1, 1, NULL, e),
                  e);
    check_invalid("rows_add: N", cuda_rows_add(NULL, 0, 1, 0, NULL, NULL, -1, 1, 1, NULL, e), e);
    check_invalid("embedding_backward: vocabulary is -1",
                  cuda_embedding_backward(NULL, NULL, NULL, NULL, 1, 1, 1, -1, 1, 0, NULL, e), e);
    check_invalid("layernorm_forward: C",
                  cuda_layernorm_forward(NULL, NULL, NULL, NULL, NULL, NULL, 1, -1, 1e-5, NULL, e), e);
    check_invalid(
        "layernorm_backward: N",
        cuda_layernorm_backward(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, -1, 1, 0, 0, NULL, NULL, e),
        e);
    check_invalid("parameter_class is 8; it must be 0 to 7",
                  cuda_adamw(NULL, NULL, NULL, NULL, OPTIMIZER_WHOLE(1, 8), NULL, DTYPE_F32, NULL, NULL, e),
                  e);
    check_invalid("parameter_class is -1",
                  cuda_adamw(NULL, NULL, NULL, NULL, OPTIMIZER_WHOLE(1, -1), NULL, DTYPE_F32, NULL, NULL, e),
                  e);
    check_invalid("dtype_to is 6", cuda_cast(NULL, DTYPE_COUNT, NULL, DTYPE_F32, 1, NULL, e), e);
    check_invalid("dtype_to is 6", cuda_cast(NULL, DTYPE_COUNT, NULL, DTYPE_COUNT, 1, NULL, e), e);
    check_invalid("dtype_from is 6", cuda_cast(NULL, DTYPE_F32, NULL, DTYPE_COUNT, 1, NULL, e), e);
}

static const struct attention fine = {.B = 1,
                                      .T = 3,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .head_size = 8,
                                      .causal = 1,
                                      .q_row = 64,
                                      .k_row = 64,
                                      .v_row = 64};

static void attention_of_wrong_sizes_is_refused(void **state)
{
    static const int beta[3] = {0};
    struct attention wrong[6];
    struct muster_error err = {0};
    (void)state;
    for (int i = 0; i < 6; i++)
        wrong[i] = fine;
    wrong[0].B = -1, wrong[1].T = -1, wrong[2].heads = -4, wrong[3].head_size = 0, wrong[4].kv_heads = 0,
    wrong[5].kv_heads = 3;
    for (int i = 0; i < 6; i++) {
        check_invalid("attention_forward: ",
                      cuda_attention_forward(NULL, NULL, NULL, NULL, NULL, &wrong[i], NULL, NULL, &err),
                      &err);
        check_invalid("attention_backward: ",
                      cuda_attention_backward_bf16(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                                   &wrong[i], beta, NULL, NULL, &err),
                      &err);
    }
}

static int past_of(const struct attention *a, int at, int room, struct muster_error *err)
{
    return cuda_attention_past(NULL, NULL, NULL, NULL, NULL, NULL, a, at, room, NULL, NULL, err);
}

static void kept_attention_of_wrong_sizes_is_refused(void **state)
{
    static const int32_t numbers[] = {1};
    struct attention wrong[7];
    struct muster_error err = {0};
    (void)state;
    check_invalid("3 positions from 10 on, room 12", past_of(&fine, 10, 12, &err), &err);
    check_invalid("3 positions from 1 on, room 2", past_of(&fine, 1, 2, &err), &err);
    check_invalid("3 positions from -1 on", past_of(&fine, -1, 12, &err), &err);
    for (int i = 0; i < 7; i++)
        wrong[i] = fine;
    wrong[0].B = 2, wrong[1].causal = 0, wrong[2].lengths = numbers, wrong[3].positions = numbers,
    wrong[4].T = 0, wrong[5].kv_heads = 0, wrong[6].kv_heads = 3;
    for (int i = 0; i < 7; i++)
        check_invalid("it is for one sequence, causal, within its room", past_of(&wrong[i], 0, 12, &err),
                      &err);
}

static void wrong_types_units_and_rows_are_refused(void **state)
{
    static const char units[16] __attribute__((aligned(16)));
    struct muster_error err = {0};
    struct muster_error *e = &err;
    (void)state;
    check_invalid("stored_open: n is -1", cuda_stored_open(NULL, DTYPE_F32, units, STORED_NF4, -1, NULL, e),
                  e);
    check_invalid("stored_open: kind is",
                  cuda_stored_open(NULL, DTYPE_F32, units, STORED_PLAIN, STORED_NF4_UNIT, NULL, e), e);
    check_invalid("they must be whole units",
                  cuda_stored_open(NULL, DTYPE_F32, units, STORED_NF4, STORED_NF4_UNIT + 16, NULL, e), e);
    check_invalid("they must be whole units",
                  cuda_stored_open(NULL, DTYPE_F32, units, STORED_INT8, STORED_INT8_UNIT + 16, NULL, e), e);
    check_invalid("at a multiple of",
                  cuda_stored_open(NULL, DTYPE_F32, units + 4, STORED_NF4, STORED_NF4_UNIT, NULL, e), e);
    check_invalid("at a multiple of",
                  cuda_stored_open(NULL, DTYPE_F32, units + 2, STORED_INT8, STORED_INT8_UNIT, NULL, e), e);
    check_invalid("dtype_out is",
                  cuda_stored_open(NULL, DTYPE_F64, units, STORED_NF4, STORED_NF4_UNIT, NULL, e), e);
    check_invalid("widen: dtype_in is", cuda_widen(NULL, NULL, DTYPE_F32, 0, 1, NULL, e), e);
    check_invalid("widen: n is -1", cuda_widen(NULL, NULL, DTYPE_BF16, 0, -1, NULL, e), e);
    check_invalid("cross_entropy: rows of 5 elements are 4 apart",
                  cuda_cross_entropy(NULL, NULL, NULL, 2, 5, 4, 0, NULL, NULL, e), e);
    check_invalid("correct_sum: rows of 5 elements are 4 apart",
                  cuda_correct_sum(NULL, NULL, NULL, 2, 5, 4, NULL, e), e);
    check_invalid("linear_forward: rows of 5 elements are 4 apart",
                  cuda_bias_add(NULL, NULL, DTYPE_BF16, 2, 5, 4, NULL, e), e);
    check_invalid("values are of type f64", cuda_bias_add(NULL, NULL, DTYPE_F64, 2, 5, 5, NULL, e), e);
    check_invalid("linear_backward_weight: rows of 5 elements are 4 apart",
                  cuda_bias_gradient(NULL, NULL, DTYPE_F16, 2, 5, 4, 0, NULL, 5 * sizeof(float), NULL, e), e);
    assert_int_equal(
        cuda_bias_gradient(NULL, NULL, DTYPE_F32, 2, 5, 5, 0, NULL, 5 * sizeof(float) - 1, NULL, e), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    assert_non_null(strstr(err.text, "the sums of 5 columns need 20 bytes of work memory; 19 are there"));
}

/* Empty calls launch nothing, so they succeed even here and touch no pointer. */
static void empty_is_nothing(void **state)
{
    struct muster_error err = {0};
    (void)state;
    assert_int_equal(cuda_add(NULL, NULL, NULL, 0, NULL, &err), 0);
    assert_int_equal(cuda_cast(NULL, DTYPE_F16, NULL, DTYPE_F32, 0, NULL, &err), 0);
    assert_int_equal(
        cuda_adamw(NULL, NULL, NULL, NULL, OPTIMIZER_WHOLE(0, 0), NULL, DTYPE_F32, NULL, NULL, &err), 0);
    assert_int_equal(cuda_cross_entropy(NULL, NULL, NULL, 0, 5, 5, 1, NULL, NULL, &err), 0);
    assert_int_equal(cuda_squared_error(NULL, NULL, NULL, NULL, 0, 1, NULL, NULL, &err), 0);
    assert_int_equal(cuda_loss_sum(NULL, NULL, NULL, NULL, 0, NULL, &err), 0);
    assert_int_equal(cuda_embedding_forward(NULL, NULL, NULL, NULL, 0, 4, 4, NULL, &err), 0);
    assert_int_equal(cuda_embedding_backward(NULL, NULL, NULL, NULL, 0, 4, 4, 4, 4, 0, NULL, &err), 0);
    assert_int_equal(cuda_rows_add(NULL, 0, 8, 0, NULL, NULL, 0, 4, 4, NULL, &err), 0);
    assert_int_equal(cuda_layernorm_forward(NULL, NULL, NULL, NULL, NULL, NULL, 0, 4, 1e-5, NULL, &err), 0);
    assert_int_equal(cuda_accumulate(NULL, NULL, 0, 0, NULL, &err), 0);
    assert_int_equal(cuda_activation_forward(NULL, NULL, 0, 0, NULL, &err), 0);
    assert_int_equal(cuda_gated_forward(NULL, NULL, NULL, ACTIVATION_SILU, 0, NULL, &err), 0);
    assert_int_equal(cuda_rms_norm_forward(NULL, NULL, NULL, NULL, 0, 4, 1e-5, 0, NULL, &err), 0);
    assert_int_equal(cuda_rotary(NULL, NULL, NULL, 0, 4, 4, 4, 0, 0, NULL, &err), 0);
    assert_int_equal(cuda_dropout(NULL, NULL, 0, 4, 4, 0, 0, 0, 0, NULL, NULL, &err), 0);
    assert_int_equal(
        cuda_sgd(NULL, NULL, NULL, OPTIMIZER_WHOLE(0, 0), 0, 0, 0, NULL, DTYPE_F32, NULL, NULL, &err), 0);
    assert_int_equal(err.code, MUSTER_OK);
}

static void check_no_device(const char *operation, int status, struct muster_error *err)
{
    assert_int_equal(status, -1);
    if (err->code != MUSTER_E_UNSUPPORTED || strncmp(err->text, operation, strlen(operation)) != 0)
        fail_msg("%s without a GPU: code %d, \"%s\"", operation, err->code, err->text);
    *err = (struct muster_error){0};
}

/* The status of every launch and call is looked at: here each of them fails. */
static void without_a_gpu_each_says_so(void **state)
{
    static double memory[64]; /* never read: nothing is launched */
    static struct step_scalars scalars;
    static const struct rotary rotary = {.theta = 10000};
    struct muster_error err = {0};
    struct muster_error *e = &err;
    void *p = memory;
    (void)state;
    if (devices() > 0) {
        skip_because("there is a GPU, and it must not see host pointers");
    }
    check_no_device("add", cuda_add(p, p, p, 4, NULL, e), e);
    check_no_device("scale", cuda_scale(p, 2, 4, NULL, e), e);
    check_no_device("accumulate", cuda_accumulate(p, p, 1, 4, NULL, e), e);
    for (int kind = 0; kind < ACTIVATION_KINDS; kind++) {
        check_no_device("activation_forward", cuda_activation_forward(p, p, kind, 4, NULL, e), e);
        check_no_device("activation_backward", cuda_activation_backward(p, p, p, kind, 0, 4, NULL, e), e);
    }
    check_no_device("gated_forward", cuda_gated_forward(p, p, p, ACTIVATION_SILU, 4, NULL, e), e);
    check_no_device("gated_backward", cuda_gated_backward(p, p, p, p, p, ACTIVATION_SILU, 0, 0, 4, NULL, e),
                    e);
    check_no_device("rms_norm_forward", cuda_rms_norm_forward(p, p, p, p, 2, 2, 1e-5, 0, NULL, e), e);
    check_no_device("rms_norm_backward",
                    cuda_rms_norm_backward(p, NULL, p, p, p, p, 0, 2, 2, 0, 0, p, NULL, e), e);
    check_no_device("rms_norm_backward",
                    cuda_rms_norm_backward(NULL, p, p, p, p, p, 0, 2, 2, 0, 0, p, NULL, e), e);
    check_no_device("rotary", cuda_rotary(p, p, &rotary, 1, 2, 1, 2, 0, 0, NULL, e), e);
    check_no_device("dropout", cuda_dropout(p, p, 2, 2, 1, 0, 0, 0.5, 0, &scalars, NULL, e), e);
    check_no_device("adam", cuda_adam(p, p, p, p, OPTIMIZER_WHOLE(4, 0), NULL, DTYPE_F32, &scalars, NULL, e),
                    e);
    check_no_device(
        "sgd", cuda_sgd(p, p, p, OPTIMIZER_WHOLE(4, 0), 0.9, 0, 0, NULL, DTYPE_F32, &scalars, NULL, e), e);
    check_no_device("norm_squared", cuda_norm_squared(p, p, 4, 0, p, NULL, e), e);
    check_no_device("norm_squared", cuda_norm_squared(p, p, 0, 0, p, NULL, e), e);
    check_no_device("clip_factor", cuda_clip_factor(&scalars, NULL, e), e);
    check_no_device("adamw",
                    cuda_adamw(p, p, p, p, OPTIMIZER_WHOLE(4, 0), NULL, DTYPE_F32, &scalars, NULL, e), e);
    check_no_device("layernorm_forward", cuda_layernorm_forward(p, p, p, p, p, p, 2, 2, 1e-5, NULL, e), e);
    check_no_device("layernorm_backward",
                    cuda_layernorm_backward(p, p, p, p, p, p, p, p, 2, 2, 0, 0, p, NULL, e), e);
    check_no_device("layernorm_backward",
                    cuda_layernorm_backward(p, p, p, p, p, p, p, p, 0, 2, 0, 0, p, NULL, e), e);
    check_no_device("rows_add", cuda_rows_add(p, 0, 1, 0, p, NULL, 1, 1, 2, NULL, e), e);
    check_no_device("embedding_forward", cuda_embedding_forward(p, p, p, p, 1, 2, 2, NULL, e), e);
    for (int beta = 0; beta < 2; beta++) {
        check_no_device("embedding_backward",
                        cuda_embedding_backward(p, NULL, p, p, 1, 2, 2, 2, 2, beta, NULL, e), e);
        check_no_device("embedding_backward",
                        cuda_embedding_backward(NULL, p, p, p, 1, 2, 2, 2, 2, beta, NULL, e), e);
    }
    check_no_device("cross_entropy", cuda_cross_entropy(p, p, p, 2, 2, 2, 1, &scalars, NULL, e), e);
    check_no_device("squared_error", cuda_squared_error(p, p, p, p, 4, 1, &scalars, NULL, e), e);
    check_no_device("loss_sum", cuda_loss_sum(p, p, p, p, 4, NULL, e), e);
    for (enum dtype to = 0; to < DTYPE_COUNT; to++)
        for (enum dtype from = 0; from < DTYPE_COUNT; from++)
            check_no_device("cast", cuda_cast(p, to, p, from, 4, NULL, e), e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_mapped),
        cmocka_unit_test(messages_name_operation_and_way_out),
        cmocka_unit_test(what_is_told_is_off_the_thread),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(attention_of_wrong_sizes_is_refused),
        cmocka_unit_test(kept_attention_of_wrong_sizes_is_refused),
        cmocka_unit_test(wrong_types_units_and_rows_are_refused),
        cmocka_unit_test(empty_is_nothing),
        cmocka_unit_test(without_a_gpu_each_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
