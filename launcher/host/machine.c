/* machine.c - see machine.h. */
#include "launcher/host/machine.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "launcher/host/visible_gpus.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/env_names.h"

enum { TEXT_LIMIT = 65536, PATH_SIZE = 4096 };

/* A positive number at text, and what follows it; false for anything else ("max", "-1"). */
static bool positive(const char *text, long long *out, const char **rest)
{
    char *end;
    *out = strtoll(text, &end, 10);
    if (rest)
        *rest = end;
    return end != text && *out > 0;
}

double machine_quota_v2(const char *cpu_max)
{
    long long quota, period = 100000; /* the kernel's default */
    const char *rest;
    if (!positive(cpu_max, &quota, &rest))
        return 0;
    if (*rest == ' ' && !positive(rest, &period, NULL))
        return 0;
    return (double)quota / (double)period;
}

double machine_quota_v1(const char *quota_us, const char *period_us)
{
    long long quota, period;
    if (!positive(quota_us, &quota, NULL) || !positive(period_us, &period, NULL))
        return 0;
    return (double)quota / (double)period;
}

int machine_cores(int affinity, double quota)
{
    int cores = affinity;
    if (quota > 0 && quota < cores)
        cores = (int)quota;
    return cores > 0 ? cores : 1;
}

/* Reads folder/name into text (small files of one line); false where there is none. */
static bool read_small(const char *folder, const char *name, char text[128])
{
    scope_free char *path = mem_printf("%s/%s", folder, name);
    scope_buffer content = {0};
    if (!path || io_read_file(path, TEXT_LIMIT, &content, NULL) < 0 || !content.data)
        return false;
    (void)snprintf(text, 128, "%s", content.data); /* cut: what is longer is no number */
    return true;
}

static double quota_of_folder(const char *folder, bool v2)
{
    char quota[128], period[128];
    if (v2)
        return read_small(folder, "cpu.max", quota) ? machine_quota_v2(quota) : 0;
    return read_small(folder, "cpu.cfs_quota_us", quota) && read_small(folder, "cpu.cfs_period_us", period)
               ? machine_quota_v1(quota, period)
               : 0;
}

/* The smallest quota of base + path and of every folder above it down to base. */
static double quota_of_branch(const char *base, const char *path, bool v2)
{
    char folder[PATH_SIZE];
    size_t root = strlen(base);
    int length = snprintf(folder, sizeof folder, "%s%s", base, path);
    if (length < 0 || (size_t)length >= sizeof folder)
        return 0;
    double least = 0;
    for (;;) {
        double quota = quota_of_folder(folder, v2);
        if (quota > 0 && (least == 0 || quota < least))
            least = quota;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < root)
            return least;
        *slash = 0;
    }
}

/* Whether a v1 line's controllers ("cpu,cpuacct") include cpu. */
static bool has_cpu(const char *controllers, size_t length)
{
    for (const char *at = controllers, *end = controllers + length; at < end;) {
        size_t word = strcspn(at, ",:");
        if (word == 3 && !strncmp(at, "cpu", 3))
            return true;
        at += word + 1;
    }
    return false;
}

double machine_quota_read(const char *root, const char *proc_self_cgroup)
{
    double least = 0;
    for (const char *line = proc_self_cgroup; *line;) {
        size_t length = strcspn(line, "\n");
        const char *controllers = memchr(line, ':', length);
        const char *colon =
            controllers ? memchr(controllers + 1, ':', length - (size_t)(controllers + 1 - line)) : NULL;
        if (colon) {
            size_t named = (size_t)(colon - controllers - 1);
            bool v2 = named == 0;
            scope_free char *path = mem_strndup(colon + 1, length - (size_t)(colon + 1 - line));
            scope_free char *base =
                v2 ? mem_strdup(root) : mem_printf("%s/%.*s", root, (int)named, controllers + 1);
            if (path && base && (v2 || has_cpu(controllers + 1, named))) {
                double quota = quota_of_branch(base, path, v2);
                if (quota > 0 && (least == 0 || quota < least))
                    least = quota;
            }
        }
        line += length + (line[length] == '\n');
    }
    return least;
}

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
    if (!visible_devices)
        return present;
    int count = 0;
    for (const char *at = visible_devices; count < present;) {
        at += strspn(at, " ");
        size_t length = strcspn(at, ",");
        if (length == 0 || at[0] == '-' || (at[0] >= '0' && at[0] <= '9' && strtol(at, NULL, 10) >= present))
            break; /* the first invalid entry ends the list */
        count++;
        if (!at[length])
            break;
        at += length + 1;
    }
    return count;
}

static int affinity_count(void)
{
    /* the kernel wants a mask at least as large as its own; machines above 1,024 CPUs need more than
     * cpu_set_t */
    for (int cpus = 1024; cpus <= 1 << 18; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        int got =
            sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), set) == 0 ? CPU_COUNT_S(CPU_ALLOC_SIZE(cpus), set) : 0;
        CPU_FREE(set);
        if (got > 0)
            return got;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
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

/* By the namespace's number, which the kernel has fixed for the first (PROC_PID_INIT_INO). How many ids a
 * process has in /proc says nothing: a container's own /proc shows the innermost alone. */
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
        for (size_t at = strcspn(line, " \t\n"); at < text;) { /* behind the address */
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
    scope_buffer groups = {0};
    double quota = 0;
    if (io_read_file("/proc/self/cgroup", TEXT_LIMIT, &groups, NULL) == 0 && groups.data)
        quota = machine_quota_read("/sys/fs/cgroup", groups.data);
    *machine = (struct machine){0};
    machine->cores = machine_cores(affinity_count(), quota);
    machine->gpus = machine_visible_gpus(machine_count_gpus("/dev"), visible_devices);
    read_names(machine);
    if (getrandom(machine->random, sizeof machine->random, 0) != (ssize_t)sizeof machine->random) {
        /* no random source (a very early boot): a name that is only unlikely to repeat is enough for a job id
         */
        machine->random[0] = (uint64_t)clock_wall_ns();
        machine->random[1] = (uint64_t)getpid() << 32 ^ (uint64_t)clock_now(NULL).ns;
    }
}

void machine_read_gpus(const char *visible_devices, struct machine *machine)
{
    int devices[NVML_DEVICES_LIMIT];
    struct muster_error err = {0};
    scope_free struct nvml_inventory *all = mem_calloc(1, sizeof *all);
    if (!visible_gpus_have_driver())
        return;
    if (!all || visible_gpus_read(all, &err) < 0) {
        (void)snprintf(machine->gpus_unknown, sizeof machine->gpus_unknown, "%s",
                       all ? err.text : "no memory");
        return;
    }
    machine->gpus = visible_gpus(all, visible_devices, devices);
    machine->gpus_named = true;
    for (int i = 0; i < machine->gpus; i++) {
        const struct nvml_device *device = &all->devices[devices[i]];
        machine->mig += device->mig;
        memcpy(machine->gpu_bus[i], device->bus, sizeof device->bus);
    }
}
