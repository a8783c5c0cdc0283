/* launcher_tune_test.c - the facts that a launch reads and its decisions, through a described machine and a
 * policy file: when nothing is read, what workers inherit, what refuses the start, a check before joining,
 * memory that runs out. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "launcher/host/machine.h"
#include "launcher/nccl/nccl_env.h"
#include "launcher/nccl/path_check.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text_list.h"
#include "tests/support/faults.h"

static struct nvml_probe nvml; /* nothing is asked of a driver here */

#define MACHINE(name) (char *)"MUSTER_DESCRIPTION=" MUSTER_MACHINES "/" name ".json"

static struct run_config one_node(void)
{
    return (struct run_config){.max_nodes = 1,
                               .min_nodes = 1,
                               .nproc = (char *)"4",
                               .nproc_per_node = 4,
                               .master_addr = (char *)"127.0.0.1"};
}

static void read_and_decide(const struct run_config *config, char *const *environment, struct nccl_env *tune)
{
    struct muster_error err = {0};
    struct nccl_env_place place = nccl_env_place_before(config);
    if (nccl_env_read(config, environment, false, &nvml, tune, &err) < 0 ||
        nccl_env_decide(tune, &place, &err) < 0)
        fail_msg("%s", err.text);
}

static void nothing_is_read_where_nothing_can_matter(void **state)
{
    char *environment[] = {(char *)"NCCL_IB_DISABLE=true", NULL};
    struct run_config config = one_node();
    struct nccl_env tune;
    (void)state;
    if (nvml_probe_has_driver())
        skip_because("there is an NVIDIA driver here");
    read_and_decide(&config, environment, &tune);
    assert_false(tune.looked);
    assert_int_equal(tune.decisions.count, 0);
    nccl_env_free(&tune);
    config.nccl_tune = NCCL_ENV_EXPLAIN; /* asked for */
    read_and_decide(&config, environment, &tune);
    assert_true(tune.looked);
    nccl_env_free(&tune);
    config.nccl_tune = NCCL_ENV_ON;
    config.max_nodes = 2; /* the interface matters */
    read_and_decide(&config, environment, &tune);
    assert_true(tune.looked);
    nccl_env_free(&tune);
}

static void workers_inherit_what_is_set(void **state)
{
    char *environment[] = {MACHINE("host-network-bridges"), (char *)"NCCL_DEBUG=INFO", (char *)"HOME=/x",
                           NULL};
    struct run_config config = one_node();
    struct nccl_env tune;
    (void)state;
    config.max_nodes = 2;
    read_and_decide(&config, environment, &tune);
    char **given = nccl_env_environment(&tune, environment, NULL);
    assert_non_null(given);
    assert_string_equal(text_list_value(given, "NCCL_SOCKET_IFNAME"), "=eth0");
    assert_string_equal(text_list_value(given, "GLOO_SOCKET_IFNAME"), "eth0");
    assert_string_equal(text_list_value(given, "NCCL_DEBUG"), "INFO");
    assert_string_equal(text_list_value(given, "HOME"), "/x");
    text_list_free_items(given);
    nccl_env_free(&tune);
}

static void a_list_of_nothing_is_a_list(void **state)
{
    char *none[] = {NULL};
    struct nccl_env tune = {0};
    (void)state;
    char **given = nccl_env_environment(&tune, none, NULL);
    assert_non_null(given);
    assert_null(given[0]);
    text_list_free_items(given);
}

static void the_world_decides_again(void **state)
{
    char *environment[] = {MACHINE("host-network-bridges"), NULL};
    struct run_config config = one_node();
    struct nccl_env tune;
    (void)state;
    config.max_nodes = 4;
    read_and_decide(&config, environment, &tune);
    assert_int_equal(tune.machine.nnodes, 4);
    struct nccl_env_place place = {.nnodes = 1, .log_dir = "/logs/attempt_0"};
    assert_int_equal(nccl_env_decide(&tune, &place, NULL), 0); /* three have left: gloo needs nothing now */
    for (int i = 0; i < tune.decisions.count; i++)
        assert_string_not_equal(tune.decisions.items[i].name, "GLOO_SOCKET_IFNAME");
    char **given = nccl_env_environment(&tune, environment, NULL);
    assert_string_equal(text_list_value(given, "TORCH_FR_DUMP_TEMP_FILE"),
                        "/logs/attempt_0/nccl_trace_rank_");
    text_list_free_items(given);
    nccl_env_free(&tune);
}

static void files_that_cannot_be_used_are_named(void **state)
{
    char *missing[] = {(char *)"MUSTER_DESCRIPTION=/nonexistent", NULL};
    char *wrong[] = {(char *)"MUSTER_DESCRIPTION=" MUSTER_MACHINES "/README.md", NULL};
    struct run_config config = one_node();
    struct nccl_env tune;
    struct muster_error err = {0};
    (void)state;
    assert_int_equal(nccl_env_read(&config, missing, false, &nvml, &tune, &err), -1);
    assert_non_null(strstr(err.text, "MUSTER_DESCRIPTION: cannot open /nonexistent"));
    nccl_env_free(&tune);
    assert_int_equal(nccl_env_read(&config, wrong, false, &nvml, &tune, &err), -1);
    assert_non_null(strstr(err.text, "README.md:"));
    nccl_env_free(&tune);
    config.nccl_policy = (char *)"/nonexistent.yaml";
    assert_int_equal(nccl_env_read(&config, missing, false, &nvml, &tune, &err), -1);
    assert_non_null(strstr(err.text, "--nccl-policy: cannot open /nonexistent.yaml"));
    nccl_env_free(&tune);
}

static void write_nowhere(void *context, enum log_level level, const char *line)
{
    int *counts = context;
    (void)line;
    counts[level]++;
}

static void a_node_is_examined(void **state)
{
    char *environment[] = {MACHINE("t4-x4-pcie-pod"), NULL};
    struct run_config config = one_node();
    int counts[8] = {0};
    struct log_sink log = {.write = write_nowhere, .context = counts, .who = "muster"};
    struct nccl_env tune;
    (void)state;
    read_and_decide(&config, environment, &tune);
    assert_int_equal(pre_flight_examine(&config, &log, &tune, NULL), 0); /* not asked for */
    assert_null(tune.unfit);
    config.pre_flight = 1;
    assert_int_equal(pre_flight_examine(&config, &log, &tune, NULL), 0);
    assert_non_null(tune.unfit);
    assert_non_null(strstr(tune.unfit, "this node is unfit: shm"));
    assert_int_equal(counts[LOG_LEVEL_ERROR], 1);
    assert_non_null(config.warnings); /* for the job's page */
    nccl_env_free(&tune);
    assert_null(tune.unfit);
    mem_free(config.warnings);
}

static int all_of_it(void *context)
{
    char *environment[] = {MACHINE("leftovers"), (char *)"NCCL_DEBUG=INFO", NULL};
    struct run_config config = one_node();
    struct nccl_env tune;
    struct nccl_env_place place = {.nnodes = 2, .master_address = "10.0.0.1"};
    char **given = NULL;
    scope_buffer json = {0};
    (void)context;
    int result = nccl_env_read(&config, environment, false, &nvml, &tune, NULL);
    if (result == 0)
        result = nccl_env_decide(&tune, &place, NULL);
    if (result == 0 && !(given = nccl_env_environment(&tune, environment, NULL)))
        result = -1;
    if (result == 0)
        result = nccl_env_json(&tune, &json);
    text_list_free_items(given);
    nccl_env_free(&tune);
    return result;
}

static void no_memory_leaks_nothing(void **state)
{
    (void)state;
    faults_sweep_absorbed(all_of_it, NULL);
}

/* Packets go from each node to all others of a small world, and to few of a large one. */
static void paths_between_nodes(void **state)
{
    (void)state;
    static const struct {
        int rank, count, expected[PATH_CHECK_PEERS];
    } rows[] = {{0, 1, {0}}, {1, 2, {0}}, {2, 4, {3, 0, 1}}, {499, 500, {0, 1, 3, 7, 15, 31, 63, 127, 255}}};
    static const int found[] = {0, 1, 3, 9};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int peers[PATH_CHECK_PEERS];
        assert_int_equal(path_check_peers(rows[i].rank, rows[i].count, peers), found[i]);
        for (int k = 0; k < found[i]; k++)
            assert_int_equal(peers[k], rows[i].expected[k]);
    }
    for (int count = 2; count < 5000; count = count * 3 / 2) {
        int peers[PATH_CHECK_PEERS];
        for (int k = path_check_peers(count - 1, count, peers) - 1; k >= 0; k--)
            assert_in_range(peers[k], 0, count - 2); /* never itself */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_read_where_nothing_can_matter),
        cmocka_unit_test(workers_inherit_what_is_set),
        cmocka_unit_test(a_list_of_nothing_is_a_list),
        cmocka_unit_test(the_world_decides_again),
        cmocka_unit_test(files_that_cannot_be_used_are_named),
        cmocka_unit_test(a_node_is_examined),
        cmocka_unit_test(no_memory_leaks_nothing),
        cmocka_unit_test(paths_between_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
