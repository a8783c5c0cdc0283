/* world_test.c - the environment's reader, and worlds of threads over a store that rank 0 or an agent serves.
 */
#include "tests/support/cmocka_all.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/clock.h"
#include "proto/world/world_alone.h"
#include "proto/world/world_environment.h"
#include "rendezvous/tcpstore/tcpstore_server.h"
#include "runtime/world/world.h"
#include "tests/support/faults.h"
#include "tests/support/rank_threads.h"
#include "tests/unit/comm/comm_test_ranks.h"
#include "tests/unit/world/world_test_environment.h"

/* ---- the reader: "NAME=value" texts, NULL at the end ---- */

static const char *from_list(void *context, const char *name)
{
    size_t length = strlen(name);
    for (const char *const *entry = context; *entry; entry++) {
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
            return *entry + length + 1;
    }
    return NULL;
}
#define READ(place, err, ...)                                                                                \
    world_place_read(from_list, (void *)(const char *const[]){__VA_ARGS__, NULL}, place, err)
#define FOUR "RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=host", "MASTER_PORT=29500"

static void launchers_are_understood(void **state)
{
    (void)state;
    struct world_place p;
    struct muster_error err = {0};
    assert_int_equal(READ(&p, &err, "HOME=/"), 0);
    assert_int_equal(p.size, 1);
    assert_int_equal(p.rank, 0);
    assert_int_equal(p.local_size, 1);
    assert_string_equal(p.master_addr, "");
    assert_int_equal(READ(&p, &err, "RANK=", "WORLD_SIZE="), 0); /* empty is not set */
    assert_int_equal(p.size, 1);
    assert_int_equal(READ(&p, &err, FOUR), 0);
    assert_int_equal(p.rank, 1);
    assert_int_equal(p.size, 4);
    assert_int_equal(p.local_rank, 1);
    assert_int_equal(p.local_size, 4);
    assert_string_equal(p.master_addr, "host");
    assert_int_equal(READ(&p, &err, "RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=[fe80::2%eth0]", "MASTER_PORT=1"),
                     0);
    assert_string_equal(p.master_addr, "fe80::2%eth0"); /* as in URLs */
    assert_int_equal(READ(&p, &err, FOUR), 0);
    assert_int_equal(p.master_port, 29500);
    assert_false(p.agent_store);
    assert_int_equal(READ(&p, &err, FOUR, "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "MUSTER_ROUND=3",
                          "TORCHELASTIC_RESTART_COUNT=2", "TORCHELASTIC_USE_AGENT_STORE=True"),
                     0);
    assert_int_equal(p.local_rank, 0);
    assert_int_equal(p.local_size, 2);
    assert_int_equal(p.round, 3);
    assert_int_equal(p.restarts, 2);
    assert_true(p.agent_store);
    assert_int_equal(READ(&p, &err, FOUR, "TORCHELASTIC_USE_AGENT_STORE=true"), 0);
    assert_false(p.agent_store); /* torch's spelling only */
}

static void a_range_of_nodes_is_elastic(void **state)
{
    (void)state;
    static const struct {
        const char *own, *torchrun;
        bool elastic;
    } worlds[] = {
        {"MUSTER_NNODES=2:4", "X=", true},
        {"MUSTER_NNODES=2:2", "X=", false},
        {"MUSTER_NNODES=2:2", "PET_NNODES=1:4", false}, /* a flag of muster run comes first */
        {"X=", "PET_NNODES=1:4", true},
        {"X=", "PET_NNODES=4", false},
        {"X=", "PET_NNODES=4:1", false},
        {"X=", "PET_NNODES=some:1", false},
        {"X=", "X=", false},
    };
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        struct world_place p;
        struct muster_error err = {0};
        assert_int_equal(READ(&p, &err, FOUR, worlds[i].own, worlds[i].torchrun), 0);
        assert_int_equal(p.elastic, worlds[i].elastic);
    }
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    struct world_place p = {.rank = 77};
    struct muster_error err = {0};
    assert_int_equal(READ(&p, &err, "RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=host"), -1);
    assert_int_equal(err.code, MUSTER_E_INVALID);
    assert_non_null(strstr(err.text, "MASTER_PORT is not"));
    assert_int_equal(READ(&p, &err, "MASTER_PORT=1"), -1);
    const struct {
        const char *entry, *says;
    } wrong[] = {
        {"RANK=4", "RANK is '4'"},
        {"RANK=-1", "RANK is '-1'"},
        {"RANK=one", "RANK is 'one'"},
        {"WORLD_SIZE=0", "WORLD_SIZE is '0'"},
        {"WORLD_SIZE=99999999999", "WORLD_SIZE is '99999999999'"},
        {"MASTER_PORT=65536", "MASTER_PORT is '65536'"},
        {"MASTER_PORT=http", "MASTER_PORT is 'http'"},
        {"LOCAL_WORLD_SIZE=5", "LOCAL_WORLD_SIZE is '5'"},
        {"LOCAL_RANK=4", "LOCAL_RANK is '4'"},
        {"MUSTER_ROUND=x", "MUSTER_ROUND is 'x'"},
        {"MUSTER_NNODES=4", "MUSTER_NNODES is '4', but must be MIN:MAX"},
        {"MUSTER_NNODES=4:2", "MUSTER_NNODES is '4:2'"},
        {"MUSTER_NNODES=2:x", "MUSTER_NNODES is '2:x'"},
        {"TORCHELASTIC_RESTART_COUNT=-2", "TORCHELASTIC_RESTART_COUNT is '-2'"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(READ(&p, &err, wrong[i].entry, FOUR), -1); /* the first entry of a name counts */
        assert_int_equal(err.code, MUSTER_E_INVALID);
        assert_non_null(strstr(err.text, wrong[i].says));
    }
    assert_int_equal(p.rank, 77); /* nothing was written */
}

/* Every incomplete set of a launcher's variables: a world of one, or an error that names a variable; never a
 * place that is half filled. */
static void every_part_of_a_launchers_variables(void **state)
{
    (void)state;
    static const char *const families[][6] = {
        {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=7", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1"},
        {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
         "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=x"},
        {"MV2_COMM_WORLD_RANK=1", "MV2_COMM_WORLD_SIZE=2", "MV2_COMM_WORLD_LOCAL_RANK=1",
         "MV2_COMM_WORLD_LOCAL_SIZE=2", "MASTER_PORT=7"},
        {"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "MASTER_PORT=7"},
        {"PMI_RANK=1", "PMI_SIZE=2", "PMI_LOCAL_RANK=1", "PMI_LOCAL_SIZE=2", "MASTER_PORT=7"},
        {"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=1", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0",
         "SLURM_NODEID=0"},
    };
    for (size_t family = 0; family < sizeof families / sizeof *families; family++) {
        for (unsigned set = 0; set < 64; set++) {
            const char *variables[7] = {NULL}; /* the last one ends the list */
            size_t count = 0;
            for (unsigned i = 0; i < 6; i++)
                if (set >> i & 1 && families[family][i])
                    variables[count++] = families[family][i];
            struct world_place p = {.rank = 77};
            struct muster_error err = {0};
            const int result = world_place_read(from_list, variables, &p, &err);
            const bool both = (set & 3) == 3;
            if (result ? p.rank != 77 || err.code != MUSTER_E_INVALID || !err.text[0]
                       : p.rank >= p.size || p.local_rank >= p.local_size || (p.size > 1) != both)
                fail_msg("family %zu, set %u: %d, rank %d of %d, '%s'", family, set, result, p.rank, p.size,
                         err.text);
        }
    }
}

static void doubts_of_a_world_of_one(void **state)
{
    (void)state;
    static const struct {
        const char *variables[4], *says;
    } rows[] = {
        {{"HOME=/"}, ""},
        {{"SLURM_NTASKS=1", "SLURM_PROCID=0"}, ""},
        {{"SLURM_NTASKS=4", "SLURM_PROCID=0"}, "SLURM_NTASKS is 4, but srun has not started"},
        {{"SLURM_NTASKS=4", "SLURM_STEP_NUM_TASKS=1"}, ""},
        {{"JOB_COMPLETION_INDEX=1"}, "JOB_COMPLETION_INDEX is 1, but no launcher"},
        {{"PET_NPROC_PER_NODE=auto"}, "PET_NPROC_PER_NODE is 'auto', but no launcher"},
        {{"PET_NPROC_PER_NODE=1"}, ""},
        {{"PET_NPROC_PER_NODE=gpu", "LOCAL_RANK=0"}, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char note[WORLD_ALONE_NOTE];
        world_alone_note(from_list, (void *)rows[i].variables, note);
        if (*rows[i].says ? strncmp(note, rows[i].says, strlen(rows[i].says)) != 0 : note[0])
            fail_msg("row %zu: '%s'", i, note);
    }
}

/* Each row: variables; then the result, or the name in the error. */
#define OMPI(rank) "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1"
#define SLURM                                                                                                \
    "SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=5", "SLURM_LOCALID=0", "SLURM_JOB_ID=77", "SLURM_STEP_ID=0"
static const struct {
    const char *variables[12];
    int rank, size, local_rank, local_size, port; /* port -1: derived */
    const char *address, *error;
} others[] = {
    {{OMPI("3"), "OMPI_COMM_WORLD_LOCAL_SIZE=4", "PMIX_NAMESPACE=prterun-a-1@1"},
     3,
     4,
     1,
     4,
     -1,
     "127.0.0.1",
     NULL},
    {{OMPI("3"), "OMPI_COMM_WORLD_LOCAL_SIZE=2", "MASTER_ADDR=n0", "MASTER_PORT=7"},
     3,
     4,
     1,
     2,
     7,
     "n0",
     NULL},
    {{OMPI("3"), "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=x"},
     .error =
         "OMPI_COMM_WORLD_RANK is 3 of 4 ranks (Open MPI), but MASTER_ADDR is not set and cannot be "
         "derived: give all ranks the address of the host of rank 0, such as `mpirun -x MASTER_ADDR=host0`"},
    {{OMPI("3"), "OMPI_COMM_WORLD_LOCAL_SIZE=4"}, .error = "MASTER_PORT is not set"},
    {{OMPI("4")}, .error = "OMPI_COMM_WORLD_RANK is '4'"},
    {{OMPI("0"), "OMPI_COMM_WORLD_LOCAL_SIZE=5"}, .error = "OMPI_COMM_WORLD_LOCAL_SIZE is '5'"},
    {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"}, 0, 1, 0, 1, 0, "", NULL},
    {{OMPI("3"), FOUR}, 1, 4, 1, 4, 29500, "host", NULL}, /* a launcher inside of a launcher: ours */
    {{OMPI("3"), "RANK=1"}, .error = "RANK is set, but"},
    {{"MV2_COMM_WORLD_RANK=1", "MV2_COMM_WORLD_SIZE=2", "MV2_COMM_WORLD_LOCAL_RANK=1",
      "MV2_COMM_WORLD_LOCAL_SIZE=2", "MASTER_PORT=9"},
     1,
     2,
     1,
     2,
     9,
     "127.0.0.1",
     NULL},
    {{"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "MASTER_PORT=9"},
     1,
     2,
     1,
     2,
     9,
     "127.0.0.1",
     NULL},
    {{"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"},
     .error = "PMI_RANK is 1 of 2 ranks (MPICH), but MASTER_PORT is not set and cannot be derived: give all "
              "ranks the "
              "same free port, such as `mpiexec -genv MASTER_PORT 29500`"},
    {{"PMI_RANK=1", "PMI_SIZE=2", "MASTER_PORT=9"}, .error = "MASTER_ADDR is not set"}, /* on which nodes? */
    {{"PMI_RANK=1", "PMI_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=9"}, 1, 2, 1, 2, 9, "h", NULL},
    {{"PMI_RANK=1", "PMI_SIZE=4", "PMI_LOCAL_RANK=0", "PMI_LOCAL_SIZE=1", "MASTER_ADDR=h", "MASTER_PORT=9"},
     1,
     4,
     0,
     1,
     9,
     "h",
     NULL},
    {{SLURM, "SLURM_NODEID=2", "SLURM_STEP_TASKS_PER_NODE=2,1(x3)", "SLURM_STEP_NODELIST=n[07-10]"},
     3,
     5,
     0,
     1,
     -1,
     "n07",
     NULL},
    {{SLURM, "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=5"}, 3, 5, 0, 5, -1, "127.0.0.1", NULL},
    {{SLURM, "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=2(x", "SLURM_JOB_NODELIST=n"},
     .error = "SLURM_STEP_TASKS_PER_NODE: '2(x'"},
    {{SLURM, "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=6"}, .error = "more tasks than the 5"},
    {{SLURM, "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=1,4", "SLURM_STEP_NODELIST=n["},
     .error = "the list of nodes: 'n['"},
    {{SLURM, "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=1,4"},
     .error = "`srun --export=ALL,MASTER_ADDR=host0`"},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_JOB_ID=77"},
     0,
     1,
     0,
     1,
     0,
     "",
     NULL}, /* a batch script */
    /* Hydra started through srun: Slurm knows the proxy of each node. */
    {{"PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "MASTER_ADDR=h", "MASTER_PORT=9",
      "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=0"},
     3,
     4,
     1,
     2,
     9,
     "h",
     NULL},
    /* srun --mpi=pmi2 */
    {{SLURM, "PMI_RANK=3", "PMI_SIZE=5", "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=5"},
     3,
     5,
     0,
     5,
     -1,
     "127.0.0.1",
     NULL},
    /* A launcher's variables in part. */
    {{"OMPI_COMM_WORLD_SIZE=2"}, .error = "OMPI_COMM_WORLD_SIZE is set, but OMPI_COMM_WORLD_RANK is not"},
    {{"OMPI_COMM_WORLD_RANK=1"}, .error = "OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE is not"},
    {{"PMI_RANK=1", "MPI_LOCALRANKID=1"}, .error = "PMI_RANK is set, but PMI_SIZE is not"},
    {{"PMI_SIZE=2"}, .error = "PMI_SIZE is set, but PMI_RANK is not"},
    {{"MV2_COMM_WORLD_SIZE=2"}, .error = "MV2_COMM_WORLD_RANK is not"},
    {{"SLURM_STEP_NUM_TASKS=2"}, .error = "SLURM_STEP_NUM_TASKS is set, but SLURM_PROCID is not"},
    /* A pod's own command, where torchrun's variables are for the launcher that is not there. */
    {{"PET_NNODES=2"}, .error = "PET_NNODES is '2', but no launcher has started this process"},
    {{"PET_NNODES=2", "PET_NODE_RANK=1", "MASTER_ADDR=h"}, .error = "`muster run muster-train CONFIG`"},
    {{"PET_NNODES=1:4"}, .error = "PET_NNODES is '1:4'"},
    {{"PET_NNODES=two"}, .error = "PET_NNODES is 'two'"},
    {{"PET_NPROC_PER_NODE=8"}, .error = "PET_NPROC_PER_NODE is '8'"},
    {{"PET_NNODES=2", "PET_NPROC_PER_NODE=4", FOUR}, .error = "one of several processes of this node"},
    {{"PET_NNODES=1", "PET_NPROC_PER_NODE=1"}, 0, 1, 0, 1, 0, "", NULL},
    {{"PET_NNODES=1:1", "PET_NPROC_PER_NODE=auto"}, 0, 1, 0, 1, 0, "", NULL},
    {{"PET_NNODES=4", "PET_NPROC_PER_NODE=1", FOUR}, 1, 4, 1, 4, 29500, "host", NULL}, /* a PyTorchJob's pod
                                                                                        */
    {{"PET_NNODES=2", "PET_NPROC_PER_NODE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", FOUR},
     1,
     4,
     1,
     2,
     29500,
     "host",
     NULL}, /* a worker of `muster run` */
    {{OMPI("3"), "OMPI_COMM_WORLD_LOCAL_SIZE=4", "PMIX_NAMESPACE=x", "PET_NNODES=2"},
     3,
     4,
     1,
     4,
     -1,
     "127.0.0.1",
     NULL},
};

static void other_launchers_are_understood(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct world_place p = {.rank = 77}, again;
        struct muster_error err = {0};
        int result = world_place_read(from_list, (void *)others[i].variables, &p, &err);
        if (others[i].error) {
            if (!result || err.code != MUSTER_E_INVALID || !strstr(err.text, others[i].error) || p.rank != 77)
                fail_msg("row %zu: %d, '%s'", i, result, err.text);
            continue;
        }
        bool derived = others[i].port < 0;
        if (result || p.rank != others[i].rank || p.size != others[i].size ||
            p.local_rank != others[i].local_rank || p.local_size != others[i].local_size ||
            strcmp(p.master_addr, others[i].address) != 0 ||
            (derived ? p.master_port < 20000 || p.master_port >= 30000 : p.master_port != others[i].port))
            fail_msg("row %zu: rank %d of %d, %d of %d here, at '%s' port %u; '%s'", i, p.rank, p.size,
                     p.local_rank, p.local_size, p.master_addr, p.master_port, err.text);
        assert_int_equal(world_place_read(from_list, (void *)others[i].variables, &again, &err), 0);
        assert_int_equal(again.master_port, p.master_port);
    }
    struct world_place one, two; /* two jobs on one machine */
    assert_int_equal(READ(&one, NULL, OMPI("0"), "OMPI_COMM_WORLD_LOCAL_SIZE=4", "PMIX_NAMESPACE=a@1"), 0);
    assert_int_equal(READ(&two, NULL, OMPI("0"), "OMPI_COMM_WORLD_LOCAL_SIZE=4", "PMIX_NAMESPACE=b@1"), 0);
    assert_int_not_equal(one.master_port, two.master_port);
}

/* ---- worlds ---- */

static const char *no_variable(void *context, const char *name)
{
    (void)context, (void)name;
    return NULL;
}

static void a_world_of_one(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct muster_world_options options = {.size = sizeof options, .get_environment = no_variable};
    struct muster_world *world = muster_world_open(&options, &err);
    assert_non_null(world);
    assert_int_equal(muster_world_size(world), 1);
    assert_int_equal(muster_world_rank(world), 0);
    assert_int_equal(muster_world_local_rank(world), 0);
    assert_int_equal(muster_world_local_size(world), 1);
    assert_int_equal(muster_world_elastic(world), 0);
    assert_int_equal(muster_world_barrier(world, &err), 0);
    assert_null(world_store(world));
    muster_world_close(&world);
    assert_null(world);
    muster_world_close(&world);
    muster_world_close(NULL);
    options.size = 3;
    assert_null(muster_world_open(&options, &err));
    assert_int_equal(err.code, MUSTER_E_INVALID);
    assert_true(strlen(muster_version()) > 0);
}

struct job {
    int port, restarts;
    bool agent;
};

static struct muster_world *open_rank(int rank, int size, const struct job *job, struct muster_error *err)
{
    struct test_environment e = test_environment_of(rank, size, job->port, job->agent, job->restarts);
    return test_environment_open(&e, 60000, err);
}

/* Barriers, the store, and a comm over it, twice under the same key. */
static int live(int rank, int size, void *context)
{
    struct job *job = context;
    struct muster_error err = {0};
    struct muster_world *world = open_rank(rank, size, job, &err);
    int result = world ? 0 : -1, value = rank;
    for (int i = 0; !result && i < 3; i++)
        result = muster_world_barrier(world, &err);
    for (int i = 0; !result && i < 2; i++) {
        struct test_rank r;
        result = test_rank_open(&r, rank, size, TEST_TIMEOUT_NS, world_store(world));
        if (!result) {
            const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_I32, .count = 1};
            result = test_rank_do(&r, r.comm, &op, &value, &value, &err);
        }
        test_rank_close(&r);
    }
    if (!result && value != size * size * (size - 1) / 2)
        result = -1;
    if (result)
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
    muster_world_close(&world);
    return result;
}

static void rank_zero_serves(void **state)
{
    (void)state;
    struct job job = {.port = test_free_port()};
    assert_int_equal(rank_threads_run(3, live, &job), 0);
    job.restarts = 1;
    assert_int_equal(rank_threads_run(2, live, &job), 0); /* the port is free again */
}

static void an_agent_serves(void **state)
{
    (void)state;
    struct muster_error err = {0};
    const struct tcpstore_server_options options = {.address = "127.0.0.1"};
    struct tcpstore_server *server = NULL;
    assert_int_equal(tcpstore_server_start(&options, &server, &err), 0);
    struct job job = {.port = tcpstore_server_port(server), .agent = true};
    assert_int_equal(rank_threads_run(3, live, &job), 0);
    job.restarts = 1; /* the same key space, as torchrun keeps it: keys of the attempt before do not hurt */
    assert_int_equal(rank_threads_run(2, live, &job), 0);
    /* A port that is taken names who serves. */
    struct test_environment e = test_environment_of(0, 2, job.port, false, 0);
    assert_null(test_environment_open(&e, 1000, &err));
    assert_non_null(strstr(err.text, "MASTER_PORT"));
    tcpstore_server_destroy(server);
}

enum { MANY = 300000 }; /* more than a piece holds */

/* The ranks' values after both reductions and the broadcast from rank 1. */
static int count_wrong(const double *values, int count, int size, int more)
{
    int wrong = 0;
    for (int i = 0; i < count; i++)
        wrong += values[i] != size * i + size * (size - 1) / 2 + more;
    return wrong;
}

static int exchange_values(struct muster_world *world, double *values, int count, struct muster_error *err)
{
    int rank = muster_world_rank(world), size = muster_world_size(world), wrong = 0;
    for (int i = 0; i < count; i++)
        values[i] = rank + i;
    if (muster_world_reduce(world, values, count, MUSTER_SUM, err))
        return -1;
    wrong += count_wrong(values, count, size, 0);
    for (int i = 0; i < count; i++)
        values[i] += rank == 2 ? 3 : -rank;
    if (muster_world_reduce(world, values, count, MUSTER_MAX, err))
        return -1;
    wrong += count_wrong(values, count, size, 3);
    for (int i = 0; i < count; i++)
        values[i] += rank == 1 ? 7 : -1;
    if (muster_world_broadcast(world, values, count * (int64_t)sizeof *values, 1, err))
        return -1;
    return wrong + count_wrong(values, count, size, 10);
}

static int exchange(int rank, int size, void *context)
{
    struct job *job = context;
    struct muster_error err = {0}, later = {0};
    struct muster_world *world = open_rank(rank, size, job, &err);
    double *values = calloc(MANY, sizeof *values);
    int wrong = world && values ? 0 : -1;
    static const int counts[] = {1, 0, 3, MANY};
    for (size_t i = 0; !wrong && i < sizeof counts / sizeof *counts; i++)
        wrong = exchange_values(world, values, counts[i], &err);
    if (wrong)
        fprintf(stderr, "rank %d: %d values are wrong: %s\n", rank, wrong, err.text);
    /* Another count on one rank is an error on all of them, and stays one. */
    if (!wrong && (!muster_world_reduce(world, values, rank == 1 ? 3 : 2, MUSTER_SUM, &err) ||
                   !muster_world_reduce(world, values, 2, MUSTER_SUM, &later) || err.code != MUSTER_E_PEER ||
                   later.code != MUSTER_E_PEER)) {
        fprintf(stderr, "rank %d: calls that differ gave: %s; then %s\n", rank, err.text, later.text);
        wrong = -1;
    }
    free(values);
    muster_world_close(&world);
    return wrong;
}

static void values_are_reduced_and_broadcast(void **state)
{
    (void)state;
    struct job job = {.port = test_free_port()};
    assert_int_equal(rank_threads_run(3, exchange, &job), 0);
}

/* Five ranks: even and odd ranks, turned round; then the even ranks again by halves. */
static int split_worlds(int rank, int size, void *context)
{
    struct job *job = context;
    struct muster_error err = {0};
    struct muster_world *world = open_rank(rank, size, job, &err);
    struct muster_world *part = world ? muster_world_split(world, rank % 2, -rank, &err) : NULL;
    struct muster_world *half = part ? muster_world_split(part, muster_world_rank(part) / 2, 0, &err) : NULL;
    const int members = (size + !(rank % 2)) / 2, place = (size - 1 - rank) / 2;
    double value[3] = {rank, 1, rank};
    int wrong = !half;
    if (half) {
        wrong += muster_world_size(part) != members || muster_world_rank(part) != place;
        wrong += muster_world_local_size(part) != members || muster_world_local_rank(part) != place;
        wrong += muster_world_size(half) != (place / 2 * 2 + 2 <= members ? 2 : 1);
        wrong += muster_world_reduce(part, value, 1, MUSTER_SUM, &err) || value[0] != (rank % 2 ? 4 : 6);
        wrong +=
            muster_world_reduce(half, value + 1, 1, MUSTER_SUM, &err) || value[1] != muster_world_size(half);
        wrong +=
            muster_world_broadcast(part, value + 2, sizeof *value, members - 1, &err) || value[2] != rank % 2;
        wrong += muster_world_barrier(part, &err) || muster_world_agree(half, 0, &err);
    }
    if (wrong)
        fprintf(stderr, "rank %d: %d things are wrong: %s\n", rank, wrong, err.text);
    muster_world_close(&half);
    muster_world_close(&part);
    if (!wrong &&
        (muster_world_reduce(world, value, 0, MUSTER_SUM, &err) || muster_world_barrier(world, &err)))
        wrong = fprintf(stderr, "rank %d, after the parts: %s\n", rank, err.text);
    muster_world_close(&world);
    return wrong;
}

static void a_world_is_split_by_color_and_key(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct job job = {.port = test_free_port()};
    assert_int_equal(rank_threads_run(5, split_worlds, &job), 0);
    assert_null(muster_world_split(NULL, 0, 0, &err));
    assert_int_equal(err.code, MUSTER_E_INVALID);
}

/* The last rank waits, in vain at first, until rank 0 has ended its work. */
static int wait_for_the_end(int rank, int size, void *context)
{
    struct job *job = context;
    struct muster_error err = {0};
    struct muster_world *world = open_rank(rank, size, job, &err);
    int wrong = !world;
    if (world && rank == size - 1)
        wrong += muster_world_ended(world, NS_PER_MS, &err) != 0;
    wrong += !world || muster_world_barrier(world, &err);
    if (world && rank == 0)
        wrong += muster_world_end(world, &err) != 0;
    else if (world)
        wrong += muster_world_ended(world, 20 * NS_PER_S, &err) != 1;
    if (wrong)
        fprintf(stderr, "rank %d: %d things are wrong: %s\n", rank, wrong, err.text);
    muster_world_close(&world);
    return wrong;
}

static void ranks_without_work_wait_for_its_end(void **state)
{
    (void)state;
    struct job job = {.port = test_free_port()};
    assert_int_equal(rank_threads_run(3, wait_for_the_end, &job), 0);
    assert_int_equal(muster_world_end(NULL, NULL), 0);
    assert_int_equal(muster_world_ended(NULL, 0, NULL), 1);
}

/* If ranks meet the same error, each in its own words, one rank prints it; another error has its own rank
 * own. */
static int fail_alike(int rank, int size, void *context)
{
    struct job *job = context;
    struct muster_error err = {0}, same = {MUSTER_E_INVALID, "no file x"}, other = {MUSTER_E_INVALID, ""};
    struct muster_world *world = open_rank(rank, size, job, &err);
    if (rank)
        (void)snprintf(same.text, sizeof same.text, "rank 0 cannot go on: %sno file x",
                       rank == 2 ? "rank 1 cannot go on: " : "");
    (void)snprintf(other.text, sizeof other.text, "rank %d is not right", rank);
    double prints[2] = {world ? muster_fatal(world, &same) : -1, world ? muster_fatal(world, &other) : -1};
    int result = world ? muster_world_reduce(world, prints, 2, MUSTER_SUM, &err) : -1;
    if (!result && (prints[0] != 1 || prints[1] != size))
        result = fprintf(stderr, "rank %d: %.0f and %.0f ranks print\n", rank, prints[0], prints[1]);
    muster_world_close(&world);
    return result;
}

static void one_rank_prints_what_all_met(void **state)
{
    (void)state;
    struct job job = {.port = test_free_port()};
    assert_int_equal(rank_threads_run(3, fail_alike, &job), 0);
}

/* Rank 0 is slow to print an error that the others know without its reason: none of them ends before. */
struct printing {
    int port;
    atomic_bool printed;
};

static int fail_after_it_is_printed(int rank, int size, void *context)
{
    struct printing *p = context;
    struct muster_error err = {0};
    struct muster_world *world = open_rank(rank, size, &(struct job){.port = p->port}, &err);
    if (!world)
        return -1;
    if (!rank) {
        clock_sleep_until(instant_add(clock_now(NULL), 200 * NS_PER_MS));
        atomic_store(&p->printed, true);
    }
    muster_fatal_meet(world, 60 * NS_PER_S);
    const bool early = !atomic_load(&p->printed);
    if (early)
        fprintf(stderr, "rank %d did not wait\n", rank);
    const int result = muster_world_barrier(world, &err) < 0 || early ? -1 : 0; /* rank 0 serves the store */
    muster_world_close(&world);
    return result;
}

static void no_rank_ends_before_all_have_printed(void **state)
{
    (void)state;
    struct printing p = {.port = test_free_port()};
    assert_int_equal(rank_threads_run(3, fail_after_it_is_printed, &p), 0);
}

/* A restart may mend rank 2's error: it waits for none, and the waiting ranks have to count it. */
static int fail_where_one_waits_for_none(int rank, int size, void *context)
{
    struct printing *p = context;
    struct muster_error err = {0};
    struct muster_world *world = open_rank(rank, size, &(struct job){.port = p->port}, &err);
    if (!world)
        return -1;
    const struct instant limit = instant_add(clock_now(NULL), 60 * NS_PER_S);
    while (rank != 2 && !atomic_load(&p->printed) && !instant_reached(clock_now(NULL), limit))
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
    muster_fatal_meet(world, rank == 2 ? 0 : 600 * NS_PER_S);
    int result = 0;
    if (rank == 2)
        atomic_store(&p->printed, true);
    else if (!atomic_load(&p->printed) ||
             instant_reached(clock_now(NULL), instant_add(limit, 240 * NS_PER_S)))
        result = fprintf(stderr, "rank %d: rank 2 has waited, or was waited for in vain\n", rank);
    if (muster_world_barrier(world, &err) < 0) /* rank 0 serves the store */
        result = -1;
    muster_world_close(&world);
    return result;
}

static void a_rank_that_waits_for_none_is_counted(void **state)
{
    (void)state;
    struct printing p = {.port = test_free_port()};
    assert_int_equal(rank_threads_run(3, fail_where_one_waits_for_none, &p), 0);
}

/* The other ranks have gone, or are far from failing. */
static void a_rank_that_fails_alone_waits_for_a_while(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct test_environment e = test_environment_of(0, 2, test_free_port(), false, 0);
    struct muster_world *world = test_environment_open(&e, 60000, &err);
    assert_non_null(world);
    muster_fatal_meet(world, 50 * NS_PER_MS);
    muster_world_close(&world);
    muster_fatal_meet(NULL, 60 * NS_PER_S);
}

static void alone_values_stay(void **state)
{
    (void)state;
    double value = 5;
    struct muster_error err = {0};
    assert_int_equal(muster_world_reduce(NULL, &value, 1, MUSTER_SUM, &err), 0);
    assert_int_equal(muster_world_broadcast(NULL, &value, sizeof value, 0, &err), 0);
    assert_true(value == 5);
    assert_int_equal(muster_world_reduce(NULL, &value, 1, 9, &err), -1);
    assert_non_null(strstr(err.text, "reduction is 9"));
    assert_int_equal(muster_world_reduce(NULL, NULL, 1, MUSTER_MAX, &err), -1);
    assert_int_equal(muster_world_reduce(NULL, &value, -1, MUSTER_MAX, &err), -1);
    assert_int_equal(muster_world_broadcast(NULL, &value, sizeof value, 1, &err), -1);
    assert_non_null(strstr(err.text, "root is 1"));
}

static void a_missing_rank_is_counted(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct test_environment e = test_environment_of(0, 3, test_free_port(), false, 0);
    struct muster_world *world = test_environment_open(&e, 200, &err);
    assert_non_null(world);
    assert_int_equal(muster_world_barrier(world, &err), -1);
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
    assert_non_null(strstr(err.text, "2 of 3 ranks are missing"));
    muster_world_close(&world);
    /* Nobody serves. */
    e = test_environment_of(1, 3, test_free_port(), false, 0);
    assert_null(test_environment_open(&e, 200, &err));
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
}

static int open_alone(void *context)
{
    struct muster_world_options options = {.size = sizeof options, .get_environment = no_variable};
    struct muster_world *world = muster_world_open(&options, context);
    int result = world ? 0 : -1;
    muster_world_close(&world);
    return result;
}

static void failed_allocations_leak_nothing(void **state)
{
    (void)state;
    struct muster_error err;
    faults_sweep(open_alone, &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers_are_understood),
        cmocka_unit_test(a_range_of_nodes_is_elastic),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(other_launchers_are_understood),
        cmocka_unit_test(every_part_of_a_launchers_variables),
        cmocka_unit_test(doubts_of_a_world_of_one),
        cmocka_unit_test(a_world_of_one),
        cmocka_unit_test(rank_zero_serves),
        cmocka_unit_test(an_agent_serves),
        cmocka_unit_test(values_are_reduced_and_broadcast),
        cmocka_unit_test(a_world_is_split_by_color_and_key),
        cmocka_unit_test(ranks_without_work_wait_for_its_end),
        cmocka_unit_test(one_rank_prints_what_all_met),
        cmocka_unit_test(no_rank_ends_before_all_have_printed),
        cmocka_unit_test(a_rank_that_waits_for_none_is_counted),
        cmocka_unit_test(a_rank_that_fails_alone_waits_for_a_while),
        cmocka_unit_test(alone_values_stay),
        cmocka_unit_test(a_missing_rank_is_counted),
        cmocka_unit_test(failed_allocations_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
