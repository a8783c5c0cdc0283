/* launcher_gpus_test.c - GPUs by a driver's library that is ours, in a process of its own that may hang or
 * crash, and what CUDA_VISIBLE_DEVICES leaves of them. */
#include "launcher/host/visible_gpus.h"

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

static void a_driver_lists_gpus_and_instances(void **state)
{
    (void)state;
    static struct nvml_inventory all;
    struct muster_error err = {0};
    assert_int_equal(pretend("GPU-aa GPU-bb+MIG-1+MIG-2 GPU-cc"), 0);
    assert_true(visible_gpus_have_driver());
    if (visible_gpus_read(&all, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(all.gpus, 3);
    assert_int_equal(all.count, 5);
    static const struct nvml_device expected[] = {{0, false, false, "GPU-aa", "0000:3a:00.0"},
                                                  {1, false, true, "GPU-bb", "0000:3b:00.0"},
                                                  {1, true, false, "MIG-1", "0000:3b:00.0"},
                                                  {1, true, false, "MIG-2", "0000:3b:00.0"},
                                                  {2, false, false, "GPU-cc", "0000:3c:00.0"}};
    for (int i = 0; i < all.count; i++) {
        assert_string_equal(all.devices[i].uuid, expected[i].uuid);
        assert_string_equal(all.devices[i].bus, expected[i].bus);
        assert_true(all.devices[i].gpu == expected[i].gpu && all.devices[i].mig == expected[i].mig &&
                    all.devices[i].divided == expected[i].divided);
    }
}

static void a_machine_without_gpus_is_no_error(void **state)
{
    (void)state;
    static struct nvml_inventory all;
    assert_int_equal(pretend(""), 0);
    assert_int_equal(visible_gpus_read(&all, NULL), 0);
    assert_true(all.gpus == 0 && all.count == 0);
}

static void drivers_that_refuse_are_quoted(void **state)
{
    (void)state;
    static struct nvml_inventory all;
    struct muster_error err = {0};
    assert_int_equal(pretend("fail"), 0);
    assert_int_equal(visible_gpus_read(&all, &err), -1);
    assert_string_equal(err.text, "NVML does not start: Driver Not Loaded (9)");
    assert_int_equal(pretend("crash"), 0);
    assert_int_equal(visible_gpus_read(&all, &err), -1);
    assert_string_equal(err.text, "NVML (the NVIDIA driver) ended without an answer");
    assert_int_equal(setenv(ENV_NVML_LIBRARY, "/nonexistent/libnvidia-ml.so", 1), 0);
    assert_int_equal(visible_gpus_read(&all, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "NVML cannot be loaded: /nonexistent/libnvidia-ml.so"));
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
    assert_string_equal(err.text, "the sick driver did not answer in 0.03 s");
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

static void cuda_visible_devices(void **state)
{
    (void)state;
    static const struct nvml_inventory all = {.gpus = 4,
                                              .count = 6,
                                              .devices = {{0, false, false, "GPU-5ebe9f43-aaaa", ""},
                                                          {1, false, false, "GPU-5ebe0000-bbbb", ""},
                                                          {2, false, true, "GPU-77777777-cccc", ""},
                                                          {2, true, false, "MIG-1111-a", ""},
                                                          {2, true, false, "MIG-2222-b", ""},
                                                          {3, false, false, "GPU-88888888-dddd", ""}}};
    static const struct {
        const char *list, *expected; /* digits: positions in the inventory */
    } rows[] = {
        {NULL, "01345"},
        {"", ""},
        {"0", "0"},
        {"3,0", "50"},
        {" 1 , 0 ", "10"},
        {"0,4,1", "0"},
        {"0,-1,1", "0"},
        {"-1", ""},
        {"0,,1", "0"},
        {"0,1,0", ""},
        {"2", "2"},
        {"GPU-5ebe9,GPU-8", "05"},
        {"GPU-5ebe", ""},
        {"GPU-5ebe9f43-aaaa", "0"},
        {"GPU-", ""},
        {"MIG-1111-a,MIG-2222-b", "34"},
        {"MIG-2", "4"},
        {"MIG-3", ""},
        {"GPU-5ebe9,GPU-5ebe9f43", ""},
        {"gpu0", ""},
        {"NoDevFiles", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int devices[NVML_DEVICES_LIMIT];
        char got[16] = "";
        int count = visible_gpus(&all, rows[i].list, devices);
        for (int k = 0; k < count; k++)
            got[k] = (char)('0' + devices[k]);
        assert_string_equal(got, rows[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_lists_gpus_and_instances),
        cmocka_unit_test(a_machine_without_gpus_is_no_error),
        cmocka_unit_test(drivers_that_refuse_are_quoted),
        cmocka_unit_test(what_blocks_is_given_up),
        cmocka_unit_test(answers_and_errors_come_back_whole),
        cmocka_unit_test(cuda_visible_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
