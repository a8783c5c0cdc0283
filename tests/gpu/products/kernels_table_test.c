/* kernels_table_test.c - every slot of the CUDA table against the reference, through a stream's handle, as
 * the executor calls it: that each slot is there, is the right operation and passes its arguments in their
 * places. Bounds of rounding are the business of the operations' own tests; here shapes are random and the
 * allowance is wide. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "proto/base/mem.h"
#include "runtime/cuda/kernels_cuda.h"
#include "tests/gpu/products/stream_support.h"

enum { TRIALS = 12 };

static struct cuda_stream_handle handle;
static const struct kernels *table;

static enum dtype values = DTYPE_F32; /* values and weights have it */

static const struct kernels *reference(void)
{
    return values == DTYPE_BF16  ? kernels_ref_bf16()
           : values == DTYPE_F16 ? kernels_ref_f16()
                                 : kernels_ref_f32();
}

/* The same bytes on both sides; which of them a call gets is `side`. */
struct pair {
    void *sides[2];
    size_t bytes;
    bool narrow; /* it has 16 bits an element */
};
enum { HOST, DEVICE };
static int side;
#define scope_pair __attribute__((cleanup(pair_free)))

static struct pair pair_of(void *host, size_t bytes)
{
    return (struct pair){.sides = {host, device_copy(host, bytes)}, .bytes = bytes};
}

static struct pair pair_floats(size_t n)
{
    return pair_of(floats_new(n, FILL_UNIT), n * sizeof(float));
}

/* In the type of values; frees `floats`. */
static struct pair pair_narrowed(float *floats, size_t n)
{
    if (values == DTYPE_F32)
        return pair_of(floats, n * sizeof *floats);
    uint16_t *halves = mem_calloc(n + 1, sizeof *halves);
    assert_non_null(halves);
    kernels_ref_f32()->cast(halves, values, floats, DTYPE_F32, (int64_t)n, NULL);
    mem_free(floats);
    struct pair pair = pair_of(halves, n * sizeof *halves);
    pair.narrow = true;
    return pair;
}

static struct pair pair_values(size_t n)
{
    return pair_narrowed(floats_new(n, FILL_UNIT), n);
}

/* Rows of `width` values that lie `row` apart. */
static struct pair pair_apart(int rows, int width, int row)
{
    scope_memory float *dense = floats_new((size_t)rows * (size_t)width, FILL_UNIT);
    return pair_narrowed(floats_apart(dense, rows, width, row), floats_apart_count(rows, width, row));
}

static struct pair pair_tokens(size_t n, int V, bool some_ignored)
{
    return pair_of(tokens_new(n, V, some_ignored), n * sizeof(int32_t));
}

static void pair_free(struct pair *pair)
{
    mem_free(pair->sides[HOST]);
    CUDA_OK(cudaFree(pair->sides[DEVICE]));
}

static void *at(const struct pair *pair)
{
    return pair->sides[side];
}
/* From value `i` on. */
static void *part(const struct pair *pair, int i)
{
    return (char *)at(pair) + i * dtype_size(values);
}

enum slot {
#define OPERATION(name, parameters, arguments) SLOT_##name,
#include "kernels/operations.inc"
    SLOTS
};
static const char *const slot_names[] = {
#define OPERATION(name, parameters, arguments) #name,
#include "kernels/operations.inc"
};
static bool slot_called[SLOTS];

/* Both sides of a slot; its arguments but the stream name pairs by at(). */
#define BOTH(slot, ...)                                                                                      \
    do {                                                                                                     \
        slot_called[SLOT_##slot] = true;                                                                     \
        side = HOST;                                                                                         \
        reference()->slot(__VA_ARGS__, NULL);                                                                \
        side = DEVICE;                                                                                       \
        table->slot(__VA_ARGS__, &handle);                                                                   \
        computing("slot " #slot);                                                                            \
        stream_done(&handle);                                                                                \
    } while (0)

/* Both sides round at each store, and attention rounds its factors too. */
static void same_narrow(const char *what, const struct pair *pair)
{
    const size_t n = pair->bytes / sizeof(uint16_t);
    const double rounded = values == DTYPE_BF16 ? 0x1p-6 : 0x1p-9;
    scope_memory float *got = floats_new(n, FILL_CONSTANT), *want = floats_new(n, FILL_CONSTANT);
    scope_memory uint16_t *halves = mem_calloc(n + 1, sizeof *halves);
    assert_non_null(halves);
    fetch(halves, pair->sides[DEVICE], pair->bytes);
    kernels_ref_f32()->cast(got, DTYPE_F32, halves, values, (int64_t)n, NULL);
    kernels_ref_f32()->cast(want, DTYPE_F32, pair->sides[HOST], values, (int64_t)n, NULL);
    assert_true(floats_close(what, got, want, n, rounded * (floats_largest(want, n) + 1e-3), rounded));
}

static void same(const char *what, const struct pair *pair)
{
    if (pair->narrow) {
        same_narrow(what, pair);
        return;
    }
    size_t n = pair->bytes / sizeof(float);
    double largest = floats_largest(pair->sides[HOST], n);
    assert_close(what, pair->sides[DEVICE], pair->sides[HOST], n, 2e-4 * (largest + 1e-3), 1e-4);
}

static void same_double(const char *what, const struct pair *pair)
{
    double got;
    fetch(&got, pair->sides[DEVICE], sizeof got);
    double want = *(double *)pair->sides[HOST];
    if (!(fabs(got - want) <= 1e-5 * (1 + fabs(want))))
        fail_msg("%s is %.17g, not %.17g", what, got, want);
}

static int size_below(int limit)
{
    return 1 + (int)random_below((uint32_t)limit);
}

static struct pair scalars_pair(uint64_t step)
{
    struct step_scalars *s = mem_calloc(1, sizeof *s);
    assert_non_null(s);
    *s = (struct step_scalars){.beta1 = 0.9,
                               .beta2 = 0.95,
                               .epsilon = 1e-8,
                               .bias_correction1 = 0.271,
                               .bias_correction2 = 0.142,
                               .inverse_tokens = 0.125,
                               .clip_norm = 1.5,
                               .norm_squared = 9,
                               .clip = 0.5,
                               .step = step,
                               .first_sample = 77,
                               .seed = 1234,
                               .loss_scale = 1};
    for (int i = 0; i < 8; i++) {
        s->learning_rate[i] = 0.01 * (i + 1);
        s->weight_decay[i] = 0.1 * i;
    }
    return pair_of(s, sizeof *s);
}

/* ---- the slots ---- */

/* The first trials have a side of 0. */
static void linear(int trial)
{
    const int N = trial == 0 ? 0 : size_below(40), C = trial == 1 || trial == 2 ? 0 : size_below(50),
              OC = trial == 3 ? 0 : size_below(50), beta = trial == 3 ? 0 : (int)random_below(2);
    const int row = OC + (int)random_below(3);
    size_t in_n = (size_t)N * C, weight_n = (size_t)OC * C;
    scope_pair struct pair in = pair_values(in_n), weight = pair_values(weight_n);
    scope_pair struct pair bias = pair_values((size_t)OC), out = pair_apart(N, OC, row),
                           dout = pair_apart(N, OC, row);
    scope_pair struct pair din = pair_values(in_n), dweight = pair_floats(weight_n);
    scope_pair struct pair dbias = pair_floats((size_t)OC);
    BOTH(linear_forward, at(&out), at(&in), at(&weight), beta ? at(&bias) : NULL, N, C, OC, row);
    same("out", &out);
    BOTH(linear_backward_input, at(&din), at(&dout), at(&weight), N, C, OC, row, beta);
    same("din", &din);
    BOTH(linear_backward_weight, at(&dweight), at(&dbias), at(&dout), at(&in), N, C, OC, row, beta);
    same("dweight", &dweight);
    same("dbias", &dbias);
}

/* A product with its activation, and with the gradient of the activation before it and of that one's bias,
 * against the reference's one after the other. */
static void linear_activation(void)
{
    const int N = size_below(40), C = size_below(50), OC = size_below(50), beta = (int)random_below(2),
              kind = (int)random_below(ACTIVATION_KINDS);
    const size_t in_n = (size_t)N * (size_t)C, out_n = (size_t)N * (size_t)OC;
    scope_pair struct pair in = pair_values(in_n), weight = pair_values((size_t)OC * (size_t)C);
    scope_pair struct pair bias = pair_values((size_t)OC), out = pair_values(out_n), pre = pair_values(out_n);
    scope_pair struct pair dout = pair_values(out_n), before = pair_values(in_n), din = pair_values(in_n);
    scope_pair struct pair dbias = pair_floats((size_t)C);
    side = HOST;
    reference()->linear_forward(at(&pre), at(&in), at(&weight), at(&bias), N, C, OC, OC, NULL);
    reference()->activation_forward(at(&out), at(&pre), kind, (int64_t)out_n, NULL);
    reference()->linear_backward_input(at(&din), at(&dout), at(&weight), N, C, OC, OC, 0, NULL);
    reference()->activation_backward(at(&din), at(&before), at(&din), kind, 0, (int64_t)in_n, NULL);
    reference()->linear_backward_weight(NULL, at(&dbias), at(&din), NULL, N, 0, C, C, beta, NULL);
    side = DEVICE;
    table->linear_activation_forward(at(&out), at(&pre), at(&in), at(&weight), at(&bias), kind, N, C, OC,
                                     &handle);
    table->linear_backward_activation(at(&din), at(&dbias), at(&dout), at(&weight), at(&before), kind, N, C,
                                      OC, beta, &handle);
    computing("products and activation %d", kind);
    stream_done(&handle);
    same("out", &out);
    same("pre", &pre);
    same("din", &din);
    same("dbias", &dbias);
}

static void embedding(void)
{
    int B = size_below(3), T = size_below(9), C = size_below(40), V = size_below(30),
        beta = (int)random_below(2);
    int maxT = T + 2;
    size_t n = (size_t)B * T * C;
    scope_pair struct pair tokens = pair_tokens((size_t)B * T, V, false), out = pair_values(n),
                           dout = pair_values(n);
    scope_pair struct pair wte = pair_values((size_t)V * C), wpe = pair_values((size_t)maxT * C);
    scope_pair struct pair dwte = pair_floats((size_t)V * C), dwpe = pair_floats((size_t)maxT * C);
    BOTH(embedding_forward, at(&out), at(&tokens), at(&wte), beta ? at(&wpe) : NULL, B, T, C);
    same("out", &out);
    BOTH(embedding_backward, at(&dwte), at(&dwpe), at(&dout), at(&tokens), B, T, C, V, maxT, beta);
    same("dwte", &dwte);
    same("dwpe", &dwpe);
    BOTH(rows_add, at(&dwte), 0, (int64_t)V * C, 0, at(&dout), at(&tokens), B * T, T, C);
    same("a table with rows added", &dwte);
}

static void layernorm(void)
{
    int N = size_below(50), C = 1 + size_below(70), beta = (int)random_below(2),
        beta_in = (int)random_below(2);
    size_t n = (size_t)N * C;
    scope_pair struct pair in = pair_values(n), weight = pair_values((size_t)C),
                           bias = pair_values((size_t)C);
    scope_pair struct pair out = pair_values(n), mean = pair_floats((size_t)N), rstd = pair_floats((size_t)N);
    scope_pair struct pair dout = pair_values(n), din = pair_values(n), sum = pair_values(n);
    scope_pair struct pair dweight = pair_floats((size_t)C), dbias = pair_floats((size_t)C);
    size_t work_bytes = table->layernorm_backward_work(N, C);
    size_t most = reference()->layernorm_backward_work(N, C);
    scope_pair struct pair work = pair_floats((work_bytes > most ? work_bytes : most) / sizeof(float) + 1);
    BOTH(layernorm_forward, at(&out), at(&mean), at(&rstd), at(&in), at(&weight), at(&bias), N, C, 1e-3);
    same("out", &out);
    same("mean", &mean);
    same("rstd", &rstd);
    BOTH(add_layernorm_forward, at(&out), at(&sum), at(&mean), at(&rstd), at(&in), at(&dout), at(&weight),
         beta ? at(&bias) : NULL, N, C, 1e-3);
    same("sum", &sum);
    same("out of a sum", &out);
    same("mean of a sum", &mean);
    same("rstd of a sum", &rstd);
    BOTH(layernorm_backward, at(&din), at(&dweight), at(&dbias), at(&dout), at(&in), at(&mean), at(&rstd),
         at(&weight), N, C, beta_in, beta, at(&work));
    same("din", &din);
    same("dweight", &dweight);
    same("dbias", &dbias);
}

static void rms_norm(void)
{
    int N = size_below(50), C = size_below(70), beta = (int)random_below(2), beta_in = (int)random_below(2);
    size_t n = (size_t)N * C;
    scope_pair struct pair in = pair_values(n), weight = pair_values((size_t)C), out = pair_values(n);
    scope_pair struct pair rstd = pair_floats((size_t)N), dout = pair_values(n), din = pair_values(n);
    scope_pair struct pair dweight = pair_floats((size_t)C), sum = pair_values(n);
    size_t work_bytes = table->rms_norm_backward_work(N, C), most = reference()->rms_norm_backward_work(N, C);
    scope_pair struct pair work = pair_floats((work_bytes > most ? work_bytes : most) / sizeof(float) + 1);
    BOTH(rms_norm_forward, at(&out), at(&rstd), at(&in), at(&weight), N, C, 1e-3, beta);
    same("out", &out);
    same("rstd", &rstd);
    BOTH(add_rms_norm_forward, at(&out), at(&sum), at(&rstd), at(&in), at(&dout), at(&weight), N, C, 1e-3,
         beta);
    same("sum", &sum);
    same("out of a sum", &out);
    same("rstd of a sum", &rstd);
    BOTH(rms_norm_backward, at(&din), at(&dweight), at(&dout), at(&in), at(&rstd), at(&weight), beta, N, C,
         beta_in, beta, at(&work));
    same("din", &din);
    same("dweight", &dweight);
}

static void rotary(void)
{
    int B = size_below(3), T = size_below(9), NH = size_below(4), HS = 2 * size_below(12);
    int beta = (int)random_below(2), backward = (int)random_below(2);
    static const double lists[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                   12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22};
    struct rotary settings = {.theta = 10000,
                              .kind = (enum rotary_kind)random_below(ROTARY_KINDS),
                              .factor = 8,
                              .low = 1,
                              .high = 4,
                              .original = 64,
                              .lists = lists};
    size_t n = (size_t)B * T * NH * HS;
    scope_pair struct pair in = pair_values(n), out = pair_values(n);
    BOTH(rotary, at(&out), at(&in), &settings, B, T, NH, HS, backward, beta);
    same("out", &out);
}

static void elements(void)
{
    int64_t n = size_below(3000);
    int kind = (int)random_below(ACTIVATION_KINDS), beta = (int)random_below(2), other = (int)random_below(2);
    scope_pair struct pair a = pair_values((size_t)n), b = pair_values((size_t)n), c = pair_values((size_t)n);
    scope_pair struct pair out = pair_values((size_t)n), second = pair_values((size_t)n);
    scope_pair struct pair wide = pair_floats((size_t)n), sum = pair_floats((size_t)n);
    scope_pair struct pair narrow = pair_floats((size_t)n);
    enum dtype half = other ? DTYPE_BF16 : DTYPE_F16;
    BOTH(activation_forward, at(&out), at(&a), kind, n);
    same("activation", &out);
    BOTH(activation_backward, at(&out), at(&a), at(&b), kind, beta, n);
    same("its gradient", &out);
    BOTH(gated_forward, at(&out), at(&a), at(&b), kind, n);
    same("swiglu", &out);
    BOTH(gated_backward, at(&out), at(&second), at(&a), at(&b), at(&c), kind, beta, other, n);
    same("dgate", &out);
    same("dup", &second);
    BOTH(slice_forward, at(&out), at(&a), n / 7, 7, 2, 4);
    same("slice", &out);
    BOTH(slice_backward, at(&out), at(&c), n / 7, 7, 2, 4, beta);
    same("its gradient", &out);
    BOTH(add, at(&out), at(&a), at(&b), n);
    same("add", &out);
    BOTH(accumulate, at(&out), at(&c), beta, n);
    same("accumulate", &out);
    BOTH(scale, at(&out), 0.3, n);
    same("scale", &out);
    BOTH(cast, at(&narrow), half, at(&wide), DTYPE_F32, n);
    BOTH(widen, at(&sum), at(&narrow), half, beta, n);
    same("cast and widen", &sum);
}

static void dropout(void)
{
    int rows_per_sample = size_below(4), rows = rows_per_sample * size_below(4), width = size_below(50);
    size_t n = (size_t)rows * (size_t)width;
    scope_pair struct pair in = pair_values(n), out = pair_values(n), scalars = scalars_pair(1);
    int beta = (int)random_below(2);
    BOTH(dropout, at(&out), at(&in), rows, width, rows_per_sample, 5, 3, 0.3, beta, at(&scalars));
    same("dropout", &out);
}

static void losses(void)
{
    int N = size_below(20), V = 1 + size_below(90), gradient = (int)random_below(2);
    const int row = V + (int)random_below(5);
    scope_pair struct pair logits = pair_apart(N, V, row), each = pair_floats((size_t)N);
    scope_pair struct pair targets = pair_tokens((size_t)N, V, true), scalars = scalars_pair(1);
    scope_pair struct pair total = pair_of(mem_calloc(1, 8), 8), count = pair_of(mem_calloc(1, 8), 8);
    BOTH(cross_entropy, at(&logits), at(&each), at(&targets), N, V, row, gradient, at(&scalars));
    same("losses", &each);
    if (gradient)
        same("dlogits", &logits);
    scope_pair struct pair guesses = pair_values((size_t)N), wanted = pair_floats((size_t)N);
    BOTH(squared_error, at(&guesses), at(&each), at(&targets), at(&wanted), N, gradient, at(&scalars));
    same("squared errors", &each);
    same("their gradient", &guesses);
    BOTH(loss_sum, at(&total), at(&count), at(&each), at(&targets), N);
    same_double("the sum of losses", &total);
    int64_t got;
    fetch(&got, count.sides[DEVICE], sizeof got);
    assert_int_equal(got, *(int64_t *)count.sides[HOST]);
}

static void norms(void)
{
    int64_t n = size_below(5000);
    scope_pair struct pair values = pair_floats((size_t)n), out = pair_of(mem_calloc(1, 8), 8);
    scope_pair struct pair scalars = scalars_pair(1);
    struct step_scalars got;
    BOTH(norm_squared, at(&out), at(&values), n, 0);
    BOTH(norm_squared, at(&out), at(&values), n, 1);
    same_double("the norm", &out);
    BOTH(clip_factor, at(&scalars));
    fetch(&got, scalars.sides[DEVICE], sizeof got);
    const struct step_scalars *want = scalars.sides[HOST];
    assert_true(fabs(got.clip - want->clip) <= 1e-12 * want->clip && got.skip == want->skip);
}

/* kind 0: adamw, 1: adam, 2: sgd */
static void optimizer(int kind)
{
    int n = 10 + size_below(500), nesterov = (int)random_below(2);
    struct optimizer_segment segments[] = {{0, n / 3, 1}, {n / 3 + 2, n / 3, 4}};
    scope_pair struct pair param = pair_floats((size_t)n), m = pair_floats((size_t)n),
                           v = pair_floats((size_t)n);
    scope_pair struct pair grad = pair_floats((size_t)n), moved = pair_floats((size_t)n),
                           wide = pair_floats((size_t)n);
    scope_pair struct pair scalars = scalars_pair(random_below(2) + 1);
    for (int i = 0; i < n; i++)
        ((float *)v.sides[HOST])[i] = fabsf(((float *)v.sides[HOST])[i]);
    CUDA_OK(cudaMemcpy(v.sides[DEVICE], v.sides[HOST], v.bytes, cudaMemcpyHostToDevice));
    if (kind == 0)
        BOTH(adamw, at(&param), at(&m), at(&v), at(&grad), segments, 2, at(&moved), DTYPE_BF16, at(&scalars));
    else if (kind == 1)
        BOTH(adam, at(&param), at(&m), at(&v), at(&grad), segments, 2, at(&moved), DTYPE_BF16, at(&scalars));
    else
        BOTH(sgd, at(&param), at(&m), at(&grad), segments, 2, 0.9, 0.1, nesterov, at(&moved), DTYPE_BF16,
             at(&scalars));
    same("parameters", &param);
    same("m", &m);
    same("v", &v);
    BOTH(average, at(&wide), at(&param), 0.75, n / 2, at(&scalars));
    same("the average", &wide);
}

static void attention(void)
{
    int kv_heads = size_below(2), B = size_below(2), T = size_below(12), HS = size_below(20);
    int heads = kv_heads * size_below(2);
    struct attention a = {.B = B,
                          .T = T,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .head_size = HS,
                          .causal = (int)random_below(2),
                          .scale = random_below(2) ? 0 : 0.2};
    a.q_row = a.k_row = a.v_row = (heads + 2 * kv_heads) * HS; /* q, k, v of a position side by side */
    size_t packed = (size_t)B * T * (size_t)a.q_row, n = (size_t)B * T * heads * HS;
    int beta[3] = {(int)random_below(2), (int)random_below(2), (int)random_below(2)}, k = heads * HS,
        v = k + kv_heads * HS;
    size_t work_bytes = table->attention_work(&a, 1), most = reference()->attention_work(&a, 1);
    scope_pair struct pair qkv = pair_values(packed), dqkv = pair_values(packed), out = pair_values(n),
                           dout = pair_values(n);
    scope_pair struct pair lse = pair_floats((size_t)B * heads * T);
    scope_pair struct pair work = pair_floats((work_bytes > most ? work_bytes : most) / sizeof(float) + 1);
    BOTH(attention_forward, at(&out), at(&lse), at(&qkv), part(&qkv, k), part(&qkv, v), &a, at(&work));
    same("out", &out);
    same("lse", &lse);
    BOTH(attention_backward, at(&dqkv), part(&dqkv, k), part(&dqkv, v), at(&dout), at(&qkv), part(&qkv, k),
         part(&qkv, v), at(&out), at(&lse), &a, beta, at(&work));
    same("dq, dk and dv", &dqkv);
}

/* New positions of one sequence over kept ones. */
static void kept_attention(void)
{
    const int kv_heads = size_below(2), T = size_below(6), HS = size_below(70),
              before = (int)random_below(40);
    const int heads = kv_heads * size_below(2), room = before + T + (int)random_below(3);
    struct attention a = {.B = 1,
                          .T = T,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .head_size = HS,
                          .causal = 1,
                          .window = (int)random_below(2) * size_below(20),
                          .scale = random_below(2) ? 0 : 0.2,
                          .cap = (int)random_below(2) * 3.0};
    a.q_row = a.k_row = a.v_row = (heads + 2 * kv_heads) * HS;
    const int k = heads * HS, v = k + kv_heads * HS;
    const size_t kept = (size_t)kv_heads * (size_t)room * (size_t)HS;
    scope_pair struct pair qkv = pair_values((size_t)T * (size_t)a.q_row), keys = pair_values(kept),
                           cache = pair_values(kept), out = pair_values((size_t)T * (size_t)k);
    scope_pair struct pair work = pair_floats(table->attention_past_work(&a, room) / sizeof(float) + 1);
    BOTH(attention_past, at(&out), at(&keys), at(&cache), at(&qkv), part(&qkv, k), part(&qkv, v), &a, before,
         room, at(&work));
    same("out of kept positions", &out);
    same("keys", &keys);
    same("values", &cache);
}

static void convolution(void)
{
    const struct conv2d c = {size_below(4), 3 + size_below(9), 3 + size_below(9),   size_below(6),
                             size_below(3), size_below(3),     (int)random_below(2)};
    const int N = size_below(4), beta = (int)random_below(2);
    const size_t ins = (size_t)(N * c.channels * c.height * c.width), filters = (size_t)c.filters;
    const size_t weights = filters * (size_t)(c.channels * c.kernel * c.kernel);
    const size_t outs = (size_t)N * filters * (size_t)conv2d_size(c.height, c.kernel, c.stride, c.padding) *
                        (size_t)conv2d_size(c.width, c.kernel, c.stride, c.padding);
    scope_pair struct pair in = pair_values(ins), weight = pair_values(weights), bias = pair_values(filters);
    scope_pair struct pair out = pair_values(outs), dout = pair_values(outs), din = pair_values(ins);
    scope_pair struct pair dweight = pair_floats(weights), dbias = pair_floats(filters);
    assert_int_equal(table->conv2d_work(&c, N), 0);
    BOTH(conv2d_forward, at(&out), at(&in), at(&weight), beta ? at(&bias) : NULL, &c, N, NULL);
    same("out", &out);
    BOTH(conv2d_backward_input, at(&din), at(&dout), at(&weight), &c, N, beta, NULL);
    same("din", &din);
    BOTH(conv2d_backward_weight, at(&dweight), at(&dbias), at(&dout), at(&in), &c, N, beta, NULL);
    same("dweight", &dweight);
    same("dbias", &dbias);
    BOTH(conv2d_backward_weight, at(&dweight), NULL, at(&dout), at(&in), &c, N, 1, NULL);
    same("dweight alone", &dweight);
    BOTH(conv2d_backward_weight, NULL, at(&dbias), at(&dout), at(&in), &c, N, 0, NULL);
    same("dbias alone", &dbias);
}

static void pooling(void)
{
    const int kernel = 2 + (int)random_below(2);
    const struct pool2d p = {size_below(4), 3 + size_below(9),        3 + size_below(9),
                             kernel,        1 + (int)random_below(3), (int)random_below(2)};
    const int N = size_below(4), beta = (int)random_below(2), planes = N * p.channels;
    const int high = size_below(5), wide = size_below(14);
    const size_t ins = (size_t)(planes * p.height * p.width), means = (size_t)(planes * high * wide);
    const size_t outs = (size_t)planes * (size_t)conv2d_size(p.height, kernel, p.stride, p.padding) *
                        (size_t)conv2d_size(p.width, kernel, p.stride, p.padding);
    scope_pair struct pair in = pair_values(ins), out = pair_values(outs), dout = pair_values(outs);
    scope_pair struct pair din = pair_values(ins), mean = pair_values(means), dmean = pair_values(means);
    BOTH(max_pool2d_forward, at(&out), at(&in), &p, N);
    same("out", &out);
    BOTH(max_pool2d_backward, at(&din), at(&in), at(&dout), &p, N, beta);
    same("din", &din);
    BOTH(avg_pool2d_forward, at(&mean), at(&in), planes, p.height, p.width, high, wide);
    same("mean", &mean);
    BOTH(avg_pool2d_backward, at(&din), at(&dmean), planes, p.height, p.width, high, wide, beta);
    same("din of means", &din);
}

static void batch_norm(void)
{
    const struct batch_norm b = {.channels = size_below(6),
                                 .plane = size_below(80),
                                 .epsilon = 1e-3,
                                 .momentum = 0.1,
                                 .first = size_below(5) - 1,
                                 .rows_per_sample = size_below(2),
                                 .ranks = size_below(3),
                                 .counts = size_below(2) - 1};
    const int N = size_below(6);
    const size_t n = (size_t)N * (size_t)b.channels * (size_t)b.plane, C = (size_t)b.channels;
    scope_pair struct pair in = pair_values(n), out = pair_values(n), dout = pair_values(n);
    scope_pair struct pair din = pair_values(n), dweight = pair_floats(C), dbias = pair_floats(C);
    scope_pair struct pair weight = pair_values(C), bias = pair_values(C), count = pair_floats(1);
    scope_pair struct pair mean = pair_floats(C), var = pair_floats(C);
    float *positive = floats_new(C, FILL_UNIT);
    for (size_t i = 0; i < C; i++)
        positive[i] = 0.1f + fabsf(positive[i]);
    scope_pair struct pair running_mean = pair_values(C), running_var = pair_narrowed(positive, C);
    struct step_scalars *scalars = mem_calloc(1, sizeof *scalars);
    assert_non_null(scalars);
    scalars->samples = size_below(12);
    scope_pair struct pair step = pair_of(scalars, sizeof *scalars);
    const int beta[] = {size_below(2) - 1, size_below(2) - 1, size_below(2) - 1};
    BOTH(batch_norm_forward, at(&out), at(&mean), at(&var), at(&in), at(&weight), at(&bias), &b, N,
         at(&step));
    same("mean", &mean);
    same("var", &var);
    same("out", &out);
    BOTH(batch_norm_fixed, at(&out), at(&in), at(&weight), at(&bias), at(&running_mean), at(&running_var), &b,
         N);
    same("fixed", &out);
    BOTH(batch_norm_backward, at(&din), at(&dweight), at(&dbias), at(&dout), at(&in), at(&mean), at(&var),
         at(&weight), &b, N, beta, at(&step));
    same("din", &din);
    same("dweight", &dweight);
    same("dbias", &dbias);
    BOTH(batch_norm_change, at(&dweight), at(&dbias), at(&count), at(&mean), at(&var), at(&running_mean),
         at(&running_var), &b, N, beta, at(&step));
    same("change of the mean", &dweight);
    same("change of the variance", &dbias);
    same("count", &count);
    BOTH(batch_norm_step, at(&mean), at(&dweight), (int64_t)C, NULL, DTYPE_BF16, at(&step));
    same("running mean", &mean);
}

static void means(void)
{
    const int B = size_below(5), T = size_below(90), C = size_below(300), beta = (int)random_below(2);
    const size_t rows = (size_t)B * (size_t)T, width = (size_t)C;
    scope_pair struct pair in = pair_values(rows * width), out = pair_values((size_t)B * width);
    scope_pair struct pair din = pair_values(rows * width), dout = pair_values((size_t)B * width);
    scope_pair struct pair lengths = pair_tokens((size_t)B, T + 1, false);
    BOTH(mean_forward, at(&out), at(&in), at(&lengths), B, T, C);
    same("mean", &out);
    BOTH(mean_backward, at(&din), at(&dout), at(&lengths), B, T, C, beta);
    same("din of a mean", &din);
}

static void classes(void)
{
    const int N = size_below(600), V = size_below(4), row = V + (int)random_below(2);
    scope_pair struct pair logits = pair_apart(N, V, row), targets = pair_tokens((size_t)N, V, true);
    scope_pair struct pair total = pair_of(mem_calloc(1, sizeof(double)), sizeof(double));
    BOTH(correct_sum, at(&total), at(&logits), at(&targets), N, V, row);
    same_double("total", &total);
    assert_true(V > 1 || *(double *)total.sides[HOST] > 0);
}

/* ---- tests ---- */

static void every_slot_is_filled(void **state)
{
    const struct kernels *tables[] = {kernels_cuda(DTYPE_F32, false), kernels_cuda(DTYPE_F32, true),
                                      kernels_cuda(DTYPE_BF16, false), kernels_cuda(DTYPE_F16, true)};
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    (void)state;
    for (int i = 0; i < 4; i++) {
#define OPERATION(name, parameters, arguments) assert_non_null(tables[i]->name);
#define FUSED                                  OPERATION
#define WORK                                   OPERATION
#include "kernels/operations.inc"
        assert_int_equal(tables[i]->abi, KERNELS_ABI);
        assert_int_equal(tables[i]->size, sizeof(struct kernels));
        assert_int_equal(tables[i]->value, types[i]);
        assert_int_equal(tables[i]->weight, types[i]);
        assert_int_equal(tables[i]->statistic, DTYPE_F32);
        assert_int_equal(tables[i]->gradient, DTYPE_F32);
        assert_int_equal(kernels_row(tables[i], 50257) * dtype_size(types[i]) % 128, 0);
    }
    assert_string_equal(tables[0]->name, "cuda-f32");
    assert_string_equal(tables[1]->name, "cuda-tf32");
    assert_string_equal(tables[2]->name, "cuda-bf16");
    assert_string_equal(tables[3]->name, "cuda-f16");
}

static void operations_agree(int trial)
{
    linear(trial);
    linear_activation();
    embedding();
    layernorm();
    rms_norm();
    rotary();
    elements();
    dropout();
    losses();
    norms();
    optimizer(trial % 3);
    attention();
    kept_attention();
    means();
    classes();
    convolution();
    pooling();
    batch_norm();
}

static void every_slot_agrees_with_the_reference(void **state)
{
    (void)state;
    table = kernels_cuda(DTYPE_F32, false);
    stream_open(&handle, true, false);
    for (int trial = 0; trial < TRIALS; trial++)
        operations_agree(trial);
    for (int i = 0; i < SLOTS; i++)
        if (!slot_called[i])
            fail_msg("slot %s is compared with the reference nowhere", slot_names[i]);
    stream_close(&handle);
}

static void slots_of_16_bits_agree_with_the_reference(void **state)
{
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_F16};
    (void)state;
    stream_open(&handle, true, false);
    for (int i = 0; i < 2; i++) {
        values = types[i];
        table = kernels_cuda(values, false);
        for (int trial = 0; trial < TRIALS; trial++)
            operations_agree(trial);
    }
    values = DTYPE_F32;
    stream_close(&handle);
}

static void what_cannot_be_enqueued_fails_the_device(void **state)
{
    scope_pair struct pair values = pair_floats(10), out = pair_of(mem_calloc(1, 8), 8);
    (void)state;
    table = kernels_cuda(DTYPE_F32, false);
    stream_open(&handle, false, false);
    table->add(values.sides[DEVICE], values.sides[DEVICE], values.sides[DEVICE], 10, &handle);
    stream_done(&handle);
    table->norm_squared(out.sides[DEVICE], values.sides[DEVICE], 10, 0, &handle);
    assert_string_equal(stream_failure.text,
                        "norm_squared: this stream was not created to compute: it has no workspace");
    table->add(values.sides[DEVICE], values.sides[DEVICE], values.sides[DEVICE], -1, &handle);
    assert_int_equal(stream_failure.code, MUSTER_E_STATE); /* the first is kept: that is fail's business */
    stream_failure.code = 0;
    table->add(values.sides[DEVICE], values.sides[DEVICE], values.sides[DEVICE], -1, &handle);
    assert_string_equal(stream_failure.text, "add: n is -1; it must be 0 or more");
    stream_close(&handle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_slot_is_filled),
        cmocka_unit_test(every_slot_agrees_with_the_reference),
        cmocka_unit_test(slots_of_16_bits_agree_with_the_reference),
        cmocka_unit_test(what_cannot_be_enqueued_fails_the_device),
    };
    if (gpu_missing()) {
        printf("skipped: no GPU: %s\n", gpu_missing());
        return 77;
    }
    kernels_test_begin(1);
    return cmocka_run_group_tests_name("gpu_kernels_table", tests, NULL, NULL);
}
