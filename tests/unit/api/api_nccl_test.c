/* api_nccl_test.c - NCCL's variables where no launcher of ours decides them, on a machine that the test makes
 * up: two interfaces, of which one reaches the other nodes. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/env_names.h"
#include "runtime/api/api_trainer.h"
#include "runtime/nccl/read/reader.h"

static struct {
    int reads, nodes, local_workers;
    bool has_master, routed, here;
    char address[DESCRIPTION_NAME];
} asked;

int __wrap_reader_read(const struct reader_options *options, struct description *machine,
                       struct muster_error *err);
void __wrap_reader_route(struct description *machine, const char *address, bool here);

int __wrap_reader_read(const struct reader_options *options, struct description *machine,
                       struct muster_error *err)
{
    static const char *const names[] = {"slow0", "fast0"};
    (void)err;
    asked.reads++;
    asked.nodes = options->nnodes;
    asked.local_workers = options->local_workers;
    asked.has_master = options->master;
    (void)snprintf(asked.address, sizeof asked.address, "%s",
                   options->master_address ? options->master_address : "");
    *machine = (struct description){.nnodes = options->nnodes, .local_workers = options->local_workers};
    machine->interfaces = mem_calloc(2, sizeof *machine->interfaces);
    machine->interface_count = 2;
    for (int i = 0; i < 2; i++) {
        struct description_interface *interface = &machine->interfaces[i];
        (void)snprintf(interface->name, sizeof interface->name, "%s", names[i]);
        interface->up = interface->running = true;
        interface->to_master = i == 1;
        interface->addresses = mem_calloc(1, sizeof *interface->addresses);
        interface->addresses[0] = (struct description_address){.text = "192.0.2.1", .family = 4};
        interface->address_count = 1;
    }
    return 0;
}

void __wrap_reader_route(struct description *machine, const char *address, bool here)
{
    (void)machine, (void)address;
    asked.routed = true;
    asked.here = here;
}

static void forget(void)
{
    static const char *const names[] = {"NCCL_DEBUG",       "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME",
                                        "TP_SOCKET_IFNAME", "MUSTER_NCCL_TUNE",   "MUSTER_NCCL_POLICY",
                                        ENV_ROUND};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(unsetenv(names[i]), 0);
    assert_int_equal(setenv("MASTER_ADDR", "192.0.2.7", 1), 0);
    memset(&asked, 0, sizeof asked);
}

/* The lines that are reported, "" for none; the caller frees them. */
static char *decided(int world, int local, int rank)
{
    struct muster_trainer t = {.comm = {.nccl = true}};
    const struct trainer_options options = {.world_size = world, .local_world_size = local, .rank = rank};
    api_nccl_environment(&t, &options);
    return t.nccl_lines ? t.nccl_lines : mem_calloc(1, 1);
}

static void nodes_are_counted_from_the_ranks(void **state)
{
    static const struct {
        int world, local, rank, nodes;
    } rows[] = {{4, 2, 1, 2}, {4, 2, 2, 2}, {3, 2, 0, 2}, {5, 2, 4, 3},
                {2, 2, 1, 1}, {1, 1, 0, 1}, {2, 0, 1, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        forget();
        scope_free char *lines = decided(rows[i].world, rows[i].local, rows[i].rank);
        const int local = rows[i].local ? rows[i].local : 1;
        const bool many = rows[i].nodes > 1;
        assert_int_equal(asked.nodes, rows[i].nodes);
        assert_int_equal(asked.local_workers, local);
        assert_int_equal(asked.has_master, many); /* one node needs no route to it */
        assert_string_equal(asked.address, many ? "192.0.2.7" : "");
        assert_int_equal(asked.routed, many);
        assert_int_equal(asked.here, many && rows[i].rank < local);
        assert_int_equal(strstr(lines, "NCCL_SOCKET_IFNAME==fast0") != NULL, many);
    }
}

/* Other libraries' variables are the launcher's to set: nothing in this process reads them. */
static void variables_of_other_libraries_are_left_alone(void **state)
{
    (void)state;
    forget();
    scope_free char *lines = decided(4, 2, 0);
    assert_string_equal(getenv("NCCL_SOCKET_IFNAME"), "=fast0");
    assert_null(getenv("GLOO_SOCKET_IFNAME"));
    assert_null(getenv("TP_SOCKET_IFNAME"));
    assert_null(strstr(lines, "GLOO"));
    assert_null(strstr(lines, "TP_"));
}

static void a_variable_that_is_set_is_kept(void **state)
{
    (void)state;
    forget();
    assert_int_equal(setenv("NCCL_DEBUG", "INFO", 1), 0);
    scope_free char *lines = decided(2, 2, 0);
    assert_string_equal(getenv("NCCL_DEBUG"), "INFO");
}

static void nothing_is_decided_twice_or_unasked(void **state)
{
    static const char *const variables[][2] = {{ENV_ROUND, "0"}, {"MUSTER_NCCL_TUNE", "off"}};
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        forget();
        assert_int_equal(setenv(variables[i][0], variables[i][1], 1), 0);
        scope_free char *lines = decided(4, 2, 0);
        assert_string_equal(lines, "");
        assert_int_equal(asked.reads, 0);
        assert_null(getenv("NCCL_DEBUG"));
    }
    forget();
    struct muster_trainer by_host = {.comm = {.nccl = false}};
    api_nccl_environment(&by_host, &(struct trainer_options){.world_size = 2});
    assert_null(by_host.nccl_lines);
    assert_int_equal(asked.reads, 0);
}

static void a_policy_is_not_read(void **state)
{
    (void)state;
    forget();
    assert_int_equal(setenv("MUSTER_NCCL_POLICY", "site.yaml", 1), 0);
    scope_free char *lines = decided(2, 2, 0);
    assert_non_null(strstr(lines, "MUSTER_NCCL_POLICY=site.yaml is not read"));
    assert_int_equal(asked.reads, 1);
    forget();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_counted_from_the_ranks),
        cmocka_unit_test(variables_of_other_libraries_are_left_alone),
        cmocka_unit_test(a_variable_that_is_set_is_kept),
        cmocka_unit_test(nothing_is_decided_twice_or_unasked),
        cmocka_unit_test(a_policy_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
