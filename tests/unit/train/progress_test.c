/* progress_test.c - the progress line and the closing mean. */
#include <math.h>

#include "proto/base/clock.h"
#include "runtime/include/muster.h"
#include "tests/support/cmocka_all.h"
#include "trainer/run/progress.h"

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
        out.data,
        "step 1/900  loss 2.5000  norm 0.75  lr 1.00e-03  20480 tok/s  50.0 ms  data 0.0 ms  comm 4.0 "
        "ms, 0.1 ms exposed "
        "(98% hidden)  mem 34.0 MB planned, 61.0 MB used  eta 0:45");
    p.limit_ns = 45e6;
    buffer_clear(&out);
    assert_int_equal(progress_line(&p, &s, &out), 0);
    assert_non_null(strstr(out.data, "  20480 tok/s  50.0 ms  90% of limit  data 0.0 ms  comm 4.0 ms"));
    p.idle = 0.1234; /* of stages */
    buffer_clear(&out);
    assert_int_equal(progress_line(&p, &s, &out), 0);
    assert_non_null(strstr(out.data, "exposed (98% hidden)  idle 12.3%  mem 34.0 MB planned"));
    s.step_ns = 40 * NS_PER_MS; /* less than the limit, which was measured on a busy machine */
    progress_add(&p, &s);
    s.step_ns = 50 * NS_PER_MS;
    progress_add(&p, &s);
    buffer_clear(&out);
    assert_int_equal(progress_line(&p, &s, &out), 0);
    assert_non_null(strstr(out.data, "80% of limit"));
    const struct {
        double busy;
        int64_t used, total;
        const char *text;
    } gpus[] = {
        {0.831, INT64_C(60) << 30, INT64_C(80) << 30, "61.0 MB used  gpu 83%, 60.0 GB of 80.0 GB  eta"},
        {0, 0, 0, "used  gpu 0%  eta"},
        {-1, INT64_C(1) << 30, INT64_C(80) << 30, "used  gpu 1.00 GB of 80.0 GB  eta"}};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        s.has_gpu = true;
        s.gpu_busy = gpus[i].busy;
        s.gpu_used = gpus[i].used;
        s.gpu_total = gpus[i].total;
        buffer_clear(&out);
        assert_int_equal(progress_line(&p, &s, &out), 0);
        assert_non_null(strstr(out.data, gpus[i].text));
    }
}

/* The wait for data counts in the rate, not in the step. A step faster than the measured peak corrects it. */
static void the_rate_has_the_wait_and_mfu_is_at_most_one(void **state)
{
    (void)state;
    struct progress p = {
        .steps = 9, .tokens_per_step = 1000, .step_flops = 3e9, .peak_flops = 1e11, .padding = 0.047};
    struct progress_step s = {.step_ns = 60 * NS_PER_MS, .data_wait_ns = 40 * NS_PER_MS};
    assert_true(progress_rate(&p) == 0 && progress_mfu(&(struct progress){0}, &s) == 0);
    progress_add(&p, &s);
    assert_true(fabs(progress_rate(&p) - 10000) < 1e-6);
    assert_true(fabs(progress_mfu(&p, &s) - 0.5) < 1e-9);
    scope_buffer out = {0};
    assert_int_equal(progress_line(&p, &s, &out), 0);
    assert_non_null(
        strstr(out.data, "  10000 tok/s (5% padding)  60.0 ms  50% MFU  data 40.0 ms  comm none"));
    struct progress_step fast = {.step_ns = 15 * NS_PER_MS};
    progress_add(&p, &fast);
    assert_true(fabs(progress_mfu(&p, &fast) - 1) < 1e-9);
    assert_true(fabs(progress_mfu(&p, &s) - 0.25) < 1e-9);
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

/* The plan's text comes first, whole; the source of the prediction is stated. */
static void a_prediction_says_what_it_is_from(void **state)
{
    (void)state;
    const struct muster_prediction p = {.ranks = 2,
                                        .threads = 1,
                                        .kinds = 3,
                                        .step_s = 0.05,
                                        .compute_s = 0.04,
                                        .comm_s = 0.02,
                                        .exposed_s = 0.01,
                                        .measured_s = 1.5};
    scope_buffer out = {0};
    assert_int_equal(prediction_text("the plan\n", NULL, 2, false, &out), 0);
    assert_string_equal(out.data, "the plan\n");
    buffer_clear(&out);
    assert_int_equal(prediction_text("the plan\n", &p, 2, false, &out), 0);
    assert_non_null(strstr(out.data,
                           "the plan\na step takes 50.0 ms: 40.0 ms compute, 20.0 ms collectives of "
                           "which 10.0 ms are not hidden\n"));
    assert_non_null(
        strstr(out.data, "from 1.5 s of measuring its parts on this machine, each alone: 3 kinds"));
    assert_non_null(strstr(out.data, "2 ranks of 1 thread at once"));
    assert_null(strstr(out.data, "no room"));
    buffer_clear(&out);
    assert_int_equal(prediction_text("the plan\n", &p, 64, false, &out), 0);
    assert_non_null(strstr(out.data, "this machine has no room for all 64 ranks"));
    buffer_clear(&out);
    assert_int_equal(prediction_text("\"last\": {\"hash\": \"1\"}", &p, 2, true, &out), 0);
    assert_non_null(
        strstr(out.data, "{\"last\": {\"hash\": \"1\"},\n \"prediction\": {\"step_s\": 0.050000"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_says_it_all),
        cmocka_unit_test(the_rate_has_the_wait_and_mfu_is_at_most_one),
        cmocka_unit_test(the_mean_is_of_the_last_fifty),
        cmocka_unit_test(pss_is_read),
        cmocka_unit_test(a_prediction_says_what_it_is_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
