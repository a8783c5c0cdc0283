/* dry_run.h - pure: the output of --dry-run. */
#ifndef MUSTER_LAUNCHER_COMMANDS_DRY_RUN_H
#define MUSTER_LAUNCHER_COMMANDS_DRY_RUN_H

#include "launcher/config/config.h"

/* The command and the environment of every worker that this node would start, appended: the difference
 * from inherited, the agent's environ. given: the workers' part of it, with NCCL's variables
 * (launcher/nccl/nccl_env.h); NULL: inherited. config is resolved. */
int dry_run_print(const struct run_config *config, char *const *inherited, char *const *given,
                  struct buffer *out, struct muster_error *err);

#endif
