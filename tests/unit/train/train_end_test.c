/* train_end_test.c - the end of a trainer whose device has work that never ends. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>

#include "proto/base/error.h"
#include "runtime/train/trainer_state.h"
#include "tests/unit/train/train_harness.h"

/* A device whose work is not done before any deadline; the host's device does it. */
static struct {
    struct device_ops ops;
    int failures, waits; /* waits without a deadline before a failure */
    char text[MUSTER_ERROR_TEXT];
} stuck;

static int sync_of_stuck(struct device_stream *stream, struct instant deadline, struct muster_error *err)
{
    if (deadline.ns != INSTANT_NEVER.ns)
        return error_set(err, MUSTER_E_TIMEOUT, "stream x has not finished in time");
    stuck.waits += !stuck.failures;
    return device_cpu()->sync(stream, deadline, err);
}

static void fail_of_stuck(struct device *device, const struct muster_error *error)
{
    (void)device;
    stuck.failures++;
    (void)snprintf(stuck.text, sizeof stuck.text, "%s", error->text);
}

static int stick(const struct training *run, struct trainer *trainer, int rank, int step)
{
    (void)run, (void)rank;
    if (step == 1)
        trainer->ops = &stuck.ops; /* from here to the end of the trainer */
    return 0;
}

static void the_end_leaves_work_that_does_not_end(void **state)
{
    (void)state;
    struct training run = training_small();
    stuck.ops = *device_cpu();
    stuck.ops.host_streams = false;
    stuck.ops.sync = sync_of_stuck;
    stuck.ops.fail = fail_of_stuck;
    run.steps = 1;
    run.visit = stick;
    assert_int_equal(training_run(&run), 0);
    assert_int_equal(stuck.waits, 0);
    assert_true(stuck.failures > 0);
    assert_string_equal(stuck.text, "stream x has not finished in time");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_leaves_work_that_does_not_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
