/* choose.h: the step at which ranks go on, and the sender of each rank's state. */
#include "runtime/train/recover/choose.h"

#include "tests/support/cmocka_all.h"

enum { RANKS = 4 };
#define STEPS(live, own_a, own_b, kept_a, kept_b)                                                            \
    {                                                                                                        \
        live, {own_a, own_b}, {kept_a, kept_b}, 0                                                            \
    }
#define LIVE(live) STEPS(live, -1, -1, -1, -1)
#define NOTHING    LIVE(-1)

static void expect(const struct recover_rank *ranks, const int *replica_of, int shift, int64_t step,
                   int text_from, const int *from)
{
    struct recover_choice choice;
    int found[RANKS];
    assert_int_equal(recover_choose(ranks, RANKS, replica_of, shift, &choice, found), step >= 0);
    if (step < 0)
        return;
    assert_int_equal(choice.step, step);
    assert_int_equal(choice.text_from, text_from);
    assert_memory_equal(found, from, sizeof found);
}

/* NO_SHARD: one rank that is whole is enough, and the newest one is taken. */
static void equal_ranks(void **state)
{
    (void)state;
    const int all[RANKS] = {0};
    struct recover_rank ranks[RANKS] = {NOTHING, LIVE(7), LIVE(8), NOTHING};
    expect(ranks, all, 0, 8, 2, (const int[]){2, 2, 2, 2});
    ranks[2].live = -1;
    expect(ranks, all, 0, 7, 1, (const int[]){1, 1, 1, 1});
    ranks[1].live = -1;
    expect(ranks, all, 0, -1, 0, NULL);
}

/* HYBRID_SHARD: each shard needs a rank of the same step. */
static void replicas_of_shards(void **state)
{
    (void)state;
    const int shards[RANKS] = {0, 1, 0, 1};
    struct recover_rank ranks[RANKS] = {LIVE(5), LIVE(5), NOTHING, LIVE(6)};
    expect(ranks, shards, 0, 5, 0, (const int[]){0, 1, 0, 1});
    ranks[1].live = 6; /* shard 0 is of step 5 alone, shard 1 of step 6 */
    expect(ranks, shards, 0, -1, 0, NULL);
    ranks[0].finishes = 1; /* and has the gradients of step 6: the text is of a rank that has made it */
    expect(ranks, shards, 0, 6, 1, (const int[]){0, 1, 0, 3});
    ranks[1].live = 5; /* then no rank has to */
    ranks[3].live = -1;
    ranks[1].finishes = 1;
    expect(ranks, shards, 0, 5, 0, (const int[]){0, 1, 0, 1});
}

/* FULL_SHARD on two nodes of two ranks, with copies. */
static void copies_on_the_next_node(void **state)
{
    (void)state;
    const int own[RANKS] = {0, 1, 2, 3};
    struct recover_rank ranks[RANKS] = {STEPS(25, 10, 20, 20, 10), STEPS(25, 10, 20, 10, 20), NOTHING,
                                        NOTHING};
    expect(ranks, own, 2, 20, 0, (const int[]){0, 1, 0, 1}); /* ranks 0 and 1 go back */
    ranks[0].kept[0] = -1;                                   /* its copy of rank 2 was being made */
    expect(ranks, own, 2, 10, 0, (const int[]){0, 1, 0, 1});
    ranks[0].kept[1] = -1; /* the keeper is lost too */
    expect(ranks, own, 2, -1, 0, NULL);
    /* the loss came right after the copies: nothing is repeated */
    const struct recover_rank at_once[RANKS] = {STEPS(20, 10, 20, 10, 20), STEPS(20, 10, 20, 10, 20), NOTHING,
                                                NOTHING};
    expect(at_once, own, 2, 20, 0, (const int[]){0, 1, 0, 1});
}

static void ranks_without_anything(void **state)
{
    (void)state;
    const int all[RANKS] = {0};
    const struct recover_rank ranks[RANKS] = {NOTHING, NOTHING, NOTHING, NOTHING};
    expect(ranks, all, 1, -1, 0, NULL);
    const struct recover_rank begun[RANKS] = {LIVE(0), NOTHING, NOTHING, NOTHING};
    expect(begun, all, 0, 0, 0, (const int[]){0, 0, 0, 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_ranks),
        cmocka_unit_test(replicas_of_shards),
        cmocka_unit_test(copies_on_the_next_node),
        cmocka_unit_test(ranks_without_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
