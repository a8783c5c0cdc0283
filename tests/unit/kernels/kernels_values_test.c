/* kernels_values_test.c - the reference of bf16 and f16, and the CPU's table of bf16 where the processor has
 * one, against the reference of float, over operands that 16 bits hold: each value is the float's, rounded
 * once, and statistics and gradients of parameters are the float's. Every operation of the table with values
 * is compared. The CPU's table adds up in float, and its attention rounds probabilities. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/narrow.h"
#include "proto/base/mem.h"
#include "tests/unit/kernels/kernels_support.h"

enum { WIDE, NARROW, SIDES };
enum { ARRAYS = 16, TRIALS = 6 };

/* One operand, as float on one side and as the table has it on the other. */
struct array {
    void *sides[SIDES];
    size_t n;
    bool narrow; /* values or weights */
};

static const struct kernels *table; /* its values have 16 bits */
static struct array arrays[ARRAYS];
static int array_count, side;
static int grown = 1;  /* sizes are so many times the reference's */
static double summing; /* what sums of float may be off by */
static void *work;     /* enough for every call */
enum { WORK_BYTES = 64 << 20, AFTER = 4096 };

enum operation {
#define OPERATION(name, parameters, arguments) OPERATION_##name,
#define FIXED(name, parameters, arguments)
#include "kernels/operations.inc"
    OPERATIONS
};
static const char *const operation_names[] = {
#define OPERATION(name, parameters, arguments) #name,
#define FIXED(name, parameters, arguments)
#include "kernels/operations.inc"
};
static bool compared[OPERATIONS];

static uint16_t narrow(float x)
{
    return table->value == DTYPE_BF16 ? narrow_to_bf16(x) : narrow_to_f16(x);
}

static float widen(uint16_t x)
{
    return table->value == DTYPE_BF16 ? narrow_from_bf16(x) : narrow_from_f16(x);
}

static int add_array(size_t n, bool is_narrow, float offset)
{
    struct array *a = &arrays[array_count];
    float *wide = floats_new(n, FILL_UNIT);
    uint16_t *half = mem_calloc(n ? n : 1, sizeof *half);
    assert_true(half && array_count < ARRAYS);
    for (size_t i = 0; i < n; i++) {
        half[i] = narrow(wide[i] + offset);
        wide[i] = is_narrow ? widen(half[i]) : wide[i] + offset;
    }
    *a = (struct array){{wide, is_narrow ? (void *)half : floats_copy(wide, n)}, n, is_narrow};
    if (!is_narrow)
        mem_free(half);
    return array_count++;
}

static int V(size_t n) /* values or weights */
{
    return add_array(n, true, 0);
}

static int F(size_t n) /* statistics or gradients */
{
    return add_array(n, false, 0);
}

static void *at(int index)
{
    return arrays[index].sides[side];
}

/* Element `first` of an array. */
static void *from(int index, size_t first)
{
    return (char *)at(index) + first * (side == NARROW && arrays[index].narrow ? 2 : 4);
}

/* A value is within half a place of the float's result, which is itself off by a rounding. */
static void compare(const char *name)
{
    for (int k = 0; k < array_count; k++) {
        const struct array *a = &arrays[k];
        float *wide = a->sides[WIDE];
        for (size_t i = 0; i < a->n; i++) {
            const uint16_t *half = a->sides[NARROW];
            const float got = a->narrow ? widen(half[i]) : ((float *)a->sides[NARROW])[i];
            int exponent;
            (void)frexpf(wide[i], &exponent);
            const float half_place = ldexpf(1, exponent - (table->value == DTYPE_BF16 ? 9 : 12));
            const float allowed = a->narrow ? 1.001F * half_place : 1e-5F * fabsf(wide[i]);
            if (!(fabsf(got - wide[i]) <= allowed + 1e-7F + (float)summing))
                fail_msg("%s %s: array %d, element %zu is %.9g, of float %.9g", table->name, name, k, i,
                         (double)got, (double)wide[i]);
            wide[i] = got;
        }
    }
}

/* As compare, of attention that rounds probabilities: by the norm of each array, and by its largest element.
 */
static void compare_norms(const char *name)
{
    for (int k = 0; k < array_count; k++) {
        const struct array *a = &arrays[k];
        float *wide = a->sides[WIDE];
        double off = 0, norm = 0, most = 0, largest = 0;
        for (size_t i = 0; i < a->n; i++) {
            const float got =
                a->narrow ? widen(((uint16_t *)a->sides[NARROW])[i]) : ((float *)a->sides[NARROW])[i];
            const double difference = (double)got - (double)wide[i];
            off += difference * difference, norm += (double)wide[i] * (double)wide[i];
            most = fmax(most, fabs(difference)), largest = fmax(largest, fabs((double)wide[i]));
            assert_false(isnan(got));
            wide[i] = got;
        }
        if (off > 4 * 0x1p-16 * norm + 1e-12 * (double)a->n || most > 6 * 0x1p-8 * largest + 1e-6)
            fail_msg("%s %s: array %d is off by %.3g of its norm and %.3g of its largest", table->name, name,
                     k, sqrt(off / norm), most / largest);
    }
}

#define BOTH(operation, ...)                                                                                 \
    do {                                                                                                     \
        compared[OPERATION_##operation] = true;                                                              \
        side = WIDE;                                                                                         \
        kernels_ref_f32()->operation(__VA_ARGS__, NULL);                                                     \
        side = NARROW;                                                                                       \
        table->operation(__VA_ARGS__, NULL);                                                                 \
        if (summing > 0 && !strncmp(#operation, "attention", 9))                                             \
            compare_norms(#operation);                                                                       \
        else                                                                                                 \
            compare(#operation);                                                                             \
    } while (0)

static int size_below(uint32_t limit)
{
    return 1 + (int)random_below(limit);
}

static void end(void)
{
    for (int i = 0; i < array_count; i++) {
        mem_free(arrays[i].sides[WIDE]);
        mem_free(arrays[i].sides[NARROW]);
    }
    array_count = 0;
}

static void layers(int beta)
{
    const int B = size_below(2), T = size_below(7), C = size_below(20 * (uint32_t)grown),
              OC = size_below(9 * (uint32_t)grown), N = B * T;
    const size_t n = (size_t)N * (size_t)C, outs = (size_t)N * (size_t)(OC + 1), W = (size_t)C * (size_t)OC;
    const int in = V(n), din = V(n), out = V(outs), weight = V(W), bias = V((size_t)OC);
    const int dweight = F(W), dbias = F((size_t)OC), mean = F((size_t)N), rstd = F((size_t)N);
    const int gain = V((size_t)C), dgain = F((size_t)C), normed = V(n);
    const int sum = V(n), nothing = V(n);
    const struct rotary rotary = {.theta = 10000};
    memset(arrays[nothing].sides[WIDE], 0, n * sizeof(float));
    memset(arrays[nothing].sides[NARROW], 0, n * sizeof(uint16_t));
    BOTH(linear_forward, at(out), at(in), at(weight), at(bias), N, C, OC, OC + 1);
    BOTH(linear_backward_input, at(din), at(out), at(weight), N, C, OC, OC + 1, beta);
    BOTH(linear_backward_weight, at(dweight), at(dbias), at(out), at(in), N, C, OC, OC + 1, beta);
    BOTH(layernorm_forward, at(normed), at(mean), at(rstd), at(in), at(gain), at(gain), N, C, 1e-3);
    BOTH(layernorm_backward, at(din), at(dgain), NULL, at(normed), at(in), at(mean), at(rstd), at(gain), N, C,
         beta, beta, work);
    BOTH(rms_norm_forward, at(normed), at(rstd), at(in), at(gain), N, C, 1e-3, 1);
    /* out is of the rounded sum: of a sum that is exact */
    BOTH(add_layernorm_forward, at(normed), at(sum), at(mean), at(rstd), at(in), at(nothing), at(gain),
         at(gain), N, C, 1e-3);
    BOTH(add_rms_norm_forward, at(normed), at(sum), at(rstd), at(in), at(nothing), at(gain), N, C, 1e-3, 1);
    BOTH(rms_norm_backward, at(din), at(dgain), at(normed), at(in), at(rstd), at(gain), 1, N, C, beta, beta,
         work);
    BOTH(slice_forward, at(normed), at(in), N, C, C / 2, C - C / 2);
    BOTH(slice_backward, at(din), at(normed), N, C, C / 2, C - C / 2, beta);
    if (C % 2 == 0)
        BOTH(rotary, at(din), at(in), &rotary, B, T, 1, C, 0, beta);
    end();
}

static void tables(int beta)
{
    const int B = size_below(2), T = size_below(6), C = size_below(9 * (uint32_t)grown),
              vocabulary = size_below(12);
    const size_t n = (size_t)(B * T * C), rows = (size_t)vocabulary * (size_t)C;
    scope_memory int32_t *tokens = tokens_new((size_t)(B * T), vocabulary, false);
    scope_memory int32_t *lengths = tokens_new((size_t)B, T + 1, false);
    const int out = V(n), wte = V(rows), wpe = V((size_t)(T * C)), dwte = F(rows), dwpe = F((size_t)(T * C));
    const int means = V((size_t)(B * C)), rotated = V(n);
    const struct rotary rotary = {.theta = 10000};
    BOTH(embedding_forward, at(out), tokens, at(wte), at(wpe), B, T, C);
    BOTH(embedding_backward, at(dwte), at(dwpe), at(out), tokens, B, T, C, vocabulary, T, beta);
    BOTH(rows_add, at(dwte), 0, (int64_t)rows, 0, at(out), tokens, B * T, T, C);
    BOTH(mean_forward, at(means), at(out), lengths, B, T, C);
    BOTH(mean_backward, at(out), at(means), lengths, B, T, C, beta);
    BOTH(rotary, at(rotated), at(out), &rotary, B, T, C, 1, 1, beta);
    end();
}

static void attention_of(struct attention a, int beta)
{
    a.k_row = a.v_row = a.kv_heads * a.head_size;
    a.q_row = a.heads * a.head_size + 3;
    const size_t rows = (size_t)a.B * (size_t)a.T, kv = rows * (size_t)a.k_row,
                 n = rows * (size_t)(a.heads * a.head_size), q_n = rows * (size_t)a.q_row;
    const int out = V(n), lse = F(rows * (size_t)a.heads), q = V(q_n), k = V(kv), v = V(kv);
    const int dq = V(q_n), dk = V(kv), dv = V(kv), dout = V(n), beta_of[3] = {beta, !beta, beta};
    uint8_t *after = (uint8_t *)work + table->attention_work(&a, 1);
    assert_true(after + AFTER <= (uint8_t *)work + WORK_BYTES);
    memset(after, 0x5a, AFTER);
    BOTH(attention_forward, at(out), at(lse), at(q), at(k), at(v), &a, work);
    BOTH(attention_backward, at(dq), at(dk), at(dv), at(dout), at(q), at(k), at(v), at(out), at(lse), &a,
         beta_of, work);
    for (size_t i = 0; i < AFTER; i++)
        assert_int_equal(after[i], 0x5a);
    end();
}

static void attention(int beta)
{
    struct attention a = {
        .B = 1, .T = size_below(9), .kv_heads = 1, .head_size = size_below(70), .causal = beta};
    a.heads = size_below(2);
    attention_of(a, beta);
}

/* New positions over kept keys and values. */
static void past(int beta)
{
    struct attention a = {
        .B = 1, .T = size_below(4), .kv_heads = size_below(2), .head_size = size_below(20), .causal = 1};
    a.heads = a.kv_heads * (1 + beta);
    a.q_row = a.heads * a.head_size;
    a.k_row = a.v_row = a.kv_heads * a.head_size + 2;
    const int kept = size_below(5) - 1, room = kept + a.T + 2;
    const size_t T = (size_t)a.T, caches = (size_t)(a.kv_heads * room * a.head_size);
    const int keys = V(caches), values = V(caches), q = V(T * (size_t)a.q_row), out = V(T * (size_t)a.q_row);
    const int k = V(T * (size_t)a.k_row), v = V(T * (size_t)a.v_row);
    BOTH(attention_past, at(out), at(keys), at(values), at(q), at(k), at(v), &a, kept, room, work);
    end();
}

/* Windows, caps, lengths, documents, and heads of queries that share heads of keys. */
static void longer_attention(int beta)
{
    struct attention a = {.B = size_below(2),
                          .T = size_below(110),
                          .kv_heads = size_below(2),
                          .head_size = size_below(90),
                          .causal = beta};
    a.heads = a.kv_heads * size_below(3);
    a.window = random_below(3) ? 0 : size_below(40);
    a.cap = random_below(3) ? 0 : 2;
    scope_memory int32_t *lengths = tokens_new((size_t)a.B, a.T + 1, false),
                         *positions = positions_new(a.B, a.T);
    a.lengths = random_below(2) ? lengths : NULL;
    a.positions = a.causal && random_below(2) ? positions : NULL;
    attention_of(a, beta);
    attention_of((struct attention){.B = 33, .T = size_below(9), .heads = 2, .kv_heads = 1, .head_size = 20},
                 beta);
}

static void elements(int beta)
{
    const struct step_scalars scalars = {.first_sample = 7, .seed = 5};
    const int n = 7 * size_below(20 * (uint32_t)grown), kind = (int)random_below(ACTIVATION_KINDS);
    const int a = V((size_t)n), b = V((size_t)n), c = V((size_t)n), out = V((size_t)n);
    BOTH(activation_forward, at(out), at(a), kind, n);
    BOTH(activation_backward, at(out), at(a), at(b), kind, beta, n);
    BOTH(gated_forward, at(out), at(a), at(b), kind, n);
    BOTH(gated_backward, at(out), at(c), at(a), at(b), from(a, 0), kind, beta, !beta, n);
    BOTH(dropout, at(out), at(a), n / 7, 7, 1, 3, 2, 0.3, beta, &scalars);
    BOTH(add, at(out), at(a), at(b), n);
    BOTH(accumulate, at(out), at(a), beta, n);
    BOTH(scale, at(out), 0.3, n);
    end();
}

static void losses(int gradient)
{
    const struct step_scalars scalars = {.inverse_tokens = 0.25};
    const int N = size_below(6), vocabulary = size_below(20 * (uint32_t)grown), row = vocabulary + 1;
    scope_memory int32_t *targets = tokens_new((size_t)N, vocabulary, true);
    scope_memory float *wanted = floats_new((size_t)N, FILL_UNIT);
    int32_t counted[8];
    double total[SIDES] = {0};
    const int logits = V((size_t)(N * row)), each = F((size_t)N), values = V((size_t)N);
    BOTH(correct_sum, &total[side], at(logits), targets, N, vocabulary, row);
    assert_true(total[WIDE] == total[NARROW]);
    BOTH(cross_entropy, at(logits), at(each), targets, N, vocabulary, row, gradient, &scalars);
    BOTH(squared_error, at(values), at(each), counted, wanted, N, gradient, &scalars);
    end();
}

static void pictures(int beta)
{
    const struct conv2d c = {2, size_below(4) + 2, size_below(4) + 2, 3, 2, 1, 1};
    const struct pool2d p = {2, c.height, c.width, 2, 1, 0};
    const int N = size_below(2), high = conv2d_size(c.height, 2, 1, 1), wide = conv2d_size(c.width, 2, 1, 1);
    const size_t n = (size_t)(N * 2 * c.height * c.width), outs = (size_t)(N * 3 * high * wide), weights = 24;
    const int in = V(n), din = V(n), out = V(outs), weight = V(weights), bias = V(3);
    const int dweight = F(weights), dbias = F(3);
    const int pooled = V((size_t)(N * 2 * (c.height - 1) * (c.width - 1))), small = V((size_t)(N * 2 * 2));
    BOTH(conv2d_forward, at(out), at(in), at(weight), at(bias), &c, N, work);
    BOTH(conv2d_backward_input, at(din), at(out), at(weight), &c, N, beta, work);
    BOTH(conv2d_backward_weight, at(dweight), at(dbias), at(out), at(in), &c, N, beta, work);
    BOTH(max_pool2d_forward, at(pooled), at(in), &p, N);
    BOTH(avg_pool2d_forward, at(small), at(in), 2 * N, c.height, c.width, 1, 2);
    end();
}

/* Gradients that meet in an element are added one after the other, and rounded each time: one window. */
static void pool_gradients(int beta)
{
    const struct pool2d p = {1, 2, 2, 2, 2, 0};
    const int in = V(4), din = V(4), dout = V(1);
    BOTH(max_pool2d_backward, at(din), at(in), at(dout), &p, 1, beta);
    BOTH(avg_pool2d_backward, at(din), at(dout), 1, 2, 2, 1, 1, beta);
    end();
}

static void batch_norms(int beta)
{
    const struct batch_norm b = {.channels = 2,
                                 .plane = size_below(9),
                                 .epsilon = 1e-3,
                                 .momentum = 0.1,
                                 .rows_per_sample = 1,
                                 .ranks = 1,
                                 .counts = 1};
    const struct step_scalars scalars = {.samples = 2};
    const int N = 3, betas[3] = {beta, !beta, beta};
    const size_t n = (size_t)(N * 2) * (size_t)b.plane;
    const int in = V(n), out = V(n), dout = V(n), weight = V(2), bias = V(2), mean = F(2), var = F(2);
    const int dweight = F(2), dbias = F(2), count = F(1), running = V(2), spread = add_array(2, true, 2);
    BOTH(batch_norm_forward, at(out), at(mean), at(var), at(in), at(weight), at(bias), &b, N, &scalars);
    BOTH(batch_norm_backward, at(out), at(dweight), at(dbias), at(dout), at(in), at(mean), at(var),
         at(weight), &b, N, betas, &scalars);
    BOTH(batch_norm_change, at(dweight), at(dbias), at(count), at(mean), at(var), at(running), at(spread), &b,
         N, betas, &scalars);
    BOTH(batch_norm_fixed, at(out), at(in), at(weight), at(bias), at(running), at(spread), &b, N);
    end();
}

static void each_operation(const struct kernels *of)
{
    table = of;
    memset(compared, 0, sizeof compared);
    assert_int_equal(table->statistic, DTYPE_F32);
    assert_int_equal(table->gradient, DTYPE_F32);
    for (int trial = 0; trial < TRIALS; trial++) {
        layers(trial & 1);
        tables(trial & 1);
        attention(trial & 1);
        past(trial & 1);
        elements(trial & 1);
        losses(trial & 1);
        pictures(trial & 1);
        pool_gradients(trial & 1);
        batch_norms(trial & 1);
    }
    for (int i = 0; i < OPERATIONS; i++)
        if (!compared[i])
            fail_msg("operation %s has values, and is not compared", operation_names[i]);
}

static void every_operation_rounds_once(void **state)
{
    (void)state;
    each_operation(kernels_ref_bf16());
    each_operation(kernels_ref_f16());
}

/* The CPU's own table of bf16; false: there is none, which is said. */
static bool take_fast_table(void)
{
    table = kernels_cpu_values(DTYPE_BF16);
    if (table == kernels_ref_bf16())
        printf("no fast table of bf16: no AVX512-BF16, or no libdnnl\n");
    return table != kernels_ref_bf16();
}

static void fast_operations_round_once(void **state)
{
    (void)state;
    if (!take_fast_table())
        skip();
    grown = 12, summing = 1e-5;
    each_operation(table);
    for (int trial = 0; trial < 4 * TRIALS; trial++)
        longer_attention(trial & 1);
    grown = 1, summing = 0;
}

/* Large enough for the library, with rows apart, biases, and results that are added to. */
static void fast_products_round_once(void **state)
{
    (void)state;
    if (!take_fast_table())
        skip();
    summing = 3e-5;
    for (int beta = 0; beta < 2; beta++) {
        const int N = 70 + 30 * beta, C = 96, OC = 131, row = OC + 5;
        const int in = V((size_t)N * C), out = V((size_t)N * (size_t)row), weight = V((size_t)C * OC),
                  bias = V((size_t)OC);
        const int din = V((size_t)N * C), dweight = F((size_t)C * OC), dbias = F((size_t)OC);
        BOTH(linear_forward, at(out), at(in), at(weight), beta ? at(bias) : NULL, N, C, OC, row);
        BOTH(linear_backward_input, at(din), at(out), at(weight), N, C, OC, row, beta);
        BOTH(linear_backward_weight, at(dweight), at(dbias), at(out), at(in), N, C, OC, row, beta);
        end();
    }
    summing = 0;
}

/* Parts of two threads: whole rows of enough, and columns of few, for which the library wants more memory
 * than there is. */
static void fast_products_are_cut(void **state)
{
    static const int sizes[][3] = {{193, 96, 131}, {40, 16, 60000}};
    (void)state;
    if (!take_fast_table())
        skip();
    summing = 3e-5;
    for (int i = 0; i < 2; i++) {
        const int N = sizes[i][0], C = sizes[i][1], OC = sizes[i][2], row = OC + 5;
        const int in = V((size_t)N * C), out = V((size_t)N * (size_t)row), weight = V((size_t)C * OC);
        BOTH(linear_forward, at(out), at(in), at(weight), NULL, N, C, OC, row);
        end();
    }
    summing = 0;
}

/* Convolutions of several tiles, with edges and strides, that the library multiplies; filters of one element,
 * whose gradient of a picture is a product alone; more pictures than parts. */
static void fast_pictures_round_once(void **state)
{
    static const struct {
        int N;
        struct conv2d c;
    } cases[] = {{2, {48, 26, 24, 32, 3, 1, 1}},
                 {2, {32, 21, 17, 48, 3, 2, 1}},
                 {18, {64, 7, 9, 64, 1, 1, 0}},
                 {3, {5, 13, 6, 4, 1, 2, 0}},
                 {1, {96, 33, 40, 8, 3, 2, 1}}};
    (void)state;
    if (!take_fast_table())
        skip();
    summing = 1e-4;
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        const struct conv2d c = cases[i / 2].c;
        const int N = cases[i / 2].N, beta = i & 1;
        const int high = conv2d_size(c.height, c.kernel, c.stride, c.padding),
                  wide = conv2d_size(c.width, c.kernel, c.stride, c.padding);
        const size_t n = (size_t)(N * c.channels * c.height * c.width),
                     outs = (size_t)(N * c.filters * high * wide),
                     weights = (size_t)(c.filters * c.channels * c.kernel * c.kernel);
        const int in = V(n), din = V(n), out = V(outs), dout = V(outs), weight = V(weights),
                  bias = V((size_t)c.filters), dweight = F(weights), dbias = F((size_t)c.filters);
        uint8_t *after = (uint8_t *)work + table->conv2d_work(&c, N);
        assert_true(after + AFTER <= (uint8_t *)work + WORK_BYTES);
        memset(after, 0x5a, AFTER);
        BOTH(conv2d_forward, at(out), at(in), at(weight), beta ? at(bias) : NULL, &c, N, work);
        BOTH(conv2d_backward_input, at(din), at(dout), at(weight), &c, N, beta, work);
        BOTH(conv2d_backward_weight, at(dweight), at(dbias), at(dout), at(in), &c, N, beta, work);
        for (size_t k = 0; k < AFTER; k++)
            assert_int_equal(after[k], 0x5a);
        end();
    }
    summing = 0;
}

/* Windows that overlap, equal values and NaN: the reference's bits, for its sums of two values are exact. */
static void fast_pools_are_the_references(void **state)
{
    static const struct {
        int N;
        struct pool2d p;
    } cases[] = {{3, {5, 32, 32, 2, 2, 0}}, {2, {3, 9, 35, 2, 2, 0}}, {2, {3, 11, 7, 3, 2, 1}},
                 {2, {2, 6, 5, 3, 1, 1}},   {1, {2, 5, 5, 2, 2, 1}},  {2, {2, 7, 8, 4, 3, 2}}};
    (void)state;
    if (!take_fast_table())
        skip();
    for (size_t i = 0; i < 4 * (sizeof cases / sizeof *cases); i++) {
        const struct pool2d p = cases[i / 4].p;
        const int N = cases[i / 4].N, beta = i & 1, spoiled = i & 2, planes = N * p.channels;
        const size_t n = (size_t)(planes * p.height * p.width),
                     outs = (size_t)(planes * conv2d_size(p.height, p.kernel, p.stride, p.padding) *
                                     conv2d_size(p.width, p.kernel, p.stride, p.padding));
        uint16_t *of[2][4]; /* in, out, dout, din of the reference and of the table */
        for (int k = 0; k < 4; k++) {
            const size_t count = k == 1 || k == 2 ? outs : n;
            const int array = V(count);
            of[0][k] = arrays[array].sides[NARROW];
            for (size_t j = 0; k == 0 && spoiled && j < n; j++)
                of[0][k][j] = narrow(random_below(16) ? roundf(2 * widen(of[0][k][j])) : NAN);
            memcpy(of[1][k] = arrays[array].sides[WIDE], of[0][k], count * sizeof(uint16_t));
        }
        for (int k = 0; k < 2; k++) {
            const struct kernels *by = k ? table : kernels_ref_bf16();
            by->max_pool2d_forward(of[k][1], of[k][0], &p, N, NULL);
            by->max_pool2d_backward(of[k][3], of[k][0], of[k][2], &p, N, beta, NULL);
        }
        assert_memory_equal(of[1][1], of[0][1], outs * sizeof(uint16_t));
        assert_memory_equal(of[1][3], of[0][3], n * sizeof(uint16_t));
        end();
    }
}

/* A value between two of 16 bits goes to the even one, and a value that float alone would round to such a
 * place does not. */
static void ties_go_to_even_once(void **state)
{
    (void)state;
    const struct kernels *k = kernels_ref_bf16();
    const uint16_t one = narrow_to_bf16(1), in[2] = {one, narrow_to_bf16(0x1p-8F)};
    uint16_t out;
    k->add(&out, &in[0], &in[1], 1, NULL);
    assert_int_equal(out, one); /* 1 + 2^-8: half a place, the even one is below */
    /* A little more, by less than float tells apart: 1 + 2^-8 + 2^-40. */
    const uint16_t a[2] = {one, one}, weight[2] = {narrow_to_bf16(0x1.02p0F), narrow_to_bf16(-0x1p-8F)};
    k->linear_forward(&out, a, weight, NULL, 1, 2, 1, 1, NULL);
    assert_int_equal(out, narrow_to_bf16(1.0F)); /* 1.0078125 - 0.00390625 is a tie, too */
    const uint16_t b[3] = {one, one, narrow_to_bf16(0x1p-40F)}, more[3] = {one, narrow_to_bf16(0x1p-8F), one};
    k->linear_forward(&out, b, more, NULL, 1, 3, 1, 1, NULL);
    assert_int_equal(out, narrow_to_bf16(0x1.02p0F)); /* rounded through float it would be 1 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_rounds_once),   cmocka_unit_test(ties_go_to_even_once),
        cmocka_unit_test(fast_operations_round_once),    cmocka_unit_test(fast_products_round_once),
        cmocka_unit_test(fast_products_are_cut),         cmocka_unit_test(fast_pictures_round_once),
        cmocka_unit_test(fast_pools_are_the_references),
    };
    kernels_test_begin(2);
    work = mem_calloc(1, WORK_BYTES);
    assert_non_null(work);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mem_free(work);
    return failed;
}
