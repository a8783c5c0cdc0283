/* Programs as wholes: random ones against finite differences, memory to the byte, several sources, parameters
 * used twice, and the errors of the writer, by name. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/model/program_internal.h"
#include "tests/unit/model/layer_bench.h"

enum { WIDTH = 6, VOCABULARY = 7 };

static struct writer begin(void)
{
    struct writer w = writer_begin("test");
    (void)writer_input(&w, "tokens", DTYPE_I32, true, 1);
    (void)writer_input(&w, "targets", DTYPE_I32, true, 1);
    return w;
}

static int source(struct writer *w, const char *name, int width)
{
    int layer = program_layer(w, "%s", name);
    int table = program_parameter(w, "table", VOCABULARY, width, PARAM_INIT_NORMAL, 1);
    program_result(w, program_embedding(w, 0, table, -1));
    return layer;
}

static struct model *finish(struct writer *w)
{
    struct muster_error err = {0};
    struct model *model = writer_finish(w, &err);
    if (!model)
        fail_msg("%s", err.text);
    return model;
}

/* ---- random programs ---- */

static uint64_t below(uint64_t *seed, uint64_t limit)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % limit;
}

/* A table that has products with activations as one: their outputs are NaN before anything is read. */
static int calls_as_one;

static void spoil(double *values, int64_t n)
{
    for (int64_t i = 0; values && i < n; i++)
        values[i] = NAN;
}

static void linear_activation(void *out, void *pre, const void *in, const void *weight, const void *bias,
                              int kind, int N, int C, int OC, void *stream)
{
    const int64_t n = (int64_t)N * OC;
    double *before = mem_calloc((size_t)n, sizeof *before);
    assert_non_null(before);
    calls_as_one++;
    spoil(out, n);
    spoil(pre, n);
    kernels_ref_f64()->linear_forward(before, in, weight, bias, N, C, OC, OC, stream);
    kernels_ref_f64()->activation_forward(out, before, kind, n, stream);
    if (pre)
        memcpy(pre, before, (size_t)n * sizeof *before);
    mem_free(before);
}

static int biases_as_one;

static void linear_backward_activation(void *din, void *dbias, const void *dout, const void *weight,
                                       const void *pre, int kind, int N, int C, int OC, int beta,
                                       void *stream)
{
    calls_as_one++;
    spoil(din, (int64_t)N * C);
    kernels_ref_f64()->linear_backward_input(din, dout, weight, N, C, OC, OC, 0, stream);
    kernels_ref_f64()->activation_backward(din, pre, din, kind, 0, (int64_t)N * C, stream);
    if (!dbias)
        return;
    biases_as_one++;
    kernels_ref_f64()->linear_backward_weight(NULL, dbias, din, NULL, N, 0, C, C, beta, stream);
}

static int sums_as_one;

/* a + b, read after all outputs became NaN; those that are an addend are written over it afterwards. */
static double *sum_of(const double *a, const double *b, int N, int C, double *out, double *sum,
                      double *const statistics[2])
{
    const int64_t n = (int64_t)N * C;
    double *copy = mem_calloc((size_t)n, sizeof *copy);
    assert_non_null(copy);
    sums_as_one++;
    if (out != a && out != b)
        spoil(out, n);
    if (sum != a && sum != b)
        spoil(sum, n);
    for (int i = 0; i < 2; i++)
        spoil(statistics[i], N);
    kernels_ref_f64()->add(copy, a, b, n, NULL);
    return copy;
}

static void normalised_sum(void *out, void *sum, void *mean, void *rstd, const void *a, const void *b,
                           const void *weight, const void *bias, int N, int C, double epsilon, void *stream)
{
    double *copy = sum_of(a, b, N, C, out, sum, (double *[]){mean, rstd});
    kernels_ref_f64()->layernorm_forward(out, mean, rstd, copy, weight, bias, N, C, epsilon, stream);
    memcpy(sum, copy, (size_t)N * (size_t)C * sizeof *copy);
    mem_free(copy);
}

static void rms_normalised_sum(void *out, void *sum, void *rstd, const void *a, const void *b,
                               const void *weight, int N, int C, double epsilon, double offset, void *stream)
{
    double *copy = sum_of(a, b, N, C, out, sum, (double *[]){rstd, NULL});
    kernels_ref_f64()->rms_norm_forward(out, rstd, copy, weight, N, C, epsilon, offset, stream);
    memcpy(sum, copy, (size_t)N * (size_t)C * sizeof *copy);
    mem_free(copy);
}

static const struct kernels *as_one(void)
{
    static struct kernels table;
    table = *kernels_ref_f64();
    table.linear_activation_forward = linear_activation;
    table.linear_backward_activation = linear_backward_activation;
    table.add_layernorm_forward = normalised_sum;
    table.add_rms_norm_forward = rms_normalised_sum;
    return &table;
}

/* An activation between two products, or after a product. */
static int activated_product(struct writer *w, uint64_t *seed, int value, const char *name)
{
    char part[24];
    (void)snprintf(part, sizeof part, "%s.a", name);
    int product = below(seed, 3) ? program_linear(w, value, WIDTH, part, below(seed, 2), 0.1) : value;
    int active = program_activation(w, product, (enum activation_kind)below(seed, 3));
    int result = below(seed, 3) ? program_linear(w, active, WIDTH, name, below(seed, 2), 0.1) : active;
    switch (below(seed, 4)) { /* value that is read again */
    case 0:
        return program_add(w, product, result);
    case 1:
        return active != result ? program_add(w, active, result) : result;
    default:
        return result;
    }
}

/* One more operation on values that exist; its result. Each has the same width, so that memory can be taken
 * over wherever a row allows it. */
static int random_operation(struct writer *w, uint64_t *seed, const int *values, int count, int number)
{
    const struct rotary rotary = {.theta = 30};
    int a = values[below(seed, (uint64_t)count)], b = values[below(seed, (uint64_t)count)];
    int c = values[below(seed, (uint64_t)count)];
    char name[16];
    (void)snprintf(name, sizeof name, "p%d", number);
    switch (below(seed, 12)) {
    case 0:
        return program_linear(w, a, WIDTH, name, below(seed, 2), 0.1);
    case 1:
        return program_layer_norm(w, a, name, 1e-1);
    case 2:
        return program_rms_norm(w, a, name, 1e-1);
    case 3:
        return program_rotary(w, a, 1, &rotary);
    case 4:
        return a != b && b != c && a != c ? program_attention(w, a, b, c, 2, 2, true) : program_add(w, a, b);
    case 5:
        return a != b ? program_swiglu(w, a, b) : program_rotary(w, a, 3, &rotary);
    case 6:
        return program_dropout(w, a, 0.2);
    case 7:
        return program_activation(w, a, (enum activation_kind)below(seed, 3));
    case 8:
        return activated_product(w, seed, a, name);
    case 9: { /* a sum that is normalised, and may be read again */
        int sum = program_add(w, a, b);
        int norm =
            below(seed, 2) ? program_layer_norm(w, sum, name, 1e-1) : program_rms_norm(w, sum, name, 1e-1);
        return below(seed, 2) ? program_add(w, sum, norm) : norm;
    }
    default:
        return program_add(w, a, b);
    }
}

static struct model *random_model(uint64_t *seed)
{
    struct writer w = begin();
    int sources = 1 + (int)below(seed, 3), operations = 2 + (int)below(seed, 14), values[32], count = 0;
    const char *const names[] = {"a", "b", "c"};
    for (int i = 0; i < sources; i++)
        (void)source(&w, names[i], WIDTH);
    (void)program_layer(&w, "layer");
    for (int i = 0; i < sources; i++)
        values[count++] = program_input(&w, i);
    for (int i = 0; i < operations; i++, count++)
        values[count] = random_operation(&w, seed, values, count, i);
    /* Values that no operation reads are added up; the inputs of the last addition are no result yet. */
    int result = -1;
    for (int i = 0; i < count; i++) {
        if (w.error.code || w.program->values[values[i]].last_use >= 0)
            continue;
        result = result < 0 ? values[i] : program_add(&w, result, values[i]);
    }
    if (!w.error.code && w.program->values[result].step < 0)
        result = program_rotary(&w, result, 1, &(struct rotary){.theta = 30});
    program_result(&w, result);
    return finish(&w);
}

/* Bytes of an operation that forms the gradients of all its inputs, for the gradients of the layer's inputs:
 * not used where they are wanted. */
static int64_t spare_bytes(const struct program *p, int rows)
{
    int64_t most = 0;
    for (int s = 0; s < p->step_count; s++) {
        int64_t bytes = 0;
        for (int i = 0; p->steps[s].op->whole && i < p->steps[s].in_count; i++)
            bytes += p->values[p->steps[s].in[i]].source >= 0 ? (rows * WIDTH * 8 + 63) / 64 * 64 : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void random_programs_have_the_gradients_of_finite_differences(void **state)
{
    (void)state;
    double evaluated = 0; /* by the plain table */
    calls_as_one = sums_as_one = biases_as_one = 0;
    for (int number = 0; number < 800; number++) {
        uint64_t seed = (uint64_t)(number / 2) * 7919 + 1;
        GUARD(guard_model) struct model *model = random_model(&seed);
        struct layer_bench b;
        char what[64];
        (void)snprintf(what, sizeof what, "random program %d%s", number / 2,
                       number % 2 ? ", products and activations as one" : "");
        bench_open(&b, model, model->layer_count - 1, (struct shape){1, 3},
                   number % 2 ? as_one() : kernels_ref_f64(), VOCABULARY, seed);
        b.tolerance = 1e-5; /* higher derivatives of products of many values are large */
        bench_check_gradients(&b, what);
        bench_check_sizes(&b, what, spare_bytes(b.layer->config, 3));
        const double loss = bench_loss(&b, LAYER_EVAL);
        if (number % 2 && !(fabs(loss - evaluated) <= 1e-9 * (1 + fabs(loss))))
            fail_msg("%s: evaluated to %.17g, not %.17g", what, loss, evaluated);
        evaluated = loss;
        bench_close(&b);
    }
    assert_true(calls_as_one > 1000 && sums_as_one > 1000 && biases_as_one > 100);
}

/* ---- memory ---- */

static void a_block(struct writer *w, int from)
{
    int x = program_input(w, from);
    int h = program_layer_norm(w, x, "ln", 1e-5);
    h = program_activation(w, program_linear(w, h, 4 * WIDTH, "fc", true, 0.1), ACTIVATION_GELU_TANH);
    program_result(w, program_add(w, x, program_linear(w, h, WIDTH, "proj", true, 0.1)));
}

/* What backward does not read is not kept: the second product and the sum are the output. */
static void what_backward_does_not_read_is_not_saved(void **state)
{
    (void)state;
    struct writer w = begin();
    int first = source(&w, "first", WIDTH);
    (void)program_layer(&w, "block");
    a_block(&w, first);
    GUARD(guard_model) struct model *model = finish(&w);
    const struct program *p = model->layers[1].config;
    struct layer_sizes sizes;
    const struct shape shape = {2, 32}; /* 64 rows: all sizes are multiples of the alignment */
    program_ops.sizes(p, shape, DTYPE_F64, LAYER_TRAIN, kernels_ref_f64(), &sizes);
    const int64_t row = 64 * 8;
    assert_int_equal(sizes.out, WIDTH * row);
    assert_int_equal(sizes.saved,
                     (WIDTH + 2 + 4 * WIDTH + 4 * WIDTH) * row); /* ln, its statistics, fc, gelu */
    /* the gradient of gelu's output, then of fc's, next to the gradient of ln's output; the sum's is dout */
    assert_int_equal(sizes.work, (4 * WIDTH + WIDTH) * row);
    program_ops.sizes(p, shape, DTYPE_F64, LAYER_RECOMPUTE, kernels_ref_f64(), &sizes);
    assert_int_equal(sizes.work, 0);
    /* evaluation: ln and fc at once, then gelu over fc */
    program_ops.sizes(p, shape, DTYPE_F64, LAYER_EVAL, kernels_ref_f64(), &sizes);
    assert_int_equal(sizes.work, (WIDTH + 4 * WIDTH) * row);
    assert_int_equal(sizes.saved, 0);
}

/* Sizes are for the plan's largest shape: a smaller shape never needs more. */
static void a_smaller_shape_needs_no_more(void **state)
{
    (void)state;
    for (int number = 0; number < 200; number++) {
        uint64_t seed = (uint64_t)number + 77;
        GUARD(guard_model) struct model *model = random_model(&seed);
        const struct layer_desc *layer = &model->layers[model->layer_count - 1];
        struct layer_sizes before = {0};
        for (int T = 1; T < 40; T += 3) {
            struct layer_sizes sizes;
            layer->ops->sizes(layer->config, (struct shape){1, T}, DTYPE_F32, LAYER_TRAIN, kernels_ref_f32(),
                              &sizes);
            assert_true(sizes.saved >= before.saved && sizes.work >= before.work);
            before = sizes;
        }
    }
}

/* ---- parameters ---- */

static void a_parameter_may_be_used_twice(void **state)
{
    (void)state;
    struct writer w = begin();
    int first = source(&w, "first", WIDTH);
    (void)program_layer(&w, "layer");
    int x = program_input(&w, first);
    int weight = program_parameter(&w, "weight", WIDTH, WIDTH, PARAM_INIT_NORMAL, 1);
    int bias = program_parameter(&w, "bias", WIDTH, 0, PARAM_INIT_ZERO, 0);
    int own = program_parameter(&w, "own", WIDTH, 0, PARAM_INIT_ZERO, 0);
    int gain = program_parameter(&w, "gain", WIDTH, 0, PARAM_INIT_ONE, 0);
    int h = program_activation(&w, program_linear_by(&w, x, weight, bias), ACTIVATION_TANH);
    h = program_layer_norm_by(&w, program_linear_by(&w, h, weight, own), gain, bias, 0.1);
    program_result(&w, program_rms_norm_by(&w, h, gain, 0.1));
    GUARD(guard_model) struct model *model = finish(&w);
    assert_int_equal(model->layers[1].param_count, 4);
    struct layer_bench b;
    bench_open(&b, model, 1, (struct shape){2, 3}, kernels_ref_f64(), VOCABULARY, 1);
    b.tolerance = 1e-7;
    bench_check_gradients(&b, "parameters used twice");
    bench_close(&b);
}

/* Attention forms all three gradients or none: unwanted gradients go to spare memory. */
static void attention_may_read_other_layers(void **state)
{
    (void)state;
    struct writer w = begin();
    int a = source(&w, "a", WIDTH), b = source(&w, "b", WIDTH / 2), c = source(&w, "c", WIDTH / 2);
    (void)program_layer(&w, "layer");
    int q = program_input(&w, a), k = program_input(&w, b), v = program_input(&w, c);
    assert_int_equal(program_input(&w, b), k); /* one value, however often it is asked for */
    program_result(&w, program_attention(&w, q, k, v, 2, 1, true));
    GUARD(guard_model) struct model *model = finish(&w);
    assert_int_equal(model->layers[3].source_count, 3);
    struct layer_bench bench;
    bench_open(&bench, model, 3, (struct shape){2, 5}, kernels_ref_f64(), VOCABULARY, 1);
    bench_check_gradients(&bench, "attention over other layers");
    bench_close(&bench);
}

/* Several documents in a row: each has positions of its own, after the rows that no sequence reads. */
static void documents_read_positions_of_their_own(void **state)
{
    (void)state;
    enum { FIRST = 2, POSITIONS = 5 };
    static const int32_t places[] = {0, 1, 2, 0, 1, 0, 0, 1, 2, 1};
    struct muster_error err = {0};
    struct writer w = begin();
    (void)program_layer(&w, "embedding");
    const int table = program_parameter(&w, "table", VOCABULARY, WIDTH, PARAM_INIT_NORMAL, 1),
              positions = program_parameter(&w, "positions", POSITIONS, WIDTH, PARAM_INIT_NORMAL, 1);
    program_result(&w, program_embedding_from(&w, 0, table, positions, FIRST));
    GUARD(guard_model) struct model *model = finish(&w);
    assert_int_equal(model_pack(model, &err), 0);
    struct layer_bench b;
    bench_open(&b, model, 0, (struct shape){2, 5}, kernels_ref_f64(), VOCABULARY, 1);
    memcpy(b.more[2], places, sizeof places);
    double sum = 0;
    for (int i = 0; i < 10; i++)
        for (int c = 0; c < WIDTH; c++)
            sum += b.slope[i * WIDTH + c] *
                   (b.weight[0][b.tokens[i] * WIDTH + c] + b.weight[1][(FIRST + places[i]) * WIDTH + c]);
    assert_true(fabs(bench_loss(&b, LAYER_TRAIN) - sum) < 1e-12);
    bench_check_gradients(&b, "positions of documents");
    bench_check_sizes(&b, "positions of documents", 0);
    bench_close(&b);
}

/* ---- errors ---- */

static void wide(struct writer *w, int x)
{
    program_result(w, program_add(w, x, program_linear(w, x, WIDTH + 1, "fc", false, 1)));
}

static void too_many_steps(struct writer *w, int x)
{
    for (int i = 0; i <= PROGRAM_STEPS; i++)
        x = program_activation(w, x, ACTIVATION_RELU);
    program_result(w, x);
}

static void too_many_values(struct writer *w, int x)
{
    for (int i = 0; i < PROGRAM_VALUES / 3 + 1; i++)
        x = program_layer_norm_by(w, x, 1, 2, 1);
    program_result(w, x);
}

static void too_many_parameters(struct writer *w, int x)
{
    char name[16];
    for (int i = 0; i < LAYER_PARAMS; i++) {
        (void)snprintf(name, sizeof name, "fc%d", i);
        x = program_linear(w, x, WIDTH, name, i == 0, 1);
    }
    program_result(w, x);
}

static void unread(struct writer *w, int x)
{
    (void)program_rms_norm(w, x, "norm", 1);
    program_result(w, program_activation(w, x, ACTIVATION_SILU));
}

static void unread_input(struct writer *w, int x)
{
    (void)x;
    int table = program_parameter(w, "table", 4, WIDTH, PARAM_INIT_NORMAL, 1);
    program_result(w, program_embedding(w, 0, table, -1));
}

static void no_result(struct writer *w, int x)
{
    (void)program_activation(w, x, ACTIVATION_SILU);
    (void)program_layer(w, "next");
}

static void input_as_result(struct writer *w, int x)
{
    program_result(w, x);
}

static void heads(struct writer *w, int x)
{
    program_result(w, program_attention_packed(w, x, 4, 4, true));
}

static void kv_heads(struct writer *w, int x)
{
    int k = program_linear(w, x, 4, "k", false, 1), v = program_linear(w, x, 4, "v", false, 1);
    program_result(w, program_attention(w, x, k, v, 3, 2, true));
}

static void head_sizes(struct writer *w, int x)
{
    int k = program_linear(w, x, 4, "k", false, 1), v = program_linear(w, x, 4, "v", false, 1);
    program_result(w, program_attention(w, x, k, v, 3, 1, true));
}

static void odd_heads(struct writer *w, int x)
{
    program_result(w, program_rotary(w, x, 2, &(struct rotary){.theta = 10}));
}

static void twice(struct writer *w, int x)
{
    program_result(w, program_swiglu(w, x, x));
}

static void shapes(struct writer *w, int x)
{
    int weight = program_parameter(w, "weight", 3, WIDTH - 1, PARAM_INIT_NORMAL, 1);
    program_result(w, program_linear_by(w, x, weight, -1));
}

static void unknown_parameter(struct writer *w, int x)
{
    program_result(w, program_linear_by(w, x, 99, -1));
}

static void unknown_value(struct writer *w, int x)
{
    program_result(w, program_add(w, x, 17));
}

static void long_name(struct writer *w, int x)
{
    program_result(w, program_rms_norm(w, x, "a_name_that_no_checkpoint_has_because_it_is_far_too_long", 1));
}

static void later_layer(struct writer *w, int x)
{
    program_result(w, program_add(w, x, program_input(w, 1)));
}

static void certain_dropout(struct writer *w, int x)
{
    program_result(w, program_dropout(w, x, 1));
}

static void other_input(struct writer *w, int x)
{
    program_cross_entropy(w, x, 0, 2);
}

static void the_writer_keeps_the_first_error_and_names_the_layer(void **state)
{
    (void)state;
    static const struct {
        void (*write)(struct writer *w, int x);
        const char *text;
    } bad[] = {
        {wide, "layer middle: add reads values of 6 and 7 elements"},
        {too_many_steps, "layer middle: it has more than 80 operations"},
        {too_many_values, "layer middle: it has more than 96 values"},
        {too_many_parameters, "layer middle: it has more than 36 parameters"},
        {unread, "layer middle: the rms_norm of middle.norm.weight is read by no operation"},
        {unread_input, "layer middle: the input is read by no operation"},
        {no_result, "layer middle: it was not closed"},
        {input_as_result, "layer middle: its result is value 0"},
        {heads, "layer middle: attention_packed: 6 elements are not 4 + 2 x 4 heads"},
        {kv_heads, "layer middle: attention has 3 heads, which is not a multiple of 2 KV heads"},
        {head_sizes, "q, k and v of 6, 4 and 4 elements"},
        {odd_heads, "6 elements are not 2 heads of an even size"},
        {twice, "layer middle: gated reads one value twice"},
        {shapes, "linear uses middle.weight of (3, 5), but needs (3, 6)"},
        {unknown_parameter, "linear uses parameter 99"},
        {unknown_value, "add reads value 17"},
        {long_name, "has a name of more than 63 characters"},
        {later_layer, "it reads layer 1"},
        {certain_dropout, "dropout has the probability 1"},
        {other_input, "cross_entropy reads image of the batch, which is not one i32 a position"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct muster_error err = {0};
        struct writer w = begin();
        (void)writer_input(&w, "image", DTYPE_U8, false, 12);
        int first = source(&w, "first", WIDTH);
        (void)program_layer(&w, "middle");
        int x = program_input(&w, first);
        if (bad[i].write == too_many_values) {
            (void)program_parameter(&w, "gain", WIDTH, 0, PARAM_INIT_ONE, 0);
            (void)program_parameter(&w, "bias", WIDTH, 0, PARAM_INIT_ONE, 0);
        }
        bad[i].write(&w, x);
        struct muster_error kept = w.error;
        (void)program_layer(&w, "after");
        assert_int_equal(program_input(&w, 0), -1);
        assert_null(writer_finish(&w, &err));
        if (!strstr(err.text, bad[i].text))
            fail_msg("%zu: \"%s\" instead of \"%s\"", i, err.text, bad[i].text);
        assert_string_equal(err.text, kept.code ? kept.text : err.text);
    }
}

static void an_operation_outside_of_a_layer_is_refused(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct writer w = begin();
    program_result(&w, program_add(&w, 0, 1));
    assert_null(writer_finish(&w, &err));
    assert_non_null(strstr(err.text, "outside of a layer"));
    struct writer empty = begin();
    assert_null(writer_finish(&empty, &err));
    assert_non_null(strstr(err.text, "0 parameters and 0 layers"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_have_the_gradients_of_finite_differences),
        cmocka_unit_test(what_backward_does_not_read_is_not_saved),
        cmocka_unit_test(a_smaller_shape_needs_no_more),
        cmocka_unit_test(a_parameter_may_be_used_twice),
        cmocka_unit_test(attention_may_read_other_layers),
        cmocka_unit_test(documents_read_positions_of_their_own),
        cmocka_unit_test(the_writer_keeps_the_first_error_and_names_the_layer),
        cmocka_unit_test(an_operation_outside_of_a_layer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
