/* checkpoint_command.c - see checkpoint_command.h. */
#include "launcher/commands/checkpoint_command.h"

#include "launcher/commands/agent_choice.h"
#include "launcher/commands/flag_command.h"
#include "proto/base/error.h"
#include "proto/exit_code.h"

struct options {
    int64_t pid;
    char *job;
    bool help;
};

#define AT(member) KNOB_OFFSET(options, member)

static const struct knob rows[] = {
    AGENT_CHOICE_ROWS(AT(pid), AT(job)),
    KNOB_HELP_ROW(AT(help), "Flags"),
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

/* The reply is "+" and what was done, or "-" and why nothing was. */
static int ask_one(const struct agent_found *agent, struct buffer *out, struct muster_error *err)
{
    scope_buffer reply = {0};
    if (status_ask(agent->name, STATUS_ASK_CHECKPOINT, AGENT_PATIENCE_NS, &reply, NULL, err) < 0)
        return EXIT_CODE_FAILURE;
    if (reply.data[0] == '+') {
        buffer_text(out, reply.data + 1);
        return EXIT_CODE_OK;
    }
    (void)error_set(err, MUSTER_E_REFUSED, "agent %d: %.*s", (int)agent->pid, (int)reply.length - 2,
                    reply.data + 1); /* without the newline */
    return EXIT_CODE_FAILURE;
}

static int checkpoint_ask(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
                          struct muster_error *err)
{
    const struct options *options = command->options;
    const struct agent_choice choice = {command->name, options->pid, options->job};
    struct agents_found agents = {0};
    int code = EXIT_CODE_FAILURE;
    if (agents_find(&choice, &agents, complaint, err) == 0 && agents.count == 1) {
        code = ask_one(&agents.found[0], out, err);
    } else if (agents.count > 1) {
        agents_table(&agents, out);
        agents_ask_for_one(&choice, &agents, complaint);
        code = EXIT_CODE_USAGE;
    }
    agents_free(&agents);
    return code;
}

static void checkpoint_help(struct buffer *out)
{
    buffer_text(
        out, "usage: muster checkpoint [flags]\n\nAsks the job of the agent (muster run) on this machine or "
             "in this container for a checkpoint: one of its\nworkers that handles SIGUSR2 gets it, "
             "muster-train where training.checkpoint_dir is set. All ranks write it\nafter their next "
             "step, and rank 0 prints its path. Any node of the job will do. It needs no "
             "environment\nand no secret, only the agent's user or root.\n\n");
    (void)knob_help(&table, KNOB_HELP_COLUMNS, out); /* out remembers a failure */
    buffer_text(out, "\nExit codes: 0 asked; 1 no such agent, it does not respond, or none of its workers "
                     "handles SIGUSR2;\n2 bad usage, or several agents run and none was chosen (they are "
                     "listed)\n");
}

int checkpoint_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint)
{
    struct options options = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    const struct flag_command command = {"muster checkpoint", &table,        &options, &options.help, sources,
                                         checkpoint_help,     checkpoint_ask};
    return flag_command(&command, argc, argv, out, complaint);
}
