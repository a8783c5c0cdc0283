/* kernels_cuda_attention_test.c - CUDA's attention, in fp32 and in tf32, by the checks of the CPU's: what
 * they call copies its operands to the device and the results back. Needs a GPU; without one it says why and
 * is skipped (77). */
#include "tests/support/cmocka_all.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/geometry.h"
#include "proto/base/mem.h"
#include "tests/unit/kernels/attention_checks.h"
#include "tests/unit/kernels/kernels_cuda_support.h"

enum { RANDOM_SHAPES = 20 };

/* q, k and v on the device as they lie on the host: parts of one block, or three. */
struct placed {
    int blocks;
    size_t floats[3];
    const float *host[3];
    void *block[3];
    float *part[3];
};

/* The floats from a part's first to its last that is used. */
static size_t extent(const struct attention *a, int i)
{
    const int64_t row[3] = {a->q_row, a->k_row, a->v_row};
    size_t rows = (size_t)a->B * (size_t)a->T, width = (size_t)((i ? a->kv_heads : a->heads) * a->head_size);
    return rows ? (rows - 1) * (size_t)row[i] + width : 0;
}

static struct placed place(const struct attention *a, const void *q, const void *k, const void *v)
{
    const float *parts[3] = {q, k, v};
    struct placed placed = {.blocks = 3};
    if (extent(a, 0) && parts[1] > parts[0] && parts[1] - parts[0] < a->q_row && parts[2] > parts[1] &&
        parts[2] - parts[0] < a->q_row)
        placed.blocks = 1;
    for (int i = 0; i < placed.blocks; i++) {
        placed.host[i] = parts[i];
        placed.floats[i] = placed.blocks == 1 ? (size_t)(parts[2] - parts[0]) + extent(a, 2) : extent(a, i);
        placed.block[i] = device_floats(parts[i], placed.floats[i]);
    }
    for (int i = 0; i < 3; i++)
        placed.part[i] =
            placed.blocks == 1 ? (float *)placed.block[0] + (parts[i] - parts[0]) : placed.block[i];
    return placed;
}

static void placed_free(struct placed *placed)
{
    for (int i = 0; i < placed->blocks; i++)
        device_free(&placed->block[i]);
}
#define scope_placed __attribute__((cleanup(placed_free)))

/* lengths and positions are device memory too. */
static struct attention on_device(const struct attention *a, void **lengths, void **positions)
{
    struct attention copy = *a;
    *lengths = device_copy(a->lengths, a->lengths ? (size_t)a->B * sizeof *a->lengths : 0);
    copy.lengths = a->lengths ? *lengths : NULL;
    const size_t rows = (size_t)a->B * (size_t)a->T;
    *positions = device_copy(a->positions, a->positions ? rows * sizeof *a->positions : 0);
    copy.positions = a->positions ? *positions : NULL;
    return copy;
}

typedef int attention_forward(void *, void *, const void *, const void *, const void *,
                              const struct attention *, void *, void *, struct muster_error *);
typedef int attention_backward(void *, void *, void *, const void *, const void *, const void *, const void *,
                               const void *, const void *, const struct attention *, const int[3], void *,
                               void *, struct muster_error *);

static void forward_by(attention_forward *attend, void *out, void *lse, const void *q, const void *k,
                       const void *v, const struct attention *a, void *stream)
{
    size_t n = (size_t)a->B * a->T * a->heads * a->head_size, statistics = (size_t)a->B * a->heads * a->T;
    scope_placed struct placed in = place(a, q, k, v);
    scope_device void *d_out = device_floats(out, n), *d_lse = device_floats(lse, statistics);
    scope_device void *d_lengths = NULL, *d_positions = NULL;
    struct attention d = on_device(a, &d_lengths, &d_positions);
    ENQUEUED(attend(d_out, d_lse, in.part[0], in.part[1], in.part[2], &d, NULL, stream, &failed));
    fetch(out, d_out, n * sizeof(float));
    fetch(lse, d_lse, statistics * sizeof(float));
}

static void backward_by(attention_backward *attend, void *dq, void *dk, void *dv, const void *dout,
                        const void *q, const void *k, const void *v, const void *out, const void *lse,
                        const struct attention *a, const int beta[3], void *work, void *stream)
{
    size_t n = (size_t)a->B * a->T * a->heads * a->head_size, statistics = (size_t)a->B * a->heads * a->T;
    scope_placed struct placed in = place(a, q, k, v), gradients = place(a, dq, dk, dv);
    scope_device void *d_out = device_floats(out, n), *d_lse = device_floats(lse, statistics);
    scope_device void *d_dout = device_floats(dout, n), *d_lengths = NULL, *d_positions = NULL;
    scope_device void *d_work = device_copy(work, cuda_attention_work(a, 1));
    struct attention d = on_device(a, &d_lengths, &d_positions);
    ENQUEUED(attend(gradients.part[0], gradients.part[1], gradients.part[2], d_dout, in.part[0], in.part[1],
                    in.part[2], d_out, d_lse, &d, beta, d_work, stream, &failed));
    for (int i = 0; i < gradients.blocks; i++)
        fetch((float *)gradients.host[i], gradients.block[i], gradients.floats[i] * sizeof(float));
}

/* The two slots of a table. */
#define SLOTS(suffix)                                                                                        \
    static void forward##suffix(void *out, void *lse, const void *q, const void *k, const void *v,           \
                                const struct attention *a, void *work, void *stream)                         \
    {                                                                                                        \
        (void)work;                                                                                          \
        forward_by(cuda_attention_forward##suffix, out, lse, q, k, v, a, stream);                            \
    }                                                                                                        \
    static void backward##suffix(void *dq, void *dk, void *dv, const void *dout, const void *q,              \
                                 const void *k, const void *v, const void *out, const void *lse,             \
                                 const struct attention *a, const int beta[3], void *work, void *stream)     \
    {                                                                                                        \
        backward_by(cuda_attention_backward##suffix, dq, dk, dv, dout, q, k, v, out, lse, a, beta, work,     \
                    stream);                                                                                 \
    }
SLOTS()
SLOTS(_tf32)

static const struct kernels tables[] = {{.name = "cuda",
                                         .attention_forward = forward,
                                         .attention_backward = backward,
                                         .attention_work = cuda_attention_work},
                                        {.name = "cuda-tf32",
                                         .attention_forward = forward_tf32,
                                         .attention_backward = backward_tf32,
                                         .attention_work = cuda_attention_work}};
/* Rounds of each test. */
#define EACH_TABLE(table)                                                                                    \
    for (const struct kernels *table = tables; table < tables + sizeof tables / sizeof *tables; table++)

static void packed_attention_matches(void **state)
{
    (void)state;
    EACH_TABLE (table)
        attention_check_packed(table);
}

static void grouped_attention_matches(void **state)
{
    (void)state;
    EACH_TABLE (table)
        attention_check_grouped(table, table == tables ? RANDOM_SHAPES : 4);
}

static void unseen_keys_are_not_read(void **state)
{
    (void)state;
    EACH_TABLE (table)
        attention_check_unseen(table);
}

/* More pieces of work than the grid has blocks, and heads wider than a block's columns; emulated in fp32
 * alone, since products of matrices take half a minute there. */
static void large_attention_matches(void **state)
{
    static const int shapes[][4] = {{CUDA_ROW_BLOCKS / 4 + 1, 1, 4, 4}, {1, 40, 256, 2}, {2, 35, 390, 3}};
    (void)state;
    const bool emulated = dlsym(RTLD_DEFAULT, "fake_refuse") != NULL;
    for (const struct kernels *table = tables; table < tables + (emulated ? 1 : 2); table++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            attention_check_shape(table,
                                  packed_attention(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]));
}

/* Forward and backward of packed rows, every result NaN before. */
static void attend(const struct kernels *table, const struct attention *a, const float *qkv,
                   const float *dout, float *results[3])
{
    const size_t n = (size_t)a->B * a->T * a->heads * a->head_size, lse_n = (size_t)a->B * a->heads * a->T;
    const int beta[3] = {0, 0, 0}, C = a->heads * a->head_size;
    scope_memory float *work = floats_new(table->attention_work(a, 1) / sizeof(float), FILL_UNIT);
    memset(results[0], 0xff, n * sizeof(float));
    memset(results[1], 0xff, lse_n * sizeof(float));
    memset(results[2], 0xff, 3 * n * sizeof(float));
    table->attention_forward(results[0], results[1], qkv, qkv + C, qkv + 2 * C, a, work, NULL);
    table->attention_backward(results[2], results[2] + C, results[2] + 2 * C, dout, qkv, qkv + C, qkv + 2 * C,
                              results[0], results[1], a, beta, work, NULL);
}

/* A grid of three blocks has the results of a larger one. */
static void few_blocks_do_all_work(void **state)
{
    const struct attention a = packed_attention(2, 70, 24, 3);
    const size_t n = (size_t)a.B * a.T * 24, sizes[3] = {n, (size_t)a.B * a.heads * a.T, 3 * n};
    scope_memory float *qkv = floats_new(3 * n, FILL_UNIT), *dout = floats_new(n, FILL_UNIT);
    (void)state;
    EACH_TABLE (table) {
        float *whole[3], *few[3];
        for (int i = 0; i < 3; i++) {
            whole[i] = floats_new(sizes[i], FILL_UNIT);
            few[i] = floats_new(sizes[i], FILL_UNIT);
        }
        attend(table, &a, qkv, dout, whole);
        setenv("EMU_GRID_LIMIT", "3", 1); /* of no effect on a GPU */
        attend(table, &a, qkv, dout, few);
        unsetenv("EMU_GRID_LIMIT");
        for (int i = 0; i < 3; i++) {
            assert_memory_equal(whole[i], few[i], sizes[i] * sizeof(float));
            kernels_scope_free(&whole[i]);
            kernels_scope_free(&few[i]);
        }
    }
}

/* kernels_cuda_attention_test [TEST] */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_attention_matches), cmocka_unit_test(grouped_attention_matches),
        cmocka_unit_test(unseen_keys_are_not_read), cmocka_unit_test(large_attention_matches),
        cmocka_unit_test(few_blocks_do_all_work),
    };
    const char *missing = gpu_missing();
    if (missing) {
        printf("skipped: no GPU: %s\n", missing);
        return 77;
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    kernels_test_begin(1);
    return cmocka_run_group_tests(tests, NULL, NULL) > 0;
}
