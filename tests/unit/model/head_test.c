/* head_test.c - the head of a model in chunks of rows: gradients against finite differences with rows of
 * logits that lie apart, a cap and a bias. The loss has so many rows at a time, and memory of its own. */
#include "tests/support/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/model/head.h"
#include "tests/unit/model/layer_bench.h"

enum { CLASSES = 7, WIDTH = 6, APART = 6, ROW = 12, AT_ONCE = 8 };
static const struct shape shape = {2, 9}; /* 18 rows */

static struct model *head_model(double cap, bool bias)
{
    struct writer w = writer_begin("head");
    struct muster_error err = {0};
    (void)writer_input(&w, "tokens", DTYPE_I32, true, 1);
    (void)writer_input(&w, "targets", DTYPE_I32, true, 1);
    const int source = program_layer(&w, "source");
    const int table = program_parameter(&w, "table", CLASSES, WIDTH, PARAM_INIT_NORMAL, 1);
    program_result(&w, program_embedding(&w, 0, table, -1));
    (void)program_layer(&w, "layer");
    const int in = program_input(&w, source);
    if (bias)
        program_classes(&w, in, CLASSES, "head", 1);
    else
        program_capped_cross_entropy(
            &w, in, program_parameter(&w, "head", CLASSES, WIDTH, PARAM_INIT_NORMAL, 1), 1, cap);
    struct model *model = writer_finish(&w, &err);
    if (!model)
        fail_msg("%s", err.text);
    return model;
}

/* Calls of the loss, and their most rows. */
static int calls, most;

static void noted_cross_entropy(void *logits, void *losses, const int32_t *targets, int N, int width, int row,
                                int gradient, const struct step_scalars *scalars, void *stream)
{
    calls++;
    most = N > most ? N : most;
    kernels_ref_f64()->cross_entropy(logits, losses, targets, N, width, row, gradient, scalars, stream);
}

/* chunk_bytes: of the table, or of the settings. Each chunk adds to the sum of the chunks before it. */
static void gradients(double cap, bool bias, int apart, int64_t of_table, int64_t of_settings)
{
    struct kernels kernels = *kernels_ref_f64();
    struct layer_bench b;
    kernels.cross_entropy = noted_cross_entropy;
    kernels.row_multiple = apart;
    kernels.chunk_bytes = of_table;
    GUARD(guard_model) struct model *model = head_model(cap, bias);
    bench_open(&b, model, 1, shape, &kernels, CLASSES, 100);
    bench_chunks(&b, of_settings);
    calls = most = 0;
    bench_train(&b, false);
    const bool whole = !of_table && !of_settings;
    assert_int_equal(calls, whole ? 1 : 3);
    assert_true(most <= (whole ? 18 : AT_ONCE));
    bench_check_gradients(&b, "head");
    bench_close(&b);
}

/* A chunk has room for eight rows of 12, or nine of seven: rows apart are three chunks of eight at most. */
static void chunks_have_the_gradients_of_finite_differences(void **state)
{
    enum { BYTES = AT_ONCE * ROW * 8, DENSE = 6 * CLASSES * 8 };
    (void)state;
    for (int form = 0; form < 3; form++) {
        const double cap = form == 1 ? 0.8 : 0;
        gradients(cap, form == 2, 1, 0, 0);
        gradients(cap, form == 2, 1, DENSE, 0);
        gradients(cap, form == 2, APART, BYTES, 0);
        gradients(cap, form == 2, APART, INT64_C(1) << 20, BYTES);
    }
}

static void settings_make_work_memory_smaller(void **state)
{
    struct layer_sizes whole, chunked;
    (void)state;
    GUARD(guard_model) struct model *model = head_model(0, false);
    const struct layer_desc *layer = &model->layers[1];
    const struct kernels *kernels = kernels_ref_f32();
    layer->ops->sizes(layer->config, shape, DTYPE_F32, LAYER_TRAIN, kernels, &whole);
    layer->ops->chunked_sizes(layer->config, shape, DTYPE_F32, LAYER_TRAIN, kernels, 6 * CLASSES * 4,
                              &chunked);
    assert_int_equal(whole.work - chunked.work, (18 - 6) * (CLASSES + 1) * 4);
}

/* ---- values of 16 bits ---- */

static const char *work_begin, *work_end;

static void nothing_multiplied(void *out, const void *in, const void *weight, const void *bias, int N, int C,
                               int OC, int row, void *stream)
{
    (void)in, (void)weight, (void)bias, (void)C, (void)OC, (void)stream;
    memset(out, 0, (size_t)N * (size_t)row * 2);
}

static void placed_cross_entropy(void *logits, void *losses, const int32_t *targets, int N, int width,
                                 int row, int gradient, const struct step_scalars *scalars, void *stream)
{
    (void)targets, (void)width, (void)gradient, (void)scalars, (void)stream;
    calls++;
    assert_int_equal((uintptr_t)losses % sizeof(float), 0);
    assert_true((const char *)logits == work_begin);
    assert_true((const char *)losses >= work_begin + (size_t)N * (size_t)row * 2);
    assert_true((const char *)losses + (size_t)N * sizeof(float) <= work_end);
    memset(losses, 0, (size_t)N * sizeof(float));
}

/* An odd number of logits of 16 bits lies before the losses, which are floats. */
static void losses_are_aligned(void **state)
{
    static const uint16_t values[5 * WIDTH] = {0}, weights[CLASSES * WIDTH] = {0};
    static const int32_t numbers[5] = {0, 1, 2, 3, 4};
    static const struct shape odd = {1, 5};
    struct kernels kernels = *kernels_ref_bf16();
    struct layer_sizes sizes;
    (void)state;
    kernels.linear_forward = nothing_multiplied;
    kernels.cross_entropy = placed_cross_entropy;
    GUARD(guard_model) struct model *model = head_model(0, false);
    const struct layer_desc *layer = &model->layers[1];
    layer->ops->sizes(layer->config, odd, DTYPE_BF16, LAYER_EVAL, &kernels, &sizes);
    char *work = malloc((size_t)sizes.work);
    assert_non_null(work);
    work_begin = work, work_end = work + sizes.work;
    const void *weight[] = {weights}, *in[] = {values};
    const struct batch batch = {{numbers, numbers}};
    const struct step_scalars scalars = {.inverse_tokens = 0.2};
    double loss = 0;
    int64_t count = 0;
    const struct layer_context x = {.kernels = &kernels,
                                    .mode = LAYER_EVAL,
                                    .shape = odd,
                                    .weight = weight,
                                    .in = in,
                                    .work = work,
                                    .batch = &batch,
                                    .scalars = &scalars,
                                    .loss_total = &loss,
                                    .loss_count = &count};
    calls = 0;
    layer->ops->forward(layer->config, &x);
    assert_int_equal(calls, 1);
    assert_int_equal(count, 5);
    free(work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_have_the_gradients_of_finite_differences),
        cmocka_unit_test(settings_make_work_memory_smaller),
        cmocka_unit_test(losses_are_aligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
