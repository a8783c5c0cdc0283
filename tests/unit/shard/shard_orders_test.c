/* Random passes on real ranks: in any order, nesting and prefetch, a gathered group has the values of
 * the last step, and every rank goes through. */
#include "tests/support/cmocka_all.h"

#include "tests/support/walk.h"
#include "tests/unit/shard/shard_test_ranks.h"

enum { GROUPS = 7, CALLS = 60, PASSES = 25 };

struct orders_case {
    int port, prefetch;
    uint64_t seed;
};

/* Sizes of every path: eager, direct, padding only on some ranks; in two classes of slots. */
static int64_t elements_of(int group)
{
    static const int64_t all[GROUPS] = {40000, 5, 40000, 700000, 33000, 17, 650000};
    return all[group];
}
static float value_of(int group, int64_t i, int steps)
{
    return (float)(group * 64 + i % 61) - 0.25f * (float)steps;
}

static int check(const struct test_model *m, int group, int steps)
{
    const float *values = muster_shard_address(m->shard, group);
    int64_t stride = elements_of(group) / 97 + 1;
    for (int64_t i = 0; i < elements_of(group); i += stride) {
        if (values[i] != value_of(group, i, steps)) {
            fprintf(stderr, "rank %d: group %d element %lld is %g, not %g\n", m->rank, group, (long long)i,
                    values[i], value_of(group, i, steps));
            return -1;
        }
    }
    return 0;
}

static int prepare(struct test_model *m, const struct orders_case *c)
{
    struct muster_shard_options options;
    muster_shard_defaults(&options);
    options.optimizer = MUSTER_SHARD_SGD;
    options.prefetch = c->prefetch;
    options.threads = 1;
    options.gradient_slots = -1;
    if (test_model_join(m, c->port, 60000))
        return -1;
    MUST(m, !(m->shard = muster_shard_create(m->world, &options, err)));
    for (int g = 0; g < GROUPS; g++) {
        char name[16];
        snprintf(name, sizeof name, "g%d", g);
        MUST(m, muster_shard_group(m->shard, name, 0, err) != g);
        MUST(m, muster_shard_parameter(m->shard, name, elements_of(g), 0, err) != g);
    }
    MUST(m, muster_shard_ready(m->shard, err));
    for (int g = 0; g < GROUPS; g++) {
        MUST(m, muster_shard_gather(m->shard, g, err));
        float *values = muster_shard_address(m->shard, g);
        for (int64_t i = 0; i < elements_of(g); i++)
            values[i] = value_of(g, i, 0);
        MUST(m, muster_shard_store(m->shard, g, -1, err));
        MUST(m, muster_shard_release(m->shard, g, err));
    }
    return 0;
}

/* One pass; groups stay gathered for a random time, at most all of them. */
static int random_pass(const struct test_model *m, struct walk *w, int steps)
{
    int uses[GROUPS] = {0};
    MUST(m, muster_shard_begin(m->shard, (int)walk_below(w, 2), err));
    for (int call = 0; call < CALLS; call++) {
        int g = (int)walk_below(w, GROUPS);
        if (uses[g] && walk_one_in(w, 2)) {
            MUST(m, muster_shard_release(m->shard, g, err));
            uses[g]--;
        } else if (uses[g] < 2) {
            MUST(m, muster_shard_gather(m->shard, g, err));
            uses[g]++;
        }
        if (uses[g] && check(m, g, steps))
            return -1;
    }
    for (int g = 0; g < GROUPS; g++) {
        for (; uses[g]; uses[g]--)
            MUST(m, muster_shard_release(m->shard, g, err));
    }
    return 0;
}

/* Every gradient is 0.25 on average; on two ranks 0 and 0.5. */
static int step_all(const struct test_model *m)
{
    struct muster_shard_step step;
    muster_shard_step_defaults(&step);
    step.learning_rate[0] = 1;
    step.weight_decay[0] = 0;
    for (int g = 0; g < GROUPS; g++) {
        float *gradient;
        MUST(m, !(gradient = muster_shard_gradient(m->shard, g, err)));
        for (int64_t i = 0; i < elements_of(g); i++)
            gradient[i] = m->size == 2 ? 0.5f * (float)m->rank : 0.25f;
        MUST(m, muster_shard_reduce(m->shard, g, &(const void *){gradient}, err));
    }
    MUST(m, muster_shard_step(m->shard, &step, NULL, err));
    return 0;
}

static int run(struct test_model *m, const struct orders_case *c)
{
    struct walk w = walk_begin(c->seed), same = walk_begin(c->seed + 1000);
    int steps = 0;
    if (prepare(m, c))
        return -1;
    for (int pass = 0; pass < PASSES; pass++) {
        bool repeats = walk_one_in(&w, 2); /* an order that is known, or a new one */
        struct walk again = same;
        if (random_pass(m, repeats ? &again : &w, steps))
            return -1;
        if (walk_one_in(&w, 3)) {
            if (step_all(m))
                return -1;
            steps++;
        }
    }
    return 0;
}

static int one_rank(int rank, int size, void *context)
{
    struct test_model m = {.rank = rank, .size = size};
    int failed = run(&m, context);
    test_model_close(&m);
    return failed;
}

static void random_passes(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++) {
        for (int prefetch = 0; prefetch < 4; prefetch++) {
            struct orders_case c = {
                .port = test_free_port(), .prefetch = prefetch, .seed = (uint64_t)(10 * size + prefetch)};
            assert_int_equal(rank_threads_run(size, one_rank, &c), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
