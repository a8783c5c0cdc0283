/* command_line_fuzz.c - arbitrary arguments and variables: a configuration that holds together, or an error
 * of one line. The input is lines: the first word of the command, then NAME=value for a variable, anything
 * else an argument. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/commands/commands.h"
#include "launcher/config/config.h"
#include "launcher/process/worker_command.h"
#include "proto/base/mem.h"
#include "tests/fuzz/random_main.h"

enum { LINES_LIMIT = 64 };

struct input {
    char *variables[LINES_LIMIT + 1], *arguments[LINES_LIMIT + 1];
    int variable_count, argument_count;
};

static bool is_variable(const char *line)
{
    size_t name = strspn(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    return name && line[name] == '=';
}

/* text is changed and has to outlive the input */
static void split(char *text, struct input *input)
{
    for (char *line = text;
         line && input->variable_count < LINES_LIMIT && input->argument_count < LINES_LIMIT;) {
        char *end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        if (is_variable(line))
            input->variables[input->variable_count++] = line;
        else
            input->arguments[input->argument_count++] = line;
        line = end;
    }
}

static const char *get(void *context, const char *name)
{
    size_t length = strlen(name);
    for (char **line = ((struct input *)context)->variables; *line; line++)
        if (!strncmp(*line, name, length) && (*line)[length] == '=')
            return *line + length + 1;
    return NULL;
}

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_resolved(struct run_config *config, const struct machine *machine, struct input *input)
{
    scope_buffer settings = {0}, workers = {0};
    check(config->nproc_per_node >= 1 && config->nproc_per_node <= CONFIG_WORKERS_LIMIT &&
          config->min_nodes >= 1 && config->min_nodes <= config->max_nodes && config->node_rank >= 0);
    check(config->program || config->command == COMMAND_ENV);
    for (size_t i = 0; i < config_table()->count; i++) {
        char scratch[CONFIG_SETTING_SIZE];
        check(config_origin(config, &config_table()->knobs[i], scratch) != NULL);
    }
    check(config_print(config, machine, NULL, &settings) == 0);
    if (config->nproc_per_node > 4 || !config->program)
        return;
    config->kind = program_kind_of(config);
    check(dry_run_print(config, input->variables, NULL, &workers, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct machine machine = {.cores = 4, .gpus = 2, .host_name = "j-worker-1"};
    struct input input = {0};
    struct muster_error err = {0};
    char *text = mem_strndup((const char *)data, size);
    check(text != NULL);
    struct run_config config = {.command = size ? data[0] % 3 : COMMAND_RUN};
    split(text, &input);
    int result = config_parse(input.argument_count, input.arguments, get, &input, &config, &err);
    if (result == 0 && !config.help)
        result = config_resolve(&config, &machine, get, &input, &err);
    if (result < 0)
        check(err.code != MUSTER_OK && *err.text && !strchr(err.text, '\n'));
    else if (!config.help)
        check_resolved(&config, &machine, &input);
    config_free(&config);
    mem_free(text);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char flags[] =
        "--nnodes=2\n--node_rank\n1\n--nproc-per-node=auto\n--tee\n0:1,1:2\n--rdzv-conf=timeout=3,a=b\n"
        "-r3\n--numa-binding=node\n--max-r=3\ntrain.py\n--n\n$local_rank";
    static const char pod[] =
        "PET_NNODES=3\nPET_NPROC_PER_NODE=gpu\nPET_STANDALONE=\nMASTER_ADDR=j-master-0\nMASTER_PORT=1\n"
        "RANK=1\nWORLD_SIZE=3\nJOB_COMPLETION_INDEX=1\n--\nx";
    static const char step[] =
        "SLURM_NODEID=1\nSLURM_STEP_NUM_NODES=2\nSLURM_STEP_NUM_TASKS=2\nSLURM_JOB_ID=7\n"
        "SLURM_STEP_NODELIST=n[01-02]\n--virtual-local-rank\n--output=json\nx.py";
    const struct fuzz_seed seeds[] = {
        {flags, sizeof flags - 1}, {pod, sizeof pod - 1}, {step, sizeof step - 1}};
    return fuzz_main(argc, argv, seeds, 3);
}
#endif
