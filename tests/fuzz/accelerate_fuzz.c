/* accelerate_fuzz.c - arbitrary bytes as accelerate's configuration file: settings and variables that a run
 * can have, or an error of one line. */
#include <stdlib.h>
#include <string.h>

#include "launcher/accelerate/accelerate_config.h"
#include "launcher/config/config.h"
#include "tests/fuzz/random_main.h"

static void must(bool holds)
{
    if (!holds)
        abort();
}

static const char *get(void *context, const char *name)
{
    (void)context;
    return !strcmp(name, "ACCELERATE_MIXED_PRECISION") ? "bf16" : NULL;
}

static void check_variables(const struct accelerate_config *file)
{
    for (int i = 0; i < file->variable_count; i++) {
        const struct accelerate_variable *variable = &file->variables[i];
        must(*variable->name && !strchr(variable->name, '=') && variable->line >= 0);
        for (const char *at = variable->value; *at; at++)
            must((unsigned char)*at >= ' ');
        for (int k = 0; k < i; k++)
            must(strcmp(file->variables[k].name, variable->name) != 0);
    }
}

static void resolve(const struct accelerate_config *file)
{
    static const struct machine machine = {.cores = 4, .host_name = "a"};
    char *arguments[] = {(char *)"--accelerate-config=a.yaml", (char *)"x.py", NULL};
    struct run_config config = {.command = COMMAND_RUN};
    struct muster_error err = {0};
    struct buffer out = {0};
    must(config_parse(2, arguments, get, NULL, &config, &err) == 0);
    int result = accelerate_apply(&config, file, get, NULL, &err);
    if (result == 0)
        result = config_resolve(&config, &machine, get, NULL, &err);
    must(result == 0 ? config.nproc_per_node >= 1 : *err.text && !strchr(err.text, '\n'));
    must(result < 0 || config_print(&config, &machine, NULL, &out) == 0);
    buffer_free(&out);
    config_free(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct accelerate_config file;
    struct muster_error err = {0};
    if (accelerate_read("a.yaml", (const char *)data, size, "/work", &file, &err) == 0) {
        check_variables(&file);
        resolve(&file);
    } else {
        must(*err.text && !file.variable_count && !file.setting_count);
    }
    accelerate_free(&file);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char machines[] =
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\ngpu_ids: 0,1\nmachine_rank: 1\n"
        "main_process_ip: a\nmain_process_port: 29511\nmixed_precision: 'no'\nnum_machines: 2\n"
        "num_processes: 4\nrdzv_backend: c10d\nsame_network: true\ntpu_env: []\nuse_cpu: false\n";
    static const char fsdp[] =
        "distributed_type: FSDP\nnum_processes: 2\nfp16: yes\nfsdp_config: {version: 2, "
        "fsdp_offload_params: true}\nparallelism_config: {parallelism_config_cp_size: 2}\n";
    static const char deepspeed[] =
        "{distributed_type: DEEPSPEED, num_processes: 4, num_machines: 2, mixed_precision: fp8, fp8_config: "
        "{override_linear_precision: [true, false, true]}, deepspeed_config: {zero_stage: 3, "
        "deepspeed_hostfile: h, deepspeed_multinode_launcher: pdsh}}";
    static const char processors[] =
        "distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\ndynamo_backend: NO\ndebug: true\n"
        "mpirun_config: {mpirun_hostfile: /h, mpirun_ccl: 2}\n";
    const struct fuzz_seed seeds[] = {{machines, sizeof machines - 1},
                                      {fsdp, sizeof fsdp - 1},
                                      {deepspeed, sizeof deepspeed - 1},
                                      {processors, sizeof processors - 1}};
    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof *seeds);
}
#endif
