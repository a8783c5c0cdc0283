/* launcher_place_test.c - the place of a node where flags do not say it: what Kubernetes' operators, Indexed
 * Jobs and Slurm put into pods and steps, and variables that must not be mistaken for it. */
#include "launcher/config/node_identity.h"
#include "launcher/host/machine.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/fake_environment.h"

#define OLD  "RANK=0 WORLD_SIZE=3 MASTER_ADDR=pt-master-0 MASTER_PORT=23456"
#define STEP "SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=77 SLURM_STEP_ID=3 "

/* The known values (nodes, master, port), the environment and the names; the place, "-" for none: source,
 * nodes, rank, master, port. */
static const struct {
    const char *what;
    int nodes;
    const char *master;
    int port;
    const char *variables, *host, *full;
    const char *source;
    int found_nodes, rank;
    const char *found_master;
    int found_port;
} rows[] = {
    /* jobs of workers only, PyTorchJob since 1.8: PET_NNODES alone is there */
    {"worker 0", 3, NULL, -1, "", "pt-worker-0", "", "the host name pt-worker-0", 0, 0, "pt-worker-0", 23456},
    {"worker 2", 3, NULL, -1, "", "pt-worker-2", "", "the host name pt-worker-2", 0, 2, "pt-worker-0", 23456},
    {"many", 12, NULL, -1, "", "a-worker-b-worker-11", "", "the host name a-worker-b-worker-11", 0, 11,
     "a-worker-b-worker-0", 23456},
    {"full name", 3, NULL, -1, "", "pt-worker-2.ns.svc", "", "the host name pt-worker-2.ns.svc", 0, 2,
     "pt-worker-0.ns.svc", 23456},
    {"dots", 3, NULL, -1, "", "my.job-worker-1", "", "the host name my.job-worker-1", 0, 1, "my.job-worker-0",
     23456},
    {"dots and a domain", 3, "my-master-0.ns", 1, "", "my-worker-1.ns-1", "",
     "the host name my-worker-1.ns-1", 0, 2, "", 0},
    {"own port", 3, NULL, 1234, "", "pt-worker-1", "", "the host name pt-worker-1", 0, 1, "pt-worker-0", 0},
    {"own master", 3, "pt-worker-0", -1, "", "pt-worker-1", "", "the host name pt-worker-1", 0, 1, "", 23456},
    /* a Master that is named makes worker i node i + 1 */
    {"master said", 3, "pt-master-0", 23456, "", "pt-worker-1", "", "the host name pt-worker-1", 0, 2, "", 0},
    {"master's own", 3, "pt-master-0", 23456, "", "pt-master-0", "", "the host name pt-master-0", 0, 0, "",
     0},
    {"by variable", 3, NULL, -1, "MASTER_ADDR=pt-master-0 MASTER_PORT=99", "pt-worker-1", "",
     "the host name pt-worker-1", 0, 2, "pt-master-0", 99},
    {"localhost", 3, NULL, -1, "MASTER_ADDR=localhost MASTER_PORT=99", "pt-master-0", "",
     "the host name pt-master-0", 0, 0, "pt-master-0", 99},
    {"other master", 3, "10.0.0.1", 1, "", "pt-worker-1", "", "-", 0, 0, "", 0},
    /* names that are no pod's, and worlds of one node */
    {"one node", 1, NULL, -1, "", "pt-worker-2", "", "-", 0, 0, "", 0},
    {"not said", 0, NULL, -1, "", "pt-worker-2", "", "-", 0, 0, "", 0},
    {"no number", 3, NULL, -1, "", "pt-worker-", "", "-", 0, 0, "", 0},
    {"no job", 3, NULL, -1, "", "worker-1", "", "-", 0, 0, "", 0},
    {"no job", 3, NULL, -1, "", "-worker-1", "", "-", 0, 0, "", 0},
    {"other name", 3, NULL, -1, "", "gpu-node-1", "", "-", 0, 0, "", 0},
    {"big number", 3, NULL, -1, "", "pt-worker-99999999999999999999", "", "-", 0, 0, "", 0},
    {"empty", 3, NULL, -1, "", "", "", "-", 0, 0, "", 0},
    /* Indexed Jobs */
    {"index", 4, NULL, -1, "JOB_COMPLETION_INDEX=2", "job-2", "job-2.svc.ns.svc.cluster.local",
     "JOB_COMPLETION_INDEX", 0, 2, "job-0.svc.ns.svc.cluster.local", 0},
    {"index and name", 4, NULL, -1, "JOB_COMPLETION_INDEX=3", "job-3.svc", "", "JOB_COMPLETION_INDEX", 0, 3,
     "job-0.svc", 0},
    {"index and master", 4, "m", 7, "JOB_COMPLETION_INDEX=3", "elsewhere", "", "JOB_COMPLETION_INDEX", 0, 3,
     "", 0},
    {"before the name", 4, "m-worker-0", 7, "JOB_COMPLETION_INDEX=3", "m-worker-1", "",
     "JOB_COMPLETION_INDEX", 0, 3, "", 0},
    {"one node", 1, NULL, -1, "JOB_COMPLETION_INDEX=2", "job-2", "job-2.svc", "-", 0, 0, "", 0},
    {"no count", 0, NULL, -1, "JOB_COMPLETION_INDEX=2", "job-2", "job-2.svc", "-", 0, 0, "", 0},
    {"no number", 4, "m", 7, "JOB_COMPLETION_INDEX=x", "job-2", "", "-", 0, 0, "", 0},
    /* operators before 1.7: RANK and WORLD_SIZE in pods */
    {"old master", 0, NULL, -1, OLD, "pt-master-0", "",
     "RANK and WORLD_SIZE, pods by the host name pt-master-0", 3, 0, "pt-master-0", 23456},
    {"old worker", 0, NULL, -1, "RANK=2 WORLD_SIZE=3 MASTER_ADDR=pt-master-0 MASTER_PORT=8080", "pt-worker-1",
     "", "RANK and WORLD_SIZE, pods by the host name pt-worker-1", 3, 2, "pt-master-0", 8080},
    {"oldest master", 0, NULL, -1, "RANK=0 WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=23456",
     "pt-master-0", "", "RANK and WORLD_SIZE, pods by the host name pt-master-0", 3, 0, "pt-master-0", 23456},
    {"Volcano", 0, NULL, -1, "RANK=1 WORLD_SIZE=2 MASTER_ADDR=j-master-0.j MASTER_PORT=23456", "j-worker-0",
     "", "RANK and WORLD_SIZE, pods by the host name j-worker-0", 2, 1, "j-master-0.j", 23456},
    {"said", 1, NULL, -1, OLD, "pt-master-0", "", "-", 0, 0, "", 0},
    {"master said", 0, "m", -1, OLD, "pt-master-0", "", "-", 0, 0, "", 0},
    {"nested", 0, NULL, -1, OLD " TORCHELASTIC_RUN_ID=none", "pt-master-0", "", "-", 0, 0, "", 0},
    {"no pod", 0, NULL, -1, OLD, "laptop", "", "-", 0, 0, "", 0},
    {"another pod's", 0, NULL, -1, OLD, "pt-worker-0", "", "-", 0, 0, "", 0},
    {"three of four", 0, NULL, -1, "RANK=0 WORLD_SIZE=3 MASTER_ADDR=pt-master-0", "pt-master-0", "", "-", 0,
     0, "", 0},
    {"a rank too high", 0, NULL, -1, "RANK=3 WORLD_SIZE=3 MASTER_ADDR=m MASTER_PORT=1", "pt-worker-2", "",
     "-", 0, 0, "", 0},
    {"a bad port", 0, NULL, -1, "RANK=0 WORLD_SIZE=3 MASTER_ADDR=m MASTER_PORT=0", "pt-master-0", "", "-", 0,
     0, "", 0},
    /* Slurm */
    {"step", 0, NULL, -1, STEP "SLURM_STEP_NODELIST=n[01-02]", "n02", "", "Slurm", 2, 1, "n01", 20154},
    {"job's list", 0, NULL, -1, STEP "SLURM_JOB_NODELIST=a,b", "b", "", "Slurm", 2, 1, "a", 20154},
    {"count said", 2, NULL, -1, STEP "SLURM_STEP_NODELIST=a,b", "b", "", "Slurm", 0, 1, "a", 20154},
    {"address said", 2, "head", 29500, STEP "SLURM_STEP_NODELIST=a,b", "b", "", "Slurm", 0, 1, "", 0},
    {"its own name", 0, NULL, -1, STEP "SLURM_STEP_NODELIST=a,b SLURMD_NODENAME=b.local", "x", "", "Slurm", 2,
     1, "a", 20154},
    {"another's name", 0, NULL, -1, STEP "SLURM_STEP_NODELIST=a,b SLURMD_NODENAME=a", "x", "", "-", 0, 0, "",
     0},
    {"other count", 3, NULL, -1, STEP "SLURM_STEP_NODELIST=a,b", "b", "", "-", 0, 0, "", 0},
    {"one node said", 1, NULL, -1, STEP "SLURM_STEP_NODELIST=a,b", "b", "", "-", 0, 0, "", 0},
    {"other list", 0, NULL, -1, STEP "SLURM_STEP_NODELIST=a,b,c", "b", "", "-", 0, 0, "", 0},
    {"bad list", 0, NULL, -1, STEP "SLURM_STEP_NODELIST=a[", "b", "", "-", 0, 0, "", 0},
    {"no list", 0, NULL, -1, STEP, "b", "", "-", 0, 0, "", 0},
    {"nested", 0, NULL, -1, STEP "SLURM_STEP_NODELIST=a,b TORCHELASTIC_RUN_ID=x", "b", "", "-", 0, 0, "", 0},
    {"four tasks", 0, NULL, -1,
     "SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NODELIST=a,b", "b", "", "-", 0,
     0, "", 0},
    {"batch script", 0, NULL, -1, "SLURM_NODEID=0 SLURM_NNODES=2 SLURM_NTASKS=2 SLURM_JOB_NODELIST=a,b", "a",
     "", "-", 0, 0, "", 0},
    /* NODE_RANK alone */
    {"plain job", 2, NULL, -1, "NODE_RANK=1 MASTER_ADDR=head.svc MASTER_PORT=12355", "job-x7k2p", "",
     "NODE_RANK", 0, 1, "head.svc", 12355},
    {"plain job, address said", 2, "head", 7, "NODE_RANK=0 MASTER_ADDR=other MASTER_PORT=12355", "job-x7k2p",
     "", "NODE_RANK", 0, 0, "", 0},
    {"plain job, any port said", 2, "head", 0, "NODE_RANK=0 MASTER_PORT=12355", "job-x7k2p", "", "NODE_RANK",
     0, 0, "", 0},
    {"index and an address", 4, NULL, -1,
     "JOB_COMPLETION_INDEX=3 NODE_RANK=3 MASTER_ADDR=head.svc MASTER_PORT=12355", "job-x7k2p", "",
     "JOB_COMPLETION_INDEX and MASTER_ADDR", 0, 3, "head.svc", 12355},
    {"index, a service and an address", 4, NULL, -1, "JOB_COMPLETION_INDEX=3 MASTER_ADDR=other MASTER_PORT=1",
     "job-3.svc", "", "JOB_COMPLETION_INDEX", 0, 3, "job-0.svc", 0},
    {"after the index", 4, "m", 7, "JOB_COMPLETION_INDEX=3 NODE_RANK=1", "job-3", "", "JOB_COMPLETION_INDEX",
     0, 3, "", 0},
    {"plain job, no address", 2, NULL, -1, "NODE_RANK=1", "job-x7k2p", "", "-", 0, 0, "", 0},
    {"plain job, this host", 2, NULL, -1, "NODE_RANK=1 MASTER_ADDR=localhost", "job-x7k2p", "", "-", 0, 0, "",
     0},
    {"plain job, no count", 0, NULL, -1, "NODE_RANK=1 MASTER_ADDR=head", "job-x7k2p", "", "-", 0, 0, "", 0},
    {"plain job, out of range", 2, NULL, -1, "NODE_RANK=2 MASTER_ADDR=head", "job-x7k2p", "", "-", 0, 0, "",
     0},
    {"plain job, empty", 2, NULL, -1, "NODE_RANK= MASTER_ADDR=head", "job-x7k2p", "", "-", 0, 0, "", 0},
    {"nested plain job", 2, NULL, -1, "NODE_RANK=1 MASTER_ADDR=head TORCHELASTIC_RUN_ID=x", "job-x7k2p", "",
     "-", 0, 0, "", 0},
};

static void places(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct node_identity_known known = {
            rows[i].nodes,    rows[i].master,           rows[i].port, rows[i].host, rows[i].full,
            fake_environment, (void *)rows[i].variables};
        struct node_identity_found found;
        struct muster_error err = {0};
        print_message("%s on %s\n", rows[i].what, rows[i].host);
        if (node_identity_find(&known, &found, &err) < 0)
            fail_msg("%s", err.text);
        assert_string_equal(*found.source ? found.source : "-", rows[i].source);
        assert_int_equal(found.nodes, rows[i].found_nodes);
        assert_int_equal(found.node_rank, rows[i].rank);
        assert_string_equal(found.master_addr, rows[i].found_master);
        assert_int_equal(found.master_port, rows[i].found_port);
        assert_int_equal(err.code, MUSTER_OK);
    }
}

static void steps_of_slurm_are_jobs_of_their_own(void **state)
{
    (void)state;
    struct node_identity_known known = {
        0, NULL, -1, "b", "", fake_environment, STEP "SLURM_STEP_NODELIST=a,b"};
    struct node_identity_found found;
    assert_int_equal(node_identity_find(&known, &found, NULL), 0);
    assert_string_equal(found.job_id, "slurm-77.3");
}

static void an_index_without_a_domain_is_explained(void **state)
{
    (void)state;
    static const struct {
        const char *host, *full;
    } names[] = {{"job-2", ""}, {"job-3.svc", ""}, {"job.svc", ""}, {"job-2", "job-2"}, {"", ""}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct node_identity_known known = {
            4, NULL, -1, names[i].host, names[i].full, fake_environment, "JOB_COMPLETION_INDEX=2"};
        struct node_identity_found found;
        struct muster_error err = {0};
        assert_int_equal(node_identity_find(&known, &found, &err), -1);
        assert_non_null(strstr(err.text, "the address of node 0 is unknown"));
        assert_non_null(strstr(err.text, "subdomain"));
    }
}

static void full_names_from_a_hosts_file(void **state)
{
    (void)state;
    static const struct {
        const char *hosts, *host, *full;
    } files[] = {
        {"127.0.0.1\tlocalhost\n10.1.2.3\tjob-2.svc.ns.svc.cluster.local\tjob-2\n", "job-2",
         "job-2.svc.ns.svc.cluster.local"},
        {"10.1.2.3 job-2 job-2.svc # ours\n", "job-2", "job-2.svc"},
        {"# 10.1.2.3 job-2.svc job-2\n", "job-2", ""},
        {"10.1.2.3 job-2.svc\n", "job-2", ""},
        {"10.1.2.3 job-22.svc job-2", "job-2", ""},
        {"10.1.2.3 job-2", "job-2", ""},
        {"", "job-2", ""},
        {"10.1.2.3 .x ", "", ""},
        {"\n\n  \n1 j.a j", "j", "j.a"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char full[NODE_IDENTITY_HOST_SIZE];
        machine_full_name(files[i].hosts, files[i].host, full);
        assert_string_equal(full, files[i].full);
    }
}

/* The other pods' names, comma-separated; "" for none. */
static void names_of_siblings(void **state)
{
    (void)state;
    static const struct {
        const char *master, *host;
        int nodes, limit;
        const char *names;
        int own;
    } rows[] = {
        /* a PyTorchJob's pods */
        {"j-worker-0", "j-worker-2", 4, 7, "j-worker-1,j-worker-2,j-worker-3", 1},
        {"j-worker-0", "j-worker-0", 4, 7, "j-worker-1,j-worker-2,j-worker-3", -1},
        {"j-master-0", "j-worker-1", 3, 7, "j-worker-0,j-worker-1", 1},
        {"j-master-0", "j-master-0", 3, 7, "j-worker-0,j-worker-1", -1},
        {"j-master-0", "j-worker-0", 2, 7, "j-worker-0", 0},
        {"j-worker-0.ns.svc", "j-worker-1", 3, 7, "j-worker-1.ns.svc,j-worker-2.ns.svc", 0},
        {"j-worker-0", "j-worker-1.ns", 3, 7, "j-worker-1,j-worker-2", 0},
        {"my.job-worker-0", "my.job-worker-1", 2, 7, "my.job-worker-1", 0},
        {"j-worker-0", "j-worker-99", 100, 3, "j-worker-1,j-worker-2,j-worker-3", -1},
        {"j-worker-0", "j-worker-9", 3, 7, "j-worker-1,j-worker-2", -1}, /* a spare */
        {"j-worker-0", "k-worker-1", 3, 7, "", -1},
        {"j-worker-0", "jj-worker-1", 3, 7, "", -1},
        {"10.0.0.1", "j-worker-1", 3, 7, "", -1},
        {"fd00::1", "j-worker-1", 3, 7, "", -1},
        /* pods of a service */
        {"set-0.svc", "set-2", 3, 7, "set-1.svc,set-2.svc", 1},
        {"set-0.svc.ns.svc.cluster.local", "set-1.svc.ns.svc.cluster.local", 2, 7,
         "set-1.svc.ns.svc.cluster.local", 0},
        {"a-b-0.svc", "a-b-1", 2, 7, "a-b-1.svc", 0},
        {"set-0.svc", "other-1", 3, 7, "", -1},
        {"set-0.svc", "set", 3, 7, "", -1},
        {"set-0.svc", "set-x", 3, 7, "", -1},
        {"set-0", "set-1", 3, 7, "", -1},     /* hosts are named so, too */
        {"gpu-4.lab", "gpu-5", 3, 7, "", -1}, /* the same */
        {"node0", "node1", 3, 7, "", -1},
        {"localhost", "j-worker-1", 3, 7, "", -1},
        {"", "", 3, 7, "", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char names[7][NODE_IDENTITY_HOST_SIZE], joined[7 * NODE_IDENTITY_HOST_SIZE] = "";
        int own = 7;
        const int count =
            node_identity_siblings(rows[i].master, rows[i].host, rows[i].nodes, names, rows[i].limit, &own);
        for (int k = 0; k < count; k++) {
            (void)strcat(joined, k ? "," : "");
            (void)strcat(joined, names[k]);
        }
        assert_string_equal(joined, rows[i].names);
        assert_int_equal(own, rows[i].own);
    }
    char longest[NODE_IDENTITY_HOST_SIZE + 1] = "j-worker-0.", names[2][NODE_IDENTITY_HOST_SIZE];
    int own;
    memset(longest + 11, 'a', NODE_IDENTITY_HOST_SIZE - 11 - 1);
    assert_int_equal(node_identity_siblings(longest, "j-worker-1", 2, names, 2, &own), 1);
    longest[NODE_IDENTITY_HOST_SIZE - 1] = 'a';
    assert_int_equal(node_identity_siblings(longest, "j-worker-1", 2, names, 2, &own), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places),
        cmocka_unit_test(steps_of_slurm_are_jobs_of_their_own),
        cmocka_unit_test(an_index_without_a_domain_is_explained),
        cmocka_unit_test(full_names_from_a_hosts_file),
        cmocka_unit_test(names_of_siblings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
