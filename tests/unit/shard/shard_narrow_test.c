/* shard_narrow_test.c - 16-bit parameters and gradients next to fp32 masters, and the values read and written
 * whole. */
#include <math.h>
#include <stdlib.h>

#include "kernels/narrow.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"
#include "tests/unit/shard/shard_test_ranks.h"

enum { ELEMENTS = 30011 }; /* elements of h.0.weight */

struct test_case {
    int reduce_dtype, port;
};

static float initial(int i)
{
    return sinf((float)i) * 1.37F;
}

static float gradient(int rank, int i)
{
    return cosf((float)(i * 3 + rank)) * 0.01F;
}

/* The average of what travels: rounded gradients, added in float, rounded once. */
static float reduced(const struct test_case *c, int size, int i)
{
    bool narrow = c->reduce_dtype == MUSTER_SHARD_BF16;
    float sum = 0;
    for (int rank = 0; rank < size; rank++)
        sum += narrow ? narrow_from_bf16(narrow_to_bf16(gradient(rank, i))) : gradient(rank, i);
    sum *= 1.0F / (float)size;
    return narrow ? narrow_from_bf16(narrow_to_bf16(sum)) : sum;
}

static int reduce_group(struct test_model *m, const struct test_case *c)
{
    void *at[2] = {NULL, NULL};
    MUST(m, !(at[0] = muster_shard_gradient(m->shard, 0, err)));
    for (int i = 0; i < ELEMENTS; i++) {
        if (c->reduce_dtype == MUSTER_SHARD_BF16)
            ((uint16_t *)at[0])[i] = narrow_to_bf16(gradient(m->rank, i));
        else
            ((float *)at[0])[i] = gradient(m->rank, i);
    }
    MUST(m, muster_shard_reduce(m->shard, 0, (const void *const *)at, err));
    return 0;
}

static int masters(struct test_model *m, float *values)
{
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = m->rank == 0 ? initial(i) : -1;
    MUST(m, muster_shard_write(m->shard, 0, MUSTER_LOCAL_PARAMETERS, values, 0, err));
    MUST(m, muster_shard_gather(m->shard, 0, err));
    const uint16_t *full = muster_shard_address(m->shard, 0);
    for (int i = 0; i < ELEMENTS; i++)
        CHECK(m, full[i] == narrow_to_bf16(initial(i)));
    MUST(m, muster_shard_release(m->shard, 0, err));
    return 0;
}

/* SGD of a learning rate of 1/2 and no decay: master - gradient / 2, twice reduced. */
static int update(struct test_model *m, const struct test_case *c, float *values)
{
    struct muster_shard_step step;
    muster_shard_step_defaults(&step);
    step.learning_rate[0] = 0.5;
    step.weight_decay[0] = 0;
    if (reduce_group(m, c) || reduce_group(m, c))
        return -1;
    MUST(m, muster_shard_step(m->shard, &step, NULL, err));
    MUST(m, muster_shard_read(m->shard, 0, MUSTER_LOCAL_PARAMETERS, values, err));
    MUST(m, muster_shard_gather(m->shard, 0, err));
    const uint16_t *full = muster_shard_address(m->shard, 0);
    for (int i = 0; i < ELEMENTS; i++) {
        float wanted = initial(i) - 0.5F * (2 * reduced(c, m->size, i));
        CHECK(m, fabsf(values[i] - wanted) <= 2e-7F * (1 + fabsf(wanted)));
        CHECK(m, full[i] == narrow_to_bf16(values[i]));
    }
    MUST(m, muster_shard_release(m->shard, 0, err));
    CHECK(m, muster_shard_updates(m->shard, 0, -1) == 1 && muster_shard_updates(m->shard, 2, -1) == 0);
    CHECK(m,
          muster_shard_updates(m->shard, 2, 7) == 7 && muster_shard_updates(m->shard, TEST_PARAMS, 1) == -1);
    return 0;
}

static int refusals(struct test_model *m, float *values)
{
    REFUSED(m, muster_shard_read(m->shard, 0, MUSTER_LOCAL_MOMENT2, values, err), "has nothing of kind 3");
    REFUSED(m, muster_shard_read(m->shard, 0, MUSTER_LOCAL_GRADIENTS, values, err), "has nothing of kind 1");
    REFUSED(m, muster_shard_read(m->shard, 6, MUSTER_LOCAL_MOMENT1, values, err),
            "has nothing of kind 2"); /* frozen */
    REFUSED(m, muster_shard_write(m->shard, TEST_PARAMS, 0, values, 0, err), "parameter 7 (of 7)");
    REFUSED(m, muster_shard_write(m->shard, 0, 0, values, m->size, err), "root is");
    MUST(m, muster_shard_gather(m->shard, 0, err));
    REFUSED(m, muster_shard_write(m->shard, 0, 0, values, 0, err), "h.0");
    MUST(m, muster_shard_release(m->shard, 0, err));
    return 0;
}

static int one_rank(int rank, int size, void *context)
{
    const struct test_case *c = context;
    struct test_model m = {.rank = rank, .size = size};
    struct muster_shard_options options;
    float *values = mem_calloc(ELEMENTS, sizeof *values);
    muster_shard_defaults(&options);
    options.optimizer = MUSTER_SHARD_SGD;
    options.momentum = 1;
    options.threads = 1;
    options.param_dtype = MUSTER_SHARD_BF16;
    options.reduce_dtype = c->reduce_dtype;
    int failed = !values || test_model_open(&m, c->port, &options) || masters(&m, values) ||
                 update(&m, c, values) || refusals(&m, values);
    test_model_close(&m);
    mem_free(values);
    return failed ? -1 : 0;
}

static void masters_stay_fp32_and_what_travels_is_rounded(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++) {
        struct test_case narrow = {.reduce_dtype = MUSTER_SHARD_BF16, .port = test_free_port()};
        assert_int_equal(rank_threads_run(size, one_rank, &narrow), 0);
        struct test_case wide = {.reduce_dtype = MUSTER_SHARD_F32, .port = test_free_port()};
        assert_int_equal(rank_threads_run(size, one_rank, &wide), 0);
    }
}

static void dtypes_that_do_not_go_together_are_refused(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct muster_shard_options options;
    muster_shard_defaults(&options);
    options.dtype = MUSTER_SHARD_F64;
    options.param_dtype = MUSTER_SHARD_BF16;
    assert_null(muster_shard_create(NULL, &options, &err));
    assert_int_equal(err.code, MUSTER_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "param_dtype is neither dtype nor 16 bits with a dtype of fp32"));
    options.param_dtype = MUSTER_SHARD_SAME;
    options.reduce_dtype = MUSTER_SHARD_F32;
    assert_null(muster_shard_create(NULL, &options, &err));
    assert_non_null(strstr(err.text, "reduce_dtype is neither"));
    options.reduce_dtype = 9;
    assert_null(muster_shard_create(NULL, &options, &err));
    assert_non_null(strstr(err.text, "reduce_dtype is 9, but must be from -1 to 3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(masters_stay_fp32_and_what_travels_is_rounded),
                                       cmocka_unit_test(dtypes_that_do_not_go_together_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
