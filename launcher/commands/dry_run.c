/* dry_run.c - see commands.h. */
#include "launcher/commands/commands.h"

#include <stdio.h>

#include "launcher/config/config.h"
#include "launcher/process/worker_command.h"
#include "proto/base/error.h"

/* out remembers a failure */
static void print_text(const struct run_config *config, const struct worker_command *command,
                       char *const *inherited, struct buffer *out)
{
    (void)worker_command_print(command, inherited, out);
    if (!config->cpus)
        return;
    buffer_text(out, "    on the CPUs ");
    numa_mask_print(&config->cpus[command->local_rank], out);
    buffer_text(out, "\n");
}

static void print_json(const struct run_config *config, const struct worker_command *command,
                       char *const *inherited, struct buffer *out)
{
    buffer_text(out, command->local_rank ? ",\n " : "");
    (void)worker_command_print_json(command, inherited, out);
    if (config->cpus) {
        buffer_text(out, ", \"cpus\": \"");
        numa_mask_print(&config->cpus[command->local_rank], out);
        buffer_text(out, "\"");
    }
    buffer_text(out, "}");
}

int dry_run_print(const struct run_config *config, char *const *inherited, char *const *given,
                  struct buffer *out, struct muster_error *err)
{
    int before = (int)config->node_rank * config->nproc_per_node,
        all = config->max_nodes * config->nproc_per_node;
    struct membership_world world = {.group_rank = (int)config->node_rank,
                                     .group_world_size = config->max_nodes,
                                     .rank_base = before,
                                     .world_size = all,
                                     .role_rank_base = before,
                                     .role_world_size = all,
                                     .master_port = (uint16_t)config->master_port};
    (void)snprintf(world.master_addr, sizeof world.master_addr, "%s",
                   config->master_addr); /* config limits it */
    if (config->output == OUTPUT_JSON)
        buffer_text(out, "[");
    for (int local_rank = 0; local_rank < config->nproc_per_node; local_rank++) {
        struct worker_command command;
        if (worker_command_build(config, &world, local_rank, config->kind, given ? given : inherited,
                                 config->cores, "dry-run", NULL, &command, err) < 0)
            return -1;
        (config->output == OUTPUT_JSON ? print_json : print_text)(config, &command, inherited, out);
        worker_command_free(&command);
    }
    if (config->output == OUTPUT_JSON)
        buffer_text(out, "]\n");
    else {
        if (config->max_nodes > 1)
            buffer_printf(out, "Ranks are right if every other node starts %d workers too.\n",
                          config->nproc_per_node);
        buffer_printf(out, "At the start MUSTER_AGENT_ID becomes unique%s%s; nothing was started.\n",
                      config->master_port ? "" : ", MASTER_PORT a free port",
                      config->max_nodes > 1 ? ", MASTER_PORT that of the workers' store" : "");
    }
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for the output of --dry-run") : 0;
}
