/* nccl_doctor_test.c - the doctor's rows, case by case: the fault added to a healthy machine, which row
 * must speak, and how loudly. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "runtime/nccl/doctor/doctor.h"
#include "runtime/nccl/files/description_json.h"

/* Two GPUs, one network, room everywhere. A field of the host that a case gives anew is left out of this. */
static const char host_is_well[] =
    "\"version\": 1, \"sys_mounted\": true, \"nnodes\": 2, \"local_workers\": 2, \"master\": \"m\", "
    "\"master_address\": \"10.0.0.1\", \"shm_bytes\": 8589934592, \"shm_free_bytes\": 8589934592, "
    "\"memlock_bytes\": -1, \"nofile_hard\": 1048576, \"cpus\": 16, \"memory_bytes\": 68719476736, "
    "\"memory_used_bytes\": 1073741824, \"disk_path\": \"/logs\", \"disk_free_bytes\": 107374182400, "
    "\"disk_free_inodes\": 1000000, \"clock_synchronized\": true, \"somaxconn\": 4096, \"port_first\": "
    "32768, "
    "\"port_last\": 60999, \"pid1\": \"tini\"";
static const char network_is_well[] = "\"interfaces\": [{\"name\": \"eth0\", \"up\": true, \"running\": "
                                      "true, \"mtu\": 1500, \"to_master\": true}]";
static const char gpus_are_well[] =
    "\"nvml\": true, \"driver\": \"580.82.07\", \"device_files\": 2, \"gpus_wanted\": 2, \"gpus\": ["
    "{\"index\": 0, \"pci\": \"0000:1b:00.0\", \"name\": \"H200\", \"nvlinks\": 18, \"nvlinks_up\": 18, "
    "\"ecc_uncorrected\": 0, \"pcie_width\": 16, \"pcie_width_max\": 16, \"processes\": 0, "
    "\"recovery_action\": \"none\"}, "
    "{\"index\": 1, \"pci\": \"0000:43:00.0\", \"name\": \"H200\", \"nvlinks\": 18, \"nvlinks_up\": 18, "
    "\"processes\": 0}]";

/* The part of the machine that a case replaces; of the host, the fields that it names. */
enum part { HOST, NETWORK, GPUS };

struct row_case {
    enum part part;
    const char *with;
    const char *row;
    enum doctor_status status;
    const char *says;
};

#define GPU(fields)                                                                                          \
    "\"nvml\": true, \"gpus_wanted\": 1, \"gpus\": [{\"index\": 3, \"pci\": \"0000:1b:00.0\", " fields "}]"

static const struct row_case cases[] = {
    /* the driver and the number of GPUs */
    {GPUS, "\"gpus_wanted\": 2, \"nvml\": false, \"nvml_error\": \"no NVIDIA driver here\"", "driver",
     DOCTOR_UNFIT, "no NVIDIA driver here"},
    {GPUS, "\"nvml\": false", "driver", DOCTOR_SKIPPED, "none requested"},
    {GPUS, "\"nvml\": false, \"pci_gpus\": 8", "driver", DOCTOR_WARNING,
     "8 NVIDIA GPUs on the PCI bus, but no driver"},
    {GPUS, "\"nvml\": false, \"pci_gpus\": 8, \"container\": true", "driver", DOCTOR_SKIPPED,
     "none requested"},
    {GPUS, "\"device_files\": 2, \"nvml_error\": \"NVML did not answer in 5 s\"", "driver", DOCTOR_UNFIT,
     "did not answer in 5 s"},
    {GPUS, GPU("\"name\": \"x\""), "gpu-count", DOCTOR_FINE, "1 GPUs, 1 requested"},
    {GPUS, "\"nvml\": true, \"gpus_wanted\": 2, \"gpus\": [{\"index\": 0}]", "gpu-count", DOCTOR_UNFIT,
     "1 GPUs, 2 requested"},
    {GPUS,
     "\"nvml\": true, \"gpus_wanted\": 2, \"gpus\": [{\"index\": 0, \"mig\": true, \"mig_devices\": 7}]",
     "gpu-count", DOCTOR_FINE, "7 GPUs, 2 requested"},
    {GPUS,
     "\"nvml\": true, \"gpus_wanted\": 2, \"visible_devices\": \"1\", \"gpus\": [{\"index\": 0}, {\"index\": "
     "1}]",
     "gpu-count", DOCTOR_UNFIT, "CUDA_VISIBLE_DEVICES=1 hides"},
    {GPUS, "\"gpus_wanted\": 4, \"device_files\": 4", "gpu-count", DOCTOR_FINE, "4 GPUs, 4 requested"},
    /* GPUs */
    {GPUS, GPU("\"lost\": true"), "gpu-lost", DOCTOR_UNFIT, "GPU 3 (0000:1b:00.0) fell off the bus"},
    {GPUS, GPU("\"error\": \"NVML, its memory: Unknown Error (999)\""), "gpu-lost", DOCTOR_WARNING, "(999)"},
    {GPUS, GPU("\"name\": \"x\"") ", \"pci_gpus\": 2", "gpu-lost", DOCTOR_WARNING,
     "2 GPUs on the PCI bus, the driver has 1"},
    {GPUS, GPU("\"ecc_uncorrected\": 5, \"ecc_uncorrected_now\": 0"), "ecc", DOCTOR_FINE, "5 before it"},
    {GPUS, GPU("\"ecc_uncorrected\": 5, \"ecc_uncorrected_now\": 1"), "ecc", DOCTOR_WARNING, "GPU 3"},
    {GPUS, GPU("\"remap_failed\": true"), "row-remap", DOCTOR_UNFIT, "a row remap failed"},
    {GPUS, GPU("\"remap_pending\": true"), "row-remap", DOCTOR_WARNING, "pending until a reset"},
    {GPUS, GPU("\"retired_pages\": 61"), "row-remap", DOCTOR_WARNING, "61 retired pages"},
    {GPUS, GPU("\"recovery_action\": \"reboot\""), "recovery-action", DOCTOR_UNFIT, "reboot"},
    {GPUS,
     GPU("\"name\": \"x\"") ", \"xids\": [{\"xid\": 79, \"pci\": \"0000:1b:00\", \"age_s\": 60}, "
                            "{\"xid\": 45, \"pci\": \"0000:1b:00\", \"age_s\": 50}]",
     "xid", DOCTOR_UNFIT, "2 reports of the driver in the last day, Xid 79"},
    {GPUS, GPU("\"name\": \"x\"") ", \"xids\": [{\"xid\": 31, \"pci\": \"0000:1b:00\"}]", "xid",
     DOCTOR_WARNING, "Xid 31"},
    {GPUS, GPU("\"name\": \"x\"") ", \"xids\": [{\"xid\": 79, \"pci\": \"0000:99:00\", \"age_s\": 60}]",
     "xid", DOCTOR_SKIPPED, "about GPUs that are not here (0000:99:00)"},
    {GPUS, GPU("\"recovery_action\": \"none\"") ", \"xids\": [{\"xid\": 79, \"pci\": \"0000:1b:00\"}]", "xid",
     DOCTOR_WARNING, "Xid 79"},
    {GPUS, GPU("\"name\": \"x\"") ", \"xids\": [{\"xid\": 4711, \"pci\": \"0000:1b:00\"}]", "xid",
     DOCTOR_WARNING, "Xid 4711"},
    {GPUS, GPU("\"name\": \"x\"") ", \"xids\": [{\"xid\": 94, \"pci\": \"0000:1b:00\"}]", "xid",
     DOCTOR_WARNING, "only this program"},
    {GPUS, GPU("\"name\": \"x\"") ", \"xids\": [{\"xid\": 45, \"pci\": \"0000:1b:00\"}]", "xid", DOCTOR_FINE,
     "Xid 45"},
    {GPUS, GPU("\"nvlinks\": 18, \"nvlinks_up\": 18"), "nvlink", DOCTOR_FINE, "all NVLinks of 1 GPU are up"},
    {GPUS, GPU("\"nvlinks\": 18, \"nvlinks_up\": 12"), "nvlink", DOCTOR_WARNING, "the same number"},
    {GPUS, GPU("\"nvlinks\": 12, \"nvlinks_up\": 0"), "nvlink", DOCTOR_SKIPPED, "no link is connected"},
    {GPUS,
     "\"nvml\": true, \"gpus\": [{\"name\": \"H\", \"index\": 0, \"nvlinks\": 18, \"nvlinks_up\": 18}, "
     "{\"name\": \"H\", \"index\": 1, \"nvlinks\": 18, \"nvlinks_up\": 17}]",
     "nvlink", DOCTOR_UNFIT, "17 of 18 NVLinks are up, its neighbours have 18"},
    {GPUS, GPU("\"fabric_state\": \"completed\""), "fabric", DOCTOR_FINE, "1 GPU is registered"},
    {GPUS, GPU("\"fabric_state\": \"in progress\""), "fabric", DOCTOR_UNFIT, "in progress"},
    {GPUS, GPU("\"pcie_width\": 8, \"pcie_width_max\": 16"), "pcie", DOCTOR_WARNING, "PCIe x8 of x16"},
    {GPUS, GPU("\"throttle_reasons\": 64"), "throttle", DOCTOR_WARNING, "heat"},
    {GPUS, GPU("\"temperature_c\": 95"), "throttle", DOCTOR_WARNING, "95 degrees"},
    {GPUS,
     GPU("\"processes\": 1") ", \"gpu_processes\": [{\"pid\": 77, \"gpu\": 3, \"name\": \"python3\", "
                             "\"memory_bytes\": 1073741824}]",
     "gpu-processes", DOCTOR_WARNING, "process 77 (python3) uses 1024 MiB of GPU 3"},
    {GPUS, GPU("\"processes\": 1") ", \"gpu_processes\": [{\"pid\": 77, \"gpu\": 3, \"ours\": true}]",
     "gpu-processes", DOCTOR_FINE, "no other process"},
    {GPUS, GPU("\"processes\": 0, \"memory_used_bytes\": 2147483648"), "gpu-processes", DOCTOR_WARNING,
     "by no visible process"},
    /* limits, and several faults of GPUs at once */
    {GPUS, GPU("\"temperature_c\": 90"), "throttle", DOCTOR_WARNING, "90 degrees"},
    {GPUS, GPU("\"throttle_reasons\": 128"), "throttle", DOCTOR_WARNING, "power brake"},
    {GPUS, GPU("\"remap_failed\": true, \"remap_pending\": true"), "row-remap", DOCTOR_UNFIT,
     "a row remap failed"},
    {GPUS,
     GPU("\"name\": \"x\"") ", \"xids\": [{\"xid\": 79, \"pci\": \"0000:1b:00\", \"age_s\": 86400}, "
                            "{\"xid\": 48, \"pci\": \"0000:1b:00\", \"age_s\": 50}, {\"xid\": 45, \"pci\": "
                            "\"0000:1b:00\"}]",
     "xid", DOCTOR_UNFIT, "3 reports of the driver in the last day, Xid 48"},
    {GPUS, GPU("\"name\": \"x\"") ", \"xids\": [{\"xid\": 79}]", "xid", DOCTOR_SKIPPED,
     "1 Xid report in the last day about GPUs that are not here"},
    {GPUS,
     "\"nvml\": true, \"gpus\": [{\"index\": 0, \"memory_used_bytes\": 2147483648}, {\"index\": 1, "
     "\"processes\": 1}], "
     "\"gpu_processes\": [{\"pid\": 77, \"gpu\": 1, \"ours\": true}]",
     "gpu-processes", DOCTOR_WARNING, "GPU 0 (): 2048 MiB are in use by no visible process"},
    {GPUS,
     "\"nvml\": true, \"gpus\": [{\"name\": \"A\", \"index\": 0, \"nvlinks\": 18, \"nvlinks_up\": 18}, "
     "{\"name\": \"B\", \"index\": 1, \"nvlinks\": 12, \"nvlinks_up\": 12}]",
     "nvlink", DOCTOR_FINE, "all NVLinks of 2 GPUs are up"},
    /* the network */
    {NETWORK, "\"interfaces\": []", "interface", DOCTOR_UNFIT, "no route to 10.0.0.1"},
    {NETWORK, "\"interfaces\": [{\"name\": \"eth0\", \"up\": true, \"to_master\": true}]", "interface",
     DOCTOR_UNFIT, "eth0 is up without a carrier"},
    {NETWORK, "\"interfaces\": [{\"name\": \"eth0\", \"to_master\": true}]", "interface", DOCTOR_UNFIT,
     "eth0 is down"},
    {NETWORK, "\"interfaces\": [{\"name\": \"lo\", \"up\": true, \"loopback\": true, \"to_master\": true}]",
     "interface", DOCTOR_FINE, "lo is on the route to 10.0.0.1"},
    {NETWORK,
     "\"rdma\": [{\"device\": \"mlx5_0\", \"port\": 1, \"state\": \"DOWN\", \"phys_state\": \"Disabled\"}]",
     "rdma", DOCTOR_WARNING, "mlx5_0 port 1 is DOWN, physically Disabled"},
    {NETWORK, "\"rdma\": [{\"device\": \"mlx5_0\", \"port\": 1, \"state\": \"ACTIVE\"}]", "rdma",
     DOCTOR_WARNING, "cannot be opened"},
    {NETWORK, "\"rdma\": [{\"device\": \"mlx5_0\", \"port\": 1, \"state\": \"ACTIVE\", \"uverbs\": true}]",
     "rdma", DOCTOR_FINE, "1 RDMA ports are ACTIVE"},
    {NETWORK,
     "\"memlock_bytes\": 65536, \"rdma\": [{\"device\": \"mlx5_0\", \"state\": \"ACTIVE\", \"uverbs\": "
     "true}]",
     "memlock", DOCTOR_WARNING, "64 KiB may be locked"},
    {NETWORK,
     "\"memlock_bytes\": 65536, \"ipc_lock\": true, \"rdma\": [{\"device\": \"mlx5_0\", \"state\": "
     "\"ACTIVE\", \"uverbs\": true}]",
     "memlock", DOCTOR_FINE, "by the capability IPC_LOCK"},
    {NETWORK,
     "\"rdma\": [{\"device\": \"mlx5_0\", \"port\": 1, \"state\": \"ACTIVE\", \"uverbs_refused\": true}]",
     "rdma", DOCTOR_WARNING, "mlx5_0 is ACTIVE but this user may not write to its file in /dev/infiniband"},
    {GPUS, GPU("\"name\": \"x\"") ", \"kernel_log_lost\": true", "xid", DOCTOR_SKIPPED,
     "a report may be missing"},
    /* everything else */
    {HOST, "\"master_address\": null", "interface", DOCTOR_WARNING, "'m' has no address yet"},
    {HOST, "\"shm_bytes\": 67108864", "shm", DOCTOR_UNFIT, "64 MiB for 2 workers"},
    {HOST, "\"shm_bytes\": 536870912", "shm", DOCTOR_WARNING, "512 MiB for 2 workers"},
    {HOST, "\"shm_free_bytes\": 1048576", "shm", DOCTOR_WARNING, "1 of 8192 MiB free"},
    {HOST, "\"memlock_bytes\": 65536", "memlock", DOCTOR_FINE, "no RDMA here"},
    {HOST, "\"nofile_hard\": 1024", "nofile", DOCTOR_WARNING, "1024 files"},
    {HOST, "\"disk_free_bytes\": 1048576", "disk", DOCTOR_UNFIT, "/logs has 1 MiB"},
    {HOST, "\"disk_free_inodes\": 0", "disk", DOCTOR_UNFIT, "0 files free"},
    {HOST, "\"disk_free_bytes\": 536870912", "disk", DOCTOR_WARNING, "512 MiB free"},
    {HOST, "\"disk_error\": \"Read-only file system\"", "disk", DOCTOR_UNFIT,
     "/logs is not writable: Read-only"},
    {HOST, "\"disk_free_bytes\": -1, \"disk_error\": \"the disk did not answer in 0.6 s\"", "disk",
     DOCTOR_WARNING, "0.6 s"},
    {HOST, "\"memory_used_bytes\": 68000000000", "memory", DOCTOR_WARNING, "are in use"},
    {HOST, "\"memory_limit_bytes\": 1073741824, \"memory_used_bytes\": 0", "memory", DOCTOR_FINE,
     "1024 MiB (the container's limit)"},
    {HOST, "\"cpu_quota\": 1.5", "cpus", DOCTOR_WARNING, "1.5 cores for 2 workers"},
    {HOST, "\"clock_offset_s\": 600.0", "clock", DOCTOR_UNFIT,
     "600.0 s ahead of the clock of files in /logs"},
    {HOST, "\"clock_offset_s\": -3.5", "clock", DOCTOR_WARNING, "3.5 s behind"},
    {HOST, "\"clock_synchronized\": false", "clock", DOCTOR_WARNING, "unsynchronized"},
    {HOST, "\"pid1_is_shell\": true, \"pid1\": \"bash\"", "pid1", DOCTOR_WARNING, "PID 1 is bash"},
    {HOST, "\"sys_mounted\": false", "sys", DOCTOR_WARNING, "/sys is not mounted"},
    {HOST, "\"somaxconn\": 128", "network-limits", DOCTOR_WARNING, "at most 128"},
    {HOST, "\"port_first\": 60000", "network-limits", DOCTOR_WARNING, "ports 60000 to 60999"},
    {HOST, "\"nccl\": \"2.27.5\", \"nccl_path\": \"/x/libnccl.so.2.27.5\"", "libraries", DOCTOR_FINE,
     "NCCL 2.27.5"},
};

/* No row speaks so: a value at its limit, unknown, or not for this machine. */
static const struct row_case silent[] = {
    {GPUS, GPU("\"retired_pages\": 60"), "row-remap", 0, ""},
    {GPUS, GPU("\"temperature_c\": 89"), "throttle", 0, ""},
    {GPUS, GPU("\"name\": \"x\""), "ecc", 0, ""},
    {GPUS, GPU("\"pcie_width_max\": 16"), "pcie", 0, ""},
    {GPUS, GPU("\"name\": \"x\"") ", \"pci_gpus\": 2, \"container\": true", "gpu-lost", 0, "on the PCI bus"},
    {GPUS, GPU("\"name\": \"x\"") ", \"xids\": [{\"xid\": 79, \"pci\": \"0000:1b:00\", \"age_s\": 86401}]",
     "xid", 0, ""},
    {GPUS, GPU("\"name\": \"x\"") ", \"xids\": [{\"xid\": 79}]", "xid", 0, "GPU 3"},
};

/* The fields of base, without the fields that with replaces: a repeated field is refused. */
static void add_part(struct buffer *out, const char *base, const char *with)
{
    for (const char *at = base; *at;) {
        const char *end = strstr(at, ", \"");
        size_t length = end ? (size_t)(end - at) : strlen(at);
        scope_free char *name = mem_strndup(at, strcspn(at, ":") + 1);
        if (!strstr(with, name))
            buffer_printf(out, ", %.*s", (int)length, at);
        at += length + (end ? 2 : 0);
    }
}

static void machine_of(const struct row_case *c, struct description *out)
{
    scope_buffer json = {0};
    struct muster_error err = {0};
    buffer_text(&json, "{\"omitted\": 0");
    add_part(&json, host_is_well, c ? c->with : "");
    buffer_printf(&json, ", %s",
                  c && c->part == NETWORK && strstr(c->with, "interfaces") ? c->with : network_is_well);
    buffer_printf(&json, ", %s", c && c->part == GPUS ? c->with : gpus_are_well);
    if (c && (c->part == HOST || (c->part == NETWORK && !strstr(c->with, "interfaces"))))
        buffer_printf(&json, ", %s", c->with);
    buffer_text(&json, "}");
    if (description_read("case", json.data, json.length, out, &err) < 0)
        fail_msg("%s in %s", err.text, json.data);
}

static void a_machine_that_is_well(void **state)
{
    (void)state;
    struct description machine;
    struct doctor_report report = {0};
    scope_buffer text = {0};
    machine_of(NULL, &machine);
    assert_int_equal(doctor_examine(&machine, &report, NULL), 0);
    for (int i = 0; i < report.count; i++)
        if (report.rows[i].status > DOCTOR_SKIPPED)
            fail_msg("%s: %s", report.rows[i].name, report.rows[i].found);
    assert_int_equal(doctor_verdict(&report), DOCTOR_FINE);
    assert_int_equal(doctor_exit_code(DOCTOR_FINE), 0);
    assert_int_equal(doctor_summary(&report, &text), 0);
    assert_string_equal(text.data, "this node is fit");
    doctor_report_free(&report);
    description_free(&machine);
}

static bool has_row(const struct doctor_report *report, const struct row_case *c)
{
    for (int i = 0; i < report->count; i++) {
        const struct doctor_row *row = &report->rows[i];
        if (!strcmp(row->name, c->row) && row->status == c->status && strstr(row->found, c->says))
            return c->status <= DOCTOR_SKIPPED || *row->cure; /* a fault has a cure */
    }
    return false;
}

static void every_fault_has_its_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct description machine;
        struct doctor_report report = {0};
        scope_buffer text = {0};
        machine_of(&cases[i], &machine);
        assert_int_equal(doctor_examine(&machine, &report, NULL), 0);
        if (!has_row(&report, &cases[i])) {
            (void)doctor_print(&report, 110, &text);
            fail_msg("case %zu, %s \"%s\":\n%s", i, cases[i].row, cases[i].says, text.data);
        }
        assert_true(doctor_verdict(&report) >=
                    (cases[i].status == DOCTOR_SKIPPED ? DOCTOR_FINE : cases[i].status));
        doctor_report_free(&report);
        description_free(&machine);
    }
}

static void limits_are_no_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        struct description machine;
        struct doctor_report report = {0};
        machine_of(&silent[i], &machine);
        assert_int_equal(doctor_examine(&machine, &report, NULL), 0);
        for (int k = 0; k < report.count; k++)
            if (!strcmp(report.rows[k].name, silent[i].row) && strstr(report.rows[k].found, silent[i].says))
                fail_msg("case %zu: %s: %s", i, silent[i].row, report.rows[k].found);
        doctor_report_free(&report);
        description_free(&machine);
    }
}

static void what_is_printed(void **state)
{
    (void)state;
    static const struct row_case bad = {HOST, "\"disk_free_bytes\": 1048576, \"nofile_hard\": 1024", "", 0,
                                        ""};
    struct description machine;
    struct doctor_report report = {0};
    scope_buffer text = {0}, json = {0}, line = {0};
    machine_of(&bad, &machine);
    assert_int_equal(doctor_examine(&machine, &report, NULL), 0);
    assert_int_equal(doctor_print(&report, 80, &text), 0);
    const char *unfit = strstr(text.data, "unfit    disk"), *warning = strstr(text.data, "warning  nofile"),
               *fine = strstr(text.data, "ok       ");
    assert_true(unfit == text.data && warning > unfit && fine > warning);
    for (const char *at = text.data; *at; at += strcspn(at, "\n") + 1)
        assert_true(strcspn(at, "\n") <= 80);
    assert_int_equal(doctor_summary(&report, &line), 0);
    assert_string_equal(line.data, "this node is unfit: disk (/logs has 1 MiB and 1000000 files free)");
    assert_int_equal(doctor_exit_code(doctor_verdict(&report)), 3);
    assert_int_equal(doctor_json(&machine, &report, &json), 0);
    assert_non_null(strstr(json.data, "\"verdict\": \"unfit\""));
    doctor_report_free(&report);
    description_free(&machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_that_is_well),
        cmocka_unit_test(every_fault_has_its_row),
        cmocka_unit_test(limits_are_no_faults),
        cmocka_unit_test(what_is_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
