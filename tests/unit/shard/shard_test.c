/* A sharded model against the same arithmetic on one array: every optimizer, 1 to 4 ranks. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>

#include "tests/unit/shard/shard_test_ranks.h"

enum { STEPS = 5, PASSES = 2 };

struct test_case {
    int port, optimizer, dtype;
    bool in_place, hold; /* gradients are written where they belong; held over a step's passes */
    bool apart;          /* over TCP */
    int replicas, node;  /* options.replicas; ranks of a node, 0: all of them */
};

/* Where a parameter's initial values and gradients come from; a bias of h.1 has no gradient at step 2. */
static double initial(int param, int64_t i)
{
    return sin((double)(param * 1000 + i % 977));
}
static bool has_gradient(int param, int step)
{
    return param != 3 || step != 2;
}
static double gradient(int param, int64_t i, int step, int pass, int rank, double value)
{
    return value - 0.5 + 0.1 * cos((double)(i % 61 + param + step * 7 + pass * 3)) + 0.01 * rank;
}

static struct muster_shard_step values_of_step(int step)
{
    struct muster_shard_step s;
    muster_shard_step_defaults(&s);
    s.learning_rate[0] = 0.01 * (step + 1);
    s.learning_rate[1] = 0.02;
    s.weight_decay[1] = 0;
    s.momentum = 0.9;
    s.clip_norm = step == 3 ? 0 : 5.0;
    return s;
}

/* ---- the reference: doubles, one array ---- */

struct reference {
    double *value[TEST_PARAMS], *grad[TEST_PARAMS], *m[TEST_PARAMS], *v[TEST_PARAMS];
    int updates[TEST_PARAMS];
    double norm[STEPS];
};

static void reference_update(struct reference *r, const struct test_case *c, int p,
                             const struct muster_shard_step *s, double clip)
{
    int k = test_params[p].parameter_class, t = ++r->updates[p];
    double lr = s->learning_rate[k], wd = s->weight_decay[k];
    for (int64_t i = 0; i < test_params[p].elements; i++) {
        double *w = &r->value[p][i], *m = &r->m[p][i], *v = &r->v[p][i], g = r->grad[p][i] * clip;
        if (c->optimizer == MUSTER_SHARD_SGD) {
            g += wd * *w;
            *m = t == 1 ? g : s->momentum * *m + g;
            *w -= lr * *m;
            continue;
        }
        if (c->optimizer == MUSTER_SHARD_ADAM)
            g += wd * *w;
        *m = s->beta1 * *m + (1 - s->beta1) * g;
        *v = s->beta2 * *v + (1 - s->beta2) * g * g;
        double decay = c->optimizer == MUSTER_SHARD_ADAMW ? lr * wd * *w : 0;
        *w -= lr * (*m / (1 - pow(s->beta1, t))) / (sqrt(*v / (1 - pow(s->beta2, t))) + s->epsilon) + decay;
    }
}

static void reference_run(struct reference *r, const struct test_case *c, int size)
{
    for (int p = 0; p < TEST_PARAMS; p++) {
        size_t n = (size_t)test_params[p].elements;
        double **all[] = {&r->value[p], &r->grad[p], &r->m[p], &r->v[p]};
        for (int k = 0; k < 4; k++)
            *all[k] = calloc(n, sizeof(double));
        for (size_t i = 0; i < n; i++)
            r->value[p][i] =
                c->dtype == MUSTER_SHARD_F32 ? (float)initial(p, (int64_t)i) : initial(p, (int64_t)i);
    }
    for (int step = 0; step < STEPS; step++) {
        struct muster_shard_step s = values_of_step(step);
        double sum = 0;
        for (int p = 0; p < TEST_PARAMS - 1; p++) {
            for (int64_t i = 0; i < test_params[p].elements; i++) {
                double *g = &r->grad[p][i];
                *g = 0;
                for (int pass = 0; pass < PASSES; pass++)
                    for (int rank = 0; rank < size && has_gradient(p, step); rank++)
                        *g += gradient(p, i, step, pass, rank, r->value[p][i]) / size;
                sum += *g * *g;
            }
        }
        r->norm[step] = sqrt(sum);
        double clip = s.clip_norm > 0 ? fmin(1, s.clip_norm / (r->norm[step] + 1e-6)) : 1;
        for (int p = 0; p < TEST_PARAMS - 1; p++) {
            if (has_gradient(p, step))
                reference_update(r, c, p, &s, clip);
        }
    }
}

static void reference_free(struct reference *r)
{
    for (int p = 0; p < TEST_PARAMS; p++) {
        free(r->value[p]);
        free(r->grad[p]);
        free(r->m[p]);
        free(r->v[p]);
    }
}

/* ---- the sharded run ---- */

static double get(const struct test_case *c, const void *at, int64_t i)
{
    return c->dtype == MUSTER_SHARD_F64 ? ((const double *)at)[i] : ((const float *)at)[i];
}
static void put(const struct test_case *c, void *at, int64_t i, double value)
{
    if (c->dtype == MUSTER_SHARD_F64)
        ((double *)at)[i] = value;
    else
        ((float *)at)[i] = (float)value;
}

/* From rank 0's values, the others have garbage. */
static int store_initial(const struct test_model *m, const struct test_case *c, void *const *addresses)
{
    for (int g = 0; g < TEST_GROUPS; g++) {
        MUST(m, muster_shard_gather(m->shard, g, err));
        for (int p = 0; p < TEST_PARAMS; p++) {
            for (int64_t i = 0; test_params[p].group == g && i < test_params[p].elements; i++)
                put(c, addresses[p], i, initial(p, i) + (m->rank ? 100 : 0));
        }
        MUST(m, muster_shard_store(m->shard, g, 0, err));
        MUST(m, muster_shard_release(m->shard, g, err));
    }
    return 0;
}

/* Backward of one group: gradients from the gathered values. */
static int backward(const struct test_model *m, const struct test_case *c, void *const *addresses, int group,
                    int step, int pass, void *const *work)
{
    const void *gradients[TEST_PARAMS];
    int count = 0;
    bool send = !c->hold || pass == PASSES - 1;
    MUST(m, muster_shard_gather(m->shard, group, err));
    for (int p = 0; p < TEST_PARAMS; p++) {
        if (test_params[p].group != group)
            continue;
        void *to = work[p];
        if (c->in_place)
            MUST(m, !(to = muster_shard_gradient(m->shard, p, err)));
        for (int64_t i = 0; i < test_params[p].elements; i++) {
            double g =
                has_gradient(p, step) ? gradient(p, i, step, pass, m->rank, get(c, addresses[p], i)) : 0;
            put(c, to, i, c->hold && pass ? get(c, to, i) + g : g);
        }
        gradients[count++] = has_gradient(p, step) ? to : NULL;
    }
    MUST(m, muster_shard_release(m->shard, group, err));
    if (send)
        MUST(m, muster_shard_reduce(m->shard, group, gradients, err));
    return 0;
}

static int train(const struct test_model *m, const struct test_case *c, void *const *addresses,
                 const struct reference *r, void *const *work)
{
    for (int step = 0; step < STEPS; step++) {
        for (int pass = 0; pass < PASSES; pass++) {
            MUST(m, muster_shard_begin(m->shard, 0, err));
            for (int g = 0; g < TEST_GROUPS; g++) {
                MUST(m, muster_shard_gather(m->shard, g, err));
                MUST(m, muster_shard_release(m->shard, g, err));
            }
            for (int g = 2; g >= 0; g--) {
                if (backward(m, c, addresses, g, step, pass, work))
                    return -1;
            }
        }
        struct muster_shard_step s = values_of_step(step);
        struct muster_shard_result result = {.size = sizeof result};
        double norm;
        MUST(m, muster_shard_grad_norm(m->shard, &norm, err));
        MUST(m, muster_shard_step(m->shard, &s, &result, err));
        CHECK(m, fabs(norm - r->norm[step]) < 1e-4 * r->norm[step]);
        CHECK(m, s.clip_norm == 0 ? result.grad_norm == 0 : result.grad_norm == norm);
    }
    return 0;
}

static int compare(const struct test_model *m, const struct test_case *c, void *const *addresses,
                   const struct reference *r)
{
    double bound = c->dtype == MUSTER_SHARD_F64 ? 1e-12 : 2e-5;
    for (int g = 0; g < TEST_GROUPS; g++) {
        MUST(m, muster_shard_gather(m->shard, g, err));
        for (int p = 0; p < TEST_PARAMS; p++) {
            for (int64_t i = 0; test_params[p].group == g && i < test_params[p].elements; i++) {
                double got = get(c, addresses[p], i), want = r->value[p][i];
                if (fabs(got - want) > bound) {
                    fprintf(stderr, "rank %d of %d: %s[%lld] is %.9g, not %.9g\n", m->rank, m->size,
                            test_params[p].name, (long long)i, got, want);
                    return -1;
                }
                int64_t first, count;
                const void *part = muster_shard_part(m->shard, p, MUSTER_LOCAL_PARAMETERS, &first, &count);
                CHECK(m, i < first || i >= first + count || get(c, part, i - first) == got);
            }
        }
        MUST(m, muster_shard_release(m->shard, g, err));
    }
    return 0;
}

static int run(struct test_model *m, const struct test_case *c)
{
    struct muster_shard_options options;
    struct muster_shard_stats stats = {.size = sizeof stats};
    void *addresses[TEST_PARAMS], *work[TEST_PARAMS];
    static __thread double room[TEST_PARAMS][30011];
    muster_shard_defaults(&options);
    options.optimizer = c->optimizer;
    options.dtype = c->dtype;
    options.momentum = 1;
    options.threads = 1;
    options.gradient_slots = c->hold ? -1 : 1;
    options.replicas = c->replicas;
    if (test_model_open(m, c->port, &options))
        return -1;
    for (int p = 0; p < TEST_PARAMS; p++) {
        addresses[p] = muster_shard_address(m->shard, p);
        work[p] = room[p];
        CHECK(m, addresses[p]);
    }
    struct reference r = {0};
    reference_run(&r, c, m->size);
    int failed =
        store_initial(m, c, addresses) || train(m, c, addresses, &r, work) || compare(m, c, addresses, &r);
    reference_free(&r);
    if (failed)
        return -1;
    MUST(m, muster_shard_statistics(m->shard, &stats, err));
    CHECK(m, stats.prefetched > stats.gathers / 2);
    const int runs = c->replicas < 0 ? m->size / c->node : c->replicas ? c->replicas : 1;
    CHECK(m, m->size == runs || stats.slots == 2); /* the group in use and the one ahead */
    for (int p = 0; p < TEST_PARAMS; p++)
        CHECK(m, addresses[p] == muster_shard_address(m->shard, p));
    return 0;
}

static int one_rank(int rank, int size, void *context)
{
    const struct test_case *c = context;
    struct test_model m = {.rank = rank, .size = size, .apart = c->apart, .node = c->node};
    int failed = run(&m, c);
    test_model_close(&m);
    return failed;
}

static void every_world(struct test_case c, int first, int last)
{
    for (int size = first; size <= last; size++) {
        c.port = test_free_port();
        assert_int_equal(rank_threads_run(size, one_rank, &c), 0);
    }
}

static void adamw_in_every_world(void **state)
{
    (void)state;
    every_world((struct test_case){.optimizer = MUSTER_SHARD_ADAMW}, 1, 4);
}
static void other_optimizers(void **state)
{
    (void)state;
    every_world((struct test_case){.optimizer = MUSTER_SHARD_ADAM, .in_place = true}, 2, 3);
    every_world((struct test_case){.optimizer = MUSTER_SHARD_SGD}, 2, 2);
}
static void gradients_held_over_passes(void **state)
{
    (void)state;
    every_world((struct test_case){.optimizer = MUSTER_SHARD_ADAMW, .in_place = true, .hold = true}, 1, 3);
}
static void between_nodes(void **state)
{
    (void)state;
    every_world((struct test_case){.optimizer = MUSTER_SHARD_ADAMW, .apart = true}, 2, 3);
}
static void doubles(void **state)
{
    (void)state;
    every_world((struct test_case){.optimizer = MUSTER_SHARD_ADAMW, .dtype = MUSTER_SHARD_F64}, 2, 2);
}

/* Copies of the parts: 2 of 1 and of 2 ranks, 3 of 1, 4 of 1; accumulated and held. */
static void replicas(void **state)
{
    static const int meshes[][2] = {{2, 2}, {4, 2}, {3, 3}, {4, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        const int size = meshes[i][0], count = meshes[i][1];
        every_world((struct test_case){.optimizer = MUSTER_SHARD_ADAMW, .replicas = count}, size, size);
        every_world((struct test_case){.optimizer = MUSTER_SHARD_SGD,
                                       .dtype = MUSTER_SHARD_F64,
                                       .replicas = count,
                                       .in_place = true,
                                       .hold = true},
                    size, size);
    }
    every_world((struct test_case){.optimizer = MUSTER_SHARD_ADAM, .replicas = 1}, 3, 3);
}
/* Two nodes of two ranks: the parts over shared memory, the copies over TCP. */
static void a_replica_for_each_node(void **state)
{
    (void)state;
    every_world((struct test_case){.optimizer = MUSTER_SHARD_ADAMW, .replicas = -1, .node = 2}, 4, 4);
    every_world((struct test_case){.optimizer = MUSTER_SHARD_ADAMW, .replicas = -1, .node = 1}, 2, 2);
    every_world((struct test_case){.optimizer = MUSTER_SHARD_ADAMW, .replicas = -1, .node = 2}, 2, 2);
    every_world((struct test_case){.optimizer = MUSTER_SHARD_ADAMW, .replicas = 2, .apart = true}, 4, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_in_every_world),
        cmocka_unit_test(other_optimizers),
        cmocka_unit_test(gradients_held_over_passes),
        cmocka_unit_test(between_nodes),
        cmocka_unit_test(doubles),
        cmocka_unit_test(replicas),
        cmocka_unit_test(a_replica_for_each_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
