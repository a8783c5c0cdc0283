/* launcher_numa_test.c - which CPUs a worker is bound to: the rules on a machine of our making, and that
 * machine read from a folder laid out as /sys. */
#include "launcher/host/numa.h"

#include <stdio.h>
#include <stdlib.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/folder.h"

/* Two sockets: socket 0 has the nodes 0 and 1, socket 1 node 2. CPU n and CPU n + 12 are threads of one core.
 * Node 0 has the caches {0,1,2} and {3}, the others one each. */
enum { CORES = 12, CPUS = 2 * CORES };

static struct numa_cpu cpu_of(int cpu)
{
    int core = cpu % CORES, node = core < 4 ? 0 : core < 6 ? 1 : 2;
    int cache = core < 3 ? 0 : core == 3 ? 3 : node == 1 ? 4 : 6;
    return (struct numa_cpu){node, node == 2, core, cache};
}

static struct numa_cpu cpus[CPUS];
static struct numa_topology machine = {.cpu_count = CPUS, .cpus = cpus};

static void set_up(const char *allowed)
{
    for (int cpu = 0; cpu < CPUS; cpu++)
        cpus[cpu] = cpu_of(cpu);
    assert_true(numa_mask_parse(allowed, &machine.allowed));
}

#define assert_mask(mask, text)                                                                              \
    do {                                                                                                     \
        scope_buffer printed_ = {0};                                                                         \
        numa_mask_print(mask, &printed_);                                                                    \
        assert_string_equal(printed_.data ? printed_.data : "", text);                                       \
    } while (0)

static void masks(void **state)
{
    (void)state;
    static const struct {
        const char *text, *printed; /* NULL: refused */
    } rows[] = {{"0-3,8\n", "0-3,8"}, {"", ""},       {"5", "5"},    {"3,1,2", "1-3"}, {"0-0", "0"},
                {"8191", "8191"},     {"8192", NULL}, {"1-", NULL},  {"3-1", NULL},    {"1,", NULL},
                {",1", NULL},         {"a", NULL},    {"1 2", NULL}, {"-1", NULL},     {"99999999999", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct numa_mask mask;
        bool good = numa_mask_parse(rows[i].text, &mask);
        assert_int_equal(good, rows[i].printed != NULL);
        if (good)
            assert_mask(&mask, rows[i].printed);
    }
}

/* binding, allowed CPUs, the slots' nodes; the masks of all slots */
static void rules(void **state)
{
    (void)state;
    static const struct {
        enum numa_binding binding;
        const char *allowed;
        int slots, nodes[4];
        const char *masks[4];
    } rows[] = {
        {NUMA_NODE, "0-23", 3, {0, 1, 2}, {"0-3,12-15", "4-5,16-17", "6-11,18-23"}},
        {NUMA_NODE, "0-7", 2, {0, 1}, {"0-3", "4-5"}},
        {NUMA_SOCKET, "0-23", 3, {0, 1, 2}, {"0-5,12-17", "0-5,12-17", "6-11,18-23"}},
        {NUMA_SOCKET, "1-4", 1, {1}, {"1-4"}},
        {NUMA_EXCLUSIVE, "0-23", 2, {0, 0}, {"0-1,12-13", "2-3,14-15"}},
        {NUMA_EXCLUSIVE, "0-23", 3, {0, 0, 0}, {"0-1,12-13", "2,14", "3,15"}},
        {NUMA_EXCLUSIVE, "0-23", 4, {2, 0, 2, 2}, {"6-7,18-19", "0-3,12-15", "8-9,20-21", "10-11,22-23"}},
        {NUMA_EXCLUSIVE, "0-1,13-14", 3, {0, 0, 0}, {"0", "1,13", "14"}},
        {NUMA_CORE_COMPLEX, "0-23", 3, {0, 0, 0}, {"0-2,12-14", "3,15", "0-2,12-14"}},
        {NUMA_CORE_COMPLEX, "2-3,15", 2, {0, 0}, {"3,15", "2"}},
        {NUMA_CORE_COMPLEX, "0-23", 2, {1, 2}, {"4-5,16-17", "6-11,18-23"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        set_up(rows[i].allowed);
        for (int slot = 0; slot < rows[i].slots; slot++) {
            struct numa_mask mask;
            struct muster_error err = {0};
            if (numa_bind(&machine, rows[i].binding, rows[i].nodes, rows[i].slots, slot, &mask, &err) < 0)
                fail_msg("row %zu: %s", i, err.text);
            assert_mask(&mask, rows[i].masks[slot]);
        }
    }
}

static void nothing_to_bind_to_is_an_error(void **state)
{
    (void)state;
    static const struct {
        enum numa_binding binding;
        const char *allowed;
        int slots, nodes[4];
        const char *error;
    } rows[] = {
        {NUMA_EXCLUSIVE,
         "0-23",
         3,
         {1, 1, 1},
         "exclusive: NUMA node 1 has 2 physical cores that may be used, fewer than the 3 workers or GPUs "
         "there; use "
         "node"},
        {NUMA_NODE,
         "0-3",
         1,
         {2},
         "NUMA node 2 has no CPU that this process may run on (taskset or the cgroup's cpuset)"},
        {NUMA_CORE_COMPLEX,
         "0-3",
         1,
         {2},
         "NUMA node 2 has no CPU that this process may run on (taskset or the cgroup's cpuset)"},
        {NUMA_NODE,
         "0-23",
         1,
         {7},
         "NUMA node 7 has no CPU that this process may run on (taskset or the cgroup's cpuset)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        set_up(rows[i].allowed);
        struct numa_mask mask;
        struct muster_error err = {0};
        assert_int_equal(numa_bind(&machine, rows[i].binding, rows[i].nodes, rows[i].slots, 0, &mask, &err),
                         -1);
        assert_string_equal(err.text, rows[i].error);
    }
}

static void nodes_that_may_be_used(void **state)
{
    (void)state;
    int nodes[8];
    set_up("0-23");
    assert_int_equal(numa_usable_nodes(&machine, nodes, 8), 3);
    assert_true(nodes[0] == 0 && nodes[1] == 1 && nodes[2] == 2);
    set_up("2,20");
    assert_int_equal(numa_usable_nodes(&machine, nodes, 8), 2);
    assert_true(nodes[0] == 0 && nodes[1] == 2);
    set_up("");
    assert_int_equal(numa_usable_nodes(&machine, nodes, 8), 0);
}

/* --- /sys --- */

static char folder[FOLDER_PATH];

static void put(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(const char *text, const char *format, ...)
{
    char name[256], full[512], parent[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    (void)snprintf(full, sizeof full, "%s/%s", folder, name);
    (void)snprintf(parent, sizeof parent, "%s", full);
    *strrchr(parent, '/') = 0;
    struct muster_error err = {0};
    if (io_make_directories(parent, 0755, &err) < 0 ||
        io_write_file_atomic(full, text, strlen(text), 0644, &err) < 0)
        fail_msg("%s", err.text);
}

static void put_cpu(int cpu)
{
    struct numa_cpu c = cpu_of(cpu);
    char text[64];
    (void)snprintf(text, sizeof text, "%d\n", c.package);
    put(text, "devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
    (void)snprintf(text, sizeof text, "%d,%d\n", c.core, c.core + CORES);
    put(text, "devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    static const struct {
        const char *level, *type;
    } caches[] = {{"1", "Data"}, {"3", "Unified"}, {"1", "Instruction"}, {"4", "Instruction"}};
    for (int index = 0; index < 4; index++) {
        put(caches[index].level, "devices/system/cpu/cpu%d/cache/index%d/level", cpu, index);
        put(caches[index].type, "devices/system/cpu/cpu%d/cache/index%d/type", cpu, index);
        int last = c.cache == 0 ? 2 : c.cache == 3 ? 3 : c.cache == 4 ? 5 : 11;
        if (index == 1)
            (void)snprintf(text, sizeof text, "%d-%d,%d-%d\n", c.cache, last, c.cache + CORES, last + CORES);
        put(text, "devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu, index);
    }
}

static void the_machine_is_read(void **state)
{
    (void)state;
    put("0-2\n", "devices/system/node/online");
    put("0-3,12-15\n", "devices/system/node/node0/cpulist");
    put("4-5,16-17\n", "devices/system/node/node1/cpulist");
    put("6-11,18-23\n", "devices/system/node/node2/cpulist");
    for (int cpu = 0; cpu < CPUS; cpu++)
        put_cpu(cpu);
    struct numa_mask allowed;
    struct numa_topology read;
    struct muster_error err = {0};
    assert_true(numa_mask_parse("0-20", &allowed));
    if (numa_read(folder, &allowed, &read, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(read.cpu_count, CPUS);
    assert_mask(&read.allowed, "0-20");
    for (int cpu = 0; cpu < CPUS; cpu++) {
        struct numa_cpu expected = cpu_of(cpu);
        assert_memory_equal(&read.cpus[cpu], &expected, sizeof expected);
    }
    numa_free(&read);
}

static void a_kernel_without_numa_is_one_node(void **state)
{
    (void)state;
    struct numa_mask allowed, mask;
    struct numa_topology read;
    assert_true(numa_mask_parse("0-1", &allowed));
    assert_int_equal(numa_read("/nonexistent", &allowed, &read, NULL), 0);
    static const int nodes[] = {0, 0};
    assert_int_equal(numa_bind(&read, NUMA_EXCLUSIVE, nodes, 2, 1, &mask, NULL), 0);
    assert_mask(&mask, "1");
    numa_free(&read);
}

static void nodes_of_gpus(void **state)
{
    (void)state;
    struct muster_error err = {0};
    put("1\n", "bus/pci/devices/0000:3b:00.0/numa_node");
    put("-1\n", "bus/pci/devices/0000:3c:00.0/numa_node");
    put("x\n", "bus/pci/devices/0000:3d:00.0/numa_node");
    assert_int_equal(numa_gpu_node(folder, "0000:3b:00.0", &err), 1);
    assert_int_equal(numa_gpu_node(folder, "0000:3c:00.0", &err), 0);
    assert_int_equal(numa_gpu_node(folder, "0000:3d:00.0", &err), -1);
    assert_string_equal(err.text, "the NUMA node of the GPU at 0000:3d:00.0: 'x' is no number");
    assert_int_equal(numa_gpu_node(folder, "0000:99:00.0", &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
}

static int read_once(void *context)
{
    (void)context;
    struct numa_topology read;
    struct numa_mask mask;
    static const int nodes[] = {0, 0};
    set_up("0-23");
    int result = numa_read(folder, &machine.allowed, &read, NULL);
    if (result == 0) {
        result = numa_bind(&machine, NUMA_EXCLUSIVE, nodes, 2, 1, &mask, NULL);
        numa_free(&read);
    }
    return result;
}

static void no_memory_leaks_nothing(void **state)
{
    (void)state;
    faults_begin();
    for (long count = 0; count < 40; count++) {
        faults_fail_after(count);
        (void)read_once(NULL); /* an unreadable cache does not stop it */
        assert_int_equal(faults_live_blocks(), 0);
    }
    assert_int_equal(faults_end(), 0);
}

static int make_folder(void **state)
{
    (void)state;
    return folder_make(folder, "numa");
}

static int remove_folder(void **state)
{
    (void)state;
    return folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks),
        cmocka_unit_test(rules),
        cmocka_unit_test(nothing_to_bind_to_is_an_error),
        cmocka_unit_test(nodes_that_may_be_used),
        cmocka_unit_test(the_machine_is_read),
        cmocka_unit_test(a_kernel_without_numa_is_one_node),
        cmocka_unit_test(nodes_of_gpus),
        cmocka_unit_test(no_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
