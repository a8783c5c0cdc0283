/* schedule_test.c - schedules as text and back, equal runs of equal schedules, and failing ones made small.
 */
#include <stdio.h>
#include <string.h>

#include "tests/simulation/planted_bugs.h"
#include "tests/simulation/schedule.h"
#include "tests/support/cmocka_all.h"

static void text_and_back(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct schedule drawn, read;
        struct muster_error err;
        struct buffer text = {0}, again = {0};
        schedule_random(seed, &drawn);
        schedule_write(&drawn, &text);
        if (schedule_read(text.data, &read, &err) < 0)
            fail_msg("seed %llu: %s", (unsigned long long)seed, err.text);
        schedule_write(&read, &again);
        assert_string_equal(text.data, again.data);
        buffer_free(&text);
        buffer_free(&again);
    }
}

static void a_wrong_line_is_named(void **state)
{
    static const char *const wrong[] = {"at 5 ms node 0 explode", "at 5 ms node 64 start", "nodes",
                                        "at 5 ms node 1 freeze",  "colour blue 3",         "node 1 nproc 0"};
    struct schedule schedule;
    struct muster_error err;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[100];
        (void)snprintf(text, sizeof text, "mode static\nnodes 3\n%s\n", wrong[i]);
        assert_int_equal(schedule_read(text, &schedule, &err), -1);
        if (!strstr(err.text, "line 3"))
            fail_msg("\"%s\": %s", wrong[i], err.text);
    }
    assert_int_equal(schedule_read("mode static\n", &schedule, &err), -1);
}

/* From its text, too. */
static void equal_schedules_run_alike(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct schedule drawn, read;
        struct outcome first, second;
        struct buffer text = {0}, one = {0}, other = {0};
        schedule_random(seed, &drawn);
        schedule_write(&drawn, &text);
        assert_int_equal(schedule_read(text.data, &read, NULL), 0);
        schedule_run(&drawn, &first, &one);
        schedule_run(&read, &second, &other);
        assert_int_equal(first.events, second.events);
        assert_string_equal(one.data, other.data);
        buffer_free(&text);
        buffer_free(&one);
        buffer_free(&other);
    }
}

/* The first seed that shows the planted bug. */
static enum invariant first_failing(struct schedule *schedule)
{
    struct outcome outcome = {0};
    for (uint64_t seed = 1; seed <= 10000 && !outcome.broken; seed++) {
        schedule_random(seed, schedule);
        schedule_run(schedule, &outcome, NULL);
    }
    return outcome.broken;
}

static void shrinks(enum planted_bug planted, int most_steps)
{
    struct schedule schedule, replayed;
    struct outcome outcome;
    struct buffer text = {0};
    planted_bug = planted;
    enum invariant broken = first_failing(&schedule);
    assert_int_not_equal(broken, INVARIANT_NONE);
    int before = schedule.count;
    (void)schedule_shrink(&schedule, broken);
    schedule_write(&schedule, &text);
    print_message("%d steps became %d:\n%s", before, schedule.count, text.data);
    assert_in_range(schedule.count, 1, most_steps);
    assert_int_equal(schedule_read(text.data, &replayed, NULL), 0);
    schedule_run(&replayed, &outcome, NULL);
    assert_int_equal(outcome.broken, broken);
    planted_bug = BUG_NONE;
    schedule_run(&replayed, &outcome, NULL);
    if (outcome.broken)
        fail_msg("without the bug: %s", outcome.text);
    buffer_free(&text);
}

static void a_failing_schedule_is_made_small(void **state)
{
    (void)state;
    shrinks(BUG_TWO_COUNTS, 4);
    shrinks(BUG_NO_LEASE, 4);
    shrinks(BUG_LOST_STOP, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(a_wrong_line_is_named),
        cmocka_unit_test(equal_schedules_run_alike),
        cmocka_unit_test(a_failing_schedule_is_made_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
