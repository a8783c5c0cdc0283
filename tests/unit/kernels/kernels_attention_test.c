/* kernels_attention_test.c - attention of every CPU variant. */
#include "tests/support/cmocka_all.h"

#include "tests/unit/kernels/attention_checks.h"
#include "tests/unit/kernels/kernels_support.h"

enum { RANDOM_SHAPES = 40 };

static void packed_attention_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        attention_check_packed(*k);
}

static void grouped_attention_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        attention_check_grouped(*k, RANDOM_SHAPES);
}

static void unseen_keys_are_not_read(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        attention_check_unseen(*k);
}

/* New positions over kept ones: sums of up to 60 scores in float. */
static void check_past(const struct kernels *k, struct attention a, int at, int room)
{
    const size_t HS = (size_t)a.head_size, T = (size_t)a.T, kept = (size_t)a.kv_heads * (size_t)room * HS;
    const size_t row = (size_t)(a.heads + 2 * a.kv_heads) * HS, n = T * (size_t)a.heads * HS;
    const size_t key = (size_t)a.heads * HS, value = key + (size_t)a.kv_heads * HS;
    a.q_row = a.k_row = a.v_row = (int64_t)row;
    scope_memory float *qkv = floats_new(T * row, FILL_UNIT), *keys = floats_new(kept, FILL_UNIT),
                       *values = floats_new(kept, FILL_UNIT), *out = floats_new(n, FILL_UNIT);
    scope_memory double *qkv64 = doubles_of(qkv, T * row), *keys64 = doubles_of(keys, kept),
                        *values64 = doubles_of(values, kept), *out64 = doubles_of(out, n);
    scope_memory float *work = floats_new(k->attention_past_work(&a, room) / sizeof *work + 1, FILL_UNIT);
    computing("%s attention_past T=%d heads=%d/%d HS=%d at=%d window=%d cap=%g", k->name, a.T, a.heads,
              a.kv_heads, a.head_size, at, a.window, a.cap);
    k->attention_past(out, keys, values, qkv, qkv + key, qkv + value, &a, at, room, work, NULL);
    kernels_ref_f64()->attention_past(out64, keys64, values64, qkv64, qkv64 + key, qkv64 + value, &a, at,
                                      room, NULL, NULL);
    assert_true(doubles_close("out", out, out64, n, 1e-5, 1e-5));
    assert_true(doubles_close("keys", keys, keys64, kept, 0, 0));
    assert_true(doubles_close("values", values, values64, kept, 0, 0));
}

static void kept_attention_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (int i = 0; i < 12; i++)
            check_past(*k,
                       (struct attention){.B = 1,
                                          .T = 1 + i % 5,
                                          .heads = 2 * (1 + i % 2),
                                          .kv_heads = 1 + i % 2,
                                          .head_size = 1 + 7 * i,
                                          .causal = 1,
                                          .window = i % 3 == 1 ? 9 : 0,
                                          .scale = i % 4 == 2 ? 0.3 : 0,
                                          .cap = i % 4 == 3 ? 2 : 0},
                       5 * i, 6 * i + 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_attention_matches),
        cmocka_unit_test(grouped_attention_matches),
        cmocka_unit_test(unseen_keys_are_not_read),
        cmocka_unit_test(kept_attention_matches),
    };
    kernels_test_begin(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
