/* Mixtures: shares of a block, and whose turn each sample is. */
#include <stdlib.h>

#include "tests/support/cmocka_all.h"
#include "trainer/data/order.h"

enum { BLOCKS = 3, SOURCES = 4 };

static void shares_are_those_of_the_weights(void **state)
{
    (void)state;
    static const struct {
        double weights[SOURCES];
        int count, shares[SOURCES];
    } cases[] = {
        {{1}, 1, {4096}},
        {{0.5, 0.5}, 2, {2048, 2048}},
        {{3, 1}, 2, {3072, 1024}},
        {{1, 1, 1}, 3, {1366, 1365, 1365}},
        {{0.7, 0.2, 0.1}, 3, {2867, 819, 410}},
        {{1e9, 1, 1}, 3, {4094, 1, 1}}, /* none has less than one */
        {{1, 1, 1, 1e9}, 4, {1, 1, 1, 4093}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int shares[SOURCES];
        order_shares(cases[i].weights, cases[i].count, shares);
        for (int s = 0; s < cases[i].count; s++)
            assert_int_equal(shares[s], cases[i].shares[s]);
    }
    double even[ORDER_BLOCK];
    int each[ORDER_BLOCK];
    for (int i = 0; i < ORDER_BLOCK; i++)
        even[i] = i + 1;
    order_shares(even, ORDER_BLOCK, each);
    for (int i = 0; i < ORDER_BLOCK; i++)
        assert_int_equal(each[i], 1);
}

/* In every block a source has its share, its samples are numbered without gap or double, and they are spread:
 * not all at one end. */
static void every_sample_has_one_source(void **state)
{
    (void)state;
    const int shares[] = {2867, 819, 410};
    char *seen = calloc((size_t)BLOCKS * ORDER_BLOCK, 3);
    int early[3] = {0};
    for (uint64_t g = 0; g < (uint64_t)BLOCKS * ORDER_BLOCK; g++) {
        const struct order_turn turn = order_turn(5, shares, 3, g);
        assert_in_range(turn.source, 0, 2);
        assert_int_equal(turn.number / (uint64_t)shares[turn.source], g / ORDER_BLOCK);
        assert_int_equal(seen[(uint64_t)turn.source * BLOCKS * ORDER_BLOCK + turn.number]++, 0);
        early[turn.source] += g < ORDER_BLOCK / 8;
    }
    for (int s = 0; s < 3; s++) {
        for (int n = 0; n < BLOCKS * shares[s]; n++)
            assert_int_equal(seen[(size_t)s * BLOCKS * ORDER_BLOCK + (size_t)n], 1);
        assert_in_range(early[s], shares[s] / 16, shares[s] / 4);
    }
    free(seen);
}

static void another_seed_is_another_order(void **state)
{
    (void)state;
    const int shares[] = {2048, 2048};
    int same = 0;
    for (uint64_t g = 0; g < 1000; g++)
        same += order_turn(1, shares, 2, g).source == order_turn(2, shares, 2, g).source;
    assert_in_range(same, 300, 700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_those_of_the_weights),
        cmocka_unit_test(every_sample_has_one_source),
        cmocka_unit_test(another_seed_is_another_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
