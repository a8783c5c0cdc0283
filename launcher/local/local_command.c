/* local_command.c - `muster local`: reads files, makes a job, prints or runs it. See local_command.h. */
#include "launcher/local/local_command.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/host/machine.h"
#include "launcher/local/job/job.h"
#include "launcher/local/local_internal.h"
#include "launcher/local/local_settings.h"
#include "launcher/local/manifest/manifest.h"
#include "launcher/local/run/runner.h"
#include "launcher/process/interpreter.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/env_names.h"
#include "proto/exit_code.h"

struct command {
    struct local_settings settings;
    struct documents documents;
    struct problems problems;
    struct local_job job;
    struct text_list entrypoint;
    int network; /* claims it; -1: none is claimed */
    char program[PATH_MAX], node[HOST_NAME_MAX + 1];
    struct log_sink log;
};

static int print(const struct buffer *text)
{
    return !text->failed && io_write_all(STDOUT_FILENO, text->data, text->length, "output", NULL) == 0
               ? EXIT_CODE_OK
               : EXIT_CODE_FAILURE;
}

static int command_fail(const struct command *command, const struct muster_error *err)
{
    log_error(&command->log, "%s", err->text);
    bool ours = err->code == MUSTER_E_NOMEM || err->code == MUSTER_E_IO;
    return ours ? EXIT_CODE_FAILURE : EXIT_CODE_USAGE;
}

/* out remembers a failure */
static int help(const char *shown, int output)
{
    scope_buffer out = {0};
    if (output == LOCAL_OUTPUT_MARKDOWN)
        (void)local_settings_markdown(&out);
    else
        (void)local_settings_help(shown, KNOB_HELP_COLUMNS, &out);
    return print(&out);
}

static int read_files(struct command *command, struct muster_error *err)
{
    for (char *const *file = command->settings.files; *file; file++)
        if (documents_add_path(&command->documents, *file, err) < 0)
            return -1;
    return 0;
}

static int build(struct command *command, struct muster_error *err)
{
    struct manifest_settings settings = {.job = command->settings.job, .env = command->settings.env};
    ssize_t length = readlink("/proc/self/exe", command->program, sizeof command->program - 1);
    if (length < 0)
        return error_errno(err, "cannot find this program itself by /proc/self/exe");
    command->program[length] = 0;
    if (command->settings.entrypoint &&
        pod_command_split(command->settings.entrypoint, &command->entrypoint, err) < 0)
        return error_wrap(err, "--entrypoint");
    settings.command =
        (struct pod_command_settings){command->entrypoint.items, command->program, command->settings.dry_run};
    /* Properties of this machine, for manifests that refer to them. */
    struct machine here;
    machine_read(NULL, &here);
    if (gethostname(command->node, sizeof command->node) < 0)
        command->node[0] = 0;
    command->node[sizeof command->node - 1] = 0;
    settings.machine.node_name = command->node[0] ? command->node : "localhost";
    settings.machine.cores = here.cores;
    settings.machine.memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    if (!command->settings.dry_run)
        settings.network = network_claim(&command->network);
    return read_files(command, err) < 0
               ? -1
               : manifest_build(&command->documents, &settings, &command->job, &command->problems, err);
}

static int dry_run(const struct command *command)
{
    scope_buffer out = {0};
    int result = command->settings.output == LOCAL_OUTPUT_JSON ? local_print_json(&command->job, &out)
                                                               : local_print_text(&command->job, &out);
    return result < 0 ? EXIT_CODE_FAILURE : print(&out);
}

static int run_or_print(struct command *command)
{
    bool refused = command->problems.fatal ||
                   (command->problems.errors && command->settings.validate == LOCAL_VALIDATE_STRICT);
    const struct problems *problems = &command->problems;
    bool warn = command->settings.validate == LOCAL_VALIDATE_WARN && !problems->fatal;
    for (size_t i = 0; i < problems->count; i++) {
        enum problem_type type = problems->list[i].type;
        enum log_level level = type == PROBLEM_NOTE              ? LOG_LEVEL_INFO
                               : type == PROBLEM_WARNING || warn ? LOG_LEVEL_WARNING
                                                                 : LOG_LEVEL_ERROR;
        log_write(&command->log, level, "%s", problems->list[i].text);
    }
    if (problems->left_out)
        log_warning(&command->log, "%zu more are not listed", problems->left_out);
    if (!command->problems.fatal && launch_check(&command->job, &command->documents, &command->log) < 0) {
        log_error(&command->log, "no memory");
        return EXIT_CODE_FAILURE;
    }
    int printed = command->settings.dry_run && !command->problems.fatal ? dry_run(command) : EXIT_CODE_OK;
    if (refused) {
        log_error(&command->log, "%zu error%s: the job is not run%s", command->problems.errors,
                  command->problems.errors == 1 ? "" : "s",
                  command->problems.fatal ? "" : "; --validate=warn runs it all the same");
        return EXIT_CODE_USAGE;
    }
    if (command->settings.dry_run)
        return printed;
    missing_files_warn(&command->job, &command->log);
    struct local_options options = local_settings_options(&command->settings);
    return local_run(&command->job, &options, &command->log);
}

static const char *read_environment(void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

/* Commands of pods are this machine's. Where this program lies in a Python environment, its programs come
 * first, as if it had been activated. */
static int enter_environment(const struct log_sink *log, struct muster_error *err)
{
    const char *path = getenv("PATH"), *asked = getenv(ENV_PYTHON_EXEC);
    bool of_called;
    scope_free char *python = asked && *asked ? NULL : interpreter_find(read_environment, NULL, &of_called);
    const char *slash = python ? strrchr(python, '/') : NULL;
    if (!slash)
        return 0;
    const int length = (int)(slash - python);
    scope_free char *longer =
        mem_printf("%.*s:%s", length, python, path ? path : "/usr/local/bin:/usr/bin:/bin");
    if (!longer || setenv("PATH", longer, 1) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    log_info(log, "commands are looked for in %.*s first, the environment that this program is in", length,
             python);
    return 0;
}

int local_command(const char *shown, int argc, char *argv[])
{
    struct muster_error err = {0};
    int exit_code, log_fd = STDERR_FILENO;
    int level = getenv("LOGLEVEL") ? log_level_parse(getenv("LOGLEVEL")) : LOG_LEVEL_INFO;
    struct command command = {.network = -1,
                              .log = {.write = log_write_to_fd,
                                      .context = &log_fd,
                                      .threshold = level < 0 ? LOG_LEVEL_INFO : (enum log_level)level,
                                      .who = shown}};
    if (local_settings_parse(argc, argv, &command.settings, &err) < 0)
        exit_code = command_fail(&command, &err);
    else if (command.settings.help)
        exit_code = help(shown, command.settings.output);
    else
        exit_code = enter_environment(&command.log, &err) < 0 || build(&command, &err) < 0
                        ? command_fail(&command, &err)
                        : run_or_print(&command);
    local_job_free(&command.job);
    problems_free(&command.problems);
    documents_free(&command.documents);
    text_list_free(&command.entrypoint);
    local_settings_free(&command.settings);
    if (command.network >= 0)
        (void)close(command.network); /* nothing was written */
    return exit_code;
}
