/* kernels_mean_test.c - the CPU's mean over positions against the reference: lengths of 0, of all positions
 * and between, columns beyond its parts; values after a length are not read; the same bits with any number
 * of threads. */
#include "tests/support/cmocka_all.h"

#include <math.h>

#include "tests/support/rank_threads.h"
#include "tests/unit/kernels/kernels_support.h"

#define U FLOAT_ROUNDOFF

struct mean_case {
    int B, T, C;
};
static const struct mean_case cases[] = {{0, 3, 4},    {1, 1, 1},    {3, 7, 5},   {2, 33, 300},
                                         {5, 100, 17}, {4, 64, 256}, {9, 130, 31}};

static int32_t *lengths_new(const struct mean_case *c)
{
    int32_t *lengths = tokens_new((size_t)c->B, c->T + 1, false);
    if (c->B > 1)
        lengths[0] = 0, lengths[c->B - 1] = c->T;
    return lengths;
}

/* NaN after each length. */
static void spoil(float *in, const int32_t *lengths, const struct mean_case *c)
{
    for (int b = 0; b < c->B; b++)
        for (int i = lengths[b] * c->C; i < c->T * c->C; i++)
            in[b * c->T * c->C + i] = NAN;
}

static void check_case(const struct kernels *k, const struct mean_case *c)
{
    const struct kernels *ref = kernels_ref_f32();
    const size_t ins = (size_t)(c->B * c->T * c->C), outs = (size_t)(c->B * c->C);
    scope_memory float *in = floats_new(ins, FILL_UNIT), *dout = floats_new(outs, FILL_UNIT);
    scope_memory float *expected = floats_new(outs, FILL_UNIT), *got = floats_copy(expected, outs);
    scope_memory int32_t *lengths = lengths_new(c);
    computing("%s mean B=%d T=%d C=%d", k->name, c->B, c->T, c->C);
    spoil(in, lengths, c);
    ref->mean_forward(expected, in, lengths, c->B, c->T, c->C, NULL);
    k->mean_forward(got, in, lengths, c->B, c->T, c->C, NULL);
    assert_true(floats_close("out", got, expected, outs, (c->T + 1) * U, U));
    for (int beta = 0; beta < 2; beta++) {
        scope_memory float *din = floats_new(ins, FILL_UNIT), *din_got = floats_copy(din, ins);
        ref->mean_backward(din, dout, lengths, c->B, c->T, c->C, beta, NULL);
        k->mean_backward(din_got, dout, lengths, c->B, c->T, c->C, beta, NULL);
        assert_true(floats_close("din", din_got, din, ins, 4 * U, U));
    }
}

static void mean_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            check_case(*k, &cases[i]);
}

/* ---- threads ---- */

static const struct mean_case large = {64, 50, 40};

struct threads_run {
    int threads;
    const float *in;
    const int32_t *lengths;
    float *out, *din;
};

static int run_with_threads(int rank, int ranks, void *context)
{
    struct threads_run *r = context;
    struct muster_error err;
    const struct kernels *k = kernels_cpu((unsigned)-1);
    (void)rank, (void)ranks;
    if (kernels_cpu_threads(r->threads, &err) < 0)
        return -1;
    k->mean_forward(r->out, r->in, r->lengths, large.B, large.T, large.C, NULL);
    k->mean_backward(r->din, r->out, r->lengths, large.B, large.T, large.C, 0, NULL);
    return 0;
}

static void any_threads_the_same(void **state)
{
    const size_t ins = (size_t)(large.B * large.T * large.C), outs = (size_t)(large.B * large.C);
    scope_memory float *in = floats_new(ins, FILL_UNIT);
    scope_memory int32_t *lengths = lengths_new(&large);
    scope_memory float *out = floats_new(outs, FILL_UNIT), *din = floats_new(ins, FILL_UNIT);
    scope_memory float *out_more = floats_new(outs, FILL_UNIT), *din_more = floats_new(ins, FILL_UNIT);
    struct threads_run one = {1, in, lengths, out, din}, more = {3, in, lengths, out_more, din_more};
    (void)state;
    assert_int_equal(rank_threads_run(1, run_with_threads, &one), 0);
    assert_int_equal(rank_threads_run(1, run_with_threads, &more), 0);
    assert_memory_equal(out_more, out, outs * sizeof(float));
    assert_memory_equal(din_more, din, ins * sizeof(float));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mean_matches),
                                       cmocka_unit_test(any_threads_the_same)};
    kernels_test_begin(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
