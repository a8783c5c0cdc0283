/* status_command.c - see status_command.h. */
#include "launcher/commands/status_command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/commands/flag_command.h"
#include "launcher/status/status_client.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"

enum output { OUTPUT_TABLE, OUTPUT_JSON };

static const int64_t patience_ns = 5 * NS_PER_S; /* an agent replies in its loop's next turn */

struct options {
    int output;
    int64_t pid;
    char *job;
    bool help;
};

#define AT(member) KNOB_OFFSET(options, member)

static const char *const outputs[] = {"table", "json", NULL};
static const struct knob rows[] = {
    {.name = "output",
     .letter = 'o',
     .type = KNOB_CHOICE,
     .offset = AT(output),
     .initial = "table",
     .choices = outputs,
     .section = "Flags",
     .help = "output format"},
    {.name = "pid",
     .type = KNOB_INT,
     .offset = AT(pid),
     .max = INT32_MAX,
     .section = "Flags",
     .help = "the agent with this process id, if several run"},
    {.name = "job",
     .type = KNOB_TEXT,
     .offset = AT(job),
     .section = "Flags",
     .help = "the agent of this job id (--rdzv-id), if several run"},
    KNOB_HELP_ROW(AT(help), "Flags"),
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

/* The one-line reply of an agent, for choosing and for the list. */
struct agent_found {
    const struct status_name *name;
    pid_t pid;
    long node_rank;
    char state[32];
    char *job; /* into line */
    struct buffer line;
};

static void found_free(struct agent_found *found, size_t count)
{
    for (size_t i = 0; found && i < count; i++)
        buffer_free(&found[i].line);
    mem_free(found);
}

/* "pid <tab> node rank <tab> state <tab> job id <end of line>" */
static bool read_summary(struct agent_found *found)
{
    int job = 0;
    char *line = found->line.data;
    if (sscanf(line, "%*d\t%ld\t%31[^\t]\t%n", &found->node_rank, found->state, &job) != 2 || !job)
        return false;
    found->job = line + job;
    found->job[strcspn(found->job, "\n")] = 0;
    return true;
}

static bool is_wanted(const struct options *options, const struct agent_found *found)
{
    return (!options->pid || options->pid == found->pid) &&
           (!options->job || !strcmp(options->job, found->job));
}

/* Whether an agent is to be queried: if a pid is given, only the agent with it, so that stopped agents do
 * not delay the reply. Its name has the pid in its own namespace, its socket the one in ours. */
static bool is_asked(const struct options *options, const struct status_name *name)
{
    if (!options->pid)
        return true;
    pid_t pid = status_whose(name, NULL);
    return pid == options->pid || (pid < 0 && name->pid == options->pid);
}

/* Queries every agent for its line and keeps the wanted ones. Those that do not respond are reported. */
static size_t survey(const struct options *options, const struct status_name *names, size_t count,
                     struct agent_found *kept, struct buffer *complaint)
{
    size_t kept_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct muster_error err = {0};
        struct agent_found *found = &kept[kept_count];
        *found = (struct agent_found){.name = &names[i], .pid = names[i].pid};
        if (!is_asked(options, &names[i]))
            continue;
        if (status_ask(&names[i], STATUS_ASK_SUMMARY, patience_ns, &found->line, &found->pid, &err) < 0) {
            buffer_printf(complaint, "muster status: %s\n", err.text);
        } else if (read_summary(found) && is_wanted(options, found)) {
            kept_count++;
            continue;
        }
        buffer_free(&found->line);
    }
    return kept_count;
}

static void list_table(const struct agent_found *found, size_t count, struct buffer *out)
{
    buffer_printf(out, "%8s %5s  %-9s %s\n", "PID", "NODE", "STATE", "JOB");
    for (size_t i = 0; i < count; i++)
        buffer_printf(out, "%8d %5ld  %-9s %s\n", (int)found[i].pid, found[i].node_rank, found[i].state,
                      found[i].job);
}

static void list_json(const struct agent_found *found, size_t count, struct buffer *out)
{
    buffer_text(out, "{\"agents\": [");
    for (size_t i = 0; i < count; i++) {
        buffer_printf(out,
                      "%s{\"pid\": %d, \"node_rank\": %ld, \"state\": \"%s\", \"job_id\": ", i ? ", " : "",
                      (int)found[i].pid, found[i].node_rank, found[i].state);
        buffer_json_string(out, found[i].job);
        buffer_text(out, "}");
    }
    buffer_text(out, "]}\n");
}

static int show_one(const struct options *options, const struct agent_found *found, struct buffer *out,
                    struct muster_error *err)
{
    enum status_question question = options->output == OUTPUT_JSON ? STATUS_ASK_JSON : STATUS_ASK_TABLE;
    if (status_ask(found->name, question, patience_ns, out, NULL, err) == 0)
        return EXIT_CODE_OK;
    buffer_clear(out);
    return EXIT_CODE_FAILURE;
}

static void say_none(const struct options *options, size_t others, struct buffer *complaint)
{
    buffer_text(complaint, "muster status: error: no agent (muster run) of this user");
    if (options->pid)
        buffer_printf(complaint, " with pid %lld", (long long)options->pid);
    if (options->job)
        buffer_printf(complaint, " of job '%s'", options->job);
    buffer_text(complaint, " responds in this network namespace");
    if (others)
        buffer_printf(complaint, "; there %s %zu other%s, muster status without --pid and --job lists them",
                      others == 1 ? "is" : "are", others, others == 1 ? "" : "s");
    buffer_text(complaint, "\n");
}

static int status_show(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
                       struct muster_error *err)
{
    const struct options *options = command->options;
    size_t count = 0;
    scope_free struct status_name *names = status_names_read(&count, err);
    struct agent_found *found = names ? mem_calloc(count + 1, sizeof *found) : NULL;
    if (!found) {
        if (names)
            (void)error_set(err, MUSTER_E_NOMEM, "no memory");
        return EXIT_CODE_FAILURE;
    }
    int code = EXIT_CODE_FAILURE;
    size_t kept = survey(options, names, count, found, complaint);
    if (kept == 1) {
        code = show_one(options, &found[0], out, err);
    } else if (kept == 0) {
        say_none(options, options->pid || options->job ? count : 0, complaint);
    } else {
        (options->output == OUTPUT_JSON ? list_json : list_table)(found, kept, out);
        buffer_printf(complaint, "muster status: %zu agents run here; choose one with --pid or --job\n",
                      kept);
        code = EXIT_CODE_USAGE;
    }
    found_free(found, kept);
    return code;
}

static void status_help(struct buffer *out)
{
    buffer_text(out,
                "usage: muster status [flags]\n\nStatus of the agent (muster run) on this machine or in this "
                "container. It needs no\nenvironment and no secret, only the agent's user or root.\n\n");
    (void)knob_help(&table, KNOB_HELP_COLUMNS, out); /* out remembers a failure */
    buffer_text(out, "\nExit codes: 0 shown; 1 no such agent, or it does not respond; 2 bad usage, or "
                     "several agents run and\nnone was chosen (they are listed)\n");
}

int status_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint)
{
    struct options options = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    const struct flag_command command = {"muster status", &table,      &options,   &options.help,
                                         sources,         status_help, status_show};
    return flag_command(&command, argc, argv, out, complaint);
}
