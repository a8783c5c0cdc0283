/* nccl_node_facts_test.c - facts of nodes as text and back, and the differences of 2 to 8 nodes. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "runtime/nccl/doctor/node_facts.h"
#include "runtime/nccl/files/description_json.h"

static struct node_facts usual(int number)
{
    struct node_facts facts = {.nccl = "2.27.5",
                               .driver = "580.82.07",
                               .cuda = "13.0",
                               .interface = "eth0",
                               .address = "10.0.0.1",
                               .network = "10.0.0.0/24",
                               .family = 4,
                               .mtu = 1500,
                               .rdma = 8,
                               .gpus = 8,
                               .model = "NVIDIA H100 80GB HBM3"};
    (void)snprintf(facts.host, sizeof facts.host, "node-%c", 'a' + number);
    return facts;
}

enum { NODES = 8 };

static void check(const struct node_facts *nodes, int count, const char *wanted)
{
    scope_buffer out = {0};
    assert_int_equal(node_facts_compare(nodes, count, &out), 0);
    assert_string_equal(out.length ? out.data : "", wanted);
}

static void equal_nodes_differ_in_nothing(void **state)
{
    struct node_facts nodes[NODES];
    (void)state;
    for (int i = 0; i < NODES; i++)
        nodes[i] = usual(i);
    for (int count = 1; count <= NODES; count++)
        check(nodes, count, "");
    (void)snprintf(nodes[1].interface, sizeof nodes[1].interface, "ens5"); /* names are each node's own */
    (void)snprintf(nodes[1].address, sizeof nodes[1].address, "10.0.0.2");
    nodes[2].rdma = 4;
    check(nodes, NODES, "");
}

static void each_difference_is_one_line_with_the_nodes(void **state)
{
    struct node_facts nodes[NODES];
    (void)state;
    for (int i = 0; i < NODES; i++)
        nodes[i] = usual(i);
    (void)snprintf(nodes[1].nccl, sizeof nodes[1].nccl, "2.21.5");
    check(nodes, 2,
          "NCCL 2.27.5 on node-a; 2.21.5 on node-b: ranks of different versions fail or hang when they "
          "connect; use one image\n");
    (void)snprintf(nodes[2].nccl, sizeof nodes[2].nccl, "2.21.5");
    nodes[3].gpus = 7;
    nodes[4].mtu = 9000;
    (void)snprintf(nodes[4].interface, sizeof nodes[4].interface, "ens5");
    nodes[5].rdma = 0;
    nodes[6].family = 6;
    (void)snprintf(nodes[7].network, sizeof nodes[7].network, "192.168.122.0/24");
    scope_buffer out = {0};
    assert_int_equal(node_facts_compare(nodes, NODES, &out), 0);
    static const char *const lines[] = {
        "NCCL 2.27.5 on node-a, node-d, node-e, node-f, node-g, node-h; 2.21.5 on node-b, node-c: ",
        "\nGPUs 8 on node-a, node-b, node-c, node-e, node-f, node-g, node-h; 7 on node-d: ",
        "\nRDMA ready on node-a, node-b, node-c, node-d, node-e, node-g, node-h; missing on node-f: ",
        "\naddress family IPv4 on node-a, node-b, node-c, node-d, node-e, node-f, node-h; IPv6 on node-g: ",
        "\nnetwork 10.0.0.0/24 on node-a, node-b, node-c, node-d, node-e, node-f, node-g; 192.168.122.0/24 "
        "on "
        "node-h: ",
        "\nMTU 1500 (eth0) on node-a, node-b, node-c, node-d, node-f, node-g, node-h; 9000 (ens5) on "
        "node-e: ",
    };
    int count = 0;
    for (const char *at = out.data; (at = strchr(at, '\n')); at++)
        count++;
    assert_int_equal(count, (int)(sizeof lines / sizeof *lines));
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(out.data, lines[i]))
            fail_msg("no '%s' in\n%s", lines[i], out.data);
}

static void who_does_not_know_takes_no_part(void **state)
{
    struct node_facts nodes[4] = {usual(0), usual(1), usual(2), usual(3)};
    (void)state;
    nodes[1] = (struct node_facts){0}; /* did not answer */
    (void)snprintf(nodes[2].host, sizeof nodes[2].host, "cpu");
    nodes[2] = (struct node_facts){.host = "cpu", .rdma = -1, .gpus = -1};
    check(nodes, 4, "");
    (void)snprintf(nodes[3].driver, sizeof nodes[3].driver, "550.90.07");
    check(nodes, 4,
          "driver 580.82.07 on node-a; 550.90.07 on node-d: a setting that works on one node may fail on the "
          "other\n");
}

static void many_nodes_are_counted(void **state)
{
    enum { MANY = 20 };
    struct node_facts nodes[MANY];
    (void)state;
    for (int i = 0; i < MANY; i++)
        nodes[i] = usual(i);
    (void)snprintf(nodes[MANY - 1].model, sizeof nodes[0].model, "NVIDIA A100-SXM4-80GB");
    check(nodes, MANY,
          "GPU model NVIDIA H100 80GB HBM3 on node-a, node-b, node-c, node-d, node-e, node-f, node-g, node-h "
          "and "
          "11 more; NVIDIA A100-SXM4-80GB on node-t: the slowest sets the pace, and a model that fits into "
          "one may not "
          "fit into the other\n");
}

static void the_way_as_text_and_back(void **state)
{
    struct node_facts before = usual(0), after;
    scope_buffer first = {0}, second = {0};
    struct muster_error err = {0};
    (void)state;
    assert_int_equal(node_facts_write(&before, &first), 0);
    assert_true(first.length < NODE_FACTS_LIMIT);
    assert_int_equal(node_facts_read(first.data, first.length, &after, &err), 0);
    assert_int_equal(node_facts_write(&after, &second), 0);
    assert_string_equal(first.data, second.data);
    static const char newer[] = "host=x\ncolour=blue\n";
    assert_int_equal(node_facts_read(newer, strlen(newer), &after, &err), 0);
    assert_int_equal(after.gpus, -1);
    static const char *const wrong[] = {
        "",
        "x",
        "gpus=8\n",
        "host=x\ngpus=many\n",
        "host=x\ngpus=-2\n",
        "host=x\nnccl=a\tb\n",
        "host=x\nnccl=0123456789012345678901234567890123456789012345678901234567890123456\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(node_facts_read(wrong[i], strlen(wrong[i]), &after, &err), -1);
        assert_int_equal(err.code, MUSTER_E_INVALID);
    }
}

static void take(const char *json, struct node_facts *facts)
{
    struct description machine;
    struct muster_error err = {0};
    if (description_read("machine.json", json, strlen(json), &machine, &err) < 0)
        fail_msg("%s", err.text);
    node_facts_take(&machine, "me", facts);
    description_free(&machine);
}

static void facts_of_a_machine(void **state)
{
    struct node_facts facts;
    (void)state;
    take(
        "{\"version\": 1, \"master_address\": \"fd00::1\", \"nvml\": true, \"nccl\": \"2.27.5\", "
        "\"gpus\": [{\"index\": 0, \"name\": \"L4\"}], \"rdma\": [{\"state\": \"ACTIVE\", \"uverbs\": true}, "
        "{\"state\": \"DOWN\", \"uverbs\": true}], \"interfaces\": [{\"name\": \"eth0\", \"mtu\": 1450, "
        "\"up\": "
        "true, \"to_master\": true, \"addresses\": [{\"text\": \"10.1.2.3\", \"family\": 4, \"prefix\": 20}, "
        "{\"text\": \"fe80::1\", \"family\": 6, \"prefix\": 64, \"scope\": \"link-local\"}, {\"text\": "
        "\"fd00::2:9\", \"family\": 6, \"prefix\": 112}]}]}",
        &facts);
    assert_string_equal(facts.network, "fd00::2:0/112");
    assert_int_equal(facts.family, 6);
    assert_int_equal(facts.rdma, 1);
    assert_int_equal(facts.gpus, 1);
    assert_string_equal(facts.model, "L4");
    take("{\"version\": 1, \"kubernetes\": true, \"interfaces\": [{\"name\": \"eth0\", \"up\": true, "
         "\"default_route\": true, \"addresses\": [{\"text\": \"10.1.2.3\", \"family\": 4, \"prefix\": "
         "20}]}]}",
         &facts);
    assert_string_equal(facts.interface, "eth0");
    assert_string_equal(facts.network, ""); /* pods of two nodes are in two networks */
    assert_int_equal(facts.gpus, -1);
    assert_int_equal(facts.rdma, -1);
    take("{\"version\": 1, \"interfaces\": [{\"name\": \"eth0\", \"up\": true, \"to_master\": true, "
         "\"addresses\": [{\"text\": \"10.1.18.3\", \"family\": 4, \"prefix\": 20}]}]}",
         &facts);
    assert_string_equal(facts.network, "10.1.16.0/20");
    take("{\"version\": 1}", &facts);
    assert_string_equal(facts.interface, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_nodes_differ_in_nothing),
        cmocka_unit_test(each_difference_is_one_line_with_the_nodes),
        cmocka_unit_test(who_does_not_know_takes_no_part),
        cmocka_unit_test(many_nodes_are_counted),
        cmocka_unit_test(the_way_as_text_and_back),
        cmocka_unit_test(facts_of_a_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
