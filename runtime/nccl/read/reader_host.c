/* reader_host.c - the machine around the GPUs: model, limits, driver and libraries. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "proto/base/cgroup.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "runtime/nccl/read/reader_internal.h"

enum { CAP_IPC_LOCK_BIT = 14, CAP_SYS_NICE_BIT = 23 };

static bool is_shell(const char *name)
{
    static const char *const shells[] = {"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (!strcmp(name, shells[i]))
            return true;
    return false;
}

static enum description_flag has(unsigned long long capabilities, int bit)
{
    return capabilities >> bit & 1 ? DESCRIPTION_YES : DESCRIPTION_NO;
}

/* Of a user namespace below the machine's, whose capability to lock memory the drivers do not count. */
static bool is_below(struct reader *r)
{
    char line[64];
    unsigned inside, outside, count;
    return !reader_line(r, line, sizeof line, "/proc/self/uid_map") ||
           sscanf(line, "%u %u %u", &inside, &outside, &count) != 3 || inside || outside ||
           count != UINT32_MAX;
}

static void read_status(struct reader *r)
{
    char path[READER_PATH], line[256];
    unsigned long long capabilities;
    if (!reader_path(r, path, "/proc/self/status"))
        return;
    scope_fclose FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "CapEff: %llx", &capabilities) != 1)
            continue;
        r->out->sys_nice = has(capabilities, CAP_SYS_NICE_BIT);
        r->out->ipc_lock = is_below(r) ? DESCRIPTION_NO : has(capabilities, CAP_IPC_LOCK_BIT);
    }
}

void reader_host(struct reader *r)
{
    struct description *out = r->out;
    struct utsname names;
    if (uname(&names) == 0)
        READER_SET(out->kernel, names.release);
    out->wsl = strcasestr(out->kernel, "microsoft") != NULL;
    out->container = reader_exists(r, "/.dockerenv") || reader_exists(r, "/run/.containerenv");
    (void)reader_line(r, out->vendor, sizeof out->vendor, "/sys/class/dmi/id/sys_vendor");
    (void)reader_line(r, out->product, sizeof out->product, "/sys/class/dmi/id/product_name");
    (void)reader_line(r, out->pid1, sizeof out->pid1, "/proc/1/comm");
    out->pid1_is_shell = getpid() != 1 && is_shell(out->pid1);
    read_status(r);
}

/* --- limits --- */

static int64_t soft(int resource, int64_t *hard)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) < 0)
        return -2;
    if (hard)
        *hard = limit.rlim_max == RLIM_INFINITY ? -1 : (int64_t)limit.rlim_max;
    return limit.rlim_cur == RLIM_INFINITY ? -1 : (int64_t)limit.rlim_cur;
}

static void read_shared_memory(struct reader *r)
{
    struct statvfs disk;
    char path[READER_PATH];
    if (!reader_path(r, path, "/dev/shm") || statvfs(path, &disk) < 0)
        return;
    r->out->shm_bytes = (int64_t)(disk.f_blocks * disk.f_frsize);
    r->out->shm_free_bytes = (int64_t)(disk.f_bavail * disk.f_frsize);
}

static void read_memory(struct reader *r)
{
    enum { MEMINFO_LIMIT = 65536 };
    char path[READER_PATH];
    scope_buffer text = {0};
    if (!reader_path(r, path, "/proc/meminfo") || io_read_file(path, MEMINFO_LIMIT, &text, NULL) < 0 ||
        !text.data)
        return;
    int64_t total = text_row(text.data, "MemTotal"), available = text_row(text.data, "MemAvailable");
    if (total < 0)
        return;
    r->out->memory_bytes = total;
    if (available >= 0)
        r->out->memory_used_bytes = total - available;
}

/* After the machine's own memory, which a group's limit may exceed. */
static void read_cgroup(struct reader *r)
{
    struct description *out = r->out;
    struct cgroup_memory memory;
    const char *root = r->options->root ? r->options->root : "";
    out->cpu_quota = cgroup_cpu_quota(root);
    cgroup_memory(root, &memory);
    if (!memory.limit || memory.limit >= out->memory_bytes)
        return;
    out->memory_limit_bytes = memory.limit;
    if (memory.used >= 0)
        out->memory_used_bytes = memory.used;
}

static void read_cpus(struct reader *r)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        r->out->cpus = CPU_COUNT(&set);
    while (r->out->numa_nodes < 1024 &&
           reader_exists(r, "/sys/devices/system/node/node%d", r->out->numa_nodes))
        r->out->numa_nodes++;
}

static void read_clock(struct reader *r)
{
    struct timex state = {0};
    int answer = adjtimex(&state); /* modes 0: nothing is changed */
    if (answer < 0)
        return;
    r->out->clock_synchronized =
        answer == TIME_ERROR || (state.status & STA_UNSYNC) ? DESCRIPTION_NO : DESCRIPTION_YES;
}

void reader_limits(struct reader *r)
{
    struct description *out = r->out;
    char line[64];
    out->memlock_bytes = soft(RLIMIT_MEMLOCK, NULL);
    out->nofile_soft = soft(RLIMIT_NOFILE, &out->nofile_hard);
    out->stack_bytes = soft(RLIMIT_STACK, NULL);
    out->core_bytes = soft(RLIMIT_CORE, NULL);
    out->somaxconn = (int)reader_number(r, -1, "/proc/sys/net/core/somaxconn");
    if (reader_line(r, line, sizeof line, "/proc/sys/net/ipv4/ip_local_port_range"))
        (void)sscanf(line, "%d %d", &out->port_first, &out->port_last);
    read_shared_memory(r);
    read_memory(r);
    read_cpus(r);
    read_cgroup(r);
    read_clock(r);
}

/* --- driver and libraries --- */

static void count_device(struct reader *r, const char *name, void *context)
{
    (void)context;
    if (!strncmp(name, "nvidia", 6) && name[6] && strspn(name + 6, "0123456789") == strlen(name + 6))
        r->out->device_files++;
}

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build ..." */
static void read_driver_version(struct reader *r)
{
    char line[256];
    if (!reader_line(r, line, sizeof line, "/proc/driver/nvidia/version"))
        return;
    r->out->open_kernel_module = strstr(line, "Open Kernel Module") ? DESCRIPTION_YES : DESCRIPTION_NO;
    for (char *rest = line, *word; (word = strsep(&rest, " "));)
        if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.')) {
            READER_SET(r->out->driver, word);
            return;
        }
}

/* The cloud whose profile brings settings of its own. */
static void read_cloud(struct reader *r)
{
    struct description *out = r->out;
    bool efa = false;
    for (int i = 0; i < out->rdma_count; i++)
        efa |= !strcmp(out->rdma[i].vendor, "0x1d0f");
    const char *cloud = reader_exists(r, "/usr/local/gib/scripts/set_nccl_env.sh")     ? "gib"
                        : reader_exists(r, "/var/lib/tcpxo/lib64/nccl-env-profile.sh") ? "tcpxo"
                        : reader_exists(r, "/run/tcpx")                                ? "tcpx"
                        : efa && *out->net_plugin                                      ? "efa"
                        : strstr(out->vendor, "Microsoft") && !out->wsl                ? "azure"
                                                                                       : "";
    READER_SET(out->cloud, cloud);
    static const char *const topologies[] = {"/opt/microsoft/ndv5-topo.xml", "/opt/microsoft/ndv4-topo.xml"};
    for (size_t i = 0; !strcmp(cloud, "azure") && i < sizeof topologies / sizeof *topologies; i++)
        if (reader_exists(r, "%s", topologies[i]))
            (void)text_append(out->topology_file, sizeof out->topology_file, "%s%s",
                              *out->topology_file ? ":" : "", topologies[i]);
}

/* libnccl.so.2 is a link to libnccl.so.<version>. */
static void read_library(struct reader *r, const char *directory, size_t length)
{
    struct description *out = r->out;
    char target[DESCRIPTION_NAME];
    const int size = (int)length;
    if (!*out->nccl && reader_link(r, target, sizeof target, "%.*s/libnccl.so.2", size, directory) &&
        !strncmp(target, "libnccl.so.", 11) && description_version(target + 11)) {
        READER_SET(out->nccl, target + 11);
        (void)snprintf(out->nccl_path, sizeof out->nccl_path, "%.*s/%s", size, directory, target);
    }
    if (!*out->net_plugin && reader_exists(r, "%.*s/libnccl-net.so", size, directory))
        (void)snprintf(out->net_plugin, sizeof out->net_plugin, "%.*s/libnccl-net.so", size, directory);
}

static void read_libraries(struct reader *r)
{
    static const char *const directories[] = {"/usr/lib/x86_64-linux-gnu",
                                              "/usr/lib/aarch64-linux-gnu",
                                              "/usr/lib64",
                                              "/usr/local/lib",
                                              "/usr/local/cuda/lib64",
                                              "/opt/amazon/ofi-nccl/lib",
                                              "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
                                              "/opt/aws-ofi-nccl/lib"};
    for (char *const *entry = r->options->environment; entry && *entry; entry++)
        if (!strncmp(*entry, "LD_LIBRARY_PATH=", 16))
            for (const char *at = *entry + 16; *at;) {
                size_t length = strcspn(at, ":");
                if (length > 0 && length < DESCRIPTION_TEXT)
                    read_library(r, at, length);
                at += length + (at[length] == ':');
            }
    if (r->options->thorough || r->out->device_files > 0 || r->out->wsl)
        reader_python(r); /* torch prefers these libraries to the system's */
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
        read_library(r, directories[i], strlen(directories[i]));
}

void reader_driver(struct reader *r)
{
    reader_each(r, "/dev", count_device, NULL);
    read_driver_version(r);
    if (*r->out->driver)
        r->out->peermem = reader_exists(r, "/sys/module/nvidia_peermem/version") ||
                                  reader_exists(r, "/sys/kernel/mm/memory_peers/nv_mem/version")
                              ? DESCRIPTION_YES
                              : DESCRIPTION_NO;
    read_libraries(r);
    read_cloud(r);
}
