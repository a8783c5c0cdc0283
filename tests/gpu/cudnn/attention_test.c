/* attention_test.c - which attention cuDNN is asked for, without the library. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "runtime/cuda/cudnn/attention.h"
#include "runtime/cuda/devices/devices.h"

static const struct attention usual = {.B = 4,
                                       .T = 1024,
                                       .heads = 12,
                                       .kv_heads = 12,
                                       .head_size = 64,
                                       .causal = 1,
                                       .q_row = 2304,
                                       .k_row = 2304,
                                       .v_row = 2304};

static void refused(struct attention a, const char *why)
{
    struct muster_error err = {0};
    assert_false(cudnn_attention_fits(&a, &err));
    if (!strstr(err.text, why))
        fail_msg("%s", err.text);
}

static void the_shapes_that_fit(void **state)
{
    (void)state;
    const int32_t numbers[] = {1};
    struct attention a = usual;
    assert_true(cudnn_attention_fits(&a, NULL));
    a.head_size = 128;
    assert_true(cudnn_attention_fits(&a, NULL));
    a.head_size = 36;
    refused(a, "heads of 36: cuDNN takes heads of 64 and 128");
    a = usual;
    a.lengths = numbers;
    refused(a, "sequences with lengths");
    a = usual;
    a.positions = numbers;
    refused(a, "several documents");
    a = usual;
    a.window = 256;
    refused(a, "a window");
    a = usual;
    a.cap = 50;
    refused(a, "a cap of the scores");
    a = usual;
    a.k_row = 2308;
    refused(a, "rows at multiples of 8");
}

static void the_devices_and_types_that_fit(void **state)
{
    (void)state;
    struct muster_error err = {0};
    const struct cuda_description *t4 = cuda_description(CUDA_DEVICE_T4),
                                  *h100 = cuda_description(CUDA_DEVICE_H100);
    assert_null(cudnn_attention_open(t4, t4->capability, t4->memory_bytes, DTYPE_F16, &err));
    assert_non_null(strstr(err.text, "this GPU is sm_75, and cuDNN's attention begins with sm_80: use own"));
    assert_null(cudnn_attention_open(h100, h100->capability, h100->memory_bytes, DTYPE_F32, &err));
    assert_non_null(strstr(err.text, "reads values of 16 bits, not of f32: set training.dtype: bf16"));
}

/* No folder of the loader has the library in this test. */
static void a_library_that_is_missing_is_named(void **state)
{
    (void)state;
    struct muster_error err = {0};
    const struct cuda_description *h100 = cuda_description(CUDA_DEVICE_H100);
    struct attention_by *by =
        cudnn_attention_open(h100, h100->capability, h100->memory_bytes, DTYPE_BF16, &err);
    if (by) /* installed here */
        cudnn_attention_close(by);
    else if (!strstr(err.text, "libcudnn.so.9") &&
             !strstr(err.text, "this build is without it: build with MUSTER_CUDNN=1"))
        fail_msg("%s", err.text);
}

static void the_line_names_what_is_ours(void **state)
{
    (void)state;
    char text[320];
    struct cudnn_attention_report r = {.library = "cuDNN 9.19.0", .taken = 2};
    cudnn_attention_text(&r, text, sizeof text);
    assert_string_equal(text, "cuDNN 9.19.0");
    r.forward_alone = 1;
    (void)snprintf(r.why_alone.text, sizeof r.why_alone.text, "it is large");
    cudnn_attention_text(&r, text, sizeof text);
    assert_string_equal(text, "cuDNN 9.19.0, and muster's backward for 1 of 2 shapes: it is large");
    r.refused = 1;
    (void)snprintf(r.why.text, sizeof r.why.text, "heads of 36");
    cudnn_attention_text(&r, text, sizeof text);
    assert_string_equal(text,
                        "cuDNN 9.19.0, and muster's kernels for 1 of 3 shapes: heads of 36, and muster's "
                        "backward for 1 of 3 shapes: it is large");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shapes_that_fit),
        cmocka_unit_test(the_devices_and_types_that_fit),
        cmocka_unit_test(a_library_that_is_missing_is_named),
        cmocka_unit_test(the_line_names_what_is_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
