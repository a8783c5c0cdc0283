/* launcher_config_test.c - the command line of `muster run`: flags, PET_ variables, prefixes, refusals,
 * stream maps. */
#include "launcher/config/config.h"

#include <stdio.h>
#include <stdlib.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/fake_environment.h"
#include "tests/support/faults.h"
#include "tests/unit/launcher/launcher_config_support.h"

static void defaults_are_torchruns(void **state)
{
    (void)state;
    struct parsed *p = parse("train.py --n 3 --lr=1", "");
    assert_parsed(p);
    const struct run_config *c = &p->config;
    assert_int_equal(c->nproc_per_node, 1);
    assert_true(c->min_nodes == 1 && c->max_nodes == 1 && c->node_rank == 0 && c->master_port == 0);
    assert_string_equal(c->master_addr, "127.0.0.1");
    assert_string_equal(c->role, "default");
    assert_null(c->line_prefix);
    assert_true(c->max_restarts == 0 && c->shutdown_timeout_s == 30 && c->cores == 4);
    assert_string_equal(c->rdzv_id, "01234567-89ab-4def-bedc-ba9876543210");
    assert_string_equal(c->program, "train.py");
    assert_string_equal(c->arguments[0], "--n");
    assert_string_equal(c->arguments[2], "--lr=1");
    assert_null(c->arguments[3]);
    assert_null(c->notes);
    config_free(&p->config);
}

/* torchrun on Python 3.10 to 3.13 (argparse.REMAINDER) splits the lines in the same way. */
static void double_dashes(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"p.py -- --lr 1", "--lr 1"},
        {"p.py -- -- --lr 1", "-- --lr 1"},
        {"p.py --", ""},
        {"-- p.py -- --lr 1", "-- --lr 1"},
        {"-- p.py", ""},
        {"p.py a -- b", "a -- b"},
        {"p.py --lr -- b", "--lr -- b"},
        {"--nproc-per-node=1 p.py -- --lr 1", "--lr 1"},
        {"--nproc-per-node 1 -- p.py -- -x", "-- -x"},
        {"-m p.py -- --lr 1", "--lr 1"},
        {"-m -- p.py -- --lr", "-- --lr"},
        {"--no-python p.py -- x", "x"},
        {"p.py -x -- -- b", "-x -- -- b"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse(rows[i][0], "");
        assert_parsed(p);
        assert_string_equal(p->config.program, "p.py");
        scope_buffer rest = {0};
        for (char *const *argument = p->config.arguments; *argument; argument++)
            buffer_printf(&rest, "%s%s", rest.length ? " " : "", *argument);
        buffer_append(&rest, "", 1);
        assert_string_equal(rest.data, rows[i][1]);
        config_free(&p->config);
    }
}

/* line, variables, the expected text or number */
static void spellings_and_sources(void **state)
{
    (void)state;
    static const struct {
        const char *line, *variables;
        int nproc;
        long restarts;
        const char *redirects, *program;
    } rows[] = {
        {"--nproc-per-node=2 x.py", "", 2, 0, "0", "x.py"},
        {"--nproc_per_node 2 x.py", "", 2, 0, "0", "x.py"},
        {"--nproc 2 --max_restarts=3 x.py", "", 2, 3, "0", "x.py"},
        {"--nproc-per_node=3 x.py", "", 3, 0, "0", "x.py"},
        {"--nproc=2 --nproc=3 x.py", "", 3, 0, "0", "x.py"},
        {"-r3 x.py", "", 1, 0, "3", "x.py"},
        {"-r 3 x.py", "", 1, 0, "3", "x.py"},
        {"-r=3 x.py", "", 1, 0, "3", "x.py"},
        {"--redirect=0:1,1:2 x.py", "", 1, 0, "0:1,1:2", "x.py"},
        {"-- --odd.py", "", 1, 0, "0", "--odd.py"},
        {"--standalone -- ./a -r3", "", 1, 0, "0", "./a"},
        {"x.py", "PET_NPROC_PER_NODE=4 PET_MAX_RESTARTS=2 PET_REDIRECTS=1", 4, 2, "1", "x.py"},
        {"--nproc=2 x.py", "PET_NPROC_PER_NODE=4", 2, 0, "0", "x.py"},
        {"--nproc=cpu x.py", "", 4, 0, "0", "x.py"},
        {"--nproc=auto x.py", "", 4, 0, "0", "x.py"},
        {"x.py", "PET_NPROC_PER_NODE= PET_MODULE=0", 1, 0, "0", "x.py"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse(rows[i].line, rows[i].variables);
        assert_parsed(p);
        assert_int_equal(p->config.nproc_per_node, rows[i].nproc);
        assert_int_equal(p->config.max_restarts, rows[i].restarts);
        assert_string_equal(p->config.redirects, rows[i].redirects);
        assert_string_equal(p->config.program, rows[i].program);
        config_free(&p->config);
    }
}

static void gpus_count_where_there_are_some(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int workers;
    } rows[] = {{"--nproc=gpu x.py", 2}, {"--nproc=auto x.py", 2}, {"--nproc=cpu x.py", 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse_on(rows[i].line, "", &two_gpus);
        assert_parsed(p);
        assert_int_equal(p->config.nproc_per_node, rows[i].workers);
        config_free(&p->config);
    }
}

static void a_pytorchjob_needs_no_flags(void **state)
{
    (void)state;
    struct parsed *p = parse(
        "-m pkg.train", "PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=job-master-0 PET_MASTER_PORT=23456 "
                        "PET_NPROC_PER_NODE=1 PET_MAX_RESTARTS=3 PET_RDZV_BACKEND=static");
    assert_parsed(p);
    const struct run_config *c = &p->config;
    assert_true(c->module && c->max_nodes == 2 && c->node_rank == 1 && c->master_port == 23456);
    assert_string_equal(c->master_addr, "job-master-0");
    assert_string_equal(c->rdzv_id, "none");
    assert_non_null(strstr(c->notes, "from the environment: PET_NNODES=2 PET_NODE_RANK=1"));
    config_free(&p->config);
}

static void worlds_of_several_nodes(void **state)
{
    (void)state;
    struct parsed *p = parse("--nnodes=2:2 --node-rank=1 --master-addr=[::1] --master-port=29501 x.py", "");
    assert_parsed(p);
    assert_true(p->config.min_nodes == 2 && p->config.max_nodes == 2 && p->config.master_port == 29501);
    assert_string_equal(p->config.master_addr, "::1");
    config_free(&p->config);
    p = parse("--nnodes=2 x.py", "");
    assert_parsed(p);
    assert_int_equal(p->config.master_port, 29500);
    assert_non_null(strstr(p->config.notes, "this is node 0"));
    config_free(&p->config);
    p = parse("--nnodes=2 --node-rank=0 --rdzv-endpoint=[fe80::1]:1234 x.py", "");
    assert_parsed(p);
    assert_string_equal(p->config.master_addr, "fe80::1");
    assert_int_equal(p->config.master_port, 1234);
    config_free(&p->config);
}

/* Where the operator says the number of nodes and nothing else (a PyTorchJob of workers only). */
static void a_pod_without_a_rank_finds_its_place(void **state)
{
    (void)state;
    struct parsed *p = parse_on("x.py", "PET_NNODES=3 PET_NPROC_PER_NODE=2", &worker_one);
    assert_parsed(p);
    const struct run_config *c = &p->config;
    assert_true(c->max_nodes == 3 && c->node_rank == 1 && c->master_port == 23456);
    assert_string_equal(c->master_addr, "pt-worker-0");
    assert_string_equal(c->notes,
                        "from the environment: PET_NNODES=3 PET_NPROC_PER_NODE=2; from the host name "
                        "pt-worker-1: --node-rank=1 --master-addr=pt-worker-0 --master-port=23456");
    char scratch[CONFIG_SETTING_SIZE];
    assert_string_equal(config_origin(c, &config_table()->knobs[2], scratch), "the host name pt-worker-1");
    config_free(&p->config);
    p = parse_on("x.py", "RANK=2 WORLD_SIZE=3 MASTER_ADDR=pt-master-0 MASTER_PORT=8080", &worker_one);
    assert_parsed(p);
    assert_true(p->config.max_nodes == 3 && p->config.node_rank == 2 && p->config.master_port == 8080);
    assert_null(p->config.warnings);
    config_free(&p->config);
}

/* Flags, and worlds that have no place to find, keep the rules out. */
static void rules_do_not_overrule(void **state)
{
    (void)state;
    static const struct {
        const char *line, *variables;
        int nodes, rank;
    } rows[] = {
        {"x.py", "", 1, 0},
        {"--nnodes=3 --node-rank=0 --master-addr=h x.py", "", 3, 0},
        {"--nnodes=3 --rdzv-conf=rank=2 --master-addr=h x.py", "", 3, 2},
        {"--nnodes=3 --node-rank=1 --rdzv-conf=rank=2 --master-addr=h x.py", "", 3, 1},
        {"--standalone x.py", "PET_NNODES=3", 1, 0},
        {"--nnodes=1 x.py", "RANK=2 WORLD_SIZE=3 MASTER_ADDR=pt-master-0 MASTER_PORT=8080", 1, 0},
        {"x.py", "PET_STANDALONE= PET_NNODES=3", 1, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse_on(rows[i].line, rows[i].variables, &worker_one);
        assert_parsed(p);
        assert_int_equal(p->config.max_nodes, rows[i].nodes);
        assert_int_equal(p->config.node_rank, rows[i].rank);
        config_free(&p->config);
    }
}

static void lone_pods_are_warned_of(void **state)
{
    (void)state;
    static const struct {
        const char *line, *variables, *warning; /* NULL: none */
    } rows[] = {
        {"--nnodes=1 --nproc_per_node=4 x.py",
         "PET_NNODES=4 PET_NODE_RANK=2 PET_MASTER_ADDR=pt-master-0 PET_MASTER_PORT=23456",
         "this is one of 4 pods by PET_NNODES, but --nnodes=1 makes it a separate job: 4 independent jobs "
         "would train"},
        {"--standalone x.py", "PET_NNODES=2",
         "this is one of 2 pods by PET_NNODES, but --standalone makes it"},
        {"--nnodes=1 --nproc_per_node=4 x.py",
         "RANK=1 WORLD_SIZE=12 PET_NPROC_PER_NODE=4 MASTER_ADDR=pt-master-0 MASTER_PORT=1",
         "this is one of 3 pods by WORLD_SIZE and MASTER_ADDR, but --nnodes=1 makes it"},
        {"--nnodes=1 x.py", "PET_NNODES=1", NULL},
        {"--nnodes=1 x.py", "", NULL},
        {"--standalone x.py", "PET_NNODES=2 TORCHELASTIC_RUN_ID=x", NULL},
        {"--standalone x.py", "PET_NNODES=junk", NULL},
        {"x.py", "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NUM_NODES=2",
         "this is one of 8 tasks that srun started on 2 nodes, and each is an agent of its own: 8 "
         "independent jobs would train. Start one agent a node: srun --ntasks-per-node=1 muster run "
         "--nproc-per-node=4"},
        {"x.py", "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=1",
         "this is one of 4 tasks that srun started on 1 node, "},
        {"x.py", "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NUM_NODES=1", NULL},
        {"x.py", "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_NNODES=2", NULL}, /* the batch script itself */
        {"--nnodes=1 x.py", "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=1", NULL},
        {"--standalone x.py", "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=1", NULL},
        {"x.py", "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=1 TORCHELASTIC_RUN_ID=x", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse_on(rows[i].line, rows[i].variables, &worker_one);
        assert_parsed(p);
        assert_int_equal(p->config.node_rank, 0);
        assert_string_equal(p->config.master_addr, "127.0.0.1");
        if (rows[i].warning)
            assert_non_null(strstr(p->config.warnings ? p->config.warnings : "", rows[i].warning));
        else
            assert_null(p->config.warnings);
        config_free(&p->config);
    }
}

static void an_elastic_job_with_a_master_is_warned_of(void **state)
{
    (void)state;
    static const char pod[] =
        "PET_NODE_RANK=1 PET_MASTER_ADDR=pt-master-0 MASTER_ADDR=pt-master-0 PET_NNODES=2:2 "
        "PET_RDZV_BACKEND=static ";
    char variables[256];
    (void)snprintf(variables, sizeof variables, "%sWORLD_SIZE=6 PET_NPROC_PER_NODE=2", pod);
    struct parsed *p = parse_on("x.py", variables, &worker_one);
    assert_parsed(p);
    assert_non_null(strstr(p->config.warnings ? p->config.warnings : "",
                           "PET_NNODES=2:2 counts workers only, but 3 pods run this command"));
    config_free(&p->config);
    (void)snprintf(variables, sizeof variables, "%sWORLD_SIZE=2 PET_NPROC_PER_NODE=auto", pod);
    p = parse_on("x.py", variables, &worker_one);
    assert_parsed(p);
    assert_null(p->config.warnings);
    config_free(&p->config);
}

static void standalone_leaves_the_environment_aside(void **state)
{
    (void)state;
    struct parsed *p =
        parse("--standalone x.py",
              "PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=far PET_MASTER_PORT=1 PET_RDZV_BACKEND=etcd "
              "PET_RDZV_CONF=a=b PET_RDZV_ENDPOINT=far:1");
    assert_parsed(p);
    assert_true(p->config.max_nodes == 1 && p->config.node_rank == 0 && p->config.master_port == 0);
    assert_string_equal(p->config.master_addr, "127.0.0.1");
    config_free(&p->config);
    p = parse(
        "--standalone --rdzv-backend=c10d --rdzv-endpoint=localhost:0 --rdzv-id=mine --master-port=4321 x.py",
        "");
    assert_parsed(p);
    assert_string_equal(p->config.rdzv_id, "mine");
    assert_int_equal(p->config.master_port, 4321);
    config_free(&p->config);
}

static void bad_usage_is_one_clear_line(void **state)
{
    (void)state;
    static const struct {
        const char *line, *variables, *error;
    } rows[] = {
        {"", "", "no program was given; put the script, module or executable after the flags"},
        {"--nproc-per-node=0 x.py", "", "--nproc-per-node: '0' is outside 1 to 4096 workers"},
        {"--nproc-per-node -1 x.py", "", "--nproc-per-node: '-1' is outside 1 to 4096 workers"},
        {"--nproc-per-node=two x.py", "",
         "--nproc-per-node: 'two' is not a number of workers, cpu, gpu or auto"},
        {"x.py", "PET_NPROC_PER_NODE=0", "PET_NPROC_PER_NODE: '0' is outside 1 to 4096 workers"},
        {"--nproc=gpu x.py", "",
         "--nproc-per-node: gpu, but no NVIDIA GPU is visible here; give a number, cpu or auto"},
        {"--nprocs-per-node=2 x.py", "", "unknown flag --nprocs-per-node; did you mean --nproc-per-node?"},
        {"--stand-alone x.py", "", "unknown flag --stand-alone; did you mean --standalone?"},
        {"--bogus-thing x.py", "", "unknown flag --bogus-thing; --help lists all flags"},
        {"--=3 x.py", "", "unknown flag --; --help lists all flags"},
        {"-z x.py", "", "unknown flag -z; --help lists all flags"},
        {"--max x.py", "", "--max-restarts: 'x.py' is not a whole number"},
        {"--m 3 x.py", "",
         "--m could be any of --master-addr, --master-port, --max-restarts, --module, --mpi, --metrics-port, "
         "--metrics-addr, --monitor-interval"},
        {"--standalone=1 x.py", "", "--standalone takes no value, but '1' was given"},
        {"-mfoo x.py", "", "-m takes no value, but 'foo' was given"},
        {"--role", "", "--role needs a value"},
        {"--role --standalone x.py", "", "--role needs a value"},
        {"--max-restarts=-1 x.py", "", "--max-restarts: '-1' is outside 0 to 1000000"},
        {"x.py", "PET_MAX_RESTARTS=x", "PET_MAX_RESTARTS: 'x' is not a whole number"},
        {"x.py", "PET_STANDALONE=maybe", "PET_STANDALONE: 'maybe' is not true or false"},
        {"-m --no-python x", "", "--module and --no-python exclude each other"},
        {"x", "PET_MODULE=1 PET_NO_PYTHON=1", "PET_MODULE and PET_NO_PYTHON exclude each other"},
        {"--nnodes=1:2:3 x.py", "",
         "--nnodes: '1:2:3' is not a number of nodes of 1 to 16384, or MIN:MAX of them"},
        {"--nnodes=16385 x.py", "",
         "--nnodes: '16385' is not a number of nodes of 1 to 16384, or MIN:MAX of them"},
        {"--nnodes=0 x.py", "", "--nnodes: '0' is not a number of nodes of 1 to 16384, or MIN:MAX of them"},
        {"--nnodes=3:2 x.py", "", "--nnodes: '3:2' has a minimum above its maximum"},
        {"--standalone --nnodes=2 x.py", "", "--standalone is one node, but --nnodes is 2"},
        {"--nnodes=2 --node-rank=2 x.py", "",
         "--node-rank: '2' is not below the number of nodes, 2 (--nnodes)"},
        {"x.py", "PET_NNODES=2 PET_NODE_RANK=5",
         "PET_NODE_RANK: '5' is not below the number of nodes, 2 (PET_NNODES)"},
        {"x.py", "PET_NNODES=2 PET_RDZV_CONF=rank=2",
         "PET_RDZV_CONF: '2' is not below the number of nodes, 2 (PET_NNODES)"},
        {"--nnodes=2 x.py", "JOB_COMPLETION_INDEX=2 PET_MASTER_ADDR=m",
         "JOB_COMPLETION_INDEX: '2' is not below the number of nodes, 2 (--nnodes)"},
        {"--rdzv-backend=etcd x.py", "",
         "--rdzv-backend: 'etcd' is not supported, no etcd is needed; use c10d with --rdzv-endpoint, or "
         "static with --node-rank, --master-addr and --master-port"},
        {"--rdzv-backend=zk x.py", "", "--rdzv-backend: 'zk' is neither static nor c10d"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=h:0 x.py", "",
         "--rdzv-endpoint: 'h:0' is not host:port with a port of 1 to 65535"},
        {"--nnodes=2 --bind-addr=eth0 x.py", "",
         "--bind-addr: 'eth0' is not a numeric address, like 10.0.0.1 or ::1"},
        {"--nnodes=2 --port-range=7 x.py", "",
         "--port-range: '7' is not first-last with ports of 1 to 65535"},
        {"--nnodes=2 --port-range=9-8 x.py", "",
         "--port-range: '9-8' is not first-last with ports of 1 to 65535"},
        {"--nnodes=2 --rdzv-endpoint=host x.py", "",
         "--rdzv-endpoint: 'host' is not host:port with a port of 1 to 65535"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=a,,b x.py", "",
         "--rdzv-endpoint: entry 2 of 3 is empty: leave the comma out, or put host[:port] there"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=a, x.py", "",
         "--rdzv-endpoint: entry 2 of 2 is empty: leave the comma out, or put host[:port] there"},
        {"--nnodes=2 --rdzv-backend=c10d x.py", "PET_RDZV_ENDPOINT=a,b:70000",
         "PET_RDZV_ENDPOINT: entry 2 of 2: 'b:70000' is not host:port with a port of 1 to 65535"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=a,b/c x.py", "",
         "--rdzv-endpoint: entry 2 of 2: 'b/c' is not a host name or an address: it is a URL or a path: "
         "give the host alone"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=a,b:29400,B x.py", "",
         "--rdzv-endpoint: entry 3 of 3: 'B' is entry 2 already: each entry is another agent's"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=a,b,c,d,e,f,g,h,i x.py", "",
         "--rdzv-endpoint: the list has 9 entries, more than 8: leave 1 out; any entry that lives leads to "
         "the "
         "job"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=a:1;b:1 x.py", "",
         "--rdzv-endpoint: 'a:1;b:1' is not a host name or an address: the entries of a list are separated "
         "by "
         "commas"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=a:1,[fd00::2 x.py", "",
         "--rdzv-endpoint: entry 2 of 2: '[fd00::2' is not a host name or an address: its bracket is not "
         "closed: [fd00::2]:29400"},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=[fd00::2]29400 x.py", "",
         "--rdzv-endpoint: '[fd00::2]29400' is not a host name or an address: a colon and the port follow "
         "the "
         "bracket: [fd00::2]:29400"},
        {"--nnodes=2 --rdzv-endpoint=a,b:1 x.py", "",
         "--rdzv-endpoint: entry 1 of 2: 'a' is not host:port with a port of 1 to 65535"},
        {"--master-port=70000 x.py", "", "--master-port: '70000' is outside 0 to 65535"},
        {"--master-addr=a/b x.py", "",
         "--master-addr: 'a/b' is not a host name or an address: it is a URL or a path: give the host alone"},
        {"--rdzv-id=a/b x.py", "", "--rdzv-id: 'a/b' is empty, longer than 200 bytes or has a slash"},
        {"--tee=4 x.py", "", "--tee: '4' is not 0, 1, 2, 3 or a map of local ranks such as 0:1,1:3"},
        {"-r 0:1, x.py", "", "--redirects: '0:1,' is not 0, 1, 2, 3 or a map of local ranks such as 0:1,1:3"},
        {"--monitor-interval=0 x.py", "", "--monitor-interval: '0' is outside 1e-09 to 10000000 s"},
        {"--start-method=thread x.py", "", "--start-method: 'thread' is not one of spawn, fork, forkserver"},
        {"--output=markdown x.py", "", "--output=markdown is a format of --help: put --help after it"},
        {"--run-path x.py", "",
         "--run-path: it needs Python in the agent; leave it out, or use -m for a module"},
        {"--numa-binding x.py", "",
         "--numa-binding: 'x.py' is not one of none, node, socket, exclusive, core-complex"},
        {"--use-env x.py", "",
         "--use-env is a flag of muster launch; muster run never adds --local-rank, leave it out"},
        {"x.py", "PET_NNODES=2 PET_NODE_RANK=0 PET_RDZV_CONF=timeout=soon",
         "PET_RDZV_CONF: timeout: 'soon' is not a number of seconds above 0 and up to 1e+07"},
        {"--rdzv-conf=a x.py", "", "--rdzv-conf: 'a' has no value; it reads key=value,key=value"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse(rows[i].line, rows[i].variables);
        assert_int_equal(p->result, -1);
        assert_string_equal(p->err.text, rows[i].error);
        assert_true(p->err.code == MUSTER_E_INVALID || p->err.code == MUSTER_E_UNSUPPORTED);
        config_free(&p->config);
    }
}

static void refused_variables_that_change_nothing_pass(void **state)
{
    (void)state;
    static const char *const harmless[] = {"PET_RUN_PATH=0", "PET_RUN_PATH=false", "PET_RUN_PATH=OFF"};
    static const char *const harmful[] = {"PET_RUN_PATH=1", "PET_RUN_PATH=on", "PET_RUN_PATH=perhaps"};
    for (size_t i = 0; i < sizeof harmful / sizeof *harmful; i++) {
        struct parsed *p = parse("x.py", harmful[i]);
        assert_int_equal(p->result, -1);
        assert_int_equal(p->err.code, MUSTER_E_UNSUPPORTED);
        config_free(&p->config);
    }
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        struct parsed *p = parse("x.py", harmless[i]);
        assert_parsed(p);
        assert_null(p->config.warnings);
        config_free(&p->config);
    }
}

/* Without a secret only where no other host reaches the port. */
static void a_required_secret_may_miss_on_this_machine_alone(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        bool ours;
    } rows[] = {{"localhost", true}, {"127.0.0.1", true},  {"127.9", true},
                {"::1", true},       {"[::1]", true},      {"10.0.0.1", false},
                {"::2", false},      {"128.0.0.1", false}, {"127.0.0.1.example.com", false},
                {"1.127.", false},   {"local", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[200];
        (void)snprintf(line, sizeof line, "--require-auth --nnodes=2 --node-rank=1 --master-addr=%s x.py",
                       rows[i].host);
        struct parsed *p = parse(line, "");
        if ((p->result == 0) != rows[i].ours)
            fail_msg("%s: %s", rows[i].host, p->err.text);
        if (!rows[i].ours)
            assert_non_null(strstr(p->err.text, "need the job's secret"));
        config_free(&p->config);
    }
}

static void a_host_name_has_a_longest(void **state)
{
    (void)state;
    for (int length = 253; length <= 254; length++) {
        char line[400], host[300];
        memset(host, 'h', sizeof host);
        host[length] = '\0';
        (void)snprintf(line, sizeof line, "--nnodes=2 --node-rank=1 --master-addr=%s x.py", host);
        struct parsed *p = parse(line, "");
        assert_int_equal(p->result, length == 253 ? 0 : -1);
        config_free(&p->config);
    }
}

static void nodes_that_meet(void **state)
{
    (void)state;
    static const struct {
        const char *line, *variables;
        int least, most, rank;
        const char *host;
        int port;
        double last_call;
        int is_host;
    } rows[] = {
        {"--nnodes=2:4 --rdzv-backend=c10d --rdzv-endpoint=web-0 x.py", "", 2, 4, -1, "web-0", 29400, 30,
         RDZV_CONF_UNSET},
        {"x.py", "PET_NNODES=1:3 PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=pt-worker-0:23456", 1, 3, -1,
         "pt-worker-0", 23456, 30, RDZV_CONF_UNSET},
        {"--nnodes=2 --node-rank=1 --rdzv-backend=c10d --rdzv-endpoint=[::1]:7 x.py", "", 2, 2, 1, "::1", 7,
         30, RDZV_CONF_UNSET},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=[fe80::2] x.py", "", 2, 2, -1, "fe80::2", 29400, 30,
         RDZV_CONF_UNSET},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=h --rdzv-conf=is_host=1,last_call_timeout=2 x.py",
         "", 2, 2, -1, "h", 29400, 2, 1},
        {"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=h --last-call-timeout=7 x.py",
         "PET_RDZV_CONF=last_call_timeout=2,is_host=false", 2, 2, -1, "h", 29400, 7, 0},
        {"--nnodes=1:2 --rdzv-backend=c10d x.py", "", 1, 2, -1, "localhost", 29400, 30, RDZV_CONF_UNSET},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse(rows[i].line, rows[i].variables);
        assert_parsed(p);
        assert_true(p->config.elastic);
        assert_int_equal(p->config.min_nodes, rows[i].least);
        assert_int_equal(p->config.max_nodes, rows[i].most);
        assert_int_equal(p->config.wanted_rank, rows[i].rank);
        assert_string_equal(p->config.master_addr, rows[i].host);
        assert_int_equal(p->config.master_port, rows[i].port);
        assert_true(p->config.last_call_timeout_s == rows[i].last_call);
        assert_int_equal(p->config.rdzv_conf.is_host, rows[i].is_host);
        config_free(&p->config);
    }
}

static void assert_endpoint(const struct config_endpoint *entry, const char *host, int port)
{
    assert_string_equal(entry->host, host);
    assert_int_equal(entry->port, port);
}

static void an_endpoint_may_be_a_list(void **state)
{
    (void)state;
    struct parsed *p =
        parse("--nnodes=2:4 --rdzv-backend=c10d x.py", "PET_RDZV_ENDPOINT=n0:7,10.0.0.2,[fd00::2]:8");
    assert_parsed(p);
    assert_string_equal(p->config.master_addr, "n0");
    assert_int_equal(p->config.master_port, 7);
    assert_int_equal(p->config.endpoint_count, 3);
    assert_endpoint(&p->config.endpoints[0], "n0", 7);
    assert_endpoint(&p->config.endpoints[1], "10.0.0.2", 7); /* the first one's port */
    assert_endpoint(&p->config.endpoints[2], "fd00::2", 8);
    config_free(&p->config);
    p = parse("--nnodes=2 --node-rank=1 --rdzv-endpoint=a:1,b,c,d,e,f,g,h x.py", "");
    assert_parsed(p);
    assert_false(p->config.elastic);
    assert_int_equal(p->config.endpoint_count, 8);
    assert_endpoint(&p->config.endpoints[7], "h", 1);
    config_free(&p->config);
    p = parse("--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=a,b x.py", "");
    assert_parsed(p);
    assert_int_equal(p->config.master_port, 29400);
    assert_endpoint(&p->config.endpoints[1], "b", 29400);
    config_free(&p->config);
}

static void a_range_of_nodes_is_its_most_where_ranks_are_given(void **state)
{
    (void)state;
    struct parsed *p = parse("--nnodes=1:3 --node-rank=2 --master-addr=h --port-range=100-200 x.py", "");
    assert_parsed(p);
    assert_false(p->config.elastic);
    assert_int_equal(p->config.min_nodes, 3);
    assert_int_equal(p->config.wanted_rank, 2);
    assert_int_equal(p->config.first_port, 100);
    assert_int_equal(p->config.last_port, 200);
    assert_non_null(strstr(p->config.notes, "means 3 nodes with --rdzv-backend=static"));
    config_free(&p->config);
}

static void every_rejected_flag_names_what_to_use(void **state)
{
    (void)state;
    const struct knob_table *table = config_table();
    int refused = 0;
    for (size_t i = 0; i < table->count; i++) {
        if (!table->knobs[i].refused)
            continue;
        char line[128], start[128];
        (void)snprintf(line, sizeof line, "--%s=1 x.py", table->knobs[i].name);
        (void)snprintf(start, sizeof start, "--%s: ", table->knobs[i].name);
        struct parsed *p = parse(line, "");
        assert_int_equal(p->result, -1);
        assert_int_equal(p->err.code, MUSTER_E_UNSUPPORTED);
        assert_memory_equal(p->err.text, start, strlen(start));
        config_free(&p->config);
        refused++;
    }
    assert_true(refused >= 2);
}

static void the_grace_has_torchruns_other_name_too(void **state)
{
    (void)state;
    struct parsed *p = parse("x.py", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7");
    assert_parsed(p);
    assert_true(p->config.shutdown_timeout_s == 7);
    config_free(&p->config);
    p = parse("--shutdown-timeout=0 x.py", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7");
    assert_parsed(p);
    assert_true(p->config.shutdown_timeout_s == 0);
    config_free(&p->config);
}

static void torchs_switch_of_the_store(void **state)
{
    (void)state;
    static const struct {
        const char *line, *variables;
        int store;
    } rows[] = {
        {"x.py", "", WORKER_STORE_AGENT},
        {"--worker-store=worker x.py", "", WORKER_STORE_WORKER},
        {"x.py", "MUSTER_WORKER_STORE=worker", WORKER_STORE_WORKER},
        {"x.py", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", WORKER_STORE_WORKER},
        {"x.py", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=0", WORKER_STORE_AGENT},
        {"--worker-store=agent x.py", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", WORKER_STORE_AGENT},
        {"--standalone x.py", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", WORKER_STORE_WORKER},
        {"--nnodes=1:4 --rdzv-backend=c10d --rdzv-endpoint=h:1 --rdzv-id=j x.py",
         "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", WORKER_STORE_WORKER},
        {"--nnodes=2 --node-rank=0 --master-addr=h x.py", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
         WORKER_STORE_AGENT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse(rows[i].line, rows[i].variables);
        assert_parsed(p);
        assert_int_equal(p->config.worker_store, rows[i].store);
        config_free(&p->config);
    }
    struct parsed *p = parse("--worker-store=both x.py", "");
    assert_int_equal(p->result, -1);
    assert_int_equal(p->err.code, MUSTER_E_INVALID);
    config_free(&p->config);
}

static void rdzv_conf_counts_where_no_flag_does(void **state)
{
    (void)state;
    static const struct {
        const char *line, *variables;
        double join_timeout_s;
    } rows[] = {
        {"--rdzv-conf=join_timeout=5,timeout=7 x.py", "", 5},
        {"--rdzv-conf 'timeout=7,last_call_timeout=1' x.py", "", 7},
        {"x.py", "PET_RDZV_CONF=timeout=7", 7},
        {"--join-timeout=3 x.py", "PET_RDZV_CONF=timeout=7", 3},
        {"x.py", "PET_RDZV_CONF=timeout=7 MUSTER_JOIN_TIMEOUT=4", 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse(rows[i].line, rows[i].variables);
        assert_parsed(p);
        assert_true(p->config.join_timeout_s == rows[i].join_timeout_s);
        config_free(&p->config);
    }
    struct parsed *p = parse("--rdzv-conf=foo=1,bar=2,foo=3 x.py", "");
    assert_parsed(p);
    assert_string_equal(p->config.notes, "--rdzv-conf: no effect here: foo, bar");
    config_free(&p->config);
}

static void signals_by_name_and_unknown_ones_left_out(void **state)
{
    (void)state;
    struct parsed *p = parse("--signals-to-handle=TERM,SIGNONE,USR1 x.py", "MUSTER_FORWARD_SIGNALS=SIGUSR1");
    assert_parsed(p);
    assert_true(p->config.stop_signals == signal_bit(15));
    assert_true(p->config.forwarded_signals == signal_bit(10));
    assert_non_null(strstr(p->config.notes, "--signals-to-handle: SIGNONE left out"));
    config_free(&p->config);
    p = parse("x.py", "PET_SIGNALS_TO_HANDLE=SIGTERM");
    assert_parsed(p);
    assert_true(p->config.stop_signals == signal_bit(15) && !p->config.forwarded_signals);
    assert_true(!p->config.notes || !strstr(p->config.notes, "left out"));
    config_free(&p->config);
}

static void help_lists_every_row_and_checks_nothing(void **state)
{
    (void)state;
    struct parsed *p = parse("--nnodes=junk -h", "PET_MAX_RESTARTS=junk");
    assert_parsed(p);
    assert_true(p->config.help);
    config_free(&p->config);
    scope_buffer out = {0};
    assert_int_equal(config_help("muster run", 100, &out), 0);
    for (size_t i = 0; i < config_table()->count; i++)
        assert_non_null(strstr(out.data, config_table()->knobs[i].name));
}

static void stream_maps(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        int rank, bits;
    } rows[] = {
        {"0", 0, 0},        {"3", 5, 3},     {"0:1,1:2", 0, 1}, {"0:1,1:2", 1, 2},
        {"0:1,1:2", 2, 0},  {"12:3", 12, 3}, {"12:3", 1, 0},    {"0:1,0:2", 0, 2},
        {"", 0, -1},        {"4", 0, -1},    {"0:", 0, -1},     {"0:4", 0, -1},
        {"0:1,", 0, -1},    {",0:1", 0, -1}, {":1", 0, -1},     {"-1:1", 0, -1},
        {"0:1 1:2", 0, -1}, {"00", 0, -1},   {"0:12", 0, -1},   {"99999999999999999999:1", 0, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(config_streams(rows[i].value, rows[i].rank), rows[i].bits);
}

/* Random command lines made of likely pieces: no crash, no leak, and an error always has one line of text. */
static void random_command_lines(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "--",
        "-",
        "-r",
        "-r3",
        "-t0:1,",
        "-m",
        "-h",
        "--nproc",
        "=",
        "--nnodes",
        "2",
        "1:2",
        ":",
        "--n",
        "--role=",
        "--rdzv-",
        "-1",
        "--=",
        "-=",
        "x.py",
        "--help=1",
        "%s%n",
        "--tee=9",
        "--rdzv-endpoint=[",
        "--rdzv-endpoint=a:1",
        "--standalone",
        "--node_rank",
        "--master-addr=[]",
    };
    srand(1);
    for (int round = 0; round < 20000; round++) {
        char *argv[8];
        int argc = rand() % 7;
        for (int i = 0; i < argc; i++)
            argv[i] = (char *)pieces[(size_t)rand() % (sizeof pieces / sizeof *pieces)];
        argv[argc] = NULL;
        char variables[64];
        (void)snprintf(variables, sizeof variables, "PET_NNODES=%s PET_TEE=%s",
                       pieces[(size_t)rand() % (sizeof pieces / sizeof *pieces)], rand() % 2 ? "3" : "x");
        struct run_config config = {0};
        struct muster_error err = {0};
        int result = config_parse(argc, argv, fake_environment, variables, &config, &err);
        if (result == 0 && !config.help)
            result = config_resolve(&config, &four_cores, fake_environment, variables, &err);
        if (result < 0) {
            assert_true(err.code != MUSTER_OK && *err.text);
            assert_null(strchr(err.text, '\n'));
        } else if (!config.help) {
            assert_true(config.program && config.nproc_per_node >= 1);
        }
        config_free(&config);
    }
}

static int parse_once(void *context)
{
    (void)context;
    struct parsed *p =
        parse("--standalone --nproc=2 --rdzv-id=a x.py", "PET_ROLE=trainer PET_MAX_RESTARTS=1");
    int result = p->result;
    config_free(&p->config);
    return result;
}

static void no_memory_leaks_nothing(void **state)
{
    (void)state;
    faults_sweep(parse_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_torchruns),
        cmocka_unit_test(double_dashes),
        cmocka_unit_test(spellings_and_sources),
        cmocka_unit_test(gpus_count_where_there_are_some),
        cmocka_unit_test(a_pytorchjob_needs_no_flags),
        cmocka_unit_test(worlds_of_several_nodes),
        cmocka_unit_test(a_pod_without_a_rank_finds_its_place),
        cmocka_unit_test(rules_do_not_overrule),
        cmocka_unit_test(lone_pods_are_warned_of),
        cmocka_unit_test(an_elastic_job_with_a_master_is_warned_of),
        cmocka_unit_test(a_required_secret_may_miss_on_this_machine_alone),
        cmocka_unit_test(a_host_name_has_a_longest),
        cmocka_unit_test(nodes_that_meet),
        cmocka_unit_test(an_endpoint_may_be_a_list),
        cmocka_unit_test(a_range_of_nodes_is_its_most_where_ranks_are_given),
        cmocka_unit_test(standalone_leaves_the_environment_aside),
        cmocka_unit_test(bad_usage_is_one_clear_line),
        cmocka_unit_test(refused_variables_that_change_nothing_pass),
        cmocka_unit_test(every_rejected_flag_names_what_to_use),
        cmocka_unit_test(the_grace_has_torchruns_other_name_too),
        cmocka_unit_test(torchs_switch_of_the_store),
        cmocka_unit_test(rdzv_conf_counts_where_no_flag_does),
        cmocka_unit_test(signals_by_name_and_unknown_ones_left_out),
        cmocka_unit_test(help_lists_every_row_and_checks_nothing),
        cmocka_unit_test(stream_maps),
        cmocka_unit_test(random_command_lines),
        cmocka_unit_test(no_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
