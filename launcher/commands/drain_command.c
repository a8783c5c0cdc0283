/* drain_command.c - see commands.h. */
#include "launcher/commands/commands.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "launcher/commands/agent_choice.h"
#include "launcher/commands/flag_command.h"
#include "proto/base/error.h"
#include "proto/base/knob_args.h"
#include "proto/exit_code.h"

struct options {
    int64_t pid;
    double timeout_s;
    char *job;
    bool without_spare, no_wait, help;
    char *const *words; /* after the flags; ends with a NULL */
    const char *node;
};

#define AT(member) KNOB_OFFSET(options, member)

static const struct knob rows[] = {
    AGENT_CHOICE_ROWS(AT(pid), AT(job)),
    {.name = "without-spare",
     .type = KNOB_BOOL,
     .offset = AT(without_spare),
     .section = "Flags",
     .help = "also where no spare waits: the job goes on with a node less"},
    AGENT_WAIT_ROWS(AT(no_wait), "ends as soon as the node was asked to leave", AT(timeout_s),
                    "seconds until the node has left and the others run"),
    KNOB_HELP_ROW(AT(help), "Flags"),
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

/* The agent's reply, "WORD TEXT" and a newline. */
struct reply {
    char word[16];
    char text[MUSTER_ERROR_TEXT];
};

static int ask_agent(const struct agent_found *agent, const char *line, struct reply *reply,
                     struct muster_error *err)
{
    scope_buffer bytes = {0};
    int text = 0;
    if (status_ask_of(agent->name, STATUS_ASK_DRAIN, line, AGENT_PATIENCE_NS, &bytes, NULL, err) < 0)
        return -1;
    bytes.data[strcspn(bytes.data, "\n")] = '\0';
    if (sscanf(bytes.data, "%15s %n", reply->word, &text) != 1 || !text)
        return error_set(err, MUSTER_E_PEER, "agent %d replies in a form of another version: %.60s",
                         (int)agent->pid, bytes.data);
    (void)snprintf(reply->text, sizeof reply->text, "%s", bytes.data + text);
    return 0;
}

/* The first word that the node goes is printed, and the last. */
static int await_departure(const struct agent_found *agent, const struct options *options, const char *line,
                           struct buffer *out, struct muster_error *err)
{
    const struct instant until =
        instant_add(clock_now(NULL), (int64_t)(options->timeout_s * (double)NS_PER_S));
    bool goes = false, ends = false; /* the node; this agent, whose node it is */
    for (;;) {
        struct reply reply;
        if (ask_agent(agent, line, &reply, err) < 0) {
            if (!ends || err->code != MUSTER_E_PEER)
                return -1;
            *err = (struct muster_error){0};
            buffer_printf(out, "node \"%s\" has left: its agent, %d, has ended\n", options->node,
                          (int)agent->pid);
            return 0;
        }
        const bool left = !strcmp(reply.word, "left");
        ends = !strcmp(reply.word, "ends");
        if (!strcmp(reply.word, "refused"))
            return error_set(err, MUSTER_E_REFUSED, "%s", reply.text);
        if (left || (!goes && (ends || !strcmp(reply.word, "leaves")))) {
            buffer_printf(out, "%s\n", reply.text);
            goes = true;
        }
        if (left || (goes && options->no_wait))
            return 0;
        if (instant_reached(clock_now(NULL), until))
            return error_set(
                err, MUSTER_E_TIMEOUT,
                "node \"%s\" has not left within %g s: %s. It %s; muster top shows the nodes, and --timeout "
                "gives it longer",
                options->node, options->timeout_s, reply.text,
                goes ? "was asked to leave, and may still"
                     : "may still be asked to leave" /* the agent has sent the request on */);
        (void)poll(NULL, 0, AGENT_PAUSE_MS); /* shorter is no harm */
    }
}

static int drain(const struct agent_found *agent, const struct options *options, struct buffer *out,
                 struct muster_error *err)
{
    char line[MEMBERSHIP_NAME_LIMIT + 32];
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return error_errno(err, "getrandom");
    (void)snprintf(line, sizeof line, "%llu %s %s", (unsigned long long)(number | 1),
                   options->without_spare ? "alone" : "spare", options->node);
    return await_departure(agent, options, line, out, err);
}

/* Flags may follow the node as well. */
static int take_node(const struct flag_command *command, struct muster_error *err)
{
    struct options *options = command->options;
    int count = 0, at = 1;
    while (options->words && options->words[count])
        count++;
    options->node = count ? options->words[0] : NULL;
    if (!options->node)
        return error_set(err, MUSTER_E_INVALID,
                         "which node? Give its number in the job, or its agent's name: muster drain NODE");
    if (knob_parse_flags(&table, options, command->sources, count, options->words, &at, NULL, err) < 0)
        return -1;
    if (at < count)
        return error_set(err, MUSTER_E_INVALID, "'%s' is one word too many: one node at a time",
                         options->words[at]);
    const size_t length = strlen(options->node);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)options->node[i] <= ' ' || options->node[i] == 0x7f)
            return error_set(err, MUSTER_E_INVALID, "a node's name has no blanks or control characters");
    if (!length || length >= MEMBERSHIP_NAME_LIMIT)
        return error_set(err, MUSTER_E_INVALID, "a node's name has 1 to %d bytes, not %zu",
                         MEMBERSHIP_NAME_LIMIT - 1, length);
    return 0;
}

/* Any agent of a job will do. Jobs without an id cannot be told apart. */
static bool are_of_one_job(const struct agents_found *agents)
{
    bool one = agents->count > 0 && strcmp(agents->found[0].job, "none") != 0;
    for (size_t i = 1; i < agents->count; i++)
        one = one && !strcmp(agents->found[i].job, agents->found[0].job);
    return one;
}

static int drain_node(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
                      struct muster_error *err)
{
    const struct options *options = command->options;
    struct agents_found agents = {0};
    int code = EXIT_CODE_FAILURE;
    if (take_node(command, err) < 0)
        return EXIT_CODE_USAGE;
    const struct agent_choice choice = {command->page->name, options->pid, options->job};
    if (agents_find(&choice, &agents, complaint, err) < 0) {
        /* err says why */
    } else if (agents.count == 1 || are_of_one_job(&agents)) {
        code = drain(&agents.found[0], options, out, err) < 0 ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
    } else if (agents.count > 1) {
        agents_table(&agents, out);
        agents_ask_for_one(&choice, &agents, complaint);
        code = EXIT_CODE_USAGE;
    }
    agents_free(&agents);
    return code;
}

const struct command_page drain_page = {
    .name = "muster drain",
    .brief = "moves a node's ranks to a spare, before the node goes",
    .description =
        "Asks the job of an agent (muster run) on this machine or in this container to do without a node, as "
        "SIGTERM\nto the node's agent does: a spare takes its ranks, workers that can regroup stay, the "
        "others "
        "save and are started\nagain. NODE is the node's number in the job, or its agent's name. Without a "
        "spare nothing is changed. Waits until\nthe node has left and the others run. Any node of the job "
        "will do. It needs no environment and no secret, only\nthe agent's user or root.",
    .exit_codes =
        "0 the node has left (--no-wait: it was asked to); 1 nothing was changed, with the reason, or "
        "it\nhas "
        "not left in time, or no such agent, or it does not respond; 2 bad usage, or agents of several jobs "
        "run\nhere and none was chosen (they are listed)",
    .table = &table,
    .words = "NODE"};

int drain_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint)
{
    struct options options = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    const struct flag_command command = {&drain_page, &options, &options.help, sources, drain_node};
    return flag_command_words(&command, argc, argv, &options.words, out, complaint);
}
