/* Which GPU is a rank's, and how busy it is, by a substitute for NVML. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "proto/base/clock.h"
#include "proto/nvml/nvml_usage.h"

static void the_gpu_of_a_rank(void **state)
{
    (void)state;
    static const struct {
        const char *visible;
        int rank;
        bool there;
        int index;
        const char *uuid;
    } cases[] = {
        {NULL, 0, true, 0, ""},          {NULL, 3, true, 3, ""},
        {"", 0, false, 0, NULL},         {"5,6", 0, true, 5, ""},
        {"5,6", 1, true, 6, ""},         {"5,6", 2, false, 0, NULL},
        {"5, 6", 1, true, 6, ""},        {"-1", 0, false, 0, NULL},
        {"0,-1,2", 1, false, 0, NULL},   {"GPU-ab,GPU-c", 1, true, -1, "GPU-c"},
        {"MIG-1", 0, true, -1, "MIG-1"}, {"NoDevFiles", 0, false, 0, NULL},
        {"1x", 0, false, 0, NULL},       {NULL, -1, false, 0, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char uuid[96];
        int index;
        assert_int_equal(nvml_usage_choose(cases[i].visible, cases[i].rank, &index, uuid, sizeof uuid),
                         cases[i].there);
        if (!cases[i].there)
            continue;
        assert_int_equal(index, cases[i].index);
        assert_string_equal(uuid, cases[i].uuid);
    }
}

static bool answer_within(struct nvml_sampler *sampler, int64_t ns, struct nvml_usage *usage)
{
    const struct instant until = instant_add(clock_now(NULL), ns);
    do {
        if (nvml_sampler_read(sampler, usage))
            return true;
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    } while (clock_now(NULL).ns < until.ns);
    return false;
}

static void answers_are_the_driver_s(void **state)
{
    (void)state;
    struct nvml_usage usage;
    (void)setenv("FAKE_NVML", "GPU-a GPU-b+MIG-1", 1);
    (void)setenv("FAKE_NVML_FACTS", "0.busy=83 0.memory=81920 0.used=61440 1.memory=40960 1.used=1024", 1);
    struct nvml_sampler *sampler = nvml_sampler_start(FAKE_NVML_LIBRARY, NULL, 0);
    assert_true(answer_within(sampler, 5 * NS_PER_S, &usage));
    assert_true(fabs(usage.busy - 0.83) < 1e-9);
    assert_int_equal(usage.total, INT64_C(81920) << 20);
    assert_int_equal(usage.used, INT64_C(61440) << 20);
    nvml_sampler_stop(sampler);
    sampler = nvml_sampler_start(FAKE_NVML_LIBRARY, "0,GPU-b", 1); /* the rates of this one are not known */
    assert_true(answer_within(sampler, 5 * NS_PER_S, &usage));
    assert_true(usage.busy < 0);
    assert_int_equal(usage.used, INT64_C(1024) << 20);
    nvml_sampler_stop(sampler);
}

static void without_answers_training_goes_on(void **state)
{
    (void)state;
    struct nvml_usage usage;
    assert_false(nvml_sampler_read(NULL, &usage));
    nvml_sampler_stop(NULL);
    assert_null(nvml_sampler_start(FAKE_NVML_LIBRARY, "", 0));
    static const char *const drivers[] = {"fail", "hang", ""};
    for (size_t i = 0; i < 3; i++) {
        (void)setenv("FAKE_NVML", drivers[i], 1);
        const struct instant begin = clock_now(NULL);
        struct nvml_sampler *sampler = nvml_sampler_start(FAKE_NVML_LIBRARY, NULL, 0);
        assert_non_null(sampler);
        assert_false(answer_within(sampler, 100 * NS_PER_MS, &usage));
        nvml_sampler_stop(sampler);
        assert_true(instant_diff_ns(clock_now(NULL), begin) < 5 * NS_PER_S);
    }
    struct nvml_sampler *sampler = nvml_sampler_start("/nowhere/libnvidia-ml.so.1", NULL, 0);
    assert_false(answer_within(sampler, 50 * NS_PER_MS, &usage));
    nvml_sampler_stop(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gpu_of_a_rank),
        cmocka_unit_test(answers_are_the_driver_s),
        cmocka_unit_test(without_answers_training_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
