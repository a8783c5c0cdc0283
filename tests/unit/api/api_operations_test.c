/* api_operations_test.c - operations of muster_model.h: the values that a forward pass gives against their
 * formulas, the gradients of a step against finite differences, and the errors of each. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/include/muster.h"

enum { IN = 5, OUT = 2, SAMPLES = 2, MOST = 4, WIDEST = 64, ELEMENTS = 1 << 12 };

/* A case's model: the handles of x and y, the widths of their rows, and the trainer. */
struct built {
    int32_t x, y, other;
    int64_t x_width, y_width;
    int positions;
    struct muster_trainer *trainer;
};

/* One operation: y from x, and the same by its formula, of all rows. */
struct operation {
    const char *name;
    int positions;
    int64_t width, result;
    int32_t (*build)(struct muster_model *m, int32_t x, struct built *b);
    void (*formula)(const struct built *b, const float *x, const float *other, double *y);
};

static const float *values_of(const struct built *b, const char *parameter)
{
    static float values[2][ELEMENTS];
    static int turn;
    float *to = values[turn++ % 2];
    struct muster_error err = {0};
    const int32_t number = muster_trainer_parameter(b->trainer, parameter);
    assert_true(number >= 0 && muster_trainer_parameter_elements(b->trainer, number) <= ELEMENTS);
    assert_int_equal(muster_trainer_get(b->trainer, number, to, &err), 0);
    return to;
}

static int64_t rows_of(const struct built *b)
{
    return (int64_t)SAMPLES * b->positions;
}

/* ---- by handles of parameters ---- */

static int32_t build_linear_by(struct muster_model *m, int32_t x, struct built *b)
{
    (void)b;
    const int32_t weight = muster_parameter(m, "w", 3, 6, MUSTER_NORMAL, 0.4, 0),
                  bias = muster_parameter(m, "b", 3, 0, MUSTER_NORMAL, 0.3, 0);
    return muster_linear_by(m, x, weight, bias);
}

static void linear_by(const struct built *b, const float *x, const float *other, double *y)
{
    const float *weight = values_of(b, "op.w"), *bias = values_of(b, "op.b");
    (void)other;
    for (int64_t r = 0; r < rows_of(b); r++)
        for (int o = 0; o < 3; o++) {
            y[r * 3 + o] = bias[o];
            for (int i = 0; i < 6; i++)
                y[r * 3 + o] += (double)weight[o * 6 + i] * x[r * 6 + i];
        }
}

static int32_t build_layer_norm_by(struct muster_model *m, int32_t x, struct built *b)
{
    (void)b;
    const int32_t weight = muster_parameter(m, "w", 6, 0, MUSTER_NORMAL, 1, 0),
                  bias = muster_parameter(m, "b", 6, 0, MUSTER_NORMAL, 0.3, 0);
    return muster_layer_norm_by(m, x, weight, bias, 1e-3);
}

static int32_t build_rms_norm_by(struct muster_model *m, int32_t x, struct built *b)
{
    (void)b;
    return muster_rms_norm_by(m, x, muster_parameter(m, "w", 6, 0, MUSTER_NORMAL, 1, 0), 1e-3);
}

static void norm(const float *x, const float *weight, const float *bias, double *y)
{
    double mean = 0, square = 0;
    for (int i = 0; i < 6; i++)
        mean += bias ? x[i] / 6.0 : 0;
    for (int i = 0; i < 6; i++)
        square += (x[i] - mean) * (x[i] - mean) / 6.0;
    for (int i = 0; i < 6; i++)
        y[i] = (x[i] - mean) / sqrt(square + 1e-3) * weight[i] + (bias ? (double)bias[i] : 0);
}

static void layer_norm_by(const struct built *b, const float *x, const float *other, double *y)
{
    const float *weight = values_of(b, "op.w"), *bias = values_of(b, "op.b");
    (void)other;
    for (int64_t r = 0; r < rows_of(b); r++)
        norm(x + r * 6, weight, bias, y + r * 6);
}

static void rms_norm_by(const struct built *b, const float *x, const float *other, double *y)
{
    const float *weight = values_of(b, "op.w");
    (void)other;
    for (int64_t r = 0; r < rows_of(b); r++)
        norm(x + r * 6, weight, NULL, y + r * 6);
}

/* ---- operations on elements ---- */

static int32_t build_scale(struct muster_model *m, int32_t x, struct built *b)
{
    (void)b;
    return muster_scale(m, x, -1.75);
}

static void scale(const struct built *b, const float *x, const float *other, double *y)
{
    (void)other;
    for (int64_t i = 0; i < rows_of(b) * b->x_width; i++)
        y[i] = -1.75 * x[i];
}

static int32_t build_relu(struct muster_model *m, int32_t x, struct built *b)
{
    (void)b;
    return muster_relu(m, x);
}

static void relu(const struct built *b, const float *x, const float *other, double *y)
{
    (void)other;
    for (int64_t i = 0; i < rows_of(b) * b->x_width; i++)
        y[i] = x[i] > 0 ? x[i] : 0;
}

static int32_t build_swiglu(struct muster_model *m, int32_t x, struct built *b)
{
    b->other = muster_linear(m, x, 6, "up", 0.5, 0);
    return muster_swiglu(m, x, b->other);
}

static void swiglu(const struct built *b, const float *x, const float *other, double *y)
{
    for (int64_t i = 0; i < rows_of(b) * b->x_width; i++)
        y[i] = x[i] / (1 + exp(-(double)x[i])) * other[i];
}

static int32_t build_gated(struct muster_model *m, int32_t x, struct built *b)
{
    b->other = muster_linear(m, x, 6, "up", 0.5, 0);
    return muster_gated(m, x, b->other, "tanh");
}

static void gated(const struct built *b, const float *x, const float *other, double *y)
{
    for (int64_t i = 0; i < rows_of(b) * b->x_width; i++)
        y[i] = tanh((double)x[i]) * other[i];
}

static int32_t build_slice(struct muster_model *m, int32_t x, struct built *b)
{
    (void)b;
    return muster_slice(m, x, 2, 1, 2);
}

static void slice(const struct built *b, const float *x, const float *other, double *y)
{
    (void)other;
    for (int64_t i = 0; i < rows_of(b) * 4; i++)
        y[i] = x[i / 2 * 3 + 1 + i % 2];
}

/* ---- places ---- */

static int32_t build_rotary_linear(struct muster_model *m, int32_t x, struct built *b)
{
    (void)b;
    return muster_rotary_scaled(m, x, 2, 100, "linear", 2, 0, 0, 0);
}

static int32_t build_rotary_llama3(struct muster_model *m, int32_t x, struct built *b)
{
    (void)b;
    return muster_rotary_scaled(m, x, 2, 100, "llama3", 8, 1, 4, 64);
}

/* Two heads of 8 elements. */
static void turn(const struct built *b, const float *x, double *y, double (*frequency)(int pair))
{
    for (int64_t r = 0; r < rows_of(b); r++)
        for (int head = 0; head < 2; head++)
            for (int i = 0; i < 4; i++) {
                const double angle = (double)(r % b->positions) * frequency(i), c = cos(angle),
                             s = sin(angle);
                const int64_t first = r * 16 + head * 8 + i, second = first + 4;
                y[first] = x[first] * c - x[second] * s;
                y[second] = x[second] * c + x[first] * s;
            }
}

static double linear_frequency(int pair)
{
    return pow(100, -2.0 * pair / 8) / 2;
}

/* Computed as in transformers, with factor 8, low 1, high 4 and 64 positions. */
static double llama3_frequency(int pair)
{
    const double plain = pow(100, -2.0 * pair / 8), turns = 64 * plain / (2 * acos(-1));
    const double share = (turns - 1) / 3; /* share of the plain frequency */
    return turns > 4 ? plain : turns < 1 ? plain / 8 : (1 - share) * plain / 8 + share * plain;
}

static void rotary_linear(const struct built *b, const float *x, const float *other, double *y)
{
    (void)other;
    turn(b, x, y, linear_frequency);
}

static void rotary_llama3(const struct built *b, const float *x, const float *other, double *y)
{
    (void)other;
    turn(b, x, y, llama3_frequency);
}

/* ---- pictures of 2 channels, 5 rows, 4 columns ---- */

enum { CHANNELS = 2, HEIGHT = 5, WIDTH = 4, FILTERS = 3 };

static int32_t build_conv2d(struct muster_model *m, int32_t x, struct built *b)
{
    int32_t shape[3] = {CHANNELS, HEIGHT, WIDTH};
    (void)b;
    const int32_t y = muster_conv2d(m, x, shape, FILTERS, 3, 2, 1, "conv", 0);
    assert_true(shape[0] == FILTERS && shape[1] == 3 && shape[2] == 2);
    return y;
}

static double at(const float *x, int64_t sample, int channel, int row, int column, double outside)
{
    return row < 0 || row >= HEIGHT || column < 0 || column >= WIDTH
               ? outside
               : x[((sample * CHANNELS + channel) * HEIGHT + row) * WIDTH + column];
}

static void conv2d(const struct built *b, const float *x, const float *other, double *y)
{
    const float *weight = values_of(b, "op.conv.weight"), *bias = values_of(b, "op.conv.bias");
    (void)other;
    for (int64_t n = 0; n < SAMPLES; n++)
        for (int f = 0; f < FILTERS; f++)
            for (int i = 0; i < 3; i++)
                for (int j = 0; j < 2; j++) {
                    double sum = bias[f];
                    for (int c = 0; c < CHANNELS; c++)
                        for (int k = 0; k < 9; k++)
                            sum += weight[(f * CHANNELS + c) * 9 + k] *
                                   at(x, n, c, 2 * i - 1 + k / 3, 2 * j - 1 + k % 3, 0);
                    y[((n * FILTERS + f) * 3 + i) * 2 + j] = sum;
                }
}

static int32_t build_max_pool2d(struct muster_model *m, int32_t x, struct built *b)
{
    int32_t shape[3] = {CHANNELS, HEIGHT, WIDTH};
    (void)b;
    const int32_t y = muster_max_pool2d(m, x, shape, 3, 2, 1);
    assert_true(shape[0] == CHANNELS && shape[1] == 3 && shape[2] == 2);
    return y;
}

static void max_pool2d(const struct built *b, const float *x, const float *other, double *y)
{
    (void)other;
    (void)b;
    for (int64_t n = 0; n < SAMPLES; n++)
        for (int c = 0; c < CHANNELS; c++)
            for (int i = 0; i < 3; i++)
                for (int j = 0; j < 2; j++) {
                    double most = -INFINITY;
                    for (int k = 0; k < 9; k++)
                        most = fmax(most, at(x, n, c, 2 * i - 1 + k / 3, 2 * j - 1 + k % 3, -INFINITY));
                    y[((n * CHANNELS + c) * 3 + i) * 2 + j] = most;
                }
}

static int32_t build_avg_pool2d(struct muster_model *m, int32_t x, struct built *b)
{
    int32_t shape[3] = {CHANNELS, HEIGHT, WIDTH};
    (void)b;
    const int32_t y = muster_avg_pool2d(m, x, shape, 2, 3);
    assert_true(shape[0] == CHANNELS && shape[1] == 2 && shape[2] == 3);
    return y;
}

/* Window i of n over `size` elements begins at floor(i size / n) and ends before ceil((i + 1) size / n). */
static void avg_pool2d(const struct built *b, const float *x, const float *other, double *y)
{
    (void)other;
    (void)b;
    for (int64_t n = 0; n < SAMPLES; n++)
        for (int c = 0; c < CHANNELS; c++)
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 3; j++) {
                    double sum = 0;
                    int count = 0;
                    for (int row = i * HEIGHT / 2; row < ((i + 1) * HEIGHT + 1) / 2; row++)
                        for (int column = j * WIDTH / 3; column < ((j + 1) * WIDTH + 2) / 3;
                             column++, count++)
                            sum += at(x, n, c, row, column, 0);
                    y[((n * CHANNELS + c) * 2 + i) * 3 + j] = sum / count;
                }
}

static const struct operation operations[] = {
    {"linear_by", 3, 6, 3, build_linear_by, linear_by},
    {"layer_norm_by", 3, 6, 6, build_layer_norm_by, layer_norm_by},
    {"rms_norm_by", 3, 6, 6, build_rms_norm_by, rms_norm_by},
    {"scale", 3, 6, 6, build_scale, scale},
    {"relu", 3, 6, 6, build_relu, relu},
    {"swiglu", 3, 6, 6, build_swiglu, swiglu},
    {"gated", 3, 6, 6, build_gated, gated},
    {"slice", 3, 6, 4, build_slice, slice},
    {"rotary_scaled, linear", MOST, 16, 16, build_rotary_linear, rotary_linear},
    {"rotary_scaled, llama3", MOST, 16, 16, build_rotary_llama3, rotary_llama3},
    {"conv2d", 1, 40, 18, build_conv2d, conv2d},
    {"max_pool2d", 1, 40, 12, build_max_pool2d, max_pool2d},
    {"avg_pool2d", 1, 40, 12, build_avg_pool2d, avg_pool2d},
};

/* ---- one case ---- */

static struct muster_model *model_of(const struct operation *o, struct built *b)
{
    struct muster_model *m = muster_model_new("one", NULL);
    *b = (struct built){.x_width = o->width, .y_width = o->result, .positions = o->positions, .other = -1};
    const int32_t in = muster_model_input(m, "in", MUSTER_F32, IN),
                  wanted = muster_model_input(m, "wanted", MUSTER_F32, OUT);
    muster_layer(m, "op");
    b->x = muster_linear(m, muster_values(m, in), o->width, "in", 0.5, 0);
    b->y = o->build(m, b->x, b);
    muster_layer(m, "end");
    muster_squared_error(m, muster_linear(m, b->y, OUT, "out", 0.5, 0), wanted);
    return m;
}

static struct muster_trainer *open_case(const struct operation *o, struct muster_model *m)
{
    char positions[40];
    (void)snprintf(positions, sizeof positions, "training.sequence_length=%d", o->positions);
    const char *settings[] = {positions,
                              "training.global_batch=2",
                              "training.micro_batch=2",
                              "training.threads=1",
                              "training.optimizer=SGD",
                              "training.learning_rate=1",
                              "training.schedule=constant",
                              "training.warmup_steps=0",
                              "training.weight_decay=0",
                              "training.clip_norm=0",
                              NULL};
    struct muster_error err = {0};
    struct muster_trainer *t = muster_trainer_open(NULL, m, settings, &err);
    if (!t)
        fail_msg("%s: %s", o->name, err.text);
    return t;
}

static void check_values(const struct operation *o, const struct built *b, const void *const *arrays)
{
    static float x[ELEMENTS], other[ELEMENTS], y[ELEMENTS];
    static double expected[ELEMENTS];
    struct muster_error err = {0};
    assert_int_equal(muster_trainer_forward(b->trainer, arrays, SAMPLES, b->x, x, NULL, &err), 0);
    assert_int_equal(muster_trainer_forward(b->trainer, arrays, SAMPLES, b->y, y, NULL, &err), 0);
    if (b->other >= 0)
        assert_int_equal(muster_trainer_forward(b->trainer, arrays, SAMPLES, b->other, other, NULL, &err), 0);
    o->formula(b, x, other, expected);
    for (int64_t i = 0; i < rows_of(b) * b->y_width; i++)
        if (!(fabs(y[i] - expected[i]) < 1e-5 * (1 + fabs(expected[i]))))
            fail_msg("%s: element %d is %g, and by the formula %g", o->name, (int)i, y[i], expected[i]);
}

static double loss_of(const struct built *b, const void *const *arrays)
{
    double sums[2];
    struct muster_error err = {0};
    assert_int_equal(muster_trainer_evaluate(b->trainer, arrays, SAMPLES, sums, &err), 0);
    return sums[0] / sums[1];
}

/* A step of SGD of rate 1 subtracts the gradient from each parameter. */
static void check_gradients(const struct operation *o, const struct built *b, const void *const *arrays)
{
    static float values[16][ELEMENTS], now[ELEMENTS];
    static double slopes[16][ELEMENTS];
    const float h = 2e-3f;
    struct muster_error err = {0};
    const int32_t count = muster_trainer_parameters(b->trainer);
    double largest = 0;
    assert_true(count <= 16);
    for (int32_t p = 0; p < count; p++) {
        float *v = values[p];
        assert_int_equal(muster_trainer_get(b->trainer, p, v, &err), 0);
        for (int64_t i = 0; i < muster_trainer_parameter_elements(b->trainer, p); i++) {
            const float was = v[i];
            double losses[2];
            for (int side = 0; side < 2; side++) {
                v[i] = side ? was + h : was - h;
                assert_int_equal(muster_trainer_put(b->trainer, p, v, &err), 0);
                losses[side] = loss_of(b, arrays);
            }
            slopes[p][i] = (losses[1] - losses[0]) / (double)((was + h) - (was - h));
            largest = fmax(largest, fabs(slopes[p][i]));
            v[i] = was;
        }
        assert_int_equal(muster_trainer_put(b->trainer, p, v, &err), 0);
    }
    assert_int_equal(muster_trainer_train(b->trainer, arrays, SAMPLES, NULL, &err), 0);
    for (int32_t p = 0; p < count; p++) {
        assert_int_equal(muster_trainer_get(b->trainer, p, now, &err), 0);
        for (int64_t i = 0; i < muster_trainer_parameter_elements(b->trainer, p); i++)
            if (!(fabs((double)values[p][i] - now[i] - slopes[p][i]) < 1e-3 * (largest + 0.1)))
                fail_msg("%s: gradient of %s[%d] is %g, by differences %g", o->name,
                         muster_trainer_parameter_name(b->trainer, p), (int)i, (double)values[p][i] - now[i],
                         slopes[p][i]);
    }
}

static void values_and_gradients(void **state)
{
    (void)state;
    float in[SAMPLES * MOST * IN], wanted[SAMPLES * MOST * OUT];
    for (int i = 0; i < SAMPLES * MOST * IN; i++)
        in[i] = (float)sin(1.7 * i + 0.3);
    for (int i = 0; i < SAMPLES * MOST * OUT; i++)
        wanted[i] = (float)cos(2.3 * i);
    const void *arrays[] = {in, wanted};
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const struct operation *o = &operations[i];
        struct built b;
        struct muster_model *m = model_of(o, &b);
        b.trainer = open_case(o, m);
        check_values(o, &b, arrays);
        check_gradients(o, &b, arrays);
        muster_trainer_close(&b.trainer);
        muster_model_free(m);
    }
}

/* ---- mistakes ---- */

static void widths_differ(struct muster_model *m, int32_t x)
{
    (void)muster_swiglu(m, x, muster_linear(m, x, 7, "up", 1, 0));
}

static void no_factor(struct muster_model *m, int32_t x)
{
    (void)muster_scale(m, x, NAN);
}

static void no_kind(struct muster_model *m, int32_t x)
{
    (void)muster_rotary_scaled(m, x, 1, 100, "yarn", 2, 0, 0, 0);
}

static void no_name(struct muster_model *m, int32_t x)
{
    int32_t shape[3] = {1, 2, 3};
    (void)muster_conv2d(m, x, shape, 1, 1, 1, 0, "", 0);
}

static void other_flags(struct muster_model *m, int32_t x)
{
    int32_t shape[3] = {1, 2, 3};
    (void)muster_conv2d(m, x, shape, 1, 1, 1, 0, "conv", MUSTER_FROZEN);
}

static void no_shape(struct muster_model *m, int32_t x)
{
    int32_t shape[3] = {1, 2, 2};
    (void)muster_max_pool2d(m, x, shape, 2, 2, 0);
}

static void no_window(struct muster_model *m, int32_t x)
{
    int32_t shape[3] = {1, 2, 3};
    (void)muster_avg_pool2d(m, x, shape, 0, 1);
}

static void no_weight(struct muster_model *m, int32_t x)
{
    (void)muster_linear_by(m, x, -1, -1);
}

static void other_width(struct muster_model *m, int32_t x)
{
    (void)muster_rms_norm_by(m, x, muster_parameter(m, "w", 5, 0, MUSTER_ONE, 0, 0), 1e-5);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        void (*build)(struct muster_model *m, int32_t x);
        const char *text;
    } rows[] = {
        {widths_differ, "gated"},  {no_factor, "scale"},     {no_kind, "yarn"},
        {no_name, "conv2d"},       {other_flags, "flags 1"}, {no_shape, "max_pool2d"},
        {no_window, "avg_pool2d"}, {no_weight, "linear"},    {other_width, "rms_norm"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct muster_error err = {0};
        struct muster_model *m = muster_model_new("wrong", NULL);
        const int32_t in = muster_model_input(m, "in", MUSTER_F32, 6);
        muster_layer(m, "op");
        rows[i].build(m, muster_linear(m, muster_values(m, in), 6, "in", 0.5, 0));
        assert_int_equal(muster_model_check(m, &err), -1);
        print_message("%s\n", err.text);
        if (!strstr(err.text, rows[i].text))
            fail_msg("'%s' does not name '%s'", err.text, rows[i].text);
        muster_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_gradients),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
