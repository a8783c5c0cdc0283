/* main.c - the program `muster`: its subcommands, and the steps of `muster run`. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/accelerate/accelerate_config.h"
#include "launcher/agent/agent.h"
#include "launcher/commands/commands.h"
#include "launcher/config/config.h"
#include "launcher/host/machine.h"
#include "launcher/hosts/hosts_command.h"
#include "launcher/local/job/python_shim.h"
#include "launcher/local/local_command.h"
#include "launcher/local/local_settings.h"
#include "launcher/manifest/manifest_command.h"
#include "launcher/nccl/nccl_env.h"
#include "launcher/output/log_record.h"
#include "launcher/process/find_program.h"
#include "launcher/process/interpreter.h"
#include "launcher/process/worker_command.h"
#include "launcher/verdict/failure_files.h"
#include "launcher/warm/warm_reaper.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "proto/base/text_list.h"
#include "proto/env_names.h"
#include "proto/exit_code.h"

struct subcommand {
    const char *name, *help;
    int (*run)(const char *shown, int argc,
               char *argv[]); /* shown: the program's name in messages; argv after it */
};

static int run_main(const char *shown, int argc, char *argv[]);
static int launch_main(const char *shown, int argc, char *argv[]);
static int env_main(const char *shown, int argc, char *argv[]);
static int status_main(const char *shown, int argc, char *argv[]);
static int checkpoint_main(const char *shown, int argc, char *argv[]);
static int drain_main(const char *shown, int argc, char *argv[]);
static int top_main(const char *shown, int argc, char *argv[]);
static int warm_main(const char *shown, int argc, char *argv[]);
static int report_main(const char *shown, int argc, char *argv[]);
static int doctor_main(const char *shown, int argc, char *argv[]);
static int secret_main(const char *shown, int argc, char *argv[]);
static int manifest_main(const char *shown, int argc, char *argv[]);
static int link_main(const char *shown, int argc, char *argv[]);
static int man_main(const char *shown, int argc, char *argv[]);
static int completion_main(const char *shown, int argc, char *argv[]);

static const struct subcommand subcommands[] = {
    {"run", "start, watch and restart workers; muster run --help lists its flags", run_main},
    {"local", "run a manifest (PyTorchJob, TrainJob, JobSet, Job) on this machine, as a cluster would",
     local_command},
    {"manifest", "write a manifest, or a script for Slurm, that runs a program on several nodes",
     manifest_main},
    {"launch", "the same as python -m torch.distributed.launch: --local-rank is added to the arguments",
     launch_main},
    {"env", "every setting of muster run with its value here and its source", env_main},
    {"status", "status of the agent on this machine or in this container", status_main},
    {"top", "a running job in the terminal, of an agent here or elsewhere", top_main},
    {"report", "a job's rounds, recoveries and curves as one HTML file", report_main},
    {"checkpoint", "ask a running job for a checkpoint", checkpoint_main},
    {"drain", "move a node's ranks to a spare, before the node goes", drain_main},
    {"doctor", "whether this machine is fit for a job: GPUs, network, memory, limits, disk, clock",
     doctor_main},
    {"warm", "templates that muster run --warm-keep has left: show them, end them", warm_main},
    {"secret", "make the secret that protects a job of several nodes", secret_main},
    {"link-torchrun", "make a link named torchrun to muster, for scripts that call it", link_main},
    {"man", "print the manual page of muster or of a subcommand", man_main},
    {"completion", "print what bash or zsh needs to complete muster's flags", completion_main},
};
enum { SUBCOMMAND_COUNT = sizeof subcommands / sizeof *subcommands };

static const char *read_variable(void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

/* The log until the agent has its own output to the console. */
struct early_log {
    struct log_style style;
    char host[MACHINE_NAME_SIZE];
};

static void write_early(void *context, enum log_level level, const char *line)
{
    const struct early_log *early = context;
    scope_buffer record = {0};
    if (log_record_agent(&early->style, level, clock_wall_ns(), line, &record) == 0)
        (void)io_write_all(STDERR_FILENO, record.data, record.length, "standard error",
                           NULL); /* gone: lost */
}

/* Writes one text to a descriptor; a closed console only changes the exit code. */
static int print(int fd, const struct buffer *text)
{
    return !text->failed && io_write_all(fd, text->data, text->length, "output", NULL) == 0
               ? EXIT_CODE_OK
               : EXIT_CODE_FAILURE;
}

static int fail(const char *shown, struct run_config *config, const char *message, int exit_code)
{
    scope_buffer complaints = {0};
    if (exit_code == EXIT_CODE_USAGE)
        (void)fprintf(stderr, "usage: %s [flags] [--] program [arguments]\n", shown);
    (void)fprintf(stderr, "%s: error: %s\n", shown, message);
    config_salvage(config, read_variable, NULL);
    startup_failure_write(shown, config, message, exit_code, &complaints);
    if (complaints.length)
        (void)print(STDERR_FILENO, &complaints);
    return exit_code;
}

/* Before there is an agent: the settings are wrong, or this machine could not do it now. */
static int start_code(const struct muster_error *err)
{
    const int code = exit_code_of_error(err->code);
    return code == EXIT_CODE_ENVIRONMENT ? code : EXIT_CODE_USAGE;
}

static void announce_lines(const char *lines, enum log_level level, const struct log_sink *log)
{
    for (const char *line = lines ? lines : ""; *line;) {
        size_t length = strcspn(line, "\n");
        log_write(log, level, "%.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

/* NCCL's environment as far as it is known before the node joins. */
static int look(const struct run_config *config, bool always, struct nvml_probe *nvml, struct nccl_env *tune,
                struct muster_error *err)
{
    struct nccl_env_place place = nccl_env_place_before(config);
    return nccl_env_read(config, environ, always, nvml, tune, err) < 0 ||
                   nccl_env_decide(tune, &place, err) < 0
               ? -1
               : 0;
}

/* Whether a file has set the variable of an entry of environ. */
static bool is_from_file(const struct run_config *config, const char *entry)
{
    for (size_t i = 0; i < config->variable_count; i++) {
        const char *name = config->variables[i].name;
        size_t length = strlen(name);
        if (!config->variables[i].kept && !strncmp(entry, name, length) && entry[length] == '=')
            return true;
    }
    return false;
}

/* The environment that this process was started with, as far as no file has changed it. */
static int read_inherited(const struct run_config *config, struct text_list *out, struct muster_error *err)
{
    for (char **entry = environ; *entry; entry++)
        if (!is_from_file(config, *entry) && text_list_take(out, mem_strdup(*entry)) < 0)
            return error_set(err, MUSTER_E_NOMEM, "no memory");
    return 0;
}

static int dry_run(const char *shown, struct run_config *config, const struct nccl_env *tune)
{
    struct muster_error err = {0};
    scope_buffer out = {0};
    scope_text_list inherited = {0};
    char **given = nccl_env_environment(tune, environ, &err);
    int result = given && read_inherited(config, &inherited, &err) == 0
                     ? dry_run_print(config, inherited.items, given, &out, &err)
                     : -1;
    text_list_free_items(given);
    return result < 0 ? fail(shown, config, err.text, EXIT_CODE_FAILURE) : print(STDOUT_FILENO, &out);
}

static int run_help(const char *shown, const struct run_config *config)
{
    scope_buffer out = {0};
    if (config->output == OUTPUT_MARKDOWN)
        (void)config_markdown(&out);
    else
        (void)config_help(shown, KNOB_HELP_COLUMNS, &out); /* out remembers a failure */
    return print(STDOUT_FILENO, &out);
}

/* Flags, variables and --accelerate-config, whose variables become this process's own: the look at the
 * machine, agents on other hosts and workers see them. */
static int read_settings(int argc, char *argv[], struct run_config *config, struct muster_error *err)
{
    if (config_parse(argc, argv, read_variable, NULL, config, err) < 0)
        return -1;
    if (config->help)
        return 0;
    if (config_warn_of_variables(config, environ, err) < 0 ||
        accelerate_load(config, read_variable, NULL, err) < 0)
        return -1;
    for (size_t i = 0; i < config->variable_count; i++) {
        const struct config_variable *variable = &config->variables[i];
        if (!variable->kept && setenv(variable->name, variable->value, 1) < 0)
            return error_set(err, MUSTER_E_NOMEM, "no memory");
    }
    return 0;
}

/* Flags and variables, then the values that depend on this machine. The driver is queried only if the
 * result matters: that can take seconds. */
static int resolve(struct run_config *config, struct machine *machine, struct nvml_probe *nvml,
                   struct muster_error *err)
{
    const char *visible = getenv(ENV_CUDA_VISIBLE_DEVICES);
    machine_read(visible, machine);
    if (config_wants_gpus(config, machine) && machine_read_gpus(visible, nvml, machine, err) < 0)
        return -1;
    return config_resolve(config, machine, read_variable, NULL, err) < 0 ||
                   config_binding_resolve(config, machine, "/sys", err) < 0
               ? -1
               : 0;
}

static int run_resolved(const char *shown, struct run_config *config, struct nvml_probe *nvml)
{
    struct muster_error err = {0};
    int exit_code = EXIT_CODE_FAILURE;
    struct early_log early = {.style = {(enum log_format)config->log_format, early.host}};
    machine_host_name(early.host);
    int level = getenv("LOGLEVEL") ? log_level_parse(getenv("LOGLEVEL")) : LOG_LEVEL_INFO;
    struct log_sink log = {.write = write_early,
                           .context = &early,
                           .threshold = level < 0 ? LOG_LEVEL_INFO : (enum log_level)level,
                           .who = "muster"};
    if (find_program_check(config, read_variable, NULL, &exit_code, &err) < 0)
        return fail(shown, config, err.text, exit_code);
    announce_lines(config->notes, LOG_LEVEL_INFO, &log);
    announce_lines(config->warnings, LOG_LEVEL_WARNING, &log);
    if (config->interpreter)
        log_info(&log,
                 "the workers' Python is %s, of the environment that this program is in; PYTHON_EXEC names "
                 "another",
                 config->interpreter);
    int threads = worker_command_omp_threads(config, environ, config->cores);
    if (threads > 0)
        log_info(&log, "OMP_NUM_THREADS is not set: %d for each of %d workers (%d cores)", threads,
                 config->nproc_per_node, config->cores);
    struct nccl_env __attribute__((cleanup(nccl_env_free))) tune = {0};
    if (look(config, false, nvml, &tune, &err) < 0 || nccl_env_check(&tune, &err) < 0)
        return fail(shown, config, err.text, start_code(&err));
    if (config->dry_run)
        return dry_run(shown, config, &tune);
    if (pre_flight_examine(config, &log, &tune, &err) < 0)
        return fail(shown, config, err.text, EXIT_CODE_FAILURE);
    return agent_run(config, &tune, &log);
}

/* Agents on other hosts, instead of one here. */
static int run_hosts(const char *shown, struct run_config *config, int argc, char *argv[])
{
    struct muster_error err = {0};
    bool of_called;
    scope_free char *python = interpreter_find(read_variable, NULL, &of_called);
    if (python && of_called &&
        setenv(ENV_PYTHON_EXEC, python, 0) < 0) /* the others start this program's file */
        return fail(shown, config, "no memory", EXIT_CODE_FAILURE);
    int log_fd = STDERR_FILENO;
    int level = getenv("LOGLEVEL") ? log_level_parse(getenv("LOGLEVEL")) : LOG_LEVEL_INFO;
    struct log_sink log = {.write = log_write_to_fd,
                           .context = &log_fd,
                           .threshold = level < 0 ? LOG_LEVEL_INFO : (enum log_level)level,
                           .who = "muster"};
    int code = hosts_run(config, argc, argv, &log, &err);
    if (code >= 0)
        return code;
    return fail(shown, config, err.text, start_code(&err));
}

static int print_settings(const char *shown, struct run_config *config, const struct machine *machine,
                          struct nvml_probe *nvml)
{
    struct muster_error err = {0};
    scope_buffer out = {0};
    struct nccl_env __attribute__((cleanup(nccl_env_free))) tune = {0};
    if (look(config, true, nvml, &tune, &err) < 0)
        return fail(shown, config, err.text, start_code(&err));
    int log_fd = STDERR_FILENO;
    struct log_sink log = {.write = log_write_to_fd, .context = &log_fd, .who = "muster"};
    const char *asked = getenv(ENV_PYTHON_EXEC);
    bool of_called;
    config->interpreter =
        asked && *asked ? mem_strdup(asked) : interpreter_find(read_variable, NULL, &of_called);
    (void)config_print(config, machine, &tune.decisions, &out); /* out remembers a failure */
    if (config->output == OUTPUT_TEXT)
        announce_lines(config->warnings, LOG_LEVEL_WARNING, &log);
    return print(STDOUT_FILENO, &out);
}

static int command_main(enum config_command command, const char *shown, int argc, char *argv[])
{
    struct muster_error err = {0};
    struct run_config config = {.command = command};
    struct nvml_probe __attribute__((cleanup(nvml_probe_free))) nvml = {0};
    scope_free struct machine *machine = mem_calloc(1, sizeof *machine);
    int exit_code = EXIT_CODE_FAILURE;
    if (!machine)
        return fail(shown, &config, "no memory", exit_code);
    if (read_settings(argc, argv, &config, &err) == 0 && config.help)
        exit_code = run_help(shown, &config);
    else if (!*err.text && command != COMMAND_ENV && hosts_wanted(&config))
        exit_code = run_hosts(shown, &config, argc, argv);
    else if (*err.text || resolve(&config, machine, &nvml, &err) < 0)
        exit_code = fail(shown, &config, err.text, start_code(&err));
    else if (command == COMMAND_ENV)
        exit_code = print_settings(shown, &config, machine, &nvml);
    else
        exit_code = run_resolved(shown, &config, &nvml);
    config_free(&config);
    return exit_code;
}

static int run_main(const char *shown, int argc, char *argv[])
{
    return command_main(COMMAND_RUN, shown, argc, argv);
}

static int launch_main(const char *shown, int argc, char *argv[])
{
    return command_main(COMMAND_LAUNCH, shown, argc, argv);
}

static int env_main(const char *shown, int argc, char *argv[])
{
    return command_main(COMMAND_ENV, shown, argc, argv);
}

static bool print_both(const struct buffer *out, const struct buffer *complaint)
{
    return (!complaint->length || print(STDERR_FILENO, complaint) == EXIT_CODE_OK) &&
           (!out->length || print(STDOUT_FILENO, out) == EXIT_CODE_OK);
}

/* A command that returns its output as text. */
static int text_main(int (*command)(int argc, char *const argv[], struct buffer *out,
                                    struct buffer *complaint),
                     int argc, char *argv[])
{
    scope_buffer out = {0}, complaint = {0};
    int exit_code = command(argc, argv, &out, &complaint);
    const bool printed = print_both(&out, &complaint);
    if (out.data)
        secret_wipe(out.data, out.capacity); /* muster secret's holds one */
    return printed && !out.failed ? exit_code : EXIT_CODE_FAILURE;
}

static int status_main(const char *shown, int argc, char *argv[])
{
    (void)shown;
    return text_main(status_command, argc, argv);
}

static int top_main(const char *shown, int argc, char *argv[])
{
    (void)shown;
    return text_main(top_command, argc, argv);
}

static int warm_main(const char *shown, int argc, char *argv[])
{
    (void)shown;
    return text_main(warm_command, argc, argv);
}

static int report_main(const char *shown, int argc, char *argv[])
{
    (void)shown;
    return text_main(report_command, argc, argv);
}

static int checkpoint_main(const char *shown, int argc, char *argv[])
{
    (void)shown;
    return text_main(checkpoint_command, argc, argv);
}

static int drain_main(const char *shown, int argc, char *argv[])
{
    (void)shown;
    return text_main(drain_command, argc, argv);
}

static int doctor_main(const char *shown, int argc, char *argv[])
{
    (void)shown;
    return text_main(doctor_command, argc, argv);
}

static int secret_main(const char *shown, int argc, char *argv[])
{
    (void)shown;
    return text_main(secret_command, argc, argv);
}

static int manifest_main(const char *shown, int argc, char *argv[])
{
    (void)shown;
    return text_main(manifest_command, argc, argv);
}

/* The source of the manual and of the shells' completions. */
static int print_pages(int (*print_them)(const struct pages_subject *, int, int, char *const[],
                                         struct buffer *, struct buffer *),
                       int argc, char *argv[])
{
    const struct pages_subject subjects[] = {
        {{"muster run", "starts, watches and restarts workers", config_description, NULL, config_table(),
          NULL},
         "muster run [flags] [--] program [arguments]"},
        {{"muster local", "runs a PyTorchJob, TrainJob, JobSet or Job manifest on this machine",
          local_settings_description,
          "0 the job succeeded; 2 the flags or the manifest are wrong; 138 a process cannot be killed; any "
          "other: the code "
          "of the container that failed the job (muster local --help)",
          local_settings_table(), NULL},
         "muster local -f FILE [flags]"},
        {manifest_page, "muster manifest [flags] [--] program [arguments]"},
        {{"muster launch", "muster run with --local-rank among the program's arguments", config_description,
          NULL, config_table(), NULL},
         "muster launch [flags] [--] program [arguments]"},
        {{"muster env", "shows every setting of muster run with its value and source", config_description,
          NULL, config_table(), NULL},
         "muster env [flags of muster run]"},
        {status_page, "muster status [flags]"},
        {top_page, "muster top [flags]"},
        {report_page, "muster report [flags]"},
        {checkpoint_page, "muster checkpoint [flags]"},
        {drain_page, "muster drain [flags] NODE"},
        {doctor_page, "muster doctor [flags]"},
        {warm_page, "muster warm [flags]"},
        {secret_page, "muster secret [flags]"},
        {link_torchrun_page, "muster link-torchrun [flags]"},
        {{"muster man", "prints a manual page",
          "Prints the source of a page, for man -l -: muster man run | man -l -", "0 printed; 2 bad usage",
          NULL, NULL},
         "muster man [SUBCOMMAND]"},
        {{"muster completion", "prints a shell's completions",
          "For this shell: source <(muster completion bash). For all: muster completion bash > "
          "/etc/bash_completion.d/muster, or muster completion zsh into a file _muster in a folder of "
          "$fpath.",
          "0 printed; 2 bad usage", NULL, NULL},
         "muster completion bash\nmuster completion zsh"},
    };
    static_assert(sizeof subjects / sizeof *subjects == SUBCOMMAND_COUNT, "every subcommand has a page");
    scope_buffer out = {0}, complaint = {0};
    const int code = print_them(subjects, SUBCOMMAND_COUNT, argc, argv, &out, &complaint);
    return print_both(&out, &complaint) ? code : EXIT_CODE_FAILURE;
}

static int link_main(const char *shown, int argc, char *argv[])
{
    (void)shown;
    return text_main(link_command, argc, argv);
}

static int man_main(const char *shown, int argc, char *argv[])
{
    (void)shown;
    return print_pages(pages_man, argc, argv);
}

static int completion_main(const char *shown, int argc, char *argv[])
{
    (void)shown;
    return print_pages(pages_completion, argc, argv);
}

static int muster_help(void)
{
    scope_buffer out = {0};
    buffer_text(&out,
                "usage: muster <subcommand> [arguments]\n\n"
                "Launches distributed training; called through a link named torchrun it is muster run.\n\n");
    for (int i = 0; i < SUBCOMMAND_COUNT; i++)
        buffer_printf(&out, "  %-15s%s\n", subcommands[i].name, subcommands[i].help);
    buffer_text(&out, "  --version      print the version\n  --help         print this\n\nExit codes:\n");
#define EXIT_LINE(symbol, value, meaning) buffer_printf(&out, "  %-12d%s\n", value, meaning);
    MUSTER_EXIT_CODES(EXIT_LINE)
#undef EXIT_LINE
    buffer_text(
        &out,
        "  128+n       a worker was ended by signal n; any other code is the first failing worker's own\n");
    return print(STDOUT_FILENO, &out);
}

static int run_subcommand(const char *name, int argc, char *argv[])
{
    for (int i = 0; i < SUBCOMMAND_COUNT; i++) {
        scope_free char *shown = mem_printf("muster %s", subcommands[i].name);
        if (!strcmp(name, subcommands[i].name))
            return subcommands[i].run(shown ? shown : "muster", argc, argv);
    }
    const char *names[SUBCOMMAND_COUNT];
    for (int i = 0; i < SUBCOMMAND_COUNT; i++)
        names[i] = subcommands[i].name;
    const char *hint = text_nearest(name, names, SUBCOMMAND_COUNT);
    struct muster_error err;
    (void)error_set(&err, MUSTER_E_INVALID, "unknown subcommand '%s'; %s%s", name,
                    hint ? "did you mean muster " : "muster --help lists them", hint ? hint : "");
    (void)fprintf(stderr, "muster: error: %s\n", err.text);
    return EXIT_CODE_USAGE;
}

int main(int argc, char *argv[])
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const char *called = argc > 0 ? (slash ? slash + 1 : argv[0]) : "muster";
    if (python_shim_is_name(called))
        return python_shim_main(argc, argv);
    if (!strcmp(called, "torchrun"))
        return run_main("torchrun", argc - 1, argv + 1);
    if (argc < 2) {
        (void)fprintf(stderr, "muster: error: no subcommand was given; muster --help lists them\n");
        return EXIT_CODE_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || (!strcmp(argv[1], "help") && argc == 2))
        return muster_help();
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
        (void)printf("muster " MUSTER_VERSION "\n");
        return fflush(stdout) == 0 ? EXIT_CODE_OK : EXIT_CODE_FAILURE;
    }
    if (!strcmp(argv[1], "host-node")) /* what run --hosts starts on each host: not for people */
        return hosts_node_main("muster host-node", argc - 2, argv + 2);
    if (!strcmp(argv[1], WARM_REAPER_COMMAND)) /* started by a kept template, not by people */
        return warm_reaper_main(argc - 2, argv + 2);
    if (!strcmp(argv[1], "help") && argc > 2) { /* muster help run */
        char *asks[] = {(char[]){"--help"}, NULL};
        return run_subcommand(argv[2], 1, asks);
    }
    return run_subcommand(argv[1], argc - 2, argv + 2);
}
