/* nccl_reader_test.c - the reader over a /sys, /proc, /dev and /etc that the test makes: RDMA ports and GIDs,
 * GPUs and the PCI tree, the kind of machine, limits of containers, libraries, NCCL's files in their order,
 * the kernel log, the disk. Interfaces are the kernel's own and are looked at end to end. */
#include "tests/support/cmocka_all.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "runtime/nccl/files/description_json.h"
#include "runtime/nccl/read/reader.h"
#include "tests/support/folder.h"

/* --- a root directory --- */

static char root[FOLDER_PATH];

static int make_root(void **state)
{
    (void)state;
    return folder_make(root, "nccl_reader");
}

static int drop_root(void **state)
{
    (void)state;
    return folder_remove(root);
}

static void make_parents(const char *path)
{
    char folder[512];
    (void)snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    assert_int_equal(io_make_directories(folder, 0755, NULL), 0);
}

static void put(const char *path, const char *text)
{
    char whole[512];
    (void)snprintf(whole, sizeof whole, "%s%s", root, path);
    make_parents(whole);
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void __attribute__((format(printf, 1, 3))) putf(const char *format, const char *text, ...)
{
    char path[512];
    va_list arguments;
    va_start(arguments, text);
    (void)vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    put(path, text);
}

static void point(const char *path, const char *target)
{
    char whole[512];
    (void)snprintf(whole, sizeof whole, "%s%s", root, path);
    make_parents(whole);
    assert_int_equal(symlink(target, whole), 0);
}

static char *no_environment[] = {NULL};

static void read_with(struct reader_options options, struct description *d)
{
    struct muster_error err = {0};
    options.root = root;
    if (!options.environment)
        options.environment = no_environment;
    if (reader_read(&options, d, &err) < 0)
        fail_msg("%s", err.text);
}

static void read_root(struct description *d)
{
    read_with((struct reader_options){.gpus_wanted = -1, .thorough = true}, d);
}

/* --- RDMA --- */

static void make_port(const char *device, const char *layer, const char *state)
{
    putf("/sys/class/infiniband/%s/ports/1/state", state, device);
    putf("/sys/class/infiniband/%s/ports/1/phys_state", "5: LinkUp\n", device);
    putf("/sys/class/infiniband/%s/ports/1/link_layer", layer, device);
    putf("/sys/class/infiniband/%s/ports/1/rate", "400 Gb/sec (4X NDR)\n", device);
    putf("/sys/class/infiniband/%s/ports/1/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n", device);
}

static void roce_with_several_gids(void **state)
{
    (void)state;
    struct description d;
    make_port("mlx5_10", "Ethernet\n", "1: DOWN\n");
    make_port("mlx5_2", "Ethernet\n", "4: ACTIVE\n");
    put("/sys/class/infiniband/mlx5_2/ports/1/gids/0", "fe80:0000:0000:0000:0e42:a1ff:fe00:0001\n");
    put("/sys/class/infiniband/mlx5_2/ports/1/gid_attrs/types/0", "IB/RoCE v1\n");
    put("/sys/class/infiniband/mlx5_2/ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0007\n");
    put("/sys/class/infiniband/mlx5_2/ports/1/gid_attrs/types/3", "RoCE v2\n");
    put("/sys/class/infiniband/mlx5_2/ports/1/gid_attrs/ndevs/3", "eth2\n");
    put("/sys/class/infiniband/mlx5_2/ports/1/gids/10", "fd00:0000:0000:0000:0000:0000:0000:0001\n");
    put("/sys/class/infiniband/mlx5_2/ports/1/counters/link_downed", "7\n");
    put("/sys/devices/pci0000:10/0000:10:00.0/vendor", "0x15b3\n");
    put("/sys/devices/pci0000:10/0000:10:00.0/numa_node", "1\n");
    put("/sys/devices/pci0000:10/0000:10:00.0/net/eth2/mtu", "9000\n");
    put("/sys/devices/pci0000:10/0000:10:00.0/infiniband_verbs/uverbs2/dev", "231:194\n");
    point("/sys/class/infiniband/mlx5_2/device", "../../../devices/pci0000:10/0000:10:00.0");
    put("/dev/infiniband/uverbs2", "");
    read_root(&d);
    assert_int_equal(d.rdma_count, 2);
    const struct description_rdma *port = &d.rdma[0]; /* by number, not by letter */
    assert_string_equal(port->device, "mlx5_2");
    assert_int_equal(port->port, 1);
    assert_string_equal(port->state, "ACTIVE");
    assert_string_equal(port->phys_state, "LinkUp");
    assert_true(port->ethernet && port->uverbs);
    assert_true(port->rate_gbit == 400);
    assert_string_equal(port->vendor, "0x15b3");
    assert_string_equal(port->pci, "0000:10:00.0");
    assert_string_equal(port->interface, "eth2");
    assert_int_equal(port->numa_node, 1);
    assert_true(port->link_downed == 7 && port->symbol_errors == -1);
    assert_int_equal(port->gid_count, 3); /* zero ones are no entries */
    assert_true(port->gids[0].index == 0 && port->gids[0].link_local &&
                port->gids[0].type == DESCRIPTION_GID_ROCE_V1);
    assert_true(port->gids[1].index == 3 && port->gids[1].ipv4 &&
                port->gids[1].type == DESCRIPTION_GID_ROCE_V2);
    assert_string_equal(port->gids[1].interface, "eth2");
    assert_true(port->gids[2].index == 10 && port->gids[2].type == DESCRIPTION_GID_UNKNOWN);
    assert_string_equal(d.rdma[1].device, "mlx5_10");
    assert_string_equal(d.rdma[1].state, "DOWN");
    assert_false(d.rdma[1].uverbs);
    assert_int_equal(d.rdma[1].gid_count, 0);
    assert_int_equal(d.rdma[1].numa_node, -1);
    description_free(&d);
}

/* As a user whom modes count for: the verbs' file in three modes. 0: all is as it has to be. */
static int read_refused_verbs(void)
{
    static const struct {
        mode_t mode;
        bool uverbs, refused;
    } rows[] = {{0666, true, false}, {0444, false, true}, {0222, false, true}};
    char file[128];
    (void)snprintf(file, sizeof file, "%s/dev/infiniband/uverbs0", root);
    if (!geteuid() &&
        (chown(file, 65534, 65534) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
        return 1;
    for (int i = 0; i < 3; i++) {
        struct description d;
        const struct reader_options options = {
            .root = root, .environment = no_environment, .gpus_wanted = -1, .thorough = true};
        if (chmod(file, rows[i].mode) || reader_read(&options, &d, NULL) < 0 || d.rdma_count != 1 ||
            d.rdma[0].uverbs != rows[i].uverbs || d.rdma[0].uverbs_refused != rows[i].refused)
            return 2 + i;
        description_free(&d);
    }
    return 0;
}

static void verbs_that_may_not_be_written(void **state)
{
    (void)state;
    struct description d;
    int status = -1;
    make_port("mlx5_0", "InfiniBand\n", "4: ACTIVE\n");
    put("/sys/class/infiniband/mlx5_0/device/infiniband_verbs/uverbs0/dev", "231:192\n");
    read_root(&d);
    assert_true(!d.rdma[0].uverbs && !d.rdma[0].uverbs_refused); /* it is not there */
    description_free(&d);
    put("/dev/infiniband/uverbs0", "");
    assert_int_equal(chmod(root, 0755), 0);
    const pid_t pid = fork();
    if (pid == 0)
        _exit(read_refused_verbs());
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
}

static void infiniband_and_efa(void **state)
{
    (void)state;
    struct description d;
    make_port("mlx5_0", "InfiniBand\n", "4: ACTIVE\n");
    put("/sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:0000:0001\n");
    put("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1\n");
    make_port("rdmap16s27", "Unspecified\n", "4: ACTIVE\n");
    put("/sys/class/infiniband/rdmap16s27/device/vendor", "0x1d0f\n");
    put("/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so", "");
    put("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
    put("/sys/class/dmi/id/product_name", "p5.48xlarge\n");
    read_root(&d);
    assert_int_equal(d.rdma_count, 2);
    assert_false(d.rdma[0].ethernet);
    assert_int_equal(d.rdma[0].gids[0].type, DESCRIPTION_GID_IB);
    assert_string_equal(d.rdma[1].vendor, "0x1d0f");
    assert_string_equal(d.vendor, "Amazon EC2");
    assert_string_equal(d.product, "p5.48xlarge");
    assert_string_equal(d.cloud, "efa");
    assert_string_equal(d.net_plugin, "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so");
    description_free(&d);
}

/* --- GPUs --- */

static void make_device(const char *path, const char *vendor, const char *class_, const char *numa)
{
    const char *address = strrchr(path, '/') + 1;
    char link[256], target[256];
    putf("/sys/devices/%s/vendor", vendor, path);
    putf("/sys/devices/%s/class", class_, path);
    putf("/sys/devices/%s/numa_node", numa, path);
    putf("/sys/devices/%s/local_cpulist", "0-31,64-95\n", path);
    putf("/sys/devices/%s/current_link_width", "8\n", path);
    putf("/sys/devices/%s/max_link_width", "16\n", path);
    putf("/sys/devices/%s/current_link_speed", "2.5 GT/s PCIe\n", path);
    putf("/sys/devices/%s/max_link_speed", "32.0 GT/s PCIe\n", path);
    (void)snprintf(link, sizeof link, "/sys/bus/pci/devices/%s", address);
    (void)snprintf(target, sizeof target, "../../../devices/%s", path);
    point(link, target);
}

#define GPU  "0x10de\n", "0x030200\n"
#define PLX  "pci0000:10/0000:10:01.0/0000:11:00.0"
#define NODE "/sys/devices/system/node/node"

static void make_gpus(void)
{
    put(NODE "0/cpulist", "0-31\n");
    put(NODE "1/cpulist", "32-63\n");
    make_device("pci0000:80/0000:80:01.0/0000:9a:00.0", GPU, "1\n");
    make_device(PLX "/0000:12:00.0/0000:13:00.0", GPU, "0\n");
    make_device(PLX "/0000:12:01.0/0000:14:00.0", GPU, "0\n");
    make_device(PLX "/0000:12:02.0/0000:15:00.0", "0x15b3\n", "0x020700\n", "0\n");
    make_device("pci0000:10/0000:10:03.0/0000:16:00.0", "0x1002\n", "0x030000\n",
                "0\n"); /* another vendor's */
}

/* A bridge's configuration space with access control as Linux sets it, or off. */
static void put_bridge(const char *address, bool redirects)
{
    char path[512], link[256];
    unsigned char space[4096] = {0};
    (void)snprintf(link, sizeof link, "%s/sys/bus/pci/devices/%s/config", root, address);
    make_parents(link);
    space[0x100] = 0x0d;
    space[0x102] = 1;
    space[0x106] = redirects ? 0x1d : 0;
    (void)snprintf(path, sizeof path, "%s", link);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(space, 1, sizeof space, file), sizeof space);
    assert_int_equal(fclose(file), 0);
}

static void gpus_of_the_bus(void **state)
{
    (void)state;
    struct description d;
    make_gpus();
    put_bridge("0000:12:00.0", false);
    put_bridge("0000:12:01.0", true);
    put_bridge("0000:12:02.0", false);
    make_port("mlx5_0", "InfiniBand\n", "4: ACTIVE\n");
    point("/sys/class/infiniband/mlx5_0/device", "../../../devices/" PLX "/0000:12:02.0/0000:15:00.0");
    for (int i = 0; i < 3; i++)
        putf("/dev/nvidia%d", "", i);
    put("/dev/nvidia-uvm", "");
    read_root(&d);
    assert_true(d.pci_gpus == 3 && d.device_files == 3 && d.gpu_count == 3);
    assert_string_equal(d.gpus[0].pci, "0000:13:00.0");
    assert_string_equal(d.gpus[2].pci, "0000:9a:00.0");
    assert_true(d.gpus[2].index == 2 && d.gpus[2].numa_node == 1);
    assert_string_equal(d.gpus[0].cpus, "0-31,64-95");
    assert_true(d.gpus[0].pcie_width == 8 && d.gpus[0].pcie_width_max == 16);
    assert_true(d.gpus[0].pcie_generation == 1 && d.gpus[0].pcie_generation_max == 5);
    assert_true(d.gpus[0].nvlinks == -1 && d.gpus[0].memory_bytes == -1);
    assert_int_equal(d.gpu_link_count, 3);
    assert_true(d.gpu_links[0].distance == DESCRIPTION_PIX && d.gpu_links[0].acs == DESCRIPTION_YES);
    assert_true(d.gpu_links[1].distance == DESCRIPTION_SYS && d.gpu_links[1].acs == DESCRIPTION_UNKNOWN);
    assert_int_equal(d.nic_link_count, 3);
    assert_true(d.nic_links[0].distance == DESCRIPTION_PIX && d.nic_links[0].acs == DESCRIPTION_NO);
    assert_true(d.nic_links[1].distance == DESCRIPTION_PIX && d.nic_links[1].acs == DESCRIPTION_YES);
    assert_int_equal(d.nic_links[2].distance, DESCRIPTION_SYS);
    description_free(&d);
}

/* As after NVML, which knows the NVLinks; lists that others made are of the size that they have. */
static void what_is_known_of_pairs_stays(void **state)
{
    (void)state;
    static const char json[] =
        "{\"version\": 1, \"numa_nodes\": 2, \"gpus\": [{\"index\": 0, \"pci\": \"0000:13:00.0\", "
        "\"numa_node\": 0}, {\"index\": 1, \"pci\": \"0000:14:00.0\", \"numa_node\": 0}, {\"index\": 2, "
        "\"pci\": "
        "\"0000:9a:00.0\", \"numa_node\": 1}], \"gpu_links\": [{\"a\": 1, \"b\": 2, \"distance\": \"NV\", "
        "\"nvlinks\": 4, \"p2p_read\": true}]}";
    struct description d;
    make_gpus();
    assert_int_equal(description_read("test", json, sizeof json - 1, &d, NULL), 0);
    assert_int_equal(reader_distances(root, &d, NULL), 0);
    assert_int_equal(d.gpu_link_count, 3);
    assert_true(d.gpu_links[0].a == 0 && d.gpu_links[0].b == 1 && d.gpu_links[0].distance == DESCRIPTION_PIX);
    assert_int_equal(d.gpu_links[1].distance, DESCRIPTION_SYS);
    assert_true(d.gpu_links[2].distance == DESCRIPTION_NVLINK && d.gpu_links[2].nvlinks == 4 &&
                d.gpu_links[2].p2p_read == DESCRIPTION_YES);
    assert_int_equal(reader_distances(root, &d, NULL), 0); /* again changes nothing */
    assert_true(d.gpu_link_count == 3 && d.gpu_links[2].nvlinks == 4);
    description_free(&d);
}

static void a_container_has_the_gpus_that_it_was_given(void **state)
{
    (void)state;
    struct description d;
    make_gpus();
    put("/dev/nvidia1", "");
    put("/proc/driver/nvidia/gpus/0000:14:00.0/information", "Model: NVIDIA H100\n");
    read_root(&d);
    assert_true(d.pci_gpus == 3 && d.device_files == 1 && d.gpu_count == 1);
    assert_string_equal(d.gpus[0].pci, "0000:14:00.0");
    assert_string_equal(d.gpus[0].name, ""); /* that file can block; NVML is asked apart */
    description_free(&d);
    char path[128]; /* the same without the driver's list: nothing tells which of the three it is */
    (void)snprintf(path, sizeof path, "%s/proc/driver", root);
    assert_int_equal(folder_remove(path), 0);
    read_root(&d);
    assert_true(d.pci_gpus == 3 && d.gpu_count == 0 && d.gpu_link_count == 0);
    description_free(&d);
}

static void a_launch_without_gpus_looks_at_no_bus(void **state)
{
    (void)state;
    struct description d;
    make_gpus();
    read_with((struct reader_options){.gpus_wanted = -1}, &d);
    assert_true(d.pci_gpus == -1 && d.gpu_count == 0 && d.device_files == 0);
    description_free(&d);
}

/* --- the machine --- */

static void drivers_and_libraries(void **state)
{
    (void)state;
    struct description d;
    char *environment[] = {"LD_LIBRARY_PATH=/nowhere:/opt/nccl/lib:", NULL};
    put("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (dvs-builder)\n"
        "GCC version:  gcc version 12.2.0\n");
    put("/sys/module/nvidia_peermem/version", "580.82.07\n");
    put("/opt/nccl/lib/libnccl.so.2.27.5", "");
    point("/opt/nccl/lib/libnccl.so.2", "libnccl.so.2.27.5");
    put("/usr/lib/x86_64-linux-gnu/libnccl.so.2.18.1", "");
    point("/usr/lib/x86_64-linux-gnu/libnccl.so.2", "libnccl.so.2.18.1");
    read_with((struct reader_options){.environment = environment, .gpus_wanted = -1}, &d);
    assert_string_equal(d.driver, "580.82.07");
    assert_int_equal(d.open_kernel_module, DESCRIPTION_YES);
    assert_int_equal(d.peermem, DESCRIPTION_YES);
    assert_string_equal(d.nccl, "2.27.5");
    assert_string_equal(d.nccl_path, "/opt/nccl/lib/libnccl.so.2.27.5");
    description_free(&d);
}

static void nccl_of_pythons_packages(void **state)
{
    static const struct {
        const char *environment, *package, *version;
    } rows[] = {
        {"PATH=/nowhere:/opt/venv/bin:/usr/bin",
         "/opt/venv/lib/python3.11/site-packages/nvidia_nccl_cu12-2.27.5.dist-info/METADATA", "2.27.5"},
        {"PATH=/usr/bin",
         "/usr/local/lib/python3.12/dist-packages/nvidia_nccl_cu13-2.28.9.dist-info/METADATA", "2.28.9"},
        {"PYTHON_EXEC=/opt/conda/bin/python",
         "/opt/conda/lib/python3.10/site-packages/nvidia_nccl_cu12-2.21.5.dist-info/METADATA", "2.21.5"},
        {"PATH=/opt/venv/bin",
         "/opt/venv/lib/python3.11/site-packages/nvidia_nccl_cu12-new.dist-info/METADATA", ""},
        {"PATH=/opt/venv/bin", "/opt/venv/lib/python3.11/site-packages/nvidia_nccl_cu12/METADATA", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct description d;
        char *environment[] = {(char *)rows[i].environment, NULL};
        if (i > 0)
            assert_int_equal(drop_root(state) + make_root(state), 0);
        put("/opt/venv/bin/python3", "");
        put("/usr/bin/python3", "");
        put(rows[i].package, "");
        read_with((struct reader_options){.environment = environment, .gpus_wanted = -1, .thorough = true},
                  &d);
        assert_string_equal(d.nccl, rows[i].version);
        assert_true(!*d.nccl || strstr(d.nccl_path, "-packages/nvidia/nccl/lib/libnccl.so.2"));
        description_free(&d);
    }
}

static void a_proprietary_driver(void **state)
{
    (void)state;
    struct description d;
    put("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n");
    read_root(&d);
    assert_string_equal(d.driver, "535.183.01");
    assert_int_equal(d.open_kernel_module, DESCRIPTION_NO);
    assert_int_equal(d.peermem, DESCRIPTION_NO);
    description_free(&d);
}

static void limits_of_cgroups_2(void **state)
{
    (void)state;
    struct description d;
    put("/proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:   12000000 kB\n");
    put("/sys/fs/cgroup/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/memory.current", "104857600\n");
    put("/sys/fs/cgroup/cpu.max", "250000 100000\n");
    put("/proc/sys/net/core/somaxconn", "4096\n");
    put("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
    read_root(&d);
    assert_int_equal(d.memory_bytes, 16000000LL * 1024);
    assert_int_equal(d.memory_limit_bytes, 1 << 30);
    assert_int_equal(d.memory_used_bytes, 100 << 20);
    assert_true(d.cpu_quota == 2.5);
    assert_true(d.somaxconn == 4096 && d.port_first == 32768 && d.port_last == 60999);
    description_free(&d);
    put("/sys/fs/cgroup/memory.max", "max\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    read_root(&d);
    assert_int_equal(d.memory_limit_bytes, -1);
    assert_int_equal(d.memory_used_bytes, 4000000LL * 1024);
    assert_true(d.cpu_quota == 0);
    description_free(&d);
}

static void limits_of_cgroups_1(void **state)
{
    (void)state;
    struct description d;
    put("/proc/meminfo", "MemTotal:       16000000 kB\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1048576\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    read_root(&d);
    assert_int_equal(d.memory_limit_bytes, 512 << 20);
    assert_int_equal(d.memory_used_bytes, 1 << 20);
    assert_true(d.cpu_quota == 1.5);
    description_free(&d);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    read_root(&d);
    assert_int_equal(d.memory_limit_bytes, -1);
    assert_true(d.cpu_quota == 0);
    description_free(&d);
}

static void limits_of_a_group_below_the_root(void **state)
{
    (void)state;
    struct description d;
    put("/proc/meminfo", "MemTotal:       16000000 kB\n");
    put("/proc/self/cgroup", "0::/user.slice/run.scope\n");
    put("/sys/fs/cgroup/user.slice/run.scope/memory.max", "max\n");
    put("/sys/fs/cgroup/user.slice/memory.max", "268435456\n");
    put("/sys/fs/cgroup/user.slice/memory.current", "4096\n");
    put("/sys/fs/cgroup/user.slice/run.scope/cpu.max", "50000 100000\n");
    put("/sys/fs/cgroup/user.slice/cpu.max", "200000 100000\n");
    read_root(&d);
    assert_int_equal(d.memory_limit_bytes, 256 << 20);
    assert_int_equal(d.memory_used_bytes, 4096);
    assert_true(d.cpu_quota == 0.5);
    description_free(&d);
}

static void what_a_machine_is(void **state)
{
    (void)state;
    struct description d;
    char *environment[] = {"KUBERNETES_SERVICE_HOST=10.0.0.1", "MUSTER_NODE_POOL=h100",
                           "CUDA_VISIBLE_DEVICES=0,1", NULL};
    put("/proc/1/comm", "bash\n");
    put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000800000\n");
    put("/run/tcpx/x", "");
    read_with(
        (struct reader_options){.environment = environment, .gpus_wanted = 8, .nnodes = 2, .host = "n1"}, &d);
    assert_string_equal(d.host, "n1");
    assert_true(d.container && d.kubernetes && !d.sys_mounted);
    assert_string_equal(d.node_pool, "h100");
    assert_string_equal(d.visible_devices, "0,1");
    assert_string_equal(d.pid1, "bash");
    assert_true(d.pid1_is_shell);
    assert_int_equal(d.sys_nice, DESCRIPTION_YES);
    assert_int_equal(d.ipc_lock, DESCRIPTION_NO);
    assert_string_equal(d.cloud, "tcpx");
    assert_true(d.gpus_wanted == 8 && d.nnodes == 2);
    description_free(&d);
}

/* In a user namespace the capability to lock memory does not count. */
static void a_capability_of_a_user_namespace(void **state)
{
    (void)state;
    static const struct {
        const char *map;
        enum description_flag ipc_lock;
    } rows[] = {{"         0          0 4294967295\n", DESCRIPTION_YES},
                {"         0     100000      65536\n", DESCRIPTION_NO},
                {"      1000       1000          1\n", DESCRIPTION_NO},
                {"\n", DESCRIPTION_NO}};
    put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\nCapBnd:\t0000000000000000\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct description d;
        put("/proc/self/uid_map", rows[i].map);
        read_root(&d);
        assert_int_equal(d.ipc_lock, rows[i].ipc_lock);
        assert_int_equal(d.sys_nice, DESCRIPTION_NO);
        description_free(&d);
    }
}

static void nothing_there_is_nothing_known(void **state)
{
    (void)state;
    struct description d;
    read_root(&d);
    assert_true(d.rdma_count == 0 && d.gpu_count == 0 && d.device_files == 0 && d.xid_count == 0);
    assert_true(d.memory_bytes == -1 && d.shm_bytes == -1 && d.somaxconn == -1 && d.disk_free_bytes == -1);
    assert_int_equal(d.pci_gpus, -1);
    assert_int_equal(d.sys_nice, DESCRIPTION_UNKNOWN);
    assert_string_equal(d.visible_devices, "-");
    description_free(&d);
}

/* --- NCCL's files --- */

static void settings_in_nccls_order(void **state)
{
    (void)state;
    struct description d;
    char home[128];
    char *environment[] = {"NCCL_DEBUG=WARN", "PATH=/bin", "FI_PROVIDER=efa", NULL};
    (void)snprintf(home, sizeof home, "%s/home", root);
    put("/home/.nccl.conf",
        "# NCCL_NET=IB\n NCCL_ALGO=Ring\nNCCL_DEBUG=INFO\nno equals\nNCCL_IB_HCA==mlx5_0 \n");
    put("/etc/nccl.conf", "NCCL_IB_HCA=mlx5\nNCCL_CROSS_NIC=0\n");
    read_with((struct reader_options){.environment = environment, .home = home, .gpus_wanted = -1}, &d);
    assert_string_equal(description_setting_of(&d, "NCCL_DEBUG")->value, "WARN");
    assert_string_equal(description_setting_of(&d, "NCCL_DEBUG")->source, "environment");
    assert_string_equal(description_setting_of(&d, "FI_PROVIDER")->value, "efa");
    assert_null(description_setting_of(&d, "PATH"));
    assert_null(description_setting_of(&d, "NCCL_NET"));
    assert_non_null(description_setting_of(&d, " NCCL_ALGO")); /* NCCL trims nothing */
    assert_string_equal(description_setting_of(&d, "NCCL_IB_HCA")->value, "=mlx5_0 ");
    assert_string_equal(description_setting_of(&d, "NCCL_IB_HCA")->source, "~/.nccl.conf:5");
    assert_string_equal(description_setting_of(&d, "NCCL_CROSS_NIC")->source, "/etc/nccl.conf:2");
    description_free(&d);
}

static void a_chosen_file_stands_for_that_of_home(void **state)
{
    (void)state;
    struct description d;
    char home[128], chosen[128];
    char *environment[] = {chosen, NULL};
    (void)snprintf(home, sizeof home, "%s/home", root);
    (void)snprintf(chosen, sizeof chosen, "NCCL_CONF_FILE=%s/site.conf", root);
    put("/home/.nccl.conf", "NCCL_NET=IB\n");
    put("/site.conf", "NCCL_DEBUG=INFO\n");
    put("/etc/nccl.conf", "NCCL_DEBUG=WARN\nNCCL_PXN_DISABLE=1\n");
    read_with((struct reader_options){.environment = environment, .home = home, .gpus_wanted = -1}, &d);
    assert_null(description_setting_of(&d, "NCCL_NET"));
    assert_string_equal(description_setting_of(&d, "NCCL_DEBUG")->value, "INFO");
    assert_string_equal(description_setting_of(&d, "NCCL_PXN_DISABLE")->value, "1");
    description_free(&d);
}

/* --- the kernel log --- */

static void xids_of_the_kernel_log(void **state)
{
    (void)state;
    struct description d;
    put("/dev/kmsg", "6,1,1000000,-;eth0: link up\n"
                     "4,2,2000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
                     " SUBSYSTEM=pci\n"
                     "NVRM: Xid (PCI:0000:86:00): 31, pid=2\n"
                     "4,3,90000000,-;NVRM: Xid (PCI:0000:86:00): 45, pid=2");
    read_root(&d);
    assert_int_equal(reader_kernel_log(root, 62 * NS_PER_S, &d, NULL), 0);
    assert_int_equal(d.xid_count, 3);
    assert_true(d.xids[0].xid == 79 && d.xids[0].age_s == 60);
    assert_string_equal(d.xids[0].pci, "0000:3b:00");
    assert_string_equal(d.xids[0].text, "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.");
    assert_true(d.xids[1].xid == 31 && d.xids[1].age_s == -1);
    assert_true(d.xids[2].xid == 45 && d.xids[2].age_s == 0); /* a clock a little ahead */
    description_free(&d);
}

static _Atomic(bool) overwrites; /* the next read of a file meets records that are no more */

ssize_t __real_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size);

ssize_t __wrap_read(int fd, void *to, size_t size)
{
    if (!overwrites)
        return __real_read(fd, to, size);
    overwrites = false;
    errno = EPIPE;
    return -1;
}

static void records_that_were_written_over(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct description d;
        put("/dev/kmsg", "4,9,1,-;NVRM: Xid (PCI:0000:86:00): 31, pid=2\n");
        read_root(&d);
        overwrites = lost;
        assert_int_equal(reader_kernel_log(root, NS_PER_S, &d, NULL), 0);
        assert_int_equal(d.xid_count, 1); /* what is left is read */
        assert_int_equal(d.kernel_log_lost, lost);
        description_free(&d);
    }
}

static void the_newest_of_many_xids(void **state)
{
    (void)state;
    struct description d;
    char *text = mem_calloc(1, 64 * 200);
    assert_non_null(text);
    for (int i = 1; i <= 100; i++)
        (void)snprintf(text + strlen(text), 64, "4,%d,%d,-;NVRM: Xid (PCI:0000:3b:00): %d\n", i, i, i);
    put("/dev/kmsg", text);
    mem_free(text);
    read_root(&d);
    assert_int_equal(reader_kernel_log(root, NS_PER_S, &d, NULL), 0);
    assert_int_equal(d.xid_count, DESCRIPTION_XIDS_LIMIT);
    assert_int_equal(d.xids[DESCRIPTION_XIDS_LIMIT - 1].xid, 100);
    assert_int_equal(d.xids[0].xid, 100 - DESCRIPTION_XIDS_LIMIT + 1);
    assert_int_equal(d.omitted, 100 - DESCRIPTION_XIDS_LIMIT);
    description_free(&d);
}

/* --- the disk --- */

static void disks(void **state)
{
    (void)state;
    struct reader_disk disk;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/logs/not/made/yet", root);
    reader_disk_read(path, &disk);
    assert_string_equal(disk.path, root); /* the nearest that is there */
    assert_string_equal(disk.error, "");
    assert_true(disk.free_bytes > 0);
    assert_true(disk.clock_offset_s > -1 && disk.clock_offset_s < 1);
    put("/file", "x");
    (void)snprintf(path, sizeof path, "%s/file/below", root);
    reader_disk_read(path, &disk); /* statvfs answers for a file too, which no log can stand in */
    assert_string_equal(disk.error, "Not a directory");
    reader_disk_read("/proc/sys", &disk);
    assert_true(*disk.error);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, drop_root)
    const struct CMUnitTest tests[] = {
        TEST(roce_with_several_gids),
        TEST(verbs_that_may_not_be_written),
        TEST(infiniband_and_efa),
        TEST(gpus_of_the_bus),
        TEST(what_is_known_of_pairs_stays),
        TEST(a_container_has_the_gpus_that_it_was_given),
        TEST(a_launch_without_gpus_looks_at_no_bus),
        TEST(drivers_and_libraries),
        TEST(nccl_of_pythons_packages),
        TEST(a_proprietary_driver),
        TEST(limits_of_cgroups_2),
        TEST(limits_of_cgroups_1),
        TEST(limits_of_a_group_below_the_root),
        TEST(what_a_machine_is),
        TEST(a_capability_of_a_user_namespace),
        TEST(nothing_there_is_nothing_known),
        TEST(settings_in_nccls_order),
        TEST(a_chosen_file_stands_for_that_of_home),
        TEST(xids_of_the_kernel_log),
        TEST(records_that_were_written_over),
        TEST(the_newest_of_many_xids),
        TEST(disks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
