/* config.c - see config.h: the steps, in order. */
#include "launcher/config/config.h"

#include <stdio.h>
#include <string.h>

#include "launcher/config/config_internal.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

static int check_texts(const struct run_config *config, struct muster_error *err)
{
    if (!*config->rdzv_id || strlen(config->rdzv_id) > 200 || strchr(config->rdzv_id, '/'))
        return error_set(err, MUSTER_E_INVALID, "%s: '%.200s' is empty, longer than 200 bytes or has a slash",
                         CONFIG_SETTING(config, "rdzv-id"), config->rdzv_id);
    return 0;
}

int config_parse(int argc, char *const argv[], const char *(*get)(void *context, const char *name),
                 void *context, struct run_config *config, struct muster_error *err)
{
    struct command_line line = {argc, 0, argv};
    struct config_environment environment = {get, context};
    if (knob_defaults(config_table(), config, err) < 0 || config_parse_flags(&line, config, err) < 0)
        return -1;
    if (config->help)
        return 0;
    if (config_read_environment(config, &environment, err) < 0 || config_check_logs(config, err) < 0 ||
        config_resolve_supervision(config, err) < 0 || check_texts(config, err) < 0 ||
        config_check_command(config, err) < 0 || config_parse_nproc(config, &config->nproc_per_node, err) < 0)
        return -1;
    if (line.at >= argc && config->command == COMMAND_ENV)
        return 0;
    if (line.at >= argc || !*argv[line.at])
        return error_set(err, MUSTER_E_INVALID,
                         "no program was given; put the script, module or executable after the flags");
    bool ended = line.at > 0 && !strcmp(argv[line.at - 1], "--");
    config->program = argv[line.at++];
    /* as Python's argparse: "--" ends the flags once, before the program or directly after it */
    if (!ended && line.at < argc && !strcmp(argv[line.at], "--"))
        line.at++;
    config->arguments = argv + line.at;
    return 0;
}

/* A UUID of version 4, as torchrun makes one where there is one node. */
static int make_job_id(struct run_config *config, const struct machine *machine, struct muster_error *err)
{
    uint64_t a = machine->random[0], b = machine->random[1];
    scope_free char *id =
        mem_printf("%08x-%04x-4%03x-%04x-%012llx", (unsigned)(a >> 32), (unsigned)(a >> 16 & 0xffff),
                   (unsigned)(a & 0xfff), (unsigned)(b >> 48 & 0x3fff) | 0x8000,
                   (unsigned long long)(b & 0xffffffffffff));
    return id ? config_set(config, "rdzv-id", id, config_reason_one_node, err)
              : error_set(err, MUSTER_E_NOMEM, "no memory");
}

/* torchrun's switch, which it reads if the nodes meet by c10d, also with a single node. */
static int follow_store_switch(struct run_config *config, const struct config_environment *environment,
                               struct muster_error *err)
{
    static const char name[] = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE";
    const char *text = config_get(environment, name);
    if (!text || strcmp(text, "1") != 0 || (config_meets(config) && !config->elastic) ||
        config_source(config, "worker-store") != KNOB_FROM_DEFAULT)
        return 0;
    return config_set(config, "worker-store", "worker", name, err);
}

int config_resolve(struct run_config *config, const struct machine *machine,
                   const char *(*get)(void *context, const char *name), void *context,
                   struct muster_error *err)
{
    struct config_environment environment = {get, context};
    config->cores = machine->cores;
    if (config_resolve_world(config, &environment, machine, err) < 0 ||
        config_refuse_environment(&environment, err) < 0 ||
        follow_store_switch(config, &environment, err) < 0 ||
        config_resolve_workers(config, &environment, machine, err) < 0)
        return -1;
    if (!config_meets(config) && config_source(config, "rdzv-id") == KNOB_FROM_DEFAULT &&
        make_job_id(config, machine, err) < 0)
        return -1;
    return config_announce(config, err);
}

void config_salvage(struct run_config *config, const char *(*get)(void *context, const char *name),
                    void *context)
{
    struct config_environment environment = {get, context};
    const struct knob *knob = config_row("termination-log");
    const char *text = config_get(&environment, knob->env);
    if (text && config_source(config, knob->name) == KNOB_FROM_DEFAULT)
        (void)knob_set(config_table(), config, config->sources, knob, text, KNOB_FROM_ENVIRONMENT, knob->env,
                       NULL); /* without memory it is reported on stderr only */
    config->termination_log_asked = config_source(config, knob->name) != KNOB_FROM_DEFAULT;
}

void config_free(struct run_config *config)
{
    if (!config)
        return;
    knob_free(config_table(), config);
    mem_free(config->place_source);
    mem_free(config->full_name);
    mem_free(config->interpreter);
    mem_free(config->cpus);
    config_free_file(config);
    config->cpus = NULL;
    mem_free(config->notes);
    mem_free(config->warnings);
    config->full_name = config->interpreter = config->place_source = config->notes = config->warnings = NULL;
}

const char config_description[] =
    "Starts a program once per worker with torchrun's environment, watches the workers and stops or "
    "restarts\n"
    "them together. A .py file runs under python3 -u: PYTHON_EXEC, else the Python of the environment in "
    "which\n"
    "this program lies, else PATH's. An executable runs as itself. Arguments after the program are the\n"
    "program's. Dashes and underscores in flags are equal, unique prefixes\n"
    "are enough, the variable in brackets gives the default.";

int config_help(const char *name, int columns, struct buffer *out)
{
    buffer_printf(out, "usage: %s [flags] [--] program [arguments]\n\n%s\n\n", name, config_description);
    return knob_help(config_table(), columns, out);
}

int config_markdown(struct buffer *out)
{
    buffer_text(
        out,
        "# The flags of `muster run`\n\nPrinted by `muster run --output=markdown --help`; `ninja -C build "
        "flags` writes it here. Dashes and underscores are\nequal, unique prefixes are enough, the variable "
        "gives the default. `muster env` shows the value of every setting\nand its source.\n\n");
    return knob_markdown(config_table(), out);
}
