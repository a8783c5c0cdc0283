/* Every row of the table of operations: gradients against finite differences, with all combinations of what
 * is wanted and written or added, in memory full of NaN. A row without a case fails the test. */
#include "tests/support/cmocka_all.h"

#include "tests/unit/model/layer_bench.h"

enum { VOCABULARY = 7, POSITIONS = 6, FEATURES = 4, WANTED = 6 };
static const struct shape shape = {2, 5};

struct test_case {
    const char *operation, *what;
    int width[3];                                  /* widths of its inputs, ended by 0 */
    int (*write)(struct writer *w, const int *in); /* the result; -1: a loss */
};

static int linear(struct writer *w, const int *in)
{
    return program_linear(w, in[0], 3, "fc", true, 0.1);
}

static int linear_without_bias(struct writer *w, const int *in)
{
    return program_linear(w, in[0], 6, "fc", false, 0.1);
}

static int layer_norm(struct writer *w, const int *in)
{
    return program_layer_norm(w, in[0], "ln", 1e-5);
}

static int rms_norm(struct writer *w, const int *in)
{
    return program_rms_norm(w, in[0], "norm", 1e-2);
}

static int rotary_plain(struct writer *w, const int *in)
{
    return program_rotary(w, in[0], 2, &(struct rotary){.theta = 100});
}

static int rotary_linear(struct writer *w, const int *in)
{
    return program_rotary(w, in[0], 2, &(struct rotary){.theta = 100, .kind = ROTARY_LINEAR, .factor = 3});
}

static int rotary_llama3(struct writer *w, const int *in)
{
    const struct rotary r = {
        .theta = 50, .kind = ROTARY_LLAMA3, .factor = 8, .low = 1, .high = 4, .original = 32};
    return program_rotary(w, in[0], 1, &r);
}

static int attention(struct writer *w, const int *in)
{
    return program_attention(w, in[0], in[1], in[2], 2, 2, true);
}

static int attention_grouped(struct writer *w, const int *in)
{
    return program_attention(w, in[0], in[1], in[2], 4, 2, true);
}

static int attention_of_all(struct writer *w, const int *in)
{
    return program_attention(w, in[0], in[1], in[2], 2, 1, false);
}

static int attention_packed(struct writer *w, const int *in)
{
    return program_attention_packed(w, in[0], 2, 2, true);
}

static int attention_packed_grouped(struct writer *w, const int *in)
{
    return program_attention_packed(w, in[0], 4, 1, true);
}

static int attention_within(struct writer *w, const int *in)
{
    return program_within(w, program_attention(w, in[0], in[1], in[2], 2, 1, false), 4);
}

static int attention_packed_within(struct writer *w, const int *in)
{
    return program_within(w, program_attention_packed(w, in[0], 2, 2, true), 4);
}

static int mean(struct writer *w, const int *in)
{
    return program_mean(w, in[0], 4);
}

/* Values of a row for each sample, next to values of a row for each position, their source. */
static int mean_and_more(struct writer *w, const int *in)
{
    int h = program_mean(w, program_activation(w, in[0], ACTIVATION_TANH), 4);
    h = program_layer_norm(w, program_linear(w, h, 6, "fc", true, 1), "ln", 1e-5);
    return program_add(w, h, program_mean(w, in[0], 4));
}

static int dropout_of_a_mean(struct writer *w, const int *in)
{
    return program_dropout(w, program_mean(w, in[0], 4), 0.3);
}

static int classes_of_a_mean(struct writer *w, const int *in)
{
    program_classes(w, program_relu(w, program_mean(w, in[0], 4)), VOCABULARY, "head", 5);
    return -1;
}

static int gelu_tanh(struct writer *w, const int *in)
{
    return program_activation(w, in[0], ACTIVATION_GELU_TANH);
}

static int gelu_erf(struct writer *w, const int *in)
{
    return program_activation(w, in[0], ACTIVATION_GELU_ERF);
}

static int silu(struct writer *w, const int *in)
{
    return program_activation(w, in[0], ACTIVATION_SILU);
}

static int relu(struct writer *w, const int *in)
{
    return program_activation(w, in[0], ACTIVATION_RELU);
}

static int tanh_of(struct writer *w, const int *in)
{
    return program_activation(w, in[0], ACTIVATION_TANH);
}

static int sigmoid(struct writer *w, const int *in)
{
    return program_activation(w, in[0], ACTIVATION_SIGMOID);
}

static int swiglu(struct writer *w, const int *in)
{
    return program_swiglu(w, in[0], in[1]);
}

static int geglu(struct writer *w, const int *in)
{
    return program_gated(w, in[0], in[1], ACTIVATION_GELU_TANH);
}

static int slice(struct writer *w, const int *in)
{
    return program_slice(w, in[0], 2, 1, 4);
}

/* The first to be written in backward zeroes the columns of the others. */
static int slices(struct writer *w, const int *in)
{
    int h = program_activation(w, in[0], ACTIVATION_TANH);
    int q = program_slice(w, h, 2, 0, 3), k = program_slice(w, h, 2, 3, 3);
    return program_gated(w, program_add(w, q, k), program_slice(w, h, 1, 2, 6), ACTIVATION_SILU);
}

static int rotary_partial(struct writer *w, const int *in)
{
    return program_rotary(w, in[0], 2, &(struct rotary){.theta = 100, .size = 4, .amplitude = 1.3});
}

static int rotary_listed(struct writer *w, const int *in)
{
    static const double lists[] = {1, 1, 1, 1.5, 2, 3};
    return program_rotary(
        w, in[0], 2, &(struct rotary){.theta = 100, .kind = ROTARY_LISTED, .lists = lists, .original = 4});
}

static int rms_norm_of_heads(struct writer *w, const int *in)
{
    return program_rms_norm_of(w, in[0], "norm", 2, 1e-2, 1);
}

static int attention_in_a_window(struct writer *w, const int *in)
{
    const struct attention_form form = {.heads = 2, .kv_heads = 2, .causal = true, .window = 2};
    return program_attention_of(w, in[0], in[1], in[2], &form);
}

static int attention_in_a_window_on_both_sides(struct writer *w, const int *in)
{
    const struct attention_form form = {.heads = 2, .kv_heads = 2, .window = 2};
    return program_within(w, program_attention_of(w, in[0], in[1], in[2], &form), 4);
}

static int layer_norm_without_bias(struct writer *w, const int *in)
{
    return program_layer_norm_plain(w, in[0], "ln", 1e-5);
}

static int first(struct writer *w, const int *in)
{
    return program_first(w, in[0]);
}

/* Next to another use of the value, whose gradient is there already. */
static int first_and_mean(struct writer *w, const int *in)
{
    return program_add(w, program_first(w, in[0]), program_mean(w, in[0], 4));
}

static int attention_capped(struct writer *w, const int *in)
{
    const struct attention_form form = {.heads = 2, .kv_heads = 1, .causal = true, .scale = 0.7, .cap = 0.9};
    return program_attention_of(w, in[0], in[1], in[2], &form);
}

static int embedding_with_later_positions(struct writer *w, const int *in)
{
    (void)in;
    int table = program_parameter(w, "table", VOCABULARY, 4, PARAM_INIT_NORMAL, 1);
    int positions = program_parameter(w, "wpe", POSITIONS + 2, 4, PARAM_INIT_NORMAL, 1);
    return program_embedding_from(w, 0, table, positions, 2);
}

static int cross_entropy_capped(struct writer *w, const int *in)
{
    int weight = program_parameter(w, "head", VOCABULARY, 6, PARAM_INIT_NORMAL, 1);
    program_capped_cross_entropy(w, in[0], weight, 1, 0.8);
    return -1;
}

static int add(struct writer *w, const int *in)
{
    return program_add(w, in[0], in[1]);
}

static int add_itself(struct writer *w, const int *in)
{
    int h = program_activation(w, in[0], ACTIVATION_TANH);
    return program_add(w, h, h);
}

static int scale(struct writer *w, const int *in)
{
    return program_scale(w, in[0], -1.7);
}

/* Its gradient is added to another one, and so formed apart. */
static int scale_beside(struct writer *w, const int *in)
{
    int h = program_activation(w, in[0], ACTIVATION_TANH), scaled = program_scale(w, h, 0.3);
    return program_add(w, scaled, program_activation(w, h, ACTIVATION_TANH));
}

static int dropout(struct writer *w, const int *in)
{
    return program_dropout(w, in[0], 0.3);
}

static int embedding(struct writer *w, const int *in)
{
    (void)in;
    return program_embedding(w, 0, program_parameter(w, "table", VOCABULARY, 4, PARAM_INIT_NORMAL, 1), -1);
}

static int embedding_with_positions(struct writer *w, const int *in)
{
    (void)in;
    int table = program_parameter(w, "table", VOCABULARY, 4, PARAM_INIT_NORMAL, 1);
    return program_embedding(w, 0, table, program_parameter(w, "wpe", POSITIONS, 4, PARAM_INIT_NORMAL, 1));
}

static int cross_entropy(struct writer *w, const int *in)
{
    program_cross_entropy(w, in[0], program_parameter(w, "head", VOCABULARY, 6, PARAM_INIT_NORMAL, 1), 1);
    return -1;
}

static int classes(struct writer *w, const int *in)
{
    program_classes(w, in[0], VOCABULARY, "head", 1);
    return -1;
}

static int relu_op(struct writer *w, const int *in)
{
    return program_relu(w, in[0]);
}

static int relu_of_a_product(struct writer *w, const int *in)
{
    return program_relu(w, program_linear(w, in[0], 5, "fc", true, 1));
}

static int conv2d(struct writer *w, const int *in)
{
    struct planes shape = {2, 4, 3};
    return program_conv2d(w, in[0], &shape, 3, 3, 1, 1, "conv", true);
}

static int conv2d_without_bias(struct writer *w, const int *in)
{
    struct planes shape = {1, 5, 4};
    return program_conv2d(w, in[0], &shape, 2, 2, 2, 1, "conv", false);
}

static int max_pool2d(struct writer *w, const int *in)
{
    struct planes shape = {2, 4, 3};
    return program_max_pool2d(w, in[0], &shape, 2, 2, 0);
}

static int max_pool2d_of_a_convolution(struct writer *w, const int *in)
{
    struct planes shape = {1, 5, 4};
    int h = program_relu(w, program_conv2d(w, in[0], &shape, 2, 3, 1, 1, "conv", true));
    return program_max_pool2d(w, h, &shape, 3, 2, 1);
}

static int batch_norm2d(struct writer *w, const int *in)
{
    struct planes shape = {2, 4, 3};
    return program_batch_norm2d(w, in[0], &shape, "bn", 1e-2, 0.1);
}

static int batch_norm2d_of_a_convolution(struct writer *w, const int *in)
{
    struct planes shape = {1, 5, 4};
    int h = program_conv2d(w, in[0], &shape, 2, 3, 1, 1, "conv", false);
    return program_relu(w, program_batch_norm2d(w, h, &shape, "bn", 1e-2, 0.1));
}

static int avg_pool2d(struct writer *w, const int *in)
{
    struct planes shape = {2, 4, 3};
    return program_avg_pool2d(w, in[0], &shape, 1, 2);
}

static int values(struct writer *w, const int *in)
{
    return program_add(w, in[0], program_values(w, 2));
}

static int values_of_a_layer(struct writer *w, const int *in)
{
    return program_add(w, program_linear(w, program_values(w, 2), 6, "fc", true, 1), in[0]);
}

static int squared_error(struct writer *w, const int *in)
{
    program_squared_error(w, in[0], 3);
    return -1;
}

static int squared_error_of_a_sum(struct writer *w, const int *in)
{
    int h = program_linear(w, in[0], WANTED, "fc", true, 1);
    program_squared_error(w, program_add(w, h, in[1]), 3);
    return -1;
}

static const struct test_case cases[] = {
    {"linear", "with bias", {6}, linear},
    {"linear", "without bias", {4}, linear_without_bias},
    {"layer_norm", "", {6}, layer_norm},
    {"rms_norm", "", {6}, rms_norm},
    {"rotary", "plain", {8}, rotary_plain},
    {"rotary", "linear", {8}, rotary_linear},
    {"rotary", "llama3", {12}, rotary_llama3},
    {"rotary", "of a part of each head", {12}, rotary_partial},
    {"rotary", "by lists, beyond their first", {12}, rotary_listed},
    {"rms_norm", "of each head, with an offset", {6}, rms_norm_of_heads},
    {"attention", "in a window", {6, 6, 6}, attention_in_a_window},
    {"attention", "in a window on both sides", {6, 6, 6}, attention_in_a_window_on_both_sides},
    {"layer_norm", "without bias", {6}, layer_norm_without_bias},
    {"first", "", {6}, first},
    {"first", "and mean", {6}, first_and_mean},
    {"attention", "capped", {6, 3, 3}, attention_capped},
    {"embedding", "with later positions", {0}, embedding_with_later_positions},
    {"cross_entropy", "capped", {6}, cross_entropy_capped},
    {"attention", "", {6, 6, 6}, attention},
    {"attention", "grouped", {12, 6, 6}, attention_grouped},
    {"attention", "not causal", {6, 3, 3}, attention_of_all},
    {"attention_packed", "", {12}, attention_packed},
    {"attention_packed", "grouped", {18}, attention_packed_grouped},
    {"attention", "as far as a length", {6, 3, 3}, attention_within},
    {"attention_packed", "as far as a length", {12}, attention_packed_within},
    {"mean", "", {6}, mean},
    {"mean", "and more", {6}, mean_and_more},
    {"dropout", "of a mean", {6}, dropout_of_a_mean},
    {"cross_entropy", "of a mean", {6}, classes_of_a_mean},
    {"activation", "gelu, tanh", {6}, gelu_tanh},
    {"activation", "gelu, erf", {6}, gelu_erf},
    {"activation", "silu", {6}, silu},
    {"activation", "relu", {6}, relu},
    {"activation", "tanh", {6}, tanh_of},
    {"activation", "sigmoid", {6}, sigmoid},
    {"gated", "silu", {6, 6}, swiglu},
    {"gated", "gelu, tanh", {6, 6}, geglu},
    {"slice", "", {12}, slice},
    {"slice", "several of one value", {18}, slices},
    {"add", "", {6, 6}, add},
    {"add", "to itself", {6}, add_itself},
    {"scale", "", {6}, scale},
    {"scale", "beside another use", {6}, scale_beside},
    {"dropout", "", {6}, dropout},
    {"embedding", "", {0}, embedding},
    {"embedding", "with positions", {0}, embedding_with_positions},
    {"values", "", {FEATURES}, values},
    {"values", "multiplied", {6}, values_of_a_layer},
    {"cross_entropy", "", {6}, cross_entropy},
    {"cross_entropy", "of classes", {6}, classes},
    {"relu", "", {6}, relu_op},
    {"relu", "of a product", {6}, relu_of_a_product},
    {"conv2d", "", {24}, conv2d},
    {"conv2d", "without bias", {20}, conv2d_without_bias},
    {"max_pool2d", "", {24}, max_pool2d},
    {"max_pool2d", "of a convolution", {20}, max_pool2d_of_a_convolution},
    {"batch_norm2d", "", {24}, batch_norm2d},
    {"batch_norm2d", "of a convolution", {20}, batch_norm2d_of_a_convolution},
    {"avg_pool2d", "", {24}, avg_pool2d},
    {"squared_error", "", {WANTED}, squared_error},
    {"squared_error", "of a sum", {4, WANTED}, squared_error_of_a_sum},
};

/* Sources of the widths that the case wants, then the layer with the operation, whose inputs are wanted. */
static struct model *write_case(const struct test_case *c)
{
    struct writer w = writer_begin("%s", c->operation);
    struct muster_error err = {0};
    int source[3], in[3], sources = 0;
    (void)writer_input(&w, "tokens", DTYPE_I32, true, 1);
    (void)writer_input(&w, "targets", DTYPE_I32, true, 1);
    (void)writer_input(&w, "features", DTYPE_F32, true, FEATURES);
    (void)writer_input(&w, "wanted", DTYPE_F32, true, WANTED);
    (void)writer_input(&w, "lengths", DTYPE_I32, false, 1);
    (void)writer_input(&w, "labels", DTYPE_I32, false, 1);
    for (; sources < 3 && c->width[sources]; sources++) {
        source[sources] = program_layer(&w, "source%d", sources);
        int table = program_parameter(&w, "table", VOCABULARY, c->width[sources], PARAM_INIT_NORMAL, 1);
        program_result(&w, program_embedding(&w, 0, table, -1));
    }
    (void)program_layer(&w, "layer");
    for (int i = 0; i < sources; i++)
        in[i] = program_input(&w, source[i]);
    int result = c->write(&w, in);
    if (result >= 0)
        program_result(&w, result);
    struct model *model = writer_finish(&w, &err);
    if (!model)
        fail_msg("%s", err.text);
    return model;
}

static void run_case(const struct test_case *c)
{
    GUARD(guard_model) struct model *model = write_case(c);
    struct layer_bench b;
    char what[80];
    (void)snprintf(what, sizeof what, "%s %s", c->operation, c->what);
    bench_open(&b, model, model->layer_count - 1, shape, kernels_ref_f64(), VOCABULARY, 100);
    bench_check_gradients(&b, what);
    if (b.train.out && strcmp(c->operation, "dropout") != 0 && strcmp(c->operation, "batch_norm2d") != 0) {
        assert_true(bench_loss(&b, LAYER_TRAIN) == bench_loss(&b, LAYER_EVAL)); /* the same operations */
    }
    bench_close(&b);
}

static void every_operation_has_the_gradients_of_finite_differences(void **state)
{
    (void)state;
    for (const struct operation *const *op = operation_table(); *op; op++) {
        int found = 0;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            if (strcmp(cases[i].operation, (*op)->name) != 0)
                continue;
            run_case(&cases[i]);
            found++;
        }
        if (!found)
            fail_msg("operation %s has no case in this test", (*op)->name);
    }
}

static void every_case_names_an_operation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool known = false;
        for (const struct operation *const *op = operation_table(); *op; op++)
            known |= strcmp(cases[i].operation, (*op)->name) == 0;
        assert_true(known);
    }
}

/* Dropout is of training alone, and another mask in every step. */
static void dropout_is_off_in_evaluation(void **state)
{
    (void)state;
    const struct test_case c = {"dropout", "", {16}, dropout};
    GUARD(guard_model) struct model *model = write_case(&c);
    struct layer_bench b;
    bench_open(&b, model, 1, (struct shape){4, 16}, kernels_ref_f64(), VOCABULARY, 3);
    (void)bench_loss(&b, LAYER_EVAL);
    assert_memory_equal(b.out.base, b.in[0], b.train.out);
    double first = bench_loss(&b, LAYER_TRAIN);
    int dropped = 0;
    for (int64_t i = 0; i < b.outs; i++)
        dropped += ((double *)b.out.base)[i] == 0;
    assert_in_range(dropped, b.outs / 5, b.outs * 2 / 5);
    assert_true(first == bench_loss(&b, LAYER_TRAIN));
    b.scalars.first_sample += 4;
    assert_true(first != bench_loss(&b, LAYER_TRAIN));
    bench_close(&b);
}

/* A device whose table lacks one is an error by name, before anything runs. */
static void missing_kernels_are_named(void **state)
{
    const struct test_case c = {"conv2d", "", {24}, conv2d};
    struct kernels kernels = *kernels_ref_f64();
    struct muster_error err = {0};
    (void)state;
    GUARD(guard_model) struct model *model = write_case(&c);
    assert_int_equal(program_kernels_check(model, &kernels, &err), 0);
    kernels.conv2d_forward = NULL;
    assert_int_equal(program_kernels_check(model, &kernels, &err), -1);
    assert_non_null(strstr(err.text, "conv2d: layer layer: conv2d is not built for this device (ref-f64)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_has_the_gradients_of_finite_differences),
        cmocka_unit_test(every_case_names_an_operation),
        cmocka_unit_test(dropout_is_off_in_evaluation),
        cmocka_unit_test(missing_kernels_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
