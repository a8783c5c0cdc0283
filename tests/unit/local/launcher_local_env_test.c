/* launcher_local_env_test.c - a pod's view of this machine: names, environment, GPUs, interpreters. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/local/job/python_shim.h"
#include "launcher/local/run/cluster.h"
#include "launcher/local/run/pod_env.h"
#include "launcher/local/run/pod_process.h"
#include "proto/base/guard.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/folder.h"

/* Master and one worker of job j in namespace team. */
static char *no_entries[] = {NULL};
static char *command[] = {"muster",        "run",        "--rdzv-endpoint=j-worker-0:1234",
                          "--master_addr", "j-master-0", "--out=j-master-0",
                          "j-master-0",    NULL};

static struct local_pod pods[] = {
    {.name = "j-master-0",
     .hostname = "j-master-0",
     .address = "127.77.0.1",
     .env = no_entries,
     .command = command},
    {.name = "j-worker-0",
     .hostname = "node7",
     .address = "127.77.0.2",
     .type = LOCAL_WORKER,
     .env = no_entries,
     .command = command},
};
static const struct local_job job = {
    .name = "j", .namespace_ = "team", .pods = pods, .pod_count = 2, .port = 23456};

static void hosts_file(void **state)
{
    (void)state;
    scope_buffer out = {0};
    assert_int_equal(pod_env_hosts(&job, 0, "127.0.0.1 localhost\n", &out), 0);
    assert_string_equal(out.data, "127.77.0.1 j-master-0 j-master-0.team j-master-0.team.svc "
                                  "j-master-0.team.svc.cluster.local\n"
                                  "127.77.0.2 j-worker-0 j-worker-0.team j-worker-0.team.svc "
                                  "j-worker-0.team.svc.cluster.local node7\n"
                                  "127.0.0.1 localhost\n");
}

static void assert_numeric(const char *address, const char *expected)
{
    scope_free char *numeric = NULL;
    assert_int_equal(pod_env_numeric(&job, address, &numeric), 0);
    if (expected)
        assert_string_equal(numeric, expected);
    else
        assert_null(numeric);
}

static void names_into_addresses(void **state)
{
    (void)state;
    assert_numeric("j-master-0", "127.77.0.1");
    assert_numeric("j-worker-0:29400", "127.77.0.2:29400");
    assert_numeric("j-worker-0.team.svc:1", "127.77.0.2:1");
    assert_numeric("j-master-0:1,j-worker-0.team,other:2", "127.77.0.1:1,127.77.0.2,other:2");
    assert_numeric("other,j-worker-0:2", "other,127.77.0.2:2");
    assert_numeric("other,,", NULL);
    assert_numeric("j-worker-01", NULL);
    assert_numeric("worker-0", NULL);
    assert_numeric("", NULL);
    assert_numeric("etcd.example:2379", NULL);
}

static void assert_value(const struct text_list *env, const char *name, const char *expected)
{
    const char *value = text_list_value(env->items, name);
    if (expected && !value)
        fail_msg("%s is not set", name);
    if (expected)
        assert_string_equal(value, expected);
    else
        assert_null(value);
}

static void environment_of_a_pod(void **state)
{
    (void)state;
    static char *const inherited[] = {"PATH=/bin",
                                      "HOME=/h",
                                      "RANK=5",
                                      "PET_NNODES=9",
                                      "SLURM_NODEID=1",
                                      "odd",
                                      "MASTER_PORT=1",
                                      "RANKS=x",
                                      "A=outer",
                                      "TORCHELASTIC_RUN_ID=z",
                                      "MUSTER_AGENT_ID=outer",
                                      "MUSTER_ROUND=3",
                                      "MUSTER_METRICS_ADDR=127.0.0.1",
                                      NULL};
    static char *own[] = {"A=inner",
                          "MASTER_ADDR=j-master-0",
                          "RANK=1",
                          "PET_RDZV_ENDPOINT=j-worker-0:7",
                          "MUSTER_BIND_ADDR=0.0.0.0",
                          NULL};
    struct pod_env_place place = {.job = &job,
                                  .pod = 1,
                                  .inherited = inherited,
                                  .agent_ids = "outer,r,p",
                                  .gpus = "2,3",
                                  .front = "/front dir",
                                  .named = true};
    scope_text_list named = {0}, numbered = {0};
    pods[1].env = own;
    assert_int_equal(pod_env_build(&place, &named), 0);
    assert_value(&named, "PATH", "/front dir:/bin");
    assert_value(&named, "HOME", "/h");
    assert_value(&named, "RANKS", "x");
    assert_value(&named, "A", "inner");
    assert_value(&named, "RANK", "1");
    assert_value(&named, "PET_NNODES", NULL);
    assert_value(&named, "SLURM_NODEID", NULL);
    assert_value(&named, "MASTER_PORT", NULL);
    assert_value(&named, "TORCHELASTIC_RUN_ID", NULL);
    assert_value(&named, "MUSTER_ROUND", NULL);
    assert_value(&named, "MUSTER_AGENT_ID", "outer,r,p");
    assert_value(&named, "MASTER_ADDR", "j-master-0");
    assert_value(&named, "CUDA_VISIBLE_DEVICES", "2,3");
    assert_value(&named, "PET_LOCAL_ADDR", "127.77.0.2");
    assert_value(&named, "MUSTER_METRICS_ADDR", "127.77.0.2");
    assert_value(&named, "MUSTER_BIND_ADDR", "0.0.0.0");
    assert_value(&named, "HOSTNAME", "node7");
    assert_value(&named, "MUSTER_HOSTNAME", NULL);
    place.named = false;
    assert_int_equal(pod_env_build(&place, &numbered), 0);
    assert_value(&numbered, "MASTER_ADDR", "127.77.0.1");
    assert_value(&numbered, "PET_RDZV_ENDPOINT", "127.77.0.2:7");
    assert_value(&numbered, "MUSTER_HOSTNAME", "node7");
    pods[1].env = no_entries;
}

/* Workers alone find the first of them by its name, or by its address where names do not resolve. */
static void workers_without_a_master(void **state)
{
    (void)state;
    struct pod_env_place place = {.job = &job, .pod = 1, .agent_ids = "r,p", .gpus = ""};
    scope_text_list alone = {0}, with_master = {0};
    struct local_job led = job;
    assert_int_equal(pod_env_build(&place, &alone), 0);
    assert_value(&alone, "PET_MASTER_ADDR", "127.77.0.1");
    assert_value(&alone, "PET_MASTER_PORT", "23456");
    assert_value(&alone, "PET_NODE_RANK", "0");
    assert_value(&alone, "PET_LOCAL_ADDR", "127.77.0.2");
    led.replicas[LOCAL_MASTER].count = 1;
    place.job = &led;
    assert_int_equal(pod_env_build(&place, &with_master), 0);
    assert_value(&with_master, "PET_MASTER_ADDR", NULL);
}

/* A manifest may hide the GPUs from a pod and may say which address is its own. */
static void what_the_manifest_says_stays(void **state)
{
    (void)state;
    static char *own[] = {"CUDA_VISIBLE_DEVICES=", "PET_LOCAL_ADDR=10.0.0.1", NULL};
    static char *wants[] = {"CUDA_VISIBLE_DEVICES=0", NULL};
    struct pod_env_place place = {.job = &job, .agent_ids = "r,p", .gpus = "5", .named = true};
    scope_text_list env = {0}, other = {0};
    pods[0].env = own;
    assert_int_equal(pod_env_build(&place, &env), 0);
    assert_value(&env, "CUDA_VISIBLE_DEVICES", "");
    assert_value(&env, "PET_LOCAL_ADDR", "10.0.0.1");
    assert_value(&env, "PATH", NULL);
    pods[0].env = wants;
    assert_int_equal(pod_env_build(&place, &other), 0);
    assert_value(&other, "CUDA_VISIBLE_DEVICES", "5"); /* its first GPU */
    pods[0].env = no_entries;
}

static void command_of_a_pod(void **state)
{
    (void)state;
    struct pod_env_place place = {.job = &job, .named = true};
    scope_text_list named = {0}, numbered = {0};
    assert_int_equal(pod_env_command(&place, &named), 0);
    for (size_t i = 0; command[i]; i++)
        assert_string_equal(named.items[i], command[i]);
    place.named = false;
    assert_int_equal(pod_env_command(&place, &numbered), 0);
    static const char *const expected[] = {"muster",        "run",        "--rdzv-endpoint=127.77.0.2:1234",
                                           "--master_addr", "127.77.0.1", "--out=j-master-0",
                                           "j-master-0"};
    assert_int_equal(numbered.count, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < numbered.count; i++)
        assert_string_equal(numbered.items[i], expected[i]);
}

/* --- GPUs --- */

static int divide(int first, int second, const char *visible, int available, bool shortage,
                  const char *expected)
{
    struct muster_error err = {0};
    scope_text_list out = {0};
    scope_buffer seen = {0};
    pods[0].gpus = first;
    pods[1].gpus = second;
    int result = gpu_divide(&job, visible, available, shortage, &out, &err);
    if (result == 0) {
        assert_int_equal(out.count, 2);
        buffer_printf(&seen, "%s|%s", out.items[0], out.items[1]);
        assert_string_equal(seen.data, expected);
    } else {
        assert_int_equal(err.code, MUSTER_E_LIMIT);
        assert_non_null(strstr(err.text, expected));
    }
    return result;
}

static void gpus_are_divided(void **state)
{
    (void)state;
    assert_int_equal(divide(2, 2, NULL, 4, false, "0,1|2,3"), 0);
    assert_int_equal(divide(0, 1, NULL, 8, false, "|0"), 0);
    assert_int_equal(divide(0, 0, NULL, 0, false, "|"), 0);
    assert_int_equal(gpu_wanted(&job), 0);
    assert_int_equal(divide(1, 2, "7,GPU-ab,3", 3, false, "7|GPU-ab,3"), 0);
    assert_int_equal(divide(4, 4, NULL, 4, false, "request 8 GPUs and this machine has 4"), -1);
    assert_int_equal(divide(1, 1, "3", 1, false, "request 2 GPUs and this machine has 1"), -1);
    assert_int_equal(divide(2, 2, NULL, 3, true, "0,1|2"), 0);
    assert_int_equal(divide(2, 2, "", 0, true, "|"), 0);
    /* a spare is not counted and gets the rest */
    struct local_job elastic = job;
    scope_text_list out = {0};
    elastic.pod_count = elastic.spare_count = 1;
    pods[0].gpus = pods[1].gpus = 2;
    assert_int_equal(gpu_wanted(&elastic), 2);
    assert_int_equal(gpu_divide(&elastic, NULL, 3, false, &out, NULL), 0);
    assert_int_equal(out.count, 2);
    assert_string_equal(out.items[0], "0,1");
    assert_string_equal(out.items[1], "2");
    pods[0].gpus = pods[1].gpus = 0;
}

/* --- python --- */

static void assert_module(const char *expected, int rest, int argc, char *const argv[])
{
    int at = -1;
    const char *module = python_shim_module(argc, argv, &at);
    if (!expected) {
        assert_null(module);
        return;
    }
    assert_non_null(module);
    assert_string_equal(module, expected);
    assert_int_equal(at, rest);
}
#define ASSERT_MODULE(expected, rest, ...)                                                                   \
    do {                                                                                                     \
        char *line[] = {"python3", __VA_ARGS__, NULL};                                                       \
        assert_module(expected, rest, (int)(sizeof line / sizeof *line) - 1, line);                          \
    } while (0)

static void interpreter_command_lines(void **state)
{
    (void)state;
    ASSERT_MODULE("torch.distributed.run", 3, "-m", "torch.distributed.run", "--nnodes=2", "x.py");
    ASSERT_MODULE("torch.distributed.run", 2, "-mtorch.distributed.run", "x.py");
    ASSERT_MODULE("torch.distributed.run", 4, "-u", "-Om", "torch.distributed.run", "x.py");
    ASSERT_MODULE("m", 6, "-W", "ignore", "-Xdev", "-m", "m", "x");
    ASSERT_MODULE("m", 5, "-uW", "-m", "-Im", "m", "x", "y");
    ASSERT_MODULE("m", 4, "--check-hash-based-pycs", "always", "-mm");
    ASSERT_MODULE(NULL, 0, "x.py", "-m", "torch.distributed.run");
    ASSERT_MODULE(NULL, 0, "-c", "import x", "-m", "torch.distributed.run");
    ASSERT_MODULE(NULL, 0, "-", "-m", "m");
    ASSERT_MODULE(NULL, 0, "--", "-m", "m");
    ASSERT_MODULE(NULL, 0, "--version");
    ASSERT_MODULE(NULL, 0, "-m");
    ASSERT_MODULE(NULL, 0, "-W");
    assert_string_equal(python_shim_subcommand("torch.distributed.run"), "run");
    assert_string_equal(python_shim_subcommand("torch.distributed.launch"), "launch");
    assert_null(python_shim_subcommand("torch.distributed.runner"));
    assert_true(python_shim_is_name("python"));
    assert_true(python_shim_is_name("python3"));
    assert_true(python_shim_is_name("python3.11"));
    assert_false(python_shim_is_name("python-config"));
    assert_false(python_shim_is_name("muster"));
}

/* Links to this very program are recognized; a file that is not executable is no interpreter. */
static void next_interpreter(void **state)
{
    (void)state;
    char folder[FOLDER_PATH], path[200], own[200], mine[100], dead[100], real[100];
    assert_int_equal(folder_make(folder, "shim"), 0);
    (void)snprintf(mine, sizeof mine, "%s/a", folder);
    (void)snprintf(dead, sizeof dead, "%s/b", folder);
    (void)snprintf(real, sizeof real, "%s/c", folder);
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    assert_true(length > 0);
    own[length] = '\0';
    (void)snprintf(path, sizeof path, "%s/python3", mine);
    assert_int_equal(mkdir(mine, 0755) | mkdir(dead, 0755) | mkdir(real, 0755) | symlink(own, path), 0);
    (void)snprintf(path, sizeof path, "%s/python3", dead);
    assert_int_equal(mkdir(path, 0755), 0); /* a folder */
    (void)snprintf(path, sizeof path, "%s/python3", real);
    assert_int_equal(symlink("/bin/sh", path), 0);
    char search[400];
    (void)snprintf(search, sizeof search, "%s:%s:%s", mine, dead, real);
    scope_free char *found = python_shim_find("python3", search);
    assert_string_equal(found, path);
    assert_null(python_shim_find("python3", mine));
    /* a program earlier in PATH may be a caller of ours */
    char front[100], other[200];
    (void)snprintf(front, sizeof front, "%s/d", folder);
    (void)snprintf(other, sizeof other, "%s/python3", front);
    assert_int_equal(mkdir(front, 0755) | symlink("/bin/sh", other), 0);
    (void)snprintf(search, sizeof search, "%s:%s:%s", front, mine, real);
    scope_free char *behind = python_shim_find("python3", search);
    assert_string_equal(behind, path);
    (void)snprintf(search, sizeof search, "%s:%s", front, mine);
    scope_free char *before = python_shim_find("python3", search);
    assert_string_equal(before, other);
    assert_int_equal(unlink(other) | rmdir(front), 0);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof path, "%s/python3", dead);
    assert_int_equal(rmdir(path), 0);
    (void)snprintf(path, sizeof path, "%s/python3", mine);
    assert_int_equal(unlink(path) | rmdir(mine) | rmdir(dead) | rmdir(real) | rmdir(folder), 0);
}

/* --- memory --- */

static int build_everything(void *context)
{
    (void)context;
    static char *const inherited[] = {"PATH=/bin", "A=1", NULL};
    struct pod_env_place place = {
        .job = &job, .inherited = inherited, .agent_ids = "r,p", .gpus = "5", .front = "/f"};
    scope_text_list env = {0}, argv = {0}, gpus = {0};
    scope_buffer hosts = {0};
    int failed = pod_env_build(&place, &env) < 0 || pod_env_command(&place, &argv) < 0 ||
                 pod_env_hosts(&job, 0, "127.0.0.1 localhost\n", &hosts) < 0 ||
                 gpu_divide(&job, NULL, 2, false, &gpus, NULL) < 0;
    return failed ? -1 : 0;
}

static void without_memory(void **state)
{
    (void)state;
    static char *own[] = {"MASTER_ADDR=j-worker-0", NULL};
    pods[0].env = own;
    faults_sweep(build_everything, NULL);
    pods[0].env = no_entries;
}

/* --- the table at the end --- */

static void table_of_pods(void **state)
{
    (void)state;
    struct lifecycle_pod ends[] = {
        {.state = POD_SUCCEEDED, .has_code = true, .first_start = {0}, .last_end = {12500 * NS_PER_MS}},
        {.state = POD_ABSENT,
         .has_code = true,
         .exit_code = 137,
         .restarts = 2,
         .recreated = 1,
         .first_start = {NS_PER_S},
         .last_end = {2 * NS_PER_S}},
    };
    struct lifecycle life = {.job = &job, .pods = ends, .pod_count = 2, .state = JOB_SUCCEEDED};
    scope_buffer out = {0};
    conditions_set(&life.conditions, CONDITION_RUNNING, true, "PyTorchJobRunning");
    conditions_set(&life.conditions, CONDITION_SUCCEEDED, true, "PyTorchJobSucceeded");
    assert_int_equal(pod_table_format(&life, (struct instant){20 * NS_PER_S}, &out), 0);
    assert_string_equal(out.data,
                        "pod         end            exit code       restarts  recreated    seconds\n"
                        "j-master-0  succeeded      0                      0          0       12.5\n"
                        "j-worker-0  deleted        137 (SIGKILL)          2          1        1.0\n"
                        "job j: Succeeded\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_file),
        cmocka_unit_test(names_into_addresses),
        cmocka_unit_test(environment_of_a_pod),
        cmocka_unit_test(workers_without_a_master),
        cmocka_unit_test(what_the_manifest_says_stays),
        cmocka_unit_test(command_of_a_pod),
        cmocka_unit_test(gpus_are_divided),
        cmocka_unit_test(interpreter_command_lines),
        cmocka_unit_test(next_interpreter),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(table_of_pods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
