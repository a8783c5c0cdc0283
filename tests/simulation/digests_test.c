/* digests_test.c - random schedules go on as they went: one line a seed, with all that happened in one
 * number. An invariant forbids states; this test shows that nothing else changed unseen. */
#include <stdio.h>

#include "proto/base/buffer.h"
#include "tests/simulation/schedule.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/golden.h"

enum { SEEDS = 1000 };

static void random_schedules_go_as_they_went(void **state)
{
    (void)state;
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        static struct schedule schedule;
        struct outcome outcome;
        scope_buffer trace = {0};
        schedule_random(seed, &schedule);
        schedule_run(&schedule, &outcome, &trace);
        assert_false(trace.failed);
        buffer_printf(&text, "%llu: %s %d, %lld restarts, %llu events, %016llx\n", (unsigned long long)seed,
                      roster_job_state_name(outcome.state), outcome.code, (long long)outcome.restarts,
                      (unsigned long long)outcome.events, (unsigned long long)outcome.digest);
    }
    golden_check("tests/simulation/golden/random_schedules.txt", &text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_schedules_go_as_they_went)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
