/* accelerate_test.c - accelerate's configuration file: which variables, settings and errors it becomes, and
 * the order of sources. */
#include <stdio.h>
#include <string.h>

#include "launcher/accelerate/accelerate_config.h"
#include "proto/base/guard.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/fake_environment.h"
#include "tests/support/faults.h"
#include "tests/unit/launcher/launcher_config_support.h"

/* As `accelerate config` writes it. */
static const char two_machines[] = "compute_environment: LOCAL_MACHINE\n"
                                   "debug: false\n"
                                   "distributed_type: MULTI_GPU\n"
                                   "downcast_bf16: 'no'\n"
                                   "enable_cpu_affinity: false\n"
                                   "gpu_ids: all\n"
                                   "machine_rank: 1\n"
                                   "main_process_ip: 10.0.0.1\n"
                                   "main_process_port: 29511\n"
                                   "main_training_function: main\n"
                                   "mixed_precision: bf16\n"
                                   "num_machines: 2\n"
                                   "num_processes: 16\n"
                                   "rdzv_backend: static\n"
                                   "same_network: true\n"
                                   "tpu_env: []\n"
                                   "tpu_use_cluster: false\n"
                                   "tpu_use_sudo: false\n"
                                   "use_cpu: false\n";

static int read_text(const char *text, struct accelerate_config *out, struct muster_error *err)
{
    *err = (struct muster_error){0};
    return accelerate_read("a.yaml", text, strlen(text), "/work", out, err);
}

static void read_good(const char *text, struct accelerate_config *out)
{
    struct muster_error err;
    if (read_text(text, out, &err) < 0)
        fail_msg("%s", err.text);
}

/* "NAME=value@line"; without a line where it is a default */
static void assert_variable(const struct accelerate_config *config, const char *expected)
{
    char shown[256];
    const size_t name = strcspn(expected, "=");
    for (int i = 0; i < config->variable_count; i++) {
        const struct accelerate_variable *v = &config->variables[i];
        if (strlen(v->name) != name || strncmp(v->name, expected, name) != 0)
            continue;
        if (v->line)
            (void)snprintf(shown, sizeof shown, "%s=%s@%d", v->name, v->value, v->line);
        else
            (void)snprintf(shown, sizeof shown, "%s=%s", v->name, v->value);
        assert_string_equal(shown, expected);
        return;
    }
    fail_msg("there is no %s", expected);
}

static void assert_no_variable(const struct accelerate_config *config, const char *name)
{
    for (int i = 0; i < config->variable_count; i++)
        assert_string_not_equal(config->variables[i].name, name);
}

static void a_file_as_accelerate_writes_it(void **state)
{
    (void)state;
    static const char *const settings[][2] = {{"nnodes", "2"},
                                              {"node-rank", "1"},
                                              {"master-addr", "10.0.0.1"},
                                              {"master-port", "29511"},
                                              {"rdzv-backend", "static"}};
    struct accelerate_config config;
    read_good(two_machines, &config);
    assert_int_equal(config.setting_count, sizeof settings / sizeof *settings);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        assert_string_equal(accelerate_setting(&config, settings[i][0])->value, settings[i][1]);
    assert_int_equal(accelerate_setting(&config, "master-port")->line, 9);
    assert_null(accelerate_setting(&config, "hostfile"));
    assert_int_equal(config.processes, 16);
    assert_int_equal(config.processes_line, 13);
    assert_null(config.aside.data);
    assert_int_equal(config.variable_count, 6); /* the precision, and five of torch.compile */
    assert_variable(&config, "ACCELERATE_MIXED_PRECISION=bf16@11");
    assert_variable(&config, "ACCELERATE_DYNAMO_BACKEND=NO");
    assert_variable(&config, "ACCELERATE_DYNAMO_USE_FULLGRAPH=False");
    accelerate_free(&config);
}

/* One key of each shape; all defaults are held against accelerate itself in tests/compat/accelerate. */
static const struct variable_row {
    const char *text, *expected[6];
} variable_rows[] = {
    {"distributed_type: NO\n", {"ACCELERATE_USE_CPU=False", "ACCELERATE_MIXED_PRECISION=no"}},
    {"{distributed_type: NO, mixed_precision: no, use_cpu: yes}",
     {"ACCELERATE_USE_CPU=True@1", "KMP_BLOCKTIME=1@1", "ACCELERATE_MIXED_PRECISION=no@1"}},
    {"{\"distributed_type\": \"MULTI_CPU\", \"num_processes\": 2, \"use_cpu\": true, \"debug\": true}",
     {"KMP_AFFINITY=granularity=fine,compact,1,0@1", "ACCELERATE_DEBUG_MODE=true@1"}},
    {"distributed_type: MULTI_GPU\nnum_processes: 2\nfp16: true\ngpu_ids: 2,3\n"
     "enable_cpu_affinity: true\ndynamo_backend: inductor\n",
     {"ACCELERATE_MIXED_PRECISION=fp16@3", "CUDA_VISIBLE_DEVICES=2,3@4", "ACCELERATE_CPU_AFFINITY=1@5",
      "ACCELERATE_DYNAMO_BACKEND=INDUCTOR@6"}},
    {"distributed_type: MULTI_XPU\nnum_processes: 2\ngpu_ids: 0\ndynamo_config:\n  backend: eager\n"
     "  dynamo_use_dynamic: true\n",
     {"ZE_AFFINITY_MASK=0@3", "ACCELERATE_DYNAMO_BACKEND=EAGER@5", "ACCELERATE_DYNAMO_USE_DYNAMIC=True@6",
      "ACCELERATE_DYNAMO_MODE=default"}},
    {"distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\n"
     "  reshard_after_forward: False\n  fsdp_transformer_layer_cls_to_wrap: A,B\n  fsdp_ignored_modules: "
     "null\n",
     {"ACCELERATE_USE_FSDP=true@1", "FSDP_VERSION=2@4", "FSDP_RESHARD_AFTER_FORWARD=false@5",
      "FSDP_TRANSFORMER_CLS_TO_WRAP=A,B@6", "FSDP_SHARDING_STRATEGY=FULL_SHARD",
      "FSDP_MIN_NUM_PARAMS=100000000"}},
    {"distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config:\n"
     "  zero_stage: 3\n  zero3_init_flag: true\n  offload_param_nvme_path: /A\n  gradient_clipping: "
     "1.0\n",
     {"ACCELERATE_USE_DEEPSPEED=true@1", "ACCELERATE_DEEPSPEED_ZERO_STAGE=3@5",
      "ACCELERATE_DEEPSPEED_ZERO3_INIT=true@6", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH=/A@7",
      "ACCELERATE_GRADIENT_CLIPPING=1.0@8",
      "ACCELERATE_CONFIG_DS_FIELDS=zero_stage,zero3_init_flag,offload_param_nvme_path,gradient_clipping,"
      "mixed_precision@5"}},
    {"{distributed_type: DEEPSPEED, num_processes: 2}", {"ACCELERATE_CONFIG_DS_FIELDS=", "PYTHONPATH=/work"}},
    {"distributed_type: MEGATRON_LM\nnum_processes: 8\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n"
     "  megatron_lm_sequence_parallelism: true\n",
     {"ACCELERATE_USE_MEGATRON_LM=true@1", "MEGATRON_LM_TP_DEGREE=2@4",
      "MEGATRON_LM_SEQUENCE_PARALLELISM=True@5", "MEGATRON_LM_PP_DEGREE=1",
      "MEGATRON_LM_GRADIENT_CLIPPING=1.0", "MEGATRON_LM_NO_LOAD_OPTIM=False"}},
    {"distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: FP8\nfp8_config:\n  backend: TE\n"
     "  amax_history_length: 16\n  override_linear_precision: [true, false, 'yes']\n",
     {"ACCELERATE_FP8_BACKEND=TE@5", "ACCELERATE_FP8_AMAX_HISTORY_LEN=16@6",
      "ACCELERATE_FP8_OVERRIDE_FPROP=True@7", "ACCELERATE_FP8_OVERRIDE_DGRAD=False@7",
      "ACCELERATE_FP8_OVERRIDE_WGRAD=True@7", "ACCELERATE_FP8_FORMAT=HYBRID"}},
    {"distributed_type: FSDP\nnum_processes: 4\nparallelism_config:\n  parallelism_config_cp_size: 2\n",
     {"ACCELERATE_USE_PARALLELISM_CONFIG=true@4", "PARALLELISM_CONFIG_CP_SIZE=2@4",
      "PARALLELISM_CONFIG_CP_COMM_STRATEGY=allgather", "PARALLELISM_CONFIG_TP_SIZE=1"}},
    {"distributed_type: MULTI_CPU\nnum_processes: 4\nmpirun_config: {mpirun_ccl: 2}\n",
     {"CCL_WORKER_COUNT=2@3"}},
    {"distributed_type: MULTI_GPU\nnum_processes: 2\ndynamo_backend: NO\nmixed_precision: fp8\n",
     {"ACCELERATE_DYNAMO_BACKEND=NO@3", "ACCELERATE_FP8_OVERRIDE_FPROP=False",
      "ACCELERATE_FP8_OVERRIDE_DGRAD=False", "ACCELERATE_FP8_OVERRIDE_WGRAD=False"}},
    {"distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {sync_module_states: maybe}\n",
     {"FSDP_SYNC_MODULE_STATES=maybe@3"}},
};
enum { VARIABLE_ROWS = sizeof variable_rows / sizeof *variable_rows };

static void variables(void **state)
{
    (void)state;
    for (size_t i = 0; i < VARIABLE_ROWS; i++) {
        struct accelerate_config config;
        read_good(variable_rows[i].text, &config);
        for (size_t k = 0; k < 6 && variable_rows[i].expected[k]; k++)
            assert_variable(&config, variable_rows[i].expected[k]);
        accelerate_free(&config);
    }
}

static void what_is_not_set(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name;
    } rows[] = {
        {"{distributed_type: NO}", "KMP_AFFINITY"},
        {"{distributed_type: NO}", "ACCELERATE_DEBUG_MODE"},
        {"{distributed_type: NO}", "ACCELERATE_CPU_AFFINITY"},
        {"{distributed_type: MULTI_GPU, num_processes: 2, use_cpu: true}", "ACCELERATE_USE_CPU"},
        {"{distributed_type: MULTI_GPU, num_processes: 2, gpu_ids: all}", "CUDA_VISIBLE_DEVICES"},
        {"{distributed_type: DEEPSPEED, num_processes: 2}", "ACCELERATE_DYNAMO_BACKEND"},
        {"{distributed_type: MULTI_GPU, num_processes: 2, fp8_config: {backend: TE}}",
         "ACCELERATE_FP8_BACKEND"},
        {"{distributed_type: MULTI_GPU, num_processes: 2, fsdp_config: {fsdp_version: 2}}", "FSDP_VERSION"},
        {"{distributed_type: FSDP, num_processes: 2, parallelism_config: {}}",
         "ACCELERATE_USE_PARALLELISM_CONFIG"},
        {"{distributed_type: FSDP, num_processes: 2, parallelism_config: {parallelism_config_tp_size: 2}}",
         "PARALLELISM_CONFIG_SP_SEQ_LENGTH"},
        {"{distributed_type: FSDP, num_processes: 2, parallelism_config: {parallelism_config_cp_size: 1}}",
         "PARALLELISM_CONFIG_CP_COMM_STRATEGY"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct accelerate_config config;
        read_good(rows[i].text, &config);
        assert_no_variable(&config, rows[i].name);
        accelerate_free(&config);
    }
}

static void keys_without_effect_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"{distributed_type: MULTI_GPU, num_processes: 2, use_cpu: true, tpu_zone: a, tpu_env: [A=1],"
         " main_training_function: train, downcast_bf16: true, fsdp_config: {version: 2}}",
         "use_cpu (MULTI_CPU and NO only), fsdp_config (distributed_type FSDP only), tpu_zone (TPU pods "
         "only), "
         "tpu_env (TPU pods only), main_training_function (TPUs only), downcast_bf16 (TPUs only)"},
        {"{distributed_type: MULTI_CPU, num_processes: 2, parallelism_config: {parallelism_config_tp_size: "
         "2}}",
         "parallelism_config (GPUs only)"},
        {"{distributed_type: DEEPSPEED, num_processes: 2, dynamo_config: {backend: eager},"
         " deepspeed_config: {deepspeed_hostfile: h}}",
         "deepspeed_hostfile (one machine), dynamo_config (not with DeepSpeed)"},
        {"{tpu_name: a, distributed_type: DEEPSPEED, num_processes: 2, num_machines: 1,"
         " deepspeed_config: {deepspeed_hostfile: h}}",
         "deepspeed_hostfile (one machine), tpu_name (TPU pods only)"},
        {"{distributed_type: DEEPSPEED, num_processes: 2, num_machines: 2, dynamo_backend: eager,"
         " deepspeed_config: {deepspeed_multinode_launcher: pdsh}}",
         "deepspeed_multinode_launcher (no host file: start muster run on each machine), dynamo_backend (not "
         "with DeepSpeed)"},
        {"{distributed_type: DEEPSPEED, num_processes: 2, num_machines: 2,"
         " deepspeed_config: {deepspeed_multinode_launcher: standard, deepspeed_hostfile: h}}",
         "deepspeed_hostfile (each machine is started by hand)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct accelerate_config config;
        read_good(rows[i].text, &config);
        assert_string_equal(config.aside.data, rows[i].expected);
        accelerate_free(&config);
    }
}

static void a_host_file_starts_the_agents(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{distributed_type: MULTI_CPU, num_processes: 4, num_machines: 2, mpirun_config: {mpirun_hostfile: "
        "/h}}",
        "{distributed_type: DEEPSPEED, num_processes: 4, num_machines: 2,"
        " deepspeed_config: {deepspeed_hostfile: /h}}",
        "{distributed_type: DEEPSPEED, num_processes: 4, num_machines: 2,"
        " deepspeed_config: {deepspeed_hostfile: /h, deepspeed_multinode_launcher: pdsh}}"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct accelerate_config config;
        read_good(rows[i], &config);
        assert_string_equal(accelerate_setting(&config, "hostfile")->value, "/h");
        assert_null(config.aside.data);
        accelerate_free(&config);
    }
}

static void errors_name_the_line_and_the_way_out(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"", "a.yaml: 0 documents where one is expected"},
        {"- a\n", "a.yaml:1: a list where accelerate's keys are expected"},
        {"num_processes: 2\n",
         "a.yaml: distributed_type is missing (NO, MULTI_CPU, MULTI_GPU, FSDP, DEEPSPEED, ...)"},
        {"distributed_type: NO\nnum_process: 1\n",
         "a.yaml:2: 'num_process' is not a key of accelerate's configuration; did you mean num_processes?"},
        {"distributed_type: NO\nfsdp_conf: {}\n",
         "a.yaml:2: 'fsdp_conf' is not a key of accelerate's configuration; did you mean fsdp_config?"},
        {"distributed_type: NO\ntpu_names: a\n",
         "a.yaml:2: 'tpu_names' is not a key of accelerate's configuration; did you mean tpu_name?"},
        {"distributed_type: NO\nmain_training_functoin: a\n",
         "a.yaml:2: 'main_training_functoin' is not a key of accelerate's configuration; did you mean "
         "main_training_function?"},
        {"distributed_type: FSDP\nnum_processes: 3000000000\n",
         "a.yaml:2: num_processes: '3000000000' is outside 1 to 2147483647"},
        {"distributed_type: NO\nxyzzy: 1\n",
         "a.yaml:2: 'xyzzy' is not a key of accelerate's configuration; remove it"},
        {"distributed_type: NO\n\"a\\nb\": 1\n",
         "a.yaml:2: 'a?b' is not a key of accelerate's configuration; remove it"},
        {"distributed_type: MULTI_GPUS\n",
         "a.yaml:1: distributed_type: 'MULTI_GPUS' is unknown; did you mean MULTI_GPU?"},
        {"distributed_type: [FSDP]\n", "a.yaml:1: distributed_type: a list where one value is expected"},
        {"distributed_type: XLA\n", "a.yaml:1: distributed_type XLA is started by torch_xla from inside of "
                                    "Python; use accelerate launch for it"},
        {"compute_environment: AMAZON_SAGEMAKER\nec2_instance_type: ml.p3.2xlarge\n",
         "a.yaml:1: compute_environment AMAZON_SAGEMAKER is a job at Amazon, started by Amazon's Python SDK; "
         "use accelerate launch for it"},
        {"compute_environment: MARS\n",
         "a.yaml:1: compute_environment: 'MARS' is not LOCAL_MACHINE or AMAZON_SAGEMAKER"},
        {"distributed_type: FSDP\nnum_processes: 0\n",
         "a.yaml:2: num_processes: '0' is outside 1 to 2147483647"},
        {"distributed_type: FSDP\nnum_processes: two\n",
         "a.yaml:2: num_processes: 'two' is not a whole number"},
        {"distributed_type: NO\nmixed_precision: tf32\n",
         "a.yaml:2: mixed_precision: 'tf32' is not no, fp16, bf16 or fp8"},
        {"distributed_type: NO\nuse_cpu: perhaps\n", "a.yaml:2: use_cpu: 'perhaps' is not true or false"},
        {"distributed_type: NO\ngpu_ids: [0, 1]\n", "a.yaml:2: gpu_ids: a list where one value is expected"},
        {"distributed_type: NO\nmain_process_ip: \"a\\tb\"\n",
         "a.yaml:2: main_process_ip: the text has a control character"},
        {"distributed_type: FSDP\nfsdp_config: FULL\n",
         "a.yaml:2: fsdp_config: text where keys are expected"},
        {"distributed_type: FSDP\nfsdp_config:\n  fsdp_sync_module_states: false\n",
         "a.yaml:3: fsdp_sync_module_states is false, but fsdp_cpu_ram_efficient_loading needs it; set one "
         "of "
         "them"},
        {"distributed_type: FSDP\nfsdp_config:\n  fsdp_transformer_layer_cls_to_wrap: [A, B]\n",
         "a.yaml:3: fsdp_transformer_layer_cls_to_wrap: a list where one value is expected"},
        {"distributed_type: DEEPSPEED\nnum_machines: 2\ndeepspeed_config:\n  deepspeed_hostfile: h\n"
         "  deepspeed_inclusion_filter: worker-0\n",
         "a.yaml:5: deepspeed_inclusion_filter: parts of a host file are not chosen; name the hosts with "
         "--hosts"},
        {"distributed_type: NO\nmixed_precision: fp8\nfp8_config:\n  override_linear_precision: [true]\n",
         "a.yaml:4: fp8_override_linear_precision is not a list of three booleans (fprop, dgrad, wgrad)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct accelerate_config config;
        struct muster_error err;
        if (read_text(rows[i].text, &config, &err) == 0)
            fail_msg("'%s' is accepted", rows[i].text);
        assert_string_equal(err.text, rows[i].expected);
        assert_int_equal(config.variable_count, 0);
    }
}

/* Lines that accelerate passes over in silence. */
static void oddities_are_warnings(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
        int64_t processes;
    } rows[] = {
        {"distributed_type: NO\nfsdp_config:\n  fsdp_min_num_params: 1\n  fsdp_versoin: 2\n",
         "a.yaml:4: 'fsdp_versoin' is not a key of fsdp_config and has no effect; did you mean "
         "fsdp_version?\n",
         1},
        {"distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_offload_parms: true\n  zzz: 1\n",
         "a.yaml:4: 'fsdp_offload_parms' is not a key of fsdp_config and has no effect; did you mean "
         "fsdp_offload_params?\n"
         "a.yaml:5: 'zzz' is not a key of fsdp_config and has no effect; remove it\n",
         2},
        {"distributed_type: \"NO\"\nnum_machines: 1\nnum_processes: 8\n",
         "a.yaml:3: num_processes 8 has no effect: distributed_type NO starts one process; write MULTI_CPU "
         "or "
         "MULTI_GPU, or give --nproc-per-node\n",
         1},
        {"num_processes: 4\ndistributed_type: MULTI_GPU\nnum_processes: 2\nnum_processes: 3\n",
         "a.yaml:3: key 'num_processes' appears twice; the last value counts\n"
         "a.yaml:4: key 'num_processes' appears twice; the last value counts\n",
         3},
        {"{\"distributed_type\": \"NO\", \"debug\": true, \"debug\": false}",
         "a.yaml:1: key 'debug' appears twice; the last value counts\n", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct accelerate_config config;
        read_good(rows[i].text, &config);
        buffer_append(&config.warnings, "", 1);
        assert_string_equal(config.warnings.data, rows[i].expected);
        assert_int_equal(config.processes, rows[i].processes);
        accelerate_free(&config);
    }
}

/* --- the order of sources: command line and variables before the file --- */

static struct parsed *apply_on(const char *line, const char *variables, const char *text,
                               const struct machine *machine)
{
    static struct parsed p;
    struct accelerate_config file;
    char *word, *rest = p.text;
    int argc = 0;
    p = (struct parsed){0};
    (void)snprintf(p.text, sizeof p.text, "--accelerate-config=a.yaml %s", line);
    while ((word = strtok_r(rest, " ", &rest)) && argc < ARGUMENT_LIMIT - 1)
        p.argv[argc++] = word;
    void *environment = (void *)variables;
    p.result = config_parse(argc, p.argv, fake_environment, environment, &p.config, &p.err);
    if (p.result == 0)
        p.result = read_text(text, &file, &p.err);
    if (p.result < 0)
        return &p;
    p.result = accelerate_apply(&p.config, &file, fake_environment, environment, &p.err);
    accelerate_free(&file);
    if (p.result == 0)
        p.result = config_resolve(&p.config, machine, fake_environment, environment, &p.err);
    return &p;
}

static struct parsed *apply(const char *line, const char *variables, const char *text)
{
    return apply_on(line, variables, text, &four_cores);
}

static const char *origin_of(const struct run_config *config, const char *name)
{
    static char scratch[CONFIG_SETTING_SIZE];
    return config_origin(config, knob_find(config_table(), name, strlen(name), false, NULL), scratch);
}

static void the_file_alone(void **state)
{
    (void)state;
    struct parsed *p = apply("train.py", "", two_machines);
    assert_parsed(p);
    const struct run_config *c = &p->config;
    assert_true(c->max_nodes == 2 && c->node_rank == 1 && c->master_port == 29511 && c->nproc_per_node == 8);
    assert_string_equal(c->master_addr, "10.0.0.1");
    assert_string_equal(origin_of(c, "nnodes"), "a.yaml:12");
    assert_string_equal(origin_of(c, "nproc-per-node"), "a.yaml:13");
    assert_string_equal(origin_of(c, "max-restarts"), "default");
    assert_string_equal(c->notes,
                        "a.yaml: 6 variables for the workers; muster env shows them\n"
                        "from a.yaml: --nnodes=2 --node-rank=1 --nproc-per-node=8 --master-addr=10.0.0.1 "
                        "--master-port=29511 --rdzv-backend=static");
    assert_int_equal(c->variable_count, 6);
    assert_string_equal(c->variables[0].place, "a.yaml:11");
    assert_string_equal(c->variables[1].place, "accelerate's default");
    config_free(&p->config);
    assert_true(c->variables == NULL && c->variable_count == 0 && c->places.count == 0);
}

static void flags_and_variables_are_stronger(void **state)
{
    (void)state;
    struct parsed *p =
        apply("--node-rank=0 --nnodes=4 train.py", "PET_MASTER_ADDR=b PET_NODE_RANK=3", two_machines);
    assert_parsed(p);
    const struct run_config *c = &p->config;
    assert_true(c->max_nodes == 4 && c->node_rank == 0 && c->master_port == 29511 && c->nproc_per_node == 4);
    assert_string_equal(c->master_addr, "b");
    assert_string_equal(origin_of(c, "master-addr"), "PET_MASTER_ADDR");
    config_free(&p->config);
    p = apply("train.py", "PET_NPROC_PER_NODE=3 ACCELERATE_MIXED_PRECISION=fp16 ACCELERATE_DYNAMO_MODE=x",
              two_machines);
    assert_parsed(p);
    assert_int_equal(p->config.nproc_per_node, 3);
    assert_true(p->config.variables[0].kept);
    assert_string_equal(p->config.variables[0].value, "fp16");
    assert_non_null(strstr(p->config.notes, "the environment's value stays: ACCELERATE_MIXED_PRECISION=fp16 "
                                            "(a.yaml:11: bf16)\n"));
    config_free(&p->config);
    p = apply("--standalone train.py", "", two_machines);
    assert_parsed(p);
    assert_true(p->config.max_nodes == 1 && p->config.nproc_per_node == 16 && p->config.node_rank == 0);
    config_free(&p->config);
}

static void processes_are_divided_among_the_nodes(void **state)
{
    (void)state;
    static const char odd[] = "distributed_type: FSDP\nnum_processes: 3\nnum_machines: 2\n";
    struct parsed *p = apply("train.py", "", odd);
    assert_int_equal(p->result, -1);
    assert_string_equal(p->err.text,
                        "a.yaml:2: 3 processes cannot be divided equally among 2 nodes; change either "
                        "number, or give --nproc-per-node");
    config_free(&p->config);
    p = apply("--nproc-per-node=2 train.py", "", odd);
    assert_parsed(p);
    assert_int_equal(p->config.nproc_per_node, 2);
    config_free(&p->config);
    static const char none[] = "distributed_type: FSDP\nnum_processes: -1\n";
    p = apply("train.py", "", none);
    assert_int_equal(p->result, -1);
    assert_string_equal(p->err.text, "a.yaml: num_processes is not given: write the number of all processes "
                                     "there, or give --nproc-per-node");
    config_free(&p->config);
    p = apply("--nproc-per-node=2 train.py", "", none);
    assert_parsed(p);
    config_free(&p->config);
    p = apply("train.py", "", "distributed_type: MULTI_GPU\nnum_processes: 1000000\n");
    assert_int_equal(p->result, -1);
    assert_string_equal(p->err.text, "a.yaml:2: '1000000' is outside 1 to 4096 workers");
    config_free(&p->config);
}

static void values_are_checked_where_flags_are(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"distributed_type: FSDP\nnum_processes: 2\nnum_machines: none\n",
         "a.yaml:3: num_machines: 'none' is not a whole number"},
        {"distributed_type: FSDP\nnum_processes: 2\nnum_machines: 0\n",
         "a.yaml:3: '0' is not a number of nodes of 1 to 16384, or MIN:MAX of them"},
        {"distributed_type: FSDP\nnum_processes: 2\nmain_process_port: 70000\n",
         "a.yaml:3: '70000' is outside 0 to 65535"},
        {"distributed_type: FSDP\nnum_processes: 2\nmachine_rank: 1\n",
         "a.yaml:3: '1' is not below the number of nodes, 1 (--nnodes)"},
        {"distributed_type: FSDP\nnum_processes: 2\nrdzv_backend: etcd\n",
         "a.yaml:3: 'etcd' is not supported, no etcd is needed; use c10d with --rdzv-endpoint, or static "
         "with "
         "--node-rank, --master-addr and --master-port"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = apply("train.py", "", rows[i].text);
        assert_int_equal(p->result, -1);
        assert_string_equal(p->err.text, rows[i].expected);
        config_free(&p->config);
    }
}

static void nodes_that_meet_without_ranks(void **state)
{
    (void)state;
    static const char text[] =
        "distributed_type: FSDP\nnum_processes: 4\nnum_machines: 2\nmain_process_ip: fe80::1\n"
        "rdzv_backend: c10d\n";
    struct parsed *p = apply("train.py", "", text);
    assert_parsed(p);
    assert_true(p->config.elastic && p->config.master_port == 29500 && p->config.wanted_rank == -1);
    assert_string_equal(p->config.rdzv_endpoint, "[fe80::1]:29500");
    assert_string_equal(p->config.master_addr, "fe80::1");
    config_free(&p->config);
    p = apply("--master-addr=b --master-port=7 train.py", "", text);
    assert_parsed(p);
    assert_string_equal(p->config.rdzv_endpoint, "b:7");
    config_free(&p->config);
    p = apply("--rdzv-backend=static train.py", "", text);
    assert_parsed(p);
    assert_true(!p->config.elastic && p->config.rdzv_endpoint == NULL);
    config_free(&p->config);
}

/* A batch system knows this node better than a file that all nodes share. */
static void the_batch_system_is_stronger(void **state)
{
    (void)state;
    static const char shared[] =
        "distributed_type: FSDP\nnum_processes: 8\nnum_machines: 1\nmachine_rank: 0\n";
    static const char two[] = "distributed_type: FSDP\nnum_processes: 8\nnum_machines: 2\nmachine_rank: 0\n"
                              "main_process_ip: 10.0.0.1\n";
    static const char step[] = "SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=7 "
                               "SLURM_STEP_NODELIST=n[01-02]";
    struct parsed *p = apply("train.py", step, shared);
    assert_parsed(p);
    assert_true(p->config.max_nodes == 2 && p->config.node_rank == 1 && p->config.nproc_per_node == 4);
    assert_string_equal(p->config.master_addr, "n01");
    config_free(&p->config);
    p = apply("train.py", step, two);
    assert_parsed(p);
    assert_true(p->config.node_rank == 1);
    assert_string_equal(p->config.master_addr, "10.0.0.1");
    config_free(&p->config);
    p = apply("--node-rank=0 train.py", step, two);
    assert_parsed(p);
    assert_int_equal(p->config.node_rank, 0);
    config_free(&p->config);
    p = apply("train.py", "JOB_COMPLETION_INDEX=1", two);
    assert_parsed(p);
    assert_int_equal(p->config.node_rank, 1);
    config_free(&p->config);
    static const char four[] = "SLURM_NODEID=3 SLURM_STEP_NUM_NODES=4 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_ID=7 "
                               "SLURM_STEP_NODELIST=n[01-04]";
    p = apply("train.py", four, two); /* the file is another world's */
    assert_parsed(p);
    assert_true(p->config.max_nodes == 4 && p->config.node_rank == 3 && p->config.nproc_per_node == 2);
    assert_string_equal(p->config.master_addr, "n01");
    config_free(&p->config);
}

static void a_typed_number_of_workers_is_no_mistake(void **state)
{
    (void)state;
    struct parsed *p = apply_on("train.py", "", "{distributed_type: NO, num_processes: 1}", &two_gpus);
    assert_parsed(p);
    assert_null(p->config.warnings);
    config_free(&p->config);
    p = apply_on("train.py", "", "{distributed_type: MULTI_GPU, num_processes: 3}", &two_gpus);
    assert_parsed(p);
    assert_non_null(strstr(p->config.warnings, "a.yaml:1: 3 workers, but 2 GPUs are visible here"));
    config_free(&p->config);
}

static void one_process_of_a_file_yields_to_the_flag(void **state)
{
    (void)state;
    struct parsed *p = apply("--nproc-per-node=2 train.py", "", "distributed_type: NO\nnum_processes: 8\n");
    assert_parsed(p);
    assert_int_equal(p->config.nproc_per_node, 2);
    assert_non_null(strstr(p->config.warnings, "num_processes 8 has no effect"));
    config_free(&p->config);
}

static void hosts_of_a_flag_are_stronger(void **state)
{
    (void)state;
    static const char text[] = "{distributed_type: MULTI_CPU, num_processes: 4, num_machines: 2,"
                               " mpirun_config: {mpirun_hostfile: /h}}";
    struct parsed *p = apply("train.py", "", text);
    assert_parsed(p);
    assert_string_equal(p->config.hostfile, "/h");
    config_free(&p->config);
    p = apply("--hosts=a:2,b:2 train.py", "", text);
    assert_parsed(p);
    assert_null(p->config.hostfile);
    config_free(&p->config);
}

static void folders_of_python_are_added_once(void **state)
{
    (void)state;
    static const char text[] = "{distributed_type: DEEPSPEED, num_processes: 2}";
    static const char *const rows[][2] = {{"", "/work"},
                                          {"PYTHONPATH=/a", "/a:/work"},
                                          {"PYTHONPATH=/a:/work", "/a:/work"},
                                          {"PYTHONPATH=/work", "/work"},
                                          {"PYTHONPATH=/a/work", "/a/work:/work"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed *p = apply("train.py", rows[i][0], text);
        assert_parsed(p);
        bool found = false;
        for (size_t k = 0; k < p->config.variable_count; k++) {
            const struct config_variable *v = &p->config.variables[k];
            if (strcmp(v->name, "PYTHONPATH") != 0)
                continue;
            found = true;
            assert_false(v->kept);
            assert_string_equal(v->value, rows[i][1]);
        }
        assert_true(found);
        config_free(&p->config);
    }
}

static int apply_once(void *context)
{
    struct parsed *p = apply("train.py", "ACCELERATE_MIXED_PRECISION=fp16", context);
    int result = p->result;
    config_free(&p->config);
    return result;
}

static int read_once(void *context)
{
    const struct variable_row *row = context;
    struct accelerate_config config;
    struct muster_error err;
    int result = read_text(row->text, &config, &err);
    if (result == 0)
        accelerate_free(&config);
    return result;
}

static void without_memory_it_fails_and_leaks_nothing(void **state)
{
    (void)state;
    static const char
        text[] = "{distributed_type: DEEPSPEED, num_processes: 2, mixed_precision: bf16, tpu_name: a,"
                 " deepspeed_config: {zero_stage: 2}}",
        one_machine[] =
            "{distributed_type: DEEPSPEED, num_processes: 2, deepspeed_config: {deepspeed_hostfile: h}}";
    faults_sweep(apply_once, (void *)two_machines);
    faults_sweep(apply_once, (void *)text);
    faults_sweep(apply_once, (void *)one_machine);
    for (size_t i = 0; i < VARIABLE_ROWS; i++)
        faults_sweep(read_once, (void *)&variable_rows[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_as_accelerate_writes_it),
        cmocka_unit_test(variables),
        cmocka_unit_test(what_is_not_set),
        cmocka_unit_test(keys_without_effect_are_named),
        cmocka_unit_test(oddities_are_warnings),
        cmocka_unit_test(a_host_file_starts_the_agents),
        cmocka_unit_test(errors_name_the_line_and_the_way_out),
        cmocka_unit_test(the_file_alone),
        cmocka_unit_test(flags_and_variables_are_stronger),
        cmocka_unit_test(processes_are_divided_among_the_nodes),
        cmocka_unit_test(values_are_checked_where_flags_are),
        cmocka_unit_test(nodes_that_meet_without_ranks),
        cmocka_unit_test(the_batch_system_is_stronger),
        cmocka_unit_test(a_typed_number_of_workers_is_no_mistake),
        cmocka_unit_test(one_process_of_a_file_yields_to_the_flag),
        cmocka_unit_test(hosts_of_a_flag_are_stronger),
        cmocka_unit_test(folders_of_python_are_added_once),
        cmocka_unit_test(without_memory_it_fails_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
