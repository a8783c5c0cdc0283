/* progress_test.c - the progress line and the closing mean. */
#include "proto/base/clock.h"
#include "runtime/app/progress.h"
#include "tests/support/cmocka_all.h"

static void the_line_says_it_all(void **state)
{
    (void)state;
    struct progress p = {.steps = 900, .tokens_per_step = 1024, .planned_bytes = 34 << 20};
    struct progress_step s = {.loss = 2.5,
                              .learning_rate = 1e-3,
                              .grad_norm = 0.75,
                              .step_ns = 50 * NS_PER_MS,
                              .comm_ns = 4 * NS_PER_MS,
                              .exposed_ns = 100 * NS_PER_US,
                              .resident_bytes = 61 << 20};
    progress_add(&p, &s);
    scope_buffer out = {0};
    assert_int_equal(progress_line(&p, &s, &out), 0);
    assert_string_equal(
        out.data, "step 1/900  loss 2.5000  norm 0.75  lr 1.00e-03  20480 tok/s  comm 4.0 ms, 0.1 ms exposed "
                  "(98% hidden)  mem 34.0 MB planned, 61.0 MB used  eta 0:45");
}

static void the_mean_is_of_the_last_fifty(void **state)
{
    (void)state;
    struct progress p = {.steps = 100};
    assert_true(progress_mean_loss(&p) == 0);
    for (int i = 0; i < 100; i++)
        progress_add(&p, &(struct progress_step){.loss = i < 50 ? 100 : 2, .step_ns = 1});
    assert_true(progress_mean_loss(&p) == 2);
}

static void pss_is_read(void **state)
{
    (void)state;
    assert_int_equal(progress_parse_pss("x\nRss:  10 kB\nPss:                 12 kB\nPss_Dirty: 3 kB\n"),
                     12 * 1024);
    assert_int_equal(progress_parse_pss("nothing"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_says_it_all),
        cmocka_unit_test(the_mean_is_of_the_last_fifty),
        cmocka_unit_test(pss_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
