/* launcher_mistakes_test.c - hosts that cannot exist are refused at once; settings with which nodes wait for
 * each other in vain are warned of; what only looks odd passes. */
#include <stdio.h>
#include <string.h>

#include "launcher/config/config_internal.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"
#include "tests/unit/launcher/launcher_config_support.h"

static void hosts_that_cannot_exist(void **state)
{
    (void)state;
    static const struct {
        const char *host, *why;
    } rows[] = {
        {"$(PET_RDZV_ENDPOINT)", "$(PET_RDZV_ENDPOINT) was not replaced"},
        {"pt-$(NAME)-0.svc", "$(NAME) was not replaced"},
        {"$MASTER_ADDR", "a shell replaces variables"},
        {"${MASTER_ADDR}", "a shell replaces variables"},
        {"{{ master }}", "a template was not rendered"},
        {"<ip>", "hold the place of a value"},
        {"<MASTER_IP>.svc", "hold the place of a value"},
        {"node[1-2]", "a list of hosts"},
        {"gpu[01,03]", "a list of hosts"},
        {"a,b", "a list of hosts"},
        {"a b", "a list of hosts"},
        {"[fd00::2", "brackets hold an IPv6 address"},
        {"[node1]x", "brackets hold an IPv6 address"},
        {"fd00::2::1", "a colon is in IPv6 addresses alone"},
        {"node0:29500", "the port has a flag of its own"},
        {"tcp://node0", "a URL"},
        {"a/b", "a URL or a path"},
        {"user@node0", "no host name has a @"},
        {"node*", "no host name has a *"},
        {"'node0'", "no host name has a '"},
        {"node0%eth0", "no host name has a %"},
        {"a..b", "a part between its dots is empty"},
        {".svc", "a part between its dots is empty"},
        {"10.0.0.256", "not an IPv4 address"},
        {"10.0.0.1.2", "not an IPv4 address"},
        {"300.1.2.3", "not an IPv4 address"},
        {"\001", "a control character"},
        {"", "it is empty"},
    };
    char why[CONFIG_HOST_TEXT];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!config_host_is_impossible(rows[i].host, why) || !strstr(why, rows[i].why))
            fail_msg("'%s': %s", rows[i].host, why);
    static const char *const may_exist[] = {"localhost",
                                            "node0",
                                            "node0.",
                                            "NODE_0",
                                            "pt-master-0.ns.svc.cluster.local",
                                            "10.0.0.1",
                                            "10.1",
                                            "fd00::2",
                                            "::1",
                                            "127.9",
                                            "1a2b",
                                            "123456789012",
                                            "10.0.0.1.example.com",
                                            "none",
                                            "-node0",
                                            "n\xc3\xb6"
                                            "de",
                                            "fe80::1%no-such0",
                                            "::ffff:10.0.0.1",
                                            "node.10a"};
    for (size_t i = 0; i < sizeof may_exist / sizeof *may_exist; i++)
        if (config_host_is_impossible(may_exist[i], why))
            fail_msg("'%s': %s", may_exist[i], why);
}

static void refused_at_once(void **state)
{
    (void)state;
    static const struct {
        const char *line, *variables, *error;
    } rows[] = {
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=$(PET_RDZV_ENDPOINT) x.py", "",
         "--rdzv-endpoint: '$(PET_RDZV_ENDPOINT)' is not a host name or an address: $(PET_RDZV_ENDPOINT) was "
         "not"},
        {"--nnodes=2 --rdzv-backend=c10d x.py", "PET_RDZV_ENDPOINT=node0:$(PORT)",
         "PET_RDZV_ENDPOINT: 'node0:$(PORT)' is not a host name or an address: $(PORT) was not replaced"},
        {"--nnodes=2 --rdzv-endpoint=<ip>:1 x.py", "", "--rdzv-endpoint: '<ip>:1' is not a host name"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=fd00::2 x.py", "",
         "an IPv6 address is written in brackets, as in [fd00::2]:29400"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=::1:29500 x.py", "", "is written in brackets"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=node[1-2]:29500 x.py", "",
         "--rdzv-endpoint: 'node[1-2]' is not a host name or an address: it is a list of hosts"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=tcp://h:1 x.py", "", "it is a URL"},
        {"--nnodes=2 --node-rank=1 x.py", "PET_MASTER_ADDR=${MASTER}", "PET_MASTER_ADDR: '${MASTER}' is not"},
        {"--nnodes=2 --node-rank=1 --master-addr=node0:29500 x.py", "", "the port has a flag of its own"},
        {"--nnodes=2 --node-rank=1 --master-addr=fe80::1%no-such0 x.py", "",
         "--master-addr: 'fe80::1%no-such0': this machine has no interface 'no-such0'"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=h --local-addr=$(POD_IP) x.py", "",
         "--local-addr: '$(POD_IP)' is not a host name or an address: $(POD_IP) was not replaced"},
        {"--nnodes=1 --rdzv-backend=c10d --rdzv-endpoint=h:99999 x.py", "",
         "--rdzv-endpoint: 'h:99999' is not host:port with a port of 0 to 65535"},
        {"--nnodes=1 --rdzv-backend=c10d --rdzv-endpoint=:29400 x.py", "", "':29400' is not host:port"},
        {"--nnodes=1 --rdzv-backend=c10d x.py", "PET_RDZV_ENDPOINT=a/b:1",
         "PET_RDZV_ENDPOINT: 'a/b' is not a host name or an address: it is a URL"},
        {"--nnodes=1 --rdzv-backend=c10d --rdzv-endpoint=h:1,h:1 x.py", "", "'h:1' is entry 1 already"},
        {"--metrics-addr=eth0 x.py", "", "--metrics-addr: 'eth0' is not a numeric address"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse(rows[i].line, rows[i].variables);
        if (p->result == 0 || p->err.code != MUSTER_E_INVALID || !strstr(p->err.text, rows[i].error))
            fail_msg("%s: %s", rows[i].line, p->err.text);
        config_free(&p->config);
    }
}

static void misspelt_variables_are_named(void **state)
{
    static const char *const rows[][2] = {
        {"PET_NNODE", "PET_NNODES"},
        {"PET_NPROC_PER_NODES", "PET_NPROC_PER_NODE"},
        {"PET_NPROCPERNODE", "PET_NPROC_PER_NODE"},
        {"PET_MASTER_ADDRESS", "PET_MASTER_ADDR"},
        {"PET_MAX_RESTART", "PET_MAX_RESTARTS"},
        {"PET_RDZV_ENDPIONT", "PET_RDZV_ENDPOINT"},
        {"MUSTER_JOIN_TIME_OUT", "MUSTER_JOIN_TIMEOUT"},
        {"MUSTER_SECRETFILE", "MUSTER_SECRET_FILE"},
        {"PET_NNODES", NULL},
        {"PET_COLOUR", NULL}, /* a user's own */
        {"PET_", NULL},
        {"MUSTER_", NULL},
        {"MUSTER_ROUND", NULL},
        {"MUSTER_SSH", NULL},
        {"MUSTER_CUDA_MODULE", NULL},
        {"MUSTER_CHECKPOINT_DIR", NULL},
        {"MUSTER_HALL", NULL},
        {"PETS_NNODE", NULL},
        {"NNODE", NULL},
    };
    char *environment[] = {(char *)"PATH=/bin", (char *)"PET_NODE_RANKS=3", (char *)"PET_NODE_RANK", NULL};
    struct run_config config = {0};
    struct muster_error err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *meant = config_meant_variable(rows[i][0]);
        if (rows[i][1] ? !meant || strcmp(meant, rows[i][1]) != 0 : meant != NULL)
            fail_msg("%s: %s", rows[i][0], meant ? meant : "none");
    }
    assert_int_equal(config_warn_of_variables(&config, environment, &err), 0);
    assert_string_equal(
        config.warnings,
        "PET_NODE_RANKS is not a setting's variable and has no effect: is PET_NODE_RANK meant?");
    config_free(&config);
}

#define MEET "--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint="

static void waits_in_vain_are_warned_of(void **state)
{
    (void)state;
    static const struct {
        const char *line, *variables, *warning; /* NULL: none */
    } rows[] = {
        {MEET "localhost:29651 x.py", "",
         "localhost is every machine's own: only nodes on this machine can meet"},
        {MEET "[::1]:29651 x.py", "", "--rdzv-endpoint: ::1 is every machine's own"},
        {MEET "0.0.0.0:29651 x.py", "", "--rdzv-endpoint: 0.0.0.0 is every machine's own"},
        {MEET "[::]:29651 x.py", "", ":: is every machine's own"},
        {MEET "[::ffff:127.0.0.1]:29651 x.py", "", "127.0.0.1 is every machine's own"},
        {"--nnodes=2 --node-rank=0 x.py", "", "--master-addr: 127.0.0.1 is every machine's own"},
        {"--nnodes=2 --node-rank=1 x.py", "PET_MASTER_ADDR=localhost",
         "PET_MASTER_ADDR: localhost is every machine's own"},
        {MEET "10.0.0.1 x.py", "", NULL},
        {MEET "127.9.0.1 x.py", "PET_LOCAL_ADDR=127.9.0.2", NULL}, /* pods of muster local */
        {"--nnodes=1 --rdzv-backend=c10d --rdzv-endpoint=localhost:0 x.py", "", NULL},
        {"--nnodes=4 --node-rank=0 --master-addr=m x.py", "PET_NNODES=2 WORLD_SIZE=4",
         "--nnodes=4, but PET_NNODES is 2: the job waits for nodes that do not exist. WORLD_SIZE counts "
         "processes here: leave --nnodes out"},
        {"--nnodes=4 --node-rank=0 --master-addr=m x.py", "PET_NNODES=2",
         "--nnodes=4, but PET_NNODES is 2: the job waits for nodes that do not exist"},
        {"--nnodes=16 --node-rank=0 --master-addr=m x.py", "SLURM_JOB_NUM_NODES=2 SLURM_NTASKS=16",
         "but SLURM_JOB_NUM_NODES is 2: the job waits for nodes that do not exist. SLURM_NTASKS counts"},
        {"--nnodes=4 --node-rank=0 --master-addr=m x.py", "PET_NNODES=2 TORCHELASTIC_RUN_ID=outer", NULL},
        {"--nnodes=2 --node-rank=0 --master-addr=m x.py", "PET_NNODES=2", NULL},
        {"--nnodes=2:8 --rdzv-backend=c10d --rdzv-endpoint=m x.py", "PET_NNODES=2:4", NULL},
        {"--nnodes=6:8 --rdzv-backend=c10d --rdzv-endpoint=m x.py", "PET_NNODES=2:4",
         "but PET_NNODES is 2:4"},
        {"--node-rank=0 --master-addr=m x.py", "PET_NNODES=2 PET_NODE_RANK=1",
         "--node-rank=0, but PET_NODE_RANK is 1: two nodes with one rank wait for each other"},
        {"--node-rank=1 --master-addr=m x.py", "PET_NNODES=2 PET_NODE_RANK=1", NULL},
        {"--nnodes=2 --node-rank=0 --master-addr=m x.py", "JOB_COMPLETION_INDEX=1",
         "--node-rank=0, but JOB_COMPLETION_INDEX is 1"},
        {"--nnodes=4 --node-rank=3 --master-addr=m x.py", "JOB_COMPLETION_INDEX=1",
         NULL}, /* a flag of another role */
        {"--nnodes=2 --node-rank=0 --master-addr=m x.py", "SLURM_NODEID=1", "but SLURM_NODEID is 1"},
        {MEET "m --node-rank=0 x.py", "PET_NODE_RANK=1", NULL}, /* a wish */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse(rows[i].line, rows[i].variables);
        const char *said = p->config.warnings ? p->config.warnings : "";
        if (p->result || (rows[i].warning ? !strstr(said, rows[i].warning) : p->config.warnings != NULL))
            fail_msg("%s (%s): %s%s", rows[i].line, rows[i].variables, said, p->err.text);
        config_free(&p->config);
    }
}

/* As argparse and int() read them; parse() splits at blanks, so they come by variables of one's own here. */
static const char *with_blanks(void *context, const char *name)
{
    static const char *const variables[][2] = {{"PET_NNODES", " 2\n"},
                                               {"PET_NODE_RANK", "1 "},
                                               {"PET_NPROC_PER_NODE", "\t3"},
                                               {"PET_MASTER_PORT", "29501 "},
                                               {"PET_MASTER_ADDR", " m\n"},
                                               {"PET_MAX_RESTARTS", " 4"},
                                               {"PET_MONITOR_INTERVAL", " 0.5 "},
                                               {"PET_VIRTUAL_LOCAL_RANK", " 1"}};
    (void)context;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (!strcmp(variables[i][0], name))
            return variables[i][1];
    return NULL;
}

static void blanks_around_values_are_nobodys(void **state)
{
    (void)state;
    struct run_config config = {0};
    struct muster_error err = {0};
    char *argv[] = {(char *)"x.py", NULL};
    if (config_parse(1, argv, with_blanks, NULL, &config, &err) < 0 ||
        config_resolve(&config, &four_cores, with_blanks, NULL, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(config.max_nodes == 2 && config.node_rank == 1 && config.nproc_per_node == 3 &&
                config.master_port == 29501 && config.max_restarts == 4 && config.virtual_local_rank);
    assert_string_equal(config.master_addr, "m");
    config_free(&config);
}

static void c10d_does_not_read_timeout(void **state)
{
    (void)state;
    struct parsed *p = parse(MEET "m --rdzv-conf=timeout=7,read_timeout=3 x.py", "");
    assert_int_equal(p->result, 0);
    assert_true(p->config.join_timeout_s == 600);
    assert_non_null(
        strstr(p->config.notes, "no effect here: read_timeout, timeout (with c10d it is join_timeout)"));
    config_free(&p->config);
    p = parse(MEET "m --rdzv-conf=timeout=7,join_timeout=3 x.py", "");
    assert_true(p->config.join_timeout_s == 3);
    config_free(&p->config);
    p = parse("--nnodes=2 --node-rank=0 --master-addr=m --rdzv-conf=timeout=7 x.py", "");
    assert_true(p->config.join_timeout_s == 7);
    config_free(&p->config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_that_cannot_exist),          cmocka_unit_test(refused_at_once),
        cmocka_unit_test(misspelt_variables_are_named),     cmocka_unit_test(waits_in_vain_are_warned_of),
        cmocka_unit_test(blanks_around_values_are_nobodys), cmocka_unit_test(c10d_does_not_read_timeout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
