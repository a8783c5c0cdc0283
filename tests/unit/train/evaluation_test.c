/* evaluation_test.c - the best of a run's evaluations and the early end, by tables; and states as text. */
#include "runtime/train/evaluation.h"
#include "runtime/train/plateau.h"
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "proto/base/guard.h"

enum { MOST = 8 };

static const struct {
    const char *what;
    struct evaluation_rule rule;
    double losses[MOST]; /* 0: no more */
    int best, ends;      /* number of the evaluation, from 1; 0: none */
} rows[] = {
    {"falls for ever", {EVALUATION_LOSS, 0, 2}, {5, 4, 3, 2, 1}, 5, 0},
    {"one without a gain", {EVALUATION_LOSS, 0, 1}, {5, 4, 4.5}, 2, 3},
    {"equal is no gain, and the first of equals is the best", {EVALUATION_LOSS, 0, 2}, {5, 4, 4, 4}, 2, 4},
    {"a gain in between", {EVALUATION_LOSS, 0, 2}, {5, 6, 4, 6, 6}, 3, 5},
    {"no patience: never", {EVALUATION_LOSS, 0, 0}, {1, 2, 3, 4, 5, 6, 7, 8}, 1, 0},
    {"small gains are none, but the best", {EVALUATION_LOSS, 0.5, 2}, {5, 4.75, 4.625}, 3, 3},
    {"small gains add up", {EVALUATION_LOSS, 0.5, 2}, {5, 4.75, 4.25, 4.125, 4}, 5, 5},
    {"exactly the least gain is none", {EVALUATION_LOSS, 0.5, 1}, {5, 4.5}, 2, 2},
    {"perplexity falls faster than the loss", {EVALUATION_PERPLEXITY, 1, 2}, {3, 2.9, 2.8, 2.7}, 4, 0},
    {"and slower where it is low", {EVALUATION_PERPLEXITY, 1, 2}, {0.3, 0.2, 0.1}, 3, 3},
    {"not a number is no gain", {EVALUATION_LOSS, 0, 2}, {5, NAN, INFINITY}, 1, 3},
    {"a number behind it is", {EVALUATION_LOSS, 0, 3}, {NAN, NAN, 5, 4}, 4, 0},
};

/* Through text and back, as from a checkpoint. */
static struct evaluation_state again(const struct evaluation_state *state)
{
    struct evaluation_state read;
    struct muster_error err = {0};
    scope_buffer text = {0};
    assert_int_equal(evaluation_format(state, &text), 0);
    if (evaluation_parse(text.data, &read, &err))
        fail_msg("%s", err.text);
    assert_true(read.count == state->count && read.last_step == state->last_step &&
                read.waits == state->waits);
    assert_true(read.best_step == state->best_step && read.best_loss == state->best_loss);
    assert_true(read.gained_loss == state->gained_loss && read.kept_step == state->kept_step);
    assert_true(read.last_loss == state->last_loss || (isnan(read.last_loss) && isnan(state->last_loss)));
    return read;
}

static void the_best_and_the_end(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int saved = 0; saved < 2; saved++) {
            struct evaluation_state s;
            int best = 0, ends = 0;
            evaluation_begin(&s);
            assert_true(s.best_step == -1 && s.last_step == -1);
            for (int i = 0; i < MOST && rows[r].losses[i] != 0; i++) {
                bool better = evaluation_judge(&rows[r].rule, &s, 10 * (i + 1), rows[r].losses[i]);
                best = better ? i + 1 : best;
                ends = !ends && evaluation_stops(&rows[r].rule, &s) ? i + 1 : ends;
                assert_true(s.count == i + 1 && s.last_step == 10 * (i + 1));
                if (saved)
                    s = again(&s);
            }
            if (best != rows[r].best || ends != rows[r].ends)
                fail_msg("%s: best %d, ends %d", rows[r].what, best, ends);
            assert_int_equal(s.best_step, 10 * best);
            assert_true(s.best_loss == rows[r].losses[best - 1]);
        }
}

static void texts_are_read_strictly(void **state)
{
    (void)state;
    static const char good[] =
        "count 3, last 30 with 2.5, best 20 with 0.10000000000000001, gained 2, waits 1, kept 20";
    static const char *const bad[] = {
        "",
        "count 3",
        "count 3, last 30 with 2.5, best 20 with 2, gained 2, waits 1, kept 20 more",
        "count -3, last 30 with 2.5, best 20 with 2, gained 2, waits 1, kept 20",
        "count 3, last 30 with 2.5, best 40 with 2, gained 2, waits 1, kept 20",
        "count 3, last 30 with 2.5, best 20 with nan, gained 2, waits 1, kept 20",
        "count 3, last 30 with 2.5, best 20 with 2, gained inf, waits 1, kept 20",
        "count 3, last 30 with 2.5, best 20 with 2, gained 2, waits 4, kept 20",
        "count 3, last 30 with 2.5, best 20 with 2, gained 2, waits 1, kept -1",
        "count 3, last 30 with 2.5, best -2 with 2, gained 2, waits 1, kept 0",
    };
    struct evaluation_state s;
    struct muster_error err = {0};
    assert_int_equal(evaluation_parse(good, &s, &err), 0);
    assert_true(s.best_loss == 0.1 && s.kept_step == 20 && s.waits == 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(evaluation_parse(bad[i], &s, &err), -1);
        assert_non_null(strstr(err.text, "is no state of evaluations"));
    }
    scope_buffer text = {0};
    assert_int_equal(evaluation_format(&s, &text), 0);
    assert_string_equal(text.data, good);
}

static void plateaus_are_read_back_or_refused(void **state)
{
    (void)state;
    struct plateau_state s, read;
    struct muster_error err = {0};
    const struct plateau_rule rule = {.factor = 0.5, .threshold = 1e-4, .minimum = 0.3};
    static const double metrics[] = {3, 2, 2, NAN, 1.9999}, rates[] = {1, 1, 0.5, 0.3, 0.3};
    plateau_begin(&rule, 1, &s);
    for (int i = 0; i < 5; i++) {
        scope_buffer text = {0};
        assert_int_equal(plateau_judge(&rule, &s, metrics[i]), i == 2 || i == 3);
        assert_true(s.rate == rates[i]);
        assert_int_equal(plateau_format(&s, &text), 0);
        assert_int_equal(plateau_parse(text.data, &read, &err), 0);
        assert_memory_equal(&read, &s, sizeof s);
    }
    static const char *const wrong[] = {
        "", "rate -1, best 2, waits 0, cooldown 0", "rate 1, best nan, waits 0, cooldown 0",
        "rate 1, best 2, waits -1, cooldown 0", "rate 1, best 2, waits 0, cooldown 0 "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(plateau_parse(wrong[i], &read, &err), -1);
        assert_non_null(strstr(err.text, "is no state of ReduceLROnPlateau"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_and_the_end),
        cmocka_unit_test(plateaus_are_read_back_or_refused),
        cmocka_unit_test(texts_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
