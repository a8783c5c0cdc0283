/* Mistakes and failures: named, the same on every rank, never a hang. */
#include "tests/support/cmocka_all.h"

#include <math.h>

#include "tests/unit/shard/shard_test_ranks.h"

static struct muster_shard_options small(void)
{
    struct muster_shard_options options;
    muster_shard_defaults(&options);
    options.threads = 1;
    options.timeout_ms = 60000;
    return options;
}

static int run_ranks(int (*body)(struct test_model *m), int rank, int size, int port)
{
    struct test_model m = {.rank = rank, .size = size};
    int failed = test_model_join(&m, port, 60000) || body(&m);
    test_model_close(&m);
    return failed;
}

#define ON_RANKS(name)                                                                                       \
    static int name##_rank(int rank, int size, void *port)                                                   \
    {                                                                                                        \
        return run_ranks(name##_body, rank, size, *(int *)port);                                             \
    }                                                                                                        \
    static void name(void **state)                                                                           \
    {                                                                                                        \
        int port = test_free_port();                                                                         \
        (void)state;                                                                                         \
        assert_int_equal(rank_threads_run(2, name##_rank, &port), 0);                                        \
    }

static int pass_of(struct test_model *m, const int *order, int count)
{
    MUST(m, muster_shard_begin(m->shard, 0, err));
    for (int i = 0; i < count; i++) {
        MUST(m, muster_shard_gather(m->shard, order[i], err));
        MUST(m, muster_shard_release(m->shard, order[i], err));
    }
    return 0;
}

/* Groups h.0, h.1 and h.2 have equal sizes: only their names can tell. */
static int an_order_that_differs_names_both_groups_body(struct test_model *m)
{
    static const int order[] = {0, 1, 2};
    struct muster_shard_options options = small();
    if (test_model_register(m, &options))
        return -1;
    MUST(m, muster_shard_ready(m->shard, err));
    for (int step = 0; step < 3; step++) {
        if (pass_of(m, order, 3))
            return -1;
    }
    MUST(m, muster_shard_begin(m->shard, 0, err));
    MUST(m, muster_shard_gather(m->shard, 0, err));
    MUST(m, muster_shard_release(m->shard, 0, err));
    struct muster_error failure = {0};
    for (int i = 0; i < 3 && !failure.code; i++) { /* one rank leaves group 1 out, which was gathered ahead */
        int group = m->rank ? 2 : 1 + i % 2;
        if (!muster_shard_gather(m->shard, group, &failure))
            (void)muster_shard_release(m->shard, group, &failure);
    }
    CHECK(m, failure.code == MUSTER_E_PEER);
    int named = (strstr(failure.text, "group h.0") != NULL) + (strstr(failure.text, "group h.1") != NULL) +
                (strstr(failure.text, "group h.2") != NULL);
    if (named < 2)
        fprintf(stderr, "rank %d: %s\n", m->rank, failure.text);
    CHECK(m, named >= 2);
    REFUSED(m, muster_shard_gather(m->shard, 3, err), "ranks differ"); /* and so from then on */
    return 0;
}
ON_RANKS(an_order_that_differs_names_both_groups)

static int a_registration_that_differs_names_the_group_body(struct test_model *m)
{
    struct muster_shard_options options = small();
    MUST(m, !(m->shard = muster_shard_create(m->world, &options, err)));
    for (int g = 0; g < 3; g++) {
        MUST(m, muster_shard_group(m->shard, test_groups[g], 0, err) != g);
        MUST(m, muster_shard_parameter(m->shard, "weight", 100 + (g == 1 ? m->rank : 0), 0, err) != g);
    }
    REFUSED(m, muster_shard_ready(m->shard, err), "group 1 (h.1 here");
    REFUSED(m, muster_shard_gather(m->shard, 0, err), "muster_shard_ready");
    return 0;
}
ON_RANKS(a_registration_that_differs_names_the_group)

static int options_that_differ_are_named_body(struct test_model *m)
{
    struct muster_shard_options options = small();
    options.prefetch = 1 + m->rank;
    if (test_model_register(m, &options))
        return -1;
    REFUSED(m, muster_shard_ready(m->shard, err), "gathers ahead (prefetch)");
    return 0;
}
ON_RANKS(options_that_differ_are_named)

static int replicas_that_differ_are_named_body(struct test_model *m)
{
    struct muster_shard_options options = small();
    options.replicas = 1 + m->rank;
    if (test_model_register(m, &options))
        return -1;
    REFUSED(m, muster_shard_ready(m->shard, err),
            m->rank ? "rank 1 has 2 replicas, rank 0 has 1" : "rank 1 has 2");
    return 0;
}
ON_RANKS(replicas_that_differ_are_named)

static int replicas_divide_the_ranks_body(struct test_model *m)
{
    struct muster_shard_options options = small();
    options.replicas = 3;
    REFUSED(m, muster_shard_create(m->world, &options, err) == NULL,
            "replicas is 3, which does not divide 2 ranks");
    options.replicas = -3;
    REFUSED(m, muster_shard_create(m->world, &options, err) == NULL, "replicas is -3, but must be from -1");
    options.replicas = -1; /* one node: one run */
    MUST(m, !(m->shard = muster_shard_create(m->world, &options, err)));
    return 0;
}
ON_RANKS(replicas_divide_the_ranks)

static int a_rank_that_cannot_begin_ends_all_body(struct test_model *m)
{
    struct muster_shard_options options = small();
    MUST(m, !(m->shard = muster_shard_create(m->world, &options, err)));
    if (m->rank == 0 && test_params[0].elements > 0) { /* rank 1 registers nothing */
        MUST(m, muster_shard_group(m->shard, "g", 0, err) != 0);
        MUST(m, muster_shard_parameter(m->shard, "w", 10, 0, err) != 0);
    }
    REFUSED(m, muster_shard_ready(m->shard, err), "no groups are registered");
    return 0;
}
ON_RANKS(a_rank_that_cannot_begin_ends_all)

static int a_rank_that_leaves_is_an_error_body(struct test_model *m)
{
    static const int order[] = {0, 1, 2};
    struct muster_shard_options options = small();
    if (test_model_register(m, &options))
        return -1;
    MUST(m, muster_shard_ready(m->shard, err));
    if (pass_of(m, order, 3) || m->rank == 1)
        return m->rank == 1 ? 0 : -1; /* closes */
    struct muster_error failure = {0};
    for (int i = 0; i < 3 && !failure.code; i++) {
        if (!muster_shard_gather(m->shard, i, &failure))
            (void)muster_shard_release(m->shard, i, &failure);
    }
    CHECK(m, failure.code == MUSTER_E_PEER && strstr(failure.text, "rank 1"));
    return 0;
}
ON_RANKS(a_rank_that_leaves_is_an_error)

static int a_rank_that_never_comes_is_a_time_out_body(struct test_model *m)
{
    struct muster_shard_options options = small();
    options.timeout_ms = 1500;
    if (test_model_register(m, &options))
        return -1;
    MUST(m, muster_shard_ready(m->shard, err));
    if (m->rank == 0)
        REFUSED(m, muster_shard_gather(m->shard, 0, err), "for group h.0");
    MUST(m, muster_world_barrier(m->world, err));
    return 0;
}
ON_RANKS(a_rank_that_never_comes_is_a_time_out)

static int wrong_calls_are_named_body(struct test_model *m)
{
    struct muster_shard_options options = small();
    options.gradient_slots = 1;
    if (test_model_register(m, &options))
        return -1;
    struct muster_shard_step step;
    muster_shard_step_defaults(&step);
    REFUSED(m, muster_shard_step(m->shard, &step, NULL, err), "muster_shard_ready");
    CHECK(m, !muster_shard_address(m->shard, 0));
    REFUSED(m, muster_shard_parameter(m->shard, "x", 10, 8, err) < 0, "class 8");
    MUST(m, muster_shard_ready(m->shard, err));
    REFUSED(m, muster_shard_ready(m->shard, err), "called before");
    REFUSED(m, muster_shard_group(m->shard, "late", 0, err) < 0, "late is registered after");
    REFUSED(m, muster_shard_gather(m->shard, 4, err), "group 4: groups are 0 to 3");
    REFUSED(m, muster_shard_release(m->shard, 1, err), "group h.1 is released, but was not gathered");
    REFUSED(m, muster_shard_store(m->shard, 1, 0, err), "h.1 has to be gathered");
    REFUSED(m, muster_shard_begin(m->shard, 4, err), "pass 4");
    REFUSED(m, !muster_shard_gradient(m->shard, 6, err), "group fixed is frozen");
    REFUSED(m, !muster_shard_gradient(m->shard, 7, err), "parameter 7");
    step.clip_norm = NAN;
    REFUSED(m, muster_shard_step(m->shard, &step, NULL, err), "clip_norm is nan");
    step.clip_norm = 0;
    struct muster_shard_step wrong = step;
    wrong.learning_rate[7] = NAN;
    REFUSED(m, muster_shard_step(m->shard, &wrong, NULL, err), "learning_rate is nan");
    wrong = step, wrong.weight_decay[0] = -0.5;
    REFUSED(m, muster_shard_step(m->shard, &wrong, NULL, err), "weight_decay is -0.5");
    wrong = step, wrong.beta2 = 1;
    REFUSED(m, muster_shard_step(m->shard, &wrong, NULL, err),
            "beta2 is 1, but must be at least 0 and below 1");
    wrong = step, wrong.epsilon = INFINITY;
    REFUSED(m, muster_shard_step(m->shard, &wrong, NULL, err), "epsilon is inf");
    MUST(m, !muster_shard_gradient(m->shard, 0, err));
    REFUSED(m, muster_shard_step(m->shard, &step, NULL, err), "h.0 has gradients that were not reduced");
    MUST(m, muster_shard_discard(m->shard, err));
    MUST(m, muster_shard_step(m->shard, &step, NULL, err));
    MUST(m, muster_shard_gather(m->shard, 1, err));
    REFUSED(m, muster_shard_step(m->shard, &step, NULL, err), "group h.1 is gathered");
    MUST(m, muster_shard_release(m->shard, 1, err));
    MUST(m, !muster_shard_gradient(m->shard, 0, err));
    REFUSED(m, !muster_shard_gradient(m->shard, 2, err), "no gradient slot is free for group h.1");
    return 0;
}
ON_RANKS(wrong_calls_are_named)

static int a_norm_that_is_not_finite_skips_body(struct test_model *m)
{
    struct muster_shard_options options = small();
    static __thread float bad[30011], fine[30011], bias[7];
    if (test_model_register(m, &options))
        return -1;
    MUST(m, muster_shard_ready(m->shard, err));
    struct muster_shard_step step;
    struct muster_shard_result result = {.size = sizeof result};
    muster_shard_step_defaults(&step);
    step.clip_norm = 1;
    for (int i = 0; i < 30011; i++)
        fine[i] = 1;
    bad[5] = INFINITY;
    for (int round = 0; round < 2; round++) {
        const void *gradients[] = {m->rank == 1 && !round ? bad : fine, bias};
        MUST(m, muster_shard_reduce(m->shard, 0, gradients, err));
        MUST(m, muster_shard_step(m->shard, &step, &result, err));
        CHECK(m, result.skipped == !round);
        MUST(m, muster_shard_gather(m->shard, 0, err));
        float first = *(const float *)muster_shard_address(m->shard, 0);
        CHECK(m, round ? fabsf(first + 1e-3f) < 1e-6f : first == 0);
        MUST(m, muster_shard_release(m->shard, 0, err));
    }
    return 0;
}
ON_RANKS(a_norm_that_is_not_finite_skips)

static void options_are_checked(void **state)
{
    (void)state;
    struct muster_error err = {0};
#define WRONG(change, names)                                                                                 \
    {                                                                                                        \
        struct muster_shard_options options = small();                                                       \
        change;                                                                                              \
        assert_null(muster_shard_create(NULL, &options, &err));                                              \
        if (!strstr(err.text, names))                                                                        \
            fail_msg("'%s' does not name '%s'", err.text, names);                                            \
    }
    WRONG(options.size = 4, "muster_shard_options is 4 bytes")
    WRONG(options.dtype = 2, "dtype is 2")
    WRONG(options.optimizer = 4, "optimizer is 4")
    WRONG(options.prefetch = -1, "prefetch is -1")
    WRONG(options.prefetch = 65, "prefetch is 65")
    WRONG(options.gradient_slots = 0, "gradient_slots is 0")
    WRONG(options.timeout_ms = -5, "timeout_ms is -5")
#undef WRONG
    muster_shard_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(wrong_calls_are_named),
        cmocka_unit_test(a_norm_that_is_not_finite_skips),
        cmocka_unit_test(an_order_that_differs_names_both_groups),
        cmocka_unit_test(a_registration_that_differs_names_the_group),
        cmocka_unit_test(replicas_that_differ_are_named),
        cmocka_unit_test(replicas_divide_the_ranks),
        cmocka_unit_test(options_that_differ_are_named),
        cmocka_unit_test(a_rank_that_cannot_begin_ends_all),
        cmocka_unit_test(a_rank_that_leaves_is_an_error),
        cmocka_unit_test(a_rank_that_never_comes_is_a_time_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
