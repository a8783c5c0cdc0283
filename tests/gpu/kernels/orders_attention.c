/* orders_attention.c - attention: packed rows or apart, groups of heads, lengths, documents in a row, and
 * gradients that are added. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention/narrow.h"
#include "kernels/cuda/geometry.h"
#include "tests/gpu/kernels/orders.h"

struct shape {
    struct attention a;
    bool packed, tf32, whole; /* whole: every row has all positions */
    bool one;                 /* a row is one document */
    enum dtype narrow;        /* values of 16 bits; else DTYPE_F32 */
    int beta[3];
};

/* Buffers: out, lse, q (or all), k, v, lengths, positions; of backward dq (or all), dk, dv, dout, q, k, v,
 * out, lse, lengths, positions, work. */
static void *part_of(void **p, int first, int i, const struct shape *s, enum dtype dtype)
{
    const struct attention *a = &s->a;
    if (!s->packed)
        return p[first + i];
    return (char *)p[first] +
           (i == 0 ? 0 : (a->heads + (i - 1) * a->kv_heads) * a->head_size) * dtype_size(dtype);
}
static void *part(void **p, int first, int i, const struct shape *s) /* the reference's */
{
    return part_of(p, first, i, s, DTYPE_F32);
}
static void *part_cuda(void **p, int first, int i, const struct shape *s)
{
    return part_of(p, first, i, s, s->narrow);
}

static struct attention with_arrays(const struct shape *s, void *lengths, void *positions)
{
    struct attention a = s->a;
    a.lengths = lengths;
    a.positions = positions;
    return a;
}

static void forward_reference(void **p, const void *argument)
{
    const struct shape *s = argument;
    struct attention a = with_arrays(s, p[5], p[6]);
    kernels_ref_f32()->attention_forward(p[0], p[1], part(p, 2, 0, s), part(p, 2, 1, s), part(p, 2, 2, s), &a,
                                         NULL, NULL);
}
static int forward_cuda(void **p, const void *argument, struct muster_error *err)
{
    const struct shape *s = argument;
    struct attention a = with_arrays(s, p[5], p[6]);
    return (s->tf32                   ? cuda_attention_forward_tf32
            : s->narrow == DTYPE_BF16 ? cuda_attention_forward_bf16
            : s->narrow == DTYPE_F16  ? cuda_attention_forward_f16
                                      : cuda_attention_forward)(
        p[0], p[1], part_cuda(p, 2, 0, s), part_cuda(p, 2, 1, s), part_cuda(p, 2, 2, s), &a, NULL, NULL, err);
}
static void backward_reference(void **p, const void *argument)
{
    const struct shape *s = argument;
    struct attention a = with_arrays(s, p[9], p[10]);
    kernels_ref_f32()->attention_backward(part(p, 0, 0, s), part(p, 0, 1, s), part(p, 0, 2, s), p[3],
                                          part(p, 4, 0, s), part(p, 4, 1, s), part(p, 4, 2, s), p[7], p[8],
                                          &a, s->beta, NULL, NULL);
}
static int backward_cuda(void **p, const void *argument, struct muster_error *err)
{
    const struct shape *s = argument;
    struct attention a = with_arrays(s, p[9], p[10]);
    return (s->tf32                   ? cuda_attention_backward_tf32
            : s->narrow == DTYPE_BF16 ? cuda_attention_backward_bf16
            : s->narrow == DTYPE_F16  ? cuda_attention_backward_f16
                                      : cuda_attention_backward)(
        part_cuda(p, 0, 0, s), part_cuda(p, 0, 1, s), part_cuda(p, 0, 2, s), p[3], part_cuda(p, 4, 0, s),
        part_cuda(p, 4, 1, s), part_cuda(p, 4, 2, s), p[7], p[8], &a, s->beta, p[11], NULL, err);
}

/* For q, k and v, or their gradients. Packed: one buffer, which ends with the last row's v. */
static void operands(struct call_case *c, const struct shape *s, int (*add)(struct call_case *, size_t))
{
    const struct attention *a = &s->a;
    const size_t rows = (size_t)a->B * (size_t)a->T;
    const int kv = a->kv_heads * a->head_size, row[] = {a->q_row, a->k_row, a->v_row},
              width[] = {s->packed ? a->heads * a->head_size + 2 * kv : a->heads * a->head_size, kv, kv};
    for (int i = 0; i < 3; i++)
        add(c, rows && !(i && s->packed) ? rows * (size_t)row[i] - (size_t)(row[i] - width[i]) : 0);
}

static struct shape random_shape(int round)
{
    struct shape s = {.packed = round & 1, .beta = {round & 1, round >> 1 & 1, round >> 2 & 1}};
    struct attention *a = &s.a;
    a->B = (int)random_below(3);
    a->T = awkward(round & 4 ? 40 : 70);
    a->kv_heads = 1 + (int)random_below(2);
    a->heads = a->kv_heads * (1 + (int)random_below(3));
    a->head_size = 1 + awkward(round == 3 ? 67 : 20);
    if (round & 2)
        a->head_size = (a->head_size + 3) / 4 * 4; /* rows are read 16 bytes at a time */
    a->causal = random_below(2) == 0;
    a->window = a->causal && random_below(2) ? 1 + (int)random_below(50) : 0;
    a->q_row = (a->heads + (s.packed ? 2 * a->kv_heads : 0)) * a->head_size + (s.packed ? round % 5 : 0);
    a->k_row = s.packed ? a->q_row : a->kv_heads * a->head_size;
    a->v_row = s.packed ? a->q_row : a->k_row + (round & 2 ? 8 : 1); /* rows of keys and values differ */
    a->scale = round % 4 == 2 ? 0.3 : 0;
    a->cap = round % 8 == 4 ? 2 : 0;
    return s;
}

static void lengths_into(struct call_case *c, const struct shape *s)
{
    const struct attention *a = &s->a;
    int32_t lengths[8];
    for (int b = 0; b < a->B; b++)
        lengths[b] = (int32_t)random_below((uint32_t)a->T + 1);
    if (random_below(3) == 0 || s->whole)
        for (int b = 0; b < a->B; b++)
            lengths[b] = a->T;
    case_bytes(c, lengths, (size_t)a->B * sizeof lengths[0], BYTES, OPERAND);
}

/* Documents of up to 40 positions, or of all. */
static void positions_into(struct call_case *c, const struct shape *s)
{
    const struct attention *a = &s->a;
    int32_t positions[1024];
    for (int row = 0; row < a->B * a->T; row++) {
        const bool begins =
            row % a->T == 0 || (!s->one && (random_below(30) == 0 || positions[row - 1] == 39));
        positions[row] = begins ? 0 : positions[row - 1] + 1;
    }
    case_bytes(c, positions, (size_t)a->B * (size_t)a->T * sizeof positions[0], BYTES, OPERAND);
}

static void attention_of(const struct shape *s)
{
    const struct attention *a = &s->a;
    size_t n = (size_t)a->B * a->T * a->heads * a->head_size, rows = (size_t)a->B * a->T * a->heads;
    /* 2^-11 of each factor, 2^-8 in bf16 */
    const double round = s->narrow == DTYPE_BF16 ? 40 : s->tf32 || s->narrow == DTYPE_F16 ? 20 : 1;
    const bool tensor = s->tf32 || (s->narrow != DTYPE_F32 && a->head_size <= CUDA_ATTENTION_TENSOR_HEAD);
    struct call_case f = {.what = tensor ? "attention_forward by tensor cores" : "attention_forward",
                          .absolute = round * 1e-4,
                          .relative = round * 1e-4,
                          .halves = s->narrow};
    struct call_case b = {.what = tensor ? "attention_backward by tensor cores" : "attention_backward",
                          .absolute = round * 1e-3,
                          .relative = round * 1e-3,
                          .halves = s->narrow};
    case_value_result(&f, n), case_result(&f, rows);
    operands(&f, s, case_value_in);
    lengths_into(&f, s), positions_into(&f, s);
    case_run(&f, forward_reference, forward_cuda, s);
    operands(&b, s, case_value_result);
    case_value_in(&b, n);
    operands(&b, s, case_value_in);
    case_value_in(&b, n), case_in(&b, rows);
    float *lse = b.buffer[8].host;
    for (size_t i = 0; i < rows; i++) /* probabilities of at most about 1 */
        lse[i] = 4 + fabsf(lse[i]);
    lengths_into(&b, s), positions_into(&b, s);
    case_work(&b, cuda_attention_work(a, 1));
    case_run(&b, backward_reference, backward_cuda, s);
}

static void attention(void)
{
    for (int round = 0; round < 2 * ORDERS_ROUNDS; round++) {
        struct shape s = random_shape(round);
        attention_of(&s);
    }
    /* A document begins inside a tile of queries: one has at most 40 positions. */
    struct shape s = {.whole = true,
                      .a = {.B = 1, .T = 70, .heads = 2, .kv_heads = 1, .head_size = 20, .causal = 1}};
    s.a.q_row = 2 * 20;
    s.a.k_row = s.a.v_row = 20;
    attention_of(&s);
}

/* Heads that are wider than a block's columns, rows of 16 bytes, several tiles. */
static void attention_wide(void)
{
    struct shape s = {.a = {.B = 1, .T = 70, .heads = 2, .kv_heads = 1, .head_size = 72, .causal = 1}};
    s.a.q_row = 2 * 72;
    s.a.k_row = s.a.v_row = 72;
    attention_of(&s);
}

/* By tensor cores: both widths of a tile, one block and two, lengths, groups, rows of 16 bytes and others. */
static void attention_tensor(void)
{
    for (int round = 0; round < 4; round++) {
        struct shape s = random_shape(round);
        s.tf32 = true;
        s.a.B = 1 + round % 2;
        s.a.T = round % 2 ? 70 : 37;
        s.a.causal = round != 1;
        s.a.window = round == 2 ? 20 : 0;
        attention_of(&s);
    }
    struct shape wide = {.tf32 = true, .a = {.B = 1, .T = 70, .heads = 2, .kv_heads = 1, .head_size = 52}};
    wide.a.q_row = 2 * 52;
    wide.a.k_row = wide.a.v_row = 52;
    attention_of(&wide);
    /* Tiles of keys before a block, of which its last rows see none through their window, and its first do.
     */
    struct shape far = {.tf32 = true,
                        .one = true,
                        .whole = true,
                        .a = {.B = 1, .T = 192, .heads = 1, .kv_heads = 1, .head_size = 16, .causal = 1}};
    far.a.window = 70;
    far.a.q_row = far.a.k_row = far.a.v_row = 16;
    attention_of(&far);
}

/* A block's own rows in shared memory, of which it has several items' in turn: heads of more than 64. */
static void attention_tensor_wide(void)
{
    static const enum dtype narrow[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    setenv("EMU_GRID_LIMIT", "1", 1);
    for (int i = 0; i < 3; i++) {
        struct shape s = {
            .tf32 = i == 0,
            .narrow = narrow[i],
            .packed = i == 2,
            .beta = {1, 0, 1},
            .a = {
                .B = 1, .T = 66, .heads = 1, .kv_heads = 1, .head_size = i == 1 ? 68 : 72, .causal = i != 1}};
        s.a.q_row = s.a.k_row = s.a.v_row = s.packed ? 3 * s.a.head_size : s.a.head_size;
        attention_of(&s);
    }
    unsetenv("EMU_GRID_LIMIT");
}

/* In 16 bits, by tensor cores and without. */
static void attention_narrow(void)
{
    for (int round = 0; round < 6; round++) {
        struct shape s = random_shape(round);
        s.narrow = round % 2 || round == 4 ? DTYPE_F16 : DTYPE_BF16;
        s.a.B = 1;
        s.a.T = round % 2 ? 66 : 37;
        s.a.head_size = round == 2 ? 136 : round == 1 ? 64 : 24;
        s.a.q_row = (s.a.heads + (s.packed ? 2 * s.a.kv_heads : 0)) * s.a.head_size;
        s.a.k_row = s.packed ? s.a.q_row : s.a.kv_heads * s.a.head_size;
        s.a.v_row = s.packed ? s.a.q_row : s.a.k_row + (round == 2 ? 1 : 8);
        attention_of(&s);
    }
}

/* ---- over kept keys and values ---- */

struct past_case {
    struct attention a;
    int at, room;
    enum dtype values;
};

/* Buffers: out, keys, values, q, k, v, work. */
static void past_reference(void **p, const void *argument)
{
    const struct past_case *s = argument;
    kernels_ref_f32()->attention_past(p[0], p[1], p[2], p[3], p[4], p[5], &s->a, s->at, s->room, NULL, NULL);
}
static int past_cuda(void **p, const void *argument, struct muster_error *err)
{
    const struct past_case *s = argument;
    return (s->values == DTYPE_BF16  ? cuda_attention_past_bf16
            : s->values == DTYPE_F16 ? cuda_attention_past_f16
                                     : cuda_attention_past)(p[0], p[1], p[2], p[3], p[4], p[5], &s->a, s->at,
                                                            s->room, p[6], NULL, err);
}

static void attention_past(void)
{
    for (int round = 0; round < ORDERS_ROUNDS; round++) {
        struct past_case s = {.values = round % 3 == 1 ? DTYPE_BF16 : round % 3 == 2 ? DTYPE_F16 : DTYPE_F32};
        struct attention *a = &s.a;
        a->B = a->causal = 1;
        a->T = 1 + awkward(4);
        a->kv_heads = 1 + (int)random_below(2);
        a->heads = a->kv_heads * (1 + (int)random_below(2));
        a->head_size = 1 + awkward(70);
        a->window = random_below(2) ? 1 + (int)random_below(50) : 0;
        if (round == 5) /* scores fill their room, in two blocks */
            a->window = 0, a->T = 2, a->heads = 2 * a->kv_heads;
        a->cap = random_below(2) ? 2 : 0;
        a->scale = round % 2 ? 0.3 : 0;
        a->q_row = a->heads * a->head_size + round % 2;
        a->k_row = a->kv_heads * a->head_size + round % 3;
        a->v_row = a->k_row + 1 + round % 2;
        s.at = awkward(300);
        s.room = s.at + a->T + (round == 3 || round == 5 ? 0 : (int)random_below(3));
        const size_t kept = (size_t)a->kv_heads * (size_t)s.room * (size_t)a->head_size, T = (size_t)a->T;
        const double rounded = s.values == DTYPE_BF16 ? 40 : s.values == DTYPE_F16 ? 20 : 1;
        struct call_case c = {.what = "attention_past",
                              .absolute = rounded * 1e-4,
                              .relative = rounded * 1e-4,
                              .halves = s.values};
        case_value_result(&c, T * (size_t)a->heads * (size_t)a->head_size);
        case_value_result(&c, kept), case_value_result(&c, kept);
        case_value_in(&c, T * (size_t)a->q_row);
        case_value_in(&c, T * (size_t)a->k_row), case_value_in(&c, T * (size_t)a->v_row);
        if (round == 3) /* a block has several rows */
            setenv("EMU_GRID_LIMIT", "1", 1);
        case_work(&c, cuda_attention_past_work(a, s.room));
        case_run(&c, past_reference, past_cuda, &s);
        unsetenv("EMU_GRID_LIMIT");
    }
}

void orders_attention(void (*run)(const char *name, void (*test)(void)))
{
    run("attention", attention);
    run("attention_wide", attention_wide);
    run("attention_tensor", attention_tensor);
    run("attention_tensor_wide", attention_tensor_wide);
    run("attention_narrow", attention_narrow);
    run("attention_past", attention_past);
}
