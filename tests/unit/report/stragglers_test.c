/* stragglers_test.c - the slow rank is named, an even run has none; scores of figures against their own past.
 */
#include <math.h>

#include "tests/support/cmocka_all.h"
#include "trainer/report/stragglers.h"

enum { RANKS = 8, STEPS = 100 };
static const double step_ms = 50;

/* Pseudo-random numbers in [0, 1). */
static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

/* Waits of a window: noise of all ranks, and their wait for a rank that is late in some of the parts. */
static void fill(double *waited, int ranks, int slow, double late_ms, int late_parts, uint64_t *state)
{
    for (int rank = 0; rank < ranks; rank++)
        for (int part = 0; part < STRAGGLER_PARTS; part++) {
            const double steps = STEPS / STRAGGLER_PARTS;
            double *sum = &waited[rank * STRAGGLER_PARTS + part];
            *sum = steps * (2 + draw(state));
            if (slow >= 0 && rank != slow && part < late_parts)
                *sum += steps * late_ms;
        }
}

static struct straggler find(const double *waited, int ranks)
{
    const struct straggler_options options = {
        .ranks = ranks, .steps = STEPS, .least_share = 0.1, .least_ms = 2};
    struct straggler out;
    straggler_find(&options, waited, step_ms, &out);
    return out;
}

static void the_slow_rank_is_named(void **state)
{
    (void)state;
    double waited[RANKS * STRAGGLER_PARTS];
    uint64_t random = 1;
    for (int ranks = 2; ranks <= RANKS; ranks++)
        for (int slow = 0; slow < ranks; slow++) {
            fill(waited, ranks, slow, 20, STRAGGLER_PARTS, &random);
            const struct straggler found = find(waited, ranks);
            assert_int_equal(found.rank, slow);
            assert_true(fabs(found.late_ms - 20) < 1.1);
            assert_true(fabs(found.share - found.late_ms / step_ms) < 1e-9);
            assert_int_equal(found.parts, STRAGGLER_PARTS);
        }
}

static void an_even_run_has_none(void **state)
{
    (void)state;
    double waited[RANKS * STRAGGLER_PARTS];
    uint64_t random = 2;
    for (int i = 0; i < 2000; i++) {
        fill(waited, RANKS, -1, 0, 0, &random);
        assert_int_equal(find(waited, RANKS).rank, -1);
    }
    assert_int_equal(find(waited, 1).rank, -1);
}

/* A pause of one rank is no slow rank; nor is a rank that is late by less than the limits. */
static void a_short_or_small_delay_is_not_named(void **state)
{
    (void)state;
    double waited[RANKS * STRAGGLER_PARTS];
    uint64_t random = 3;
    fill(waited, RANKS, 3, 200, 7, &random);
    assert_int_equal(find(waited, RANKS).rank, -1);
    fill(waited, RANKS, 3, 200, 8, &random);
    assert_int_equal(find(waited, RANKS).rank, 3);
    fill(waited, RANKS, 3, 3.5, STRAGGLER_PARTS, &random); /* below 10% of 50 ms */
    assert_int_equal(find(waited, RANKS).rank, -1);
}

/* One rank that waits for others, which are alike, is no slow rank of theirs. */
static void one_that_waits_is_not_the_others_fault(void **state)
{
    (void)state;
    double waited[RANKS * STRAGGLER_PARTS];
    uint64_t random = 4;
    fill(waited, RANKS, -1, 0, 0, &random);
    for (int part = 0; part < STRAGGLER_PARTS; part++)
        waited[5 * STRAGGLER_PARTS + part] += 500;
    assert_int_equal(find(waited, RANKS).rank, -1);
}

static void it_is_named_when_it_lasts(void **state)
{
    (void)state;
    struct straggler_streak streak = {.rank = -1};
    for (int i = 0; i < 100; i++) /* a busy machine: another one each time */
        assert_int_equal(straggler_follow(&streak, i % 3, 3000), STRAGGLER_AS_BEFORE);
    assert_int_equal(straggler_follow(&streak, -1, 3000), STRAGGLER_AS_BEFORE);
    assert_int_equal(straggler_follow(&streak, -1, 3000), STRAGGLER_AS_BEFORE);
    assert_int_equal(straggler_follow(&streak, 2, 3000), STRAGGLER_AS_BEFORE);
    assert_int_equal(straggler_follow(&streak, 2, 3000), STRAGGLER_NAMED);
    assert_int_equal(straggler_follow(&streak, 2, 3000), STRAGGLER_AS_BEFORE);
    assert_int_equal(straggler_follow(&streak, 1, 6000), STRAGGLER_ENDED);
    assert_int_equal(straggler_follow(&streak, 1, 6000), STRAGGLER_NAMED);
    assert_int_equal(straggler_follow(&streak, -1, 6000), STRAGGLER_ENDED);
    assert_int_equal(straggler_follow(&streak, -1, 6000), STRAGGLER_AS_BEFORE);
}

static void a_window_has_parts(void **state)
{
    (void)state;
    struct straggler_window window;
    straggler_window_begin(&window, 20);
    for (int i = 0; i < 20; i++)
        assert_int_equal(straggler_window_add(&window, i, 10), i == 19);
    for (int part = 0; part < STRAGGLER_PARTS; part++)
        assert_true(window.waited_ms[part] == 4 * part + 1);
    assert_true(fabs(window.step_ms - 10) < 1e-9);
}

/* ---- scores ---- */

static void a_jump_has_a_high_score(void **state)
{
    (void)state;
    struct z_score score = {0};
    uint64_t random = 5;
    double worst = 0;
    for (int i = 0; i < 1000; i++) {
        double sum = -6;
        for (int k = 0; k < 12; k++)
            sum += draw(&random); /* nearly normal, deviation 1 */
        const double z = z_score_add(&score, 3 + 0.1 * sum);
        worst = fmax(worst, fabs(z));
        assert_true(i >= Z_SCORE_LEAST || z == 0);
    }
    assert_true(worst > 1.5 && worst < 6);
    assert_true(fabs(score.mean - 3) < 0.05 && fabs(sqrt(score.variance) - 0.1) < 0.04);
    assert_true(z_score_add(&score, 5) > 10);
    assert_true(z_score_add(&score, 5) > 10); /* the first does not hide it */
    assert_true(z_score_add(&score, NAN) == INFINITY);
    assert_true(fabs(z_score_add(&score, score.mean)) < 1e-9);
}

static void a_figure_that_does_not_change_has_none(void **state)
{
    (void)state;
    struct z_score score = {0};
    for (int i = 0; i < 200; i++)
        assert_true(fabs(z_score_add(&score, 0.3)) < 1e-6);
    assert_true(z_score_add(&score, 0.31) > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slow_rank_is_named),
        cmocka_unit_test(an_even_run_has_none),
        cmocka_unit_test(a_short_or_small_delay_is_not_named),
        cmocka_unit_test(one_that_waits_is_not_the_others_fault),
        cmocka_unit_test(it_is_named_when_it_lasts),
        cmocka_unit_test(a_window_has_parts),
        cmocka_unit_test(a_jump_has_a_high_score),
        cmocka_unit_test(a_figure_that_does_not_change_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
