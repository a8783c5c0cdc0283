/* job_state.h: a written state is read again, a damaged state is not, and the use that a new process makes of
 * it. */
#include "launcher/policy/job_state.h"

#include <string.h>

#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

static void what_is_written_is_read(void **state)
{
    (void)state;
    for (int phase = 0; phase < JOB_PHASE_COUNT; phase++) {
        struct job_state written = {7, (enum job_phase)phase, 137, "node 1"}, got;
        scope_buffer text = {0};
        assert_int_equal(job_state_format(&written, "a job", &text), 0);
        assert_true(text.length < JOB_STATE_SIZE_LIMIT);
        assert_int_equal(job_state_parse(text.data, text.length, "a job", &got, NULL), 0);
        assert_int_equal(got.restart_count, 7);
        assert_int_equal(got.phase, phase);
        assert_int_equal(got.exit_code, 137);
        assert_string_equal(got.server, "node 1");
    }
    char *path = job_state_path("/v", "a job");
    assert_string_equal(path, "/v/a job.muster-job");
    mem_free(path);
}

static void every_flipped_or_missing_byte_is_seen(void **state)
{
    (void)state;
    struct job_state written = {2, JOB_RUNS, 0, ""}, got;
    scope_buffer text = {0};
    assert_int_equal(job_state_format(&written, "j", &text), 0);
    for (size_t i = 0; i < text.length; i++) {
        struct muster_error err = {0};
        assert_int_equal(job_state_parse(text.data, i, "j", &got, &err), -1);
        assert_int_equal(err.code, MUSTER_E_INVALID);
        for (int bit = 0; bit < 8; bit++) {
            text.data[i] ^= (char)(1 << bit);
            assert_int_equal(job_state_parse(text.data, text.length, "j", &got, &err), -1);
            text.data[i] ^= (char)(1 << bit);
        }
    }
    assert_int_equal(job_state_parse(text.data, text.length, "j", &got, NULL), 0);
    assert_int_equal(buffer_text(&text, "x"), 0);
    assert_int_equal(job_state_parse(text.data, text.length, "j", &got, NULL), -1);
}

static void numbers_are_read_to_their_limits(void **state)
{
    (void)state;
    static const struct {
        struct job_state written;
        int result;
    } rows[] = {
        {{0, JOB_RUNS, 0, ""}, 0},          {{INT64_MAX - 1, JOB_RUNS, 255, ""}, 0},
        {{INT64_MAX, JOB_RUNS, 0, ""}, -1}, /* one more could not be counted */
        {{-1, JOB_RUNS, 0, ""}, -1},        {{0, JOB_DONE, 256, ""}, -1},
        {{0, JOB_DONE, -1, ""}, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct job_state got;
        scope_buffer text = {0};
        assert_int_equal(job_state_format(&rows[i].written, "j", &text), 0);
        assert_int_equal(job_state_parse(text.data, text.length, "j", &got, NULL), rows[i].result);
        if (rows[i].result == 0) {
            assert_int_equal(got.restart_count, rows[i].written.restart_count);
            assert_int_equal(got.exit_code, rows[i].written.exit_code);
        }
    }
}

static int write_and_read(void *context)
{
    const struct job_state written = {2, JOB_LEFT, 0, ""};
    struct job_state got;
    scope_buffer text = {0};
    (void)context;
    if (job_state_format(&written, "a job whose name needs a second block of memory for the whole", &text))
        return -1;
    return job_state_parse(text.data, text.length,
                           "a job whose name needs a second block of memory for the whole", &got, NULL);
}

static void without_memory_there_is_no_state(void **state)
{
    (void)state;
    faults_sweep(write_and_read, NULL);
}

static void another_jobs_state_is_named(void **state)
{
    (void)state;
    struct job_state written = {2, JOB_RUNS, 0, ""}, got;
    struct muster_error err;
    scope_buffer text = {0};
    assert_int_equal(job_state_format(&written, "mine", &text), 0);
    assert_int_equal(job_state_parse(text.data, text.length, "yours", &got, &err), -1);
    assert_non_null(strstr(err.text, "\"mine\""));
    assert_int_equal(job_state_parse("", 0, "yours", &got, &err), -1);
}

static void a_new_life_goes_on_counting(void **state)
{
    (void)state;
    static const struct {
        struct job_state found;
        int64_t limit;
        enum job_resume resume;
        int64_t count;
        int exit_code;
    } rows[] = {
        {{0, JOB_RUNS, 0, ""}, 3, JOB_RESUME, 1, 0}, /* it vanished: that costs one */
        {{2, JOB_RUNS, 0, ""}, 3, JOB_RESUME, 3, 0},
        {{3, JOB_RUNS, 0, ""}, 3, JOB_IS_SPENT, 4, 1},
        {{0, JOB_RUNS, 0, ""}, 0, JOB_IS_SPENT, 1, 1},
        {{0, JOB_LEFT, 0, ""}, 0, JOB_RESUME, 0, 0}, /* it was told to end: that costs none */
        {{3, JOB_LEFT, 0, ""}, 3, JOB_RESUME, 3, 0},
        {{4, JOB_LEFT, 0, ""}, 3, JOB_IS_SPENT, 4, 1}, /* --max-restarts was lowered */
        {{1, JOB_DONE, 137, ""}, 3, JOB_IS_OVER, 1, 137},
        {{1, JOB_DONE, 0, ""}, 3, JOB_IS_OVER, 1, 0},
        {{2, JOB_RUNS, 0, "n0"}, 3, JOB_RESUME, 3, 0},
        {{3, JOB_RUNS, 0, "n0"}, 3, JOB_IS_SPENT, 4, 1},
        {{2, JOB_RUNS, 0, "n1"}, 3, JOB_RESUME, 2, 0}, /* it runs elsewhere */
        {{3, JOB_RUNS, 0, "n1"}, 3, JOB_RESUME, 3, 0},
        {{1, JOB_DONE, 3, "n1"}, 3, JOB_IS_OVER, 1, 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct job_state found = rows[i].found;
        assert_int_equal(job_state_resume(&found, "n0", rows[i].limit), rows[i].resume);
        assert_int_equal(found.restart_count, rows[i].count);
        assert_int_equal(found.exit_code, rows[i].exit_code);
        assert_int_equal(found.phase, rows[i].resume == JOB_RESUME ? JOB_RUNS : JOB_DONE);
        if (rows[i].resume == JOB_RESUME)
            assert_string_equal(found.server, "n0");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_flipped_or_missing_byte_is_seen),
        cmocka_unit_test(numbers_are_read_to_their_limits),
        cmocka_unit_test(without_memory_there_is_no_state),
        cmocka_unit_test(another_jobs_state_is_named),
        cmocka_unit_test(a_new_life_goes_on_counting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
