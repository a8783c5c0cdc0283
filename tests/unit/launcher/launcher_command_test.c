/* launcher_command_test.c - a worker's argv and environment: torchrun's contract, the argument template,
 * --dry-run. */
#include "launcher/commands/commands.h"
#include "launcher/process/find_program.h"
#include "launcher/process/worker_command.h"
#include "proto/base/guard.h"
#include "proto/base/text_list.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

static char *arguments[] = {(char *)"--rank", (char *)"${local_rank}", NULL};

static struct run_config two_by_two(void)
{
    return (struct run_config){.program = "train.py",
                               .arguments = arguments,
                               .nproc_per_node = 2,
                               .min_nodes = 2,
                               .max_nodes = 2,
                               .node_rank = 1,
                               .max_restarts = 3,
                               .cores = 8,
                               .master_port = 29500,
                               .master_addr = (char *)"node0",
                               .role = (char *)"default",
                               .rdzv_id = (char *)"job"};
}

/* the second node of two with two workers each, first attempt */
static const struct membership_world second_node = {.group_rank = 1,
                                                    .group_world_size = 2,
                                                    .rank_base = 2,
                                                    .world_size = 4,
                                                    .role_rank_base = 2,
                                                    .role_world_size = 4,
                                                    .master_addr = "node0",
                                                    .master_port = 29501};

static const char *value(const struct worker_command *command, const char *name)
{
    const char *found = NULL;
    size_t length = strlen(name);
    for (char **entry = command->envp; *entry; entry++)
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=') {
            assert_null(found); /* no variable twice */
            found = *entry + length + 1;
        }
    return found;
}

static struct worker_command build(const struct run_config *config, char *const *inherited, int local_rank,
                                   const char *error_file)
{
    struct worker_command command;
    struct muster_error err = {0};
    if (worker_command_build(config, &second_node, local_rank, program_kind_of(config), inherited,
                             config->cores, "agent-1", error_file, &command, &err) < 0)
        fail_msg("%s", err.text);
    return command;
}

static void the_worked_example(void **state)
{
    (void)state;
    static const char *const expected[][2] = {
        {"RANK", "3"},
        {"LOCAL_RANK", "1"},
        {"WORLD_SIZE", "4"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"GROUP_RANK", "1"},
        {"GROUP_WORLD_SIZE", "2"},
        {"ROLE_RANK", "3"},
        {"ROLE_WORLD_SIZE", "4"},
        {"ROLE_NAME", "default"},
        {"MASTER_ADDR", "node0"},
        {"MASTER_PORT", "29501"},
        {"TORCHELASTIC_RESTART_COUNT", "0"},
        {"TORCHELASTIC_MAX_RESTARTS", "3"},
        {"TORCHELASTIC_RUN_ID", "job"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_ERROR_FILE", "/logs/1/error.json"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"OMP_NUM_THREADS", "4"},
        {"PYTHONUNBUFFERED", "1"},
        {"PYTHONFAULTHANDLER", "1"},
        {"MUSTER_AGENT_ID", "agent-1"},
        {"MUSTER_NNODES", "2:2"},
        {"MUSTER_ROUND", "0"},
        {"HOME", "/root"},
    };
    char *inherited[] = {(char *)"HOME=/root", (char *)"RANK=77", (char *)"MASTER_ADDR=old", NULL};
    struct run_config config = two_by_two();
    struct worker_command command = build(&config, inherited, 1, "/logs/1/error.json");
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const char *got = value(&command, expected[i][0]);
        assert_non_null(got);
        assert_string_equal(got, expected[i][1]);
    }
    assert_true(command.rank == 3 && command.local_rank == 1);
    worker_command_free(&command);
    config.worker_store = WORKER_STORE_WORKER;
    command = build(&config, inherited, 1, NULL);
    assert_string_equal(value(&command, "TORCHELASTIC_USE_AGENT_STORE"), "False");
    worker_command_free(&command);
    worker_command_free(&command); /* empty now */
}

static void what_the_user_set_stays(void **state)
{
    (void)state;
    char *inherited[] = {(char *)"OMP_NUM_THREADS=", (char *)"TORCH_NCCL_ASYNC_ERROR_HANDLING=0",
                         (char *)"PYTHONFAULTHANDLER=", (char *)"CUDA_VISIBLE_DEVICES=3", NULL};
    struct run_config config = two_by_two();
    struct worker_command command = build(&config, inherited, 0, NULL);
    assert_string_equal(value(&command, "OMP_NUM_THREADS"), "");
    assert_string_equal(value(&command, "TORCH_NCCL_ASYNC_ERROR_HANDLING"), "0");
    assert_string_equal(value(&command, "PYTHONFAULTHANDLER"), "");
    assert_string_equal(value(&command, "CUDA_VISIBLE_DEVICES"), "3");
    assert_string_equal(value(&command, "TORCHELASTIC_ERROR_FILE"), "");
    worker_command_free(&command);
}

static void threads_are_cores_by_workers(void **state)
{
    (void)state;
    struct run_config config = two_by_two();
    assert_int_equal(worker_command_omp_threads(&config, NULL, 9), 4);
    assert_int_equal(worker_command_omp_threads(&config, NULL, 1), 1);
    config.nproc_per_node = 1;
    assert_int_equal(worker_command_omp_threads(&config, NULL, 8), 0);
}

static void check_argv(const struct run_config *config, char *const *inherited, const char *const *expected)
{
    struct worker_command command = build(config, inherited, 1, NULL);
    size_t i = 0;
    for (; expected[i]; i++) {
        assert_non_null(command.argv[i]);
        assert_string_equal(command.argv[i], expected[i]);
    }
    assert_null(command.argv[i]);
    worker_command_free(&command);
}

static void how_programs_run(void **state)
{
    (void)state;
    char *python[] = {(char *)"PYTHON_EXEC=/opt/python", NULL};
    struct run_config config = two_by_two();
    check_argv(&config, NULL, (const char *const[]){"python3", "-u", "train.py", "--rank", "1", NULL});
    check_argv(&config, python, (const char *const[]){"/opt/python", "-u", "train.py", "--rank", "1", NULL});
    config.no_python = true;
    check_argv(&config, python, (const char *const[]){"train.py", "--rank", "1", NULL});
    config.no_python = false;
    config.module = true;
    config.program = "pkg.train";
    check_argv(&config, NULL, (const char *const[]){"python3", "-u", "-m", "pkg.train", "--rank", "1", NULL});
    config.module = false;
    config.program = "./trainer";
    check_argv(&config, NULL, (const char *const[]){"./trainer", "--rank", "1", NULL});
}

static void the_template(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"", ""},
        {"plain", "plain"},
        {"$local_rank", "5"},
        {"${local_rank}", "5"},
        {"a${local_rank}b$local_rank.log", "a5b5.log"},
        {"$local_ranks", "$local_ranks"},
        {"$local_rank_", "$local_rank_"},
        {"${local_rank", "${local_rank"},
        {"${other} $HOME $", "${other} $HOME $"},
        {"$$", "$"},
        {"$$local_rank", "$local_rank"},
        {"$$$local_rank", "$5"},
        {"100$$", "100$"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scope_free char *got = worker_command_argument(rows[i][0], 5);
        assert_string_equal(got, rows[i][1]);
    }
}

static void a_virtual_local_rank_gives_each_its_own_gpu(void **state)
{
    (void)state;
    static const struct {
        const char *inherited, *gpus[2]; /* inherited value; values of ranks 0 and 1 */
    } rows[] = {{NULL, {"0", "1"}},
                {"CUDA_VISIBLE_DEVICES=4,5,6", {"4", "5"}},
                {"CUDA_VISIBLE_DEVICES= GPU-a , MIG-b ", {"GPU-a", "MIG-b"}}};
    struct run_config config = two_by_two();
    config.virtual_local_rank = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *inherited[] = {(char *)rows[i].inherited, NULL};
        for (int local_rank = 0; local_rank < 2; local_rank++) {
            struct worker_command command = build(&config, inherited, local_rank, NULL);
            assert_string_equal(value(&command, "CUDA_VISIBLE_DEVICES"), rows[i].gpus[local_rank]);
            assert_string_equal(value(&command, "LOCAL_RANK"), "0");
            assert_string_equal(value(&command, "RANK"), local_rank ? "3" : "2");
            worker_command_free(&command);
        }
    }
}

static void launch_adds_the_local_rank_argument(void **state)
{
    (void)state;
    struct run_config config = two_by_two();
    config.command = COMMAND_LAUNCH;
    struct worker_command command = build(&config, NULL, 1, NULL);
    static const char *const expected[] = {"python3", "-u", "train.py", "--local-rank=1", "--rank", "1"};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_string_equal(command.argv[i], expected[i]);
    worker_command_free(&command);
    config.use_env = true;
    command = build(&config, NULL, 1, NULL);
    assert_string_equal(command.argv[3], "--rank");
    worker_command_free(&command);
}

static void a_dry_run_as_json_is_a_list_of_workers(void **state)
{
    (void)state;
    struct run_config config = two_by_two();
    struct numa_mask cpus[2] = {0};
    numa_mask_add(&cpus[0], 3);
    numa_mask_add(&cpus[1], 4);
    config.output = OUTPUT_JSON;
    config.cpus = cpus;
    scope_buffer out = {0};
    assert_int_equal(dry_run_print(&config, NULL, NULL, &out, NULL), 0);
    assert_memory_equal(out.data, "[{\"rank\": 2, \"local_rank\": 0, \"argv\": [\"python3\", \"-u\", ", 56);
    assert_non_null(strstr(out.data, "\"env\": {\"RANK\": \"2\", "));
    assert_non_null(strstr(out.data, "\"cpus\": \"3\"},\n {\"rank\": 3, "));
    assert_string_equal(out.data + out.length - 16, ", \"cpus\": \"4\"}]\n");
}

static void the_print_shows_what_differs(void **state)
{
    (void)state;
    char *argv[] = {(char *)"./a b", (char *)"it's", (char *)"", (char *)"--x=1", NULL};
    char *inherited[] = {(char *)"HOME=/root", NULL};
    char *envp[] = {(char *)"HOME=/root", (char *)"RANK=0", (char *)"EMPTY=", (char *)"ODD=a b", NULL};
    struct worker_command command = {.argv = argv, .envp = envp, .rank = 2};
    scope_buffer out = {0};
    assert_int_equal(worker_command_print(&command, inherited, &out), 0);
    assert_string_equal(out.data, "worker 2 (local rank 0)\n"
                                  "  './a b' 'it'\\''s' '' --x=1\n"
                                  "    RANK=0\n    EMPTY=''\n    ODD='a b'\n");
}

static void a_dry_run_shows_every_worker(void **state)
{
    (void)state;
    struct run_config config = two_by_two();
    scope_buffer out = {0};
    assert_int_equal(dry_run_print(&config, NULL, NULL, &out, NULL), 0);
    assert_non_null(strstr(out.data, "worker 2 (local rank 0)"));
    assert_non_null(strstr(out.data, "worker 3 (local rank 1)"));
    assert_non_null(strstr(out.data, "    WORLD_SIZE=4\n"));
    assert_non_null(strstr(out.data, "nothing was started"));
}

static const char *only_path(void *context, const char *name)
{
    return strcmp(name, "PATH") ? NULL : context;
}

/* Looks at the real file system: things that every Linux has. */
static void programs_are_found_before_anything_starts(void **state)
{
    (void)state;
    static const struct {
        const char *program;
        bool no_python;
        int exit_code; /* 0: can run */
        const char *error;
    } rows[] = {
        {"sh", false, 0, NULL},
        {"/bin/sh", true, 0, NULL},
        {"muster-no-such-program", false, 127, "'muster-no-such-program' was not found in PATH"},
        {"..", false, 126, "'..' is a folder, not a program"},
        {"/nonexistent/program", false, 127, "'/nonexistent/program' does not exist"},
        {"/etc/passwd/program", false, 127, "'/etc/passwd/program' does not exist"},
        {"/etc/passwd", true, 126,
         "'/etc/passwd' is not executable; a Python script's name ends in .py, anything else needs chmod +x"},
        {"/etc", false, 126, "'/etc' is a folder, not a program"},
        {"missing.py", true, 127, "'missing.py' was not found in PATH"},
        {"/nonexistent/missing.py", false, 127, "the script '/nonexistent/missing.py' does not exist"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        /* with sh for an interpreter the test needs no python3 */
        struct run_config config = {.program = rows[i].program, .no_python = rows[i].no_python};
        int exit_code = 0;
        struct muster_error err = {0};
        int result = find_program_check(&config, only_path, (void *)"/usr/bin:/bin", &exit_code, &err);
        if (rows[i].exit_code == 0) {
            assert_int_equal(result, 0);
            assert_int_equal(config.kind, PROGRAM_EXECUTABLE);
            continue;
        }
        assert_int_equal(result, -1);
        if (strstr(err.text, "the interpreter"))
            continue; /* no python3 here: 127 for that */
        assert_string_equal(err.text, rows[i].error);
        assert_int_equal(exit_code, rows[i].exit_code);
    }
}

/* A changed command equals the built command. */
static void changed_is_built(void **state)
{
    (void)state;
    char *inherited[] = {(char *)"HOME=/root", (char *)"RANK=9", (char *)"CUDA_VISIBLE_DEVICES=4,5", NULL};
    char *arguments[] = {(char *)"--rank=$local_rank", NULL};
    for (int virtual = 0; virtual < 2; virtual ++) {
        struct run_config config = two_by_two();
        config.virtual_local_rank = virtual;
        config.arguments = arguments;
        struct worker_command built = build(&config, inherited, 1, "/tmp/1"),
                              changed = build(&config, inherited, 0, "/tmp/0");
        struct muster_error err = {0};
        assert_int_equal(worker_command_change(&config, &second_node, 1, program_kind_of(&config), inherited,
                                               "/tmp/1", &changed, &err),
                         0);
        assert_int_equal(changed.rank, built.rank);
        assert_int_equal(changed.local_rank, built.local_rank);
        size_t i = 0;
        for (; built.envp[i]; i++)
            assert_string_equal(changed.envp[i], built.envp[i]);
        assert_null(changed.envp[i]);
        for (i = 0; built.argv[i]; i++)
            assert_string_equal(changed.argv[i], built.argv[i]);
        assert_null(changed.argv[i]);
        worker_command_free(&built);
        worker_command_free(&changed);
    }
}

/* A template is for all rounds: nothing of a world or a rank, except the variables of its workers in each
 * round. */
static void a_template_has_no_rank(void **state)
{
    (void)state;
    char *inherited[] = {(char *)"HOME=/root", (char *)"RANK=7", (char *)"MUSTER_SECRET_FILE=/s", NULL};
    struct run_config config = two_by_two();
    struct worker_command template, worker;
    assert_int_equal(worker_command_template(&config, PROGRAM_MODULE, inherited, 8, "id", &template, NULL),
                     0);
    assert_int_equal(worker_command_build(&config, &second_node, 0, PROGRAM_MODULE, inherited, 8, "id", NULL,
                                          &worker, NULL),
                     0);
    static const char *const absent[] = {"RANK",        "LOCAL_RANK", "WORLD_SIZE",   "MASTER_ADDR",
                                         "MASTER_PORT", "GROUP_RANK", "MUSTER_ROUND", "MUSTER_SECRET_FILE"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        assert_null(text_list_value(template.envp, absent[i]));
    static const char *const same[] = {"HOME", "OMP_NUM_THREADS", "MUSTER_AGENT_ID", "PYTHONUNBUFFERED",
                                       "TORCHELASTIC_RUN_ID"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_string_equal(text_list_value(template.envp, same[i]), text_list_value(worker.envp, same[i]));
    for (size_t i = 0; worker.argv[i]; i++)
        assert_string_equal(template.argv[i], worker.argv[i]);
    worker_command_free(&template);
    worker_command_free(&worker);
}

static int build_once(void *context)
{
    (void)context;
    char *inherited[] = {(char *)"HOME=/root", NULL};
    struct run_config config = two_by_two();
    struct worker_command command;
    int result = worker_command_build(&config, &second_node, 1, PROGRAM_MODULE, inherited, 8, "id", NULL,
                                      &command, NULL);
    if (result < 0)
        return result;
    result =
        worker_command_change(&config, &second_node, 0, PROGRAM_MODULE, inherited, "error", &command, NULL);
    worker_command_free(&command);
    if (result < 0)
        return result;
    result = worker_command_template(&config, PROGRAM_MODULE, inherited, 8, "id", &command, NULL);
    if (result == 0)
        worker_command_free(&command);
    return result;
}

static void no_memory_leaks_nothing(void **state)
{
    (void)state;
    faults_sweep(build_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worked_example),
        cmocka_unit_test(changed_is_built),
        cmocka_unit_test(what_the_user_set_stays),
        cmocka_unit_test(threads_are_cores_by_workers),
        cmocka_unit_test(how_programs_run),
        cmocka_unit_test(the_template),
        cmocka_unit_test(a_virtual_local_rank_gives_each_its_own_gpu),
        cmocka_unit_test(launch_adds_the_local_rank_argument),
        cmocka_unit_test(a_dry_run_as_json_is_a_list_of_workers),
        cmocka_unit_test(the_print_shows_what_differs),
        cmocka_unit_test(a_dry_run_shows_every_worker),
        cmocka_unit_test(programs_are_found_before_anything_starts),
        cmocka_unit_test(a_template_has_no_rank),
        cmocka_unit_test(no_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
