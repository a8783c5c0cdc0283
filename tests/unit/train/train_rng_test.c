/* Philox against its published vectors, and the properties that initialisation leans on. */
#include "tests/support/cmocka_all.h"

#include <math.h>

#include "proto/philox.h"
#include "runtime/model/rng.h"

/* The known-answer vectors of Random123 for philox4x32, 10 rounds. */
static void known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint32_t out[4];
        philox4x32_10(vectors[i].counter, vectors[i].key, out);
        assert_memory_equal(out, vectors[i].want, sizeof out);
    }
}

/* Any split of a range gives the same values: shards of any world agree. */
static void normal_values_depend_on_their_index_alone(void **state)
{
    (void)state;
    enum { COUNT = 103 };
    double whole[COUNT], part[COUNT];
    rng_normal_fill(7, RNG_INIT, 3, 1000, COUNT, whole);
    for (int cut = 0; cut <= COUNT; cut++) {
        rng_normal_fill(7, RNG_INIT, 3, 1000, cut, part);
        rng_normal_fill(7, RNG_INIT, 3, 1000 + (uint64_t)cut, COUNT - cut, part + cut);
        assert_memory_equal(whole, part, sizeof whole);
    }
}

static void normal_values_are_normal(void **state)
{
    (void)state;
    enum { COUNT = 200000 };
    static double value[COUNT];
    rng_normal_fill(42, RNG_INIT, 0, 0, COUNT, value);
    double sum = 0, squares = 0, fourths = 0, within = 0;
    for (int i = 0; i < COUNT; i++) {
        sum += value[i];
        squares += value[i] * value[i];
        fourths += pow(value[i], 4);
        within += fabs(value[i]) < 1;
    }
    /* Five standard errors of each estimate: 1/sqrt(n), sqrt(2/n), sqrt(96/n), sqrt(p(1-p)/n). */
    assert_true(fabs(sum / COUNT) < 5 / sqrt(COUNT));
    assert_true(fabs(squares / COUNT - 1) < 5 * sqrt(2.0 / COUNT));
    assert_true(fabs(fourths / COUNT - 3) < 5 * sqrt(96.0 / COUNT));
    assert_true(fabs(within / COUNT - 0.6827) < 5 * sqrt(0.2166 / COUNT));
}

static void sites_domains_and_seeds_differ(void **state)
{
    (void)state;
    uint64_t base = rng_bits(1, RNG_INIT, 0, 0);
    assert_true(base != rng_bits(2, RNG_INIT, 0, 0));
    assert_true(base != rng_bits(UINT64_C(1) << 32 | 1, RNG_INIT, 0, 0));
    assert_true(base != rng_bits(1, RNG_SAMPLE, 0, 0));
    assert_true(base != rng_bits(1, RNG_INIT, 1, 0));
    assert_true(base != rng_bits(1, RNG_INIT, 0, 1));
    assert_true(base != rng_bits(1, RNG_INIT, 0, UINT64_C(1) << 32));
}

static void uniform_values_stay_in_range(void **state)
{
    (void)state;
    double sum = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        double u = rng_uniform(9, RNG_SAMPLE, 0, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 10000 - 0.5) < 5 * sqrt(1.0 / 12 / 10000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(normal_values_depend_on_their_index_alone),
        cmocka_unit_test(normal_values_are_normal),
        cmocka_unit_test(sites_domains_and_seeds_differ),
        cmocka_unit_test(uniform_values_stay_in_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
