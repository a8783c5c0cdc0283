/* checkpoint_command.c - see commands.h. */
#include "launcher/commands/commands.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "launcher/commands/agent_choice.h"
#include "launcher/commands/flag_command.h"
#include "proto/base/error.h"
#include "proto/exit_code.h"

struct options {
    int64_t pid;
    double timeout_s;
    char *job;
    bool no_wait, help;
};

#define AT(member) KNOB_OFFSET(options, member)

static const struct knob rows[] = {
    AGENT_CHOICE_ROWS(AT(pid), AT(job)),
    AGENT_WAIT_ROWS(AT(no_wait), "ends as soon as a rank was asked", AT(timeout_s),
                    "seconds for which the result is waited for"),
    KNOB_HELP_ROW(AT(help), "Flags"),
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

/* The worker that was asked, and the steps that it had finished. */
struct asked {
    int rank, pid;
    long long step;
};

/* The reply is "+" and who was asked, or "-" and why nobody was. */
static int ask_one(const struct agent_found *agent, struct asked *asked, struct muster_error *err)
{
    scope_buffer reply = {0};
    if (status_ask(agent->name, STATUS_ASK_CHECKPOINT, AGENT_PATIENCE_NS, &reply, NULL, err) < 0)
        return -1;
    if (reply.data[0] != '+')
        return error_set(err, MUSTER_E_REFUSED, "agent %d: %.*s", (int)agent->pid, (int)reply.length - 2,
                         reply.data + 1); /* without the newline */
    if (sscanf(reply.data, "+%d %d %lld", &asked->rank, &asked->pid, &asked->step) != 3)
        return error_set(err, MUSTER_E_PEER, "agent %d replies in a form of another version: %.60s",
                         (int)agent->pid, reply.data);
    return 0;
}

/* One look at the result. 1: it is written, which is in out; 0: not yet; -1. */
static int look_at_result(const struct agent_found *agent, const struct asked *asked, struct buffer *out,
                          struct muster_error *err)
{
    scope_buffer reply = {0};
    if (status_ask(agent->name, STATUS_ASK_SAVED, AGENT_PATIENCE_NS, &reply, NULL, err) < 0)
        return error_wrap(err, "after rank %d (pid %d) was asked", asked->rank, asked->pid);
    for (char *line = reply.data, *end; (end = strchr(line, '\n')); line = end + 1) {
        char how[8];
        long long step;
        int pid, text = 0;
        *end = '\0';
        if (sscanf(line, "%d %7s %lld %n", &pid, how, &step, &text) != 3 || pid != asked->pid)
            continue;
        if (!strcmp(how, "none") || step < asked->step)
            return 0;
        if (strcmp(how, "saved") != 0)
            return error_set(err, MUSTER_E_IO, "the checkpoint was not written: %s", line + text);
        buffer_printf(out, "checkpoint %s\n", line + text);
        return 1;
    }
    return error_set(err, MUSTER_E_PEER,
                     "rank %d (pid %d) has ended before the checkpoint was written; its last checkpoint "
                     "is in training.checkpoint_dir",
                     asked->rank, asked->pid);
}

static int wait_for_it(const struct agent_found *agent, const struct asked *asked, double timeout_s,
                       struct buffer *out, struct muster_error *err)
{
    const struct instant until = instant_add(clock_now(NULL), (int64_t)(timeout_s * (double)NS_PER_S));
    for (;;) {
        int result = look_at_result(agent, asked, out, err);
        if (result)
            return result < 0 ? -1 : 0;
        if (instant_reached(clock_now(NULL), until))
            return error_set(
                err, MUSTER_E_TIMEOUT,
                "no checkpoint of rank %d (pid %d) within %g s: it is still training or writing, "
                "or reports no results (muster-train does, other programs by muster_checkpointed); "
                "raise --timeout, or use --no-wait",
                asked->rank, asked->pid, timeout_s);
        (void)poll(NULL, 0, AGENT_PAUSE_MS); /* shorter is no harm */
    }
}

static int ask_and_wait(const struct agent_found *agent, const struct options *options, struct buffer *out,
                        struct muster_error *err)
{
    struct asked asked;
    if (ask_one(agent, &asked, err) < 0)
        return EXIT_CODE_FAILURE;
    buffer_printf(out, "asked rank %d (pid %d) for a checkpoint%s\n", asked.rank, asked.pid,
                  options->no_wait ? "; rank 0 prints its path when it is written" : "");
    if (options->no_wait)
        return EXIT_CODE_OK;
    return wait_for_it(agent, &asked, options->timeout_s, out, err) < 0 ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
}

static int checkpoint_ask(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
                          struct muster_error *err)
{
    const struct options *options = command->options;
    const struct agent_choice choice = {command->page->name, options->pid, options->job};
    struct agents_found agents = {0};
    int code = EXIT_CODE_FAILURE;
    if (agents_find(&choice, &agents, complaint, err) == 0 && agents.count == 1) {
        code = ask_and_wait(&agents.found[0], options, out, err);
    } else if (agents.count > 1) {
        agents_table(&agents, out);
        agents_ask_for_one(&choice, &agents, complaint);
        code = EXIT_CODE_USAGE;
    }
    agents_free(&agents);
    return code;
}

const struct command_page checkpoint_page = {
    .name = "muster checkpoint",
    .brief = "asks a running job for a checkpoint",
    .description =
        "Asks the job of the agent (muster run) on this machine or in this container for a checkpoint: one "
        "of its\nworkers that handles SIGUSR2 gets it, muster-train where training.checkpoint_dir is set. "
        "All ranks write it\nafter their next step; waits until it is durable, and prints where it is and "
        "how "
        "long it took. Any node of the\njob will do. It needs no environment and no secret, only the agent's "
        "user or root.",
    .exit_codes =
        "0 written (--no-wait: asked); 1 not written, its rank ended before, no result in time,\nno such "
        "agent, it does not respond, or none of its workers handles SIGUSR2; 2 bad usage, or "
        "several\nagents run and none was chosen (they are listed)",
    .table = &table};

int checkpoint_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint)
{
    struct options options = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    const struct flag_command command = {&checkpoint_page, &options, &options.help, sources, checkpoint_ask};
    return flag_command(&command, argc, argv, out, complaint);
}
