/* launcher_config_workers_test.c - what settings mean for the workers of this node: GPUs, muster launch, what
 * is taken and changes nothing; and what muster env prints of it all. */
#include "launcher/config/config.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "tests/support/cmocka_all.h"
#include "tests/unit/launcher/launcher_config_support.h"

static const struct machine no_gpu = {.cores = 4};
static const struct machine one_gpu = {.cores = 4, .gpus = 1};
static const struct machine two_instances = {.cores = 4, .gpus = 2, .mig = 2, .gpus_named = true};
static const struct machine mute_driver = {.cores = 4, .gpus_unknown = "NVML did not answer"};

/* the line, the machine; part of the warning, NULL for none; whether NVML must be asked */
static const struct {
    const char *line, *variables;
    const struct machine *machine;
    const char *warning;
    bool wants;
} gpu_rows[] = {
    {"--nproc-per-node=2 x.py", "", &no_gpu, NULL, false},
    {"x.py", "", &one_gpu, NULL, false},
    {"--nproc-per-node=2 x.py", "", &two_gpus, NULL, false},
    {"--nproc-per-node=cpu x.py", "", &no_gpu, NULL, false},
    {"--nproc-per-node=auto x.py", "", &no_gpu, NULL, true},
    {"--nproc-per-node=gpu x.py", "", &two_gpus, NULL, true},
    {"--numa-binding=node x.py", "", &no_gpu, NULL, true},
    {"--nproc-per-node=3 x.py", "", &two_gpus,
     "--nproc-per-node: 3 workers, but 2 GPUs are visible here: some share one", true},
    {"x.py", "PET_NPROC_PER_NODE=2", &one_gpu,
     "PET_NPROC_PER_NODE: 2 workers, but 1 GPU is visible here: some share one", true},
    {"x.py", "", &two_gpus,
     "2 GPUs are visible here, but one worker is started; --nproc-per-node=gpu starts one", true},
    {"x.py", "PET_NPROC_PER_NODE=1", &two_gpus, "2 GPUs are visible here, but one worker is started", true},
    {"--nproc-per-node=1 x.py", "", &two_gpus, NULL, false},
    {"--nproc-per-node=gpu x.py", "", &two_instances, "2 of the visible GPUs are MIG instances", true},
    {"--nproc-per-node=gpu --virtual-local-rank x.py", "", &two_instances, NULL, true},
    {"--nproc-per-node=auto x.py", "", &mute_driver, "NVML did not answer; GPUs were counted in /dev", true},
};

static void gpus_are_asked_for_and_warned_of_where_it_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof gpu_rows / sizeof *gpu_rows; i++) {
        struct parsed *p = parse_on(gpu_rows[i].line, gpu_rows[i].variables, gpu_rows[i].machine);
        assert_parsed(p);
        print_message("%s\n", gpu_rows[i].line);
        if (gpu_rows[i].warning)
            assert_non_null(strstr(p->config.warnings ? p->config.warnings : "", gpu_rows[i].warning));
        else
            assert_null(p->config.warnings);
        config_free(&p->config);
        p = parse_on(gpu_rows[i].line, gpu_rows[i].variables, gpu_rows[i].machine);
        struct run_config unresolved = p->config; /* the number of workers as it was before config_resolve */
        if (strspn(unresolved.nproc, "0123456789") != strlen(unresolved.nproc))
            unresolved.nproc_per_node = 0;
        assert_int_equal(config_wants_gpus(&unresolved, gpu_rows[i].machine), gpu_rows[i].wants);
        config_free(&p->config);
    }
}

static void gpu_without_gpus_says_why(void **state)
{
    (void)state;
    struct parsed *p = parse_on("--nproc-per-node=gpu x.py", "", &mute_driver);
    assert_int_equal(p->result, -1);
    assert_string_equal(p->err.text,
                        "--nproc-per-node: gpu, but no NVIDIA GPU is visible here: NVML did not answer; "
                        "give a number, cpu or auto");
    config_free(&p->config);
}

static void ranks_that_no_worker_has_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *line, *warned, *not_warned;
    } rows[] = {
        {"--nproc=2 --redirects=0:1,2:3 x.py",
         "--redirects: '0:1,2:3' names local rank 2, and this node's last one is 1", "no worker"},
        {"--nproc=2 --tee=7:1,0:2 x.py", "--tee: '7:1,0:2' names local rank 7", "no worker"},
        {"--nproc=2 --local-ranks-filter=0,2 x.py", "--local-ranks-filter: '0,2' names local rank 2",
         "no worker"},
        {"--nproc=2 --local-ranks-filter=2 x.py", "--local-ranks-filter: '2' shows the output of no worker",
         NULL},
        {"--nproc=2 --redirects=3 --tee=3 --local-ranks-filter=0,1 x.py", NULL, "local rank"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse(rows[i].line, "");
        assert_parsed(p);
        const char *warned = p->config.warnings ? p->config.warnings : "";
        assert_true(!rows[i].warned || strstr(warned, rows[i].warned));
        assert_true(!rows[i].not_warned || !strstr(warned, rows[i].not_warned));
        config_free(&p->config);
    }
}

static void a_virtual_local_rank_needs_an_entry_for_each(void **state)
{
    (void)state;
    static const struct {
        const char *variables, *error; /* NULL: good */
    } rows[] = {
        {"", NULL},
        {"CUDA_VISIBLE_DEVICES=4,5,6", NULL},
        {"CUDA_VISIBLE_DEVICES=4,5", NULL},
        {"CUDA_VISIBLE_DEVICES=4",
         "--virtual-local-rank: 2 workers, but CUDA_VISIBLE_DEVICES='4' has 1 entries"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse("--nproc-per-node=2 --virtual-local-rank x.py", rows[i].variables);
        if (rows[i].error) {
            assert_int_equal(p->result, -1);
            assert_string_equal(p->err.text, rows[i].error);
        } else {
            assert_parsed(p);
        }
        config_free(&p->config);
    }
}

static void launch_is_the_older_module(void **state)
{
    (void)state;
    static const struct {
        const char *line, *variables, *error; /* NULL: good */
    } rows[] = {
        {"x.py", "", NULL},
        {"--use-env x.py", "", NULL},
        {"--use_env --no-python x", "", NULL},
        {"-m x", "", NULL},
        {"--no-python x", "",
         "--no-python needs --use-env: without it --local-rank is added to the program's arguments, which "
         "only a "
         "Python script expects"},
        {"x", "PET_NO_PYTHON=1",
         "PET_NO_PYTHON needs --use-env: without it --local-rank is added to the program's arguments, which "
         "only a "
         "Python script expects"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = parse_as(COMMAND_LAUNCH, rows[i].line, rows[i].variables, &four_cores);
        if (rows[i].error) {
            assert_int_equal(p->result, -1);
            assert_string_equal(p->err.text, rows[i].error);
        } else {
            assert_parsed(p);
        }
        config_free(&p->config);
    }
}

static void what_changes_nothing_is_taken_and_said_once(void **state)
{
    (void)state;
    struct parsed *p = parse("--monitor-interval=5 --monitor-interval=1 x.py", "PET_START_METHOD=fork");
    assert_parsed(p);
    assert_string_equal(
        p->config.notes,
        "--monitor-interval has no effect: the end of a worker is detected at once, without polling\n"
        "PET_START_METHOD has no effect: workers are programs of their own, not started by Python\n"
        "from the environment: PET_START_METHOD=fork");
    config_free(&p->config);
}

static void binding_without_gpus_takes_the_nodes_in_turn(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct parsed *p = parse_on("--nproc-per-node=2 --numa-binding=node x.py", "", &no_gpu);
    assert_parsed(p);
    if (config_binding_resolve(&p->config, &no_gpu, "/nonexistent", &err) <
        0) /* a kernel without NUMA: one node */
        fail_msg("%s", err.text);
    assert_non_null(p->config.cpus);
    assert_true(numa_mask_count(&p->config.cpus[0]) >= 1);
    assert_memory_equal(&p->config.cpus[0], &p->config.cpus[1], sizeof p->config.cpus[0]);
    assert_non_null(
        strstr(p->config.notes, "no GPU is visible: the workers are bound to 1 NUMA node in turn"));
    config_free(&p->config);
}

static void binding_that_cannot_be_is_final(void **state)
{
    (void)state;
    static const struct machine unnamed = {.cores = 4, .gpus = 2, .gpus_unknown = "NVML did not answer"};
    static const struct machine named = {
        .cores = 4, .gpus = 2, .gpus_named = true, .gpu_bus = {"0000:3a:00.0", "0000:3b:00.0"}};
    static const struct {
        const char *line;
        const struct machine *machine;
        const char *error;
    } rows[] = {
        {"--nproc-per-node=2 --numa-binding=node x.py", &unnamed,
         "--numa-binding: NVML did not report the GPUs' NUMA nodes: NVML did not answer"},
        {"--nproc-per-node=3 --numa-binding=node x.py", &named,
         "--numa-binding: 3 workers, but 2 GPUs to bind them by"},
        {"--nproc-per-node=2 --numa-binding=socket x.py", &named,
         "--numa-binding: the NUMA node of the GPU at 0000:3a:00.0: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct muster_error err = {0};
        struct parsed *p = parse_on(rows[i].line, "", rows[i].machine);
        assert_parsed(p);
        assert_int_equal(config_binding_resolve(&p->config, rows[i].machine, "/nonexistent", &err), -1);
        assert_memory_equal(err.text, rows[i].error, strlen(rows[i].error));
        config_free(&p->config);
    }
}

static void every_setting_is_printed_with_its_source(void **state)
{
    (void)state;
    struct parsed *p = parse_as(COMMAND_ENV, "--tee=3", "PET_NNODES=3", &worker_one);
    assert_parsed(p);
    scope_buffer out = {0};
    assert_int_equal(config_print(&p->config, &worker_one, NULL, &out), 0);
    static const char *const lines[] = {
        "\nnnodes                     3                            PET_NNODES\n",
        "\nnode-rank                  1                            the host name pt-worker-1\n",
        "\nmaster-addr                pt-worker-0                  the host name pt-worker-1\n",
        "\ntee                        3                            --tee\n",
        "\nrole                       default                      default\n",
        "\nmax_nodes                  3\n",
        "\nhost_name                  pt-worker-1\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(out.data, lines[i]))
            fail_msg("no line%sin:\n%s", lines[i], out.data);
    for (size_t i = 0; i < config_table()->count; i++) {
        const struct knob *knob = &config_table()->knobs[i];
        if (!knob->refused && strcmp(knob->name, "help"))
            assert_non_null(strstr(out.data, knob->name));
    }
    config_free(&p->config);
}

static void settings_as_json_have_types(void **state)
{
    (void)state;
    struct parsed *p = parse_as(COMMAND_ENV, "--output=json --max-restarts=2", "PET_NNODES=3", &worker_one);
    assert_parsed(p);
    scope_buffer out = {0};
    assert_int_equal(config_print(&p->config, &worker_one, NULL, &out), 0);
    static const char *const pieces[] = {
        "{\"name\": \"nnodes\", \"variable\": \"PET_NNODES\", \"value\": \"3\", \"source\": \"environment\", "
        "\"from\": "
        "\"PET_NNODES\"}",
        "{\"name\": \"node-rank\", \"variable\": \"PET_NODE_RANK\", \"value\": 1, \"source\": \"rule\", "
        "\"from\": \"the "
        "host name pt-worker-1\"}",
        "{\"name\": \"max-restarts\", \"variable\": \"PET_MAX_RESTARTS\", \"value\": 2, \"source\": "
        "\"flag\", \"from\": "
        "\"--max-restarts\"}",
        "{\"name\": \"log-dir\", \"variable\": \"PET_LOG_DIR\", \"value\": null, \"source\": \"default\", "
        "\"from\": "
        "\"default\"}",
        "\"node\": {\"host_name\": \"pt-worker-1\", \"min_nodes\": 3, \"max_nodes\": 3, \"workers\": 1, "
        "\"cores\": 4, "
        "\"gpus\": 0, \"mig_instances\": 0, \"python\": \"python3\"}",
        "\"warnings\": []",
    };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        if (!strstr(out.data, pieces[i]))
            fail_msg("no %s in:\n%s", pieces[i], out.data);
    config_free(&p->config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_are_asked_for_and_warned_of_where_it_counts),
        cmocka_unit_test(gpu_without_gpus_says_why),
        cmocka_unit_test(ranks_that_no_worker_has_are_named),
        cmocka_unit_test(a_virtual_local_rank_needs_an_entry_for_each),
        cmocka_unit_test(launch_is_the_older_module),
        cmocka_unit_test(what_changes_nothing_is_taken_and_said_once),
        cmocka_unit_test(binding_without_gpus_takes_the_nodes_in_turn),
        cmocka_unit_test(binding_that_cannot_be_is_final),
        cmocka_unit_test(every_setting_is_printed_with_its_source),
        cmocka_unit_test(settings_as_json_have_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
