/* Sampling: the tokens that may be drawn, and how often. */
#include "tests/support/cmocka_all.h"

#include <math.h>

#include "runtime/train/sample.h"

enum { VOCAB = 6 };
static const float logits[VOCAB] = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, -INFINITY};

static void temperature_zero_takes_the_largest(void **state)
{
    (void)state;
    float scratch[VOCAB];
    const struct sample_options greedy = {.temperature = 0};
    for (uint64_t position = 0; position < 20; position++)
        assert_int_equal(sample_token(&greedy, logits, VOCAB, position, scratch), 1); /* the first of two */
}

static void frequencies_follow_the_softmax(void **state)
{
    (void)state;
    enum { DRAWS = 40000 };
    float scratch[VOCAB];
    int count[VOCAB] = {0};
    const struct sample_options options = {.temperature = 0.7, .seed = 11};
    for (uint64_t position = 0; position < DRAWS; position++)
        count[sample_token(&options, logits, VOCAB, position, scratch)]++;
    double total = 0;
    for (int i = 0; i < VOCAB; i++)
        total += exp((double)logits[i] / 0.7);
    for (int i = 0; i < VOCAB; i++) {
        double p = exp((double)logits[i] / 0.7) / total;
        assert_true(fabs(count[i] - p * DRAWS) <= 5 * sqrt(p * (1 - p) * DRAWS));
    }
    assert_int_equal(count[5], 0);
}

static void top_k_cuts_ties_by_position(void **state)
{
    (void)state;
    float scratch[VOCAB];
    for (int k = 1; k <= 4; k++) {
        int count[VOCAB] = {0}, drawn = 0;
        const struct sample_options options = {.temperature = 5, .top_k = k, .seed = 3};
        for (uint64_t position = 0; position < 2000; position++)
            count[sample_token(&options, logits, VOCAB, position, scratch)]++;
        for (int i = 0; i < VOCAB; i++)
            drawn += count[i] > 0;
        assert_int_equal(drawn, k);
        assert_true(count[1] > 0);
        assert_true(k == 1 ? count[3] == 0 : count[3] > 0);
    }
}

/* Probabilities of about 0.38, 0.38, 0.14, 0.085, 0.019: of equal ones the first is the larger. */
static void top_p_keeps_the_most_likely(void **state)
{
    (void)state;
    static const struct {
        double p;
        int k, drawn[VOCAB];
    } cases[] = {
        {0.3, 0, {0, 1, 0, 0, 0, 0}},  {0.5, 0, {0, 1, 0, 1, 0, 0}},   {0.8, 0, {0, 1, 0, 1, 1, 0}},
        {0.95, 0, {1, 1, 0, 1, 1, 0}}, {0.999, 0, {1, 1, 1, 1, 1, 0}}, {1, 0, {1, 1, 1, 1, 1, 0}},
        {0.9, 2, {0, 1, 0, 1, 0, 0}},  {0.4, 2, {0, 1, 0, 0, 0, 0}}}; /* half for each of the two of top-k */
    float scratch[2 * VOCAB];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int count[VOCAB] = {0};
        const struct sample_options options = {
            .temperature = 1, .top_k = cases[i].k, .top_p = cases[i].p, .seed = 4};
        for (uint64_t position = 0; position < 2000; position++)
            count[sample_token(&options, logits, VOCAB, position, scratch)]++;
        for (int v = 0; v < VOCAB; v++)
            if ((count[v] > 0) != cases[i].drawn[v])
                fail_msg("top_p %g, top_k %d: token %d was drawn %d times", cases[i].p, cases[i].k, v,
                         count[v]);
    }
}

static void depends_on_seed_and_position_alone(void **state)
{
    (void)state;
    float scratch[VOCAB];
    const struct sample_options options = {.temperature = 1, .seed = 5};
    for (uint64_t position = 0; position < 50; position++)
        assert_int_equal(sample_token(&options, logits, VOCAB, position, scratch),
                         sample_token(&options, logits, VOCAB, position, scratch));
}

static void broken_logits_still_give_a_token(void **state)
{
    (void)state;
    float scratch[3];
    const struct sample_options options = {.temperature = 1, .top_k = 2};
    const float none[3] = {NAN, NAN, NAN}, some[3] = {NAN, 1, 2}, huge[3] = {0, INFINITY, 1};
    assert_in_range(sample_token(&options, none, 3, 0, scratch), 0, 2);
    for (uint64_t position = 0; position < 50; position++)
        assert_in_range(sample_token(&options, some, 3, position, scratch), 1, 2);
    assert_int_equal(sample_token(&options, huge, 3, 0, scratch), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_zero_takes_the_largest),
        cmocka_unit_test(frequencies_follow_the_softmax),
        cmocka_unit_test(top_k_cuts_ties_by_position),
        cmocka_unit_test(top_p_keeps_the_most_likely),
        cmocka_unit_test(depends_on_seed_and_position_alone),
        cmocka_unit_test(broken_logits_still_give_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
