/* status_command.c - see commands.h. */
#include "launcher/commands/commands.h"

#include "launcher/commands/agent_choice.h"
#include "launcher/commands/flag_command.h"
#include "proto/exit_code.h"

enum output { OUTPUT_TABLE, OUTPUT_JSON };

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
    AGENT_CHOICE_ROWS(AT(pid), AT(job)),
    KNOB_HELP_ROW(AT(help), "Flags"),
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

static int show_one(const struct options *options, const struct agent_found *found, struct buffer *out,
                    struct muster_error *err)
{
    enum status_question question = options->output == OUTPUT_JSON ? STATUS_ASK_JSON : STATUS_ASK_TABLE;
    if (status_ask(found->name, question, AGENT_PATIENCE_NS, out, NULL, err) == 0)
        return EXIT_CODE_OK;
    buffer_clear(out);
    return EXIT_CODE_FAILURE;
}

static int status_show(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
                       struct muster_error *err)
{
    const struct options *options = command->options;
    const struct agent_choice choice = {command->page->name, options->pid, options->job};
    struct agents_found agents = {0};
    int code = EXIT_CODE_FAILURE;
    if (agents_find(&choice, &agents, complaint, err) == 0 && agents.count == 1) {
        code = show_one(options, &agents.found[0], out, err);
    } else if (agents.count > 1) {
        (options->output == OUTPUT_JSON ? agents_json : agents_table)(&agents, out);
        agents_ask_for_one(&choice, &agents, complaint);
        code = EXIT_CODE_USAGE;
    }
    agents_free(&agents);
    return code;
}

const struct command_page status_page = {
    .name = "muster status",
    .brief = "shows the agent on this machine",
    .description = "Status of the agent (muster run) on this machine or in this container. It needs "
                   "no\nenvironment and no secret, only the agent's user or root.",
    .exit_codes = "0 shown; 1 no such agent, or it does not respond; 2 bad usage, or several agents run "
                  "and\nnone was chosen (they are listed)",
    .table = &table};

int status_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint)
{
    struct options options = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    const struct flag_command command = {&status_page, &options, &options.help, sources, status_show};
    return flag_command(&command, argc, argv, out, complaint);
}
