/* machine.c - see machine.h. */
#include "launcher/host/machine.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "launcher/host/isolated_call.h"
#include "proto/base/cgroup.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/env_names.h"
#include "proto/visible_devices.h"

enum { TEXT_LIMIT = 65536 };

int machine_count_gpus(const char *directory)
{
    DIR *folder = opendir(directory);
    if (!folder)
        return 0;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *digits = entry->d_name + 6;
        if (!strncmp(entry->d_name, "nvidia", 6) && *digits && strspn(digits, "0123456789") == strlen(digits))
            count++;
    }
    (void)closedir(folder); /* only read */
    return count;
}

int machine_visible_gpus(int present, const char *visible_devices)
{
    struct visible_device devices[MACHINE_GPUS_LIMIT];
    int chosen[MACHINE_GPUS_LIMIT];
    int count = present < MACHINE_GPUS_LIMIT ? present : MACHINE_GPUS_LIMIT;
    for (int i = 0; i < count; i++)
        devices[i] = (struct visible_device){.gpu = i};
    return visible_devices_choose(devices, count, visible_devices, chosen);
}

void machine_host_name(char out[MACHINE_NAME_SIZE])
{
    const char *given = getenv(ENV_HOSTNAME);
    out[0] = 0;
    if (given && *given && strlen(given) < MACHINE_NAME_SIZE)
        (void)snprintf(out, MACHINE_NAME_SIZE, "%s", given);
    else if (gethostname(out, MACHINE_NAME_SIZE - 1) < 0)
        out[0] = 0;
    out[MACHINE_NAME_SIZE - 1] = 0; /* gethostname does not end a name that it cuts */
}

/* By the namespace's number, which the kernel has fixed for the first (PROC_PID_INIT_INO). The number of
 * ids of a process in /proc is no indication: a container's own /proc shows only the innermost. */
bool machine_in_first_pid_namespace(void)
{
    char name[64];
    ssize_t length = readlink("/proc/self/ns/pid", name, sizeof name - 1);
    name[length > 0 ? length : 0] = 0;
    return !strcmp(name, "pid:[4026531836]");
}

void machine_full_name(const char *hosts, const char *host_name, char out[MACHINE_NAME_SIZE])
{
    size_t own = strlen(host_name);
    out[0] = 0;
    for (const char *line = hosts; *line && own;) {
        size_t end = strcspn(line, "\n"), text = strcspn(line, "#\n");
        const char *full = NULL;
        size_t full_length = 0;
        bool ours = false;
        for (size_t at = strcspn(line, " \t\n"); at < text;) { /* after the address */
            at += strspn(line + at, " \t\r");
            if (at >= text)
                break;
            size_t length = strcspn(line + at, " \t\r#\n");
            if (length > own && !strncmp(line + at, host_name, own) && line[at + own] == '.' && !full) {
                full = line + at;
                full_length = length;
            }
            ours |= length == own && !strncmp(line + at, host_name, own);
            at += length;
        }
        if (ours && full && full_length < MACHINE_NAME_SIZE) {
            memcpy(out, full, full_length);
            out[full_length] = 0;
            return;
        }
        line += end + (line[end] == '\n');
    }
}

static void read_names(struct machine *machine)
{
    scope_buffer hosts = {0};
    machine_host_name(machine->host_name);
    if (io_read_file("/etc/hosts", TEXT_LIMIT, &hosts, NULL) == 0 && hosts.data)
        machine_full_name(hosts.data, machine->host_name, machine->full_name);
}

void machine_read(const char *visible_devices, struct machine *machine)
{
    *machine = (struct machine){0};
    machine->cores = cgroup_cores();
    /* a listing of /dev takes longer than all else here, and without its driver no GPU is of use */
    machine->gpus =
        nvml_probe_has_driver() ? machine_visible_gpus(machine_count_gpus("/dev"), visible_devices) : 0;
    read_names(machine);
    if (getrandom(machine->random, sizeof machine->random, 0) != (ssize_t)sizeof machine->random) {
        /* no random source (a very early boot): a name that is only unlikely to repeat is enough for a job id
         */
        machine->random[0] = (uint64_t)clock_wall_ns();
        machine->random[1] = (uint64_t)getpid() << 32 ^ (uint64_t)clock_now(NULL).ns;
    }
}

void machine_take_gpus(const struct nvml_report *report, const struct muster_error *failure,
                       const char *visible_devices, struct machine *machine)
{
    struct visible_device devices[MACHINE_GPUS_LIMIT];
    int chosen[MACHINE_GPUS_LIMIT], count = 0, instance = 0;
    if (failure->code) {
        (void)snprintf(machine->gpus_unknown, sizeof machine->gpus_unknown, "%s", failure->text);
        return;
    }
    for (int i = 0; i < report->gpu_count; i++) {
        const struct description_gpu *gpu = &report->gpus[i];
        if (!*gpu->uuid || !*gpu->pci) {
            (void)snprintf(machine->gpus_unknown, sizeof machine->gpus_unknown, "GPU %d does not respond: %s",
                           i, gpu->lost ? "it is lost" : gpu->error);
            return;
        }
        struct visible_device *whole = &devices[count++];
        *whole = (struct visible_device){.gpu = i, .uuid = gpu->uuid};
        for (; instance < report->instance_count && report->instances[instance].gpu == i; instance++) {
            devices[count++] =
                (struct visible_device){.gpu = i, .mig = true, .uuid = report->instances[instance].uuid};
            whole->divided = true;
        }
    }
    machine->gpus = visible_devices_choose(devices, count, visible_devices, chosen);
    machine->gpus_named = true;
    for (int i = 0; i < machine->gpus; i++) {
        const struct visible_device *device = &devices[chosen[i]];
        machine->mig += device->mig;
        (void)snprintf(machine->gpu_bus[i], sizeof machine->gpu_bus[i], "%s", report->gpus[device->gpu].pci);
    }
}

int machine_read_gpus(const char *visible_devices, struct nvml_probe *probe, struct machine *machine,
                      struct muster_error *err)
{
    static const int64_t patience_ns =
        20 * NS_PER_S; /* a driver that has to wake eight sleeping GPUs takes seconds */
    if (nvml_probe_ask(probe, patience_ns, err) < 0)
        return -1;
    if (probe->report)
        machine_take_gpus(probe->report, &probe->failure, visible_devices, machine);
    return 0;
}

/* --- NVML --- */

struct question {
    const char *library;
    struct nvml_report *report;
    bool processes_visible;
};

bool nvml_probe_has_driver(void)
{
    const char *library = getenv(ENV_NVML_LIBRARY);
    return (library && *library) || access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

static int ask(void *context, void *result, struct muster_error *err)
{
    const struct question *question = context;
    (void)result;
    return nvml_describe(question->library, question->processes_visible, question->report, err);
}

int nvml_probe_ask(struct nvml_probe *probe, int64_t patience_ns, struct muster_error *err)
{
    const char *library = getenv(ENV_NVML_LIBRARY);
    if (probe->report || !nvml_probe_has_driver())
        return 0;
    void *shared =
        mmap(NULL, sizeof *probe->report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return error_set(err, MUSTER_E_NOMEM, "no memory for NVML's report");
    probe->report = shared;
    struct question question = {library && *library ? library : NULL, probe->report,
                                machine_in_first_pid_namespace()};
    probe->failure = (struct muster_error){0};
    (void)isolated_call(ask, &question, NULL, 0, patience_ns, "NVML", &probe->failure); /* failure has it */
    return 0;
}

int nvml_probe_describe(struct nvml_probe *probe, int64_t patience_ns, struct description *description,
                        struct muster_error *err)
{
    if (nvml_probe_ask(probe, patience_ns, err) < 0)
        return -1;
    if (probe->report)
        return nvml_merge(probe->report, probe->failure.code ? &probe->failure : NULL, description, err);
    description->nvml = DESCRIPTION_NO;
    (void)snprintf(description->nvml_error, sizeof description->nvml_error,
                   "no NVIDIA driver here (/dev/nvidiactl)");
    return 0;
}

void nvml_probe_free(struct nvml_probe *probe)
{
    if (!probe || !probe->report)
        return;
    (void)munmap(probe->report, sizeof *probe->report); /* our own mapping */
    probe->report = NULL;
}
