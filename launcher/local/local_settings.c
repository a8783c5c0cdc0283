/* local_settings.c - see local_settings.h. */
#include "launcher/local/local_settings.h"

#include <string.h>

#include "launcher/local/manifest/api.h"
#include "proto/base/error.h"
#include "proto/base/knob_args.h"

#define AT(member) KNOB_OFFSET(local_settings, member)

static const char manifest[] = "Manifest";
static const char run[] = "Run";
static const char other[] = "Other";

struct meaning {
    const char *name, *meaning;
};

static const struct meaning signals[] = {
    {"TERM, INT, HUP, QUIT", "the job is deleted: SIGTERM to each pod, its grace period, SIGKILL"},
    {"USR1, USR2", "the job is suspended, resumed"},
    {"RTMIN+1, RTMIN+2", "an elastic job gets one worker more, one fewer"},
};

static const struct meaning exit_codes[] = {
    {"0", "the job succeeded"},
    {"2", "the flags or the manifest are wrong, or there are too few GPUs"},
    {"138", "a process of a pod cannot be killed"},
    {"128+n", "signal n deleted the job"},
    {"any other", "the job failed: the code of the container that failed it (1 for a deadline)"},
};

static const struct meaning apis[] = {
#define API(symbol, kind, version, release, newest)                                                          \
    {kind " " version, "as of " release ", whose newest part is " newest "; other fields are named"},
    APIS(API)
#undef API
};

static const char *const validations[] = {"strict", "warn", NULL};
static const char *const outputs[] = {"text", "json", "markdown", NULL};

static const struct knob rows[] = {
    {.name = "filename",
     .letter = 'f',
     .type = KNOB_LIST,
     .text = KNOB_FILE,
     .offset = AT(files),
     .section = manifest,
     .help = "A manifest in YAML or JSON, a folder of them, or - for the standard input. May be repeated, "
             "also for the ConfigMaps and Secrets of the job."},
    {.name = "job",
     .type = KNOB_TEXT,
     .offset = AT(job),
     .section = manifest,
     .help = "Name of the job, if the files hold several."},
    {.name = "entrypoint",
     .type = KNOB_TEXT,
     .offset = AT(entrypoint),
     .section = manifest,
     .help = "Command of the image for a container without one, e.g. \"python3 -u\"."},
    {.name = "env",
     .letter = 'e',
     .type = KNOB_LIST,
     .offset = AT(env),
     .section = manifest,
     .help =
         "NAME=value for every pod, overrides the manifest's NAME. Use it for a path of this machine where a "
         "cluster mounts a volume, or for a value of a Secret that only a cluster has. May be repeated."},
    {.name = "validate",
     .type = KNOB_CHOICE,
     .offset = AT(validate),
     .initial = "strict",
     .choices = validations,
     .section = manifest,
     .help = "With strict a manifest is refused if a cluster would refuse it, or if it needs more than is "
             "emulated. With warn it runs if the operator without its webhook would run it."},

    {.name = "log-dir",
     .type = KNOB_TEXT,
     .text = KNOB_FILE,
     .offset = AT(log_dir),
     .section = run,
     .help = "Folder for a file <pod>.log of each pod's output."},
    {.name = "quiet",
     .letter = 'q',
     .type = KNOB_BOOL,
     .offset = AT(quiet),
     .section = run,
     .help = "Do not print the pods' output."},
    {.name = "no-prefix",
     .type = KNOB_BOOL,
     .offset = AT(no_prefix),
     .section = run,
     .help = "Print it without [<pod>] before each line."},
    {.name = "volumes",
     .type = KNOB_TEXT,
     .text = KNOB_FILE,
     .offset = AT(volumes),
     .section = run,
     .help = "Folder in which each PersistentVolumeClaim is a folder of its name (a link leads elsewhere). "
             "Without it they are empty and deleted at the end."},
    {.name = "backoff-scale",
     .type = KNOB_DOUBLE,
     .offset = AT(backoff_scale),
     .initial = "0.1",
     .max = 1000,
     .section = run,
     .help = "Factor for the 10 s to 5 min that a cluster waits before it restarts a container."},
    {.name = "grace-period",
     .type = KNOB_DOUBLE,
     .offset = AT(grace_s),
     .initial = "-1",
     .min = -1,
     .max = 1e6,
     .unit = "s",
     .section = run,
     .help = "Between SIGTERM and SIGKILL of a pod. Below 0: its own terminationGracePeriodSeconds."},
    {.name = "keep-going",
     .type = KNOB_BOOL,
     .offset = AT(keep_going),
     .section = run,
     .help = "Wait for pods that a finished job leaves running (cleanPodPolicy None) until they end, or "
             "until ttlSecondsAfterFinished deletes them."},
    {.name = "linger",
     .type = KNOB_DOUBLE,
     .offset = AT(linger_s),
     .initial = "10",
     .max = 1e6,
     .unit = "s",
     .section = run,
     .help = "Without --keep-going: how long such pods may continue."},
    {.name = "gpus",
     .type = KNOB_TEXT,
     .offset = AT(gpus),
     .section = run,
     .help = "GPUs to divide among the pods, as in CUDA_VISIBLE_DEVICES. All that are visible by default."},
    {.name = "allow-gpu-shortage",
     .type = KNOB_BOOL,
     .offset = AT(gpu_shortage),
     .section = run,
     .help = "Pods without a GPU left run without, instead of an error."},

    {.name = "dry-run",
     .type = KNOB_BOOL,
     .offset = AT(dry_run),
     .section = other,
     .help = "Print each pod's environment and command, start nothing. Pods of a job that validation refuses "
             "are printed too."},
    {.name = "output",
     .letter = 'o',
     .type = KNOB_CHOICE,
     .offset = AT(output),
     .initial = "text",
     .choices = outputs,
     .section = other,
     .help = "Format of --dry-run (text, json), and of a --help after it (text, markdown)."},
    KNOB_HELP_ROW(AT(help), other),
};

const struct knob_table *local_settings_table(void)
{
    static const struct knob_table table = {rows, sizeof rows / sizeof *rows};
    return &table;
}

static int check_env(char *const *entries, struct muster_error *err)
{
    for (; entries && *entries; entries++)
        if (**entries == '=' || !strchr(*entries, '='))
            return error_set(err, MUSTER_E_INVALID, "--env: '%.200s' is not NAME=value", *entries);
    return 0;
}

static int check_settings(const struct local_settings *settings, int argc, char *const argv[], int at,
                          const uint8_t *sources, struct muster_error *err)
{
    const struct knob_table *table = local_settings_table();
    if (at < argc)
        return error_set(err, MUSTER_E_INVALID,
                         "'%.200s' is not a flag; manifests are named by -f, e.g. -f %.100s", argv[at],
                         argv[at]);
    if (settings->output == LOCAL_OUTPUT_MARKDOWN)
        return error_set(err, MUSTER_E_INVALID,
                         "--output=markdown is a format of --help: put --help after it");
    if (!settings->files)
        return error_set(err, MUSTER_E_INVALID, "no manifest was given; name one by -f, e.g. -f job.yaml");
    if (!settings->dry_run &&
        sources[knob_find(table, "output", 6, false, NULL) - table->knobs] == KNOB_FROM_FLAG)
        return error_set(err, MUSTER_E_INVALID, "--output is the format of --dry-run; give that too");
    return check_env(settings->env, err);
}

int local_settings_parse(int argc, char *const argv[], struct local_settings *settings,
                         struct muster_error *err)
{
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    int at = 0;
    if (knob_defaults(local_settings_table(), settings, err) < 0 ||
        knob_parse_flags(local_settings_table(), settings, sources, argc, argv, &at, &settings->help, err) <
            0)
        return -1;
    return settings->help ? 0 : check_settings(settings, argc, argv, at, sources, err);
}

void local_settings_free(struct local_settings *settings)
{
    if (settings)
        knob_free(local_settings_table(), settings);
}

struct local_options local_settings_options(const struct local_settings *settings)
{
    return (struct local_options){.backoff_scale = settings->backoff_scale,
                                  .grace_s = settings->grace_s,
                                  .keep_going = settings->keep_going,
                                  .linger_s = settings->linger_s,
                                  .quiet = settings->quiet,
                                  .no_prefix = settings->no_prefix,
                                  .log_dir = settings->log_dir,
                                  .volumes = settings->volumes,
                                  .gpus = settings->gpus,
                                  .gpu_shortage_allowed = settings->gpu_shortage};
}

const char local_settings_description[] =
    "Runs a PyTorchJob, a TrainJob with its runtime, a JobSet or a Job on this\n"
    "machine: defaults and validation, the environment and the volumes of each pod, restarts, the end of the "
    "job.\n"
    "Exit code 0 where the job would be Succeeded (Complete). Images are not used: commands run with the "
    "programs installed here, "
    "torchrun and\n"
    "python -m torch.distributed.run are muster run.";

int local_settings_help(const char *name, int columns, struct buffer *out)
{
    buffer_printf(out, "usage: %s -f FILE [flags]\n\n%s\n\n", name, local_settings_description);
    if (knob_help(local_settings_table(), columns, out) < 0)
        return -1;
    buffer_text(out, "\nSignals:\n");
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        buffer_printf(out, "  %-22s  %s\n", signals[i].name, signals[i].meaning);
    buffer_text(out, "\nKinds:\n");
    for (size_t i = 0; i < sizeof apis / sizeof *apis; i++)
        buffer_printf(out, "  %s\n    %s\n", apis[i].name, apis[i].meaning);
    buffer_text(out, "\nExit code:\n");
    for (size_t i = 0; i < sizeof exit_codes / sizeof *exit_codes; i++)
        buffer_printf(out, "  %-22s  %s\n", exit_codes[i].name, exit_codes[i].meaning);
    return out->failed ? -1 : 0;
}

static void add_list(const char *title, const struct meaning *rows, size_t count, struct buffer *out)
{
    buffer_printf(out, "\n## %s\n\n", title);
    for (size_t i = 0; i < count; i++) {
        scope_buffer item = {0};
        buffer_printf(&item, "- %s: %s", rows[i].name, rows[i].meaning);
        if (item.failed)
            out->failed = true;
        else
            knob_wrap(item.data, 2, KNOB_MARKDOWN_COLUMNS, out);
    }
}

int local_settings_markdown(struct buffer *out)
{
    buffer_text(out,
                "# The flags of `muster local`\n\n"
                "Printed by `muster local --output=markdown --help`; `ninja -C build flags` writes it here. "
                "Dashes and underscores are\nequal, unique prefixes are enough.\n\n");
    (void)knob_markdown(local_settings_table(), out); /* out remembers a failure */
    add_list("Signals", signals, sizeof signals / sizeof *signals, out);
    add_list("Kinds", apis, sizeof apis / sizeof *apis, out);
    add_list("Exit codes", exit_codes, sizeof exit_codes / sizeof *exit_codes, out);
    return out->failed ? -1 : 0;
}
