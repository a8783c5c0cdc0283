/* launcher_gpus_test.c - GPUs by a driver's library that is ours, in a process of its own that may hang or
 * crash. */
#include "launcher/host/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "launcher/host/isolated_call.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/env_names.h"
#include "tests/support/cmocka_all.h"

static int pretend(const char *gpus)
{
    return setenv(ENV_NVML_LIBRARY, FAKE_NVML_LIBRARY, 1) == 0 && setenv("FAKE_NVML", gpus, 1) == 0 ? 0 : -1;
}

/* Asks once; the caller frees. */
static struct nvml_probe ask(void)
{
    struct nvml_probe probe = {0};
    struct muster_error err = {0};
    if (nvml_probe_ask(&probe, 60 * NS_PER_S, &err) < 0)
        fail_msg("%s", err.text);
    assert_non_null(probe.report);
    return probe;
}

static void a_driver_lists_gpus_and_instances(void **state)
{
    (void)state;
    static struct machine machine;
    assert_int_equal(pretend("GPU-aa GPU-bb+MIG-1+MIG-2 GPU-cc"), 0);
    assert_true(nvml_probe_has_driver());
    struct nvml_probe probe = ask();
    assert_int_equal(probe.failure.code, MUSTER_OK);
    assert_int_equal(probe.report->gpu_count, 3);
    assert_int_equal(probe.report->instance_count, 2);
    assert_int_equal(probe.report->gpus[1].mig_devices, 2);
    machine_take_gpus(probe.report, &probe.failure, NULL, &machine);
    assert_true(machine.gpus == 4 && machine.mig == 2 && machine.gpus_named);
    static const char *const buses[] = {"0000:3a:00.0", "0000:3b:00.0", "0000:3b:00.0", "0000:3c:00.0"};
    for (int i = 0; i < 4; i++)
        assert_string_equal(machine.gpu_bus[i], buses[i]);
    machine = (struct machine){.gpus = 7};
    machine_take_gpus(probe.report, &probe.failure, "GPU-c,MIG-2", &machine);
    assert_true(machine.gpus == 2 && machine.mig == 1);
    assert_string_equal(machine.gpu_bus[0], "0000:3c:00.0");
    assert_string_equal(machine.gpu_bus[1], "0000:3b:00.0");
    nvml_probe_free(&probe);
}

static void a_machine_without_gpus_is_no_error(void **state)
{
    (void)state;
    static struct machine machine;
    assert_int_equal(pretend(""), 0);
    struct nvml_probe probe = ask();
    machine.gpus = 3; /* by /dev */
    machine_take_gpus(probe.report, &probe.failure, NULL, &machine);
    assert_true(machine.gpus == 0 && machine.gpus_named && !*machine.gpus_unknown);
    nvml_probe_free(&probe);
}

static void a_driver_is_asked_once_a_start(void **state)
{
    (void)state;
    static struct machine machine;
    struct description d;
    assert_int_equal(pretend("GPU-aa"), 0);
    struct nvml_probe probe = ask();
    assert_int_equal(pretend("fail"), 0); /* the answer of a second call */
    assert_int_equal(machine_read_gpus(NULL, &probe, &machine, NULL), 0);
    assert_true(machine.gpus == 1 && machine.gpus_named);
    description_init(&d);
    assert_int_equal(nvml_probe_describe(&probe, NS_PER_S, &d, NULL), 0);
    assert_true(d.nvml == DESCRIPTION_YES && d.gpu_count == 1);
    description_free(&d);
    nvml_probe_free(&probe);
}

static void expect_unknown(const char *text)
{
    static struct machine machine;
    struct nvml_probe probe = ask();
    machine = (struct machine){.gpus = 3};
    machine_take_gpus(probe.report, &probe.failure, NULL, &machine);
    assert_true(machine.gpus == 3 && !machine.gpus_named); /* as /dev has them */
    if (!strstr(machine.gpus_unknown, text))
        fail_msg("'%s', not '%s'", machine.gpus_unknown, text);
    nvml_probe_free(&probe);
}

static void drivers_that_refuse_are_quoted(void **state)
{
    (void)state;
    assert_int_equal(pretend("fail"), 0);
    expect_unknown("NVML does not start: Driver Not Loaded (9)");
    assert_int_equal(pretend("crash"), 0);
    expect_unknown("NVML ended without a result");
    assert_int_equal(pretend("GPU-aa GPU-bb"), 0);
    assert_int_equal(setenv("FAKE_NVML_FACTS", "1.lost=1", 1), 0);
    expect_unknown("GPU 1 does not respond: it is lost");
    assert_int_equal(unsetenv("FAKE_NVML_FACTS"), 0);
    assert_int_equal(setenv(ENV_NVML_LIBRARY, "/nonexistent/libnvidia-ml.so", 1), 0);
    expect_unknown("NVML cannot be loaded: /nonexistent/libnvidia-ml.so");
}

static int write_and_block(void *context, void *result, struct muster_error *err)
{
    (void)context;
    (void)err;
    memset(result, 1, sizeof(int));
    while (pause() < 0)
        ;
    return 0;
}

static void what_blocks_is_given_up(void **state)
{
    (void)state;
    int result = 0;
    struct muster_error err = {0};
    struct instant start = clock_now(NULL);
    assert_int_equal(
        isolated_call(write_and_block, NULL, &result, sizeof result, 30 * NS_PER_MS, "the sick driver", &err),
        -1);
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
    assert_string_equal(err.text, "the sick driver did not respond in 0.03 s");
    assert_true(instant_diff_ns(clock_now(NULL), start) >= 30 * NS_PER_MS);
    assert_int_equal(result, 0); /* nothing of an unfinished answer */
}

static int answer(void *context, void *result, struct muster_error *err)
{
    if (context)
        return error_set(err, MUSTER_E_REFUSED, "no: %s", (const char *)context);
    memset(result, 'x', 200000);
    return 0;
}

static void answers_and_errors_come_back_whole(void **state)
{
    (void)state;
    static char large[200000];
    struct muster_error err = {0};
    assert_int_equal(isolated_call(answer, NULL, large, sizeof large, 60 * NS_PER_S, "it", &err), 0);
    for (size_t i = 0; i < sizeof large; i++)
        assert_int_equal(large[i], 'x');
    assert_int_equal(isolated_call(answer, "because", large, sizeof large, 60 * NS_PER_S, "it", &err), -1);
    assert_int_equal(err.code, MUSTER_E_REFUSED);
    assert_string_equal(err.text, "no: because");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_lists_gpus_and_instances),
        cmocka_unit_test(a_machine_without_gpus_is_no_error),
        cmocka_unit_test(a_driver_is_asked_once_a_start),
        cmocka_unit_test(drivers_that_refuse_are_quoted),
        cmocka_unit_test(what_blocks_is_given_up),
        cmocka_unit_test(answers_and_errors_come_back_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
