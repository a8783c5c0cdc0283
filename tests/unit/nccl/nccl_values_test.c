/* nccl_values_test.c - values that NCCL reads as something else than their writer meant: each trap, and the
 * right value. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "runtime/nccl/decide/decide.h"
#include "runtime/nccl/files/description_json.h"

/* Two nodes of eight H100 with RDMA, where most of these variables matter. */
static const char machine_text[] =
    "{\"version\": 1, \"nnodes\": 2, \"local_workers\": 8, \"nccl\": \"%s\", \"sys_mounted\": true, "
    "\"master_address\": \"10.0.0.1\", \"memlock_bytes\": -1, \"interfaces\": ["
    "{\"name\": \"eth1\", \"up\": true, \"to_master\": true, \"addresses\": [{\"text\": \"10.0.0.2\", "
    "\"family\": 4}]}, {\"name\": \"eth10\", \"up\": true, \"addresses\": [{\"text\": \"10.9.0.2\", "
    "\"family\": 4}]}], \"rdma\": [{\"device\": \"mlx5_1\", \"port\": 1, \"state\": \"ACTIVE\", \"uverbs\": "
    "true, \"rate_gbit\": 400}, {\"device\": \"mlx5_10\", \"port\": 1, \"state\": \"ACTIVE\", \"uverbs\": "
    "true, \"rate_gbit\": 400}], \"gpus\": [%s], \"gpu_links\": [{\"a\": 0, \"b\": 1, \"distance\": \"NV\", "
    "\"p2p_read\": true, \"p2p_write\": true}], \"settings\": [{\"name\": \"%s\", \"value\": \"%s\", "
    "\"source\": \"environment\"}]}";

static void close_ports(char *text)
{
    for (char *at; (at = strstr(text, "\"ACTIVE\""));)
        memcpy(at, "\"DOWN\"  ", 8);
}

/* The machine with that value of its user's; nvlinks: of each GPU. */
static void make_machine(const char *nccl, const char *name, const char *value, bool ports, int nvlinks,
                         struct description *machine)
{
    scope_buffer gpus = {0}, text = {0};
    struct muster_error err = {0};
    for (int i = 0; i < 8; i++)
        buffer_printf(&gpus,
                      "%s{\"index\": %d, \"name\": \"NVIDIA H100\", \"compute_major\": 9, "
                      "\"nvlinks\": %d, \"nvlinks_up\": %d}",
                      i ? ", " : "", i, nvlinks, nvlinks);
    buffer_printf(&text, machine_text, nccl, gpus.data, name, value);
    if (!ports)
        close_ports(text.data);
    if (description_read("machine.json", text.data, text.length, machine, &err) < 0)
        fail_msg("%s", err.text);
}

/* The warnings about a user's value: the rules' names; "" for none. */
static void rules_of(const char *nccl, const char *name, const char *value, bool ports, char *out,
                     size_t size)
{
    struct description machine;
    struct decision_list list = {0};
    make_machine(nccl, name, value, ports, 18, &machine);
    assert_int_equal(decide(&machine, NULL, &list, NULL), 0);
    size_t length = 0;
    *out = 0;
    for (int i = 0; i < list.count; i++)
        if (list.items[i].kind == DECISION_WARNED && !strcmp(list.items[i].name, name))
            length +=
                (size_t)snprintf(out + length, size - length, "%s%s", length ? " " : "", list.items[i].rule);
    decision_list_free(&list);
    description_free(&machine);
}

static void every_trap_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *nccl, *name, *value, *rules;
    } rows[] = {
        /* integers: strtoll in base 0, a word is 0 */
        {"2.27.5", "NCCL_IB_DISABLE", "true", "integer"},
        {"2.27.5", "NCCL_IB_DISABLE", "yes", "integer"},
        {"2.27.5", "NCCL_IB_DISABLE", "", "integer"},
        {"2.27.5", "NCCL_IB_DISABLE", "0", ""},
        {"2.27.5", "NCCL_IB_DISABLE", "1", "rdma-unused"},
        {"2.27.5", "NCCL_IB_DISABLE", "0x1", "rdma-unused"},
        {"2.27.5", "NCCL_CROSS_NIC", "two", "integer"},
        {"2.27.5", "NCCL_CROSS_NIC", " 1", ""},
        {"2.27.5", "NCCL_CROSS_NIC", "1 ", "integer"},
        {"2.27.5", "NCCL_CROSS_NIC", "99999999999999999999", "integer"},
        {"2.27.5", "NCCL_BUFFSIZE", "4M", "integer"},
        {"2.27.5", "NCCL_BUFFSIZE", "4194304", "debugging"},
        /* exactly 1 */
        {"2.27.5", "NCCL_P2P_DISABLE", "2", "p2p-disable"},
        {"2.27.5", "NCCL_P2P_DISABLE", "1", "p2p-off"},
        {"2.27.5", "NCCL_P2P_DISABLE", "0", ""},
        {"2.27.5", "NCCL_SHM_DISABLE", "1", "shared-memory-off"},
        /* levels: names in capitals, or digits */
        {"2.27.5", "NCCL_P2P_LEVEL", "nvl", "level"},
        {"2.27.5", "NCCL_P2P_LEVEL", "NODE", "level"},
        {"2.27.5", "NCCL_P2P_LEVEL", "-1", "level"},
        {"2.27.5", "NCCL_P2P_LEVEL", "NVL", "debugging"},
        {"2.27.5", "NCCL_P2P_LEVEL", "3", "debugging"},
        {"2.27.5", "NCCL_NET_GDR_LEVEL", "Phb", "level"},
        /* the grammar of algorithms since 2.24 */
        {"2.27.5", "NCCL_ALGO", "Tree", "algorithm"},
        {"2.20.5", "NCCL_ALGO", "Tree", "debugging"},
        {"2.27.5", "NCCL_ALGO", "allreduce:tree", "debugging"},
        {"2.27.5", "NCCL_ALGO", "Ring,Tree", "debugging"},
        {"2.27.5", "NCCL_ALGO", "^NVLS", "debugging"},
        {"2.27.5", "NCCL_ALGO", "allreduce:rnig", "algorithm"},
        {"2.27.5", "NCCL_PROTO", "LL", "debugging"},
        {"2.27.5", "NCCL_PROTO", "LL128", "ll128"},
        {"2.27.5", "NCCL_PROTO", "^LL128", "debugging"},
        {"2.27.5", "NCCL_PROTO", "Fast", "algorithm"},
        /* interfaces: beginnings, = for whole names, ^ for others */
        {"2.27.5", "NCCL_SOCKET_IFNAME", "e", "interface-of-user"},
        {"2.27.5", "NCCL_SOCKET_IFNAME", "eth1", "interface-of-user"},
        {"2.27.5", "NCCL_SOCKET_IFNAME", "=eth1", ""},
        {"2.27.5", "NCCL_SOCKET_IFNAME", "=eth10", "interface-of-user"},
        {"2.27.5", "NCCL_SOCKET_IFNAME", "=eth", "interface-of-user"},
        {"2.27.5", "NCCL_SOCKET_IFNAME", "^=eth", ""},
        {"2.27.5", "NCCL_SOCKET_IFNAME", "ens3", "interface-of-user"},
        {"2.27.5", "NCCL_SOCKET_IFNAME", "^lo,docker", ""},
        {"2.27.5", "NCCL_SOCKET_IFNAME", "^eth", "interface-of-user"},
        {"2.27.5", "GLOO_SOCKET_IFNAME", "eth1", ""},
        {"2.27.5", "GLOO_SOCKET_IFNAME", "eth", "interface-of-user"},
        /* RDMA devices, the same way */
        {"2.27.5", "NCCL_IB_HCA", "mlx5_1", "hca-of-user"},
        {"2.27.5", "NCCL_IB_HCA", "=mlx5_1", ""},
        {"2.27.5", "NCCL_IB_HCA", "=mlx5_1:1,mlx5_10", ""},
        {"2.27.5", "NCCL_IB_HCA", "mlx4", "hca-of-user"},
        {"2.27.5", "NCCL_IB_HCA", "^mlx4", ""},
        {"2.27.5", "NCCL_IB_HCA", "mlx5", ""},
        /* the rest */
        {"2.27.5", "NCCL_IB_GID_INDEX", "3", "gid-left-over"},
        {"2.27.5", "NCCL_IB_GID_INDEX", "-1", ""},
        {"2.20.5", "NCCL_IB_GID_INDEX", "3", ""},
        {"2.27.5", "NCCL_IB_TIMEOUT", "23", "ib-timeout"},
        {"2.27.5", "NCCL_IB_TIMEOUT", "22", ""},
        {"2.27.5", "NCCL_SOCKET_NTHREADS", "65", "socket-threads"},
        {"2.27.5", "NCCL_SOCKET_NTHREADS", "4", ""},
        {"2.27.5", "NCCL_NVLS_ENABLE", "0", "switch-sums"},
        {"2.27.5", "NCCL_NVLS_ENABLE", "2", ""},
        {"2.27.5", "NCCL_NET", "IB", ""},
        {"2.27.5", "NCCL_NET", "Socket", ""},
        {"2.27.5", "NCCL_NET", "AWS Libfabric", "net-by-name"},
        {"2.27.5", "NCCL_DEBUG", "ERROR", "nccl-debug-level"},
        {"2.27.5", "NCCL_DEBUG", "1", "nccl-debug-level"},
        {"2.27.5", "NCCL_DEBUG", "warn", ""},
        {"2.27.5", "NCCL_DEBUG", "NONE", ""},
        {"2.27.5", "TORCH_NCCL_BLOCKING_WAIT", "1", "blocking-wait"},
        {"2.27.5", "TORCH_NCCL_BLOCKING_WAIT", "0", ""},
        {"2.27.5", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "error-handling"},
        {"2.27.5", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char found[256];
        rules_of(rows[i].nccl, rows[i].name, rows[i].value, true, found, sizeof found);
        if (strcmp(found, rows[i].rules))
            fail_msg("NCCL %s, %s=%s: rules '%s', wanted '%s'", rows[i].nccl, rows[i].name, rows[i].value,
                     found, rows[i].rules);
    }
}

/* NCCL_NET names a transport: InfiniBand's is there where a port is, others where their plug-in is. */
static void a_transport_that_is_missing_is_named(void **state)
{
    (void)state;
    char found[200];
    for (int ports = 0; ports <= 1; ports++) {
        rules_of("2.27.5", "NCCL_NET", "IB", ports, found, sizeof found);
        assert_int_equal(strstr(found, "net-by-name") == NULL, ports);
        rules_of("2.27.5", "NCCL_NET", "AWS Libfabric", ports, found, sizeof found);
        assert_non_null(strstr(found, "net-by-name"));
        rules_of("2.27.5", "NCCL_NET", "socket", ports, found, sizeof found);
        assert_null(strstr(found, "net-by-name"));
    }
}

/* The evidence of missing direct copies: NVLink, or without it the driver's report. */
static void p2p_is_missed_by_its_name(void **state)
{
    (void)state;
    static const char *const reasons[] = {"the driver reports direct access", "NVLink is up"};
    for (int i = 0; i < 2; i++) {
        struct description machine;
        struct decision_list list = {0};
        bool found = false;
        make_machine("2.27.5", "NCCL_P2P_DISABLE", "1", true, 18 * i, &machine);
        assert_int_equal(decide(&machine, NULL, &list, NULL), 0);
        for (int k = 0; k < list.count; k++)
            found = found || strstr(list.items[k].reason, reasons[i]);
        assert_true(found);
        decision_list_free(&list);
        description_free(&machine);
    }
}

/* Devices whose files this user may not write: all of them, or one next to another. */
static void verbs_that_are_refused(void **state)
{
    (void)state;
    for (int others = 0; others < 2; others++) {
        struct description machine;
        struct decision_list list = {0};
        const char *reason = "";
        make_machine("2.27.5", "NCCL_NOTHING", "", true, 18, &machine);
        for (int i = others; i < machine.rdma_count; i++) {
            machine.rdma[i].uverbs = false;
            machine.rdma[i].uverbs_refused = true;
        }
        assert_int_equal(decide(&machine, NULL, &list, NULL), 0);
        for (int i = 0; i < list.count; i++)
            if (!strcmp(list.items[i].name, "rdma"))
                reason = list.items[i].reason;
        assert_non_null(strstr(reason, "this user may not write to its file in /dev/infiniband"));
        assert_non_null(strstr(reason, others ? "NCCL leaves it out" : "NCCL falls back to TCP"));
        decision_list_free(&list);
        description_free(&machine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_trap_is_named), cmocka_unit_test(a_transport_that_is_missing_is_named),
        cmocka_unit_test(p2p_is_missed_by_its_name), cmocka_unit_test(verbs_that_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
