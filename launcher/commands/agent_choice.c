/* agent_choice.c - see agent_choice.h. */
#include "launcher/commands/agent_choice.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

void agents_free(struct agents_found *agents)
{
    for (size_t i = 0; agents->found && i < agents->count; i++)
        buffer_free(&agents->found[i].line);
    mem_free(agents->found);
    mem_free(agents->names);
    *agents = (struct agents_found){0};
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

static bool is_wanted(const struct agent_choice *choice, const struct agent_found *found)
{
    return (!choice->pid || choice->pid == found->pid) && (!choice->job || !strcmp(choice->job, found->job));
}

/* Whether an agent is to be queried: if a pid is given, only the agent with it, so that stopped agents do
 * not delay the reply. Its name has the pid in its own namespace, its socket the one in ours. */
static bool is_asked(const struct agent_choice *choice, const struct status_name *name)
{
    if (!choice->pid)
        return true;
    pid_t pid = status_whose(name, NULL);
    return pid == choice->pid || (pid < 0 && name->pid == choice->pid);
}

/* Queries every agent for its line and keeps the wanted ones. Silent agents are reported. */
static size_t survey(const struct agent_choice *choice, const struct status_name *names, size_t count,
                     struct agent_found *kept, struct buffer *complaint)
{
    size_t kept_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct muster_error err = {0};
        struct agent_found *found = &kept[kept_count];
        *found = (struct agent_found){.name = &names[i], .pid = names[i].pid};
        if (!is_asked(choice, &names[i]))
            continue;
        if (status_ask(&names[i], STATUS_ASK_SUMMARY, AGENT_PATIENCE_NS, &found->line, &found->pid, &err) <
            0) {
            buffer_printf(complaint, "%s: %s\n", choice->command, err.text);
        } else if (read_summary(found) && is_wanted(choice, found)) {
            kept_count++;
            continue;
        }
        buffer_free(&found->line);
    }
    return kept_count;
}

int agents_find(const struct agent_choice *choice, struct agents_found *agents, struct buffer *complaint,
                struct muster_error *err)
{
    size_t count = 0;
    agents->names = status_names_read(&count, err);
    if (!agents->names)
        return -1;
    agents->found = mem_calloc(count + 1, sizeof *agents->found);
    if (!agents->found)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    agents->count = survey(choice, agents->names, count, agents->found, complaint);
    if (!agents->count) {
        size_t others = choice->pid || choice->job ? count : 0;
        buffer_printf(complaint, "%s: error: no agent (muster run) of this user", choice->command);
        if (choice->pid)
            buffer_printf(complaint, " with pid %lld", (long long)choice->pid);
        if (choice->job)
            buffer_printf(complaint, " of job '%s'", choice->job);
        buffer_text(complaint, " responds in this network namespace");
        if (others)
            buffer_printf(complaint,
                          "; there %s %zu other%s, muster status without --pid and --job lists them",
                          others == 1 ? "is" : "are", others, others == 1 ? "" : "s");
        buffer_text(complaint, "\n");
    }
    return 0;
}

void agents_table(const struct agents_found *agents, struct buffer *out)
{
    const struct agent_found *found = agents->found;
    buffer_printf(out, "%8s %5s  %-9s %s\n", "PID", "NODE", "STATE", "JOB");
    for (size_t i = 0; i < agents->count; i++)
        buffer_printf(out, "%8d %5ld  %-9s %s\n", (int)found[i].pid, found[i].node_rank, found[i].state,
                      found[i].job);
}

void agents_json(const struct agents_found *agents, struct buffer *out)
{
    const struct agent_found *found = agents->found;
    buffer_text(out, "{\"agents\": [");
    for (size_t i = 0; i < agents->count; i++) {
        buffer_printf(out,
                      "%s{\"pid\": %d, \"node_rank\": %ld, \"state\": \"%s\", \"job_id\": ", i ? ", " : "",
                      (int)found[i].pid, found[i].node_rank, found[i].state);
        buffer_json_string(out, found[i].job);
        buffer_text(out, "}");
    }
    buffer_text(out, "]}\n");
}

void agents_ask_for_one(const struct agent_choice *choice, const struct agents_found *agents,
                        struct buffer *complaint)
{
    buffer_printf(complaint, "%s: %zu agents run here; choose one with --pid or --job\n", choice->command,
                  agents->count);
}
