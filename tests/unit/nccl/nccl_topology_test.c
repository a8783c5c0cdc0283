/* nccl_topology_test.c - the matrices of the machines of tests/data/topologies, held to goldens.
 *
 * MUSTER_GOLDEN_UPDATE=1 writes them anew; read the difference before committing it. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "runtime/nccl/describe/topology.h"
#include "runtime/nccl/files/description_json.h"

enum { FILE_LIMIT = 1 << 20 };

static void check(const char *name)
{
    struct description machine;
    struct muster_error err = {0};
    scope_buffer json = {0}, matrix = {0}, golden = {0};
    scope_free char *source = mem_printf(MUSTER_TOPOLOGIES "/%s.json", name);
    scope_free char *result = mem_printf(MUSTER_TOPOLOGIES "/%s.txt", name);
    if (io_read_file(source, FILE_LIMIT, &json, &err) < 0 ||
        description_read(name, json.data, json.length, &machine, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(topology_print(&machine, &matrix), 0);
    description_free(&machine);
    if (getenv("MUSTER_GOLDEN_UPDATE"))
        assert_int_equal(io_write_file_atomic(result, matrix.data, matrix.length, 0644, NULL), 0);
    if (io_read_file(result, FILE_LIMIT, &golden, &err) < 0)
        fail_msg("%s", err.text);
    if (strcmp(golden.data, matrix.data) != 0)
        fail_msg("%s differs.\n--- wanted\n%s--- found\n%s", name, golden.data, matrix.data);
}

static void eight_gpus_on_nvswitch(void **state)
{
    (void)state;
    check("dgx-h100");
}

static void four_cards(void **state)
{
    (void)state;
    check("pcie-x4");
}

static void one_gpu_of_which_little_is_known(void **state)
{
    (void)state;
    check("one-gpu");
}

static void none(void **state)
{
    (void)state;
    check("no-gpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_gpus_on_nvswitch),
        cmocka_unit_test(four_cards),
        cmocka_unit_test(one_gpu_of_which_little_is_known),
        cmocka_unit_test(none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
