/* launcher_gpu_facts_test.c - what NVML tells reaches a description, from a driver's library that is ours:
 * whole, old, failing, hanging or crashing at each of its functions, with a GPU lost, with 0 to 16 GPUs. */
#include "launcher/host/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/env_names.h"
#include "proto/nvml/nvml_library.h"
#include "runtime/nccl/nvml/nvml_describe.h"
#include "tests/support/cmocka_all.h"

static const int64_t generous_ns = 60 * NS_PER_S, short_ns = 100 * NS_PER_MS;

static const char *const all_facts =
    "*.name=NVIDIA_H200 *.capability=90 *.memory=143771 *.used=12 *.mig=0 *.ecc=1 *.corrected=3 "
    "*.uncorrected=2 *.uncorrected_now=1 *.retired=4 *.retired_pending=0 *.pending=1 *.remap_failed=0 "
    "*.recovery=1 *.links=18 1.links_down=2 *.links_down=0 *.switch=1 *.generation=1 *.generation_max=5 "
    "*.width=8 *.width_max=16 *.temperature=41 *.throttle=64 *.fabric=3 1.process=4194300:512 "
    "1.process=4194301 0-1.ancestor=20 0-1.p2p=0 0-1.p2p_write=3";

static void pretend(const char *library, const char *gpus, const char *facts, const char *fail)
{
    assert_int_equal(setenv(ENV_NVML_LIBRARY, library, 1), 0);
    assert_int_equal(setenv("FAKE_NVML", gpus, 1), 0);
    assert_int_equal(setenv("FAKE_NVML_FACTS", facts, 1), 0);
    assert_int_equal(setenv("FAKE_NVML_FAIL", fail, 1), 0);
}

static void ask(int64_t patience_ns, struct description *d)
{
    struct muster_error err = {0};
    description_init(d);
    struct nvml_probe probe = {0};
    if (nvml_probe_describe(&probe, patience_ns, d, &err) < 0)
        fail_msg("%s", err.text);
    nvml_probe_free(&probe);
}

/* A library that hangs gets more patience, until it has got as far as the text states. */
static void ask_until(int64_t patience_ns, const char *text, struct description *d)
{
    ask(patience_ns, d);
    while (!strstr(d->nvml_error, text) && patience_ns < generous_ns) {
        description_free(d);
        patience_ns *= 4;
        ask(patience_ns, d);
    }
    if (!strstr(d->nvml_error, "NVML did not respond in ") || !strstr(d->nvml_error, text))
        fail_msg("'%s', not '%s'", d->nvml_error, text);
}

static void every_fact_arrives(void **state)
{
    (void)state;
    struct description d;
    pretend(FAKE_NVML_LIBRARY, "GPU-aa GPU-bb", all_facts, "");
    ask(generous_ns, &d);
    assert_string_equal(d.nvml_error, "");
    assert_int_equal(d.nvml, DESCRIPTION_YES);
    assert_string_equal(d.driver, "580.82.07");
    assert_string_equal(d.cuda_driver, "13.0");
    assert_int_equal(d.fabric_manager, DESCRIPTION_YES);
    assert_int_equal(d.gpu_count, 2);
    const struct description_gpu *gpu = &d.gpus[1];
    assert_string_equal(gpu->error, "");
    assert_string_equal(gpu->uuid, "GPU-bb");
    assert_string_equal(gpu->pci, "0000:3b:00.0");
    assert_string_equal(gpu->name, "NVIDIA H200");
    assert_true(gpu->compute_major == 9 && gpu->compute_minor == 0);
    assert_int_equal(gpu->memory_bytes >> 20, 143771);
    assert_int_equal(gpu->memory_used_bytes >> 20, 12);
    assert_int_equal(gpu->mig, DESCRIPTION_NO);
    assert_int_equal(gpu->ecc, DESCRIPTION_YES);
    assert_true(gpu->ecc_corrected == 3 && gpu->ecc_uncorrected == 2 && gpu->ecc_uncorrected_now == 1);
    assert_int_equal(gpu->retired_pages, 4);
    assert_true(gpu->remap_pending == DESCRIPTION_YES && gpu->remap_failed == DESCRIPTION_NO);
    assert_string_equal(gpu->recovery_action, "reset");
    assert_true(gpu->nvlinks == 18 && gpu->nvlinks_up == 16);
    assert_true(gpu->pcie_generation == 1 && gpu->pcie_generation_max == 5);
    assert_true(gpu->pcie_width == 8 && gpu->pcie_width_max == 16);
    assert_int_equal(gpu->temperature_c, 41);
    assert_int_equal(gpu->throttle_reasons, 64);
    assert_string_equal(gpu->fabric_state, "completed");
    assert_string_equal(gpu->fabric_cluster, "abababababababababababababababab");
    assert_int_equal(gpu->fabric_clique, 7);
    assert_true(gpu->processes == 2 && d.gpus[0].processes == 0);
    assert_int_equal(d.gpu_process_count, 2);
    assert_true(d.gpu_processes[0].pid == 4194300 && d.gpu_processes[0].gpu == 1);
    assert_int_equal(d.gpu_processes[0].memory_bytes >> 20, 512);
    assert_int_equal(d.gpu_processes[1].memory_bytes, -1);
    assert_int_equal(d.gpu_link_count, 1);
    assert_int_equal(d.gpu_links[0].distance, DESCRIPTION_NVLINK);
    assert_int_equal(d.gpu_links[0].nvlinks, 16); /* the fewer of both, through the switch */
    assert_int_equal(d.gpu_links[0].p2p_read, DESCRIPTION_YES);
    assert_int_equal(d.gpu_links[0].p2p_write, DESCRIPTION_NO);
    description_free(&d);
}

static void bridges_and_buses(void **state)
{
    (void)state;
    struct description d;
    static const struct {
        const char *facts;
        enum description_distance distance;
        int nvlinks;
    } rows[] = {
        {"0.links=4 0.peer=1 1.links=4 1.peer=0 0-1.ancestor=50", DESCRIPTION_NVLINK, 4},
        {"0.links=4 0.peer=2 1.links=4 1.peer=2 0-1.ancestor=50", DESCRIPTION_SYS, 0}, /* to others */
        {"0-1.ancestor=0", DESCRIPTION_PIX, 0},
        {"0-1.ancestor=10", DESCRIPTION_PIX, 0},
        {"0-1.ancestor=20", DESCRIPTION_PXB, 0},
        {"0-1.ancestor=30", DESCRIPTION_PHB, 0},
        {"0-1.ancestor=40", DESCRIPTION_NODE, 0},
        {"0-1.ancestor=60", DESCRIPTION_DISTANCE_UNKNOWN, 0},
        {"", DESCRIPTION_DISTANCE_UNKNOWN, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pretend(FAKE_NVML_LIBRARY, "GPU-aa GPU-bb", rows[i].facts, "");
        ask(generous_ns, &d);
        if (d.gpu_links[0].distance != rows[i].distance || d.gpu_links[0].nvlinks != rows[i].nvlinks)
            fail_msg("%s: %s %d", rows[i].facts, description_distance_name(d.gpu_links[0].distance),
                     d.gpu_links[0].nvlinks);
        description_free(&d);
    }
}

static void any_number_of_gpus(void **state)
{
    (void)state;
    for (int count = 0; count <= 16; count++) {
        char gpus[256] = "";
        struct description d;
        for (int i = 0; i < count; i++)
            (void)snprintf(gpus + strlen(gpus), sizeof gpus - strlen(gpus), "%sGPU-%d", i ? " " : "", i);
        pretend(FAKE_NVML_LIBRARY, gpus, "*.temperature=30", "");
        ask(generous_ns, &d);
        assert_int_equal(d.nvml, DESCRIPTION_YES);
        assert_int_equal(d.gpu_count, count);
        assert_int_equal(d.gpu_link_count, count * (count - 1) / 2);
        for (int i = 0; i < count; i++)
            assert_true(d.gpus[i].index == i && d.gpus[i].temperature_c == 30);
        description_free(&d);
    }
}

static void instances_are_counted(void **state)
{
    (void)state;
    struct description d;
    pretend(FAKE_NVML_LIBRARY, "GPU-aa+MIG-1+MIG-2 GPU-bb", "0.mig=1 1.mig=0", "");
    ask(generous_ns, &d);
    assert_true(d.gpus[0].mig == DESCRIPTION_YES && d.gpus[0].mig_devices == 2);
    assert_true(d.gpus[1].mig == DESCRIPTION_NO && d.gpus[1].mig_devices == 0);
    description_free(&d);
}

static void an_old_driver_tells_less(void **state)
{
    (void)state;
    struct description d;
    pretend(FAKE_NVML_OLD_LIBRARY, "GPU-aa GPU-bb", all_facts, "");
    ask(generous_ns, &d);
    assert_int_equal(d.nvml, DESCRIPTION_YES);
    assert_int_equal(d.gpu_count, 2);
    assert_string_equal(d.gpus[0].uuid, "GPU-aa");
    assert_string_equal(d.gpus[0].name, "");
    assert_string_equal(d.gpus[0].error, ""); /* a missing function is no fault */
    assert_true(d.gpus[0].temperature_c == -1 && d.gpus[0].nvlinks == -1 && d.gpus[0].processes == -1);
    description_free(&d);
}

static void a_lost_gpu_is_said_and_the_others_stay(void **state)
{
    (void)state;
    struct description d;
    pretend(FAKE_NVML_LIBRARY, "GPU-aa GPU-bb GPU-cc", "1.lost=1 *.temperature=30", "");
    ask(generous_ns, &d);
    assert_int_equal(d.nvml, DESCRIPTION_YES);
    assert_int_equal(d.gpu_count, 3);
    assert_true(!d.gpus[0].lost && d.gpus[1].lost && !d.gpus[2].lost);
    assert_true(d.gpus[2].temperature_c == 30 && d.gpus[1].temperature_c == -1);
    assert_int_equal(d.gpu_link_count, 1); /* 0 and 2 */
    assert_int_equal(d.gpu_links[0].b, 2);
    description_free(&d);
    /* between two calls */
    pretend(FAKE_NVML_LIBRARY, "GPU-aa GPU-bb", "*.temperature=30", "nvmlDeviceGetTemperature@0:15");
    ask(generous_ns, &d);
    assert_true(d.gpus[0].lost && !d.gpus[1].lost);
    description_free(&d);
}

static const char *const functions[] = {
#define FUNCTION(member, name, parameters) name,
    NVML_FUNCTIONS(FUNCTION) NVML_OPTIONAL_FUNCTIONS(FUNCTION)
#undef FUNCTION
};
enum { FUNCTION_COUNT = sizeof functions / sizeof *functions };

/* The fake has the newer of two functions that say the same, and nobody looks at shutdown's code. */
static bool is_called(const char *name)
{
    return strcmp(name, "nvmlDeviceGetMemoryInfo") != 0 && strcmp(name, "nvmlShutdown") != 0 &&
           strcmp(name, "nvmlDeviceGetComputeRunningProcesses_v2") != 0;
}

static bool is_of_no_gpu(const char *name)
{
    return !strcmp(name, "nvmlInit_v2") || !strcmp(name, "nvmlDeviceGetCount_v2");
}

static void a_failure_of_any_call_costs_that_answer(void **state)
{
    (void)state;
    for (int i = 0; i < FUNCTION_COUNT; i++) {
        char fail[128];
        struct description d;
        (void)snprintf(fail, sizeof fail, "%s:999", functions[i]);
        pretend(FAKE_NVML_LIBRARY, "GPU-aa+MIG-1 GPU-bb", "*.mig=1", fail);
        ask(generous_ns, &d);
        if (is_of_no_gpu(functions[i])) {
            assert_int_equal(d.nvml, DESCRIPTION_NO);
            assert_non_null(strstr(d.nvml_error, "Unknown Error (999)"));
            assert_int_equal(d.gpu_count, 0);
        } else if (d.nvml != DESCRIPTION_YES || d.gpu_count != 2) {
            fail_msg("%s: %s", functions[i], d.nvml_error);
        }
        description_free(&d);
    }
}

static void a_hang_in_any_call_costs_the_time_limit(void **state)
{
    (void)state;
    for (int i = 0; i < FUNCTION_COUNT; i++) {
        char fail[128];
        struct description d;
        if (!is_called(functions[i]))
            continue;
        (void)snprintf(fail, sizeof fail, "%s:hang", functions[i]);
        pretend(FAKE_NVML_LIBRARY, "GPU-aa+MIG-1 GPU-bb", "*.mig=1 *.links=1 *.retired=0 *.name=x 0-1.p2p=0",
                fail);
        ask_until(short_ns, "; the query was: ", &d);
        assert_int_equal(d.nvml, DESCRIPTION_UNKNOWN);
        description_free(&d);
    }
}

static void a_crash_is_no_crash_of_ours(void **state)
{
    (void)state;
    struct description d;
    pretend(FAKE_NVML_LIBRARY, "GPU-aa GPU-bb", "", "nvmlDeviceGetUUID@1:crash");
    ask(generous_ns, &d);
    assert_int_equal(d.nvml, DESCRIPTION_UNKNOWN);
    assert_string_equal(d.nvml_error, "NVML ended without a result; the query was: GPU 1");
    assert_int_equal(d.gpu_count, 2);
    description_free(&d);
}

static void what_came_before_a_hang_is_kept(void **state)
{
    (void)state;
    struct description d;
    pretend(FAKE_NVML_LIBRARY, "GPU-a GPU-b GPU-c GPU-d", "*.temperature=30 *.name=x",
            "nvmlDeviceGetTemperature@2:hang");
    ask_until(NS_PER_S, "; the query was: GPU 2: its temperature", &d);
    assert_int_equal(d.gpu_count, 3);
    assert_int_equal(d.gpus[1].temperature_c, 30);
    assert_string_equal(d.gpus[2].name, "x");
    description_free(&d);
}

static void no_driver_is_no_question(void **state)
{
    (void)state;
    struct description d;
    pretend("/nonexistent/libnvidia-ml.so", "", "", "");
    ask(generous_ns, &d);
    assert_int_equal(d.nvml, DESCRIPTION_NO);
    assert_non_null(strstr(d.nvml_error, "NVML cannot be loaded: /nonexistent/libnvidia-ml.so"));
    description_free(&d);
}

/* A report that was cut off in a write may hold anything. */
static void a_broken_report_stays_within_its_bounds(void **state)
{
    (void)state;
    struct nvml_report *report = mem_calloc(1, sizeof *report);
    struct muster_error failure = {.code = MUSTER_E_TIMEOUT, .text = "NVML did not answer"};
    struct description d;
    assert_non_null(report);
    memset(report, 'x', sizeof *report);
    report->started = true;
    report->doing[sizeof report->doing - 1] = 0;
    description_init(&d);
    assert_int_equal(nvml_merge(report, &failure, &d, NULL), 0);
    assert_int_equal(d.gpu_count, DESCRIPTION_GPUS_LIMIT);
    assert_int_equal(d.gpu_link_count, NVML_REPORT_PAIRS);
    assert_int_equal(strlen(d.gpus[0].name), DESCRIPTION_NAME - 1);
    report->gpu_count = report->link_count = report->process_count = -1;
    assert_int_equal(nvml_merge(report, &failure, &d, NULL), 0);
    assert_int_equal(d.gpu_link_count, 0);
    description_free(&d);
    mem_free(report);
}

static void what_the_bus_told_stays(void **state)
{
    (void)state;
    struct nvml_report *report = mem_calloc(1, sizeof *report);
    struct description d;
    assert_non_null(report);
    report->started = report->finished = true;
    report->gpu_count = 1;
    description_gpu_init(&report->gpus[0]);
    strcpy(report->gpus[0].pci, "0000:3a:00.0");
    strcpy(report->gpus[0].name, "H200");
    description_init(&d);
    d.gpus = mem_calloc(2, sizeof *d.gpus);
    assert_non_null(d.gpus);
    d.gpu_count = 2;
    for (int i = 0; i < 2; i++) {
        description_gpu_init(&d.gpus[i]);
        (void)snprintf(d.gpus[i].pci, sizeof d.gpus[i].pci, "0000:%d:00.0", i == 0 ? 19 : 30);
    }
    strcpy(d.gpus[1].pci, "0000:3a:00.0");
    strcpy(d.gpus[1].cpus, "0-31");
    d.gpus[1].numa_node = 1;
    d.gpus[1].pcie_width = 8;
    d.gpus[1].pcie_width_max = 16;
    assert_int_equal(nvml_merge(report, NULL, &d, NULL), 0);
    assert_int_equal(d.gpu_count, 1);
    assert_string_equal(d.gpus[0].name, "H200");
    assert_string_equal(d.gpus[0].cpus, "0-31");
    assert_true(d.gpus[0].numa_node == 1 && d.gpus[0].pcie_width == 8);
    description_free(&d);
    mem_free(report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fact_arrives),
        cmocka_unit_test(bridges_and_buses),
        cmocka_unit_test(any_number_of_gpus),
        cmocka_unit_test(instances_are_counted),
        cmocka_unit_test(an_old_driver_tells_less),
        cmocka_unit_test(a_lost_gpu_is_said_and_the_others_stay),
        cmocka_unit_test(a_failure_of_any_call_costs_that_answer),
        cmocka_unit_test(a_hang_in_any_call_costs_the_time_limit),
        cmocka_unit_test(a_crash_is_no_crash_of_ours),
        cmocka_unit_test(what_came_before_a_hang_is_kept),
        cmocka_unit_test(no_driver_is_no_question),
        cmocka_unit_test(a_broken_report_stays_within_its_bounds),
        cmocka_unit_test(what_the_bus_told_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
